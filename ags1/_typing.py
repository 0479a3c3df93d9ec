"""Types that the public signatures share. For type checkers only: at run time they are all ``object``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sys
    from typing import TypeAlias

    from ags1._gcm import Key

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

    KeyLike: TypeAlias = Key | Buffer
else:
    # typing costs more to import than all of the package.
    Buffer = object
    KeyLike = object

__all__ = ["Buffer", "KeyLike"]
