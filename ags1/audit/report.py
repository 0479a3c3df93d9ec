"""The result of an audit: as text, as JSON, as an HTML page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ags1.audit.classification import PROTECTIONS, AuditedFile
from ags1.support.exit_codes import EXIT_DATA, EXIT_IO, EXIT_KEY, EXIT_OK, EXIT_UNPROTECTED
from ags1.support.reports import Record, Report
from ags1.support.words import counted, made_by, printable, share_text, size_text

SEVERITIES = ("error", "violation", "warning", "note")
# Findings kept for each code, findings in the text, and example names in the text.
_KEPT = 1000
_LISTED = 50
_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found.

    Attributes
    ----------
    severity : {"error", "violation", "warning", "note"}
        "error": damaged or not inspected. "violation": against the policy. "warning": action is needed.
        "note": worth knowing.
    code : str
        Kind of finding, for programs.
    subject : str
        Name of the file, or path of the dataset or table.
    message : str
        The problem, as text.
    exit_code : int
        For an error: 1 damage, 3 a key that is not available, 4 something that could not be read. Else 0.
    """

    severity: str
    code: str
    subject: str
    message: str
    exit_code: int = 0

    def to_dict(self) -> dict[str, str]:
        """What JSON can hold of it."""
        return {name: getattr(self, name) for name in ("severity", "code", "subject", "message")}

    def __str__(self) -> str:
        return printable(f"{self.severity}: {self.code}: {self.message}")


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
class AuditReport(Report):
    """The result of :func:`ags1.audit.audit`. It contains no key and no data.

    Attributes
    ----------
    location : str
        What was audited.
    policy : str or None
        Name of the policy.
    policy_digest : str or None
        SHA-256 of the policy's file; None if it is from no file.
    made : dict of str to str
        When the audit began, in UTC ("created"), and the version of ags1 ("ags1").
    files : list of AuditedFile
    groups : list of Group
        The first has the files that belong to no dataset and no table.
    findings : list of Finding
        Errors first, then violations, warnings and notes; the first thousand of each code.
    counts : dict of str to int
        Number of findings of each code.
    totals : dict of str to (int, int)
        Files and bytes of each protection.
    exit_code : int
        1 something is damaged; else 4 something could not be read; else 3 a KMS refused a key; else 5 the policy is
        violated; else 0, without a policy too.
    """

    location: str
    policy: str | None = None
    policy_digest: str | None = None
    made: dict[str, str] = field(default_factory=made_by)
    files: list[AuditedFile] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    exit_code: int = 0

    def add(self, severity: str, code: str, subject: str, message: str, exit_code: int = 0) -> None:
        """Add a finding."""
        code_of_it = EXIT_UNPROTECTED if severity == "violation" else exit_code
        order = (EXIT_DATA, EXIT_IO, EXIT_KEY, EXIT_UNPROTECTED, EXIT_OK)
        self.exit_code = min(self.exit_code, code_of_it, key=order.index)
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= _KEPT:
            self.findings.append(Finding(severity, code, subject, message, code_of_it))

    def add_up(self) -> None:
        """Sum up the files, when all are known."""
        self.totals = dict.fromkeys(PROTECTIONS, (0, 0))
        for each in self.files:
            count, size = self.totals[each.protection]
            self.totals[each.protection] = count + 1, size + each.size
            group = self.groups[each.group]
            group.files += 1
            group.size += each.size

    def sort_findings(self) -> None:
        """Put the worst findings first."""
        self.findings.sort(key=lambda each: SEVERITIES.index(each.severity))

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
        """One line: whether the policy holds."""
        if self.policy is None:
            return "no policy was given: nothing was judged"
        number = sum(count for code, count in self.counts.items() if code in self._violated)
        if number:
            return f"policy {self.policy}: VIOLATED ({counted(number, 'violation')})"
        if self.exit_code:
            return f"policy {self.policy}: NOT SHOWN TO HOLD: some files could not be read, or are damaged"
        return f"policy {self.policy}: holds"

    @property
    def _violated(self) -> set[str]:
        return {each.code for each in self.findings if each.severity == "violation"}

    def _text(self) -> str:
        lines = [f"{self.location}: {counted(len(self.files), 'file')}, {size_text(self.size)}"]
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
        lines += map(str, self.findings[:_LISTED])
        rest = sum(self.counts.values()) - _LISTED
        if rest > 0:
            lines.append(f"and {counted(rest, 'more finding')}")
        return "\n".join(map(printable, [*lines, self.origin, self.verdict]))

    @property
    def origin(self) -> str:
        """One line: when, by which version of ags1, and with which policy."""
        digest = f", policy sha256 {self.policy_digest}" if self.policy_digest else ""
        return f"{self.made['created']}, ags1 {self.made['ags1']}{digest}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "location": self.location,
            "policy": self.policy,
            "policy_digest": self.policy_digest,
            **self.made,
            "exit_code": self.exit_code,
            "verdict": self.verdict,
            "totals": {name: {"files": count, "bytes": size} for name, (count, size) in self.totals.items()},
            "groups": [each.to_dict() for each in self.groups],
            "leaks": {name: len(files) for name, files in self.leaks.items()},
            "counts": dict(self.counts),
            "findings": [each.to_dict() for each in self.findings],
            "files": [each.to_dict() for each in self.files],
        }

    def html(self) -> str:
        """The report as one self-contained HTML page: a picture of the bytes, and a table to sort and filter."""
        from ags1.audit._html import page

        return page(self)
