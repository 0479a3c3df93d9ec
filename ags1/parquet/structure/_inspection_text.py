"""An inspection as compact text, for terminals and logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ags1.support.words import counted, printable, size_text, table_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from ags1.parquet.structure.inspection import ColumnInspection, EncryptionInspection, Inspection, RowGroupInspection

    T = TypeVar("T")

_LONGEST_LIST = 200
_COLUMN_HEADS = ("column", "protected by", "size", "codec", "pages", "key")
_GROUP_HEADS = ("row group", "rows", "size", "uncompressed")


def inspection_text(found: Inspection) -> str:
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
    if open_:
        hidden = ", but readers need the footer to find them" if found.encryption.footer == "encrypted" else ""
        lines.append(f"NOT encrypted: {open_} of {total} columns; anyone with the file can get their values{hidden}")
    return lines


def _octets(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    return repr(text) if text and text.isprintable() else data.hex()
