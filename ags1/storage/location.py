"""Parsed paths and URLs.

    text                                  scheme   container                      path
    data/sales.csv                        file                                    data/sales.csv
    file:///data/sales.csv                file                                    /data/sales.csv
    s3://lake/raw/sales.csv               s3       lake                           raw/sales.csv
    s3a://lake/raw/sales.csv              s3       lake                           raw/sales.csv
    abfss://raw@acct.dfs.core.../s.csv    abfss    raw@acct.dfs.core...           s.csv
    memory://a/sales.csv                  memory                                  (the whole URL)

Only this module chooses the backend for a scheme: local files, object stores through obstore, and everything else
through fsspec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ags1.support.arguments import spelled
from ags1.support.typing import Any

# A URL with one slash would be a local directory, and success would say that it is in the bucket.
_ONE_SLASH = re.compile(r"(s3a?|s3n|gcs|gs|az|abfss?|https?|hdfs|webhdfs):/(?!/)", re.IGNORECASE)
# A bucket may look like a user, as in abfss://container@account, but has no password.
_PASSWORD = re.compile(r"(^\w+://)[^/@:]*:[^/@]*@")
_USER = re.compile(r"://[^/@]*@")
_QUERY = re.compile(r"(://[^?]*)\?.*", re.DOTALL)
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "local": "file"}
OBJECT_STORES = frozenset({"s3", "gs", "az", "abfss"})


def is_url(file: object) -> bool:
    """Whether `file` is a str with a scheme ("s3://...", "simplecache::s3://...") and not a path."""
    if not isinstance(file, str):
        return False
    before, separator, _ = file.partition("://")
    if not separator and "::" not in file:
        return False
    scheme = before.partition("::")[0]
    # A single letter is a drive, as in C:\\data.
    return len(scheme) > 1 and scheme[0].isalpha() and all(each.isalnum() or each in "+.-" for each in scheme)


def shown(url: str) -> str:
    """A URL, or a chain of them, for messages: without users, passwords and queries. Keys of objects have no query."""
    if url.partition("://")[0].lower() in ("s3", "s3a", "s3n", "gs", "gcs", "az", "abfs", "abfss"):
        return _PASSWORD.sub(r"\1", url)
    return _QUERY.sub(r"\1?...", _USER.sub("://", url))


def or_options(before: str = ", or ") -> str:
    """The end of an advice to set a variable of the environment; "" for a reader who has no other way."""
    found = spelled("storage_options")
    return before + found if found else ""


class Location:
    """A parsed path or URL, and the options that are needed to reach it. Immutable.

    Parameters
    ----------
    text : str, bytes or path
        A path, or a URL.
    storage_options : mapping, optional
        Settings that are not in the environment: credentials, endpoint, region, timeouts. See ``docs/storage.md``.

    Attributes
    ----------
    text : str
        The path or URL as it was given.
    scheme : str
        "file" for a path; "s3" for s3a and s3n, "gs" for gcs, "abfss" for abfs.
    container : str
        Bucket, or ``container@account`` of Azure; "" where there is none.
    path : str
        Path of a local file, key of an object, the URL itself for any other file system.
    root : str or None
        A local directory, of :meth:`as_root`, below which no link is followed to reach this file.
    """

    __slots__ = ("_options", "container", "path", "root", "scheme", "text")

    text: str
    scheme: str
    container: str
    path: str
    root: str | None

    def __init__(self, text: str | bytes | os.PathLike[Any], storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(storage_options or {})
        if isinstance(text, Location):
            self._options = {**text._options, **self._options}
        given: str = text.text if isinstance(text, Location) else os.fsdecode(text)
        self.text = given
        self.root = text.root if isinstance(text, Location) else None
        self.container = ""
        if not is_url(given):
            if _ONE_SLASH.match(given):
                fixed = shown(given.replace(":/", "://", 1))
                raise ValueError(f"this path looks like a URL with one slash: write {fixed}, or ./ before the path")
            self.scheme, self.path = "file", given
            return
        scheme, separator, rest = given.partition("://")
        scheme = _SAME_SCHEME.get(scheme.lower(), scheme.lower())
        if not separator:
            # A chain of fsspec file systems, such as "simplecache::s3://...".
            self.scheme, self.path = given.partition("::")[0], given
        elif "::" in scheme:
            self.scheme, self.path = scheme.partition("::")[0], given
        elif scheme == "file":
            self.scheme, self.path = scheme, rest
        elif scheme in OBJECT_STORES:
            self.scheme = scheme
            self.container, _, self.path = rest.partition("/")
            if _PASSWORD.match(given):
                raise ValueError(
                    f"{shown(given)}: a bucket has no user and password: give them in the environment{or_options()}"
                )
            if not self.container:
                raise ValueError(f"{shown(given)} names no bucket: write {scheme}://BUCKET/NAME")
        else:
            self.scheme, self.path = scheme, given

    @property
    def is_local(self) -> bool:
        """Whether this is a file or directory of this machine."""
        return self.scheme == "file"

    @property
    def is_object(self) -> bool:
        """Whether this is in an object store that obstore supports."""
        return self.scheme in OBJECT_STORES

    @property
    def shown(self) -> str:
        """The path or URL for messages, without the user, the password and the query of the URL."""
        return self.text if self.is_local else shown(self.text)

    @property
    def storage_options(self) -> dict[str, Any]:
        """A copy of the options."""
        return dict(self._options)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    def as_root(self) -> Location:
        """The same directory, below which no link is followed: not to read, to write, to list or to remove a file.

        Locations that :meth:`join` and :meth:`beside` make of it have this root. In an object store there are no links.
        """
        if not self.is_local or self.root is not None:
            return self
        made = Location(self)
        made.root = made.path
        return made

    def below(self, root: Location) -> Location | None:
        """The same file below a root (:meth:`as_root`), if its path begins with that of the root; else None."""
        if not self.is_local or not root.is_local:
            return None
        above, path = f"{os.path.abspath(root.path).rstrip('/')}/", os.path.abspath(self.path)
        return root.as_root().join(path[len(above) :]) if path.startswith(above) else None

    @property
    def name_below(self) -> str:
        """The name below the root, with ``/`` between its parts; "" for the root itself."""
        assert self.root is not None
        return self.path[len(self.root) :].strip("/")

    def beside(self, name: str) -> Location:
        """The file `name` in the same directory."""
        made = Location(f"{self.text[: self.text.rfind('/') + 1]}{name}", self._options)
        made.root = self.root
        return made

    def join(self, *names: str) -> Location:
        """A location below this one; `names` have ``/`` between their parts."""
        if self.is_local:
            below = os.path.join(self.path, *(part for name in names for part in name.split("/")))
            text = f"file://{below}" if self.text.startswith("file://") else below
        else:
            text = "/".join([self.text.rstrip("/"), *names]) if self.text.rstrip("/") else "/".join(names)
        made = Location(text, self._options)
        made.root = self.root
        return made

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"

    def __str__(self) -> str:
        return self.shown

    def __fspath__(self) -> str:
        if not self.is_local:
            raise TypeError(f"{self} is not a local file")
        return self.path

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Location):
            return NotImplemented
        return self._key() == other._key() and self._options == other._options

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str]:
        return self.scheme, self.container, self.path


def located(file: Any, storage_options: Mapping[str, Any] | None) -> Any:
    """The Location of a path or URL with its options. Other objects, or without options, `file` itself."""
    if storage_options is None or hasattr(file, "read") or not isinstance(file, (str, os.PathLike)):
        return file
    return Location(file, storage_options)


def inside(outer: Location, inner: Location) -> str | None:
    """The path of `inner` relative to `outer`: "" if they are the same, None if it is not inside."""
    # In Spark, sessions can have different endpoints for buckets of the same name.
    if len({(each.scheme, each.container, each.storage_options.get("fs.s3a.endpoint")) for each in (outer, inner)}) > 1:
        return None
    above, below = (os.path.realpath(each.path) if each.is_local else each.path for each in (outer, inner))
    above, below = (f"{each.strip('/')}/".lstrip("/") for each in (above, below))
    return below[len(above) :].rstrip("/") if below.startswith(above) else None
