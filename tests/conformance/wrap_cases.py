"""The vectors of wrapped keys: a key encryption key under a master key, and key metadata under the former."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests import reference
from tests.conformance.cases import KEY_16, KEY_24, KEY_32, PREFIX_16
from tests.reference import KeyMetadata, encode_key_metadata

__all__ = ["WrapCase", "cases", "opened"]

MASTER = bytes(range(0x40, 0x50))
TIMESTAMP = "1781172301703"
NONCE = bytes(range(0xC0, 0xCC))
KEK_NONCE = bytes(range(0xD0, 0xDC))


def seal(plain: bytes, key: bytes, nonce: bytes, aad: bytes | None) -> bytes:
    """Nonce, ciphertext, tag."""
    return nonce + AESGCM(key).encrypt(nonce, plain, aad)


@dataclass(frozen=True)
class WrapCase:
    """Two entries of ``encryption-keys``; ``metadata`` is the encoded key metadata, None where opening must fail."""

    name: str
    comment: str
    kek: bytes
    wrapped_kek: bytes
    entry: bytes
    expect: str = "success"
    java: str = "accepts"
    metadata: bytes | None = None
    master: bytes = MASTER
    timestamp: str | None = field(default=TIMESTAMP)


def good(
    name: str, comment: str, kek: bytes, metadata: bytes, timestamp: str = TIMESTAMP, nonce: bytes = NONCE
) -> WrapCase:
    """What a writer makes."""
    wrapped = seal(kek, MASTER, KEK_NONCE, None)
    return WrapCase(
        name, comment, kek, wrapped, seal(metadata, kek, nonce, timestamp.encode()), metadata=metadata,
        timestamp=timestamp,
    )  # fmt: skip


def cases() -> Iterator[WrapCase]:
    """Every vector."""
    fields = KeyMetadata(KEY_16, PREFIX_16, 4242)
    three, two = encode_key_metadata(fields), encode_key_metadata(KeyMetadata(KEY_16, PREFIX_16), fields=2)
    base = good("three-fields", "key metadata with a length, as Iceberg writes it since 1.11", KEY_16, three)
    yield base
    yield good("two-fields", "key metadata of two fields, as Iceberg up to 1.10 writes it", KEY_16, two)
    yield good("kek-24", "a key encryption key of 24 bytes", KEY_24, three)
    yield good("kek-32", "a key encryption key and a data key of 32 bytes", KEY_32, encode_key_metadata(
        KeyMetadata(KEY_32, PREFIX_16, 36)
    ))  # fmt: skip
    yield good("no-prefix", "key metadata without a prefix", KEY_16, encode_key_metadata(KeyMetadata(KEY_16)))
    yield good(
        "timestamp-leading-zero", "the AAD is the timestamp's text, not its number", KEY_16, three, "01781172301703"
    )
    yield good("timestamp-negative", "any text may stand there", KEY_16, three, "-1")
    yield good("timestamp-not-ascii", "the AAD is the text in UTF-8", KEY_16, three, "h\u00e9llo")

    yield _bad(base, "timestamp-changed", "the last digit of the timestamp is another", timestamp="1781172301704")
    yield _bad(base, "timestamp-other-spelling", "the same number, spelled otherwise", timestamp="01781172301703")
    yield _bad(base, "timestamp-with-space", "a space behind the timestamp", timestamp=f"{TIMESTAMP} ")
    yield _bad(base, "sealed-without-aad", "sealed without the timestamp", entry=seal(three, KEY_16, NONCE, None))
    yield _bad(
        base, "sealed-with-binary-aad", "the timestamp as 8 bytes, big-endian",
        entry=seal(three, KEY_16, NONCE, int(TIMESTAMP).to_bytes(8, "big")),
    )  # fmt: skip
    yield _bad(
        base,
        "sealed-by-the-master-key",
        "sealed by the master key",
        entry=seal(three, MASTER, NONCE, TIMESTAMP.encode()),
    )
    yield _bad(
        base,
        "another-kek",
        "the key encryption key is another",
        wrapped_kek=seal(KEY_32, MASTER, KEK_NONCE, None),
        kek=KEY_32,
    )
    for name, at in (("nonce", 0), ("ciphertext", 12), ("tag", len(base.entry) - 1)):
        changed = bytearray(base.entry)
        changed[at] ^= 1
        yield _bad(base, f"{name}-changed", f"one bit of the {name} is another", entry=bytes(changed))
    yield _bad(base, "entry-cut", "the last byte is missing", entry=base.entry[:-1])
    yield _bad(base, "entry-extended", "a byte more at the end", entry=base.entry + b"\0")
    yield replace(
        _bad(base, "entry-of-27-bytes", "shorter than a nonce and a tag", entry=base.entry[:27]),
        expect="truncated", java="refuses NegativeArraySizeException",
    )  # fmt: skip
    damaged = bytearray(base.wrapped_kek)
    damaged[-1] ^= 1
    yield replace(
        _bad(base, "wrapped-kek-changed", "one bit of the wrapped key encryption key is another"),
        wrapped_kek=bytes(damaged), expect="key-access",
    )  # fmt: skip
    yield replace(
        _bad(base, "another-master-key", "the master key is another"), master=KEY_32[16:], expect="key-access"
    )
    for name, comment, plain, expect in (
        ("metadata-version-2", "what was sealed is of an unknown version", b"\x02" + three[1:], "malformed"),
        ("metadata-cut", "what was sealed ends inside the prefix", three[:30], "truncated"),
        ("metadata-empty", "nothing was sealed", b"", "truncated"),
    ):  # fmt: skip
        # Java hands the bytes on, and refuses them when they are decoded.
        yield replace(
            good(name, comment, KEY_16, plain), expect=expect, java=f"returns {plain.hex() or 'empty'}", metadata=None
        )


def _bad(base: WrapCase, name: str, comment: str, **changes: object) -> WrapCase:
    made = replace(
        base, name=name, comment=comment, metadata=None, expect="authentication", java="refuses RuntimeException"
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def opened(case: WrapCase) -> tuple[str, bytes | None]:
    """What a strict reader makes of the entries, by the `cryptography` package alone."""
    wrapped, entry = case.wrapped_kek, case.entry
    try:
        kek = AESGCM(case.master).decrypt(wrapped[:12], wrapped[12:], None)
    except InvalidTag:
        return "key-access", None
    if kek != case.kek:
        raise ValueError(f"{case.name}: the wrapped key encryption key is not the one that it says")
    if len(entry) < 28:
        return "truncated", None
    try:
        plain = AESGCM(kek).decrypt(entry[:12], entry[12:], (case.timestamp or "").encode())
    except InvalidTag:
        return "authentication", None
    try:
        reference.decode_key_metadata(plain)
    except reference.ReferenceFailure as failure:
        return {"unknown-version": "malformed"}.get(failure.outcome, failure.outcome), None
    return "success", plain
