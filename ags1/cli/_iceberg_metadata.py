"""The metadata file that follows another one: its name, its contents, and how it is written without replacing any.

    00007-UUID.metadata.json  -->  00008-UUID.metadata.json      v7.metadata.json  -->  v8.metadata.json

Only the text of what changes is replaced, so that everything else, also what nobody here knows, stays byte for byte.
As Iceberg does it: ``last-updated-ms`` is now, and ``metadata-log`` gets the old file with the time of its own last
update, and loses the oldest ones beyond ``write.metadata.previous-versions-max``. Nothing is deleted, whatever
``write.metadata.delete-after-commit.enabled`` says: that is for who commits. Sources: Iceberg table spec, "Table
Metadata Fields"; Iceberg Java's TableMetadata and BaseMetastoreTableOperations.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid

from ags1.cli._iceberg_open import METADATA_SUFFIX, absolute, directory_of, version_of
from ags1.errors import FormatError
from ags1.iceberg._document import Document, _decoded, _members, _start
from ags1.iceberg._locations import local_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ags1.iceberg import EncryptionKeys
    from ags1.iceberg.file_io import EncryptedFileIO

__all__ = ["Successor"]

_PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS = 100


class Successor:
    """The metadata file that shall follow the one at `location`.

    Attributes
    ----------
    document : Document
        The old metadata.
    old, new : str
        Where the two are, as the table's metadata itself spells its locations.
    written : bool
        Whether the new one is there.
    """

    def __init__(self, location: str, file_io: EncryptedFileIO, *, clock: Callable[[], float] = time.time) -> None:
        self._io = file_io
        with file_io.inner(location).new_input(location).open() as file:
            data: bytes = file.read()
        self.document = Document(data)
        self._text, self._encode = _decoded(data)
        self._now_ms = int(clock() * 1000)
        self.old = _as_the_table_spells_it(location, self.document.fields)
        self.new = f"{directory_of(self.old)}/{_next_name(self.old)}"
        self.written = False

    @property
    def properties(self) -> Mapping[str, Any]:
        """The table's properties."""
        found = self.document.fields.get("properties")
        return found if isinstance(found, dict) else {}

    def set_keys(self, keys: EncryptionKeys) -> None:
        """Put in other keys; refused if a snapshot would lose one."""
        changed = keys.to_table_metadata(self._text)
        assert isinstance(changed, str)
        self._text = changed

    def set_property(self, name: str, value: str) -> None:
        """Change a property of the table."""
        start = self._span("properties")
        if start is None:
            self._replace("properties", {name: value})
            return
        old = next((span for each, _, *span in _members(self._text, start[0]) if each == name), None)
        if old is not None:
            self._text = f"{self._text[: old[0]]}{_json(value)}{self._text[old[1] :]}"
            return
        rest = "," if next(_members(self._text, start[0]), None) else ""
        at = start[0] + 1
        self._text = f"{self._text[:at]}{_json(name)}:{_json(value)}{rest}{self._text[at:]}"

    def write(self, *, dry_run: bool = False) -> None:
        """Write the new metadata file, whole or not at all.

        Raises
        ------
        FileExistsError
            There is one of this name.
        OSError
            It cannot be written.
        """
        self._log()
        data: bytes = self._encode(self._text)
        # What this command wrote, it must be able to read.
        Document(data)
        if dry_run:
            return
        path = local_path(self.new)
        if path is None:
            output = self._io.inner(self.new).new_output(self.new)
            with output.create(overwrite=False) as stream:
                stream.write(data)
        else:
            _create(path, data, like=local_path(self.old))
        self.written = True

    def _log(self) -> None:
        fields = self.document.fields
        before = fields.get("last-updated-ms")
        if isinstance(before, bool) or not isinstance(before, int):
            raise FormatError("last-updated-ms must be a whole number of milliseconds")
        log = fields.get("metadata-log")
        if log is not None and not isinstance(log, list):
            raise FormatError(f"metadata-log must be a JSON list, not {type(log).__name__}")
        kept = [*(log or ()), {"timestamp-ms": before, "metadata-file": self.old}]
        self._replace("metadata-log", kept[-self._previous_versions() :])
        # Clocks differ, and Iceberg refuses metadata whose times run backwards.
        self._replace("last-updated-ms", max(self._now_ms, before))

    def _previous_versions(self) -> int:
        text = str(self.properties.get(_PREVIOUS_VERSIONS_MAX, _PREVIOUS_VERSIONS))
        return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else _PREVIOUS_VERSIONS

    def _span(self, name: str) -> tuple[int, int] | None:
        """Where the text of a field's value begins and ends."""
        for each, value, first, last in _members(self._text, _start(self._text)):
            if each == name:
                return None if value is None else (first, last)
        return None

    def _replace(self, name: str, value: Any) -> None:
        text = self._text
        for each, _, first, last in _members(text, _start(text)):
            if each == name:
                self._text = f"{text[:first]}{_json(value)}{text[last:]}"
                return
        at = max(last for *_, last in _members(text, _start(text)))
        self._text = f"{text[:at]},{_json(name)}:{_json(value)}{text[at:]}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _as_the_table_spells_it(location: str, fields: Mapping[str, Any]) -> str:
    """The location in the words of the table: a path may stand for what its metadata calls ``file:/...``."""
    path = local_path(location)
    if path is None:
        return location
    directory = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    name = os.path.basename(path)
    known: list[str] = []
    log = fields.get("metadata-log")
    for each in reversed(log if isinstance(log, list) else []):
        file = each.get("metadata-file") if isinstance(each, dict) else None
        if isinstance(file, str):
            known.append(directory_of(file))
            break
    table = fields.get("location")
    if isinstance(table, str):
        known.append(f"{table.rstrip('/')}/metadata")
    for spelled in known:
        other = local_path(spelled)
        if other is not None and os.path.realpath(other) == directory:
            return f"{spelled}/{name}"
    return absolute(location)


def _next_name(location: str) -> str:
    version = version_of(location)
    if version is None:
        raise FormatError(
            f"{location}: the name of this metadata file has no number, such as 00007-...{METADATA_SUFFIX}, so the "
            "next one cannot be named"
        )
    name = location.rpartition("/")[2]
    compressed = ".gz" if name.endswith(f".gz{METADATA_SUFFIX}") else ""
    if name.startswith("v"):
        return f"v{version + 1}{compressed}{METADATA_SUFFIX}"
    return f"{version + 1:05d}-{uuid.uuid4()}{compressed}{METADATA_SUFFIX}"


def _create(path: str, data: bytes, *, like: str | None) -> None:
    """Make a file that appears whole, and never in the place of another one; as readable as the file `like`."""
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".{name}.{os.urandom(6).hex()}.ags1-tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with open(descriptor, "wb") as file:
            if like is not None:
                with contextlib.suppress(OSError):
                    os.fchmod(descriptor, os.stat(like).st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise FileExistsError(17, "it exists and was not replaced", path) from None
        except OSError:
            # A file system without hard links: the name is one that nobody else makes.
            if os.path.lexists(path):
                raise FileExistsError(17, "it exists and was not replaced", path) from None
            os.rename(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
