"""Names of trees: which file system a name means, and where in it, for Spark's driver and for its tasks.

    data, file:/data, dbfs:/data          this machine's (or a mounted) file system
    s3://, s3a://, gs://, abfss://, ...   a file system of fsspec's, with the options that Spark's configuration has

Executors open the same file system from the pickled :class:`Location`. Credentials for storage are in it only if they
are in Spark's configuration, whence the executors have them anyway; otherwise each machine finds its own (environment,
profiles, instance roles).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from ags1.storage import is_url

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Location", "locate"]

_S3 = frozenset({"s3", "s3a", "s3n"})
_AZURE = frozenset({"abfs", "abfss", "az", "wasb", "wasbs"})
_GOOGLE = frozenset({"gs", "gcs"})
_INSTALL = {
    "s3": "pip install 'ags1[s3]'",
    "gs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "hdfs": "pip install 'ags1[arrow]', with Hadoop's libhdfs",
}
# What Hadoop writes with one slash, and what is so often written without any that it is no local name.
_ONE_SLASH = re.compile(r"(file|dbfs|hdfs):(?=/(?!/))", re.ASCII)
_LOST_SLASHES = re.compile(rf"({'|'.join(sorted(_S3 | _AZURE | _GOOGLE | {'file', 'dbfs', 'hdfs'}))}):", re.ASCII)
_CHAINED = re.compile(r"::[a-z0-9+.-]+://", re.ASCII | re.IGNORECASE)
_DBFS = "/dbfs"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"

# One file system for each protocol and options of this process; those of the process that it was forked from are of
# no use to it: their connections and threads stayed behind.
_opened: dict[tuple[int, str, Any], Any] = {}


@dataclass(frozen=True, repr=False)
class Location:
    """Where a tree is. Immutable, and can be pickled.

    Parameters
    ----------
    root : str
        Absolute local path, or path in the fsspec file system, without a slash at its end.
    protocol : str or None
        fsspec's name of the file system; None is the local one.
    options : tuple of pairs
        What the file system is opened with; a tuple of pairs as a value stands for a dict. May hold credentials of
        the storage, so no repr shows values.
    name : str
        What the user wrote.
    """

    root: str
    protocol: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    name: str = ""

    @property
    def is_local(self) -> bool:
        """Whether this is a path for :mod:`os`."""
        return self.protocol is None

    def file_system(self) -> Any:
        """The fsspec file system, one for each process; None for local paths.

        Raises
        ------
        ImportError
            The package for it is missing here.
        """
        if self.protocol is None:
            return None
        key = (os.getpid(), self.protocol, self.options)
        found = _opened.get(key)
        if found is None:
            for other in [each for each in _opened if each[0] != key[0]]:
                _opened.pop(other, None)
            options = {name: _thawed(value) for name, value in self.options}
            if self.protocol in ("s3", "gs", "abfs"):
                # The others may hand on options that they do not know to a library that refuses them.
                options["use_listings_cache"] = False
            kind = _implementation(self.protocol, self.name)
            # Two threads may both come here; then both use what the first has put there.
            found = _opened.setdefault(key, kind(**options, skip_instance_cache=True))
        return found

    def join(self, *parts: str) -> str:
        """A path for :meth:`file_system` or :mod:`os`; empty parts are left out."""
        return "/".join([self.root.rstrip("/"), *(part for part in parts if part)]) or "/"

    def url(self, path: str = "") -> str:
        """What a person calls a file: its local path, or a URL as the user wrote it."""
        if self.is_local:
            return self.join(path)
        above = self.name.rstrip("/") if self.name else f"{self.protocol}://{self.root}"
        return f"{above}/{path}" if path else above

    def __repr__(self) -> str:
        hidden = f", options={', '.join(name for name, _ in self.options)} (values not shown)" if self.options else ""
        return f"Location({self.name or self.root!r}, protocol={self.protocol!r}{hidden})"


def locate(name: str | os.PathLike[str], spark: Any = None) -> Location:
    """Find out what a name of a tree means.

    Parameters
    ----------
    name : str or path
        A local path, which may be relative, ``file:/...``, ``dbfs:/...``, or a URL of a file system that fsspec
        knows. ``s3a``, ``s3n``, ``wasb`` and ``wasbs`` are understood as Spark's users mean them.
    spark : SparkSession, optional
        Where to look for Hadoop's settings of the storage: endpoint, region and credentials.

    Raises
    ------
    TypeError
        Neither text nor a path.
    ValueError
        An unknown scheme, a chained URL, or one with a password in it.
    ImportError
        The package for this file system is missing; names it.
    FileNotFoundError
        ``dbfs:`` where it is not mounted.
    """
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
        if isinstance(name, str):
            return _local(name, name)
    if not isinstance(name, str):
        raise TypeError(f"a tree is named by a path or a URL, not by {type(name).__name__}")
    if not name:
        raise ValueError("the name of a tree is empty: give a directory or a URL")
    url = _ONE_SLASH.sub(r"\1://", name, count=1) if _ONE_SLASH.match(name) else name
    if _is_chained(url):
        raise ValueError(f"{name} is a chained URL: name a tree by a plain one, or by a path that begins with ./")
    if not is_url(url):
        if _LOST_SLASHES.match(url):
            raise ValueError(f"{name} is neither a path nor a URL: write {name.partition(':')[0]}://")
        return _local(name, name)
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    _refuse_password(scheme, rest.partition("/")[0])
    if scheme in ("file", "local"):
        host, _, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise ValueError(f"{name} names a file on the host {host}: only this machine's are reached by file:")
        return _local(f"/{path}", name)
    if scheme == "dbfs":
        return _databricks(rest, name)
    get = _settings(spark)
    if scheme in _S3 | _AZURE | _GOOGLE and not rest.strip("/"):
        raise ValueError(f"{name} names no bucket")
    if scheme in _S3:
        return _s3(rest, name, get)
    if scheme in _AZURE:
        return _azure(rest, name, get)
    if scheme in _GOOGLE:
        _implementation("gs", name)
        keyfile = get("google.cloud.auth.service.account.json.keyfile")
        return Location(rest.rstrip("/"), "gs", (("token", keyfile),) if keyfile else (), name)
    kind = _implementation(scheme, name)
    options = kind._get_kwargs_from_urls(url)
    root = kind._strip_protocol(url)
    return Location(root.rstrip("/"), scheme, tuple(sorted(options.items())), name)


def _is_chained(url: str) -> bool:
    if url.startswith((".", "/")):
        return False
    return "::" in url.partition("://")[0] or _CHAINED.search(url) is not None


def _local(path: str, name: str) -> Location:
    return Location(os.path.abspath(path), None, (), name)


def _databricks(path: str, name: str) -> Location:
    if not os.path.isdir(_DBFS):
        raise FileNotFoundError(
            2, f"{_DBFS}, where Databricks mounts dbfs:, is not there: use the URL of the storage behind it", name
        )
    return _local(f"{_DBFS}/{path.lstrip('/')}", name)


def _refuse_password(scheme: str, authority: str) -> None:
    """Refuse credentials in a URL: it is in every message, every row and Spark's event log."""
    user, at, _ = authority.rpartition("@")
    # A secret key may have a slash in it, and then hides where the @ is.
    hidden = scheme in _S3 | _GOOGLE and ":" in authority and not authority.startswith("arn:")
    if (at and ":" in user) or hidden:
        raise ValueError(
            f"a {scheme} URL has a user name and a password in it (not repeated here): URLs end up in logs; put the "
            "credentials in Spark's configuration, the environment or a profile"
        )


def _implementation(protocol: str, name: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{name} needs fsspec: pip install 'ags1[fsspec]'") from error
    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        how = _INSTALL.get(protocol, str(error))
        raise ImportError(f"{name} needs a package that is not installed: {how}") from error
    except ValueError:
        raise ValueError(f"{name}: {protocol} is no file system that fsspec knows") from None


def _settings(spark: Any) -> Callable[[str], str | None]:
    """How to look up a setting of Hadoop's; a session's own, without the prefix, wins as it does in Spark."""

    def get(name: str) -> str | None:
        if spark is None:
            return None
        for full in (name, f"spark.hadoop.{name}"):
            try:
                value = spark.conf.get(full, None)
            except Exception:
                # Some hosted Sparks refuse to show some settings. Then what the machine has by itself applies.
                continue
            if value is not None and str(value).strip():
                return str(value).strip()
        return None

    return get


def _s3(rest: str, name: str, get: Callable[[str], str | None]) -> Location:
    _implementation("s3", name)
    bucket = rest.partition("/")[0]

    def setting(key: str) -> str | None:
        return get(f"fs.s3a.bucket.{bucket}.{key}") or get(f"fs.s3a.{key}")

    options: dict[str, Any] = {}
    encrypted = (setting("connection.ssl.enabled") or "true").lower() != "false"
    endpoint = setting("endpoint")
    if endpoint and endpoint.rpartition("://")[2].rstrip("/") != "s3.amazonaws.com":
        scheme = "https" if encrypted else "http"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    elif not encrypted:
        options["use_ssl"] = False
    region = setting("endpoint.region")
    if region and region != "sdk":
        options["client_kwargs"] = (("region_name", region),)
    if (setting("path.style.access") or "").lower() == "true":
        options["config_kwargs"] = (("s3", (("addressing_style", "path"),)),)
    key, secret, token = setting("access.key"), setting("secret.key"), setting("session.token")
    if key and secret:
        options.update({"key": key, "secret": secret, **({"token": token} if token else {})})
    elif _ANONYMOUS in (setting("aws.credentials.provider") or "").partition(",")[0]:
        options["anon"] = True
    return Location(rest.rstrip("/"), "s3", tuple(sorted(options.items())), name)


def _azure(rest: str, name: str, get: Callable[[str], str | None]) -> Location:
    _implementation("abfs", name)
    authority, _, path = rest.partition("/")
    container, at, host = authority.partition("@")
    options: tuple[tuple[str, Any], ...] = ()
    if at:
        account = host.partition(".")[0]
        key = get(f"fs.azure.account.key.{host}") or get(f"fs.azure.account.key.{account}.dfs.core.windows.net")
        options = ((("account_key", key),) if key else ()) + (("account_name", account),)
    return Location(f"{container}/{path}".rstrip("/"), "abfs", options, name)


def _thawed(value: Any) -> Any:
    return {name: _thawed(each) for name, each in value} if isinstance(value, tuple) else value
