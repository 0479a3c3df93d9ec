"""Objects in S3, GCS and Azure, through obstore, and where that cannot name an object of S3 through boto3.

Each call runs on a request thread (:mod:`ags1.storage._requests`), and raises OSErrors. This module checks what obstore
does not: the length of a range (obstore returns fewer bytes past the end), the etag of every response, and names that
obstore would change.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice

import ags1.storage.opaque_keys as _opaque_keys
import ags1.storage.sdk_listing as _sdk_listing
from ags1.errors import TruncatedError
from ags1.storage._clients import client_of, timeout_of
from ags1.storage._errors import UnnamedError, changed, naming
from ags1.storage._requests import Request, on_request_thread, start, within
from ags1.storage.location import Location, or_options
from ags1.storage.opaque_keys import is_path
from ags1.storage.output import Output
from ags1.support.interrupts import NOTICE_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from ags1.support.typing import Buffer

    Result = TypeVar("Result")

# S3 and GCS accept no more parts than this. S3 accepts no part below 5 MiB, except the last.
_MOST_PARTS = 10_000
PART_LENGTH = 8 << 20
# Parts that are sent at the same time: with four, a connection of 90 MB/s bounds a file; twelve gain a tenth more.
_PARTS_AT_ONCE = 8
# For the request that removes the parts of an upload.
_ABORT_SECONDS = 5.0
_REFUSED_RANGE = ("status code: 416", "InvalidRange", "non-partial")
# A conditional request is not repeated by the client.
_CREATE_ATTEMPTS = 3
_DELETED_AT_ONCE = _PAGE = 1000
# What obstore says of a key in a listing.
_NO_PATH = ("empty path segment", "parsing path segment", "parsing Path")
_PASSING = (errno.EIO, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.EPIPE)


def _store_of(location: Location) -> tuple[Any, Any, str]:
    """What has the functions of obstore, the client for it, and the key.

    OSError EINVAL: the key has a part or a character that obstore refuses or changes, and this is not S3.
    """
    key = location.path
    if is_path(key):
        # Called first: its ImportError names the extra to install.
        client = client_of(location)
        import obstore

        return obstore, client, key
    if location.scheme == "s3" and key:
        return _opaque_keys, _opaque_keys.client_of(location), key
    text = "this name cannot be used, because a part of it is empty, . or .., or not printable: copy it to another name"
    raise OSError(errno.EINVAL, text, location.shown)


def _call(location: Location, call: Callable[[], Result]) -> Result:
    """Run a call on a request thread, so that a signal can interrupt the caller."""
    with naming(location.shown):
        return call() if on_request_thread() else start(call).result()


def _meta(found: Any) -> tuple[int, str | None, int]:
    modified = found.get("last_modified")
    nanoseconds = int(modified.timestamp() * 1_000_000) * 1000 if modified is not None else 0
    etag = found.get("e_tag")
    # Azure's listing has the etags of its headers without the quotes.
    return int(found["size"]), etag and (etag if etag.endswith('"') else f'"{etag}"'), nanoseconds


def head(location: Location) -> tuple[int, str | None, int]:
    """Length in bytes, etag and time of last change in nanoseconds."""
    store, client, key = _store_of(location)
    return _meta(_call(location, lambda: store.head(client, key)))


def _get(location: Location, begin: int, end: int, etag: str | None) -> tuple[Any, Any]:
    store, client, key = _store_of(location)
    options: Any = {"range": (begin, end)}
    if etag is not None and not etag.startswith("W/"):
        options["if_match"] = etag
    found = store.get(client, key, options=options)
    meta = found.meta
    if found.range[0] != begin:
        raise OSError(errno.EIO, "the server ignored the requested range", location.shown)
    if etag is not None and meta.get("e_tag") not in (None, etag):
        raise changed(location.shown)
    data = found.bytes()
    wanted = min(end, int(meta["size"])) - begin
    if len(data) != wanted:
        # The headers of the response were correct, its body was not.
        text = f"the server sent {len(data)} of {wanted} bytes at {begin}: try again"
        raise OSError(errno.EIO, text, location.shown)
    return data, meta


def get(location: Location, begin: int, end: int, etag: str | None = None) -> Buffer:
    """Bytes `begin` to `end` of an object, in memory that the client owns.

    TruncatedError: the object is shorter. OSError ESTALE: it has another etag. EIO: the length of the response is
    wrong.
    """
    if begin == end:
        return b""

    def call() -> Buffer:
        data, _ = _get(location, begin, end, etag)
        if len(data) != end - begin:
            raise TruncatedError(
                f"{location}: only {len(data)} of {end - begin} bytes could be read at offset {begin}: "
                "the object is shorter than it was when it was opened"
            )
        view: Buffer = data
        return view

    return _call(location, call)


def get_beginning(location: Location, length: int) -> tuple[Buffer, int, str | None, int]:
    """The first `length` bytes (fewer if the object is shorter), and length, etag and time of the whole object."""

    def call() -> tuple[Buffer, int, str | None, int]:
        try:
            data, meta = _get(location, 0, length, None)
        except Exception as error:
            # A range of an empty object is always refused. After any other fault, the client already retried.
            if not any(said in str(error) for said in _REFUSED_RANGE):
                raise
            size, etag, modified = head(location)
            if size:
                raise
            return b"", size, etag, modified
        return (data, *_meta(meta))

    return _call(location, call)


def get_ending(location: Location, begin: int, end: int) -> tuple[Buffer, str | None]:
    """Bytes `begin` to `end` of an object, or as many as it has, and its etag."""

    def call() -> tuple[Buffer, str | None]:
        data, meta = _get(location, begin, end, None)
        return data, meta.get("e_tag")

    return _call(location, call)


def create(location: Location, data: bytes) -> None:
    """Write an object if there is none. FileExistsError: another writer made one."""
    store, client, key = _store_of(location)
    attempts = 1 + min(int(location.storage_options.get("max_retries", 10)), _CREATE_ATTEMPTS - 1)
    for attempt in range(1, attempts + 1):
        try:
            _call(location, lambda: store.put(client, key, data, mode="create"))
            return
        except FileExistsError:
            # If a response is lost and the request is repeated, the object that exists may be our own.
            if not _has(location, data):
                raise
            return
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            if attempt == attempts:
                if not _has(location, data):
                    raise
                return
            time.sleep(0.1 * attempt)


def _has(location: Location, data: bytes) -> bool:
    """Whether the object exists and has this content."""
    try:
        size, etag, _ = head(location)
        return size == len(data) and bytes(memoryview(get(location, 0, size, etag))) == data
    except FileNotFoundError:
        return False


def delete(locations: Iterable[Location]) -> None:
    """Remove objects, in no particular order; missing ones are ignored."""
    for (store, _), same in groupby(locations, key=lambda each: _store_of(each)[:2]):
        while some := list(islice(same, _DELETED_AT_ONCE)):
            try:
                if len(some) > 1 and store is not _opaque_keys:
                    _delete(some[0], [each.path for each in some])
                    continue
            except OSError as error:
                if error.errno in _PASSING:
                    raise
                # One is missing, or the service has no bulk delete, or it refused some: one request each shows which.
            for each in some:
                try:
                    _delete(each, each.path)
                except FileNotFoundError:
                    continue


def _delete(location: Location, keys: str | list[str]) -> None:
    store, client, _ = _store_of(location)
    _call(location, lambda: store.delete(client, keys))


Listed = tuple[str, int, "str | None", int]
"""Key, length, etag and time of an object."""


def list_objects(location: Location, on_error: Callable[[OSError], object] | None = None) -> Iterator[Listed]:
    """Keys below a prefix that ends in ``/`` (or is empty), with length, etag and time, in the service's order.

    obstore's listing ends at a key that is no path. Then the SDK of the service lists what is behind the last key. In
    S3, such keys are listed with the others. Elsewhere, `on_error` is called with an UnnamedError for each.

    OSError EINVAL: there is such a key, this is not S3, and there is no `on_error`. EIO: the listing has no end, or is
    not the one that was asked for. ETIMEDOUT: the next 1000 keys take longer than ten times the timeout. ImportError:
    there is such a key, and the SDK is missing.
    """
    last, prefix = "", location.path.rstrip("/")
    try:
        for found in _checked(location, prefix, _paths(location, prefix)):
            last = max(last, found["path"])
            yield (found["path"], *_meta(found))
        return
    except OSError as error:
        if not _is_no_path(error):
            raise
        fault = error
    if location.scheme != "s3" and on_error is None:
        raise _unlistable(location, fault) from None
    for each in _by_sdk(location, prefix, last):
        if location.scheme == "s3" or is_path(each["path"]):
            if each["size"] or not each["path"].endswith("/"):
                yield (each["path"], *_meta(each))
        elif on_error is not None and (each["size"] or not is_path(each["path"].removesuffix("/"))):
            on_error(_unnamed(location, each["path"]))


def _by_sdk(location: Location, directory: str, after: str = "", *, deep: bool = True) -> Iterator[Any]:
    listed = _opaque_keys if location.scheme == "s3" else _sdk_listing
    pages = listed.pages(location, directory and f"{directory}/", after, deep=deep)
    before = ""
    for each in _checked(location, directory, pages):
        if each["path"] == before:
            # Only obstore lists two keys under one name.
            raise _faulty(location, f"lists {before} twice")
        before = each["path"]
        if before > after:
            yield each


def _unnamed(location: Location, key: str) -> UnnamedError:
    text = "no client of ags1 can address an object of this name: copy it to another name, and remove it"
    named = Location(f"{location.text.partition('://')[0]}://{location.container}/{key}", location.storage_options)
    return UnnamedError(errno.EINVAL, text, named.shown)


def _is_no_path(error: OSError) -> bool:
    return any(said in str(error) for said in _NO_PATH)


def _unlistable(location: Location, error: OSError) -> OSError:
    text = (
        f"an object below it has a name that obstore cannot list ({error.strerror}): copy it to a name without empty "
        "parts, . and .., and remove it"
    )
    return OSError(errno.EINVAL, text, location.shown)


def _paths(location: Location, directory: str) -> Iterator[Any]:
    client = client_of(location)
    import obstore

    return iter(obstore.list(client, directory or None, chunk_size=_PAGE))


def _checked(location: Location, directory: str, pages: Iterator[Any]) -> Iterator[Any]:
    """The objects of a listing page by page, where each is below the directory, and no page comes again."""
    # Pages have one length, so pages that come again and again begin a second page with the same key.
    begun: set[str] = set()
    above = directory and f"{directory}/"
    while page := _limited(location, lambda: next((each for each in pages if each), None)):
        if (first := page[0]["path"]) in begun:
            raise _faulty(location, f"lists {first} again and again, so its listing has no end")
        begun.add(first)
        for found in page:
            # obstore lists the mark of a directory without its slash.
            if not found["path"].startswith(above) and found["path"] != directory:
                raise _faulty(location, f"lists {found['path']}, which is not below what was asked for")
            yield found


def _faulty(location: Location, what: str) -> OSError:
    return OSError(errno.EIO, f"the store {what}: have the store repaired", location.shown)


def _level(location: Location, directory: str) -> Any:
    client = client_of(location)
    import obstore

    return _limited(location, lambda: obstore.list_with_delimiter(client, directory or None))


def list_names(location: Location) -> list[str]:
    """Names of the objects directly below a prefix. OSError ETIMEDOUT: they take longer than ten times the timeout."""
    prefix = location.path.rstrip("/")
    skipped = len(prefix) + 1 if prefix else 0
    try:
        if is_path(prefix or "root"):
            return [each["path"][skipped:] for each in _level(location, prefix)["objects"]]
    except OSError as error:
        if not _is_no_path(error):
            raise
    names = [each["path"][skipped:] for each in _by_sdk(location, prefix, deep=False)]
    return [name for name in names if name and "/" not in name]


def _limited(location: Location, call: Callable[[], Result]) -> Result:
    """What a part of a listing returns. obstore follows pages without names to no end, so the time is limited here.

    obstore's coroutines are not used for that. One of its threads runs Python code to say that a coroutine has ended,
    and the process is aborted if the interpreter shuts down before that thread is finished.
    """
    seconds = 10 * timeout_of(location.storage_options)
    with naming(location.shown):
        try:
            return within(seconds, call)
        except TimeoutError:
            text = (
                f"the store returned no end and no 1000 names of its listing in {seconds:.0f} s: try again, or "
                f"have the store repaired{or_options(', or set a longer timeout in ')}"
            )
            raise OSError(errno.ETIMEDOUT, text, location.shown) from None


class ObjectOutput(Output):
    """An object in a store: one request if it is small, else parts of an upload, several of them in parallel.

    Pieces wait in a queue of bounded size. A thread of the upload passes them to obstore, which sends several parts at
    the same time. If `expected` bytes need more than 10,000 parts of the usual size, the parts are larger.
    """

    def __init__(self, location: Location, expected: int | None = None) -> None:
        self.name = location.shown
        self._location = location
        self._store, self._client, self._key = _store_of(location)
        self._part = PART_LENGTH if expected is not None else 2 * PART_LENGTH
        while expected is not None and self._part * (_MOST_PARTS - 1) < expected:
            self._part *= 2
        self._at_once = max(1, _PARTS_AT_ONCE * PART_LENGTH // self._part)
        self._pieces: deque[Buffer] = deque()
        self._held = 0
        # Taken by itself: an interrupt inside Condition.__enter__ would leave it locked for ever.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._is_whole = False
        self._aborted = False
        self._over = False
        self._sent = False
        self._request: Request[Any] | None = None
        self._owner = os.getpid()

    def _write(self, data: memoryview) -> None:
        self._queue(bytes(data), len(data))

    def write_owned(self, data: Buffer) -> None:
        """Keep the memory until it is sent."""
        size = memoryview(data).nbytes
        self._queue(data, size)
        self.position += size

    def _queue(self, piece: Buffer, size: int) -> None:
        """Queue a piece, whose memory must not change from now on; wait while the queue is full."""
        if self.position + size > self._part * _MOST_PARTS:
            raise OSError(
                errno.EFBIG,
                f"an object of unknown size can have at most {self._part * _MOST_PARTS} bytes: write it from a file",
                self._location.shown,
            )
        with self._lock:
            if self._aborted:
                raise OSError(errno.EPIPE, "the upload was aborted", self._location.shown)
            self._pieces.append(piece)
            self._held += size
            if self._request is None and self._held >= self._part:
                # This call waits for other requests, so it needs a thread of its own.
                self._request = Request(self._put_parts)
                threading.Thread(target=self._request.run, name="ags1-upload", daemon=True).start()
            self._condition.notify_all()
            while self._request is not None and self._held > self._part and not self._over and not self._aborted:
                self._condition.wait(NOTICE_SECONDS)
        if self._over and self._request is not None:
            with naming(self._location.shown):
                self._request.result()
            raise OSError(errno.EIO, "the upload ended before all data was written", self._location.shown)

    def _put_parts(self) -> Any:
        try:
            return self._store.put(
                self._client, self._key, self._taken(), use_multipart=True, chunk_size=self._part,
                max_concurrency=self._at_once,
            )  # fmt: skip
        finally:
            with self._lock:
                self._over = True
                self._condition.notify_all()

    def _taken(self) -> Iterator[Buffer]:
        while True:
            with self._lock:
                while not self._pieces and not self._is_whole and not self._aborted:
                    self._condition.wait()
                if self._aborted:
                    raise InterruptedError("the upload was aborted")
                if not self._pieces:
                    self._sent = True
                    return
                piece = self._pieces.popleft()
                self._held -= memoryview(piece).nbytes
                self._condition.notify_all()
            yield piece
            del piece

    def _commit(self, durable: bool) -> None:
        etag = self._finished().get("e_tag")
        self.identity = f"{self.position} {etag}" if etag else ""

    def _finished(self) -> Any:
        """Make the object appear, and return the answer of the store."""
        with self._lock:
            self._is_whole = True
            self._condition.notify_all()
        if self._request is None:
            pieces = list(self._pieces)
            self._pieces.clear()
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            return _call(self._location, lambda: self._store.put(self._client, self._key, data, use_multipart=False))
        try:
            with naming(self._location.shown):
                return self._request.result()
        except FileNotFoundError:
            # The response to the last request was lost. The service no longer knew the upload when it was repeated.
            if self._sent and head(self._location)[0] == self.position:
                text = "the response to the last request was lost: an object of this length exists, check its content"
                raise OSError(errno.EIO, text, self._location.shown) from None
            raise

    def _abort(self, mark: bytes) -> None:
        """No object appears, and the stored parts are removed if the service still responds."""
        if self._owner != os.getpid() or sys.is_finalizing():
            # A forked child does not have the upload's thread, which may have held the lock.
            return
        with self._lock:
            self._aborted = True
            self._pieces.clear()
            self._held = 0
            self._condition.notify_all()
            if self._request is not None:
                # Wait, or the end of the process would leave the parts behind; but not for ever, if the service stalls.
                self._condition.wait_for(lambda: self._over, _ABORT_SECONDS)
