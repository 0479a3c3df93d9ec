"""What a table no longer names, and is still there: the run that took it out of the metadata was killed.

metadata log --> older metadata files --> snapshots that the table no longer has --> manifest lists that are there
                                          statistics files that it no longer names

Expiry removes manifest lists last. So of a snapshot whose manifest list is missing there are no other files either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ags1.errors import FormatError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.conversion.journal import DIRECTORY
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.keys.document import MAX_DOCUMENT, Document
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.locations import TableLocations
from ags1.iceberg.metadata.manifests import kind_of
from ags1.iceberg.metadata.metadata_document import VERSION_HINT, directories_of, is_metadata_file, metadata_document
from ags1.iceberg.walk.table_walk import FAULTS
from ags1.iceberg.writing.metadata import STAGED, ancestors_of, statistics_of
from ags1.storage import SMALL_FILES_AT_ONCE, read_whole
from ags1.support.parallel import in_parallel


@dataclass
class RemovedSnapshots:
    """Snapshots that a table no longer has, and whose manifest lists are still there.

    Attributes
    ----------
    snapshots : list of int
    files : dict of str to str
        Files that they name, and statistics files, that are there, with their kinds. The table may need some.
    unread : dict of int to str
        Those whose files could not be found, and why.
    unread_metadata : list of str
        Metadata files of the log that could not be read, and statistics files that may be there.
    """

    snapshots: list[int] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    unread_metadata: list[str] = field(default_factory=list)


def older_documents(
    table: CatalogTable, state: TableState, paths: Iterable[str]
) -> Iterator[tuple[str, Document | Exception]]:
    """Return metadata files of a table with their locations, or why they cannot be read.

    Those that are missing, and those of another table, are left out.
    """
    places, own = table.places(state), state.document.fields.get("table-uuid")

    def read(path: str) -> Document | Exception | None:
        try:
            places.check(path)
            found = metadata_document(path, bytes(read_whole(table.place(path), MAX_DOCUMENT)))
            if found.fields.get("table-uuid") != own:
                return None
            # One that somebody has planted must not end the search.
            EncryptionKeys(found.entries())
            found.snapshots()
            _check(found)
            return found
        except FileNotFoundError:
            return None
        except FAULTS as error:
            return error

    paths = [each for each in paths if each != state.metadata_location]
    for path, each in zip(paths, in_parallel(read, paths, SMALL_FILES_AT_ONCE), strict=True):
        if each is not None:
            yield path, each


def logged(fields: Mapping[str, Any]) -> list[str]:
    """Return the locations of the older metadata files that the log of a table names, the newest one first."""
    return [each["metadata-file"] for each in reversed(fields.get("metadata-log") or ())]


def removed_snapshots(
    table: CatalogTable, kms: Any, state: TableState, until_ms: float, is_there: Callable[[str], bool]
) -> RemovedSnapshots:
    """Find snapshots that the metadata log still has, the table no longer has, and whose files are still there.

    Parameters
    ----------
    table : CatalogTable
    kms : object or None
        The KMS. It is needed for an encrypted snapshot that is found. None: no manifest list is opened, and `files` has
        statistics files alone.
    state : TableState
    until_ms : float
        Younger snapshots are left out; milliseconds since 1970.
    is_there : callable
        Whether there is a file of this path. A ValueError is for what is no path.
    """
    report, known = RemovedSnapshots(), {each["snapshot-id"] for each in state.document.fields.get("snapshots") or ()}
    places, named = table.places(state), _statistics(state.document)
    refused = dict[str, str]()
    # Where the table itself writes. Elsewhere others may have files, and nobody vouches for an old metadata file.
    own = TableLocations(directories_of(state.document.fields))
    own.add(state.metadata_location)

    def check(path: str) -> None:
        places.check(path)
        try:
            own.check(path)
        except UnsupportedError:
            raise UnsupportedError(f"{path}: lies outside of the table, where others may have files") from None
        if is_metadata_file(path) or path.endswith(VERSION_HINT) or f"/{DIRECTORY}/" in path:
            raise UnsupportedError(f"{path}: is no file of a snapshot: somebody has written that metadata file")

    def is_left(path: str | None) -> bool:
        if path is None:
            # The manifest list of a snapshot of format version 1.
            return False
        try:
            check(path)
            return is_there(path)
        except (UnsupportedError, ValueError):
            # Of another place: this table was copied, or registered, from there. Or no path at all.
            return False
        except OSError as error:
            # A store says so of a missing object, too, to who may not list.
            refused[path] = str(error)
            return False

    for path, document in older_documents(table, state, logged(state.document.fields)):
        if isinstance(document, Exception):
            # Nothing that the table needs is in it.
            report.unread_metadata.append(path)
            continue
        had = _had(document)
        gone = {
            each["snapshot-id"]: each
            for each in document.fields.get("snapshots") or ()
            if each["snapshot-id"] in had - known and each.get("timestamp-ms", 0) <= until_ms
        }
        known |= gone.keys()
        unnamed = sorted(_statistics(document) - named)
        named |= set(unnamed)
        lists = [each.get("manifest-list") for each in gone.values()]
        there = [*in_parallel(is_left, (*unnamed, *lists), SMALL_FILES_AT_ONCE)]
        report.files |= dict.fromkeys(itertools.compress(unnamed, there), "statistics")
        report.unread_metadata += (each for each in unnamed if each in refused)
        report.unread |= {
            each["snapshot-id"]: refused[each["manifest-list"]]
            for each in gone.values()
            if each.get("manifest-list") in refused
        }
        left = [*itertools.compress(gone.values(), there[len(unnamed) :])]
        if kms is None:
            report.snapshots += (each["snapshot-id"] for each in left)
        if not left or kms is None:
            continue
        old = TableState(path, document, None, None, state.locations)
        source = SnapshotFiles.of(old, kms, table, is_old=True)
        for snapshot in left:
            number = snapshot["snapshot-id"]
            try:
                files = dict(files_of(source, [snapshot], without_missing=True))
                for each in files:
                    check(each)
                there = [*in_parallel(is_there, files, SMALL_FILES_AT_ONCE)]
                report.files |= dict(itertools.compress(files.items(), there))
                report.snapshots.append(number)
            except FileNotFoundError:
                # Another expiry has just removed it, and before it all that it named.
                continue
            except FAULTS as error:
                report.unread[number] = str(error)
    return report


def _check(document: Document) -> None:
    try:
        times = [each.get("timestamp-ms", 0) for each in document.fields.get("snapshots") or ()]
        lists = [each.get("manifest-list", "") for each in document.fields.get("snapshots") or ()]
        statistics = _statistics(document)
        _had(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"a snapshot, a ref, or the statistics, are no objects with their fields: {error}") from error
    if not all(type(each) is int for each in times) or not all(isinstance(each, str) for each in (*lists, *statistics)):
        raise FormatError("the time of a snapshot is no number, or a path is no text")


def _had(document: Document) -> set[int]:
    """Return the snapshots that a branch or tag has or had, and those that were staged to be published.

    A writer whose commit to a REST catalog was refused has added and removed others. It tries again, with the same data
    files.
    """
    fields = document.fields
    snapshots = fields.get("snapshots") or ()
    staged = [each for each in snapshots if STAGED in (each.get("summary") or {})]
    named = [*(fields.get("refs") or {}).values(), *(fields.get("snapshot-log") or ()), *staged]
    return ancestors_of(snapshots, (fields.get("current-snapshot-id"), *(each["snapshot-id"] for each in named)))


def _statistics(document: Document) -> set[str]:
    # Also of format version 1, which the table had before.
    return set(statistics_of(document.fields))


def files_of(
    source: SnapshotFiles, snapshots: list[dict[str, Any]], *, deleted: bool = False, without_missing: bool = False
) -> Iterator[tuple[str, str]]:
    """Return the files that snapshots need, with their kinds; or those that their manifests mark as deleted.

    With `without_missing`, what a missing manifest names is left out: it was removed after these files.
    """
    listed: dict[str, dict[str, Any]] = {}
    # A snapshot of format version 1 may name its manifests itself.
    inline = (path for each in snapshots if "manifest-list" not in each for path in each.get("manifests") or ())
    listed |= {path: {"manifest_path": path} for path in inline}
    snapshots = [each for each in snapshots if "manifest-list" in each]
    for snapshot, found in zip(snapshots, in_parallel(source.manifests, snapshots, SMALL_FILES_AT_ONCE), strict=True):
        if not deleted:
            yield snapshot["manifest-list"], "manifest list"
        for each in found:
            listed[each["manifest_path"]] = each

    def named(each: dict[str, Any]) -> list[tuple[str, str]]:
        # Of an entry, nothing else is kept.
        try:
            entries = source.entries(each, metrics=False)
            return [(entry.path, kind_of(entry.file)) for entry in entries if entry.is_live != deleted]
        except FileNotFoundError:
            if not without_missing:
                raise
            return []

    for path, found_in in zip(listed, in_parallel(named, listed.values(), SMALL_FILES_AT_ONCE), strict=True):
        if not deleted:
            yield path, "manifest"
        yield from found_in
