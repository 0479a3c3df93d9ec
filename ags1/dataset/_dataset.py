"""The Dataset: what :func:`ags1.dataset.open` and :func:`ags1.dataset.encrypt` answer."""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence

import ags1.dataset._read as _read
import ags1.dataset._tree as _tree
import ags1.dataset._write as _write
from ags1.dataset._control import CONTROL, METADATA, Metadata
from ags1.dataset._keys import KeyRing
from ags1.dataset._manifest import Entry, Manifest, checked_metadata
from ags1.dataset._rewrap import rewrap
from ags1.dataset._store import LocalStore, RemoteStore, open_manifest, open_store, read_metadata
from ags1.dataset.reports import RewrapReport, RunReport, TreeReport
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.keys import KeyMetadata
from ags1.stream import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from typing_extensions import Self

    from ags1.files import Progress

    Patterns = str | Sequence[str] | None

__all__ = ["Dataset", "Files", "encrypt", "open"]

_ATTEMPTS = 10


class Files:
    """The files of one version of a dataset, in the order of their paths. Nothing of them is kept in memory.

    Iterating gives :class:`Entry` objects; ``len()``, ``path in files`` and ``files[path]`` cost little, whatever the
    number of files.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return self._dataset._view().manifest.file_count

    def __iter__(self) -> Iterator[Entry]:
        return self._dataset._view().manifest.entries()

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        return self._dataset._view().manifest.find(_relative(path)) is not None

    def __getitem__(self, path: str | bytes | os.PathLike[str]) -> Entry:
        """The entry of a path.

        Raises
        ------
        FileNotFoundError
            The dataset has no such file.
        """
        return self._dataset._entry(_relative(path))

    def below(self, directory: str) -> Iterator[Entry]:
        """The files below a directory, "" for all."""
        name = _relative(directory) if directory else ""
        return self._dataset._view().manifest.entries(f"{name}/" if name else "")

    def children(self, directory: str = "") -> Iterator[tuple[str, Entry | None]]:
        """Names in a directory, each with its entry, or None for a directory."""
        name = _relative(directory) if directory else ""
        return self._dataset._view().manifest.children(name)

    def is_directory(self, path: str) -> bool:
        """Whether there are files below a path."""
        manifest = self._dataset._view().manifest
        return manifest.file_count > 0 if not path else manifest.has_below(_relative(path))

    def __repr__(self) -> str:
        return f"<ags1.dataset.Files of {self._dataset!r}>"


class Dataset:
    """A tree of encrypted files under one master key. Made by :func:`ags1.dataset.open` and :func:`encrypt`.

    Attributes
    ----------
    files : Files
        Its files.
    report : RunReport or None
        What the run did that made or last changed it.

    Notes
    -----
    Safe to share between threads. It shows one version: what another process commits later is not seen, and a file
    that such a commit replaced is refused with a hint. It holds keys, so it cannot be pickled: open it again there.
    """

    def __init__(
        self,
        store: LocalStore | RemoteStore,
        metadata: Metadata,
        manifest: Manifest,
        kms: Any,
        threads: int | None,
        close_kms: Callable[[], object] | None,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._current: _read.View | None = _read.View(store, manifest, metadata.version, metadata.staged)
        self._kms = kms
        self._threads = threads
        self._close_kms = close_kms
        self._lock = threading.Lock()
        self.files = Files(self)
        self.report: RunReport | None = None

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where it is."""
        return self._store.root

    @property
    def uuid(self) -> str:
        """Its identity."""
        return self._metadata.uuid

    @property
    def version(self) -> int:
        """Counts the commits that changed files. Keep it elsewhere, and pin it with ``expected_version``."""
        return self._metadata.version

    @property
    def key_id(self) -> str:
        """The master key in the KMS."""
        return self._metadata.table_key_id

    @property
    def plaintext_bytes(self) -> int:
        """Plaintext of all files."""
        return self._view().manifest.plaintext_bytes

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._current is None

    def _view(self) -> _read.View:
        view = self._current
        if view is None:
            raise ValueError("this dataset is closed")
        return view

    def _entry(self, path: str) -> Entry:
        found = self._view().manifest.find(path)
        if found is None:
            text = "the dataset has no such file"
            if self._view().manifest.has_below(path):
                raise IsADirectoryError(errno.EISDIR, "is a directory of the dataset", path)
            raise FileNotFoundError(errno.ENOENT, text, path)
        return found

    # -- reading ---------------------------------------------------------------------------------------------------

    def open(self, path: str | bytes | os.PathLike[str]) -> Reader:
        """Open the plaintext of one file.

        Parameters
        ----------
        path : path
            Relative to the dataset.

        Returns
        -------
        Reader
            With the length that the manifest says, so that a truncated file is refused here.

        Raises
        ------
        FileNotFoundError
            The dataset has no such file, or it has and the file is missing.
        TruncatedError, FormatError
            The file is shorter or longer than it was.
        AuthenticationError
            From the Reader: the file was replaced or damaged.
        """
        view = self._view()
        entry = self._entry(_relative(path))
        try:
            return self._open(view, entry)
        except FileNotFoundError:
            # It may have been moved, between a look at where it was and the opening.
            if view.staged is None:
                raise
            return self._open(view, entry)

    def _open(self, view: _read.View, entry: Entry) -> Reader:
        metadata = checked_metadata(entry, view.manifest.name)
        stored = entry.path
        try:
            if isinstance(self._store, LocalStore):
                stored = os.path.relpath(view.source(entry.path), self._store.root)
            elif view.staged is not None:
                stored = view.locate(entry.path)[len(self._store.root) :].lstrip("/")
            return self._store.open(stored, metadata, self._threads)
        except FileNotFoundError:
            text = "is in the manifest, but missing from the dataset"
            raise FileNotFoundError(errno.ENOENT, text, self._store.join(entry.path)) from None
        except FormatError as error:
            hint = self._hint()
            if hint:
                raise type(error)(f"{error}{hint}") from None
            raise

    def _hint(self) -> str:
        """What to say of a file that is not as it should be, if the dataset has become another one."""
        try:
            now = read_metadata(self._store).version
        except (OSError, FormatError):
            return ""
        if now == self._metadata.version:
            return ""
        return (
            f" (the dataset has version {now} by now, and version {self._metadata.version} was opened: open it again)"
        )

    def key_metadata(self, path: str | bytes | os.PathLike[str]) -> KeyMetadata:
        """Key, AAD prefix and length of one file: all that any AGS1 reader needs for it."""
        return checked_metadata(self._entry(_relative(path)), self._view().manifest.name)

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> TreeReport:
        """Authenticate every block of every file, and compare the tree with the manifest.

        Parameters
        ----------
        threads : int, optional
            Threads to use; by default every usable CPU.
        progress : callable, optional
            Called as ``progress(done, total)`` with bytes of plaintext.

        Returns
        -------
        TreeReport
            Names what is truncated, swapped, replaced, missing, foreign or damaged.

        Notes
        -----
        A whole directory that was put back from an older copy is authentic. Only a version number that was kept
        elsewhere shows that: ``open(..., expected_version=)``.
        """
        _check("fail", threads)
        return _read.verify(self._view(), threads=threads or self._threads, progress=progress)

    def decrypt(
        self,
        target: str | os.PathLike[str],
        *,
        include: Patterns = None,
        exclude: Patterns = None,
        threads: int | None = None,
        on_error: str = "fail",
        progress: Progress | None = None,
        durable: bool = False,
        dry_run: bool = False,
    ) -> RunReport:
        """Decrypt all files, or some, into a directory, under the names that they have here.

        Parameters
        ----------
        target : path
            Made if it is missing. Files of the same names in it are replaced, each atomically.
        include, exclude, threads, on_error, progress
            As :func:`ags1.dataset.encrypt`.
        durable : bool
            Wait until each file is on the disk.
        dry_run : bool
            Only report what would be decrypted.

        Raises
        ------
        AuthenticationError, TruncatedError, FormatError
            A file is not as it was written; nothing of it appears. With ``on_error="collect"`` it is reported instead.
        OSError
            Reading or writing failed.
        """
        _check(on_error, threads)
        return _read.decrypt(
            self._view(),
            target,
            _tree.Filter(include, exclude),
            threads=threads or self._threads,
            on_error=on_error,
            progress=progress,
            durable=durable,
            dry_run=dry_run,
        )

    # -- changing --------------------------------------------------------------------------------------------------

    def add(
        self,
        source: str | os.PathLike[str],
        *,
        prefix: str = "",
        include: Patterns = None,
        exclude: Patterns = None,
        threads: int | None = None,
        on_error: str = "fail",
        resume: bool = True,
        progress: Progress | None = None,
        durable: bool = False,
        dry_run: bool = False,
    ) -> RunReport:
        """Add the files of a directory, or one file; those that are there and unchanged are left as they are.

        Parameters
        ----------
        source : path
            A directory, whose files keep their relative paths, or a file.
        prefix : str
            Directory of the dataset that they go to.
        include, exclude, threads, on_error, resume, progress, durable
            As :func:`ags1.dataset.encrypt`.
        dry_run : bool
            Only report what would be done.

        Returns
        -------
        RunReport
            Also as :attr:`report`. This object shows the new version afterwards.
        """
        store = self._writable()
        _check(on_error, threads)
        wanted = _tree.Filter(include, exclude)
        options = _write.Options(
            wanted, threads or self._threads, on_error, resume, progress, durable=durable, dry_run=dry_run
        )
        name = _relative(prefix) if prefix else ""
        report = _write.run(store, os.fspath(source), name, self._kms, self.key_id, options)
        if not dry_run:
            self._renew()
        self.report = report
        return report

    def rewrap(self, new_key_id: str, new_kms: Any = None, *, dry_run: bool = False) -> RewrapReport:
        """Put the dataset under another master key. Only wrapped keys are written: no file changes.

        Parameters
        ----------
        new_key_id : str
            The new master key.
        new_kms : client or URL, optional
            The service that has it; by default the one that this dataset was opened with.
        dry_run : bool
            Make every call to the services, and write nothing.

        Returns
        -------
        RewrapReport

        Raises
        ------
        KeyAccessError
            A service refused, or did not answer the same key again. The dataset is as it was.

        Notes
        -----
        The old master key still opens copies of the old ``metadata.json``. Until this has returned, both keys are
        needed; called again after an interruption, it does what is left to be done.
        """
        store = self._store
        self._view()
        client, close = _client(new_kms) if new_kms is not None else (None, None)
        try:
            report = rewrap(store, self._kms, new_key_id, client, dry_run)
        except BaseException:
            if close is not None:
                close()
            raise
        if dry_run:
            if close is not None:
                close()
            return report
        if client is not None:
            if self._close_kms is not None:
                self._close_kms()
            self._kms, self._close_kms = client, close
        self._renew()
        return report

    def _writable(self) -> LocalStore:
        self._view()
        if not isinstance(self._store, LocalStore):
            raise ValueError(f"{self._store.root} is remote: datasets are changed where they are local directories")
        return self._store

    def _renew(self) -> None:
        metadata, manifest = _load(self._store, self._kms, None, None)
        with self._lock:
            old, self._current = self._current, _read.View(self._store, manifest, metadata.version, metadata.staged)
            self._metadata = metadata
        if old is not None:
            old.manifest.close()

    # -- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the manifest, and the KMS client if it was made here. Readers that are open stay usable."""
        with self._lock:
            view, self._current = self._current, None
        if view is not None:
            view.manifest.close()
            if self._close_kms is not None:
                self._close_kms()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"version {self.version}, {self._metadata.file_count} files"
        return f"<ags1.dataset.Dataset {self._store.root!r}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Dataset cannot be pickled or copied: it holds keys; open it where it is needed")


def encrypt(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    kms: Any,
    key_id: str,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    threads: int | None = None,
    on_error: str = "fail",
    resume: bool = True,
    progress: Progress | None = None,
    durable: bool = False,
) -> Dataset:
    """Encrypt a directory into a dataset: each file with a key of its own, all of them under one master key.

    Parameters
    ----------
    source : path
        A directory, or one file. It must not change meanwhile: a file that does is an error. Links to files stand for
        their contents; links to directories, pipes, sockets and devices are left out and reported; empty directories
        are not kept.
    target : path
        A directory, made if it is missing. If there is a dataset in it, only files that are new, or whose size or
        modification time differs, are encrypted. Files that the source has no more stay. What is not of the dataset
        is never touched; if it is in the way, that is an error.
    kms : client or URL
        Where the master key is: a client of :mod:`ags1.kms`, or what :func:`ags1.kms.load` takes.
    key_id : str
        The master key.
    include, exclude : str or sequence of str, optional
        Glob patterns. One without ``/`` is compared with each component of a relative path, one with ``/`` with the
        whole path.
    threads : int, optional
        Threads to use; by default every usable CPU. 1 starts none.
    on_error : {"fail", "collect"}
        What a file that cannot be read or written does: end the run, or be reported while the others go on. A full
        disk always ends the run.
    resume : bool
        Whether to take over what an interrupted run has done; otherwise that is done again.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of plaintext. An exception in it stops the run.
    durable : bool
        Wait until each file is on the disk, so that not even a power cut loses one. Manifest and metadata always are.

    Returns
    -------
    Dataset
        With a :attr:`~Dataset.report` of what was done.

    Raises
    ------
    OSError
        Reading or writing failed. What was encrypted by then is kept for the next run.
    BlockingIOError
        Another process is changing this dataset.
    KeyAccessError
        The master key could not be used.
    ValueError
        The dataset is under another master key; source and target overlap.
    FormatError, AuthenticationError
        The dataset that is there is damaged, or was changed by somebody else.

    Notes
    -----
    ``metadata.json`` is replaced last, atomically: whatever interrupts a run, the dataset is the old version or the
    new one, whole. An interrupted first run leaves a directory that :func:`open` refuses, to be completed by another.
    """
    _check(on_error, threads)
    store = open_store(target)
    if not isinstance(store, LocalStore):
        raise ValueError(f"{target} is remote: encrypt into a local directory, and upload that")
    if not key_id:
        raise ValueError("key_id must be the name of a master key")
    client, close = _client(kms)
    try:
        options = _write.Options(_tree.Filter(include, exclude), threads, on_error, resume, progress, durable=durable)
        report = _write.run(store, os.fspath(source), "", client, key_id, options)
        metadata, manifest = _load(store, client, None, None)
    except BaseException:
        if close is not None:
            close()
        raise
    dataset = Dataset(store, metadata, manifest, client, threads, close)
    dataset.report = report
    return dataset


def preview(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    kms: Any,
    key_id: str,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    on_error: str = "fail",
) -> RunReport:
    """What :func:`encrypt` would do; nothing is written. The KMS is asked only if there is a dataset already."""
    store = open_store(target)
    if not isinstance(store, LocalStore):
        raise ValueError(f"{target} is remote: encrypt into a local directory, and upload that")
    client, close = _client(kms)
    try:
        options = _write.Options(_tree.Filter(include, exclude), None, on_error, dry_run=True)
        return _write.run(store, os.fspath(source), "", client, key_id, options)
    finally:
        if close is not None:
            close()


def open(
    target: str | os.PathLike[str],
    kms: Any,
    *,
    expected_version: int | None = None,
    key_id: str | None = None,
    threads: int | None = None,
) -> Dataset:
    """Open a dataset: one call to the KMS, whatever the number of files.

    Parameters
    ----------
    target : path or URL
        Its directory; a URL of fsspec's can be read, not changed.
    kms : client or URL
        A client of :mod:`ags1.kms`, or what :func:`ags1.kms.load` takes.
    expected_version : int, optional
        The version that it must have. Nothing else shows that somebody put back the whole directory from an older
        copy, because that is authentic.
    key_id : str, optional
        The master key that it must be under. Whoever can write the directory and use another key of the same service
        could otherwise bring a dataset of their own.
    threads : int, optional
        Threads for reading; by default every usable CPU for large reads.

    Raises
    ------
    FileNotFoundError
        There is no dataset, its first run was not completed, or its manifest is missing.
    KeyAccessError
        The master key could not be used, or is not `key_id`.
    FormatError
        What is there is damaged, or no dataset.
    AuthenticationError
        The manifest or the metadata was changed, or put back from an older version; or the version is not
        `expected_version`.
    """
    _check("fail", threads)
    store = open_store(target)
    client, close = _client(kms)
    try:
        metadata, manifest = _load(store, client, expected_version, key_id)
    except BaseException:
        if close is not None:
            close()
        raise
    return Dataset(store, metadata, manifest, client, threads, close)


def _load(
    store: LocalStore | RemoteStore, kms: Any, expected_version: int | None, key_id: str | None
) -> tuple[Metadata, Manifest]:
    for attempt in range(_ATTEMPTS):
        metadata = read_metadata(store)
        name = store.join(CONTROL, METADATA)
        if expected_version is not None and metadata.version != expected_version:
            raise AuthenticationError(
                f"{name} says version {metadata.version}, but {expected_version} is expected: "
                + ("an older copy was put back" if metadata.version < expected_version else "it was changed since")
            )
        if key_id is not None and metadata.table_key_id != key_id:
            raise KeyAccessError(f"{name} names the master key {metadata.table_key_id!r}, but {key_id!r} is expected")
        keys = KeyRing(metadata.encryption_keys, metadata.table_key_id, name)
        try:
            return metadata, open_manifest(store, metadata, keys, kms)
        except FileNotFoundError:
            # A commit between the two reads removes the old manifest.
            if attempt + 1 == _ATTEMPTS or read_metadata(store).manifest == metadata.manifest:
                text = "the manifest of this dataset is missing: restore it from a copy"
                raise FileNotFoundError(errno.ENOENT, text, store.join(CONTROL, metadata.manifest)) from None
    raise AssertionError


def _client(kms: Any) -> tuple[Any, Callable[[], object] | None]:
    """A KMS client, and how to close it if it was made here."""
    if isinstance(kms, str):
        from ags1.kms import load

        client = load(kms)
        return client, client.close
    if not (hasattr(kms, "wrap_key") and hasattr(kms, "unwrap_key")):
        raise TypeError(
            f"kms must be a client with wrap_key and unwrap_key, or a URL such as local:keys.json, "
            f"not {type(kms).__name__}"
        )
    return kms, None


def _relative(path: str | bytes | os.PathLike[str]) -> str:
    """A path as the manifest has it."""
    clean = posixpath.normpath(os.fsdecode(path).lstrip("/"))
    return "" if clean == "." else clean


def _check(on_error: str, threads: int | None) -> None:
    if on_error not in ("fail", "collect"):
        raise ValueError(f"on_error must be 'fail' or 'collect', got {on_error!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
