"""Types of keys and of batches that signatures share. For type checkers only: at run time they are ``object``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol, TypeAlias

    from ags1.core.gcm import Key
    from ags1.support.typing import Any, Buffer

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
    Items = KeyLike = object
