"""``ags1 parquet verify``: every module authenticated, and what fails named."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable

from ags1.cli.command import OnSpark, Positional
from ags1.cli.output import say, say_json, warn, warn_some
from ags1.cli.parquet.files import CLUSTER, READING_ON_SPARK, SECRETS, parquet_files
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, parquet_command
from ags1.cli.paths import Job
from ags1.cli.report import in_time
from ags1.cli.spelling import in_options
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
from ags1.support.words import counted, listed, made_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.verify.verification import ParquetVerifyReport

_SHOWN = 3


@parquet_command(
    decryption="PARQUET-DECRYPTION",
    demands="REQUIREMENTS",
    expected="expect expect-prefix expect-from",
    files=Positional("FILE...", "Parquet file, glob or directory"),
    work="WORK",
    needs="(--footer-key KEY | --kms URL | ...)",
    fields="file, outcome, seconds, created, ags1, error, and what ags1.parquet.ParquetVerifyReport has; behind "
    "several files: total, outcome, outcomes, missing, unexpected",
    spark=OnSpark(
        "verify_parquet",
        {"source": "directory or file, or a URL"},
        f"workers-kms transfer-key-id {READING_ON_SPARK} REQUIREMENTS expect expect-prefix CHOICE {CLUSTER}",
        SECRETS,
        on_error="collect",
    ),
)
def verify(decryption: Namespace, demands: Namespace, expected: Namespace, files: list[str], work: Namespace) -> int:
    r"""A file is authentic, damaged or not protected; so are all of them together. Exit code 1 if anything is damaged
    or missing; 3 if a key is missing; 5 if anything is not protected: no footer is authenticated, or pages
    carry no tag, as those of AES_GCM_CTR_V1. In a directory, files that are not Parquet are left out.

    sets of files:
      With --expect, --expect-prefix or --expect-from, the files are to be those
      and no others: what is missing is named, and what is there and should not be.
      Names are those below a directory that is given. A file that was renamed has
      its own name only where --aad-prefix '{path}' binds it; --expect-prefix goes
      by the prefixes that the footers are authenticated with.

    examples:
      ags1 parquet verify vault/ --kms local:keys.json \
          --require-encrypted ssn,salary --expect 'part-{0..99}.parquet'
      ags1 parquet verify vault/ --footer-key file:f.key \
          --expect-prefix 'people-2027.part{0..99}'
    """
    from ags1.parquet.verify.verification import verify_file

    wanted = _expected(expected.expected, expected.expect_from)
    found = parquet_files(files, work)
    jobs = [Job(path, "", name) for path, name in found]
    reports: list[ParquetVerifyReport] = []
    outcomes: list[str] = []
    unexpected: list[tuple[str, str]] = []
    with Clients() as clients:
        reading = ReadingOptions(decryption, KeyReferences(), clients)

        def take(job: Job, report: ParquetVerifyReport | None) -> None:
            if wanted is None:
                return
            checked = report is not None and not report.failure_count
            why = wanted.take(job.name, None if report is None else report.aad_prefix, checked=checked)
            if why is not None:
                unexpected.append((job.source, why))

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            started = time.monotonic()
            config = reading.config(job.source, job.name) if reading.named or decryption.allow_plaintext else None
            try:
                report = verify_file(job.source, config, threads=work.threads, progress=progress, **vars(demands))
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
            work, ("verifying", "verified"), jobs, one, lambda job: {"file": job.source}, job_count=1, name_all=True
        )
    if not work.json and not work.quiet and (work.verbose or len(jobs) == 1):
        for report in reports:
            for line in str(report).split("\n")[1 if len(jobs) == 1 else 0 :]:
                say(f"  {in_options(line)}")
    elif not work.json and not work.quiet:
        for report in reports:
            for problem in report.problems[:_SHOWN]:
                say(f"  problem: {problem}")
    # Those that were not tried any more.
    outcomes += [NOT_CHECKED] * (len(jobs) - len(outcomes))
    missing = [] if wanted is None else wanted.missing()
    if len(jobs) > 1 and not work.json and not work.quiet and not (wanted and wanted.by_prefix):
        count = sum(each.may_be_exchanged for each in reports)
        if count:
            warn(f"ags1: warning: {counted(count, 'file')}: {in_options(NOT_COMPARED)}, such as 'people/{{path}}'")
        if count := sum(each.has_no_prefix for each in reports):
            say(f"{counted(count, 'file')}: {NO_PREFIX}")
    if len(jobs) > 1 or wanted is not None:
        _say_total(work, outcomes, missing, unexpected)
    return EXIT_DATA if missing or unexpected else code


def _expected(given: list[Any] | None, source: str | None) -> ExpectedFiles | None:
    from pathlib import Path

    if source is not None and given:
        raise UsageError("--expect-from names all files: leave --expect and --expect-prefix out")
    try:
        if source is not None:
            return ExpectedFiles(Path(source))
        return ExpectedFiles(given) if given else None
    except ValueError as error:
        raise UsageError(str(error).replace("expected", "--expect", 1)) from None


def _say_total(work: Namespace, outcomes: list[str], missing: list[str], unexpected: list[tuple[str, str]]) -> None:
    outcome = DAMAGED if missing or unexpected else worst_outcome(outcomes)
    counts = {each: outcomes.count(each) for each in (AUTHENTIC, DAMAGED, NOT_PROTECTED, NOT_CHECKED)}
    if work.json:
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
    if not work.quiet:
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
