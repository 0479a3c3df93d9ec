"""``ags1 iceberg inspect``: a table drawn as a tree of its metadata, keys, snapshots, manifests and files."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator

from ags1.cli import describe, exit_code, printable, say, warn
from ags1.cli._iceberg_open import Opened, in_words, opened, wanted_snapshots
from ags1.cli._report import files as count_of_files
from ags1.cli._report import format_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg import EncryptedKey
    from ags1.iceberg.table_walk import TableFile, TableSnapshot, TableWalk

__all__ = ["Node", "inspect"]

_SHOWN = 10
_DAY_MS = 86_400_000
# Properties that have a say in encryption; those of a catalog or an engine are no part of the table's protection.
_PROPERTY_PREFIX = "encryption."
_STYLES = {"plaintext": "yellow", "bad": "red", "good": "green", "quiet": "dim", "head": "bold"}


class Node:
    """A line of the tree, and what is below it.

    Attributes
    ----------
    text : str
    mark : str
        What it is for the eye: "", "head", "good", "plaintext", "bad" or "quiet".
    below : list of Node
    """

    __slots__ = ("below", "mark", "text")

    def __init__(self, text: str, mark: str = "") -> None:
        self.text = text
        self.mark = mark
        self.below: list[Node] = []

    def add(self, text: str, mark: str = "") -> Node:
        """Add a line below this one, and return it."""
        node = Node(text, mark)
        self.below.append(node)
        return node


def inspect(options: argparse.Namespace) -> int:
    """Run ``ags1 iceberg inspect``."""
    from ags1.iceberg.table_walk import walk

    with opened(options) as table:
        try:
            found = walk(table.location, table.io, wanted_snapshots(options, table))
        except Exception as error:
            if not options.json:
                raise
            say(json.dumps({"metadata_location": table.location, "error": describe(error)}))
            return exit_code(error)
        picture = _Picture(found, table, options.verbose, int(time.time() * 1000))
        errors = [] if table.kms is None else picture.errors
        if options.json:
            say(json.dumps(picture.record(errors)))
        else:
            _draw(picture.tree())
            for each in errors[:_SHOWN]:
                warn(f"ags1: {in_words(describe(each))}")
            if len(errors) > _SHOWN:
                warn(f"ags1: and {len(errors) - _SHOWN:,} more errors (--json has them all)")
    return exit_code(errors[0]) if errors else 0


class _Picture:
    """What is to be shown of a table."""

    def __init__(self, found: TableWalk, table: Opened, verbose: int, now_ms: int) -> None:
        self.found = found
        self.table = table
        self.verbose = verbose
        self.now_ms = now_ms
        self.fields = found.document.fields
        self.used = {key_id for key_id in found.document.snapshots().key_ids.values() if key_id is not None}
        self.walked = {each.snapshot_id: each for each in found.snapshots}
        self.below: dict[str, list[TableFile]] = {}
        for file in found:
            for above in file.above:
                self.below.setdefault(above.path, []).append(file)

    @property
    def errors(self) -> list[Exception]:
        """Why manifest lists and manifests could not be read."""
        return [each.error for each in self.found if each.error is not None]

    # -- the tree --------------------------------------------------------------------------------------------------

    def tree(self) -> Node:
        """All of it."""
        root = Node(self.found.location, "head")
        self._table(root)
        self._encryption(root)
        self._snapshots(root)
        self._files(root)
        return root

    def _table(self, root: Node) -> None:
        fields = self.fields
        node = root.add(f"table {fields.get('table-uuid', '(no uuid)')}, format version {fields.get('format-version')}")
        node.add(f"location      {fields.get('location')}")
        updated = fields.get("last-updated-ms")
        if isinstance(updated, int):
            node.add(f"last updated  {_time(updated)}")
        log = fields.get("metadata-log")
        if isinstance(log, list) and log:
            count = "1 older metadata file" if len(log) == 1 else f"{len(log):,} older metadata files"
            entry = node.add(f"history       {count}")
            if self.verbose:
                for each in log:
                    if isinstance(each, dict):
                        entry.add(
                            f"{_time(each.get('timestamp-ms'))}  {_base(str(each.get('metadata-file')))}", "quiet"
                        )

    def _encryption(self, root: Node) -> None:
        found = self.found
        if not found.encrypted:
            root.add("not encrypted: neither the property encryption.key-id nor encryption-keys", "plaintext")
            return
        by = "master key not named" if found.table_key_id is None else f"master key {found.table_key_id!r}"
        node = root.add(f"encrypted, {by}", "good" if found.table_key_id is not None else "bad")
        for name, value in sorted(found.properties.items()):
            if name.startswith(_PROPERTY_PREFIX):
                node.add(f"{name} = {value}")
        keys = _key_encryption_keys(found)
        below = {key.key_id: [each for each in found.keys if each.encrypted_by_id == key.key_id] for key in keys}
        listed = node.add(f"encryption-keys: {_many(len(found.keys), 'entry', 'entries')}, all wrapped")
        for key in keys:
            self._key(listed, key, below[key.key_id])
        others = [each for each in found.keys if each not in keys and each.encrypted_by_id not in below]
        for each in others:
            text = f"{each.key_id}  encrypted by {each.encrypted_by_id!r}, which is missing here"
            listed.add(text, "bad")

    def _key(self, above: Node, key: EncryptedKey, below: list[EncryptedKey]) -> None:
        state, mark = _age(key, self.now_ms)
        unused = sum(each.key_id not in self.used for each in below)
        text = f"key encryption key {key.key_id}  under {key.encrypted_by_id!r}, {state}"
        if key.encrypted_by_id != self.found.table_key_id and self.found.table_key_id is not None:
            text, mark = f"{text}; not the table's master key", "bad"
        node = above.add(text, mark)
        if not below:
            node.add("wraps nothing", "quiet")
            return
        node.add(
            f"wraps the keys of {_many(len(below), 'manifest list')}"
            + (f", {unused:,} of which no snapshot uses (`ags1 iceberg prune` drops them)" if unused else ""),
            "quiet" if self.verbose else "",
        )
        if self.verbose:
            for each in below:
                if each.key_id in self.used:
                    node.add(each.key_id)
                else:
                    node.add(f"{each.key_id}  used by no snapshot", "quiet")

    def _snapshots(self, root: Node) -> None:
        listed = [each for each in self.fields.get("snapshots") or () if isinstance(each, dict)]
        if not listed:
            root.add("no snapshot: the table never had a row")
            return
        current = self.fields.get("current-snapshot-id")
        names = self._names()
        node = root.add(_many(len(listed), "snapshot"))
        ordered = sorted(listed, key=lambda each: each.get("timestamp-ms") or 0, reverse=True)
        shown = (
            ordered
            if self.verbose
            else [
                each
                for rank, each in enumerate(ordered)
                if rank < _SHOWN or each.get("snapshot-id") == current or each.get("snapshot-id") in self.walked
            ]
        )
        for each in shown:
            self._snapshot(node, each, names.get(each.get("snapshot-id"), []))
        if len(shown) < len(ordered):
            node.add(f"... and {len(ordered) - len(shown):,} older ones (-v shows them all)", "quiet")

    def _names(self) -> dict[Any, list[str]]:
        """Branches and tags by the snapshot that they name."""
        found: dict[Any, list[str]] = {}
        refs = self.fields.get("refs")
        for name, each in refs.items() if isinstance(refs, dict) else ():
            if isinstance(each, dict):
                found.setdefault(each.get("snapshot-id"), []).append(f"{each.get('type', 'ref')} {name}")
        return found

    def _snapshot(self, above: Node, fields: dict[str, Any], names: list[str]) -> None:
        number, key_id = fields.get("snapshot-id"), fields.get("key-id")
        summary = fields.get("summary")
        operation = summary.get("operation", "") if isinstance(summary, dict) else ""
        if number == self.fields.get("current-snapshot-id"):
            names = ["current", *names]
        parts = [f"{number}  {_time(fields.get('timestamp-ms'))}  {operation}"]
        if names:
            parts.append(f"({', '.join(names)})")
        mark = ""
        if key_id is None:
            parts.append("no key: its manifest list is not encrypted")
            mark = "plaintext" if self.found.encrypted else ""
        elif key_id not in self.found.keys:
            parts.append(f"key {key_id}, which is MISSING")
            mark = "bad"
        else:
            parts.append(f"key {key_id}")
        node = above.add("  ".join(parts), mark)
        walked = self.walked.get(number) if isinstance(number, int) else None
        if walked is not None:
            self._manifest_list(node, walked)

    def _manifest_list(self, node: Node, snapshot: TableSnapshot) -> None:
        file = snapshot.manifest_list
        if file is None:
            node.add("no manifest list", "bad")
            return
        below = self.below.get(file.path, [])
        listed = node.add(f"manifest list {_base(file.path)}  {self._state(file)}", self._mark(file))
        if file.error is not None:
            return
        limit = len(below) if self.verbose else _SHOWN
        for manifest in below[:limit]:
            entries = self.below.get(manifest.path, [])
            each = listed.add(f"manifest {_base(manifest.path)}  {self._state(manifest)}", self._mark(manifest))
            for line in _sums(entries):
                each.add(line)
            if self.verbose > 1:
                for entry in entries:
                    each.add(f"{entry.kind} {entry.path}  {self._state(entry)}", self._mark(entry))
        if len(below) > limit:
            listed.add(f"... and {len(below) - limit:,} more manifests (-v shows them all)", "quiet")

    def _state(self, file: TableFile) -> str:
        """How a file is encrypted, how long it is, and what is in it."""
        if file.error is not None:
            if self.table.kms is None and file.key_id is not None:
                return "encrypted: say --kms URL to see what is in it"
            return f"NOT READ: {in_words(describe(file.error))}"
        parts = [file.encryption]
        length = file.trusted_length if file.trusted_length is not None else file.known.length_hint
        if length is not None:
            untrusted = file.known.key_metadata is not None and file.trusted_length is None
            parts.append(f"{length:,} bytes{' (not trusted)' if untrusted else ''}")
        if file.records is not None:
            unit = {"manifest list": ("manifest", None), "manifest": ("entry", "entries")}.get(file.kind, ("row", None))
            parts.append(_many(file.records, *unit))
        if file.conflict is not None:
            parts.append(f"CONFLICT: {file.conflict}")
        return ", ".join(parts)

    def _mark(self, file: TableFile) -> str:
        if file.conflict is not None or (file.error is not None and self.table.kms is not None):
            return "bad"
        return "plaintext" if file.encryption == "plaintext" and self.found.encrypted else ""

    def _files(self, root: Node) -> None:
        if not self.found.snapshots:
            return
        one = f"snapshot {self.found.snapshots[0].snapshot_id}"
        which = one if len(self.found.snapshots) == 1 else f"{len(self.found.snapshots):,} snapshots"
        hidden = any(each.error is not None for each in self.found)
        node = root.add(f"files of {which}{', as far as they could be seen' if hidden else ''}")
        for line in _sums(self.found):
            node.add(line)

    # -- for machines ----------------------------------------------------------------------------------------------

    def record(self, errors: list[Exception]) -> dict[str, Any]:
        """All of it as JSON has it."""
        found, fields = self.found, self.fields
        snapshots = [each for each in fields.get("snapshots") or () if isinstance(each, dict)]
        made: dict[str, Any] = {
            "metadata_location": found.location,
            "format_version": fields.get("format-version"),
            "table_uuid": fields.get("table-uuid"),
            "location": fields.get("location"),
            "last_updated_ms": fields.get("last-updated-ms"),
            "encrypted": found.encrypted,
            "master_key_id": found.table_key_id,
            "properties": {
                name: value for name, value in found.properties.items() if name.startswith(_PROPERTY_PREFIX)
            },
            "keys": [
                {
                    "key_id": each.key_id,
                    "encrypted_by_id": each.encrypted_by_id,
                    "timestamp": each.timestamp,
                    "wrapped_bytes": len(each.encrypted_key_metadata),
                    "used": each.key_id in self.used,
                }
                for each in found.keys
            ],
            "snapshots": [
                {
                    "snapshot_id": each.get("snapshot-id"),
                    "timestamp_ms": each.get("timestamp-ms"),
                    "operation": (each.get("summary") or {}).get("operation"),
                    "key_id": each.get("key-id"),
                    "manifest_list": each.get("manifest-list"),
                    "names": self._names().get(each.get("snapshot-id"), []),
                    "current": each.get("snapshot-id") == fields.get("current-snapshot-id"),
                }
                for each in snapshots
            ],
            "manifests": [_record_of(each) for each in found.manifests.values()],
            "files": [
                {
                    "kind": kind,
                    "encryption": encryption,
                    "files": len(group),
                    "bytes": _bytes(group),
                    "rows": _rows(group),
                }
                for (kind, encryption), group in _groups(found).items()
            ],
            "errors": [in_words(describe(each)) for each in errors],
            "error": None if not errors else in_words(describe(errors[0])),
        }
        if self.verbose > 1:
            made["each_file"] = [_record_of(each) for each in found]
        return made


def _record_of(file: TableFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "kind": file.kind,
        "encryption": file.encryption,
        "stored_length": file.trusted_length,
        "file_size": file.known.length_hint,
        "records": file.records,
        "snapshot_ids": file.snapshot_ids,
        "error": None if file.error is None else in_words(describe(file.error)),
    }


def _key_encryption_keys(found: TableWalk) -> list[EncryptedKey]:
    wrapping = {each.encrypted_by_id for each in found.keys}
    return [
        each
        for each in found.keys
        if (each.timestamp is not None or each.key_id in wrapping) and each.encrypted_by_id not in found.keys
    ]


def _age(key: EncryptedKey, now_ms: int) -> tuple[str, str]:
    """How old a key encryption key is, in words, and the mark for that."""
    from ags1.iceberg.key_hierarchy import KEK_LIFESPAN_MS, milliseconds

    made = milliseconds(key.timestamp)
    if made is None:
        return f"timestamp {key.timestamp!r}, which is no time", "bad"
    age = now_ms - made
    days = age // _DAY_MS
    if age < 0:
        return f"made {_time(made)}, ahead of this clock", ""
    text = f"made {_time(made)}, {_many(days, 'day')} ago"
    return (f"{text}: expired, wraps nothing new", "quiet") if age >= KEK_LIFESPAN_MS else (text, "good")


def _groups(found: Iterable[TableFile]) -> dict[tuple[str, str], list[TableFile]]:
    """Files by kind and how they are encrypted."""
    from ags1.iceberg.table_walk import KINDS

    groups: dict[tuple[str, str], list[TableFile]] = {}
    for each in found:
        groups.setdefault((each.kind, each.encryption), []).append(each)
    return dict(sorted(groups.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1])))


def _sums(found: Iterable[TableFile]) -> Iterator[str]:
    """A line for each kind of file: how many, how long, how many rows."""
    for (kind, encryption), group in _groups(found).items():
        parts = [count_of_files(len(group))]
        size = _bytes(group)
        if size is not None:
            parts.append(format_bytes(size))
        rows = _rows(group)
        if rows is not None:
            parts.append(_many(rows, "row" if kind == "data" else "deleted row"))
        yield f"{kind:<17} {', '.join(parts)}  {encryption}"


def _bytes(group: list[TableFile]) -> int | None:
    lengths = [each.known.length_hint if each.trusted_length is None else each.trusted_length for each in group]
    return None if None in lengths else sum(each for each in lengths if each is not None)


def _rows(group: list[TableFile]) -> int | None:
    if group[0].kind.startswith("manifest"):
        return None
    return sum(each.records or 0 for each in group)


def _time(milliseconds: object) -> str:
    """UTC, to the millisecond: what --as-of takes."""
    import datetime

    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int):
        return "(no time)"
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"({milliseconds} ms)"
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _many(count: int, what: str, plural: str | None = None) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {plural or what + 's'}"


def _base(path: str) -> str:
    return path.rpartition("/")[2]


# -- drawing -------------------------------------------------------------------------------------------------------


def _draw(root: Node) -> None:
    """Draw the tree: in colours on a terminal where rich is there, else as text."""
    if sys.stdout is not None and sys.stdout.isatty() and _draw_richly(root):
        return
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "├└│─".encode(encoding)
        branches = ("├── ", "└── ", "│   ")
    except (UnicodeEncodeError, LookupError):
        branches = ("|-- ", "`-- ", "|   ")
    for line in _lines(root, branches):
        say(line)


def _lines(node: Node, branches: tuple[str, str, str], prefix: str = "") -> Iterator[str]:
    if not prefix:
        yield printable(node.text)
    for number, each in enumerate(node.below, 1):
        last = number == len(node.below)
        yield f"{prefix}{branches[1 if last else 0]}{printable(each.text)}"
        deeper = prefix + ("    " if last else branches[2])
        if each.below:
            yield from _lines(each, branches, deeper)


def _draw_richly(root: Node) -> bool:
    try:
        from rich.console import Console
        from rich.text import Text
        from rich.tree import Tree
    except ImportError:
        return False

    def label(node: Node) -> Text:
        return Text(printable(node.text), style=_STYLES.get(node.mark, ""))

    def grow(tree: Tree, node: Node) -> None:
        for each in node.below:
            grow(tree.add(label(each)), each)

    tree = Tree(label(root), guide_style="dim")
    grow(tree, root)
    Console(highlight=False).print(tree)
    return True
