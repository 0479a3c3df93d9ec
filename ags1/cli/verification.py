"""What every verification and audit says: a line or a record, its findings, and the exit code."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable

from ags1.cli.output import say, say_json, warn
from ags1.cli.report import in_time
from ags1.cli.transfer import recorded
from ags1.errors import AuthenticationError, KeyAccessError, without_secrets
from ags1.support.exit_codes import EXIT_DATA, EXIT_KEY, EXIT_UNPROTECTED, NotProtected
from ags1.support.reports import NOTE, WARNING, FindingsReport, VerifyReport
from ags1.support.typing import Any
from ags1.support.words import made_by

AUDIT_FIELDS = (
    "ok, subject, exit_code, checked, findings (severity, code, subject, message, outcome, details), counts, "
    "severities, facts, seconds, created, ags1, error"
)
VERIFY_FIELDS = f"outcome (authentic, damaged, not checked, not protected), {AUDIT_FIELDS}"
_ERRORS = {EXIT_DATA: AuthenticationError, EXIT_KEY: KeyAccessError, EXIT_UNPROTECTED: NotProtected}


def record_of(report: FindingsReport, started: float) -> dict[str, Any]:
    """What a machine is told of a report."""
    return {**report.to_dict(), "seconds": round(time.monotonic() - started, 6), **made_by()}


def verified(report: VerifyReport, started: float) -> tuple[str, dict[str, Any]]:
    """A line and a record of one of many files. Raises an error with the record if the report is not ok."""
    record = record_of(report, started)
    if not report.ok:
        text = f"{report.subject}: {report.outcome}: {report.fault().removeprefix(f'{report.subject}: ')}"
        raise recorded(_ERRORS[report.exit_code](text), record)
    return _line(report, started), record


def say_report(
    said: Namespace, report: FindingsReport, started: float, more: str = "", advice: Iterable[str] = ()
) -> int:
    """Say what a verification or an audit of one subject found, `more` in its line; return the exit code."""
    if said.json:
        say_json({**record_of(report, started), "error": None if report.ok else report.state()})
        return report.exit_code
    beside = [line for each in advice for line in each.split("\n")]
    for each in report.lines():
        if each.startswith(NOTE):
            beside.insert(0, each)
        elif not said.quiet or not each.startswith(WARNING):
            warn(f"ags1: {each}")
    if not said.quiet:
        say(_line(report, started, more))
        for each in beside:
            say(f"  {each}")
    return report.exit_code


def _line(report: FindingsReport, started: float, more: str = "") -> str:
    parts = [report.checked_text(without="bytes")]
    if size := report.checked.get("bytes", 0):
        parts.append(in_time(size, time.monotonic() - started))
    parts += [more] if more else []
    return without_secrets(f"{report.subject}: {', '.join(parts)}: {report.state()}")
