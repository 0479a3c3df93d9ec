"""Decrypt a dataset over a cluster.

manifests, in the order of paths  -->  units: entries, whose keys are sealed  --engine-->  files, synced  -->  a record

The driver creates a big file of a local target, which all executors see, beside the records; many tasks fill it, and
the driver renames it. A late task writes the same bytes at the same place, or does not find the file. An object store
cannot write into the middle of a file: there, one task decrypts all of it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import ags1.dataset as datasets
from ags1.dataset import Dataset, DatasetEntry, Pins
from ags1.dataset.decrypting import made_before, refuse_different, refuse_twin_files
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.targets import LocalTarget
from ags1.layout import encrypted_length
from ags1.spark.encryption import by_file, joined
from ags1.spark.engine.dataset_work import DecryptWork, units_of
from ags1.spark.engine.decryption_records import DecryptionRecords
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import PART_BYTES, Unit
from ags1.spark.engine.progress import Progress
from ags1.spark.engine.results import Recorder, Result
from ags1.spark.engine.runner import Engine, Outcome, check_arguments
from ags1.spark.engine.sealing import Sealer, dataset_keys, kms_client, kms_reference
from ags1.storage import Location, TreeDirectories, Unsynced, identity_of, inside, list_files, pass_unnamed, remove
from ags1.support.arguments import one_of


def open_dataset(
    location: Location, kms: str, expected_version: int | None, key_id: str | None, pins: Pins | None
) -> Dataset:
    """Open the dataset at a location, with the cached KMS client of this process."""
    return datasets.open(location, kms_client(kms), expected_version=expected_version, key_id=key_id, pins=pins)


def sealer_of(dataset: Dataset, kms: str) -> Sealer:
    """The Sealer for units of a dataset, below the dataset's key encryption key."""
    return Sealer.create(kms, dataset.key_id, dataset.wrapped_key.encryption_keys)


def decrypt_files(
    spark: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    pins: Pins | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    overwrite: bool = True,
    progress: Progress = True,
) -> Result:
    """Decrypt the files of a dataset into a tree, under the names that they have in it.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        The dataset.
    target : path or URL
        A directory. Files of the same names in it are replaced, each atomically; nothing is written through a link.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that the dataset must be under.
    expected_version : int, optional
        The version that the dataset must have.
    pins : Pins, optional
        What the dataset must be; see :func:`ags1.dataset.open`.
    part_bytes : int
        Files of more plaintext bytes than this are cut into ranges that many tasks decrypt at once, if the target is a
        directory of the file system. Behind a URL, one task decrypts a file.
    include, exclude, parallelism, on_error, progress
        As :func:`~ags1.spark.encrypt_files`.
    resume : bool
        Whether to skip files that an interrupted run into the same target has recorded.
    overwrite : bool
        Whether to replace files that exist. Otherwise they are looked at before anything is written, as by
        :meth:`ags1.dataset.Dataset.decrypt`; what an interrupted run has written is no obstacle, behind a URL if it has
        recorded anything.

    Returns
    -------
    Result

    Raises
    ------
    AuthenticationError, TruncatedError, FormatError
        A file is not as it was written; none of it appears. With ``on_error="collect"`` it is reported instead.
    FileExistsError
        Without `overwrite`, a file of the target differs. Nothing was written.
    NotADirectoryError
        One file has the name of a directory of another file, as only a store allows. Nothing was written.
    OSError
        Reading or writing failed.
    KeyAccessError
        The master key could not be used, or is not `key_id`.
    ValueError
        The target lies in the dataset, or the dataset where files of it would be put.
    """
    kms = kms_reference(kms)
    one_of(on_error, ("fail", "collect"), "on_error")
    check_arguments(spark, parallelism, part_bytes)
    here, there = locate(source, spark), locate(target, spark)
    if inside(here, there) is not None:
        raise ValueError(f"the target {there} lies in the dataset: plaintext would be among encrypted files")
    wanted = Filter(include, exclude)
    recorder = Recorder(spark, "decrypt", on_error)
    with open_dataset(here, kms, expected_version, key_id, pins) as dataset:
        below = inside(there, here)
        if below is not None and dataset.files.is_directory(below):
            raise ValueError(
                f"files below {below}/ would be put into the dataset, which lies in the target {there}: choose a "
                "target beside it"
            )
        refuse_twin_files(dataset.files, wanted, there)
        engine = Engine(
            spark,
            DecryptWork(here, there, dataset.wrapped_key, kms, dataset.uuid, dataset.digest),
            parallelism=parallelism,
            progress=progress,
            seal=sealer_of(dataset, kms),
            part_bytes=part_bytes,
        )
        recorder.result.version = dataset.version
        keys = dataset_keys(dataset.wrapped_key, kms, here)
        records = DecryptionRecords.of(there, keys, dataset.uuid, dataset.digest)
        if not overwrite:
            done = records.read() if resume else {}
            if there.is_local or not done:
                entries = (each for each in dataset.files if wanted.accepts(each.path) and each.path not in done)
                refuse_different(there.as_root(), entries, lambda entry: dataset.open(entry.path))
        _Decrypting(dataset, there.as_root(), wanted, engine, recorder, records, resume).run()
    return recorder.close()


@dataclass(eq=False, repr=False)
class _Decrypting:
    dataset: Dataset
    target: Location
    wanted: Filter
    engine: Engine
    recorder: Recorder
    records: DecryptionRecords
    resume: bool

    def __post_init__(self) -> None:
        self._done = self.records.read() if self.resume else {}
        if not self._done:
            self.records.remove()
        self._unsynced = Unsynced(self.target)
        # Empty directories that could not be made.
        self._failed: list[tuple[str, OSError]] = []
        # Files that tasks fill: their entries, and their temporary names.
        self._begun: dict[str, tuple[DatasetEntry, str]] = {}

    def run(self) -> None:
        try:
            self._run()
        finally:
            remove(self.target.join(name) for _, name in self._begun.values())
            self.records.close()

    def _run(self) -> None:
        # The driver makes the directories, so its umask counts.
        with TreeDirectories(self.target, self.dataset.mode) as directories:
            self.records.begin()
            with closing(self._units(directories)) as units, closing(self.engine.run(units)) as waves:
                for rows in waves:
                    shared = set(self._begun)
                    outcomes = [self._joined(path, each) for path, each in by_file(rows).items()]
                    # The tasks have recorded the others.
                    self.records.write(
                        (each.path, each.plaintext_length)
                        for each in outcomes
                        if each.status == "ok" and each.path in shared
                    )
                    self.recorder.add(outcomes)
            self._unsynced.sync()
            self.recorder.add(Outcome.failed(Unit(path, 0), error) for path, error in self._failed)
            self.records.remove()
            directories.finish()

    def _units(self, directories: TreeDirectories) -> Generator[Unit, None, None]:
        there = self._there()
        entries = self.dataset.files.entries()
        for entry in made_before(entries, self.wanted, directories, self._unsynced, self._failed):
            size = entry.plaintext_length
            if self._is_done(entry.path, size, there.get(entry.path)):
                where = self.target.join(entry.path).text
                row = Outcome(entry.path, where, size, encrypted_length(size), "skipped")
                self.recorder.add([row])
                continue
            yield from self._cut(entry)

    def _is_done(self, path: str, size: int, there: int | None) -> bool:
        recorded, identity = self._done.get(path, (None, ""))
        if not recorded == size == there:
            return False
        # In a store, that would be a request for each file.
        return not self.target.is_local or identity_of(self.target.join(path)) == identity

    def _cut(self, entry: DatasetEntry) -> list[Unit]:
        """The units of a file: ranges, if it is big and several tasks can fill it."""
        size, name = entry.plaintext_length, self.records.name_of_file()
        units = units_of(entry, self.engine.part_bytes if self.target.is_local else size, name)
        if len(units) > 1:
            try:
                with closing(LocalTarget(self.target.path)) as target:
                    target.begin(name, size, entry.mode)
            except OSError:
                # The task that gets the whole file meets the same error, and reports it in a row.
                return units_of(entry, size)
            self._begun[entry.path] = entry, name
        return units

    def _joined(self, path: str, outcomes: list[Outcome]) -> Outcome:
        """The outcome of a file; one whose ranges are all there is renamed to its path."""
        if path not in self._begun:
            return outcomes[0]
        entry, name = self._begun[path]
        row = joined(outcomes, entry.plaintext_length)
        if row.status != "error":
            unsynced = Unsynced(self.target)
            try:
                with closing(LocalTarget(self.target.path)) as target:
                    target.finish(name, path, entry.mode, entry.modified_ns)
                unsynced.add(path)
                unsynced.sync()
            except OSError as error:
                row.status, row.error, row.kind = "error", str(error), type(error).__name__
        remove([self.target.join(name)])
        del self._begun[path]
        return row

    def _there(self) -> dict[str, int]:
        """Lengths of the files that a record names."""
        if not self._done:
            return {}
        on_error = pass_unnamed if self.target.is_object else None
        return {each.name: each.size for each in list_files(self.target, on_error=on_error) if each.name in self._done}
