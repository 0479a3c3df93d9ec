"""Names of trees: paths and URLs as Spark's users write them, with the storage settings of Spark's configuration.

    data, file:/data, dbfs:/data          this machine's (or a mounted) file system
    s3://, s3a://, gs://, abfss://, ...   an object store, with the options of Spark's configuration
    hdfs://, ...                          a file system of fsspec's

Executors get the :class:`ags1.storage.Location`, with the credentials for storage that are in Spark's configuration;
without any there, each machine finds its own (environment, profiles, instance roles). It travels sealed with the work
of a task; without a master key to seal under, its secrets stay on the driver (ags1.spark.engine.unsealed).
Tasks of the data source get a captured session, whose secrets are sealed, and make the Location themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from ags1.spark.engine.captured import CapturedSession, settings_of
from ags1.storage import Location, is_url

_S3 = frozenset({"s3", "s3a", "s3n"})
_AZURE = frozenset({"abfs", "abfss", "az", "wasb", "wasbs"})
_GOOGLE = frozenset({"gs", "gcs"})
# Hadoop writes these with one slash. They are also often written without any, so they are never local names.
_ONE_SLASH = re.compile(r"(file|dbfs|hdfs):(?=/(?!/))", re.ASCII)
_LOST_SLASHES = re.compile(rf"({'|'.join(sorted(_S3 | _AZURE | _GOOGLE | {'file', 'dbfs', 'hdfs'}))}):", re.ASCII)
_CHAINED = re.compile(r"::[a-z0-9+.-]+://", re.ASCII | re.IGNORECASE)
_DBFS = "/dbfs"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def locate(name: str | os.PathLike[str], spark: Any = None) -> Location:
    """Make a Location of the name of a tree.

    Parameters
    ----------
    name : str or path
        A local path, which may be relative, ``file:/...``, ``dbfs:/...``, or a URL. ``s3a``, ``s3n``, ``wasb`` and
        ``wasbs`` have their meaning in Hadoop.
    spark : SparkSession or CapturedSession, optional
        Session with Hadoop's settings of the storage: endpoint, region and credentials.

    Returns
    -------
    Location
        Absolute, without a slash at its end. Its options have the names that Hadoop and obstore use.

    Raises
    ------
    TypeError
        Neither text nor a path.
    ValueError
        A chained URL, or one with a password in it.
    FileNotFoundError
        ``dbfs:`` where it is not mounted.
    PermissionError
        The captured session has credentials that nobody sealed.
    """
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
        if isinstance(name, str):
            return _local(name)
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
        return _local(name)
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    _refuse_password(scheme, rest.partition("/")[0])
    if scheme in ("file", "local"):
        host, _, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise ValueError(f"{name} names a file on the host {host}: only this machine's are reached by file:")
        return _local(f"/{path}")
    if scheme == "dbfs":
        if not os.path.isdir(_DBFS):
            text = f"{_DBFS}, where Databricks mounts dbfs:, is not there: use the URL of the storage behind it"
            raise FileNotFoundError(2, text, name)
        return _local(f"{_DBFS}/{rest.lstrip('/')}")
    if scheme not in _S3 | _AZURE | _GOOGLE:
        return Location(url.rstrip("/"))
    container = rest.partition("/")[0]
    if not container:
        raise ValueError(f"{name} names no bucket")
    get = spark.get if isinstance(spark, CapturedSession) else settings_of(spark).get
    if scheme in _S3:
        return Location(url.rstrip("/"), _s3_options(container, get))
    if scheme in _AZURE:
        if scheme.startswith("wasb"):
            url = f"abfss://{rest}".replace(".blob.", ".dfs.", 1)
        return Location(url.rstrip("/"), _azure_options(container, get))
    keyfile = get("google.cloud.auth.service.account.json.keyfile")
    return Location(url.rstrip("/"), {"service_account_path": keyfile} if keyfile else None)


def _is_chained(url: str) -> bool:
    if url.startswith((".", "/")):
        return False
    return "::" in url.partition("://")[0] or _CHAINED.search(url) is not None


def _local(path: str) -> Location:
    found = os.path.abspath(path)
    # A path may look like a URL; this prefix tells Location that it is a path.
    return Location(f"file://{found}" if is_url(found) else found)


def _refuse_password(scheme: str, authority: str) -> None:
    """Refuse credentials in a URL: it is in every message, every row and Spark's event log."""
    user, at, _ = authority.rpartition("@")
    # A secret key may contain a slash, which hides the @ from a URL parser.
    hidden = scheme in _S3 | _GOOGLE and ":" in authority and not authority.startswith("arn:")
    if (at and ":" in user) or hidden:
        raise ValueError(
            f"a {scheme} URL has a user name and a password in it (not repeated here): URLs end up in logs; put the "
            "credentials in Spark's configuration, the environment or a profile"
        )


def _s3_options(bucket: str, get: Callable[[str], str | None]) -> dict[str, Any]:
    def setting(key: str) -> str | None:
        return get(f"fs.s3a.bucket.{bucket}.{key}") or get(f"fs.s3a.{key}")

    names = ["connection.ssl.enabled", "path.style.access"]
    endpoint, region = setting("endpoint"), setting("endpoint.region")
    if endpoint and endpoint.rpartition("://")[2].rstrip("/") != "s3.amazonaws.com":
        names.append("endpoint")
    if region and region != "sdk":
        names.append("endpoint.region")
    anonymous = False
    if setting("access.key") and setting("secret.key"):
        names += ["access.key", "secret.key", "session.token"]
    else:
        anonymous = _ANONYMOUS in (setting("aws.credentials.provider") or "").partition(",")[0]
    found: dict[str, Any] = {f"fs.s3a.{name}": value for name in names if (value := setting(name))}
    return {**found, "skip_signature": True} if anonymous else found


def _azure_options(authority: str, get: Callable[[str], str | None]) -> dict[str, Any]:
    host = authority.partition("@")[2]
    if not host:
        return {}
    account = host.partition(".")[0]
    hosts = (host, f"{account}.blob.core.windows.net", f"{account}.dfs.core.windows.net")
    key = next((found for each in hosts if (found := get(f"fs.azure.account.key.{each}"))), None)
    return {"account_key": key} if key else {}
