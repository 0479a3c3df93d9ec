"""``ags1 iceberg`` encrypt, decrypt, rekey, expire, clean, compact and maintain: plan, question, work."""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Callable

from ags1.cli.command import OnSpark
from ags1.cli.iceberg.opening import CATALOG_ON_SPARK, CONVERSION, NAME_ON_SPARK, Opened, opened, table_command
from ags1.cli.iceberg.tables import naming
from ags1.cli.output import agreed, say, say_json, warn
from ags1.cli.report import Reporter, code_of
from ags1.errors import KeyAccessError, without_secrets
from ags1.support.typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.streams.files import Progress

PLAN_FIELDS = "location, plan, report (null if nothing was done), error"
_CONVERSION_HELP = """
what happens:
  Pages of Parquet files are moved, not decoded. Every file goes to a new path,
  and one commit makes the new files the table's: until then the table is as it
  was. A run that was killed is resumed by the next one. Old snapshots keep
  their files until they are expired: while these are plaintext, or under old
  keys, the exit code is 5.
"""
_SHOWN = "statistics partition-paths"
_STEPS = ("enable", "convert", "expire")
_JOB = "catalog workers-kms workers-threads parallelism dry-run yes quiet"


@table_command(
    CONVERSION,
    how="key-id! table-data-key-bits",
    steps="enable-only expire",
    shown=_SHOWN,
    threads="threads",
    said="dry-run yes SAY",
    epilog=_CONVERSION_HELP,
    fields=PLAN_FIELDS,
    spark=OnSpark(
        "encrypt_table",
        {"table": NAME_ON_SPARK},
        f"key-id! table-data-key-bits enable-only expire {_JOB}",
        {
            **CATALOG_ON_SPARK,
            "enable-only": {"action": "store_const", "dest": "steps", "const": _STEPS[:1], "default": _STEPS[:2]},
            "expire": {"action": "store_const", "dest": "steps", "const": _STEPS, "default": _STEPS[:2]},
        },
    ),
)
def encrypt(
    where: Namespace, how: Namespace, steps: Namespace, shown: Namespace, threads: int | None, said: Namespace
) -> int:
    r"""Format version 2 becomes 3.

    examples:
      ags1 iceberg encrypt db.events --catalog prod --kms local:keys.json \
          --key-id lake --dry-run
      ags1 iceberg encrypt t/ --kms local:keys.json --key-id lake --expire --yes
    """
    from ags1.iceberg import encrypt_table, plan_conversion

    chosen = _STEPS[: 1 if steps.enable_only else 3 if steps.expire else 2]
    given = {**vars(how), **vars(shown)}
    return planned_and_done(
        where,
        said,
        ("encrypting", "encrypted"),
        lambda table: plan_conversion(table.target, kms=table.kms, expire=steps.expire, **given),
        lambda table, progress: encrypt_table(
            table.target, kms=table.kms, steps=chosen, threads=threads, progress=progress, **given
        ),
    )


@table_command(
    CONVERSION,
    expire="expire",
    threads="threads",
    said="dry-run yes SAY",
    epilog=_CONVERSION_HELP,
    fields=PLAN_FIELDS,
    spark=OnSpark("decrypt_table", {"table": NAME_ON_SPARK}, f"expire {_JOB}", CATALOG_ON_SPARK),
)
def decrypt(where: Namespace, expire: bool, threads: int | None, said: Namespace) -> int:
    """The table stays at format version 3.

    examples:
      ags1 iceberg decrypt db.events --catalog prod --kms local:keys.json --dry-run
    """
    from ags1.iceberg import decrypt_table, plan_conversion

    return planned_and_done(
        where,
        said,
        ("decrypting", "decrypted"),
        lambda table: plan_conversion(table.target, decrypt=True, kms=table.kms, expire=expire),
        lambda table, progress: decrypt_table(
            table.target, kms=table.kms, expire=expire, threads=threads, progress=progress
        ),
    )


@table_command(
    CONVERSION,
    new_key_id="new-key-id",
    how="table-data-key-bits expire",
    shown=_SHOWN,
    threads="threads",
    said="dry-run yes SAY",
    epilog=_CONVERSION_HELP,
    fields=PLAN_FIELDS,
    changed={"new-key-id": "another master key (the same)"},
    spark=OnSpark(
        "rekey_table",
        {"table": NAME_ON_SPARK},
        f"new-key-id table-data-key-bits expire {_JOB}",
        {**CATALOG_ON_SPARK, "new-key-id": {"dest": "key_id"}},
    ),
)
def rekey(
    where: Namespace, new_key_id: str | None, how: Namespace, shown: Namespace, threads: int | None, said: Namespace
) -> int:
    """For keys that leaked. `ags1 iceberg rewrap` changes the master key alone, and no file. In Python this is
    rekey_table(data_keys=True), and that is rekey_table(key_id=...).

    examples:
      ags1 iceberg rekey db.events --catalog prod --kms local:keys.json --expire
      ags1 iceberg rekey t/ --kms local:keys.json --new-key-id lake-2027
    """
    from ags1.iceberg import plan_conversion, rekey_table

    given = {"key_id": new_key_id, "data_keys": True, **vars(how), **vars(shown)}
    return planned_and_done(
        where,
        said,
        ("re-keying", "re-keyed"),
        lambda table: plan_conversion(table.target, kms=table.kms, **given),
        lambda table, progress: rekey_table(table.target, kms=table.kms, threads=threads, progress=progress, **given),
    )


@table_command(CONVERSION, statistics="statistics", said="dry-run yes SAY", fields=PLAN_FIELDS)
def expire(where: Namespace, statistics: str, said: Namespace) -> int:
    """Time travel to before the newest snapshot ends, and staged snapshots (wap.id) cannot be published after it:
    --dry-run lists them.

    examples:
      ags1 iceberg expire db.events --catalog prod --kms local:keys.json
    """
    from ags1.iceberg import expire_snapshots

    return planned_and_done(
        where,
        said,
        ("removing", "removed"),
        lambda table: expire_snapshots(table.target, kms=table.kms, statistics=statistics, dry_run=True),
        lambda table, _: expire_snapshots(table.target, kms=table.kms, statistics=statistics),
    )


@table_command(
    CONVERSION,
    older_than="older-than",
    said="dry-run yes SAY",
    fields=PLAN_FIELDS,
    changed={
        "older-than": {
            "default": 3 * 86_400.0,
            "help": "keep younger files, which somebody may be about to commit: 12h or 30d (3d)",
        }
    },
)
def clean(where: Namespace, older_than: float, said: Namespace) -> int:
    """The default of --older-than leaves the files of a running conversion or writer alone.

    examples:
      ags1 iceberg clean t/ --kms local:keys.json --older-than 7d --dry-run
    """
    from ags1.iceberg import clean as clean_table

    age = datetime.timedelta(seconds=older_than)
    return planned_and_done(
        where,
        said,
        ("removing", "removed"),
        lambda table: clean_table(table.target, kms=table.kms, older_than=age, dry_run=True),
        lambda table, _: clean_table(table.target, kms=table.kms, older_than=age),
    )


def planned_and_done(
    where: Namespace,
    said: Namespace,
    words: tuple[str, str],
    plan: Callable[[Opened], Any],
    work: Callable[[Opened, Progress | None], Any],
) -> int:
    """Say what would be done, ask, and do it; return the exit code."""
    record: dict[str, Any] = {"location": without_secrets(where.table), "plan": None, "report": None}
    report: Any = None
    with opened(where, said) as table:
        if table.kms is None:
            raise KeyAccessError("a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json")
        with Reporter(said, ("planning", "planned")):
            planned = plan(table)
        record["plan"] = planned.to_dict()
        problems = getattr(planned, "problems", []) if said.dry_run else []
        if said.quiet and said.dry_run and not said.json:
            for problem in problems:
                warn(f"ags1: {problem}")
        elif not said.json and not (said.quiet and said.yes):
            _say(str(planned))
        empty = getattr(planned, "is_empty", False)
        if empty and planned.ok and not (said.json or said.quiet):
            say("there is nothing to do")
        if not (said.dry_run or empty) and agreed(said, "Do it?", record):
            with Reporter(said, words) as reporter:
                report = work(table, reporter.progress_of(table.location))
            record["report"] = report.to_dict()
            if not said.json and not said.quiet:
                _say(str(report))
    if said.json:
        say_json({**record, "error": problems[0] if problems else None})
    return code_of(planned if report is None else report, quiet=said.quiet and not said.json)


def _say(text: str) -> None:
    for line in text.splitlines():
        say(line)


_BRANCH = {"ref": {"metavar": "BRANCH", "default": "main", "help": "the branch that it works on (main)"}}


@table_command(
    CONVERSION,
    how="filter target-size sort-by rewrite-all ref",
    said="dry-run yes SAY",
    fields=PLAN_FIELDS,
    changed={**_BRANCH, "filter": "only files that may have such rows: day >= '2026-11-01'"},
    spark=OnSpark(
        "compact_table",
        {"table": NAME_ON_SPARK},
        "filter target-size sort-by rewrite-all ref catalog workers-kms parallelism dry-run yes quiet",
        {**CATALOG_ON_SPARK, "filter": {"dest": "where"}},
    ),
)
def compact(where: Namespace, how: Namespace, said: Namespace) -> int:
    r"""
    what happens:
      Row groups of 32 MiB or more, in files without deletes, are moved and not
      decoded. All other rows are read and written again. Deleted rows are left
      out, and every other row keeps its row id. Other writers go on: a file that
      they change meanwhile is left as it is, and named. The old files stay until
      `ags1 iceberg expire`; a killed run is just run again, and `ags1 iceberg
      clean` removes what it left.

    examples:
      ags1 iceberg compact db.events --catalog prod --kms local:keys.json --dry-run
      ags1 iceberg compact lake/events --kms local:keys.json --yes \
          --filter "day >= '2026-11-01'" --target-size 256M
    """
    given = dict(vars(how))
    rows = given.pop("filter")
    return _planned(
        where,
        said,
        ("compacting", "compacted"),
        lambda table, **further: table.compact(where=rows, **given, **further),
    )


@table_command(
    CONVERSION,
    how="target-size sort-by",
    ages="older-than orphans-older-than",
    ref="ref",
    said="dry-run yes SAY",
    fields=PLAN_FIELDS,
    changed={**_BRANCH, "older-than": "keep younger snapshots, for time travel: 12h or 30d (5d)"},
)
def maintain(where: Namespace, how: Namespace, ages: Namespace, ref: str, said: Namespace) -> int:
    r"""
    what happens:
      1. compact: as `ags1 iceberg compact`
      2. manifests: few instead of many; delete files that delete nothing go
      3. expire: snapshots older than --older-than that no branch or tag has, with
         the files and keys that only they need
      4. clean: files that nothing names, older than --orphans-older-than
      Each step is a commit of its own, so a killed run is just run again. It does
      not run beside `ags1 iceberg encrypt`, `rekey` or `decrypt`: exit code 6.

    examples:
      ags1 iceberg maintain db.events --catalog prod --kms local:keys.json \
          --older-than 7d --yes
    """
    from ags1.iceberg import CompactionOptions, MaintenancePolicy

    policy = MaintenancePolicy(
        branches=(ref,),
        compaction=CompactionOptions(**vars(how)),
        expire_older_than=datetime.timedelta(seconds=ages.older_than),
        clean_older_than=datetime.timedelta(seconds=ages.orphans_older_than),
    )
    return _planned(
        where, said, ("maintaining", "maintained"), lambda table, **further: table.maintain(policy, **further)
    )


def _planned(where: Namespace, said: Namespace, words: tuple[str, str], do: Callable[..., Any]) -> int:
    def work(opened: Opened, **further: Any) -> Any:
        from ags1.iceberg import EncryptedTable

        table = EncryptedTable(opened.location, opened.io, opened.target)
        with naming(table.metadata_location, table):
            return do(table, **further)

    return planned_and_done(
        where,
        said,
        words,
        lambda opened: work(opened, dry_run=True),
        lambda opened, progress: work(opened, progress=progress),
    )
