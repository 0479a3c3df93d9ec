"""Blocks of a file that are opened before they are asked for: what makes a Reader fast while it reads straight on."""

import os
from io import BufferedReader, RawIOBase
from typing import Final, TypeVar

from typing_extensions import Self, disjoint_base

from ags1.core.gcm import Key
from ags1.support.typing import Buffer

_Raw = TypeVar("_Raw", bound=RawIOBase)
_Readers = TypeVar("_Readers", bound=BufferedReader)

# Of every Cython module.
__test__: Final[dict[str, str]]

@disjoint_base
class Ahead:
    @property
    def unit_length(self) -> int: ...
    @property
    def most_slots(self) -> int: ...
    def __new__(cls, key: Key, aad_prefix: bytes, block_length: int, size: int, threads: int) -> Self: ...
    def begin(self, position: int, slots: int, descriptor: int, status: os.stat_result) -> None: ...
    def read_into(self, position: int, out: Buffer) -> int: ...
    def drop(self) -> None: ...

def iterates_quickly(readers: type[_Readers]) -> type[_Readers]: ...
def answers_closed_quickly(raw: type[_Raw]) -> type[_Raw]: ...
