"""Types that signatures share. For type checkers only: at run time they are all ``object``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sys
    from typing import Any, NoReturn

    from typing_extensions import Self

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer
else:
    # typing costs more to import than all of the package.
    Any = Buffer = NoReturn = Self = object

__all__ = ["Any", "Buffer", "NoReturn", "Self"]
