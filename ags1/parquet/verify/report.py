"""What a verification of a Parquet file meets, as findings of its report."""

from __future__ import annotations

from dataclasses import replace

from ags1.parquet.verify.expected import ExpectedFiles
from ags1.support.arguments import spelled
from ags1.support.reports import (
    DAMAGED,
    ERROR,
    NOT_CHECKED,
    NOT_PROTECTED,
    NOTE,
    VIOLATION,
    WARNING,
    Finding,
    VerifyReport,
    judged,
)
from ags1.support.typing import Any
from ags1.support.words import counted, listed, with_name

PREFIX_NOT_COMPARED, NO_PREFIX = "prefix-not-compared", "no-prefix"
NOT_THERE, NOT_EXPECTED = OF_SET = ("not-there", "not-expected")
SIGNATURE = "footer signature"
_LISTED = 20


def prefix_text(code: str) -> str:
    """What PREFIX_NOT_COMPARED or NO_PREFIX means."""
    if code == NO_PREFIX:
        return "without an AAD prefix, another file under the same keys may be in the place of a file"
    return (
        "the AAD prefix that is stored in a file was not compared with one for its name, so another file under the "
        f"same keys may be in its place; {spelled('aad_prefix')} says which one is expected"
    )


def report_of_set(where: str) -> VerifyReport:
    """The report of several files, without any; its `facts` have the number of files of each outcome."""
    return VerifyReport(where, dict.fromkeys(("files", "modules", "bytes"), 0), facts={"outcomes": {}})


def add_file(
    total: VerifyReport, name: str, found: VerifyReport | Exception, wanted: ExpectedFiles | None, subject: str = ""
) -> None:
    """Take the report of a file, or why there is none, into that of a set; `wanted` are the files that belong to it.

    `subject` is what findings call the file, if that is not its name in the set.
    """
    subject = subject or name
    prefix, checked = None, False
    if isinstance(found, Exception):
        code, outcome = judged(found)
        total.add(Finding(ERROR, code, subject, with_name(subject, str(found)), outcome))
    else:
        outcome = found.outcome
        prefix, checked = found.facts["aad_prefix"], outcome != DAMAGED
        total.checked["files"] += found.ok
        for what, count in found.checked.items():
            total.checked[what] += count
        for finding in found.findings:
            total.add(replace(finding, subject=subject, message=with_name(subject, finding.message)))
    outcomes = total.facts["outcomes"]
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
    why = None if wanted is None else wanted.take(name, prefix, checked=checked)
    if why is not None:
        total.add(Finding(ERROR, NOT_EXPECTED, subject, f"{subject} is not expected: {why}", DAMAGED))


def add_missing(total: VerifyReport, wanted: ExpectedFiles | None) -> None:
    """Report the files of the set that are not there."""
    for name in [] if wanted is None else wanted.missing():
        total.add(Finding(ERROR, NOT_THERE, name, f"{name} is expected, and not there", DAMAGED))
    total.sort()


class FileTally:
    """Counts what a verification meets in a file, and makes its report.

    Attributes
    ----------
    report : VerifyReport
        With the findings of modules; :meth:`finish` adds those about the whole file.
    untagged : dict of str to int
        How many pages of each kind have no tag.
    plaintext_levels, plaintext_pages : int
        Encrypted pages whose levels are in plaintext; pages that are not encrypted.
    missing_keys, unprotected_columns : dict of str to str
        Columns that could not be checked; columns that are not encrypted as the caller expects; and the reasons.
    is_signature_skipped, is_footer_key_missing : bool
        Why a signature was not checked.
    """

    def __init__(
        self, *, drops_missing: bool, allows_plaintext: bool, allows_untagged: bool, prefix: bytes | None
    ) -> None:
        self._drops_missing = drops_missing
        self._allows_plaintext, self._allows_untagged = allows_plaintext, allows_untagged
        self._is_prefix_given = prefix is not None
        self.where = ""
        self.modules: dict[str, int] = {}
        self.columns: dict[str, str] = {}
        self.untagged: dict[str, int] = {}
        self.plaintext_levels = 0
        self.plaintext_pages = 0
        self.missing_keys: dict[str, str] = {}
        self.unprotected_columns: dict[str, str] = {}
        self.is_signature_skipped = False
        self.is_footer_key_missing = False
        self.facts: dict[str, Any] = {
            "size": 0,
            "footer": "plaintext",
            "algorithm": None,
            "signature_verified": None,
            "row_groups": 0,
            "modules": self.modules,
            "columns": self.columns,
            "unchecked_bytes": 0,
            "checksums": 0,
            "aad_prefix": None,
        }
        self.report = VerifyReport("the file", {"modules": 0, "bytes": 0}, facts=self.facts)

    def name(self, name: str | None, size: int) -> None:
        """Take in the name and size of the file."""
        self.facts["size"] = size
        if name:
            self.report.subject, self.where = name, f"{name}: "

    def count(self, kind: str, number: int = 1) -> None:
        """Count modules of a kind that were authenticated."""
        self.modules[kind] = self.modules.get(kind, 0) + number
        self.report.checked["modules"] += number

    def count_bytes(self, size: int) -> None:
        """Count bytes of the file that were checked."""
        self.report.checked["bytes"] += size

    def fail(self, module: str, error: Exception, path: tuple[str, ...] | None = None, **place: Any) -> None:
        """Take in a module that failed, in a column or elsewhere; `place` without what is None."""
        place = {name: value for name, value in place.items() if value is not None}
        unchecked = place.get("unchecked", 0)
        self.facts["unchecked_bytes"] += unchecked
        text = str(error).removeprefix(self.where)
        text += f" (offset {place['offset']})" if "offset" in place else ""
        text += f"; {unchecked} bytes of pages could not be checked" if unchecked else ""
        details = {"module": module, "error": type(error).__name__, **place}
        self._add(ERROR, "damaged", self._subject(path), text, DAMAGED, details)

    def contradict(self, module: str, text: str, path: tuple[str, ...] | None = None, **place: Any) -> None:
        """Take in what contradicts something else in the file, in a column or elsewhere."""
        text = text.replace(self.where, "") if self.where else text
        self._add(WARNING, "contradiction", self._subject(path), text, details={"module": module, **place})

    def _subject(self, path: tuple[str, ...] | None) -> str:
        return self.report.subject if path is None else ".".join(path)

    def _add(
        self,
        severity: str,
        code: str,
        subject: str,
        text: str,
        outcome: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        self.report.add(Finding(severity, code, subject, text, outcome, details or {}))

    def finish(self) -> VerifyReport:
        """Add what is said of the whole file, and return the report."""
        report = self.report
        self._judge_keys()
        self._judge_footer()
        severity = NOTE if self._allows_untagged else VIOLATION
        allow = f"{spelled('allow_unauthenticated_pages', True)} accepts that"
        if self.untagged:
            count = counted(sum(self.untagged.values()), "page")
            what = f"{count} without a tag ({self.facts['algorithm']})"
            text = f"{what}: changes of their contents cannot be noticed; {allow}"
            self._add(severity, "pages-without-tags", report.subject, text, NOT_PROTECTED, dict(self.untagged))
        if self.plaintext_levels:
            text = (
                f"the levels of {counted(self.plaintext_levels, 'version 2 page')} without a tag: they are in "
                f"plaintext before the module, as parquet-java writes them, and tell which values are null; {allow}"
            )
            details = {"pages": self.plaintext_levels}
            self._add(severity, "levels-without-tags", report.subject, text, NOT_PROTECTED, details)
        for name, what in sorted(self.unprotected_columns.items()):
            self._add(VIOLATION, "column-unprotected", name, f"column {name} {what}", NOT_PROTECTED)
        if self.plaintext_pages:
            names = [name for name, protection in self.columns.items() if protection in ("plaintext", "mixed")]
            text = (
                f"{counted(len(names), 'column')} not encrypted ({listed(names, _LISTED)}): of "
                f"{counted(self.plaintext_pages, 'page')} only the structure and {self.facts['checksums']:,} CRCs were "
                "checked"
            )
            self._add(
                NOTE, "plaintext-columns", report.subject, text, "", {"columns": names, "pages": self.plaintext_pages}
            )
        if self.facts["aad_prefix"] is None and self._is_footer_authenticated:
            self._add(NOTE, NO_PREFIX, report.subject, prefix_text(NO_PREFIX))
        elif self.facts["aad_prefix"] is not None and not self._is_prefix_given:
            self._add(NOTE, PREFIX_NOT_COMPARED, report.subject, prefix_text(PREFIX_NOT_COMPARED))
        report.sort()
        return report

    @property
    def _is_footer_authenticated(self) -> bool:
        return "footer" in self.modules or SIGNATURE in self.modules

    def _judge_keys(self) -> None:
        severity = WARNING if self._drops_missing else ERROR
        missing = {name: with_name(f"column {name}", why) for name, why in sorted(self.missing_keys.items())}
        if self.is_footer_key_missing:
            missing = {"footer": "the key of the footer is missing, so its signature could not be checked", **missing}
        for name, why in missing.items():
            text = f"{why}; {spelled('missing_keys', 'drop')} accepts that"
            self._add(severity, "key-missing", name, text, NOT_CHECKED)

    def _judge_footer(self) -> None:
        """Say that no tag of the footer was verified, unless a finding says that one is wrong."""
        wrong = {each.details["module"] for each in self.report.having("damaged")} & {"footer", SIGNATURE}
        if self._is_footer_authenticated or wrong:
            return
        why = "the file is not encrypted and not signed: whoever can write to it can change all of it unnoticed"
        if self.is_footer_key_missing:
            why = "the key of its signature is missing"
        elif self.is_signature_skipped:
            why = f"its signature was not verified, as {spelled('check_footer_integrity', False)} says"
        severity = NOTE if self._allows_plaintext else VIOLATION
        text = f"no footer is authenticated: {why}; {spelled('allow_plaintext', True)} accepts that"
        self._add(severity, "footer-not-authenticated", self.report.subject, text, NOT_PROTECTED)
