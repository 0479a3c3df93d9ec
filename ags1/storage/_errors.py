"""Errors of storage services, as OSErrors that name the object in one line.

obstore, fsspec and the clients below it have dozens of exception types. Most are not OSErrors, many do not name the
object, and some texts are pages long. This package raises the type of OSError that a local file raises for the same
fault.
"""

from __future__ import annotations

import errno
import re

from ags1.errors import without_secrets
from ags1.storage._responses import BY_STATUS, explained
from ags1.storage.location import is_url, shown
from ags1.support.typing import Self

# Packages whose exceptions are faults of a service or of the network. fsspec itself raises Python's own exceptions.
_CLIENTS = frozenset(
    {
        "adlfs", "aiobotocore", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "h11", "hdfs", "http",
        "httpcore", "httpx", "msal", "obstore", "ocifs", "oss2", "paramiko", "pyo3_object_store", "requests", "s3fs",
        "sqlalchemy", "ssl", "urllib3",
    }
)  # fmt: skip
_BY_TYPE: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
    ConnectionResetError: errno.ECONNRESET,
    ConnectionRefusedError: errno.ECONNREFUSED,
    BrokenPipeError: errno.EPIPE,
}
_CHANGED = (
    "it was changed after it was opened: the data read so far may be from an older content; "
    "open it again, and replace files instead of writing into them"
)
# Exception types of obstore, which have no errno.
_BY_NAME = {
    "AlreadyExistsError": (errno.EEXIST, "it exists already"),
    "PermissionDeniedError": (errno.EACCES, "permission denied"),
    "UnauthenticatedError": (errno.EACCES, "the credentials were refused, or there are none"),
    "InvalidPathError": (errno.EINVAL, "this client cannot name such an object"),
    "PreconditionError": (errno.ESTALE, _CHANGED),
    "NotSupportedError": (errno.ENOTSUP, "the service cannot do this"),
    "NotImplementedError": (errno.ENOTSUP, "the service cannot do this"),
}
# obstore's text has pages of debug output after this. It may have a signed URL, which is a secret.
_DEBUG = re.compile(r"\n+Debug source:.*", re.DOTALL)
_PRIVATE = re.compile("[@?]")
_URL = re.compile(r"\w+://[^\s\"'<>]+")
_QUERY = re.compile(r"(?<!<)\?[^\s\"')<]*")
_CUT_SHORT = ("IncompleteRead", "ClientPayloadError", "ChunkedEncodingError", "ResponseStreamingError", "ProtocolError")
_LONGEST = 300


def as_os_error(error: BaseException, name: str | None = None) -> OSError | None:
    """The OSError, with a name, for a fault of a service or the network; None for any other exception."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, PermissionError) and cause.filename:
        # fsspec says of every refusal, also of our own, that there is no such file.
        return cause
    name = name if name is None or not is_url(name) else shown(name)
    if isinstance(error, OSError) and error.errno is not None and error.strerror and error.filename is not None:
        where = name or shown(str(error.filename))
        return error if not is_url(error.filename) else OSError(error.errno, error.strerror, where)
    client = any(_root(kind) in _CLIENTS for kind in type(error).__mro__)
    if not client and not isinstance(error, (OSError, TimeoutError)):
        return None
    said = explained(error, name)
    if said is None:
        number = next((_BY_NAME[kind.__name__][0] for kind in type(error).__mro__ if kind.__name__ in _BY_NAME), None)
        if number is None:
            number = _errno_of(error)
        said = number, _text_of(error, number)
    # OSError chooses the subclass by the errno: ConnectionResetError, PermissionError, ...
    number, text = said[0], without_secrets(_URL.sub(lambda found: shown(found[0]), said[1]))
    return OSError(number, text) if name is None else OSError(number, text, name)


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _errno_of(error: BaseException) -> int:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, OSError) and isinstance(each.errno, int) and each.errno > 0:
            return each.errno
        for kind, number in _BY_TYPE.items():
            if isinstance(each, kind):
                return number
        status = _status_of(each)
        if status is not None:
            return BY_STATUS.get(status, errno.EIO)
        if "operation timed out" in _DEBUG.sub("", str(each)).lower():
            # obstore has no type for this, only a text.
            return errno.ETIMEDOUT
        waiting += [each.__cause__, each.__context__]
        # urllib3 and requests have the cause as an argument.
        waiting += [other for other in (*each.args, getattr(each, "reason", None)) if isinstance(other, BaseException)]
    return errno.EIO


def _status_of(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    for holder, name in ((error, "status"), (error, "status_code"), (response, "status_code"), (error, "code")):
        # In this order: aiohttp issues a warning when `code` is read.
        found = _as_status(getattr(holder, name, None))
        if found is not None:
            return found
    return None


def _as_status(value: object) -> int | None:
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _text_of(error: BaseException, number: int) -> str:
    if isinstance(error, FileNotFoundError):
        return "No such file or directory"
    text = _QUERY.sub("?...", " ".join(_DEBUG.sub("", str(error)).split()))
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            meaning = _BY_NAME[kind.__name__][1]
            return meaning if number in (errno.EEXIST, errno.ESTALE) else f"{meaning} ({text[:_LONGEST]})"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    said = type(error).__name__ + (f": {text}" if text else "")
    if any(each in said for each in _CUT_SHORT):
        return f"the connection ended before all bytes were received ({said})"
    if number in (errno.ECONNRESET, errno.EPIPE):
        return f"the connection was reset ({said})"
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        return error.strerror
    return said


class naming:
    """A context manager that turns faults of a service into OSErrors that name the object."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        fault = as_os_error(error, self._name)
        if fault is not None and fault is not error:
            # A traceback would show users and queries of URLs that a client names.
            raise fault from None if _PRIVATE.search(str(error)) else error


class UnnamedError(OSError):
    """A listing has all objects but this one, whose name no client can address."""


def pass_unnamed(error: OSError) -> None:
    """Let a listing leave out objects that nothing of ags1 can have written; for its `on_error`."""
    if not isinstance(error, UnnamedError):
        raise error


def changed(name: str | None) -> OSError:
    """The error for a file or an object that was changed after it was opened."""
    return OSError(errno.ESTALE, _CHANGED, name or "the source")
