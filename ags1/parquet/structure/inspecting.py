"""Metadata of a Parquet file and of its encryption, as far as the available keys show it.

    no footer key, encrypted footer     algorithm, AAD, key metadata; nothing else can be known
    no keys, signed footer              all but the metadata of encrypted columns, and nothing of it verified
    some column keys                    the other columns' sizes and modules are not known

Of the data only the headers of first pages are read. The result never contains a key or wrapped key.
"""

from __future__ import annotations

from functools import cache, partial

from ags1.errors import Ags1Error, LimitError
from ags1.parquet.keys.key_description import describe_key, stored_material
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.chunks import SourceChunk
from ags1.parquet.structure.fields import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeaderV2,
    FileMetaData,
    KeyValue,
    PageHeader,
    RowGroup,
)
from ags1.parquet.structure.inspection import (
    ColumnInspection,
    EncryptionInspection,
    Inspection,
    RowGroupInspection,
)
from ags1.parquet.structure.schema import schema_tree
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import located

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ags1.parquet.keys.material import KeyMaterial
    from ags1.parquet.keys.properties import DecryptionConfig

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
ENCODINGS = (
    "PLAIN", "1", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
)  # fmt: skip
_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_LONGEST_HEADER = 1 << 20
_MOST_CODES = 256
_MOST_PAIRS = 1 << 20


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


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
