"""Load tables by their name in a Spark session: the settings of its catalogs become those of PyIceberg's catalogs.

spark.sql.catalog.lake.type=hive, .uri=thrift://...   -->  HiveCatalog("lake", uri="thrift://...")   -->  load_table
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ags1.errors import UnsupportedError
from ags1.iceberg.metadata.locations import io_properties_of
from ags1.spark.engine.captured import settings_of
from ags1.spark.engine.locations import locate
from ags1.support.arguments import spelled

_CATALOG = "spark.sql.catalog."
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_TYPES = {
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
}
# Of Spark, and of PyIceberg.
_KINDS = {"hive": "hive", "rest": "rest", "glue": "glue", "jdbc": "sql"}
_METASTORES = ("spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris", "hive.metastore.uris")


def _otherwise() -> str:
    # What load_table returns is taken in the place of a name, and a command has --catalog.
    return f"with {spelled('load_table')}, a catalog of PyIceberg's is used instead"


@dataclass(frozen=True)
class SparkTable:
    """A table with a name in the session, `sql`; `properties` are PyIceberg's for the storage."""

    catalog: Any
    identifier: tuple[str, ...]
    sql: str
    properties: dict[str, str]

    def __repr__(self) -> str:
        return f"SparkTable({self.sql})"


def find_table(spark: Any, name: str) -> SparkTable:
    """Find the catalog of ``catalog.db.table``, or of ``db.table`` in the session's current catalog."""
    session = settings_of(spark)
    parts = _parts(name)
    if _CATALOG + parts[0] not in session:
        parts = (str(spark.catalog.currentCatalog()), *parts)
    catalog = parts[0]
    if len(parts) < 3:
        raise ValueError(f"{name!r} is no name of a table: write CATALOG.NAMESPACE.TABLE")
    prefix = f"{_CATALOG}{catalog}."
    settings = {each.removeprefix(prefix): text for each, text in session.items() if each.startswith(prefix)}
    kind = _kind(session, catalog, settings)
    given = _translated(session, catalog, kind, settings)
    warehouse = given.get("warehouse")
    storage: dict[str, str] = {}
    if warehouse is not None and "://" in warehouse:
        said = io_properties_of(locate(warehouse, spark).storage_options, strict=False)
        storage = {key: value for key, value in said.items() if key not in given}
    sql = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
    return SparkTable(_made(catalog, kind, {**storage, **given}), parts[1:], sql, storage)


def _parts(name: str) -> tuple[str, ...]:
    found: list[str] = []
    position = 0
    while True:
        match = _PART.match(name, position)
        if match is None:
            raise ValueError(f"{name!r} is no name of a table: write CATALOG.NAMESPACE.TABLE")
        found.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        position = match.end()
        if position == len(name):
            return tuple(found)
        if name[position] != ".":
            raise ValueError(f"{name!r} is no name of a table: put names with other characters between backquotes")
        position += 1


def _kind(session: dict[str, str], catalog: str, settings: dict[str, str]) -> str:
    implementation = settings.get("catalog-impl")
    if implementation is not None:
        kind = _TYPES.get(implementation, implementation)
    else:
        made_by = session.get(_CATALOG + catalog, "")
        if not made_by.startswith("org.apache.iceberg.spark."):
            raise UnsupportedError(
                f"the session's catalog {catalog!r} is no catalog of Iceberg's (spark.sql.catalog.{catalog} is "
                f"{made_by or 'not set'}): {_otherwise()}"
            )
        kind = settings.get("type", "hive").lower()
    if kind == "hadoop":
        raise UnsupportedError(
            f"the session's catalog {catalog!r} is a Hadoop catalog, and Iceberg Java reads no encrypted table in one: "
            "move the table to a Hive or REST catalog first (CALL system.register_table)"
        )
    if kind not in _KINDS:
        raise UnsupportedError(f"the session's catalog {catalog!r} is of the kind {kind}: {_otherwise()}")
    return kind


def _translated(session: dict[str, str], catalog: str, kind: str, settings: dict[str, str]) -> dict[str, str]:
    found = {name: text for name, text in settings.items() if name not in ("type", "catalog-impl", "io-impl")}
    path_style = found.pop("s3.path-style-access", None)
    if path_style is not None:
        found["s3.force-virtual-addressing"] = str(path_style.lower() != "true").lower()
    if kind == "hive" and "uri" not in found:
        uri = next((text for name in _METASTORES if (text := session.get(name))), None)
        if uri is None:
            raise ValueError(
                f"the session does not say where the metastore of its catalog {catalog!r} is: set "
                f"spark.sql.catalog.{catalog}.uri; {_otherwise()}"
            )
        found["uri"] = uri
    if kind in ("rest", "jdbc") and "uri" not in found:
        raise ValueError(f"the session's catalog {catalog!r} has no uri: {_otherwise()}")
    if kind == "jdbc":
        found["uri"] = _of_jdbc(catalog, found)
        found["init_catalog_tables"] = "false"
    return found


def _of_jdbc(catalog: str, settings: dict[str, str]) -> str:
    url = settings["uri"].removeprefix("jdbc:")
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:").removeprefix("file:")
        return f"sqlite:///{path}"
    parsed = urlsplit(url)
    if parsed.scheme != "postgresql":
        raise UnsupportedError(
            f"the session's catalog {catalog!r} is in a database of the kind {parsed.scheme or url!r}, and PyIceberg "
            f"knows SQLite and PostgreSQL: {_otherwise()}"
        )
    user, password = settings.pop("jdbc.user", None), settings.pop("jdbc.password", None)
    who = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"postgresql+psycopg2://{who}{'@' if who else ''}{parsed.netloc}{parsed.path}"


def _made(name: str, kind: str, properties: dict[str, str]) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    try:
        return load_catalog(name, type=_KINDS[kind], **properties)
    except (ImportError, NotInstalledError) as error:
        raise ImportError(f"the session's catalog {name!r} needs a package beside ags1: {error}") from error
