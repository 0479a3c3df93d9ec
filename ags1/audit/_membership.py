"""What a group of files says of each file in it."""

from __future__ import annotations

from ags1.audit.classification import AuditedFile
from ags1.audit.report import AuditReport, Group

__all__ = ["METADATA_DIRECTORY", "Membership", "is_metadata_file"]

METADATA_DIRECTORY = "metadata"
_METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")


class Membership:
    """What a group says of the files in it; this one says nothing.

    Attributes
    ----------
    group : Group
    """

    def __init__(self, group: Group) -> None:
        self.group = group

    def judge(self, file: AuditedFile, report: AuditReport) -> None:
        """Add what the group makes of a file."""

    def inside(self, name: str) -> str:
        """Name of a file, relative to the group."""
        return name[len(self.group.path) + 1 :] if self.group.path else name


def is_metadata_file(name: str) -> bool:
    """Whether this is the name of a table's metadata file."""
    return name.endswith(_METADATA_ENDINGS)
