"""Plaintext that a Writer has taken, and the thread that seals and writes it behind the Writer's back."""

from typing import Final

from typing_extensions import disjoint_base

from ags1.core.typing import KeyLike
from ags1.support.typing import Buffer

# Of every Cython module.
__test__: Final[dict[str, str]]

@disjoint_base
class Helper: ...

@disjoint_base
class Gathered:
    @property
    def capacity(self) -> int: ...
    @property
    def filled(self) -> int: ...
    def __init__(self, block_length: int, blocks: int) -> None: ...
    def take(self, data: Buffer) -> int: ...
    def take_rest(self, other: Gathered) -> None: ...
    def start(
        self,
        target: int,
        target_offset: int,
        key: KeyLike,
        aad_prefix: Buffer,
        first_block: int,
        helper: Helper | None,
        name: str | None = None,
    ) -> None: ...
    def wait(self) -> bool: ...
    def stop(self) -> bool: ...
    def stored(self) -> bytes: ...
    def clear(self) -> None: ...
