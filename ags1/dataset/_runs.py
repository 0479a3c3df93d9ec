"""Runs whose files are made by many processes at once, as those of Spark are: one key, out of which all others come.

    _ags1/run-ID.json     wrapped keys, as in metadata.json, the run's own among them

The run's key is random. The key and the AAD prefix of each file are derived from it, from the file's path and from what
its source was like:

    HKDF-Expand of SHA-256 (RFC 5869, section 2.3):  run key, dataset | run | path | size | mtime  ->  32 + 16 bytes

So no key has to travel, and whoever makes a file, or a part of one, makes it under the same key, with nonces of their
own: of two attempts at one file either is good, and a file that a killed run left is recognised by the next. The record
is written before any file; so a file of ours whose key nobody can have does not exist.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from dataclasses import dataclass

from ags1._gcm import Key, random_bytes
from ags1.dataset._keys import KeyRing
from ags1.errors import FormatError
from ags1.keys import AAD_PREFIX_LENGTH, KeyMetadata
from ags1.layout import encrypted_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["RECORD_NAME", "RunKeys", "RunReference", "parse_record", "record_name"]

RECORD_NAME = re.compile(r"run-([0-9a-f]{16})\.json")
FORMAT_VERSION = 1
_LABEL = b"ags1 file of a run"


def record_name(run: str) -> str:
    """File name of the record of a run."""
    return f"run-{run}.json"


@dataclass(frozen=True)
class RunReference:
    """What a process needs to take part in a run, besides access to the KMS. It has no secret; it can be pickled.

    Attributes
    ----------
    uuid : str
        Identity of the dataset.
    run : str
        Identity of the run.
    base_version : int
        Version of the dataset that the run began on; 0 for a new one.
    table_key_id : str
        The master key in the KMS.
    key_id : str
        Entry of the run's key.
    encryption_keys : str
        JSON of the wrapped keys.
    """

    uuid: str
    run: str
    base_version: int
    table_key_id: str
    key_id: str
    encryption_keys: str

    @classmethod
    def create(cls, uuid: str, base_version: int, keys: KeyRing, kms: Any) -> tuple[RunReference, RunKeys]:
        """Make the key of a new run, wrapped as every other key of the dataset is."""
        metadata = KeyMetadata(Key.generate(), random_bytes(AAD_PREFIX_LENGTH))
        key_id = keys.add(metadata, kms)
        entries = json.dumps(keys.only(key_id).to_list())
        reference = cls(uuid, random_bytes(8).hex(), base_version, keys.table_key_id, key_id, entries)
        return reference, RunKeys(reference, metadata.encryption_key)

    @property
    def staging(self) -> str:
        """Name of the staging directory in the control directory."""
        return f"staged-{self.run}"

    def key_ring(self) -> KeyRing:
        """The wrapped keys."""
        return KeyRing(json.loads(self.encryption_keys), self.table_key_id, record_name(self.run))

    def unwrap(self, kms: Any) -> RunKeys:
        """Get the run's key: one call to the KMS.

        Raises
        ------
        KeyAccessError
            The KMS refused.
        FormatError, AuthenticationError
            The record is damaged, or was changed.
        """
        return RunKeys(self, self.key_ring().unwrap(self.key_id, kms).encryption_key)

    def rewrapped(self, keys: KeyRing) -> RunReference:
        """The same run under another master key."""
        entries = json.dumps(keys.to_list())
        return RunReference(self.uuid, self.run, self.base_version, keys.table_key_id, self.key_id, entries)

    def encode(self) -> bytes:
        """The text of the run's record."""
        fields = {
            "format-version": FORMAT_VERSION,
            "uuid": self.uuid,
            "base-version": self.base_version,
            "table-key-id": self.table_key_id,
            "key-id": self.key_id,
            "encryption-keys": json.loads(self.encryption_keys),
            "created-ms": time.time_ns() // 1_000_000,
        }
        return json.dumps(fields, indent=2).encode() + b"\n"


def parse_record(run: str, data: bytes, name: str) -> RunReference:
    """Read the record of a run.

    Raises
    ------
    FormatError
        It is damaged.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    kinds = {"uuid": str, "base-version": int, "table-key-id": str, "key-id": str, "encryption-keys": list}
    if not isinstance(fields, dict) or fields.get("format-version") != FORMAT_VERSION:
        raise FormatError(f"{name}: the record of an unfinished run is damaged, or of an unknown version")
    for field_name, kind in kinds.items():
        if not isinstance(fields.get(field_name), kind):
            raise FormatError(f"{name}: the record of an unfinished run has no {field_name}, or a damaged one")
    return RunReference(
        fields["uuid"],
        run,
        fields["base-version"],
        fields["table-key-id"],
        fields["key-id"],
        json.dumps(fields["encryption-keys"]),
    )


class RunKeys:
    """The keys of a run's files. Safe to use from several threads; it cannot be pickled.

    Parameters
    ----------
    reference : RunReference
        The run.
    key : Key
        Its key.
    """

    def __init__(self, reference: RunReference, key: Key) -> None:
        self.reference = reference
        self.key = key
        self._label = b"\0".join((_LABEL, reference.uuid.encode(), reference.run.encode(), b""))

    def file_key(self, path: str, size: int, mtime_ns: int) -> KeyMetadata:
        """Key, AAD prefix and length of the file that a source becomes.

        Parameters
        ----------
        path : str
            Relative to the dataset.
        size, mtime_ns : int
            Of the source: bytes, and nanoseconds since the epoch.
        """
        return self._derived(b"%d\0%d" % (size, mtime_ns), path, encrypted_length(size))

    def stream_key(self, path: str) -> KeyMetadata:
        """Key and AAD prefix of a file whose length is known only when it is written; it has no source.

        Parameters
        ----------
        path : str
            Relative to the dataset. No two attempts may write under one: their contents need not be the same.

        Returns
        -------
        KeyMetadata
            Without a length.
        """
        return self._derived(b"stream", path, None)

    def _derived(self, what: bytes, path: str, file_length: int | None) -> KeyMetadata:
        # The path comes last: whatever is in it, no two files have the same text.
        info = b"%s%s\0%s" % (self._label, what, path.encode("utf-8", "surrogateescape"))
        # In one buffer of ours, the run's key is not copied into an object that outlives the call.
        secret = bytes(self.key)
        first = hmac.digest(secret, info + b"\x01", hashlib.sha256)
        second = hmac.digest(secret, first + info + b"\x02", hashlib.sha256)
        return KeyMetadata(first, second[:AAD_PREFIX_LENGTH], file_length)

    def __repr__(self) -> str:
        return f"<ags1.dataset.RunKeys of run {self.reference.run}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a run cannot be pickled or copied: send its reference, and unwrap that there")
