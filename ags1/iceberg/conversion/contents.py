"""The snapshots, manifests and live files of a table's branches and tags, each read once.

refs --> snapshots, each once --> manifests, each once --> live entries
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.manifests import DATA, EQUALITY_DELETES, Manifest, ManifestEntry, kind_of
from ags1.iceberg.writing.metadata import MAIN, TableMetadata
from ags1.storage import SMALL_FILES_AT_ONCE
from ags1.support.parallel import in_parallel

Kept: TypeAlias = dict[tuple[str, int | None], Manifest]


@dataclass
class RefSnapshot:
    """A snapshot of branches or tags: their names, main first; its JSON; the entries of its manifest list."""

    refs: list[str]
    fields: dict[str, Any]
    manifests: list[dict[str, Any]] = field(default_factory=list)


class Contents:
    """The current files of a table. Manifests that are read are added to `kept`, and not read again.

    `snapshots` are in the order of the refs, with that of main first. `manifests` has them by path, with live entries
    only; of data files without the metrics of columns, which are most of the bytes. `listed` has the manifest list's
    entry of each.
    """

    def __init__(self, metadata: TableMetadata, files: SnapshotFiles, kept: Kept) -> None:
        by_id: dict[int, RefSnapshot] = {}
        for name in sorted(metadata.refs, key=lambda name: name != MAIN):
            number = metadata.refs[name]["snapshot-id"]
            by_id.setdefault(number, RefSnapshot([], metadata.snapshot(number))).refs.append(name)
        self.snapshots = list(by_id.values())
        self.listed: dict[str, dict[str, Any]] = {}
        lists = in_parallel(lambda each: files.manifests(each.fields), self.snapshots, SMALL_FILES_AT_ONCE)
        for snapshot, found in zip(self.snapshots, lists, strict=True):
            snapshot.manifests = found
            for each in found:
                other = self.listed.setdefault(each["manifest_path"], each)
                if other.get("first_row_id") is None:
                    # An old snapshot assigns no row ids, but a newer one with the same manifest does.
                    self.listed[each["manifest_path"]] = each
        unread = [each for each in self.listed.values() if _name(each) not in kept]
        # Bounds say which data files a position delete file is for.
        read = in_parallel(
            lambda each: files.manifest(each, metrics=each["content"] != DATA), unread, SMALL_FILES_AT_ONCE
        )
        for each, manifest in zip(unread, read, strict=True):
            manifest.entries = [entry for entry in manifest.entries if entry.is_live]
            kept[_name(each)] = manifest
        self.manifests = {path: kept[_name(each)] for path, each in self.listed.items()}

    def entries(self) -> Iterator[ManifestEntry]:
        """Return the live entries of all manifests."""
        for manifest in self.manifests.values():
            yield from manifest.entries

    def of(self, snapshot: RefSnapshot) -> Iterator[tuple[dict[str, Any], Manifest]]:
        """Return the manifests of a snapshot with their entries in the list, data manifests first."""
        for each in sorted(snapshot.manifests, key=lambda each: each["content"]):
            path = each["manifest_path"]
            yield self.listed[path], self.manifests[path]


def _name(listed: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the key of a manifest in `manifests`: an upgrade of the table assigns row ids."""
    return listed["manifest_path"], listed.get("first_row_id")


def is_vector(entry: ManifestEntry) -> bool:
    """Whether an entry is a deletion vector."""
    return kind_of(entry.file) == "deletion vectors"


def is_position_delete(entry: ManifestEntry) -> bool:
    """Whether an entry is a position delete file, which contains paths."""
    return kind_of(entry.file) == "position deletes"


def is_moved(entry: ManifestEntry) -> bool:
    """Whether a file is moved with its content: data files and equality delete files."""
    return entry.file["content"] in (DATA, EQUALITY_DELETES)
