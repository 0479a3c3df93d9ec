from typing import Any, Final

from typing_extensions import Self, disjoint_base

from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

PLAINTEXT: Final[int]
AES_GCM: Final[int]
AES_CTR: Final[int]

@disjoint_base
class PageSource:
    name: Final[str | None]
    size: Final[int]
    def __new__(cls, file: int | Buffer, *, base: int = 0, name: str | None = None) -> Self: ...

@disjoint_base
class Chunk:
    start: Final[int]
    end: Final[int]
    num_values: Final[int]
    label: Final[str]
    position: Final[int]
    values: Final[int]
    checksums: Final[int]
    total_compressed: Final[int]
    total_uncompressed: Final[int]
    data_page_offset: Final[int]
    dictionary_page_offset: Final[int]
    first_offset: Final[int]
    def __new__(
        cls,
        start: int,
        length: int,
        num_values: int,
        label: str,
        *,
        source_protection: int = 0,
        source_key: KeyLike | None = None,
        source_ordinals: tuple[int, int] = (0, 0),
        target_protection: int = 0,
        target_key: KeyLike | None = None,
        target_ordinals: tuple[int, int] = (0, 0),
        dictionary_expected: bool = False,
        ends_with_values: bool = False,
        raw: bool = False,
    ) -> Self: ...
    @property
    def done(self) -> bool: ...
    @property
    def data_pages(self) -> int: ...
    def page_locations(self) -> list[tuple[int, int, int]]: ...
    def moved_offset_index(self, index: Buffer) -> bytes | None: ...

@disjoint_base
class PageList:
    count: Final[int]
    stored: Final[int]
    def __new__(cls, source_aad: Buffer = b"") -> Self: ...
    def clear(self) -> None: ...
    def add(self, chunk: Chunk, source: PageSource, max_stored: int, max_pages: int = 16384) -> bool: ...
    def index_at(self, offset: int) -> int: ...
    def extent(self, index: int) -> tuple[int, int]: ...
    def details(self) -> list[dict[str, Any]]: ...
