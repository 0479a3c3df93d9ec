"""``ags1 dataset``: its actions."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial

from ags1.cli.command import Command, OnSpark, Positional, command
from ags1.cli.kms.clients import client_of, new_client_of
from ags1.cli.output import agreed, copy_out, say, say_json, standard_output, warn, warn_some
from ags1.cli.paths import no_file_left
from ags1.cli.report import Reporter, in_time
from ags1.cli.values import directory, version
from ags1.cli.verification import VERIFY_FIELDS, say_report
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.support.exit_codes import EXIT_UNPROTECTED, EXIT_USAGE, UsageError, describe, exit_code, worst_code
from ags1.support.typing import Any
from ags1.support.words import counted, size_text, with_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.dataset import Dataset, ExpireReport, Pins, RunReport, Version
    from ags1.dataset.pins import ExpectedVersion

DATASET = Positional("DATASET", "directory or URL of the dataset", dest="vault", type=directory)
CLUSTER = "part-bytes parallelism quiet report"
_SOURCE = Positional("SOURCE", "directory or file, or a URL", type=directory)
_FIELDS = (
    "dataset, version, changed, done, done_bytes, unchanged, resumed, repaired, removed, others, excluded, skipped, "
    "notes, errors, seconds, dry_run, paths (in a dry run), error"
)
_SHOWN = 20
_LATER = "a later expire removes that, or --grace 0s does now, where nothing else writes"


_EXPECTED = ("expected_version", "expected_uuid", "expected_digest", "key_id")


def dataset_command(**settings: Any) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command of ``ags1 dataset``; its first parameter is the dataset, and what opens it."""
    return command(where=(DATASET, "KMS PINS"), **{"fields": _FIELDS, "subject": "dataset"} | settings)


@contextlib.contextmanager
def opened(
    where: Namespace,
    said: Namespace,
    words: tuple[str, str] = ("reading", "read"),
    *,
    to_stdout: bool = True,
    restores: int = 0,
    **how: Any,
) -> Iterator[tuple[Dataset, Reporter]]:
    """The dataset, if it is what is expected, and what shows progress; `how` are more arguments of ``dataset.open``.

    It is opened although its last version is damaged if the command restores a version.
    """
    from ags1 import dataset as datasets
    from ags1.dataset.rescue import open_to_restore

    pins = load_pins(where.pin, where.vault)

    def opening(client: Any) -> Dataset:
        if restores:
            return open_to_restore(where.vault, client, restores, expected(where), pins=pins, **how)
        return datasets.open(
            where.vault, client, pins=pins, **how, **{name: getattr(where, name) for name in _EXPECTED}
        )

    with (
        client_of(where) as client,
        Reporter(said, words, to_stdout=to_stdout) as reporter,
        opening(client) as vault,
    ):
        try:
            yield vault, reporter
        finally:
            # Also when a command fails behind its commit: what it has made is what the next one must find.
            save_pins(where.pin, pins, vault)


def expected(where: Namespace) -> ExpectedVersion:
    """What the options say that the dataset must be."""
    from ags1.dataset.pins import ExpectedVersion

    return ExpectedVersion(*(getattr(where, name) for name in _EXPECTED))


# -- --pin FILE: what the last command knew, kept where nobody can write who can write the dataset -------------------


def load_pins(path: str | None, place: str) -> Pins | None:
    """The pins of ``--pin FILE``; None without that option, or if the file does not exist yet."""
    from ags1.dataset.pins import pins_of
    from ags1.storage import Location

    return None if path is None else pins_of(path, Location(place))


def save_pins(path: str | None, before: Pins | None, vault: Dataset) -> None:
    """Write what is known now to ``--pin FILE``; the first time, say that what was found was trusted."""
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


@command(
    source=_SOURCE,
    vault=Positional("TARGET", "directory or URL of the dataset; made if it is missing", type=directory),
    key_id="key-id",
    kms="KMS",
    pin="pin",
    choice="CHOICE delete allow-empty again keep-going",
    how="no-resume no-durable single-writer attempts threads",
    said="dry-run verbose SAY",
    fields=_FIELDS,
    subject="dataset",
    spark=OnSpark(
        "encrypt_files",
        {"source": "", "target": ""},
        f"key-id! workers-kms pin CHOICE again single-writer keep-going no-resume {CLUSTER}",
    ),
)
def encrypt(
    source: str,
    vault: str,
    key_id: str | None,
    kms: Namespace,
    pin: str | None,
    choice: Namespace,
    how: Namespace,
    said: Namespace,
) -> int:
    r"""A new dataset needs --key-id. Each file gets a key of its own. Only what is new, changed or not whole is
    encrypted, and what an interrupted run has done is taken over. Files that the source has no more stay, unless
    --delete is given, which refuses a source without any; those that --include and --exclude leave out stay in any
    case. Nothing is seen of it before all of it is there.

    examples:
      export AGS1_KMS=local:keys.json
      ags1 dataset encrypt raw/ vault/ --key-id lake
      ags1 dataset encrypt raw/ vault/ --key-id lake --delete --dry-run
      ags1 dataset encrypt s3://raw/2026/ s3://vault/2026/ --key-id alias/lake \
          --kms 'aws:?region=eu-central-1'
    """
    from ags1 import dataset as datasets

    pins, words, started = load_pins(pin, vault), ("encrypting", "encrypted"), time.monotonic()
    with client_of(kms) as client, Reporter(said, words) as reporter:
        if said.dry_run:
            report = datasets.preview(source, vault, client, key_id, pins=pins, **vars(choice))
        else:
            progress = reporter.progress_of(vault)
            with datasets.encrypt(
                source, vault, client, key_id, pins=pins, progress=progress, **vars(choice), **vars(how)
            ) as made:
                save_pins(pin, pins, made)
                assert made.report is not None
                report = made.report
    return _tell(report, words[1], vault, said, time.monotonic() - started, source=source, choice=choice)


@dataset_command(
    source=_SOURCE,
    prefix="prefix",
    choice="CHOICE keep-going again no-resume no-durable",
    how="attempts threads",
    said="dry-run verbose SAY",
)
def add(
    where: Namespace,
    source: str,
    prefix: str,
    choice: Namespace,
    how: Namespace,
    said: Namespace,
) -> int:
    """Only what is named is looked at, so the cost does not grow with the dataset.

    examples:
      ags1 dataset add vault/ today/ --prefix day=7
      ags1 dataset add s3://vault/2026/ report.csv
    """
    words, started = ("encrypting", "encrypted"), time.monotonic()
    with opened(where, said, words, **vars(how)) as (found, reporter):
        report = found.add(
            source, prefix=prefix, progress=reporter.progress_of(where.vault), dry_run=said.dry_run, **vars(choice)
        )
    return _tell(report, words[1], where.vault, said, time.monotonic() - started, source=source, choice=choice)


@dataset_command(
    files=Positional("PATH...", "file or directory in it"),
    attempts="attempts",
    said="dry-run SAY",
)
def rm(where: Namespace, files: list[str], attempts: int, said: Namespace) -> int:
    """A directory stands for all that is below it. Older versions keep the files until `ags1 dataset expire`.

    examples:
      ags1 dataset rm vault/ day=7 report.csv --dry-run
    """
    words, started = ("removing", "removed"), time.monotonic()
    with opened(where, said, words, attempts=attempts) as (found, _):
        report = found.rm(*files, dry_run=said.dry_run)
    return _tell(report, words[1], where.vault, said, time.monotonic() - started)


@dataset_command(
    number=Positional("VERSION", "number of a version", type=version),
    attempts="attempts",
    said="dry-run SAY",
)
def restore(where: Namespace, number: int, attempts: int, said: Namespace) -> int:
    """Its objects are used again. It is also the way out where the last version is damaged: nothing else goes back to
    an older one by itself.

    examples:
      ags1 dataset versions vault/
      ags1 dataset restore vault/ 3 --dry-run
      ags1 dataset restore vault/ 3
    """
    words, started = ("restoring", "restored"), time.monotonic()
    with opened(where, said, words, attempts=attempts, restores=number) as (found, _):
        report = found.restore(number, dry_run=said.dry_run)
    return _tell(report, words[1], where.vault, said, time.monotonic() - started)


@dataset_command(
    source=Positional("SOURCE", "directory or URL that the dataset was made from", type=directory),
    prefix="prefix",
    how="attempts threads",
    said="dry-run verbose SAY",
)
def repair(where: Namespace, source: str, prefix: str, how: Namespace, said: Namespace) -> int:
    """Every file is verified first. A file whose source has changed since is an error: encrypt that instead.

    examples:
      ags1 dataset repair vault/ raw/ --dry-run
      ags1 dataset repair vault/ raw/
    """
    words, started = ("verifying and repairing", "repaired"), time.monotonic()
    with opened(where, said, words, **vars(how)) as (found, reporter):
        report = found.repair(
            source,
            prefix=prefix,
            progress=reporter.progress_of(where.vault),
            dry_run=said.dry_run,
        )
    return _tell(report, words[1], where.vault, said, time.monotonic() - started, source=source)


@dataset_command(
    plain=Positional("TARGET", "directory or URL; made if it is missing", type=directory),
    choice="CHOICE keep-going durable overwrite",
    how="version threads",
    said="dry-run verbose SAY",
    spark=OnSpark(
        "decrypt_files",
        {"source": "", "target": ""},
        "workers-kms expected-dataset-key-id expected-version pin CHOICE keep-going no-resume overwrite " + CLUSTER,
    ),
)
def decrypt(where: Namespace, plain: str, choice: Namespace, how: Namespace, said: Namespace) -> int:
    """Files of the same names in TARGET that differ are refused before anything is written, unless --overwrite is
    given; those of the same length and time, as of an earlier run, stay as they are. Files have the modes and times of
    the sources, directories their modes. Nothing is written through a link.

    examples:
      ags1 dataset decrypt vault/ plain/ --include 'day=7/*'
      ags1 dataset decrypt s3://vault/2026/ plain/ --version 3
    """
    words, started, written = ("decrypting", "decrypted"), time.monotonic(), False
    with opened(where, said, words, **vars(how)) as (found, reporter):
        told = reporter.progress_of(where.vault)

        def progress(done: int, total: int | None) -> None:
            nonlocal written
            written = done > 0
            told(done, total)

        try:
            report = found.decrypt(plain, dry_run=said.dry_run, progress=progress, **vars(choice))
        except (Ags1Error, OSError):
            if written and choice.on_error == "fail":
                warn(f"ags1: what came before it is in {plain}, and stays; --keep-going decrypts the others")
            raise
    return _tell(report, words[1], where.vault, said, time.monotonic() - started, choice=choice, target=plain)


def _tell(
    report: RunReport,
    did: str,
    vault: str,
    said: Namespace,
    seconds: float,
    *,
    source: str | None = None,
    choice: Namespace | None = None,
    target: str | None = None,
) -> int:
    """Say what a run did, or would do, and return the exit code: an error if the patterns of `choice` left no file."""
    found_any = bool(report.done or report.unchanged or report.resumed or report.errors)
    unmatched = None
    if choice is not None and not (found_any or report.removed):
        # The patterns left nothing to do, and nothing that is done already.
        unmatched = no_file_left(source or vault, choice.include, choice.exclude)
    if said.json:
        say_json(_record(vault, report, seconds, said.dry_run) | ({"error": unmatched} if unmatched else {}))
    else:
        if not (said.quiet or unmatched):
            _say_sum(report, did, target or vault, seconds, said.dry_run)
        _warn_of(said, report)
        if said.quiet and did == "encrypted" and report.repaired:
            # Somebody removed or cut them; without --quiet, the sum says so.
            warn(f"ags1: warning: encrypted again, because not whole: {counted(report.repaired, 'file')} of {vault}")
        if unmatched:
            warn(f"ags1: {unmatched}")
        elif did == "encrypted" and not found_any:
            # Also with --quiet: a job must not take a directory that is not mounted for one that is done.
            warn(f"ags1: warning: {source}: there are no files in it")
    if unmatched:
        return EXIT_USAGE
    return worst_code([*(exit_code(error) for _, error in report.errors), *(EXIT_UNPROTECTED for _ in report.links)])


def _record(vault: str, report: RunReport, seconds: float, dry_run: bool) -> dict[str, Any]:
    return {
        "dataset": vault,
        **vars(report),
        "skipped": [{"path": path, "reason": reason} for path, reason in report.skipped],
        "notes": [{"path": path, "note": note} for path, note in report.notes],
        "errors": [{"path": path, "error": describe(error)} for path, error in report.errors],
        "seconds": round(seconds, 6),
        "dry_run": dry_run,
        "error": f"{counted(len(report.errors), 'file')} failed" if report.errors else None,
    }


def _say_sum(report: RunReport, did: str, place: str, seconds: float, dry_run: bool) -> None:
    for path in report.paths:
        say(path)
    count = report.removed if did == "removed" else report.done
    size = report.done_bytes
    if dry_run:
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
    if not dry_run:
        done += f" -> {place}, version {report.version}"
    say(done)


def _warn_of(said: Namespace, report: RunReport) -> None:
    limit = None if getattr(said, "verbose", False) else _SHOWN
    if not said.quiet:
        skipped = [f"warning: {path} was left out: it {reason}" for path, reason in report.skipped]
        warn_some(skipped, "warning: {:,} more were left out (--verbose names them all)", limit)
        notes = [f"warning: {path}: {note}" for path, note in report.notes]
        warn_some(notes, "warning: {:,} more (--verbose names them all)", limit)
    failures = [with_name(path, describe(failure)) for path, failure in report.errors]
    warn_some(failures, "... and {:,} more (--verbose names them all)", limit)


# -- rewrap, expire ------------------------------------------------------------------------------------------------


@dataset_command(
    new_key_id="new-key-id!",
    new_kms="new-kms",
    attempts="attempts",
    said="dry-run SAY",
    fields="dataset, version, old_key_id, new_key_id, older_versions, unfinished_runs, dry_run, error",
    changed={"attempts": {"default": 20, "help": "how often to begin again when other writers commit meanwhile (20)"}},
)
def rewrap(
    where: Namespace,
    new_key_id: str,
    new_kms: str | None,
    attempts: int,
    said: Namespace,
) -> int:
    """Keep the old master key until this has succeeded and `ags1 dataset expire` has removed the older versions;
    whoever has a copy of those still needs it.

    examples:
      ags1 dataset rewrap vault/ --new-key-id lake-2027 --dry-run
      ags1 dataset rewrap vault/ --new-key-id lake-2027
    """
    with contextlib.ExitStack() as stack:
        new = stack.enter_context(new_client_of(where, new_kms)) if new_kms else None
        words = ("re-wrapping", "re-wrapped")
        found, _ = stack.enter_context(opened(where, said, words, attempts=attempts))
        report = found.rewrap(new_key_id, new, dry_run=said.dry_run)
    if said.json:
        say_json({"dataset": where.vault, **vars(report), "error": None})
        return 0
    if said.quiet:
        return 0
    new_id, old_id = report.new_key_id, report.old_key_id
    is_same = new_id == old_id and not new_kms
    state = f"wrapped again under the master key {new_id!r}"
    if not is_same:
        state = f"under the master key {new_id!r}, no more under {old_id!r}"
    say(f"{where.vault} {'would be' if report.dry_run else 'is'} {state}; no file changed")
    if report.older_versions and not is_same:
        older = counted(report.older_versions, "older version")
        say(f"{older}: still open with {old_id!r} until removed by `ags1 dataset expire`")
    if report.unfinished_runs and not is_same:
        warn(f"ags1: warning: interrupted runs cannot be taken over any more without the key {old_id!r}")
    return 0


@dataset_command(
    limits="keep older-than grace give-up",
    attempts="attempts",
    said="dry-run yes SAY",
    fields="dataset, version, versions, kept, objects, object_bytes, young_objects, dry_run, error",
)
def expire(where: Namespace, limits: Namespace, attempts: int, said: Namespace) -> int:
    """That includes what interrupted runs have left. No committed file is ever lost: a run that is given up can commit
    nothing afterwards. It asks first.

    examples:
      ags1 dataset expire vault/ --keep 5 --older-than 30d --dry-run
      ags1 dataset expire vault/ --keep 1 --older-than 0s --yes
    """
    with opened(where, said, ("removing", "removed"), attempts=attempts) as (found, reporter):
        asks = not (said.dry_run or said.yes)
        do = partial(found.expire, **vars(limits))
        report = do(dry_run=said.dry_run or asks)
        if asks and not report.is_empty:
            with reporter.paused():
                if not said.json:
                    _tell_expired(where.vault, said, report, limits.keep)
                if not agreed(said, "Do it?", {"dataset": where.vault, **vars(report)}):
                    return 0
            report = do()
        report.dry_run = said.dry_run
    _tell_expired(where.vault, said, report, limits.keep)
    return 0


def _tell_expired(vault: str, said: Namespace, report: ExpireReport, keep: int) -> None:
    if said.json:
        say_json({"dataset": vault, **vars(report), "error": None})
    elif not said.quiet:
        verb, keeps = ("would have removed", "would have kept") if report.dry_run else ("removed", "kept")
        gone, kept = (counted(len(each), "version") for each in (report.versions, report.kept))
        objects = f"{counted(report.objects, 'object')} ({size_text(report.object_bytes)})"
        what = f"{verb} {gone}, and {objects} that no version needs; {keeps} {kept}"
        made_one = not report.is_empty
        if not made_one:
            what = f"there is nothing to remove; kept {kept}"
        if made_one:
            what += ", one of them new"
        say(f"{what} -> {vault}, version {report.version}")
        if len(report.kept) > keep + made_one:
            say("more versions than --keep stay, because they were replaced not long ago: --older-than says how long")
        if report.young_objects:
            count = counted(report.young_objects, "object")
            say(f"kept for the grace time, because a run may be about to commit it: {count} in no version; {_LATER}")


@dataset_command(
    path=Positional("[PATH]", "directory or file in it", default=""),
    how="recursive long null",
    version="version",
    said="LIST",
    fields="path, type, plaintext_length, file_length",
)
def ls(
    where: Namespace,
    path: str,
    how: Namespace,
    version: int | None,
    said: Namespace,
) -> int:
    """Names are relative to the dataset; sizes are of the plaintext. Control characters of a name are shown as escapes,
    except with -0.

    examples:
      ags1 dataset ls vault/ -r -l
      ags1 dataset ls vault/ -r -0 | xargs -0 ags1 dataset cat vault/
      ags1 dataset ls vault/ day=7 --version 3
    """
    with opened(where, said, version=version) as (opened_one, reporter):
        path, files = path.strip("/"), opened_one.files
        if path and path in files:
            found: Any = iter([(path, files[path])])
        elif path and not files.is_directory(path):
            raise FileNotFoundError(2, "the dataset has no such file or directory", path)
        elif how.recursive:
            found = ((entry.path, entry) for entry in files.below(path))
        else:
            found = ((f"{path}/{name}" if path else name, entry) for name, entry in files.children(path))
        for name, entry in reporter.rows(found):
            if said.json:
                record = {"path": name, "type": "directory" if entry is None else "file"}
                if entry is not None:
                    record.update(plaintext_length=entry.plaintext_length, file_length=entry.file_length)
                say_json(record)
            else:
                size = ""
                if how.long:
                    size = f"{'-' if entry is None else f'{entry.plaintext_length:,}':>19}  "
                line = f"{size}{name}{'/' if entry is None else ''}"
                say(line, raw=how.null, end="\0" if how.null else "\n")
    return 0


@dataset_command(
    files=Positional("PATH...", "file in it"),
    offset="offset",
    size="bytes",
    version="version",
    said="quiet progress",
)
def cat(
    where: Namespace,
    files: list[str],
    offset: int,
    size: int | None,
    version: int | None,
    said: Namespace,
) -> int:
    """Nothing is written before it is authenticated, but what was written before a failure stays written.

    examples:
      ags1 dataset cat vault/ day=7/a.csv | head
      ags1 dataset cat s3://vault/2026/ big.log --offset 1G --bytes 64K
    """
    if len(files) > 1 and (offset or size is not None):
        raise UsageError("--offset and --bytes are for one file, but there are many")
    output = standard_output()
    words = ("decrypting", "decrypted")
    with opened(where, said, words, to_stdout=False, version=version) as (found, reporter):
        for path in files:
            with found.open(path) as reader:
                reader.seek(offset)
                copy_out(reader, output, size, reporter.progress_of(path))
    output.flush()
    return 0


@dataset_command(
    version="version",
    threads="threads",
    said="verbose SAY",
    fields=VERIFY_FIELDS,
    spark=OnSpark(
        "verify_files", {"source": ""}, f"workers-kms expected-dataset-key-id expected-version pin {CLUSTER}"
    ),
)
def verify(where: Namespace, version: int | None, threads: int | None, said: Namespace) -> int:
    """What interrupted runs have left is named, and is no fault. A whole directory that was put back from an older copy
    is authentic: only a pin shows that, such as --pin or --expected-version.

    examples:
      ags1 dataset verify vault/
      ags1 dataset verify vault/ --expected-version 12
    """
    started = time.monotonic()
    words = ("verifying", "verified")
    try:
        with opened(where, said, words, version=version, threads=threads) as (found, reporter):
            report = found.verify(threads=threads, progress=reporter.progress_of(where.vault))
    except (FormatError, AuthenticationError, OSError):
        from ags1.dataset.rescue import find_damage

        with client_of(where) as client:
            damage = find_damage(where.vault, client, expected(where), load_pins(where.pin, where.vault))
        if damage is None:
            raise
        report = damage.report(where.vault)
    return say_report(said, report, started, f"version {report.facts['version']}")


@dataset_command(
    said="LIST",
    fields="uuid, version, operation, created_ms, files, plaintext_bytes, digest, error",
)
def versions(where: Namespace, said: Namespace) -> int:
    """Keep the last line elsewhere: its version or digest, as a pin, shows that an older copy was put back. --pin FILE
    does that by itself.

    examples:
      ags1 dataset versions vault/
    """
    found: dict[int, Version | None]
    errors: dict[int, Ags1Error | OSError] = {}
    try:
        with opened(where, said) as (opened_one, _):
            found = {each.version: each for each in opened_one.versions()}
    except (FormatError, AuthenticationError, OSError):
        from ags1.dataset.rescue import list_versions

        with client_of(where) as client:
            kept = list_versions(where.vault, client, expected(where), load_pins(where.pin, where.vault))
        found = {each.number: each.version for each in kept}
        errors = {each.number: each.error for each in kept if each.error is not None}
        if not errors:
            raise
    if not said.json:
        say(f"dataset {next(each.uuid for each in found.values() if each is not None)}")
    for number, each in found.items():
        error = errors.get(number)
        if said.json:
            names = ("uuid", "operation", "created_ms", "plaintext_bytes", "digest")
            record = {name: getattr(each, name, None) for name in names}
            files = getattr(each, "file_count", None)
            say_json({"version": number, **record, "files": files, "error": error and describe(error)})
        elif each is None or error is not None:
            say(f"{number:>6}  cannot be read")
        else:
            when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(each.created_ms / 1000))
            what = f"{each.operation}, {counted(each.file_count, 'file')}, {size_text(each.plaintext_bytes)}"
            say(f"{number:>6}  {when}  {each.digest}  {what}")
    if not said.json:
        for fault in errors.values():
            warn(f"ags1: {describe(fault)}")
    return worst_code([exit_code(fault) for fault in errors.values()])
