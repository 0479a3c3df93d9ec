"""Tables in catalogs: one way to load any table, and to commit new metadata to it.

    catalog_table(catalog, "db.events") ---> CatalogTable.load()   ---> TableState   the metadata, as JSON
                                                         .commit(base, fields)       or ConflictError

    catalog        the commit                                       what guards it
    Hive           one alter_table                                  Hive's lock, and the expected metadata_location
    SQL            UPDATE ... WHERE metadata_location = old         the database
    Glue           update_table                                     the table's version in Glue
    REST           updates; of encrypted snapshots, in three steps  the server, by requirements
    None (a file)  the next metadata file is created                create-if-absent

PyIceberg's catalogs are the transport. Its models of metadata are not used, because they drop the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ags1.errors import UnsupportedError, without_secrets
from ags1.expected import NOTHING, Expected
from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState
from ags1.iceberg.configuration import configuration_fault
from ags1.iceberg.metadata.locations import io_properties_of

__all__ = ["CatalogTable", "RefusedError", "TableState", "catalog_table"]

# Catalog classes are matched by name: their modules need packages that may not be installed.
_POINTERS = {
    "pyiceberg.catalog.hive.HiveCatalog": ("ags1.iceberg.catalogs.hive", "HiveTable"),
    "pyiceberg.catalog.glue.GlueCatalog": ("ags1.iceberg.catalogs.glue", "GlueTable"),
    "pyiceberg.catalog.sql.SqlCatalog": ("ags1.iceberg.catalogs.sql", "SqlTable"),
    "pyiceberg.catalog.rest.RestCatalog": ("ags1.iceberg.catalogs.rest", "RestTable"),
}


def catalog_table(
    catalog: Any,
    identifier: str | tuple[str, ...],
    *,
    storage_options: Mapping[str, Any] | None = None,
    expected: Expected = NOTHING,
) -> CatalogTable:
    """Find a table.

    Parameters
    ----------
    catalog : pyiceberg.catalog.Catalog, str or None
        A catalog of PyIceberg's: Hive, Glue, SQL or REST; its name in PyIceberg's configuration; or None for a table
        without a catalog.
    identifier : str or tuple of str
        ``"db.table"``; without a catalog, path or URL of a metadata file or of the table's directory.
    storage_options : mapping, optional
        Options of the storage, in addition to the catalog's properties, under PyIceberg's names, such as
        ``s3.endpoint``, or those of :mod:`ags1.storage`, such as ``endpoint``.
    expected : Expected
        What the caller knows beforehand.

    Raises
    ------
    UnsupportedError
        Another kind of catalog, or a metadata hash for one whose server writes the metadata.
    ValueError
        `identifier` is not the name of a table; an option would have no effect.
    """
    properties = io_properties_of(storage_options)
    if catalog is None:
        from ags1.iceberg.catalogs.file import FileTable

        if not isinstance(identifier, str):
            raise ValueError(f"without a catalog a table is a path or URL, not {identifier!r}")
        found: CatalogTable = FileTable(identifier, properties)
    elif expected.moved_from is None:
        found = _in_catalog(loaded(catalog), identifier, properties)
    else:
        raise ValueError("moved_from is for a copy that is given by its path: without a catalog")
    found.expect(expected.within(found.io_properties))
    return found


def loaded(catalog: Any, **properties: str) -> Any:
    """Return the catalog of a name, as PyIceberg's configuration has it; a catalog as it is.

    ValueError: PyIceberg's configuration cannot be read, or has no such catalog. ImportError: PyIceberg lacks a package
    for a catalog of this kind.
    """
    if not isinstance(catalog, str):
        return catalog
    if (fault := configuration_fault()) is not None:
        raise fault
    from pyiceberg.catalog import list_catalogs, load_catalog
    from pyiceberg.exceptions import NotInstalledError

    try:
        return load_catalog(catalog, **properties)
    except NotInstalledError as error:
        raise ImportError(f"the catalog {catalog!r} needs one more package: {error}") from error
    except ValueError as error:
        known = list_catalogs()
        where = f"PYICEBERG_CATALOG__{catalog.upper().replace('-', '_')}__URI"
        if catalog.lower() in known:
            # PyIceberg's words name an option of its own command.
            said = f"it has no uri there, or in {where}" if "--uri" in str(error) else error
            raise ValueError(f"the catalog {catalog!r} of PyIceberg's configuration: {said}") from error
        has = f"which has {', '.join(known)}" if known else "which has none"
        raise ValueError(
            f"there is no catalog {catalog!r} in PyIceberg's configuration, {has}: the first "
            f".pyiceberg.yaml of $PYICEBERG_HOME, the home and the current directory, or {where}"
        ) from error


def _in_catalog(catalog: Any, identifier: str | tuple[str, ...], properties: Mapping[str, str]) -> CatalogTable:
    import importlib

    for kind in type(catalog).__mro__:
        found = _POINTERS.get(f"{kind.__module__}.{kind.__qualname__}")
        if found is not None:
            name = tuple(catalog.identifier_to_tuple(identifier))
            if len(name) < 2 or not all(name):
                raise ValueError(f"{without_secrets(repr(identifier))} is no name of a table: write NAMESPACE.TABLE")
            kind = getattr(importlib.import_module(found[0]), found[1])
            made: CatalogTable = kind(catalog, name, {**catalog.properties, **properties})
            return made
    raise UnsupportedError(
        f"{type(catalog).__name__} is no catalog that can be committed to here: these are PyIceberg's HiveCatalog, "
        "GlueCatalog, SqlCatalog and RestCatalog, or None with a metadata file"
    )
