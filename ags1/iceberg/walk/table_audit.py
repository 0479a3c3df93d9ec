"""Present and coming faults of a table's encryption: in its key hierarchy, and in the facts about its files.

    metadata.json       format version, properties, encryption-keys, key-id of each snapshot
    key hierarchy       does each entry open, is it used, whose master key is it under, how old is it
    every file          encrypted, with a trusted length and a key as long as asked for, there, and of that length

An audit reads metadata and requests the sizes of files; it does not read data files, unlike
:mod:`ags1.iceberg.walk.table_verification` does. Sources: Iceberg table spec, "Encryption Keys"; Iceberg Java's
EncryptionUtil and StandardEncryptionManager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ags1.errors import Ags1Error, FormatError
from ags1.iceberg.files.file_io import EncryptedFileIO, plaintext_length_of
from ags1.iceberg.metadata.key_entries import (
    KEK_LIFESPAN_MS,
    KEY_TIMESTAMP,
    MAX_CLOCK_SKEW_MS,
    EncryptedKey,
    MissingKekError,
    kept_kek,
    milliseconds,
    shown,
)
from ags1.iceberg.metadata.metadata_document import (
    DATA_KEY_LENGTH,
    KEY_ID,
    Document,
    partition_in,
    partition_names,
    properties_of,
)
from ags1.iceberg.walk.table_walk import (
    FAULTS,
    PLAINTEXT,
    UNSUPPORTED,
    TableFile,
    TableWalk,
    foreign_blocks,
    stored_size,
)
from ags1.storage import REQUESTS_AT_ONCE
from ags1.support.parallel import in_parallel
from ags1.support.reports import (
    DAMAGED,
    ERROR,
    NOT_CHECKED,
    NOT_PROTECTED,
    NOTE,
    WARNING,
    Finding,
    FindingsReport,
    judged,
)
from ags1.support.words import counted, with_name

_DAY_MS = 86_400_000
_DEFAULT_KEY_LENGTH = 16
_LENGTHS = (16, 24, 32)
# Iceberg Java's and PyIceberg's field of one partition: "partitions.country=CH".
_PARTITION = "partitions."


def audit(
    found: TableWalk,
    file_io: EncryptedFileIO,
    older: Mapping[str, Document] | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> FindingsReport:
    """Look at the key hierarchy of a table, at the files that a walk has found, and at older metadata files."""
    looked_at = {"snapshots": len(found.snapshots), "keys": len(found.keys), "files": len(found), "unread_manifests": 0}
    report = FindingsReport(found.location, looked_at, facts={"old_keys": None})
    _Audit(found, file_io, report, int(clock() * 1000)).run()
    if found.encrypted:
        _check_summaries({found.location: found.document, **(older or {})}, report)
    report.sort()
    return report


class _Audit:
    def __init__(self, found: TableWalk, file_io: EncryptedFileIO, report: FindingsReport, now_ms: int) -> None:
        self._found = found
        self._io = file_io
        self._report = report
        self._now_ms = now_ms
        self._data_key_length = _DEFAULT_KEY_LENGTH
        # A caller with allow_plaintext=True expects such files.
        self._plain = self._warning if file_io.expected.allow_plaintext else self._weak
        self._partitions = partition_names(found.document.fields)
        # Paths of files that show partition values.
        self._shown: list[str] = []
        # Ids of keys that were reported as not opening.
        self._shut: set[str | None] = set()

    def run(self) -> None:
        self._check_table()
        self._check_snapshots()
        self._check_keys()
        files = list(self._found)
        for file, size in zip(files, in_parallel(self._look, files, REQUESTS_AT_ONCE), strict=True):
            self._check_file(file)
            self._check_size(file, size)
        if self._shown:
            text = (
                f"{counted(len(self._shown), 'encrypted file')} with partition values in the path, such as "
                f"{self._shown[0]}: `ags1 iceberg rekey` gives new paths, which show none"
            )
            self._warning("partition-in-path", self._found.location, text)

    def _error(self, code: str, subject: object, message: str, outcome: str = DAMAGED) -> None:
        self._report.add(Finding(ERROR, code, str(subject), message, outcome))

    def _weak(self, code: str, subject: object, message: str) -> None:
        """An error: everything can be read, and is not protected as it should be."""
        self._error(code, subject, message, NOT_PROTECTED)

    def _warning(self, code: str, subject: object, message: str) -> None:
        self._report.add(Finding(WARNING, code, str(subject), message))

    def _note(self, code: str, subject: object, message: str) -> None:
        self._report.add(Finding(NOTE, code, str(subject), message))

    # -- the table -------------------------------------------------------------------------------------------

    def _check_table(self) -> None:
        found, fields = self._found, self._found.document.fields
        version = fields.get("format-version")
        if not found.encrypted:
            text = "the table is not encrypted: it has neither the property encryption.key-id nor encryption-keys"
            self._plain("table-not-encrypted", found.location, text)
            return
        if not isinstance(version, int) or version < 3:
            text = (
                f"the table has format version {version}, and encryption needs version 3: engines ignore or refuse it"
            )
            self._weak("format-version", "format-version", text)
        if found.table_key_id is None:
            text = (
                "the table has encryption-keys and no property encryption.key-id: Iceberg Java would write and read it "
                "as a table that is not encrypted"
            )
            self._weak("no-master-key-property", KEY_ID, text)
        asked = properties_of(fields).get(DATA_KEY_LENGTH)
        if asked is not None:
            try:
                self._data_key_length = int(str(asked))
            except ValueError:
                self._data_key_length = 0
            if self._data_key_length not in _LENGTHS:
                text = (
                    f"the property encryption.data-key-length is {shown(str(asked))}, and AES keys have 16, 24 or 32 "
                    "bytes"
                )
                self._weak("data-key-length", DATA_KEY_LENGTH, text)
                self._data_key_length = _DEFAULT_KEY_LENGTH
        for name in ("statistics", "partition-statistics"):
            listed = fields.get(name)
            for each in listed if isinstance(listed, list) else ():
                path = each.get("statistics-path") if isinstance(each, dict) else None
                if path is None:
                    continue
                if each.get("key-metadata"):
                    text = (
                        f"{path}: the key of these statistics stands in the metadata file, which is not encrypted: "
                        "everybody who reads that can open them. Remove them (`ags1 iceberg expire`), and use no key "
                        "of theirs again"
                    )
                    self._error("statistics-key-leaked", path, text)
                else:
                    text = (
                        f"{path}: statistics are not encrypted (Iceberg has no way to), and tell of the data; "
                        "`ags1 iceberg expire` removes them"
                    )
                    self._note("statistics-plaintext", path, text)

    def _check_snapshots(self) -> None:
        found = self._found
        for each in found.snapshots:
            number = each.snapshot_id
            if each.manifest_list is None:
                text = f"snapshot {number} has no manifest list: what is in it cannot be told"
                self._error("no-manifest-list", number, text)
            if each.key_id is None and found.encrypted:
                text = (
                    f"snapshot {number} has no key-id: its manifest list is not encrypted, and so can be replaced "
                    "together with all the keys in it"
                )
                self._plain("snapshot-without-key", number, text)
            elif each.key_id is not None and each.key_id not in found.keys:
                self._shut.add(each.key_id)
                text = (
                    f"snapshot {number} names key {shown(each.key_id)}, which encryption-keys lacks: it cannot be "
                    "read. Older metadata files may still have the key: merge their lists"
                )
                self._error("key-missing", each.key_id, text)

    # -- keys ------------------------------------------------------------------------------------------------

    def _check_keys(self) -> None:
        keys, dropped = self._found.keys, self._unused()
        keks = {entry.key_id: entry for entry in keys if self._is_kek(entry)}
        closed = {key_id for key_id, kek in keks.items() if not self._check_kek(kek, keys.below(key_id), dropped)}
        for entry in keys:
            if entry.key_id not in keks:
                self._check_key(entry, entry.key_id in dropped, closed)

    def _unused(self) -> set[str]:
        """What prune would drop."""
        try:
            pruned = self._found.keys.prune(self._found.document.fields).report
        except FormatError as error:
            self._warning("keys-not-judged", "encryption-keys", f"it is not known which keys are unused: {error}")
            return set()
        return set(getattr(pruned, "dropped", ()))

    def _is_kek(self, entry: EncryptedKey) -> bool:
        keys, by = self._found.keys, entry.encrypted_by_id
        if by is None or by in keys:
            return False
        return entry.timestamp is not None or bool(keys.below(entry.key_id)) or by == self._found.table_key_id

    def _check_kek(self, kek: EncryptedKey, under: list[EncryptedKey], dropped: set[str]) -> bool:
        key_id, by = kek.key_id, kek.encrypted_by_id or ""
        name = f"key encryption key {shown(key_id)}"
        expected = self._found.table_key_id
        if expected is not None and by != expected:
            text = (
                f"{name} is under master key {shown(by)}, not under the table's encryption.key-id {shown(expected)}: "
                "Iceberg Java cannot unwrap it, and nobody promised that key"
            )
            self._weak("kek-other-master-key", key_id, text)
        if not under:
            self._note("kek-orphaned", key_id, f"{name} has no entries under it{_prunable(kek, dropped)}")
        elif key_id in dropped:
            self._note("kek-unused", key_id, f"{name} has only entries that nothing uses{_prunable(kek, dropped)}")
        opens = self._check_timestamp(kek, name, under)
        if self._io.keys._kms is None:
            text = f"{name} was not opened: no KMS was given"
            self._error("kek-does-not-open", key_id, _with_count(text, under), NOT_CHECKED)
            return False
        try:
            opened = kept_kek(self._io.keys._kms, kek)
        except Ags1Error as error:
            self._error("kek-does-not-open", key_id, _with_count(str(error), under), NOT_CHECKED)
            return False
        if len(opened) < self._data_key_length:
            self._short_key(key_id, name, len(opened))
        return opens

    def _check_timestamp(self, kek: EncryptedKey, name: str, under: list[EncryptedKey]) -> bool:
        key_id, stamp = kek.key_id, kek.timestamp
        if stamp is None:
            message = f"{name} has no {KEY_TIMESTAMP}, whose text authenticates what is under it"
            self._error("kek-without-timestamp", key_id, _with_count(message, under))
            return False
        if not kek.properties.get(KEY_TIMESTAMP):
            text = f"{name} has its timestamp in another property than {KEY_TIMESTAMP}, where Iceberg Java looks for it"
            self._warning("kek-timestamp", key_id, text)
        made = milliseconds(stamp)
        if made is None:
            text = (
                f"{name} has the {KEY_TIMESTAMP} {shown(stamp)}, which is no number: Iceberg Java fails at the next "
                "write"
            )
            self._warning("kek-timestamp", key_id, text)
        elif self._now_ms - made >= KEK_LIFESPAN_MS:
            text = (
                f"{name} is {(self._now_ms - made) // _DAY_MS} days old, more than {KEK_LIFESPAN_MS // _DAY_MS}: it "
                "opens its entries for ever, and the next write makes another"
            )
            self._warning("kek-expired", key_id, text)
        elif made - self._now_ms > MAX_CLOCK_SKEW_MS:
            text = f"{name} has a {KEY_TIMESTAMP} that is {(made - self._now_ms) // _DAY_MS} days ahead of this clock"
            self._warning("kek-from-the-future", key_id, text)
        return True

    def _check_key(self, entry: EncryptedKey, unused: bool, closed: set[str]) -> None:
        key_id, by = entry.key_id, entry.encrypted_by_id
        if unused:
            self._note("key-unused", key_id, f"no snapshot uses entry {shown(key_id)}; prune would drop it")
        if by in closed:
            # Reported once, for the key encryption key.
            self._shut.add(key_id)
            return
        try:
            self._found.keys.unwrap(key_id, self._io.keys._kms, table_key_id=self._io.expected.table_key_id)
        except Ags1Error as error:
            self._shut.add(key_id)
            if isinstance(error, MissingKekError):
                self._error("kek-missing", key_id, str(error))
            else:
                self._error("key-does-not-open", key_id, str(error), NOT_CHECKED)

    def _short_key(self, subject: str, name: str, length: int) -> None:
        text = (
            f"{name}: its key has {8 * length} bits, fewer than the {8 * self._data_key_length} that the table's "
            "encryption.data-key-length asks for"
        )
        self._warning("key-length", subject, text)

    # -- files -----------------------------------------------------------------------------------------------

    def _look(self, file: TableFile) -> int | Exception:
        try:
            return stored_size(self._io, file.path)
        except FAULTS as error:
            return error

    def _check_file(self, file: TableFile) -> None:
        path = file.path
        if file.conflict is not None:
            self._error("file-conflict", path, f"{path}: {file.conflict}")
        if file.error is not None:
            self._report.checked["unread_manifests"] += 1
            # A missing or wrong key was reported for the key itself; a missing file is reported below.
            if not (file.key_id in self._shut or isinstance(file.error, FileNotFoundError)):
                self._error("file-unreadable", path, _naming(path, file.error), judged(file.error)[1])
            return
        foreign = foreign_blocks(path, file.block_length)
        if foreign is not None:
            self._error("file-block-length", path, str(foreign))
        if file.encryption == PLAINTEXT:
            if self._found.encrypted:
                self._plain("file-plaintext", path, f"{path}: this {file.what} is not encrypted, although its table is")
            return
        if partition_in(path, self._partitions):
            self._shown.append(path)
        if file.encryption == UNSUPPORTED:
            text = f"{path}: has a key and is in the format {file.file_format}, which Iceberg does not encrypt"
            self._error("file-format", path, text)
        if file.nameless:
            text = (
                f"{path}: does not say which snapshot it is of: nobody would notice if the metadata had it for another"
            )
            self._warning("list-without-snapshot", path, text)
        if file.trusted_length is None:
            text = f"{path}: the key metadata of this {file.what} has no file length"
            if file.file_format == "parquet":
                # Parquet ends with an authenticated footer; an AGS1 stream can end at any block.
                self._warning("file-without-length", path, text)
            else:
                self._weak("file-without-length", path, f"{text}: a cut at its end could not be noticed")
        elif file.length_hint is not None and file.length_hint != file.trusted_length:
            text = (
                f"{path}: the file above it says {file.length_hint} bytes, and its key metadata {file.trusted_length}"
            )
            self._warning("file-size-in-manifest", path, text)
        bits = file.key_bits
        if bits is not None and bits < 8 * self._data_key_length:
            self._short_key(path, path, bits // 8)

    def _check_vectors(self, file: TableFile, size: int) -> None:
        """Whether deletion vectors are inside their file; :meth:`EncryptedTable.verify` reads them."""
        plain = None if file.encryption == PLAINTEXT else plaintext_length_of(size)
        for vector in file.vectors:
            if vector.offset + vector.size > (size if plain is None else plain):
                text = (
                    f"{file.path}: the deletion vector of {vector.data_file}, at offset {vector.offset}, ends behind "
                    "the end of the file"
                )
                self._error("vector-outside", file.path, text)

    def _check_size(self, file: TableFile, size: int | Exception) -> None:
        path = file.path
        if isinstance(size, FileNotFoundError):
            self._error("file-missing", path, f"{path}: this {file.what} is missing")
            return
        if isinstance(size, Exception):
            self._error("size-unreadable", path, _naming(path, size), NOT_CHECKED)
            return
        self._check_vectors(file, size)
        expected, who = file.trusted_length, "its key metadata"
        if expected is None:
            expected, who = file.length_hint, "the file above it"
            # Of a manifest, iceberg-rust has that of the plaintext there.
            rust = file.kind == "manifest" and file.encryption != PLAINTEXT and plaintext_length_of(size) == expected
            if expected is None or rust:
                return
        if size != expected:
            text = f"{path}: has {size} bytes, but {who} says {expected}: it was cut off, extended or replaced"
            self._error("file-size", path, text)


def _check_summaries(documents: Mapping[str, Document], report: FindingsReport) -> None:
    """Report metadata files with partition values, which other writers put into the summaries of snapshots."""
    showing = []
    for path, document in documents.items():
        summaries = [each.get("summary") or {} for each in document.fields.get("snapshots") or ()]
        if any(name.startswith(_PARTITION) for each in summaries for name in each):
            showing.append(path)
    if showing:
        text = (
            f"{counted(len(showing), 'metadata file')} with partition values in plaintext, in the summaries of "
            f"snapshots, such as {showing[0]}: set the property write.summary.partition-limit to 0, expire the "
            "snapshots, then remove old metadata files"
        )
        report.add(Finding(WARNING, "partition-in-summary", report.subject, text))


def _prunable(kek: EncryptedKey, dropped: set[str]) -> str:
    return "; prune would drop it" if kek.key_id in dropped else ""


def _with_count(message: str, under: list[EncryptedKey]) -> str:
    return f"{message}; {counted(len(under), 'entry', 'entries')} under it cannot be opened" if under else message


def _naming(path: str, error: Exception) -> str:
    return with_name(path, str(error) or type(error).__name__)
