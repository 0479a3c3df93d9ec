"""``ags1 parquet verify``: every module authenticated, and what fails named; ``inspect``: what is protected."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable

from ags1.cli.command import OnSpark, Positional
from ags1.cli.output import say, say_json, warn
from ags1.cli.parquet.files import CLUSTER, READING_ON_SPARK, SECRETS, parquet_files
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, parquet_command
from ags1.cli.paths import Job
from ags1.cli.report import Reporter
from ags1.cli.transfer import recorded, work_through
from ags1.cli.verification import VERIFY_FIELDS, verified
from ags1.errors import Ags1Error, KeyAccessError
from ags1.parquet.structure.inspection import Inspection
from ags1.parquet.verify.expected import ExpectedFiles
from ags1.parquet.verify.report import (
    NO_PREFIX,
    OF_SET,
    PREFIX_NOT_COMPARED,
    add_file,
    add_missing,
    prefix_text,
    report_of_set,
)
from ags1.support.exit_codes import EXIT_DATA, UsageError, describe, exit_code
from ags1.support.reports import AUTHENTIC, WARNING, judged
from ags1.support.words import counted, with_name

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
    fields=f'{VERIFY_FIELDS}; behind several files the same of all, with the subject "total"',
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
    total = report_of_set("total")
    tried = 0
    with Clients() as clients:
        reading = ReadingOptions(decryption, KeyReferences(), clients)

        def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
            nonlocal tried
            tried += 1
            started = time.monotonic()
            config = reading.config(job.source, job.name) if reading.named or decryption.allow_plaintext else None
            try:
                report = verify_file(job.source, config, threads=work.threads, progress=progress, **vars(demands))
            except Exception as error:
                add_file(total, job.name, error, wanted, job.source)
                code, outcome = judged(error)
                recorded(error, {"outcome": outcome, "counts": {code: 1}})
                raise
            reports.append(report)
            add_file(total, job.name, report, wanted, job.source)
            return verified(report, started)

        code = work_through(
            work, ("verifying", "verified"), jobs, one, lambda job: {"subject": job.source}, job_count=1, name_all=True
        )
    for job in jobs[tried:]:
        # A service refused every key.
        add_file(total, job.source, KeyAccessError("it was not tried"), None)
    add_missing(total, wanted)
    is_alone = len(jobs) == 1 and wanted is None
    if not is_alone and work.json:
        say_json({**total.to_dict(), "error": None if total.outcome == AUTHENTIC else total.outcome})
    elif not work.json:
        _tell(work, reports, total, says_prefixes=len(jobs) > 1)
        if not (is_alone or work.quiet):
            parts = [f"{count:,} {each}" for each, count in sorted(total.facts["outcomes"].items())]
            parts += [f"{total.counts[each]:,} {each.replace('-', ' ')}" for each in OF_SET if each in total.counts]
            say(f"total: {total.outcome} ({', '.join(parts)})")
    return EXIT_DATA if total.counts.keys() & {*OF_SET} else code


def _tell(work: Namespace, reports: list[VerifyReport], total: VerifyReport, *, says_prefixes: bool) -> None:
    """Say what the files have beside their outcome, and what is wrong with the set of them."""
    for line in total.lines():
        if line.split(": ")[1] in OF_SET:
            warn(f"ags1: {line}")
    if work.quiet:
        return
    is_alone = sum(total.facts["outcomes"].values()) == 1
    for report in reports:
        # Of many files, what is to be acted on, unless all is asked for.
        for line in report.lines():
            if work.verbose or is_alone or line.startswith(WARNING):
                say(f"  {line}")
    if says_prefixes and PREFIX_NOT_COMPARED in total.counts:
        count = counted(total.counts[PREFIX_NOT_COMPARED], "file")
        text = prefix_text(PREFIX_NOT_COMPARED)
        warn(f"ags1: warning: {count}: {text}, such as 'people/{{path}}'")
    if says_prefixes and NO_PREFIX in total.counts:
        say(f"{counted(total.counts[NO_PREFIX], 'file')}: {prefix_text(NO_PREFIX)}")


def _expected(given: list[Any] | None, source: str | None) -> ExpectedFiles | None:
    from pathlib import Path

    if source is not None and given:
        raise UsageError("--expect-from names all files: leave --expect and --expect-prefix out")
    if source is not None:
        return ExpectedFiles(Path(source))
    return ExpectedFiles(given) if given else None


@parquet_command(
    decryption="PARQUET-DECRYPTION",
    files=Positional("FILE...", "Parquet file, glob or directory"),
    said="LIST",
    fields="file, what ags1.parquet.Inspection has, error",
)
def inspect(decryption: Namespace, files: list[str], said: Namespace) -> int:
    """Without keys, what anybody can see; with them, all of it. Nothing but the footer is authenticated: that takes
    `ags1 parquet verify`.

    examples:
      ags1 parquet inspect out.parquet --footer-key file:f.key
    """
    code = 0
    found = parquet_files(files, said)
    kinds: Counter[str] = Counter()
    with Clients() as clients, Reporter(said, ("reading", "read")) as reporter:
        reading = ReadingOptions(decryption, KeyReferences(), clients)
        looks = ((path, _look(path, name, reading)) for path, name in found)
        for number, (path, each) in enumerate(reporter.rows(looks)):
            if isinstance(each, Exception):
                code = code or exit_code(each)
                kinds["unreadable"] += 1
                text = with_name(path, describe(each))
                if said.json:
                    say_json({"file": path, "error": text})
                else:
                    warn(f"ags1: {text}")
                continue
            kinds["encrypted" if each.encryption is not None else "plaintext"] += 1
            if said.json:
                say_json({"file": path, **each.to_dict(), "error": None})
                continue
            if number:
                say("")
            for line in str(each).split("\n"):
                say(line)
    if len(found) > 1 and not said.json:
        say("")
        say(f"{counted(len(found), 'file')}: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}")
    return code


def _look(path: str, name: str, reading: ReadingOptions) -> Inspection | Exception:
    from ags1.parquet.structure.inspecting import inspect as look

    try:
        config = reading.config(path, name) if reading.named else None
        return look(path, config)
    except (Ags1Error, OSError, ValueError) as error:
        return error
