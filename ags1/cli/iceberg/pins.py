"""``--pin FILE``: the hash of a table's metadata, kept where nobody can write who can write the table."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from dataclasses import replace
from functools import partial

from ags1.cli.output import warn
from ags1.errors import AuthenticationError
from ags1.storage import no_pins, read_pins, write_pins
from ags1.support.exit_codes import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.iceberg.catalogs import CatalogTable, TableState

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
        command = f"ags1 iceberg inspect {shlex.quote(where.table)} --pin {shlex.quote(path)} --repin"
        raise AuthenticationError(f"{error}: `{command}` accepts it") from None
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
