"""Many items (plaintexts, streams, keys, AAD prefixes) wherever they lie, found by native code without the GIL."""

from typing import Final, SupportsIndex, final

from typing_extensions import Self, disjoint_base

from ags1._typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@final
class NumberedPrefixes:
    """AAD prefixes that need no memory: a fixed part, then the position in the batch as a 64-bit number."""

    def __new__(cls, fixed: Buffer = b"", first: SupportsIndex = 0) -> Self: ...
    @property
    def fixed(self) -> bytes:
        """What every prefix begins with."""

    @property
    def first(self) -> int:
        """Number of the first item."""

    def __getitem__(self, index: SupportsIndex, /) -> bytes: ...

@disjoint_base
class Hold:
    """For native code: reached by cimport only."""

@disjoint_base
class Items:
    """For native code: reached by cimport only."""

@disjoint_base
class Memory:
    """For native code: reached by cimport only."""
