from typing import Final

from typing_extensions import Self, disjoint_base

from ags1.parquet.native.pages import Chunk, PageList, PageSource
from ags1.support.typing import Buffer

__test__: Final[dict[str, str]]

@disjoint_base
class Conversion:
    def __new__(
        cls,
        source_aad: Buffer = b"",
        target_aad: Buffer = b"",
        *,
        levels_inside: bool = False,
        threads: int | None = None,
    ) -> Self: ...
    def stop(self) -> None: ...
    def start(
        self, pages: PageList, source: PageSource, target: int, offset: int, *, target_name: str | None = None
    ) -> None: ...
    def wait(self) -> int: ...
    def convert(self, pages: PageList, source: PageSource, offset: int) -> bytearray: ...
    def view(
        self, pages: PageList, source: PageSource, out: Buffer, base: int, first: int = 0, last: int | None = None
    ) -> None: ...
    def verify(self, pages: PageList, source: PageSource) -> list[tuple[Chunk, int | None, Exception]]: ...
