"""A run that writes files into a dataset: encrypt, add and repair.

    source, in the order of paths  --+
    manifests of the last version  --+--> compare --> unchanged      nothing is written
    record of an interrupted run   --+            --> done before    its objects are taken over
                                                  --> to do          units, for workers

    workers --> objects, in any order --> synced --> recorded --> put into the transaction, in order --> commit

The memory of a run does not grow with the dataset, only with the record of an interrupted run.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice

from ags1.dataset.entries import DatasetEntry
from ags1.dataset.names import CONTROL, RUNS, check_new_path, new_object_name, record_of, run_of, version_number
from ags1.dataset.pins import Access
from ags1.dataset.references import ListedReference, walk
from ags1.dataset.reports import RunReport
from ags1.dataset.runs import DatasetRun, Done, Interrupted, interrupted, records, remove_record
from ags1.dataset.selection import Filter
from ags1.dataset.sources import Found, Skipped, scan
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import Version, latest_number, numbers
from ags1.dataset.worker import SMALL, EncryptUnit, EncryptWorker, on_threads
from ags1.errors import AlreadyEncryptedError, ConflictError, FormatError
from ags1.kms.asking import reported
from ags1.layout import encrypted_length
from ags1.storage import Location, SortedListing, Twins, directory_mode, inside
from ags1.streams.files import Progress
from ags1.support.arguments import spelled
from ags1.support.words import counted
from ags1.work.units import SharedProgress, UnitOutcome, run_on_threads

_LOG = logging.getLogger("ags1.dataset")

_RECORD_BYTES = 1 << 30
_RECORD_SECONDS = 10.0
# Objects that are looked at where a new dataset is to be.
_MOST_LISTED = 10_000


@dataclass
class Options:
    """Options of a run; see :func:`ags1.dataset.encrypt`."""

    wanted: Filter = field(default_factory=Filter)
    threads: int | None = None
    on_error: str = "fail"
    resume: bool = True
    progress: Progress | None = None
    durable: bool = True
    dry_run: bool = False
    delete: bool = False
    allow_empty: bool = False
    single_writer: bool = False
    again: bool = False
    complete: bool = True
    """Whether all files of the dataset are checked: those that are missing or truncated are encrypted again."""
    only: frozenset[str] | None = None
    """Paths for repair: only these are encrypted, even if the dataset has them unchanged."""
    perform: Callable[[DatasetRun, Iterator[EncryptUnit]], Generator[UnitOutcome | None, None, None]] | None = None
    """Processes the units outside of this process, and yields their outcomes in the same order.

    A None among them: record what was done so far. A unit's result is durable when its outcome is yielded.
    """
    noted: Callable[[str, int, OSError | None], object] | None = None
    """Called with path, bytes and error of a file that needs no unit: done before, or not readable."""


def write_files(
    source: Location, access: Access, prefix: str, key_id: str | None, operation: str, options: Options
) -> tuple[RunReport, Version | None]:
    """Write the files of a source into a dataset, below its directory `prefix`; see :func:`ags1.dataset.encrypt`.

    Without `key_id` the dataset must exist. The new version records `operation`. Returns also the version that was
    made, or that was found if nothing differed; None if a dry run found none.
    """
    target = access.location
    if inside(target, source) is not None:
        raise ValueError(f"the source {source} lies in the dataset {target}: a dataset holds encrypted files only")
    if not options.again and (source.is_local or source.is_object) and numbers(source):
        raise AlreadyEncryptedError(
            f"the source {source} is a dataset, so its files are encrypted already: decrypt it first"
        )
    if prefix:
        check_new_path(prefix)
    with (
        Transaction.begin(
            access, operation, key_id=key_id, single_writer=options.single_writer, durable=options.durable
        ) as transaction,
        closing(StoredSizes(target)) as present,
    ):
        return _Writing(source, access, prefix, transaction, options, present).run()


def refuse_lost(target: Location) -> list[ListedReference]:
    """Return what stands where a new dataset is to be, at most 10,000 names.

    FileExistsError: objects of runs that have no record, so of a dataset whose versions are missing.
    """
    listed = list(islice(walk(target), _MOST_LISTED))
    recorded = {each.run for each in records(target)}
    lost = [each.name for each in listed if run_of(each.name) not in recorded | {None}]
    # Another writer may have just made the first version, and removed its record.
    if lost and not latest_number(target):
        text = (
            f"objects of an earlier dataset stand here, such as {lost[0]}, and its versions are missing: restore "
            f"{CONTROL}/v-*.json from a backup, or choose another directory; if no version was ever made, because a "
            "power cut ended the first run, or a first write of Spark failed, remove the objects"
        )
        raise FileExistsError(errno.EEXIST, text, target.shown)
    return listed


class _Writing:
    def __init__(
        self, source: Location, access: Access, prefix: str, transaction: Transaction, options: Options,
        present: StoredSizes,
    ) -> None:  # fmt: skip
        self._source = source
        self._target = access.location
        self._kms = access.kms
        self._prefix = prefix
        self._transaction = transaction
        self._options = options
        self._report = RunReport(version=0 if transaction.base is None else transaction.base.version)
        reported(self._report, access.kms)
        self._present = present
        # Items for the transaction, in order: a unit that a worker processes, or a function that puts a known result.
        self._waiting: deque[EncryptUnit | Callable[[], object]] = deque()
        self._unrecorded: list[Done] = []
        self._unrecorded_bytes = 0
        self._recorded_at = time.monotonic()
        self._adopted: dict[str, tuple[Done, Interrupted]] = {}
        self._taken_over: set[str] = set()
        self._fault: OSError | None = None
        self._unread: str | None = None
        # New paths, compared with those that stay although the source no longer has them.
        self._twins = Twins()
        self._progress = SharedProgress(None, None)

    def run(self) -> tuple[RunReport, Version | None]:
        """Make the run; return its report, and the version that it made or found."""
        options, report = self._options, self._report
        _LOG.info("%s: run %s begins on version %d", self._target, self._transaction.run.id, report.version)
        if self._transaction.base is None:
            self._note_others()
        if options.resume:
            self._take_over()
        if options.progress is not None and not options.dry_run:
            total = sum(found.identity.size for found in self._found(lambda path, why: None))
            self._progress = SharedProgress(options.progress, total)
        if options.dry_run:
            for unit in self._units():
                report.done += 1
                report.done_bytes += unit.size
                report.paths.append(unit.path)
            self._check_source()
            return report, self._transaction.base
        try:
            self._execute()
            if self._fault is not None:
                raise self._fault
            if self._transaction.base is None and options.wanted and not self._found_any():
                raise ValueError(f"{self._source}: no file is left by include and exclude: correct the patterns")
            self._check_source()
            if options.complete and options.only is None:
                self._transaction.mode = directory_mode(self._source)
            made = self._transaction.commit()
        except BaseException:
            # Record what is complete, for the next run. The first error is raised, not one of this.
            with suppress(Exception):
                self._record()
            raise
        if made is not None:
            report.version, report.changed = made.version, True
        for run in self._taken_over:
            remove_record(self._target, run)
        _LOG.info(
            "%s: run %s encrypted %d files, %d bytes; %d unchanged, %d taken over, %d removed, %d failed",
            self._target, self._transaction.run.id, report.done, report.done_bytes, report.unchanged, report.resumed,
            report.removed, len(report.errors),
        )  # fmt: skip
        return report, made or self._transaction.base

    def _found_any(self) -> bool:
        report = self._report
        return bool(report.done or report.resumed or report.errors)

    def _execute(self) -> None:
        transaction, options = self._transaction, self._options
        units = self._units()
        # Without anything to encrypt, a run writes nothing, and the KMS need not wrap.
        if (first := next(units, None)) is not None:
            transaction.prove()
            transaction.run.begin()
            units = chain([first], units)
            outcomes: Generator[UnitOutcome | None, None, None]
            if options.perform is not None:
                outcomes = options.perform(transaction.run, units)
            else:
                worker = EncryptWorker(self._source, self._target, transaction.run.keys, again=options.again)
                how = on_threads(options.threads)
                outcomes = run_on_threads(worker, units, how, self._progress, on_error=options.on_error)
            with closing(outcomes):
                for outcome in outcomes:
                    if outcome is None:
                        self._record()
                    else:
                        self._settle(outcome)
        self._put_known()

    def _check_source(self) -> None:
        report = self._report
        if report.removed and not (report.unchanged or self._found_any() or self._options.allow_empty):
            raise ValueError(
                f"{self._source}: it has no files, so {spelled('delete', True)} would remove "
                f"{counted(report.removed, 'file')} of "
                f"the dataset: is it mounted, and the right one? If it is to be so, add {spelled('allow_empty', True)}"
            )

    def _note_others(self) -> None:
        """Say what stands already where a new dataset is to be: nobody would look for it there later."""
        with suppress(FileNotFoundError, NotADirectoryError):
            listed = refuse_lost(self._target)
            least = "at least " if len(listed) == _MOST_LISTED else ""
            names = [
                each.name
                for each in listed
                if each.kind != "leftover" and run_of(each.name) is None and record_of(each.name) is None
            ]
            if names:
                text = (
                    f"{least}{counted(len(names), 'file')} stood here before the dataset, such as {names[0]}: not "
                    "encrypted by this run, and named as foreign whenever the dataset is verified; move them away, or "
                    "encrypt into a directory of its own"
                )
                self._report.notes.append((self._target.text, text))

    # -- an interrupted run ----------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        base, key_id = self._transaction.base, self._transaction.key.key_id
        owner = None if base is None else base.uuid
        for old in interrupted(self._target, self._kms, key_id, owner, self._report.notes):
            if old.base_version >= self._transaction.next_version:
                # This run itself.
                continue
            try:
                self._transaction.take_over(old.run, old.base_version)
            except (ConflictError, FormatError):
                text = "the work of an interrupted run is done again: expire removes it, or later versions"
                self._report.notes.append((f"{RUNS}/{old.run}", text))
                continue
            if self._options.durable and not old.durable and self._target.is_local:
                # A power cut may have removed its objects, and left the record.
                text = "an interrupted run was not durable, and this one is: its work is done again"
                self._report.notes.append((f"{RUNS}/{old.run}", text))
                continue
            for done in old.done:
                self._adopted[done.path] = (done, old)

    def _adoptable(self, found: Found) -> tuple[Done, Interrupted] | None:
        """The result of an interrupted run for the same source, if it still exists."""
        pair = self._adopted.get(found.path)
        if pair is None or not found.identity.is_known or pair[0].source != found.identity:
            return None
        return pair if self._present.has_all((name, length) for name, length in pair[0].parts) else None

    # -- comparing -------------------------------------------------------------------------------------------------

    def _found(self, skipped: Skipped) -> Iterator[Found]:
        for found in scan(
            self._source, self._prefix, self._options.wanted, self._target, skipped, directories=True
        ):  # fmt: skip
            inner, control, name = found.source.rpartition(f"/{CONTROL}/")
            if control and record_of(f"{CONTROL}/{name}") is not None:
                # Whether the dataset has a version is seen by its file: records are nobody's data in any case.
                skipped(found.path, "is a record of an interrupted run of a dataset")
                continue
            if control and version_number(name) is not None and not self._options.again:
                raise AlreadyEncryptedError(
                    f"{self._source.join(inner)} in the source is a dataset, so its files are encrypted already: "
                    f"exclude it, or encrypt it again with {spelled('again', True)}"
                )
            yield found

    def _pairs(self) -> Iterator[tuple[Found | None, DatasetEntry | None]]:
        """Yield for each path, in order, what the source has and the entry of the dataset."""
        manifests, root, only = self._transaction.manifests, self._transaction.root, self._options.only
        found_files = self._found(self._skip)
        if not self._options.complete or only is not None:
            # Each path is looked up alone: one more file costs the same for any size of the dataset.
            for each in found_files:
                if only is None or each.path in only:
                    yield each, manifests.find(root, each.path)
            return
        entries = manifests.entries(root, f"{self._prefix}/" if self._prefix else "")
        found, entry = next(found_files, None), next(entries, None)
        while found is not None or entry is not None:
            if entry is None or (found is not None and found.key < entry.key):
                yield found, None
                found = next(found_files, None)
            elif found is None or entry.key < found.key:
                yield None, entry
                entry = next(entries, None)
            else:
                yield found, entry
                found, entry = next(found_files, None), next(entries, None)

    def _units(self) -> Iterator[EncryptUnit]:
        """The units for workers. Paths that need no worker are put into the same order."""
        for found, entry in self._pairs():
            if entry is None and found is not None and found.error is None:
                self._refuse_twin(found.path, is_new=True)
            if found is None:
                assert entry is not None
                self._left_over(entry)
            elif found.error is None and found.path.endswith("/"):
                made = DatasetEntry.of_directory(
                    found.path, found.identity.mtime_ns, self._transaction.next_version, found.mode
                )
                if entry is None or replace(entry, version=made.version) != made:
                    self._take(partial(self._transaction.put, made))
            elif self._options.delete and not found.source and found.error is None:
                raise ValueError(
                    f"{self._source} is a file: with {spelled('delete', True)}, the dataset would lose all others"
                )
            elif found.error is not None:
                # If it is a directory, the files below it are unknown.
                self._unread = f"{found.path}/" if found.path else ""
                if not self._refuse(found, found.error):
                    return
            elif entry is not None and self._is_same(found, entry):
                self._report.unchanged += 1
                self._progress.advance(found.identity.size)
            elif self._options.only is not None and (
                entry is None or entry.source != found.identity or not found.identity.is_known
            ):
                text = "was changed since it was encrypted, so it cannot replace what is damaged: encrypt it instead"
                if not found.identity.is_known:
                    text = "has neither an etag nor a time, so whether it was changed is unknown: encrypt it instead"
                if not self._refuse(found, OSError(errno.ESTALE, text, found.location.shown)):
                    return
            elif (pair := self._adoptable(found)) is not None:
                self._take(partial(self._put, *pair))
                self._taken_over.add(pair[1].run)
                self._report.resumed += 1
                self._progress.advance(found.identity.size)
                if self._options.noted is not None:
                    self._options.noted(found.path, found.identity.size, None)
            else:
                unit = self._unit(found)
                if not self._options.dry_run:
                    self._waiting.append(unit)
                yield unit

    def _left_over(self, entry: DatasetEntry) -> None:
        """Handle an entry that the source does not have, or that `include` and `exclude` leave out."""
        unread = self._unread is not None and entry.path.startswith(self._unread)
        wanted = self._options.wanted.accepts(entry.path)
        if self._options.delete and wanted and not unread:
            self._report.removed += not entry.is_directory
            self._take(partial(self._transaction.remove, entry.path))
            return
        if wanted:
            self._report.others += not entry.is_directory
        else:
            self._report.excluded += not entry.is_directory
        self._refuse_twin(entry.path, is_new=False)

    def _refuse_twin(self, path: str, *, is_new: bool) -> None:
        """Refuse a new file where the dataset keeps a directory, or below a file of it: both cannot be decrypted."""
        if self._transaction.root is None:
            return
        if not self._options.complete:
            self._transaction.refuse_twin(path)
            return
        above = self._twins.above_on_other_side(path, is_new)
        if above is not None:
            new, kept = (path, above) if is_new else (above, path)
            text = (
                f"is new in the source, and the dataset still has {kept}, which the source no longer has, so a file "
                f"would have the name of a directory: leave that out with {spelled('delete', True)}, or remove it first"
            )
            raise FileExistsError(errno.EEXIST, text, new)

    def _is_same(self, found: Found, entry: DatasetEntry) -> bool:
        """Whether the dataset has this source unchanged and complete."""
        if self._options.only is not None or entry.source != found.identity or not found.identity.is_known:
            return False
        if not self._options.complete:
            return True
        if self._present.has_all((part.name, part.plaintext_length) for part in entry.parts):
            return True
        self._report.repaired += 1
        return False

    def _unit(self, found: Found) -> EncryptUnit:
        return EncryptUnit(
            path=found.path,
            size=found.identity.size,
            source=found.source,
            identity=found.identity,
            name=new_object_name(found.path, self._transaction.run.id),
            mode=found.mode,
            small=found.identity.size <= SMALL,
        )

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _settle(self, outcome: UnitOutcome) -> None:
        """Handle the outcome of a worker; outcomes come in the order of units."""
        unit: EncryptUnit = outcome.unit
        self._put_known()
        while self._waiting.popleft() is not unit:
            # In a Spark task, a unit that ends the run has no outcome: the task raises after the others of its wave.
            self._put_known()
        if outcome.error is not None:
            self._fail(unit.path, outcome.error)
        else:
            assert outcome.result is not None
            run = self._transaction.run.id
            done = Done(unit.path, tuple(outcome.result), unit.identity, unit.mode, run)
            if self._options.perform is None:
                self._transaction.unsynced.add(*(name for name, _ in outcome.result))
            self._put(done)
            self._unrecorded.append(done)
            self._unrecorded_bytes += unit.size
            self._report.done += 1
            self._report.done_bytes += unit.size
            late = time.monotonic() - self._recorded_at > _RECORD_SECONDS
            if late or self._unrecorded_bytes > _RECORD_BYTES:
                self._record()

    def _take(self, put: Callable[[], object]) -> None:
        if self._options.dry_run:
            return
        if self._waiting:
            self._waiting.append(put)
        else:
            put()

    def _put_known(self) -> None:
        while self._waiting and not isinstance(put := self._waiting[0], EncryptUnit):
            put()
            self._waiting.popleft()

    def _put(self, done: Done, old: Interrupted | None = None) -> None:
        self._transaction.put(self._transaction.entry(done, None if old is None else old.keys))

    def _record(self) -> None:
        if self._options.durable:
            self._transaction.unsynced.sync()
        self._transaction.run.record(self._unrecorded)
        self._unrecorded, self._unrecorded_bytes, self._recorded_at = [], 0, time.monotonic()

    def _refuse(self, found: Found, error: OSError) -> bool:
        """Note a source that cannot be read; return whether the run continues. If not, it ends the work under way."""
        if self._options.noted is not None:
            self._options.noted(found.path, 0, error)
        if self._options.on_error == "fail" and not self._options.dry_run:
            self._fault = error
            return False
        self._fail(found.path, error)
        return True

    def _skip(self, path: str, why: str | OSError) -> None:
        if isinstance(why, OSError):
            # Whatever `on_error` says: nothing could ever encrypt it, and all others can be.
            self._report.errors.append((path, why))
        else:
            self._report.skipped.append((path, why))

    def _fail(self, path: str, error: Exception) -> None:
        if self._options.on_error == "fail":
            raise error
        self._report.errors.append((path, error))


class StoredSizes:
    """Which objects of a dataset exist with the right length, found by listings and not by a request for each.

    A local directory is listed when one of its files is looked up; a store is listed once.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        # Directories, each in the one before, with the sizes of their files.
        self._directories: list[tuple[str, dict[str, int]]] = []
        self._listing: SortedListing | None = None

    def close(self) -> None:
        """Remove the temporary file of the listing."""
        if self._listing is not None:
            self._listing.close()

    def has_all(self, parts: Iterator[tuple[str, int]]) -> bool:
        """Whether all objects exist, each with the encrypted length of its plaintext."""
        return all(self._size(name) == encrypted_length(length) for name, length in parts)

    def _size(self, name: str) -> int | None:
        if not self._location.is_local:
            if self._listing is None:
                # What cannot be listed counts as missing, and is written again.
                outside = self._location.join(CONTROL)
                self._listing = SortedListing(self._location, outside=outside, on_error=list[OSError]().append)
            return self._listing.size_of(name)
        directory, _, last = name.rpartition("/")
        opened = self._directories
        while opened and opened[-1][0] != directory and not directory.startswith(f"{opened[-1][0]}/".lstrip("/")):
            opened.pop()
        if not opened or opened[-1][0] != directory:
            opened.append((directory, self._sizes(directory)))
        return opened[-1][1].get(last)

    def _sizes(self, directory: str) -> dict[str, int]:
        try:
            with os.scandir(self._location.join(directory).path if directory else self._location.path) as found:
                return {
                    each.name: each.stat(follow_symlinks=False).st_size
                    for each in found
                    if each.is_file(follow_symlinks=False)
                }
        except (FileNotFoundError, NotADirectoryError):
            return {}
