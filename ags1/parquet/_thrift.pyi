"""Any Thrift compact structure as an ordered tree that is read when looked at, and written back as it was."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar, final, overload

from ags1._typing import Buffer
from ags1.parquet._nodes import Node as Node

# Of every Cython module.
__test__: Final[dict[str, str]]

BOOL: Final[int]
I8: Final[int]
I16: Final[int]
I32: Final[int]
I64: Final[int]
DOUBLE: Final[int]
BINARY: Final[int]
LIST: Final[int]
SET: Final[int]
MAP: Final[int]
STRUCT: Final[int]
UUID: Final[int]

_D = TypeVar("_D")

@final
class Struct(Node):
    """Fields of a Thrift struct, in the order in which they were written.

    ``Struct()`` has none. A field has an id, a kind (a constant of this module) and a value::

        BOOL bool   I8 I16 I32 I64 int   DOUBLE float   BINARY UUID bytes   LIST SET List   MAP Map   STRUCT Struct

    Raises
    ------
    FormatError
        By every method, if what it looks at is not what it should be: an i32 beyond 32 bits, and a field twice in a
        struct that is looked at for the first time. (Sizes, kinds and nesting were checked by :meth:`parse`.)
    TypeError, ValueError
        A wrong argument; values of a caller nested deeper than 64. After any error the structure is as it was.

    Notes
    -----
    A Struct, List or Map that is got belongs to the structure: getting it again gives the same object, and changes of
    it are changes of the structure. One that is *set* is **copied**: later changes of the original are not seen, so
    either finish it first, or get it back and go on with that.

    Not safe to change in one thread while another uses any part of the same structure. Not picklable.
    Comparison is of the encoded bytes.
    """

    __hash__: None  # type: ignore[assignment]

    def __init__(self) -> None: ...
    @staticmethod
    def parse(data: Buffer, offset: int = 0, *, what: str = "Thrift structure", trailing: bool = True) -> Struct:
        """Read one struct.

        Parameters
        ----------
        data : buffer
            Kept, not copied, while any part of the structure is in use: it must not change, and a bytearray cannot be
            resized.
        offset : int
            Where in `data` the struct begins, in bytes.
        what : str
            How messages call it, best with the file's name.
        trailing : bool
            Whether bytes may follow the struct, as zero padding does in modules written by parquet-java.

        Raises
        ------
        TruncatedError
            The bytes end inside the struct, or a size in it is larger than what is left: more bytes may help.
        FormatError
            Not a struct; nested deeper than 64; a value of 4 GiB or more; bytes after it although `trailing` is false.
            The message has the position in `data`.
        """

    @property
    def nbytes(self) -> int:
        """Bytes that it took in `data`, changed or not; if it was not parsed, those of :meth:`encode`."""
    @property
    def changed(self) -> bool:
        """Whether anything in it was set or removed since it was parsed; True if it was not parsed."""
    def ids(self) -> list[int]:
        """Ids of all fields in their order."""
    def kind(self, field_id: int) -> int | None:
        """Kind of a field, or None without it."""
    def __contains__(self, field_id: int, /) -> bool: ...
    # Any: the kind decides. Bytes of strangers are for the getters below, or for `require` with a kind.
    def get(self, field_id: int, default: object = None) -> Any:
        """Value of a field of whatever kind."""
    def require(self, field_id: int, name: str, kind: int | None = None) -> Any:
        """Value of a field that must be there, and of a kind that will do if one is given.

        Any integer kind will do for an integer kind, LIST and SET for each other. The FormatError calls the field
        `name`.
        """
    @overload
    def integer(self, field_id: int) -> int | None: ...
    @overload
    def integer(self, field_id: int, default: _D) -> int | _D:
        """Value of a field that must be an integer of any width; FormatError for another kind."""

    @overload
    def boolean(self, field_id: int) -> bool | None: ...
    @overload
    def boolean(self, field_id: int, default: _D) -> bool | _D:
        """Value of a field that must be a bool; FormatError for another kind."""

    @overload
    def binary(self, field_id: int) -> bytes | None: ...
    @overload
    def binary(self, field_id: int, default: _D) -> bytes | _D:
        """Value of a field that must be a binary (strings are); FormatError for another kind."""

    @overload
    def struct(self, field_id: int) -> Struct | None: ...
    @overload
    def struct(self, field_id: int, default: _D) -> Struct | _D:
        """Value of a field that must be a struct; FormatError for another kind."""

    @overload
    def list(self, field_id: int) -> List | None: ...
    @overload
    def list(self, field_id: int, default: _D) -> List | _D:
        """Value of a field that must be a list or a set; FormatError for another kind."""

    def set(self, field_id: int, kind: int, value: object) -> None:
        """Give a field a value: in its place if it is there, else before the first field of a higher id.

        A Struct, List or Map is copied, except where it already is the value. Integers must fit their kind
        (ValueError); any buffer does for BINARY and UUID.
        """

    def remove(self, field_id: int) -> None:
        """Remove a field if it is there. What was got from it lives on, as part of nothing."""

    def copy(self) -> Struct:
        """An independent structure with the same content. Costs little: what is unchanged is shared."""

    def encode(self) -> bytes:
        """Its bytes: what is unchanged exactly as it was read."""

@final
class List(Node):
    """Items of a Thrift list or set, all of one kind: ``List(I32, [0, 3])``.

    Indexed and iterated like a Python list; negative indices count from the end, slices are not supported.
    What holds for :class:`Struct` holds here.

    Raises
    ------
    FormatError
        By every method, as with Struct; for an item that is a bool, any byte but 0, 1 and 2.
    IndexError
        No such item.
    """

    __hash__: None  # type: ignore[assignment]

    def __init__(self, kind: int, values: Iterable[object] = ()) -> None: ...
    @property
    def kind(self) -> int:
        """Kind of the items; 0 in an empty list whose writer left it out."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __setitem__(self, index: int, value: object, /) -> None: ...
    def append(self, value: object) -> None:
        """Add an item at the end: a copy if it is a Struct, List or Map."""
    def integers(self) -> list[int]:
        """All items of a list of integers; FormatError for another kind."""
    def binaries(self) -> list[bytes]:
        """All items of a list of binaries (strings are); FormatError for another kind."""
    def structs(self) -> Iterator[Struct]:
        """Iterate over a list of structs; FormatError, at once, for another kind."""

@final
class Map(Node):
    """Keys and values of a Thrift map, in their order: ``Map(BINARY, I64, [(b"rows", 3)])``.

    Iterated, and indexed by position, it gives (key, value) pairs. Its pairs are fixed; structs among them can be
    changed. What holds for :class:`Struct` holds here.
    """

    __hash__: None  # type: ignore[assignment]

    def __init__(self, key_kind: int, value_kind: int, pairs: Iterable[tuple[object, object]] = ()) -> None: ...
    @property
    def key_kind(self) -> int:
        """Kind of the keys; 0 in an empty map."""
    @property
    def value_kind(self) -> int:
        """Kind of the values; 0 in an empty map."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, Any]: ...
    def __iter__(self) -> Iterator[tuple[Any, Any]]: ...
