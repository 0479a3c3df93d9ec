"""``ags1 iceberg encrypt``, ``decrypt``, ``rekey``, ``expire``, ``clean``: plan, question, work."""

from __future__ import annotations

import argparse
import datetime

from ags1.cli import say, say_json, warn
from ags1.cli.consent import agreed
from ags1.cli.iceberg.opening import Opened, opened
from ags1.cli.report import Reporter
from ags1.errors import KeyAccessError
from ags1.support.exit_codes import EXIT_DATA
from ags1.support.remedies import in_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ags1.streams.files import Progress


def encrypt(options: argparse.Namespace) -> int:
    from ags1.iceberg import encrypt_table, plan_conversion

    length = options.data_key_length
    steps = {"enable"} if options.enable_only else {"enable", "convert"}
    steps |= {"expire"} if options.expire else set()
    return planned_and_done(
        options,
        ("encrypting", "encrypted"),
        lambda table: plan_conversion(
            table.target, key_id=options.key_id, data_key_length=length, kms=table.kms, expire=options.expire,
            **_shown(options),
        ),
        lambda table, progress: encrypt_table(
            table.target, key_id=options.key_id, data_key_length=length, kms=table.kms, steps=steps,
            threads=options.threads, progress=progress, **_shown(options),
        ),
    )  # fmt: skip


def decrypt(options: argparse.Namespace) -> int:
    from ags1.iceberg import decrypt_table, plan_conversion

    return planned_and_done(
        options,
        ("decrypting", "decrypted"),
        lambda table: plan_conversion(table.target, decrypt=True, kms=table.kms, expire=options.expire),
        lambda table, progress: decrypt_table(
            table.target, kms=table.kms, expire=options.expire, threads=options.threads, progress=progress
        ),
    )


def rekey(options: argparse.Namespace) -> int:
    from ags1.iceberg import plan_conversion, rekey_table

    length = options.data_key_length
    return planned_and_done(
        options,
        ("re-keying", "re-keyed"),
        lambda table: plan_conversion(
            table.target, key_id=options.new_key_id, data_keys=True, data_key_length=length, kms=table.kms,
            expire=options.expire, **_shown(options),
        ),
        lambda table, progress: rekey_table(
            table.target, key_id=options.new_key_id, data_keys=True, data_key_length=length, kms=table.kms,
            expire=options.expire, threads=options.threads, progress=progress, **_shown(options),
        ),
    )  # fmt: skip


def expire(options: argparse.Namespace) -> int:
    from ags1.iceberg import expire_snapshots

    return planned_and_done(
        options,
        ("removing", "removed"),
        lambda table: expire_snapshots(table.target, kms=table.kms, statistics=options.statistics, dry_run=True),
        lambda table, _: expire_snapshots(table.target, kms=table.kms, statistics=options.statistics),
    )


def clean(options: argparse.Namespace) -> int:
    from ags1.iceberg import clean as clean_table

    age = datetime.timedelta(seconds=options.older_than)
    return planned_and_done(
        options,
        ("removing", "removed"),
        lambda table: clean_table(table.target, kms=table.kms, older_than=age, dry_run=True),
        lambda table, _: clean_table(table.target, kms=table.kms, older_than=age),
    )


def _shown(options: argparse.Namespace) -> dict[str, Any]:
    """What an encrypted table may show."""
    return {"statistics": options.statistics, "partition_paths": options.partition_paths}


def planned_and_done(
    options: argparse.Namespace,
    words: tuple[str, str],
    plan: Callable[[Opened], Any],
    work: Callable[[Opened, Progress | None], Any],
) -> int:
    """Say what would be done, ask, and do it; return the exit code."""
    said: dict[str, Any] = {"location": options.table, "plan": None, "report": None}
    report: Any = None
    with opened(options) as table:
        if table.kms is None:
            raise KeyAccessError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
        with Reporter(options, ("planning", "planned")):
            planned = plan(table)
        said["plan"] = planned.to_dict()
        problems = getattr(planned, "problems", []) if options.dry_run else []
        if options.quiet and options.dry_run and not options.json:
            for problem in problems:
                warn(f"ags1: {in_options(problem)}")
        elif not options.json and not (options.quiet and options.yes):
            _say(str(planned))
        empty = getattr(planned, "is_empty", False)
        if empty and planned.ok and not (options.json or options.quiet):
            say("there is nothing to do")
        if not (options.dry_run or empty) and agreed(options, "Do it?", said):
            with Reporter(options, words) as reporter:
                report = work(table, reporter.progress_of(table.location))
            said["report"] = report.to_dict()
            if not options.json and not options.quiet:
                _say(str(report))
    if options.json:
        say_json({**said, "error": problems[0] if problems else None})
    return 0 if (planned if report is None else report).ok else EXIT_DATA


def _say(text: str) -> None:
    for line in in_options(text).splitlines():
        say(line)
