"""``ags1 parquet inspect``: which columns and modules of a file are protected, drawn as a table."""

from __future__ import annotations

import argparse

from ags1.cli import describe, exit_code, printable, say, warn
from ags1.cli._parquet import parquet_files
from ags1.cli._parquet_keys import Clients, KeyReferences, Reading, in_options
from ags1.cli._report import files, format_bytes
from ags1.errors import Ags1Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet.inspection import ColumnInspection, EncryptionInspection, Inspection

__all__ = ["inspect"]

_SHOWN_COLUMNS = 100
_SHOWN_GROUPS = 10
_WIDEST_NAME = 40
_ENCRYPTED, _UNAUTHENTICATED, _PLAIN, _SHOWN, _NONE, _UNKNOWN = "#", "~", ".", "!", "-", "?"
_LEGEND = {
    _ENCRYPTED: "encrypted",
    _UNAUTHENTICATED: "encrypted, changes are not noticed",
    _PLAIN: "plaintext",
    _SHOWN: "shown although the column is encrypted",
    _NONE: "none",
    _UNKNOWN: "hidden by a missing key",
    "%": "encrypted in some row groups",
}


def inspect(options: argparse.Namespace) -> int:
    """Run ``ags1 parquet inspect``."""
    from ags1.parquet.inspection import inspect as look

    code = 0
    found = parquet_files(options.files)
    kinds: dict[str, int] = {}
    with Clients() as clients:
        reading = Reading(options, KeyReferences(), clients)
        for number, (path, name) in enumerate(found):
            try:
                config = reading.config(path, name) if reading.named else None
                with in_options():
                    inspection = look(path, config)
            except (Ags1Error, OSError, ValueError) as error:
                code = code or exit_code(error)
                text = describe(error)
                text = text if path in text else f"{path}: {text}"
                if options.json:
                    _json({"file": path, "error": text})
                else:
                    warn(f"ags1: {text}")
                kinds["unreadable"] = kinds.get("unreadable", 0) + 1
                continue
            kind = "encrypted" if inspection.encryption is not None else "plaintext"
            kinds[kind] = kinds.get(kind, 0) + 1
            if options.json:
                _json({"file": path, **inspection.to_dict(), "error": None})
                continue
            if number:
                say("")
            for line in _lines(inspection, path, verbose=options.verbose):
                say(printable(line.rstrip()))
    if len(found) > 1 and not options.json:
        say("")
        say(f"{files(len(found))}: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}")
    return code


def _json(record: dict[str, object]) -> None:
    import json

    say(json.dumps(record))


def _lines(found: Inspection, path: str, *, verbose: bool) -> list[str]:
    encryption = found.encryption
    lines = [path]
    size = f"{found.size:,} bytes" + (f" ({format_bytes(found.size)})" if found.size >= 1000 else "")
    if encryption is None:
        lines.append("  format       Parquet, not encrypted: anybody can read and change all of it")
    else:
        lines.append("  format       Parquet Modular Encryption")
        lines += _encryption(encryption)
    lines.append(f"  length       {size}, of which {found.footer_size:,} are the footer")
    if found.created_by:
        lines.append(f"  created by   {found.created_by}")
    if not found.footer_readable:
        lines.append("  columns      hidden by the encrypted footer (its key shows them)")
        lines.append(f"  {_picture(found)}")
        return lines
    groups = found.row_groups
    count = "1 row group" if len(groups) == 1 else f"{len(groups):,} row groups"
    lines.append(f"  rows         {found.rows or 0:,} in {count}")
    for key, value_size in (found.key_values or {}).items():
        lines.append(f"  metadata     {key} ({value_size:,} bytes)")
    lines.append(f"  {_picture(found)}")
    lines.append("")
    lines += _columns(found, verbose=verbose)
    if verbose or 1 < len(groups) <= _SHOWN_GROUPS:
        lines.append("")
        table = [["row group", "rows", "stored bytes", "plain bytes"]]
        for group in groups:
            sizes = (group.compressed_size, group.uncompressed_size)
            table.append([str(group.index), f"{group.rows:,}", *(_UNKNOWN if n is None else f"{n:,}" for n in sizes)])
        lines += _aligned(table, right=(0, 1, 2, 3))
    return lines


def _encryption(encryption: EncryptionInspection) -> list[str]:
    algorithm = encryption.algorithm
    if algorithm == "AES_GCM_CTR_V1":
        algorithm += " (contents of pages carry no tag: changes are not noticed)"
    footer = "encrypted"
    if encryption.footer == "signed":
        verified = "verified" if encryption.signature_verified else "NOT verified: that takes the footer key"
        footer = f"plaintext and signed; signature {verified}"
    prefix = encryption.aad_prefix
    if encryption.stored_aad_prefix is not None:
        prefix += f": {_octets(encryption.stored_aad_prefix)}"
    return [
        f"  algorithm    {algorithm}",
        f"  footer       {footer}",
        f"  footer key   {encryption.footer_key}",
        f"  AAD prefix   {prefix}",
    ]


def _octets(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and text.isprintable() else f"hex:{data.hex()}"


def _picture(found: Inspection) -> str:
    """Draw the file as a person would on paper."""
    encryption = found.encryption
    if encryption is None:
        return "PAR1 [pages] [Bloom filters] [indexes] [footer] PAR1"
    if encryption.footer == "encrypted":
        return "PARE [pages] [Bloom filters] [indexes] [# footer] PARE"
    return "PAR1 [pages] [Bloom filters] [indexes] [. footer | signature] PAR1"


def _columns(found: Inspection, *, verbose: bool) -> list[str]:
    shown = found.columns if verbose else found.columns[:_SHOWN_COLUMNS]
    table = [["column", "metadata", "statistics", "pages", "index", "Bloom", "stored bytes", "codec", "key"]]
    used = set()
    for column in shown:
        marks = _marks(column, found)
        used.update(marks)
        size = _UNKNOWN if column.compressed_size is None else f"{column.compressed_size:,}"
        codec = _UNKNOWN if column.codecs is None else "+".join(column.codecs)
        if column.page_version is not None:
            codec += f" V{column.page_version}"
        name = column.column
        if len(name) > _WIDEST_NAME and not verbose:
            name = f"{name[: _WIDEST_NAME - 3]}..."
        table.append([name, *marks, size, codec, _key(column)])
    lines = _aligned(table, right=(6,), middle=(1, 2, 3, 4, 5))
    if len(shown) < len(found.columns):
        lines.append(f"  ... and {len(found.columns) - len(shown):,} more (--verbose shows them all)")
    lines.append(f"  {', '.join(f'{mark} {text}' for mark, text in _LEGEND.items() if mark in used)}")
    if found.encryption is not None:
        readable = sum(column.readable for column in found.columns)
        lines.append(f"  {readable:,} of {len(found.columns):,} columns can be read with the keys that were given")
    leaking = [column.column for column in found.columns if column.levels_encrypted is False]
    if leaking:
        lines.append(f"  which values are null shows in plaintext levels of V2 pages: {', '.join(leaking[:5])}")
    return lines


def _marks(column: ColumnInspection, found: Inspection) -> list[str]:
    """Of metadata, statistics, pages, indexes and Bloom filters, how each is protected."""
    encryption = found.encryption
    hidden = encryption is not None and encryption.footer == "encrypted"
    of_column = "%" if column.protection == "mixed" else _ENCRYPTED if column.encrypted else _PLAIN
    metadata = _ENCRYPTED if hidden or of_column == _ENCRYPTED else of_column
    statistics = _SHOWN if column.encrypted and column.statistics_shown else metadata
    pages = of_column
    if pages == _ENCRYPTED and encryption is not None and encryption.algorithm == "AES_GCM_CTR_V1":
        pages = _UNAUTHENTICATED
    index = of_column if column.column_indexes or column.offset_indexes else _NONE
    bloom = _UNKNOWN if column.bloom_filters is None else of_column if column.bloom_filters else _NONE
    return [metadata, statistics, pages, index, bloom]


def _key(column: ColumnInspection) -> str:
    if not column.encrypted:
        return "none"
    if column.key is not None:
        return f"its own: {column.key}"
    return column.protection if column.readable else f"{column.protection} (not known)"


def _aligned(table: list[list[str]], *, right: tuple[int, ...] = (), middle: tuple[int, ...] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if index in right else cell.center(width) if index in middle else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"  {'  '.join(cells)}")
    return lines
