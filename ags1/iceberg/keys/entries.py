"""Entries of a table's ``encryption-keys``, and their JSON as Iceberg Java writes it.

    {"key-id": text, "encrypted-key-metadata": padded base64, "encrypted-by-id": text, "properties": {text: text}}

The last two are omitted when they are empty. Source: Iceberg table spec, "Encryption Keys", and its Java
parser of encrypted keys; the spec's example that says ``key-metadata`` is out of date.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from ags1.errors import FormatError

KEY_ID = "key-id"
METADATA = "encrypted-key-metadata"
ENCRYPTED_BY_ID = "encrypted-by-id"
PROPERTIES = "properties"
KNOWN_FIELDS = frozenset({KEY_ID, METADATA, ENCRYPTED_BY_ID, PROPERTIES})

KEY_TIMESTAMP = "KEY_TIMESTAMP"
"""The property's name as Iceberg Java and Rust write it."""
MAILED_KEY_TIMESTAMP = "key-timestamp"
"""The name in the mailing list's description of the format; read, never written."""

MAX_ENTRIES = 1_000_000
MAX_METADATA_BYTES = 1 << 20
MAX_TEXT = 1 << 16
MAX_SHOWN = 80


def shown(text: str) -> str:
    """Return a name from a document for a message: quoted, escaped and shortened."""
    return repr(text) if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]!r}..."


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EncryptedKey:
    """One entry of ``encryption-keys``: a key encryption key that a KMS wrapped, or key metadata wrapped by such a key.

    Parameters
    ----------
    key_id : str
        Name of the entry in its list.
    encrypted_key_metadata : bytes-like
        The wrapped bytes.
    encrypted_by_id : str, optional
        Id of the key that wrapped them: of another entry, or of a master key in the KMS.
    properties : mapping of str to str, optional
        Further properties; a key encryption key has a timestamp.
    unknown : mapping, optional
        Fields that the format does not define, as JSON values. They are kept.

    Raises
    ------
    FormatError
        A wrong type, a text that is not Unicode, a size that no writer produces.

    Notes
    -----
    Immutable, so safe to share between threads. It holds no secret, only wrapped keys.
    """

    key_id: str
    encrypted_key_metadata: bytes
    encrypted_by_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        _text(self.key_id, KEY_ID)
        where, wrapped = f"entry {shown(self.key_id)}", self.encrypted_key_metadata
        if not isinstance(wrapped, (bytes, bytearray, memoryview)):
            raise FormatError(f"{where}: {METADATA} must be bytes, not {type(wrapped).__name__}")
        object.__setattr__(self, "encrypted_key_metadata", bytes(wrapped))
        if len(self.encrypted_key_metadata) > MAX_METADATA_BYTES:
            raise FormatError(f"{where}: {METADATA} is larger than {MAX_METADATA_BYTES} bytes; no KMS makes such a key")
        if self.encrypted_by_id is not None:
            _text(self.encrypted_by_id, f"{where}: {ENCRYPTED_BY_ID}")
        properties = {
            _text(name, f"{where}: the name of a property"): _text(value, f"{where}: property {shown(name)}")
            for name, value in (self.properties or {}).items()
        }
        object.__setattr__(self, "properties", MappingProxyType(properties))
        object.__setattr__(self, "unknown", MappingProxyType(dict(self.unknown)))

    @property
    def timestamp(self) -> str | None:
        """The exact text of the timestamp, which authenticates the entries below a key encryption key."""
        # Empty text would authenticate nothing.
        return self.properties.get(KEY_TIMESTAMP) or self.properties.get(MAILED_KEY_TIMESTAMP) or None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> EncryptedKey:
        """Read an entry out of its parsed JSON object.

        Raises
        ------
        FormatError
            A field is missing, of a wrong type, or not base64. Null is the same as absent for a field that may be
            absent.
        """
        if not isinstance(fields, Mapping):
            raise FormatError(f"an entry of encryption-keys must be a JSON object, not {type(fields).__name__}")
        key_id = _text(fields.get(KEY_ID), f"{KEY_ID} of an entry of encryption-keys")
        where = f"entry {shown(key_id)}"
        metadata = _base64(fields.get(METADATA), where)
        properties = fields.get(PROPERTIES)
        if properties is not None and not isinstance(properties, dict):
            raise FormatError(f"{where}: {PROPERTIES} must be a JSON object, not {type(properties).__name__}")
        unknown = {}
        for name in fields:
            if name not in KNOWN_FIELDS:
                label = _text(name, f"{where}: the name of a field")
                unknown[label] = _json_value(fields[name], f"{where}: field {shown(label)}")
        return cls(key_id, metadata, fields.get(ENCRYPTED_BY_ID), properties or {}, unknown=unknown)

    def to_dict(self) -> dict[str, Any]:
        """The entry's JSON object, with the fields in Iceberg Java's order and unknown ones behind them."""
        fields: dict[str, Any] = {
            KEY_ID: self.key_id,
            METADATA: base64.b64encode(self.encrypted_key_metadata).decode("ascii"),
        }
        if self.encrypted_by_id is not None:
            fields[ENCRYPTED_BY_ID] = self.encrypted_by_id
        if self.properties:
            fields[PROPERTIES] = dict(self.properties)
        return fields | dict(self.unknown)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncryptedKey):
            return NotImplemented
        return (
            self.key_id == other.key_id
            and self.encrypted_key_metadata == other.encrypted_key_metadata
            and self.encrypted_by_id == other.encrypted_by_id
            and self.properties == other.properties
            and _values(self.unknown) == _values(other.unknown)
        )

    def __hash__(self) -> int:
        return hash((self.key_id, self.encrypted_key_metadata))

    def __repr__(self) -> str:
        if not hasattr(self, "unknown"):
            # A traceback with local variables may show an object whose constructor failed.
            return "<ags1.iceberg.EncryptedKey, not made>"
        by = None if self.encrypted_by_id is None else shown(self.encrypted_by_id)
        return (
            f"<ags1.iceberg.EncryptedKey {shown(self.key_id)}: {len(self.encrypted_key_metadata)} wrapped bytes, "
            f"encrypted by {by}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.key_id, self.encrypted_key_metadata, self.encrypted_by_id, dict(self.properties))
        return partial(EncryptedKey, unknown=dict(self.unknown)), fields


def entries_from_list(value: object) -> list[EncryptedKey]:
    """Read a parsed ``encryption-keys`` list; null is the same as none."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise FormatError(f"encryption-keys must be a JSON list, not {type(value).__name__}")
    if len(value) > MAX_ENTRIES:
        raise FormatError(f"encryption-keys has {len(value)} entries; more than {MAX_ENTRIES} are refused")
    return [EncryptedKey.from_dict(fields) for fields in value]


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise FormatError(f"{name} must be text, not {'absent' if value is None else type(value).__name__}")
    if len(value) > MAX_TEXT:
        raise FormatError(f"{name} has {len(value)} characters; more than {MAX_TEXT} are refused")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(f"{name} has half a surrogate pair, which is not Unicode text") from None
    return value


def _base64(value: object, where: str) -> bytes:
    if not isinstance(value, str):
        raise FormatError(
            f"{where}: {METADATA} must be base64 text, not {'absent' if value is None else type(value).__name__}"
        )
    if len(value) > MAX_METADATA_BYTES * 4 // 3 + 4:
        raise FormatError(f"{where}: {METADATA} is larger than {MAX_METADATA_BYTES} bytes; no KMS makes such a key")
    try:
        # Java's decoder also reads text without padding; its encoder writes padding.
        return base64.b64decode(value if value.endswith("=") else value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise FormatError(f"{where}: {METADATA} is not standard base64 (RFC 4648, section 4)") from None


def _values(unknown: Mapping[str, Any]) -> str:
    """Unknown fields in one spelling, to compare them: in Python true is 1."""
    return json.dumps(dict(unknown), sort_keys=True) if unknown else ""


def _json_value(value: object, where: str) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise FormatError(f"{where} is not made of JSON values") from None
    return value
