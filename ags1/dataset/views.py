"""One version of a dataset, opened for reading."""

from __future__ import annotations

from dataclasses import dataclass

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import ManifestNode, Manifests
from ags1.dataset.versions import Version
from ags1.storage import Location


@dataclass(frozen=True)
class DatasetView:
    """One version of a dataset, opened."""

    location: Location
    version: Version
    manifests: Manifests
    root: ManifestNode | None
    keys: DatasetKeys

    @classmethod
    def of(cls, location: Location, version: Version, keys: DatasetKeys) -> DatasetView:
        """Check a version, and read the root of its manifests."""
        version.authenticate(keys, f"version {version.version} of {location}")
        manifests = Manifests(location, version.uuid)
        return cls(location.as_root(), version, manifests, open_root(manifests, version, keys), keys)


def open_root(manifests: Manifests, version: Version, keys: DatasetKeys) -> ManifestNode | None:
    """The root of a version's manifests; None if it has no entry."""
    if version.manifest is None or version.manifest_key is None:
        return None
    metadata = keys.open(version.manifest, version.manifest_key)
    return manifests.root(version.manifest, metadata, version.file_count, version.plaintext_bytes)
