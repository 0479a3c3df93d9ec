"""``ags1 dataset``: directories of encrypted files, here or in an object store."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from ags1._command_line import UsageError
from ags1.cli import OutputClosed, describe, exit_code, printable, say, warn, worst_code
from ags1.cli._report import Reporter, files, format_bytes, in_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.dataset import Dataset, RunReport

    Work = Callable[[Any, Callable[..., None]], RunReport]

__all__ = [
    *("add", "decrypt", "encrypt", "expire", "mv", "repair", "rewrap", "rm"),
    *("client", "dataset", "open_dataset", "to_json"),
]

_SHOWN = 20


def dataset(options: argparse.Namespace) -> int:
    """Run ``ags1 dataset``."""
    from ags1.cli._dataset_parser import parse

    found = parse(list(options.arguments))
    if not found.kms:
        found.kms = os.environ.get("AGS1_KMS")
    return int(found.run(found))


def client(options: argparse.Namespace) -> Any:
    """The client of the KMS that has the master keys.

    Raises
    ------
    UsageError
        None is named.
    """
    from ags1.cli._kms import client_of

    if not options.kms:
        raise UsageError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
    return client_of(options)


def open_dataset(options: argparse.Namespace, kms: Any, *, key_id: str | None = None) -> Dataset:
    """The dataset, at the version that is asked for, if it is what is expected."""
    from ags1 import dataset as datasets

    return datasets.open(
        options.vault, kms,
        version=getattr(options, "version", None), expected_version=options.expected_version,
        expected_uuid=options.expected_uuid, expected_digest=options.expected_digest, key_id=key_id or None,
        threads=getattr(options, "threads", None),
    )  # fmt: skip


def to_json(record: dict[str, Any]) -> str:
    """One line of JSON."""
    import json

    return json.dumps(record)


# -- encrypt, add, repair, decrypt, rm, mv -------------------------------------------------------------------------


def encrypt(options: argparse.Namespace) -> int:
    """Encrypt a directory into a dataset."""
    from ags1 import dataset as datasets

    keys = dict(options.keys)
    if len(keys) != len(options.keys):
        raise UsageError("--keys has a pattern twice")
    if not options.key_id and "**" not in keys:
        raise UsageError("a master key is needed: --key-id ID (`ags1 kms list` shows those of a local keystore)")
    choice = {**_choice(options), "keys": keys or None, "delete": options.delete}

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        if options.dry_run:
            return datasets.preview(options.source, options.vault, kms, options.key_id, **choice)
        made = datasets.encrypt(
            options.source, options.vault, kms, options.key_id,
            threads=options.threads, resume=not options.no_resume, durable=not options.no_durable,
            single_writer=options.single_writer, progress=progress, **choice,
        )  # fmt: skip
        with made:
            assert made.report is not None
            return made.report

    return _run(options, ("encrypting", "encrypted"), work)


def add(options: argparse.Namespace) -> int:
    """Add files to a dataset."""

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        with open_dataset(options, kms, key_id=options.key_id) as vault:
            return vault.add(
                options.source, prefix=options.prefix, resume=not options.no_resume, durable=not options.no_durable,
                dry_run=options.dry_run, progress=progress, **_choice(options),
            )  # fmt: skip

    return _run(options, ("encrypting", "encrypted"), work)


def repair(options: argparse.Namespace) -> int:
    """Encrypt anew what is missing or not authentic."""

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        with open_dataset(options, kms, key_id=options.key_id) as vault:
            return vault.repair(options.source, prefix=options.prefix, progress=progress, dry_run=options.dry_run)

    return _run(options, ("verifying and repairing", "repaired"), work)


def decrypt(options: argparse.Namespace) -> int:
    """Decrypt a dataset into a directory."""

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        with open_dataset(options, kms, key_id=options.key_id) as vault:
            return vault.decrypt(
                options.plain, durable=options.durable, dry_run=options.dry_run, progress=progress, **_choice(options)
            )

    return _run(options, ("decrypting", "decrypted"), work)


def rm(options: argparse.Namespace) -> int:
    """Make a version without some files."""

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        with open_dataset(options, kms, key_id=options.key_id) as vault:
            return vault.rm(*options.paths, dry_run=options.dry_run)

    return _run(options, ("removing", "removed"), work)


def mv(options: argparse.Namespace) -> int:
    """Make a version in which files have other paths."""

    def work(kms: Any, progress: Callable[..., None]) -> RunReport:
        with open_dataset(options, kms, key_id=options.key_id) as vault:
            return vault.mv(options.path, options.new_path, replace=options.replace, dry_run=options.dry_run)

    return _run(options, ("moving", "moved"), work)


def _choice(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "include": options.include,
        "exclude": options.exclude,
        "on_error": "collect" if options.keep_going else "fail",
    }


def _run(options: argparse.Namespace, words: tuple[str, str], work: Work) -> int:
    """Do the work, and say what came of it."""
    options.verbose = getattr(options, "verbose", False)
    options.progress = getattr(options, "progress", "never")
    reporter = Reporter(options, words, None, 1)
    try:
        with client(options) as kms:
            started = time.monotonic()
            report = work(kms, reporter.progress_of(options.vault))
            seconds = time.monotonic() - started
    except OutputClosed:
        raise
    except Exception as error:
        reporter.close()
        if options.json:
            say(to_json({"dataset": options.vault, "error": describe(error)}))
            return exit_code(error)
        raise
    reporter.close()
    if options.json:
        say(to_json(_record(options, report, seconds)))
    else:
        if not options.quiet:
            _tell(options, words[1], report, seconds)
        _warn_of(options, report)
    return worst_code([exit_code(error) for _, error in report.errors])


def _record(options: argparse.Namespace, report: RunReport, seconds: float) -> dict[str, Any]:
    record: dict[str, Any] = {
        "dataset": options.vault,
        "version": report.version,
        "changed": report.changed,
        "done": report.done,
        "done_bytes": report.done_bytes,
        "unchanged": report.unchanged,
        "resumed": report.resumed,
        "repaired": report.repaired,
        "removed": report.removed,
        "others": report.others,
        "skipped": [{"path": path, "reason": reason} for path, reason in report.skipped],
        "notes": [{"path": path, "note": note} for path, note in report.notes],
        "errors": [{"path": path, "error": describe(error)} for path, error in report.errors],
        "seconds": round(seconds, 6),
        "dry_run": options.dry_run,
    }
    if options.dry_run:
        record["paths"] = report.paths
    count = len(report.errors)
    record["error"] = f"{files(count)} failed" if count else None
    return record


def _tell(options: argparse.Namespace, did: str, report: RunReport, seconds: float) -> None:
    for path in report.paths:
        say(printable(path))
    count = report.removed if did == "removed" else report.done
    size = report.done_bytes
    if options.dry_run:
        parts = [f"would have {did} {files(count)}" + (f", {format_bytes(size)}" if size else "")]
    else:
        parts = [f"{did} {files(count)}" + (f", {in_time(size, seconds)}" if size or did == "encrypted" else "")]
    for number, what in (
        (report.resumed, "taken over from an interrupted run"),
        (report.repaired if did != "repaired" else 0, "of them because they were not whole any more"),
        (report.unchanged, "unchanged"),
        (report.removed if did != "removed" else 0, "left out of the new version"),
        (report.others, "not in the source"),
        (len(report.errors), "failed"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    done = "; ".join(parts)
    if options.dry_run:
        say(printable(done))
    else:
        say(printable(f"{done} -> {getattr(options, 'plain', options.vault)}, version {report.version}"))


def _warn_of(options: argparse.Namespace, report: RunReport) -> None:
    limit = None if options.verbose else _SHOWN
    if not options.quiet:
        for path, reason in report.skipped[:limit]:
            warn(f"ags1: warning: {path} was left out: it {reason}")
        if limit is not None and len(report.skipped) > limit:
            warn(f"ags1: warning: {len(report.skipped) - limit:,} more were left out (--verbose names them all)")
        for path, note in report.notes:
            warn(f"ags1: warning: {path}: {note}")
    for path, failure in report.errors[:limit]:
        text = describe(failure)
        warn(f"ags1: {text if path in text else f'{path}: {text}'}")
    if limit is not None and len(report.errors) > limit:
        warn(f"ags1: ... and {files(len(report.errors) - limit)} more (--verbose names them all)")


# -- rewrap, expire ------------------------------------------------------------------------------------------------


def rewrap(options: argparse.Namespace) -> int:
    """Put a dataset, or one class of keys, under another master key."""
    from ags1.cli._kms import client_of

    with client(options) as kms, open_dataset(options, kms) as vault:
        new = None
        if options.new_kms:
            new = client_of(argparse.Namespace(**{**vars(options), "kms": options.new_kms}))
        try:
            report = vault.rewrap(options.new_key_id, new, key_id=options.key_id, dry_run=options.dry_run)
        finally:
            if new is not None:
                new.close()
    if options.json:
        record = {
            "dataset": options.vault,
            "version": report.version,
            "old_key_id": report.old_key_id,
            "new_key_id": report.new_key_id,
            "keys": report.keys,
            "older_versions": report.older_versions,
            "unfinished_runs": report.unfinished_runs,
            "dry_run": report.dry_run,
            "error": None,
        }
        say(to_json(record))
        return 0
    if options.quiet:
        return 0
    done = "would be" if report.dry_run else "is"
    say(
        printable(
            f"{options.vault} {done} under the master key {report.new_key_id!r}, no more under {report.old_key_id!r}; "
            "no file changed"
        )
    )
    if report.older_versions:
        older = _count(report.older_versions, "older version")
        say(printable(f"{older}: still open with {report.old_key_id!r} until `ags1 dataset expire` removes them"))
    if report.unfinished_runs:
        warn(f"ags1: warning: interrupted runs cannot be taken over any more without the key {report.old_key_id!r}")
    return 0


def expire(options: argparse.Namespace) -> int:
    """Remove old versions and what no version needs."""
    with client(options) as kms, open_dataset(options, kms, key_id=options.key_id) as vault:
        report = vault.expire(
            keep=options.keep, older_than=options.older_than, grace=options.grace, give_up=options.give_up,
            dry_run=options.dry_run,
        )  # fmt: skip
    if options.json:
        record = {
            "dataset": options.vault,
            "version": report.version,
            "versions": report.versions,
            "kept": report.kept,
            "objects": report.objects,
            "object_bytes": report.object_bytes,
            "dry_run": report.dry_run,
            "error": None,
        }
        say(to_json(record))
    elif not options.quiet:
        verb = "would have removed" if report.dry_run else "removed"
        gone, kept = (_count(len(each), "version") for each in (report.versions, report.kept))
        objects = f"{_count(report.objects, 'object')} ({format_bytes(report.object_bytes)})"
        what = f"{verb} {gone}, and {objects} that no version needs; kept {kept}"
        say(printable(f"{what} -> {options.vault}, version {report.version}"))
    return 0


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
