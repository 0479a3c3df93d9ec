"""Reports of maintenance, as text and as JSON values. No report contains a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.iceberg.conversion.reports import CleanReport, ExpiryReport
from ags1.support.reports import Report
from ags1.support.words import counted, printable, size_text

_LISTED = 20


@dataclass
class CompactionReport(Report):
    """What a compaction did, or would do.

    Attributes
    ----------
    table, ref : str
    dry_run : bool
        Whether nothing was written.
    snapshots : list of int
        The new snapshots.
    files, bytes : int
        Data files that were written again, and their stored bytes.
    added_files, added_bytes : int
        Data files that took their place.
    unchanged : int
        Data files that stay as they are.
    moved_bytes : int
        Stored bytes of the row groups that were moved, and not decoded.
    deleted_rows : int
        Rows that had been deleted, and are in no file any more.
    left : list of str
        Data files that others changed meanwhile. They stay as they are: the next compaction takes them.
    """

    table: str
    ref: str
    dry_run: bool = False
    snapshots: list[int] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    added_files: int = 0
    added_bytes: int = 0
    unchanged: int = 0
    moved_bytes: int = 0
    deleted_rows: int = 0
    left: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.files

    def _text(self) -> str:
        before = f"{counted(self.files, 'file')}, {size_text(self.bytes)}"
        if self.dry_run and self.files:
            lines = [f"{self.table}: {self.ref}: would write {before} again"]
        elif self.snapshots:
            after = f"{counted(self.added_files, 'file')}, {size_text(self.added_bytes)}"
            moved = f" ({size_text(self.moved_bytes)} moved)" if self.moved_bytes else ""
            lines = [f"{self.table}: {self.ref}: {before} became {after}{moved}"]
        else:
            lines = [f"{self.table}: {self.ref}: nothing to compact"]
        if self.deleted_rows:
            lines.append(f"deleted rows left out: {self.deleted_rows:,}")
        lines.append(f"unchanged: {counted(self.unchanged, 'file')}")
        lines += [f"changed by others, and left: {printable(each)}" for each in self.left[:_LISTED]]
        if len(self.left) > _LISTED:
            lines.append(f"changed by others, and left: {len(self.left) - _LISTED} more")
        return "\n".join(lines)


@dataclass
class ManifestReport(Report):
    """What writing manifests again did, or would do.

    Attributes
    ----------
    table, ref : str
    dry_run : bool
        Whether nothing was written.
    snapshot_id : int or None
        The new snapshot; None if there was nothing to do.
    replaced, written, kept : int
        Manifests that were written again, those that took their place, and those that stay.
    dangling : int
        Delete files and vectors that applied to no data file any more, and are gone.
    """

    table: str
    ref: str
    dry_run: bool = False
    snapshot_id: int | None = None
    replaced: int = 0
    written: int = 0
    kept: int = 0
    dangling: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.replaced

    def _text(self) -> str:
        name = f"{self.table}: {self.ref}"
        if self.dry_run and self.replaced:
            return f"{name}: would write {counted(self.replaced, 'manifest')} again, {self.kept:,} stay"
        if self.snapshot_id is None:
            return f"{name}: {counted(self.kept, 'manifest')}, nothing to do"
        found = f"{name}: {counted(self.replaced, 'manifest')} became {self.written:,}, {self.kept:,} stay"
        if self.dangling:
            found += f"; removed {counted(self.dangling, 'delete file')} that deleted nothing"
        return found


@dataclass
class MaintenanceReport(Report):
    """What maintenance did, or would do; step by step.

    Attributes
    ----------
    table : str
    dry_run : bool
        Whether nothing was written. Each step is then reported as if those before it were not done.
    compactions : list of CompactionReport
        One for each branch.
    manifests : list of ManifestReport
        One for each branch.
    expired : ExpiryReport or None
    cleaned : CleanReport or None
    """

    table: str
    dry_run: bool = False
    compactions: list[CompactionReport] = field(default_factory=list)
    manifests: list[ManifestReport] = field(default_factory=list)
    expired: ExpiryReport | None = None
    cleaned: CleanReport | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no step has anything to do."""
        return all(each.is_empty for each in self._steps())

    def _text(self) -> str:
        return "\n".join(each._text() for each in self._steps())

    def _steps(self) -> list[CompactionReport | ManifestReport | ExpiryReport | CleanReport]:
        steps = (*self.compactions, *self.manifests, self.expired, self.cleaned)
        return [each for each in steps if each is not None]
