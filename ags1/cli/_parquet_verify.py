"""``ags1 parquet verify``: every module authenticated, and what fails named."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from ags1.cli import printable, say
from ags1.cli._parquet import parquet_files
from ags1.cli._parquet_keys import Clients, KeyReferences, Reading, in_options
from ags1.cli._paths import Job
from ags1.cli._report import in_time
from ags1.cli._transfer import work_through
from ags1.errors import AuthenticationError, KeyAccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet.verify import VerifyReport

__all__ = ["verify"]

_SHOWN = 3


class _NotAuthentic(AuthenticationError):
    """A file in which modules failed, with what a machine is told of it."""

    def __init__(self, message: str, record: dict[str, Any]) -> None:
        super().__init__(message)
        self.record = record


class _NotChecked(KeyAccessError):
    """A file that could not be checked for want of a key, with what a machine is told of it."""

    def __init__(self, message: str, record: dict[str, Any]) -> None:
        super().__init__(message)
        self.record = record


def verify(options: argparse.Namespace) -> int:
    """Run ``ags1 parquet verify``."""
    from ags1.parquet.verify import verify_file

    found = parquet_files(options.files)
    jobs = [Job(path, "", name) for path, name in found]
    reports: list[VerifyReport] = []
    with Clients() as clients:
        reading = Reading(options, KeyReferences(), clients)

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            started = time.monotonic()
            config = reading.config(job.source, job.name) if reading.named or options.allow_plaintext else None
            with in_options():
                report = verify_file(
                    job.source,
                    config,
                    missing_keys=options.missing_keys,
                    threads=options.threads,
                    progress=progress,
                )
            seconds = time.monotonic() - started
            reports.append(report)
            record = {**report.to_dict(), "seconds": round(seconds, 6)}
            if report.failure_count:
                raise _NotAuthentic(_failure(job.source, report), record)
            if not report.ok:
                raise _NotChecked(_missing(job.source, report), record)
            count = sum(report.modules.values())
            what = "1 module" if count == 1 else f"{count:,} modules"
            return f"{job.source}: {what} authentic, {in_time(report.bytes, seconds)}", record

        code = work_through(
            options, ("verifying", "verified"), jobs, one, lambda job: {"file": job.source}, job_count=1
        )
    if not options.json and not options.quiet and (options.verbose or len(jobs) == 1):
        for report in reports:
            for line in report.summary().split("\n")[1 if len(jobs) == 1 else 0 :]:
                say(printable(f"  {line}"))
    elif not options.json and not options.quiet:
        for report in reports:
            for problem in report.problems[:_SHOWN]:
                say(printable(f"  problem: {problem}"))
    return code


def _failure(path: str, report: VerifyReport) -> str:
    count = report.failure_count
    some = "; ".join(str(each) for each in report.failures[:_SHOWN])
    more = f"; and {count - _SHOWN:,} more (--json lists them)" if count > _SHOWN else ""
    what = "1 module" if count == 1 else f"{count:,} modules"
    return f"{path}: {what} failed: {some}{more}"


def _missing(path: str, report: VerifyReport) -> str:
    names = sorted(report.missing_keys)
    parts = ["the signature of the footer"] if report.footer_key_missing else []
    if names:
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        parts.append(f"column{'s' if len(names) > 1 else ''} {shown}")
    return f"{path}: not checked for want of a key: {', '.join(parts)} (--missing-keys skip lets that pass)"
