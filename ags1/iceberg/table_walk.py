"""All files of a table, found from its metadata file down: each read or named once, however many refer to it.

    metadata.json  -->  manifest lists  -->  manifests  -->  data files, delete files, deletion vectors
                        read in parallel     read in parallel, each one once

What cannot be read is kept with its error, and the walk goes on: whoever lists, audits, verifies or draws the table
decides what that means. Entries of files that a snapshot deleted are left out: nobody reads them, and nobody promises
that they still exist. A plaintext manifest is read too, so that its files can be named; they are no more trustworthy
than it is. Source: Iceberg table spec, "Snapshots", "Manifest Lists" and "Manifests".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import pyarrow

from ags1._parallel import in_parallel
from ags1.errors import Ags1Error, FormatError, KeyAccessError
from ags1.iceberg._document import Document
from ags1.iceberg._naming import naming
from ags1.iceberg._vector_check import VectorCheck
from ags1.iceberg.deletion_vectors import DeletionVector
from ags1.iceberg.encryption_keys import EncryptionKeys
from ags1.iceberg.file_io import EncryptedFileIO
from ags1.iceberg.file_keys import KnownFile, known_file, known_manifest
from ags1.iceberg.manifests import read_entries, read_list
from ags1.iceberg.metadata_document import check_list, claims_encryption, list_header

Result = TypeVar("Result")
Snapshots: TypeAlias = int | Literal["all"] | None

__all__ = [
    "BLOCK_LENGTH",
    "FAULTS",
    "KINDS",
    "PARQUET",
    "PLAINTEXT",
    "STAT_THREADS",
    "UNSUPPORTED",
    "TableFile",
    "TableSnapshot",
    "TableWalk",
    "files_table",
    "foreign_blocks",
    "stored_size",
    "walk",
]

FAULTS = (Ags1Error, OSError, ValueError, EOFError)
"""What says something about a file, not about this program."""

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

# Requests under way at once: an object store answers each late, and what is read is small.
_READERS = 8
STAT_THREADS = 32


class TableFile:
    """A file of a table, and all that its table says of it.

    Attributes
    ----------
    known : KnownFile
        What the file above it says.
    above : list of TableFile
        The files that name it; empty for a manifest list.
    snapshots : dict of int to int
        For a manifest list, ids of the snapshots that it belongs to, by their positions in the metadata.
    key_id, kek_id : str or None
        For a manifest list, ids of the entries of ``encryption-keys`` that its key comes from.
    records : int or None
        Rows, deleted rows, or entries of a manifest or manifest list; None if nobody says.
    block_length : int or None
        Of a manifest list or manifest that was read, as the header of its stream has it, where nothing protects it.
    error : Exception or None
        Why a manifest list or manifest could not be read.
    conflict : str or None
        How two files contradict each other about it.
    vectors : list of DeletionVector
        Of a Puffin file: those that manifests name, each once.
    nameless : bool
        Of a manifest list that was read: whether it does not say which snapshot it is of, so that nobody would notice
        an exchange.
    """

    __slots__ = (
        "_ids", "above", "block_length", "conflict", "error", "kek_id", "key_id", "known", "listed", "nameless",
        "records", "snapshots", "vectors",
    )  # fmt: skip

    def __init__(self, known: KnownFile) -> None:
        self.known = known
        self.above: list[TableFile] = []
        self.snapshots: dict[int, int] = {}
        self._ids: dict[int, int] | None = None
        self.key_id: str | None = None
        self.kek_id: str | None = None
        self.records = known.record_count
        self.block_length: int | None = None
        self.error: Exception | None = None
        self.conflict: str | None = None
        self.vectors: list[DeletionVector] = []
        self.nameless = False
        # Of a manifest: what its entries inherit.
        self.listed: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.known.kind} {self.known.path}: {self.encryption}>"

    @property
    def path(self) -> str:
        """As the file above has it."""
        return self.known.path

    @property
    def kind(self) -> str:
        """One of :data:`KINDS`."""
        return self.known.kind

    @property
    def what(self) -> str:
        """Its kind, as a sentence has it."""
        return _NOUNS.get(self.kind, self.kind)

    @property
    def encryption(self) -> str:
        """How it is encrypted, by what the file above says."""
        if self.known.key_metadata is None:
            # Of a manifest list whose key does not unwrap only the name of the key is known.
            return PLAINTEXT if self.key_id is None else AGS1
        if self.known.file_format == "parquet":
            return PARQUET
        return AGS1 if self.known.file_format in ("avro", "puffin") else UNSUPPORTED

    @property
    def trusted_length(self) -> int | None:
        """Bytes as they are stored, from the key metadata."""
        return None if self.known.key_metadata is None else self.known.key_metadata.file_length

    @property
    def size(self) -> int:
        """Stored bytes, as far as anybody says."""
        return self.trusted_length or self.known.length_hint or 0

    @property
    def key_bits(self) -> int | None:
        """Length of its key."""
        return None if self.known.key_metadata is None else self.known.key_metadata.encryption_key.bits

    @property
    def snapshot_ids(self) -> list[int]:
        """Ids of the snapshots that it is in, of those that were asked for, in the metadata's order."""
        return [number for _, number in sorted(self._all_snapshots().items())]

    def _all_snapshots(self) -> dict[int, int]:
        if not self.above:
            return self.snapshots
        if self._ids is None:
            self._ids = self.above[0]._all_snapshots()
            for each in self.above[1:]:
                self._ids = self._ids | each._all_snapshots()
        return self._ids


class TableSnapshot:
    """A snapshot, as the metadata file has it.

    Attributes
    ----------
    snapshot_id : int
    parent_id : int or None
    timestamp_ms : int or None
        Milliseconds since 1970.
    operation : str or None
    key_id : str or None
        The entry of ``encryption-keys`` with its manifest list's key.
    manifest_list : TableFile or None
        None where the metadata names none, as old tables of format version 1 do.
    """

    __slots__ = ("key_id", "manifest_list", "operation", "parent_id", "snapshot_id", "timestamp_ms")

    def __init__(self, fields: dict[str, Any], manifest_list: TableFile | None) -> None:
        self.snapshot_id: int = fields["snapshot-id"]
        self.parent_id: int | None = fields.get("parent-snapshot-id")
        self.timestamp_ms: int | None = fields.get("timestamp-ms")
        summary = fields.get("summary")
        self.operation: str | None = summary.get("operation") if isinstance(summary, dict) else None
        self.key_id: str | None = fields.get("key-id")
        self.manifest_list = manifest_list


class TableWalk:
    """What a walk found.

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
    manifest_lists, manifests, files : dict of str to TableFile
        By path, in the order in which they were found.
    """

    def __init__(self, location: str, document: Document) -> None:
        self.location = location
        self.document = document
        self.keys = EncryptionKeys(document.entries())
        key_id = self.properties.get("encryption.key-id")
        self.table_key_id = key_id if isinstance(key_id, str) and key_id else None
        self.encrypted = claims_encryption(document.fields)
        self.snapshots: list[TableSnapshot] = []
        self.manifest_lists: dict[str, TableFile] = {}
        self.manifests: dict[str, TableFile] = {}
        self.files: dict[str, TableFile] = {}

    @property
    def properties(self) -> dict[str, Any]:
        """The table's properties."""
        found = self.document.fields.get("properties")
        return found if isinstance(found, dict) else {}

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
    for above, below in _read_all(file_io, found.manifest_lists.values(), _manifests):
        above.records = len(below)
        for known, listed in below:
            _add(found.manifests, known, above).listed = listed
    vectors = VectorCheck()
    for above, files in _read_all(file_io, found.manifests.values(), _files):
        for known, number, vector in files:
            is_new = known.path not in found.files
            file = _add(found.files, known, above)
            # A Puffin file has as many entries as vectors, and each may be in several manifests.
            if vector is None:
                vectors.add_data(known, above, number)
            elif vectors.add(file, vector, known.record_count, above, number) and not is_new:
                file.records = (file.records or 0) + (known.record_count or 0)
    vectors.finish()
    return found


def foreign_blocks(path: str, block_length: int | None) -> FormatError | None:
    """What is wrong with the block length in a stream's header.

    A stream of one block opens with any that is long enough, so that nobody else would notice a changed header.
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
        raise ValueError(f"the table has no snapshot {wanted}; it has {known}")
    return [each for each in listed if each["snapshot-id"] == wanted]


def _manifest_list(
    found: TableWalk, file_io: EncryptedFileIO, path: str, snapshot: dict[str, Any], position: int
) -> TableFile:
    key_id = snapshot.get("key-id")
    file = found.manifest_lists.get(path)
    if file is None:
        error = None
        try:
            known = file_io.keys.find(path)
        except Ags1Error as fault:
            known, error = None, fault
        if known is None:
            known = KnownFile(path, "manifest list", "avro", None, None, found.encrypted or file_io.keys.promised)
        file = found.manifest_lists[path] = TableFile(known)
        file.key_id, file.error = key_id, error
        if key_id is not None and key_id in found.keys:
            file.kek_id = found.keys[key_id].encrypted_by_id
    file.snapshots[position] = snapshot["snapshot-id"]
    return file


# -- manifest lists and manifests ----------------------------------------------------------------------------


def _read_all(
    file_io: EncryptedFileIO,
    files: Iterable[TableFile],
    parse: Callable[[TableFile, bytes], list[Result]],
) -> Iterator[tuple[TableFile, list[Result]]]:
    """Each file that can be read, with what it names; the others keep their error."""

    def read(file: TableFile) -> list[Result] | Exception:
        try:
            data = _content(file_io, file)
            with naming(file.path):
                return parse(file, data)
        except FAULTS as error:
            return error

    files = [each for each in files if each.error is None]
    for file, answer in zip(files, in_parallel(read, files, _READERS), strict=True):
        if isinstance(answer, Exception):
            file.error = answer
        else:
            yield file, answer


def _content(file_io: EncryptedFileIO, file: TableFile) -> bytes:
    known = file.known
    if known.key_metadata is None:
        with file_io.inner(known.path).new_input(known.path).open() as file_of_bytes:
            data: bytes = file_of_bytes.read()
        if data[:4] == b"AGS1":
            raise KeyAccessError(f"{known.path}: is an AGS1 stream, and the file above names no key for it")
        return data
    with file_io.new_input(known.path).plaintext(known, any_block_length=True) as stream:
        file.block_length = stream.block_length
        plain: bytes = stream.read()
    return plain


def _manifests(above: TableFile, data: bytes) -> list[tuple[KnownFile, Mapping[str, Any]]]:
    """Manifests with what the list says of them."""
    header = list_header(data)
    above.nameless = header[0] is None
    check_list(header, above.known.snapshots)
    return [(known_manifest(each, above.known.encrypted_table), each) for each in read_list(data)]


def _files(above: TableFile, data: bytes) -> list[tuple[KnownFile, int | None, tuple[Any, ...] | None]]:
    """Files that are in the table, with their data sequence numbers, and of a deletion vector what binds it."""
    found, count = [], 0
    for each in read_entries(data, above.listed, metrics=False):
        count += 1
        if each.is_live:
            known = known_file(each.file, above.known.encrypted_table)
            bound = tuple(map(each.file.get, ("referenced_data_file", "content_offset", "content_size_in_bytes")))
            found.append((known, each.sequence_number, bound if known.file_format == "puffin" else None))
    above.records = count
    return found


def _add(files: dict[str, TableFile], known: KnownFile, above: TableFile) -> TableFile:
    file = files.get(known.path)
    if file is None:
        file = files[known.path] = TableFile(known)
    elif file.known.key_metadata != known.key_metadata:
        file.conflict = f"{file.above[0].path} and {above.path} have it with different key metadata"
    # One file above is taken in after the other.
    if not file.above or file.above[-1] is not above:
        file.above.append(above)
    return file


# -- as an Arrow table ---------------------------------------------------------------------------------------


def files_table(found: TableWalk, file_io: EncryptedFileIO, *, sizes: bool = False) -> pyarrow.Table:
    """One row for each file.

    Raises
    ------
    FormatError, KeyAccessError, AuthenticationError, OSError
        A manifest list or manifest could not be read, so that files would be missing in the answer.
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
        "file_format": (pyarrow.string(), [each.known.file_format for each in files]),
        "encryption": (pyarrow.string(), [each.encryption for each in files]),
        "key_bits": (pyarrow.int16(), [each.key_bits for each in files]),
        "stored_length": (pyarrow.int64(), [each.trusted_length for each in files]),
        "file_size": (pyarrow.int64(), [each.known.length_hint for each in files]),
    }
    if sizes:
        columns["physical_size"] = (pyarrow.int64(), list(in_parallel(_size_of(file_io), files, STAT_THREADS)))
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
