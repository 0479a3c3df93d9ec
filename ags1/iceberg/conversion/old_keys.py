"""What master keys other than a table's own still open, found out by opening it.

    metadata files that are there --> key encryption keys under other master keys --unwrapped by the KMS-->
        --> manifest lists and manifests of every snapshot, old and new --> files of the branches and tags
    journals of conversions       --> their work keys

A key encryption key keeps its id when it is wrapped again, so an old metadata file and the old master key may open what
is current. A refusal of the KMS proves nothing: the key may be enabled again, or another caller may use it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ags1.errors import AuthenticationError, KeyAccessError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.catalogs.file import as_the_table_spells_it
from ags1.iceberg.conversion.journal import DIRECTORY, KIND, below_metadata
from ags1.iceberg.conversion.removed_snapshots import logged, older_documents
from ags1.iceberg.files.file_io import EncryptedFileIO, file_io_at
from ags1.iceberg.keys.document import Document
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.keys.entries import EncryptedKey
from ags1.iceberg.keys.kek import kept_kek
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.iceberg.metadata.metadata_document import metadata_document
from ags1.iceberg.metadata.metadata_names import is_metadata_file
from ags1.iceberg.walk.table_audit import audit
from ags1.iceberg.walk.table_walk import PLAINTEXT, TableWalk, walk
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.iceberg.writing.table_files import TableFiles
from ags1.keys import Key
from ags1.storage import list_names
from ags1.support.reports import FindingsReport, Report
from ags1.support.words import counted, printable
from ags1.work.records import found_runs, opened_runs

NOT_COVERED = (
    "not looked at: versions and deleted objects of a bucket with versioning, replicas, backups, and copies of "
    "metadata files or keys elsewhere"
)


@dataclass
class OldKeyReport(Report):
    """What master keys other than the table's own still open.

    Attributes
    ----------
    table : str
    key_id : str or None
        The table's own master key.
    opened : list of str
        Other master keys that unwrapped a key encryption key of the table, or the key of a journal.
    refused : dict of str to str
        Other master keys that the KMS refused, with the first message. That proves nothing.
    refs : list of str
        Branches and tags that they open.
    files : int
        Files of the branches and tags whose keys they reach.
    snapshots : list of int
        All snapshots of the table that they open, older ones among them.
    removed : list of int
        Snapshots that they open and the table no longer has: a run that expired them was killed, or removed no files.
    metadata_files : list of str
        Metadata files with a key encryption key that they unwrap. What it opened may be gone.
    journals : list of str
        Records of killed conversions that they open; ``clean`` removes them.
    unread : list of str
        Metadata files that could not be read, and so were not looked at.
    """

    table: str
    key_id: str | None
    opened: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    refs: list[str] = field(default_factory=list)
    files: int = 0
    snapshots: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    metadata_files: list[str] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether they open no snapshot, neither one that the table has nor one that it had."""
        return not (self.refs or self.files or self.snapshots or self.removed)

    @property
    def is_proved(self) -> bool:
        """Whether everything was tried: no master key was refused, and all metadata files were read."""
        return not self.refused and not self.unread

    def _text(self) -> str:
        lines = []
        if self.refs or self.files:
            refs = f" ({', '.join(map(printable, self.refs))})" if self.refs else ""
            lines.append(
                f"old keys STILL open {counted(self.files, 'file')} of the branches and tags{refs}: `rekey_table` to "
                "another master key, with new data keys, ends that"
            )
        if self.snapshots:
            lines.append(
                f"old keys open {counted(len(self.snapshots), 'snapshot')}: `expire_snapshots` removes those that no "
                "branch or tag has"
            )
        if self.removed:
            lines.append(
                f"old keys open {counted(len(self.removed), 'snapshot')} that the table no longer has: "
                "`expire_snapshots` removes what a killed run has left of them, and `ags1 iceberg clean` the rest"
            )
        if self.journals:
            journals = counted(len(self.journals), "journal of a killed conversion", "journals of killed conversions")
            lines.append(f"old keys open {journals}: `ags1 iceberg clean` removes them")
        lines += [
            f"NOT tried, because the KMS refused the old master key {key_id}, which proves nothing: enable it, and "
            "audit the table again"
            for key_id in map(printable, self.refused)
        ]
        if self.unread:
            lines.append(f"NOT read: {counted(len(self.unread), 'metadata file')}, which may name old master keys")
        if lines:
            lines.append("so do NOT delete the old master keys yet")
        elif self.opened:
            lines.append(
                f"as far as this table goes, the old master keys ({', '.join(map(printable, self.opened))}) may be "
                f"disabled: they open nothing but key encryption keys in old metadata files; {NOT_COVERED}"
            )
        return "\n".join(lines or ["no other master key opens anything of the table"])


def audit_with_old_keys(found: TableWalk, file_io: EncryptedFileIO, table: CatalogTable | None) -> FindingsReport:
    """Audit the files that a walk has found, and try what other master keys open, if that can be tried."""
    old_keys, older = None, dict[str, Document]()
    if table is not None and found.encrypted and file_io.kms is not None:
        old_keys, older = _tried(table, file_io.kms)
    report = audit(found, file_io, older)
    report.facts["old_keys"] = old_keys
    return report


def what_old_keys_open(table: CatalogTable, kms: Any) -> OldKeyReport:
    """Try every other master key that a metadata file or a journal of a table names.

    Metadata files are those beside the current one, and those in its metadata log. Data files are not read: a key that
    a readable manifest has opens its file.

    Raises
    ------
    Ags1Error, OSError
        The table's own metadata cannot be read.
    """
    return _tried(table, kms)[0]


def _tried(table: CatalogTable, kms: Any) -> tuple[OldKeyReport, dict[str, Document]]:
    """What other master keys open, and the older metadata files that were read for that."""
    state = table.load()
    report = OldKeyReport(table.name, TableMetadata(state.document.fields).key_id)
    older = _older(table, state, report)
    documents = {state.metadata_location: state.document, **older}
    opened = _unwrapped(documents, kms, report)
    if opened:
        _look(table, state, kms, list(documents.values()), opened, report)
    _look_at_journals(table, state, kms, report)
    return report, older


class _Only:
    """A KMS of some master keys alone."""

    def __init__(self, kms: Any, key_ids: Collection[str]) -> None:
        self._kms, self._key_ids = kms, frozenset(key_ids)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> Any:
        if wrapping_key_id not in self._key_ids:
            raise KeyAccessError(f"{wrapping_key_id!r} is none of the keys that are tried")
        return self._kms.unwrap_key(wrapped_key, wrapping_key_id)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> Any:
        raise KeyAccessError("nothing is wrapped here")


def _older(table: CatalogTable, state: TableState, report: OldKeyReport) -> dict[str, Document]:
    """The other metadata files of the table."""
    paths = dict.fromkeys(logged(state.document.fields))
    # As the log spells it: each file once.
    current = as_the_table_spells_it(state.metadata_location, state.document.fields)
    directory = current.rpartition("/")[0]
    try:
        table.places(state).check(f"{directory}/new")
        names = list_names(table.place(directory))
    except (OSError, UnsupportedError):
        # Not every reader may list. The log names the files of the last commits.
        report.unread.append(f"{directory}/ (not listed)")
        names = []
    else:
        if current.rpartition("/")[2] not in names:
            # A catalog may keep its metadata files where no client reads them.
            report.unread.append(f"{directory}/ (without the table's own metadata file)")
    paths |= dict.fromkeys(f"{directory}/{name}" for name in names if is_metadata_file(name))
    paths.pop(current, None)
    found = {}
    for path, each in older_documents(table, state, paths):
        if isinstance(each, Exception):
            report.unread.append(path)
        else:
            found[path] = each
    return found


def _unwrapped(documents: Mapping[str, Document], kms: Any, report: OldKeyReport) -> dict[str, EncryptedKey]:
    """The key encryption keys that another master key has unwrapped, by their ids, as that one wraps them."""
    found: dict[str, EncryptedKey] = {}
    tried: dict[tuple[str, bytes], bool] = {}
    for location, document in documents.items():
        keys = EncryptionKeys(document.entries())
        for entry in keys:
            by = entry.encrypted_by_id
            is_kek = entry.timestamp is not None or bool(keys.below(entry.key_id))
            if by is None or by in keys or by == report.key_id or not is_kek:
                continue
            name = by, entry.encrypted_key_metadata
            if name not in tried:
                tried[name] = _opens(kms, entry, by, report)
            if tried[name]:
                found.setdefault(entry.key_id, entry)
                if location not in report.metadata_files:
                    report.metadata_files.append(location)
    return found


def _opens(kms: Any, entry: EncryptedKey, key_id: str, report: OldKeyReport) -> bool:
    try:
        kept_kek(kms, entry.encrypted_key_metadata, key_id, entry.key_id)
    except KeyAccessError as error:
        report.refused.setdefault(key_id, str(error))
        return False
    if key_id not in report.opened:
        report.opened.append(key_id)
    return True


def _look(
    table: CatalogTable,
    state: TableState,
    kms: Any,
    documents: list[Document],
    opened: Mapping[str, EncryptedKey],
    report: OldKeyReport,
) -> None:
    """Open every snapshot that any metadata file has, with the old master keys alone."""
    fields = state.document.fields
    entries: dict[str, EncryptedKey] = {}
    snapshots: dict[int, Any] = {}
    owners: dict[str | None, int] = {}
    for document in documents:
        for entry in document.entries():
            entries.setdefault(entry.key_id, entry)
        for each in document.fields.get("snapshots") or ():
            number = each["snapshot-id"]
            # A planted file that names the list of another snapshot must not hide that one.
            if number == owners.setdefault(each.get("manifest-list"), number):
                snapshots.setdefault(number, each)
    keys = [each.to_dict() for each in {**entries, **opened}.values()]
    everything = {**fields, "snapshots": list(snapshots.values()), "encryption-keys": keys}
    try:
        found = _walked(table, state, everything, _Only(kms, report.opened))
        _judge(table, state, kms, found, report)
    finally:
        # Readers of this process that find keys by the metadata file are to find its own.
        _file_io(table, state, kms).read_metadata(state.metadata_location)


def _judge(table: CatalogTable, state: TableState, kms: Any, found: TableWalk, report: OldKeyReport) -> None:
    fields = state.document.fields
    numbers = {
        each.snapshot_id
        for each in found.snapshots
        if each.key_id is not None and each.manifest_list is not None and each.manifest_list.error is None
    }
    own = [each["snapshot-id"] for each in fields.get("snapshots") or ()]
    report.snapshots = [each for each in own if each in numbers]
    report.removed = sorted(numbers.difference(own))
    refs = TableMetadata(fields).refs
    report.refs = [name for name, ref in refs.items() if ref["snapshot-id"] in numbers]
    reached = set(_reached(found))
    if reached:
        heads = {ref["snapshot-id"] for ref in refs.values()}
        current = {**fields, "snapshots": [each for each in fields["snapshots"] if each["snapshot-id"] in heads]}
        report.files = sum(each.path in reached for each in _walked(table, state, current, kms))


def _file_io(table: CatalogTable, state: TableState, kms: Any) -> EncryptedFileIO:
    # Some of what it reads is under old master keys.
    expected = replace(table.expected, table_key_id=None, metadata_hash=None)
    return file_io_at(state, table.io_properties, kms, expected)


def _walked(table: CatalogTable, state: TableState, fields: Mapping[str, Any], kms: Any) -> TableWalk:
    text = json.dumps(fields, ensure_ascii=False).encode("utf-8")
    made = TableState(
        state.metadata_location, metadata_document(state.metadata_location, text), None, None, state.locations
    )
    return walk(state.metadata_location, _file_io(table, made, kms), "all")


def _reached(found: TableWalk) -> Iterator[str]:
    """Files whose keys were found."""
    for each in found:
        if each.error is None and each.encryption != PLAINTEXT:
            yield each.path


def _look_at_journals(table: CatalogTable, state: TableState, kms: Any, report: OldKeyReport) -> None:
    metadata = TableMetadata(state.document.fields)

    def unwrap(wrapped: Mapping[str, Any], name: str) -> Key:
        key = WrappedKey.from_json(wrapped, name)
        if key.key_id == report.key_id:
            raise AuthenticationError("the journal is under the table's own master key")
        try:
            made = key.unwrap(kms)
        except KeyAccessError as error:
            report.refused.setdefault(key.key_id, str(error))
            raise
        if key.key_id not in report.opened:
            report.opened.append(key.key_id)
        return made

    place = TableFiles(metadata, table.place).new_metadata_path(DIRECTORY)
    try:
        table.places(state).check(place)
    except UnsupportedError:
        # Only the metadata names this place, which nobody has allowed.
        report.unread.append(f"{place}/ (not allowed)")
        return
    runs, uuid = found_runs(below_metadata(table.place(place))), str(metadata.fields.get("table-uuid"))
    # Others are of the table's own key, refused, or what nobody with a key has written.
    opened = opened_runs(runs, KIND, uuid, unwrap, lambda name, error: None)
    report.journals += [each.found.run for each in opened]
