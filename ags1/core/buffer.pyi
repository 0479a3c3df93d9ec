"""Owned views over other people's memory: pointer, byte length, read-only or not."""

from typing import Final

from typing_extensions import Self, disjoint_base

from ags1.support.typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@disjoint_base
class BufferView(Buffer):
    def __new__(cls, source: Buffer, writable: bool = False) -> Self: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    def release(self) -> None: ...
    def overlaps(self, other: BufferView) -> bool: ...
