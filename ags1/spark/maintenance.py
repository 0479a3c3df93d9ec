"""Functions that need no task: a new master key for a dataset, and cleaning up after killed runs."""

from __future__ import annotations

import os
from typing import Any

import ags1.dataset.maintenance as datasets
from ags1.dataset.expiry import expire
from ags1.dataset.names import RUNS
from ags1.dataset.pins import Access, Pins
from ags1.dataset.reports import DatasetRewrapReport
from ags1.dataset.runs import records, remove_record
from ags1.dataset.versions import numbers, read_latest
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import kms_client, kms_reference
from ags1.support.words import counted

_DAY = 24 * 3600.0


def rewrap(
    spark: Any,
    target: str | os.PathLike[str],
    new_key_id: str,
    *,
    kms: str,
    new_kms: str | None = None,
    dry_run: bool = False,
    pins: Pins | None = None,
) -> DatasetRewrapReport:
    """Put a dataset under another master key. Only wrapped keys are written: no file changes, and no task runs.

    Parameters
    ----------
    spark : SparkSession or None
        Whose configuration says how the storage is reached.
    target : path or URL
        The dataset.
    kms, new_kms : str
        URLs of the services with the old and the new key, as :func:`ags1.kms.load` takes them; only `kms` if it has
        both.
    new_key_id, dry_run
        As for :meth:`ags1.dataset.Dataset.rewrap`, whose report and errors these are.
    pins : Pins, optional
        What the dataset must be; see :func:`ags1.dataset.open`.
    """
    kms = kms_reference(kms)
    renewed = kms_client(kms if new_kms is None else kms_reference(new_kms, "new_kms"))
    access = Access.of(locate(target, spark), kms_client(kms), pins)
    return datasets.rewrap(access, new_key_id, renewed, dry_run=dry_run)


def clean(
    spark: Any,
    target: str | os.PathLike[str],
    *,
    kms: str | None = None,
    grace: float = _DAY,
    pins: Pins | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Remove the leftovers of interrupted runs at a target.

    The files of the dataset, and its older versions, stay as they are. Afterwards the interrupted runs cannot be
    resumed. A run in progress is not disturbed, unless it takes longer than `grace`: then it fails when it commits.

    Parameters
    ----------
    spark : SparkSession or None
        Whose configuration says how the storage is reached.
    target : path or URL
        The dataset.
    kms : str, optional
        What :func:`ags1.kms.load` takes. With it, objects that no version names are removed too: this writes a version
        of the dataset, so that no run names them later. Without it, only the records of the runs are removed.
    grace : float
        Seconds. Younger objects stay, because their writer may still commit them. By the clock of the store.
    pins : Pins, optional
        What the dataset must be, if `kms` is given; see :func:`ags1.dataset.open`.
    dry_run : bool
        Remove nothing.

    Returns
    -------
    list of str
        What was removed, or would be.

    Raises
    ------
    FileNotFoundError
        There is neither a dataset nor anything of an interrupted run.
    """
    location = locate(target, spark)
    names = {each.run for each in records(location)}
    versions = numbers(location)
    last = read_latest(location)
    if pins is not None and last is not None:
        pins.check(last, location)
    if not names and not versions:
        raise FileNotFoundError(2, "there is no ags1 dataset here, and no leftover of a run", location.shown)
    for run in () if dry_run else names:
        remove_record(location, run)
    removed = [f"{RUNS}/{run}" for run in sorted(names)]
    if kms is not None and versions:
        access = Access.of(location, kms_client(kms_reference(kms)), pins)
        report = expire(access, keep=len(versions) + 1, older_than=None, grace=grace, dry_run=dry_run)
        if report.objects:
            # A dry run finds the records, too.
            among = ", some of them of these runs' records" if dry_run and names else ""
            removed.append(f"{counted(report.objects, 'object')} that no version names{among}")
    return removed
