"""Where rows come from: a dataset, plain AGS1 files, or encrypted Parquet files, listed on the driver, opened in tasks.

Keys are loaded where a file is opened. The driver sends to the tasks only paths, ranges, and the number and digest of
the version that it read. The key of plain AGS1 files is given by reference:

env:NAME      an environment variable of the executors: the key in hexadecimal or base64
file:PATH     a key file as ``ags1 keygen`` makes it, or key metadata; on every executor
file:DIR      a directory with NAME.key-metadata for each file, as ``ags1 encrypt --key-metadata-out`` makes it
"""

from __future__ import annotations

import errno
import glob
import logging
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import ags1.dataset as datasets
from ags1.core.gcm import Key
from ags1.dataset.selection import Filter
from ags1.dataset.versions import latest_number
from ags1.errors import FormatError, KeyAccessError
from ags1.keys import KeyMetadata, decode_metadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.spark.engine.locations import locate
from ags1.spark.engine.sealing import kms_client
from ags1.spark.source.decoders import Plain
from ags1.spark.source.decoders.text import is_gzip
from ags1.spark.source.options import SourceOptions
from ags1.storage import Location, in_order, list_files, match, status
from ags1.streams.metadata_files import KEY_METADATA_SUFFIX, SUFFIX, metadata_beside, text_of_prefix
from ags1.streams.stream import Reader
from ags1.support.key_files import from_base64, from_hex, parse_key, read_key_file
from ags1.support.words import LINK

_KEPT = 4
_AHEAD = 8
_SIZES = (16, 24, 32)
_log = logging.getLogger("ags1.spark")
_warned_of: set[int] = set()

# Who gives one of these insists on it: it is not ignored.
_OF_DATASETS = ("key_id", "expected_version", "version_as_of", "prefix")
_OF_FILES = ("aad_prefix", "aad_prefix_hex")

# For this process only: a forked child would share the descriptors' positions and the connections of its parent.
_cache: dict[tuple[Any, ...], Input] = {}


@dataclass(frozen=True)
class ListedFiles:
    """One file.

    Attributes
    ----------
    path : str
        The name in rows, and the argument of :meth:`Input.open`.
    base : int
        Length of the part of the path above the given directory.
    length, file_length : int
        Bytes of plaintext, as far as they are known without opening the file, and of the file.
    """

    path: str
    base: int
    length: int
    file_length: int

    @property
    def name(self) -> str:
        """The path below the given directory."""
        return self.path[self.base :]


END = 1 << 62
"""End of a range that goes to the end of its file, wherever that is."""


@dataclass(frozen=True)
class Split:
    """A range of a file."""

    file: ListedFiles
    start: int = 0
    end: int = END


class Input(Protocol):
    """A set of files. Holds keys, or the means to get them: it cannot be pickled."""

    identity: str

    def files(self) -> Iterator[ListedFiles]:
        """All files, in the order of their paths."""

    def open(self, file: ListedFiles) -> Plain:
        """Open one of them."""

    def close(self) -> None:
        """Close what is open."""


def open_input(options: SourceOptions, identity: str | None = None) -> Input:
    """Open the input of the options; `identity` is the one that the driver read, so that a task reads the same."""
    if identity is not None:
        is_dataset = identity != _Files.identity
    elif options.keyref or options.decode == "parquet":
        is_dataset = len(options.path) == 1 and latest_number(locate(options.path[0], options.session)) > 0
    else:
        is_dataset = True
    if options.keyref:
        return _KeyedFiles(options, is_dataset=is_dataset)
    if not is_dataset:
        return _ParquetFiles(options)
    if identity is None:
        return DatasetFiles(options, options.version_as_of if options.version_as_of >= 0 else None)
    number, digest = identity.split(" ")
    return DatasetFiles(options, int(number), digest)


def packed(identity: str, splits: list[Split]) -> bytes:
    """What a task is sent: paths and ranges, no keys."""
    return zlib.compress(pickle.dumps((identity, splits), pickle.HIGHEST_PROTOCOL), 1)


def opened_task(data: bytes, options: SourceOptions) -> tuple[Input, list[Split]]:
    """The input of a task, and the splits that it was sent."""
    identity, splits = pickle.loads(zlib.decompress(data))
    return cached_input(options, identity), splits


def cached_input(options: SourceOptions, identity: str) -> Input:
    """As :func:`open_input`, but cached for the next tasks of this process: one call to the KMS for all of them."""
    key = (os.getpid(), options)
    found = _cache.get(key)
    if found is not None and found.identity == identity:
        return found
    made = open_input(options, identity)
    for old in [each for each in _cache if each[0] != key[0]]:
        # It belongs to the parent process: do not close it here.
        del _cache[old]
    if found is not None:
        found.close()
    _cache[key] = made
    while len(_cache) > _KEPT:
        _cache.pop(next(iter(_cache))).close()
    return made


def _refuse_options(options: SourceOptions, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name) != getattr(SourceOptions, name):
            raise ValueError(f"{', '.join(options.path)}: the option {name} {why}")


def _decryption(options: SourceOptions, *, plaintext: bool) -> Any:
    """Keys for encrypted Parquet files, if the options name a KMS."""
    if options.decode != "parquet" or not options.kms:
        return None
    from ags1.parquet.keys.properties import DecryptionConfig

    return DecryptionConfig.from_kms(options.kms, allow_plaintext=plaintext)


class DatasetFiles:
    """The files of one version of a dataset, by default the last one, which must be the expected one."""

    def __init__(
        self,
        options: SourceOptions,
        number: int | None = None,
        digest: str | None = None,
        pins: datasets.Pins | None = None,
    ) -> None:
        _refuse_options(
            options, _OF_FILES, "is for single files, and this is a dataset, whose manifests have all of it"
        )
        self._options = options
        expected = options.expected_version if number is None and options.expected_version >= 0 else None
        self._filter = Filter(options.include or None, options.exclude or None)
        self._below = f"{options.prefix.rstrip('/')}/" if options.prefix else ""
        self._decryption = _decryption(options, plaintext=True)
        location = locate(options.path[0], options.session)
        self._is_local = location.is_local
        try:
            self.dataset = datasets.open(
                location,
                kms_client(options.kms),
                version=number,
                expected_version=expected,
                expected_digest=digest,
                key_id=options.key_id or None,
                pins=pins,
                threads=options.threads,
            )
        except FileNotFoundError:
            if number is not None or latest_number(location):
                raise
            raise no_dataset(location) from None
        self.identity = f"{self.dataset.version} {self.dataset.digest}"

    def files(self) -> Iterator[ListedFiles]:
        """Yield the files of the version below the prefix that was asked for."""
        prefix = self._options.prefix
        if prefix and not self.dataset.files.is_directory(prefix):
            raise FileNotFoundError(errno.ENOENT, f"the dataset {self.dataset.path} has no directory", prefix)

        def read(leaf: datasets.Leaf) -> list[ListedFiles]:
            return self._wanted(leaf.sizes())

        leaves = self.dataset.files.leaves(prefix)
        return chain.from_iterable(map(read, leaves) if self._is_local else in_order(read, leaves, at_once=_AHEAD))

    def _wanted(self, sizes: list[tuple[str, int, int]]) -> list[ListedFiles]:
        """The files that the options select."""
        return [
            ListedFiles(path, 0, length, file_length)
            for path, length, file_length in sizes
            if path.startswith(self._below)
            and not path.endswith("/")
            and not _left_out(path, self._options)
            and self._filter.accepts(path)
        ]

    def wanted(self, entry: datasets.DatasetEntry) -> list[ListedFiles]:
        """The file of an entry, if the options select it."""
        return self._wanted([(entry.path, entry.plaintext_length, entry.file_length)])

    def open(self, file: ListedFiles) -> Plain:
        """Return the plaintext of one file. The caller closes it."""
        reader = self.dataset.open(file.path)
        return Plain(f"{self.dataset.path}/{file.path}", file.path, reader, self._decryption)

    def close(self) -> None:
        """Close the dataset."""
        self.dataset.close()


def no_dataset(location: Location) -> FileNotFoundError:
    """The error for a place without a dataset, with a hint."""
    above, _, below = location.text.rpartition("/")
    while above and not above.endswith(("/", ":")):
        if latest_number(Location(above, location.storage_options)):
            text = f"this is inside of the dataset {above}: load that, with the option prefix={below}"
            return FileNotFoundError(errno.ENOENT, text, location.shown)
        above, _, name = above.rpartition("/")
        below = f"{name}/{below}"
    text = (
        "there is no ags1 dataset here, or its first run was not completed (for single AGS1 files give the option "
        "keyref, for encrypted Parquet files decode=parquet)"
    )
    return FileNotFoundError(errno.ENOENT, text, location.shown)


def is_hidden(name: str) -> bool:
    """Whether Spark ignores a file: a part of its name begins with a point, or with _ and has no =."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))


def _left_out(name: str, options: SourceOptions) -> bool:
    # decode=binary reads files whose names begin with a point or _ too; other formats would fail on _SUCCESS.
    return options.decode != "binary" and is_hidden(name)


class _Files:
    """Single files, each on its own."""

    identity = "files"

    def __init__(self, options: SourceOptions) -> None:
        _refuse_options(
            options,
            _OF_DATASETS,
            "is for a dataset, and these are single files (include chooses among them), or its versions are gone",
        )
        self._options = options

    def files(self) -> Iterator[ListedFiles]:
        """Yield the files of the version below the prefix that was asked for."""
        wanted = Filter(self._options.include or None, self._options.exclude or None)
        seen: set[str] = set()
        for path in self._options.path:
            count = 0
            for url, base, size in _found(locate(path, self._options.session), self._options):
                count += 1
                name = url[base:]
                hidden = _left_out(name, self._options) or name.endswith(KEY_METADATA_SUFFIX)
                if url not in seen and wanted.accepts(name) and not hidden:
                    seen.add(url)
                    yield ListedFiles(url, base, size, size)
            if count == 0:
                raise FileNotFoundError(errno.ENOENT, "there is no such file, and none that matches", path)

    def close(self) -> None:
        """Close the dataset."""


class _KeyedFiles(_Files):
    def __init__(self, options: SourceOptions, *, is_dataset: bool = False) -> None:
        super().__init__(options)
        self._keys = SourceFileKeys(options)
        if is_dataset and not self._keys.several:
            raise ValueError(
                f"{options.path[0]} is a dataset, where each file has a key of its own: give the option kms, not keyref"
            )
        self._decryption = _decryption(options, plaintext=True)

    def open(self, file: ListedFiles) -> Plain:
        """Return the plaintext of one file. The caller closes it."""
        metadata = self._keys.metadata_for(file.path, file.name)
        length = metadata.file_length
        if length is None:
            if self._options.trust_fs_length:
                length = file.file_length
            else:
                _warn_of_length(file.path)
        reader = Reader(
            locate(file.path, self._options.session),
            metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"",
            length=length,
            threads=self._options.threads,
        )
        return Plain(file.path, file.path, reader, self._decryption)


def _warn_of_length(path: str) -> None:
    if os.getpid() not in _warned_of:
        _warned_of.add(os.getpid())
        _log.warning(
            "%s: the length of this file and of the others is not trusted, so blocks missing at an end would go "
            "unnoticed; key metadata has lengths, and trust_fs_length=true silences this warning",
            path,
        )


class _ParquetFiles(_Files):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._decryption = _decryption(options, plaintext=options.allow_plaintext)

    def open(self, file: ListedFiles) -> Plain:
        """Return the plaintext of one file. The caller closes it."""
        if file.path.endswith(SUFFIX):
            raise FormatError(
                "this is an AGS1 file, and not encrypted Parquet: load one dataset by its path, without globs, and "
                "union several; or give the option keyref for single files"
            )
        decryption, prefix = self._decryption, aad_prefix_of(self._options, file.name)
        if prefix is not None:
            decryption = decryption.with_aad_prefix(prefix)
        return Plain(file.path, file.path, locate(file.path, self._options.session), decryption)


def _found(location: Location, options: SourceOptions) -> Iterator[tuple[str, int, int]]:
    """Files of a name: path or URL, the length of its part above the directory, size."""
    if location.is_local:
        yield from _found_locally(location.path, options)
        return
    try:
        one = status(location)
    except (FileNotFoundError, IsADirectoryError):
        magic = glob.has_magic(location.path)
        base = len(_above_magic(location.text)) if magic else len(location.text.rstrip("/")) + 1
        yield from ((each.path, base, each.size) for each in (match(location) if magic else list_files(location)))
    else:
        yield location.text, len(location.text) - len(location.name), one.size


def _found_locally(root: str, options: SourceOptions) -> Iterator[tuple[str, int, int]]:
    if os.path.isdir(root):
        base = len(root.rstrip("/")) + 1
        yield from ((path, base, size) for path, size in _below(root, options))
    elif os.path.exists(root):
        yield root, len(os.path.dirname(root).rstrip("/")) + 1, os.stat(root).st_size
    elif glob.has_magic(root):
        base = len(_above_magic(root))
        for match in sorted(glob.glob(root, recursive=True)):
            found = _below(match, options) if os.path.isdir(match) else [(match, os.stat(match).st_size)]
            yield from ((path, base, size) for path, size in found)


def _above_magic(pattern: str) -> str:
    """The directories in front of the first part with a wildcard."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:first]) + "/"


def _below(directory: str, options: SourceOptions) -> list[tuple[str, int]]:
    """Files and their sizes. OSError: some of the rows would be missing."""

    def refuse(name: str) -> None:
        path = os.path.join(directory, name)
        if not _left_out(f"{name}/" if os.path.isdir(path) else name, options):
            text = f"{LINK}, so its rows would be missing: replace it by what it leads to"
            raise OSError(errno.ENOTDIR, text, path)

    return [(each.location.path, each.size) for each in list_files(Location(directory), on_link=refuse)]


def aad_prefix_of(options: SourceOptions, name: str) -> bytes | None:
    """The AAD prefix of a single file by the options, if they have one."""
    if options.aad_prefix_hex:
        return bytes.fromhex(options.aad_prefix_hex)
    return os.fsencode(text_of_prefix(options.aad_prefix, name)) if options.aad_prefix else None


class SourceFileKeys:
    """The keys of a reference, each read once. Holds keys: it cannot be pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self._kind, _, self._where = options.keyref.partition(":")
        self._options = options
        self._found: KeyMetadata | None = None

    @property
    def several(self) -> bool:
        """Whether each file has key metadata of its own."""
        return self._kind == "file" and os.path.isdir(self._where)

    def metadata_for(self, path: str, name: str) -> KeyMetadata:
        """Key, AAD prefix and recorded length (if any) of a file, by its name below the given directory.

        No message shows the content of a variable or a file.
        """
        if self.several:
            return decode_metadata(_read(metadata_beside(self._where, path, name)), path)
        if self._found is None:
            self._found = self._load()
        found, prefix = self._found, aad_prefix_of(self._options, name.removesuffix(SUFFIX))
        if found.aad_prefix is None and prefix is not None:
            return KeyMetadata(found.encryption_key, prefix, found.file_length)
        return found

    def _load(self) -> KeyMetadata:
        if self._kind == "env":
            text = os.environ.get(self._where)
            where = f"the environment variable {_name(self._where)}"
            if text is None:
                raise KeyAccessError(f"{where} is not set in this process: executors need it too, or use keyref=file:")
            return _parsed(text.encode("utf-8", "surrogateescape"), where, raw=False)
        return _parsed(_read(self._where), self._where, raw=True)

    def __repr__(self) -> str:
        return "<ags1.spark.SourceFileKeys, redacted>"

    def __reduce__(self) -> str:
        raise TypeError("keys cannot be pickled: they are read where they are used")


def _name(text: str) -> str:
    """The name of a variable for a message; if the caller gave a key instead of a name, it is not shown."""
    return text if text.isidentifier() and len(text) not in (32, 48, 64) else "of this name"


def _read(path: str) -> bytes:
    try:
        return read_key_file(path)[0]
    except KeyAccessError as error:
        raise KeyAccessError(f"{error}; every executor needs it under this path") from None


def _parsed(data: bytes, where: str, *, raw: bool) -> KeyMetadata:
    """A key in raw bytes, hexadecimal or base64, or key metadata in any of them."""
    text = data.strip()
    for each in (data if raw else b"", from_hex(text) or b"", from_base64(text) or b""):
        if each.startswith(b"\x01") and len(each) not in _SIZES:
            return decode_metadata(each, where)
    # A warning about bytes that could also be text would not be seen in an executor.
    return KeyMetadata(Key(parse_key(data, where, raw=raw, note=lambda remark: None)))


# Opening a file costs about as much as decrypting so many bytes.
OPEN_COST = 256 << 10


def plan(files: Iterable[ListedFiles], options: SourceOptions) -> Iterator[list[Split]]:
    """The splits of each task, in the order of the files; no list is empty."""
    limit = options.split_bytes
    if options.min_partitions > 1:
        files = list(files)
        total = sum(each.length + OPEN_COST for each in files)
        limit = min(limit, -(-total // options.min_partitions))
    # Whole blocks.
    limit = max(1, limit // DEFAULT_BLOCK_LENGTH) * DEFAULT_BLOCK_LENGTH
    current: list[Split] = []
    gathered = 0
    for file in files:
        for start, end in _ranges(file.name, file.length, limit, options):
            weight = min(end, file.length) - start + OPEN_COST
            if current and gathered + weight > limit + OPEN_COST:
                yield current
                current, gathered = [], 0
            current.append(Split(file, start, end))
            gathered += weight
    if current:
        yield current


def _ranges(name: str, length: int, limit: int, options: SourceOptions) -> Iterable[tuple[int, int]]:
    whole = options.whole_files or (options.decode == "text" and is_gzip(name))
    if whole or length <= limit:
        return ((0, END),)
    return ((start, start + limit if start + limit < length else END) for start in range(0, length, limit))
