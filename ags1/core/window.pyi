"""The work on a window: consecutive items of a batch. Nothing of it is for Python."""

from typing import Final

from typing_extensions import disjoint_base

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@disjoint_base
class Window: ...
