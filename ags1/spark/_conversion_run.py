"""One conversion of an Iceberg table, on the driver: the engine of ags1.iceberg, whose files are moved by tasks.

driver   look, plan  -->  tasks move files, journal them  -->  manifests, commit  -->  REFRESH TABLE
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ags1.iceberg import ConversionPlan, ConversionReport, decrypt_table, encrypt_table, plan_conversion, rekey_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.conversion.sealing import WorkKey
from ags1.iceberg.conversion.work import FileResult, FileTask, Places
from ags1.spark._catalogs import find_table
from ags1.spark._engine import Engine, check_arguments
from ags1.spark._iceberg_work import Job, TableMoving
from ags1.spark._planning import Unit
from ags1.spark._results import raise_for
from ags1.spark._sealing import Sealer, kms_client, kms_reference
from ags1.storage import Location

__all__ = ["convert"]

_FUNCTIONS: dict[str, Callable[..., Any]] = {"encrypt": encrypt_table, "decrypt": decrypt_table, "rekey": rekey_table}
# What an argument is called that both the function and its plan have.
_OF_PLANS = {
    "encrypt": ("key_id", "data_key_length"),
    "decrypt": (),
    "rekey": ("key_id", "data_keys", "data_key_length"),
}


def convert(
    change: str,
    spark: Any,
    table: Any,
    kms: str,
    options: dict[str, Any],
    parallelism: int | None,
    threads: int,
    progress: Any,
    dry_run: bool,
) -> ConversionReport | ConversionPlan:
    """See :func:`ags1.spark.encrypt_table`, :func:`ags1.spark.decrypt_table` and :func:`ags1.spark.rekey_table`."""
    check_arguments(spark, parallelism)
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    url = kms_reference(kms)
    client = kms_client(url)
    name = None
    if isinstance(table, str):
        found = find_table(spark, table)
        name = found.sql
        table = catalog_table(found.catalog, found.identifier, storage_options=found.properties)
    elif isinstance(table, tuple):
        if len(table) != 2:
            raise ValueError("give a table as 'catalog.db.name', or as a pair (catalog, identifier)")
        table = catalog_table(*table)
    if dry_run:
        if change == "rekey" and not options["data_keys"]:
            raise ValueError("dry_run is for new data keys: give data_keys=True")
        chosen = {each: options[each] for each in _OF_PLANS[change]}
        return plan_conversion(table, kms=client, decrypt=change == "decrypt", **chosen)

    def perform(
        tasks: list[FileTask], work_key: WorkKey | None, places: Places, directory: Location
    ) -> Iterator[FileResult]:
        # One object, which is pickled once for each Spark task.
        job = Job(places, work_key, directory)
        units = [Unit(each.source, each.length, (each, job)) for each in sorted(tasks, key=lambda each: each.source)]
        seal = None if work_key is None else Sealer.create(url, work_key.key_id)
        engine = Engine(spark, TableMoving(change, url, threads), parallelism=parallelism, progress=progress, seal=seal)
        with closing(engine.run(units)) as waves:
            for outcomes in waves:
                for each in outcomes:
                    if each.status != "ok":
                        raise_for(each, change, None, keeps=False)
                    yield each.detail

    report: ConversionReport = _FUNCTIONS[change](table, kms=client, perform=perform, **options)
    if name is not None:
        _refresh(spark, name)
    return report


def _refresh(spark: Any, name: str) -> None:
    try:
        spark.sql(f"REFRESH TABLE {name}")
    except Exception as error:
        # The table is converted, and whoever is told of a failure would do it again.
        text = str(error).partition("\n")[0]
        warnings.warn(
            f"the table is converted, but this session could not refresh {name}, and may read its old state: {text}",
            stacklevel=4,
        )
