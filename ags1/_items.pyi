"""Many items (plaintexts, streams, keys, AAD prefixes) wherever they lie, found by native code without the GIL."""

from typing import Final, SupportsIndex, final

from ags1._typing import Buffer

# Of every Cython module.
__test__: Final[dict[str, str]]

@final
class NumberedPrefixes:
    """AAD prefixes that need no memory: a fixed part, then the position in the batch as a 64-bit number."""

    def __init__(self, fixed: Buffer = b"", first: SupportsIndex = 0) -> None: ...
    @property
    def fixed(self) -> bytes:
        """What every prefix begins with."""

    @property
    def first(self) -> int:
        """Number of the first item."""

    def __getitem__(self, index: SupportsIndex) -> bytes: ...
