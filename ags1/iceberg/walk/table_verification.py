"""Authenticate every block and module of a table's files, each file once, and say which of them fail.

    manifest lists, manifests    read whole, which authenticates each block, to find the files below
    Avro, Puffin                 every block of the AGS1 stream
    Parquet                      every module, and whether they agree with each other

Several files are checked at once, the largest first, each in little memory. A failed file stops only the check of files
that it alone names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ags1.core.blocks import usable_cpus
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.iceberg.files.file_io import EncryptedFileIO
from ags1.iceberg.metadata.metadata_document import partition_in, partition_names
from ags1.iceberg.walk.table_walk import FAULTS, KINDS, PARQUET, PLAINTEXT, TableFile, TableWalk, foreign_blocks
from ags1.parquet.verify.report import AUTHENTIC, DAMAGED, NOT_CHECKED, NOT_PROTECTED, outcome_of, worst_outcome
from ags1.storage import DescriptorSource, Location, Source
from ags1.streams.files import Progress
from ags1.streams.stream import Reader
from ags1.support.arguments import at_least_one
from ags1.support.reports import Record, Report
from ags1.support.words import counted, first_lines, printable, with_name
from ags1.work.threads import SharedProgress, Threads, run_on_threads
from ags1.work.units import OneByOne

# Failures that are kept, and those of them that the text has.
_REPORTED = 1000
_LISTED = 20
_NAMED_IN_FILE = 5


def _not_protected(error: Exception) -> Exception:
    """Mark an error as "not protected": the file should be encrypted and authenticated, and is not."""
    error.not_protected = True  # type: ignore[attr-defined]
    return error


@dataclass(frozen=True)
class FileFailure(Record):
    """A file that failed, or could not be checked.

    Attributes
    ----------
    path : str
    kind : str
        "manifest list", "manifest", "data", "position deletes", "equality deletes" or "deletion vectors"; "table" for
        what concerns the whole of it.
    error : str
        Name of the exception's class.
    message : str
        What is wrong, and where in the file.
    failed : int
        Blocks or modules that failed; 0 where none could be looked at.
    snapshot_ids : tuple of int
        The snapshots that need the file, of those that were asked for.
    outcome : str
        "damaged", also where the file is missing; "not protected"; or "not checked" where a key was missing, or the
        file could not be read or was not allowed to be.
    """

    path: str
    kind: str
    error: str
    message: str
    failed: int
    snapshot_ids: tuple[int, ...]
    outcome: str = DAMAGED

    def __str__(self) -> str:
        if self.kind == "table":
            return printable(self.message)
        count = len(self.snapshot_ids)
        needed = f"snapshot {self.snapshot_ids[0]}" if count == 1 else f"{count} snapshots"
        return printable(f"{self.message} ({self.kind} of {needed})")


@dataclass
class TableVerifyReport(Report):
    """What :meth:`EncryptedTable.verify` found.

    Attributes
    ----------
    location : str
        The metadata file.
    snapshots : int
        How many were followed.
    files : int
        How many there are, manifest lists and manifests among them, each counted once.
    verified : int
        Files of which everything authenticated.
    by_kind : dict of str to int
        The same by kind.
    plaintext : int
        Files that are not encrypted, where the table was opened with ``allow_plaintext=True``: there is nothing in
        them that could be authenticated, and only their size was looked at. Otherwise they are failures.
    partition_paths : int
        Encrypted files whose paths show partition values, such as ``country=CH``.
    plaintext_levels : int
        Version 2 pages of Parquet whose repetition and definition levels carry no tag: which rows are null, and how
        lists are divided, can be read and changed in them. Iceberg's Java readers can read no other form of such pages.
    untrusted_length : int
        AGS1 files that were checked without a trusted length, as the length policy allowed: blocks missing at their
        end would not be noticed.
    blocks, modules : int
        Of AGS1 and of Parquet files: how many authenticated. Blocks of manifest lists and manifests are not counted.
    bytes : int
        Bytes of the files that were checked, as they are stored.
    of_original : int
        Where the metadata file is in a copy of the table: files that were read in the old place, as was allowed, so
        that nothing is known of the copy's own. With ``moved_from``, none is.
    problems : dict of str to list of str
        By path: what authenticates and contradicts something else in a Parquet file. The first thousand files.
    problem_count : int
        Files that have some.
    failures : list of FileFailure
        By path within a kind; the first thousand.
    failure_count : int
        How many there are in all.
    outcomes : dict of str to int
        Those by outcome: "damaged", "not protected", "not checked".
    """

    location: str
    snapshots: int = 0
    files: int = 0
    verified: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    plaintext: int = 0
    partition_paths: int = 0
    plaintext_levels: int = 0
    untrusted_length: int = 0
    blocks: int = 0
    modules: int = 0
    bytes: int = 0
    of_original: int = 0
    problems: dict[str, list[str]] = field(default_factory=dict)
    problem_count: int = 0
    failures: list[FileFailure] = field(default_factory=list)
    failure_count: int = 0

    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """What the table is: "authentic", "damaged" or "not protected"; "not checked" where a key was missing.

        Damage wins. A table of which anything is plaintext, or carries no tag, is not protected, whether or not that
        was allowed.
        """
        found = worst_outcome(self.outcomes)
        return NOT_PROTECTED if found == AUTHENTIC and self.plaintext else found

    @property
    def ok(self) -> bool:
        """Whether all files are authentic. Problems do not count; plaintext files do, also where they were allowed."""
        return self.outcome == AUTHENTIC

    def add_failure(self, failure: FileFailure) -> None:
        """Take in a failure."""
        self.failure_count += 1
        self.outcomes[failure.outcome] = self.outcomes.get(failure.outcome, 0) + 1
        if len(self.failures) < _REPORTED:
            self.failures.append(failure)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: everything."""
        return {"outcome": self.outcome, **super().to_dict()}

    def _text(self) -> str:
        """The report as text, a few lines if all is well."""
        lines = [f"{self.location}: {self._state}"]
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.by_kind.items())
        of_all = f"{counted(self.files, 'file')} of {counted(self.snapshots, 'snapshot')}"
        lines.append(f"authenticated: {self.verified} of {of_all}{kinds and f' ({kinds})'}")
        shape = f"{counted(self.blocks, 'AGS1 block')} and {counted(self.modules, 'Parquet module')} of data"
        lines.append(f"checked: {counted(self.bytes, 'byte')}, {shape}")
        if self.plaintext:
            plain = counted(self.plaintext, "plaintext file")
            lines.append(f"NOT authenticated: {plain}, looked at only for the size")
        if self.partition_paths:
            shown = counted(self.partition_paths, "encrypted file")
            lines.append(f"NOT hidden: partition values, in the paths of {shown}")
        if self.plaintext_levels:
            pages = counted(self.plaintext_levels, "version 2 page")
            lines.append(f"NOT authenticated: the levels of {pages} (which rows are null), as parquet-java writes them")
        if self.untrusted_length:
            ends = counted(self.untrusted_length, "file")
            lines.append(
                f"NOT authenticated: the end of {ends} without a trusted length, where missing blocks would not be "
                "noticed"
            )
        if self.of_original:
            lines.append(
                f"NOT of this copy: {counted(self.of_original, 'file')}, read where the metadata says that the table "
                "is; `moved_from` reads the copy's own"
            )
        problems = [printable(f"{path}: {'; '.join(texts)}") for path, texts in self.problems.items()]
        lines += first_lines("problem", problems, self.problem_count, _LISTED, " files")
        lines += first_lines("failed", self.failures, self.failure_count, _LISTED)
        return "\n".join(lines)

    @property
    def _state(self) -> str:
        if self.outcome == NOT_CHECKED:
            return f"NOT OK ({self.failure_count} not checked)"
        if self.failure_count:
            return f"NOT OK ({self.failure_count} failed)"
        return "ok" if self.ok else f"{self.outcome.upper()}, as allowed"


def verify_table(
    found: TableWalk, file_io: EncryptedFileIO, *, progress: Progress | None = None, threads: int | None = None
) -> TableVerifyReport:
    """Authenticate the files that a walk has found; as :meth:`EncryptedTable.verify`."""
    at_least_one(threads, "threads")
    report = TableVerifyReport(found.location, snapshots=len(found.snapshots), files=len(found))
    _Verification(found, file_io, report).run(threads or usable_cpus(), progress)
    return report


@dataclass
class Checked:
    """What checking one file gave.

    Attributes
    ----------
    blocks, modules : int
        Of an AGS1 or Parquet file: how many authenticated.
    bytes : int
        Bytes that were checked.
    failed : int
        Blocks or modules that failed.
    plaintext : bool
        Whether it is a plaintext file that is allowed, of which only the size was looked at.
    plaintext_levels : int
        Version 2 pages of a Parquet file whose levels carry no tag.
    fault : Exception or None
        What is wrong with the file.
    problems : list of str
        What contradicts something else in it, the first few.
    """

    blocks: int = 0
    modules: int = 0
    bytes: int = 0
    failed: int = 0
    plaintext: bool = False
    plaintext_levels: int = 0
    fault: Exception | None = None
    problems: list[str] = field(default_factory=list)


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

    def refusal(self, file: TableFile) -> Exception | None:
        """Why a plaintext file is a failure."""
        if self._io.expected.allow_plaintext:
            return None
        return _not_protected(
            KeyAccessError(
                f"{file.path}: this {file.what} is not encrypted, although its table is: nothing in it can be "
                "authenticated; open the table with `allow_plaintext=True` if that is meant to be"
            )
        )

    def read(self, file: TableFile) -> Checked:
        """Return the result for a manifest list or manifest, which the walk has read whole and so authenticated."""
        fault = file.error or foreign_blocks(file.path, file.block_length)
        if fault is None and file.encryption == PLAINTEXT:
            fault = self.refusal(file)
            if fault is None:
                return Checked(plaintext=True)
        return Checked(bytes=file.size if fault is None else 0, fault=fault)

    def check(self, file: TableFile, progress: Progress | None = None) -> Checked:
        """Check all of a data file, delete file or file of deletion vectors.

        Raises
        ------
        Ags1Error, OSError, ValueError, EOFError
            The file cannot be checked, or contradicts its table. Parts that do not authenticate are in the result.
        """
        known = file.known
        if known.key_metadata is None:
            refusal = self.refusal(file)
            if refusal is not None:
                raise refusal
            input_file = self._io.new_input(file.path)
            size, expected = len(input_file), file.length_hint
            if expected is not None and size != expected:
                raise TruncatedError(f"{file.path}: has {size} bytes, but the file above it says {expected}")
            checked = Checked(plaintext=True)
            if file.vectors:
                with input_file.plaintext(known) as plain:
                    self._check_vectors(file, plain, checked)
            return checked
        if file.encryption == PARQUET:
            return self._check_parquet(file, progress)
        return self._check_stream(file, progress)

    def _source(self, file: TableFile) -> tuple[Source | Location, int]:
        """Return the stored bytes, which can be read several times, and how many there are."""
        source = self._io.source(file.path, file.known.stored_length, ends=file.encryption == PARQUET)
        if not isinstance(source, DescriptorSource):
            return source, source.size
        # A pipe was refused here; the file is opened again where it is read.
        source.close()
        return self._io.place(file.path), source.size

    def _check_vectors(self, file: TableFile, plain: Any, checked: Checked) -> None:
        from ags1.iceberg.scan.deletion_vectors import deleted_positions, footer_contradictions

        deleted_positions(plain, file.vectors)
        checked.problems = footer_contradictions(plain, file.vectors)[:_NAMED_IN_FILE]

    def _check_stream(self, file: TableFile, progress: Progress | None) -> Checked:
        from ags1.streams.verify import cause_of, verify_file

        known = file.known
        assert known.key_metadata is not None
        if known.file_format not in ("avro", "puffin"):
            raise FormatError(
                f"{file.path}: encrypted files of the format {known.file_format} are not supported: Iceberg encrypts "
                "Parquet, Avro and Puffin"
            )
        length = known.key_metadata.file_length
        if length is None and self._io.expected.length_policy != "file":
            length = self._io.new_input(file.path)._length(known)
        key, aad_prefix = known.key_metadata.encryption_key, known.key_metadata.aad_prefix or b""
        checked = Checked()
        source, _ = self._source(file)
        found = verify_file(source, key, aad_prefix=aad_prefix, length=length, threads=self._threads, progress=progress)
        if found.ok and file.vectors:
            with Reader(source, key, aad_prefix=aad_prefix, length=length) as plain:
                self._check_vectors(file, plain, checked)
        checked.blocks, checked.bytes = found.block_count - found.failed_count, found.encrypted_length
        checked.fault = foreign_blocks(file.path, found.block_length)
        if not found.ok:
            named = ", ".join(map(str, found.failed_blocks[:_NAMED_IN_FILE]))
            more = f" and {found.failed_count - _NAMED_IN_FILE} more" if found.failed_count > _NAMED_IN_FILE else ""
            checked.failed = found.failed_count
            checked.fault = AuthenticationError(
                f"{file.path}: {found.failed_count} of {found.block_count} blocks do not authenticate ({named}{more}): "
                f"{cause_of(found)}"
            )
        return checked

    def _check_parquet(self, file: TableFile, progress: Progress | None) -> Checked:
        from ags1.parquet import verify_file
        from ags1.parquet.keys.properties import DecryptionConfig

        key_metadata = file.known.key_metadata
        assert key_metadata is not None
        (source, size), expected = self._source(file), key_metadata.file_length
        if expected is not None and size != expected:
            raise TruncatedError(
                f"{file.path}: has {size} bytes, but its key metadata says {expected}: it was replaced or cut off"
            )
        found = verify_file(
            source, DecryptionConfig.for_iceberg(key_metadata), threads=self._threads, progress=progress,
            allow_unauthenticated_pages=True,
        )  # fmt: skip
        checked = Checked(modules=sum(found.modules.values()), bytes=found.bytes)
        checked.plaintext_levels = found.plaintext_levels
        checked.problems = [str(each) for each in found.problems[:_NAMED_IN_FILE]]
        unprotected = sum(found.unauthenticated.values()) + found.plaintext_pages
        reasons = found.unprotected(allowed=True)
        if unprotected:
            reasons = [f"{unprotected} of its pages are not protected from changes"]
        if reasons:
            text = f"{file.path}: {'; '.join(reasons)}: Iceberg writes AES_GCM_V1 with every column encrypted"
            checked.fault = _not_protected(AuthenticationError(text))
        if found.outcome in (DAMAGED, NOT_CHECKED):
            first = found.failures[0].message if found.failures else "a key is missing"
            more = f", and {found.failure_count - 1} more" if found.failure_count > 1 else ""
            checked.failed = found.failure_count
            checked.fault = AuthenticationError(f"{file.path}: {first}{more}")
        return checked


def table_faults(found: TableWalk, allow_plaintext: bool) -> Iterator[tuple[Exception, tuple[int, ...]]]:
    """Return the faults of the table as a whole, each with its snapshots."""
    if not found.encrypted and not allow_plaintext:
        text = (
            f"{found.location}: the table is not encrypted, so nothing in it can be authenticated; open it with "
            "`allow_plaintext=True` if that is meant to be"
        )
        yield _not_protected(KeyAccessError(text)), ()
        return
    for snapshot in found.snapshots:
        if snapshot.manifest_list is None:
            number = snapshot.snapshot_id
            text = f"{found.location}: snapshot {number} has no manifest list: its files cannot be named"
            yield FormatError(text), (number,)


class _Verification:
    def __init__(self, found: TableWalk, file_io: EncryptedFileIO, report: TableVerifyReport) -> None:
        self._found, self._io, self._report = found, file_io, report
        self._partitions = partition_names(found.document.fields)

    def run(self, threads: int, progress: Progress | None) -> None:
        found, report = self._found, self._report
        for fault, snapshot_ids in table_faults(found, self._io.expected.allow_plaintext):
            report.add_failure(_failure(found.location, "table", fault, 0, snapshot_ids))
        if not found.encrypted and not self._io.expected.allow_plaintext:
            return
        files = sorted(found.files.values(), key=lambda each: each.size, reverse=True)
        place = self._io.place(found.location)
        how = Threads.of_files([place], [each.size for each in files], threads, written=False)
        checker = FileChecker(self._io, how.each)
        above = [*found.manifest_lists.values(), *found.manifests.values()]
        for each in above:
            self._take(each, checker.read(each))
        shared = SharedProgress(progress, sum(each.size for each in found), sum(each.size for each in above))

        def check(file: TableFile, threads: int | None, within: Progress) -> Checked:
            try:
                return checker.check(file, within)
            except FAULTS as error:
                return Checked(fault=error)

        for file, answer, *_ in run_on_threads(OneByOne(check), files, how, shared):
            self._take(file, answer)
        ranks = {kind: rank for rank, kind in enumerate(KINDS)}
        report.failures.sort(key=lambda each: (ranks.get(each.kind, -1), each.path))
        report.by_kind = {kind: report.by_kind[kind] for kind in KINDS if kind in report.by_kind}

    def _take(self, file: TableFile, checked: Checked) -> None:
        report = self._report
        report.blocks += checked.blocks
        report.modules += checked.modules
        report.plaintext_levels += checked.plaintext_levels
        report.bytes += checked.bytes
        if checked.problems:
            report.problem_count += 1
            if len(report.problems) < _REPORTED:
                report.problems[file.path] = checked.problems
        fault = checked.fault
        if fault is None and file.conflict is not None:
            fault = FormatError(f"{file.path}: {file.conflict}")
        if fault is not None:
            failure = _failure(file.path, file.kind, fault, checked.failed, tuple(file.snapshot_ids))
            # Of a copy, the file that was read.
            shown = self._io.locations.shown(file.path)
            report.add_failure(replace(failure, path=shown, message=failure.message.replace(file.path, shown)))
            return
        if checked.plaintext:
            report.plaintext += 1
            return
        report.verified += 1
        report.of_original += self._io.locations.of_original(file.path) is not None
        report.partition_paths += partition_in(file.path, self._partitions)
        report.by_kind[file.kind] = report.by_kind.get(file.kind, 0) + 1
        if file.trusted_length is None and file.encryption != PARQUET:
            report.untrusted_length += self._io.expected.length_policy == "file"


def _failure(path: str, kind: str, fault: Exception, failed: int, snapshot_ids: tuple[int, ...]) -> FileFailure:
    text = with_name(path, str(fault) or type(fault).__name__)
    outcome = NOT_PROTECTED if getattr(fault, "not_protected", False) else outcome_of(fault)
    if isinstance(fault, FileNotFoundError):
        text, outcome = f"{path}: is missing: the table names it, and there is no such file", DAMAGED
    return FileFailure(path, kind, type(fault).__name__, text, failed, snapshot_ids, outcome)
