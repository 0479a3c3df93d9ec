"""``ags1 iceberg encrypt``, ``decrypt``, ``rekey``, ``relocate``, ``expire``, ``clean``: plan, question, work."""

from __future__ import annotations

import argparse
import datetime
import json
import sys

from ags1._command_line import UsageError
from ags1.cli import OutputClosed, describe, exit_code, printable, say
from ags1.cli._iceberg_open import Opened, opened, properties_of
from ags1.cli._report import Reporter
from ags1.errors import KeyAccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ags1.files import Progress

__all__ = ["clean", "decrypt", "encrypt", "expire", "rekey", "relocate"]


def encrypt(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg encrypt``."""
    from ags1.iceberg import encrypt_table, plan_conversion

    length = options.data_key_length
    steps = {"enable"} if options.enable_only else {"enable", "convert"}
    steps |= {"expire"} if options.expire else set()
    return _run(
        options,
        ("encrypting", "encrypted"),
        lambda table: plan_conversion(table.target, key_id=options.key_id, data_key_length=length, kms=table.kms),
        lambda table, progress: encrypt_table(
            table.target, key_id=options.key_id, data_key_length=length, kms=table.kms, steps=steps,
            threads=options.threads, progress=progress,
        ),
    )  # fmt: skip


def decrypt(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg decrypt``."""
    from ags1.iceberg import decrypt_table, plan_conversion

    return _run(
        options,
        ("decrypting", "decrypted"),
        lambda table: plan_conversion(table.target, decrypt=True, kms=table.kms),
        lambda table, progress: decrypt_table(
            table.target, kms=table.kms, expire=options.expire, threads=options.threads, progress=progress
        ),
    )


def rekey(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg rekey``."""
    from ags1.iceberg import plan_conversion, rekey_table

    length = options.data_key_length
    return _run(
        options,
        ("re-keying", "re-keyed"),
        lambda table: plan_conversion(
            table.target, key_id=options.key_id, data_keys=True, data_key_length=length, kms=table.kms
        ),
        lambda table, progress: rekey_table(
            table.target, key_id=options.key_id, data_keys=True, data_key_length=length, kms=table.kms,
            expire=options.expire, threads=options.threads, progress=progress,
        ),
    )  # fmt: skip


def relocate(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg relocate``."""
    from ags1.iceberg import plan_conversion, relocate_table

    if (options.to_catalog is None) != (options.to_name is None):
        raise UsageError("--to-catalog and --to-name belong together")
    properties = properties_of(options)
    return _run(
        options,
        ("copying", "copied"),
        lambda table: plan_conversion(
            table.target, key_id=options.key_id, target_location=options.target, kms=table.kms
        ),
        lambda table, progress: relocate_table(
            table.target, options.target, options.to_catalog, options.to_name, key_id=options.key_id, kms=table.kms,
            target_properties={**table.target.io_properties, **properties}, threads=options.threads, progress=progress,
        ),
    )  # fmt: skip


def expire(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg expire``."""
    from ags1.iceberg import expire_snapshots

    return _run(
        options,
        ("removing", "removed"),
        lambda table: expire_snapshots(table.target, kms=table.kms, dry_run=True),
        lambda table, _: expire_snapshots(table.target, kms=table.kms),
    )


def clean(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg clean``."""
    from ags1.iceberg import clean as clean_table

    age = datetime.timedelta(seconds=options.older_than)
    return _run(
        options,
        ("removing", "removed"),
        lambda table: clean_table(table.target, kms=table.kms, older_than=age, dry_run=True),
        lambda table, _: clean_table(table.target, kms=table.kms, older_than=age),
    )


def _run(
    options: argparse.Namespace,
    words: tuple[str, str],
    plan: Callable[[Opened], Any],
    work: Callable[[Opened, Progress | None], Any],
) -> int:
    if not (options.yes or options.dry_run) and (options.json or sys.stdin is None or not sys.stdin.isatty()):
        raise UsageError("nobody can be asked here: say --dry-run to see what would be done, or --yes to have it done")
    said: dict[str, Any] = {"location": options.table, "plan": None, "report": None}
    try:
        with opened(options) as table:
            if table.kms is None:
                raise KeyAccessError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
            planned = plan(table)
            said["plan"] = planned.to_dict()
            if not options.json and not (options.quiet and options.yes):
                for line in planned.text.splitlines():
                    say(printable(line))
            if not options.dry_run and (options.yes or _agreed()):
                report = _worked(options, words, table, work)
                said["report"] = report.to_dict()
                if not options.json and not options.quiet:
                    for line in report.text.splitlines():
                        say(printable(line))
            problems = getattr(planned, "problems", []) if options.dry_run else []
    except OutputClosed:
        raise
    except Exception as error:
        if options.json and not isinstance(error, UsageError):
            say(json.dumps({**said, "error": describe(error)}))
            return exit_code(error)
        raise
    if options.json:
        say(json.dumps({**said, "error": problems[0] if problems else None}))
    return 1 if problems else 0


def _worked(
    options: argparse.Namespace, words: tuple[str, str], table: Opened, work: Callable[[Opened, Progress | None], Any]
) -> Any:
    reporter = Reporter(options, words, None, 1)
    try:
        return work(table, reporter.progress_of(table.location))
    finally:
        reporter.close()


def _agreed() -> bool:
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
