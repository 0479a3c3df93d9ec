"""Moving one file of a table: encrypted, decrypted, re-keyed or copied, to a new, unique path.

    FileTask (key sealed) --> run --> FileResult (key sealed)

Pages of Parquet files are moved, not decoded; Avro files go through AGS1. Tasks and results hold no plaintext key, so
they can go to other processes and into a journal. A result is returned only after its file is durable, was opened again
with its new key, and has the number of rows in the manifest. Between stores, a small file is one request each way: it
is made, and opened again, in memory.

    master key (KMS) --wraps--> key of the run --RunSeal--> key metadata of a file, under its path
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ags1 import codec
from ags1.avro import iter_blocks, read_header
from ags1.errors import FormatError, TruncatedError, without_secrets
from ags1.iceberg.files.file_io import naming, stored_source
from ags1.iceberg.metadata.locations import location_of, moved
from ags1.keys import KeyMetadata
from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file, rekey_file
from ags1.parquet.native.thrift import Struct
from ags1.parquet.rewrite.operations import copy_file
from ags1.parquet.structure.footer import FileMetaData, Footer, RowGroup, read_footer
from ags1.storage import (
    HeldSource,
    Location,
    Source,
    StoredFile,
    Unsynced,
    identity_of,
    make_parent_like,
    open_output,
)
from ags1.streams import files
from ags1.streams.files import Progress
from ags1.streams.opening import open as open_stream
from ags1.streams.stream import Reader, Writer
from ags1.support.typing import Buffer
from ags1.work.records import RunSeal

FORMS = ("parquet", "avro")
"""Formats of data files and equality delete files that can be moved."""

_PIECE = 8 << 20
# How many times as long as its source a Parquet file can be: a page of a few bytes has two nonces and tags.
_LONGEST_RESULT = 4
_MAGIC = {"parquet": b"PAR1", "avro": b"Obj\x01"}


@dataclass(frozen=True)
class Places:
    """Properties, under PyIceberg's names, of the source and the target storage; and whether the source is a copy."""

    source: Mapping[str, str] = field(default_factory=dict)
    target: Mapping[str, str] = field(default_factory=dict)
    moved_from: tuple[str, str] | None = None

    def of_source(self, path: str) -> Location:
        """Return the location of a source file."""
        return location_of(moved(path, self.moved_from), self.source)

    def of_target(self, path: str, root: str | None = None) -> Location:
        """Return the location of a target file; no link below `root` is followed."""
        found = location_of(path, self.target)
        return found if root is None else found.below(Location(root)) or found


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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

    def to_json(self) -> list[Any]:
        """The form in a record."""
        key = None if self.key is None else base64.b64encode(self.key).decode("ascii")
        return [self.source, self.origin, self.target, self.length, self.identity, key, self.split_offsets]

    @classmethod
    def from_json(cls, fields: Any) -> FileResult:
        """Read that form. ValueError, TypeError: it is not valid."""
        source, origin, target, length, identity, key, offsets = fields
        sealed = None if key is None else base64.b64decode(key, validate=True)
        starts = None if offsets is None else tuple(map(int, offsets))
        return cls(str(source), str(target), int(length), sealed, starts, str(origin), str(identity))


def opened(task: FileTask, places: Places) -> Source:
    """Open a file as it is stored. A small one in a store is a HeldSource: its content is there.

    Raises
    ------
    FileNotFoundError, OSError
        The file is missing, or cannot be read.
    """
    try:
        return stored_source(places.of_source(task.source), task.length, ends=task.form == "parquet")
    except FileNotFoundError:
        text = f"the {task.kind} file is missing, and a snapshot needs it"
        raise FileNotFoundError(2, text, without_secrets(task.source)) from None


def check(task: FileTask, seal: RunSeal | None, source: Source) -> str:
    """Compare a file with its manifest, and close it; return a digest of what decides how it is read, as its schema.

    Raises
    ------
    OSError
        The file cannot be read.
    TruncatedError, FormatError
        Its length or rows differ from the manifest, or it is encrypted with a key that the table does not have.
    AuthenticationError
        Its key does not open it.
    """
    with _checked(task, seal, source) as form:
        return form


class MadeFile(NamedTuple):
    """A file in memory that is to be written: its bytes, its key, and the starts of its row groups."""

    data: Buffer
    key: KeyMetadata | None
    split_offsets: tuple[int, ...] | None


Move: TypeAlias = tuple[FileTask, MadeFile | None]


def make(task: FileTask, seal: RunSeal | None, content: Buffer) -> MadeFile:
    """Make a file from the content of another that was checked, and open it with its key."""
    old = _source_key(task, seal)
    new = _target_key(task, old)
    data = _made(task, content, old, new)
    with closing(HeldSource(data, task.target)) as source:
        return MadeFile(data, new, _verify(task, source, new))


def run(
    task: FileTask,
    seal: RunSeal | None,
    places: Places,
    *,
    made: MadeFile | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> FileResult:
    """Move one file, or write it if it was `made`. A failed target is removed; raises as :func:`check`.

    `progress` is called as ``progress(done, total)``, in arbitrary units.
    """
    target = places.of_target(task.target, task.root)
    make_parent_like(target, places.of_source(task.source))
    if made is None:
        source = opened(task, places)
        with _checked(task, seal, source):
            if isinstance(source, HeldSource):
                made = make(task, seal, source.data)
            else:
                old = _source_key(task, seal)
                new = _target_key(task, old)
                written, identity = _move(task, source, target, old, new, threads=threads, progress=progress)
                with closing(stored_source(target, written, ends=task.form == "parquet")) as stored:
                    length, offsets = stored.size, _verify(task, stored, new)
    if made is not None:
        new, offsets, length = made.key, made.split_offsets, memoryview(made.data).nbytes
        with open_output(target, expected=length) as output:
            output.write_owned(made.data)
            output.commit(durable=True)
        identity = output.identity
    if new is not None:
        new = new.with_length(length)
    assert seal is not None or new is None
    sealed = None if new is None or seal is None else sealed_key(seal, new, task.target)
    identity = (identity or identity_of(target)) if new is None else ""
    return FileResult(task.source, task.target, length, sealed, None if task.copy else offsets, task.origin, identity)


@contextmanager
def _checked(task: FileTask, seal: RunSeal | None, opened: Source) -> Iterator[str]:
    """Keep a file open that is what its manifest says; with a digest of its form."""
    with closing(opened), ExitStack() as held:
        key = _source_key(task, seal)
        promised = {task.length, task.length if key is None or key.file_length is None else key.file_length}
        if promised != {opened.size}:
            raise TruncatedError(f"{task.source}: has {opened.size} bytes, but its manifest says {max(promised)}")
        with naming(task.source):
            if task.form == "parquet":
                metadata = _footer(opened, key).metadata
                assert metadata is not None
                _check_rows(task, metadata.integer(FileMetaData.NUM_ROWS))
                form = _parquet_form(metadata)
            else:
                if key is None:
                    _check_magic(opened, task.form)
                # Its end closes what is opened.
                file = held.enter_context(_plain(opened, key))
                form = read_header(file).metadata.get("avro.schema", b"")
        yield hashlib.sha256(f"{task.form} {task.kind} ".encode() + form).hexdigest()


def _parquet_form(metadata: Struct) -> bytes:
    """What decides how Arrow reads the file: its schema, Arrow's own schema, and the writer."""
    pairs = metadata.list(FileMetaData.KEY_VALUE_METADATA) or ()
    arrow = [each for each in pairs if each.binary(1) == b"ARROW:schema"]
    parts = [*(metadata.list(FileMetaData.SCHEMA) or ()), *arrow]
    return b"".join(each.encode() for each in parts) + (metadata.binary(FileMetaData.CREATED_BY) or b"")


def _made(task: FileTask, content: Buffer, old: KeyMetadata | None, new: KeyMetadata | None) -> Buffer:
    if task.copy:
        return content
    if task.form == "parquet":
        into = io.BytesIO()
        _move_parquet(HeldSource(content, task.source), into, old, new, threads=1, progress=None)
        return into.getvalue()
    plain = content
    if old is not None:
        prefix = old.aad_prefix or b""
        plain = codec.decrypt(content, old.encryption_key, aad_prefix=prefix, length=old.file_length)
    if new is None:
        return plain
    made: Buffer = codec.encrypt(plain, new.encryption_key, aad_prefix=new.aad_prefix or b"")
    return made


def _move(
    task: FileTask, source: Source, target: Location, old: KeyMetadata | None, new: KeyMetadata | None, **how: Any
) -> tuple[int | None, str]:
    """Write the file; return its length and identity, as far as they are known without looking."""
    if task.copy:
        copy_file(source, target, progress=how["progress"], durable=True)
        return task.length, ""
    if task.form == "parquet":
        # How long it becomes decides only how long the parts of an upload are.
        with open_output(target, expected=_LONGEST_RESULT * task.length, mode=source.mode) as output:
            _move_parquet(source, output, old, new, **how)
        return output.position, output.identity
    _move_stream(source, target, old, new, **how)
    return None, ""


def _source_key(task: FileTask, seal: RunSeal | None) -> KeyMetadata | None:
    if task.source_key is None:
        return None
    assert seal is not None
    return key_of(seal, task.source_key, task.source)


def _target_key(task: FileTask, old: KeyMetadata | None) -> KeyMetadata | None:
    return old if task.copy else KeyMetadata.generate(task.key_bits) if task.key_bits else None


def _move_parquet(source: Source, target: Any, old: KeyMetadata | None, new: KeyMetadata | None, **how: Any) -> None:
    decryption = None if old is None else DecryptionConfig.for_iceberg(old)
    encryption = None if new is None else EncryptionConfig.for_iceberg(new)
    if decryption is None:
        assert encryption is not None
        encrypt_file(source, target, encryption, durable=True, **how)
    elif encryption is None:
        decrypt_file(source, target, decryption, durable=True, **how)
    else:
        rekey_file(source, target, decryption, encryption, durable=True, **how)


def _move_stream(
    source: Source, target: Location, old: KeyMetadata | None, new: KeyMetadata | None, *, threads: int | None,
    progress: Progress | None,
) -> None:  # fmt: skip
    if new is None:
        files.decrypt_file(source, target, key_metadata=old, threads=threads, progress=progress, durable=True)
        return
    key, prefix = new.encryption_key, new.aad_prefix or b""
    if old is None:
        files.encrypt_file(
            source, target, key, aad_prefix=prefix, threads=threads, progress=progress, durable=True
        )  # fmt: skip
        return
    with (
        open_stream(source, key_metadata=old, threads=threads) as reader,
        Writer(target, key, aad_prefix=prefix, threads=threads) as writer,
    ):
        while piece := reader.read(_PIECE):
            writer.write(piece)
            if progress is not None:
                progress(reader.tell(), reader.size)
    if target.is_local:
        directory, _, name = target.path.rpartition("/")
        unsynced = Unsynced(Location(directory or "."))
        unsynced.add(name)
        unsynced.sync()


def _verify(task: FileTask, made: Source, key: KeyMetadata | None) -> tuple[int, ...] | None:
    """Open the file that was made with its new key, and count its rows; return the starts of its row groups."""
    if task.form == "parquet":
        footer = _footer(made, key)
        assert footer.metadata is not None
        _check_rows(task, footer.metadata.integer(FileMetaData.NUM_ROWS))
        groups = footer.metadata.list(FileMetaData.ROW_GROUPS)
        starts = [each.integer(RowGroup.FILE_OFFSET) for each in groups or ()]
        return tuple(each for each in starts if each is not None) if None not in starts else ()
    if task.copy and made.size != task.length:
        raise TruncatedError(f"{task.target}: has {made.size} bytes, and {task.length} were copied")
    with _plain(made, key) as file:
        size = made.size if key is None else file.size
        _check_rows(task, sum(block.count for block in iter_blocks(file, 0, size)))
    return None


def _plain(source: Source, key: KeyMetadata | None) -> Any:
    if key is None:
        return StoredFile(source)
    return Reader(source, key.encryption_key, aad_prefix=key.aad_prefix or b"", length=source.size)


def _check_rows(task: FileTask, rows: int | None) -> None:
    if rows != task.records:
        raise FormatError(f"{task.source}: has {rows} rows, but its manifest says {task.records}")


def _check_magic(opened: Source, form: str) -> None:
    magic = bytes(memoryview(opened.read(0, min(4, opened.size))))
    if magic != _MAGIC[form]:
        known = " It is an AGS1 stream, and the table does not have its key." if magic == b"AGS1" else ""
        raise FormatError(f"does not start as a file of the format {form}.{known}")


def _footer(opened: Source, key: KeyMetadata | None) -> Footer:
    reading = None if key is None else DecryptionConfig.for_iceberg(key).for_file(None)
    footer = read_footer(opened, reading, optional=key is None)
    if key is None and footer.algorithm is not None:
        raise FormatError(
            "this Parquet file is encrypted, and the table has no key for it: it was added with keys of another kind. "
            "Decrypt it first (ags1 parquet decrypt), or write its rows again"
        )
    return footer


def sealed_key(seal: RunSeal, metadata: KeyMetadata, path: str) -> bytes:
    """Return the key metadata of the file of this path, sealed."""
    return seal.seal(metadata.encode(), f"key of {path}")


def key_of(seal: RunSeal, sealed: bytes, path: str) -> KeyMetadata:
    """Return the key metadata; an AuthenticationError if it is of another run or another file."""
    return KeyMetadata.decode(seal.open(sealed, f"key of {path}"))
