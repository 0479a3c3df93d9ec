"""A table's metadata as a mapping, JSON or file: the key list is read and replaced, the rest stays as it is.

    metadata.json:  { ... , "encryption-keys": [ this list is replaced ], "refs": ..., "snapshots": ... }

Only the characters of the list are replaced in a text, so whitespace, the order of fields, unknown fields and the
spelling of numbers are kept. Source: Iceberg table spec, "Table Metadata Fields" and "Snapshots".
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from ags1.errors import FormatError, KeyAccessError
from ags1.iceberg.keys.entries import KNOWN_FIELDS, MAX_ENTRIES, EncryptedKey, entries_from_list, list_to_json, shown

Metadata: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | memoryview | os.PathLike[str]

ENCRYPTION_KEYS = "encryption-keys"
# Iceberg Java writes the list in front of these.
FOLLOWERS = ("refs", "snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log")
MAX_DOCUMENT = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"
# Limit of decompression: metadata is ids, paths and repeated names, which gzip reduces to about a tenth.
_GZIP_FREE, _GZIP_RATIO = 32 << 20, 32
_BLANK = " \t\r\n"


class Document:
    """The metadata of one table: a mapping, JSON (also compressed by gzip), or the path of a file.

    A str that begins with ``{`` is JSON, any other is a path. A FormatError reports that it is not a JSON object, has a
    field twice, or is larger than a gibibyte.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._text: str | None = None
        self._encode = str
        if isinstance(metadata, Mapping):
            self._fields: dict[str, Any] = dict(metadata)
            return
        if isinstance(metadata, (str, os.PathLike)) and not _looks_like_json(metadata):
            metadata = _read(metadata)
        if isinstance(metadata, str):
            self._text = metadata
        elif isinstance(metadata, (bytes, bytearray, memoryview)):
            self._text, self._encode = _decoded(bytes(metadata))
        else:
            raise TypeError(f"metadata must be a mapping, JSON or a path, not {type(metadata).__name__}")
        if len(self._text) > MAX_DOCUMENT:
            raise FormatError("table metadata of more than a gibibyte is refused")
        with _parsing():
            self._members, end = _members(self._text, _start(self._text))
            self._fields = {name: each.value for name, each in self._members.items()}
            rest = _skip(self._text, end)
            if rest != len(self._text):
                _fail(f"something follows the JSON object, at character {rest}")

    def entries(self) -> list[EncryptedKey]:
        """The entries of ``encryption-keys``; none without such a list."""
        listed, text = self._fields.get(ENCRYPTION_KEYS), self._text
        if text is None or not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
            return entries_from_list(listed)
        entries = []
        with _parsing():
            for fields, start in _elements(text, self._members[ENCRYPTION_KEYS].first):
                is_known = not isinstance(fields, dict) or KNOWN_FIELDS.issuperset(fields)
                entries.append(EncryptedKey.from_dict(fields, None if is_known else _spelling(text, start)))
        return entries

    @property
    def fields(self) -> Mapping[str, Any]:
        """All fields, as JSON has them."""
        return self._fields

    @property
    def text(self) -> str:
        """The JSON, uncompressed."""
        return json.dumps(self._fields) if self._text is None else self._text

    def snapshots(self) -> Snapshots:
        """The snapshots that the metadata lists, with their key ids."""
        return Snapshots(self._fields)

    def texts_outside_the_list(self) -> set[str]:
        """Every text value in the metadata except those in ``encryption-keys``."""
        found = set()
        waiting = [value for name, value in self._fields.items() if name != ENCRYPTION_KEYS]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                found.add(value)
            elif isinstance(value, (list, tuple)):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()
        return found

    def replaced(self, entries: Sequence[EncryptedKey]) -> dict[str, Any] | str | bytes:
        """Return the metadata with another list, in its original form; for a file, the bytes of the new content."""
        if self._text is None:
            fields = dict(self._fields)
            if entries or ENCRYPTION_KEYS in fields:
                fields[ENCRYPTION_KEYS] = [entry.to_dict() for entry in entries]
            return fields
        text, value = self._text, list_to_json(entries)
        if (found := self._members.get(ENCRYPTION_KEYS)) is not None:
            return self._encode(f"{text[: found.first]}{value}{text[found.last :]}")
        if not entries:
            return self._encode(text)
        member = f"{json.dumps(ENCRYPTION_KEYS)}:{value}"
        followers = [each.name for name, each in self._members.items() if name in FOLLOWERS]
        if followers:
            return self._encode(f"{text[: followers[0]]}{member},{text[followers[0] :]}")
        at = max((each.last for each in self._members.values()), default=_start(text) + 1)
        return self._encode(f"{text[:at]}{',' if self._members else ''}{member}{text[at:]}")


class Snapshots:
    """Which snapshot names which key, and whether the metadata lists them all."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        listed = fields.get("snapshots")
        if listed is not None and not isinstance(listed, (list, tuple)):
            raise FormatError(f"snapshots must be a JSON list, not {type(listed).__name__}")
        self.listed = listed is not None
        self.current = _snapshot_id(fields.get("current-snapshot-id", -1), "current-snapshot-id", absent=-1)
        self.key_ids: dict[int, str | None] = {}
        for snapshot in listed or ():
            if not isinstance(snapshot, dict):
                raise FormatError(f"a snapshot must be a JSON object, not {type(snapshot).__name__}")
            number = _snapshot_id(snapshot.get("snapshot-id"), "snapshot-id")
            key_id = snapshot.get("key-id")
            if key_id is not None and not isinstance(key_id, str):
                raise FormatError(f"snapshot {number}: key-id must be text, not {type(key_id).__name__}")
            if number in self.key_ids:
                raise FormatError(f"the metadata lists snapshot {number} twice")
            self.key_ids[number] = key_id
        self._fields = fields

    @property
    def refs(self) -> Mapping[str, Any]:
        """Branches and tags by name, as they are written."""
        refs = self._fields.get("refs")
        return refs if isinstance(refs, dict) else {}

    def is_branch(self, name: str) -> bool:
        """Whether a ref is a branch; one that the table does not have is a branch too."""
        found = self.refs.get(name)
        return not isinstance(found, dict) or found.get("type") == "branch"

    def of_ref(self, name: str) -> int:
        """The snapshot of a branch or a tag; a ValueError if there is none of this name."""
        if name in self.refs:
            found = self.refs[name]
            number = _snapshot_id(found.get("snapshot-id") if isinstance(found, dict) else None, f"ref {shown(name)}")
            if number not in self.key_ids:
                raise FormatError(f"the ref {shown(name)} is of snapshot {number}, which the metadata does not list")
            return number
        if name == "main" and self.current != -1:
            return self.current
        known = ", ".join(map(shown, self.refs)) or "none"
        raise ValueError(f"the table has no branch or tag {shown(name)}; it has {known}")

    def check_complete(self) -> None:
        """Refuse metadata that names snapshots which it does not list.

        A REST catalog can return a part of the snapshots (``snapshots=refs``). Keys that only the others need would
        look unused.
        """
        if not self.listed:
            raise FormatError("the metadata has no list of snapshots, so it is not known which keys are in use")
        named = set() if self.current == -1 else {self.current}
        refs = self._fields.get("refs") or {}
        log = self._fields.get("snapshot-log") or []
        if not isinstance(refs, dict) or not isinstance(log, (list, tuple)):
            raise FormatError("refs must be a JSON object, and snapshot-log a JSON list")
        for each in [*refs.values(), *log]:
            if not isinstance(each, dict):
                raise FormatError("refs and snapshot-log must hold JSON objects")
            named.add(_snapshot_id(each.get("snapshot-id"), "snapshot-id of refs or snapshot-log"))
        if absent := named - self.key_ids.keys():
            raise FormatError(
                f"the metadata names snapshot {min(absent)} and does not list it (of {len(absent)} such): it may be a "
                "catalog's response with a part of the snapshots. Load all snapshots first"
            )

    def key_id(self, snapshot_id: int) -> str | None:
        """Key id of a snapshot; None where the snapshot names none."""
        if snapshot_id not in self.key_ids:
            raise KeyAccessError(
                f"snapshot {snapshot_id} is not in the metadata, which lists {len(self.key_ids)} snapshots"
            )
        return self.key_ids[snapshot_id]


def _snapshot_id(value: object, name: str, absent: int | None = None) -> int:
    if value is None and absent is not None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name} must be a whole number, not {'absent' if value is None else type(value).__name__}")
    return value


def _looks_like_json(metadata: str | os.PathLike[str]) -> bool:
    return isinstance(metadata, str) and metadata.lstrip("\ufeff" + _BLANK)[:1] in ("", "{", "[")


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise FormatError(f"{os.fspath(path)}: table metadata of more than a gibibyte is refused")
    return data


def _decoded(data: bytes) -> tuple[str, Any]:
    encode: Callable[[str], bytes] = str.encode
    if data[:2] == _GZIP_MAGIC:
        encode = _to_gzip
        most = min(MAX_DOCUMENT, _GZIP_FREE + _GZIP_RATIO * len(data))
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"table metadata is damaged gzip ({type(error).__name__})") from None
        if len(data) > most:
            raise FormatError(
                f"table metadata that becomes more than {most:,} bytes when it is decompressed is refused: if it is "
                "meant to be, store it without gzip"
            )
    try:
        return data.decode("utf-8"), encode
    except UnicodeDecodeError as error:
        raise FormatError(f"table metadata is not UTF-8: byte {error.start}") from None


def _to_gzip(text: str) -> bytes:
    return gzip.compress(text.encode("utf-8"), mtime=0)


# -- JSON with positions ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    """Turn errors of the JSON parser into a FormatError that quotes nothing of the document."""
    try:
        yield
    except FormatError:
        raise
    except json.JSONDecodeError as error:
        raise FormatError(f"table metadata is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise FormatError("table metadata is not JSON: a number is out of range") from None
    except RecursionError:
        raise FormatError("table metadata is not JSON: it is nested too deeply") from None


def _fail(message: str) -> NoReturn:
    raise FormatError(f"table metadata is not JSON: {message}")


def _refuse_constant(name: str) -> NoReturn:
    _fail(f"{name} is not a JSON number")


def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field that occurs twice: two readers could use different values."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise FormatError(f"a JSON object has the field {shown(name)} twice")
        fields[name] = value
    return fields


_decode = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
_decode_strictly = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_only_once).raw_decode


def _skip(text: str, position: int) -> int:
    while text[position : position + 1] in _BLANK and position < len(text):
        position += 1
    return position


def _start(text: str) -> int:
    """Position of the opening brace."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if text[start : start + 1] != "{":
        raise FormatError("table metadata is not a JSON object")
    return start


class _Member(NamedTuple):
    """A member of an object: its value, where its name begins, and where its value begins and ends."""

    value: Any
    name: int
    first: int
    last: int


def _members(text: str, start: int) -> tuple[dict[str, _Member], int]:
    """Return the members of the object at `start`, and where it ends."""
    found: dict[str, _Member] = {}
    position = _skip(text, start + 1)
    if text[position : position + 1] == "}":
        return found, position + 1
    while True:
        begin = position
        if text[position : position + 1] != '"':
            _fail(f"a field's name is expected at character {position}")
        name, position = _decode(text, position)
        if name in found:
            raise FormatError(f"a JSON object has the field {shown(name)} twice")
        position = _skip(text, position)
        if text[position : position + 1] != ":":
            _fail(f"a colon is expected at character {position}")
        first = _skip(text, position + 1)
        value, last = _decode(text, first)
        found[name] = _Member(value, begin, first, last)
        position = _skip(text, last)
        if text[position : position + 1] == "}":
            return found, position + 1
        if text[position : position + 1] != ",":
            _fail(f"a comma is expected at character {position}")
        position = _skip(text, position + 1)


def _spelling(text: str, start: int) -> Callable[[str], str]:
    """Return a function that returns the text of a member's value, for the object at `start`."""
    members, _ = _members(text, start)
    return lambda name: text[members[name].first : members[name].last]


def _elements(text: str, start: int) -> Iterator[tuple[Any, int]]:
    """Return the value and the start of each element of the list at `start`, which was parsed before."""
    position = _skip(text, start + 1)
    while text[position] != "]":
        value, last = _decode_strictly(text, position)
        yield value, position
        position = _skip(text, last)
        if text[position] == ",":
            position = _skip(text, position + 1)
