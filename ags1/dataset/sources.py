"""Sources: list the files of a tree in the order of a manifest, and detect a file that changed since the listing.

Links in a tree are not followed: they and anything else that is neither a file nor a directory are skipped and
reported. Directories are found too, if the caller asks for them; behind a URL there are none.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import CONTROL, MAX_PATH, check_path, sort_key
from ags1.dataset.selection import Filter
from ags1.errors import AlreadyEncryptedError, FormatError, TruncatedError
from ags1.layout import MAGIC
from ags1.storage import (
    TEMPORARY_SUFFIX,
    DescriptorSource,
    Entry,
    Location,
    PipeSource,
    SortedListing,
    Source,
    UnnamedError,
    is_directory_mark,
    open_regular,
    open_source,
    read_identified,
    status,
)
from ags1.support.arguments import spelled
from ags1.support.typing import Buffer
from ags1.support.words import LINK

# Why a file is left out, or the error if it has data that had to be encrypted.
Skipped = Callable[[str, "str | OSError"], object]
"""Called with a path that is skipped, and the reason."""

# Without O_NONBLOCK, opening a pipe at this path would wait for its other end.
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NONE = SourceIdentity(0)


@dataclass(slots=True)
class Found:
    """A file of a source, a directory, or an error for one of them.

    `path` is the path in the dataset, which ends in ``/`` for a directory, `source` the path relative to `root`
    ("" if `root` is the file itself); `identity` is that of the listing, which for a directory has the time alone, and
    only if it is empty; `mode` is None where there are no permissions.
    """

    path: str
    source: str
    root: Location
    identity: SourceIdentity = _NONE
    mode: int | None = None
    error: OSError | None = None

    @property
    def key(self) -> bytes:
        """The sort key of files."""
        return sort_key(self.path)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.identity.size

    @property
    def location(self) -> Location:
        """Location of the file."""
        return place_of(self.root, self.source)


def place_of(root: Location, source: str) -> Location:
    """Location of a file of a source; the source itself if that is a file."""
    return root.join(source) if source else root


# -- listing -------------------------------------------------------------------------------------------------------


def scan(
    source: Location, prefix: str, wanted: Filter, outside: Location | None, skipped: Skipped, *,
    directories: bool = False,
) -> Iterator[Found]:  # fmt: skip
    """Files of a source (a directory, a prefix, or a file), sorted by their paths in the dataset.

    `prefix` is their directory in the dataset, "" for its top. `wanted` is compared with paths relative to the source.
    `outside` is a directory that is not part of the source, even if it lies inside. With `directories`, those of a
    local source are found too, each before its files: if they are selected, or something below them is.

    OSError: there is no such source, or it is neither a file nor a directory. ValueError: a path would begin with
    ``_ags1``.
    """
    if source.is_local:
        yield from _Local(source, prefix, wanted, outside, skipped, directories).scan()
    else:
        yield from _remote(source, prefix, wanted, outside, skipped)


def refuse_missing(source: Location) -> None:
    """Raise a FileNotFoundError if a local source is missing, also where nothing of it is read."""
    if source.is_local and not os.path.exists(source.path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source.shown)


def _refuse_reserved(path: str, source: Location, name: str) -> None:
    if path.partition("/")[0] == CONTROL:
        raise ValueError(
            f"{source.join(name)} would become {path}, but {CONTROL} is reserved for the dataset itself: exclude it"
        )


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


_TEMPORARY = "is a temporary file of an interrupted ags1"


class _Local:
    """A tree of this machine."""

    def __init__(
        self, source: Location, prefix: str, wanted: Filter, outside: Location | None, skipped: Skipped,
        directories: bool,
    ) -> None:  # fmt: skip
        self._source = source
        self._above = f"{prefix}/" if prefix else ""
        self._wanted = wanted
        self._skipped = skipped
        self._directories = directories
        self._outside = outside.path if outside is not None and outside.is_local else None
        self._outside_number: tuple[int, int] | None = None

    def scan(self) -> Iterator[Found]:
        path = self._source.path
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            found = self._found(os.path.basename(os.path.abspath(path)), path)
            found.source = ""
            yield found
        elif stat.S_ISDIR(mode):
            yield from self._scan(path, "")
        else:
            raise OSError(errno.EINVAL, "is neither a file nor a directory", self._source.shown)

    def _scan(self, directory: str, relative: str) -> Iterator[Found]:
        wanted = self._wanted or None
        try:
            with os.scandir(directory) as listing:
                # With the slash, a depth-first walk is in the order of the whole paths.
                entries = sorted(
                    (sort_key(f"{entry.name}/" if is_directory else entry.name), is_directory, entry)
                    for entry in listing
                    for is_directory in (entry.is_dir(follow_symlinks=False),)
                )
            seen = os.stat(directory)
        except OSError as error:
            # All files below it would be missing: that is an error, not a skipped file.
            name = relative.rstrip("/")
            yield Found(self._above + name, name, self._source, error=error)
            return
        found = self._below(relative, entries)
        first = next(found, None)
        # The source itself is no directory of the dataset, except under a prefix.
        if self._directories and self._above + relative and (first or wanted is None or wanted.accepts(relative)):
            # The time of a directory that is not empty changes with each file.
            identity = _NONE if entries else SourceIdentity(0, seen.st_mtime_ns)
            yield self._checked(relative, relative.rstrip("/"), directory, identity, seen)
        if first is not None:
            yield first
            yield from found

    def _below(self, relative: str, entries: list[tuple[bytes, bool, os.DirEntry[str]]]) -> Iterator[Found]:
        wanted = self._wanted or None
        for _, is_directory, entry in entries:
            relative_path = relative + entry.name
            if is_directory:
                if (wanted is None or not wanted.prunes(relative_path)) and not self._is_outside(entry):
                    _refuse_reserved(self._above + relative_path, self._source, relative_path)
                    yield from self._scan(entry.path, f"{relative_path}/")
            elif wanted is None or wanted.accepts(relative_path):
                found = self._file(relative_path, entry)
                if found is not None:
                    yield found

    def _is_outside(self, entry: os.DirEntry[str]) -> bool:
        if self._outside is not None and self._outside_number is None:
            try:
                found = os.stat(self._outside)
            except OSError:
                # It will be made by what is found here.
                return False
            self._outside_number = found.st_ino, found.st_dev
        if self._outside_number is None or entry.inode() != self._outside_number[0]:
            return False
        return entry.stat(follow_symlinks=False).st_dev == self._outside_number[1]

    def _file(self, relative: str, entry: os.DirEntry[str]) -> Found | None:
        path = self._above + relative
        if _is_temporary(entry.name):
            self._skipped(path, _TEMPORARY)
            return None
        if entry.is_symlink():
            self._skipped(path, LINK)
            return None
        found = self._found(relative, entry.path)
        if found.error is not None and found.error.errno == errno.EINVAL:
            self._skipped(path, found.error.strerror or "")
            return None
        _refuse_reserved(path, self._source, relative)
        return found

    def _found(self, relative: str, full: str) -> Found:
        path = self._above + relative
        try:
            seen = os.stat(full)
        except OSError as error:
            return Found(path, relative, self._source, error=error)
        if not stat.S_ISREG(seen.st_mode):
            fault = OSError(errno.EINVAL, "is a pipe, a socket or a device", full)
            return Found(path, relative, self._source, error=fault)
        identity = SourceIdentity(seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
        return self._checked(relative, relative, full, identity, seen)

    def _checked(self, below: str, name: str, full: str, identity: SourceIdentity, seen: os.stat_result) -> Found:
        path = self._above + below
        if len(path) > MAX_PATH // 4 and len(sort_key(path)) > MAX_PATH:
            text = f"has a path of more than {MAX_PATH} bytes"
            return Found(path, name, self._source, error=OSError(errno.ENAMETOOLONG, text, full))
        return Found(path, name, self._source, identity, stat.S_IMODE(seen.st_mode))


def _remote(
    source: Location, prefix: str, wanted: Filter, outside: Location | None, skipped: Skipped
) -> Iterator[Found]:
    above, here = f"{prefix}/" if prefix else "", f"{source.shown.rstrip('/')}/"

    def leave_out(error: OSError) -> None:
        name = str(error.filename).removeprefix(here)
        if not isinstance(error, UnnamedError):
            raise error
        if wanted.accepts(name):
            skipped(above + name, error)

    try:
        listing = SortedListing(source, outside=outside, on_error=leave_out if source.is_object else None)
    except FileNotFoundError as nothing:
        if not source.name:
            # A bucket, which is no file.
            raise
        try:
            found = status(source)
        except FileNotFoundError:
            # The listing says whether it is the bucket.
            raise nothing from None
        yield Found(above + source.name, "", source, _identity_of(found))
        return
    with listing:
        for each in listing:
            path = above + each.name
            if not wanted.accepts(each.name):
                continue
            if _is_temporary(each.location.name):
                skipped(path, _TEMPORARY)
                continue
            if each.size == 0 and source.is_object and (listing.has_below(each.name) or is_directory_mark(each)):
                continue
            _refuse_reserved(path, source, each.name)
            fault = None
            try:
                check_path(path)
            except FormatError as refusal:
                fault = OSError(errno.EINVAL, str(refusal), each.path)
            if len(sort_key(path)) > MAX_PATH:
                fault = OSError(errno.ENAMETOOLONG, f"has a path of more than {MAX_PATH} bytes", each.path)
            yield Found(path, each.name, source, _identity_of(each), error=fault)


def _identity_of(listed: Entry) -> SourceIdentity:
    return SourceIdentity(listed.size, listed.modified, etag=listed.etag or "")


# -- reading -------------------------------------------------------------------------------------------------------


def refuse_stream(root: Location, source: str, data: Buffer) -> None:
    """Raise AlreadyEncryptedError if a file of a source, which begins with `data`, is an AGS1 stream."""
    if bytes(memoryview(data)[: len(MAGIC)]) == MAGIC:
        raise AlreadyEncryptedError(
            f"{place_of(root, source)} is encrypted already, as an AGS1 stream: leave it out, or encrypt it again with "
            f"{spelled('again', True)}"
        )


def refuse_changed(name: str, identity: SourceIdentity | None = None) -> OSError:
    """The error for a source that changed since it was listed; `identity` is that of the listing, if it is remote."""
    text = "was changed while it was being encrypted: run again when no program writes to it"
    if identity is not None and not identity.etag:
        text += (
            "; the listing of this store has no ETag, so only length and time were compared: if nobody writes to it, "
            "the store tells another time in its answers than in its listing, and its files must be copied first"
        )
    return OSError(errno.EBUSY, text, name)


def read_same(place: Location, identity: SourceIdentity) -> Buffer:
    """Read all of a small source. OSError EBUSY: it changed since the listing, or while it was read."""
    if place.is_local:
        return read_same_file(place.path, identity)
    try:
        data, found = read_identified(place, identity.size)
    except FormatError:
        raise refuse_changed(place.shown) from None
    if not _is_same_entry(found, identity) or memoryview(data).nbytes != identity.size:
        raise refuse_changed(place.shown, identity)
    return data


def read_same_file(path: str, identity: SourceIdentity) -> bytes:
    """As :func:`read_same`, for a file of this machine."""
    size = identity.size
    descriptor = os.open(path, _READ)
    try:
        data = _read_all(descriptor, size)
        # An equal identity proves that this is the listed file, and so a regular file.
        same = len(data) == size and _is_same_file(os.fstat(descriptor), identity)
    except BlockingIOError:
        same = False
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
    if not same:
        raise refuse_changed(path)
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    # One byte more shows whether the file grew; for an unchanged one, one call is enough.
    data = os.read(descriptor, size + 1)
    while 0 < len(data) < size:
        piece = os.read(descriptor, size + 1 - len(data))
        if not piece:
            break
        data += piece
    return data


def _is_same_file(seen: os.stat_result, identity: SourceIdentity) -> bool:
    return (
        seen.st_ctime_ns == identity.ctime_ns
        and seen.st_mtime_ns == identity.mtime_ns
        and seen.st_size == identity.size
        and seen.st_ino == identity.inode
    )


def _is_same_entry(found: Entry, identity: SourceIdentity) -> bool:
    return found.is_same(identity.size, identity.mtime_ns, identity.etag)


@contextmanager
def open_same(place: Location, identity: SourceIdentity) -> Iterator[Source]:
    """Open a source for reading by position.

    OSError EBUSY: it has changed since the listing, or by the end of the ``with`` body.
    """
    source = open_regular(place) if place.is_local else open_source(place)
    assert not isinstance(source, PipeSource)

    def check() -> None:
        if isinstance(source, DescriptorSource):
            same = _is_same_file(os.fstat(source.fileno()), identity)
        else:
            # Every response had the etag of the first, where there is one; without etags, this is the only check.
            etag = getattr(source, "etag", None)
            same = etag == identity.etag if etag and identity.etag else _is_same_entry(status(place), identity)
        if not same or source.size != identity.size:
            raise refuse_changed(place.shown, None if place.is_local else identity)

    try:
        check()
        yield source
        check()
    except TruncatedError:
        raise refuse_changed(place.shown) from None
    except OSError as error:
        if error.errno in (None, errno.ESTALE):
            raise refuse_changed(place.shown) from error
        raise
    finally:
        source.close()
