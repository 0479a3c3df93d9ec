"""What master keys other than a table's own still open, found out by opening it.

    metadata files that are there --> key encryption keys under other master keys --unwrapped by the KMS-->
        --> manifest lists and manifests of every snapshot, old and new --> files of the branches and tags
    journals of conversions       --> their work keys

A key encryption key keeps its id when it is wrapped again, so an old metadata file and the old master key may open what
is current. A refusal of the KMS proves nothing: the key may be enabled again, or another caller may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ags1.errors import AuthenticationError, FormatError, KeyAccessError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.catalogs.file import as_the_table_spells_it
from ags1.iceberg.conversion.journal import DIRECTORY, KIND, below_metadata
from ags1.iceberg.files.file_io import EncryptedFileIO, file_io_at
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.iceberg.metadata.key_entries import EncryptedKey, kept_kek
from ags1.iceberg.metadata.metadata_document import MAX_DOCUMENT, Document, is_metadata_file, metadata_document
from ags1.iceberg.walk.table_audit import audit
from ags1.iceberg.walk.table_walk import FAULTS, PLAINTEXT, TableWalk, walk
from ags1.iceberg.writing.commit import TableFiles
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.keys import Key
from ags1.storage import SMALL_FILES_AT_ONCE, Request, list_names, read_whole, start
from ags1.support.arguments import spelled
from ags1.support.parallel import in_parallel
from ags1.support.reports import FindingsReport, Report
from ags1.support.words import counted, printable
from ags1.work.records import FoundRun, found_runs, opened_runs

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
                f"old keys STILL open {counted(self.files, 'file')} of the branches and tags{refs}: "
                f"{spelled('rekey_table')} with new data keys ends that"
            )
        if self.snapshots:
            lines.append(
                f"old keys open {counted(len(self.snapshots), 'snapshot')}: {spelled('expire_snapshots')} removes "
                "those that no "
                "branch or tag has"
            )
        if self.removed:
            lines.append(
                f"old keys open {counted(len(self.removed), 'snapshot')} that the table no longer has, and whose files "
                "a killed run has left: `ags1 iceberg clean` removes them"
            )
        if self.journals:
            journals = counted(len(self.journals), "journal of a killed conversion", "journals of killed conversions")
            lines.append(f"old keys open {journals}: `ags1 iceberg clean` removes them")
        lines += [
            f"NOT tried, because the KMS refused the old master key {key_id}: if it was destroyed, it opens nothing; "
            "otherwise enable it, and audit the table again"
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
        tried = _Search(table, file_io.kms)
        old_keys, older = tried.report, tried.older
    report = audit(found, file_io, older)
    report.facts["old_keys"] = old_keys
    return report


def what_old_keys_open(table: CatalogTable, kms: Any, state: TableState | None = None) -> OldKeyReport:
    """Try every other master key that a metadata file or a journal of a table names.

    `state` is the table's newest one, if the caller knows it.

    Metadata files are those beside the current one, and those in its metadata log. Data files are not read: a key that
    a readable manifest has opens its file.

    Raises
    ------
    Ags1Error, OSError
        The table's own metadata cannot be read.
    """
    return _Search(table, kms, state).report


def _older_documents(
    table: CatalogTable, state: TableState, paths: Iterable[str]
) -> Iterator[tuple[str, Document | Exception]]:
    """Return metadata files of a table with their locations, or why they cannot be read.

    Those that are missing, and those of another table, are left out.
    """
    places, own = table.places(state), state.document.fields.get("table-uuid")

    def read(path: str) -> Document | Exception | None:
        try:
            places.check(path)
            found = metadata_document(path, bytes(read_whole(table.place(path), MAX_DOCUMENT)))
            if found.fields.get("table-uuid") != own:
                return None
            # One that somebody has planted must not end the search.
            EncryptionKeys(found.entries())
            found.snapshots()
            if not all(isinstance(each.get("manifest-list", ""), str) for each in found.fields.get("snapshots") or ()):
                raise FormatError("the path of a manifest list is no text")
            return found
        except FileNotFoundError:
            return None
        except FAULTS as error:
            return error

    paths = [each for each in paths if each != state.metadata_location]
    for path, each in zip(paths, in_parallel(read, paths, SMALL_FILES_AT_ONCE), strict=True):
        if each is not None:
            yield path, each


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


class _Search:
    """What other master keys than the table's own open, and the older metadata files that were read for that."""

    def __init__(self, table: CatalogTable, kms: Any, state: TableState | None = None) -> None:
        self._table, self._kms, self._state = table, kms, state or table.load()
        self._fields = self._state.document.fields
        self._metadata = TableMetadata(self._fields)
        self.report = OldKeyReport(table.name, self._metadata.key_id)
        runs = self._runs()
        self.older = self._older()
        documents = {self._state.metadata_location: self._state.document, **self.older}
        opened = self._unwrapped(documents)
        if opened:
            self._look(list(documents.values()), opened)
        # Others are of the table's own key, refused, or what nobody with a key has written.
        uuid = str(self._fields.get("table-uuid"))
        found = opened_runs(runs.result(), KIND, uuid, self._work_key, lambda name, error: None)
        self.report.journals += [each.found.run for each in found]

    def _older(self) -> dict[str, Document]:
        """The other metadata files of the table."""
        # Those of the log, the newest one first.
        paths = dict.fromkeys(each["metadata-file"] for each in reversed(self._fields.get("metadata-log") or ()))
        # As the log spells it: each file once.
        current = as_the_table_spells_it(self._state.metadata_location, self._fields)
        directory = current.rpartition("/")[0]
        try:
            self._table.places(self._state).check(f"{directory}/new")
            names = list_names(self._table.place(directory))
        except (OSError, UnsupportedError):
            # Not every reader may list. The log names the files of the last commits.
            self.report.unread.append(f"{directory}/ (not listed)")
            names = []
        else:
            if current.rpartition("/")[2] not in names:
                # A catalog may keep its metadata files where no client reads them.
                self.report.unread.append(f"{directory}/ (without the table's own metadata file)")
        paths |= dict.fromkeys(f"{directory}/{name}" for name in names if is_metadata_file(name))
        paths.pop(current, None)
        found = {}
        for path, each in _older_documents(self._table, self._state, paths):
            if isinstance(each, Exception):
                self.report.unread.append(path)
            else:
                found[path] = each
        return found

    def _unwrapped(self, documents: Mapping[str, Document]) -> dict[str, EncryptedKey]:
        """The key encryption keys that another master key has unwrapped, by their ids, as that one wraps them."""
        found: dict[str, EncryptedKey] = {}
        tried: dict[tuple[str, bytes], bool] = {}
        for location, document in documents.items():
            keys = EncryptionKeys(document.entries())
            for entry in keys:
                by = entry.encrypted_by_id
                is_kek = entry.timestamp is not None or bool(keys.below(entry.key_id))
                if by is None or by in keys or by == self.report.key_id or not is_kek:
                    continue
                name = by, entry.encrypted_key_metadata
                if name not in tried:
                    tried[name] = self._key(by, partial(kept_kek, self._kms, entry)) is not None
                if tried[name]:
                    found.setdefault(entry.key_id, entry)
                    if location not in self.report.metadata_files:
                        self.report.metadata_files.append(location)
        return found

    def _key(self, key_id: str, unwrap: Callable[[], Key]) -> Key | None:
        """Return the key that a master key unwraps; None if the KMS refused."""
        try:
            made = unwrap()
        except KeyAccessError as error:
            self.report.refused.setdefault(key_id, str(error))
            return None
        if key_id not in self.report.opened:
            self.report.opened.append(key_id)
        return made

    def _look(self, documents: list[Document], opened: Mapping[str, EncryptedKey]) -> None:
        """Open every snapshot that any metadata file has, with the old master keys alone."""
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
        everything = {**self._fields, "snapshots": list(snapshots.values()), "encryption-keys": keys}
        self._judge(self._walked(everything, _Only(self._kms, self.report.opened)))

    def _judge(self, found: TableWalk) -> None:
        fields = self._fields
        numbers = {
            each.snapshot_id
            for each in found.snapshots
            if each.key_id is not None and each.manifest_list is not None and each.manifest_list.error is None
        }
        own = [each["snapshot-id"] for each in fields.get("snapshots") or ()]
        self.report.snapshots = [each for each in own if each in numbers]
        self.report.removed = sorted(numbers.difference(own))
        refs = self._metadata.refs
        self.report.refs = [name for name, ref in refs.items() if ref["snapshot-id"] in numbers]
        reached = {each.path for each in found if each.error is None and each.encryption != PLAINTEXT}
        if reached:
            heads = {ref["snapshot-id"] for ref in refs.values()}
            current = {**fields, "snapshots": [each for each in fields["snapshots"] if each["snapshot-id"] in heads]}
            self.report.files = sum(each.path in reached for each in self._walked(current, self._kms))

    def _file_io(self, state: TableState, kms: Any) -> EncryptedFileIO:
        # Some of what it reads is under old master keys.
        expected = replace(self._table.expected, table_key_id=None, metadata_hash=None)
        return file_io_at(state, self._table.io_properties, kms, expected)

    def _walked(self, fields: Mapping[str, Any], kms: Any) -> TableWalk:
        made = TableState(self._state.metadata_location, Document(fields), None, None, self._state.locations)
        file_io = self._file_io(made, kms)
        # These keys are not those of the metadata file: no other reader of this process must find them.
        file_io.keys.is_shared = False
        return walk(made.metadata_location, file_io, "all")

    def _runs(self) -> Request[list[FoundRun]]:
        """Request the journals of conversions that there are."""
        place = TableFiles(self._metadata, self._table.place).new_metadata_path(DIRECTORY)
        try:
            self._table.places(self._state).check(place)
        except UnsupportedError:
            # Only the metadata names this place, which nobody has allowed.
            self.report.unread.append(f"{place}/ (not allowed)")
            return start(list)
        return start(partial(found_runs, below_metadata(self._table.place(place))))

    def _work_key(self, wrapped: Mapping[str, Any], name: str) -> Key:
        key = WrappedKey.from_json(wrapped, name)
        if key.key_id == self.report.key_id:
            raise AuthenticationError("the journal is under the table's own master key")
        made = self._key(key.key_id, lambda: key.unwrap(self._kms))
        if made is None:
            raise KeyAccessError(self.report.refused[key.key_id])
        return made
