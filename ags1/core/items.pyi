"""Many items (plaintexts, streams, keys, AAD prefixes) wherever they lie, found by native code without the GIL."""

from typing import Final, SupportsIndex, final

from typing_extensions import Self, disjoint_base

from ags1.support.typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@final
class NumberedPrefixes:
    def __new__(cls, fixed: Buffer = b"", first: SupportsIndex = 0) -> Self: ...
    @property
    def fixed(self) -> bytes: ...
    @property
    def first(self) -> int: ...
    def __getitem__(self, index: SupportsIndex, /) -> bytes: ...

@disjoint_base
class Hold: ...

@disjoint_base
class Items: ...

@disjoint_base
class Memory: ...
