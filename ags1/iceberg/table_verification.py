"""Authenticate every block and module of a table's files, each file once, and say which of them fail.

    manifest lists, manifests    read whole, which authenticates each block, to find the files below
    Avro, Puffin                 every block of the AGS1 stream
    Parquet                      every module, and whether they agree with each other

Several files are checked at once, the largest first, each in little memory. A file that fails ends nothing but what
only it could name.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ags1._blocks import usable_cpus
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.iceberg._text import counted, printable
from ags1.iceberg.table_walk import FAULTS, KINDS, PARQUET, PLAINTEXT, TableFile, foreign_blocks, in_parallel, walk
from ags1.parquet.verify_report import AUTHENTIC, DAMAGED, NOT_CHECKED, NOT_PROTECTED, outcome_of, worst_outcome
from ags1.stream import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.files import Progress
    from ags1.iceberg.file_io import EncryptedFileIO, EncryptedInputFile
    from ags1.iceberg.table_walk import Snapshots, TableWalk

__all__ = ["Checked", "FileChecker", "FileFailure", "TableVerifyReport", "verify_table"]

# Failures that are kept, and those of them that the text has.
_REPORTED = 1000
_LISTED = 20
_NAMED_IN_FILE = 5


def _not_protected(error: Exception) -> Exception:
    """Mark an error as one about what should be encrypted and authenticated, and is not."""
    error.not_protected = True  # type: ignore[attr-defined]
    return error


@dataclass(frozen=True)
class FileFailure:
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
        "damaged", "not protected", or "not checked" where a key was missing or the file could not be read.
    """

    path: str
    kind: str
    error: str
    message: str
    failed: int
    snapshot_ids: tuple[int, ...]
    outcome: str = DAMAGED

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: everything."""
        found = {name: getattr(self, name) for name in ("path", "kind", "error", "message", "failed")}
        return {**found, "outcome": self.outcome, "snapshot_ids": list(self.snapshot_ids)}

    def __str__(self) -> str:
        if self.kind == "table":
            return printable(self.message)
        count = len(self.snapshot_ids)
        needed = f"snapshot {self.snapshot_ids[0]}" if count == 1 else f"{count} snapshots"
        return printable(f"{self.message} ({self.kind} of {needed})")


@dataclass
class TableVerifyReport:
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
    untrusted_length : int
        AGS1 files that were checked without a trusted length, as the length policy allowed: blocks missing at their
        end would not be noticed.
    blocks, modules : int
        Of AGS1 and of Parquet files: how many authenticated. Blocks of manifest lists and manifests are not counted.
    bytes : int
        Bytes of the files that were checked, as they are stored.
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
    untrusted_length: int = 0
    blocks: int = 0
    modules: int = 0
    bytes: int = 0
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
        """Whether nothing failed. Problems do not count, nor plaintext files that were allowed."""
        return self.failure_count == 0

    def add_failure(self, failure: FileFailure) -> None:
        """Take in a failure."""
        self.failure_count += 1
        self.outcomes[failure.outcome] = self.outcomes.get(failure.outcome, 0) + 1
        if len(self.failures) < _REPORTED:
            self.failures.append(failure)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: everything."""
        found: dict[str, Any] = {"outcome": self.outcome, "ok": self.ok}
        for name in self.__dataclass_fields__:
            found[name] = getattr(self, name)
        found["failures"] = [each.to_dict() for each in self.failures]
        found["by_kind"], found["problems"] = dict(self.by_kind), dict(self.problems)
        return found

    def summary(self) -> str:
        """The report as text, a few lines if all is well."""
        lines = [f"{self.location}: {'ok' if self.ok else f'NOT OK ({self.failure_count} failed)'}"]
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.by_kind.items())
        of_all = f"{counted(self.files, 'file')} of {counted(self.snapshots, 'snapshot')}"
        lines.append(f"authenticated: {self.verified} of {of_all}{kinds and f' ({kinds})'}")
        shape = f"{counted(self.blocks, 'AGS1 block')} and {counted(self.modules, 'Parquet module')} of data"
        lines.append(f"checked: {counted(self.bytes, 'byte')}, {shape}")
        if self.plaintext:
            plain = counted(self.plaintext, "plaintext file")
            lines.append(f"NOT authenticated: {plain}, looked at only for the size")
        if self.untrusted_length:
            ends = counted(self.untrusted_length, "file")
            lines.append(
                f"NOT authenticated: the end of {ends} without a trusted length, where missing blocks would not be "
                "noticed"
            )
        for path, texts in list(self.problems.items())[:_LISTED]:
            lines.append(printable(f"problem: {path}: {'; '.join(texts)}"))
        if self.problem_count > _LISTED:
            lines.append(f"problem: {self.problem_count - _LISTED} more files")
        lines += [f"failed: {each}" for each in self.failures[:_LISTED]]
        if self.failure_count > _LISTED:
            lines.append(f"failed: {self.failure_count - _LISTED} more")
        return "\n".join(lines)

    __str__ = summary


def verify_table(
    location: str,
    file_io: EncryptedFileIO,
    snapshot_id: Snapshots = "all",
    *,
    progress: Progress | None = None,
    threads: int | None = None,
) -> TableVerifyReport:
    """Authenticate the files of all snapshots, of one, or with None of the current one.

    Raises
    ------
    FormatError
        The metadata file is not one, or has entries or snapshots that are none.
    OSError
        It cannot be read.
    ValueError
        No such snapshot, or a number of threads below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    found = walk(location, file_io, snapshot_id)
    report = TableVerifyReport(location, snapshots=len(found.snapshots), files=len(found))
    _Verification(found, file_io, report, threads or usable_cpus(), progress).run()
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
    fault: Exception | None = None
    problems: list[str] = field(default_factory=list)


class FileChecker:
    """Checks one file of a table after the other. Safe to share between threads.

    Parameters
    ----------
    file_io : EncryptedFileIO
        Where the files are, and what is allowed of them.
    threads : int
        Threads for each file.
    """

    def __init__(self, file_io: EncryptedFileIO, threads: int) -> None:
        self._io = file_io
        self._threads = threads

    def refusal(self, file: TableFile) -> Exception | None:
        """Why a plaintext file is a failure."""
        if self._io.allow_plaintext:
            return None
        return _not_protected(
            KeyAccessError(
                f"{file.path}: this {file.what} is not encrypted, although its table is: nothing in it can be "
                "authenticated; open the table with allow_plaintext=True if that is meant to be"
            )
        )

    def check(self, file: TableFile, progress: Progress | None = None) -> Checked:
        """Check all of a data file, delete file or file of deletion vectors.

        Raises
        ------
        Ags1Error, OSError, ValueError, EOFError
            It cannot be checked, or is not what its table says. What does not authenticate in it, the result says.
        """
        known = file.known
        input_file = self._io.new_input(file.path)
        if known.key_metadata is None:
            refusal = self.refusal(file)
            if refusal is not None:
                raise refusal
            checked = self._check_plaintext(file, len(input_file))
            if file.vectors:
                with input_file.plaintext(known) as plain:
                    self._check_vectors(file, plain, checked)
            return checked
        if file.encryption == PARQUET:
            return self._check_parquet(file, input_file, progress)
        return self._check_stream(file, input_file, progress)

    def _check_vectors(self, file: TableFile, plain: Any, checked: Checked) -> None:
        from ags1.iceberg.deletion_vectors import deleted_positions, footer_contradictions

        deleted_positions(plain, file.vectors)
        checked.problems = footer_contradictions(plain, file.vectors)[:_NAMED_IN_FILE]

    def _check_plaintext(self, file: TableFile, size: int) -> Checked:
        expected = file.known.length_hint
        if expected is not None and size != expected:
            raise TruncatedError(f"{file.path}: has {size} bytes, but the file above it says {expected}")
        return Checked(plaintext=True)

    def _check_stream(self, file: TableFile, input_file: EncryptedInputFile, progress: Progress | None) -> Checked:
        from ags1.verify import verify_file

        known = file.known
        assert known.key_metadata is not None
        if known.file_format not in ("avro", "puffin"):
            raise FormatError(
                f"{file.path}: encrypted files of the format {known.file_format} are not supported: Iceberg encrypts "
                "Parquet, Avro and Puffin"
            )
        length = known.key_metadata.file_length
        if length is None and self._io.length_policy != "file":
            length = input_file._length(known)
        key, aad_prefix = known.key_metadata.encryption_key, known.key_metadata.aad_prefix or b""
        checked = Checked()
        with _Source(input_file) as source:
            found = verify_file(
                source, key, aad_prefix=aad_prefix, length=length, threads=self._threads, progress=progress
            )
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
                "wrong key, another file in its place, or damaged data"
            )
        return checked

    def _check_parquet(self, file: TableFile, input_file: EncryptedInputFile, progress: Progress | None) -> Checked:
        from ags1.parquet import verify_file
        from ags1.parquet.properties import DecryptionConfig

        key_metadata = file.known.key_metadata
        assert key_metadata is not None
        size, expected = len(input_file), key_metadata.file_length
        if expected is not None and size != expected:
            raise TruncatedError(
                f"{file.path}: has {size} bytes, but its key metadata says {expected}: it was replaced or cut off"
            )
        with _Source(input_file) as source:
            found = verify_file(
                source, DecryptionConfig.for_iceberg(key_metadata), threads=self._threads, progress=progress
            )
        checked = Checked(modules=sum(found.modules.values()), bytes=found.bytes)
        checked.problems = [str(each) for each in found.problems[:_NAMED_IN_FILE]]
        unprotected = sum(found.unauthenticated.values()) + found.plaintext_pages
        reasons = [f"{unprotected} of its pages are not protected from changes"] if unprotected else found.unprotected()
        if reasons:
            text = f"{file.path}: {'; '.join(reasons)}: Iceberg writes AES_GCM_V1 with every column encrypted"
            checked.fault = _not_protected(AuthenticationError(text))
        if found.outcome in (DAMAGED, NOT_CHECKED):
            first = found.failures[0].message if found.failures else "a key is missing"
            more = f", and {found.failure_count - 1} more" if found.failure_count > 1 else ""
            checked.failed = found.failure_count
            checked.fault = AuthenticationError(f"{file.path}: {first}{more}")
        return checked


class _Stopped(Exception):
    """Somebody else's error ended the work."""


class _Verification:
    """One run over one table."""

    def __init__(
        self,
        found: TableWalk,
        file_io: EncryptedFileIO,
        report: TableVerifyReport,
        threads: int,
        progress: Progress | None,
    ) -> None:
        self._found = found
        self._io = file_io
        self._report = report
        self._threads = threads
        self._progress = progress
        self._lock = threading.Lock()
        self._stopped = False
        self._progress_error: BaseException | None = None
        self._checker = FileChecker(file_io, 1)
        self._done = 0
        self._total = sum(map(_size, found))

    def run(self) -> None:
        """Check everything."""
        found, report = self._found, self._report
        if not found.encrypted and not self._io.allow_plaintext:
            text = (
                f"{found.location}: the table is not encrypted, so nothing in it can be authenticated; open it with "
                "allow_plaintext=True if that is meant to be"
            )
            report.add_failure(FileFailure(found.location, "table", "KeyAccessError", text, 0, (), NOT_PROTECTED))
            return
        for snapshot in found.snapshots:
            if snapshot.manifest_list is None:
                number = snapshot.snapshot_id
                text = f"{found.location}: snapshot {number} has no manifest list: its files cannot be named"
                report.add_failure(FileFailure(found.location, "table", "FormatError", text, 0, (number,)))
        for file in [*found.manifest_lists.values(), *found.manifests.values()]:
            self._take_read(file)
        files = sorted(found.files.values(), key=_size, reverse=True)
        workers = max(1, min(self._threads, len(files)))
        self._checker = FileChecker(self._io, max(1, self._threads // workers))
        try:
            self.advance(0)
            answers = in_parallel(self._check, files, workers, stop=self._stop)
            for file, answer in zip(files, answers, strict=True):
                self._take(file, answer)
        except _Stopped:
            if self._progress_error is not None:
                raise self._progress_error from None
            raise
        ranks = {kind: rank for rank, kind in enumerate(KINDS)}
        report.failures.sort(key=lambda each: (ranks.get(each.kind, -1), each.path))
        report.by_kind = {kind: report.by_kind[kind] for kind in KINDS if kind in report.by_kind}

    # -- manifest lists and manifests --------------------------------------------------------------------------

    def _take_read(self, file: TableFile) -> None:
        """Take in what the walk has read whole, and so authenticated."""
        fault = file.error
        if fault is None and file.encryption == PLAINTEXT:
            fault = self._checker.refusal(file)
            if fault is None:
                self._report.plaintext += 1
                self._done += _size(file)
                return
        fault = fault or foreign_blocks(file.path, file.block_length)
        self._finish(file, fault)
        if fault is None:
            self._untrusted(file)
            self._report.bytes += _size(file)
        self._done += _size(file)

    # -- files ---------------------------------------------------------------------------------------------------

    def _check(self, file: TableFile) -> Checked | Exception:
        progress = _FileProgress(self, _size(file))
        answer: Checked | Exception
        try:
            answer = self._checker.check(file, progress)
        except FAULTS as error:
            answer = error
        progress.finish()
        return answer

    # -- the report ----------------------------------------------------------------------------------------------

    def _take(self, file: TableFile, answer: Checked | Exception) -> None:
        report = self._report
        if isinstance(answer, Exception):
            self._finish(file, answer)
            return
        report.blocks += answer.blocks
        report.modules += answer.modules
        report.bytes += answer.bytes
        if answer.problems:
            report.problem_count += 1
            if len(report.problems) < _REPORTED:
                report.problems[file.path] = answer.problems
        if answer.plaintext:
            report.plaintext += 1
            return
        self._finish(file, answer.fault, answer.failed)
        if answer.fault is None:
            self._untrusted(file)

    def _untrusted(self, file: TableFile) -> None:
        without = file.trusted_length is None and file.encryption != PARQUET
        self._report.untrusted_length += without and self._io.length_policy == "file"

    def _finish(self, file: TableFile, fault: Exception | None, failed: int = 0) -> None:
        report = self._report
        if fault is None and file.conflict is not None:
            fault = FormatError(f"{file.path}: {file.conflict}")
        if fault is None:
            report.verified += 1
            report.by_kind[file.kind] = report.by_kind.get(file.kind, 0) + 1
            return
        text = str(fault) or type(fault).__name__
        if file.path not in text:
            text = f"{file.path}: {text}"
        report.add_failure(
            FileFailure(
                file.path,
                file.kind,
                type(fault).__name__,
                text,
                failed,
                tuple(file.snapshot_ids),
                NOT_PROTECTED if getattr(fault, "not_protected", False) else outcome_of(fault),
            )
        )

    # -- progress ------------------------------------------------------------------------------------------------

    def advance(self, count: int) -> None:
        """Tell of progress, one thread at a time; ends the thread whose work nobody waits for any more."""
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._done += count
            if self._progress is None:
                return
            try:
                self._progress(self._done, self._total)
            except BaseException as error:
                # Not a failure of the file, whatever its class is.
                self._progress_error, self._stopped = error, True
                raise _Stopped from error

    def _stop(self) -> None:
        self._stopped = True


class _FileProgress:
    """Turns the progress in one file, counted as it likes, into stored bytes of the whole."""

    def __init__(self, verification: _Verification, size: int) -> None:
        self._verification = verification
        self._size = size
        self._told = 0

    def __call__(self, done: int, total: int | None) -> None:
        self._tell(self._size * done // total if total else 0)

    def finish(self) -> None:
        """The file is done with, however."""
        self._tell(self._size)

    def _tell(self, done: int) -> None:
        step, self._told = done - self._told, max(done, self._told)
        self._verification.advance(max(0, step))


class _Source:
    """The stored bytes of a file, closed afterwards."""

    def __init__(self, input_file: EncryptedInputFile) -> None:
        self._source = input_file.source()

    def __enter__(self) -> Any:
        return self._source

    def __exit__(self, *exc: object) -> None:
        if hasattr(self._source, "close"):
            self._source.close()


def _size(file: TableFile) -> int:
    """Stored bytes, as far as anybody says."""
    return file.trusted_length or file.known.length_hint or 0
