"""A PyIceberg FileIO that opens the files of encrypted tables, and knows the key of each from the files above it.

    PyIceberg:  io.new_input(path).open()
    here:       metadata.json          as it is, and its keys learned
                manifest list          decrypted (AGS1), and the keys of its manifests learned
                manifest               decrypted (AGS1), and the keys of its files learned
                Parquet                the plaintext view (Parquet Modular Encryption)
                Avro, Puffin           an ags1 Reader (AGS1)

PyIceberg's own scans and ``inspect`` read encrypted tables through this FileIO. The scans of an EncryptedTable take
their files from the manifests themselves, by :class:`SnapshotFiles`. PyIceberg cannot record the keys of new files, so
writes to an encrypted table are refused.

A file is known after the file above it was read, which is the order of every reader. The wrapped keys of metadata.json
are kept for the process, because PyIceberg makes another FileIO for the same table after it has read the metadata.
Plaintext keys from the files below stay with the object. Source: Iceberg table spec, "Manifest Lists" and "Manifests".
"""

from __future__ import annotations

import contextlib
import gzip
import io
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ags1 import layout
from ags1.errors import Ags1Error, FormatError, KeyAccessError, TruncatedError, without_secrets
from ags1.expected import NOTHING, Expected
from ags1.iceberg.catalogs import CatalogTable, TableState
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.key_entries import shown
from ags1.iceberg.metadata.locations import TableLocations, location_of, moved
from ags1.iceberg.metadata.manifests import (
    Manifest,
    ManifestEntry,
    check_list,
    kind_of,
    list_header,
    read_entries,
    read_list,
    read_manifest,
    readable,
)
from ags1.iceberg.metadata.metadata_document import (
    KEY_ID,
    MAX_DOCUMENT,
    METADATA_SUFFIX,
    Document,
    check_expected,
    is_compressed,
    metadata_document,
    properties_of,
    refuse_own_rules,
)
from ags1.keys import KeyMetadata
from ags1.storage import (
    SMALL,
    Location,
    Request,
    Source,
    StoredFile,
    open_regular,
    open_source,
    remove,
    start,
    status,
)
from ags1.streams.stream import Reader
from ags1.support.arguments import spelled
from ags1.support.forks import ForkSafeLock
from ags1.support.recently_used import RecentlyUsed

_KEPT_TABLES = 256


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
        refuse_own_rules(document.fields)
        # Snapshot id, key id and sequence number of those that have a list.
        self.manifest_lists: dict[str, list[tuple[int, str | None, Any]]] = {}
        key_ids = document.snapshots().key_ids
        for snapshot in document.fields.get("snapshots") or ():
            path, number = snapshot.get("manifest-list"), snapshot["snapshot-id"]
            if isinstance(path, str):
                known = (number, key_ids[number], snapshot.get("sequence-number"))
                self.manifest_lists.setdefault(path, []).append(known)


_tables = RecentlyUsed(_KEPT_TABLES)


class TableFileKeys:
    """Keys of files by their paths. Safe to share between threads; it holds plaintext keys, so it cannot be pickled.

    The KMS unwraps key encryption keys; without one only plaintext is learned. Every hierarchy must end in the
    `expected` master key. If it `is_shared`, all other objects of this process know its metadata files too.
    """

    is_shared = True

    def __init__(self, kms: Any, expected: Expected = NOTHING) -> None:
        self._kms, self._expected = kms, expected
        self._own: dict[str, _Table] = {}
        self._files: dict[str, KnownFile] = {}
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the keys of a table's files cannot be pickled: open the table where it is read")

    def learn_metadata(self, location: str, metadata: bytes | Document) -> None:
        """Learn the keys of a metadata file."""
        try:
            table = _Table(metadata if isinstance(metadata, Document) else Document(metadata))
        except Ags1Error as error:
            raise type(error)(f"{location}: {error}") from None
        with self._lock.lock:
            self._own.pop(location, None)
            self._own[location] = table
        if self.is_shared:
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


def refuse_form(known: KnownFile) -> None:
    """Raise a FormatError for a file that is no AGS1 stream, and no Parquet file."""
    if known.file_format not in ("avro", "puffin"):
        raise FormatError(
            f"{known.path}: encrypted files of the format {known.file_format} are not supported: Iceberg encrypts "
            "Parquet, Avro and Puffin"
        )


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


try:
    from pyiceberg.io import FileIO, InputFile, OutputFile
except ImportError as error:
    raise ImportError("Iceberg tables need PyIceberg: pip install 'ags1[iceberg]'", name=error.name) from None

KMS = "ags1.kms"
ROW_GROUP_LIMIT = "ags1.row-group-limit"
_ROW_GROUP_LIMIT = 4 << 30
_GZIP, _BLANK = b"\x1f\x8b", b" \t\r\n\xef\xbb\xbf"
_MAGICS = {b"AGS1": "an AGS1 stream", b"PARE": "an encrypted Parquet file"}


class UntrustedLengthWarning(UserWarning):
    """A file was opened without a trusted length: blocks missing at its end would go unnoticed."""


class EncryptedFileIO(FileIO):
    """Opens the files of encrypted Iceberg tables for PyIceberg.

    Parameters
    ----------
    properties : mapping
        Those of the catalog and the table. ``ags1.kms`` is a URL for :func:`ags1.kms.load`, such as ``aws:``;
        ``ags1.table-key-id``, ``ags1.allow-plaintext``, ``ags1.length-policy``, ``ags1.metadata-hash`` and
        ``ags1.allowed-locations`` (a JSON list) are the arguments of :func:`open_table`. ``ags1.row-group-limit`` is
        the largest row group of a Parquet file that scans read, in bytes, decoded, of the columns that are read: 4 GiB
        by default. Endpoints and credentials have PyIceberg's names; :mod:`ags1.storage` reads the files.
    kms : object, optional
        A KMS client, instead of ``ags1.kms``.
    expected : Expected, optional
        What the caller knows beforehand, instead of those properties.

    Examples
    --------
    >>> StaticTable.from_metadata(location, {"py-io-impl": "ags1.iceberg.EncryptedFileIO", "ags1.kms": "aws:"})

    Notes
    -----
    Keys are learned while PyIceberg reads metadata file, manifest lists and manifests, so a data file can be opened
    only after its manifest. Safe to share between threads. A pickled copy starts without keys.

    What PyIceberg 0.12 reads by itself through it, such as ``StaticTable.scan()``, has PyIceberg's own limits: it binds
    deletion vectors by the footers of their files. :func:`open_table` binds them by the manifests.
    """

    def __init__(
        self, properties: Mapping[str, str] = {}, *, kms: Any = None, expected: Expected | None = None
    ) -> None:
        super().__init__(dict(properties))
        self.row_group_limit = _row_group_limit(properties)
        self.expected = Expected.of(properties) if expected is None else expected
        self.kms = client_of(properties.get(KMS)) if kms is None else kms
        self.keys = TableFileKeys(self.kms, self.expected)
        self.locations = TableLocations(self.expected.allowed_locations, self.expected.moved_from)
        # Metadata that a catalog has read.
        self.loaded: dict[str, Document] = {}
        self._encrypted = False

    def __reduce__(self) -> tuple[Any, ...]:
        if KMS not in self.properties:
            raise TypeError(
                "an EncryptedFileIO with a KMS client cannot be pickled: name the KMS in the property ags1.kms"
            )
        return partial(EncryptedFileIO, expected=self.expected), (dict(self.properties),)

    def place(self, location: str) -> Location:
        """Return where a file is; UnsupportedError: outside the directories that the table's files may be in."""
        self.locations.check(location)
        return self.unchecked_place(location)

    def unchecked_place(self, location: str) -> Location:
        """As :meth:`place`, to decide how files are read, and not to read one."""
        return location_of(moved(location, self.expected.moved_from), self.properties)

    def stored(self, location: str, expected: int | None = None) -> StoredFile:
        """Open a file as it is stored; `expected` is its length, as far as the file above says it.

        Raises
        ------
        UnsupportedError
            It is outside the directories that the table's files may be in.
        OSError
            It cannot be read. A file of this machine must be a regular one: opening a pipe would wait for its other
            end.
        """
        return StoredFile(self.source(location, expected))

    def source(self, location: str, expected: int | None = None, *, ends: bool = False) -> Source:
        """The same as a source; with `ends`, as :func:`ags1.storage.open_source`."""
        return stored_source(self.place(location), expected, ends=ends)

    def read_metadata(self, location: str) -> Document:
        """Read the metadata file of a table, and learn its keys.

        Raises
        ------
        AuthenticationError, KeyAccessError
            It has another hash or master key than expected.
        FormatError
            It is not the metadata of a table, or its properties set how tables are read.
        """
        document = self.loaded.get(location)
        if document is None:
            self.locations.add(location)
            try:
                with self.stored(location, SMALL) as file:
                    data = file.read(MAX_DOCUMENT + 1)
            except IsADirectoryError as error:
                text = (
                    f"is a directory, and not a metadata file: open it with `load_table(None, {location!r}, kms=...)`"
                )
                raise IsADirectoryError(error.errno, text, location) from None
            document = metadata_document(location, data)
        check_expected(self.expected, location, document)
        self._encrypted = bool(properties_of(document.fields).get(KEY_ID))
        self.locations.believe(document.fields)
        self.keys.learn_metadata(location, document)
        return document

    def new_input(self, location: str) -> EncryptedInputFile:
        """A file to read."""
        return EncryptedInputFile(location, self)

    def refuse_plaintext(self, known: KnownFile) -> None:
        """Raise a KeyAccessError if this file is not encrypted, and plaintext is not allowed."""
        if known.key_metadata is not None or self.expected.allow_plaintext:
            return
        what = f"{known.path}: this {known.kind} file is not encrypted"
        if self._encrypted:
            what += ", although its table is: it was added without encryption, or somebody wants you to believe that"
        raise KeyAccessError(f"{what}; open the table with {spelled('allow_plaintext', True)} to read it")

    def new_output(self, location: str) -> OutputFile:
        """Always raises: PyIceberg cannot record the key of an encrypted file."""
        raise PermissionError(
            f"{without_secrets(location)}: PyIceberg cannot write to encrypted tables, because it has nowhere to put "
            "the keys of new files: write with the methods of the EncryptedTable, such as append, or with Spark"
        )

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        path = location if isinstance(location, str) else location.location
        remove([self.place(path)])


class EncryptedInputFile(InputFile):
    """A file of an encrypted table."""

    def __init__(self, location: str, file_io: EncryptedFileIO) -> None:
        super().__init__(location)
        self._io = file_io
        self._request: Request[Source] | None = None

    def begin(self, known: KnownFile) -> EncryptedInputFile:
        """Request the file now; :meth:`open` and :meth:`source` wait for the response, once."""
        self._request = start(lambda: self._requested(known))
        return self

    def cancel(self) -> None:
        """Do not request the file, if that has not begun."""
        if self._request is not None:
            self._request.cancel()

    def source(self, known: KnownFile) -> Source:
        """The stored bytes. As :meth:`EncryptedFileIO.source`."""
        request, self._request = self._request, None
        return self._requested(known) if request is None else request.result()

    def _requested(self, known: KnownFile) -> Source:
        # Readers of Parquet begin with both ends.
        ends = known.key_metadata is not None and known.file_format == "parquet"
        return self._io.source(self.location, known.stored_length, ends=ends)

    def __len__(self) -> int:
        """Stored bytes."""
        return status(self._io.place(self.location)).size

    def exists(self) -> bool:
        """Whether there is such a file."""
        try:
            status(self._io.place(self.location))
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> Any:
        """Open the file as plaintext.

        Raises
        ------
        KeyAccessError
            Its key is not known, or the KMS refused.
        AuthenticationError, FormatError, TruncatedError
            The file is damaged, or not the one that the file above it names.
        """
        location = self.location
        known = self._io.keys.find(location)
        if known is None:
            is_metadata = location.endswith(METADATA_SUFFIX) or is_compressed(location)
            return self._metadata() if is_metadata else self._unknown()
        return io.BytesIO(self.learn(known)) if known.kind in ("manifest list", "manifest") else self.plaintext(known)

    def learn(self, known: KnownFile) -> bytes:
        """Return the plaintext of a manifest list or manifest, and learn the keys in it."""
        with self.plaintext(known) as file:
            data: bytes = file.read()
        with naming(known.path):
            data = readable(data)
        if known.kind == "manifest list":
            self._io.keys.learn_manifest_list(known, data)
        else:
            self._io.keys.learn_manifest(known, data)
        return data

    def plaintext(self, known: KnownFile, *, any_block_length: bool = False) -> Any:
        """Return the file as plaintext, decrypted where it is read.

        To inspect faults of AGS1 files, those with block lengths other than Iceberg's are opened too.
        """
        if known.key_metadata is None:
            self._io.refuse_plaintext(known)
            return StoredFile(self.source(known))
        if known.file_format == "parquet":
            return self._parquet_view(known)
        refuse_form(known)
        key_metadata = known.key_metadata
        length = key_metadata.file_length
        source = self.source(known)
        try:
            if length is None:
                length = self._length(known)
            reader = Reader(
                source, key_metadata.encryption_key, aad_prefix=key_metadata.aad_prefix or b"", length=length
            )
            if reader.block_length != layout.DEFAULT_BLOCK_LENGTH and not any_block_length:
                # The header is not authenticated: in a file of one block any other length would do as well.
                reader.close()
                raise FormatError(
                    f"{self.location}: its header says blocks of {reader.block_length} bytes, but Iceberg's have "
                    f"{layout.DEFAULT_BLOCK_LENGTH}: damaged, or not written by Iceberg"
                )
            return reader
        except BaseException:
            source.close()
            raise

    def _length(self, known: KnownFile) -> int | None:
        policy = self._io.expected.length_policy
        if policy == "trusted":
            raise FormatError(
                f"{self.location}: the key metadata of this {known.kind} has no file length, so that a cut at its end "
                "could not be noticed (iceberg-rust writes none): if you accept that, give "
                f"{spelled('length_policy', 'metadata-hint')}, or {spelled('length_policy', 'file')}"
            )
        size = len(self)
        hint = known.length_hint
        if hint is not None and size != hint and plaintext_length_of(size) != hint:
            raise TruncatedError(
                f"{self.location}: has {size} bytes, but the file above it says {hint}: it was cut off or replaced"
            )
        if policy == "metadata-hint":
            if hint is not None:
                return size
            raise FormatError(
                f"{self.location}: nothing authenticated says how long this {known.kind} is: only "
                f"{spelled('length_policy', 'file')} opens it"
            )
        warnings.warn(
            f"{without_secrets(self.location)}: opened without a trusted length; blocks missing at its end "
            "would go unnoticed",
            UntrustedLengthWarning,
            stacklevel=4,
        )
        return None

    def _parquet_view(self, known: KnownFile) -> Any:
        from ags1.parquet.keys.properties import DecryptionConfig
        from ags1.parquet.view.view import ParquetView

        assert known.key_metadata is not None
        source = self.source(known)
        view = ParquetView(source, DecryptionConfig.for_iceberg(known.key_metadata))
        expected = known.key_metadata.file_length
        actual = view.stored_size
        if expected is not None and actual != expected:
            view.close()
            raise TruncatedError(
                f"{self.location}: has {actual} bytes, but its key metadata says {expected}: it was replaced or cut off"
            )
        return view

    def _metadata(self) -> io.BytesIO:
        text = self._io.read_metadata(self.location).text.encode("utf-8")
        # PyIceberg decides by this name alone whether to decompress.
        return io.BytesIO(gzip.compress(text, mtime=0) if self.location.endswith(f".gz{METADATA_SUFFIX}") else text)

    def _unknown(self) -> Any:
        file = self._io.stored(self.location)
        magic = file.read(4)
        file.seek(0)
        if magic[:2] == _GZIP or magic.lstrip(_BLANK)[:1] == b"{":
            # A JSON object is table metadata, whatever its name.
            file.close()
            return self._metadata()
        if magic not in _MAGICS and self._io.expected.allow_plaintext:
            return file
        file.close()
        if magic not in _MAGICS:
            raise KeyAccessError(
                f"{self.location}: nothing that was read of the table names this file, and it is not encrypted; open "
                f"the table with {spelled('allow_plaintext', True)} to read it"
            )
        raise KeyAccessError(
            f"{self.location}: is {_MAGICS[magic]}, and its key is not known: read the table's metadata file, manifest "
            "list and manifest through the same EncryptedFileIO first"
        )


@contextlib.contextmanager
def naming(path: str, problem: str = "is not the Avro file that it should be") -> Iterator[None]:
    """Add the file's name to any error that damaged bytes can cause here, in fastavro, Arrow or PyIceberg.

    Errors of other packages become a FormatError that says `problem`.
    """
    try:
        yield
    except Ags1Error as error:
        # Messages about local files have the path without its scheme.
        if path.rpartition("/")[2] not in str(error):
            error.args = (without_secrets(f"{path}: {error}"),)
        raise
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        # Arrow's own errors about bytes are OSError too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(f"{path}: {problem}: {type(error).__name__}: {error}") from error


def stored_source(place: Location, expected: int | None = None, *, ends: bool = False) -> Source:
    """Open a file as it is stored. One of this machine must be regular: opening a pipe would wait for its other end."""
    found = open_regular(place) if place.is_local else open_source(place, expected=expected, ends=ends)
    assert isinstance(found, Source)
    return found


def client_of(kms: Any) -> Any:
    """Return the KMS client that a URL names; a client is returned unchanged."""
    if not isinstance(kms, str):
        return kms
    from ags1.kms import load

    return load(kms)


def file_io_at(state: TableState, properties: Mapping[str, str], kms: Any, expected: Expected) -> EncryptedFileIO:
    """Return the FileIO of a table in a state that its catalog has read and compared with what it stores."""
    if state.table_key_id is not None:
        expected = replace(expected, table_key_id=state.table_key_id)
    file_io = EncryptedFileIO(properties, kms=kms, expected=expected)
    file_io.loaded[state.metadata_location] = state.document
    file_io.locations.add(state.metadata_location, state.locations)
    return file_io


def plaintext_length_of(size: int) -> int | None:
    """Return the plaintext length of an AGS1 stream of this many bytes; None if no stream has this length."""
    try:
        return layout.plaintext_length(size)
    except (FormatError, ValueError):
        return None


def _row_group_limit(properties: Mapping[str, str]) -> int:
    """Return the largest row group that the properties of a FileIO let a scan read, in bytes, decoded."""
    text = str(properties.get(ROW_GROUP_LIMIT, _ROW_GROUP_LIMIT))
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"{ROW_GROUP_LIMIT} must be a positive number of bytes, got {text!r}")
    return int(text)


class SnapshotFiles:
    """Opens the files of a snapshot by a FileIO that has read the table's metadata. Safe to share between threads.

    All methods raise FormatError, AuthenticationError, KeyAccessError or OSError if the file cannot be read, or is
    another than the one above it means.
    """

    def __init__(self, file_io: EncryptedFileIO) -> None:
        self.io = file_io
        # Plaintext of small manifests, in bytes. A conversion reads each manifest twice: the second time with metrics.
        self._manifests = RecentlyUsed(4 << 20, len)

    @classmethod
    def of(cls, state: TableState, kms: Any, table: CatalogTable) -> SnapshotFiles:
        """Open a table in a state, also if some of its files are plaintext."""
        known = table.expected
        expected = Expected(known.table_key_id, None, True, "trusted", known.allowed_locations, known.moved_from)
        file_io = file_io_at(state, table.io_properties, kms, expected)
        file_io.read_metadata(state.metadata_location)
        return cls(file_io)

    def manifests(self, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of a snapshot's manifest list; the FileIO learns the keys of its manifests."""
        path = snapshot.get("manifest-list")
        if path is None:
            raise FormatError(f"snapshot {snapshot.get('snapshot-id')} has no manifest list: its engine must write one")
        known = self.io.keys.find(path)
        if known is None:
            known = KnownFile(path, "manifest list", "avro", None, None)
        return self.io.keys.learn_manifest_list(known, self._read(known))

    def manifest(self, listed: Mapping[str, Any], *, metrics: bool = True) -> Manifest:
        """Return a manifest of a list, in memory; with or without the metrics of its files."""
        name = listed["manifest_path"], listed.get("key_metadata")
        data = self._manifests.get(name, lambda: self._read(known_manifest(listed)))
        with naming(listed["manifest_path"]):
            return read_manifest(data, listed, metrics=metrics)

    def entries(self, listed: Mapping[str, Any], *, metrics: bool = True) -> Iterator[ManifestEntry]:
        """The entries of a manifest one by one."""
        data = self._read(known_manifest(listed))
        with naming(listed["manifest_path"]):
            yield from read_entries(data, listed, metrics=metrics)

    def open(self, file: Mapping[str, Any]) -> Any:
        """Return the plaintext of a data or delete file, decrypted where it is read."""
        known = known_file(file)
        return self.io.new_input(known.path).plaintext(known)

    def _read(self, known: KnownFile) -> bytes:
        # Above it anything may stand in the place of a path, such as text with a NUL.
        with naming(known.path, "cannot be read"), self.io.new_input(known.path).plaintext(known) as file:
            data: bytes = file.read()
        return data
