"""``ags1 iceberg compact`` and ``maintain``: plan, question, work."""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Callable

from ags1.cli.command import OnSpark
from ags1.cli.iceberg.convert import PLAN_FIELDS, planned_and_done
from ags1.cli.iceberg.opening import CATALOG_ON_SPARK, CONVERSION, NAME_ON_SPARK, Opened, table_command
from ags1.cli.iceberg.scan import naming
from ags1.support.typing import Any

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
