"""One engine for all conversions: look at the table, move its files, write new snapshots, commit.

    look --> plan, refuse --> move files (journal) --> commit: look again, move what is new, write manifests
                                                       ^------- another writer was faster ------+

Every file goes to a new path, and the commit is the last step, so until then the table is unchanged. The next run with
the same purpose resumes a killed one.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from ags1.core.blocks import usable_cpus
from ags1.errors import (
    Ags1Error,
    FormatError,
    KeyAccessError,
    LimitError,
    TruncatedError,
    UnsupportedError,
    without_secrets,
)
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.conversion.changes import ENCRYPT, REKEY, RELOCATE, ConversionGoal
from ags1.iceberg.conversion.journal import (
    DIRECTORY,
    KIND,
    Journal,
    below_metadata,
    is_maintenance,
    moved,
    remove_run,
    touch,
)
from ags1.iceberg.conversion.manifests import Contents, Kept, SnapshotConversion, is_finished, is_moved
from ags1.iceberg.conversion.reports import ConversionPlan, ConversionReport
from ags1.iceberg.conversion.work import FORMS, FileResult, FileTask, Move, Places, check, make, opened, run, sealed_key
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.iceberg.metadata.manifests import DATA, Manifest, ManifestEntry, kind_of
from ags1.iceberg.metadata.metadata_document import DATA_PATH, partition_in, partition_names
from ags1.iceberg.scan.probing import Probe
from ags1.iceberg.walk.table_walk import FAULTS
from ags1.iceberg.writing.commit import PATIENT, TableFiles, commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.keys import KeyMetadata
from ags1.kms.asking import reported
from ags1.storage import SMALL_FILES_AT_ONCE, HeldSource, files_at_once, identity_of, start, status
from ags1.streams.files import Progress
from ags1.support.parallel import in_parallel
from ags1.support.typing import Buffer
from ags1.work.records import OpenedRun, RunSeal, found_runs, opened_runs
from ags1.work.units import OneByOne, SharedProgress, Threads, run_on_threads

Perform: TypeAlias = Callable[[list[FileTask], Journal | None, Places], Iterable[FileResult]]

# Bytes of small files that are kept between their check and the work on them. Besides, two for each request at once are
# read, and wait to be checked.
_HELD = 64 << 20
# Files of this size are mostly Python, which several threads do no faster than one.
_BRIEF = 256 << 10
# Files of which a row group is read at once.
_READ_AT_ONCE = 4


class OpenedState:
    """A table at one moment: its metadata, its files opened, its contents, and the runs of conversions beside them."""

    def __init__(self, state: TableState, conversion: Conversion, kept: Kept) -> None:
        self.document = state.document
        self.places = conversion.table.places(state)
        self.metadata = TableMetadata(state.document.fields)
        self.uuid = str(self.metadata.fields.get("table-uuid"))
        self.source = SnapshotFiles.of(state, conversion.kms, conversion.table)
        # Names of files of the changed table.
        changed = TableMetadata({**self.metadata.fields, "snapshots": [], "snapshot-log": [], "metadata-log": []})
        conversion.change.apply(changed)
        self.names = TableFiles(changed, conversion.places.of_target)
        runs = start(partial(found_runs, conversion.journal_directory(self)))
        self.contents = Contents(self.metadata, self.source, kept)
        self.runs = runs.result()


class Conversion:
    """A conversion of one table. Not safe to share between threads.

    Parameters
    ----------
    threads : int, optional
        Number of files moved at once; by default two for each usable CPU.
    progress : callable, optional
        Called as ``progress(done, total)`` with stored bytes, from any thread, never by two at once.
    target_properties : mapping, optional
        Properties for the new location; by default those of the old one.
    perform : callable, optional
        Moves files outside this process. It is called as ``perform(tasks, journal, places)`` with a list of
        :class:`FileTask` and the :class:`Journal`, which opens their keys; None if there is no key. It records each
        moved file in the journal, and returns the results in any order.
    """

    def __init__(
        self,
        table: CatalogTable,
        kms: Any,
        change: ConversionGoal,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        target_properties: Mapping[str, str] | None = None,
        perform: Perform | None = None,
    ) -> None:
        self.table, self.kms, self.change = table, kms, change
        self.threads, self.progress, self.perform = threads, progress, perform
        source = table.io_properties
        target = source if target_properties is None else target_properties
        self.places = Places(source, target, table.expected.moved_from)
        self.moved: dict[str, tuple[FileResult, RunSeal | None]] = {}
        self._manifests: Kept = {}
        self._view: OpenedState | None = None
        self._journal: Journal | None = None
        self._own_seal: RunSeal | None = None
        self._refusal: KeyAccessError | None = None
        self._lock = threading.Lock()
        # After the run: what was committed, or the state before if there was nothing to do.
        self.state: TableState | None = None
        self._has_begun = False
        self._taken: list[OpenedRun] = []
        self._faults: list[Exception] = []
        self._targets: dict[str, str] = {}
        # Small files of a store that were read to be checked.
        self._held: dict[str, tuple[FileTask, Buffer]] = {}
        self._held_bytes = 0
        # What decides how a file is read, as far as it is known here.
        self._forms: dict[str, str] = {}
        self.report = reported(ConversionReport(change.name, table.name, change.key_id), self.kms)

    # -- what is there -------------------------------------------------------------------------------------------

    def look(self, state: TableState) -> OpenedState:
        """Return the table in this state. The last one is kept: mostly nobody has committed during the run."""
        if self._view is None or self._view.document.hash != state.document.hash:
            self._view = OpenedState(state, self, self._manifests)
        return self._view

    def plan(self, view: OpenedState) -> ConversionPlan:
        """Return the plan. Nothing is written."""
        change, metadata, contents = self.change, view.metadata, view.contents
        version = metadata.fields["format-version"]
        plan = reported(ConversionPlan(change.name, self.table.name, change.key_id, format_version=version), self.kms)
        self._take_over(view)
        if any(map(is_maintenance, view.runs)):
            self.report.notes.append(
                "maintenance of the table is under way, or was killed. While it runs, it may remove files that are to "
                "be moved: then run the conversion again. A killed one may have left files, also plaintext, that the "
                "table no longer names: `ags1 iceberg clean` removes them"
            )
        entries = list({each.path: each for each in contents.entries()}.values())
        todo = [each for each in entries if not self._is_done(each)]
        plan.unchanged = len(entries) - len(todo)
        inside, names = f"{metadata.location}/", partition_names(metadata.fields)
        for each in todo:
            kind = kind_of(each.file)
            plan.files[kind] = plan.files.get(kind, 0) + 1
            plan.bytes[kind] = plan.bytes.get(kind, 0) + int(each.file["file_size_in_bytes"])
            plan.finished += each.path in self.moved
            plan.outside += not each.path.startswith(inside)
            if change.partition_paths:
                plan.partition_paths += partition_in(each.path, names)
        changed = [each for each in contents.snapshots if not is_finished(change, contents, each)]
        plan.refs = [name for each in changed for name in each.refs]
        kept = {each.fields["snapshot-id"] for each in contents.snapshots} - {
            each.fields["snapshot-id"] for each in changed
        }
        plan.snapshots = [each["snapshot-id"] for each in metadata.snapshots if each["snapshot-id"] not in kept]
        plan.plaintext = plan.snapshots if todo else metadata.with_plaintext(plan.snapshots)
        plan.staged = metadata.staged
        if change.drops_statistics(metadata):
            plan.dropped_statistics = metadata.statistics
        else:
            plan.statistics = metadata.statistics
        # A key service refuses every file with the same message.
        self._faults = list({_said(each): each for each in self._problems(view, todo)}.values())
        plan.notes = list(self.report.notes)
        plan.problems = [_said(each) for each in self._faults]
        return plan

    def refuse(self) -> None:
        """Raise the first fault of the plan: a file that cannot be moved, is missing, or contradicts its manifest."""
        if not self._faults:
            return
        first = self._faults[0]
        if len(self._faults) > 1:
            more = f" (and {len(self._faults) - 1} more problems, which a dry run lists)"
            raise (type(first) if isinstance(first, Ags1Error) else FormatError)(_said(first) + more) from first
        raise first

    def _is_done(self, entry: ManifestEntry) -> bool:
        return self.change.is_done(entry.file.get("key_metadata"))

    def _problems(self, view: OpenedState, entries: Iterable[ManifestEntry]) -> Iterable[Exception]:
        try:
            view.metadata.check_upgrade()
        except UnsupportedError as error:
            yield error
        tasks = ((each, _tried(self._task_to_check, view, each)) for each in entries if each.path not in self.moved)

        def look(of: tuple[ManifestEntry, Any]) -> tuple[ManifestEntry, Any, Any]:
            return *of, of[1] if isinstance(of[1], Exception) else _tried(self._check, view, *of)

        # Of each file a few requests, or reads of this machine's disk.
        at_once = files_at_once(self.places.of_source(view.metadata.location), [0], usable_cpus())
        with contextlib.closing(in_parallel(look, tasks, at_once)) as looked:
            for entry, task, found in looked:
                if isinstance(found, HeldSource):
                    found = _tried(self._check_held, view, entry, task, found)
                if isinstance(found, Exception):
                    yield found
        yield from (each for each in self._unreadable(view) if each is not None)

    def _unreadable(self, view: OpenedState) -> Iterable[Exception | None]:
        """Read rows of one file of each form, which a plan must promise; return why not.

        Nobody is kept from decrypting what ags1 does not read, so only an encryption is refused.
        """
        found: dict[Any, tuple[ManifestEntry, Manifest]] = {}
        for manifest in view.contents.manifests.values():
            about = (manifest.header.get("schema"), manifest.spec_id, str(manifest.partition))
            for each in manifest.entries:
                if each.path in self._forms:
                    found.setdefault((self._forms[each.path], kind_of(each.file), *about), (each, manifest))
        if not found:
            return []
        probe = Probe(view.document, view.source)

        def read(each: tuple[ManifestEntry, Manifest]) -> Exception | None:
            try:
                probe.read(*each)
            except FAULTS as error:
                if self.change.name == ENCRYPT and not isinstance(error, (UnsupportedError, LimitError)):
                    return error
                self.report.notes.append(f"ags1 does not read the rows of this file, and moves it as it is: {error}")
            return None

        return in_parallel(read, found.values(), _READ_AT_ONCE)

    def _task_to_check(self, view: OpenedState, entry: ManifestEntry) -> FileTask | None:
        """Return what is to be done with a file, if it is moved from here."""
        view.places.check(entry.path)
        form = entry.file["file_format"].lower()
        if is_moved(entry) and form not in FORMS and not self.change.copies(entry.file.get("key_metadata")):
            raise UnsupportedError(
                f"{entry.path}: files of the format {form} cannot be encrypted in Iceberg: write these rows again "
                "as Parquet (Spark: rewrite_data_files after 'write.format.default'='parquet'), then convert"
            )
        # With `perform`, each file is checked where it is moved, not from here.
        return self._task(view, entry) if is_moved(entry) and self.perform is None else None

    def _check(self, view: OpenedState, entry: ManifestEntry, task: FileTask | None) -> HeldSource | None:
        """Check a file; return one of which all is here, for :meth:`_check_held`."""
        if task is not None:
            seal, source = self._seal(view), opened(task, self.places)
            if isinstance(source, HeldSource):
                return source
            self._note_form(entry, check(task, seal, source))
        elif is_moved(entry):
            self._note_form(entry, entry.file["file_format"].lower())
        elif (size := status(self.places.of_source(entry.path)).size) != entry.file["file_size_in_bytes"]:
            raise TruncatedError(
                f"{entry.path}: has {size} bytes, but its manifest says {entry.file['file_size_in_bytes']}"
            )
        return None

    def _check_held(self, view: OpenedState, entry: ManifestEntry, task: FileTask, source: HeldSource) -> None:
        """Check a small file, and keep its content for the work on it, so that it is not requested again."""
        content = source.data
        self._note_form(entry, check(task, self._seal(view), source))
        size = memoryview(content).nbytes
        if self._held_bytes + size <= _HELD:
            self._held_bytes += size
            self._held[entry.path] = task, content

    def _note_form(self, entry: ManifestEntry, form: str) -> None:
        if not self.change.copies(entry.file.get("key_metadata")):
            self._forms[entry.path] = form

    # -- moving files --------------------------------------------------------------------------------------------

    def move(self, view: OpenedState) -> None:
        """Move all files that are not moved yet. If one fails, the journal has the files moved before."""
        entries = {
            each.path: each
            for each in view.contents.entries()
            if is_moved(each) and not self._is_done(each) and each.path not in self.moved
        }
        for each in self._taken:
            touch(each)
        if not entries:
            return
        seal = self._seal(view)
        if self._journal is not None and seal is not None:
            if not self._has_begun:
                self._journal.begin(seal, self.change.purpose(view.metadata))
                self._has_begun = True
            # Below the table's location, `clean` finds what a killed run has left.
            if not view.metadata.has_data_below and self.change.location is None:
                self._journal.plan(seal, [self._target(view, path) for path in entries])
        if self.perform is None:
            results: Iterable[FileResult] = self._in_threads(view, list(entries.values()), seal)
        else:
            tasks = [self._task(view, each) for each in entries.values()]
            results = self.perform(tasks, self._journal, self.places)
        for result in results:
            self.moved[result.source] = (result, seal)
            self.report.files += 1
            self.report.bytes += entries[result.source].file["file_size_in_bytes"]

    def _in_threads(
        self, view: OpenedState, entries: list[ManifestEntry], seal: RunSeal | None
    ) -> Iterator[FileResult]:
        sizes = [each.file["file_size_in_bytes"] for each in entries]
        first = self._task(view, entries[0])
        ends = self.places.of_source(first.source), self.places.of_target(first.target)
        # Some threads wait for the disk while others encrypt.
        threads = Threads.of_files(ends, sizes, self.threads, usual=self.threads or 2 * usable_cpus())
        records = None if self._journal is None or seal is None else self._journal.records(seal)

        def moves() -> Iterator[Move]:
            for entry in entries:
                # Made here, so that only the files under way have a task. One thread makes all small files, while the
                # others wait for the store: each file costs twice as much when many threads make them (bench/README).
                task, content = self._held.pop(entry.path, None) or (self._task(view, entry), None)
                yield task, None if content is None else make(task, seal, content)

        def move(of: Move, threads: int | None, within: Progress) -> FileResult:
            result = run(of[0], seal, self.places, made=of[1], threads=threads, progress=within)
            if records is not None:
                records.add(result)
            return result

        brief = _BRIEF if all(each.is_local for each in ends) else 0
        work = OneByOne(move, lambda each: each[0].length, brief=brief)
        try:
            for each in run_on_threads(work, moves(), threads, SharedProgress(self.progress, sum(sizes))):
                yield each.result
        finally:
            if records is not None:
                records.flush()

    def _task(self, view: OpenedState, entry: ManifestEntry) -> FileTask:
        view.places.check(entry.path)
        file = entry.file
        encoded = file.get("key_metadata")
        seal = self._seal(view)
        target = self._target(view, entry.path)
        sealed = None if encoded is None or seal is None else sealed_key(seal, KeyMetadata.decode(encoded), entry.path)
        copy = self.change.copies(encoded)
        return FileTask(
            entry.path,
            target,
            kind_of(file),
            file["file_format"].lower(),
            file["file_size_in_bytes"],
            file["record_count"],
            sealed,
            0 if copy else self.change.key_bits(view.metadata),
            copy,
            _origin(entry),
            view.names.located(target).root,
        )

    def _target(self, view: OpenedState, path: str) -> str:
        """Return a new path for a file: in the directory of its partition, where that may be seen."""
        known = self._targets.get(path)
        if known is None:
            directory, _, name = path.rpartition("/")
            metadata = view.metadata
            own = (metadata.properties.get(DATA_PATH), f"{metadata.location}/data")
            inside = [f"{each.rstrip('/')}/" for each in own if each]
            partition = ""
            if self.change.shows_partitions:
                partition = next((directory[len(each) :] for each in inside if directory.startswith(each)), "")
            stem, dot, suffix = name.rpartition(".")
            known = self._targets[path] = view.names.new_data_path(f"{dot}{suffix}" if stem else "", partition)
            if self.change.location is None:
                view.places.check(known)
        return known

    def _seal(self, view: OpenedState) -> RunSeal | None:
        key_id = self.change.key_id or view.metadata.key_id
        if key_id is None:
            return None
        with self._lock:
            # Many threads check files, and all files of a run have one key.
            if self._refusal is not None:
                raise self._refusal
            if self._own_seal is None:
                try:
                    key = WrappedKey(key_id).another(self.kms)
                    self._journal = Journal.create(self.journal_directory(view), view.uuid, key)
                    self._own_seal = self._journal.open(self.kms)
                except KeyAccessError as error:
                    self._refusal = error
                    raise
            return self._own_seal

    # -- the journal ---------------------------------------------------------------------------------------------

    def journal_directory(self, view: OpenedState) -> Any:
        """Return where the journals of the conversions of a table are."""
        path = view.names.new_metadata_path(DIRECTORY)
        if self.change.location is None:
            view.places.check(path)
        return below_metadata(self.places.of_target(path))

    def _take_over(self, view: OpenedState) -> None:
        """Take over the files of runs with the same purpose that were not committed."""
        key_id = self.change.key_id or view.metadata.key_id
        if key_id is None or (self.change.name == REKEY and key_id == view.metadata.key_id):
            # Nobody vouches for a journal without a key. An attacker with a leaked key encryption key and write access
            # could have forged one under the same master key.
            return
        wanted = {each.path: each for each in view.contents.entries() if is_moved(each) and not self._is_done(each)}

        def refused(name: str, error: Exception) -> None:
            self.report.notes.append(f"{name}: this work of a killed run is not believed: {error}")

        conversions = (each for each in view.runs if not is_maintenance(each))
        for each in opened_runs(conversions, KIND, view.uuid, unwrapping_under(key_id, self.kms), refused):
            if each.about != self.change.purpose(view.metadata):
                continue
            self._taken.append(each)
            for result in moved(each, refused):
                entry = wanted.get(result.source)
                if entry is not None and result.source not in self.moved and self._stands(result, entry, view.names):
                    self.moved[result.source] = (result, each.seal)
                    self.report.reused += 1

    def _stands(self, result: FileResult, entry: ManifestEntry, names: TableFiles) -> bool:
        """Whether a file of a killed run is what this run would make of the same file, and is still there."""
        below = result.target.removeprefix(f"{names.new_data_path('').rpartition('/')[0]}/")
        if below == result.target or any(part in ("", ".", "..") for part in below.split("/")):
            return False
        if result.origin != _origin(entry) or (result.key is None) != (self.change.key_id is None):
            return False
        try:
            place = names.located(result.target)
            # A key vouches for the content of its file. Of a plaintext file, the storage knows whether it is the same.
            same = result.key is not None or (result.identity != "" and identity_of(place) == result.identity)
            return same and status(place).size == result.length
        except FileNotFoundError:
            return False

    def forget(self) -> None:
        """Remove the journals: their files are now part of the table."""
        directories = [each.found.directory for each in self._taken]
        if self._journal is not None and self._has_begun:
            directories.append(self._journal.directory)
        for each in directories:
            # The table is committed, so a journal that stays is not needed.
            with contextlib.suppress(OSError):
                remove_run(each)

    # -- the commit ----------------------------------------------------------------------------------------------

    def run(self, state: TableState) -> ConversionReport:
        """Run the conversion of the table in this state. Before the commit, and after a lost one, it is unchanged.

        A ConflictError reports that another writer committed first each time; another run converts the rest.
        """
        newest = start(partial(self.table.check_newest, state))
        try:
            view = self.look(state)
        except Exception:
            # A newer state explains a missing file.
            newest.result()
            raise
        newest.result()
        self.plan(view)
        self.refuse()
        self.move(view)
        committed = commit(self.table, self.places.of_target, self._attempt, retries=PATIENT)
        self.state = committed or state
        forgetting = start(self.forget)
        if committed is not None:
            self.prove(committed, self.table)
        forgetting.result()
        return self.finished(committed)

    def _attempt(self, state: TableState, metadata: TableMetadata, files: TableFiles) -> bool:
        self.report.attempts += 1
        view = self.look(state)
        self.move(view)
        before = (metadata.fields["format-version"], dict(metadata.properties))
        self.report.snapshots = self.write(view, metadata, files)
        is_same = before == (metadata.fields["format-version"], metadata.properties)
        return bool(self.report.snapshots or self.report.dropped_statistics or not is_same)

    def write(self, view: OpenedState, metadata: TableMetadata, files: TableFiles) -> dict[str, int]:
        """Write the new snapshots into metadata; return their ids by the names of the refs."""
        change, contents = self.change, view.contents
        old = EncryptionKeys.from_table_metadata(metadata.fields)
        if change.name in (REKEY, RELOCATE):
            # A key encryption key that others have must not wrap new keys.
            metadata.fields["encryption-keys"] = []
        if change.name == REKEY and change.key_id is not None and change.key_id != metadata.key_id:
            # Iceberg Java unwraps every key with the master key that the table names.
            old = old.rewrap(self.kms, change.key_id)
        change.apply(metadata)
        self.report.dropped_statistics = metadata.drop_statistics() if change.drops_statistics(metadata) else []
        conversion = SnapshotConversion(change, contents, self.moved, view.source, metadata, files, self.kms)
        made: dict[str, int] = {}
        for snapshot in contents.snapshots:
            if not is_finished(change, contents, snapshot):
                number = conversion.write(snapshot)["snapshot-id"]
                made |= dict.fromkeys(snapshot.refs, number)
        if change.name == REKEY:
            new = EncryptionKeys.from_table_metadata(metadata.fields)
            metadata.fields["encryption-keys"] = old.merge(new).to_list()
        if not metadata.fields.get("encryption-keys"):
            metadata.fields.pop("encryption-keys", None)
        return made

    def prove(self, state: TableState, table: CatalogTable) -> None:
        """Open the committed table, from its metadata down, and count; a FormatError if a snapshot has lost rows."""
        files = SnapshotFiles.of(state, self.kms, table)
        metadata = TableMetadata(state.document.fields)
        counted: dict[str, int] = {}
        for number in {each["snapshot-id"] for each in metadata.refs.values()}:
            fields = metadata.snapshot(number)
            listed = {each["manifest_path"]: each for each in files.manifests(fields)}
            unread = [each for path, each in listed.items() if path not in counted]
            rows_of = in_parallel(lambda each: _rows_of(files, each), unread, SMALL_FILES_AT_ONCE)
            counted |= zip((each["manifest_path"] for each in unread), rows_of, strict=True)
            rows = sum(counted[path] for path in listed)
            promised = fields.get("summary", {}).get("total-records")
            if promised is not None and int(promised) != rows:
                raise FormatError(
                    f"{self.table.name}: snapshot {number} has {rows} rows in its manifests, and its summary says "
                    f"{promised}; the snapshot before it is still there"
                )

    def finished(self, state: TableState | None) -> ConversionReport:
        """Return the report for a table in this state."""
        state = state or self.table.load()
        metadata = TableMetadata(state.document.fields)
        current = {each["snapshot-id"] for each in metadata.refs.values()}
        self.report.metadata_location, self.report.metadata_hash = state.metadata_location, state.document.hash
        if self.change.name in (ENCRYPT, REKEY) or self.change.key_id is None:
            self.report.remaining = [
                each["snapshot-id"] for each in metadata.snapshots if each["snapshot-id"] not in current
            ]
            old, has_moved = self.report.remaining, self.report.files or self.report.reused
            self.report.plaintext = old if has_moved else metadata.with_plaintext(old)
            self.report.statistics = metadata.statistics
        return self.report


def _tried(function: Callable[..., Any], *of: Any) -> Any:
    """Return the result of a function, or its fault."""
    try:
        return function(*of)
    except FAULTS as error:
        return error


def _origin(entry: ManifestEntry) -> str:
    """What a file is, by its manifest: path, form, length, rows and key."""
    file = entry.file
    about = (entry.path, file["file_format"].lower(), file["file_size_in_bytes"], file["record_count"])
    return hashlib.sha256(repr(about).encode() + b"\0" + (file.get("key_metadata") or b"")).hexdigest()


def _rows_of(files: SnapshotFiles, listed: dict[str, Any]) -> int:
    """Return the rows of the data files of a manifest, of which nothing is kept."""
    live = (each.file for each in files.entries(listed, metrics=False) if each.is_live)
    return sum(file["record_count"] for file in live if file["content"] == DATA)


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return without_secrets(str(error))
