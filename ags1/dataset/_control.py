"""The control directory of a dataset: names in it, ``metadata.json``, and the lock.

target/a/b.parquet                          encrypted files, under the names of their sources
target/_ags1/metadata.json                  the commit point: replaced atomically, and last
target/_ags1/manifest-7-1f..e2.jsonl.ags1   the files of version 7 and their keys, encrypted
target/_ags1/journal-8c..41.json, .log      what an unfinished run has done so far (ags1.dataset._journal)
target/_ags1/staged-8c..41/a/b.parquet      its new versions of files that the manifest still has the old ones of
target/_ags1/lock                           held while something is changed
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from dataclasses import dataclass, field, replace

from ags1.errors import FormatError
from ags1.storage import AtomicFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

__all__ = ["CONTROL", "LOCK", "MANIFEST_NAME", "METADATA", "Lock", "Metadata", "check_path", "write_whole"]

CONTROL = "_ags1"
METADATA = "metadata.json"
LOCK = "lock"
FORMAT_VERSION = 1
MAX_PATH = 4096
MANIFEST_NAME = re.compile(r"manifest-[0-9]{1,19}-[0-9a-f]{16}\.jsonl\.ags1")
STAGED_NAME = re.compile(r"staged-[0-9a-f]{16}")
_MAX_METADATA = 64 << 20


@dataclass(frozen=True)
class Metadata:
    """What ``metadata.json`` says.

    The manifest repeats, authenticated, everything here but the keys, `updated_ms` and `staged`; the wrapped keys
    authenticate themselves.

    Attributes
    ----------
    uuid : str
        Identity of the dataset.
    version : int
        Counts the commits that changed files.
    table_key_id : str
        The master key in the KMS.
    encryption_keys : list of dict
        Iceberg's ``encryption-keys``.
    manifest : str
        File name of the manifest.
    manifest_key_id : str
        The entry of its key.
    file_count, plaintext_bytes : int
        Over all files.
    created_ms, updated_ms : int
        Milliseconds since the epoch; `updated_ms` is not authenticated.
    properties : dict
        Text by text, for whoever uses the dataset.
    staged : str or None
        Directory of files that still have to be moved to where they belong.
    """

    uuid: str
    version: int
    table_key_id: str
    encryption_keys: list[dict[str, Any]]
    manifest: str
    manifest_key_id: str
    file_count: int
    plaintext_bytes: int
    created_ms: int
    updated_ms: int
    properties: dict[str, str] = field(default_factory=dict)
    staged: str | None = None

    @classmethod
    def parse(cls, data: bytes, name: str) -> Metadata:
        """Read the JSON text of a ``metadata.json``.

        Raises
        ------
        FormatError
            No JSON, a missing field, a wrong type, another format version.
        """
        if len(data) > _MAX_METADATA:
            raise FormatError(f"{name} has {len(data)} bytes: no ags1 dataset has that many keys")
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise FormatError(f"{name} is not JSON: it is damaged, or this is no ags1 dataset") from None
        if not isinstance(fields, dict):
            raise FormatError(f"{name} holds no JSON object: it is damaged, or this is no ags1 dataset")
        version = fields.get("format-version")
        if version != FORMAT_VERSION or isinstance(version, bool):
            raise FormatError(f"{name} has format-version {version!r}; only {FORMAT_VERSION} is known")
        manifest = _get(fields, "manifest", dict, name)
        found = cls(
            uuid=_get(fields, "uuid", str, name),
            version=_number(fields, "version", name),
            table_key_id=_get(fields, "table-key-id", str, name),
            encryption_keys=_get(fields, "encryption-keys", list, name),
            manifest=_get(manifest, "file", str, name),
            manifest_key_id=_get(manifest, "key-id", str, name),
            file_count=_number(manifest, "file-count", name),
            plaintext_bytes=_number(manifest, "plaintext-bytes", name),
            created_ms=_number(fields, "created-ms", name),
            updated_ms=_number(fields, "updated-ms", name),
            properties=_get(fields, "properties", dict, name),
            staged=fields.get("staged"),
        )
        if not MANIFEST_NAME.fullmatch(found.manifest):
            raise FormatError(f"{name} names the manifest {found.manifest!r}, which is no name of a manifest")
        staged: object = found.staged
        if staged is not None and not (isinstance(staged, str) and STAGED_NAME.fullmatch(staged)):
            raise FormatError(f"{name} names staged files in {found.staged!r}, which is no name of such a directory")
        return found

    def encode(self) -> bytes:
        """The JSON text."""
        fields: dict[str, Any] = {
            "format-version": FORMAT_VERSION,
            "uuid": self.uuid,
            "version": self.version,
            "table-key-id": self.table_key_id,
            "encryption-keys": self.encryption_keys,
            "manifest": {
                "file": self.manifest,
                "key-id": self.manifest_key_id,
                "file-count": self.file_count,
                "plaintext-bytes": self.plaintext_bytes,
            },
            "created-ms": self.created_ms,
            "updated-ms": self.updated_ms,
            "properties": self.properties,
        }
        if self.staged is not None:
            fields["staged"] = self.staged
        return json.dumps(fields, indent=2).encode() + b"\n"

    def settled(self) -> Metadata:
        """The same, with nothing left to be moved."""
        return replace(self, staged=None)


def _get(fields: dict[str, Any], field_name: str, kind: type, name: str) -> Any:
    value = fields.get(field_name)
    if not isinstance(value, kind) or isinstance(value, bool):
        problem = "has no" if field_name not in fields else "has a damaged"
        raise FormatError(f"{name} {problem} {field_name}: it is damaged, or this is no ags1 dataset")
    return value


def _number(fields: dict[str, Any], field_name: str, name: str) -> int:
    value: int = _get(fields, field_name, int, name)
    if not 0 <= value < 1 << 63:
        raise FormatError(f"{name} has a {field_name} of {value}, which no writer makes")
    return value


def read_local(root: str) -> Metadata | None:
    """The metadata of a dataset in a local directory, None if there is none.

    Raises
    ------
    FormatError
        It is damaged.
    """
    path = os.path.join(root, CONTROL, METADATA)
    try:
        with open(path, "rb") as file:
            return Metadata.parse(file.read(_MAX_METADATA + 1), path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_whole(path: str, data: bytes) -> None:
    """Replace a small file atomically, and wait until it is on the disk."""
    output = AtomicFile(path)
    try:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(output.descriptor, view) :]
            output.commit(durable=True)
        except OSError as error:
            raise named(error, path) from None
    except BaseException:
        output.abort()
        raise


def named(error: OSError, path: str) -> OSError:
    """The same error with a file name, if it has none."""
    if error.filename is not None or error.errno is None:
        return error
    return OSError(error.errno, error.strerror, path)


def check_path(path: str) -> str:
    """Answer a path as a manifest may have it: relative, below the dataset, without empty or dot components.

    Raises
    ------
    FormatError
        Any other: whoever joined it to a directory would leave that.
    """
    parts = path.split("/")
    if path == "" or "\0" in path or parts[0] == CONTROL or any(part in ("", ".", "..") for part in parts):
        raise FormatError(f"a manifest has the path {path!r}, which no file of a dataset can have")
    return path


class Lock:
    """Keeps other writers of a dataset out, in this and in other processes, until it is closed or the process ends.

    Parameters
    ----------
    root : str
        Directory of the dataset; its control directory is made if it is missing.

    Raises
    ------
    BlockingIOError
        Another one holds it; names its process and host.
    OSError
        The directory cannot be written.
    """

    def __init__(self, root: str) -> None:
        control = os.path.join(root, CONTROL)
        os.makedirs(control, exist_ok=True)
        path = os.path.join(control, LOCK)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise named(error, path) from None
                holder = _holder(os.pread(self._descriptor, 1000, 0))
                text = f"{holder} is changing this dataset now: wait until it has ended, then try again"
                raise BlockingIOError(errno.EAGAIN, text, root) from None
            os.ftruncate(self._descriptor, 0)
            text = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
            os.pwrite(self._descriptor, text.encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The file stays: whoever removed it could take it from under one who has just opened it.
        try:
            os.ftruncate(self._descriptor, 0)
        finally:
            os.close(self._descriptor)


def _holder(data: bytes) -> str:
    try:
        fields = json.loads(data)
        return f"process {int(fields['pid'])} on host {str(fields['host'])[:255]}"
    except (ValueError, KeyError, TypeError):
        return "another process"
