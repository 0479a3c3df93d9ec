"""Plans and reports of conversions, as text and as JSON values. No report contains a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.support.arguments import spelled
from ags1.support.reports import Report
from ags1.support.words import counted, printable, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.conversion.old_keys import OldKeyReport

_LISTED = 20
_KEPT = "statistics file that stays, not encrypted (counts, distinct values and sketches of columns)"
_EXPIRE = "expire_snapshots (`ags1 iceberg expire`) removes them"
_ENCRYPTED = (
    "read afterwards by Iceberg Java 1.12 or newer (Spark, Hive 4) in a Hive catalog, Trino and "
    "ags1; no longer by engines without Iceberg's table encryption, such as PyIceberg alone"
)
_PLAIN = (
    "read afterwards by every engine that reads format version 3, and written by those that write it, such as Spark; "
    "PyIceberg 0.12 only reads it, and ags1 only with"
)


def _lines(name: str, values: list[str]) -> list[str]:
    shown = [f"{name}: {printable(each)}" for each in values[:_LISTED]]
    return shown + ([f"{name}: {len(values) - _LISTED} more"] if len(values) > _LISTED else [])


def _old_snapshots(count: int) -> str:
    return f"{counted(count, 'old snapshot')} and all {'its' if count == 1 else 'their'} files"


def _staged(staged: dict[int, str], then: str) -> list[str]:
    return _lines(
        "staged snapshot", [f"{number} (wap.id {name}), not published yet, {then}" for number, name in staged.items()]
    )


@dataclass
class _Conversion(Report):
    """What a plan and a report of a conversion both have; their docstrings say what."""

    change: str
    table: str
    key_id: str | None
    plaintext: list[int] = field(default_factory=list)
    statistics: list[str] = field(default_factory=list)
    dropped_statistics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def _left_in(self, old: list[int]) -> str | None:
        """What old snapshots keep that was to go, or None."""
        if self.change == "rekey" and old:
            return f"the old keys STILL open data: {_old_snapshots(len(old))} are under them until {_EXPIRE}"
        if self.change == "encrypt" and self.plaintext:
            return f"NOT all encrypted yet: {_old_snapshots(len(self.plaintext))} may be plaintext until {_EXPIRE}"
        return None

    def _title(self) -> str:
        return f"{self.table}: {self.change}" + (f", master key {self.key_id}" if self.key_id else "")


@dataclass
class ConversionPlan(_Conversion):
    """What a conversion would do.

    Attributes
    ----------
    change : {"encrypt", "decrypt", "rekey", "relocate"}
    table : str
    key_id : str or None
        Master key of the result.
    format_version : int
        Current format version of the table.
    files, bytes : dict of str to int
        Files to move, by kind, and their stored bytes.
    unchanged : int
        Files that stay as they are.
    finished : int
        Files that an earlier run moved without a commit.
    refs : list of str
        Branches and tags that get a new snapshot.
    snapshots : list of int
        Old snapshots that stay, with all their files, until they are expired.
    plaintext : list of int
        Those of `snapshots` that may have plaintext files.
    statistics : list of str
        Statistics files of these snapshots that stay with them.
    dropped_statistics : list of str
        Statistics files that are removed, because they are not encrypted.
    staged : dict of int to str
        Snapshots that wait to be published, and the ``wap.id`` of each. They stay as they are until they are expired.
    outside : int
        Files outside the table's location. Their new versions go below it.
    partition_paths : int
        Files of `files` whose paths show partition values, and whose new paths show them too.
    problems : list of str
        Reasons that prevent the conversion.
    notes : list of str
        Work of killed runs that is not believed, and is done again.
    settings : bool
        Whether the properties or the format version of the table change.
    expires : bool
        Whether the old snapshots are expired at the end.
    """

    format_version: int = 3
    files: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    unchanged: int = 0
    finished: int = 0
    refs: list[str] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    staged: dict[int, str] = field(default_factory=dict)
    outside: int = 0
    partition_paths: int = 0
    problems: list[str] = field(default_factory=list)
    settings: bool = False
    expires: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        moves = self.change == "relocate" or any(self.files.values()) or self.finished or self.refs
        return not (moves or self.settings or self.dropped_statistics or (self.expires and self.snapshots))

    @property
    def left(self) -> str | None:
        """Where there is nothing to do: what old snapshots keep, plaintext or data under old keys. Otherwise None."""
        return self._left_in(self.snapshots) if self.is_empty else None

    @property
    def ok(self) -> bool:
        """Whether nothing prevents the conversion."""
        return not self.problems

    def _text(self) -> str:
        lines = [self._title()]
        if self.format_version < 3:
            lines.append(
                f"the table is upgraded from format version {self.format_version} to 3, which cannot be undone"
            )
        for kind, count in self.files.items():
            lines.append(f"{kind}: {counted(count, 'file')}, {size_text(self.bytes[kind])}")
        if not any(self.files.values()):
            lines.append("no file has to be moved")
        if self.unchanged:
            lines.append(f"unchanged: {counted(self.unchanged, 'file')}")
        if self.finished:
            lines.append(f"moved already by a run that did not commit: {counted(self.finished, 'file')}")
        if self.outside:
            lines.append(f"outside the table's location: {counted(self.outside, 'file')}; the new ones go below it")
        if self.partition_paths:
            lines.append(f"paths that show partition values: {counted(self.partition_paths, 'file')}")
        if self.refs:
            lines.append(f"new snapshots for: {', '.join(map(printable, self.refs))}")
        lines += self._left()
        lines += _lines(
            "statistics file that is removed (it is not encrypted, and tells of the data)", self.dropped_statistics
        )
        if self.change == "decrypt":
            lines.append("stop its writers first: what Java prepared before, and commits after this, cannot be read")
        if self.change != "relocate":
            lines.append(f"{_PLAIN} {spelled('allow_plaintext', True)}" if self.key_id is None else _ENCRYPTED)
        return "\n".join(lines + _lines("problem", self.problems))

    def _left(self) -> list[str]:
        if not self.snapshots or self.change == "relocate":
            return []
        held = {"encrypt": "in plaintext", "rekey": "under the old keys", "decrypt": "encrypted"}[self.change]
        if self.expires:
            lines = [f"{_old_snapshots(len(self.snapshots))} are expired at the end"]
            lines += _staged(self.staged, "goes with them: publish it before")
        else:
            count = len(self.plaintext if self.change == "encrypt" else self.snapshots)
            lines = [f"{_old_snapshots(count)} stay {held} until they are expired"] if count else []
            lines += _lines("statistics file that stays until then", self.statistics)
            lines += _staged(self.staged, "stays as it is: publish it before you expire snapshots")
        if self.change == "rekey" or (self.change == "encrypt" and self.plaintext):
            lines.append(
                "traces that stay after that: old metadata files, which hold summaries and no rows, and in a bucket "
                "with versioning the deleted objects"
            )
        return lines


@dataclass
class ExpiryReport(Report):
    """What expiring snapshots removed, or in a dry run would remove.

    Attributes
    ----------
    table : str
    snapshots : list of int
    files : dict of str to int
        Number of files, by kind, that only these snapshots needed.
    paths : list of str
        Paths of these files.
    key_entries : int
        Number of entries of ``encryption-keys`` that are no longer used.
    staged : dict of int to str
        Those of `snapshots` that waited to be published, and the ``wap.id`` of each.
    kept_statistics : list of str
        Statistics files that stay. They are not encrypted.
    metadata_hash : str or None
        Hash of the new metadata file; None if none was written.
    dry_run : bool
        Nothing was removed.
    """

    table: str
    snapshots: list[int] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    key_entries: int = 0
    staged: dict[int, str] = field(default_factory=dict)
    kept_statistics: list[str] = field(default_factory=list)
    metadata_hash: str | None = None
    dry_run: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.snapshots or self.paths or self.key_entries)

    def _text(self) -> str:
        what = "would be removed" if self.dry_run else "removed"
        lines = [f"{self.table}: {counted(len(self.snapshots), 'snapshot')} {what}"]
        lines += [f"{kind}: {counted(count, 'file')} {what}" for kind, count in self.files.items()]
        gone = "would be removed" if self.dry_run else "was removed"
        lines += _staged(self.staged, f"{gone}: publish_changes cannot find it then")
        lines += _lines(_KEPT, self.kept_statistics)
        if self.key_entries:
            lines.append(f"{counted(self.key_entries, 'key entry', 'key entries')} {what}")
        return "\n".join(lines)


@dataclass
class ConversionReport(_Conversion):
    """What a conversion did.

    Attributes
    ----------
    change, table, key_id
        As of the plan.
    metadata_location, metadata_hash : str
        The table's new metadata file, and its hash; see :attr:`EncryptedTable.metadata_hash`.
    files, bytes : int
        Files that this run moved, and their stored bytes.
    reused : int
        Files that an earlier run moved.
    snapshots : dict of str to int
        The new snapshot of each branch and tag; empty if there was nothing to do.
    attempts : int
        Number of commits that were tried.
    remaining : list of int
        Old snapshots that still exist.
    plaintext : list of int
        Those of `remaining` that may have plaintext files.
    unconverted : list of int
        Without the step "convert": snapshots of branches and tags that may have plaintext files.
    statistics : list of str
        Statistics files that the table names. They are not encrypted.
    dropped_statistics : list of str
        Statistics files that were removed.
    expired : ExpiryReport or None
        What was removed after the conversion.
    notes : list of str
        Work of killed runs that was not believed, and was done again.
    old_keys : OldKeyReport or None
        After new data keys: what other master keys than the table's own still open.
    """

    metadata_location: str = ""
    metadata_hash: str = ""
    files: int = 0
    bytes: int = 0
    reused: int = 0
    snapshots: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    remaining: list[int] = field(default_factory=list)
    unconverted: list[int] = field(default_factory=list)
    expired: ExpiryReport | None = None
    old_keys: OldKeyReport | None = None

    @property
    def left(self) -> str | None:
        """What is still plaintext or under old keys, and what ends that; None if nothing is."""
        if self.unconverted:
            return 'NOT all encrypted yet: only new files are, until the step "convert" (`ags1 iceberg encrypt`)'
        return self._left_in(self.remaining)

    @property
    def ok(self) -> bool:
        """Whether old keys open nothing of the branches and tags."""
        return self.old_keys is None or not (self.old_keys.refs or self.old_keys.files)

    def _text(self) -> str:
        lines = [self._title()]
        lines.append(f"moved: {counted(self.files, 'file')}, {size_text(self.bytes)}")
        if self.reused:
            lines.append(f"moved by an earlier run: {counted(self.reused, 'file')}")
        for ref, snapshot in self.snapshots.items():
            lines.append(f"{printable(ref)}: snapshot {snapshot}")
        if self.expired is not None:
            lines.append(str(self.expired))
        if self.left is not None:
            lines.append(self.left)
        elif self.change != "encrypt" and self.remaining:
            lines.append(f"{_old_snapshots(len(self.remaining))} stay encrypted, and need the KMS, until {_EXPIRE}")
        lines += _lines(_KEPT, self.statistics)
        lines += _lines("statistics file that was removed", self.dropped_statistics)
        lines += _lines("note", self.notes)
        if self.old_keys is not None:
            lines.append(str(self.old_keys))
        return "\n".join(lines)


@dataclass
class CleanReport(Report):
    """Files below a table that nothing names.

    Attributes
    ----------
    table : str
    paths : list of str
    bytes : int
    given_up : int
        Killed conversions whose records are removed too: they cannot be resumed then.
    recent : int
        Further files that nothing names, too recent to be removed.
    dry_run : bool
        Nothing was removed.
    notes : list of str
        Killed runs whose records are not believed: files of theirs outside of the table's location stay.
    """

    table: str
    paths: list[str] = field(default_factory=list)
    bytes: int = 0
    given_up: int = 0
    recent: int = 0
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.paths or self.given_up)

    def _text(self) -> str:
        what = "would be removed" if self.dry_run else "removed"
        lines = [f"{self.table}: {counted(len(self.paths), 'file')}, {size_text(self.bytes)}, {what}"]
        lines += _lines(what, self.paths) if self.dry_run else []
        if self.given_up:
            lines.append(
                f"{counted(self.given_up, 'record')} of killed conversions {what}: they cannot be resumed then"
            )
        if self.recent:
            lines.append(f"{counted(self.recent, 'younger file')} that nothing names: left alone")
        lines += _lines("note", self.notes)
        return "\n".join(lines)
