"""The manifest of a dataset: which files it has, with what keys, encrypted, and found without reading it all.

    {"format": "ags1-manifest", "uuid": ..., "version": 7, ...}         the header
    {"path": "a/b.parquet", "plaintext-length": ..., ...}               one line a file, sorted by the path's bytes
    ...
    {"file-count": 2, "plaintext-bytes": ...}                           the trailer: what a streaming writer knows last

It is one AGS1 file of 64 KiB blocks. The first line that begins in a block says what is before it and what behind it,
so a path is found among a million by opening a dozen blocks. Nothing is larger in memory than the blocks looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from ags1 import layout
from ags1.dataset._control import FORMAT_VERSION, Metadata, check_path
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import KeyMetadata
from ags1.stream import Reader, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = [
    "BLOCK_LENGTH",
    "Entry",
    "Line",
    "Manifest",
    "ManifestWriter",
    "checked_metadata",
    "entry_line",
    "header_line",
    "parse_line",
    "sort_key",
]

FORMAT = "ags1-manifest"
BLOCK_LENGTH = 64 << 10
_KEPT_BLOCKS = 16
_PIECE = 1 << 20
_STEPS_BEFORE_A_JUMP = 32


def sort_key(path: str) -> bytes:
    """What paths are sorted by: their bytes in the file system."""
    return path.encode("utf-8", "surrogateescape")


class Entry:
    """One file of a dataset.

    Attributes
    ----------
    path : str
        Relative to the dataset, with ``/``. Bytes that are no UTF-8 are surrogates, as in :func:`os.fsdecode`.
    plaintext_length, file_length : int
        Bytes of the plaintext, and of the encrypted file.
    source_size, source_mtime_ns : int or None
        What the source was like when it was encrypted: an incremental run compares them.
    version : int or None
        Version of the dataset that the file, as it is, came with; None in manifests of before it was recorded.
    """

    __slots__ = (
        "_key_metadata",
        "file_length",
        "path",
        "plaintext_length",
        "source_mtime_ns",
        "source_size",
        "version",
    )

    def __init__(
        self,
        path: str,
        plaintext_length: int,
        file_length: int,
        key_metadata: bytes,
        source_size: int | None = None,
        source_mtime_ns: int | None = None,
        version: int | None = None,
    ) -> None:
        self.path = path
        self.plaintext_length = plaintext_length
        self.file_length = file_length
        self.source_size = source_size
        self.source_mtime_ns = source_mtime_ns
        self.version = version
        self._key_metadata = key_metadata

    @property
    def key_metadata(self) -> KeyMetadata:
        """The file's own key, AAD prefix and length."""
        return KeyMetadata.decode(self._key_metadata)

    def __repr__(self) -> str:
        return f"<ags1.dataset.Entry {self.path!r}, {self.plaintext_length} bytes>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an entry of a dataset cannot be pickled or copied: it holds a key; open the dataset there")


def entry_line(entry: Entry) -> bytes:
    """The line of a file, without its end. It contains the file's key."""
    fields: dict[str, Any] = {
        "path": entry.path,
        "plaintext-length": entry.plaintext_length,
        "file-length": entry.file_length,
        "key-metadata": base64.b64encode(entry._key_metadata).decode("ascii"),
    }
    if entry.source_mtime_ns is not None:
        fields["source-size"] = entry.source_size
        fields["source-mtime-ns"] = entry.source_mtime_ns
    if entry.version is not None:
        fields["version"] = entry.version
    # ASCII: half surrogates, which stand for bytes that are no UTF-8, survive as escapes.
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def parse_line(line: bytes, name: str) -> Entry:
    """Read the line of a file.

    Raises
    ------
    FormatError
        It is none. The message shows nothing of it but the path: it has a key in it.
    """
    try:
        fields = json.loads(line)
        path, plaintext, stored = fields["path"], fields["plaintext-length"], fields["file-length"]
        metadata = base64.b64decode(fields["key-metadata"], validate=True)
        size, mtime, version = fields.get("source-size"), fields.get("source-mtime-ns"), fields.get("version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise FormatError(f"{name}: a line is no entry of a file") from None
    if not isinstance(path, str) or type(plaintext) is not int or type(stored) is not int:
        raise FormatError(f"{name}: an entry has a path or a length of a wrong type")
    return Entry(check_path(path), plaintext, stored, metadata, size, mtime, version)


def _path_key(line: bytes) -> bytes:
    path: str = json.loads(line)["path"]
    return path.encode("utf-8", "surrogateescape")


def header_line(metadata: Metadata) -> bytes:
    """The first line: what ``metadata.json`` says, authenticated."""
    return json.dumps(
        {
            "format": FORMAT,
            "format-version": FORMAT_VERSION,
            "uuid": metadata.uuid,
            "version": metadata.version,
            "created-ms": metadata.created_ms,
            "properties": metadata.properties,
        },
        separators=(",", ":"),
    ).encode("ascii")


class ManifestWriter:
    """Writes a manifest, line after line in order; nothing appears before :meth:`close`.

    Parameters
    ----------
    path : str or sink
        Where it goes.
    header : bytes
        See :func:`header_line`.
    """

    def __init__(self, path: Any, header: bytes) -> None:
        metadata = KeyMetadata.generate()
        self._writer = Writer(
            path, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", block_length=BLOCK_LENGTH
        )
        self._lines: list[bytes] = []
        self._gathered = 0
        self._last = b""
        self.file_count = 0
        self.plaintext_bytes = 0
        self._put(header)

    def _put(self, line: bytes) -> None:
        if len(line) >= BLOCK_LENGTH:
            raise FormatError(f"a line of {len(line)} bytes does not fit a manifest: the properties are too long")
        self._lines.append(line)
        self._gathered += len(line)
        if self._gathered > _PIECE:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._lines.append(b"")
            self._writer.write(b"\n".join(self._lines))
            self._lines, self._gathered = [], 0

    def add(self, key: bytes, line: bytes, plaintext_length: int) -> None:
        """Add the line of a file; files come in the order of their keys."""
        if key <= self._last:
            raise AssertionError("files must come to a manifest in order, each once")
        self._last = key
        self._put(line)
        self.file_count += 1
        self.plaintext_bytes += plaintext_length

    def copy(self, base: Manifest, start: int, end: int, last: bytes, file_count: int, plaintext_bytes: int) -> None:
        """Copy lines of another manifest, from an offset of it to another; `last` is the key of the last of them."""
        self._flush()
        for data in base.pieces(start, end):
            self._writer.write(data)
        self._last = last
        self.file_count += file_count
        self.plaintext_bytes += plaintext_bytes

    def close(self) -> KeyMetadata:
        """Complete the manifest; answer its key, prefix and length."""
        trailer = {"file-count": self.file_count, "plaintext-bytes": self.plaintext_bytes}
        self._put(json.dumps(trailer, separators=(",", ":")).encode("ascii"))
        self._flush()
        self._writer.close()
        return self._writer.key_metadata

    def abort(self) -> None:
        """Throw it away."""
        self._writer.abort()


@dataclass(frozen=True)
class Line:
    """A line of a manifest, and where it is."""

    offset: int
    data: bytes


class Manifest:
    """A manifest that is read. Safe to use from several threads.

    Parameters
    ----------
    reader : Reader
        Over the manifest, with its trusted length; owned.
    name : str
        What to call it in errors.

    Raises
    ------
    FormatError, AuthenticationError
        It is no manifest, or damaged.
    """

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self.name = name
        self._size = reader.size or 0
        self._block_length = reader.block_length
        if self._block_length != BLOCK_LENGTH:
            raise FormatError(f"{name} is not an ags1 manifest: its blocks have {self._block_length} bytes")
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._firsts: dict[int, bytes | None] = {}
        head = self._block(0)
        stop = head.find(b"\n")
        tail = self._block((self._size - 1) // self._block_length) if self._size else b""
        if len(tail) < BLOCK_LENGTH and self._size > self._block_length:
            tail = self._block((self._size - 1) // self._block_length - 1) + tail
        begin = tail.rfind(b"\n", 0, len(tail) - 1) + 1
        if stop < 0 or not tail.endswith(b"\n") or (begin == 0 and self._size > len(tail)):
            raise FormatError(f"{name} is not an ags1 manifest")
        self.start = stop + 1
        self.end = self._size - (len(tail) - begin)
        self.header = self._fields(head[:stop])
        trailer = self._fields(tail[begin:])
        if self.header.get("format") != FORMAT or self.header.get("format-version") != FORMAT_VERSION:
            raise FormatError(f"{name} is not an ags1 manifest of format version {FORMAT_VERSION}")
        self.file_count: int = trailer.get("file-count", -1)
        self.plaintext_bytes: int = trailer.get("plaintext-bytes", -1)

    def _fields(self, line: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise FormatError(f"{self.name} is not an ags1 manifest")
        return fields

    def check_against(self, metadata: Metadata, name: str) -> None:
        """Compare what is authenticated here with what ``metadata.json`` says.

        Raises
        ------
        AuthenticationError
            They differ: this manifest belongs to another version or another dataset, or the metadata was changed.
        """
        pairs = {
            "uuid": (metadata.uuid, self.header.get("uuid")),
            "version": (metadata.version, self.header.get("version")),
            "created-ms": (metadata.created_ms, self.header.get("created-ms")),
            "properties": (metadata.properties, self.header.get("properties")),
            "file-count": (metadata.file_count, self.file_count),
            "plaintext-bytes": (metadata.plaintext_bytes, self.plaintext_bytes),
        }
        for field_name, (claimed, authentic) in pairs.items():
            if claimed != authentic or type(claimed) is not type(authentic):
                raise AuthenticationError(
                    f"{name} says {field_name} {claimed!r}, but the manifest, which is authenticated, says "
                    f"{authentic!r}: one of them was changed, or put back from an older version"
                )

    def close(self) -> None:
        """Close the manifest's file."""
        self._reader.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _block(self, index: int) -> bytes:
        with self._lock:
            found = self._blocks.get(index)
            if found is not None:
                self._blocks.move_to_end(index)
                return found
        data = self._read(index * self._block_length, self._block_length)
        with self._lock:
            self._blocks[index] = data
            while len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return data

    def _read(self, offset: int, size: int) -> bytes:
        try:
            return self._reader.pread(offset, size)
        except Ags1Error as error:
            if self.name in str(error):
                raise
            raise type(error)(f"{self.name}: {error}") from None

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a range, some at a time, without disturbing what is kept for searching."""
        while start < end:
            # To a whole number of blocks, so that each is opened once.
            stop = min(end, (start + _PIECE) // self._block_length * self._block_length)
            yield self._read(start, stop - start)
            start = stop

    def _block_count(self) -> int:
        return -(-self._size // self._block_length)

    def _first_line(self, index: int) -> tuple[int, bytes] | None:
        """Offset and data of the line behind the first line end in a block; None if that is no file's line."""
        data = self._block(index)
        begin = data.find(b"\n") + 1
        offset = index * self._block_length + begin
        if begin == 0 or offset >= self.end:
            return None
        stop = data.find(b"\n", begin)
        if stop >= 0:
            return offset, data[begin:stop]
        following = self._block(index + 1)
        return offset, data[begin:] + following[: following.find(b"\n")]

    def _first_key(self, index: int) -> bytes | None:
        if index not in self._firsts:
            first = self._first_line(index)
            self._firsts[index] = None if first is None else self._key(first[1])
        return self._firsts[index]

    def _key(self, line: bytes) -> bytes:
        try:
            return _path_key(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FormatError(f"{self.name}: a line is no entry of a file") from None

    def _lower_bound(self, key: bytes) -> Line | None:
        """The first line whose key is not below `key`."""
        low, high = 0, self._block_count()
        # The last block whose first line is not behind the key.
        while low < high:
            middle = (low + high) // 2
            first = self._first_key(middle)
            if first is not None and first <= key:
                low = middle + 1
            else:
                high = middle
        index = max(0, low - 1)
        found = self._first_line(index)
        if found is None:
            return None
        offset, _ = found
        data = self._block(index)[offset - index * self._block_length :]
        if index + 1 < self._block_count():
            following = self._block(index + 1)
            data += following[: following.find(b"\n") + 1]
        lines = data[: max(0, self.end - offset)].split(b"\n")[:-1]
        low, high = 0, len(lines)
        while low < high:
            middle = (low + high) // 2
            if self._key(lines[middle]) < key:
                low = middle + 1
            else:
                high = middle
        position = offset + sum(len(line) + 1 for line in lines[:low])
        if low < len(lines):
            return Line(position, lines[low])
        # Behind the last line of this stretch comes the first of the next, which is behind the key.
        return next(self.lines(position), None)

    def lines(self, offset: int | None = None) -> Iterator[Line]:
        """All lines of files, from an offset at which one begins."""
        position = self.start if offset is None else offset
        rest = b""
        for data in self.pieces(position, self.end):
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield Line(position, line)
                position += len(line) + 1

    def find(self, path: str) -> Entry | None:
        """The entry of a path."""
        key = sort_key(path)
        found = self._lower_bound(key)
        if found is None or self._key(found.data) != key:
            return None
        return self.entry(found)

    def entry(self, line: Line) -> Entry:
        """The entry of a line."""
        return parse_line(line.data, self.name)

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        """Entries whose paths begin with a text, in order."""
        if not prefix:
            for line in self.lines():
                yield self.entry(line)
            return
        first = self._lower_bound(sort_key(prefix))
        if first is None:
            return
        for line in self.lines(first.offset):
            entry = self.entry(line)
            if not entry.path.startswith(prefix):
                return
            yield entry

    def children(self, directory: str) -> Iterator[tuple[str, Entry | None]]:
        """What is in a directory: names of files with their entries, names of directories with None.

        Directories with many files below them are jumped over, not read.
        """
        prefix = f"{directory}/" if directory else ""
        start: bytes | None = sort_key(prefix)
        while start is not None:
            first = self._lower_bound(start)
            start = None
            if first is None:
                return
            inside, steps = "", 0
            for line in self.lines(first.offset):
                entry = self.entry(line)
                if not entry.path.startswith(prefix):
                    return
                name, slash, _ = entry.path[len(prefix) :].partition("/")
                if not slash:
                    yield name, entry
                elif name != inside:
                    inside, steps = name, 0
                    yield name, None
                else:
                    steps += 1
                    if steps > _STEPS_BEFORE_A_JUMP:
                        # "0" is the byte behind "/": what is below the directory is over there.
                        start = sort_key(f"{prefix}{name}0")
                        break

    def has_below(self, directory: str) -> bool:
        """Whether a directory has a file."""
        first = self._lower_bound(sort_key(f"{directory}/"))
        return first is not None and self.entry(first).path.startswith(f"{directory}/")


def checked_metadata(entry: Entry, name: str) -> KeyMetadata:
    """The key metadata of an entry whose lengths agree.

    Raises
    ------
    FormatError
        They do not; names the file.
    """
    try:
        metadata = entry.key_metadata
        size = layout.plaintext_length(entry.file_length)
    except Ags1Error as error:
        raise FormatError(f"{name}: the entry of {entry.path} is damaged: {error}") from None
    if metadata.file_length != entry.file_length or size != entry.plaintext_length:
        raise FormatError(f"{name}: the entry of {entry.path} has lengths that contradict each other")
    return metadata
