"""Metadata of a Parquet file and of its encryption, as far as the available keys show it.

    no footer key, encrypted footer     algorithm, AAD, key metadata; nothing else can be known
    no keys, signed footer              all but the metadata of encrypted columns, and nothing of it verified
    some column keys                    the other columns' sizes and modules are not known

Of the data only the headers of first pages are read. The result never contains a key or wrapped key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache, partial

from ags1.errors import Ags1Error, LimitError
from ags1.parquet.keys._key_description import KeyDescription, describe_key, stored_material
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure._fields import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeaderV2,
    FileMetaData,
    KeyValue,
    PageHeader,
    RowGroup,
)
from ags1.parquet.structure._inspection_text import inspection_text
from ags1.parquet.structure._schema import SchemaNode, schema_tree
from ags1.parquet.structure._source_file import SourceChunk, SourceFile
from ags1.storage import located

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ags1.parquet.keys.material import KeyMaterial
    from ags1.parquet.keys.properties import DecryptionConfig

__all__ = [
    "ColumnInspection",
    "EncryptionInspection",
    "Inspection",
    "KeyDescription",
    "RowGroupInspection",
    "SchemaNode",
    "inspect",
]

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
ENCODINGS = (
    "PLAIN", "1", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
)  # fmt: skip
_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_LONGEST_HEADER = 1 << 20
_MOST_CODES = 256
_MOST_PAIRS = 1 << 20


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
        return inspection_text(self)


def inspect(
    source: Any, decryption: DecryptionConfig | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> Inspection:
    """Inspect a Parquet file, encrypted or not, with or without keys.

    Parameters
    ----------
    source : path, URL, seekable file object or buffer
        The file.
    decryption : DecryptionConfig, optional
        Keys. Given keys are used and thereby checked; missing keys are not an error.
    storage_options : mapping, optional
        Settings for URLs that are not in the environment: endpoint, credentials.

    Raises
    ------
    FormatError, TruncatedError
        Not a Parquet file, or damaged.
    AuthenticationError
        A given key is wrong, or the file was changed.
    ValueError
        The file needs an AAD prefix that `decryption` does not have. (Without `decryption` nothing is decrypted.)
    OSError
        Reading failed.

    Notes
    -----
    Only the footer and column metadata are authenticated; :func:`ags1.parquet.verify_file` authenticates all modules.
    """
    with SourceFile(located(source, storage_options), decryption, optional=True, any_protection=True) as file:
        footer = file.footer
        # Read once for all columns.
        stored = cache(partial(stored_material, file.name))
        found = Inspection(file.name, footer.size, footer.size - footer.start, encryption=_encryption(file, stored))
        metadata = footer.metadata
        if metadata is None:
            return found
        found.created_by = _text(metadata.binary(FileMetaData.CREATED_BY))
        found.rows = metadata.integer(FileMetaData.NUM_ROWS)
        found.key_values = _key_values(metadata)
        assert file.schema is not None
        found.schema = schema_tree(file.schema)
        found.columns = [ColumnInspection(leaf.path) for leaf in file.leaves]
        for group in file.row_groups():
            structure = group.structure
            found.row_groups.append(
                RowGroupInspection(
                    group.index,
                    structure.integer(RowGroup.NUM_ROWS, 0),
                    structure.integer(RowGroup.TOTAL_COMPRESSED_SIZE),
                    structure.integer(RowGroup.TOTAL_BYTE_SIZE),
                )
            )
            for chunk, column in zip(group.chunks(), found.columns, strict=True):
                _take_chunk(chunk, column, stored)
        for column in found.columns:
            # A file without row groups has no encrypted columns, and does not show which columns would be.
            column.protection = column.protection or "plaintext"
        return found


def _encryption(file: SourceFile, stored: Callable[[], Mapping[str, KeyMaterial]]) -> EncryptionInspection | None:
    footer = file.footer
    if footer.algorithm is None:
        return None
    prefix = "stored" if footer.aad_prefix is not None else "to be supplied" if footer.supply_aad_prefix else "none"
    return EncryptionInspection(
        algorithm=footer.algorithm,
        footer="encrypted" if footer.encrypted else "signed",
        signature_verified=None if footer.encrypted else footer.signature_verified,
        footer_key=describe_key(footer.key_metadata, known=footer.key is not None, stored=stored),
        aad_prefix=prefix,
        stored_aad_prefix=footer.aad_prefix,
        aad_file_unique=footer.aad_file_unique,
    )


def _key_values(metadata: Struct) -> dict[str, int]:
    pairs = metadata.list(FileMetaData.KEY_VALUE_METADATA)
    found: dict[str, int] = {}
    if pairs is not None and len(pairs) > _MOST_PAIRS:
        raise LimitError(f"the footer has {len(pairs)} pairs of keys and values; at most {_MOST_PAIRS} are read")
    for pair in pairs.structs() if pairs is not None else ():
        found[_text(pair.binary(KeyValue.KEY)) or ""] = len(pair.binary(KeyValue.VALUE, b""))
    return found


# -- columns ---------------------------------------------------------------------------------------------------


def _take_chunk(chunk: SourceChunk, column: ColumnInspection, stored: Callable[[], Mapping[str, KeyMaterial]]) -> None:
    protection = "column key" if chunk.own_key else "footer key" if chunk.encrypted else "plaintext"
    column.protection = protection if column.protection in ("", protection) else "mixed"
    footer = chunk.file.footer
    column.readable &= chunk.readable
    column.readable_without_keys &= not chunk.encrypted
    if chunk.own_key and column.key is None:
        column.key = describe_key(chunk.key_metadata, known=chunk.key is not None, stored=stored)
    column.column_indexes += chunk.structure.integer(ColumnChunk.COLUMN_INDEX_LENGTH, 0) > 0
    column.offset_indexes += chunk.structure.integer(ColumnChunk.OFFSET_INDEX_LENGTH, 0) > 0
    shown = chunk.structure.struct(ColumnChunk.META_DATA)
    if shown is not None and not footer.encrypted:
        column.statistics_shown |= ColumnMetaData.STATISTICS in shown
    _take_metadata(chunk, column)
    if (
        column.page_version is None
        and chunk.readable
        and chunk.known_metadata().integer(ColumnMetaData.NUM_VALUES, 0) > 0
    ):
        _look_at_first_page(chunk, column)


def _take_metadata(chunk: SourceChunk, column: ColumnInspection) -> None:
    metadata = chunk.metadata
    if metadata is None:
        # Unknown for one row group means unknown for all.
        column.values = column.compressed_size = column.uncompressed_size = column.bloom_filters = None
        column.codecs = column.encodings = None
        return
    column.values = _sum(column.values, metadata.integer(ColumnMetaData.NUM_VALUES, 0))
    column.uncompressed_size = _sum(
        column.uncompressed_size, metadata.integer(ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE, 0)
    )
    column.compressed_size = _sum(column.compressed_size, metadata.integer(ColumnMetaData.TOTAL_COMPRESSED_SIZE, 0))
    filters = 1 if metadata.integer(ColumnMetaData.BLOOM_FILTER_OFFSET, 0) > 0 else 0
    column.bloom_filters = _sum(column.bloom_filters, filters)
    codes = metadata.list(ColumnMetaData.ENCODINGS)
    for names, known, found in (
        (column.codecs, CODECS, [metadata.integer(ColumnMetaData.CODEC, 0)]),
        (column.encodings, ENCODINGS, codes.integers() if codes is not None else []),
    ):
        for code in found:
            # Of invalid values only one is shown: an attacker may have written a million of them.
            name = known[code] if 0 <= code < len(known) else str(code) if 0 <= code < _MOST_CODES else "unknown"
            if names is not None and name not in names:
                names.append(name)


def _sum(total: int | None, summand: int) -> int | None:
    return None if total is None else total + summand


def _look_at_first_page(chunk: SourceChunk, column: ColumnInspection) -> None:
    """Set the version of the first data page and the place of its levels, if the page is where the metadata says."""
    try:
        header, body = _first_data_page(chunk)
        kind = header.integer(PageHeader.TYPE)
        if kind not in (_DATA_PAGE, _DATA_PAGE_V2):
            return
        column.page_version = 1 if kind == _DATA_PAGE else 2
        details = header.struct(PageHeader.DATA_PAGE_HEADER_V2)
        if not chunk.encrypted or details is None:
            return
        levels = details.integer(DataPageHeaderV2.DEFINITION_LEVELS_BYTE_LENGTH, 0)
        levels += details.integer(DataPageHeaderV2.REPETITION_LEVELS_BYTE_LENGTH, 0)
        size = header.integer(PageHeader.COMPRESSED_PAGE_SIZE, 0)
        if levels:
            word = bytes(chunk.file.read(body, 4, chunk.name))
            column.levels_encrypted = int.from_bytes(word, "little") == size - 4
    except Ags1Error:
        return


def _first_data_page(chunk: SourceChunk) -> tuple[Struct, int]:
    """Header of the first data page, and the offset of its body."""
    file, name = chunk.file, f"first data page of {chunk.name}"
    offset = chunk.known_metadata().integer(ColumnMetaData.DATA_PAGE_OFFSET, 0)
    rest = max(0, file.footer.start - offset)
    if not chunk.encrypted:
        length = min(rest, 4096)
        header = Struct.parse(file.read(offset, length, name), what=name)
        return header, offset + header.nbytes
    length, plain = chunk.open_sealed(native_modules.DATA_PAGE_HEADER, offset, _LONGEST_HEADER, page=0)
    return Struct.parse(plain, what=name), offset + length


# -- plain values ----------------------------------------------------------------------------------------------


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


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
