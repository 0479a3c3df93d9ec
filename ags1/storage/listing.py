"""Listings of directories and prefixes, and the other operations on whole files."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from ags1.storage._errors import naming
from ags1.storage._fsspec import RemoteFiles, file_system_of
from ags1.storage.atomic import TEMPORARY_SUFFIX
from ags1.storage.directories import Directories, below
from ags1.storage.location import Location
from ags1.support.typing import Any, NoReturn

Row = tuple[str, int, int, "str | None"]
"""Name, size, time of the last change and etag of an :class:`Entry`."""

_MAGIC = re.compile(r"[*?\[]")
# Asterisks, a class of characters, or a character.
_TOKENS = re.compile(r"\*+|\[!?\]?[^\]]*\]|.", re.DOTALL)
# Parallel requests for empty objects that may be directory markers.
_REQUESTS = 16
_SECOND = 1_000_000_000


class Entry:
    """A file, as a listing or :func:`status` found it.

    Attributes
    ----------
    name : str
        Relative to the listed directory, with ``/`` between its parts.
    location : Location
        The file.
    size : int
        Bytes.
    modified : int
        Time of the last change, in nanoseconds since 1970; 0 if unknown.
    etag : str or None
        Identifies the content in an object store.
    """

    __slots__ = ("etag", "location", "modified", "name", "size")

    @property
    def path(self) -> str:
        """Path or URL."""
        return self.location.text

    def __init__(self, name: str, location: Location, size: int, modified: int = 0, etag: str | None = None) -> None:
        self.name = name
        self.location = location
        self.size = size
        self.modified = modified
        self.etag = etag

    def is_same(self, size: int, modified: int, etag: str | None) -> bool:
        """Whether a file of this length, time and etag is this one, as far as the storage tells."""
        if self.etag and etag:
            return self.size == size and self.etag == etag
        # Listings have milliseconds, and the headers of a response whole seconds.
        unit = _SECOND if self.modified % _SECOND == 0 or modified % _SECOND == 0 else 1
        return self.size == size and self.modified // unit == modified // unit

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, size={self.size})"


def status(location: Location) -> Entry:
    """Length and identity of one file; IsADirectoryError for a directory.

    OSError EINVAL: below a root, it is a link, a pipe, a socket or a device.
    """
    if location.root is not None:
        with below(location) as (directories, name):
            found = directories.status(name)
        return Entry(location.name, location, found.st_size, found.st_mtime_ns)
    if location.is_local:
        found = os.stat(location.path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", location.shown)
        return Entry(location.name, location, found.st_size, found.st_mtime_ns)
    if location.is_object:
        import ags1.storage.objects as _objects

        size, etag, modified = _objects.head(location)
        return Entry(location.name, location, size, modified, etag)
    file_system, path = file_system_of(location)
    with naming(location.shown):
        info = file_system.unguarded.info(path)
    if info.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, "Is a directory", location.shown)
    return Entry(location.name, location, int(info.get("size") or 0), _modified(info), _etag(info))


def identity_of(location: Location) -> str:
    """What changes whenever somebody writes to a file; "" if its storage has nothing that a writer cannot choose.

    Of a local file, its length, times and inode, without following a link; of an object, its length and etag.
    """
    if location.is_local:
        found = os.lstat(location.path)
        return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"
    entry = status(location)
    return f"{entry.size} {entry.etag}" if entry.etag else ""


def _modified(info: dict[str, object]) -> int:
    for name in ("LastModified", "last_modified", "mtime", "modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, (int, float)):
            return int(value * 1_000_000_000)
        if hasattr(value, "timestamp"):
            return int(value.timestamp() * 1_000_000_000)
    stamp = info.get("Last-Modified")
    if isinstance(stamp, str):
        from email.utils import parsedate_to_datetime

        try:
            return int(parsedate_to_datetime(stamp).timestamp()) * 1_000_000_000
        except ValueError:
            # What the server sent is no time, so there is none.
            return 0
    # HDFS: in milliseconds.
    value = info.get("modificationTime")
    return value * 1_000_000 if isinstance(value, int) else 0


def _etag(info: dict[str, Any]) -> str | None:
    """The etag; of an HTTP server, else what it sends as a checksum of the content."""
    found = next((info[name] for name in ("ETag", "Content-MD5", "Digest") if info.get(name)), None)
    return found if isinstance(found, str) else None


def is_directory(location: Location) -> bool:
    """Whether there is a directory of this name, or objects below it."""
    if location.root is not None:
        try:
            with below(location) as (directories, name):
                directories.enter(name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True
    if location.is_local:
        return os.path.isdir(location.path)
    if location.is_object:
        return next(_objects_below(location, list[OSError]().append), None) is not None
    file_system, path = file_system_of(location)
    with naming(location.shown):
        return bool(file_system.isdir(path))


def list_files(
    location: Location,
    *,
    outside: Location | None = None,
    on_error: Callable[[OSError], object] | None = None,
    on_link: Callable[[str], object] | None = None,
    temporary: bool = False,
) -> list[Entry]:
    """All files below a directory or prefix, by name; without links to directories and directory markers.

    Files below `outside` are left out. OSError: there is no such directory, it or one below it cannot be read, or it
    has a pipe, socket or device, or an object whose name cannot be listed. With `on_error`, the listing continues after
    such errors and has temporary files too. `on_error` is called with the error for each directory below `location`
    that cannot be read, for each pipe, socket, device, broken link and object whose name cannot be listed, and with
    ENOTDIR for each link to a directory. With `on_link`, no link is followed: it is called with the name of each.

    Below a root (:meth:`Location.as_root`), only regular files are listed: links and special files are left out. With
    `temporary`, those are listed too that are being written, or whose writer was killed.
    """
    if location.root is not None:
        assert outside is None
        found = list(_files_below(location, temporary))
    elif location.is_local:
        found = list(_local_files(location, outside, on_error, on_link))
    else:
        found = [_entry(location, row) for row in remote_rows(location, outside, on_error)]
    found.sort(key=lambda entry: entry.name)
    return _without_marks(list(apart(found))) if location.is_object else found


def apart(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Give each of several objects with one name, in sorted entries of a store, the name that opens it.

    obstore lists ``x/`` as ``x``. What ``x`` opens keeps that name, and an object with contents gets its slash back.
    """
    for _, group in groupby(entries, key=lambda entry: entry.name):
        first, *others = same = list(group)
        if not others:
            yield first
            continue
        opened = status(first.location)
        yield next((each for each in same if each.is_same(opened.size, opened.modified, opened.etag)), first)
        for each in same:
            # An empty one marks a directory.
            if each.size and not each.is_same(opened.size, opened.modified, opened.etag):
                place = Location(f"{each.location.text}/", each.location.storage_options)
                yield Entry(f"{each.name}/", place, each.size, each.modified, each.etag)


def _without_marks(found: list[Entry]) -> list[Entry]:
    empty = [each for each in found if each.size == 0]
    if not empty:
        return found
    from ags1.support.parallel import in_parallel

    are_marks = in_parallel(is_directory_mark, empty, _REQUESTS)
    marks = {id(each) for each, is_mark in zip(empty, are_marks, strict=True) if is_mark}
    return [each for each in found if id(each) not in marks]


def is_directory_mark(listed: Entry) -> bool:
    """Whether this empty object of a listing marks a directory; one request.

    Consoles and Hadoop make objects whose names end in a slash. The listing returns the name without the slash, and
    there is no object with that name.
    """
    try:
        found = status(listed.location)
    except FileNotFoundError:
        return True
    # If it has contents, it is another object than the one that was listed.
    return found.size != 0 and found.etag != listed.etag


def iterate_files(location: Location, on_error: Callable[[OSError], object] | None = None) -> Iterator[Entry]:
    """Yield the files of :func:`list_files` one by one, so that they are never all in memory.

    `on_error`, for an object store, as there.

    They come roughly in the order of their names: as the service lists them, or directory by directory. For a URL, a
    directory that does not exist has no files.
    """
    if location.root is not None:
        return _files_below(location)
    if location.is_local:
        return _local_files(location, None, None, None)
    return (_entry(location, row) for row in _rows(location, on_error))


def _entry(location: Location, row: Row) -> Entry:
    name, size, modified, etag = row
    return Entry(name, location.join(name), size, modified, etag)


def remote_rows(
    location: Location, outside: Location | None, on_error: Callable[[OSError], object] | None = None
) -> Iterator[Row]:
    """The files of :func:`list_files` for a URL, in the order of the service; it raises the same errors."""
    above = None if outside is None or outside.is_local else f"{outside.text.rstrip('/')}/"
    here = f"{location.text.rstrip('/')}/"
    found = False

    def tell(error: OSError) -> None:
        nonlocal found
        assert on_error is not None
        found = True
        on_error(error)

    for row in _rows(location, on_error and tell):
        found = True
        if above is None or not (here + row[0]).startswith(above):
            yield row
    # A store has no directories: this listing has said all there is.
    if not found and (location.is_object or not is_directory(location)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location.shown)


def _rows(location: Location, on_error: Callable[[OSError], object] | None) -> Iterator[Row]:
    return _objects_below(location, on_error) if location.is_object else _fsspec_files(location)


def _raise(error: OSError) -> NoReturn:
    raise error


def _local_files(
    location: Location,
    outside: Location | None,
    on_error: Callable[[OSError], object] | None,
    on_link: Callable[[str], object] | None,
) -> Iterator[Entry]:
    root, tell = location.path, on_error or _raise
    excluded = os.path.realpath(outside.path) if outside is not None and outside.is_local else None
    # It is always an error if `location` itself cannot be listed.
    os.scandir(root).close()
    for parent, folders, names in os.walk(root, onerror=tell):
        for path in (os.path.join(parent, name) for name in folders) if on_error else ():
            if os.path.islink(path):
                tell(OSError(errno.ENOTDIR, "it is a link to a directory, which is not followed", path))
        for path in (os.path.join(parent, name) for name in (*folders, *names)):
            if on_link is not None and os.path.islink(path):
                on_link(os.path.relpath(path, root).replace(os.sep, "/"))
        if excluded is not None:
            folders[:] = [name for name in folders if os.path.realpath(os.path.join(parent, name)) != excluded]
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and on_error is None:
                continue
            path = os.path.join(parent, name)
            if on_link is not None and os.path.islink(path):
                continue
            try:
                found = os.stat(path)
            except OSError as error:
                # Otherwise it was removed after the directory was listed.
                if not isinstance(error, FileNotFoundError) or os.path.lexists(path):
                    tell(error)
                continue
            if not stat.S_ISREG(found.st_mode):
                tell(OSError(errno.EINVAL, "it is a pipe, a socket or a device: remove it first", path))
                continue
            relative = os.path.relpath(path, root).replace(os.sep, "/")
            yield Entry(relative, location.join(relative), found.st_size, found.st_mtime_ns)


def _files_below(location: Location, temporary: bool = False) -> Iterator[Entry]:
    """The regular files below a directory that has a root, or those that are not temporary; no links and pipes."""
    with below(location) as (directories, directory):
        for name, _, found in directories.walk(directory):
            if found is None or (name.endswith(TEMPORARY_SUFFIX) and not temporary):
                continue
            relative = name[len(directory) + 1 :] if directory else name
            yield Entry(relative, location.join(relative), found.st_size, found.st_mtime_ns)


def _objects_below(location: Location, on_error: Callable[[OSError], object] | None) -> Iterator[Row]:
    import ags1.storage.objects as _objects

    prefix = location.path.rstrip("/")
    skipped = len(prefix) + 1 if prefix else 0
    for key, size, etag, modified in _objects.list_objects(location, on_error):
        name = key[skipped:]
        if name:
            yield name, size, modified, etag


def _fsspec_files(location: Location) -> Iterator[Row]:
    file_system, path = file_system_of(location)
    base = path.rstrip("/") + "/"
    with naming(location.shown):
        file_system.invalidate_cache()
        for info in _fsspec_walk(file_system, path):
            full = info["name"]
            name = full[len(base) :] if full.startswith(base) else full.lstrip("/")[len(base.lstrip("/")) :]
            if name:
                yield name, int(info.get("size") or 0), _modified(info), _etag(info)


def _fsspec_walk(file_system: RemoteFiles, directory: str) -> Iterator[dict[str, Any]]:
    # Not the file system's own walk, which skips a directory that it cannot read without an error.
    try:
        listed = file_system.ls(directory, detail=True)
    except FileNotFoundError:
        # It was removed after its parent directory was listed.
        return
    names = {f"{each['name'].rstrip('/')}{'/' * (each.get('type') == 'directory')}": each for each in listed}
    for name in sorted(names):
        if not name.endswith("/"):
            yield names[name]
        elif name.strip("/") != directory.strip("/"):
            yield from _fsspec_walk(file_system, name.rstrip("/"))


def list_names(location: Location) -> list[str]:
    """Names of the files directly in a directory or below a prefix. Deeper levels are not listed.

    FileNotFoundError: there is no such directory, or no such bucket. A prefix without objects has no names.
    """
    if location.root is not None:
        with below(location) as (directories, directory):
            return directories.names(directory)
    if location.is_local:
        with os.scandir(location.path) as found:
            return [each.name for each in found if not each.is_dir(follow_symlinks=False)]
    if location.is_object:
        import ags1.storage.objects as _objects

        return _objects.list_names(location)
    file_system, path = file_system_of(location)
    with naming(location.shown):
        file_system.invalidate_cache()
        listed = file_system.ls(path, detail=True)
    return [each["name"].rpartition("/")[2] for each in listed if each.get("type") != "directory"]


def match(location: Location, on_error: Callable[[OSError], object] | None = None) -> list[Entry]:
    """Files, without directories, that a URL with ``*``, ``?``, ``[...]`` or ``**`` matches; `on_error` as there.

    A single ``*`` matches inside one part of a name, ``**`` any number of parts.
    """
    parts = location.text.split("/")
    fixed = next(index for index, part in enumerate(parts) if _MAGIC.search(part))
    root = Location("/".join(parts[:fixed]), location.storage_options)
    pattern = re.compile(_expression("/".join(parts[fixed:])))
    return [entry for entry in list_files(root, on_error=on_error) if pattern.fullmatch(entry.name)]


def _expression(pattern: str) -> str:
    expressions = []
    for part in pattern.split("/"):
        if part == "**":
            expressions.append("(?:[^/]+/)*")
        else:
            expressions.append("".join(map(_expression_of, _TOKENS.findall(part))) + "/")
    return "".join(expressions).removesuffix("/")


def _expression_of(token: str) -> str:
    if token[0] == "*":
        return "[^/]*"
    if token == "?":
        return "[^/]"
    if len(token) == 1:
        return re.escape(token)
    # A class such as [!a] does not match the end of a part.
    return "(?!/)" + fnmatch.translate(token).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")


def make_parent(location: Location) -> None:
    """Make the parent directory of a file, if the backend has directories."""
    if location.root is not None:
        with below(location, make=True) as (directories, name):
            directories.above(name, make=True)
    elif location.is_local:
        os.makedirs(os.path.dirname(os.path.abspath(location.path)), exist_ok=True)
    elif not location.is_object:
        file_system, path = file_system_of(location)
        try:
            file_system.makedirs(path.rpartition("/")[0], exist_ok=True)
        except NotImplementedError:
            # The file system has no directories.
            pass


def remove(locations: Iterable[Location]) -> None:
    """Remove files, in no particular order; missing ones are ignored.

    One request removes as many objects as the service allows. NotADirectoryError: the way to a file below a root goes
    through a link.
    """
    for (are_objects, root), some in groupby(locations, key=lambda each: (each.is_object, each.root)):
        if are_objects:
            import ags1.storage.objects as _objects

            _objects.delete(some)
        elif root is not None:
            _remove_below(root, some)
        else:
            for location in some:
                _remove_one(location)


def _remove_below(root: str, locations: Iterable[Location]) -> None:
    try:
        with Directories(root) as directories:
            for location in locations:
                directories.remove(location.name_below)
    except FileNotFoundError:
        # There is no root.
        pass


def _remove_one(location: Location) -> None:
    try:
        if location.is_local:
            os.unlink(location.path)
        else:
            file_system, path = file_system_of(location)
            with naming(location.shown):
                file_system.rm_file(path)
    except FileNotFoundError:
        pass


def remove_directories(directories: Iterable[Location]) -> None:
    """Remove local directories that are empty, in the given order; the others, and links, stay.

    Those without a root stay too. In an object store there is nothing to remove.
    """
    for root, some in groupby(directories, key=lambda each: each.root):
        if root is None:
            continue
        names = [each.name_below for each in some]
        try:
            with Directories(root) as below_root:
                for name in names:
                    below_root.remove_directory(name)
        except FileNotFoundError:
            # There is no root.
            continue
