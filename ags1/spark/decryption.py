"""Decrypt or verify a dataset over a cluster.

manifest, in the order of paths  -->  units, their key metadata sealed  --engine-->  outcomes
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

import ags1.dataset as datasets
from ags1.dataset._dataset import Dataset
from ags1.dataset._keys import KeyRing
from ags1.dataset._manifest import Entry
from ags1.dataset._runs import RunReference
from ags1.dataset._tree import Filter
from ags1.errors import Ags1Error
from ags1.spark._assembly import Assembly
from ags1.spark._decrypt_work import DecryptWork
from ags1.spark._engine import Engine, Outcome
from ags1.spark._errors import raise_for
from ags1.spark._locations import Location, locate
from ags1.spark._planning import PART_BYTES, Unit, cut
from ags1.spark._results import Recorder, Result
from ags1.spark._sealing import Sealer, kms_client, kms_reference
from ags1.spark._storage import Storage
from ags1.spark.encryption import by_file, check_on_error, joined, store_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Patterns = str | Sequence[str] | None
    Progress = bool | Callable[[int, int | None], object]

__all__ = ["decrypt_files", "open_dataset", "sealer_of", "stored_place"]

_SCRATCH = ".ags1-decrypt-{}-{}"
_STARTED, _PARTS = "started", "parts"


def open_dataset(location: Location, kms: str, expected_version: int | None, key_id: str | None) -> Dataset:
    """Open the dataset at a location, with the client that this process keeps."""
    store: Any = store_of(location)
    return datasets.open(store, kms_client(kms), expected_version=expected_version, key_id=key_id)


def sealer_of(dataset: Dataset, kms: str) -> Sealer:
    """What seals the key metadata of a dataset's files for tasks: below the key encryption key that it has."""
    keys = KeyRing(dataset._metadata.encryption_keys, dataset.key_id)
    _, made = RunReference.create(dataset.uuid, dataset.version, keys, kms_client(kms))
    return Sealer(made, kms)


def stored_place(dataset: Dataset, path: str) -> str:
    """Where below a dataset a file is now: while a commit is being finished, perhaps still in the staging directory."""
    view = dataset._view()
    if view.staged is None:
        return path
    return view.locate(path)[len(view.store.root) :].lstrip("/")


def decrypt_files(
    spark: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str | None = None,
    expected_version: int | None = None,
    include: Patterns = None,
    exclude: Patterns = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
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
        A directory. Files of the same names in it are replaced, each atomically.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it.
    key_id : str, optional
        The master key that the dataset must be under.
    expected_version : int, optional
        The version that it must have.
    include, exclude, part_bytes, parallelism, on_error, progress
        As :func:`~ags1.spark.encrypt_files`.
    resume : bool
        Whether to leave files that an interrupted run into the same target has written.

    Returns
    -------
    Result

    Raises
    ------
    AuthenticationError, TruncatedError, FormatError
        A file is not as it was written; nothing of it appears. With ``on_error="collect"`` it is reported instead.
    OSError
        Reading or writing failed.
    KeyAccessError
        The master key could not be used, or is not `key_id`.
    ValueError
        The target lies in the dataset, or the dataset where one of its files would be put.
    """
    kms = kms_reference(kms)
    check_on_error(on_error)
    here, there = locate(source, spark), locate(target, spark)
    between = None
    if (here.protocol, here.options) == (there.protocol, there.options):
        inner, outer = there.root, here.root
        if here.is_local:
            inner, outer = os.path.realpath(inner), os.path.realpath(outer)
        if f"{inner}/".startswith(f"{outer}/"):
            raise ValueError(
                f"the target {there.name} lies in the dataset: plaintext would stand beside what is encrypted"
            )
        above = f"{inner.rstrip('/')}/"
        if outer.startswith(above):
            between = f"{outer[len(above) :]}/"
    wanted = Filter(include, exclude)
    started = time.monotonic()
    recorder = Recorder(spark, "decrypt")
    with open_dataset(here, kms, expected_version, key_id) as dataset:
        if between is not None:
            _refuse_files_below(between, dataset, wanted, there)
        engine = Engine(
            spark,
            DecryptWork(here, there),
            parallelism=parallelism,
            progress=progress,
            seal=sealer_of(dataset, kms),
            part_bytes=part_bytes,
        )
        recorder.result.version = dataset.version
        _Decrypting(dataset, there, wanted, engine, recorder, on_error, resume).run()
    return recorder.close(time.monotonic() - started)


def _refuse_files_below(directory: str, dataset: Dataset, wanted: Filter, target: Location) -> None:
    """Refuse files whose plaintext would come into the dataset, perhaps in the place of an encrypted file."""
    for entry in dataset._view().manifest.entries(directory):
        if wanted.accepts(entry.path):
            raise ValueError(
                f"{entry.path} would be put into the dataset, which lies in the target {target.name}: choose a target "
                "beside it, or exclude it"
            )


class _Decrypting:
    def __init__(
        self,
        dataset: Dataset,
        target: Location,
        wanted: Filter,
        engine: Engine,
        recorder: Recorder,
        on_error: str,
        resume: bool,
    ) -> None:
        self._dataset = dataset
        self._target = Storage(target)
        self._wanted = wanted
        self._engine = engine
        self._recorder = recorder
        self._on_error = on_error
        self._scratch = _SCRATCH.format(dataset.uuid[:8], dataset.version)
        self._finished = self._begin(resume)
        self._assemblies: dict[str, Assembly] = {}

    def _begin(self, resume: bool) -> int | None:
        """Note that this run has begun; answer since when the targets of an interrupted one are good, if any are."""
        path = posixpath.join(self._scratch, _STARTED)
        # Copies of a dataset that go on by themselves have versions of the same number, but no manifest in common.
        text = f"ags1 is decrypting the files of {self._dataset._metadata.manifest} here\n".encode()
        if resume:
            try:
                if self._target.read_whole(path) == text:
                    # By the clock of the file system that the files are on.
                    return self._target.stat(path).mtime_ns
            except FileNotFoundError:
                pass
        self._target.remove_tree(self._scratch)
        self._target.publish(path, text)
        return None

    def run(self) -> None:
        """Decrypt all."""
        try:
            with closing(self._engine.run(self._units())) as waves:
                for outcomes in waves:
                    for path, each in by_file(outcomes).items():
                        self._take(path, joined(each, None))
        except BaseException:
            if not self._target.location.is_local:
                for assembly in self._assemblies.values():
                    # What failed before is what is told, and the others are ended yet.
                    with suppress(OSError, Ags1Error):
                        assembly.abort()
            raise
        self._target.remove_tree(self._scratch)

    def _units(self) -> Iterator[Unit]:
        for entry in self._dataset._view().manifest.entries():
            if not self._wanted.accepts(entry.path):
                continue
            yield from self._planned(entry)

    def _planned(self, entry: Entry) -> Iterator[Unit]:
        data: dict[str, Any] = {
            "key": entry._key_metadata,
            "length": entry.file_length,
            "stored": stored_place(self._dataset, entry.path),
            "finished": self._finished,
        }
        unit = Unit(entry.path, entry.plaintext_length, data)
        if unit.size <= self._engine.part_bytes:
            yield unit
            return
        parts = list(cut(unit, self._engine.part_bytes))
        assembly = None
        if len(parts) > 1 and not self._is_there(unit):
            scratch = posixpath.join(self._scratch, _PARTS, entry.path)
            spans = [(part.start, part.size) for part in parts]
            identity = f"{self._dataset.uuid} {self._dataset.version}"
            assembly = Assembly.begin(
                self._target, entry.path, scratch, entry.plaintext_length, spans, unit=1, identity=identity
            )
        if assembly is None:
            yield unit
            return
        self._assemblies[entry.path] = assembly
        for index, part in enumerate(parts):
            yield Unit(part.path, part.size, {**data, "assembly": assembly, "index": index}, part.start, part.whole)

    def _is_there(self, unit: Unit) -> bool:
        if self._finished is None:
            return False
        try:
            found = self._target.stat(unit.path)
        except OSError:
            return False
        return found.size == unit.size and found.mtime_ns >= self._finished

    def _take(self, path: str, outcome: Outcome) -> None:
        assembly = self._assemblies.pop(path, None)
        if assembly is not None:
            try:
                if outcome.status != "error":
                    assembly.complete()
                elif not self._target.location.is_local or self._on_error == "collect":
                    assembly.abort()
            except (OSError, Ags1Error) as error:
                outcome.status, outcome.error, outcome.kind = "error", str(error), type(error).__name__
        self._recorder.add([outcome])
        if outcome.status == "error" and self._on_error == "fail":
            raise_for(outcome, "decrypt", self._recorder.close(0.0))
