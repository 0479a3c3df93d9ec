"""``ags1 dataset``: directories of encrypted files under one master key."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from ags1.cli import EXIT_DATA, EXIT_IO, OutputClosed, describe, exit_code, printable, say, warn
from ags1.cli._parser import UsageError, _add_kms, _add_show, _Formatter, _json_fields, _Parser, _size
from ags1.cli._report import Reporter, files, format_bytes, in_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.dataset import Dataset, RunReport

__all__ = ["dataset"]

_COPY_BYTES = 8 << 20
_SHOWN = 20
_ENCRYPTING, _DECRYPTING = ("encrypting", "encrypted"), ("decrypting", "decrypted")


def dataset(options: argparse.Namespace) -> int:
    """Run ``ags1 dataset``."""
    arguments = list(options.arguments)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    found = _parser().parse_args(arguments)
    if not found.kms:
        found.kms = os.environ.get("AGS1_KMS")
    return int(found.run(found))


def _parser() -> _Parser:
    parser = _Parser(prog="ags1 dataset", formatter_class=_Formatter, allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", prog="ags1 dataset", required=True)

    def action(
        name: str, run: Callable[[argparse.Namespace], int], summary: str, usage: str, more: str = "", fields: str = ""
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(
            name,
            help=summary,
            usage=f"ags1 dataset {name} {usage} --kms URL [options]",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=_json_fields(fields) if fields else None,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=run)
        return sub

    run_fields = (
        "dataset, version, changed, done, done_bytes, unchanged, resumed, others,\n"
        "  skipped, errors, seconds, dry_run, paths (in a dry run), error"
    )
    sub = action(
        "encrypt",
        _encrypt,
        "encrypt a directory into a dataset, or bring a dataset up to date",
        "SOURCE TARGET --key-id ID",
        "Each file gets a key of its own under the master key. Only what is new or changed is encrypted, and an "
        "interrupted run is taken over. Files that the source has no more stay.",
        run_fields,
    )
    sub.add_argument("source", metavar="SOURCE", help="directory, or file")
    sub.add_argument("vault", metavar="TARGET", help="directory of the dataset; made if it is missing")
    sub.add_argument("--key-id", metavar="ID", help="the master key")
    _add_run(sub)

    sub = action(
        "add",
        _add,
        "add files to a dataset that is there",
        "SOURCE DATASET",
        "As encrypt, but the files may go to a directory of the dataset.",
        run_fields,
    )
    sub.add_argument("source", metavar="SOURCE", help="directory, or file")
    sub.add_argument("vault", metavar="DATASET", help="directory of the dataset")
    sub.add_argument("--prefix", metavar="PATH", default="", help="directory in the dataset that they go to")
    _add_run(sub)

    sub = action(
        "ls",
        _list,
        "list the files of a dataset",
        "DATASET [PATH]",
        "Names are relative to the dataset; sizes are of the plaintext.",
        "path, type, plaintext_length, file_length",
    )
    sub.add_argument("vault", metavar="DATASET", help="directory or URL of the dataset")
    sub.add_argument("path", metavar="PATH", nargs="?", default="", help="directory or file in it")
    sub.add_argument("-r", "--recursive", action="store_true", help="every file below, not one directory")
    sub.add_argument("-l", "--long", action="store_true", help="plaintext size beside each name")
    sub.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    _add_open(sub)

    sub = action(
        "cat",
        _cat,
        "decrypt files of a dataset to standard output, whole or a range",
        "DATASET PATH [PATH ...]",
        "Nothing is written before it is authenticated, but what was written before a failure stays written.",
    )
    sub.add_argument("vault", metavar="DATASET", help="directory or URL of the dataset")
    sub.add_argument("paths", metavar="PATH", nargs="+", help="file in it")
    sub.add_argument("--offset", type=_size, default=0, metavar="SIZE", help="plaintext offset to start at (0)")
    sub.add_argument("--bytes", type=_size, default=None, metavar="SIZE", help="bytes of plaintext (to the end)")
    _add_open(sub)

    sub = action(
        "verify",
        _verify,
        "authenticate every file, and name what is missing, swapped, damaged or foreign",
        "DATASET",
        "A whole directory that was put back from an older copy is authentic: only --expected-version shows that.",
        "dataset, version, files, plaintext_bytes, problems (path, kind, detail),\n  seconds, error",
    )
    sub.add_argument("vault", metavar="DATASET", help="directory or URL of the dataset")
    _add_open(sub)
    _add_show(sub.add_argument_group("work"))

    sub = action(
        "decrypt",
        _decrypt,
        "decrypt a dataset into a directory",
        "DATASET TARGET",
        "Files of the same names in TARGET are replaced, each atomically.",
        run_fields,
    )
    sub.add_argument("vault", metavar="DATASET", help="directory or URL of the dataset")
    sub.add_argument("plain", metavar="TARGET", help="directory; made if it is missing")
    _add_open(sub)
    _add_choice(sub, resume=False)

    sub = action(
        "rewrap",
        _rewrap,
        "put a dataset under another master key; no file changes",
        "DATASET --new-key-id ID",
        "Keep the old master key until this has succeeded; whoever has an old copy of metadata.json still needs it.",
        "dataset, old_key_id, new_key_id, keys, dry_run, error",
    )
    sub.add_argument("vault", metavar="DATASET", help="directory of the dataset")
    sub.add_argument("--new-key-id", metavar="ID", required=True, help="the new master key")
    sub.add_argument("--new-kms", metavar="URL", help="the service that has it, if it is another one")
    sub.add_argument("--dry-run", action="store_true", help="make every call to the service, and write nothing")
    sub.add_argument("--json", action="store_true", help="one JSON object, for machines")
    sub.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    _add_open(sub)
    return parser


def _add_open(parser: argparse.ArgumentParser) -> None:
    _add_kms(parser)
    group = parser.add_argument_group("trust")
    group.add_argument(
        "--expected-version", type=_version, metavar="N", help="refuse the dataset if it has another version"
    )
    if parser.get_default("key_id") is None:
        group.add_argument("--key-id", metavar="ID", help="refuse the dataset if it is under another master key")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_kms(parser)
    _add_choice(parser, resume=True)


def _add_choice(parser: argparse.ArgumentParser, *, resume: bool) -> None:
    group = parser.add_argument_group("files")
    group.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="only these files: a pattern without / is compared with each component of a path, one with / with all "
        "of it (may be repeated)",
    )
    group.add_argument("--exclude", action="append", metavar="GLOB", help="not these files (may be repeated)")
    group.add_argument("--keep-going", action="store_true", help="report files that fail, and go on with the others")
    group.add_argument("--durable", action="store_true", help="wait until each file is on the disk")
    group.add_argument("--dry-run", action="store_true", help="only say what would be done")
    if resume:
        group.add_argument("--no-resume", action="store_true", help="do again what an interrupted run has done already")
    _add_show(parser.add_argument_group("work"))


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version such as 7")
    return int(text)


def _client(options: argparse.Namespace) -> Any:
    from ags1.cli._kms import client_of

    if not options.kms:
        raise UsageError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
    return client_of(options)


def _open(options: argparse.Namespace, client: Any) -> Dataset:
    from ags1 import dataset as datasets

    threads = getattr(options, "threads", None)
    expected, key_id = getattr(options, "expected_version", None), getattr(options, "key_id", None)
    return datasets.open(options.vault, client, expected_version=expected, key_id=key_id, threads=threads)


# -- encrypt, add, decrypt -----------------------------------------------------------------------------------------


def _encrypt(options: argparse.Namespace) -> int:
    from ags1 import dataset as datasets

    if not options.key_id:
        raise UsageError("a master key is needed: --key-id ID (`ags1 kms list` shows those of a local keystore)")

    def work(client: Any, choice: dict[str, Any], progress: Callable[..., None]) -> RunReport:
        if options.dry_run:
            return datasets.preview(options.source, options.vault, client, options.key_id, **choice)
        more = {"threads": options.threads, "resume": not options.no_resume, "durable": options.durable}
        with datasets.encrypt(
            options.source, options.vault, client, options.key_id, progress=progress, **choice, **more
        ) as made:
            assert made.report is not None
            return made.report

    return _run(options, _ENCRYPTING, work)


def _add(options: argparse.Namespace) -> int:
    def work(client: Any, choice: dict[str, Any], progress: Callable[..., None]) -> RunReport:
        more = {"threads": options.threads, "resume": not options.no_resume, "durable": options.durable}
        with _open(options, client) as vault:
            return vault.add(
                options.source,
                prefix=options.prefix,
                dry_run=options.dry_run,
                progress=None if options.dry_run else progress,
                **choice,
                **more,
            )

    return _run(options, _ENCRYPTING, work)


def _decrypt(options: argparse.Namespace) -> int:
    def work(client: Any, choice: dict[str, Any], progress: Callable[..., None]) -> RunReport:
        with _open(options, client) as vault:
            return vault.decrypt(
                options.plain, durable=options.durable, dry_run=options.dry_run, progress=progress, **choice
            )

    return _run(options, _DECRYPTING, work)


def _run(
    options: argparse.Namespace,
    words: tuple[str, str],
    work: Callable[[Any, dict[str, Any], Callable[..., None]], RunReport],
) -> int:
    """Do the work, and say what came of it."""
    choice = {
        "include": options.include,
        "exclude": options.exclude,
        "on_error": "collect" if options.keep_going else "fail",
    }
    reporter = Reporter(options, words, None, 1)
    try:
        with _client(options) as client:
            started = time.monotonic()
            report = work(client, choice, reporter.progress_of(options.vault))
            seconds = time.monotonic() - started
    except OutputClosed:
        raise
    except Exception as error:
        reporter.close()
        if options.json:
            say(_json({"dataset": options.vault, "error": describe(error)}))
            return exit_code(error)
        raise
    reporter.close()
    if options.json:
        say(_json(_record(options, report, seconds)))
    elif not options.quiet:
        _tell(options, words, report, seconds)
    if not options.json:
        for path, failure in report.errors[: None if options.verbose else _SHOWN]:
            text = describe(failure)
            warn(f"ags1: {text if path in text else f'{path}: {text}'}")
        if len(report.errors) > _SHOWN and not options.verbose:
            warn(f"ags1: ... and {files(len(report.errors) - _SHOWN)} more (--verbose names them all)")
    return exit_code(report.errors[0][1]) if report.errors else 0


def _record(options: argparse.Namespace, report: RunReport, seconds: float) -> dict[str, Any]:
    record: dict[str, Any] = {
        "dataset": options.vault,
        "version": report.version,
        "changed": report.changed,
        "done": report.done,
        "done_bytes": report.done_bytes,
        "unchanged": report.unchanged,
        "resumed": report.resumed,
        "others": report.others,
        "skipped": [{"path": path, "reason": reason} for path, reason in report.skipped],
        "errors": [{"path": path, "error": describe(error)} for path, error in report.errors],
        "seconds": round(seconds, 6),
        "dry_run": options.dry_run,
    }
    if options.dry_run:
        record["paths"] = report.paths
    count = len(report.errors)
    record["error"] = f"{files(count)} failed" if count else None
    return record


def _tell(options: argparse.Namespace, words: tuple[str, str], report: RunReport, seconds: float) -> None:
    for path in report.paths:
        say(printable(path))
    if options.dry_run:
        say(printable(f"would have {words[1]} {files(report.done)}, {format_bytes(report.done_bytes)}"))
        return
    parts = [f"{words[1]} {files(report.done)}, {in_time(report.done_bytes, seconds)}"]
    for count, what in (
        (report.resumed, "taken over from an interrupted run"),
        (report.unchanged, "unchanged"),
        (report.others, "not in the source"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    if report.errors:
        parts.append(f"{len(report.errors):,} failed")
    say(printable(f"{'; '.join(parts)} -> {getattr(options, 'plain', options.vault)}, version {report.version}"))
    for path, reason in report.skipped[: None if options.verbose else _SHOWN]:
        warn(f"ags1: warning: {path} was left out: it {reason}")
    if len(report.skipped) > _SHOWN and not options.verbose:
        warn(f"ags1: warning: {len(report.skipped) - _SHOWN:,} more were left out (--verbose names them all)")


# -- ls, cat, verify, rewrap ---------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    with _client(options) as client, _open(options, client) as vault:
        path = options.path.strip("/")
        if path and path in vault.files:
            found: Any = iter([(path, vault.files[path])])
        elif path and not vault.files.is_directory(path):
            raise FileNotFoundError(2, "the dataset has no such file or directory", path)
        elif options.recursive:
            found = ((entry.path, entry) for entry in vault.files.below(path))
        else:
            found = ((f"{path}/{name}" if path else name, entry) for name, entry in vault.files.children(path))
        for name, entry in found:
            if options.json:
                record = {"path": name, "type": "directory" if entry is None else "file"}
                if entry is not None:
                    record.update(plaintext_length=entry.plaintext_length, file_length=entry.file_length)
                say(_json(record))
            else:
                size = "" if not options.long else f"{'-' if entry is None else f'{entry.plaintext_length:,}':>19}  "
                say(printable(f"{size}{name}{'/' if entry is None else ''}"))
    return 0


def _cat(options: argparse.Namespace) -> int:
    from ags1.cli._standard import standard_output

    if len(options.paths) > 1 and (options.offset or options.bytes is not None):
        raise UsageError("--offset and --bytes are for one file, but there are many")
    output = standard_output()
    with _client(options) as client, _open(options, client) as vault:
        for path in options.paths:
            with vault.open(path) as reader:
                reader.seek(options.offset)
                left = options.bytes
                while left is None or left > 0:
                    data = reader.read(_COPY_BYTES if left is None else min(left, _COPY_BYTES))
                    if not data:
                        break
                    output.write(data)
                    left = None if left is None else left - len(data)
    output.flush()
    return 0


def _verify(options: argparse.Namespace) -> int:
    reporter = Reporter(options, ("verifying", "verified"), None, 1)
    started = time.monotonic()
    try:
        with _client(options) as client, _open(options, client) as vault:
            report = vault.verify(threads=options.threads, progress=reporter.progress_of(options.vault))
    except OutputClosed:
        raise
    except Exception as error:
        reporter.close()
        if options.json:
            say(_json({"dataset": options.vault, "error": describe(error)}))
            return exit_code(error)
        raise
    seconds = time.monotonic() - started
    reporter.close()
    count = len(report.problems)
    problems = "1 problem" if count == 1 else f"{count:,} problems"
    if options.json:
        record = {
            "dataset": options.vault,
            "version": report.version,
            "files": report.file_count,
            "plaintext_bytes": report.plaintext_bytes,
            "problems": [{"path": each.path, "kind": each.kind, "detail": each.detail} for each in report.problems],
            "seconds": round(seconds, 6),
            "error": None if report.ok else problems,
        }
        say(_json(record))
    else:
        for each in report.problems:
            warn(f"ags1: {each.kind}: {each.detail}")
        if not options.quiet:
            what = f"{files(report.file_count)}, {in_time(report.plaintext_bytes, seconds)}, version {report.version}"
            say(printable(f"{options.vault}: {what}: {'all authentic' if report.ok else problems}"))
    if report.ok:
        return 0
    # What could not be read is not known to be damaged.
    return EXIT_IO if all(each.kind == "unreadable" for each in report.problems) else EXIT_DATA


def _rewrap(options: argparse.Namespace) -> int:
    from ags1.cli._kms import client_of

    with _client(options) as client, _open(options, client) as vault:
        new = None
        if options.new_kms:
            new = client_of(argparse.Namespace(**{**vars(options), "kms": options.new_kms}))
        try:
            report = vault.rewrap(options.new_key_id, new, dry_run=options.dry_run)
        finally:
            if new is not None:
                new.close()
    if options.json:
        record = {
            "dataset": options.vault,
            "old_key_id": report.old_key_id,
            "new_key_id": report.new_key_id,
            "keys": report.keys,
            "dry_run": report.dry_run,
            "error": None,
        }
        say(_json(record))
    elif not options.quiet:
        done = "would be" if report.dry_run else "is"
        say(
            printable(
                f"{options.vault} {done} under the master key {report.new_key_id!r}, no more under "
                f"{report.old_key_id!r}; no file changed"
            )
        )
    return 0


def _json(record: dict[str, Any]) -> str:
    import json

    return json.dumps(record)
