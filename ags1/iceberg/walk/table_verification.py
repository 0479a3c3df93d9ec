"""Authenticate every block and module of a table's files, each file once, and say which of them fail.

    manifest lists, manifests    read whole, which authenticates each block, to find the files below
    Avro, Puffin                 every block of the AGS1 stream
    Parquet                      every module, and whether they agree with each other

Several files are checked at once, the largest first, each in little memory. A failed file stops only the check of files
that it alone names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from ags1.core.blocks import usable_cpus
from ags1.core.layout import block_count, plaintext_length
from ags1.errors import FormatError, TruncatedError
from ags1.iceberg.files.ahead import FilesAhead
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile, refuse_form
from ags1.iceberg.metadata.metadata_document import partition_in, partition_names
from ags1.iceberg.walk.table_walk import FAULTS, KINDS, PARQUET, PLAINTEXT, TableFile, TableWalk, foreign_blocks
from ags1.storage import SMALL, DescriptorSource, Location, Source, are_small_objects
from ags1.streams.files import Progress
from ags1.streams.stream import Reader
from ags1.support.arguments import at_least_one, spelled
from ags1.support.reports import (
    DAMAGED,
    ERROR,
    NOT_CHECKED,
    NOT_PROTECTED,
    NOTE,
    VIOLATION,
    WARNING,
    Finding,
    VerifyReport,
    judged,
)
from ags1.support.words import counted, with_name
from ags1.work.units import OneByOne, SharedProgress, Threads, run_on_threads

_NAMED_IN_FILE = 5
# Codes of findings about a table and its files.
PLAIN, NOT_ENCRYPTED = "plaintext", "table-not-encrypted"


def verify_table(
    found: TableWalk, file_io: EncryptedFileIO, *, progress: Progress | None = None, threads: int | None = None
) -> VerifyReport:
    """Authenticate the files that a walk has found; as :meth:`EncryptedTable.verify`."""
    at_least_one(threads, "threads")
    report = VerifyReport(found.location, dict.fromkeys(("files", "blocks", "modules", "bytes"), 0))
    by_kind = dict.fromkeys(KINDS, 0)
    partitions = partition_names(found.document.fields)
    for finding in table_findings(found, file_io.expected.allow_plaintext):
        report.add(finding)
    for file, checked in () if NOT_ENCRYPTED in report.counts else _checked(found, file_io, threads, progress):
        for name, count in checked.checked.items():
            report.checked[name] += count
        # Of a copy, the file that was read.
        shown = file_io.locations.shown(file.path)
        details = {"kind": file.kind, "snapshot_ids": list(file.snapshot_ids)}
        for each in checked.findings:
            message = each.message.replace(file.path, shown)
            report.add(replace(each, subject=shown, message=message, details={**details, **each.details}))
        if checked.ok:
            report.checked["files"] += 1
            by_kind[file.kind] += 1
            for each in _remarks(file, file_io, partitions):
                report.add(replace(each, details=details))
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    report.findings.sort(key=lambda each: (ranks.get(each.details.get("kind", ""), -1), each.subject))
    report.sort()
    report.facts = {
        "snapshots": len(found.snapshots),
        "files": len(found),
        "by_kind": {kind: count for kind, count in by_kind.items() if count},
    }
    return report


def _checked(
    found: TableWalk, file_io: EncryptedFileIO, threads: int | None, progress: Progress | None
) -> Iterator[tuple[TableFile, VerifyReport]]:
    """The reports of all files: those above first, then the others as they come, the largest first."""
    files = sorted(found.files.values(), key=lambda each: each.size, reverse=True)
    place = file_io.place(found.location)
    sizes = [each.size for each in files]
    how = Threads.of_files([place], sizes, threads or usable_cpus(), written=False)
    checker, coming = FileChecker(file_io, how.each), iter(files)
    if are_small_objects(place, sizes):
        how, coming = Threads(threads or 1), checker.ahead.requested(files, lambda file: (file.path, file.known))
    above = [*found.manifest_lists.values(), *found.manifests.values()]
    for each in above:
        yield each, checker.read(each)
    shared = SharedProgress(progress, sum(each.size for each in found), sum(each.size for each in above))

    def check(file: TableFile, threads: int | None, within: Progress) -> VerifyReport:
        return checker.check(file, within)

    work = OneByOne(check, brief=SMALL if place.is_local else 0)
    with closing(checker.ahead):
        for file, answer, *_ in run_on_threads(work, coming, how, shared):
            yield file, answer


def table_findings(found: TableWalk, allow_plaintext: bool) -> Iterator[Finding]:
    """The findings about the table as a whole. After "table-not-encrypted", no file is checked."""
    where = found.location
    if not found.encrypted and not allow_plaintext:
        text = (
            f"{where}: the table is not encrypted, so nothing in it can be authenticated; open it with "
            f"{spelled('allow_plaintext', True)} if that is meant to be"
        )
        yield Finding(VIOLATION, NOT_ENCRYPTED, where, text, NOT_PROTECTED)
        return
    for snapshot in found.snapshots:
        if snapshot.manifest_list is None:
            number = snapshot.snapshot_id
            text = f"{where}: snapshot {number} has no manifest list: its files cannot be named"
            yield Finding(ERROR, "no-manifest-list", where, text, DAMAGED, {"snapshot_ids": [number]})


def _remarks(file: TableFile, file_io: EncryptedFileIO, partitions: Any) -> Iterator[Finding]:
    """What an authentic file nevertheless shows, or leaves unknown."""
    shown = file_io.locations.shown(file.path)
    if file_io.locations.of_original(file.path) is not None:
        text = (
            f"{shown}: was read where the metadata says that the table is, so nothing is known of this copy's own "
            f"file; {spelled('moved_from')} reads the copy's own"
        )
        yield Finding(WARNING, "file-of-original", shown, text)
    if partition_in(file.path, partitions):
        yield Finding(NOTE, "partition-in-path", shown, f"{shown}: the path shows partition values")
    if file.trusted_length is None and file.encryption != PARQUET and file_io.expected.length_policy == "file":
        text = f"{shown}: there is no trusted length, so blocks missing at the end are not detected"
        yield Finding(WARNING, "untrusted-length", shown, text, NOT_PROTECTED)


class FileChecker:
    """Checks one file of a table after the other. Safe to share between threads.

    Parameters
    ----------
    file_io : EncryptedFileIO
        Where the files are, and what is allowed of them.
    threads : int or None
        Threads for each file.
    """

    def __init__(self, file_io: EncryptedFileIO, threads: int | None) -> None:
        self._io = file_io
        self._threads = threads
        self.ahead = FilesAhead(file_io)

    def read(self, file: TableFile) -> VerifyReport:
        """Report a manifest list or manifest, which the walk has read whole and so authenticated."""
        report = VerifyReport(file.path)
        fault = file.error or foreign_blocks(file.path, file.block_length)
        if fault is not None:
            _fail(report, fault)
        elif file.encryption == PLAINTEXT:
            self._take_plaintext(file, report)
        else:
            report.checked = {"blocks": block_count(plaintext_length(file.size)), "bytes": file.size}
        return _with_conflict(report, file)

    def check(self, file: TableFile, progress: Progress | None = None) -> VerifyReport:
        """Check all of a data file, delete file or file of deletion vectors."""
        report, known = VerifyReport(file.path), file.known
        try:
            if known.key_metadata is None:
                self._check_plaintext(file, known, report)
            elif file.encryption == PARQUET:
                self._check_parquet(file, known, report, progress)
            else:
                self._check_stream(file, known, report, progress)
        except FAULTS as error:
            _fail(report, error)
        finally:
            self.ahead.forget(file.path)
        return _with_conflict(report, file)

    def _take_plaintext(self, file: TableFile, report: VerifyReport) -> None:
        if self._io.expected.allow_plaintext:
            text = f"{file.path}: this {file.what} is not encrypted, which was allowed: only its size was checked"
        else:
            text = (
                f"{file.path}: this {file.what} is not encrypted, although its table is: nothing in it can be "
                f"authenticated; open the table with {spelled('allow_plaintext', True)} if that is meant to be"
            )
        report.add(Finding(VIOLATION, PLAIN, file.path, text, NOT_PROTECTED))

    def _check_plaintext(self, file: TableFile, known: KnownFile, report: VerifyReport) -> None:
        if not self._io.expected.allow_plaintext:
            self._take_plaintext(file, report)
            return
        input_file = self.ahead.input_of(file.path)
        size, expected = len(input_file), file.length_hint
        if expected is not None and size != expected:
            raise TruncatedError(f"{file.path}: has {size} bytes, but the file above it says {expected}")
        if file.vectors:
            with input_file.plaintext(known) as plain:
                self._check_vectors(file, plain, report)
        self._take_plaintext(file, report)

    def _source(self, file: TableFile, known: KnownFile) -> tuple[Source | Location, int]:
        """Return the stored bytes, which can be read several times, and how many there are."""
        source = self.ahead.input_of(file.path).source(known)
        if not isinstance(source, DescriptorSource):
            return source, source.size
        # A pipe was refused here; the file is opened again where it is read.
        source.close()
        return self._io.place(file.path), source.size

    def _check_vectors(self, file: TableFile, plain: Any, report: VerifyReport) -> None:
        from ags1.iceberg.scan.deletion_vectors import deleted_positions, footer_contradictions

        deleted_positions(plain, file.vectors)
        _contradict(report, footer_contradictions(plain, file.vectors))

    def _check_stream(self, file: TableFile, known: KnownFile, report: VerifyReport, progress: Progress | None) -> None:
        from ags1.streams.verify import verify_file

        assert known.key_metadata is not None
        refuse_form(known)
        length = known.key_metadata.file_length
        if length is None and self._io.expected.length_policy != "file":
            length = self._io.new_input(file.path)._length(known)
        key, aad_prefix = known.key_metadata.encryption_key, known.key_metadata.aad_prefix or b""
        source, _ = self._source(file, known)
        found = verify_file(source, key, aad_prefix=aad_prefix, length=length, threads=self._threads, progress=progress)
        if found.ok and file.vectors:
            with Reader(source, key, aad_prefix=aad_prefix, length=length) as plain:
                self._check_vectors(file, plain, report)
        report.checked |= found.checked
        foreign = foreign_blocks(file.path, found.facts["block_length"])
        if foreign is not None and found.ok:
            raise foreign
        for each in found.having("damaged"):
            text = f"{file.path}: {each.message.removeprefix(f'{found.subject}: ')}"
            report.add(replace(each, subject=file.path, message=text))

    def _check_parquet(
        self, file: TableFile, known: KnownFile, report: VerifyReport, progress: Progress | None
    ) -> None:
        from ags1.parquet import verify_file
        from ags1.parquet.keys.properties import DecryptionConfig

        key_metadata = known.key_metadata
        assert key_metadata is not None
        (source, size), expected = self._source(file, known), key_metadata.file_length
        if expected is not None and size != expected:
            raise TruncatedError(
                f"{file.path}: has {size} bytes, but its key metadata says {expected}: it was replaced or cut off"
            )
        found = verify_file(
            source, DecryptionConfig.for_iceberg(key_metadata), threads=self._threads, progress=progress,
            allow_unauthenticated_pages=True,
        )  # fmt: skip
        report.checked |= found.checked
        _contradict(report, [each.message for each in found.having("contradiction")])
        bare = sum(each.details["pages"] for each in found.having("plaintext-columns"))
        bare += sum(sum(each.details.values()) for each in found.having("pages-without-tags"))
        if found.outcome in (DAMAGED, NOT_CHECKED):
            failed = {"failed": found.counts.get("damaged", 0)}
            code = "damaged" if found.outcome == DAMAGED else "key-missing"
            report.add(Finding(ERROR, code, file.path, f"{file.path}: {found.fault()}", found.outcome, failed))
        elif bare or not found.ok:
            why = f"{bare} of its pages are not protected from changes" if bare else found.fault()
            text = f"{file.path}: {why}: Iceberg writes AES_GCM_V1 with every column encrypted"
            report.add(Finding(VIOLATION, "not-protected", file.path, text, NOT_PROTECTED))
        for each in found.having("levels-without-tags"):
            pages = counted(each.details["pages"], "version 2 page")
            text = f"{file.path}: the levels of {pages} (which rows are null) carry no tag, as parquet-java writes them"
            report.add(Finding(NOTE, each.code, file.path, text, "", each.details))


def _contradict(report: VerifyReport, texts: list[str]) -> None:
    """Take in the first few things in a file that contradict each other."""
    if texts:
        text = f"{report.subject}: {'; '.join(texts[:_NAMED_IN_FILE])}"
        report.add(Finding(WARNING, "contradiction", report.subject, text))


def _with_conflict(report: VerifyReport, file: TableFile) -> VerifyReport:
    if report.ok and file.conflict is not None:
        _fail(report, FormatError(f"{file.path}: {file.conflict}"))
    return report


def _fail(report: VerifyReport, error: Exception) -> None:
    """Take in an error that ended the check of a file."""
    code, outcome = judged(error)
    text = with_name(report.subject, str(error) or type(error).__name__)
    if code == "missing":
        text = f"{report.subject}: is missing: the table names it, and there is no such file"
    report.add(Finding(ERROR, code, report.subject, text, outcome, {"error": type(error).__name__}))
