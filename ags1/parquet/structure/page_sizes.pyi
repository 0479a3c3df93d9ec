from typing import Final

from typing_extensions import Self, disjoint_base

from ags1.parquet.native.pages import PageList
from ags1.support.typing import Buffer

__test__: Final[dict[str, str]]

@disjoint_base
class PageSizes:
    total: Final[int]
    count: Final[int]
    values: Final[int]
    indexed: Final[int]
    dictionary: Final[int]
    dictionary_values: Final[int]
    dictionary_place: Final[tuple[int, int]]
    expanding: Final[int]
    def __new__(cls) -> Self: ...

def page_sizes(
    data: Buffer, start: int, num_values: int, label: str, row_group: int, pages: PageList | None = None
) -> PageSizes: ...
def longest_value(values: Buffer, codec: str, size: int) -> int: ...
