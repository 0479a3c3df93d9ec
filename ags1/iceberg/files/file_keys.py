"""Which key each file of an encrypted table has, learned from the files above it.

    metadata.json    encryption-keys, key-id of each snapshot     -->  keys of manifest lists (unwrapped by the KMS)
    manifest list    key_metadata (field 519) of each entry       -->  keys of manifests
    manifest         key_metadata (field 131) of each data file   -->  keys of data and delete files

A file is known after the file above it was read, which is the order of every reader. The wrapped keys of metadata.json
are kept for the process, because PyIceberg makes another FileIO for the same table after it has read the metadata.
Plaintext keys from the files below stay with the object. Source: Iceberg table spec, "Manifest Lists" and "Manifests";
FileIO of PyIceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ags1.errors import Ags1Error, FormatError, KeyAccessError, without_secrets
from ags1.expected import NOTHING, Expected
from ags1.iceberg.keys.document import Document
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.keys.entries import shown
from ags1.iceberg.metadata.locations import IO_IMPLEMENTATION
from ags1.iceberg.metadata.manifests import kind_of, read_entries, read_list
from ags1.iceberg.metadata.metadata_document import check_list, claims_encryption, list_header, properties_of
from ags1.iceberg.metadata.naming import naming
from ags1.keys import KeyMetadata
from ags1.support.arguments import spelled
from ags1.support.forks import ForkSafeLock
from ags1.support.recently_used import RecentlyUsed

_KEPT_TABLES = 256
_OURS = "ags1.iceberg.EncryptedFileIO"


@dataclass(slots=True, eq=False, repr=False)
class KnownFile:
    """Facts about a file from the file above it.

    Attributes
    ----------
    kind : str
        "manifest list", "manifest", "data", "position deletes", "equality deletes" or "deletion vectors".
    file_format : str
        "avro", "parquet", "orc" or "puffin".
    key_metadata : KeyMetadata or None
        None for a plaintext file.
    length_hint : int or None
        Bytes, as the file above has them: the stored ones by Java, those of the plaintext for iceberg-rust's
        manifests.
    record_count : int or None
        Rows, or deleted rows.
    snapshots : tuple of (int, int or None)
        Of a manifest list: ids and sequence numbers of the snapshots that the metadata has it for.
    """

    path: str
    kind: str
    file_format: str
    key_metadata: KeyMetadata | None
    length_hint: int | None
    record_count: int | None = None
    snapshots: tuple[tuple[int, int | None], ...] = ()

    @property
    def stored_length(self) -> int | None:
        """Stored bytes, as far as the file above says them."""
        trusted = None if self.key_metadata is None else self.key_metadata.file_length
        return self.length_hint if trusted is None else trusted

    def __repr__(self) -> str:
        state = "plaintext" if self.key_metadata is None else "encrypted, key redacted"
        return f"<{self.kind} {without_secrets(self.path)}: {state}>"


class _Table:
    """The keys in a table's metadata, all wrapped."""

    __slots__ = ("keys", "manifest_lists")

    def __init__(self, document: Document) -> None:
        self.keys = EncryptionKeys(document.entries())
        _refuse_own_rules(document.fields)
        # Snapshot id, key id and sequence number of those that have a list.
        self.manifest_lists: dict[str, list[tuple[int, str | None, Any]]] = {}
        key_ids = document.snapshots().key_ids
        for snapshot in document.fields.get("snapshots") or ():
            path, number = snapshot.get("manifest-list"), snapshot["snapshot-id"]
            if isinstance(path, str):
                known = (number, key_ids[number], snapshot.get("sequence-number"))
                self.manifest_lists.setdefault(path, []).append(known)


def _refuse_own_rules(fields: Mapping[str, Any]) -> None:
    """PyIceberg lets a table's properties replace the catalog's, and nothing protects those of the table."""
    properties = properties_of(fields)
    ours = [name for name in properties if name.startswith("ags1.")]
    if claims_encryption(fields) and properties.get(IO_IMPLEMENTATION, _OURS) != _OURS:
        ours.append(IO_IMPLEMENTATION)
    if ours:
        raise FormatError(
            f"the table's own properties set {', '.join(map(shown, ours))}: how a table is read is not for the "
            "table to say; remove them there, and give them to the catalog or to open_table()"
        )


_tables = RecentlyUsed(_KEPT_TABLES)


class TableFileKeys:
    """Keys of files by their paths. Safe to share between threads; it holds plaintext keys, so it cannot be pickled.

    The KMS unwraps key encryption keys; without one only plaintext is learned. Every hierarchy must end in the
    `expected` master key.
    """

    def __init__(self, kms: Any, expected: Expected = NOTHING) -> None:
        self._kms, self._expected = kms, expected
        self._own: dict[str, _Table] = {}
        self._files: dict[str, KnownFile] = {}
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the keys of a table's files cannot be pickled: open the table where it is read")

    def learn_metadata(self, location: str, metadata: bytes | Document, *, shared: bool = True) -> None:
        """Learn the keys of a metadata file; unless it is `shared`, for this object alone."""
        try:
            table = _Table(metadata if isinstance(metadata, Document) else Document(metadata))
        except Ags1Error as error:
            raise type(error)(f"{location}: {error}") from None
        with self._lock.lock:
            self._own.pop(location, None)
            self._own[location] = table
        if shared:
            _tables.drop(location)
            _tables.keep(location, table)

    def find(self, path: str) -> KnownFile | None:
        """Return the facts about a file; None if no file above has named it.

        If the key of a manifest list cannot be unwrapped, the error names the snapshot and the key.
        """
        with self._lock.lock:
            known = self._files.get(path)
            if known is not None:
                return known
            # Facts of this object come first: another copy of the table's metadata may have other keys.
            tables = [*reversed(self._own.values()), *_tables.newest_first()]
        table = next((each for each in tables if path in each.manifest_lists), None)
        if table is None:
            return None
        of = table.manifest_lists[path]
        snapshot_id, key_id, _ = of[0]
        if any(other != key_id for _, other, _ in of):
            raise FormatError(f"{path}: snapshots {snapshot_id} and others have this manifest list with different keys")
        key_metadata = None
        if key_id is not None:
            if self._kms is None:
                raise KeyAccessError(
                    f"snapshot {snapshot_id} is encrypted with key {shown(key_id)}: give {spelled('kms')}"
                )
            try:
                key_metadata = table.keys.unwrap(key_id, self._kms, table_key_id=self._expected.table_key_id)
            except Ags1Error as error:
                raise type(error)(f"snapshot {snapshot_id} (key-id {shown(key_id)}): {error}") from error
        snapshots = tuple((number, sequence_number) for number, _, sequence_number in of)
        known = KnownFile(path, "manifest list", "avro", key_metadata, None, snapshots=snapshots)
        with self._lock.lock:
            self._files[path] = known
        return known

    def learn(self, found: Iterable[KnownFile]) -> None:
        """Learn facts about files; the first facts stay."""
        with self._lock.lock:
            for known in found:
                self._files.setdefault(known.path, known)

    def learn_manifest_list(self, above: KnownFile, data: bytes) -> list[dict[str, Any]]:
        """Learn the keys in the plaintext of a manifest list; return its entries."""
        with naming(above.path):
            check_list(list_header(data), above.snapshots)
            listed = read_list(data)
            self.learn([known_manifest(each) for each in listed])
        return listed

    def learn_manifest(self, above: KnownFile, data: bytes) -> list[KnownFile]:
        """Learn the keys in the plaintext of a manifest; return its files, including deleted ones."""
        with naming(above.path):
            entries = read_entries(data, {}, metrics=False)
            found = [known_file(each.file) for each in entries]
        self.learn(found)
        return found


def known_manifest(listed: Mapping[str, Any]) -> KnownFile:
    """Return a manifest list's facts about a manifest."""
    path, key = listed["manifest_path"], listed.get("key_metadata")
    return KnownFile(path, "manifest", "avro", _key_metadata(key, path), listed.get("manifest_length"))


def known_file(file: Mapping[str, Any]) -> KnownFile:
    """Return a manifest's facts about a data or delete file."""
    path, key = file["file_path"], _key_metadata(file.get("key_metadata"), file["file_path"])
    size, rows = file.get("file_size_in_bytes"), file["record_count"]
    return KnownFile(path, kind_of(file), file["file_format"].lower(), key, size, rows)


def _key_metadata(data: bytes | None, path: str) -> KeyMetadata | None:
    if data is None:
        return None
    try:
        return KeyMetadata.decode(data)
    except FormatError as error:
        raise FormatError(f"the key metadata of {path} cannot be read: {error}") from None
