"""Manifests: which files a version has, as a tree of small immutable objects.

    root       {"level": 2, "files": [[first, last, count, bytes, name, key], ...]}        one object
      inner    {"level": 1, "files": [...]}                                                 about 512 nodes each
        leaf   {"level": 0, "files": [{"path": ..., "parts": [...], ...}, ...]}             about 512 files each

Every object is an AGS1 file with a key of its own. The node above it holds that key; the version holds that of the
root. Files are sorted by the bytes of their paths. A change writes the leaves that it touches and the nodes above them;
all other nodes are shared with the version before. So adding one file to 10^8 writes three objects, and a comparison of
two versions reads only the nodes that they do not share. A directory is an entry among the files, and is in no count.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

from ags1.codec import decrypt, encrypt
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import CONTROL, check_entry_path, new_manifest_name, run_of, sort_key
from ags1.dataset.versions import Version, damaged
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.layout import encrypted_length
from ags1.storage import Location, Unsynced, in_order, make_parent, open_output, read_whole
from ags1.support.recently_used import RecentlyUsed
from ags1.support.typing import Any, NoReturn

FORMAT = "ags1-manifest"
FAN_OUT = 512
"""Files in a written leaf, and nodes in a written inner node; up to twice as many while it is filled."""
_SMALL = FAN_OUT // 4
_MAX_BYTES = 256 << 20
_KEPT = 64
_AHEAD = 8

Change = tuple["DatasetEntry | None", "DatasetEntry | None"]
"""A file before and after; None where it does not exist."""
OnError = Callable[[Exception], object]


@dataclass(frozen=True, slots=True)
class ManifestNode:
    """The place of a manifest, and a summary of the files below it.

    `level` is 0 for a leaf; `first` and `last` are the sort keys of its first and its last entry; `name` is relative to
    the dataset. `key_metadata` is a secret: its key, AAD prefix and length.
    """

    level: int
    first: bytes
    last: bytes
    file_count: int
    plaintext_bytes: int
    name: str
    key_metadata: bytes

    def __repr__(self) -> str:
        return f"<manifest {self.name}, {self.file_count} files>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a node of a manifest cannot be pickled or copied: it holds a key")

    def to_json(self) -> list[Any]:
        """The form in the node above."""
        return [
            self.first.decode("utf-8", "surrogateescape"), self.last.decode("utf-8", "surrogateescape"),
            self.file_count, self.plaintext_bytes, self.name, base64.b64encode(self.key_metadata).decode("ascii"),
        ]  # fmt: skip

    @classmethod
    def from_json(cls, fields: Any, level: int, name: str) -> ManifestNode:
        """Read that form."""
        try:
            first, last, count, size, below, key = fields
            metadata = base64.b64decode(key, validate=True)
            right = type(count) is int and count >= 0 and type(size) is int and size >= 0
            right = right and _is_manifest(below) and sort_key(first) <= sort_key(last)
        except (ValueError, TypeError, AttributeError, binascii.Error):
            right = False
        if not right:
            raise FormatError(f"{name}: a node has a field that is missing or of a wrong type")
        return cls(level, sort_key(first), sort_key(last), count, size, below, metadata)


Item = ManifestNode | DatasetEntry


class Items:
    """The items directly below a node. An item is made on first use: a search for one file needs one of 512.

    The order and the sort keys are checked at once; other faults of an item are found when it is made. `keys` are
    the sort keys of the first file of each item, `last` is that of the last file; `totals` are the number of all files
    below and their bytes of plaintext. Safe to share between threads: two threads that make one item make equal ones.
    """

    __slots__ = ("_fields", "_level", "_made", "_name", "keys", "last", "totals")

    def __init__(self, level: int, fields: list[Any], name: str) -> None:
        try:
            if level:
                ends = [sort_key(end) for each in fields for end in (each[0], each[1])]
                self.keys, self.last = ends[::2], ends[-1]
                self.totals = sum(each[2] for each in fields), sum(each[3] for each in fields)
            else:
                ends = self.keys = [sort_key(each["path"]) for each in fields]
                self.last = ends[-1]
                self.totals = (
                    sum(not key.endswith(b"/") for key in ends),
                    sum(part[1] for each in fields for part in each["parts"]),
                )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise FormatError(f"{name}: an entry or a node has a field that is missing or of a wrong type") from None
        if any(a > b for a, b in pairwise(ends)):
            raise FormatError(f"{name}: the files of this manifest are in no order")
        self._level, self._fields, self._name = level, fields, name
        self._made: list[Item | None] = [None] * len(fields)

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Item]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Item:
        found = self._made[index]
        if found is None:
            fields = self._fields[index]
            if self._level:
                found = ManifestNode.from_json(fields, self._level - 1, self._name)
            else:
                found = DatasetEntry.from_json(fields, self._name)
            self._made[index] = found
        return found

    def object_names(self) -> list[str]:
        """Names of the objects of a leaf's files, in their order; no item is made for them."""
        try:
            names = [part[0] for each in self._fields for part in each["parts"]]
        except (TypeError, IndexError):
            names = [None]
        if not all(isinstance(each, str) for each in names):
            raise FormatError(f"{self._name}: an entry has a field that is missing or of a wrong type")
        return names

    def sizes(self) -> list[tuple[str, int, int]]:
        """Path, bytes of plaintext and bytes of the objects of each entry of a leaf, in their order.

        No entry is made for them: that takes ten times as long.
        """
        sizes = []
        try:
            for each in self._fields:
                lengths = [part[1] for part in each["parts"]]
                sizes.append((each["path"], sum(lengths), sum(map(encrypted_length, lengths))))
        except (TypeError, ValueError):
            raise FormatError(f"{self._name}: an entry has a field that is missing or of a wrong type") from None
        return sizes

    def at_or_before(self, key: bytes) -> int:
        """Index of the last item that begins at or before a key; -1 if there is none."""
        return bisect_right(self.keys, key) - 1


def _is_manifest(name: object) -> bool:
    return isinstance(name, str) and name.startswith(f"{CONTROL}/manifests/") and run_of(name) is not None


def _first(item: Item) -> bytes:
    return item.first if isinstance(item, ManifestNode) else item.key


class Manifests:
    """Reads and writes manifests of one dataset. Each contains the UUID. Safe to use from several threads.

    Manifests that may not be on the disk yet are noted in `unsynced`. Errors name `version`, the one that is read.
    """

    def __init__(
        self, location: Location, uuid: str, unsynced: Unsynced | None = None, *, version: int = 0
    ) -> None:  # fmt: skip
        self.location = location.as_root()
        self.uuid = uuid
        self.version = version
        self._kept = RecentlyUsed(_KEPT)
        self._unsynced = unsynced

    # -- objects ---------------------------------------------------------------------------------------------------

    def root(self, name: str, metadata: KeyMetadata, file_count: int, plaintext_bytes: int) -> ManifestNode:
        """The root of a version, read and checked against the fields of the version."""
        level, items = self._read(name, metadata.encode(), None)
        made = ManifestNode(level, items.keys[0], items.last, *items.totals, name, metadata.encode())
        if (made.file_count, made.plaintext_bytes) != (file_count, plaintext_bytes):
            raise FormatError(f"{self.location.join(name)} has other files than its version says")
        self._kept.keep(name, items)
        return made

    def children(self, node: ManifestNode, *, keep: bool = True) -> Items:
        """The items directly below a node; shared, so do not change them. `keep` caches them for the next call."""
        found: Items | None = self._kept.get(node.name)
        if found is not None:
            return found
        _, items = self._read(node.name, node.key_metadata, node.level)
        described = node.first, node.last, node.file_count, node.plaintext_bytes
        if (items.keys[0], items.last, *items.totals) != described:
            raise FormatError(f"{self.location.join(node.name)} is not the manifest that its parent describes")
        if keep:
            self._kept.keep(node.name, items)
        return items

    def _read(self, name: str, key_metadata: bytes, level: int | None) -> tuple[int, Items]:
        try:
            return self._authentic(name, key_metadata, level)
        except (Ags1Error, OSError) as error:
            raise (damaged(self.location, self.version, error, name) if self.version else error) from None

    def _authentic(self, name: str, key_metadata: bytes, level: int | None) -> tuple[int, Items]:
        place = self.location.join(name)
        metadata = KeyMetadata.decode(key_metadata)
        if metadata.file_length is None or metadata.file_length > _MAX_BYTES:
            raise FormatError(f"{place}: the key of this manifest has no length, or a wrong one")
        data = read_whole(place, metadata.file_length)
        try:
            plain = decrypt(
                data, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", length=metadata.file_length,
                threads=1,
            )  # fmt: skip
        except Ags1Error as error:
            raise type(error)(f"{place}: {error}") from None
        try:
            fields = json.loads(plain)
            found, identity, files = fields["level"], fields["uuid"], fields["files"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FormatError(f"{place}: no manifest is in this object") from None
        if fields.get("format") != FORMAT or identity != self.uuid:
            raise FormatError(f"{place}: no manifest of this dataset is in this object")
        if (
            type(found) is not int
            or found < 0
            or level not in (None, found)
            or not isinstance(files, list)
            or not files
        ):
            raise FormatError(f"{place}: a manifest of another level is in this object")
        return found, Items(found, files, place.shown)

    def write(self, level: int, items: list[Item], run: str) -> ManifestNode:
        """Write a manifest under a new name."""
        files = [each.to_json() for each in items]
        fields = {"format": FORMAT, "uuid": self.uuid, "level": level, "files": files}
        plain = json.dumps(fields, separators=(",", ":")).encode("ascii")
        if len(plain) > _MAX_BYTES // 2:
            raise OSError(errno.EFBIG, f"a manifest would have {len(plain):,} bytes", self.location.shown)
        metadata = KeyMetadata.generate()
        data = encrypt(plain, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
        name = new_manifest_name(run)
        place = self.location.join(name)
        make_parent(place)
        with open_output(place, expected=len(data)) as output:
            output.write_owned(data)
            output.commit()
        if self._unsynced is not None:
            self._unsynced.add(name)
        kept = Items(level, files, place.shown)
        self._kept.keep(name, kept)
        return ManifestNode(
            level, kept.keys[0], kept.last, *kept.totals, name, metadata.with_length(len(data)).encode()
        )

    # -- files -----------------------------------------------------------------------------------------------------

    def find(self, root: ManifestNode | None, path: str) -> DatasetEntry | None:
        """The file of a path, None if there is none; with ``/`` at its end, the directory."""
        item: Item | None = root
        key = sort_key(path)
        while isinstance(item, ManifestNode):
            below = self.children(item)
            index = below.at_or_before(key)
            item = below[index] if index >= 0 else None
        return item if item is not None and item.key == key else None

    def files(
        self, root: ManifestNode | None, prefix: str = "", on_error: OnError | None = None
    ) -> Iterator[DatasetEntry]:  # fmt: skip
        """The files whose paths begin with `prefix`, in order; leaves are read ahead.

        With `on_error`, which gets the errors, what a damaged manifest has is left out.
        """
        return (entry for entry in self.entries(root, prefix, on_error) if not entry.is_directory)

    def directories(self, root: ManifestNode | None, prefix: str = "") -> Iterator[DatasetEntry]:
        """The empty directories whose paths begin with `prefix`, in order."""
        for entry, following in pairwise(chain(self.entries(root, prefix), [None])):
            if entry is not None and entry.is_directory and not (following and following.path.startswith(entry.path)):
                yield entry

    def entries(
        self, root: ManifestNode | None, prefix: str = "", on_error: OnError | None = None
    ) -> Iterator[DatasetEntry]:  # fmt: skip
        """The files and the directories whose paths begin with `prefix`; see :meth:`files`."""
        key = sort_key(prefix)
        leaves, read = self.leaves(root, key, key, on_error), partial(self._read_children, on_error=on_error)
        return self._within(
            map(read, leaves) if self.location.is_local else in_order(read, leaves, at_once=_AHEAD), key, key
        )

    def _read_children(self, node: ManifestNode, on_error: OnError | None) -> Items | None:
        try:
            return self.children(node)
        except (Ags1Error, OSError) as error:
            if on_error is None:
                raise
            on_error(error)
            return None

    def _within(self, leaves: Iterator[Items | None], key: bytes, prefix: bytes) -> Iterator[DatasetEntry]:
        """The entries of leaves from a key on, as long as their paths begin with `prefix`."""
        for leaf in leaves:
            if leaf is None:
                continue
            for index in range(bisect_left(leaf.keys, key), len(leaf)):
                item = leaf[index]
                assert isinstance(item, DatasetEntry)
                if not item.key.startswith(prefix):
                    return
                yield item

    def leaves(
        self, node: ManifestNode | None, key: bytes = b"", prefix: bytes = b"", on_error: OnError | None = None
    ) -> Iterator[ManifestNode]:  # fmt: skip
        """The leaves that may have files from a key on whose paths begin with `prefix`."""
        if node is None or node.last < key or (node.first > key and not node.first.startswith(prefix)):
            return
        if node.level == 0:
            yield node
            return
        below = self._read_children(node, on_error)
        if below is None:
            return
        for index in range(max(0, below.at_or_before(key)), len(below)):
            child = below[index]
            assert isinstance(child, ManifestNode)
            if child.first > key and not child.first.startswith(prefix):
                return
            yield from self.leaves(child, key, prefix, on_error)

    def has_below(self, root: ManifestNode | None, directory: str) -> bool:
        """Whether there is a directory, or files below it."""
        return next(self.entries(root, f"{directory}/" if directory else ""), None) is not None

    def names_below(self, root: ManifestNode | None, directory: str) -> Iterator[tuple[str, DatasetEntry | None]]:
        """Names in a directory, each with its file, or None for a directory. Contents of subdirectories are skipped."""
        prefix = f"{directory}/" if directory else ""
        entries = self.entries(root, prefix)
        entry = next(entries, None)
        while entry is not None:
            name, slash, _ = entry.path[len(prefix) :].partition("/")
            if not name:
                # The directory itself.
                entry = next(entries, None)
                continue
            if not slash:
                yield name, entry
                entry = next(entries, None)
                continue
            yield name, None
            # "0" follows "/" directly. Nothing is read ahead, because the contents of the next name may be skipped too.
            behind, inside = sort_key(f"{prefix}{name}0"), sort_key(prefix)
            entries = self._within(map(self.children, self.leaves(root, behind, inside)), behind, inside)
            entry = next(entries, None)

    def object_names(
        self, root: ManifestNode | None, known: set[str], on_error: OnError | None = None
    ) -> Iterator[str]:  # fmt: skip
        """Names of the objects that a version needs: manifests and objects of files.

        Manifests in `known` were read before: they and everything below them are skipped. Those read here are
        added to it. `on_error` is that of :meth:`files`.
        """
        if root is None or root.name in known:
            return
        known.add(root.name)
        yield root.name
        # Each leaf is read once.
        try:
            below = self.children(root, keep=root.level > 0)
        except (Ags1Error, OSError) as error:
            if on_error is None:
                raise
            on_error(error)
            return
        if root.level == 0:
            yield from below.object_names()
            return
        for item in below:
            assert isinstance(item, ManifestNode)
            yield from self.object_names(item, known, on_error)


@dataclass(frozen=True)
class DatasetView:
    """One version of a dataset, opened."""

    location: Location
    version: Version
    manifests: Manifests
    root: ManifestNode | None
    keys: DatasetKeys

    @classmethod
    def of(cls, location: Location, version: Version, keys: DatasetKeys) -> DatasetView:
        """Check a version, and read the root of its manifests."""
        try:
            version.authenticate(keys, "it")
        except AuthenticationError as error:
            raise damaged(location, version.version, error) from None
        manifests = Manifests(location, version.uuid, version=version.version)
        return cls(location.as_root(), version, manifests, open_root(manifests, version, keys), keys)


def open_root(manifests: Manifests, version: Version, keys: DatasetKeys) -> ManifestNode | None:
    """The root of a version's manifests; None if it has no entry."""
    if version.manifest is None or version.manifest_key is None:
        return None
    metadata = keys.open(version.manifest, version.manifest_key)
    return manifests.root(version.manifest, metadata, version.file_count, version.plaintext_bytes)


# -- comparing -----------------------------------------------------------------------------------------------------


def changes(manifests: Manifests, before: ManifestNode | None, after: ManifestNode | None) -> Iterator[Change]:
    """Yield the differences between two versions, in the order of paths. Manifests that both share are not read."""
    old, new = _Cursor(manifests, before), _Cursor(manifests, after)
    while True:
        a, b = old.item, new.item
        if a is None and b is None:
            return
        if isinstance(a, ManifestNode) and isinstance(b, ManifestNode) and a.name == b.name:
            old.skip(), new.skip()
        elif isinstance(a, ManifestNode) and (b is None or _opens_first(a, b)):
            old.open()
        elif isinstance(b, ManifestNode) and (a is None or _opens_first(b, a)):
            new.open()
        elif b is None or (a is not None and _first(a) < _first(b)):
            yield old.take(), None
        elif a is None or _first(b) < _first(a):
            yield None, new.take()
        else:
            pair = old.take(), new.take()
            if pair[0] != pair[1]:
                yield pair


def _opens_first(node: ManifestNode, other: Item) -> bool:
    """Whether to open a node before the next item of the other side is compared."""
    if isinstance(other, DatasetEntry):
        return node.first <= other.key
    return (node.first, -node.level) <= (other.first, -other.level)


class _Cursor:
    """The items of a tree in order: nodes that are not opened, and entries."""

    def __init__(self, manifests: Manifests, root: ManifestNode | None) -> None:
        self._manifests = manifests
        self._stack: list[Item] = [] if root is None else [root]

    @property
    def item(self) -> Item | None:
        return self._stack[-1] if self._stack else None

    @property
    def is_last(self) -> bool:
        return len(self._stack) == 1

    def skip(self) -> Item:
        return self._stack.pop()

    def open(self) -> None:
        node = self._stack.pop()
        assert isinstance(node, ManifestNode)
        self._stack.extend(reversed(self._manifests.children(node)))

    def take(self) -> DatasetEntry:
        entry = self._stack.pop()
        assert isinstance(entry, DatasetEntry)
        return entry


# -- changing ------------------------------------------------------------------------------------------------------


class Editor:
    """Makes a new tree from an old one. Changes come in the order of paths; a few nodes are held in memory.

    Names of new nodes begin with `run`, the id of the run that writes.
    """

    def __init__(self, manifests: Manifests, root: ManifestNode | None, run: str) -> None:
        self._manifests = manifests
        self._base = root
        self._cursor = _Cursor(manifests, root)
        self._run = run
        self._rows: list[list[Item]] = [[]]
        self._changed = False
        self._last = b""

    def put(self, entry: DatasetEntry) -> DatasetEntry | None:
        """Add an entry, or replace the one at its path; return the replaced one."""
        before = self._seek(check_entry_path(entry.path))
        self._changed = self._changed or before != entry
        self._append(0, entry)
        return before

    def remove(self, path: str) -> DatasetEntry | None:
        """Remove an entry; return it, or None if there was none."""
        before = self._seek(sort_key(path))
        self._changed = self._changed or before is not None
        return before

    def finish(self) -> ManifestNode | None:
        """Write the remaining nodes; return the new root, or None if there is no entry. Called once."""
        if not self._changed:
            return self._base
        while self._cursor.item is not None:
            self._pass()
        level = 0
        while True:
            row = self._rows[level]
            top = level == len(self._rows) - 1
            if top and level and len(row) == 1:
                (node,) = row
                assert isinstance(node, ManifestNode)
                return self._collapsed(node)
            if top and not row:
                return None
            if row:
                self._flush(level, everything=True)
            level += 1

    def _collapsed(self, node: ManifestNode) -> ManifestNode:
        # After many removals, nodes with one child each would be left above the rest.
        while node.level:
            below = self._manifests.children(node)
            if len(below) > 1 or not isinstance(below[0], ManifestNode):
                break
            node = below[0]
        return node

    def _seek(self, key: bytes) -> DatasetEntry | None:
        """Take over all items before a key; return the file at it.

        The last node is opened down to its last leaf, so that the next files join that leaf.
        """
        if key <= self._last:
            raise AssertionError("changes must come in the order of paths, one for each")
        self._last = key
        cursor = self._cursor
        while (item := cursor.item) is not None:
            if isinstance(item, DatasetEntry):
                if item.key > key:
                    return None
                if item.key == key:
                    return cursor.take()
                self._append(0, cursor.take())
            elif item.last < key and (item.level == 0 or not cursor.is_last):
                self._pass()
            elif item.first > key and item.level == 0 and self._rows[0]:
                # A file right before a leaf joins that leaf only if no other leaf can take it.
                return None
            else:
                cursor.open()
        return None

    def _pass(self) -> None:
        """Take over the next item unchanged, or open it if a row before it is too small."""
        cursor, item = self._cursor, self._cursor.item
        if isinstance(item, DatasetEntry):
            self._append(0, cursor.take())
            return
        assert item is not None
        # Rows of lower levels come before this node; a row that is too small is filled with items of the node.
        waiting = [level for level in range(min(item.level + 1, len(self._rows))) if self._rows[level]]
        if any(len(self._rows[level]) < _SMALL for level in waiting):
            cursor.open()
            return
        for level in range(item.level + 1):
            if level < len(self._rows) and self._rows[level]:
                self._flush(level, everything=True)
        self._append(item.level + 1, cursor.skip())

    def _append(self, level: int, item: Item) -> None:
        while len(self._rows) <= level:
            self._rows.append([])
        row = self._rows[level]
        row.append(item)
        if len(row) >= 2 * FAN_OUT:
            self._flush(level, everything=False)

    def _flush(self, level: int, *, everything: bool) -> None:
        """Write a row as nodes of a level, all of it or the front of it; a small row joins the node before it."""
        row = self._rows[level]
        above = self._rows[level + 1] if level + 1 < len(self._rows) else []
        if everything and len(row) < _SMALL and above:
            before = above[-1]
            assert isinstance(before, ManifestNode)
            below = self._manifests.children(before)
            if before.level == level and len(below) < FAN_OUT:
                above.pop()
                row[:0] = below
        while row:
            count = FAN_OUT if len(row) >= 2 * FAN_OUT else len(row) if len(row) <= FAN_OUT else (len(row) + 1) // 2
            part, row[:count] = row[:count], []
            self._append(level + 1, self._manifests.write(level, part, self._run))
            if not everything:
                return
