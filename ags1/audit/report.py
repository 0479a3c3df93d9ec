"""The result of an audit: as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ags1.audit.classification import NOT_ENCRYPTED, PROTECTIONS, AuditedFile
from ags1.support.arguments import spelled
from ags1.support.reports import FindingsReport, Record
from ags1.support.words import counted, made_by, printable, share_text, size_text

# Example names in the text.
_EXAMPLES = 3


@dataclass
class Group(Record):
    """A dataset, an Iceberg table, or all files that belong to none.

    Attributes
    ----------
    kind : {"files", "dataset", "iceberg table"}
    path : str
        Relative to what was audited; "" is that itself.
    encrypted : bool
        Of a table: whether its metadata promises encryption. True for a dataset.
    keys : tuple of str
        Its master keys.
    detail : str
        What else is known of it, for a person.
    files, size : int
        Number of its files, and their bytes.
    """

    kind: str
    path: str
    encrypted: bool = False
    keys: tuple[str, ...] = ()
    detail: str = ""
    files: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        """Its path, as in messages."""
        return self.path or "."

    def inside(self, name: str) -> str:
        """Name of a file, relative to the group."""
        return name[len(self.path) + 1 :] if self.path else name


class Membership:
    """Findings of a group about its files; this base class has none."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def judge(self, file: AuditedFile, report: AuditReport) -> None:
        """Add the findings of the group about a file."""


@dataclass
class AuditReport(FindingsReport):
    """The result of :func:`ags1.audit.audit`. It contains no key and no data.

    Attributes
    ----------
    made : dict of str to str
        When the audit began, in UTC ("created"), and the version of ags1 ("ags1").
    files : list of AuditedFile
    groups : list of Group
        The first has the files that belong to no dataset and no table.
    totals : dict of str to (int, int)
        Files and bytes of each protection.

    Notes
    -----
    The exit code is 5 if a file is not encrypted that `allow` does not list, and nothing worse was found.
    """

    made: dict[str, str] = field(default_factory=made_by)
    files: list[AuditedFile] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add_up(self) -> None:
        """Sum up the files, when all are known."""
        self.totals = dict.fromkeys(PROTECTIONS, (0, 0))
        for each in self.files:
            count, size = self.totals[each.protection]
            self.totals[each.protection] = count + 1, size + each.size
            group = self.groups[each.group]
            group.files += 1
            group.size += each.size

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.totals.values())

    @property
    def leaks(self) -> dict[str, list[AuditedFile]]:
        """The files that show something without a key, by what they show."""
        found: dict[str, list[AuditedFile]] = {}
        for each in self.files:
            for leak in each.leaks:
                found.setdefault(leak, []).append(each)
        return found

    @property
    def verdict(self) -> str:
        """One line: what the exit code says."""
        number = self.counts.get("not-encrypted", 0)
        allowed = sum(self.totals[each][0] for each in NOT_ENCRYPTED) - number
        but = f", except {counted(allowed, 'file')} that {spelled('allow')} names" if allowed else ""
        if number:
            return f"NOT OK: {counted(number, 'file')} {'is' if number == 1 else 'are'} not encrypted{but}"
        if not self.ok:
            return "NOT OK: something is damaged, or could not be read"
        return f"ok: all files look encrypted{but}"

    def _text(self) -> str:
        lines = [f"{self.subject}: {counted(len(self.files), 'file')}, {size_text(self.size)}"]
        for protection, (count, size) in self.totals.items():
            if count:
                share = share_text(size, self.size) if self.size else ""
                lines.append(
                    f"  {protection:<17}{counted(count, 'file'):>16} {size_text(size):>10} {share:>8}".rstrip()
                )
        for group in self.groups:
            if group.kind != "files":
                keys = f"; master key {', '.join(group.keys)}" if group.keys else ""
                what = f"{counted(group.files, 'file')}, {size_text(group.size)}{keys}"
                lines.append(f"{group.kind} {group.name}: {what}{f'; {group.detail}' if group.detail else ''}")
        if self.leaks:
            lines.append("what is visible without a key, besides names and sizes of files:")
        for leak, files in self.leaks.items():
            names = ", ".join(each.name for each in files[:_EXAMPLES])
            more = ", ..." if len(files) > _EXAMPLES else ""
            total = size_text(sum(each.size for each in files))
            lines.append(f"  {leak}: {counted(len(files), 'file')}, {total}: {names}{more}")
        return "\n".join(map(printable, [*lines, *self.lines(), self.origin, self.verdict]))

    @property
    def origin(self) -> str:
        """One line: when, and by which version of ags1."""
        return f"{self.made['created']}, ags1 {self.made['ags1']}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found = super().to_dict()
        return {
            **found,
            **found.pop("made"),
            "verdict": self.verdict,
            "totals": {name: {"files": count, "bytes": size} for name, (count, size) in self.totals.items()},
            "leaks": {name: len(files) for name, files in self.leaks.items()},
        }
