"""Types that signatures share. For type checkers only: at run time they are all ``object``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sys
    from collections.abc import Iterable
    from typing import Any, NoReturn, Protocol, TypeAlias

    from typing_extensions import Self

    from ags1._gcm import Key

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

    class ArrowArray(Protocol):
        """Arrow data in one piece."""

        def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...

    class ArrowStream(Protocol):
        """Arrow data in chunks."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

    KeyLike: TypeAlias = Key | Buffer
    # A tuple of two may be (data, offsets).
    Items: TypeAlias = Iterable[Buffer] | tuple[Buffer, Buffer | ArrowArray | ArrowStream] | ArrowArray | ArrowStream
else:
    # typing costs more to import than all of the package.
    Any = Buffer = Items = KeyLike = NoReturn = Self = object

__all__ = ["Any", "Buffer", "Items", "KeyLike", "NoReturn", "Self"]
