"""Encrypt a tree of files over a cluster, into a dataset of :mod:`ags1.dataset`.

    listing of the source  --+
    manifest of the target --+--merge by path-->  units  --engine-->  outcomes  --in order-->  the new manifest
    files of a killed run  --+                                                                metadata.json, last

Nothing of it appears before the commit: until then whoever reads the dataset sees the version that it had. Whatever is
killed, the next run finds the record of this one, goes on under the same keys, and skips what is there and authentic.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress

from ags1.dataset._manifest import Entry, sort_key
from ags1.dataset._store import LocalStore, RemoteStore
from ags1.dataset._tree import Filter
from ags1.dataset._update import Base, Update
from ags1.errors import Ags1Error
from ags1.layout import BLOCK_OVERHEAD, DEFAULT_BLOCK_LENGTH, HEADER_LENGTH, encrypted_length
from ags1.spark._assembly import Assembly
from ags1.spark._encrypt_work import EncryptWork, is_whole, ranges_of
from ags1.spark._engine import FLUSH, Engine, Outcome, check_arguments
from ags1.spark._errors import raise_for
from ags1.spark._locations import Location, locate
from ags1.spark._planning import PART_BYTES, Unit, cut
from ags1.spark._requests import Requests
from ags1.spark._results import Recorder, Result
from ags1.spark._sealing import Sealer, kms_client, kms_reference
from ags1.spark._storage import Listed, Storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Patterns = str | Sequence[str] | None
    Progress = bool | Callable[[int, int | None], object]

__all__ = ["by_file", "check_on_error", "encrypt_files", "joined", "refuse_overlap", "store_of"]

_WAITING = 200_000
_NOT_YET = Outcome("", status="error")


def store_of(location: Location) -> LocalStore | RemoteStore:
    """Where the dataset at a location is."""
    return LocalStore(location.root) if location.is_local else RemoteStore(location.file_system(), location.root)


def refuse_overlap(source: Location, target: Location) -> None:
    """Refuse a source and a target of which one lies in the other.

    In the target, plaintext would stand among what is encrypted; in the source, each run would encrypt what those
    before it have made.

    Raises
    ------
    ValueError
        One does, or they are the same.
    """
    if (source.protocol, source.options) != (target.protocol, target.options):
        return
    inner, outer = source.root, target.root
    if source.is_local:
        inner, outer = os.path.realpath(inner), os.path.realpath(outer)
    if f"{inner}/".startswith(f"{outer}/"):
        raise ValueError(f"the source {source.name} lies in the target {target.name}: choose a target beside it")
    if f"{outer}/".startswith(f"{inner}/"):
        raise ValueError(f"the target {target.name} lies in the source {source.name}: choose a target beside it")


def encrypt_files(
    spark: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kms: str,
    key_id: str,
    include: Patterns = None,
    exclude: Patterns = None,
    part_bytes: int = PART_BYTES,
    parallelism: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    progress: Progress = True,
) -> Result:
    """Encrypt a tree of files of any size and number into a dataset.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : path or URL
        A directory, or one file: of the local file system, if all executors see it, or s3a://, gs://, abfss://, hdfs://
        and what else fsspec knows. It must not change meanwhile: a file that does is an error.
    target : path or URL
        The dataset. If there is one already, only files that are new, or whose size or modification time differs, are
        encrypted; files that the source has no more stay.
    kms : str
        What :func:`ags1.kms.load` takes; each worker makes its own client from it. Secrets are not in it.
    key_id : str
        The master key.
    include, exclude : str or sequence of str, optional
        Glob patterns. One without ``/`` is compared with each component of a relative path, one with ``/`` with the
        whole path.
    part_bytes : int
        Files of more plaintext bytes than this are cut into ranges that many tasks encrypt at once.
    parallelism : int, optional
        Tasks to make of 100,000 files; by default as many as keep all slots busy for a second or more.
    on_error : {"fail", "collect"}
        What a file that cannot be read or written does: end the run, or be reported while the others go on.
    resume : bool
        Whether to go on with what an interrupted run has done; otherwise that is thrown away.
    progress : bool or callable
        Whether to write a line a second to standard error; or what to call as ``progress(done, total)`` with bytes.

    Returns
    -------
    Result
        It is over by then: looking at the result does nothing again.

    Raises
    ------
    OSError
        Reading or writing failed. What was encrypted by then is kept for the next run.
    BlockingIOError
        Another process is changing this dataset.
    KeyAccessError
        The master key could not be used.
    ValueError
        The dataset is under another master key; source and target overlap; a wrong argument.
    TypeError
        `kms` is no URL.
    FormatError, AuthenticationError
        The dataset that is there is damaged, or was changed by somebody else.
    """
    kms = kms_reference(kms)
    check_on_error(on_error)
    if not key_id:
        raise ValueError("key_id must be the name of a master key")
    here, there = locate(source, spark), locate(target, spark)
    refuse_overlap(here, there)
    wanted = Filter(include, exclude)
    check_arguments(spark, parallelism, part_bytes)
    if not Storage(here).exists(""):
        # Said before anything is written to the target.
        raise FileNotFoundError(errno.ENOENT, "there is no such source", here.name)
    started = time.monotonic()
    recorder = Recorder(spark, "encrypt")
    with Update.begin(store_of(there), kms_client(kms), key_id, resume=resume) as update:
        sealer = Sealer(update.keys, kms)
        work = EncryptWork(here, there, sealer.opener)
        engine = Engine(
            spark,
            work,
            parallelism=parallelism,
            progress=progress,
            seal=sealer,
            part_bytes=part_bytes,
            starting=lambda wave: update.announce(
                unit.path for unit in wave if unit.start == 0 and unit.data["place"] == unit.path
            ),
        )
        _Encrypting(update, here, there, wanted, engine, recorder, on_error).run()
        recorder.result.version = update.commit()
    return recorder.close(time.monotonic() - started)


def check_on_error(on_error: str) -> None:
    """Check an argument.

    Raises
    ------
    ValueError
        Neither "fail" nor "collect".
    """
    if on_error not in ("fail", "collect"):
        raise ValueError(f"on_error must be 'fail' or 'collect', got {on_error!r}")


class _Encrypting:
    """One run: what is planned, in the order of paths, and what came of it, in the same order."""

    def __init__(
        self,
        update: Update,
        source: Location,
        target: Location,
        wanted: Filter,
        engine: Engine,
        recorder: Recorder,
        on_error: str,
    ) -> None:
        self._update = update
        self._source = Storage(source)
        self._target = Storage(target)
        self._wanted = wanted
        self._engine = engine
        self._recorder = recorder
        self._on_error = on_error
        self._requests = Requests(self._target)
        # Files that are kept as they are, and those that tasks are at, in the order of paths.
        self._pending: deque[Base | _Todo] = deque()
        self._kept_behind = 0

    def run(self) -> None:
        """Encrypt what is to be, and hand everything on to the update."""
        try:
            # The units are closed too: an exception of Spark's keeps them alive, and they would begin uploads yet.
            with closing(self._units()) as units, closing(self._engine.run(units)) as waves:
                for outcomes in waves:
                    self._drain(by_file(outcomes))
            self._drain({})
        except BaseException:
            if not self._target.location.is_local:
                # The next run cannot go on with uploads that were begun, and they are paid for until they are ended.
                for each in self._pending:
                    if isinstance(each, _Todo):
                        _give_up(each)
            raise
        if self._pending:
            raise RuntimeError(f"{len(self._pending)} files were planned, but no task answered for them")

    # -- planning --------------------------------------------------------------------------------------------------

    def _units(self) -> Generator[Unit | None, None, None]:
        """What tasks are to do. To begin a big file behind an object store takes requests, and so is done ahead."""
        yield from self._requests.ahead(self._items())

    def _items(self) -> Iterator[Unit | Callable[[], list[Unit | None]] | None]:
        for found, base, existing in self._merged():
            if found is None:
                if base is not None:
                    self._keep(base)
            elif found.error is not None:
                self._fail(found.path, found.error, base)
            elif base is not None and base.source == (found.size, found.mtime_ns):
                self._recorder.count("unchanged")
                self._keep(base)
            else:
                yield from self._planned(found, base, existing)
            if self._kept_behind > _WAITING:
                # They wait for a file before them, which a wave that is not full yet waits for.
                self._kept_behind = 0
                yield FLUSH

    def _planned(
        self, found: Listed, base: Base | None, existing: OSError | None
    ) -> Iterator[Unit | Callable[[], list[Unit | None]]]:
        if not self._target.location.is_local and not _is_utf8(found.path):
            text = "has a name that is no UTF-8, as the names in object stores are: rename it"
            self._fail(found.path, OSError(errno.EILSEQ, text, self._source.location.url(found.path)), base)
            return
        place = self._update.place(found.path, replaces=base is not None)
        if base is None and existing is not None:
            self._fail(found.path, existing, None)
            return
        data: dict[str, Any] = {"mtime_ns": found.mtime_ns, "place": place, "look": self._update.resumed}
        unit = Unit(found.path, found.size, data)
        todo = _Todo(found, base)
        self._pending.append(todo)
        if unit.size <= self._engine.part_bytes:
            yield unit
        else:
            yield lambda: self._begun(todo, unit)

    def _begun(self, todo: _Todo, unit: Unit) -> list[Unit | None]:
        """The ranges of a big file, which many tasks put together; none if that cannot be begun, or is done."""
        try:
            return self._ranges(todo, unit)
        except (OSError, Ags1Error) as error:
            if self._on_error == "fail":
                raise
            todo.done = Outcome.failed(unit, error, target=self._url(unit.path))
            return []

    def _ranges(self, todo: _Todo, unit: Unit) -> list[Unit | None]:
        found, data, place = todo.found, unit.data, unit.data["place"]
        parts = list(cut(unit, self._engine.part_bytes))
        if len(parts) == 1:
            return [unit]
        if self._update.resumed and self._is_whole(found, place):
            todo.done = Outcome(found.path, self._url(found.path), found.size, encrypted_length(found.size), "skipped")
            return []
        scratch = self._update.scratch(found.path)
        spans = [ranges_of(part.start, part.start + part.size) for part in parts]
        todo.assembly = Assembly.begin(
            self._target,
            place,
            scratch,
            encrypted_length(found.size),
            [(begin, end - begin) for begin, end in spans],
            unit=DEFAULT_BLOCK_LENGTH + BLOCK_OVERHEAD,
            origin=HEADER_LENGTH,
            identity=f"{self._update.reference.run} {found.size} {found.mtime_ns}",
        )
        if todo.assembly is None:
            return [unit]
        return [
            Unit(part.path, part.size, {**data, "assembly": todo.assembly, "index": index}, part.start, part.whole)
            for index, part in enumerate(parts)
        ]

    def _url(self, path: str) -> str:
        return self._target.location.url(path)

    def _is_whole(self, found: Listed, place: str) -> bool:
        metadata = self._update.keys.file_key(found.path, found.size, found.mtime_ns)
        return is_whole(self._target, place, metadata, found.size)

    def _keep(self, base: Base) -> None:
        if self._pending:
            self._pending.append(base)
            self._kept_behind += 1
        else:
            self._update.keep(base)

    def _fail(self, path: str, error: OSError, base: Base | None) -> None:
        outcome = Outcome(path, status="error", error=str(error), kind=type(error).__name__)
        if self._on_error == "fail":
            raise_for(outcome, "encrypt", None)
        self._recorder.add([outcome])
        if base is not None:
            self._keep(base)

    def _merged(self) -> Iterator[tuple[Listed | None, Base | None, OSError | None]]:
        """For each path, in order: what the source has, what the manifest has, and what is in the way of it."""
        found_files = self._source.walk(self._wanted, lambda path, why: self._recorder.result.notes.append((path, why)))
        lines = self._update.lines()
        existing = _Existing(self._target, self._update)
        found, base = next(found_files, None), next(lines, None)
        while found is not None or base is not None:
            key = None if found is None else sort_key(found.path)
            if base is not None and (key is None or base.key < key):
                yield None, base, None
                base = next(lines, None)
                continue
            assert found is not None
            assert key is not None
            same = base if base is not None and base.key == key else None
            yield found, same, existing.in_the_way(found.path, key) if same is None else None
            if same is not None:
                base = next(lines, None)
            found = next(found_files, None)

    # -- what came of it -------------------------------------------------------------------------------------------

    def _complete(self, files: dict[str, list[Outcome]]) -> None:
        """Put big files in place whose ranges are all written."""
        done = [
            todo
            for todo in self._pending
            if isinstance(todo, _Todo)
            and todo.assembly is not None
            and all(each.status != "error" for each in files.get(todo.found.path, [_NOT_YET]))
        ]
        for todo, answer in zip(done, self._requests.each(_put_in_place, done), strict=True):
            todo.trouble = answer

    def _drain(self, files: dict[str, list[Outcome]]) -> None:
        """Hand on what is finished, from the front."""
        self._complete(files)
        while self._pending:
            first = self._pending[0]
            if isinstance(first, Base):
                self._update.keep(first)
            else:
                outcomes = files.pop(first.found.path, [])
                if first.done is not None:
                    outcomes = [first.done]
                if not outcomes:
                    return
                self._hand_on(first, outcomes)
            self._pending.popleft()

    def _hand_on(self, todo: _Todo, outcomes: list[Outcome]) -> None:
        outcome = joined(outcomes, todo.found.size)
        if outcome.status == "error" or outcome.attempt:
            # What an attempt that failed, or was killed, has staged is not to be taken for the file.
            self._update.doubtful = True
        if todo.trouble is not None:
            outcome.status, outcome.error, outcome.kind = "error", str(todo.trouble), type(todo.trouble).__name__
        if outcome.status == "error":
            if self._on_error == "collect":
                _give_up(todo)
            if self._on_error == "fail" or outcome.kind in ("KeyAccessError", "BackendError"):
                self._recorder.add([outcome])
                raise_for(outcome, "encrypt", self._recorder.close(0.0))
            if todo.base is not None:
                self._update.keep(todo.base)
        else:
            found = todo.found
            metadata = self._update.keys.file_key(found.path, found.size, found.mtime_ns)
            entry = Entry(
                found.path, found.size, metadata.file_length or 0, metadata.encode(), found.size, found.mtime_ns
            )
            self._update.put(entry, replaces=todo.base is not None)
        self._recorder.add([outcome])


class _Todo:
    """A file that tasks are at."""

    __slots__ = ("assembly", "base", "done", "found", "trouble")

    def __init__(self, found: Listed, base: Base | None) -> None:
        self.found = found
        self.base = base
        self.assembly: Assembly | None = None
        self.trouble: Exception | None = None
        self.done: Outcome | None = None


class _Existing:
    """What is in the way of new files. Behind an object store that is a listing, merged; it needs none at first."""

    def __init__(self, target: Storage, update: Update) -> None:
        self._target = target
        self._is_local = target.location.is_local
        self._listed: Iterator[Listed] = iter(())
        if not self._is_local and (update.base is not None or target.names("")):
            self._listed = target.walk(Filter())
        self._next = self._following()
        # Behind an object store an interrupted run has put new files where they belong: there they may be replaced.
        self._announced = update.announced()
        self._next_announced = next(self._announced, None)
        # The directory that was looked at last, and what is in its way.
        self._directory = ""
        self._blocked: OSError | None = None

    def _following(self) -> Listed | None:
        try:
            return next(self._listed, None)
        except FileNotFoundError:
            return None

    def in_the_way(self, path: str, key: bytes) -> OSError | None:
        """What keeps a new file from its path, if anything does; paths come in order."""
        if self._is_local:
            directory = path.rpartition("/")[0]
            if directory != self._directory:
                self._directory, self._blocked = directory, self._in_the_way_of(directory)
            if self._blocked is not None:
                return self._blocked
            name = self._target.location.join(path)
            return _blocked(name) if os.path.lexists(name) else None
        while self._next is not None and sort_key(self._next.path) < key:
            self._next = self._following()
        if self._next is not None and self._next.path == path and not self._is_announced(path, key):
            return _blocked(self._target.location.url(path))
        return None

    def _is_announced(self, path: str, key: bytes) -> bool:
        while self._next_announced is not None and sort_key(self._next_announced) < key:
            self._next_announced = next(self._announced, None)
        return self._next_announced == path

    def _in_the_way_of(self, directory: str) -> OSError | None:
        name = ""
        for part in directory.split("/"):
            name = f"{name}/{part}" if name else part
            place = self._target.location.join(name)
            try:
                mode = os.lstat(place).st_mode
            except FileNotFoundError:
                return None
            if not stat.S_ISDIR(mode):
                # Found out later, when the commit is done, it could not be finished any more.
                return NotADirectoryError(errno.ENOTDIR, "is in the way of a directory of that name", place)
        return None


def _put_in_place(todo: _Todo) -> None:
    assert todo.assembly is not None
    todo.assembly.complete()


def _give_up(todo: _Todo) -> None:
    """End an upload. If that fails too, what failed before is what is told, and the others are ended yet."""
    if todo.assembly is not None:
        with suppress(OSError, Ags1Error):
            todo.assembly.abort()


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _blocked(name: str) -> FileExistsError:
    text = "a file that is not of this dataset is in the way: move it away"
    return FileExistsError(errno.EEXIST, text, name)


def by_file(outcomes: list[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each file."""
    files: dict[str, list[Outcome]] = {}
    for each in outcomes:
        files.setdefault(each.path, []).append(each)
    return files


def joined(outcomes: list[Outcome], size: int | None) -> Outcome:
    """One outcome of a file for those of its ranges; `size` is its plaintext, by default what the ranges have."""
    if len(outcomes) == 1:
        return outcomes[0]
    failed = next((each for each in outcomes if each.status == "error"), None)
    first = failed or outcomes[0]
    total = sum(each.plaintext_length for each in outcomes)
    first.seconds = sum(each.seconds for each in outcomes)
    first.attempt = max(each.attempt for each in outcomes)
    first.plaintext_length = total if size is None else size
    if failed is None:
        first.status = "skipped" if all(each.status == "skipped" for each in outcomes) else "ok"
    return first
