from collections.abc import Sequence
from typing import Final, final

from typing_extensions import Self

from ags1.core.gcm import Key
from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

FOOTER: Final[int]
COLUMN_METADATA: Final[int]
DATA_PAGE: Final[int]
DICTIONARY_PAGE: Final[int]
DATA_PAGE_HEADER: Final[int]
DICTIONARY_PAGE_HEADER: Final[int]
COLUMN_INDEX: Final[int]
OFFSET_INDEX: Final[int]
BLOOM_FILTER_HEADER: Final[int]
BLOOM_FILTER_BITSET: Final[int]
OVERHEAD: Final[int]
SIGNATURE_LENGTH: Final[int]
NAMES: Final[tuple[str, ...]]

def check_ordinal(ordinal: int, what: str, name: str | None = None) -> int: ...
def module_aad(
    file_aad: bytes, module_type: int, row_group: int | None = None, column: int | None = None, page: int | None = None
) -> bytes: ...
def module_name(
    module_type: int, row_group: int | None = None, column: str | None = None, page: int | None = None
) -> str: ...
def seal_module(data: Buffer, key: KeyLike, aad: Buffer, ctr: bool = False) -> bytes: ...
def seal_modules(file_aad: Buffer, modules: Sequence[tuple[Buffer, Key | None, int, int, int]]) -> list[bytes]: ...
def open_module(data: Buffer, key: KeyLike, aad: Buffer, ctr: bool = False, name: str = "module") -> bytes: ...
def sign_footer(footer: Buffer, key: KeyLike, aad: Buffer) -> bytes: ...
def verify_footer(footer: Buffer, signature: Buffer, key: KeyLike, aad: Buffer, name: str = "footer") -> None: ...

@final
class ModuleOpener:
    def __new__(cls, file_aad: Buffer) -> Self: ...
