"""What the actions of ``ags1 iceberg`` share: which metadata file is meant, its FileIO, the KMS and pins."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ags1.cli.command import Command, Positional, command
from ags1.cli.output import warn
from ags1.cli.table import TABLE_HELP
from ags1.cli.values import directory, is_secret_name
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.storage import no_pins, read_pins, write_pins
from ags1.support.exit_codes import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg.catalogs import CatalogTable, TableState
    from ags1.iceberg.files.file_io import EncryptedFileIO

CONVERSION = "catalog KMS PINNED allow-location property"
CATALOG_ON_SPARK = {"catalog": "a catalog of PyIceberg's configuration on the driver, not the session's"}
NAME_ON_SPARK = "its name in the session's SQL, CATALOG.NAMESPACE.TABLE; with --catalog its name there"
_PACKAGES = ("pyiceberg", "pyarrow", "fastavro", "pyroaring")
_SHOWN_WARNINGS = 20


def table_command(options: str, *, epilog: str = "", **settings: Any) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command of ``ags1 iceberg``; its first parameter is the table, with these options.

    The command says first which extra is missing, if one is.
    """
    text = "its metadata.json or directory, a path or URL; with --catalog its name"
    place = Positional("TABLE", text, dest="table", type=directory)

    def made(function: Callable[..., int]) -> Command:
        @functools.wraps(function)
        def run(where: Namespace, **others: Any) -> int:
            for package in _PACKAGES:
                try:
                    found = importlib.util.find_spec(package)
                except ValueError:
                    found = None
                if found is None:
                    raise ImportError(f"Iceberg tables need {package}: pip install 'ags1[iceberg]'", name=package)
            return function(where, **others)

        return command(where=(place, options), epilog=TABLE_HELP + epilog, **{"subject": "location"} | settings)(run)

    return made


class Opened:
    """The location of a metadata file, what opens the table's files, the KMS client, and what commits a change."""

    def __init__(self, location: str, file_io: EncryptedFileIO, kms: Any, target: CatalogTable) -> None:
        self.location = location
        self.io = file_io
        self.kms = kms
        self.target = target

    def require_kms(self) -> None:
        """Refuse to go on without a KMS, where the metadata promises encryption."""
        from ags1.iceberg.metadata.metadata_document import claims_encryption

        if self.kms is None and claims_encryption(self.io.read_metadata(self.location).fields):
            raise KeyAccessError(
                "a KMS is needed for the table's keys: --kms URL or the variable AGS1_KMS, such as local:keys.json or "
                "aws:?region=eu-central-1"
            )


@contextlib.contextmanager
def opened(where: Namespace, said: Namespace) -> Iterator[Opened]:
    """The table that the options name; its client is closed at the end. A copy is refused, unless it is only read."""
    from ags1.cli.kms.clients import client_of
    from ags1.iceberg.files.file_io import EncryptedFileIO, file_io_at

    with contextlib.ExitStack() as stack:
        client: Any = None
        if getattr(where, "kms", None):
            client = stack.enter_context(client_of(where))
        target, location, state = _target(where, said)
        if state is None and not hasattr(where, "moved_from"):
            # What only reads takes --moved-from.
            target.refuse_copy(target.load())
        if getattr(where, "pin", None) is not None:
            state = target.load()
            location = state.metadata_location
        # Without a pin, any metadata file of a directory may be read by its hash, not only the newest.
        file_io = (
            EncryptedFileIO(target.io_properties, kms=client, expected=target.expected)
            if state is None
            else file_io_at(state, target.io_properties, client, target.expected)
        )
        stack.enter_context(warnings_as_lines())
        yield Opened(location, file_io, client, target)


def wanted_snapshots(where: Namespace, table: Opened) -> Any:
    """The snapshots whose files are wanted: an id, "all", or None for the current one."""
    if where.ref is not None:
        return table.io.read_metadata(table.location).snapshots().of_ref(where.ref)
    return where.snapshot_id


def properties_of(where: Namespace) -> dict[str, str]:
    """What --property says for PyIceberg's FileIO; UsageError for a secret in sight of every user of the machine."""
    found: dict[str, str] = {}
    for text in where.property:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("--property needs NAME=VALUE, such as s3.endpoint=https://...")
        if name.startswith("ags1."):
            raise UsageError(f"--property {name}: there are options for what begins with ags1.")
        if value.startswith("env:"):
            variable = value.removeprefix("env:")
            if variable not in os.environ:
                raise KeyAccessError(f"--property {name}: the environment variable {variable} is not set")
            value = os.environ[variable]
        elif is_secret_name(name):
            raise UsageError(
                f"--property {name}: other users could read a secret in the arguments; say {name}=env:NAME, with the "
                "name of an environment variable"
            )
        found[name] = value
    return found


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings about lengths that nothing authenticates as this command shows warnings, each file's once."""
    import warnings

    from ags1.iceberg.files.file_io import UntrustedLengthWarning

    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *args: Any, **named: Any) -> None:
        if not issubclass(category, UntrustedLengthWarning):
            usual(message, category, *args, **named)
            return
        text = str(message)
        if text not in seen:
            seen.add(text)
            if len(seen) <= _SHOWN_WARNINGS:
                warn(f"ags1: warning: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UntrustedLengthWarning)
        usual = warnings.showwarning
        warnings.showwarning = show
        try:
            yield
        finally:
            if len(seen) > _SHOWN_WARNINGS:
                warn(f"ags1: warning: {len(seen) - _SHOWN_WARNINGS:,} more files without a trusted length")


# -- which metadata file -------------------------------------------------------------------------------------------


def _target(where: Namespace, said: Namespace) -> tuple[CatalogTable, str, TableState | None]:
    """The table in its catalog, the location of its metadata file, and what a catalog has loaded."""
    from ags1.expected import Expected
    from ags1.iceberg.catalogs import catalog_table
    from ags1.iceberg.metadata.locations import io_properties_of, moving

    catalog, moved_from = catalog_of(where), getattr(where, "moved_from", None)
    expected = Expected(
        getattr(where, "table_key_id", None) or None,
        getattr(where, "metadata_hash", None),
        getattr(where, "allow_plaintext", False),
        getattr(where, "length_policy", "trusted"),
        where.allowed_locations,
    )
    if catalog is None:
        properties = io_properties_of(properties_of(where))
        location = _location(where.table, properties, said)
        expected = replace(expected, moved_from=moving(moved_from, location))
        found = catalog_table(None, location, storage_options=properties, expected=expected)
        return pinned(where, found), location, None
    if moved_from is not None:
        raise UsageError("--moved-from is for a copy that is given by its path: without --catalog")
    target = pinned(where, catalog_table(catalog, where.table, expected=expected))
    state = target.load()
    return target, state.metadata_location, state


def catalog_of(where: Namespace) -> Any:
    """The catalog that --catalog names, None without it; ValueError for a property that would have no effect."""
    if where.catalog is None:
        return None
    from ags1.iceberg.catalogs import loaded
    from ags1.iceberg.metadata.locations import check_catalog_properties

    properties = properties_of(where)
    check_catalog_properties(properties)
    return loaded(where.catalog, **properties)


def refuse_name(place: str, option: str) -> None:
    """Refuse what is a table's name in a catalog where a new directory is to be; `option` names the catalog."""
    if "/" not in place and "." in place.strip(".") and not os.path.lexists(place):
        raise UsageError(
            f"{place} looks like the name of a table in a catalog: give {option}; for a new directory say ./{place}"
        )


def _location(table: str, properties: dict[str, str], said: Namespace) -> str:
    from ags1.iceberg.catalogs.file import newest_metadata
    from ags1.iceberg.metadata.locations import local_path
    from ags1.iceberg.metadata.metadata_document import METADATA_SUFFIX, is_metadata_file

    if is_metadata_file(table):
        return table
    path = local_path(table)
    if path is not None and os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(
            f"{table}: the name of a metadata file ends with {METADATA_SUFFIX}; TABLE is one of those, or the "
            "directory of a table"
        )
    try:
        newest = newest_metadata(table, properties)
    except FormatError as error:
        raise UsageError(str(error)) from error
    except FileNotFoundError as error:
        if "/" in table:
            raise
        raise FileNotFoundError(2, f"{error.strerror}; for a table of a catalog, give --catalog", table) from None
    if not getattr(said, "quiet", False):
        warn(f"ags1: note: {newest} is the newest there by its number; a catalog may have another (--catalog NAME)")
    return newest


_FIELDS = ("metadata_hash", "metadata_location", "table_uuid")


def pinned(where: Namespace, target: CatalogTable) -> CatalogTable:
    """The table, with the pin of ``--pin FILE``, which follows its commits.

    UsageError: the file lies in the table. FormatError: it holds no pin, or others can write it. AuthenticationError:
    the table is not as it was.
    """
    path, wanted = getattr(where, "pin", None), target.expected.metadata_hash
    if path is None:
        if getattr(where, "repin", False):
            raise UsageError("--repin is for the file of --pin")
        return target
    if wanted is not None:
        target.expect(replace(target.expected, metadata_hash=None))
    state = target.load()
    _refuse_inside(path, target, state)
    known = None if where.repin else _load(path)
    if known is None:
        if wanted is None:
            warn(f"ags1: warning: {path} now pins what was found, without a check: {state.metadata_location}")
        known = state.document.hash
    target.expect(replace(target.expected, metadata_hash=known if wanted is None else wanted))
    target.advanced = partial(_save, path)
    try:
        state = target.load()
    except AuthenticationError as error:
        named = "" if where.catalog is None else f" --catalog {shlex.quote(where.catalog)}"
        command = f"ags1 iceberg inspect {shlex.quote(where.table)}{named} --pin {shlex.quote(path)} --repin"
        raise AuthenticationError(
            f"{error}. If others committed, and nobody put an older state back, `{command}` accepts what is there"
        ) from None
    _save(path, state)
    return target


def _refuse_inside(path: str, target: CatalogTable, state: TableState) -> None:
    from ags1.errors import UnsupportedError
    from ags1.storage import Location

    if not Location(path).is_local:
        raise UsageError(f"--pin {path}: pins are kept in a file of this machine")
    try:
        target.places(state).check(os.path.abspath(path))
    except UnsupportedError:
        return
    raise UsageError(
        f"--pin {path} lies in the table, where whoever can replace that can replace it too: name another place"
    )


def _load(path: str) -> str | None:
    try:
        fields = read_pins(path, "table")
    except FileNotFoundError:
        return None
    if not all(isinstance(fields.get(name), str) for name in _FIELDS):
        raise no_pins(path, "table")
    found: str = fields[_FIELDS[0]]
    return found


def _save(path: str, state: TableState) -> None:
    values = (state.document.hash, state.metadata_location, str(state.document.fields.get("table-uuid")))
    write_pins(path, dict(zip(_FIELDS, values, strict=True)))
