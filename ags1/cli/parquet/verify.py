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
from ags1.cli.spelling import in_options
from ags1.cli.transfer import recorded, work_through
from ags1.cli.verification import VERIFY_FIELDS, verified
from ags1.parquet.verify.expected import ExpectedFiles
from ags1.parquet.verify.report import NO_PREFIX, PREFIX_NOT_COMPARED, PREFIX_TEXTS
from ags1.support.exit_codes import EXIT_DATA, UsageError
from ags1.support.reports import AUTHENTIC, DAMAGED, NOT_CHECKED, NOT_PROTECTED, WARNING, judged, worst_outcome
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.support.reports import VerifyReport


@parquet_command(
    decryption="PARQUET-DECRYPTION",
    demands="REQUIREMENTS",
    expected="expect expect-prefix expect-from",
    files=Positional("FILE...", "Parquet file, glob or directory"),
    work="WORK",
    needs="(--footer-key KEY | --kms URL | ...)",
    fields=f"{VERIFY_FIELDS}; behind several files: total, outcome, outcomes, missing, unexpected",
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
    reports: list[VerifyReport] = []
    outcomes: list[str] = []
    unexpected: list[tuple[str, str]] = []
    with Clients() as clients:
        reading = ReadingOptions(decryption, KeyReferences(), clients)

        def take(job: Job, outcome: str, report: VerifyReport | None = None) -> None:
            outcomes.append(outcome)
            prefix = None if report is None else report.facts["aad_prefix"]
            checked = report is not None and outcome != DAMAGED
            why = None if wanted is None else wanted.take(job.name, prefix, checked=checked)
            if why is not None:
                unexpected.append((job.source, why))

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            started = time.monotonic()
            config = reading.config(job.source, job.name) if reading.named or decryption.allow_plaintext else None
            try:
                report = verify_file(job.source, config, threads=work.threads, progress=progress, **vars(demands))
            except Exception as error:
                code, outcome = judged(error)
                take(job, outcome)
                recorded(error, {"outcome": outcome, "counts": {code: 1}})
                raise
            reports.append(report)
            take(job, report.outcome, report)
            return verified(report, started)

        code = work_through(
            work, ("verifying", "verified"), jobs, one, lambda job: {"subject": job.source}, job_count=1, name_all=True
        )
    if not work.json and not work.quiet:
        for report in reports:
            # Of many files, what is to be acted on, unless all is asked for.
            for line in report.lines():
                if work.verbose or len(jobs) == 1 or line.startswith(WARNING):
                    say(f"  {in_options(line)}")
    # Those that were not tried any more.
    outcomes += [NOT_CHECKED] * (len(jobs) - len(outcomes))
    missing = [] if wanted is None else wanted.missing()
    if len(jobs) > 1 and not work.json and not work.quiet and not (wanted and wanted.by_prefix):
        if count := sum(PREFIX_NOT_COMPARED in each.counts for each in reports):
            text = in_options(PREFIX_TEXTS[PREFIX_NOT_COMPARED])
            warn(f"ags1: warning: {counted(count, 'file')}: {text}, such as 'people/{{path}}'")
        if count := sum(NO_PREFIX in each.counts for each in reports):
            say(f"{counted(count, 'file')}: {PREFIX_TEXTS[NO_PREFIX]}")
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
