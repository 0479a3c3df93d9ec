"""A tree behind an fsspec file system: object stores first of all, HDFS and others too.

fsspec's listings cache is never trusted: other tasks write to the same tree. Nor are its methods for many paths at once
(find, rm, mv, copy): they take ``[`` or ``*`` in a name for a pattern.
"""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import islice

import ags1.dataset._tree as _tree
from ags1.dataset._control import CONTROL
from ags1.dataset._manifest import sort_key
from ags1.dataset._tree import Filter
from ags1.errors import TruncatedError
from ags1.spark._storage import Listed, Storage
from ags1.storage import FsspecOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from ags1.spark._storage import Skipped

__all__ = ["RemoteStorage"]

# Where an object appears when its upload is complete, and not before.
_WHOLE = frozenset({"s3", "gs", "abfs", "memory"})
# Requests under way at once: a listing or a copy is waiting, not work.
_REQUESTS = 16
_AHEAD = 8
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class RemoteStorage(Storage):
    """See :class:`Storage`."""

    @property
    def file_system(self) -> Any:
        """The fsspec file system of this process."""
        return self.location.file_system()

    # -- reading ---------------------------------------------------------------------------------------------------

    def walk(self, wanted: Filter, skipped: Skipped | None = None, below: str = "") -> Iterator[Listed]:
        root = self.location.join(below)
        left_out = skipped if skipped is not None else _ignore
        entries = self._list_root(root)
        if entries is None:
            name = root.rpartition("/")[2]
            yield self._listed(below or name, self._info(root))
            return
        with _Threads() as threads:
            yield from self._walk(threads.pool, entries, root, f"{below}/" if below else "", wanted, left_out)

    def _list_root(self, root: str) -> list[dict[str, Any]] | None:
        """What is in the directory to be walked, or None if it is a file."""
        info = self._info(root)
        if info["type"] == "file" and info["size"]:
            return None
        # An empty object may be what stands for a directory.
        entries = self._list(root)
        if len(entries) == 1 and entries[0]["type"] == "file" and _same(entries[0]["name"], root):
            return None
        return entries

    def _list(self, directory: str) -> list[dict[str, Any]]:
        file_system = self.file_system
        file_system.invalidate_cache()
        entries: list[dict[str, Any]] = file_system.ls(directory, detail=True)
        return entries

    def _walk(
        self,
        pool: Executor,
        entries: list[dict[str, Any]],
        directory: str,
        relative: str,
        wanted: Filter,
        skipped: Skipped,
    ) -> Iterator[Listed]:
        above = directory.rstrip("/")
        inside: list[tuple[bytes, str, dict[str, Any] | None]] = []
        directories = set()
        for entry in entries:
            name, is_directory = _name_in(entry, directory)
            path = relative + name
            if _same(entry["name"], directory):
                # Either the empty object that stands for this directory, or names that go on with two slashes, which
                # fsspec cannot list and no file system can have.
                if is_directory or entry["size"]:
                    skipped(relative, "has an empty component (//) in its name")
            elif name in ("", ".", "..") or "/" in name or "\0" in name:
                skipped(path, "has a name that no file can have")
            elif is_directory:
                if name not in directories and path != CONTROL and not wanted.prunes(path):
                    inside.append((sort_key(name + "/"), name, None))
                directories.add(name)
            elif entry["name"].endswith("/"):
                if entry["size"]:
                    skipped(path, "has a name that ends with a slash")
            elif wanted.accepts(path):
                inside.append((sort_key(name), name, entry))
        inside.sort(key=lambda each: each[0])
        # Listed a little ahead: with a directory for each day or customer, waiting is all the time that this takes.
        subdirectories = (name for _, name, entry in inside if entry is None)
        ahead: deque[Future[list[dict[str, Any]]]] = deque()

        def start(names: Iterable[str]) -> None:
            ahead.extend(pool.submit(self._list, f"{above}/{name}") for name in names)

        start(islice(subdirectories, _AHEAD))
        for _, name, found in inside:
            path = relative + name
            if found is None:
                listing = ahead.popleft()
                below: list[dict[str, Any]] = []
                try:
                    below = listing.result()
                except FileNotFoundError:
                    # Emptied since; a directory of an object store is not there without a file.
                    pass
                except OSError as error:
                    yield Listed(path, 0, 0, error)
                start(islice(subdirectories, 1))
                yield from self._walk(pool, below, f"{above}/{name}", f"{path}/", wanted, skipped)
            elif found["type"] != "file":
                skipped(path, "is neither a file nor a directory")
            elif found["size"] or name not in directories:
                if _tree._is_leftover(name):
                    skipped(path, "is a temporary file of an interrupted ags1")
                elif path == CONTROL:
                    raise ValueError(f"{self.location.url(path)} has the name of a dataset's control directory")
                else:
                    yield self._listed(path, found)

    def _info(self, name: str) -> dict[str, Any]:
        file_system = self.file_system
        file_system.invalidate_cache()
        info: dict[str, Any] = file_system.info(name)
        return info

    def _listed(self, path: str, info: dict[str, Any]) -> Listed:
        if info.get("size") is None:
            return Listed(path, 0, 0, OSError(errno.EINVAL, "the storage does not say its size", path))
        return Listed(path, int(info["size"]), _time_of(info, whole_seconds=self.location.protocol == "s3"))

    def stat(self, path: str) -> Listed:
        name = self._where(path)
        info = self._info(name)
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.location.url(path))
        return self._listed(path, info)

    def exists(self, path: str) -> bool:
        # fsspec's exists() takes every failure for a no.
        try:
            self._info(self._where(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def read(self, path: str, offset: int, size: int) -> bytes:
        if size == 0:
            # There is no empty range of HTTP.
            self.stat(path)
            return b""
        data: bytes = self.file_system.cat_file(self._where(path), start=offset, end=offset + size)
        if len(data) != size:
            raise TruncatedError(f"{self.location.url(path)}: only {len(data)} of {size} bytes are at offset {offset}")
        return data

    def opened(self, path: str) -> io.RawIOBase:
        return _RemoteFile(self.file_system, self._where(path))

    def names(self, directory: str) -> list[str]:
        name = self.location.join(directory)
        try:
            entries = self._list(name)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({_name_in(each, name)[0] for each in entries if not _same(each["name"], name)})

    def read_whole(self, path: str) -> bytes:
        data: bytes = self.file_system.cat_file(self.location.join(path))
        return data

    def _is_file(self, path: str) -> bool:
        try:
            return bool(self._info(path)["type"] == "file")
        except (FileNotFoundError, NotADirectoryError):
            return False

    # -- writing ---------------------------------------------------------------------------------------------------

    def publish(self, path: str, data: bytes | memoryview) -> None:
        name = self.location.join(path)
        # Libraries for HTTP take no memoryviews.
        whole = data if isinstance(data, bytes) else bytes(data)
        if self.location.protocol in _WHOLE:
            self.file_system.pipe_file(name, whole)
        else:
            with self._renamed(path) as temporary:
                self.file_system.pipe_file(temporary, whole)

    @contextmanager
    def target(self, path: str) -> Iterator[Any]:
        if self.location.protocol in _WHOLE:
            with _uploaded(self.file_system, self.location.join(path), self.location.url(path)) as file:
                yield file
        else:
            with self._renamed(path) as temporary:
                with _uploaded(self.file_system, temporary, self.location.url(path)) as file:
                    yield file

    @contextmanager
    def _renamed(self, path: str) -> Iterator[str]:
        """A name to write to, which becomes the right one when all is written."""
        self.ensure_parent(path)
        directory, _, name = self.location.join(path).rpartition("/")
        temporary = _tree._temporary(directory, name)
        try:
            yield temporary
            self._rename(temporary, f"{directory}/{name}")
        except BaseException:
            try:
                self.file_system.rm_file(temporary)
            except Exception:
                # It was never made, or the storage is what failed.
                pass
            raise

    def _rename(self, source: str, target: str) -> None:
        from fsspec.spec import AbstractFileSystem

        file_system = self.file_system
        if type(file_system).mv is AbstractFileSystem.mv:
            # There is no rename: fsspec would copy, after taking the names for patterns.
            file_system.cp_file(source, target)
            file_system.rm_file(source)
        else:
            file_system.mv(source, target)

    def ensure_parent(self, path: str) -> None:
        if self.location.protocol not in _WHOLE:
            self.file_system.makedirs(self.location.join(path).rpartition("/")[0], exist_ok=True)

    def move(self, source: str, target: str) -> None:
        self.ensure_parent(target)
        self._rename(self.location.join(source), self.location.join(target))

    def move_tree(self, source: str, target: str) -> None:
        cut = len(source) + 1

        def move(each: Listed) -> None:
            self.move(each.path, f"{target}/{each.path[cut:]}" if target else each.path[cut:])

        self._for_each(source, move)

    def remove(self, path: str) -> None:
        try:
            self.file_system.rm_file(self.location.join(path))
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        self._for_each(path, lambda each: self.remove(each.path))

    def _for_each(self, directory: str, work: Callable[[Listed], None]) -> None:
        """Do something to every file below a directory, several at once; then remove what is left of it."""
        root = self.location.join(directory)
        try:
            listing = self._list_root(root)
        except (FileNotFoundError, NotADirectoryError):
            return
        if listing is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.location.url(directory))
        with _Threads() as threads:
            under_way: deque[Future[None]] = deque()
            for each in self.walk(Filter(), None, directory):
                if each.error is not None:
                    raise each.error
                under_way.append(threads.pool.submit(work, each))
                if len(under_way) >= _REQUESTS:
                    under_way.popleft().result()
            while under_way:
                under_way.popleft().result()
        if self.location.protocol not in _WHOLE:
            try:
                self.file_system.rm(root, recursive=True)
            except FileNotFoundError:
                pass

    def write_control(self, name: str, data: bytes) -> None:
        self.publish(f"{CONTROL}/{name}", data)


class _Threads:
    """A pool whose waiting work is dropped when its user stops."""

    def __enter__(self) -> Self:
        self.pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="ags1-storage")
        return self

    def __exit__(self, *exception: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)


class _RemoteFile(io.RawIOBase):
    """A file of fsspec's to be read, without a request to open it: a Reader asks for ranges by `fs` and `path`."""

    mode = "rb"

    def __init__(self, file_system: Any, path: str) -> None:
        super().__init__()
        self.fs = file_system
        self.path = path
        self.name = path
        self._position = 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = (0, self._position, self._length() if whence == os.SEEK_END else 0)[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, f"negative seek position {start + offset}")
        self._position = start + offset
        return self._position

    def _length(self) -> int:
        if self._size is None:
            self._size = int(self.fs.info(self.path)["size"])
        return self._size

    def readinto(self, memory: Any) -> int:
        with memoryview(memory) as view, view.cast("B") as octets:
            size = min(len(octets), max(0, self._length() - self._position))
            if not size:
                return 0
            data = self.fs.cat_file(self.path, start=self._position, end=self._position + size)
            if len(data) != size:
                raise TruncatedError(f"{self.path}: only {len(data)} of {size} bytes are at offset {self._position}")
            octets[:size] = data
        self._position += size
        return size


class _Upload:
    """What is written goes into an object that does not exist yet."""

    def __init__(self, sink: FsspecOutput) -> None:
        self._sink = sink
        self.name = sink.name

    def write(self, data: Any) -> int:
        with memoryview(data) as view, view.cast("B") as octets:
            self._sink.write(octets)
            return len(octets)


@contextmanager
def _uploaded(file_system: Any, path: str, name: str) -> Iterator[_Upload]:
    sink = FsspecOutput(file_system, path, name)
    try:
        yield _Upload(sink)
    except BaseException:
        sink.abort()
        raise
    sink.commit()


def _ignore(path: str, reason: str) -> None:
    pass


def _same(name: str, directory: str) -> bool:
    return name.strip("/") == directory.strip("/")


def _name_in(entry: dict[str, Any], directory: str) -> tuple[str, bool]:
    """The name of an entry in its directory, and whether it is a directory itself."""
    name, above = entry["name"].strip("/"), directory.strip("/")
    inside = name[len(above) + 1 :] if name.startswith(f"{above}/") else name.rpartition("/")[2] if above else name
    return inside, entry["type"] == "directory"


def _time_of(info: dict[str, Any], *, whole_seconds: bool) -> int:
    """Nanoseconds since the epoch, from whatever form a file system gives it in."""
    value = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            return 0
    if isinstance(value, datetime):
        passed = (value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)) - _EPOCH
        microseconds = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    elif isinstance(value, (int, float)):
        # A float of seconds has no more than microseconds in it.
        microseconds = round(value * 1_000_000)
    else:
        return 0
    if whole_seconds:
        # A listing of S3 may have milliseconds, where the header of a single object has none.
        microseconds -= microseconds % 1_000_000
    return microseconds * 1000
