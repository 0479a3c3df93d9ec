"""One run over a tree of Parquet files: the driver lists, checks, refuses and records; workers do the work.

    list  -->  try the KMS  -->  refuse what is no Parquet  -->  Parquet files (workers)  -->  markers and copies

    driver:   names, sizes, the URL of the KMS, ids of master keys          (no key)
    worker:   URL  -->  KMS client, one configuration for the process  -->  file after file

Memory does not grow with the number of files: the list, and the work that is left to the end, are on disk. Tasks get
whole files, one after the other; the bytes of each show whether it is Parquet.

Two attempts at one file do not disturb each other: each makes its own data keys and keeps them in the file, and the
file appears whole and durable, so the last one counts. Key material beside the file could come from the other attempt,
so none is written.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from ags1.core.gcm import Key
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.sources import place_of, scan
from ags1.errors import Ags1Error, KeyAccessError
from ags1.kms.asking import reported
from ags1.parquet.keys.key_material import is_key_material_name
from ags1.parquet.keys.kms_keys import as_key_service
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.parquet.rewrite.operations import OTHER, PARQUET, FileOperation, Lacking, classify
from ags1.parquet.rewrite.tree_files import DONE, LEFT_OUT, PUT_OFF, TransferResult, TreeWork
from ags1.parquet.rewrite.trees import FAILED_BEFORE, NO_PARQUET, run_tree
from ags1.parquet.structure.copying import seekable
from ags1.parquet.structure.footer import read_footer
from ags1.parquet.verify.expected import Expected, ExpectedFiles
from ags1.parquet.verify.report import NO_PREFIX, PREFIX_NOT_COMPARED, prefix_text
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.results import Recorder, Result, outcome_of
from ags1.spark.engine.runner import Engine, FileWork, Outcome, TaskWork
from ags1.spark.engine.sealing import Sealer, kms_client, of_process, sealer_under
from ags1.storage import Entry, Location, inside, status
from ags1.streams.files import Progress
from ags1.streams.metadata_files import text_of_prefix
from ags1.support.arguments import at_least_one, one_of
from ags1.support.reports import DAMAGED
from ags1.support.words import LINK, counted

Tree: TypeAlias = str | os.PathLike[str]

_SUFFIXES = (".parquet", ".parq")
# So few small files take less time than the start of a Spark job.
_FEW, _SMALL = 8, 64 << 10
_TRIED = 3
_NOTES = 1000


class ParquetRun:
    """A run over a tree of Parquet files: it lists them, has tasks do the work, and collects the rows."""

    def __init__(
        self,
        spark: Any,
        source: Tree,
        target: Tree | None,
        include: Patterns,
        exclude: Patterns,
        parallelism: int | None,
        on_error: str,
        progress: Any,
    ) -> None:
        one_of(on_error, ("fail", "collect"), "on_error")
        self._spark = spark
        self.source = locate(source, spark)
        self._target = None if target is None else locate(target, spark)
        if self._target is not None:
            _refuse_overlap(self.source, self._target)
        self._wanted = Filter(include, exclude)
        self._parallelism = parallelism
        self._on_error = on_error
        self._progress = progress
        self._seal: Sealer | None = None

    def run(self, verb: str, how: TransferSettings, transfer_key_id: str | None = None) -> Result:
        """Encrypt, decrypt or re-key the files of the source into the target."""
        assert self._target is not None
        reading, writing = how.reading, how.writing
        if writing is not None:
            _try_to_wrap(writing)
            if writing.kms is not None and (self.source.storage_options or self._target.storage_options):
                # Credentials of the storage may be among them.
                self._seal = Sealer.create(writing.kms, writing.footer_key_id)
        elif reading is not None:
            self._seal = sealer_under(reading.kms, transfer_key_id)
        self._how = how
        with self._recording(verb) as result:
            if writing is not None and writing.kms is not None:
                reported(result, kms_client(writing.kms))
            self._list()
            if reading is not None:
                self._try_to_read(reading)
            work = tree_work(self.source, self._target, how)
            run_tree(work, self, stops=self._on_error == "fail")
        return result

    # -- what run_tree has done --------------------------------------------------------------------------------------

    def entries(self) -> Iterator[Entry]:
        """All files of the source."""
        return (entry_of(self.source, each) for each in self._files)

    def others(self, work: TreeWork) -> Iterator[str]:
        """Open the files whose names and sizes do not show what they are."""
        doubtful = (each for each in self._files if not _is_clear(each))
        looked = self._few_or_engine(TreeTask("examine", self.source, work.kind), doubtful)
        found = (each.path for each in looked if each.detail is not None and each.detail[0] == OTHER)
        # So many are enough for an error.
        return islice(found, _NOTES)

    def lacking(self, work: TreeWork) -> Iterator[Lacking]:
        """Read the schema of every file."""
        named = self._how.writing is not None and self._how.writing.columns
        looked = self._few_or_engine(TreeTask("look at", self.source, work.lacking), self._files if named else ())
        return (each.detail for each in looked if each.detail is not None)

    def transfer(self, work: TreeWork) -> Iterable[Unit]:
        """Have tasks do the work; the files that they put off are on the disk."""
        task = TreeTask(self._recorder.result.verb, self.source, work.transfer, self._how.threads)
        with closing(self._engine(task).run(self._files)) as waves:
            for outcomes in waves:
                self._later.fill(each.detail for each in outcomes if each.status == PUT_OFF)
                self._record(each for each in outcomes if each.status != PUT_OFF)
        if self._is_empty:
            warnings.warn(NO_PARQUET.format(self.source), stacklevel=5)
        return self._later

    def finish(self, work: TreeWork, later: Iterable[Unit]) -> None:
        """Have tasks copy the files, unless a file failed."""
        if self._recorder.result.ok:
            for outcome in self._few_or_engine(TreeTask("copy", self.source, work.copy), later):
                self._recorder.result.copied += outcome.status == DONE
                self._record([outcome])
        else:
            self._record(Outcome(each.path, status=LEFT_OUT, error=FAILED_BEFORE) for each in later)

    # -- verifying -----------------------------------------------------------------------------------------------------

    def verify(
        self,
        reading: ReadingSettings,
        threads: int,
        options: Mapping[str, Any],
        expected: Expected | None,
        transfer_key_id: str | None,
    ) -> Result:
        """Authenticate the files of the source; `options` are those of :func:`verify_file`."""
        at_least_one(threads, "threads")
        self._seal = sealer_under(reading.kms, transfer_key_id)
        wanted = None if expected is None else ExpectedFiles(expected)
        said = Counter[str]()
        with self._recording("verify") as result:
            self._list()
            if reading.kms is not None and options["missing_keys"] == "error":
                self._try_to_read(reading)
            work = Verifying(self.source, reading, options, threads)
            with closing(self._engine(work).run(self._files)) as waves:
                for rows in waves:
                    said.update(chain.from_iterable(each.detail.said for each in rows if each.detail is not None))
                    if wanted is not None:
                        for each in rows:
                            _take_expected(wanted, each)
                    self._record(rows)
            if self._is_empty:
                # Else a set whose files were all removed would pass.
                self._record([_wrong(self.source.text, f"nothing was checked: {NO_PARQUET.format('it')}")])
            if wanted is not None:
                self._record(_wrong(each, "it is expected, but not there") for each in wanted.missing())
            result.notes += [
                (self.source.text, f"{counted(said[code], 'file')}: {_remark(code)}") for code in _REMARKS if said[code]
            ]
            result.unchecked = said[KEY_MISSING]
        return result

    # -- files ---------------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """List the files of the source; those that cannot be read have failed."""

        def leave_out(path: str, reason: str | OSError) -> None:
            unnamed = isinstance(reason, OSError)
            self._recorder.result.links += unnamed or reason == LINK
            self._record([Outcome(path, status=LEFT_OUT, error=str(reason) if unnamed else f"it {reason}")])

        def units() -> Iterator[Unit]:
            for each in scan(self.source, "", self._wanted, self._target, leave_out):
                unit = unit_of(each.path, each.source, each.identity)
                if each.error is None:
                    yield unit
                else:
                    self._record([Outcome.failed(unit, each.error)])

        self._files.fill(units())

    def _try_to_read(self, reading: ReadingSettings) -> None:
        """Open the footers of the first files: with wrong keys, every task would fail, one after the other."""
        likely = (each for each in self._files if each.path.endswith(_SUFFIXES))
        refusal = None
        for unit in list(islice(likely, _TRIED)) or list(islice(self._files, _TRIED)):
            try:
                place = place_of(self.source, unit.data[0])
                with seekable(place) as opened:
                    if opened is not None:
                        read_footer(opened, reading.config(unit.path).for_file(place))
                        return
            except KeyAccessError as error:
                refusal = refusal or error
            except (Ags1Error, OSError, ValueError):
                # The row of the file will have the error.
                continue
        if refusal is not None:
            raise refusal

    # -- work ----------------------------------------------------------------------------------------------------

    def _engine(self, work: TaskWork, progress: Any = None) -> Engine:
        shown = self._progress if progress is None else progress
        return Engine(self._spark, work, parallelism=self._parallelism, progress=shown, seal=self._seal)

    def _few_or_engine(self, work: TaskWork, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Do secondary work: on the driver, if it takes less time than the start of a Spark job."""
        remaining = iter(units)
        first = list(islice(remaining, _FEW + 1))
        if len(first) <= _FEW and sum(each.size for each in first) <= _SMALL:
            yield from work.run(first)
            return
        # The caller's function gets the progress of the main work only: its numbers must not restart.
        shown = self._progress if isinstance(self._progress, bool) else False
        with closing(self._engine(work, shown).run(chain(first, remaining))) as waves:
            yield from chain.from_iterable(waves)

    @contextmanager
    def _recording(self, verb: str) -> Iterator[Result]:
        self._recorder = Recorder(self._spark, verb, self._on_error, keeps=self._target is not None)
        with closing(_Spool()) as self._files, closing(_Spool()) as self._later:
            try:
                yield self._recorder.result
            finally:
                self._recorder.close()

    @property
    def _is_empty(self) -> bool:
        return not self._recorder.result.counts.keys() - {LEFT_OUT}

    def _record(self, outcomes: Iterable[Outcome]) -> None:
        """Add rows, and notes about what was left out."""
        rows, result = list(outcomes), self._recorder.result
        for each in rows:
            if each.status == LEFT_OUT and len(result.notes) < _NOTES:
                result.notes.append((each.path, f"was left out: {each.error}"))
        self._recorder.add(rows)


class _Spool:
    """Files of a tree on the driver's disk: there may be more than its memory holds."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def fill(self, units: Iterable[Unit]) -> None:
        self._file.seek(0, os.SEEK_END)
        for each in units:
            pickle.dump(each, self._file)

    def __iter__(self) -> Iterator[Unit]:
        self._file.seek(0)
        with suppress(EOFError):
            while True:
                yield pickle.load(self._file)

    def close(self) -> None:
        self._file.close()


def as_names(given: Iterable[Any], what: str) -> tuple[Any, ...]:
    """Names of columns that travel to workers."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{what} must be an iterable of column names, not one name")
    return tuple(given)


KEY_MISSING = "key-missing"
_REMARKS = (PREFIX_NOT_COMPARED, NO_PREFIX, KEY_MISSING)
"""Codes of findings of which a verification says once how many files have them."""


def _remark(code: str) -> str:
    return "columns whose keys are missing were not checked" if code == KEY_MISSING else prefix_text(code)


class _Prefix(NamedTuple):
    """The AAD prefix of a verified file, whether its content was checked, and the codes of what to say of it."""

    aad_prefix: bytes | None
    checked: bool
    said: tuple[str, ...]


def _take_expected(wanted: ExpectedFiles, outcome: Outcome) -> None:
    """Add a file of the set; one that does not belong to it has failed."""
    if outcome.status == LEFT_OUT:
        return
    prefix, checked, _ = outcome.detail or (None, False, ())
    why = wanted.take(outcome.path, prefix, checked=checked)
    if why is not None and outcome.status != "error":
        outcome.status, outcome.kind, outcome.error = "error", "FormatError", f"it is not expected: {why}"


def _wrong(path: str, why: str) -> Outcome:
    return Outcome(path, status="error", error=why, kind="FormatError")


def _is_clear(unit: Unit) -> bool:
    """Whether a file's name and size show that it would not be refused."""
    name = unit.path.rpartition("/")[2]
    if name.endswith(_SUFFIXES) or is_key_material_name(name):
        return True
    return name.startswith(("_", ".")) and unit.size == 0


def _refuse_overlap(source: Location, target: Location) -> None:
    """Refuse a source that is the target or lies in it: a new file could replace a source file."""
    where = inside(target, source)
    if where == "":
        raise ValueError(f"source and target are the same directory ({source}): write to another, then rename")
    if where is not None:
        raise ValueError(f"the source ({source}) lies in the target ({target}): write to another directory")


def _try_to_wrap(writing: WritingSettings) -> None:
    """Wrap something with each master key: if the KMS refuses, every file would fail, one after the other."""
    assert writing.kms is not None
    service = as_key_service(kms_client(writing.kms))
    for master_key_id in writing.master_key_ids:
        service.wrap(Key.generate(128), master_key_id)


# Placeholder for the AAD prefix of each file in the configuration that all files share.
_SOME_PREFIX = b"?"

# -- keys --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadingSettings:
    """How files are read, in the form sent to workers; `options` are further arguments of the configuration.

    `kms` is None for files that are not encrypted. In an AAD prefix of type str, ``{path}`` and ``{name}`` are those
    of the file.
    """

    kms: str | None
    options: tuple[tuple[str, Any], ...] = ()
    aad_prefix: str | bytes | None = None

    def config(self, name: str) -> Any:
        """The configuration for the file of this name; each process asks the KMS once for all files."""
        made = of_process(self, self._make)
        return made if self.aad_prefix is None else made.with_aad_prefix(prefix_of(self.aad_prefix, name))

    def _make(self) -> Any:
        if self.kms is None:
            return DecryptionConfig(**dict(self.options))
        return DecryptionConfig.from_kms(kms_client(self.kms), **dict(self.options))


@dataclass(frozen=True)
class WritingSettings(ReadingSettings):
    """How files are encrypted, in the form sent to workers: names of keys, but no key."""

    footer_key_id: str = ""
    columns: tuple[tuple[str, tuple[Any, ...]], ...] | None = None

    def _make(self) -> Any:
        assert self.kms is not None
        columns = None if self.columns is None else {master: list(names) for master, names in self.columns}
        prefix = None if self.aad_prefix is None else _SOME_PREFIX
        return EncryptionConfig.from_kms(
            kms_client(self.kms), self.footer_key_id, columns, aad_prefix=prefix, **dict(self.options)
        )

    @property
    def master_key_ids(self) -> list[str]:
        """The master keys that wrap keys of files, each once."""
        return list(dict.fromkeys([self.footer_key_id, *(master for master, _ in self.columns or ())]))


@dataclass(frozen=True)
class TransferSettings:
    """What is done with each file of a tree, as :func:`ags1.spark.rekey_parquet` has it.

    `reading` is None for files that are not encrypted, `writing` for files that will not be.
    """

    reading: ReadingSettings | None
    writing: WritingSettings | None
    others: str = "error"
    resume: bool = True
    threads: int = 1
    plaintext_columns: tuple[Any, ...] = ()
    drop_bloom_filters: bool = False
    missing_columns: str = "fail"

    def __post_init__(self) -> None:
        one_of(self.others, ("error", "copy", "skip"), "others")
        one_of(self.missing_columns, ("fail", "skip"), "missing_columns")
        at_least_one(self.threads, "threads")

    def operation(self) -> FileOperation:
        """The operation on each file, made in the process that calls this."""
        return FileOperation(
            "decrypt" if self.writing is None else "encrypt" if self.reading is None else "rekey",
            None if self.reading is None else self.reading.config,
            None if self.writing is None else self.writing.config,
            plaintext_columns=self.plaintext_columns,
            drop_bloom_filters=self.drop_bloom_filters,
            missing_columns=self.missing_columns,
        )


def prefix_of(given: str | bytes, name: str) -> bytes:
    """The AAD prefix of the file of this name."""
    if isinstance(given, bytes):
        return given
    return text_of_prefix(given, name).encode("utf-8", "surrogateescape")


# -- files ---------------------------------------------------------------------------------------------------------


def unit_of(path: str, source: str, identity: SourceIdentity) -> Unit:
    """The unit of a file that was listed; `source` is its name in the source."""
    return Unit(path, identity.size, (source, identity))


class _Names:
    """The names of a tree, for occasional look-ups."""

    def __init__(self, root: Location) -> None:
        self._root = root

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and status(self._root.join(name)) is not None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False


def entry_of(source: Location, unit: Unit) -> Entry:
    """The file of a unit, as it was listed."""
    name, identity = unit.data
    return Entry(unit.path, place_of(source, name), unit.size, identity.mtime_ns, identity.etag or None)


def kind_in(source: Location, file: Entry) -> tuple[str, str]:
    """What to do with a file of a source, as :func:`classify`."""
    names: Any = _Names(source)
    return classify(file.location, file.name, names)


def tree_work(source: Location, target: Location, how: TransferSettings) -> TreeWork:
    """The description of the work on the files of a tree, for tasks."""
    return TreeWork(
        how.operation, partial(kind_in, source), target, how.others, how.resume, overwrite=False, durable=True
    )


@dataclass
class TreeTask(FileWork):
    """Does the work of a :class:`TreeWork` in tasks: `function` is one of its methods."""

    verb: str
    source: Location
    function: Callable[[Entry, int | None, Progress], Any]
    threads: int = 1

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Work on one file."""
        found = self.function(entry_of(self.source, unit), threads, advance)
        if not isinstance(found, TransferResult):
            return Outcome(unit.path, detail=found)
        if found.target is None:
            later = unit if found.status == PUT_OFF else None
            return Outcome(unit.path, status=found.status, error=found.reason, detail=later)
        length = status(found.target).size
        # The length of the plaintext of an encrypted source is not known before it is decrypted.
        plain, stored = (length, unit.size) if self.verb == "decrypt" else (unit.size, length)
        return Outcome(unit.path, found.target.text, plain, stored, status=found.status)


# -- verifying -----------------------------------------------------------------------------------------------------


@dataclass
class Verifying(FileWork):
    """Authenticates every module of the Parquet files of a tree; `options` are those of :func:`verify_file`."""

    source: Location
    reading: ReadingSettings
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    verb = "verify"

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Verify one file."""
        from ags1.parquet.verify.verification import verify_file

        file = entry_of(self.source, unit)
        kind, reason = kind_in(self.source, file)
        if kind != PARQUET:
            return Outcome(unit.path, status=LEFT_OUT, error=reason)
        known = self.reading.kms is not None or dict(self.reading.options).get("allow_plaintext")
        config = self.reading.config(unit.path) if known else None
        report = verify_file(file.location, config, threads=threads, progress=advance, **self.options)
        outcome = outcome_of(unit.path, unit.size, report)
        said = tuple(code for code in _REMARKS if code in report.counts)
        outcome.detail = _Prefix(report.facts["aad_prefix"], report.outcome != DAMAGED, said)
        return outcome
