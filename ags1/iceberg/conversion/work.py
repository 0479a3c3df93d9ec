"""Moving one file of a table: encrypted, decrypted, re-keyed or copied, to a new, unique path.

    FileTask (key sealed) --> run --> FileResult (key sealed)

Pages of Parquet files are moved, not decoded; Avro files go through AGS1. Tasks and results hold no plaintext key, so
they can go to other processes and into a journal. A result is returned only after its file is durable, was opened again
with its new key, and has the number of rows in the manifest.

    master key (KMS) --wraps--> WorkKey --RunSeal--> key metadata of a file, under its path
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ags1.avro import iter_blocks
from ags1.errors import Ags1Error, FormatError, TruncatedError
from ags1.iceberg.keys._kek import check_kms, keep_kek, kept_kek, make_kek
from ags1.iceberg.metadata.locations import location_of
from ags1.keys import Key, KeyMetadata
from ags1.kms.run_records import RunName, RunSeal
from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file, rekey_file
from ags1.parquet.structure.footer import FileMetaData, Footer, RowGroup, read_footer
from ags1.storage import Location, PipeSource, Unsynced, identity_of, make_parent, open_output, open_source, status
from ags1.streams import files
from ags1.streams.files import Progress
from ags1.streams.opening import open as open_stream
from ags1.streams.stream import Writer

__all__ = [
    "FORMS",
    "FileResult",
    "FileTask",
    "Places",
    "WorkKey",
    "check",
    "key_of",
    "run",
    "sealed_key",
]

FORMS = ("parquet", "avro")
"""Formats of data files and equality delete files that can be moved."""

_PIECE = 8 << 20
_MAGIC = {"parquet": b"PAR1", "avro": b"Obj\x01"}
_KEY_LENGTH = 32
_NAME = "conversion"


@dataclass(frozen=True)
class Places:
    """Properties, under PyIceberg's names, of the source and the target storage."""

    source: Mapping[str, str] = field(default_factory=dict)
    target: Mapping[str, str] = field(default_factory=dict)

    def of_source(self, path: str) -> Location:
        """Return the location of a source file."""
        return location_of(path, self.source)

    def of_target(self, path: str, root: str | None = None) -> Location:
        """Return the location of a target file; no link below `root` is followed."""
        found = location_of(path, self.target)
        return found if root is None else found.below(Location(root)) or found


@dataclass(frozen=True)
class FileTask:
    """A file to move.

    Attributes
    ----------
    kind : str
        "data" or "equality deletes", for messages.
    length, records : int
        Stored bytes and rows, from the manifest.
    source_key : bytes or None
        Sealed key metadata; None for a plaintext file.
    key_bits : int
        Length of the new key; 0 for a plaintext target.
    copy : bool
        Keep the bytes and the key.
    origin : str
        What the file is, by its manifest; the result repeats it.
    root : str or None
        A directory of the target table, below which no link is followed to write the file; None in a store.
    """

    source: str
    target: str
    kind: str
    form: str
    length: int
    records: int
    source_key: bytes | None = field(default=None, repr=False)
    key_bits: int = 0
    copy: bool = False
    origin: str = ""
    root: str | None = None


@dataclass(frozen=True)
class FileResult:
    """A moved file: its stored bytes, its sealed key metadata, and the start offsets of its row groups.

    `split_offsets` is None if the offsets are unchanged. `origin` is that of the task. `identity` is what
    :func:`ags1.storage.identity_of` says of a file without a key; a key vouches for the content of the others.
    """

    source: str
    target: str
    length: int
    key: bytes | None = field(default=None, repr=False)
    split_offsets: tuple[int, ...] | None = None
    origin: str = ""
    identity: str = ""


def check(task: FileTask, seal: RunSeal | None, places: Places) -> None:
    """Compare a file with its manifest, without writing anything.

    Raises
    ------
    FileNotFoundError, OSError
        The file is missing, or cannot be read.
    TruncatedError, FormatError
        Its length or rows differ from the manifest, or it is encrypted with a key that the table does not have.
    AuthenticationError
        Its key does not open it.
    """
    location = places.of_source(task.source)
    try:
        size = status(location).size
    except FileNotFoundError:
        raise FileNotFoundError(2, f"the {task.kind} file is missing, and a snapshot needs it", task.source) from None
    key = _source_key(task, seal)
    promised = {task.length, task.length if key is None or key.file_length is None else key.file_length}
    if promised != {size}:
        raise TruncatedError(f"{task.source}: has {size} bytes, but its manifest says {max(promised)}")
    try:
        if task.form == "parquet":
            _check_rows(task, _footer(location, key).metadata.integer(FileMetaData.NUM_ROWS))  # type: ignore[union-attr]
        elif key is None:
            _check_magic(location, task.form)
    except Ags1Error as error:
        raise _naming(error, task.source) from None


def run(
    task: FileTask,
    seal: RunSeal | None,
    places: Places,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FileResult:
    """Move one file. A failed target is removed; raises as :func:`check`.

    `progress` is called as ``progress(done, total)``, in arbitrary units.
    """
    check(task, seal, places)
    source, target = places.of_source(task.source), places.of_target(task.target, task.root)
    make_parent(target)
    old = _source_key(task, seal)
    new = KeyMetadata.generate(task.key_bits) if task.key_bits else None
    if task.copy:
        _copy(source, target, progress)
        new = old
    elif task.form == "parquet":
        _move_parquet(source, target, old, new, threads, progress)
    else:
        _move_stream(source, target, old, new, threads, progress)
    length = status(target).size
    if new is not None:
        new = new.with_length(length)
    offsets = _verify(task, target, new, length)
    assert seal is not None or new is None
    sealed = None if new is None or seal is None else sealed_key(seal, new, task.target)
    identity = identity_of(target) if new is None else ""
    return FileResult(task.source, task.target, length, sealed, None if task.copy else offsets, task.origin, identity)


def _source_key(task: FileTask, seal: RunSeal | None) -> KeyMetadata | None:
    if task.source_key is None:
        return None
    assert seal is not None
    return key_of(seal, task.source_key, task.source)


def _move_parquet(
    source: Location,
    target: Location,
    old: KeyMetadata | None,
    new: KeyMetadata | None,
    threads: int | None,
    progress: Progress | None,
) -> None:
    decryption = None if old is None else DecryptionConfig.for_iceberg(old)
    encryption = None if new is None else EncryptionConfig.for_iceberg(new)
    if decryption is None:
        assert encryption is not None
        encrypt_file(source, target, encryption, threads=threads, progress=progress, durable=True)
    elif encryption is None:
        decrypt_file(source, target, decryption, threads=threads, progress=progress, durable=True)
    else:
        rekey_file(source, target, decryption, encryption, threads=threads, progress=progress, durable=True)


def _move_stream(
    source: Location,
    target: Location,
    old: KeyMetadata | None,
    new: KeyMetadata | None,
    threads: int | None,
    progress: Progress | None,
) -> None:
    if old is None:
        assert new is not None
        files.encrypt_file(
            source, target, new.encryption_key, aad_prefix=new.aad_prefix or b"", threads=threads, progress=progress,
            durable=True,
        )  # fmt: skip
        return
    if new is None:
        files.decrypt_file(source, target, key_metadata=old, threads=threads, progress=progress, durable=True)
        return
    done = 0
    with (
        open_stream(source, key_metadata=old, threads=threads) as reader,
        Writer(target, new.encryption_key, aad_prefix=new.aad_prefix or b"", threads=threads) as writer,
    ):
        while piece := reader.read(_PIECE):
            writer.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, reader.size)
    _sync(target)


def _copy(source: Location, target: Location, progress: Progress | None) -> None:
    opened = _opened(source)
    try:
        with open_output(target, expected=opened.size, mode=opened.mode) as output:
            for begin in range(0, opened.size, _PIECE):
                output.write(opened.read(begin, min(_PIECE, opened.size - begin)))
                if progress is not None:
                    progress(output.position, opened.size)
            opened.check()
            output.commit(durable=True)
    finally:
        opened.close()


def _sync(target: Location) -> None:
    if target.is_local:
        directory, _, name = target.path.rpartition("/")
        unsynced = Unsynced(Location(directory or "."))
        unsynced.add(name)
        unsynced.sync()


def _verify(task: FileTask, target: Location, key: KeyMetadata | None, length: int) -> tuple[int, ...] | None:
    """Open the written file, and count its rows; return the starts of its row groups."""
    if task.form == "parquet":
        footer = _footer(target, key)
        assert footer.metadata is not None
        _check_rows(task, footer.metadata.integer(FileMetaData.NUM_ROWS))
        groups = footer.metadata.list(FileMetaData.ROW_GROUPS)
        starts = [each.integer(RowGroup.FILE_OFFSET) for each in groups or ()]
        return tuple(each for each in starts if each is not None) if None not in starts else ()
    if key is None:
        if task.copy and length != task.length:
            raise TruncatedError(f"{task.target}: has {length} bytes, and {task.length} were copied")
        with _PlainFile(target) as file:
            _check_rows(task, _avro_rows(file, length))
    else:
        with open_stream(target, key_metadata=key) as reader:
            _check_rows(task, _avro_rows(reader, reader.size or 0))
    return None


class _PlainFile:
    """A file of the storage room as a binary file: read and seek."""

    def __init__(self, location: Location) -> None:
        self._source = _opened(location)
        self._position = 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self._source.close()

    def read(self, size: int = -1) -> bytes:
        left = self._source.size - self._position
        data = bytes(self._source.read(self._position, left if size < 0 else min(size, left)))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._source.size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position


def _avro_rows(file: Any, size: int) -> int:
    return sum(block.count for block in iter_blocks(file, 0, size))


def _check_rows(task: FileTask, rows: int | None) -> None:
    if rows != task.records:
        raise FormatError(f"{task.source}: has {rows} rows, but its manifest says {task.records}")


def _check_magic(location: Location, form: str) -> None:
    opened = _opened(location)
    try:
        magic = bytes(opened.read(0, 4)) if opened.size >= 4 else b""
    finally:
        opened.close()
    if magic != _MAGIC[form]:
        known = " It is an AGS1 stream, and the table does not have its key." if magic == b"AGS1" else ""
        raise FormatError(f"does not start as a file of the format {form}.{known}")


def _footer(location: Location, key: KeyMetadata | None) -> Footer:
    opened = _opened(location)
    try:
        reading = None if key is None else DecryptionConfig.for_iceberg(key).for_file(None)
        footer = read_footer(opened, reading, optional=key is None)
    finally:
        opened.close()
    if key is None and footer.algorithm is not None:
        raise FormatError(
            "this Parquet file is encrypted, and the table has no key for it: it was added with keys of another kind. "
            "Decrypt it first (ags1 parquet decrypt), or write its rows again"
        )
    return footer


def _opened(location: Location) -> Any:
    opened = open_source(location)
    if isinstance(opened, PipeSource):
        opened.close()
        raise OSError(22, "it is a pipe, a socket or a device, which no table has", location.text)
    return opened


def _naming(error: Ags1Error, path: str) -> Ags1Error:
    # Messages about local files have the path without its scheme.
    return error if path.rpartition("/")[2] in str(error) else type(error)(f"{path}: {error}")


@dataclass(frozen=True)
class WorkKey:
    """A wrapped key, and the id of the master key that wrapped it. It can be pickled and stored."""

    key_id: str
    wrapped: bytes

    @classmethod
    def make(cls, kms: Any, key_id: str) -> WorkKey:
        """Make a new key; a KeyAccessError if the KMS refused."""
        check_kms(kms)
        key, wrapped = make_kek(kms, key_id, _NAME, _KEY_LENGTH)
        keep_kek(kms, wrapped, key_id, key)
        return cls(key_id, wrapped)

    def unwrap(self, kms: Any) -> Key:
        """Unwrap the key by the KMS; a KeyAccessError if the KMS refused."""
        check_kms(kms)
        return kept_kek(kms, self.wrapped, self.key_id, _NAME)

    def open(self, kms: Any, name: RunName) -> RunSeal:
        """The seal of the run of this name; raises as :meth:`unwrap`."""
        return RunSeal(self.unwrap(kms), name)

    def to_json(self) -> dict[str, Any]:
        """The form in a journal."""
        return {"key-id": self.key_id, "key": base64.b64encode(self.wrapped).decode("ascii")}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> WorkKey:
        """Read that form. FormatError: it is not valid."""
        key_id, key = fields.get("key-id"), fields.get("key")
        try:
            wrapped = base64.b64decode(key, validate=True) if isinstance(key, str) else b""
        except ValueError:
            wrapped = b""
        if not isinstance(key_id, str) or not wrapped:
            raise FormatError("the key of a journal is missing or damaged")
        return cls(key_id, wrapped)


def sealed_key(seal: RunSeal, metadata: KeyMetadata, path: str) -> bytes:
    """Return the key metadata of the file of this path, sealed."""
    return seal.seal(metadata.encode(), f"key of {path}")


def key_of(seal: RunSeal, sealed: bytes, path: str) -> KeyMetadata:
    """Return the key metadata; an AuthenticationError if it is of another run or another file."""
    return KeyMetadata.decode(seal.open(sealed, f"key of {path}"))
