"""``ags1 dataset``, what only reads: ls, cat, verify, versions."""

from __future__ import annotations

import argparse
import time

from ags1.cli import say, say_json, warn
from ags1.cli.dataset.datasets import opened
from ags1.cli.report import in_time
from ags1.cli.standard import copy_out, standard_output
from ags1.support.exit_codes import EXIT_DATA, EXIT_IO, UsageError, worst_code
from ags1.support.remedies import in_options
from ags1.support.words import counted, made_by, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.dataset import Problem


def ls(options: argparse.Namespace) -> int:
    with opened(options) as (vault, reporter):
        path = options.path.strip("/")
        if path and path in vault.files:
            found: Any = iter([(path, vault.files[path])])
        elif path and not vault.files.is_directory(path):
            raise FileNotFoundError(2, "the dataset has no such file or directory", path)
        elif options.recursive:
            found = ((entry.path, entry) for entry in vault.files.below(path))
        else:
            found = ((f"{path}/{name}" if path else name, entry) for name, entry in vault.files.children(path))
        for name, entry in reporter.rows(found):
            if options.json:
                record = {"path": name, "type": "directory" if entry is None else "file"}
                if entry is not None:
                    record.update(plaintext_length=entry.plaintext_length, file_length=entry.file_length)
                say_json(record)
            else:
                size = ""
                if options.long:
                    size = f"{'-' if entry is None else f'{entry.plaintext_length:,}':>19}  "
                line = f"{size}{name}{'/' if entry is None else ''}"
                say(line, raw=options.null, end="\0" if options.null else "\n")
    return 0


def cat(options: argparse.Namespace) -> int:
    if len(options.files) > 1 and (options.offset or options.bytes is not None):
        raise UsageError("--offset and --bytes are for one file, but there are many")
    output = standard_output()
    with opened(options, ("decrypting", "decrypted"), to_stdout=False) as (vault, reporter):
        for path in options.files:
            with vault.open(path) as reader:
                reader.seek(options.offset)
                copy_out(reader, output, options.bytes, reporter.progress_of(path))
    output.flush()
    return 0


def verify(options: argparse.Namespace) -> int:
    started = time.monotonic()
    with opened(options, ("verifying", "verified")) as (vault, reporter):
        report = vault.verify(
            threads=options.threads, progress=reporter.progress_of(options.vault), phase=reporter.phase
        )
    seconds = time.monotonic() - started
    count = sum(1 for each in report.problems if not each.is_harmless)
    problems = counted(count, "problem")
    if options.json:
        record = {
            "dataset": options.vault,
            "version": report.version,
            "files": report.file_count,
            "plaintext_bytes": report.plaintext_bytes,
            "problems": [vars(each) for each in report.problems],
            "seconds": round(seconds, 6),
            **made_by(),
            "error": problems if count else None,
        }
        say_json(record)
    else:
        for each in report.problems:
            if not each.is_harmless:
                warn(f"ags1: {each.kind}: {in_options(each.detail)}")
        if not options.quiet:
            harmless = [each for each in report.problems if each.is_harmless]
            if harmless:
                # What a killed run left: thousands, of which one says as much as all.
                more = f"; so are {len(harmless) - 1:,} more (--json lists them)" if harmless[1:] else ""
                warn(f"ags1: warning: {harmless[0].kind}: {in_options(harmless[0].detail)}{more}")
            what = f"{counted(report.file_count, 'file')}, {in_time(report.plaintext_bytes, seconds)}"
            state = problems if count else "all authentic"
            say(f"{options.vault}: {what}, version {report.version}: {state}")
    return worst_code([_code_of(each) for each in report.problems])


def _code_of(problem: Problem) -> int:
    if problem.is_harmless:
        return 0
    if problem.kind != "unreadable":
        return EXIT_DATA
    # What could not be read is not known to be damaged.
    return EXIT_IO


def versions(options: argparse.Namespace) -> int:
    with opened(options) as (vault, _):
        found = vault.versions()
        uuid = vault.uuid
    if not options.json:
        say(f"dataset {uuid}")
    for each in found:
        if options.json:
            names = ("uuid", "version", "operation", "created_ms", "plaintext_bytes", "digest")
            say_json({**{name: getattr(each, name) for name in names}, "files": each.file_count})
        else:
            when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(each.created_ms / 1000))
            what = f"{each.operation}, {counted(each.file_count, 'file')}, {size_text(each.plaintext_bytes)}"
            say(f"{each.version:>6}  {when}  {each.digest}  {what}")
    return 0
