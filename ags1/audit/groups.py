"""Which files belong together: a dataset has ``_ags1/v-N.json``, an Iceberg table ``metadata/*.metadata.json``."""

from __future__ import annotations

from typing import Any

from ags1.audit._datasets import DatasetMembership
from ags1.audit._tables import METADATA_DIRECTORY, TableMembership, is_metadata_file
from ags1.audit.report import AuditReport, Group, Membership
from ags1.dataset.names import CONTROL, version_number
from ags1.storage import Entry, Location

__all__ = ["memberships"]


def memberships(location: Location, listed: list[Entry], kms: Any, report: AuditReport) -> list[Membership]:
    """All groups below a location: first the one of the files that belong to no other."""
    datasets: dict[str, list[int]] = {}
    tables: dict[str, list[Entry]] = {}
    for entry in listed:
        above, _, last = entry.name.rpartition("/")
        root, _, directory = above.rpartition("/")
        if directory == CONTROL and (number := version_number(last)) is not None:
            datasets.setdefault(root, []).append(number)
        elif directory == METADATA_DIRECTORY and is_metadata_file(last):
            tables.setdefault(root, []).append(entry)
    found = [Membership(Group("files", ""))]
    for root, numbers in datasets.items():
        found.append(DatasetMembership(root, _below(location, root), numbers, listed, kms, report))
    for root, metadata in tables.items():
        if root not in datasets:
            found.append(TableMembership(root, _below(location, root), metadata, kms, report))
    return found


def _below(location: Location, root: str) -> Location:
    return location.join(root) if root else location
