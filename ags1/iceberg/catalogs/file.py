"""A table without a catalog: the newest metadata file is its state, and a commit creates the next one.

    00007-UUID.metadata.json  -->  00008-UUIDv5(name of the file before).metadata.json      v7  -->  v8

The name of the next file follows from the name of the file before, so two commits from one state use the same name, and
create-if-absent lets only one succeed. A Hadoop catalog's names have the same property.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ags1.errors import ConflictError, FormatError, UnsupportedError
from ags1.iceberg.catalogs._table import CatalogTable, RefusedError, TableState, read_state
from ags1.iceberg.catalogs.successor import NewMetadata, directory_of, successor
from ags1.iceberg.metadata.locations import local_path, location_of, refuse_change, rooted, table_of
from ags1.iceberg.metadata.metadata_document import MAX_DOCUMENT as MAX_DOCUMENT
from ags1.iceberg.metadata.metadata_document import (
    METADATA_SUFFIX,
    VERSION_HINT,
    directories_of,
    is_compressed,
    is_metadata_file,
    not_understood,
    number_in,
    version_of,
)
from ags1.storage import Location, can_create, create, is_directory, list_names, make_parent, open_output, read_whole
from ags1.storage.location import shown

_NAMES = uuid.UUID("6a0f3f4e-6f0b-5d0a-9a49-1d7f5a9f0c77")


class FileTable(CatalogTable):
    """A table given by the path or URL of a metadata file or of its directory.

    Given a file, the state is that file, or the last commit on top of it by this object. Given a directory, the state
    is the file with the highest number; a FormatError if there are two.
    """

    def __init__(self, identifier: str, io_properties: Mapping[str, str]) -> None:
        self._place = identifier
        self.name = shown(identifier)
        self.io_properties = io_properties
        self._start = identifier if is_metadata_file(identifier) else None

    def _load(self) -> TableState:
        """Read the newest metadata file."""
        if self._start is None:
            return read_state(newest_metadata(self._place, self.io_properties), self.io_properties)
        location = self._start
        directory = directory_of(location)
        names = set(_names(directory, self.io_properties))
        while version_of(location) is not None and (after := next_name(location)) in names:
            location = f"{directory}/{after}"
        self._start = location
        return read_state(location, self.io_properties)

    def commit(self, base: TableState, fields: Mapping[str, Any]) -> TableState:
        """Create the next metadata file."""
        self.refuse_copy(base)
        old = base.metadata_location
        name = next_name(old)
        self.check_newest(base)
        spelled = as_the_table_spells_it(old, base.document.fields)
        written = successor(spelled, base.document.fields, fields, name=name)
        directory = directory_of(spelled)
        location = f"{directory}/{written.name}"
        where = self._own(location, (*directories_of(fields), table_of(location)))
        _require_create(where)
        self._create(where, written.data, old, self._conflict(old, location))
        self._tell_hint(where)
        return self._committed(TableState(location, written.document), fields)

    @property
    def _metadata(self) -> str:
        return f"{self._place.rstrip('/')}/metadata"

    def refuse_taken(self) -> None:
        """Refuse a directory with a metadata file."""
        if any(map(is_metadata_file, _names(self._metadata, self.io_properties))):
            raise self._taken("there is a table already: choose another directory")

    def create(self, fields: Mapping[str, Any]) -> TableState:
        """Write the first metadata file, if there is none."""
        if self._start is not None:
            raise ValueError(f"{self.name}: a new table is made in a directory, not in a metadata file")
        self.refuse_taken()
        place = self._metadata
        # Every writer uses the same name here, so only one can create the table.
        written = NewMetadata(fields, _named(0, "", METADATA_SUFFIX))
        location = f"{place}/{written.name}"
        where = self._own(location, [self._place])
        _require_create(where)
        make_parent(where)
        taken = self._taken("another writer has made a table meanwhile: choose another directory")
        self._create(where, written.data, "nothing", taken)
        return self._committed(TableState(location, written.document), fields)

    def check_can_encrypt(self) -> None:
        """Refuse storage without create-if-absent, and the copy of another table."""
        refuse_change(self.name, self.expected.moved_from)
        _require_create(location_of(self._start or self._place, self.io_properties))

    def refuse_copy(self, state: TableState) -> None:
        """Refuse to change the copy of a table elsewhere, whose files name each other there."""
        refuse_change(self.name, self.expected.moved_from)
        places = self.places(state)
        places.believe(state.document.fields)
        places.refuse_change(self.name)

    def check_newest(self, state: TableState) -> None:
        """Refuse a metadata file beside which there is one with a higher number."""
        location = state.metadata_location
        number = version_of(location) or 0
        directory = directory_of(location)
        names = {*_names(directory, self.io_properties)} - {location.rpartition("/")[2]}
        hinted = _hinted(directory, names, self.io_properties)
        newer = [*_doubtful(names, hinted, number), *sorted(each for each in names if (version_of(each) or 0) > number)]
        if newer:
            raise ConflictError(
                f"{self.name}: beside {location} there is {newer[-1]}, with a higher number: another writer has "
                "committed, or a commit to a catalog was given up. Nothing was committed: load the table and do it "
                "again, or take that file away if no catalog has it"
            )

    def _create(self, where: Location, data: bytes, old: str, taken: Exception) -> None:
        """Create a metadata file; raise `taken` if there is one of its name."""
        try:
            create(where, data)
        except FileExistsError:
            raise taken from None
        except OSError as error:
            self._look_after(error, where, data, old)

    def _look_after(self, error: OSError, where: Location, data: bytes, old: str) -> None:
        """Return if a failed creation succeeded nevertheless."""
        try:
            if bytes(read_whole(where, MAX_DOCUMENT)) == data:
                return
        except (FileNotFoundError, NotADirectoryError):
            if where.is_local:
                # The file does not exist, also not where a link leads, so the files of this commit may be removed.
                raise RefusedError(error.errno, error.strerror, where.path) from error
        except (OSError, FormatError):
            pass
        else:
            raise self._conflict(old, where.shown) from error
        raise OSError(
            f"{self.name}: it is not known whether {where} was created ({error}): load the table before doing it again"
        ) from error

    def _own(self, path: str, directories: Iterable[str]) -> Location:
        where = location_of(path, self.io_properties)
        return rooted(where, directories) or where

    def _tell_hint(self, where: Location) -> None:
        if where.name.startswith("v"):
            # Readers also look for numbers above the hint's.
            with contextlib.suppress(OSError), open_output(where.beside(VERSION_HINT)) as output:
                output.write(str(version_of(where.name)).encode("ascii"))
                output.commit()


def newest_metadata(directory: str, io_properties: Mapping[str, str] | None = None) -> str:
    """Return the metadata file with the highest number, in a table's directory or in ``metadata/`` below it.

    Raises
    ------
    FileNotFoundError
        The directory does not exist, or has no metadata file.
    FormatError
        Two files have this number, as after two commits at once to a catalog, of which one lost. Or the newest state
        seems to be in a file whose form is not known, or that is missing.
    """
    found = newest_files(directory, io_properties)
    if len(found) > 1:
        names = [each.rpartition("/")[2] for each in found]
        raise FormatError(
            f"{directory_of(found[0])} has {len(found)} metadata files of the number {version_of(names[0])}, as after "
            f"a commit that lost against another: name the one that the catalog has, {' or '.join(names)}"
        )
    return found[0]


def newest_files(directory: str, io_properties: Mapping[str, str] | None = None) -> list[str]:
    """Return all metadata files with the highest number, as :func:`newest_metadata`; it has the errors, too."""
    properties = io_properties or {}
    place = directory.rstrip("/") or "/"
    for each in (f"{place.rstrip('/')}/metadata", place):
        listed = _names(each, properties)
        if (hinted := _hinted(each, listed, properties)) >= 0:
            # Again: a commit writes the hint last.
            listed = _names(each, properties)
        versions = {name: version for name in listed if (version := version_of(name)) is not None}
        newest = max(versions.values(), default=-1)
        names = sorted(name for name, version in versions.items() if version == newest)
        if doubtful := _doubtful(listed, hinted, newest):
            raise FormatError(
                f"{each}/{doubtful[-1]} is or names a state of the table that is not known here, and seems newer than "
                f"{' or '.join(names) or 'all others'}: give the metadata file that is the newest, or take that file "
                "away if it is of no use"
            )
        if names:
            return [f"{each}/{name}" for name in names]
    where = location_of(place, properties)
    if where.is_local and not is_directory(where):
        raise FileNotFoundError(2, "there is no such metadata file or directory", shown(directory))
    raise FileNotFoundError(
        2,
        f"there are no metadata files in {shown(directory)}, nor in metadata/ below it: they have names such as "
        f"00007-...{METADATA_SUFFIX}",
        shown(directory),
    )


def _require_create(where: Location) -> None:
    if not can_create(where):
        raise UnsupportedError(
            f"{where}: this storage cannot create a file only if it is absent, so that of two commits at once one "
            "would be lost: use a catalog, S3, GCS, Azure, or a local file system with hard links"
        )


def _names(directory: str, io_properties: Mapping[str, str]) -> list[str]:
    location = location_of(directory, io_properties)
    try:
        return list_names(location)
    except (FileNotFoundError, NotADirectoryError):
        if location.is_object:
            # The bucket does not exist.
            raise
        return []


def _doubtful(names: Iterable[str], hinted: int, number: int) -> list[str]:
    return [*([VERSION_HINT] if hinted > number else []), *not_understood(names, number)]


def _hinted(directory: str, names: Iterable[str], io_properties: Mapping[str, str]) -> int:
    """Return the number that a directory's version hint names; -1 if there is none."""
    if VERSION_HINT not in names:
        return -1
    try:
        text = bytes(read_whole(location_of(f"{directory}/{VERSION_HINT}", io_properties), 1 << 16))
    except FileNotFoundError:
        # It is being replaced.
        return -1
    named = text.decode("utf-8", "replace").strip().rpartition("/")[2]
    return -1 if (found := number_in(named)) is None else found


def has_no_catalog(location: str, fields: Mapping[str, Any]) -> bool:
    """Whether all metadata files that a table names, and its own at `location`, have names that no catalog gives."""
    before = [str(each.get("metadata-file")) for each in fields.get("metadata-log") or () if isinstance(each, dict)]
    names = [each.rpartition("/")[2] for each in (*before, location)]
    first = names[0] == _named(0, "", METADATA_SUFFIX) or names[0].startswith("v")
    # A log has a limited length, and then begins with a later name.
    return (first or len(names) > 2) and all(
        version_of(one) is not None and next_name(one) == other for one, other in pairwise(names)
    )


def next_name(location: str) -> str:
    """Return the name of the metadata file after another one; a FormatError if that name has no number."""
    name = location.rpartition("/")[2]
    version = version_of(name)
    if version is None:
        raise FormatError(
            f"{location}: the name of this metadata file has no number, such as 00007-...{METADATA_SUFFIX}, so the "
            "next one cannot be named"
        )
    if name.startswith("v"):
        return f"v{version + 1}{_suffix(name)}"
    return _named(version + 1, name, name)


def _named(version: int, before: str, like: str) -> str:
    return f"{version:05d}-{uuid.uuid5(_NAMES, before)}{_suffix(like)}"


def _suffix(name: str) -> str:
    # The suffix of the file before: otherwise commits with different compression would have different names.
    return f".gz{METADATA_SUFFIX}" if is_compressed(name) else METADATA_SUFFIX


def as_the_table_spells_it(location: str, fields: Mapping[str, Any]) -> str:
    """Return the location as the table's metadata spells it: a path may be ``file:/...`` there."""
    path = local_path(location)
    if path is None:
        return location
    directory = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    name = os.path.basename(path)
    log, table = fields.get("metadata-log"), fields.get("location")
    files = [each.get("metadata-file") for each in log if isinstance(each, dict)] if isinstance(log, list) else []
    known = [directory_of(each) for each in files if isinstance(each, str)][-1:]
    for spelled in (*known, *([f"{table.rstrip('/')}/metadata"] if isinstance(table, str) else [])):
        other = local_path(spelled)
        if other is not None and os.path.realpath(other) == directory:
            return f"{spelled}/{name}"
    return location if location.startswith("file:") else os.path.abspath(location)
