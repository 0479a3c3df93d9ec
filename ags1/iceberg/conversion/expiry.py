"""Removal of what a table no longer needs: old snapshots with their files and keys, and files that nothing names.

expire   snapshots that no ref has --> out of the metadata (one commit) --> files that only they named
clean    files below the table --> that neither its metadata nor a snapshot nor a live journal names
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlparse

from ags1.errors import UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.conversion.journal import (
    DIRECTORY,
    EXPIRY,
    KIND,
    MAINTENANCE,
    Journal,
    announce_maintenance,
    claimed_kind,
    moved,
    planned,
    remove_run,
)
from ags1.iceberg.conversion.reports import CleanReport, ExpiryReport
from ags1.iceberg.files.file_io import SnapshotFiles, client_of
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.iceberg.metadata.locations import refuse_change, rooted
from ags1.iceberg.metadata.manifests import kind_of
from ags1.iceberg.metadata.metadata_document import (
    MAX_DOCUMENT,
    VERSION_HINT,
    claims_encryption,
    data_directory,
    directories_of,
    is_metadata_file,
    metadata_directory,
    metadata_document,
)
from ags1.iceberg.writing.commit import PATIENT, TableFiles, commit, has_moved
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.storage import (
    SMALL_FILES_AT_ONCE,
    Entry,
    Location,
    list_files,
    list_names,
    pass_unnamed,
    read_whole,
    remove,
    status,
)
from ags1.storage.location import shown
from ags1.support.arguments import one_of, spelled
from ags1.support.parallel import in_parallel
from ags1.work.records import FoundRun, found_runs, opened_runs

_OLD = datetime.timedelta(days=3)
_DAY = 24 * 3600 * 1_000_000_000
_NO_FILE = (errno.EINVAL, errno.EISDIR, errno.ENOTDIR)
_NAME_NODES = ("hdfs", "viewfs", "webhdfs")


DROP, KEEP = "drop", "keep"
"""What becomes of statistics files."""


def expire_snapshots(
    table: Any,
    *,
    kms: Any = None,
    statistics: str = DROP,
    older_than: datetime.timedelta = datetime.timedelta(0),
    dry_run: bool = False,
) -> ExpiryReport:
    """Remove all snapshots that no branch or tag has, the files that only they need, and their key entries.

    A run that is killed after its commit leaves files that the table no longer names: :func:`clean` removes them.

    Every branch keeps its newest snapshot: time travel to snapshots older than `older_than` ends. Table properties that
    keep snapshots for some time are ignored. Snapshots that were staged to be published later (``wap.id``) are removed
    too: publish them before. A dry run lists them.

    Parameters
    ----------
    table : EncryptedTable or CatalogTable
    kms : object or str, optional
        The KMS; by default the table's.
    statistics : {"drop", "keep"}
        What becomes of the statistics files of the snapshots that stay, in an encrypted table. They are never
        encrypted, and tell of the data: counts, distinct values and sketches of columns, partition values.
    older_than : timedelta
        Younger snapshots are kept.
    dry_run : bool
        Only report what would be removed.

    Raises
    ------
    ValueError
        A negative age, or another word for `statistics`.
    UnsupportedError
        The table's property gc.enabled is false: other tables may need its files. Or a table in an object store names
        local files.
    ConflictError
        Another writer committed first at each of several attempts.
    Ags1Error, OSError
        The table cannot be read, or the catalog or the storage failed. Files are removed only after the commit: if the
        message says that snapshots are expired and files remain, :func:`clean` removes them.
    """
    keeps = keeps_statistics(statistics)
    check_age(older_than)
    opened, client = parts_of(table, kms)
    report = ExpiryReport(opened.name, dry_run=dry_run)
    files: dict[str, str] = {}
    removed: list[Location] = []
    runs: list[Location] = []

    def attempt(state: TableState, metadata: TableMetadata, _: TableFiles) -> bool:
        files.clear()
        opened.check_newest(state)
        refuse_shared_files(metadata, opened.name)
        current = {each["snapshot-id"] for each in metadata.refs.values()}
        if older_than:
            limit = 1000 * (time.time() - older_than.total_seconds())
            current |= {each["snapshot-id"] for each in metadata.snapshots if each.get("timestamp-ms", 0) > limit}
        old = [each for each in metadata.snapshots if each["snapshot-id"] not in current]
        report.snapshots = [each["snapshot-id"] for each in old]
        source = SnapshotFiles.of(state, client, opened)
        kept = [each for each in metadata.snapshots if each["snapshot-id"] in current]
        places, identity, own = opened.places(state), _Identities(), _Own(metadata, opened.place)
        # The kept snapshots are read first: if one of their manifests cannot be read, nothing is removed.
        needed = {identity(opened.place(path)) for path, _ in _files_of(source, kept)}
        going = dict(_files_of(source, old))
        for path in (*going, *metadata.statistics):
            places.check(path)
        staged, named = metadata.staged, metadata.statistics
        report.staged = {number: staged[number] for number in report.snapshots if number in staged}
        metadata.remove_snapshots({each["snapshot-id"] for each in old})
        dropped = [] if keeps or not claims_encryption(metadata.fields) else metadata.drop_statistics()
        report.kept_statistics = metadata.statistics if claims_encryption(metadata.fields) else []
        needed |= {identity(opened.place(path)) for path in metadata.statistics}
        needed.add(identity(opened.place(state.metadata_location)))
        going |= dict.fromkeys(named, "statistics")
        files.update((path, kind) for path, kind in going.items() if identity(opened.place(path)) not in needed)
        removed[:] = map(own, sorted(files))
        _refuse_local_files(state.metadata_location, files, opened.place)
        keys = EncryptionKeys.from_table_metadata(metadata.fields)
        pruned = keys.prune(metadata.fields)
        report.key_entries = len(keys) - len(pruned)
        if len(keys):
            metadata.fields["encryption-keys"] = pruned.to_list()
        if dry_run or not (old or report.key_entries or dropped):
            return False
        runs.append(_announced(metadata, client, own, files))
        return True

    new = commit(opened, opened.place, attempt, retries=PATIENT)
    report.metadata_hash = None if new is None else new.document.hash
    report.paths, report.files = sorted(files), dict(Counter(files.values()))
    if not dry_run:
        _remove(removed, f"{opened.name}: the snapshots are expired")
        for run in runs:
            with contextlib.suppress(OSError):
                remove_run(run)
    return report


def _announced(metadata: TableMetadata, kms: Any, own: _Own, files: Iterable[str]) -> Location:
    """Tell `clean` and conversions of an expiry, before its commit; return what :func:`remove_run` ends.

    Of files that are not below the table's location, where `clean` lists them, it gets the names.
    """
    uuid = str(metadata.fields.get("table-uuid"))
    elsewhere = [path for path in files if not path.startswith(f"{metadata.location}/")]
    if metadata.key_id is None or not elsewhere or metadata.has_data_below:
        return announce_maintenance(own.journals, uuid)
    journal = Journal.create(own.journals, uuid, WrappedKey(metadata.key_id).another(kms), EXPIRY)
    seal = journal.open(kms)
    journal.begin(seal, {})
    journal.plan(seal, elsewhere)
    return journal.directory


def remove_statistics(table: CatalogTable, kms: Any, paths: list[str]) -> None:
    """Remove statistics files that commits have dropped, but for those that the table names as something else."""
    if not paths:
        # All that the table names would be read.
        return
    state = table.load()
    identity, own = _Identities(), _Own(TableMetadata(state.document.fields), table.place)
    named = {identity(table.place(path)) for path in _named_now(table, kms)}
    files = [path for path in paths if identity(table.place(path)) not in named]
    for path in files:
        table.places(state).check(path)
    _refuse_local_files(state.metadata_location, files, table.place)
    _remove([own(path) for path in files], f"{table.name}: the table does not name them")


def keeps_statistics(statistics: str) -> bool:
    """Return whether "keep" was given; a ValueError for anything but that and "drop"."""
    one_of(statistics, (DROP, KEEP), "statistics")
    return statistics == KEEP


def clean(table: Any, *, kms: Any = None, older_than: datetime.timedelta = _OLD, dry_run: bool = False) -> CleanReport:
    """Remove files below a table that nothing names: the rest of an abandoned conversion, and other orphans.

    Parameters
    ----------
    table, kms, dry_run
        As for :func:`expire_snapshots`.
    older_than : timedelta
        Younger files are kept, and so are those written since a conversion began whose journal is younger: a commit may
        be under way. If this is shorter than the longest commit, no other writer may be active.

    Raises
    ------
    ValueError
        A negative age.
    Ags1Error, OSError
        The table cannot be read. Nothing is removed then.
    UnsupportedError
        Another table is inside this one's location, the location is not where its metadata is, or the table's property
        gc.enabled is false.
    ConflictError
        The table was given by a metadata file that is not its newest.
    """
    check_age(older_than)
    opened, client = parts_of(table, kms)
    age = int(older_than.total_seconds() * 1_000_000_000)
    limit = time.time_ns() - age

    state = opened.load()
    opened.refuse_copy(state)
    opened.check_newest(state)
    metadata = TableMetadata(state.document.fields)
    refuse_shared_files(metadata, opened.name)
    names = TableFiles(metadata, opened.place)
    identity, own = _Identities(), _Own(metadata, opened.place)
    directories = [own.metadata, own.table.join("metadata")]
    _refuse_other_places(own.table, opened.place(state.metadata_location), directories, opened.name, identity)
    for path in (names.new_metadata_path(DIRECTORY), names.new_data_path(""), f"{metadata.location}/data"):
        opened.places(state).check(path)
    report = CleanReport(opened.name, dry_run=dry_run)

    def leave(error: OSError) -> None:
        pass_unnamed(error)
        report.notes.append(f"{error.filename} stays: {error.strerror}")

    # List files before loading the state: a file committed meanwhile is either not listed, or named.
    listed: dict[str, Entry] = {}
    with contextlib.suppress(FileNotFoundError):
        found = list_files(own.table, temporary=True, on_error=leave if own.table.is_object else None)
        listed = {identity(each.location): each for each in found}
    began, given_up, elsewhere = limit, [], list[str]()
    for run in found_runs(own.journals):
        # What a record says is not needed for what stays, so nobody without a key decides that. A time ahead of the
        # clock is none: it would keep files for ever.
        if limit < run.modified < limit + age + _DAY:
            began = min(began, run.begun)
            continue
        given_up.append(run)
        kind = claimed_kind(run)
        report.given_up += kind == KIND
        if kind != MAINTENANCE:
            elsewhere += _elsewhere(run, kind, client, metadata, own, report)
    outside = {identity(each.location): each for path in elsewhere if (each := _seen(own(path))) is not None}
    outside = {name: each for name, each in outside.items() if name not in listed}
    listed |= outside
    named = {identity(opened.place(path)) for path in _named_now(opened, client)}
    unnamed = [each for name, each in listed.items() if name not in named]
    _refuse_other_tables(unnamed, directories, metadata.fields.get("table-uuid"), opened.name, identity)
    inside = f"{identity(own.journals)}/"
    orphans = []
    for name, entry in listed.items():
        if name in named or name.startswith(inside) or entry.name.endswith(VERSION_HINT):
            continue
        if entry.modified > limit or entry.modified >= began:
            report.recent += 1
            continue
        orphans.append(entry)
        report.bytes += entry.size
    report.paths = sorted(entry.path for entry in orphans)
    if not dry_run:
        # What names the files outside is below the table, and is removed after them.
        for last in False, True:
            some = [each.location for each in orphans if (identity(each.location) not in outside) is last]
            _remove(some, f"{opened.name}: the table does not need them")
        for run in given_up:
            remove_run(run.directory)
    return report


def check_age(older_than: datetime.timedelta) -> None:
    """Refuse an age below zero: a difference the wrong way round would spare nothing."""
    if older_than < datetime.timedelta(0):
        raise ValueError(f"older_than must not be negative, got {older_than}")


def journals_of(table: CatalogTable, state: TableState) -> Location:
    """Return where the runs of a table have their directories: those under way, and those that were killed."""
    return _Own(TableMetadata(state.document.fields), table.place).journals


def _elsewhere(
    run: FoundRun, kind: str, kms: Any, metadata: TableMetadata, own: _Own, report: CleanReport
) -> Iterable[str]:
    """Files of a killed run where this table writes, if that is not below its location, where all files are listed.

    Others may have files there. So the run must be authentic, under the master key of the table.
    """
    if metadata.has_data_below:
        return
    directory = data_directory(metadata.fields)

    def refused(name: str, error: Exception) -> None:
        report.notes.append(f"{name}: this work of a killed run is not believed: {error}")

    if metadata.key_id is None:
        refused(run.run, UnsupportedError("the table has no master key, so nobody vouches for what it says"))
        return
    unwrap = unwrapping_under(metadata.key_id, kms)
    targets: dict[str, None] = {}
    for each in opened_runs([run], kind, str(metadata.fields.get("table-uuid")), unwrap, refused):
        targets |= dict.fromkeys([*planned(each, refused), *(result.target for result in moved(each, refused))])
    inside = [each for each in targets if each.startswith(f"{directory}/") and ".." not in each.split("/")]
    yield from inside
    # Each attempt of a task of Spark has added something of its own to the name.
    stems = {each.rpartition("/")[2].partition(".")[0] for each in inside}
    for place in {each.rpartition("/")[0] for each in inside}:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in list_names(own(place)):
                if name.partition(".")[0].rpartition("-")[0] in stems:
                    yield f"{place}/{name}"


def _files_of(source: SnapshotFiles, snapshots: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Return the files that snapshots need, with their kinds."""
    listed: dict[str, dict[str, Any]] = {}
    # A snapshot of format version 1 may name its manifests itself.
    inline = (path for each in snapshots if "manifest-list" not in each for path in each.get("manifests") or ())
    listed |= {path: {"manifest_path": path} for path in inline}
    snapshots = [each for each in snapshots if "manifest-list" in each]
    for snapshot, found in zip(snapshots, in_parallel(source.manifests, snapshots, SMALL_FILES_AT_ONCE), strict=True):
        yield snapshot["manifest-list"], "manifest list"
        for each in found:
            listed[each["manifest_path"]] = each

    def named(each: dict[str, Any]) -> list[tuple[str, str]]:
        # Of an entry, nothing else is kept.
        entries = source.entries(each, metrics=False)
        return [(entry.path, kind_of(entry.file)) for entry in entries if entry.is_live]

    for path, found_in in zip(listed, in_parallel(named, listed.values(), SMALL_FILES_AT_ONCE), strict=True):
        yield path, "manifest"
        yield from found_in


def _refuse_other_places(
    location: Location, metadata: Location, own: Iterable[Location], name: str, identity: _Identities
) -> None:
    """Refuse a location that is not a directory of this table alone: every unnamed file below it is removed."""
    directories = tuple(f"{identity(each)}/" for each in (location, *own))
    if not location.path.strip("/") or not identity(metadata).startswith(directories):
        raise UnsupportedError(
            f"{name}: the metadata says that the table is at {location}, and its metadata file {metadata} is "
            "not there, or that is no directory of its own: nothing was removed"
        )


def _refuse_other_tables(
    entries: Iterable[Entry], directories: list[Location], uuid: Any, name: str, identity: _Identities
) -> None:
    own = tuple(f"{identity(each)}/" for each in directories)

    def is_own(entry: Entry) -> bool:
        if not identity(entry.location).startswith(own):
            return False
        document = metadata_document(entry.path, bytes(read_whole(entry.location, MAX_DOCUMENT)))
        return bool(document.fields.get("table-uuid") == uuid)

    found = [each for each in entries if is_metadata_file(each.name)]
    for each, same in zip(found, in_parallel(is_own, found, SMALL_FILES_AT_ONCE), strict=True):
        if not same:
            raise UnsupportedError(
                f"{name}: {each.path} is the metadata of another table in this one's location, so nobody can say whose "
                "the files are that this table does not name: nothing was removed. If that table is gone, remove its "
                "metadata files"
            )


def _seen(location: Location) -> Entry | None:
    """The file at a location; None if there is none, or something that is no file, or the way leads through a link."""
    try:
        return status(location)
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and (not location.is_local or error.errno not in _NO_FILE):
            raise
        return None


def refuse_shared_files(metadata: TableMetadata, name: str) -> None:
    """Refuse a table whose files others may need."""
    if not metadata.removes_files:
        raise UnsupportedError(f"{name}: the table's property gc.enabled is false: others may need its files")


def _refuse_local_files(metadata: str, paths: Iterable[str], located: Callable[[str], Location]) -> None:
    """Write access to a bucket must not be enough to remove files of this machine."""
    if located(metadata).is_local:
        return
    for path in paths:
        if located(path).is_local:
            raise UnsupportedError(
                f"{metadata}: names {path}, which is a file of this machine and not where the table is: nothing was "
                "removed. Find out who wrote that"
            )


def _named_now(table: CatalogTable, kms: Any) -> list[str]:
    """Return all files that the newest metadata of a table names; others may expire them while they are read."""
    while True:
        state = table.load()
        metadata = TableMetadata(state.document.fields)
        log = (each["metadata-file"] for each in metadata.fields.get("metadata-log") or ())
        try:
            files = _files_of(SnapshotFiles.of(state, kms, table), metadata.snapshots)
            return [state.metadata_location, *log, *metadata.statistics, *(path for path, _ in files)]
        except FileNotFoundError:
            if not has_moved(table, state.metadata_location):
                raise


def _remove(locations: list[Location], state: str) -> None:
    """Remove the files that can be removed, and raise an OSError that counts the rest."""
    try:
        remove(locations)
        return
    except OSError:
        # Each by itself says which.
        faults = []
    for each in locations:
        try:
            remove([each])
        except OSError as error:
            faults.append((error, each))
    if faults:
        fault, first = faults[0]
        raise OSError(
            fault.errno or errno.EIO,
            f"{state}, but {len(faults)} of {len(locations)} files could not be removed, and are still there "
            f"({fault.strerror or fault}); `ags1 iceberg clean` removes them when it may",
            first.text,
        ) from fault


class _Identities:
    """One text for each file, however its path is spelled, also through a link to a directory.

    It looks at each directory once, and lasts for one operation: a file with the identity of a needed one is kept. What
    is removed is found by the descriptors of its directories.
    """

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def __call__(self, location: Location) -> str:
        path = location.path
        if location.is_local:
            directory, name = os.path.split(os.path.abspath(path))
            if directory not in self._real:
                self._real[directory] = os.path.realpath(directory)
            path = os.path.join(self._real[directory], name)
        elif location.scheme in _NAME_NODES:
            # A name node has several names, with and without a port. So two files may look equal: too few are removed.
            path = urlparse(path).path
        return f"{location.scheme}:{location.container}:{path}"


class _Own:
    """Where the files of a table are. What is below its directories is never reached through a link."""

    def __init__(self, metadata: TableMetadata, located: Callable[[str], Location]) -> None:
        self._located = located
        self._directories = directories_of(metadata.fields)
        self.metadata = located(metadata_directory(metadata.fields)).as_root()
        self.table = located(metadata.location).as_root()
        self.journals = self(TableFiles(metadata, located).new_metadata_path(DIRECTORY))

    def __call__(self, path: str) -> Location:
        """The location of a path that metadata or a journal has."""
        found = self._located(path)
        if not found.is_local:
            return found
        if (below := rooted(found, self._directories)) is not None:
            return below
        # Outside of the table: the directory as it is now, so that no link comes in between later.
        directory, name = os.path.split(os.path.abspath(found.path))
        return Location("/").as_root().join(os.path.join(os.path.realpath(directory), name))


def parts_of(table: Any, kms: Any, *, changes: bool = True) -> tuple[CatalogTable, Any]:
    """The catalog's table, and the KMS client; a ValueError without a catalog, a TypeError without a KMS."""
    kms = client_of(kms)
    if hasattr(table, "commit") and hasattr(table, "load"):
        found = table
    else:
        found = getattr(table, "catalog_table", None)
        if found is None:
            named = shown(table) if isinstance(table, str) else table
            raise ValueError(
                f"{named!r} was opened without a catalog, so nothing can be committed to it: use "
                f"{spelled('load_table')}, which also takes a metadata file"
            )
        kms = table.io.kms if kms is None else kms
    if changes:
        refuse_change(found.name, found.expected.moved_from)
    if kms is None:
        raise TypeError(f"give {spelled('kms')}: a client of ags1.kms or a URL, such as 'aws:'")
    return found, kms
