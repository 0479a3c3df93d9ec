"""Owned views over other people's memory: pointer, byte length, read-only or not."""

from typing import Final

from typing_extensions import Self, disjoint_base

from ags1._typing import Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@disjoint_base
class BufferView(Buffer):
    """A held export of contiguous memory.

    Parameters
    ----------
    source : buffer
        Any C-contiguous object with the buffer protocol.
    writable : bool
        Whether the memory must be writable.

    Raises
    ------
    TypeError
        Not a buffer, read-only where writable memory is needed, or an array of Python objects.
    ValueError
        Memory that is not C-contiguous.

    Notes
    -----
    The view keeps the exporter alive and locked against resizing until :meth:`release`. It is not safe to
    release a view in one thread while another uses it.
    """

    def __new__(cls, source: Buffer, writable: bool = False) -> Self: ...
    @property
    def nbytes(self) -> int:
        """Length in bytes, whatever the items are."""
    @property
    def readonly(self) -> bool:
        """Whether the exporter said that nobody may write."""
    def release(self) -> None:
        """Give the export back. Releasing twice does nothing."""
    def overlaps(self, other: BufferView) -> bool:
        """Whether the two views share a byte."""
