"""AES-GCM by EVP on raw memory, and the keys for it. The only module that links OpenSSL."""

from os import PathLike
from typing import ClassVar, Final, NoReturn, TypedDict, type_check_only

from typing_extensions import Self, disjoint_base

from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@type_check_only
class _Library(TypedDict):
    version: str
    number: int
    provider: str
    linkage: str
    remedy: str
    cpu_settings: str

@disjoint_base
class Key(Buffer):
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __new__(cls, key: KeyLike) -> Self: ...
    @staticmethod
    def load(reference: str | PathLike[str]) -> Key: ...
    @staticmethod
    def generate(bits: int = 256) -> Key: ...
    def save(self, path: str | PathLike[str]) -> None: ...
    @property
    def bits(self) -> int: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> NoReturn: ...

CIPHER: Final[str]
REASON: Final[str]
LONG_FROM: Final[int | None]

def random_bytes(length: int) -> bytes: ...
def seal_message(data: Buffer, key: KeyLike, nonce: Buffer, aad: Buffer = b"") -> bytes: ...
def open_message(data: Buffer, key: KeyLike, nonce: Buffer, aad: Buffer = b"") -> bytes | None: ...
def library() -> _Library: ...
