"""Manifests that are merged when rows are appended, so that a thousand appends do not leave a thousand manifests.

Entries of old manifests become EXISTING, with the numbers of rows and of snapshots that they had inherited. Source:
Iceberg Java's ManifestMergeManager, and the table properties ``commit.manifest*``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ags1._parallel import in_parallel
from ags1.iceberg.file_io import SnapshotFiles
from ags1.iceberg.manifests import DATA, EXISTING, Entry, Manifest
from ags1.iceberg.writing.data_files import number_property

Listed = Mapping[str, Any]

__all__ = ["merged"]

_ENABLED = "commit.manifest-merge.enabled"
_COUNT, _USUAL_COUNT = "commit.manifest.min-count-to-merge", 100
_SIZE, _USUAL_SIZE = "commit.manifest.target-size-bytes", 8 << 20
_READERS = 8


def merged(
    new: Manifest, listed: list[dict[str, Any]], source: SnapshotFiles, properties: Mapping[str, str]
) -> Iterator[tuple[Manifest, set[str]]]:
    """Manifests to write, each with the paths of those that it replaces; the first has the new entries.

    Parameters
    ----------
    new : Manifest
        Of the files that are appended.
    listed : list of dict
        The manifests of the parent snapshot, the newest first.
    source : SnapshotFiles
        Reads them.
    properties : mapping of str to str
        Of the table.

    Raises
    ------
    ValueError
        A property is no number.
    """
    alike = [each for each in listed if each["content"] == DATA and each["partition_spec_id"] == new.spec_id]
    bins = _bins(alike, number_property(properties, _SIZE, _USUAL_SIZE))
    enabled = properties.get(_ENABLED, "true").lower() == "true"
    least = max(2, number_property(properties, _COUNT, _USUAL_COUNT))
    for number, each in enumerate(reversed(bins)):
        entries, replaced = list(new.entries) if number == 0 else [], set[str]()
        if enabled and len(each) + (number == 0) >= least:
            for of, manifest in zip(each, in_parallel(source.manifest, each, _READERS), strict=True):
                # A column that has got another type is written otherwise.
                if _shape(manifest.partition) == _shape(new.partition):
                    entries += _existing(manifest)
                    replaced.add(of["manifest_path"])
        if entries:
            yield new.like(entries), replaced


def _bins(listed: list[dict[str, Any]], target: int) -> list[list[dict[str, Any]]]:
    """Neighbours that have the target size together; the newest are the last, and may have less."""
    found: list[list[dict[str, Any]]] = [[]]
    size = 0
    for each in reversed(listed):
        length = each["manifest_length"]
        if found[-1] and size + length > target:
            found.append([])
            size = 0
        found[-1].append(each)
        size += length
    # What is written now comes on top.
    return [*found, []] if size >= target else found


def _existing(manifest: Manifest) -> Iterator[Entry]:
    for each in manifest.entries:
        if each.is_live:
            each.status = EXISTING
            yield each


def _shape(partition: Any) -> Any:
    """A schema of Avro without what does not matter to values."""
    if isinstance(partition, list):
        return [_shape(each) for each in partition]
    if isinstance(partition, dict):
        return {name: _shape(each) for name, each in partition.items() if name not in ("name", "doc", "default")}
    return partition
