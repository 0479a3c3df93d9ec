"""A table that only its own commits change: the hash of its metadata file is known from elsewhere."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

from ags1.errors import AuthenticationError, UnsupportedError
from ags1.iceberg.catalogs._table import CatalogTable, TableState
from ags1.iceberg.metadata.metadata_document import check_hash


class PinnedTable(CatalogTable):
    """A table whose state must be the pinned one, or that of a commit by this object on top of it.

    Attributes
    ----------
    metadata_hash : str
        Hash of the metadata file that the table must have now.

    Parameters
    ----------
    table : CatalogTable
    metadata_hash : str
        From :attr:`EncryptedTable.metadata_hash` or a report.
    advanced : callable, optional
        Called with each state that this object commits.

    Raises
    ------
    ValueError
        `metadata_hash` is not a hash.
    UnsupportedError
        The catalog's server writes the metadata, as in a REST catalog, so that there is no file to pin.
    """

    def __init__(
        self, table: CatalogTable, metadata_hash: str, advanced: Callable[[TableState], None] | None = None
    ) -> None:
        self.metadata_hash = check_hash(metadata_hash)
        if not table.has_metadata_files:
            raise UnsupportedError(
                f"{table.name}: the catalog's server writes the metadata of its tables, so its hash is not for clients "
                "to pin"
            )
        self._table, self._advanced = table, advanced
        self.name, self.identifier = table.name, table.identifier

    @property
    def io_properties(self) -> Mapping[str, str]:  # type: ignore[override]
        """Properties for PyIceberg's FileIO, which a catalog may renew."""
        return self._table.io_properties

    def load(self) -> TableState:
        """Read the newest state; an AuthenticationError says that it is not the pinned one."""
        state = self._table.load()
        if not hmac.compare_digest(state.file_hash, self.metadata_hash):
            raise AuthenticationError(
                f"{state.metadata_location}: has the hash {state.file_hash}, and {self.metadata_hash} is pinned for "
                f"{self.name}: another writer has committed to the table, or changed or put back a file of it. If that "
                "is meant to be, pin the hash that it has now"
            )
        return state

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        """Commit on top of the pinned state, and pin the result."""
        new = self._table.commit(base, fields)
        self.metadata_hash = new.file_hash
        if self._advanced is not None:
            self._advanced(new)
        return new

    def create(self, fields: Mapping[str, Any]) -> TableState:
        """Raise a TypeError: what is pinned is there."""
        raise TypeError(f"{self.name}: a table that is pinned cannot be created")

    def check_can_encrypt(self) -> None:
        """Do as the table in its catalog does."""
        self._table.check_can_encrypt()

    def check_key_id(self, before: Mapping[str, Any], fields: Mapping[str, Any], *, is_brief: bool) -> None:
        """Do as the table in its catalog does."""
        self._table.check_key_id(before, fields, is_brief=is_brief)

    def refuse_copy(self, state: TableState) -> None:
        """Do as the table in its catalog does."""
        self._table.refuse_copy(state)

    def check_newest(self, state: TableState) -> None:
        """Do as the table in its catalog does."""
        self._table.check_newest(state)
