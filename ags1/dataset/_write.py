"""A run that puts files into a dataset: encrypt and add.

    source, sorted  --+
    manifest, sorted  +--merge by path-->  kept lines, and units of work  --threads-->  the tree, and the new manifest
    unfinished run  --+                                                                 metadata.json, last

A unit is one large file, or some small ones that are read, encrypted in one native call and written together. Units
end in any order; the manifest is written in the order of paths, so a finished one waits for those before it. What a
run holds in memory does not grow with the dataset: only with what an unfinished run left to be taken over.

A new file goes straight to its place: no reader knows of it before the commit. A new version of a file that the
manifest has goes to the staging directory, and is moved after the commit; until then the old version stays readable.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import ags1.dataset._journal as _journal
import ags1.dataset._recovery as _recovery
import ags1.dataset._tree as _tree
from ags1.codec import encrypt_many
from ags1.dataset._control import CONTROL, Lock, Metadata, read_local
from ags1.dataset._journal import Journal, Taken
from ags1.dataset._keys import KeyRing
from ags1.dataset._manifest import (
    Entry,
    Line,
    Manifest,
    ManifestWriter,
    entry_line,
    header_line,
    sort_key,
)
from ags1.dataset._store import LocalStore, open_manifest
from ags1.dataset.reports import RunReport
from ags1.errors import Ags1Error
from ags1.files import encrypt_file
from ags1.keys import KeyMetadata
from ags1.layout import encrypted_length, plaintext_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any

    from ags1.files import Progress

__all__ = ["Options", "run"]

SMALL = 1 << 20
"""Up to this size, files are worked on by the unit."""
_LARGE = 32 << 20
_UNIT_FILES = 64
_UNIT_BYTES = 4 << 20
_UNITS_WAITING = 4
_LINES_WAITING = 10_000
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


@dataclass
class Options:
    """How a run is to be made; see :func:`ags1.dataset.encrypt`."""

    wanted: _tree.Filter
    threads: int | None = None
    on_error: str = "fail"
    resume: bool = True
    progress: Progress | None = None
    durable: bool = False
    dry_run: bool = False


@dataclass
class _Todo:
    """A file to be encrypted, and what came of it."""

    found: _tree.Found
    staged: bool
    replace: bool
    kept: Line | None
    entry: Entry | None = None
    error: Exception | None = None


@dataclass
class _Unit:
    """Files that are worked on together."""

    files: list[_Todo] = field(default_factory=list)
    size: int = 0
    future: Future[None] | None = None
    started: bool = False


def run(store: LocalStore, source: str, prefix: str, kms: Any, key_id: str | None, options: Options) -> RunReport:
    """Put a source into a dataset; `key_id` is None if the dataset has to be there already.

    Raises
    ------
    ValueError
        Source and target overlap, or the dataset is under another master key.
    """
    source = os.path.abspath(source)
    os.stat(source)
    _refuse_overlap(source, store.root)
    if options.dry_run:
        return _Run(store, source, prefix, kms, options).plan(key_id)
    with Lock(store.root):
        return _Run(store, source, prefix, kms, options).work(key_id)


def _refuse_overlap(source: str, root: str) -> None:
    inner, outer = os.path.realpath(source), os.path.realpath(root)
    if os.path.join(inner, "").startswith(os.path.join(outer, "")):
        raise ValueError(f"the source {source} lies in the dataset {root}: a dataset holds encrypted files only")


class _Run:
    def __init__(self, store: LocalStore, source: str, prefix: str, kms: Any, options: Options) -> None:
        self._store = store
        self._root = store.root
        self._publisher = _tree.Publisher(self._root, durable=options.durable) if not options.dry_run else None
        self._directories = _tree.Directories(self._root)
        self._source = source
        self._prefix = prefix
        self._kms = kms
        self._options = options
        self._report = RunReport()
        self._metadata: Metadata | None = None
        self._base: Manifest | None = None
        self._keys: KeyRing | None = None
        self._journal: Journal | None = None
        self._taken: dict[str, Taken] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[bytes, Line, int] | tuple[bytes, Taken] | _Todo] = deque()
        self._units: deque[_Unit] = deque()
        self._unit = _Unit()
        self._unit_of: dict[int, _Unit] = {}
        self._uuid = ""
        self._workers = 1
        self._done_bytes = 0
        self._told = 0
        self._total: int | None = None

    # -- the whole of it -------------------------------------------------------------------------------------------

    def plan(self, key_id: str | None) -> RunReport:
        """What a run would do, without a lock and without writing."""
        self._metadata = read_local(self._root)
        self._open_base(key_id)
        try:
            for found, line, _ in self._merged():
                if found is None:
                    self._report.others += line is not None
                elif found.error is not None:
                    self._fail(found.path, found.error)
                elif line is not None and _is_same(line, found):
                    self._report.unchanged += 1
                else:
                    self._report.done += 1
                    self._report.done_bytes += found.size
                    self._report.paths.append(found.path)
        finally:
            if self._base is not None:
                self._base.close()
        return self._report

    def work(self, key_id: str | None) -> RunReport:
        """Make the run; the caller holds the lock."""
        self._metadata = read_local(self._root)
        if self._metadata is not None:
            self._metadata = _recovery.finish_moves(self._root, self._metadata)
        output: _Output | None = None
        try:
            self._open_base(key_id)
            identity = _recovery.live_journal(self._root, self._metadata)
            if identity is not None:
                self._take_over(identity, key_id)
            _recovery.sweep(self._root, self._metadata, self._journal.id if self._journal else None)
            output = _Output(self._root, self._base, self._next_metadata(key_id))
            self._start()
            self._encrypt_all(output)
            self._commit(output)
            output = None
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
            if self._publisher is not None:
                self._publisher.close()
            if output is not None:
                output.abort()
            if self._journal is not None:
                self._journal.close()
            if self._base is not None:
                self._base.close()
        return self._report

    def _open_base(self, key_id: str | None) -> None:
        metadata = self._metadata
        if metadata is None:
            if key_id is None:
                text = "there is no ags1 dataset here, or its first run was not completed"
                raise FileNotFoundError(errno.ENOENT, text, self._root)
            return
        _check_key_id(key_id, metadata.table_key_id, self._root)
        self._report.version = metadata.version
        self._keys = KeyRing(metadata.encryption_keys, metadata.table_key_id, self._root)
        self._base = open_manifest(self._store, metadata, self._keys, self._kms)

    def _take_over(self, identity: str, key_id: str | None) -> None:
        try:
            journal, taken = Journal.take_over(self._root, identity, self._kms)
        except Ags1Error:
            if self._options.resume:
                raise
            # Its files become foreign ones: named where they are in the way, and by verify.
            _journal.remove(self._root, identity)
            return
        if self._options.resume:
            try:
                _check_key_id(key_id, journal.keys.table_key_id, self._root)
            except ValueError:
                journal.close()
                raise
            self._journal, self._taken = journal, taken
            return
        journal.close()
        for path, each in taken.items():
            # Without their keys they would be of no use to anyone.
            if not each.staged and not self._has(path) and _recovery.is_in_place(self._store.join(path), each.entry):
                os.unlink(self._store.join(path))
        _journal.remove(self._root, identity)

    def _has(self, path: str) -> bool:
        return self._base is not None and self._base.find(path) is not None

    def _next_metadata(self, key_id: str | None) -> Metadata:
        """Metadata of the next version, still without its manifest."""
        old = self._metadata
        if old is not None:
            version, created, properties, table_key_id = old.version, old.created_ms, old.properties, old.table_key_id
            identity = old.uuid
        else:
            assert key_id is not None
            version, created, properties, table_key_id = 0, _recovery.now_ms(), {}, key_id
            identity = self._journal.uuid if self._journal is not None else str(uuid.uuid4())
            self._keys = KeyRing([], key_id, self._root)
        if self._journal is not None:
            # It has the key encryption key that new entries go under.
            self._keys = self._journal.keys
        self._uuid = identity
        return Metadata(identity, version + 1, table_key_id, [], "", "", 0, 0, created, created, properties)

    # -- the merge -------------------------------------------------------------------------------------------------

    def _merged(self) -> Iterator[tuple[_tree.Found | None, _Base | None, Taken | None]]:
        """For each path, in order: what the source, the manifest and an unfinished run have of it."""
        found_files = _tree.scan(self._source, self._prefix, self._options.wanted, self._root, self._skip)
        base_lines = (_Base.of(line) for line in self._base.lines()) if self._base is not None else iter(())
        taken_files = iter(sorted((sort_key(path), each) for path, each in self._taken.items()))
        found, line, taken = next(found_files, None), next(base_lines, None), next(taken_files, None)
        while found is not None or line is not None or taken is not None:
            heads = [None if found is None else found.key, None if line is None else line.key, taken and taken[0]]
            key = min(each for each in heads if each is not None)
            here: list[Any] = [None, None, None]
            if found is not None and found.key == key:
                here[0], found = found, next(found_files, None)
            if line is not None and line.key == key:
                here[1], line = line, next(base_lines, None)
            if taken is not None and taken[0] == key:
                here[2], taken = taken[1], next(taken_files, None)
            yield here[0], here[1], here[2]

    def _encrypt_all(self, output: _Output) -> None:
        for found, line, taken in self._merged():
            if taken is not None and not _recovery.is_in_place(self._place_of(taken), taken.entry):
                taken = None
            if found is None or found.error is not None:
                if found is not None and found.error is not None:
                    self._fail(found.path, found.error)
                else:
                    self._report.others += line is not None and taken is None
                self._keep(line, taken)
            elif taken is not None and _was_like(taken.entry, found):
                self._keep(None, taken)
                self._advance(found.size)
            elif line is not None and _is_same(line, found):
                self._drop_staged(taken)
                self._keep(line, None)
                self._report.unchanged += 1
                self._advance(found.size)
            else:
                self._plan(_Todo(found, line is not None, line is not None or found.path in self._taken, None), line)
            self._drain(output, _UNITS_WAITING * self._workers, _LINES_WAITING)
        self._submit()
        self._drain(output, 0, 0)

    def _place_of(self, taken: Taken) -> str:
        if taken.staged:
            assert self._journal is not None
            return self._store.join(CONTROL, self._journal.staging, taken.entry.path)
        return self._store.join(taken.entry.path)

    def _drop_staged(self, taken: Taken | None) -> None:
        if taken is not None and taken.staged:
            os.unlink(self._place_of(taken))

    def _keep(self, line: _Base | None, taken: Taken | None) -> None:
        if taken is not None:
            self._report.resumed += 1
            self._waiting.append((sort_key(taken.entry.path), taken))
        elif line is not None:
            self._waiting.append((line.key, line.line, line.plaintext_length))

    def _plan(self, todo: _Todo, line: _Base | None) -> None:
        if line is not None:
            todo.kept = line.line
        size = todo.found.size
        if size > SMALL or self._unit.size + size > _UNIT_BYTES or len(self._unit.files) >= _UNIT_FILES:
            self._submit()
        self._unit.files.append(todo)
        self._unit.size += size
        self._unit_of[id(todo)] = self._unit
        self._waiting.append(todo)
        if size > SMALL:
            self._submit()

    # -- units of work ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        from ags1._backend import backend

        threads = self._options.threads
        self._workers = threads if threads is not None else int(backend()["threads"])
        if self._workers > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="ags1-dataset")
        if self._options.progress is not None:
            wanted, root = self._options.wanted, self._root
            files = _tree.scan(self._source, self._prefix, wanted, root, lambda path, why: None)
            self._total = sum(found.size for found in files)
            self._advance(0)

    def _submit(self) -> None:
        unit, self._unit = self._unit, _Unit()
        if not unit.files:
            return
        unit.started = True
        if self._journal is None:
            assert self._keys is not None
            version = 0 if self._metadata is None else self._metadata.version
            self._journal = Journal.create(self._root, self._uuid, version, self._keys, self._kms)
        self._units.append(unit)
        if unit.files[0].found.size > _LARGE:
            # All threads for one file; what the others do meanwhile is small.
            self._seal_large(unit.files[0], self._options.threads, self._options.progress and self._tell)
        elif self._pool is None:
            self._seal(unit)
        else:
            unit.future = self._pool.submit(self._seal, unit)

    def _seal(self, unit: _Unit) -> None:
        if len(unit.files) == 1 and unit.files[0].found.size > SMALL:
            self._seal_large(unit.files[0], 1, None)
        else:
            self._seal_small(unit.files)

    def _destination(self, todo: _Todo) -> str:
        """Path below the root that a file is written to; its directory is made."""
        path = todo.found.path
        if todo.staged:
            assert self._journal is not None
            path = f"{CONTROL}/{self._journal.staging}/{path}"
        self._directories.ensure(path.rpartition("/")[0])
        target = self._store.join(path)
        if not os.path.lexists(target):
            return path
        if not todo.replace:
            text = "a file that is not of this dataset is in the way: move it away"
            raise FileExistsError(errno.EEXIST, text, target)
        # Of an interrupted run, and in no manifest. Replacing it would take a temporary name, which a kill would leave.
        os.unlink(target)
        return path

    def _seal_small(self, todos: list[_Todo]) -> None:
        ready: list[tuple[_Todo, str, bytes, KeyMetadata, Entry]] = []
        for todo in todos:
            try:
                data, status = _tree.read_source(todo.found.source)
                destination = self._destination(todo)
            except OSError as error:
                todo.error = error
                continue
            metadata = KeyMetadata.generate().with_length(encrypted_length(len(data)))
            entry = _entry_of(todo.found.path, metadata, len(data), status.st_mtime_ns)
            ready.append((todo, destination, data, metadata, entry))
        if not ready:
            return
        self._note([(entry, todo.staged) for todo, _, _, _, entry in ready])
        streams = encrypt_many(
            [data for _, _, data, _, _ in ready],
            [metadata.encryption_key for _, _, _, metadata, _ in ready],
            aad_prefixes=[metadata.aad_prefix or b"" for _, _, _, metadata, _ in ready],
            threads=1,
        )
        assert self._publisher is not None
        for (todo, destination, _, _, entry), stream in zip(ready, streams, strict=True):
            try:
                self._publisher.publish(destination, stream, replace=False)
            except OSError as error:
                todo.error = error
                if error.errno in _FATAL:
                    raise
            else:
                todo.entry = entry

    def _seal_large(self, todo: _Todo, threads: int | None, progress: Progress | None) -> None:
        metadata = KeyMetadata.generate()
        found = todo.found
        planned = encrypted_length(found.size)
        try:
            destination = self._destination(todo)
            entry = _entry_of(found.path, metadata.with_length(planned), found.size, found.mtime_ns)
            self._note([(entry, todo.staged)])
            made = encrypt_file(
                found.source,
                self._store.join(destination),
                metadata.encryption_key,
                aad_prefix=metadata.aad_prefix or b"",
                threads=threads,
                progress=progress,
                durable=self._options.durable,
            )
        except OSError as error:
            todo.error = error
            if error.errno in _FATAL:
                raise
            return
        length = made.file_length or 0
        if length != planned:
            # It grew or shrank since the source was listed; the old time makes the next run look again.
            entry = _entry_of(found.path, made, plaintext_length(length), found.mtime_ns)
            self._note([(entry, todo.staged)])
        todo.entry = entry

    def _note(self, entries: list[tuple[Entry, bool]]) -> None:
        assert self._journal is not None
        self._journal.append(entries, durable=self._options.durable)

    # -- what comes of them ----------------------------------------------------------------------------------------

    def _drain(self, output: _Output, units: int, lines: int) -> None:
        """Hand on what is finished, from the front, until little enough is waiting."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Todo):
                unit = self._unit_of[id(first)]
                if len(self._units) <= units and len(self._waiting) <= lines and not _is_over(unit):
                    return
                if not unit.started:
                    self._submit()
                self._finish(unit)
                del self._unit_of[id(first)]
                self._hand_on(first, output)
            elif len(first) == 2:
                output.put(first[0], first[1].entry)
                output.staged = output.staged or first[1].staged
            else:
                output.keep(*first)
            self._waiting.popleft()

    def _finish(self, unit: _Unit) -> None:
        if unit.future is not None:
            unit.future.result()
        if self._units and self._units[0] is unit:
            self._units.popleft()

    def _hand_on(self, todo: _Todo, output: _Output) -> None:
        if todo.entry is not None:
            output.put(todo.found.key, todo.entry)
            output.staged = output.staged or todo.staged
            self._report.done += 1
            self._report.done_bytes += todo.entry.plaintext_length
        else:
            assert todo.error is not None
            self._fail(todo.found.path, todo.error)
            if todo.kept is not None:
                base = _Base.of(todo.kept)
                output.keep(base.key, base.line, base.plaintext_length)
        self._advance(todo.found.size)

    def _fail(self, path: str, error: Exception) -> None:
        if self._options.on_error == "fail":
            raise error
        self._report.errors.append((path, error))

    def _skip(self, path: str, reason: str) -> None:
        self._report.skipped.append((path, reason))

    def _advance(self, size: int) -> None:
        self._done_bytes += size
        self._tell(0, None)

    def _tell(self, done: int, total: int | None) -> None:
        if self._options.progress is not None:
            # A large file is told of as it goes, and then waits for the small ones before it to be counted.
            self._told = max(self._told, self._done_bytes + done)
            self._options.progress(self._told, self._total)

    # -- the commit ------------------------------------------------------------------------------------------------

    def _commit(self, output: _Output) -> None:
        old = self._metadata
        if not output.changed and old is not None:
            self._clean_up(None)
            return
        key = output.close()
        assert self._keys is not None
        keys = (self._journal.keys if self._journal is not None else self._keys).copy()
        key_id = keys.add(key, self._kms)
        staged = self._journal.staging if self._journal is not None and output.staged else None
        new = output.metadata(key_id, keys.only(key_id).to_list(), staged)
        _recovery.commit(self._root, new)
        self._report.version, self._report.changed = new.version, True
        self._clean_up(_recovery.finish_moves(self._root, new))

    def _clean_up(self, metadata: Metadata | None) -> None:
        if self._journal is not None:
            self._journal.close()
            _journal.remove(self._root, self._journal.id)
        _recovery.sweep(self._root, metadata or self._metadata, None)


@dataclass(frozen=True)
class _Base:
    """A line of the manifest, with what the merge wants to know of it."""

    key: bytes
    line: Line
    plaintext_length: int
    source: tuple[int, int] | None

    @classmethod
    def of(cls, line: Line) -> _Base:
        fields = json.loads(line.data)
        mtime = fields.get("source-mtime-ns")
        source = None if mtime is None else (fields["source-size"], mtime)
        return cls(sort_key(fields["path"]), line, fields["plaintext-length"], source)


class _Output:
    """The new manifest. As long as nothing differs from the old one, nothing is written."""

    def __init__(self, root: str, base: Manifest | None, metadata: Metadata) -> None:
        self._root = root
        self._base = base
        self._metadata = metadata
        self._writer: ManifestWriter | None = None
        self._name = f"manifest-{metadata.version}-{os.urandom(8).hex()}.jsonl.ags1"
        # Up to where the lines are those of the old manifest.
        self._end = 0 if base is None else base.start
        self._last = b""
        self._count = 0
        self._bytes = 0
        self.staged = False

    @property
    def changed(self) -> bool:
        """Whether anything differs."""
        return self._writer is not None

    @property
    def path(self) -> str:
        """Where the manifest goes."""
        return os.path.join(self._root, CONTROL, self._name)

    def keep(self, key: bytes, line: Line, plaintext_length: int) -> None:
        """Take a line of the old manifest."""
        if self._writer is not None:
            self._writer.add(key, line.data, plaintext_length)
            return
        self._end = line.offset + len(line.data) + 1
        self._last = key
        self._count += 1
        self._bytes += plaintext_length

    def put(self, key: bytes, entry: Entry) -> None:
        """Take a new entry."""
        entry.version = self._metadata.version
        self._begin().add(key, entry_line(entry), entry.plaintext_length)

    def _begin(self) -> ManifestWriter:
        if self._writer is None:
            self._writer = ManifestWriter(self.path, header_line(self._metadata))
            if self._base is not None and self._count:
                self._writer.copy(self._base, self._base.start, self._end, self._last, self._count, self._bytes)
        return self._writer

    def close(self) -> KeyMetadata:
        """Complete the manifest, and wait until it is on the disk."""
        key = self._begin().close()
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return key

    def metadata(self, key_id: str, keys: list[dict[str, Any]], staged: str | None) -> Metadata:
        """The metadata of the finished version."""
        writer = self._begin()
        return replace(
            self._metadata,
            encryption_keys=keys,
            manifest=self._name,
            manifest_key_id=key_id,
            file_count=writer.file_count,
            plaintext_bytes=writer.plaintext_bytes,
            updated_ms=_recovery.now_ms(),
            staged=staged,
        )

    def abort(self) -> None:
        """Throw it away."""
        if self._writer is not None:
            self._writer.abort()


def _entry_of(path: str, metadata: KeyMetadata, size: int, mtime_ns: int) -> Entry:
    return Entry(path, size, metadata.file_length or 0, metadata.encode(), size, mtime_ns)


def _is_over(unit: _Unit) -> bool:
    return unit.started and (unit.future is None or unit.future.done())


def _is_same(line: _Base, found: _tree.Found) -> bool:
    return line.source == (found.size, found.mtime_ns)


def _was_like(entry: Entry, found: _tree.Found) -> bool:
    return (entry.source_size, entry.source_mtime_ns) == (found.size, found.mtime_ns)


def _check_key_id(wanted: str | None, there: str, root: str) -> None:
    if wanted is not None and wanted != there:
        raise ValueError(
            f"the dataset {root} is under the master key {there!r}, not {wanted!r}: name that, or rewrap the dataset"
        )
