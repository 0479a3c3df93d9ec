"""A table's metadata as a mapping, JSON or file.

Source: Iceberg table spec, "Table Metadata Fields" and "Snapshots".
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from ags1.errors import FormatError, KeyAccessError
from ags1.iceberg.keys.entries import EncryptedKey, entries_from_list, shown

Metadata: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | memoryview | os.PathLike[str]

ENCRYPTION_KEYS = "encryption-keys"
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
        if isinstance(metadata, Mapping):
            self.fields: Mapping[str, Any] = dict(metadata)
            return
        if isinstance(metadata, (str, os.PathLike)) and not _looks_like_json(metadata):
            metadata = _read(metadata)
        if isinstance(metadata, str):
            self._text = metadata
        elif isinstance(metadata, (bytes, bytearray, memoryview)):
            self._text = _decoded(bytes(metadata))
        else:
            raise TypeError(f"metadata must be a mapping, JSON or a path, not {type(metadata).__name__}")
        if len(self._text) > MAX_DOCUMENT:
            raise FormatError("table metadata of more than a gibibyte is refused")
        self.fields = _parsed(self._text)

    def entries(self) -> list[EncryptedKey]:
        """The entries of ``encryption-keys``; none without such a list."""
        return entries_from_list(self.fields.get(ENCRYPTION_KEYS))

    @property
    def text(self) -> str:
        """The JSON, uncompressed."""
        return json.dumps(self.fields) if self._text is None else self._text

    def snapshots(self) -> Snapshots:
        """The snapshots that the metadata lists, with their key ids."""
        return Snapshots(self.fields)

    def texts_outside_the_list(self) -> set[str]:
        """Every text value in the metadata except those in ``encryption-keys``."""
        found = set()
        waiting = [value for name, value in self.fields.items() if name != ENCRYPTION_KEYS]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                found.add(value)
            elif isinstance(value, (list, tuple)):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()
        return found


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


def _decoded(data: bytes) -> str:
    if data[:2] == _GZIP_MAGIC:
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
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"table metadata is not UTF-8: byte {error.start}") from None


def _parsed(text: str) -> dict[str, Any]:
    """Parse a JSON object; a FormatError quotes nothing of the document."""
    if not text.lstrip("\ufeff" + _BLANK).startswith("{"):
        raise FormatError("table metadata is not a JSON object")
    try:
        found: dict[str, Any] = json.loads(
            text.removeprefix("\ufeff"), parse_constant=_refuse_constant, object_pairs_hook=_only_once
        )
    except FormatError:
        raise
    except json.JSONDecodeError as error:
        raise FormatError(f"table metadata is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise FormatError("table metadata is not JSON: a number is out of range") from None
    except RecursionError:
        raise FormatError("table metadata is not JSON: it is nested too deeply") from None
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"table metadata is not JSON: {name} is not a JSON number")


def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field that occurs twice: two readers could use different values."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"a JSON object has the field {shown(twice)} twice")
    return fields
