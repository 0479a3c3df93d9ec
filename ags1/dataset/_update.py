"""A new version of a dataset whose files other processes make: what the Spark pipeline and its writer commit with.

    with Update.begin(store, kms, key_id) as update:       lock, base version, the run's record
        workers: update.reference.unwrap(kms).file_key(path, size, mtime_ns), written to update.place(path)
        for each file, in the order of paths: update.keep(line), or update.put(entry), or neither
        update.commit()                                     manifest, then metadata.json, then what was staged is moved

What was interrupted is gone on with: the next update finds the record of the run, and takes it over with its keys.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

import ags1.dataset._recovery as _recovery
import ags1.dataset._writes as _writes
from ags1.dataset._control import CONTROL, MANIFEST_NAME, METADATA, STAGED_NAME, Metadata, check_path
from ags1.dataset._journal import JOURNAL_NAME
from ags1.dataset._keys import KeyRing
from ags1.dataset._lease import Lease
from ags1.dataset._manifest import Entry, Line, Manifest, ManifestWriter, entry_line, header_line, sort_key
from ags1.dataset._runs import RECORD_NAME, RunKeys, RunReference, parse_record, record_name
from ags1.dataset._store import LocalStore, RemoteStore, open_manifest, read_metadata
from ags1.errors import AuthenticationError, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    Store = LocalStore | RemoteStore

__all__ = [
    "Base",
    "Update",
    "clean",
    "find_metadata",
    "forget",
    "names_of",
    "remove_dropped",
    "settle",
    "sweep",
    "unfinished_runs",
]
_PLACED = "placed-{}-"


class Base:
    """A line of the manifest that an update begins with, and what a merge wants to know of it."""

    __slots__ = ("file_length", "key", "line", "path", "plaintext_length", "source")

    def __init__(self, line: Line) -> None:
        fields = json.loads(line.data)
        self.path: str = fields["path"]
        self.key = sort_key(self.path)
        self.line = line
        self.plaintext_length: int = fields["plaintext-length"]
        self.file_length: int = fields["file-length"]
        mtime = fields.get("source-mtime-ns")
        self.source = None if mtime is None else (fields["source-size"], mtime)


class _Range:
    """Consecutive lines of the base manifest."""

    __slots__ = ("count", "end", "last", "plaintext_bytes", "start")

    def __init__(self, base: Base) -> None:
        self.start = base.line.offset
        self.end = base.line.offset
        self.count = 0
        self.plaintext_bytes = 0
        self.last = b""

    def takes(self, base: Base) -> bool:
        """Add a line, if it is the next one."""
        if base.line.offset != self.end:
            return False
        self.end += len(base.line.data) + 1
        self.count += 1
        self.plaintext_bytes += base.plaintext_length
        self.last = base.key
        return True


class Update:
    """A change of a dataset. Use it in one thread, in a ``with`` statement.

    Attributes
    ----------
    store : LocalStore or RemoteStore
        Where the dataset is.
    version : int
        Version that it has now; 0 for a new one.
    base : Manifest or None
        Its manifest.
    reference : RunReference
        What workers need.
    keys : RunKeys
        The keys of the files that are made.
    resumed : bool
        Whether the run of an interrupted update was taken over: then files of it may be there already.
    doubtful : bool
        Whether files may be staged that this update does not take: those of an interrupted run whose sources are gone
        or as before, and what a worker left that failed. Set it if one did. They are removed before the commit, which
        would put them in the place of others.
    """

    reference: RunReference
    keys: RunKeys
    _new: Metadata

    def __init__(self, store: Store, kms: Any, metadata: Metadata | None, key_id: str, lock: Any) -> None:
        self.store = store
        self.version = 0 if metadata is None else metadata.version
        self.base: Manifest | None = None
        self.resumed = False
        self.doubtful = False
        self._kms = kms
        self._metadata = metadata
        self._key_id = key_id
        self._lock = lock
        self._writer: ManifestWriter | None = None
        self._manifest_name = ""
        self._ranges: list[_Range] = []
        self._changed = False
        self._staged = False
        self._is_write = False
        self._removed: list[str] = []

    # -- beginning -------------------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls, store: Store, kms: Any, key_id: str | None, *, resume: bool = True, run: RunReference | None = None
    ) -> Self:
        """Lock a dataset, and find or make the run.

        Parameters
        ----------
        store : LocalStore or RemoteStore
            Where the dataset is, or is to be.
        kms : client
            Where the master key is.
        key_id : str or None
            The master key; None if the dataset has to be there already.
        resume : bool
            Whether to take over the run of an interrupted update; otherwise what it made is thrown away.
        run : RunReference, optional
            The write that is committed, if it was begun before, without the lock: see :mod:`ags1.dataset._writes`.

        Raises
        ------
        BlockingIOError
            Another process is changing this dataset.
        ValueError
            It is under another master key.
        FileNotFoundError
            There is no dataset, and no `key_id`; or the write was thrown away.
        KeyAccessError, FormatError, AuthenticationError
            As :func:`ags1.dataset.open`.
        """
        lock = store.lock()
        try:
            metadata = settle(store, find_metadata(store))
            if metadata is None and key_id is None:
                text = "there is no ags1 dataset here, or its first run was not completed"
                raise FileNotFoundError(errno.ENOENT, text, store.root)
            if metadata is not None and key_id is not None and metadata.table_key_id != key_id:
                raise ValueError(
                    f"the dataset {store.root} is under the master key {metadata.table_key_id!r}, not {key_id!r}: "
                    "name that, or rewrap the dataset"
                )
            update = cls(store, kms, metadata, key_id or (metadata.table_key_id if metadata else ""), lock)
            try:
                update._open(resume, run)
            except BaseException:
                update._close_base()
                raise
        except BaseException:
            lock.__exit__(None, None, None)
            raise
        return update

    def _open(self, resume: bool, run: RunReference | None) -> None:
        metadata = self._metadata
        keys = KeyRing([], self._key_id, self.store.root)
        if metadata is not None:
            keys = KeyRing(metadata.encryption_keys, metadata.table_key_id, self.store.root)
            self.base = open_manifest(self.store, metadata, keys, self._kms)
        _refuse_journals(self.store)
        if run is not None:
            self._join(run)
            return
        live: RunReference | None = None
        for found in unfinished_runs(self.store):
            if resume and live is None and self._fits(found):
                live = found
            else:
                forget(self.store, found, self.base)
        if live is not None:
            self.reference, self.keys = live, live.unwrap(self._kms)
            self.resumed = self.doubtful = True
        else:
            identity = str(uuid.uuid4()) if metadata is None else metadata.uuid
            self.reference, self.keys = RunReference.create(identity, self.version, keys, self._kms)
            self.store.write_control(record_name(self.reference.run), self.reference.encode())
        sweep(self.store, metadata, names_of(self.store, self.reference))

    def _join(self, run: RunReference) -> None:
        """Commit a write, on a version that it may never have seen."""
        _writes.claim(self.store, run.run)
        self._is_write = True
        self.keys = run.unwrap(self._kms)
        metadata = self._metadata
        if metadata is not None:
            if run.base_version > 0 and run.uuid != metadata.uuid:
                raise AuthenticationError(
                    f"{self.store.root} is another dataset than the one that this write began on: nothing was "
                    "committed; write again"
                )
            if run.table_key_id != metadata.table_key_id:
                # The dataset was rewrapped meanwhile.
                run = run.rewrapped(run.key_ring().rewrapped(self._kms, metadata.table_key_id, None))
            # Of two writes that both were to make the dataset, the second adds to it.
            run = replace(run, uuid=metadata.uuid)
        self.reference = run

    def _fits(self, found: RunReference) -> bool:
        """Whether an interrupted run belongs to the dataset as it is."""
        same = self._metadata is None or found.uuid == self._metadata.uuid
        if same and found.base_version > self.version:
            raise FormatError(
                f"{self.store.join(CONTROL, record_name(found.run))} is of version {found.base_version}, but "
                f"metadata.json says {self.version}: an older metadata.json was put back, or it is damaged"
            )
        return same and found.base_version == self.version and found.table_key_id == self._key_id

    # -- files -----------------------------------------------------------------------------------------------------

    def place(self, path: str, *, replaces: bool) -> str:
        """Path below the dataset that a file is written to until the commit.

        In a directory all files wait in the staging directory: to move them costs little, and whatever is killed
        leaves nothing among others' files. Behind an object store a file cannot be moved but only copied, so there
        only those wait that replace one of the dataset.
        """
        if replaces or isinstance(self.store, LocalStore):
            return f"{CONTROL}/{self.reference.staging}/{path}"
        return path

    def announce(self, paths: Iterable[str]) -> None:
        """Note that files are going to be made at :meth:`place`, before that is done.

        Behind an object store those that are new stand among the dataset's. If the run comes to nothing, whoever
        throws it away knows by this which they are.
        """
        new = [path for path in paths if self.place(path, replaces=False) == path]
        if new:
            lines = "".join(json.dumps(path) + "\n" for path in new)
            name = f"{_PLACED.format(self.reference.run)}{os.urandom(8).hex()}.jsonl"
            self.store.write_control(name, lines.encode("ascii"))

    def announced(self) -> Iterator[str]:
        """What an interrupted run that this one goes on with has announced, in order."""
        return _placed(self.store, self.reference) if self.resumed else iter(())

    def scratch(self, path: str) -> str:
        """Path below the dataset of a directory in which many processes put together one file."""
        name = hashlib.sha256(sort_key(path)).hexdigest()[:32]
        return f"{CONTROL}/parts-{self.reference.run}/{name}"

    def lines(self) -> Iterator[Base]:
        """The files of the version that this began with."""
        if self.base is not None:
            for line in self.base.lines():
                yield Base(line)

    def keep(self, base: Base) -> None:
        """Take a file as it is."""
        if self._writer is not None:
            self._writer.add(base.key, base.line.data, base.plaintext_length)
        elif not self._ranges or not self._ranges[-1].takes(base):
            self._ranges.append(_Range(base))
            self._ranges[-1].takes(base)

    def put(self, entry: Entry, *, replaces: bool) -> None:
        """Take a new file, or a new version of one."""
        self._changed = True
        self._staged = self._staged or replaces or isinstance(self.store, LocalStore)
        entry.version = self.version + 1
        self._begin().add(sort_key(entry.path), entry_line(entry), entry.plaintext_length)

    def drop(self, base: Base) -> None:
        """Leave a file out; it is removed after the commit."""
        self._changed = True
        self._removed.append(base.path)

    @property
    def file_count(self) -> int:
        """Files that the new version has by now."""
        if self._writer is not None:
            return self._writer.file_count
        return sum(each.count for each in self._ranges)

    def _next(self) -> Metadata:
        old, now = self._metadata, _recovery.now_ms()
        created, properties = (now, {}) if old is None else (old.created_ms, old.properties)
        return Metadata(
            self.reference.uuid, self.version + 1, self._key_id, [], "", "", 0, 0, created, created, properties
        )

    def _begin(self) -> ManifestWriter:
        if self._writer is None:
            self._new = self._next()
            self._manifest_name = f"manifest-{self._new.version}-{os.urandom(8).hex()}.jsonl.ags1"
            self._writer = ManifestWriter(self.store.sink(self._manifest_name), header_line(self._new))
            for each in self._ranges:
                assert self.base is not None
                self._writer.copy(self.base, each.start, each.end, each.last, each.count, each.plaintext_bytes)
            self._ranges = []
        return self._writer

    # -- the commit ------------------------------------------------------------------------------------------------

    def commit(self) -> int:
        """Make the new version the dataset's; answer its number. Nothing is written if nothing differs.

        Raises
        ------
        AuthenticationError
            Somebody else has committed meanwhile, in spite of the lock, or has taken the lease.
        """
        # Before anything is removed: it may be somebody else's by now.
        self._refuse_if_changed()
        if not self._changed and self._metadata is not None:
            if self.doubtful and self.base is not None:
                self.store.remove_all(_others(_placed(self.store, self.reference), self.base))
            self._forget()
            return self.version
        writer = self._begin()
        manifest_key = writer.close()
        if isinstance(self.store, LocalStore):
            _sync(self.store.join(CONTROL, self._manifest_name))
        keys = self.reference.key_ring()
        key_id = keys.add(manifest_key, self._kms)
        new = replace(
            self._new,
            encryption_keys=keys.only(key_id).to_list(),
            manifest=self._manifest_name,
            manifest_key_id=key_id,
            file_count=writer.file_count,
            plaintext_bytes=writer.plaintext_bytes,
            updated_ms=_recovery.now_ms(),
            staged=self.reference.staging if self._staged else None,
        )
        self._refuse_if_changed()
        if self.doubtful:
            self._remove_strays(new, keys)
            self._refuse_if_changed()
        if self._removed:
            lines = "".join(json.dumps(path) + "\n" for path in self._removed)
            self.store.write_control(_removed_name(new), lines.encode("ascii"))
        if self._is_write:
            _writes.announce(self.store, self.reference, self._manifest_name)
        self.store.write_control(METADATA, new.encode())
        self._metadata = settle(self.store, new)
        self._forget()
        self.version = new.version
        return self.version

    def _remove_strays(self, new: Metadata, keys: KeyRing) -> None:
        """Remove what was made and the new manifest does not take, by a merge of the two."""
        staging = self.reference.staging
        with closing(open_manifest(self.store, new, keys, self._kms)) as manifest:
            for path in _others(self.store.staged(staging), manifest, new.version):
                self.store.remove_control(f"{staging}/{path}")
            placed = _placed(self.store, self.reference)
            self.store.remove_all(_others(placed, manifest, new.version))

    def _refuse_if_changed(self) -> None:
        now = find_metadata(self.store)
        if (0 if now is None else now.version) != self.version:
            raise AuthenticationError(
                f"{self.store.root} was changed by somebody else while this ran: nothing was committed; run it again"
            )
        if isinstance(self._lock, Lease) and not self._lock.is_held():
            # Whoever took it may have thrown away what this made, and need not have committed anything.
            raise AuthenticationError(
                f"{self.store.root}: this did not renew its lease for so long that somebody else took it: nothing was "
                "committed; run it again"
            )

    def _forget(self) -> None:
        if self._is_write:
            _writes.finish(self.store, self.reference.run)
        else:
            self.store.remove_control(record_name(self.reference.run))
        self._close_base()
        sweep(self.store, self._metadata, set())

    def _close_base(self) -> None:
        if self.base is not None:
            self.base.close()
            self.base = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._writer is not None:
                # After a commit there is nothing left to be thrown away.
                self._writer.abort()
            self._close_base()
        finally:
            self._lock.__exit__(*exception)


def _others(paths: Iterator[str], manifest: Manifest, version: int | None = None) -> Iterator[str]:
    """Those of some paths, in order, that a manifest does not have, or that did not come with a version."""
    taken = (sort_key(each.path) for each in manifest.entries() if version is None or each.version == version)
    following = next(taken, None)
    for path in paths:
        key = sort_key(path)
        while following is not None and following < key:
            following = next(taken, None)
        if following != key:
            yield path


def _placed(store: Store, run: RunReference) -> Iterator[str]:
    """What a run has announced, in order."""
    lists = [
        [_listed_path(line, store.join(CONTROL, name)) for line in store.read_control(name).splitlines()]
        for name in store.control_names()
        if name.startswith(_PLACED.format(run.run))
    ]
    return heapq.merge(*lists, key=sort_key)


def names_of(store: Store, run: RunReference) -> set[str]:
    """Names in the control directory that an unfinished run needs, besides its record."""
    placed = {name for name in store.control_names() if name.startswith(_PLACED.format(run.run))}
    return {run.staging, f"parts-{run.run}", *placed}


def find_metadata(store: Store) -> Metadata | None:
    """The metadata of a dataset, None if there is none."""
    try:
        return read_metadata(store)
    except FileNotFoundError:
        return None


def settle(store: Store, metadata: Metadata | None) -> Metadata | None:
    """Finish what a commit left to be done: move staged files, remove those that it dropped."""
    if metadata is None:
        return None
    if metadata.staged is not None:
        store.finish_moves(metadata.staged)
        metadata = metadata.settled()
        store.write_control(METADATA, metadata.encode())
    remove_dropped(store, metadata)
    _writes.settle(store, metadata)
    return metadata


def remove_dropped(store: Store, metadata: Metadata) -> None:
    """Remove the files that the commit of a version left out."""
    name = _removed_name(metadata)
    if name in store.control_names():
        for line in store.read_control(name).splitlines():
            store.remove(_listed_path(line, store.join(CONTROL, name)))
        store.remove_control(name)


def _removed_name(metadata: Metadata) -> str:
    """The list of what a commit drops. It belongs to one manifest: not to another commit of the same version."""
    return metadata.manifest.replace("manifest-", "removed-").replace(".jsonl.ags1", ".jsonl")


def _listed_path(line: bytes, name: str) -> str:
    # Nothing authenticates it: it may name what is in the dataset, and nothing else.
    try:
        path = json.loads(line)
    except (ValueError, RecursionError):
        path = None
    if not isinstance(path, str):
        raise FormatError(f"{name}: a list of files is damaged")
    try:
        return check_path(path)
    except FormatError:
        raise FormatError(f"{name}: a list of files has {path!r}, which no dataset can have") from None


def sweep(store: Store, metadata: Metadata | None, keep: set[str]) -> None:
    """Remove what interrupted updates left in the control directory and nobody needs."""
    needed = set(keep)
    if metadata is not None:
        needed |= {metadata.manifest, metadata.staged or ""}
    names = store.control_names()
    records = {match[1] for match in map(RECORD_NAME.fullmatch, names) if match}
    for name in names:
        # What a run announced is needed as long as its record is there.
        if name in needed or any(name.startswith(_PLACED.format(run)) for run in records):
            continue
        rubbish = STAGED_NAME.fullmatch(name) or MANIFEST_NAME.fullmatch(name) or _recovery.LEFT.fullmatch(name)
        if rubbish or _recovery.is_temporary(name):
            store.remove_control(name)
    _writes.sweep(store)


def unfinished_runs(store: Store) -> list[RunReference]:
    """Records of runs that did not come to their commit, or were just going to be removed.

    Raises
    ------
    FormatError
        One is damaged.
    """
    found = []
    for name in store.control_names():
        match = RECORD_NAME.fullmatch(name)
        if match:
            try:
                data = store.read_control(name)
            except FileNotFoundError:
                continue
            found.append(parse_record(match[1], data, store.join(CONTROL, name)))
    return found


def forget(store: Store, run: RunReference, manifest: Manifest | None = None) -> None:
    """Remove what is left of a run, its record last."""
    metadata = find_metadata(store)
    if manifest is not None:
        store.remove_all(_others(_placed(store, run), manifest))
    elif run.base_version == (0 if metadata is None else metadata.version):
        # It did not come to its commit; and what it announced was new.
        store.remove_all(_placed(store, run))
    if metadata is None or metadata.staged != run.staging:
        store.remove_control(run.staging)
    for name in names_of(store, run) - {run.staging}:
        store.remove_control(name)
    store.remove_control(record_name(run.run))


def clean(store: Store) -> list[str]:
    """Throw away what interrupted runs left; answer what was removed. The dataset stays as it is.

    Raises
    ------
    BlockingIOError
        A run is changing this dataset now.
    """
    before = set(store.control_names())
    if not before:
        text = "there is no ags1 dataset here, and nothing of an interrupted run"
        raise FileNotFoundError(errno.ENOENT, text, store.root)
    with store.lock():
        metadata = settle(store, find_metadata(store))
        for run in unfinished_runs(store):
            forget(store, run)
        _writes.sweep(store, 0)
        _refuse_journals(store)
        sweep(store, metadata, set())
    return sorted(before - set(store.control_names()) - {"lease.json"})


def _refuse_journals(store: Store) -> None:
    if isinstance(store, LocalStore) and any(JOURNAL_NAME.fullmatch(name) for name in store.control_names()):
        raise FormatError(
            f"{store.root} has an unfinished run of ags1.dataset.encrypt or add: run that again first, so that what "
            "it has done is not lost"
        )


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
