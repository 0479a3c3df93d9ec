"""What an inspection of a Parquet file found: values, compact text for terminals and logs, plain values for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ags1.parquet.keys.key_description import KeyDescription
from ags1.parquet.structure.schema import SchemaNode
from ags1.support.words import counted, printable, size_text, table_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_LONGEST_LIST = 200
_COLUMN_HEADS = ("column", "protected by", "size", "codec", "pages", "key")
_GROUP_HEADS = ("row group", "rows", "size", "uncompressed")


@dataclass(frozen=True)
class EncryptionInspection:
    """How a file is encrypted.

    Attributes
    ----------
    algorithm : str
        "AES_GCM_V1" or "AES_GCM_CTR_V1"; pages of the latter are not authenticated.
    footer : str
        "encrypted" or "signed".
    signature_verified : bool or None
        Whether the signature of the footer was checked and is valid; None if the footer is encrypted.
    footer_key : KeyDescription
    aad_prefix : str
        "stored" in the file, "to be supplied" by the reader, or "none".
    stored_aad_prefix : bytes or None
        Not a secret.
    aad_file_unique : bytes
        The part of the AAD that is unique to the file.
    """

    algorithm: str
    footer: str
    signature_verified: bool | None
    footer_key: KeyDescription
    aad_prefix: str
    stored_aad_prefix: bytes | None
    aad_file_unique: bytes


@dataclass
class ColumnInspection:
    """What is known about a column, over all row groups. None: hidden by a missing key.

    Attributes
    ----------
    path : tuple of str
        Path of the leaf.
    protection : str
        "plaintext", "footer key", "column key"; "mixed" if row groups differ.
    key : KeyDescription or None
        Describes the column's own key.
    readable_without_keys : bool
        Whether its pages are plaintext, so that anyone with the file can read the values: with any reader if the footer
        is not encrypted, otherwise by searching for the pages.
    readable : bool
        Whether its values can be read with the given keys.
    values, compressed_size, uncompressed_size : int or None
        Sizes in bytes, of its pages.
    codecs, encodings : list of str, or None
    page_version : int or None
        1 or 2, from the first data page.
    levels_encrypted : bool or None
        For encrypted version 2 pages with repetition or definition levels: True if these are inside the module, as
        Arrow writes them; False if they are before it in plaintext, as parquet-java writes them, which shows which
        values are null.
    column_indexes, offset_indexes : int
        Number of column chunks that have one; protected like the column.
    bloom_filters : int or None
        Column chunks that have one.
    statistics_shown : bool
        Whether a footer that is not encrypted shows its minimum and maximum values.
    """

    path: tuple[str, ...]
    protection: str = ""
    key: KeyDescription | None = None
    readable_without_keys: bool = True
    readable: bool = True
    values: int | None = 0
    compressed_size: int | None = 0
    uncompressed_size: int | None = 0
    codecs: list[str] | None = field(default_factory=list)
    encodings: list[str] | None = field(default_factory=list)
    page_version: int | None = None
    levels_encrypted: bool | None = None
    column_indexes: int = 0
    offset_indexes: int = 0
    bloom_filters: int | None = 0
    statistics_shown: bool = False

    @property
    def column(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    @property
    def encrypted(self) -> bool:
        """Whether any chunk of it is encrypted."""
        return self.protection not in ("", "plaintext")


@dataclass(frozen=True)
class RowGroupInspection:
    """A row group.

    Attributes
    ----------
    index : int
        Its position, counted from 0.
    rows : int
    compressed_size, uncompressed_size : int or None
        Bytes of its pages, from the footer.
    """

    index: int
    rows: int
    compressed_size: int | None
    uncompressed_size: int | None


@dataclass
class Inspection:
    """The result of :func:`inspect`. Values that an encrypted footer hides are None or an empty list.

    Attributes
    ----------
    name : str or None
        The file.
    size, footer_size : int
        Bytes of the file, and of the part after pages and indexes.
    created_by : str or None
    rows : int or None
    key_values : dict of str to int, or None
        Keys of the key-value metadata, and the lengths of their values in bytes.
    encryption : EncryptionInspection or None
        None for a file that is not encrypted.
    schema : SchemaNode or None
        Its root.
    columns : list of ColumnInspection
        In the order of the schema.
    row_groups : list of RowGroupInspection
    """

    name: str | None
    size: int
    footer_size: int
    created_by: str | None = None
    rows: int | None = None
    key_values: dict[str, int] | None = None
    encryption: EncryptionInspection | None = None
    schema: SchemaNode | None = None
    columns: list[ColumnInspection] = field(default_factory=list)
    row_groups: list[RowGroupInspection] = field(default_factory=list)

    @property
    def footer_readable(self) -> bool:
        """Whether the footer could be read."""
        return self.schema is not None

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON: bytes as hexadecimal text, paths with dots."""
        found = _plain(self)
        assert isinstance(found, dict)
        return found

    def __str__(self) -> str:
        return _text(self)


def _text(found: Inspection) -> str:
    """The text, without a final line end."""
    lines = [f"{found.name or 'Parquet file'}: {size_text(found.size)}, footer {size_text(found.footer_size)}"]
    if found.created_by is not None:
        lines.append(f"created by {printable(found.created_by)}")
    if found.encryption is None:
        lines.append("not encrypted: anyone can read all of it, and changes cannot be detected")
    else:
        lines += _encryption_lines(found.encryption)
    if not found.footer_readable:
        lines.append("schema, columns and sizes: hidden by the encrypted footer; give its key to see them")
        return "\n".join(lines)
    rows = "an unknown number of rows" if found.rows is None else counted(found.rows, "row")
    groups, columns = counted(len(found.row_groups), "row group"), counted(len(found.columns), "column")
    lines.append(f"{rows} in {groups}, {columns}")
    if found.key_values:
        lines.append(f"metadata: {', '.join(f'{printable(key)} ({size} B)' for key, size in found.key_values.items())}")
    lines += _table("column", _COLUMN_HEADS, found.columns, _column_cells)
    lines += _table("row group", _GROUP_HEADS, found.row_groups, _group_cells)
    reading = _reading_lines(found)
    lines += ["", *reading] if reading else []
    return "\n".join(lines)


def _encryption_lines(encryption: EncryptionInspection) -> list[str]:
    footer = f"footer {encryption.footer}"
    if encryption.signature_verified is not None:
        footer += ", signature verified" if encryption.signature_verified else ", signature NOT checked"
    prefix = f"AAD prefix {encryption.aad_prefix}"
    if encryption.stored_aad_prefix is not None:
        prefix += f" ({_octets(encryption.stored_aad_prefix)})"
    lines = [f"{encryption.algorithm}, {footer}, {prefix}", f"footer key: {encryption.footer_key}"]
    if encryption.algorithm == "AES_GCM_CTR_V1":
        lines.append("pages have no tag: changes of their contents cannot be detected")
    return lines


def _table(what: str, heads: Sequence[str], items: Sequence[T], cells: Callable[[T], list[str]]) -> list[str]:
    """An empty line and a table; nothing if there are no items."""
    if not items:
        return []
    left = len(items) - _LONGEST_LIST
    more = [f"... and {counted(left, f'more {what}')}"] if left > 0 else []
    return ["", *table_lines(heads, map(cells, items[:_LONGEST_LIST])), *more]


def _column_cells(column: ColumnInspection) -> list[str]:
    pages = []
    if column.page_version is not None:
        levels = {None: "", True: ", levels encrypted", False: ", levels in plaintext"}[column.levels_encrypted]
        pages.append(f"V{column.page_version}{levels}")
    if column.column_indexes or column.offset_indexes:
        pages.append("page index")
    if column.bloom_filters:
        pages.append("Bloom filter")
    if column.encrypted and column.statistics_shown:
        pages.append("STATISTICS SHOWN in the footer")
    return [
        printable(column.column),
        column.protection + (" (not known)" if column.encrypted and not column.readable else ""),
        _size(column.compressed_size),
        "+".join(column.codecs or []),
        ", ".join(pages),
        "" if column.key is None else str(column.key),
    ]


def _group_cells(group: RowGroupInspection) -> list[str]:
    return [str(group.index), f"{group.rows:,}", _size(group.compressed_size), _size(group.uncompressed_size)]


def _size(size: int | None) -> str:
    return "?" if size is None else size_text(size)


def _reading_lines(found: Inspection) -> list[str]:
    if found.encryption is None:
        return []
    total = len(found.columns)
    readable = sum(column.readable for column in found.columns)
    open_ = sum(column.readable_without_keys for column in found.columns)
    lines = [f"readable with the keys given: {readable} of {total} columns"]
    # Without a row group there is no value.
    if open_ and found.row_groups:
        hidden = ", but readers need the footer to find them" if found.encryption.footer == "encrypted" else ""
        lines.append(f"NOT encrypted: {open_} of {total} columns; anyone with the file can get their values{hidden}")
    return lines


def _octets(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    return repr(text) if text and text.isprintable() else data.hex()


def _plain(value: object) -> object:
    if hasattr(value, "__dataclass_fields__"):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}  # type: ignore[arg-type]
        if isinstance(value, ColumnInspection):
            found = {"column": _printable(value.column), **found}
            del found["path"]
        if isinstance(value, Inspection):
            found["footer_readable"] = value.footer_readable
        return found
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return _printable(value) if isinstance(value, str) else value


def _printable(text: str) -> str:
    """Replace lone surrogates, which stand for bytes that are not UTF-8 and cannot be written."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
