"""The result of a batch: many streams or plaintexts in one piece of memory, and where each of them lies."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, SupportsIndex, final, overload

from typing_extensions import disjoint_base

from ags1._typing import ArrowArray, ArrowStream, Buffer

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@final
class Batch(Sequence[Any]):
    """A sequence of streams or plaintexts that lie in one piece of memory, one behind the other."""

    __hash__: None  # type: ignore[assignment]
    def __init__(self, data: Buffer, offsets: Buffer, validity: Buffer | None = None) -> None: ...
    @staticmethod
    def reserve(nbytes: int = 0, count: int = 0) -> Batch:
        """Make memory for the results of many calls."""

    @staticmethod
    def from_arrow(array: ArrowArray | ArrowStream) -> Batch:
        """Make a batch of an Arrow array."""

    def to_arrow(self) -> Any:
        """The batch as a ``pyarrow.LargeBinaryArray`` in the same memory."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Give the batch to a consumer of Arrow data."""

    @property
    def data(self) -> memoryview:
        """All of the memory, read-only."""

    @property
    def offsets(self) -> memoryview:
        """Where each item starts, and where the last one ends."""

    @property
    def validity(self) -> memoryview | None:
        """A bitmap in which a 0 means null, or None."""

    @property
    def nbytes(self) -> int:
        """Bytes of all items together."""

    @property
    def null_count(self) -> int:
        """How many items are null."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Any: ...
    @overload
    def __getitem__(self, index: slice, /) -> Batch: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Position of the first item that equals `value`."""

    def count(self, value: object) -> int:
        """How many items equal `value`."""

@disjoint_base
class Room:
    """For native code: reached by cimport only."""
