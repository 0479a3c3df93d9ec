"""An Iceberg table: what its newest metadata promises, and which of its files differ.

metadata.json, alone         format version, master key, snapshots without a key, plaintext statistics
with a KMS, or in plaintext  the table's own audit; with the list of its files, those that are unreferenced
each file's bytes            plaintext manifests, Puffin and data files in an encrypted table
"""

from __future__ import annotations

import os
import re
from typing import Any

from ags1.audit.classification import BY_DESIGN, ENCRYPTED, PARTLY, PLAINTEXT, UNKNOWN, AuditedFile
from ags1.audit.report import AuditReport, Group, Membership
from ags1.errors import Ags1Error
from ags1.iceberg.metadata.locations import io_properties_of
from ags1.iceberg.metadata.metadata_document import (
    KEY_ID,
    VERSION_HINT,
    is_metadata_file,
    metadata_document,
    number_in,
    properties_of,
)
from ags1.storage import Entry, Location, read_whole
from ags1.support.reports import DAMAGED, ERROR, NOT_CHECKED, NOT_PROTECTED, WARNING, Finding
from ags1.support.words import counted

METADATA_DIRECTORY = "metadata"

_MAX_BYTES = 256 << 20
# Names from Iceberg's Flink sink: job, operator, subtask, attempt, checkpoint, number.
_FLINK = re.compile(r"[0-9a-f]{32}-.+-\d{5}-\d+-\d+-\d{5}\.avro")


class TableMembership(Membership):
    def __init__(self, root: str, location: Location, metadata: list[Entry], kms: Any, report: AuditReport) -> None:
        super().__init__(Group("iceberg table", root))
        self._location = location
        self._report = report
        # Names of the files that the metadata refers to; None if that is not known.
        self._named: set[str] | None = None
        # Files whose columns are all encrypted, and all plaintext, according to the table.
        self._uniform: set[str] = set()
        self._known_plaintext: set[str] = set()
        newest = max(metadata, key=lambda each: (_number(each), each.modified, each.name))
        fields = self._fields(newest)
        if fields is not None:
            self._take(newest, fields)
            if kms is not None or not self.group.encrypted:
                self._open(newest, fields, kms)
            else:
                self.group.detail += "; no KMS was given, so only its metadata file was read"
                self._judge_metadata(fields)

    def _add(self, severity: str, code: str, message: str, outcome: str = "") -> None:
        text = f"table {self.group.name}: {message}"
        self._report.add(Finding(severity, code, self.group.name, text, outcome))

    def _fields(self, newest: Entry) -> dict[str, Any] | None:
        try:
            fields = dict(metadata_document(newest.name, bytes(read_whole(newest.location, _MAX_BYTES))).fields)
        except OSError as error:
            self._add("error", "unreadable", f"{newest.name}: {error.strerror or error}", NOT_CHECKED)
            return None
        except Ags1Error:
            fields = {}
        if "format-version" not in fields:
            self._add("error", "table-damaged", f"{newest.name} is not the metadata of a table", DAMAGED)
            return None
        return fields

    def _take(self, newest: Entry, fields: dict[str, Any]) -> None:
        key_id = properties_of(fields).get(KEY_ID)
        entries = _dicts(fields, "encryption-keys")
        inside = {found for each in entries if isinstance(found := each.get("key-id"), str)}
        named = [key_id, *(each.get("encrypted-by-id") for each in entries)]
        keys = [each for each in named if isinstance(each, str) and each and each not in inside]
        self.group.keys = tuple(dict.fromkeys(keys))
        self.group.encrypted = bool(key_id or entries)
        state = "encrypted" if self.group.encrypted else "not encrypted"
        snapshots = counted(len(_dicts(fields, "snapshots")), "snapshot")
        self.group.detail = f"{state}, {snapshots}, by {newest.name.rpartition('/')[2]}"

    def _judge_metadata(self, fields: dict[str, Any]) -> None:
        """What the metadata file alone shows."""
        for each in _dicts(fields, "snapshots"):
            if not each.get("key-id"):
                text = f"snapshot {each.get('snapshot-id')} has no key: its manifest list is in plaintext"
                self._add("warning", "table-snapshot-without-key", text)
        for kind in ("statistics", "partition-statistics"):
            for each in _dicts(fields, kind):
                path = each.get("statistics-path")
                if each.get("key-metadata"):
                    text = f"the key of {path} stands in the metadata file, which is not encrypted"
                    self._add("error", "table-statistics-key-leaked", text, DAMAGED)
                else:
                    self._add("warning", "table-statistics-plaintext", f"{path} is in plaintext, and shows data")

    # -- with all its files ------------------------------------------------------------------------------------------

    def _open(self, newest: Entry, fields: dict[str, Any], kms: Any) -> None:
        where = fields.get("location")
        if not isinstance(where, str) or _place(where) != _place(self._location.text):
            text = (
                f"its metadata has the location {where}: it is a copy, or that path begins in another directory; its "
                "files are judged by their bytes; `ags1 iceberg verify --moved-from` opens them"
            )
            self._add("warning", "table-elsewhere", text)
            self._judge_metadata(fields)
            return
        try:
            from ags1.iceberg import open_table
            from ags1.iceberg.walk.table_audit import audit
            from ags1.iceberg.walk.table_walk import PARQUET, walk
        except ImportError as error:
            self._add("warning", "table-not-opened", f"was judged by its metadata file alone: {error}")
            self._judge_metadata(fields)
            return
        options = self._location.storage_options
        properties = io_properties_of({**options, **(options.get("client_kwargs") or {})}, strict=False)
        try:
            table = open_table(
                newest.location.text, kms, properties=properties, allow_plaintext=True, length_policy="file"
            )
            found = walk(table.metadata_location, table.io)
            for each in audit(found, table.io).findings:
                self._take_finding(each)
                if each.code == "file-plaintext":
                    self._known_plaintext.add(_place(each.subject))
        except OSError as error:
            self._add("error", "unreadable", str(error), NOT_CHECKED)
            return
        except (Ags1Error, ValueError) as error:
            self._add("error", "table-damaged", str(error), DAMAGED)
            return
        if not found.complete:
            # The audit has reported the reason.
            self.group.detail += "; unreferenced files are not known"
            return
        self._uniform = {_place(each.path) for each in found if each.encryption == PARQUET}
        self._named = {_place(each.path) for each in found} | {
            _place(path)
            for kind, name in (
                ("metadata-log", "metadata-file"),
                ("statistics", "statistics-path"),
                ("partition-statistics", "statistics-path"),
            )
            for each in _dicts(fields, kind)
            if isinstance(path := each.get(name), str)
        }

    def _take_finding(self, found: Finding) -> None:
        if found.code == "table-not-encrypted":
            # Each of its files is judged on its own.
            return
        if found.outcome == NOT_PROTECTED:
            self._add(WARNING if found.severity == ERROR else found.severity, f"table-{found.code}", found.message)
        else:
            self._add(found.severity, f"table-{found.code}", found.message, found.outcome)

    # -- each of its files -------------------------------------------------------------------------------------------

    def judge(self, file: AuditedFile, report: AuditReport) -> None:
        name = self.group.inside(file.name)
        above, _, last = name.rpartition("/")
        place = _place(self._location.join(name).text)
        of_metadata = above == METADATA_DIRECTORY
        if of_metadata and (is_metadata_file(last) or last == VERSION_HINT):
            if self.group.encrypted and file.protection == PLAINTEXT:
                file.protection = BY_DESIGN
                file.leaks = ("column names", "partition specs, numbers of rows") if is_metadata_file(last) else ()
            return
        if place in self._uniform and not file.columns_known and file.protection == ENCRYPTED:
            file.columns_known = True
            file.detail += "; all of them, according to the table"
        kind = "file"
        if of_metadata and file.format == "Avro":
            kind = "Flink manifest" if _FLINK.fullmatch(last) else "manifest or manifest list"
        elif file.format == "Puffin":
            kind = "statistics or deletion vector file"
        file.keys = file.keys or (self.group.keys if file.protection == ENCRYPTED else ())
        bare = file.protection in (PLAINTEXT, PARTLY, UNKNOWN) and place not in self._known_plaintext
        if self.group.encrypted and bare:
            code = "table-flink-manifest" if kind == "Flink manifest" else "table-plaintext-file"
            text = f"{file.name}: this {kind} is {file.protection}, although its table is encrypted"
            report.add(Finding("warning", code, file.name, text))
        if self._named is not None and place not in self._named:
            text = f"{file.name}: no snapshot of its table refers to it"
            report.add(Finding("note", "table-unreferenced", file.name, text))


def _number(entry: Entry) -> int:
    return -1 if (found := number_in(entry.location.name)) is None else found


def _dicts(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = fields.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _place(text: str) -> str:
    """One spelling of a location: Java writes file:/a for file:///a, and s3a for s3."""
    if re.match(r"file:/[^/]", text):
        text = text[len("file:") :]
    try:
        where = Location(text)
        if where.is_local:
            return os.path.realpath(where.path)
    except ValueError:
        # Metadata may contain anything.
        return text
    return f"{where.scheme}://{where.container}/{where.path}".rstrip("/")
