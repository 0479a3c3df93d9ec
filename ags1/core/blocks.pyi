"""AGS1 blocks in memory: seal or open ranges of blocks, over a crew of threads."""

from typing import Final, SupportsIndex, overload

from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

def usable_cpus() -> int: ...
def fresh_bytes(length: int) -> bytes: ...
def writable_view(fresh: bytes) -> memoryview: ...
def seal_blocks(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    first_block: int,
    threads: int | None,
) -> int: ...
def open_blocks(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    first_block: int,
    threads: int | None,
    name: str | None = None,
) -> int: ...
@overload
def encrypt_stream(
    data: Buffer,
    out: None,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    threads: int | None,
) -> bytes: ...
@overload
def encrypt_stream(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: SupportsIndex,
    threads: int | None,
) -> int: ...
@overload
def decrypt_stream(
    data: Buffer,
    out: None,
    key: KeyLike,
    aad_prefix: Buffer,
    length: int | None,
    threads: int | None,
    name: str | None = None,
) -> bytes: ...
@overload
def decrypt_stream(
    data: Buffer,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    length: int | None,
    threads: int | None,
    name: str | None = None,
) -> int: ...
