"""What a file is, by its first bytes, by samples and, for Parquet, by its footer: its protection, and what it shows.

Neither a name nor a magic proves anything. A file is unknown until everything that can be checked without its key fits.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from dataclasses import dataclass, fields
from typing import Any

from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import HEADER_LENGTH, plaintext_length, read_header
from ags1.storage import Entry, PipeSource, Source, open_regular, open_source
from ags1.support.words import with_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet import DecryptionConfig, Inspection

ENCRYPTED, PARTLY, PLAINTEXT, UNKNOWN, BY_DESIGN, EMPTY, UNREADABLE = PROTECTIONS = (
    "looks encrypted", "partly encrypted", "plaintext", "unknown", "metadata", "empty", "unreadable",
)  # fmt: skip
"""How a file is protected. "looks encrypted": nothing contradicts it; only its key proves it. "partly encrypted":
Parquet with columns or other bytes in plaintext. "unknown": no known format, or one that something contradicts.
"metadata": what a format has only in plaintext, such as the metadata.json of an encrypted table."""

NOT_ENCRYPTED = (PARTLY, PLAINTEXT, UNKNOWN)

BYTES_READ = 4096
"""Bytes that are read at the beginning of each file."""

_MAGICS = (
    (b"Obj\x01", "Avro"), (b"ORC", "ORC"), (b"PFA1", "Puffin"), (b"ARROW1", "Arrow IPC"),
    (b"SQLite format 3\0", "SQLite"),
    (b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"), (b"PK\x03\x04", "zip"), (b"\xff\x06\0\0sNaPpY", "snappy"), (b"7z\xbc\xaf", "7z"),
    (b"%PDF-", "PDF"), (b"\x89PNG", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"\x89HDF", "HDF5"),
)  # fmt: skip
# Formats that show the names of columns and, mostly, the least and greatest values.
_WITH_SCHEMA = frozenset({"Avro", "ORC", "Arrow IPC", "SQLite", "HDF5"})
_MAX_KEY_FILE = 100
_TEXT_KEY = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{48}|[0-9a-fA-F]{64}|[A-Za-z0-9+/]{22}==|[A-Za-z0-9+/]{43}=")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PARTITION = re.compile(r"(?:^|/)[^/=]+=[^/]+/")
_RANDOM_BYTES = 2048
# Types of pages, as a plaintext header has them: a number, and behind it another.
_PAGE_HEADER = re.compile(rb"\x15[\0\2\4\6]\x15")


@dataclass(slots=True)
class AuditedFile:
    """One file, as an audit found it.

    Attributes
    ----------
    name : str
        Relative to what was audited.
    size : int
        Bytes.
    protection : str
        One of :data:`PROTECTIONS`.
    format : str
        "AGS1", "Parquet", "CSV" and so on; "" if it is unknown.
    detail : str
        Further details, as text.
    keys : tuple of str
        Master keys, or names of keys, that the file names.
    leaks : tuple of str
        What it shows without a key.
    group : int
        Index in :attr:`AuditReport.groups`.
    encrypted_columns, plaintext_columns : tuple of str
        Columns of Parquet, with dots.
    columns_known : bool
        Whether these two are all columns; False if an encrypted footer hides them.
    problem : tuple of (str, str), or None
        Code and message of its problem.
    """

    name: str
    size: int
    protection: str
    format: str = ""
    detail: str = ""
    keys: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    group: int = 0
    encrypted_columns: tuple[str, ...] = ()
    plaintext_columns: tuple[str, ...] = ()
    columns_known: bool = True
    problem: tuple[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All attributes except `problem`, which is among the findings, for JSON."""
        held = ((each.name, getattr(self, each.name)) for each in fields(self) if each.name != "problem")
        return {name: list(value) if isinstance(value, tuple) else value for name, value in held}


def decryption_of(kms: Any) -> DecryptionConfig | None:
    """The configuration that opens encrypted footers with a KMS client; None without one."""
    if kms is None:
        return None
    from ags1.parquet import DecryptionConfig

    return DecryptionConfig.from_kms(kms, allow_plaintext=True)


def look(entry: Entry, decryption: DecryptionConfig | None = None, *, whole: bool = False) -> AuditedFile:
    """Inspect one file: its beginning, samples of it (with `whole`, all) if it may be encrypted, and Parquet's footer.

    Parameters
    ----------
    decryption : DecryptionConfig, optional
        Opens encrypted footers, if it has their keys.
    """
    found = AuditedFile(entry.name, entry.size, UNREADABLE)
    try:
        source = open_regular(entry.location) if entry.location.is_local else open_source(entry.location)
        assert not isinstance(source, PipeSource)
        try:
            found.size = source.size
            head = bytes(memoryview(source.read(0, min(source.size, BYTES_READ))))
            found.protection = UNKNOWN
            _classify(found, head, source, entry, decryption, whole)
        finally:
            source.close()
    except Ags1Error as error:
        found.problem = "damaged", _naming(entry, error)
    except OSError as error:
        found.protection = UNREADABLE
        found.problem = "unreadable", _naming(entry, error)
    if found.protection in (ENCRYPTED, PARTLY) and _PARTITION.search(found.name):
        found.leaks = (*found.leaks, "partition values in names")
    return found


def _naming(entry: Entry, error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return with_name(entry.name, text)


def _classify(
    found: AuditedFile, head: bytes, source: Source, entry: Entry, decryption: DecryptionConfig | None, whole: bool
) -> None:
    if not head:
        found.protection = EMPTY
    elif head.startswith(b"AGS1"):
        _take_stream(found, head, source, whole)
    elif head[:4] in (b"PAR1", b"PARE"):
        found.format = "Parquet"
        body_end = _take_parquet(found, entry, decryption)
        if found.protection == ENCRYPTED:
            _take_modules(found, head, source, body_end, whole)
    else:
        _take_others(found, head)


def _take_stream(found: AuditedFile, head: bytes, source: Source, whole: bool) -> None:
    try:
        block_length = read_header(head[:HEADER_LENGTH])
        plaintext_length(found.size, block_length)
    except FormatError as error:
        found.problem = "damaged", f"{found.name}: begins like an AGS1 stream, but is not one: {error}"
        return
    bare = bare_bytes(source, HEADER_LENGTH, found.size, whole=whole, modules=False)
    if bare is not None:
        text = f"{found.name}: begins like an AGS1 stream, but the bytes from {bare:,} on are not encrypted"
        found.problem = "damaged", text
        return
    found.format, found.protection = "AGS1", ENCRYPTED
    found.detail = f"blocks of {block_length:,} bytes"


# -- Parquet -------------------------------------------------------------------------------------------------------


def _take_parquet(found: AuditedFile, entry: Entry, decryption: DecryptionConfig | None) -> int:
    """Take what the footer says; return where it begins."""
    try:
        inspected = _inspected(found, entry, decryption)
    except Ags1Error as error:
        found.columns_known = False
        found.problem = "damaged", _naming(entry, error)
        return 0
    footer_start = inspected.size - inspected.footer_size
    encryption = inspected.encryption
    if encryption is None:
        found.protection = PLAINTEXT
        found.plaintext_columns = tuple(each.column for each in inspected.columns)
        found.leaks = "values", "column names"
        if any(each.statistics_shown for each in inspected.columns):
            found.leaks = (*found.leaks, "statistics")
        return footer_start
    described = [encryption.footer_key, *(each.key for each in inspected.columns if each.key is not None)]
    names = (each.master_key_id or each.text for each in described)
    found.keys = tuple(dict.fromkeys(each for each in names if each))
    found.detail = f"{encryption.algorithm}, {encryption.footer} footer"
    found.protection = ENCRYPTED
    if not inspected.footer_readable:
        found.columns_known = False
        found.detail += "; which columns are encrypted is not known without its key"
        return footer_start
    for each in inspected.columns:
        # Without rows nothing is encrypted, and nothing is visible.
        plain = bool(inspected.row_groups) and (each.readable_without_keys or each.protection == "mixed")
        if plain:
            found.plaintext_columns = (*found.plaintext_columns, each.column)
        else:
            found.encrypted_columns = (*found.encrypted_columns, each.column)
    _take_leaks(found, inspected)
    return footer_start


def _take_modules(found: AuditedFile, head: bytes, source: Source, end: int, whole: bool) -> None:
    """Check that all before the footer, at `end`, can be modules; a plaintext column begins with a header of a page."""
    start = len(b"PARE")
    bare = bare_bytes(source, start, end, whole=whole, modules=True)
    if bare is None:
        return
    if bare == start and not _PAGE_HEADER.match(head, start):
        found.protection = UNKNOWN
        found.problem = (
            "damaged",
            f"{found.name}: its footer is that of encrypted Parquet, but what is before it is not",
        )
        return
    found.protection = PARTLY
    found.leaks = "values of some columns", *found.leaks
    found.detail += f"; the bytes from {bare:,} on are not encrypted"


def _take_leaks(found: AuditedFile, inspected: Inspection) -> None:
    leaks = []
    if found.plaintext_columns:
        found.protection = PARTLY
        leaks.append("values of some columns")
    if inspected.encryption is not None and inspected.encryption.footer == "signed":
        leaks.append("column names")
        if any(each.statistics_shown for each in inspected.columns):
            leaks.append("statistics")
    if any(each.levels_encrypted is False for each in inspected.columns):
        leaks.append("which values are null")
    found.leaks = tuple(leaks)


def _inspected(found: AuditedFile, entry: Entry, decryption: DecryptionConfig | None) -> Inspection:
    from ags1.parquet import inspect

    if decryption is not None:
        try:
            return inspect(entry.location, decryption)
        except AuthenticationError:
            # Use the key that the file itself names.
            raise
        except (Ags1Error, ValueError) as error:
            found.detail = f"not opened: {error}"
    return inspect(entry.location)


# -- everything else -----------------------------------------------------------------------------------------------


def _take_others(found: AuditedFile, head: bytes) -> None:
    found.protection = PLAINTEXT
    for magic, name in _MAGICS:
        if head.startswith(magic):
            found.format = name
            found.leaks = ("values", "column names") if name in _WITH_SCHEMA else ("values",)
            return
    if _is_key_metadata(found, head):
        found.format = "key metadata"
        found.problem = "key-in-plaintext", f"{found.name}: is key metadata in plaintext: its readers have the key"
        return
    text = _text(head)
    if text is not None:
        _take_text(found, text)
        return
    if len(head) in (16, 24, 32) and found.size == len(head) and "key" in found.name.lower():
        found.problem = "key-in-plaintext", f"{found.name}: has the length and the name of a key in plaintext"
    found.protection = UNKNOWN
    if len(head) >= _RANDOM_BYTES and looks_random(head):
        found.detail = "looks random: encrypted by something else, or compressed"


def _take_text(found: AuditedFile, text: str) -> None:
    found.leaks = ("values",)
    first, _, rest = text.partition("\n")
    found.format = "text"
    if text.lstrip()[:1] in ("{", "[") and (_is_json(text) or _is_json(first) or found.size > BYTES_READ):
        found.format, found.leaks = "JSON", ("values", "column names")
    elif any(first.count(each) and first.count(each) == rest.split("\n", 1)[0].count(each) for each in ",;\t|"):
        found.format, found.leaks = "CSV", ("values", "column names")
    if _PRIVATE_KEY.search(text) or (found.size <= _MAX_KEY_FILE and _TEXT_KEY.fullmatch(text.strip())):
        found.problem = "key-in-plaintext", f"{found.name}: looks like a key in plaintext: its readers have it"


def _is_key_metadata(found: AuditedFile, head: bytes) -> bool:
    if found.size > _MAX_KEY_FILE or head[:1] != b"\x01":
        return False
    try:
        KeyMetadata.decode(head)
    except (Ags1Error, ValueError):
        return False
    return True


def _text(head: bytes) -> str | None:
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None
    controls = sum(each < " " and each not in "\t\n\r\f" for each in text)
    return None if controls else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


_PIECE, _BLOCK = 4 << 10, 64 << 10
_SAMPLES = 4
# The least length of a module is that of its nonce; its own length, of four bytes, is before it.
_LENGTH, _SHORTEST = 4, 12
_PRINTABLE = bytes(each in b"\t\n\r" or 32 <= each < 127 for each in range(256))
_TEXT = b"\1" * 40


def looks_random(data: bytes) -> bool:
    """Whether 28 bytes or more look like encrypted ones."""
    printable = data.translate(_PRINTABLE)
    return _TEXT not in printable and 0 in printable and len(zlib.compress(data, 1)) > 0.9 * len(data)


def bare_bytes(source: Source, start: int, end: int, *, whole: bool, modules: bool) -> int | None:
    """Return where the first bytes between `start` and `end` are that cannot be encrypted, or None.

    With `whole`, and of few bytes, all are read, else samples. With `modules`, the bytes are modules of Parquet, one
    after another, and are followed as far as they are read.
    """
    whole = whole or end - start <= _BLOCK
    module = start
    for offset, size in _ranges(start, end, whole):
        data = bytes(memoryview(source.read(offset, size)))
        for each in _starts(size, _PIECE):
            if not looks_random(data[each : each + _PIECE]):
                return offset + each
        while modules and offset <= module <= offset + size - _LENGTH:
            length = int.from_bytes(data[module - offset :][:_LENGTH], "little")
            if length < _SHORTEST or module + _LENGTH + length > end:
                return module
            module += _LENGTH + length
    return module if whole and modules and module < end else None


def _ranges(start: int, end: int, whole: bool) -> list[tuple[int, int]]:
    if not whole:
        return [(start + (end - start - _PIECE) * each // (_SAMPLES - 1), _PIECE) for each in range(_SAMPLES)]
    size = min(_BLOCK, end - start)
    return [(start + each, size) for each in _starts(end - start, size)] if size else []


def _starts(length: int, size: int) -> list[int]:
    """Where parts of `size` bytes begin that cover `length` bytes. They overlap: no length of a module is cut."""
    return [*range(0, length - size, max(1, size - _LENGTH)), max(0, length - size)]
