"""``ags1 dataset``, what makes a version or writes files: encrypt, add, rm, rewrap, expire, decrypt and so on."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

from ags1.cli import describe, say, say_json, warn, warn_some
from ags1.cli.consent import agreed
from ags1.cli.kms import client_of, new_client_of
from ags1.cli.report import Reporter, in_time
from ags1.errors import Ags1Error
from ags1.support.command_line import no_file_left
from ags1.support.exit_codes import EXIT_UNPROTECTED, EXIT_USAGE, exit_code, worst_code
from ags1.support.words import counted, size_text, with_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.dataset import Dataset, ExpireReport, Pins, RunReport

_SHOWN = 20
_LATER = "a later expire removes that, or --grace 0s does now, where nothing else writes"


@contextlib.contextmanager
def opened(
    options: argparse.Namespace, words: tuple[str, str] = ("reading", "read"), *, to_stdout: bool = True
) -> Iterator[tuple[Dataset, Reporter]]:
    """The dataset, at the version that is asked for, if it is what is expected; and what shows progress."""
    from ags1 import dataset as datasets

    pins = _load_pins(options)
    with client_of(options) as kms, Reporter(options, words, to_stdout=to_stdout) as reporter, datasets.open(
        options.vault, kms,
        version=getattr(options, "version", None), expected_version=options.expected_version,
        expected_uuid=options.expected_uuid, expected_digest=options.expected_digest,
        key_id=options.expected_key_id, pins=pins, threads=getattr(options, "threads", None),
        **({"attempts": options.attempts} if hasattr(options, "attempts") else {}),
    ) as vault:  # fmt: skip
        try:
            yield vault, reporter
        finally:
            # Also when a command fails behind its commit: what it has made is what the next one must find.
            _save_pins(options, pins, vault)


# -- --pin FILE: what the last command knew, kept where nobody can write who can write the dataset -------------------


def _load_pins(options: argparse.Namespace) -> Pins | None:
    """The pins of ``--pin FILE``; None without that option, or if the file does not exist yet."""
    from ags1.dataset.pins import pins_of
    from ags1.storage import Location

    path = getattr(options, "pin", None)
    return None if path is None else pins_of(path, Location(options.vault))


def _save_pins(options: argparse.Namespace, before: Pins | None, vault: Dataset) -> None:
    """Write what is known now to ``--pin FILE``; the first time, say that what was found was trusted."""
    path = getattr(options, "pin", None)
    if path is None or vault.pins == before:
        return
    if before is None and not (vault.version == 1 and vault.report is not None and vault.report.changed):
        # Only what this command has made itself needs no trust.
        warn(
            f"ags1: warning: {path} is new, so this trusted what it found: dataset {vault.pins.uuid}, version "
            f"{vault.pins.version}, under the master key {vault.pins.key_id!r}"
        )
    vault.pins.save(path)


# -- encrypt, add, rm, restore, repair, decrypt --------------------------------------------------------------------


def encrypt(options: argparse.Namespace) -> int:
    from ags1 import dataset as datasets

    pins = _load_pins(options)
    choice = {
        **_choice(options),
        "delete": options.delete,
        "allow_empty": options.allow_empty,
        "again": options.again,
        "pins": pins,
    }

    def work(kms: Any, reporter: Reporter) -> RunReport:
        if options.dry_run:
            return datasets.preview(options.source, options.vault, kms, options.key_id, **choice)
        made = datasets.encrypt(
            options.source, options.vault, kms, options.key_id,
            threads=options.threads, resume=options.resume, durable=options.durable,
            single_writer=options.single_writer, attempts=options.attempts,
            progress=reporter.progress_of(options.vault), **choice,
        )  # fmt: skip
        with made:
            _save_pins(options, pins, made)
            assert made.report is not None
            return made.report

    return _run(options, ("encrypting", "encrypted"), work, new=True)


def add(options: argparse.Namespace) -> int:
    def work(vault: Dataset, reporter: Reporter) -> RunReport:
        return vault.add(
            options.source, prefix=options.prefix, again=options.again, resume=options.resume, durable=options.durable,
            dry_run=options.dry_run, progress=reporter.progress_of(options.vault), **_choice(options),
        )  # fmt: skip

    return _run(options, ("encrypting", "encrypted"), work)


def rm(options: argparse.Namespace) -> int:
    def work(vault: Dataset, reporter: Reporter) -> RunReport:
        return vault.rm(*options.files, dry_run=options.dry_run)

    return _run(options, ("removing", "removed"), work)


def restore(options: argparse.Namespace) -> int:
    def work(vault: Dataset, reporter: Reporter) -> RunReport:
        return vault.restore(options.number, dry_run=options.dry_run)

    return _run(options, ("restoring", "restored"), work)


def repair(options: argparse.Namespace) -> int:
    def work(vault: Dataset, reporter: Reporter) -> RunReport:
        return vault.repair(
            options.source, prefix=options.prefix, progress=reporter.progress_of(options.vault), phase=reporter.phase,
            dry_run=options.dry_run,
        )  # fmt: skip

    return _run(options, ("verifying and repairing", "repaired"), work)


def decrypt(options: argparse.Namespace) -> int:
    def work(vault: Dataset, reporter: Reporter) -> RunReport:
        told = reporter.progress_of(options.vault)
        written = False

        def progress(done: int, total: int | None) -> None:
            nonlocal written
            written = done > 0
            told(done, total)

        try:
            return vault.decrypt(
                options.plain, durable=options.durable, dry_run=options.dry_run, overwrite=options.overwrite,
                progress=progress, **_choice(options),
            )  # fmt: skip
        except (Ags1Error, OSError):
            if written and options.on_error == "fail":
                warn(f"ags1: what came before it is in {options.plain}, and stays; --keep-going decrypts the others")
            raise

    return _run(options, ("decrypting", "decrypted"), work)


def _choice(options: argparse.Namespace) -> dict[str, Any]:
    return {"include": options.include, "exclude": options.exclude, "on_error": options.on_error}


def _run(
    options: argparse.Namespace,
    words: tuple[str, str],
    work: Callable[[Any, Reporter], RunReport],
    *,
    new: bool = False,
) -> int:
    """Do the work with the dataset, or with the KMS for one that may be new, and say what came of it."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        found: Any
        if new:
            found = stack.enter_context(client_of(options))
            reporter = stack.enter_context(Reporter(options, words))
        else:
            found, reporter = stack.enter_context(opened(options, words))
        report = work(found, reporter)
    seconds = time.monotonic() - started
    unmatched = _unmatched(options, report)
    if options.json:
        say_json(_record(options, report, seconds) | ({"error": unmatched} if unmatched else {}))
    else:
        if not (options.quiet or unmatched):
            _tell(options, words[1], report, seconds)
        _warn_of(options, report)
        if unmatched:
            warn(f"ags1: {unmatched}")
        elif words[1] == "encrypted" and not options.quiet and not _found_any(report):
            warn(f"ags1: warning: {options.source}: there are no files in it")
    if unmatched:
        return EXIT_USAGE
    return worst_code([*(exit_code(error) for _, error in report.errors), *(EXIT_UNPROTECTED for _ in report.links)])


def _found_any(report: RunReport) -> bool:
    return bool(report.done or report.unchanged or report.resumed or report.errors)


def _unmatched(options: argparse.Namespace, report: RunReport) -> str | None:
    """What is wrong if the patterns left nothing to do and nothing that is done already."""
    if _found_any(report) or report.removed:
        return None
    source = getattr(options, "source", options.vault)
    return no_file_left(source, getattr(options, "include", None), getattr(options, "exclude", None))


def _record(options: argparse.Namespace, report: RunReport, seconds: float) -> dict[str, Any]:
    return {
        "dataset": options.vault,
        **vars(report),
        "skipped": [{"path": path, "reason": reason} for path, reason in report.skipped],
        "notes": [{"path": path, "note": note} for path, note in report.notes],
        "errors": [{"path": path, "error": describe(error)} for path, error in report.errors],
        "seconds": round(seconds, 6),
        "dry_run": options.dry_run,
        "error": f"{counted(len(report.errors), 'file')} failed" if report.errors else None,
    }


def _tell(options: argparse.Namespace, did: str, report: RunReport, seconds: float) -> None:
    for path in report.paths:
        say(path)
    count = report.removed if did == "removed" else report.done
    size = report.done_bytes
    if options.dry_run:
        parts = [f"would have {did} {counted(count, 'file')}" + (f", {size_text(size)}" if size else "")]
    else:
        parts = [
            f"{did} {counted(count, 'file')}" + (f", {in_time(size, seconds)}" if size or did == "encrypted" else "")
        ]
    for number, what in (
        (report.resumed, "taken over from an interrupted run"),
        (report.repaired if did != "repaired" else 0, "of them because they were not whole any more"),
        (report.unchanged, "unchanged"),
        (report.removed if did != "removed" else 0, "left out of the new version"),
        (report.others, "not in the source"),
        (report.excluded, "not looked at, because of --include or --exclude"),
        (len(report.errors), "failed"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    done = "; ".join(parts)
    if not options.dry_run:
        done += f" -> {getattr(options, 'plain', options.vault)}, version {report.version}"
    say(done)


def _warn_of(options: argparse.Namespace, report: RunReport) -> None:
    limit = None if getattr(options, "verbose", False) else _SHOWN
    if not options.quiet:
        skipped = [f"warning: {path} was left out: it {reason}" for path, reason in report.skipped]
        warn_some(skipped, "warning: {:,} more were left out (--verbose names them all)", limit)
        for path, note in report.notes:
            warn(f"ags1: warning: {path}: {note}")
    failures = [with_name(path, describe(failure)) for path, failure in report.errors]
    warn_some(failures, "... and {:,} more (--verbose names them all)", limit)


# -- rewrap, expire ------------------------------------------------------------------------------------------------


def rewrap(options: argparse.Namespace) -> int:
    """Put a dataset under another master key."""
    with contextlib.ExitStack() as stack:
        new = stack.enter_context(new_client_of(options)) if options.new_kms else None
        vault, _ = stack.enter_context(opened(options, ("re-wrapping", "re-wrapped")))
        report = vault.rewrap(options.new_key_id, new, dry_run=options.dry_run)
    if options.json:
        say_json({"dataset": options.vault, **vars(report), "error": None})
        return 0
    if options.quiet:
        return 0
    new_id, old_id = report.new_key_id, report.old_key_id
    is_same = new_id == old_id and not options.new_kms
    state = f"wrapped again under the master key {new_id!r}"
    if not is_same:
        state = f"under the master key {new_id!r}, no more under {old_id!r}"
    say(f"{options.vault} {'would be' if report.dry_run else 'is'} {state}; no file changed")
    if report.older_versions and not is_same:
        older = counted(report.older_versions, "older version")
        say(f"{older}: still open with {old_id!r} until removed by `ags1 dataset expire`")
    if report.unfinished_runs and not is_same:
        warn(f"ags1: warning: interrupted runs cannot be taken over any more without the key {old_id!r}")
    return 0


def expire(options: argparse.Namespace) -> int:
    with opened(options, ("removing", "removed")) as (vault, reporter):
        asks = not (options.dry_run or options.yes)
        do = partial(
            vault.expire, keep=options.keep, older_than=options.older_than, grace=options.grace, give_up=options.give_up
        )
        report = do(dry_run=options.dry_run or asks)
        if asks and not report.is_empty:
            with reporter.paused():
                if not options.json:
                    _tell_expired(options, report)
                if not agreed(options, "Do it?", {"dataset": options.vault, **vars(report)}):
                    return 0
            report = do()
        report.dry_run = options.dry_run
    _tell_expired(options, report)
    return 0


def _tell_expired(options: argparse.Namespace, report: ExpireReport) -> None:
    if options.json:
        say_json({"dataset": options.vault, **vars(report), "error": None})
    elif not options.quiet:
        verb = "would have removed" if report.dry_run else "removed"
        gone, kept = (counted(len(each), "version") for each in (report.versions, report.kept))
        objects = f"{counted(report.objects, 'object')} ({size_text(report.object_bytes)})"
        what = f"{verb} {gone}, and {objects} that no version needs; kept {kept}"
        made_one = not report.is_empty
        if not made_one:
            what = f"there is nothing to remove; kept {kept}"
        if made_one:
            what += ", one of them new"
        say(f"{what} -> {options.vault}, version {report.version}")
        if len(report.kept) > options.keep + made_one:
            say("more versions than --keep stay, because they were replaced not long ago: --older-than says how long")
        if report.young_objects:
            count = counted(report.young_objects, "object")
            say(f"kept for the grace time, because a run may be about to commit it: {count} in no version; {_LATER}")
