"""Removal of what a table no longer needs: old snapshots with their files and keys, and files that nothing names.

expire   snapshots that no ref has --> out of the metadata (one commit) --> files that only they named
clean    files below the table --> that neither its metadata nor a snapshot nor a live journal names
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlparse

from ags1._parallel import in_parallel
from ags1.errors import UnsupportedError
from ags1.iceberg._document import MAX_DOCUMENT
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.conversion.engine import statistics_of
from ags1.iceberg.conversion.journal import DIRECTORY, runs
from ags1.iceberg.conversion.reports import CleanReport, ExpiryReport
from ags1.iceberg.encryption_keys import EncryptionKeys
from ags1.iceberg.file_io import SnapshotFiles
from ags1.iceberg.locations import location_of
from ags1.iceberg.manifests import kind_of
from ags1.iceberg.metadata_document import METADATA_SUFFIX, VERSION_HINT, metadata_directory, metadata_document
from ags1.iceberg.tables import client_of
from ags1.iceberg.writing.commit import commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles
from ags1.storage import Entry, Location, list_files, read_whole, remove, status

__all__ = ["clean", "expire_snapshots", "parts_of"]

_READERS = 8
_OLD = datetime.timedelta(days=3)
_GC = "gc.enabled"
_NAME_NODES = ("hdfs", "viewfs", "webhdfs")


def expire_snapshots(table: Any, *, kms: Any = None, dry_run: bool = False) -> ExpiryReport:
    """Remove all snapshots that no branch or tag has, the files that only they need, and their key entries.

    Every branch keeps only its newest snapshot: time travel to earlier ones ends. Table properties that keep snapshots
    for some time are ignored.

    Parameters
    ----------
    table : EncryptedTable or CatalogTable
    kms : object or str, optional
        The KMS; by default the table's.
    dry_run : bool
        Only report what would be removed.

    Raises
    ------
    UnsupportedError
        The table's property gc.enabled is false: other tables may need its files. Or a table in an object store names
        local files.
    ConflictError
        Another writer committed first at each of several attempts.
    Ags1Error, OSError
        The table cannot be read, or the catalog or the storage failed. Files are removed only after the commit: if the
        message says that snapshots are expired and files remain, :func:`clean` removes them later.
    """
    opened, client = parts_of(table, kms)
    report = ExpiryReport(opened.name, dry_run=dry_run)
    files: dict[str, str] = {}

    def located(path: str) -> Location:
        return location_of(path, opened.io_properties)

    def attempt(state: TableState, metadata: TableMetadata, _files: TableFiles) -> bool:
        files.clear()
        _refuse_shared_files(metadata, opened.name)
        current = {each["snapshot-id"] for each in metadata.refs.values()}
        old = [each for each in metadata.snapshots if each["snapshot-id"] not in current]
        report.snapshots = [each["snapshot-id"] for each in old]
        source = SnapshotFiles.of(state, client, opened.io_properties)
        kept = [each for each in metadata.snapshots if each["snapshot-id"] in current]
        # The kept snapshots are read first: if one of their manifests cannot be read, nothing is removed.
        needed = {_identity(located(path)) for path, _ in _files_of(source, kept)}
        going = dict(_files_of(source, old))
        # A file that is deleted in all kept snapshots is not read, and no snapshot will name it again.
        gone = {path: kind for path, kind in _files_of(source, kept, deleted=True) if path not in going}
        there = in_parallel(lambda path: _is_there(located(path)), gone, _READERS)
        going |= {path: gone[path] for path, found in zip(gone, there, strict=True) if found}
        statistics = set(statistics_of(metadata.fields))
        metadata.remove_snapshots({each["snapshot-id"] for each in old})
        needed |= {_identity(located(path)) for path in statistics_of(metadata.fields)}
        needed.add(_identity(located(state.metadata_location)))
        going |= dict.fromkeys(statistics, "statistics")
        files.update((path, kind) for path, kind in going.items() if _identity(located(path)) not in needed)
        _refuse_local_files(state.metadata_location, files, located)
        keys = EncryptionKeys.from_table_metadata(metadata.fields)
        pruned = keys.prune(metadata.fields)
        report.key_entries = len(keys) - len(pruned)
        if len(keys):
            metadata.fields["encryption-keys"] = pruned.to_list()
        return bool(old or report.key_entries) and not dry_run

    commit(opened, located, attempt)
    report.paths = sorted(files)
    for kind in files.values():
        report.files[kind] = report.files.get(kind, 0) + 1
    if not dry_run:
        _remove([located(path) for path in report.paths], f"{opened.name}: the snapshots are expired")
    return report


def clean(
    table: Any,
    *,
    kms: Any = None,
    older_than: datetime.timedelta = _OLD,
    dry_run: bool = False,
) -> CleanReport:
    """Remove files below a table that nothing names: the rest of an abandoned conversion, and other orphans.

    Parameters
    ----------
    table, kms, dry_run
        As for :func:`expire_snapshots`.
    older_than : timedelta
        Younger files are kept, and so are the files of a conversion with a younger journal: a commit may be under way.
        If this is shorter than the longest commit, no other writer may be active.

    Raises
    ------
    Ags1Error, OSError
        The table cannot be read. Nothing is removed then.
    UnsupportedError
        Another table is inside this one's location, the location is not where its metadata is, or the table's property
        gc.enabled is false.
    ConflictError
        The table was given by a metadata file that is not its newest.
    """
    opened, client = parts_of(table, kms)
    limit = time.time_ns() - int(older_than.total_seconds() * 1_000_000_000)

    def located(path: str) -> Location:
        return location_of(path, opened.io_properties)

    state = opened.load()
    opened.check_newest(state)
    metadata = TableMetadata(state.document.fields)
    _refuse_shared_files(metadata, opened.name)
    names = TableFiles(metadata, located)
    own = [located(metadata_directory(metadata.fields)), located(f"{metadata.location}/metadata")]
    _refuse_other_places(located(metadata.location), located(state.metadata_location), own, opened.name)
    # List files before loading the state: a file committed meanwhile is either not listed, or named.
    listed = {_identity(each.location): each for each in _listed(located(metadata.location))}
    journals = located(names.new_metadata_path(DIRECTORY))
    data = f"{_identity(located(names.new_data_path(''))).rpartition('/')[0]}/"
    under_way, given_up = set(), []
    for run in runs(journals):
        if run.modified > limit:
            under_way |= {_identity(located(each.target)) for each in run.results()}
            continue
        given_up.append(run)
        for each in run.results():
            # Of what lies elsewhere, only what a journal names is looked at, where this table writes: others may have
            # files there, and whoever can write a journal could name them.
            if not _identity(located(each.target)).startswith(data):
                continue
            with contextlib.suppress(FileNotFoundError):
                entry = status(located(each.target))
                listed[_identity(entry.location)] = entry
    named = {_identity(located(path)) for path in _named(opened, client, opened.load())}
    unnamed = (each for identity, each in listed.items() if identity not in named)
    _refuse_other_tables(unnamed, own, metadata.fields.get("table-uuid"), opened.name)
    report = CleanReport(opened.name, dry_run=dry_run)
    inside = f"{_identity(journals)}/"
    orphans = []
    for identity, entry in listed.items():
        if identity in named or identity in under_way or identity.startswith(inside):
            continue
        if entry.name.endswith(VERSION_HINT):
            continue
        if entry.modified > limit:
            report.recent += 1
            continue
        orphans.append(entry)
        report.bytes += entry.size
    report.paths = sorted(entry.path for entry in orphans)
    if not dry_run:
        _remove([entry.location for entry in orphans], f"{opened.name}: the table does not need them")
        for run in given_up:
            run.remove()
    return report


def _refuse_other_places(location: Location, metadata: Location, own: Iterable[Location], name: str) -> None:
    """Refuse a location that is not a directory of this table alone: every unnamed file below it is removed."""
    directories = tuple(f"{_identity(each)}/" for each in (location, *own))
    if not location.path.strip("/") or not _identity(metadata).startswith(directories):
        raise UnsupportedError(
            f"{name}: the metadata says that the table is at {location}, and its metadata file {metadata} is "
            "not there, or that is no directory of its own: nothing was removed"
        )


def _refuse_other_tables(entries: Iterable[Entry], directories: list[Location], uuid: Any, name: str) -> None:
    own = tuple(f"{_identity(each)}/" for each in directories)

    def is_own(entry: Entry) -> bool:
        if not _identity(entry.location).startswith(own):
            return False
        document = metadata_document(entry.path, bytes(read_whole(entry.location, MAX_DOCUMENT)), None)
        return bool(document.fields.get("table-uuid") == uuid)

    found = [each for each in entries if each.name.endswith(METADATA_SUFFIX)]
    for each, same in zip(found, in_parallel(is_own, found, _READERS), strict=True):
        if not same:
            raise UnsupportedError(
                f"{name}: {each.path} is the metadata of another table in this one's location, so nobody can say whose "
                "the files are that this table does not name: nothing was removed. If that table is gone, remove its "
                "metadata files"
            )


def _is_there(location: Location) -> bool:
    try:
        status(location)
    except FileNotFoundError:
        return False
    return True


def _refuse_shared_files(metadata: TableMetadata, name: str) -> None:
    if metadata.properties.get(_GC, "true").lower() == "false":
        raise UnsupportedError(f"{name}: the table's property {_GC} is false: others may need its files")


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


def _files_of(
    source: SnapshotFiles, snapshots: list[dict[str, Any]], *, deleted: bool = False
) -> Iterable[tuple[str, str]]:
    """Return the files that snapshots need, with their kinds; or those that their manifests mark as deleted."""
    listed: dict[str, dict[str, Any]] = {}
    for snapshot, found in zip(snapshots, in_parallel(source.manifests, snapshots, _READERS), strict=True):
        if not deleted:
            yield snapshot["manifest-list"], "manifest list"
        for each in found:
            listed[each["manifest_path"]] = each
    read = functools.partial(source.manifest, metrics=False)
    for path, manifest in zip(listed, in_parallel(read, listed.values(), _READERS), strict=True):
        if not deleted:
            yield path, "manifest"
        for entry in manifest.entries:
            if entry.is_live != deleted:
                yield entry.path, kind_of(entry.file)


def _named(table: CatalogTable, kms: Any, state: TableState) -> Iterable[str]:
    """Return all files that a table's metadata names."""
    fields: Mapping[str, Any] = state.document.fields
    yield state.metadata_location
    for each in fields.get("metadata-log") or ():
        yield each["metadata-file"]
    yield from statistics_of(fields)
    for path, _ in _files_of(SnapshotFiles.of(state, kms, table.io_properties), list(fields.get("snapshots") or ())):
        yield path


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


def _listed(location: Location) -> list[Entry]:
    try:
        return list_files(location)
    except FileNotFoundError:
        return []


@functools.lru_cache(1000)
def _real(directory: str) -> str:
    return os.path.realpath(directory)


def _identity(location: Location) -> str:
    """Return one text per file, however its path is spelled, also through a link to a directory."""
    path = location.path
    if location.is_local:
        directory, name = os.path.split(os.path.abspath(path))
        path = os.path.join(_real(directory), name)
    elif location.scheme in _NAME_NODES:
        # A name node has several names, with and without a port. So two files may look equal: too few are removed.
        path = urlparse(path).path
    return f"{location.scheme}:{location.container}:{path}"


def parts_of(table: Any, kms: Any) -> tuple[CatalogTable, Any]:
    """The catalog's table, and the KMS client; a ValueError without a catalog, a TypeError without a KMS."""
    kms = client_of(kms)
    if hasattr(table, "commit") and hasattr(table, "load"):
        found = table
    else:
        found = getattr(table, "catalog_table", None)
        if found is None:
            raise ValueError(
                f"{table!r} was opened without a catalog, so nothing can be committed to it: use "
                "ags1.iceberg.load_table, which also takes a metadata file"
            )
        kms = table.io.kms if kms is None else kms
    if kms is None:
        raise TypeError("give a KMS: a client of ags1.kms or a URL, such as kms='aws:'")
    return found, kms
