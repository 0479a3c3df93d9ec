"""Audit over a cluster: the driver lists and judges, and tasks inspect the files.

ags1.audit.engine   --entries-->  engine  --tasks read the beginning of each file-->  what each file is
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ags1.audit.classification import BYTES_READ, AuditedFile, decryption_of, look
from ags1.audit.engine import judge
from ags1.audit.report import AuditReport
from ags1.spark.engine._locations import locate
from ags1.spark.engine._planning import Unit
from ags1.spark.engine._progress import phase_lines
from ags1.spark.engine._runner import Engine, Outcome, check_arguments
from ags1.spark.engine._sealing import kms_client, kms_reference, sealer_under
from ags1.storage import SMALL_FILES_AT_ONCE, Entry, Location, in_order


def audit(
    spark: Any,
    source: str | os.PathLike[str],
    *,
    policy: Any = None,
    kms: str | None = None,
    transfer_key_id: str | None = None,
    parallelism: int | None = None,
    progress: bool | Callable[[int, int | None], object] = True,
) -> AuditReport:
    """Report which files of a bucket, a directory, a dataset or a table are encrypted, and how.

    The report is that of :func:`ags1.audit.audit`, whose notes apply here too.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        What to audit, with all files below it. The driver lists it, and reads the metadata of datasets and tables.
    policy : Policy, path, URL or mapping, optional
        What must be encrypted; see :class:`ags1.audit.Policy`.
    kms : str, optional
        What :func:`ags1.kms.load` takes; the driver and each worker make a client from it. It opens the metadata of
        datasets and encrypted tables, and the footers of Parquet.
    transfer_key_id : str, optional
        Master key of `kms` under which the work of tasks is sealed. Without it the session's secret settings of the
        storage stay on the driver, and tasks use the credentials of their machines' environment.
    parallelism, progress
        As :func:`~ags1.spark.encrypt_files`. The bytes are those read: at most 4096 of each file, without footers.

    Returns
    -------
    AuditReport

    Raises
    ------
    FileNotFoundError, OSError
        The source does not exist, or cannot be listed. Files below it that cannot be read are in the report.
    KeyAccessError
        No client can be made for the URL of the KMS, or it refuses `transfer_key_id`.
    PermissionError
        The session has secret settings of the storage, no `transfer_key_id` was given, and the environment has no
        credentials.
    ValueError
        An invalid policy, or a number below 1.
    """
    check_arguments(spark, parallelism)
    url = None if kms is None else kms_reference(kms)
    here = locate(source, spark)
    seal = sealer_under(url, transfer_key_id)

    def look_at(listed: list[Entry]) -> Iterator[AuditedFile]:
        is_file = [each.location for each in listed] == [here]
        engine = Engine(spark, AuditWork(here, is_file, url), parallelism=parallelism, progress=progress, seal=seal)
        units = (Unit(each.name, min(each.size, BYTES_READ), each.size) for each in listed)
        with closing(engine.run(units)) as waves:
            for outcomes in waves:
                for each in outcomes:
                    yield each.detail

    phase_lines("audit", progress)("listing the files", 0, None)
    return judge(here, look_at, policy=policy, kms=None if url is None else kms_client(url))


@dataclass
class AuditWork:
    """Inspects the files of a source, which may be one file. The ``data`` of a unit is the size of its file."""

    source: Location
    is_file: bool
    kms: str | None
    verb: str = "audit"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Inspect some files. The problem of a file is in its record."""
        decryption = decryption_of(None if self.kms is None else kms_client(self.kms))
        places = (self.source if self.is_file else self.source.join(each.path) for each in units)
        entries = [Entry(each.path, place, each.data) for each, place in zip(units, places, strict=True)]
        found = in_order(lambda each: look(each, decryption), entries, at_once=SMALL_FILES_AT_ONCE)
        for unit, file in zip(units, found, strict=True):
            tell(1, unit.size)
            yield Outcome(unit.path, detail=file)
