"""Where a dataset is read from: a local directory, or a directory behind an fsspec file system.

A file is at its path in the tree; while a commit is being finished it may still be in the staging directory, so that
is where it is looked for first.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import ags1.dataset._tree as _tree
from ags1.dataset._control import CONTROL, METADATA, Lock, Metadata, named, write_whole
from ags1.dataset._keys import KeyRing
from ags1.dataset._lease import LEASE, Lease
from ags1.dataset._manifest import Manifest, sort_key
from ags1.errors import Ags1Error, FormatError
from ags1.keys import KeyMetadata
from ags1.storage import FsspecOutput, Location, file_system_of, guarded, is_url
from ags1.stream import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LocalStore", "RemoteStore", "open_manifest", "open_store"]

_REQUESTS = 16
_MAGIC = frozenset("*?[")


class LocalStore:
    """A dataset in a local directory."""

    is_local = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.fspath(root))

    def join(self, *parts: str) -> str:
        """A path in the dataset."""
        return os.path.join(self.root, *parts)

    def read_control(self, name: str) -> bytes:
        """All of a file in the control directory."""
        path = self.join(CONTROL, name)
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            text = "there is no ags1 dataset here, or its first run was not completed"
            raise FileNotFoundError(errno.ENOENT, text, self.root) from None

    def locate(self, path: str, staged: str | None) -> str:
        """Where a file is now."""
        if staged is not None:
            waiting = self.join(CONTROL, staged, path)
            if os.path.lexists(waiting):
                return waiting
        return self.join(path)

    def open(self, path: str, metadata: KeyMetadata, threads: int | None) -> Reader:
        """Open an encrypted file of the tree."""
        return Reader(
            self.join(path),
            metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"",
            length=metadata.file_length,
            threads=threads,
        )

    def walk(self) -> Iterator[tuple[str, str]]:
        """Everything in the tree."""
        return _tree.walk(self.root)

    def lock(self) -> Lock:
        """Keep other writers out; see :class:`Lock`."""
        return Lock(self.root)

    def control_names(self) -> list[str]:
        """Names in the control directory."""
        try:
            return sorted(os.listdir(self.join(CONTROL)))
        except FileNotFoundError:
            return []

    def write_control(self, name: str, data: bytes) -> None:
        """Replace a file in the control directory, atomically."""
        write_whole(self.join(CONTROL, name), data)

    def remove_control(self, name: str) -> None:
        """Remove a file or a directory of the control directory, if it is there."""
        path = self.join(CONTROL, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
            return
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove(self, path: str) -> None:
        """Remove a file of the tree, if it is there, and the directories that it leaves empty."""
        above = path.rpartition("/")[0]
        if os.path.realpath(self.join(above)) != os.path.join(os.path.realpath(self.root), above).rstrip("/"):
            # Behind a link is not in this tree.
            return
        try:
            os.unlink(self.join(path))
        except (FileNotFoundError, NotADirectoryError):
            pass
        while above:
            try:
                os.rmdir(self.join(above))
            except OSError:
                return
            above = above.rpartition("/")[0]

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove files of the tree."""
        for path in paths:
            self.remove(path)

    def sink(self, name: str) -> str:
        """What a Writer takes for a new file in the control directory."""
        return self.join(CONTROL, name)

    def staged(self, staging: str) -> Iterator[str]:
        """Paths of the files in a staging directory, in order."""
        waiting = self.join(CONTROL, staging)
        if os.path.isdir(waiting):
            yield from (path for path, _ in _tree.walk(waiting))

    def finish_moves(self, staging: str) -> None:
        """Move what waits in a staging directory to where it belongs; what was moved before is no error."""
        waiting = self.join(CONTROL, staging)
        if os.path.islink(waiting):
            raise FormatError(f"{waiting} is a link: what is behind it is not of this dataset; remove it")
        _tree.move(waiting, self.root)


class RemoteStore:
    """A dataset behind fsspec."""

    is_local = False

    def __init__(self, file_system: Any, root: str) -> None:
        self.file_system = guarded(file_system)
        self.root = root.rstrip("/")

    def join(self, *parts: str) -> str:
        """A path in the file system."""
        return "/".join((self.root, *parts))

    def read_control(self, name: str) -> bytes:
        """All of a file in the control directory."""
        # What is remembered of listings may be older than what is about to be read, and files of that be missing there.
        self.file_system.invalidate_cache()
        try:
            data: bytes = self.file_system.cat_file(self.join(CONTROL, name))
        except FileNotFoundError:
            text = "there is no ags1 dataset here, or its first run was not completed"
            raise FileNotFoundError(errno.ENOENT, text, self.root) from None
        return data

    def locate(self, path: str, staged: str | None) -> str:
        """Where a file is now."""
        if staged is not None:
            waiting = self.join(CONTROL, staged, path)
            if self.file_system.exists(waiting):
                return waiting
        return self.join(path)

    def open(self, path: str, metadata: KeyMetadata, threads: int | None) -> Reader:
        """Open an encrypted file of the tree."""
        return Reader(
            _Remote(self.file_system, self.join(path)),
            metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"",
            length=metadata.file_length,
            threads=threads,
        )

    def walk(self) -> Iterator[tuple[str, str]]:
        """Everything in the tree."""
        for name in sorted(self.file_system.find(self.root)):
            path = name[len(self.root) :].lstrip("/")
            if path.partition("/")[0] != CONTROL:
                yield path, "file"

    def lock(self) -> Lease:
        """Keep other writers out; see :class:`Lease`."""
        return Lease(self.file_system, self.join(CONTROL, LEASE), self.root)

    def control_names(self) -> list[str]:
        """Names in the control directory."""
        self.file_system.invalidate_cache()
        try:
            listed = self.file_system.ls(self.join(CONTROL), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in listed)

    def write_control(self, name: str, data: bytes) -> None:
        """Replace a file in the control directory: object stores do that atomically."""
        self.file_system.pipe_file(self.join(CONTROL, name), data)

    def remove_control(self, name: str) -> None:
        """Remove a file or a directory of the control directory, if it is there."""
        self.file_system.invalidate_cache()
        path = self.join(CONTROL, name)
        try:
            if _MAGIC.isdisjoint(path):
                self.file_system.rm(path, recursive=True)
            else:
                # That takes the names of files for patterns, and would remove others.
                for each in self.file_system.find(path):
                    self.file_system.rm_file(each)
        except FileNotFoundError:
            pass

    def remove(self, path: str) -> None:
        """Remove a file of the tree, if it is there."""
        try:
            self.file_system.rm_file(self.join(path))
        except FileNotFoundError:
            pass

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove files of the tree, several at once."""
        waiting = iter(paths)
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="ags1-remove") as pool:
            while some := list(islice(waiting, 1000)):
                for done in [pool.submit(self.remove, path) for path in some]:
                    done.result()

    def sink(self, name: str) -> FsspecOutput:
        """What a Writer takes for a new file in the control directory."""
        path = self.join(CONTROL, name)
        return FsspecOutput(self.file_system, path, path)

    def staged(self, staging: str) -> Iterator[str]:
        """Paths of the files in a staging directory, in order."""
        waiting = self.join(CONTROL, staging)
        self.file_system.invalidate_cache()
        try:
            names = self.file_system.find(waiting)
        except FileNotFoundError:
            return
        yield from sorted((name[len(waiting) :].lstrip("/") for name in names), key=sort_key)

    def finish_moves(self, staging: str) -> None:
        """Copy what waits in a staging directory to where it belongs, and remove it there."""
        waiting = self.join(CONTROL, staging)
        self.file_system.invalidate_cache()
        try:
            names = self.file_system.find(waiting)
        except FileNotFoundError:
            return
        for name in names:
            self.file_system.cp_file(name, self.join(name[len(waiting) :].lstrip("/")))
            self.file_system.rm_file(name)


class _Remote:
    """What a Reader takes for an opened file of fsspec's, without a request to open it."""

    mode = "rb"

    def __init__(self, file_system: Any, path: str) -> None:
        self.fs = file_system
        self.path = path

    def read(self) -> bytes:
        raise AssertionError("ranges are read through the file system")


def open_store(target: Any) -> LocalStore | RemoteStore:
    """The store for a path or a URL of fsspec's."""
    if isinstance(target, (LocalStore, RemoteStore)):
        return target
    if is_url(target) and not target.startswith("file://"):
        return RemoteStore(*file_system_of(Location(target)))
    if isinstance(target, str) and target.startswith("file://"):
        target = target[len("file://") :]
    if not isinstance(target, (str, os.PathLike)):
        raise TypeError(f"a dataset is a directory or a URL, not {type(target).__name__}")
    return LocalStore(target)


def read_metadata(store: LocalStore | RemoteStore) -> Metadata:
    """What ``metadata.json`` says."""
    return Metadata.parse(store.read_control(METADATA), store.join(CONTROL, METADATA))


def open_manifest(store: LocalStore | RemoteStore, metadata: Metadata, keys: KeyRing, kms: Any) -> Manifest:
    """Open and check the manifest that `metadata` names.

    Raises
    ------
    KeyAccessError
        Its key could not be had.
    FormatError, AuthenticationError
        It is damaged, or not the one that belongs here.
    FileNotFoundError
        It is missing.
    """
    name = store.join(CONTROL, metadata.manifest)
    key = keys.unwrap(metadata.manifest_key_id, kms)
    if key.file_length is None:
        raise FormatError(f"{store.join(CONTROL, METADATA)}: the key of the manifest does not say its length")
    try:
        reader = store.open(f"{CONTROL}/{metadata.manifest}", key, 1)
    except Ags1Error as error:
        raise type(error)(_once(str(error), name)) from None
    except OSError as error:
        raise named(error, name) from None
    try:
        manifest = Manifest(reader, name)
        manifest.check_against(metadata, store.join(CONTROL, METADATA))
    except BaseException:
        reader.close()
        raise
    return manifest


def _once(text: str, name: str) -> str:
    return text if name in text else f"{name}: {text}"
