"""AGS1 blocks between file descriptors and memory, over a crew of threads."""

from collections.abc import Callable
from typing import Final

from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

MAX_WINDOW_BLOCKS: Final[int]

def reserve(descriptor: int, length: int, name: str | None = None) -> None: ...
def rename_new(source: bytes, target: bytes, directory: int) -> None: ...
def seal_file(
    source: int,
    source_offset: int,
    target: int,
    target_offset: int,
    length: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    tell: Callable[[int], object],
    source_name: str | None = None,
    target_name: str | None = None,
) -> None: ...
def open_file(
    source: int,
    source_offset: int,
    target: int,
    target_offset: int,
    length: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    tell: Callable[[int], object],
    source_name: str | None = None,
    target_name: str | None = None,
) -> None: ...
def seal_into_file(
    data: Buffer,
    target: int,
    target_offset: int,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    target_name: str | None = None,
) -> None: ...
def open_from_file(
    source: int,
    source_offset: int,
    out: Buffer,
    key: KeyLike,
    aad_prefix: Buffer,
    block_length: int,
    first_block: int,
    threads: int | None,
    source_name: str | None = None,
) -> None: ...
def mounted_at(descriptor: int) -> tuple[int, int]: ...
