"""PyIceberg's SQL catalog: one row with the metadata file's location, replaced if it still has the old value."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ags1.errors import FormatError
from ags1.iceberg.catalogs._table import PointerTable, RefusedError, TableState, read_state


class SqlTable(PointerTable):
    """A table of PyIceberg's SQL catalog: a commit is one UPDATE that names the metadata file it replaces."""

    def _load(self) -> TableState:
        return read_state(self._location(), self.io_properties)

    def swap(self, base: TableState, new: TableState) -> None:
        """Put the new metadata file in place of ``base``, if that is still the current one."""
        statement = (
            update(IcebergTables)
            .where(*self._row(), IcebergTables.metadata_location == base.metadata_location)
            .values(metadata_location=new.metadata_location, previous_metadata_location=base.metadata_location)
        )
        with self._catalog.engine.connect() as connection:
            try:
                found = connection.execute(statement).rowcount
            except SQLAlchemyError as error:
                # Nothing changes before the database's commit.
                raise RefusedError(f"{self.name}: the catalog's database refused the commit: {error}") from error
            if found == 1:
                self.sending()
                connection.commit()
                return
            connection.rollback()
        raise self._conflict(base.metadata_location, self._location())

    def insert(self, new: TableState) -> None:
        """Register the table, which the catalog must not have yet."""
        if not self._catalog.namespace_exists(self.identifier[:-1]):
            raise RefusedError(f"{self.name}: the catalog has no such namespace: create it first")
        row = self._catalog._create_table_row(
            ".".join(self.identifier[:-1]), self.identifier[-1], new.metadata_location
        )
        with self._catalog.engine.connect() as connection:
            try:
                connection.execute(insert(IcebergTables).values(**row))
            except IntegrityError as error:
                raise self._taken() from error
            except SQLAlchemyError as error:
                raise RefusedError(f"{self.name}: the catalog's database refused the table: {error}") from error
            self.sending()
            connection.commit()

    def _location(self) -> str:
        with self._catalog.engine.connect() as connection:
            row = connection.execute(select(IcebergTables.metadata_location).where(*self._row())).first()
        if row is None:
            others = _other_catalogs(self._catalog)
            raise FileNotFoundError(2, f"the catalog has no such table{others}", self.name)
        if not row[0]:
            raise FormatError(f"{self.name}: the catalog has no metadata file for this name")
        return str(row[0])

    def _row(self) -> tuple[Any, ...]:
        return (
            IcebergTables.catalog_name == self._catalog.name,
            IcebergTables.table_namespace == ".".join(self.identifier[:-1]),
            IcebergTables.table_name == self.identifier[-1],
        )


def _other_catalogs(catalog: Any) -> str:
    """Which other catalogs have tables in the same database, in words: only the name tells them apart."""
    with catalog.engine.connect() as connection:
        names = {row[0] for row in connection.execute(select(IcebergTables.catalog_name).distinct())}
    others = ", ".join(sorted(names - {catalog.name}))
    return f", under the name {catalog.name!r}; its database has tables of {others}" if others else ""
