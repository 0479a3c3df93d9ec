"""Which key each file of an encrypted table has, learned from the files above it.

    metadata.json    encryption-keys, key-id of each snapshot     -->  keys of manifest lists (unwrapped by the KMS)
    manifest list    key_metadata (field 519) of each entry       -->  keys of manifests
    manifest         key_metadata (field 131) of each data file   -->  keys of data and delete files

A file below is known once the file above it was read, which is the order in which every reader goes. What is learned
from metadata.json is wrapped, and kept for the process, because PyIceberg makes another FileIO for the same table after
it has read the metadata. What is learned below that are keys, and they stay with the object.
Source: Iceberg table spec, "Manifest Lists" and "Manifests"; FileIO of PyIceberg.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from ags1.errors import Ags1Error, FormatError, KeyAccessError
from ags1.iceberg._document import Document
from ags1.iceberg._entries import shown
from ags1.iceberg.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata_document import claims_encryption, list_contradiction, list_header
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["FileKeys", "KnownFile"]

# Field ids of the manifest list and the manifest.
MANIFEST_PATH, MANIFEST_LENGTH, MANIFEST_CONTENT, MANIFEST_KEY_METADATA = 500, 501, 517, 519
DATA_FILE, STATUS = 2, 0
CONTENT, FILE_PATH, FILE_FORMAT, FILE_SIZE, KEY_METADATA = 134, 100, 101, 104, 131
RECORD_COUNT = 103

_CONTENTS = ("data", "position deletes", "equality deletes")
_KEPT_TABLES = 256
_IMPLEMENTATION, _OURS = "py-io-impl", "ags1.iceberg.EncryptedFileIO"
# Deflate's best is a byte for 1032.
_MOST_RECORDS_PER_BYTE = 1032


class KnownFile:
    """What the file above says of a file.

    Attributes
    ----------
    path : str
        As it is written there.
    kind : str
        "manifest list", "manifest", "data", "position deletes", "equality deletes" or "deletion vectors".
    file_format : str
        "avro", "parquet", "orc" or "puffin".
    key_metadata : KeyMetadata or None
        None for a plaintext file.
    length_hint : int or None
        Bytes, as the file above has them: the stored ones by Java, those of the plaintext for iceberg-rust's
        manifests.
    encrypted_table : bool
        Whether its table is an encrypted one.
    record_count : int or None
        Rows, or deleted rows.
    snapshots : tuple of (int, int or None)
        Of a manifest list: ids and sequence numbers of the snapshots that the metadata has it for.
    """

    __slots__ = (
        "encrypted_table", "file_format", "key_metadata", "kind", "length_hint", "path", "record_count", "snapshots",
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        kind: str,
        file_format: str,
        key_metadata: KeyMetadata | None,
        length_hint: int | None,
        encrypted_table: bool,
        record_count: int | None = None,
        snapshots: tuple[tuple[int, int | None], ...] = (),
    ) -> None:
        self.path = path
        self.kind = kind
        self.file_format = file_format
        self.key_metadata = key_metadata
        self.length_hint = length_hint
        self.encrypted_table = encrypted_table
        self.record_count = record_count
        self.snapshots = snapshots

    def __repr__(self) -> str:
        state = "plaintext" if self.key_metadata is None else "encrypted, key redacted"
        return f"<{self.kind} {self.path}: {state}>"


class _Snapshot:
    """What the metadata says of a snapshot."""

    __slots__ = ("key_id", "sequence_number", "snapshot_id")

    def __init__(self, snapshot_id: Any, key_id: str | None, sequence_number: Any) -> None:
        self.snapshot_id = snapshot_id
        self.key_id = key_id
        self.sequence_number = sequence_number


class _Table:
    """What the metadata of a table says of keys: all of it wrapped."""

    __slots__ = ("encrypted", "keys", "manifest_lists")

    def __init__(self, document: Document) -> None:
        self.keys = EncryptionKeys(document.entries())
        properties = document.fields.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        self.encrypted = claims_encryption(document.fields)
        self._refuse_own_rules(properties)
        self.manifest_lists: dict[str, list[_Snapshot]] = {}
        snapshots = document.fields.get("snapshots")
        for snapshot in snapshots if isinstance(snapshots, list) else []:
            if not isinstance(snapshot, dict):
                raise FormatError("the table metadata has a snapshot that is no object")
            path, key_id = snapshot.get("manifest-list"), snapshot.get("key-id")
            if key_id is not None and not isinstance(key_id, str):
                raise FormatError(f"snapshot {snapshot.get('snapshot-id')} has a key-id that is no text")
            if isinstance(path, str):
                known = _Snapshot(snapshot.get("snapshot-id"), key_id, snapshot.get("sequence-number"))
                self.manifest_lists.setdefault(path, []).append(known)

    def _refuse_own_rules(self, properties: dict[str, Any]) -> None:
        """PyIceberg lets a table's properties replace the catalog's, and nothing protects those of the table."""
        ours = [name for name in properties if name.startswith("ags1.")]
        if self.encrypted and properties.get(_IMPLEMENTATION, _OURS) != _OURS:
            ours.append(_IMPLEMENTATION)
        if ours:
            raise FormatError(
                f"the table's own properties set {', '.join(map(shown, ours))}: how a table is read is not for the "
                "table to say; remove them there, and give them to the catalog or to open_table()"
            )


_tables: OrderedDict[str, _Table] = OrderedDict()
_tables_lock = threading.Lock()


class FileKeys:
    """Keys of files by their paths.

    Parameters
    ----------
    kms : object
        Unwraps key encryption keys; None only learns what is plaintext.
    table_key_id : str, optional
        The master key that every hierarchy must end in.
    promised : bool
        Whether the table is an encrypted one, whatever its metadata says.

    Notes
    -----
    Safe to share between threads. Holds plaintext keys, so it cannot be pickled.
    """

    def __init__(self, kms: Any, *, table_key_id: str | None = None, promised: bool = False) -> None:
        self._kms = kms
        self._table_key_id = table_key_id
        self._promised = promised or table_key_id is not None
        self._own: dict[str, _Table] = {}
        self._files: dict[str, KnownFile] = {}
        self._read: set[str] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the keys of a table's files cannot be pickled: open the table where it is read")

    @property
    def promised(self) -> bool:
        """Whether what is read here must be encrypted: by the master key that was named, or by the table itself."""
        with self._lock:
            return self._promised or any(each.encrypted for each in self._own.values())

    def learn_metadata(self, location: str, metadata: bytes | Document) -> None:
        """Take in a metadata file."""
        try:
            table = _Table(metadata if isinstance(metadata, Document) else Document(metadata))
        except Ags1Error as error:
            raise type(error)(f"{location}: {error}") from None
        with self._lock:
            self._own.pop(location, None)
            self._own[location] = table
        with _tables_lock:
            _tables.pop(location, None)
            _tables[location] = table
            while len(_tables) > _KEPT_TABLES:
                _tables.popitem(last=False)

    def find(self, path: str) -> KnownFile | None:
        """What is known of a file; None for one that no file above has named.

        Raises
        ------
        KeyAccessError, FormatError, AuthenticationError
            The key of a manifest list cannot be unwrapped; names the snapshot and the key.
        """
        with self._lock:
            known = self._files.get(path)
            if known is not None:
                return known
            # What was learned here comes first: another copy of the table's metadata may have other keys.
            tables = list(reversed(self._own.values()))
        with _tables_lock:
            tables += reversed(_tables.values())
        table = next((each for each in tables if path in each.manifest_lists), None)
        if table is None:
            return None
        of = table.manifest_lists[path]
        snapshot_id, key_id = of[0].snapshot_id, of[0].key_id
        if any(each.key_id != key_id for each in of):
            raise FormatError(f"{path}: snapshots {snapshot_id} and others have this manifest list with different keys")
        key_metadata = None
        if key_id is not None:
            if self._kms is None:
                raise KeyAccessError(f"snapshot {snapshot_id} is encrypted with key {shown(key_id)}: give a KMS")
            try:
                key_metadata = table.keys.unwrap(key_id, self._kms, table_key_id=self._table_key_id)
            except Ags1Error as error:
                raise type(error)(f"snapshot {snapshot_id} (key-id {shown(key_id)}): {error}") from error
        promised = table.encrypted or self._promised
        snapshots = tuple((each.snapshot_id, each.sequence_number) for each in of)
        known = KnownFile(path, "manifest list", "avro", key_metadata, None, promised, snapshots=snapshots)
        with self._lock:
            self._files[path] = known
        return known

    def first(self, wanted: Callable[[KnownFile], bool]) -> KnownFile | None:
        """A file that is known by now and is like that."""
        with self._lock:
            files = list(self._files.values())
        return next((known for known in files if wanted(known)), None)

    def learn_manifest_list(self, above: KnownFile, data: bytes) -> list[KnownFile]:
        """Take in the plaintext of a manifest list; return its manifests."""
        names = {MANIFEST_PATH: "path", MANIFEST_LENGTH: "length", MANIFEST_KEY_METADATA: "key"}
        with _reading(above.path):
            contradiction = list_contradiction(list_header(data), above.snapshots)
            if contradiction is not None:
                raise contradiction
            found = [
                KnownFile(
                    _text(entry["path"]),
                    "manifest",
                    "avro",
                    _key_metadata(entry.get("key"), entry["path"]),
                    entry.get("length"),
                    above.encrypted_table,
                )
                for entry in _rows(above.path, data, names)
            ]
        self._keep(above, found)
        return found

    def learn_manifest(self, above: KnownFile, data: bytes) -> list[KnownFile]:
        """Take in the plaintext of a manifest; return its files, those that were deleted too."""
        names = {
            DATA_FILE: "file",
            CONTENT: "content",
            FILE_PATH: "path",
            FILE_FORMAT: "format",
            FILE_SIZE: "size",
            KEY_METADATA: "key",
            RECORD_COUNT: "records",
        }
        with _reading(above.path):
            found = [_known_file(above, entry["file"]) for entry in _rows(above.path, data, names)]
        self._keep(above, found)
        return found

    def _keep(self, above: KnownFile, found: list[KnownFile]) -> None:
        with self._lock:
            if above.path in self._read:
                return
            self._read.add(above.path)
            for known in found:
                self._files.setdefault(known.path, known)


def _known_file(above: KnownFile, file: dict[str, Any]) -> KnownFile:
    path, file_format, content = _text(file["path"]), _text(file["format"]).lower(), file.get("content") or 0
    if content not in range(len(_CONTENTS)):
        raise FormatError(f"{above.path}: has a file with content {content}, which this version does not know")
    kind = "deletion vectors" if file_format == "puffin" else _CONTENTS[content]
    key = _key_metadata(file.get("key"), path)
    return KnownFile(path, kind, file_format, key, file.get("size"), above.encrypted_table, file.get("records"))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Gives whatever the wrong bytes lead fastavro to raise, and us, the type that the caller knows."""
    try:
        yield
    except Ags1Error as error:
        if path not in str(error):
            error.args = (f"{path}: {error}",)
        raise
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise FormatError(f"{path}: is not the Avro file that it should be: {error!r}") from None


def _key_metadata(data: bytes | None, path: str) -> KeyMetadata | None:
    if data is None:
        return None
    try:
        return KeyMetadata.decode(data)
    except FormatError as error:
        raise FormatError(f"the key metadata of {path} cannot be read: {error}") from None


def _rows(path: str, data: bytes, names: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Records of an Avro file, with only the fields of these ids, under these names."""
    try:
        import fastavro
    except ImportError:
        raise ImportError("reading Iceberg tables needs fastavro: pip install 'ags1[iceberg]'") from None
    with _reading(path):
        written = fastavro.reader(io.BytesIO(data)).writer_schema
        schema = json.loads(json.dumps(written))
        renames = _project(schema, names)
        for count, record in enumerate(fastavro.reader(io.BytesIO(data), reader_schema=schema)):
            if count > _MOST_RECORDS_PER_BYTE * len(data):
                # Records without content take no bytes, and a few bytes can promise any number of them.
                raise FormatError(f"{path}: says that it has more records than can be in it")
            yield _renamed(record, renames)


_Renames = dict[str, "tuple[str, _Renames | None]"]


def _project(schema: Any, names: dict[int, str]) -> _Renames:
    """Reduce a record schema, in place, to the fields that are wanted; return what each is called."""
    kept, renames = [], {}
    for field in schema["fields"]:
        name = names.get(field.get("field-id"))
        if name is None:
            continue
        record = _record_of(field["type"])
        renames[field["name"]] = (name, _project(record, names) if record is not None else None)
        kept.append(field)
    schema["fields"] = kept
    return renames


def _record_of(kind: Any) -> Any:
    if isinstance(kind, list):
        return next((found for each in kind if (found := _record_of(each)) is not None), None)
    return kind if isinstance(kind, dict) and kind.get("type") == "record" else None


def _renamed(record: Any, renames: _Renames) -> dict[str, Any]:
    made = {}
    for name, (known, below) in renames.items():
        value = record[name]
        made[known] = _renamed(value, below) if below is not None and value is not None else value
    return made
