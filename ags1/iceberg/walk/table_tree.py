"""A table as a tree of text: keys (only their names), snapshots, manifests, files.

metadata.json
├── keys       key encryption keys, and under each the entries that it wraps
└── snapshots  manifest list, and under it the manifests and their files; each manifest is drawn out once
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ags1.iceberg.metadata.key_entries import EncryptedKey, milliseconds, shown
from ags1.iceberg.metadata.metadata_document import seems_decrypted
from ags1.iceberg.walk.table_walk import PLAINTEXT, TableFile, TableSnapshot, TableWalk
from ags1.support.words import counted, printable

# Width in characters of the bar that shows how much of a snapshot is plaintext.
_BAR = 10


@dataclass
class TreeNode:
    """A line of the tree, and the lines below it.

    Attributes
    ----------
    kind : str
        "table", "keys", "key encryption key", "manifest list key", "snapshots", "snapshot", or a file's kind.
    name : str
        Path below the table's location, id, or title.
    facts : list of str
        Further text of the line.
    problem : str or None
        Why it could not be read, or what is wrong with it.
    children : list of TreeNode
    path : str or None
        Full path of a file.
    error : Exception or None
        Why it could not be read.
    """

    kind: str
    name: str
    facts: list[str] = field(default_factory=list)
    problem: str | None = None
    children: list[TreeNode] = field(default_factory=list)
    path: str | None = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        """The line."""
        title = self.name if self.kind in ("table", "keys", "snapshots") else f"{self.kind} {self.name}"
        facts = f"  {', '.join(self.facts)}" if self.facts else ""
        return printable(f"{title}{facts}{f'  PROBLEM: {self.problem}' if self.problem else ''}")

    def lines(self) -> Iterator[str]:
        """The tree as lines of text."""
        yield self.text
        last = len(self.children) - 1
        for index, child in enumerate(self.children):
            first, further = ("└── ", "    ") if index == last else ("├── ", "│   ")
            for number, line in enumerate(child.lines()):
                yield (further if number else first) + line

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes as JSON values."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ("kind", "name", "path", "facts", "problem")}
        found["children"] = [each.to_dict() for each in self.children]
        return found


def table_tree(found: TableWalk) -> TreeNode:
    """Return the table and what it names, as a tree."""
    fields = found.document.fields
    facts = [f"format version {fields.get('format-version')}"]
    if found.table_key_id is not None:
        facts.append(f"master key {shown(found.table_key_id)}")
    state = "encrypted" if found.encrypted else "NOT encrypted"
    facts.append("NOT encrypted, but older snapshots are" if seems_decrypted(fields) else state)
    root = TreeNode("table", found.location, facts)
    root.children = [_keys(found), _snapshots(found)]
    return root


def _keys(found: TableWalk) -> TreeNode:
    used: dict[str, list[int]] = {}
    for number, key_id in found.document.snapshots().key_ids.items():
        if key_id is not None:
            used.setdefault(key_id, []).append(number)
    node = TreeNode("keys", "keys", [counted(len(found.keys), "entry", "entries")])
    nodes: dict[str, TreeNode] = {}
    for entry in found.keys:
        if entry.encrypted_by_id not in found.keys:
            nodes[entry.key_id] = _kek(entry)
            node.children.append(nodes[entry.key_id])
    for entry in found.keys:
        if entry.key_id in nodes:
            continue
        by = [f"snapshot {each}" for each in used.get(entry.key_id, [])]
        leaf = TreeNode("manifest list key", shown(entry.key_id), by or ["no snapshot"])
        above = nodes.get(entry.encrypted_by_id or "")
        if above is None:
            leaf.problem = f"is encrypted by {shown(entry.encrypted_by_id or '')}, which is no key encryption key"
        (node if above is None else above).children.append(leaf)
    return node


def _kek(entry: EncryptedKey) -> TreeNode:
    facts = [f"under master key {shown(entry.encrypted_by_id)}" if entry.encrypted_by_id else "under nothing"]
    made = milliseconds(entry.timestamp)
    if made is not None:
        facts.append(f"made {_moment(made)}")
    problem = None if entry.timestamp is not None else "has no timestamp: it opens nothing, or its own key is missing"
    return TreeNode("key encryption key", shown(entry.key_id), facts, problem)


def _snapshots(found: TableWalk) -> TreeNode:
    shown_here, all_of_them = len(found.snapshots), len(found.document.snapshots().key_ids)
    number = (
        str(all_of_them) if shown_here == all_of_them else f"{shown_here} of {all_of_them} (the others are not shown)"
    )
    node = TreeNode("snapshots", "snapshots", [number])
    names: dict[Any, list[str]] = {}
    refs = found.document.fields.get("refs")
    for name, ref in (refs if isinstance(refs, dict) else {}).items():
        if isinstance(ref, dict):
            names.setdefault(ref.get("snapshot-id"), []).append(f"{ref.get('type')} {shown(name)}")
    below: dict[str, list[TableFile]] = {}
    for file in (*found.manifests.values(), *found.files.values()):
        for above in file.above:
            below.setdefault(above.path, []).append(file)
    drawn: dict[str, int] = {}
    current = found.document.snapshots().current
    for snapshot in found.snapshots:
        node.children.append(_snapshot(snapshot, found, names, below, drawn, current))
    return node


def _snapshot(
    snapshot: TableSnapshot,
    found: TableWalk,
    names: dict[Any, list[str]],
    below: dict[str, list[TableFile]],
    drawn: dict[str, int],
    current: int,
) -> TreeNode:
    number = snapshot.snapshot_id
    facts = ["current"] if number == current else []
    facts += names.get(number, [])
    if snapshot.operation is not None:
        facts.append(snapshot.operation)
    if isinstance(snapshot.timestamp_ms, int):
        facts.append(_moment(snapshot.timestamp_ms))
    if snapshot.key_id is not None:
        facts.append(f"key {shown(snapshot.key_id)}")
    node = TreeNode("snapshot", str(number), facts)
    if snapshot.manifest_list is None:
        node.problem = "has no manifest list"
        return node
    if snapshot.key_id is None and found.encrypted:
        node.problem = "has no key"
    if found.encrypted:
        node.facts += _share(
            [each for above in below.get(snapshot.manifest_list.path, []) for each in below.get(above.path, [])]
        )
    top = _file(snapshot.manifest_list, found)
    node.children.append(top)
    for manifest in below.get(snapshot.manifest_list.path, []):
        leaf = _file(manifest, found)
        top.children.append(leaf)
        if manifest.path in drawn:
            leaf.facts.append(f"as in snapshot {drawn[manifest.path]}")
            continue
        drawn[manifest.path] = number
        leaf.children += [_file(each, found) for each in below.get(manifest.path, [])]
    return node


def _share(files: list[TableFile]) -> list[str]:
    """Return a bar and figures: how much of a snapshot's data is plaintext, in an encrypted table."""
    total = sum(each.length_hint or 0 for each in files)
    plain = [each for each in files if each.encryption == PLAINTEXT]
    if not plain:
        return ["all files encrypted"] if files else []
    nbytes = sum(each.length_hint or 0 for each in plain)
    share = nbytes / total if total else 1.0
    # Never full or empty if there is some of both.
    filled = min(_BAR - 1, max(1, round(_BAR * share))) if len(plain) < len(files) else _BAR
    bar = "#" * filled + "." * (_BAR - filled)
    text = f"plaintext [{bar}] {len(plain):,} of {counted(len(files), 'file')}, {nbytes:,} of {counted(total, 'byte')}"
    return [text]


def _file(file: TableFile, found: TableWalk) -> TreeNode:
    encryption, length = file.encryption, file.trusted_length
    facts = [encryption if file.key_bits is None else f"{encryption}, {file.key_bits} bits"]
    if length is not None:
        facts.append(counted(length, "byte"))
    elif file.length_hint is not None:
        facts.append(f"{counted(file.length_hint, 'byte')}, not trusted")
    if file.records is not None:
        facts.append(counted(file.records, "record"))
    problem = file.conflict if file.error is None else str(file.error)
    if problem is None and encryption == PLAINTEXT and found.encrypted:
        problem = "is not encrypted"
    location = found.document.fields.get("location")
    name = file.path.removeprefix(f"{location}/") if isinstance(location, str) else file.path
    return TreeNode(file.kind, name, facts, problem, path=file.path, error=file.error)


def _moment(milliseconds_: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(milliseconds_ / 1000, datetime.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds_} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
