"""New encrypted tables in a catalog, and their metadata.

PyIceberg makes the metadata. Source: Iceberg table spec, "Table Metadata Fields".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import transform_dict_value_to_str

from ags1.iceberg.catalogs import catalog_table, loaded
from ags1.iceberg.files.file_io import client_of
from ags1.iceberg.metadata.key_entries import make_kek
from ags1.iceberg.metadata.locations import local_path
from ags1.iceberg.metadata.metadata_document import DATA_KEY_LENGTH, KEY_ID, locations_of, refuse_reserved
from ags1.iceberg.tables import EncryptedTable, load_table
from ags1.iceberg.writing.data_files import TableLayout
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.terms import as_order, as_spec

_VERSION: Literal[3] = 3
_FORMAT_VERSION = "format-version"
_CODEC = "write.parquet.compression-codec"


def new_metadata(
    schema: Schema | pyarrow.Schema,
    partition_spec: PartitionSpec | Sequence[str] | None,
    sort_order: SortOrder | Sequence[str] | None,
    *,
    location: str,
    key_id: str,
    data_key_length: int | None,
    properties: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The metadata JSON of a table without snapshots; arguments and errors are those of :func:`create_table`."""
    # As PyIceberg writes numbers and truth values; it reads no table with a null.
    given = transform_dict_value_to_str(dict(properties or {}))
    for name in (KEY_ID, DATA_KEY_LENGTH):
        if name in given:
            raise ValueError(f"the property {name} must not be given: use the arguments key_id and data_key_length")
    if given.pop(_FORMAT_VERSION, str(_VERSION)) != str(_VERSION):
        raise ValueError(f"encrypted tables have format version {_VERSION}: leave out the property {_FORMAT_VERSION}")
    # PyIceberg's own conversion, which numbers columns in their order.
    wanted: Any = Catalog._convert_schema_if_needed(schema, _VERSION)
    if not wanted.fields:
        raise ValueError("a table needs at least one column")
    refuse_reserved((each.name for each in wanted.fields), "choose another name")
    if isinstance(schema, pyarrow.Schema):
        wanted = assign_fresh_schema_ids(wanted)
    given.setdefault(_CODEC, "zstd")
    spec, order = as_spec(partition_spec, wanted), as_order(sort_order, wanted)
    made = new_table_metadata(wanted, spec, order, location, {**given, _FORMAT_VERSION: str(_VERSION)})
    made.sort_order().check_compatible(made.schema())
    # A table that could not be written to is not created.
    TableLayout(made.schema(), made.spec(), made.sort_order(), given)
    metadata = TableMetadata(made.model_dump(mode="json", by_alias=True) | {"next-row-id": 0})
    metadata.set_encryption(key_id, data_key_length)
    return metadata.fields


def create_table(
    catalog: Any,
    identifier: str | tuple[str, ...],
    schema: Schema | pyarrow.Schema,
    partition_spec: PartitionSpec | Sequence[str] | None = None,
    sort_order: SortOrder | Sequence[str] | None = None,
    *,
    kms: Any,
    key_id: str,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    data_key_length: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> EncryptedTable:
    """Create an empty encrypted table of format version 3.

    Parameters
    ----------
    catalog : pyiceberg.catalog.Catalog, str or None
        As for :func:`load_table`.
    identifier : str or tuple of str
        The new table's name; without a catalog, path or URL of its directory.
    schema : pyiceberg.schema.Schema or pyarrow.Schema
        Columns get new ids in their order.
    partition_spec : pyiceberg.partitioning.PartitionSpec or sequence of str, optional
        Or texts: ``["country", "day(ts)", "bucket(16, id)"]``.
    sort_order : pyiceberg.table.sorting.SortOrder or sequence of str, optional
        Or texts: ``["ts desc nulls last", "id"]``.
    kms : object or str
        A client of :mod:`ags1.kms`, or a URL for :func:`ags1.kms.load`.
    key_id : str
        Id of the master key in the KMS.
    location : str, optional
        Directory of the table; by default the catalog's location for this name.
    properties : mapping of str to str, optional
        Properties of the table, such as ``write.target-file-size-bytes``. With a ``write.data.path`` elsewhere,
        :func:`load_table` needs `allowed_locations`, unless the catalog stores the property.
    data_key_length : {16, 24, 32}, optional
        Length of its data keys in bytes; by default 16, as in Iceberg.
    storage_options : mapping, optional
        As for :func:`ags1.iceberg.catalogs.catalog_table`.

    Returns
    -------
    EncryptedTable

    Raises
    ------
    FileExistsError
        The name is taken.
    UnsupportedError
        The catalog cannot hold an encrypted table; the schema has a type that cannot be written here, or a column with
        a name that Iceberg reserves, such as ``_pos``.
    FileNotFoundError
        The catalog has no such namespace.
    KeyAccessError
        The KMS does not wrap with this master key. Nothing was created.
    ValueError
        A wrong argument.

    Examples
    --------
    >>> table = iceberg.create_table(catalog, "db.events", schema, ["day(ts)"], kms="aws:", key_id="alias/lake")
    """
    kms = client_of(kms)
    if not key_id:
        raise ValueError("key_id must be the name of a master key")
    target = catalog_table(catalog, identifier, storage_options=storage_options)
    target.check_can_encrypt()
    fields = new_metadata(
        schema,
        partition_spec,
        sort_order,
        location=_location(catalog, identifier) if location is None else location.rstrip("/"),
        key_id=key_id,
        data_key_length=data_key_length,
        properties=properties,
    )
    # What the KMS does not wrap or does not open again is refused here, not at the first write.
    make_kek(kms, key_id, "of a new table", 16)
    target.create(fields)
    # The caller has said where the files go.
    allowed = locations_of(location, properties or {})
    return load_table(catalog, identifier, kms=kms, properties=storage_options, allowed_locations=allowed)


def _location(catalog: Any, identifier: str | tuple[str, ...]) -> str:
    if catalog is None:
        assert isinstance(identifier, str)
        path = local_path(identifier)
        return identifier.rstrip("/") if path is None else f"file://{os.path.abspath(path)}"
    catalog = loaded(catalog)
    *namespace, name = catalog.identifier_to_tuple(identifier)
    try:
        # PyIceberg's catalogs have no public method for this.
        found: str = catalog._resolve_table_location(None, ".".join(namespace), name)
    except AttributeError:
        raise ValueError(f"{type(catalog).__name__} does not say where tables go: give a location") from None
    except NoSuchNamespaceError:
        said = "the catalog has no such namespace: create it first, with PyIceberg's catalog.create_namespace"
        raise FileNotFoundError(2, said, ".".join([*namespace, name])) from None
    return found
