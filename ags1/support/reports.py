"""The base of all reports: what an operation did, and what a verification or an audit found. None contains a key.

Attributes have locations as they are. Text, JSON values and ``repr()`` are without the secrets of URLs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass

from ags1.errors import (
    AuthenticationError,
    FormatError,
    KeyAccessError,
    LimitError,
    TruncatedError,
    UnsupportedError,
    without_secrets,
)
from ags1.support.exit_codes import EXIT_DATA, EXIT_IO, EXIT_KEY, EXIT_OK, EXIT_UNPROTECTED, EXIT_USAGE
from ags1.support.typing import Any
from ags1.support.words import counted, printable

ERROR, VIOLATION, WARNING, NOTE = SEVERITIES = ("error", "violation", "warning", "note")
AUTHENTIC, DAMAGED, NOT_PROTECTED, NOT_CHECKED = "authentic", "damaged", "not protected", "not checked"
_WORST_FIRST = (DAMAGED, NOT_CHECKED, NOT_PROTECTED)
_WORST_CODE_FIRST = (EXIT_DATA, EXIT_IO, EXIT_USAGE, EXIT_KEY, EXIT_UNPROTECTED, EXIT_OK)
# Findings of a code that are kept, and those that the text has: of errors and violations, and of others.
_KEPT = 1000
_LISTED, _LISTED_OTHERS = 20, 3

UNCHECKED = "no key was checked: the KMS URL has check=no, and a key that the service does not open is noticed too late"


class Record:
    """What a report has many of; a dataclass."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass keeps the `__repr__` that its class has itself.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Record.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return without_secrets(f"{type(self).__name__}({shown})")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return _fields(self)


class Report(Record):
    """A result with `ok`, `to_dict()` and `str()`; a dataclass.

    Attributes
    ----------
    keys_checked : bool
        False if the KMS URL has ``check=no``: nobody has opened the new wrapped keys again.
    """

    keys_checked = True

    @property
    def ok(self) -> bool:
        """Whether nothing failed. Always true where a failure is an exception."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return `ok` and all fields as JSON values."""
        return {"ok": self.ok, **_fields(self), **({} if self.keys_checked else {"keys_checked": False})}

    def __str__(self) -> str:
        """Return the report as text for people."""
        text = without_secrets(self._text())
        return text if self.keys_checked else f"{text}\n{UNCHECKED}"

    def _text(self) -> str:
        """Here a line for each field that is not empty."""
        shown = {name.replace("_", " "): value for name, value in _fields(self).items()}
        return "\n".join(
            printable(f"{name}: {', '.join(map(_shown, value)) if isinstance(value, list) else _shown(value)}")
            for name, value in shown.items()
            if value or type(value) is int
        )


@dataclass(frozen=True)
class Finding(Record):
    """One thing that a verification or an audit found.

    Attributes
    ----------
    severity : {"error", "violation", "warning", "note"}
        "error": damaged, or not checked. "violation": not protected, and not allowed. "warning": action is needed.
        "note": worth knowing, or allowed by the caller.
    code : str
        Kind of finding, for programs.
    subject : str
        What the finding is about: a file, column, key, snapshot or property.
    message : str
        The finding, in words.
    outcome : {"damaged", "not protected", "not checked", ""}
        What the finding makes of its subject.
    details : dict of str to value
        Numbers and names that belong to the finding.
    """

    severity: str
    code: str
    subject: str
    message: str
    outcome: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that found this."""
        if self.severity == NOTE or not self.outcome:
            return EXIT_OK
        if self.severity == WARNING:
            # The caller allowed it; the exit code says so.
            return EXIT_UNPROTECTED
        if self.outcome != NOT_CHECKED:
            return EXIT_DATA if self.outcome == DAMAGED else EXIT_UNPROTECTED
        is_of_key = bool({"key", "kek"} & set(self.code.split("-")))
        return EXIT_KEY if is_of_key else EXIT_USAGE if self.code == "unsupported" else EXIT_IO

    def __str__(self) -> str:
        return printable(without_secrets(f"{self.severity}: {self.code}: {self.message}"))


@dataclass
class FindingsReport(Report):
    """What a verification or an audit found; the base of both.

    Attributes
    ----------
    subject : str
        What was examined.
    checked : dict of str to int
        How much of it: files, blocks, modules, bytes ...
    findings : list of Finding
        The worst severity first; at most the first thousand of each code.
    counts : dict of str to int
        Number of all findings of each code.
    severities : dict of str to int
        Number of all findings of each severity.
    facts : dict of str to value
        What is known of this kind of subject alone; the function that returns the report describes it.
    exit_code : int
        What a command exits with: 1 damaged; else 4 not read; else 2 not supported; else 3 a key is missing; else 5 not
        protected; else 0.
    """

    subject: str
    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    severities: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    exit_code: int = EXIT_OK

    @property
    def ok(self) -> bool:
        """Whether there is neither an error nor a violation."""
        return not (self.severities.get(ERROR) or self.severities.get(VIOLATION))

    def add(self, finding: Finding) -> None:
        """Take in a finding."""
        code = finding.code
        self.exit_code = min(self.exit_code, finding.exit_code, key=_WORST_CODE_FIRST.index)
        self.severities[finding.severity] = self.severities.get(finding.severity, 0) + 1
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= _KEPT:
            self.findings.append(finding)

    def sort(self) -> None:
        """Put the worst findings first."""
        self.findings.sort(key=lambda each: SEVERITIES.index(each.severity))

    def having(self, code: str) -> list[Finding]:
        """The findings of one code."""
        return [each for each in self.findings if each.code == code]

    def lines(self) -> list[str]:
        """The findings as text: the first of each code, and how many more there are."""
        lines: list[str] = []
        for code in dict.fromkeys(each.code for each in self.findings):
            those = self.having(code)
            shown = those[: _LISTED if those[0].severity in (ERROR, VIOLATION) else _LISTED_OTHERS]
            lines += map(str, shown)
            if (rest := self.counts[code] - len(shown)) > 0:
                lines.append(f"{those[0].severity}: {code}: ... and {rest:,} more")
        return lines

    def _text(self) -> str:
        lines = [f"{self.subject}: {self.state()}", f"checked: {self.checked_text()}", *self.lines()]
        # Names of columns and files are a stranger's: none of them is to look like a line of the report.
        return "\n".join(
            [*map(printable, lines), *(str(each) for each in self.facts.values() if isinstance(each, Report))]
        )

    def checked_text(self, without: str = "") -> str:
        """How much was examined, in words."""
        found = {
            name.removesuffix("s").replace("_", " "): count for name, count in self.checked.items() if name != without
        }
        return ", ".join(counted(count, name) for name, count in found.items()) or "nothing"

    def state(self) -> str:
        """The outcome in words, with the number of errors and violations."""
        faults = (counted(self.severities[each], each) for each in (ERROR, VIOLATION) if self.severities.get(each))
        return "ok" if self.ok else f"NOT OK ({', '.join(faults)})"


@dataclass
class VerifyReport(FindingsReport):
    """What a verification of a stream, a Parquet file, a dataset or a table found.

    Attributes
    ----------
    checked : dict of str to int
        What was authenticated: files, blocks, modules; bytes as they are stored.
    outcome : {"authentic", "damaged", "not checked", "not protected"}
        The worst outcome of errors and violations, or if there are none, of what the caller allowed.
    """

    outcome: str = AUTHENTIC

    @property
    def consistent(self) -> bool:
        """Whether nothing that was checked contradicts anything else."""
        return not self.counts.get("contradiction")

    def add(self, finding: Finding) -> None:
        """Take in a finding."""
        was_ok = self.ok
        super().add(finding)
        if finding.severity in (ERROR, VIOLATION) or was_ok:
            self.outcome = worst_outcome((AUTHENTIC if was_ok and not self.ok else self.outcome, finding.outcome))

    def fault(self) -> str:
        """What makes the outcome, in one line: the first finding of each code, and how many more there are."""
        worst: dict[str, Finding] = {}
        for each in self.findings:
            if each.outcome == self.outcome and (self.ok or each.severity in (ERROR, VIOLATION)):
                worst.setdefault(each.code, each)
        more = ((each, self.counts[code] - 1) for code, each in worst.items())
        return without_secrets(
            "; ".join(f"{each.message}{f', and {rest:,} more' if rest else ''}" for each, rest in more)
        )

    def state(self) -> str:
        """The outcome in words, with the number of errors and violations."""
        if not self.ok:
            return super().state().replace("NOT OK", self.outcome.upper())
        return "all authentic" if self.outcome == AUTHENTIC else f"{self.outcome}, as allowed"


def worst_outcome(outcomes: Iterable[str]) -> str:
    """The outcome of several: "damaged" has precedence; "authentic" only if all of them are."""
    found = set(outcomes)
    return next((each for each in _WORST_FIRST if each in found), AUTHENTIC)


def judged(error: BaseException) -> tuple[str, str]:
    """The code and the outcome of a subject whose verification raised an error."""
    if isinstance(error, FileNotFoundError):
        return "missing", DAMAGED
    if isinstance(error, UnsupportedError):
        # What is not read here, or not allowed to be, may be whole.
        return "unsupported", NOT_CHECKED
    if isinstance(error, KeyAccessError):
        return "key-missing", NOT_CHECKED
    if isinstance(error, (AuthenticationError, FormatError, LimitError)):
        return "truncated" if isinstance(error, TruncatedError) else "damaged", DAMAGED
    return "unreadable", NOT_CHECKED


def _fields(report: Any) -> dict[str, Any]:
    return {each.name: _json(getattr(report, each.name)) for each in fields(report)}


def _json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, dict):
        return {_json(key): _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json(each) for each in value]
    if isinstance(value, str):
        return without_secrets(value) if "://" in value else value
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (int, float)) else str(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ": ".join(map(_shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    return f"{value:,}" if type(value) is int else str(value)
