from typing import Final, final

from ags1.core.gcm import Key
from ags1.parquet.keys.properties import ColumnKey
from ags1.parquet.native.pages import Chunk
from ags1.parquet.native.thrift import BINARY as BINARY
from ags1.parquet.native.thrift import I32 as I32
from ags1.parquet.native.thrift import LIST as LIST
from ags1.parquet.native.thrift import STRUCT as STRUCT
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.chunks import DICTIONARY_ENCODINGS as DICTIONARY_ENCODINGS
from ags1.parquet.structure.chunks import SourceChunk

__test__: Final[dict[str, str]]

@final
class TargetChunk:
    source: Final[SourceChunk]
    row_group: Final[int]
    column: Final[int]
    key: Final[ColumnKey | None]
    unchanged: Final[bool]
    chunk: Final[Chunk]
    metadata: Final[Struct]
    def __init__(
        self,
        source: SourceChunk,
        row_group: int,
        column: int,
        key: ColumnKey | None,
        structure: Struct,
        *,
        protection: int,
        encrypts: bool,
        unchanged: bool,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def settle_pages(self) -> None: ...
    def place_bloom_filter(self, offset: int | None, length: int | None) -> None: ...
    def place_index(self, field: int, offset: int | None, length: int | None) -> None: ...
    def module(self, module_type: int, data: bytes) -> tuple[bytes, Key | None, int, int, int]: ...
    def moved(self, offset_index: bytes) -> bytes: ...
    def store_metadata(self, crypto: Struct | None, sealed: bytes | None, *, shown: bool) -> None: ...

def fitting(number: int, name: str) -> int: ...
