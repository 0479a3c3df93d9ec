"""Offsets of ``(data, offsets)``: integers of every type, in Arrow's layout. Nothing of it is for Python."""

from typing import Final

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]
