"""The interface of every catalog: load a table's state, commit a new one; and the shared parts of commits."""

from __future__ import annotations

import abc
import contextlib
import errno
import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ags1.errors import ConflictError, FormatError, UnsupportedError, without_secrets
from ags1.expected import NOTHING, Expected
from ags1.iceberg.catalogs.successor import NewMetadata, first, successor
from ags1.iceberg.configuration import configuration_fault
from ags1.iceberg.metadata.locations import TableLocations, io_properties_of, location_of, moved, rooted
from ags1.iceberg.metadata.metadata_document import (
    DATA_PATH,
    KEY_ID,
    MAX_DOCUMENT,
    Document,
    check_expected,
    current_of,
    directories_of,
    metadata_directory,
    metadata_document,
    properties_of,
)
from ags1.storage import Location, can_create, create, make_parent, open_output, read_whole, remove

_LOG = logging.getLogger(__name__)
LOCATION, PREVIOUS = "metadata_location", "previous_metadata_location"
"""Parameters of Hive and Glue for the location of a table's metadata file, and of the previous one."""


@dataclass(frozen=True)
class TableState:
    """The state of a table at one moment.

    Attributes
    ----------
    metadata_location : str
        Location of its metadata file.
    document : Document
        Its metadata.
    table_key_id : str or None
        The master key that the catalog itself stores; None if it stores none.
    metadata_hash : str or None
        The catalog's hash of the metadata file, already compared with the file.
    locations : tuple of str
        Directories that the catalog itself names for the table's files.
    """

    metadata_location: str
    document: Document
    table_key_id: str | None = None
    metadata_hash: str | None = None
    locations: tuple[str, ...] = ()


class CatalogTable(abc.ABC):
    """A table in a catalog. Not safe to share between threads; each thread can create its own.

    Attributes
    ----------
    name : str
        For messages.
    identifier : tuple of str or None
        Its name in the catalog; None without a catalog.
    io_properties : mapping
        Properties for PyIceberg's FileIO: those of the catalog, and those that it issued for the table.
    expected : Expected
        What the caller knows beforehand. Every state must be so; the caller's own commits change it.
    advanced : callable or None
        Called with each state that this object commits.
    has_metadata_files : bool
        Whether its metadata is what a client wrote into a file.
    """

    has_metadata_files = True

    name: str
    identifier: tuple[str, ...] | None = None
    io_properties: Mapping[str, str]
    expected = NOTHING
    advanced: Callable[[TableState], None] | None = None

    def expect(self, expected: Expected) -> None:
        """Set what the caller knows beforehand.

        Raises
        ------
        UnsupportedError
            The catalog's server writes the metadata, as in a REST catalog, so that there is no file to pin.
        """
        if expected.metadata_hash is not None and not self.has_metadata_files:
            raise UnsupportedError(
                f"{self.name}: the catalog's server writes the metadata of its tables, so its hash is not for clients "
                "to pin"
            )
        self.expected = expected

    def place(self, path: str) -> Location:
        """Return where a file is that the table names."""
        return location_of(moved(path, self.expected.moved_from), self.io_properties)

    def places(self, state: TableState) -> TableLocations:
        """Return the directories that the table's files may be in."""
        found = TableLocations(self.expected.allowed_locations, self.expected.moved_from)
        found.add(state.metadata_location, state.locations)
        return found

    def load(self) -> TableState:
        """Read the table's newest state.

        Raises
        ------
        FileNotFoundError
            The catalog has no such table.
        AuthenticationError
            The metadata file is not the one that the catalog names, or that is expected.
        KeyAccessError
            The table is under another master key than expected.
        FormatError, OSError
            The metadata file, or the catalog, cannot be read.
        """
        state = self._load()
        where = state.metadata_location
        check_expected(self.expected, where if self.identifier is None else f"{self.name} ({where})", state.document)
        return state

    @abc.abstractmethod
    def _load(self) -> TableState:
        """Read the newest state, and compare it with what the catalog itself stores."""

    @abc.abstractmethod
    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        """Make `fields` the table's metadata, if no other commit was made since `base`.

        Parameters
        ----------
        base : TableState
            From :meth:`load` or an earlier commit.
        fields : mapping
            The complete new metadata, made from that of `base`. The metadata log and the time of the update are added.

        Raises
        ------
        ConflictError
            Another writer has committed since. The files of this commit are removed.
        UnsupportedError
            The catalog would lose a part of it; or it names a location, of the table or of its files, that neither the
            catalog nor the caller allows. The table is unchanged.
        OSError
            The catalog or the storage failed. The message says if it is unknown whether the commit was made.
        """

    @abc.abstractmethod
    def create(self, fields: Mapping[str, Any]) -> TableState:
        """Create a table of this name with this metadata.

        Raises
        ------
        FileExistsError
            The name is taken.
        UnsupportedError, OSError
            As :meth:`commit`.
        """

    def refuse_taken(self) -> None:
        """Raise the FileExistsError of :meth:`create` now if the name is taken, before anything is written."""
        try:
            self._load()
        except FileNotFoundError:
            return
        raise self._taken()

    @abc.abstractmethod
    def check_can_encrypt(self) -> None:
        """Raise an UnsupportedError, which says what to do, if this catalog cannot hold an encrypted table."""

    def refuse_copy(self, state: TableState) -> None:  # noqa: B027
        """Refuse to change the copy of a table that is elsewhere. A catalog says itself where its tables are."""

    def check_newest(self, state: TableState) -> None:  # noqa: B027
        """Refuse a state that may not be the newest: files that only a newer state names must not be removed.

        Raises
        ------
        ConflictError
            There is a newer state. A catalog knows the newest one.
        """

    def _committed(self, state: TableState, fields: Mapping[str, Any]) -> TableState:
        """Log a commit of `fields`, and expect its state from now on; return the state."""
        self.expected = self.expected.after(properties_of(fields).get(KEY_ID), state.document.hash)
        if self.advanced is not None:
            self.advanced(state)
        _LOG.info("%s: committed %s, with the hash %s", self.name, state.metadata_location, state.document.hash)
        return state

    def _conflict(self, base: str, found: str) -> ConflictError:
        return ConflictError(
            f"{self.name}: another writer has committed meanwhile: the table has {found} now, and this commit was made "
            f"from {base}. Nothing was committed: load the table and do it again"
        )

    def _taken(
        self, said: str = "the catalog has something of this name already: choose another, or drop that"
    ) -> OSError:
        return TakenError(errno.EEXIST, said, self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class RefusedError(OSError):
    """A catalog refused a commit, so nothing was changed."""


class TakenError(RefusedError, FileExistsError):
    """There is a table of this name, so none was made."""


# Catalog classes are matched by name: their modules need packages that may not be installed.
_KINDS = {
    "builtins.NoneType": ("ags1.iceberg.catalogs.file", "FileTable"),
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
        if not isinstance(identifier, str):
            raise ValueError(f"without a catalog a table is a path or URL, not {identifier!r}")
        found: CatalogTable = _class_for(type(None))(identifier, properties)
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
    kind = _class_for(type(catalog))
    name = tuple(catalog.identifier_to_tuple(identifier))
    if len(name) < 2 or not all(name):
        raise ValueError(f"{without_secrets(repr(identifier))} is no name of a table: write NAMESPACE.TABLE")
    made: CatalogTable = kind(catalog, name, {**catalog.properties, **properties})
    return made


def _class_for(catalog: type) -> Any:
    """Return the class of the tables of a class of catalogs."""
    for each in catalog.__mro__:
        found = _KINDS.get(f"{each.__module__}.{each.__qualname__}")
        if found is not None:
            return getattr(importlib.import_module(found[0]), found[1])
    raise UnsupportedError(
        f"{catalog.__name__} is no catalog that can be committed to here: these are PyIceberg's HiveCatalog, "
        "GlueCatalog, SqlCatalog and RestCatalog, or None with a metadata file"
    )


class PointerTable(CatalogTable):
    """A table in a catalog that stores the metadata file's location: the file is written first, then the location."""

    identifier: tuple[str, ...]
    _sent = False

    def __init__(self, catalog: Any, identifier: tuple[str, ...], io_properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self.identifier = identifier
        self.name = ".".join(identifier)
        self.io_properties = io_properties

    def check_can_encrypt(self) -> None:
        """Do nothing: the metadata file has everything that an encrypted table needs."""

    @abc.abstractmethod
    def swap(self, base: TableState, new: TableState) -> None:
        """Replace the location in the catalog by a new one, if it is still the old one.

        Raises
        ------
        ConflictError
            The catalog has another location. Nothing was changed.
        RefusedError
            The catalog refused. Nothing was changed.
        Exception
            Any other: it is unknown what happened.
        """

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        # The catalog vouches for what it stores of these, so none may be the word of the metadata file alone.
        places, properties = self.places(base), properties_of(fields)
        for each in (metadata_directory(fields), fields.get("location"), properties.get(DATA_PATH)):
            if each:
                places.check(f"{str(each).rstrip('/')}/new")
        with self._written(fields, successor(base.metadata_location, base.document.fields, fields)) as new:
            self.swap(base, new)
        return self._committed(replace(new, locations=base.locations), fields)

    @abc.abstractmethod
    def insert(self, new: TableState) -> None:
        """Put a new table into the catalog; raises as :meth:`swap`, a FileExistsError if the name is taken."""

    def create(self, fields: Mapping[str, Any]) -> TableState:
        with self._written(fields, first(fields)) as new:
            self.insert(new)
        return self._committed(new, fields)

    def _pointer(self, parameters: Mapping[str, Any]) -> str:
        """Return the location of the metadata file from a catalog's parameters of a table."""
        location = parameters.get(LOCATION)
        if str(parameters.get("table_type", "")).upper() != "ICEBERG" or not location:
            raise FormatError(f"{self.name}: the catalog has something of this name that is no Iceberg table")
        return str(location)

    def sending(self) -> None:
        """Note that the request for the commit is sent now."""
        self._sent = True

    def state_of(self, location: str, written: NewMetadata) -> TableState:
        """Return the state after a commit; the catalog adds the master key and hash that it stores."""
        return TableState(location, written.document)

    @contextlib.contextmanager
    def _written(self, fields: Mapping[str, Any], metadata: NewMetadata) -> Iterator[TableState]:
        """Write a metadata file for a commit in the body. It is removed if the commit was refused, or not tried.

        After a failure with an unknown result, the table is loaded from the catalog. If the file is not the table's, it
        is kept, because the request may still be under way, and an OSError says so.
        """
        location = f"{metadata_directory(fields)}/{metadata.name}"
        where = location_of(location, self.io_properties)
        where = rooted(where, directories_of(fields)) or where
        write_metadata(where, metadata.data)
        self._sent = False
        try:
            yield self.state_of(location, metadata)
        except BaseException as error:
            if not self._sent or isinstance(error, (ConflictError, RefusedError)):
                with contextlib.suppress(OSError):
                    # It is harmless if it stays: nothing names it.
                    remove([where])
                raise
            if not isinstance(error, Exception):
                raise
            try:
                if self._became(location):
                    return
                then = "the table does not have it"
            except Exception as second:
                then = f"could not be asked then ({_said(second)})"
            raise OSError(
                f"{self.name}: it is not known whether the commit of {where} is made: the catalog failed "
                f"({_said(error)}), and {then}. The file was kept: load the table later, and look whether its metadata "
                "log has it, before doing it again"
            ) from error

    def _became(self, location: str) -> bool:
        """Return whether a metadata file is or was the table's."""
        try:
            found = self._load()
        except FileNotFoundError:
            return False
        log = found.document.fields.get("metadata-log") or ()
        return found.metadata_location == location or any(
            isinstance(each, dict) and each.get("metadata-file") == location for each in log
        )


def read_state(location: str, io_properties: Mapping[str, str]) -> TableState:
    """Read a metadata file; raises as :func:`metadata_document`, or an OSError."""
    where = location_of(location, io_properties)
    try:
        data = bytes(read_whole(where, MAX_DOCUMENT))
    except FileNotFoundError as error:
        if not where.is_local:
            raise
        text = "there is no such metadata file"
        if not os.path.isabs(where.path):
            text += (
                f": the location is relative, and means {os.path.abspath(where.path)} here: say it from the directory "
                "that the catalog's locations are relative to"
            )
        raise FileNotFoundError(errno.ENOENT, text, where.shown) from error
    return TableState(location, metadata_document(location, data))


def write_metadata(where: Location, data: bytes) -> None:
    """Write a metadata file under a unique name; an OSError if the file exists."""
    make_parent(where)
    if can_create(where):
        create(where, data)
        return
    with open_output(where) as output:
        output.write(data)
        output.commit(durable=True)


def _said(error: BaseException) -> str:
    text = str(error).splitlines()
    return without_secrets(f"{type(error).__name__}: {text[0] if text else ''}")[:300]


def columns_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return PyIceberg's fields of the table's current schema, for catalogs that show columns to others."""
    from pyiceberg.schema import Schema

    from ags1.iceberg.metadata.pyiceberg_view import without_variants

    return Schema.model_validate(without_variants(current_of(fields, "schemas"))).fields
