"""Audit over a cluster: the driver lists and judges, and tasks look at the files.

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
from ags1.spark._engine import Engine, Outcome, check_arguments
from ags1.spark._locations import locate
from ags1.spark._planning import Unit
from ags1.spark._sealing import kms_client, kms_reference
from ags1.storage import Entry, Location, in_order

__all__ = ["AuditWork", "audit"]

# Each waits for a small read, which costs no CPU.
_AT_ONCE = 16


def audit(
    spark: Any,
    source: str | os.PathLike[str],
    *,
    policy: Any = None,
    kms: str | None = None,
    parallelism: int | None = None,
    progress: bool | Callable[[int, int | None], object] = True,
) -> AuditReport:
    """Say what of a bucket, a directory, a dataset or a table is encrypted, how, and what is not.

    The report is the one of :func:`ags1.audit.audit`, whose notes hold here too.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        What to look at, with all that is below it. The driver lists it, and reads the metadata of datasets and tables.
    policy : Policy, path, URL or mapping, optional
        What must be encrypted; see :class:`ags1.audit.Policy`.
    kms : str, optional
        What :func:`ags1.kms.load` takes; the driver and each worker make a client from it. It opens the metadata of
        datasets and encrypted tables, and the footers of Parquet.
    parallelism, progress
        As :func:`~ags1.spark.encrypt_files`. The bytes are those that are read: at most 4096 of each file, without
        footers.

    Returns
    -------
    AuditReport

    Raises
    ------
    FileNotFoundError, OSError
        The source does not exist, or cannot be listed. What is below it and cannot be read is in the report.
    KeyAccessError
        The KMS of a URL cannot be made a client of.
    ValueError
        A policy that is none, or a number below 1.
    """
    check_arguments(spark, parallelism)
    url = None if kms is None else kms_reference(kms)
    here = locate(source, spark)

    def look_at(listed: list[Entry]) -> Iterator[AuditedFile]:
        is_file = [each.location for each in listed] == [here]
        engine = Engine(spark, AuditWork(here, is_file, url), parallelism=parallelism, progress=progress)
        units = (Unit(each.name, min(each.size, BYTES_READ), each.size) for each in listed)
        with closing(engine.run(units)) as waves:
            for outcomes in waves:
                for each in outcomes:
                    yield each.detail

    return judge(here, look_at, policy=policy, kms=None if url is None else kms_client(url))


@dataclass
class AuditWork:
    """Looks at the files of a source, or at the one that it is. The ``data`` of a unit is the size of its file."""

    source: Location
    is_file: bool
    kms: str | None
    verb: str = "audit"

    def run(self, units: list[Unit], tell: Callable[[int, int], None]) -> Iterator[Outcome]:
        """Look at some files. What is wrong with one is in its record."""
        decryption = decryption_of(None if self.kms is None else kms_client(self.kms))
        places = (self.source if self.is_file else self.source.join(each.path) for each in units)
        entries = [Entry(each.path, place, each.data) for each, place in zip(units, places, strict=True)]
        found = in_order(lambda each: look(each, decryption), entries, at_once=_AT_ONCE)
        for unit, file in zip(units, found, strict=True):
            tell(1, unit.size)
            yield Outcome(unit.path, detail=file)
