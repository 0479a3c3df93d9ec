"""Types that the public signatures share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ags1._gcm import Key

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

    KeyLike: TypeAlias = Key | Buffer
else:
    Buffer = Any
    KeyLike = Any

__all__ = ["Buffer", "KeyLike"]
