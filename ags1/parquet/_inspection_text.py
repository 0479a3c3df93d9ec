"""An inspection as compact text, for people who read it in a terminal or a log."""

from __future__ import annotations

from ags1._words import printable, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet.inspection import ColumnInspection, EncryptionInspection, Inspection

__all__ = ["inspection_text"]

_LONGEST_LIST = 200


def inspection_text(found: Inspection) -> str:
    """The text, without a line end at its end."""
    lines = [f"{found.name or 'Parquet file'}: {size_text(found.size)}, footer {size_text(found.footer_size)}"]
    if found.created_by is not None:
        lines.append(f"created by {printable(found.created_by)}")
    if found.encryption is None:
        lines.append("not encrypted: everybody can read all of it, and nothing notices changes")
    else:
        lines += _encryption_lines(found.encryption)
    if not found.footer_readable:
        lines.append("schema, columns and sizes: hidden by the encrypted footer; give its key to see them")
        return "\n".join(lines)
    groups = len(found.row_groups)
    lines.append(f"{found.rows} rows in {groups} row group{'' if groups == 1 else 's'}, {len(found.columns)} columns")
    if found.key_values:
        lines.append(f"metadata: {', '.join(f'{printable(key)} ({size} B)' for key, size in found.key_values.items())}")
    width = max((len(printable(column.column)) for column in found.columns[:_LONGEST_LIST]), default=0)
    lines += [_column_line(column, min(width, 48)) for column in found.columns[:_LONGEST_LIST]]
    if len(found.columns) > _LONGEST_LIST:
        lines.append(f"  ... and {len(found.columns) - _LONGEST_LIST} more columns")
    lines += _reading_lines(found)
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
        lines.append("pages carry no tag: changes of their contents cannot be noticed")
    return lines


def _column_line(column: ColumnInspection, width: int) -> str:
    parts = [column.protection]
    if column.encrypted and not column.readable:
        parts[0] += " (not known)"
    if column.compressed_size is not None:
        parts.append(size_text(column.compressed_size))
    if column.codecs:
        parts.append("+".join(column.codecs))
    if column.page_version is not None:
        levels = {None: "", True: ", levels encrypted", False: ", levels in plaintext"}[column.levels_encrypted]
        parts.append(f"V{column.page_version}{levels}")
    if column.column_indexes or column.offset_indexes:
        parts.append("page index")
    if column.bloom_filters:
        parts.append("Bloom filter")
    if column.encrypted and column.statistics_shown:
        parts.append("STATISTICS SHOWN in the footer")
    if column.key is not None:
        parts.append(str(column.key))
    return f"  {printable(column.column):<{width}}  {', '.join(parts)}"


def _reading_lines(found: Inspection) -> list[str]:
    if found.encryption is None:
        return []
    total = len(found.columns)
    readable = sum(column.readable for column in found.columns)
    open_ = sum(column.readable_without_keys for column in found.columns)
    lines = [f"readable with the keys given: {readable} of {total} columns"]
    if open_:
        hidden = ", though no reader finds it without the footer" if found.encryption.footer == "encrypted" else ""
        lines.append(f"NOT encrypted: {open_} of {total} columns; whoever has the file has what they hold{hidden}")
    return lines


def _octets(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    return repr(text) if text and text.isprintable() else data.hex()
