"""Access to fsspec file systems, for all storage but local files and the object stores that obstore reaches.

Their errors become OSErrors that name the object, whichever library raised them.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

from ags1.storage._errors import naming
from ags1.storage.location import Location
from ags1.support.closing import Closing
from ags1.support.typing import Any


class RemoteFiles:
    """An fsspec file system that raises OSErrors for all faults of its service.

    All other attributes are those of the file system. Files opened for reading are :class:`RemoteFile` objects; files
    opened for writing are the file system's own, to be used inside :class:`naming`.
    """

    def __init__(self, file_system: Any) -> None:
        self._file_system = file_system

    def __getattr__(self, name: str) -> Any:
        if name == "_file_system":
            # The object is not initialised yet, as while it is copied.
            raise AttributeError(name)
        found = getattr(self._file_system, name)
        if name.startswith("_") or not callable(found):
            return found
        return self._guard(found)

    @property
    def unguarded(self) -> Any:
        """The file system itself, for a caller that gives its errors a better name."""
        return self._file_system

    def _guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def guard(*arguments: Any, **options: Any) -> Any:
            with naming(self._name_of(arguments)):
                return function(*arguments, **options)

        return guard

    def _name_of(self, arguments: tuple[Any, ...]) -> str | None:
        if not arguments or not isinstance(arguments[0], str):
            return None
        try:
            return str(self._file_system.unstrip_protocol(arguments[0]))
        except Exception:
            # A name that the file system cannot parse is shown as it is.
            return arguments[0]

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        name = self._name_of((path,))
        with naming(name):
            file = self._file_system.open(path, mode, **options)
        return RemoteFile(file, self, name) if mode == "rb" else file

    def size(self, path: str, name: str | None = None) -> int:
        """Length of an object in bytes; errors show `name`. OSError: there is no object, or its length is unknown."""
        name = name or self._name_of((path,))
        with naming(name):
            size = self._file_system.info(path).get("size")
        if not isinstance(size, int) or size < 0:
            raise OSError(
                errno.EOPNOTSUPP,
                "the server does not return its length (there is no Content-Length): copy it to a file first",
                name,
            )
        return size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteFiles) and self._file_system is other._file_system

    def __hash__(self) -> int:
        return hash(self._file_system)


class RemoteFile(Closing):
    """A file of an fsspec file system, opened for reading, that raises the same OSErrors."""

    def __init__(self, file: Any, file_system: RemoteFiles, name: str | None) -> None:
        self._file = file
        self._name = name
        self.fs = file_system

    def __getattr__(self, name: str) -> Any:
        if name == "_file":
            raise AttributeError(name)
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        with naming(self._name):
            return bytes(self._file.read(size))

    def readinto(self, memory: Any) -> int:
        with naming(self._name):
            return int(self._file.readinto(memory))

    def seek(self, offset: int, whence: int = 0) -> int:
        with naming(self._name):
            return int(self._file.seek(offset, whence))

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)


def guarded(file_system: Any) -> RemoteFiles:
    """Wrap an fsspec file system."""
    return file_system if isinstance(file_system, RemoteFiles) else RemoteFiles(file_system)


def file_system_of(location: Location) -> tuple[RemoteFiles, str]:
    """Return the fsspec file system of a location, and the path in it.

    ImportError: fsspec, or the package that its scheme needs, is missing. ValueError: no file system has this scheme.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"reading or writing {location} needs fsspec: pip install 'ags1[fsspec]'") from error
    try:
        with naming(location.shown):
            file_system, path = fsspec.core.url_to_fs(location.text, **_options_of(location))
    except ValueError as error:
        if "Protocol not known" not in str(error):
            raise
        raise ValueError(f"{location}: unknown URL scheme; well-known ones are s3, gs, abfss and hdfs") from None
    return guarded(file_system), path


def _options_of(location: Location) -> dict[str, Any]:
    """The storage options, which for HTTP include that no redirect leads to another host."""
    options = location.storage_options
    *chain, scheme = location.text.partition("://")[0].split("::")
    if scheme not in ("http", "https"):
        return options
    own = dict(options.get(scheme) or {}) if chain else options
    client = dict(own.get("client_kwargs") or {})
    own["client_kwargs"] = {**client, "trace_configs": [*client.get("trace_configs", ()), _stay_on_host()]}
    return {**options, scheme: own} if chain else own


@functools.cache
def _stay_on_host() -> Any:
    """What aiohttp asks at each redirect; one object, because fsspec keeps a file system for equal options."""
    import aiohttp
    import yarl

    async def refuse(session: Any, context: Any, redirect: Any) -> None:
        answered = redirect.response.headers
        target = redirect.url.join(yarl.URL(answered.get("Location") or answered.get("URI") or ""))
        if target.host != redirect.url.host or (redirect.url.scheme == "https" and target.scheme != "https"):
            text = (
                f"the server redirects to {target.scheme}://{target.host}, and requests are not sent to another host: "
                "give the address there if you trust it, or copy the file first"
            )
            raise OSError(errno.EACCES, text, str(redirect.url.with_query(None).with_user(None)))

    made = aiohttp.TraceConfig()
    made.on_request_redirect.append(refuse)
    return made
