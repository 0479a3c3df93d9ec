"""The links between entries of ``encryption-keys``, and what wraps an entry: another one, by AES-GCM, or a KMS.

    entry below a key encryption key:  nonce (12) || ciphertext || tag (16)
    AAD:                               UTF-8 of the key encryption key's timestamp, exactly as it is stored

Any object with ``wrap_key(key, wrapping_key_id)`` and ``unwrap_key(wrapped, wrapping_key_id)`` is a KMS here: the
clients of :mod:`ags1.kms`, PyIceberg's, or your own. An unwrapped key stays in the cache of its client.

Sources: Iceberg table spec, "Encryption Keys"; Iceberg Java's EncryptionUtil and StandardEncryptionManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ags1.core.gcm import open_message, random_bytes, seal_message
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError, TruncatedError
from ags1.iceberg.keys.entries import KEY_TIMESTAMP, MAILED_KEY_TIMESTAMP, EncryptedKey, shown
from ags1.keys import Key, KeyMetadata
from ags1.kms import key_cache_of, name_of_key
from ags1.kms.asking import ask, generate_key, has_methods, name_of, returned_key, wrap_key

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
