"""All files of a table, found from its metadata file down: each read or named once, however many refer to it.

    metadata.json  -->  manifest lists  -->  manifests  -->  data files, delete files, deletion vectors
                        read in parallel     read in parallel, each one once

A file that cannot be read is kept with its error, and the walk continues: the caller (list, audit, verify, tree)
decides what that means. Entries of files that a snapshot deleted are left out: they are not read, and may no longer
exist. A plaintext manifest is read too, so that its files can be named; they are as untrusted as the manifest. Source:
Iceberg table spec, "Snapshots", "Manifest Lists" and "Manifests".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import pyarrow

from ags1.errors import Ags1Error, FormatError, KeyAccessError, without_secrets
from ags1.iceberg.deletes import DeletionVector
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile, known_file, known_manifest, naming
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.manifests import check_list, list_header, read_entries, read_list
from ags1.iceberg.metadata.metadata_document import (
    KEY_ID,
    Document,
    claims_encryption,
    properties_of,
)
from ags1.keys import KeyMetadata
from ags1.storage import REQUESTS_AT_ONCE, SMALL_FILES_AT_ONCE
from ags1.support.parallel import in_parallel

File = TypeVar("File", bound="TableFile")
Result = TypeVar("Result")
Snapshots: TypeAlias = int | Literal["all"] | None

FAULTS = (Ags1Error, OSError, ValueError, EOFError)
"""Exceptions that describe a file, not an error of this program."""

AGS1, PARQUET, PLAINTEXT, UNSUPPORTED = "AGS1", "Parquet AES_GCM_V1 uniform", "plaintext", "unsupported"
KINDS = ("manifest list", "manifest", "data", "position deletes", "equality deletes", "deletion vectors")
_NOUNS = {
    "data": "data file",
    "position deletes": "position delete file",
    "equality deletes": "equality delete file",
    "deletion vectors": "deletion vector file",
}

BLOCK_LENGTH = 1 << 20
"""Of every AGS1 stream in Iceberg: Iceberg Java refuses any other."""


class TableFile:
    """A file of a table, and the table's facts about it. It is small, because a table may have many files.

    Attributes
    ----------
    path : str
        As the file above has it.
    kind : str
        One of :data:`KINDS`.
    file_format : str
        "avro", "parquet", "orc" or "puffin".
    length_hint : int or None
        Bytes, as the file above has them.
    trusted_length : int or None
        Bytes as they are stored, from the key metadata.
    key_bits : int or None
        Length of its key.
    records : int or None
        Rows, deleted rows, or entries of a manifest or manifest list; None if nobody says.
    above : tuple of ReadFile
        The files that name it; empty for a manifest list.
    conflict : str or None
        How two files contradict each other about this one.
    vectors : tuple of DeletionVector
        Of a Puffin file: those that manifests name, each once.
    error, block_length, key_id, kek_id, nameless
        See :class:`ReadFile`.
    """

    __slots__ = (
        "_key_metadata", "above", "conflict", "file_format", "key_bits", "kind", "length_hint",
        "path", "records", "trusted_length", "vectors",
    )  # fmt: skip

    error: Exception | None = None
    block_length: int | None = None
    key_id: str | None = None
    kek_id: str | None = None
    nameless: bool = False

    def __init__(self, known: KnownFile) -> None:
        key = known.key_metadata
        self.path, self.kind, self.file_format = known.path, known.kind, known.file_format
        self.length_hint, self.records = known.length_hint, known.record_count
        self.trusted_length = None if key is None else key.file_length
        self.key_bits = None if key is None else key.encryption_key.bits
        self._key_metadata = None if key is None else key.encode()
        self.above: tuple[ReadFile, ...] = ()
        self.conflict: str | None = None
        self.vectors: tuple[DeletionVector, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.kind} {without_secrets(self.path)}: {self.encryption}>"

    @property
    def known(self) -> KnownFile:
        """What the file above says, with the key."""
        key = None if self._key_metadata is None else KeyMetadata.decode(self._key_metadata)
        return KnownFile(self.path, self.kind, self.file_format, key, self.length_hint, self.records)

    @property
    def what(self) -> str:
        """Its kind, as a sentence has it."""
        return _NOUNS.get(self.kind, self.kind)

    @property
    def encryption(self) -> str:
        """How it is encrypted, by what the file above says."""
        if self._key_metadata is None:
            # Of a manifest list whose key does not unwrap only the name of the key is known.
            return PLAINTEXT if self.key_id is None else AGS1
        if self.file_format == "parquet":
            return PARQUET
        return AGS1 if self.file_format in ("avro", "puffin") else UNSUPPORTED

    @property
    def size(self) -> int:
        """Stored bytes, as far as known."""
        return self.trusted_length or self.length_hint or 0

    @property
    def snapshot_ids(self) -> list[int]:
        """Ids of the snapshots that it is in, of those that were asked for, in the metadata's order."""
        return [number for _, number in sorted(self._all_snapshots().items())]

    def _all_snapshots(self) -> dict[int, int]:
        found = self.above[0]._all_snapshots()
        for each in self.above[1:]:
            found = found | each._all_snapshots()
        return found

    def has_key_of(self, other: TableFile) -> bool:
        """Whether both have the same key metadata, or none."""
        return self._key_metadata == other._key_metadata


class ReadFile(TableFile):
    """A manifest list or manifest.

    Attributes
    ----------
    error : Exception or None
        Why it could not be read.
    block_length : int or None
        From the header of a stream that was read; it is not authenticated.
    key_id, kek_id : str or None
        For a manifest list, ids of the entries of ``encryption-keys`` that its key comes from.
    nameless : bool
        Of a manifest list that was read: whether it does not say which snapshot it is of, so that nobody would notice
        an exchange.
    snapshots : dict of int to int
        For a manifest list, ids of the snapshots that it belongs to, by their positions in the metadata.
    listed : mapping
        For a manifest, what its list says of it, which its entries inherit.
    """

    __slots__ = ("_known", "block_length", "error", "kek_id", "key_id", "listed", "nameless", "snapshots")

    def __init__(self, known: KnownFile, listed: Mapping[str, Any] | None = None) -> None:
        super().__init__(known)
        self._known = known
        self.error: Exception | None = None
        self.block_length: int | None = None
        self.key_id: str | None = None
        self.kek_id: str | None = None
        self.nameless = False
        self.snapshots: dict[int, int] = {}
        self.listed = listed or {}

    @property
    def known(self) -> KnownFile:
        """What the file above says, with the key."""
        return self._known

    def _all_snapshots(self) -> dict[int, int]:
        if self.above and not self.snapshots:
            self.snapshots = super()._all_snapshots()
        return self.snapshots


class TableSnapshot:
    """A snapshot, as the metadata file has it.

    Attributes
    ----------
    snapshot_id : int
    timestamp_ms : int or None
        Milliseconds since 1970.
    operation : str or None
    key_id : str or None
        The entry of ``encryption-keys`` with its manifest list's key.
    manifest_list : ReadFile or None
        None where the metadata names none, as old tables of format version 1 do.
    """

    __slots__ = ("key_id", "manifest_list", "operation", "snapshot_id", "timestamp_ms")

    def __init__(self, fields: dict[str, Any], manifest_list: ReadFile | None) -> None:
        self.snapshot_id: int = fields["snapshot-id"]
        self.timestamp_ms: int | None = fields.get("timestamp-ms")
        summary = fields.get("summary")
        self.operation: str | None = summary.get("operation") if isinstance(summary, dict) else None
        self.key_id: str | None = fields.get("key-id")
        self.manifest_list = manifest_list


class TableWalk:
    """The result of a walk.

    Attributes
    ----------
    location : str
        Of the metadata file.
    document : Document
        The metadata.
    keys : EncryptionKeys
        Its ``encryption-keys``.
    table_key_id : str or None
        The table's property ``encryption.key-id``.
    encrypted : bool
        Whether the metadata promises that the table is encrypted.
    snapshots : list of TableSnapshot
        Those that were asked for.
    manifest_lists, manifests : dict of str to ReadFile
        By path, in the order in which they were found.
    files : dict of str to TableFile
        By path; those of manifests with deletes come first.
    """

    def __init__(self, location: str, document: Document) -> None:
        self.location = location
        self.document = document
        self.keys = EncryptionKeys(document.entries())
        key_id = properties_of(document.fields).get(KEY_ID)
        self.table_key_id = key_id if isinstance(key_id, str) and key_id else None
        self.encrypted = claims_encryption(document.fields)
        self.snapshots: list[TableSnapshot] = []
        self.manifest_lists: dict[str, ReadFile] = {}
        self.manifests: dict[str, ReadFile] = {}
        self.files: dict[str, TableFile] = {}

    @property
    def complete(self) -> bool:
        """Whether nothing that names files is missing or contradicts something else."""
        return all(each.error is None and each.conflict is None for each in self) and all(
            each.manifest_list is not None for each in self.snapshots
        )

    def __iter__(self) -> Iterator[TableFile]:
        """All files, those above first."""
        yield from self.manifest_lists.values()
        yield from self.manifests.values()
        yield from self.files.values()

    def __len__(self) -> int:
        return len(self.manifest_lists) + len(self.manifests) + len(self.files)


def walk(location: str, file_io: EncryptedFileIO, snapshot_id: Snapshots = "all") -> TableWalk:
    """Find the files of all snapshots, of one, or with None of the current one.

    Raises
    ------
    FormatError
        The metadata file is not one, or has entries or snapshots that are none.
    OSError
        It cannot be read.
    ValueError
        No such snapshot.
    """
    found = TableWalk(location, file_io.read_metadata(location))
    fields = _selected(found.document, snapshot_id)
    for position, each in enumerate(fields):
        path = each.get("manifest-list")
        manifest_list = _manifest_list(found, file_io, path, each, position) if isinstance(path, str) else None
        found.snapshots.append(TableSnapshot(each, manifest_list))
    for above, manifests in _read_all(file_io, found.manifest_lists.values(), _manifests):
        above.records = len(manifests)
        for manifest in manifests:
            _add(found.manifests, manifest, (above,))
    vectors = VectorCheck()
    # Deletion vectors first: of the data files, only those that have one are compared.
    ordered = sorted(found.manifests.values(), key=lambda each: each.listed["content"], reverse=True)
    for above, entries in _read_all(file_io, ordered, _files):
        of_manifest = (above,)
        for file, number, vector in entries:
            records, is_new = file.records, file.path not in found.files
            file = _add(found.files, file, of_manifest)
            # A Puffin file has as many entries as vectors, and each may be in several manifests.
            if vector is None:
                vectors.check_data(file, above, number)
            elif vectors.add(file, vector, above, number) and not is_new:
                file.records = (file.records or 0) + (records or 0)
    vectors.finish()
    return found


def foreign_blocks(path: str, block_length: int | None) -> FormatError | None:
    """Return the fault of the block length in a stream's header, if any.

    A stream of one block opens with any block length that is large enough, so only this check finds a changed header.
    """
    if block_length is None or block_length == BLOCK_LENGTH:
        return None
    return FormatError(
        f"{path}: its header says blocks of {block_length} bytes, and Iceberg's have {BLOCK_LENGTH}: it was changed, "
        "or written by something that Iceberg Java cannot read"
    )


def stored_size(file_io: EncryptedFileIO, path: str) -> int:
    """Bytes of a file as it is stored now."""
    return len(file_io.new_input(path))


# -- metadata.json -------------------------------------------------------------------------------------------


def _selected(document: Document, snapshot_id: Snapshots) -> list[dict[str, Any]]:
    if isinstance(snapshot_id, bool) or not (snapshot_id is None or snapshot_id == "all" or type(snapshot_id) is int):
        raise TypeError(f"snapshot_id must be an integer, 'all' or None for the current one, not {snapshot_id!r}")
    snapshots = document.snapshots()
    listed: list[dict[str, Any]] = list(document.fields.get("snapshots") or ())
    if snapshot_id == "all":
        return listed
    wanted = snapshot_id
    if wanted is None:
        if snapshots.current == -1:
            return []
        wanted = snapshots.current
    if wanted not in snapshots.key_ids:
        known = ", ".join(str(each) for each in snapshots.key_ids) or "none"
        if snapshot_id is None:
            raise FormatError(f"the current snapshot {wanted} is not among those that the metadata lists: {known}")
        raise ValueError(f"the table has no snapshot {wanted}; it has {known}")
    return [each for each in listed if each["snapshot-id"] == wanted]


def _manifest_list(
    found: TableWalk, file_io: EncryptedFileIO, path: str, snapshot: dict[str, Any], position: int
) -> ReadFile:
    key_id = snapshot.get("key-id")
    file = found.manifest_lists.get(path)
    if file is None:
        error = None
        try:
            known = file_io.keys.find(path)
        except Ags1Error as fault:
            known, error = None, fault
        if known is None:
            known = KnownFile(path, "manifest list", "avro", None, None)
        file = found.manifest_lists[path] = ReadFile(known)
        file.key_id, file.error = key_id, error
        if key_id is not None and key_id in found.keys:
            file.kek_id = found.keys[key_id].encrypted_by_id
    file.snapshots[position] = snapshot["snapshot-id"]
    return file


# -- manifest lists and manifests ----------------------------------------------------------------------------


def _read_all(
    file_io: EncryptedFileIO,
    files: Iterable[ReadFile],
    parse: Callable[[ReadFile, bytes], list[Result]],
) -> Iterator[tuple[ReadFile, list[Result]]]:
    """Read all files; yield each readable one with the files that it names. The others keep their error."""

    def read(file: ReadFile) -> list[Result] | Exception:
        try:
            data = _content(file_io, file)
            with naming(file.path):
                return parse(file, data)
        except FAULTS as error:
            return error

    files = [each for each in files if each.error is None]
    for file, answer in zip(files, in_parallel(read, files, SMALL_FILES_AT_ONCE), strict=True):
        if isinstance(answer, Exception):
            file.error = answer
        else:
            yield file, answer


def _content(file_io: EncryptedFileIO, file: ReadFile) -> bytes:
    known = file.known
    if known.key_metadata is None:
        with file_io.stored(known.path) as file_of_bytes:
            data = file_of_bytes.read()
        if data[:4] == b"AGS1":
            raise KeyAccessError(f"{known.path}: is an AGS1 stream, and the file above names no key for it")
        return data
    with file_io.new_input(known.path).plaintext(known, any_block_length=True) as stream:
        file.block_length = stream.block_length
        plain: bytes = stream.read()
    return plain


def _manifests(above: ReadFile, data: bytes) -> list[ReadFile]:
    header = list_header(data)
    above.nameless = header[0] is None
    check_list(header, above.known.snapshots)
    return [ReadFile(known_manifest(each), each) for each in read_list(data)]


def _files(above: ReadFile, data: bytes) -> list[tuple[TableFile, int | None, DeletionVector | FormatError | None]]:
    """Return live files with their data sequence numbers, and their deletion vectors or the error of a wrong one."""
    found: list[tuple[TableFile, int | None, DeletionVector | FormatError | None]] = []
    count = 0
    for each in read_entries(data, above.listed, metrics=False):
        count += 1
        if each.is_live:
            file = TableFile(known_file(each.file))
            found.append((file, each.sequence_number, _vector(each.file) if file.file_format == "puffin" else None))
    above.records = count
    return found


def _vector(file: Mapping[str, Any]) -> DeletionVector | FormatError:
    try:
        return DeletionVector.of(file)
    except FormatError as error:
        return error


def _add(files: dict[str, File], found: File, above: tuple[ReadFile]) -> File:
    """The file of this path, which `above` names too."""
    file = files.setdefault(found.path, found)
    if not file.has_key_of(found):
        file.conflict = f"{file.above[0].path} and {above[0].path} have it with different key metadata"
    # One file above is taken in after the other.
    if not file.above:
        file.above = above
    elif file.above[-1] is not above[0]:
        file.above += above
    return file


# -- as an Arrow table ---------------------------------------------------------------------------------------


def files_table(found: TableWalk, file_io: EncryptedFileIO, *, sizes: bool = False) -> pyarrow.Table:
    """One row for each file.

    Raises
    ------
    FormatError, KeyAccessError, AuthenticationError, OSError
        A manifest list or manifest could not be read, so that files would be missing in the table.
    """
    for each in found:
        if each.error is not None:
            raise each.error
        if each.conflict is not None:
            raise FormatError(f"{each.path}: {each.conflict}")
    for snapshot in found.snapshots:
        if snapshot.manifest_list is None:
            raise FormatError(f"snapshot {snapshot.snapshot_id} has no manifest list: its files cannot be named")
    files = list(found)
    columns: dict[str, tuple[Any, list[Any]]] = {
        "path": (pyarrow.string(), [each.path for each in files]),
        "kind": (pyarrow.string(), [each.kind for each in files]),
        "file_format": (pyarrow.string(), [each.file_format for each in files]),
        "encryption": (pyarrow.string(), [each.encryption for each in files]),
        "key_bits": (pyarrow.int16(), [each.key_bits for each in files]),
        "stored_length": (pyarrow.int64(), [each.trusted_length for each in files]),
        "file_size": (pyarrow.int64(), [each.length_hint for each in files]),
    }
    if sizes:
        columns["physical_size"] = (pyarrow.int64(), list(in_parallel(_size_of(file_io), files, REQUESTS_AT_ONCE)))
    columns |= {
        "record_count": (pyarrow.int64(), [each.records for each in files]),
        "key_id": (pyarrow.string(), [each.key_id for each in files]),
        "kek_id": (pyarrow.string(), [each.kek_id for each in files]),
        "snapshot_ids": (pyarrow.list_(pyarrow.int64()), [each.snapshot_ids for each in files]),
    }
    return pyarrow.table({name: pyarrow.array(values, kind) for name, (kind, values) in columns.items()})


def _size_of(file_io: EncryptedFileIO) -> Callable[[TableFile], int | None]:
    def size(file: TableFile) -> int | None:
        try:
            return stored_size(file_io, file.path)
        except FileNotFoundError:
            return None

    return size


# -- deletion vectors that readers of a table would not agree about ----------------------------------------------------


class VectorCheck:
    """Takes in the entries of manifests; what is wrong with a vector becomes the conflict of its Puffin file."""

    def __init__(self) -> None:
        self._in: dict[TableFile, dict[DeletionVector, None]] = {}
        self._of: dict[str, list[tuple[DeletionVector, TableFile, ReadFile, int | None]]] = {}

    def add(
        self, file: TableFile, vector: DeletionVector | FormatError, manifest: ReadFile, number: int | None
    ) -> bool:
        """Take in a vector, or why it is none. Return whether it was not there before."""
        if isinstance(vector, FormatError):
            file.conflict = str(vector).removeprefix(f"{file.path}: ")
            return False
        self._of.setdefault(vector.data_file, []).append((vector, file, manifest, number))
        known = self._in.setdefault(file, {})
        is_new = vector not in known
        known[vector] = None
        return is_new

    def check_data(self, data_file: TableFile, elsewhere: ReadFile, number: int | None) -> None:
        """Compare a file that is no vector, by its data sequence number, with its vectors, which were all taken in."""
        for _, file, manifest, of_vector in self._of.get(data_file.path, ()):
            # Most are newer, and then nothing is compared.
            if number is not None and of_vector is not None and of_vector < number and _share(manifest, elsewhere):
                file.conflict = (
                    f"its deletion vector for {data_file.path} is older than that file is: they are not of one table's "
                    "history"
                )

    def finish(self) -> None:
        """Give the vectors to their files, and compare those of each data file."""
        for file, found in self._in.items():
            file.vectors = tuple(found)
        for data_file, vectors in self._of.items():
            by_snapshot: dict[int, DeletionVector] = {}
            for vector, file, manifest, _ in vectors:
                for snapshot_id in manifest.snapshot_ids:
                    other = by_snapshot.setdefault(snapshot_id, vector)
                    if other != vector:
                        file.conflict = (
                            f"snapshot {snapshot_id} has two deletion vectors for {data_file}, one of them in "
                            f"{other.path}, and nothing says which of them counts"
                        )


def _share(one: ReadFile, other: ReadFile) -> bool:
    """Whether two manifests are in one snapshot."""
    return not set(one.snapshot_ids).isdisjoint(other.snapshot_ids)
