"""New encrypted tables in a catalog."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from ags1._gcm import random_bytes
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.locations import local_path
from ags1.iceberg.tables import EncryptedTable, client_of, load_table

__all__ = ["create_table"]


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
    """Make an empty encrypted table, of format version 3.

    Parameters
    ----------
    catalog : pyiceberg.catalog.Catalog, str or None
        As for :func:`load_table`.
    identifier : str or tuple of str
        The new table's name; without a catalog, path or URL of its directory.
    schema : pyiceberg.schema.Schema or pyarrow.Schema
        Columns get new ids, in their order.
    partition_spec : pyiceberg.partitioning.PartitionSpec or sequence of str, optional
        Or texts: ``["country", "day(ts)", "bucket(16, id)"]``.
    sort_order : pyiceberg.table.sorting.SortOrder or sequence of str, optional
        Or texts: ``["ts desc nulls last", "id"]``.
    kms : object or str
        A client of :mod:`ags1.kms`, or a URL for :func:`ags1.kms.load`.
    key_id : str
        The master key, as the KMS calls it.
    location : str, optional
        Directory of the table; by default where the catalog puts a table of this name.
    properties : mapping of str to str, optional
        Of the table, such as ``write.target-file-size-bytes``.
    data_key_length : {16, 24, 32}, optional
        Bytes of the keys of its files; by default 16, as Iceberg has it.
    storage_options : mapping, optional
        As for :func:`ags1.iceberg.catalogs.catalog_table`.

    Returns
    -------
    EncryptedTable

    Raises
    ------
    ConflictError
        The name is taken.
    UnsupportedError
        The catalog cannot carry an encrypted table, or the schema has what cannot be written here.
    KeyAccessError
        The KMS does not wrap with this master key. Nothing was made.
    ValueError
        A wrong argument.

    Examples
    --------
    >>> table = iceberg.create_table(catalog, "db.events", schema, ["day(ts)"], kms="aws:", key_id="alias/lake")
    """
    from ags1.iceberg.writing.new_table import new_metadata

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
    # Whoever may not use the master key learns it now, and not when there are rows.
    kms.wrap_key(random_bytes(16), key_id)
    target.create(fields)
    return load_table(catalog, identifier, kms=kms, properties=storage_options)


def _location(catalog: Any, identifier: str | tuple[str, ...]) -> str:
    if catalog is None:
        assert isinstance(identifier, str)
        path = local_path(identifier)
        return identifier.rstrip("/") if path is None else f"file://{os.path.abspath(path)}"
    if isinstance(catalog, str):
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(catalog)
    *namespace, name = catalog.identifier_to_tuple(identifier)
    try:
        # PyIceberg's catalogs do not say it to others.
        found: str = catalog._resolve_table_location(None, ".".join(namespace), name)
    except AttributeError:
        raise ValueError(f"{type(catalog).__name__} does not say where tables go: give a location") from None
    return found
