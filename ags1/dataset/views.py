"""One version of a dataset, opened for reading."""

from __future__ import annotations

from dataclasses import dataclass

from ags1.dataset.classes import ClassKeys
from ags1.dataset.manifests import ManifestNode, Manifests
from ags1.dataset.transaction import open_root
from ags1.dataset.versions import Version
from ags1.storage import Location
from ags1.support.typing import Any


@dataclass(frozen=True)
class DatasetView:
    """One version of a dataset, opened."""

    location: Location
    version: Version
    manifests: Manifests
    root: ManifestNode | None
    keys: ClassKeys

    @classmethod
    def of(cls, location: Location, version: Version, kms: Any) -> DatasetView:
        """Check a version, and read the root of its manifests."""
        keys = ClassKeys(version.classes, kms, location.text)
        version.authenticate(keys, f"version {version.version} of {location}")
        manifests = Manifests(location, version.uuid)
        return cls(location.as_root(), version, manifests, open_root(manifests, version, kms), keys)
