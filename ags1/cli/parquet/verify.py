"""``ags1 parquet verify``: every module authenticated, and what fails named."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ags1.cli import say, say_json, warn, warn_some
from ags1.cli.parquet.files import parquet_files
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions
from ags1.cli.paths import Job
from ags1.cli.report import in_time
from ags1.cli.transfer import recorded, work_through
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.parquet.verify.expected import ExpectedFiles
from ags1.parquet.verify.report import (
    AUTHENTIC,
    DAMAGED,
    NO_PREFIX,
    NOT_CHECKED,
    NOT_COMPARED,
    NOT_PROTECTED,
    SIGNATURE,
    outcome_of,
    worst_outcome,
)
from ags1.support.exit_codes import EXIT_DATA, NotProtected, UsageError
from ags1.support.remedies import in_options
from ags1.support.words import counted, listed, made_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.verify.verification import ParquetVerifyReport

_SHOWN = 3


def verify(options: argparse.Namespace) -> int:
    from ags1.parquet.verify.verification import verify_file

    expected = _expected(options)
    found = parquet_files(options)
    jobs = [Job(path, "", name) for path, name in found]
    reports: list[ParquetVerifyReport] = []
    outcomes: list[str] = []
    unexpected: list[tuple[str, str]] = []
    with Clients() as clients:
        reading = ReadingOptions(options, KeyReferences(), clients)

        def take(job: Job, report: ParquetVerifyReport | None) -> None:
            if expected is None:
                return
            checked = report is not None and not report.failure_count
            why = expected.take(job.name, None if report is None else report.aad_prefix, checked=checked)
            if why is not None:
                unexpected.append((job.source, why))

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            started = time.monotonic()
            config = reading.config(job.source, job.name) if reading.named or options.allow_plaintext else None
            try:
                report = verify_file(
                    job.source,
                    config,
                    missing_keys=options.missing_keys,
                    require_encrypted=options.require_encrypted,
                    allow_unauthenticated_pages=options.allow_unauthenticated_pages,
                    threads=options.threads,
                    progress=progress,
                )
            except Exception as error:
                outcomes.append(outcome_of(error))
                take(job, None)
                recorded(error, {"outcome": outcome_of(error)})
                raise
            seconds = time.monotonic() - started
            reports.append(report)
            outcomes.append(report.outcome)
            take(job, report)
            record = {**report.to_dict(), "seconds": round(seconds, 6), **made_by()}
            if report.outcome == DAMAGED:
                raise recorded(AuthenticationError(_failure(job.source, report)), record)
            if report.outcome == NOT_CHECKED:
                raise recorded(KeyAccessError(_missing(job.source, report)), record)
            if not report.ok:
                raise recorded(NotProtected(_unprotected(job.source, report)), record)
            return _line(job.source, report, seconds), record

        code = work_through(
            options, ("verifying", "verified"), jobs, one, lambda job: {"file": job.source}, job_count=1, name_all=True
        )
    if not options.json and not options.quiet and (options.verbose or len(jobs) == 1):
        for report in reports:
            for line in str(report).split("\n")[1 if len(jobs) == 1 else 0 :]:
                say(f"  {in_options(line)}")
    elif not options.json and not options.quiet:
        for report in reports:
            for problem in report.problems[:_SHOWN]:
                say(f"  problem: {problem}")
    # Those that were not tried any more.
    outcomes += [NOT_CHECKED] * (len(jobs) - len(outcomes))
    missing = [] if expected is None else expected.missing()
    if len(jobs) > 1 and not options.json and not options.quiet and not (expected and expected.by_prefix):
        count = sum(each.may_be_exchanged for each in reports)
        if count:
            warn(f"ags1: warning: {counted(count, 'file')}: {in_options(NOT_COMPARED)}, such as 'people/{{path}}'")
        if count := sum(each.has_no_prefix for each in reports):
            say(f"{counted(count, 'file')}: {NO_PREFIX}")
    if len(jobs) > 1 or expected is not None:
        _say_total(options, outcomes, missing, unexpected)
    return EXIT_DATA if missing or unexpected else code


def _expected(options: argparse.Namespace) -> ExpectedFiles | None:
    from pathlib import Path

    given = options.expected
    if options.expect_from is not None and given:
        raise UsageError("--expect-from names all files: leave --expect and --expect-prefix out")
    try:
        if options.expect_from is not None:
            return ExpectedFiles(Path(options.expect_from))
        return ExpectedFiles(given) if given else None
    except ValueError as error:
        raise UsageError(str(error).replace("expected", "--expect", 1)) from None


def _say_total(
    options: argparse.Namespace, outcomes: list[str], missing: list[str], unexpected: list[tuple[str, str]]
) -> None:
    outcome = DAMAGED if missing or unexpected else worst_outcome(outcomes)
    counts = {each: outcomes.count(each) for each in (AUTHENTIC, DAMAGED, NOT_PROTECTED, NOT_CHECKED)}
    if options.json:
        total = {
            "total": len(outcomes),
            "outcome": outcome,
            "outcomes": counts,
            "missing": missing,
            "unexpected": [{"file": path, "reason": why} for path, why in unexpected],
            "error": None if outcome == AUTHENTIC else outcome,
        }
        say_json(total)
        return
    absent = [f"missing: {each} is expected, and not there" for each in missing]
    warn_some(absent, "missing: {:,} more (--json names them all)")
    others = [f"not expected: {path}: {why}" for path, why in unexpected]
    warn_some(others, "not expected: {:,} more (--json names them all)")
    if not options.quiet:
        parts = [f"{count:,} {each}" for each, count in counts.items() if count]
        parts += [f"{len(missing):,} missing"] if missing else []
        parts += [f"{len(unexpected):,} not expected"] if unexpected else []
        say(f"total: {outcome} ({', '.join(parts)})")


def _line(path: str, report: ParquetVerifyReport, seconds: float) -> str:
    what = counted(sum(report.modules.values()), "module")
    line = f"{path}: {what} authentic, {in_time(report.bytes, seconds)}"
    if report.outcome != AUTHENTIC:
        line += f"; {report.outcome}, as allowed: {'; '.join(report.unprotected())}"
    names = report.plaintext_columns
    if names and report.footer_authenticated:
        line += f"; plaintext columns: {listed(names, _SHOWN)}"
    return line


def _unprotected(path: str, report: ParquetVerifyReport) -> str:
    ways = []
    if not (report.footer_authenticated or report.plaintext_allowed):
        ways.append("--allow-plaintext")
    if not report.unauthenticated_pages_allowed and (
        set(report.unauthenticated) - {SIGNATURE} or report.plaintext_levels
    ):
        ways.append("--allow-unauthenticated-pages")
    hint = f" ({' and '.join(ways)} lets that pass)" if ways and not report.unprotected_columns else ""
    reasons = in_options("; ".join(report.unprotected()))
    return f"{path}: not protected: {reasons}{hint}"


def _failure(path: str, report: ParquetVerifyReport) -> str:
    count = report.failure_count
    some = "; ".join(str(each) for each in report.failures[:_SHOWN])
    more = f"; and {count - _SHOWN:,} more (--json lists them)" if count > _SHOWN else ""
    return f"{path}: {counted(count, 'module')} failed: {some}{more}"


def _missing(path: str, report: ParquetVerifyReport) -> str:
    names = sorted(report.missing_keys)
    parts = ["the signature of the footer"] if report.footer_key_missing else []
    if names:
        parts.append(f"column{'s' if len(names) > 1 else ''} {listed(names, _SHOWN)}")
    return f"{path}: not checked, because a key is missing: {', '.join(parts)} (--missing-keys drop lets that pass)"
