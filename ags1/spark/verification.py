"""Verify a dataset over a cluster: every block of every file, and find foreign files.

ags1.dataset.verification   --entries-->  engine  --tasks-->  what failed, and how
judges, lists, compares                             authenticate files
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from typing import Any

from ags1.dataset.entries import DatasetEntry
from ags1.dataset.manifests import DatasetView
from ags1.dataset.pins import Pins
from ags1.dataset.verification import compare
from ags1.dataset.versions import read_version
from ags1.spark.decryption import open_dataset, sealer_of
from ags1.spark.encryption import by_file, joined
from ags1.spark.engine.dataset_work import VerifyWork, units_of
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import PART_BYTES, Unit
from ags1.spark.engine.progress import Progress
from ags1.spark.engine.results import Recorder, Result, error_of
from ags1.spark.engine.runner import Engine, Outcome, check_arguments
from ags1.spark.engine.sealing import dataset_keys, kms_reference
from ags1.storage import Location
from ags1.support.reports import ERROR, Finding
from ags1.work.units import UnitOutcome


def verify_files(
    spark: Any,
    source: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    pins: Pins | None = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    progress: Progress = True,
) -> Result:
    """Authenticate every block of every file of a dataset, and compare the tree with the manifest.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        A dataset.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that the dataset must be under.
    expected_version : int, optional
        The version that the dataset must have: nothing else shows that a whole directory was restored from an older
        copy.
    pins : Pins, optional
        What a dataset must be; see :func:`ags1.dataset.open`.
    part_bytes : int
        Plaintext bytes of a big file that one task verifies.
    parallelism, progress
        As :func:`~ags1.spark.encrypt_files`.

    Returns
    -------
    Result
        A row with the status "error" for each file that is missing, truncated, extended, replaced, damaged
        or unreadable, and for each foreign file; its error begins with that word. Objects that no version names, left
        by interrupted runs and repeated tasks, have the status "left out".

    Raises
    ------
    FileNotFoundError
        There is no dataset.
    KeyAccessError, FormatError, AuthenticationError
        The dataset itself cannot be opened.
    """
    kms = kms_reference(kms)
    here = locate(source, spark)
    check_arguments(spark, parallelism, part_bytes)
    recorder = Recorder(spark, "verify")
    with open_dataset(here, kms, expected_version, key_id, pins) as dataset:
        version = read_version(here, dataset.version)
        # What was read again is what was opened.
        dataset.pins.check(version, here)
        engine = Engine(
            spark, VerifyWork(here, version.key, kms), parallelism=parallelism, progress=progress,
            seal=sealer_of(dataset, kms), part_bytes=part_bytes,
        )  # fmt: skip
        verifying = _Verifying(engine, recorder)
        view = DatasetView.of(here, version, dataset_keys(version.key, kms, here))
        found = compare(view, perform=verifying.perform)
        recorder.result.version = dataset.version
        recorder.add(verifying.row(here, each) for each in found)
    return recorder.close()


class _Verifying:
    """Verifies entries in tasks, and makes rows of the outcomes."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._engine = engine
        self._recorder = recorder
        # Of files that are under way.
        self._entries: dict[str, DatasetEntry] = {}
        # Of files that failed: they are judged when all others are known.
        self._failed: dict[str, Outcome] = {}

    def perform(self, view: DatasetView) -> Generator[UnitOutcome, None, None]:
        """Verify all files; see :func:`ags1.dataset.verification.compare`."""
        with closing(self._units(view)) as units, closing(self._engine.run(units)) as waves:
            for rows in waves:
                for path, each in by_file(rows).items():
                    entry = self._entries.pop(path)
                    row = joined(each, entry.plaintext_length)
                    if row.status == "error":
                        self._failed[path] = row
                        yield UnitOutcome(entry, None, error_of(row), row.seconds)
                    else:
                        self._recorder.add([row])

    def _units(self, view: DatasetView) -> Generator[Unit, None, None]:
        """Each file, or its ranges."""
        for entry in view.manifests.files(view.root):
            self._entries[entry.path] = entry
            yield from units_of(entry, self._engine.part_bytes)

    def row(self, location: Location, finding: Finding) -> Outcome:
        path = finding.subject
        found = self._failed.get(path) or Outcome(path, location.join(path).text)
        found.error, found.kind = f"{finding.code}: {finding.message}", finding.code
        found.status = "error" if finding.severity == ERROR else "left out"
        return found
