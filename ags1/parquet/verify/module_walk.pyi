from typing import Final

from ags1.parquet.structure.chunks import INDEX_OFFSETS as INDEX_OFFSETS
from ags1.parquet.structure.source_file import SourceFile
from ags1.parquet.verify.report import FileTally
from ags1.streams.files import Progress

__test__: Final[dict[str, str]]

def check_modules(
    file: SourceFile,
    tally: FileTally,
    required: list[bool],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None: ...
