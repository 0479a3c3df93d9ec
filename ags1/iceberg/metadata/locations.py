"""Locations in table metadata, and PyIceberg's storage properties as the options of :mod:`ags1.storage`.

properties of a catalog          storage_options
s3.endpoint                      endpoint
gcs.oauth2.token                 bearer_token
adls.sas-token.ACCOUNT.HOST      sas_token
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlparse

from ags1.errors import UnsupportedError
from ags1.storage import Location, option_name
from ags1.support.arguments import spelled

# Storage option: the properties that name it, the first one that is set counts.
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "s3": {
        "endpoint": ("s3.endpoint",),
        "access_key_id": ("s3.access-key-id", "client.access-key-id"),
        "secret_access_key": ("s3.secret-access-key", "client.secret-access-key"),
        "session_token": ("s3.session-token", "client.session-token"),
        "region": ("s3.region", "client.region"),
        "profile": ("s3.profile-name", "client.profile-name"),
        "skip_signature": ("s3.anonymous",),
        "virtual_hosted_style_request": ("s3.force-virtual-addressing",),
        "path_style": ("s3.path-style-access",),
        "proxy_url": ("s3.proxy-uri",),
        "server_side_encryption": ("s3.server-side-encryption",),
        "sse_kms_key_id": ("s3.sse-kms-key-id",),
        "timeout": ("s3.request-timeout",),
    },
    "gs": {"bearer_token": ("gcs.oauth2.token",), "base_url": ("gcs.service.host",)},
    "abfss": {
        "account_name": ("adls.account-name",),
        "account_key": ("adls.account-key",),
        "sas_token": ("adls.sas-token",),
        "tenant_id": ("adls.tenant-id",),
        "client_id": ("adls.client-id",),
        "client_secret": ("adls.client-secret",),
        "bearer_token": ("adls.token",),
        "skip_signature": ("adls.anon",),
    },
}
_ONE_SLASH = re.compile(r"^(hdfs|viewfs):(?=/(?!/))")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "gcs": "gs"}
_NAME_NODES = ("hdfs", "viewfs", "webhdfs")
_METADATA, _METADATA_PATH = "metadata", "write.metadata.path"
# What JSON may have and no file's name: NUL, and halves of surrogate pairs but for those that stand for other bytes.
_NEVER_NAMED = re.compile(r"[\0\ud800-\udc7f\udd00-\udfff]")
_FAMILY = {"s3": "s3", "gs": "gs", "az": "abfss", "abfss": "abfss"}
_OPTIONS = {option for names in _NAMES.values() for option in names}
_OWN = ("ags1.", "py-", "adls.sas-token.")
# Without these, requests would use another identity.
_UNUSABLE = {"s3": ("s3.role-arn", "client.role-arn", "s3.signer"), "gs": (), "abfss": ("adls.credential",)}
_CONNECTION_STRING = "adls.connection-string"
_CONNECTION_PARTS = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_token",
    "BlobEndpoint": "endpoint",
}
IO_IMPLEMENTATION = "py-io-impl"
"""What says how files are reached at all: any further property may be for that implementation."""
_CATALOG_IMPLEMENTATION = "py-catalog-impl"
# Those of PyIceberg's catalogs that have a text as their value: of all, of Hive, Glue, SQL and REST.
_CATALOG_PROPERTIES = {
    "type", "uri", "warehouse",
    "engine.hive.lock-enabled", "hive.hive2-compatible", "hive.kerberos-authentication", "hive.kerberos-service-name",
    "iceberg.engine.hive.lock-enabled", "lock-check-max-wait-time", "lock-check-min-wait-time", "lock-check-retries",
    "ugi",
    "glue.access-key-id", "glue.endpoint", "glue.id", "glue.max-retries", "glue.profile-name", "glue.region",
    "glue.retry-mode", "glue.secret-access-key", "glue.session-token", "glue.skip-archive",
    "echo", "init_catalog_tables", "pool_pre_ping", "schema_version",
    "audience", "credential", "namespace-separator", "oauth2-server-uri", "prefix", "resource", "rest-page-size",
    "rest.signing-name", "rest.signing-region", "rest.sigv4-enabled", "rest.sigv4.max-retries", "scan-planning-mode",
    "scope", "snapshot-loading-mode", "token", "view-endpoints-supported",
}  # fmt: skip
_HEADER = "header."


def io_properties_of(options: Mapping[str, Any] | None, *, strict: bool = True) -> dict[str, str]:
    """PyIceberg's properties for storage options, which may have PyIceberg's names or those of :mod:`ags1.storage`.

    An option that several object stores have, such as ``bearer_token``, is a property for each of them.

    Parameters
    ----------
    options : mapping or None
    strict : bool
        Refuse options that would have no effect; otherwise they are left out.

    Raises
    ------
    ValueError
        An option would have no effect; the message suggests a valid name.
    """
    given = {name: _text(value) for name, value in (options or {}).items() if value is not None}
    secure = given.pop("fs.s3a.connection.ssl.enabled", "true").lower() == "true"
    found: dict[str, str] = {}
    known = _known_properties()
    for name, value in given.items():
        if name in known or name.startswith(_OWN) or IO_IMPLEMENTATION in given:
            found[name] = value
        elif properties := _properties_named(name):
            found |= dict.fromkeys(properties, value)
        elif strict:
            like = difflib.get_close_matches(name, {*known, *_OPTIONS}, 1) or ["s3.endpoint"]
            raise ValueError(
                f"the storage option {name!r} would have no effect on an Iceberg table: give PyIceberg's property, or "
                f"an option of ags1 that has one, such as {like[0]!r}"
            )
    path_style = found.pop("s3.path-style-access", None)
    if path_style is not None:
        found["s3.force-virtual-addressing"] = _text(path_style.lower() != "true")
    endpoint = found.get("s3.endpoint")
    if endpoint is not None and "://" not in endpoint:
        found["s3.endpoint"] = f"{'https' if secure else 'http'}://{endpoint}"
    return found


def check_catalog_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties that neither a catalog of PyIceberg's nor its storage has.

    Raises
    ------
    ValueError
        A property would have no effect; the message suggests a valid name.
    """
    if _CATALOG_IMPLEMENTATION in properties or IO_IMPLEMENTATION in properties:
        return
    known = _known_properties() | _CATALOG_PROPERTIES
    for name in properties:
        if name not in known and not name.startswith((*_OWN, _HEADER)):
            like = difflib.get_close_matches(name, known, 1) or ["uri"]
            raise ValueError(
                f"the property {name!r} would have no effect: neither PyIceberg's catalogs nor their storage have it; "
                f"write one that they have, such as {like[0]!r}"
            )


def storage_options_of(io_properties: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The storage options that a catalog's properties, with PyIceberg's names, amount to for a URL.

    A ValueError names a property that :mod:`ags1.storage` cannot follow.
    """
    location = Location(url)
    family, host = _FAMILY.get(location.scheme), location.container.partition("@")[2]
    if family is None:
        return {}
    given = {name: value for name, value in io_properties.items() if value not in (None, "")}
    for name in _UNUSABLE[family]:
        if name in given:
            raise ValueError(
                f"the property {name} cannot be followed here: give the credentials themselves, or let the "
                "environment say them"
            )
    options: dict[str, Any] = {}
    for option, names in _NAMES[family].items():
        for name in names:
            if name in given:
                options[option] = given[name]
                break
    if family == "abfss":
        # Catalogs issue a token for each account.
        vended = {name: given[name] for name in given if name.startswith("adls.sas-token.")}
        for name, value in vended.items():
            account = name.removeprefix("adls.sas-token.")
            if not host or account in (host, host.partition(".")[0]):
                options["sas_token"] = value
        for part in str(given.get(_CONNECTION_STRING, "")).split(";"):
            name, _, value = part.partition("=")
            if name in _CONNECTION_PARTS:
                options.setdefault(_CONNECTION_PARTS[name], value)
    return options


def location_of(url: str, io_properties: Mapping[str, Any] | None = None) -> Location:
    """Where a file of a table is: a path, a URL, or ``file:/path`` as Hadoop writes it."""
    path = local_path(url)
    if path is not None:
        return Location(path)
    # Hadoop writes hdfs:/path where the host is the default one.
    url = _ONE_SLASH.sub(r"\1://", url)
    return Location(url, storage_options_of(io_properties or {}, url))


def local_path(location: str) -> str | None:
    """The path that a location means on this machine, if it means one."""
    # Nearly all are one of these three.
    if location.startswith("/"):
        return location
    if location.startswith("file:///"):
        return location[len("file://") :]
    scheme, separator, _ = location.partition("://")
    if separator and scheme.lower() != "file" and _SCHEME.fullmatch(scheme):
        return None
    parsed = urlparse(location)
    if parsed.scheme == "file" and parsed.netloc in ("", "localhost"):
        # Hadoop writes file:/path, without escapes.
        path = location[len("file:") :]
        if path.startswith("//"):
            path = path[2:].removeprefix("localhost")
        return path
    return location if parsed.scheme == "" else None


def rooted(location: Location, directories: Iterable[str]) -> Location | None:
    """The same file below the first of a table's directories that it is in; None if it is in none, or in a store.

    No link below that directory is followed then: who can write there must not lead the table's files elsewhere.
    """
    for each in directories if location.is_local else ():
        path = local_path(each)
        if path and (found := location.below(Location(path))) is not None:
            return found
    return None


class TableLocations:
    """The directories that a table's files may be in: where the catalog or the caller says that the table is.

    What the metadata file says of itself does not count, because nothing protects it: it could name any bucket, which
    would then get requests with the reader's credentials, or any file of this machine. Safe to share between threads.

    Parameters
    ----------
    directories : iterable of str, optional
        Paths and URLs that are allowed. Without any, and until :meth:`add`, every place is.
    moved_from : (str, str), optional
        As for :class:`ags1.expected.Expected`.

    Attributes
    ----------
    roots : tuple of str
        The directories, each with everything below it.
    """

    def __init__(self, directories: Iterable[str] | None = (), moved_from: tuple[str, str] | None = None) -> None:
        self._moved_from = moved_from
        self.roots = tuple(dict.fromkeys(map(_place, directories or ())))
        self._table = ""
        self._copied_from: str | None = None

    def add(self, metadata_location: str, directories: Iterable[str] = ()) -> None:
        """Allow the directory of the table whose metadata file this is, and others that its catalog names.

        Raises
        ------
        UnsupportedError
            Another table's metadata was added before, and this is not in its directories.
        """
        if self._table:
            self.check(metadata_location)
        else:
            self._table = table_of(metadata_location)
            directories = [self._table, *directories]
        self.roots = tuple(dict.fromkeys((*self.roots, *map(_place, directories))))

    def believe(self, fields: Mapping[str, Any]) -> None:
        """Take in where the metadata says that its table is: the remedy for a copy is another one."""
        said, properties = fields.get("location"), fields.get("properties")
        if not isinstance(said, str) or (isinstance(properties, dict) and _METADATA_PATH in properties):
            return
        if self._table and said.strip("/") and _place(said) != _place(self._table):
            self._copied_from = said.rstrip("/")

    def of_original(self, path: str) -> str | None:
        """Return where a copied table was, if this file is there: it is not one of the copy."""
        said = self._copied_from
        return said if said is not None and below(self.shown(path), said) is not None else None

    def shown(self, path: str) -> str:
        """Return where a file is that the table names."""
        return moved(path, self._moved_from)

    def check(self, path: str) -> None:
        """Raise an UnsupportedError if a file is outside the directories."""
        if not self._table:
            return
        path = moved(path, self._moved_from)
        place = _place(path)
        # The path of a URL may have steps that a server or client would follow.
        steps_out = local_path(path) is None and not {".", ".."}.isdisjoint(path.split("/"))
        if not self._is_inside(place) or steps_out:
            if (said := self.of_original(path)) is not None:
                raise UnsupportedError(
                    f"{path}: lies outside of the table, which is in {self._table}, and whose metadata says that it is "
                    f"in {said}: {_copy(said)}; give {spelled('moved_from', said)} to read the files in {self._table}"
                )
            raise UnsupportedError(
                f"{path}: lies outside of the table, and only the table's own files name it: if you trust that, allow "
                f"its directory, {path.rpartition('/')[0]}, with {spelled('allowed_locations')}"
            )

    def refuse_change(self, name: str) -> None:
        """Raise an UnsupportedError if the table is a copy, unless the place of the original was allowed."""
        said = self._copied_from
        if said is not None and not self._is_inside(f"{_place(said)}/"):
            raise UnsupportedError(
                f"{name}: is not changed: its metadata says that the table is in {said}: {_copy(said)}; in Python, "
                f"relocate_table(load_table(..., moved_from={said!r}), ...) makes a table of it"
            )

    def _is_inside(self, place: str) -> bool:
        return place.startswith(tuple(f"{each.rstrip('/')}/" for each in self.roots))

    def within(self, locate: Callable[[str], Location]) -> Callable[[str], Location]:
        """Return a function that locates files as `locate` does, and refuses those outside."""

        def located(path: str) -> Location:
            self.check(path)
            return locate(path)

        return located


def moving(original: str | None, table: str) -> tuple[str, str] | None:
    """Return the directory of a copied table's original, and that of the copy, which a file or directory names."""
    if original is None:
        return None
    if not original.strip("/"):
        raise ValueError("moved_from must be the directory that the copied table was in")
    return original, table_of(table if table.endswith((".json", f"/{_METADATA}")) else f"{table.rstrip('/')}/")


def moved(location: str, moved_from: tuple[str, str] | None) -> str:
    """Return where a file of a copied table is."""
    original, copy = moved_from or ("", "")
    if not original or below(f"{location}/x", copy) is not None:
        return location
    rest = below(f"{location}/x", original)
    return location if rest is None else f"{copy.rstrip('/')}/{rest}".removesuffix("/x")


def _copy(said: str) -> str:
    relative = not os.path.isabs(local_path(said) or "/")
    return "a path that is relative to another directory than this one" if relative else "it is a copy"


def refuse_change(name: str, moved_from: tuple[str, str] | None) -> None:
    """Refuse to change a copy that is read in the place of a table elsewhere."""
    if moved_from is not None:
        original, copy = moved_from
        raise UnsupportedError(
            f"{name}: is the copy of a table that was in {original}, and its files name each other there: it can be "
            f"read, and in Python {spelled('relocate_table')} makes a table of it; nothing else can change it in {copy}"
        )


def below(location: str, directory: str) -> str | None:
    """Return the rest of the path of a file below a directory, by their names alone; None if it is not below."""
    place, root = _named(location), _named(directory)
    return place[len(root) + 1 :] or None if place.startswith(f"{root}/") else None


def table_of(metadata_location: str) -> str:
    """Return the directory of a table, as the place of its metadata file says it."""
    directory, slash, _ = metadata_location.rpartition("/")
    above, between, name = directory.rpartition("/")
    if name == _METADATA and not above.endswith(":/"):
        return above or between or "."
    return directory or slash or "."


def _place(location: str) -> str:
    """Return one text for a place, however it is spelled, also through links of this machine."""
    path = local_path(location)
    # Nothing that a link stands for is where the link is.
    return _named(location) if path is None or _NEVER_NAMED.search(path) else f"file:{os.path.realpath(path)}"


def _named(location: str) -> str:
    """The same without a look at what is there."""
    path = local_path(location)
    if path is not None:
        return f"file:{os.path.abspath(path)}".rstrip("/")
    scheme, _, rest = _ONE_SLASH.sub(r"\1://", location).partition("://")
    host, _, path = rest.partition("/")
    scheme = _SAME_SCHEME.get(scheme, scheme)
    # A name node has several names.
    return f"{scheme}://{'' if scheme in _NAME_NODES else host}/{path}".rstrip("/")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties_named(option: str) -> list[str]:
    """The properties that a storage option stands for."""
    found: list[str] = []
    for family, names in _NAMES.items():
        name = option_name(family, option)
        for prefix in ("aws_", "google_", "azure_", "storage_"):
            name = name.removeprefix(prefix)
        found += names.get(name, ())[:1]
    return found


def _known_properties() -> set[str]:
    from pyiceberg import io

    theirs = {value for name, value in vars(io).items() if name.isupper() and isinstance(value, str)}
    return theirs | {each for names in _NAMES.values() for every in names.values() for each in every}
