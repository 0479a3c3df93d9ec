"""``ags1 iceberg branch``, ``tag``, ``rollback`` and ``set``: changes of a table's metadata, which need no key."""

from __future__ import annotations

import argparse
import contextlib
import errno
from collections.abc import Iterator

from ags1.cli import say, say_json
from ags1.cli.consent import agreed
from ags1.cli.iceberg.opening import opened
from ags1.support.exit_codes import UsageError
from ags1.support.words import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg import EncryptedTable

_MAIN = "main"
# Options of branches and tags, by the names of Iceberg's metadata.
_RETENTION = {
    "min-snapshots-to-keep": "min_snapshots",
    "max-snapshot-age-ms": "max_snapshot_age",
    "max-ref-age-ms": "max_ref_age",
}
# Iceberg Java refuses these, or changes the metadata. Source: its TableProperties, and SparkCatalog.alterTable.
_RESERVED = frozenset(
    {
        *("format-version", "uuid", "location", "snapshot-count", "current-schema", "default-partition-spec"),
        *("current-snapshot-summary", "current-snapshot-id", "current-snapshot-timestamp-ms", "default-sort-order"),
    }
)


def branch(options: argparse.Namespace) -> int:
    return _ref(options, "branch")


def tag(options: argparse.Namespace) -> int:
    return _ref(options, "tag")


def rollback(options: argparse.Namespace) -> int:
    with _table(options) as table:
        old, snapshot_id = table.table.metadata.current_snapshot_id, _chosen(options, table)
        if snapshot_id is None:
            raise UsageError("to which snapshot? Say --snapshot ID, --as-of TIME, or --ref TAG")
        if snapshot_id == old:
            return _done(options, table, None, f"{old} is the current snapshot already: there is nothing to do", old)
        change = table.table.manage_snapshots().rollback_to_snapshot(snapshot_id)
        if not (options.dry_run or agreed(options, f"Make {snapshot_id} the current snapshot, instead of {old}?")):
            return 0
        would = "would be" if options.dry_run else "is"
        return _done(options, table, change, f"{snapshot_id} {would} the current snapshot, not {old}", snapshot_id)


def set_properties(options: argparse.Namespace) -> int:
    pairs = [_pair(each) for each in options.files]
    given = dict(pairs)
    if len(given) < len(pairs):
        raise UsageError("a property is to be set to two values")
    if not given and not options.unset:
        raise UsageError("nothing to set: say NAME=VALUE, or --unset NAME")
    for name in (*given, *options.unset):
        _refuse_name(name)
    if both := sorted(given.keys() & set(options.unset)):
        raise UsageError(f"{both[0]} is to be set and unset")
    with _table(options) as table:
        before = table.table.metadata.properties
        if absent := sorted(set(options.unset) - before.keys()):
            raise UsageError(f"--unset {absent[0]}: the table has no such property")
        change = table.table.transaction()
        if given:
            change.set_properties(given)
        if options.unset:
            change.remove_properties(*options.unset)
        lines = [f"{name} = {value} (was {before.get(name, 'not set')})" for name, value in given.items()]
        lines += [f"{name} is not set (was {before[name]})" for name in options.unset]
        return _done(options, table, change, "\n".join(lines), None)


# -- branches and tags -------------------------------------------------------------------------------------------------


def _ref(options: argparse.Namespace, kind: str) -> int:
    with _table(options) as table:
        refs = table.document.fields.get("refs") or {}
        if options.name == "":
            raise UsageError(f"the name of the {kind} is empty")
        if options.name is None:
            return _list(options, {name: each for name, each in refs.items() if each["type"] == kind})
        found = refs.get(options.name)
        if found is not None and found["type"] != kind:
            raise UsageError(f"{options.name} is a {found['type']}: say `ags1 iceberg {found['type']}`")
        changes = table.table.manage_snapshots()
        would = "would be" if options.dry_run else "is"
        if options.drop:
            if options.name == _MAIN:
                raise UsageError(f"{_MAIN} is the table itself: it cannot be dropped")
            if found is None:
                raise UsageError(f"the table has no {kind} {options.name}")
            changes = changes.remove_branch(options.name) if kind == "branch" else changes.remove_tag(options.name)
            text = f"{kind} {options.name} {would} dropped; its snapshot {found['snapshot-id']} stays until it expires"
            return _done(options, table, changes, text, found["snapshot-id"])
        if found is not None and not options.replace_ref:
            text = f"there is such a {kind}, of snapshot {found['snapshot-id']}: --replace moves it"
            raise FileExistsError(errno.EEXIST, text, options.name)
        snapshot_id = _chosen(options, table)
        if snapshot_id is None:
            # Only its retention is changed.
            snapshot_id = table.table.metadata.current_snapshot_id if found is None else found["snapshot-id"]
        if snapshot_id is None:
            raise UsageError(f"the table has no snapshot yet, of which a {kind} could be")
        if options.name == _MAIN and found is not None and found["snapshot-id"] != snapshot_id:
            raise UsageError(f"{_MAIN} is the table itself: `ags1 iceberg rollback` makes an earlier snapshot current")
        kept = _retention(options, found or {})
        if kind == "branch":
            changes = changes.create_branch(
                snapshot_id,
                options.name,
                kept["max-ref-age-ms"],
                kept["max-snapshot-age-ms"],
                kept["min-snapshots-to-keep"],
            )
        else:
            changes = changes.create_tag(snapshot_id, options.name, kept["max-ref-age-ms"])
        text = f"{kind} {options.name} {would} of snapshot {snapshot_id}"
        if found is not None and found["snapshot-id"] != snapshot_id:
            text += f", not {found['snapshot-id']} any more"
        return _done(options, table, changes, text, snapshot_id)


def _list(options: argparse.Namespace, refs: dict[str, Any]) -> int:
    for name, each in refs.items():
        if options.json:
            record = {"name": name, "snapshot_id": each["snapshot-id"]}
            say_json({**record, **{key.replace("-", "_"): each.get(key) for key in _RETENTION}, "error": None})
        else:
            kept = "".join(f"  {key} {each[key]}" for key in _RETENTION if each.get(key) is not None)
            say(f"{printable(name)}  {each['snapshot-id']}{kept}")
    return 0


def _retention(options: argparse.Namespace, found: dict[str, Any]) -> dict[str, int | None]:
    """What is given, else what the ref has."""
    made: dict[str, int | None] = {}
    for key, name in _RETENTION.items():
        given = getattr(options, name, None)
        if given is not None and key.endswith("-ms"):
            given = int(given * 1000)
            if not given:
                raise UsageError(f"--{name.replace('_', '-')} must be more than 0")
        made[key] = found.get(key) if given is None else given
    return made


def _chosen(options: argparse.Namespace, table: EncryptedTable) -> int | None:
    """The snapshot that the options name; None if they name none."""
    if options.snapshot_id == "all":
        raise UsageError("one snapshot is meant: give the id of one")
    if options.ref is not None:
        return table.refs[options.ref] if options.ref in table.refs else table.document.snapshots().of_ref(options.ref)
    if options.as_of is None and options.snapshot_id is None:
        return None
    # The scan knows the table's history, and reads nothing yet.
    found: int = table.scan(snapshot_id=options.snapshot_id, as_of=options.as_of).plan.snapshot_id
    return found


# -- what is shared ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _table(options: argparse.Namespace) -> Iterator[EncryptedTable]:
    from ags1.iceberg import EncryptedTable

    with opened(options, reads=getattr(options, "name", "") is None) as found:
        yield EncryptedTable(found.location, found.io, found.target)


def _done(options: argparse.Namespace, table: EncryptedTable, change: Any, text: str, snapshot_id: int | None) -> int:
    """Commit a change, if there is one and it is no dry run, and say it."""
    if change is not None and not options.dry_run:
        change.commit_transaction() if hasattr(change, "commit_transaction") else change.commit()
    if options.json:
        location = None if options.dry_run else table.metadata_location
        fields = {"table": options.table, "snapshot_id": snapshot_id, "metadata_location": location}
        say_json({**fields, "dry_run": options.dry_run, "error": None})
    elif not options.quiet:
        for line in text.splitlines():
            say(line)
        if options.dry_run:
            say("nothing was written")
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is no NAME=VALUE")
    return name, value


def _refuse_name(name: str) -> None:
    if name in _RESERVED:
        raise UsageError(f"{name} is a part of the table's metadata, and a property of this name changes nothing")
    if name.startswith("encryption."):
        raise UsageError(
            f"{name} is not set by hand, because the keys and files must go with it: `ags1 iceberg encrypt` and "
            "`decrypt` begin and end the encryption, `rewrap` changes the master key, and `rekey` all keys and their "
            "length"
        )
