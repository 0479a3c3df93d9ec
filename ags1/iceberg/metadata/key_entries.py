"""Entries of a table's ``encryption-keys``: their JSON as Iceberg Java writes it, their links, and what wraps them.

    {"key-id": text, "encrypted-key-metadata": padded base64, "encrypted-by-id": text, "properties": {text: text}}

    entry below a key encryption key:  nonce (12) || ciphertext || tag (16)
    AAD:                               UTF-8 of the key encryption key's timestamp, exactly as it is stored

The last two fields are omitted when they are empty. A key encryption key is wrapped by a KMS: any object with
``wrap_key(key, wrapping_key_id)`` and ``unwrap_key(wrapped, wrapping_key_id)``, such as the clients of :mod:`ags1.kms`,
PyIceberg's, or your own. An unwrapped key stays in the cache of its client.

Sources: Iceberg table spec, "Encryption Keys", whose example that says ``key-metadata`` is out of date; Iceberg Java's
parser of encrypted keys, EncryptionUtil and StandardEncryptionManager.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from ags1.core.gcm import open_message, random_bytes, seal_message
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.keys import Key, KeyMetadata
from ags1.kms import key_cache_of, name_of_key
from ags1.kms.asking import ask, generate_key, has_methods, name_of, returned_key, wrap_key

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


# -- links and wrapping ----------------------------------------------------------------------------------------------

NONCE_LENGTH = 12
OVERHEAD = 28
KEK_LIFESPAN_MS = 730 * 86_400_000
"""How long a key encryption key wraps new entries: NIST SP 800-57 part 1, 5.3.6.7, as Iceberg Java has it."""
MAX_CLOCK_SKEW_MS = 86_400_000
"""How far ahead of this machine's clock a timestamp may be that was made by another machine's."""


class MissingKekError(KeyAccessError, FormatError):
    """The list lacks the key encryption key that an entry names: the list is damaged."""


def kek_above(entries: Mapping[str, EncryptedKey], entry: EncryptedKey) -> EncryptedKey:
    """The key encryption key that an entry is encrypted by.

    Raises
    ------
    MissingKekError
        The list lacks it.
    FormatError
        The hierarchy is malformed: no encrypted-by-id, no timestamp, a cycle, or too many levels.
    """
    by = entry.encrypted_by_id
    if by is None:
        raise FormatError(f"entry {shown(entry.key_id)} has no encrypted-by-id: nothing says what opens it")
    kek = entries.get(by)
    if kek is None:
        if entry.timestamp is not None:
            raise FormatError(
                f"entry {shown(entry.key_id)} is a key encryption key, not key metadata of a manifest list"
            )
        raise MissingKekError(
            f"entry {shown(entry.key_id)} is encrypted by key encryption key {shown(by)}, which is missing from "
            "encryption-keys. Older metadata files may still have it: merge their lists"
        )
    above = kek.encrypted_by_id
    if above is not None and above in entries:
        # No writer makes more than two levels, so higher levels are not read.
        path = [entry.key_id, by, above]
        if above in path[:2] or entries[above].encrypted_by_id in path:
            names = " -> ".join(map(shown, path))
            raise FormatError(f"entries of encryption-keys encrypt each other in a circle: {names}")
        raise FormatError(
            f"key encryption key {shown(by)} is encrypted by another entry ({shown(above)}), not by a master key"
        )
    if above is None:
        raise FormatError(f"key encryption key {shown(by)} has no encrypted-by-id: nothing names its master key")
    if kek.timestamp is None:
        raise FormatError(
            f"key encryption key {shown(by)} has no {KEY_TIMESTAMP} property, whose text authenticates the "
            f"entries below it, such as {shown(entry.key_id)}"
        )
    return kek


def newest_usable(keks: Iterable[EncryptedKey], now_ms: int) -> EncryptedKey | None:
    """The key encryption key for new entries: the newest that has not expired and is not from the future."""
    made = [(milliseconds(kek.properties.get(KEY_TIMESTAMP)), kek) for kek in keks]
    young = [
        (when, kek) for when, kek in made if when is not None and -MAX_CLOCK_SKEW_MS <= now_ms - when < KEK_LIFESPAN_MS
    ]
    return max(young, key=lambda each: each[0])[1] if young else None


def milliseconds(timestamp: str | None) -> int | None:
    """A timestamp as Java's ``Long.parseLong`` reads it; None where it could not, or nobody would write it so."""
    if timestamp is None or len(timestamp) > 20:
        return None
    digits = timestamp[1:] if timestamp[:1] in ("+", "-") else timestamp
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(timestamp)
    return number if -(1 << 63) <= number < 1 << 63 else None


def open_entry(entry: EncryptedKey, kek_entry: EncryptedKey, kek: Key) -> KeyMetadata:
    """Open the key metadata of an entry; AuthenticationError if it does not open, FormatError if it is none."""
    wrapped = entry.encrypted_key_metadata
    if len(wrapped) < OVERHEAD:
        raise TruncatedError(
            f"entry {shown(entry.key_id)} has {len(wrapped)} bytes, fewer than the {OVERHEAD} of a nonce and a tag"
        )
    kind: type[Ags1Error]
    try:
        found = _decoded(_open(entry, kek_entry, kek))
    except FormatError as error:
        kind, message = type(error), f"entry {shown(entry.key_id)}: {error}"
    else:
        if found is not None:
            return found
        kind, message = (
            AuthenticationError,
            (
                f"entry {shown(entry.key_id)} does not open under key encryption key {shown(kek_entry.key_id)}: "
                "wrong or rotated key, changed timestamp, or damaged entry"
            ),
        )
    # Raised here, outside the frames that hold the decrypted bytes.
    raise kind(message)


def _decoded(plain: bytes | None) -> KeyMetadata | None:
    return None if plain is None else KeyMetadata.decode(plain)


def _open(entry: EncryptedKey, kek_entry: EncryptedKey, kek: Key) -> bytes | None:
    wrapped = memoryview(entry.encrypted_key_metadata)
    if len(wrapped) < OVERHEAD:
        return None
    aad = (kek_entry.timestamp or "").encode("utf-8")
    return open_message(wrapped[NONCE_LENGTH:], kek, wrapped[:NONCE_LENGTH], aad)


def seal_entry(key_metadata: KeyMetadata, kek_entry: EncryptedKey, kek: Key) -> bytes:
    """Seal key metadata under a key encryption key, bound to its timestamp: nonce, ciphertext, tag."""
    nonce = random_bytes(NONCE_LENGTH)
    aad = (kek_entry.timestamp or "").encode("utf-8")
    return nonce + seal_message(key_metadata.encode(), kek, nonce, aad)


def opening(kek_entry: EncryptedKey, kek: Key, entries: Iterable[EncryptedKey]) -> Iterator[tuple[str, bool]]:
    """Id of each of the entries below a key encryption key, and whether it opens.

    There is nothing to say where the timestamp is missing.
    """
    if kek_entry.timestamp is not None:
        for entry in entries:
            yield entry.key_id, _open(entry, kek_entry, kek) is not None


def closure(entries: Mapping[str, EncryptedKey], key_ids: Iterable[str]) -> set[str]:
    """Return these entries and all entries that they are encrypted by; ids without an entry are left out."""
    found: set[str] = set()
    waiting = list(key_ids)
    while waiting:
        entry = entries.get(waiting.pop())
        if entry is not None and entry.key_id not in found:
            found.add(entry.key_id)
            if entry.encrypted_by_id is not None:
                waiting.append(entry.encrypted_by_id)
    return found


def has_unknown_properties(entry: EncryptedKey) -> bool:
    """Return whether an entry has unknown fields or properties, so that an unknown feature may use it."""
    foreign = entry.properties.keys() - {KEY_TIMESTAMP, MAILED_KEY_TIMESTAMP}
    return entry.encrypted_by_id is None or bool(entry.unknown) or bool(foreign)


def check_kms(kms: Any, name: str = "kms") -> None:
    """Refuse an object that is not a KMS client, before the first request."""
    if not has_methods(kms):
        raise TypeError(f"{name} must have wrap_key and unwrap_key, as ags1.kms clients do; got {type(kms).__name__}")


def kept_kek(kms: Any, entry: EncryptedKey) -> Key:
    """Unwrap a key encryption key by the KMS; a key in the client's cache needs no call.

    A KeyAccessError reports that the service refused, failed, or did not return a key.
    """
    wrapped, master = entry.encrypted_key_metadata, entry.encrypted_by_id or ""

    def unwrap() -> Key:
        who = f"key encryption key {shown(entry.key_id)} under master key {shown(master)}"
        return ask(lambda: returned_key(kms.unwrap_key(wrapped, master)), f"{name_of(kms)} did not unwrap {who}")

    return key_cache_of(kms).get(name_of_key(master, wrapped), unwrap)


def wrap_kek(kms: Any, kek: Key, table_key_id: str, key_id: str) -> bytes:
    """Wrap a key encryption key by the KMS; raises as :func:`ags1.kms.asking.wrap_key`."""
    who = f"key encryption key {shown(key_id)} under master key {shown(table_key_id)}"
    wrapped: bytes = wrap_key(kms, kek, table_key_id, who)
    return wrapped


def make_kek(kms: Any, table_key_id: str, key_id: str, length: int) -> tuple[Key, bytes]:
    """Make and wrap a key encryption key: in the KMS if it can, with a length that the KMS chooses; else here."""
    made = generate_key(kms, table_key_id, f"a key encryption key under master key {shown(table_key_id)}")
    if made is not None:
        return made
    kek = Key.generate(8 * length)
    return kek, wrap_kek(kms, kek, table_key_id, key_id)
