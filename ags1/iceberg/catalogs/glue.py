"""AWS Glue: a commit is one update of the table, which Glue refuses if the table's version has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.catalog.glue import GlueCatalog, _IcebergSchemaToGlueType
from pyiceberg.schema import visit

from ags1.iceberg.catalogs._table import (
    LOCATION,
    PREVIOUS,
    PointerTable,
    RefusedError,
    TableState,
    columns_of,
    read_state,
)
from ags1.iceberg.metadata.metadata_document import current_of, locations_of, properties_of

_KEPT = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


class GlueTable(PointerTable):
    """A table of the Glue Data Catalog: a commit is an UpdateTable with the version that was read."""

    def __init__(self, catalog: GlueCatalog, identifier: tuple[str, ...], io_properties: Mapping[str, str]) -> None:
        super().__init__(catalog, identifier, io_properties)
        self._glue: Any = catalog.glue
        self._skip_archive = str(catalog.properties.get("glue.skip-archive", "true")).lower() == "true"
        self._database, self._table = catalog.identifier_to_database_and_table(identifier)

    def _load(self) -> TableState:
        found = self._get()
        parameters = found.get("Parameters", {})
        state = read_state(self._pointer(parameters), self.io_properties)
        location = found.get("StorageDescriptor", {}).get("Location")
        return replace(state, locations=locations_of(location, parameters))

    def swap(self, base: TableState, new: TableState) -> None:
        """Update the table if its version is still the one at which the location was compared."""
        found = self._get()
        location = self._pointer(found.get("Parameters", {}))
        if location != base.metadata_location:
            raise self._conflict(base.metadata_location, location)
        changed = {name: found[name] for name in _KEPT if found.get(name) is not None}
        before, after = base.document.fields, new.document.fields
        obsolete = properties_of(before).keys() - properties_of(after).keys()
        parameters = {name: value for name, value in found.get("Parameters", {}).items() if name not in obsolete}
        changed["Parameters"] = {**parameters, **_parameters(new, base.metadata_location)}
        descriptor = dict(found.get("StorageDescriptor", {}))
        if current_of(before, "schemas") != current_of(after, "schemas"):
            descriptor["Columns"] = _columns(after)
        changed["StorageDescriptor"] = {**descriptor, "Location": after.get("location")}
        version = found.get("VersionId")
        if not version:
            raise RefusedError(f"{self.name}: Glue returned no version of the table, so it cannot be updated safely")
        try:
            self._call(
                "update_table",
                DatabaseName=self._database,
                TableInput=changed,
                SkipArchive=self._skip_archive,
                VersionId=version,
            )
        except self._glue.exceptions.ConcurrentModificationException as error:
            # The client repeats a request whose reply was lost: the conflict may then be with its own commit.
            location = self._now()
            if location != new.metadata_location:
                raise self._conflict(base.metadata_location, location) from error

    def insert(self, new: TableState) -> None:
        """Register the table, which the catalog must not have yet."""
        table = {
            "Name": self._table,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": _parameters(new, None),
            "StorageDescriptor": {
                "Columns": _columns(new.document.fields),
                "Location": new.document.fields.get("location"),
            },
        }
        try:
            self._call("create_table", DatabaseName=self._database, TableInput=table)
        except self._glue.exceptions.AlreadyExistsException as error:
            if self._now() != new.metadata_location:
                raise self._taken() from error

    def _now(self) -> str:
        return self._pointer(self._get().get("Parameters", {}))

    def _get(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._glue.get_table(DatabaseName=self._database, Name=self._table)["Table"]
        except self._glue.exceptions.EntityNotFoundException:
            raise FileNotFoundError(2, "the catalog has no such table", self.name) from None
        return found

    def _call(self, name: str, **arguments: Any) -> None:
        from botocore.exceptions import ClientError

        found = self._glue.exceptions
        self.sending()
        passing = (found.ConcurrentModificationException, found.AlreadyExistsException)
        try:
            getattr(self._glue, name)(**arguments)
        except passing:
            raise
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) < 500:
                raise RefusedError(f"{self.name}: Glue refused: {error}") from error
            raise


def _parameters(new: TableState, previous: str | None) -> dict[str, str]:
    found = {name: str(value) for name, value in properties_of(new.document.fields).items()}
    found |= {"table_type": "ICEBERG", LOCATION: new.metadata_location}
    return found if previous is None else found | {PREVIOUS: previous}


def _columns(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = []
    for each in columns_of(fields):
        column = {"Name": each.name, "Type": visit(each.field_type, _IcebergSchemaToGlueType())}
        columns.append(column if each.doc is None else {**column, "Comment": each.doc})
    return columns
