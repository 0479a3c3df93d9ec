"""The key metadata vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.conformance.cases import KEY_16, KEY_24, KEY_32, PREFIX_16, PREFIX_200
from tests.reference import KeyMetadata, encode_key_metadata, encode_varint

PREFIX_A = bytes(range(0xA0, 0xB0))


@dataclass(frozen=True)
class MetadataCase:
    """One encoded key metadata; ``fields`` is None where decoding must fail."""

    name: str
    comment: str
    encoded: bytes
    expect: str
    java: str
    fields: KeyMetadata | None = None


def good() -> Iterator[MetadataCase]:
    """What writers make."""
    written = {
        "prefix-no-length": (
            "what a table writer makes before the file is closed",
            KeyMetadata(KEY_16, PREFIX_16),
        ),
        "no-prefix": ("neither a prefix nor a length", KeyMetadata(KEY_16)),
        "key24": ("a 24-byte key", KeyMetadata(KEY_24, PREFIX_A, 1048620)),
        "key32-empty-file": (
            "a 32-byte key and the length of an empty stream",
            KeyMetadata(KEY_32, PREFIX_16, 36),
        ),
        "long-file": ("a length of more than 32 bits", KeyMetadata(KEY_16, None, (1 << 40) + 7)),
        "empty-prefix": ("an empty prefix is not an absent one", KeyMetadata(KEY_16, b"", 100000)),
        "prefix200": ("a length prefix of two bytes", KeyMetadata(KEY_16, PREFIX_200, 1048612)),
        "length-0": ("the smallest length that the field can hold", KeyMetadata(KEY_16, PREFIX_16, 0)),
        "length-max": (
            "the largest length that the field can hold",
            KeyMetadata(KEY_16, PREFIX_16, (1 << 63) - 1),
        ),
    }
    for name, (comment, fields) in written.items():
        yield MetadataCase(name, comment, encode_key_metadata(fields), "success", "accepts", fields)


def two_fields() -> Iterator[MetadataCase]:
    """What Iceberg up to 1.10 writes, and later releases refuse."""
    for name, key, prefix in (
        ("two-fields", KEY_16, PREFIX_16),
        ("two-fields-key32", KEY_32, PREFIX_16),
        ("two-fields-no-prefix", KEY_16, None),
    ):
        fields = KeyMetadata(key, prefix)
        encoded = encode_key_metadata(fields, fields=2)
        comment = "the form of Iceberg up to 1.10: it ends after the prefix"
        yield MetadataCase(name, comment, encoded, "success", "refuses UncheckedIOException", fields)


def tolerated() -> Iterator[MetadataCase]:
    """What no writer makes and Avro allows."""
    fields = KeyMetadata(KEY_16, PREFIX_16, 36)
    encoded = encode_key_metadata(fields)
    yield MetadataCase(
        "trailing-bytes",
        "bytes after the last field are ignored",
        encoded + b"\x00later",
        "success",
        "accepts",
        fields,
    )
    yield MetadataCase(
        "padded-varint",
        "an integer may have more bytes than it needs: a key length of 16 in two",
        b"\x01\xa0\x00" + encoded[2:],
        "success",
        "accepts",
        fields,
    )


def bad() -> Iterator[MetadataCase]:
    """What a decoder refuses."""
    encoded = encode_key_metadata(KeyMetadata(KEY_16, PREFIX_16))
    key_part = b"\x01\x20" + KEY_16
    both_parts = key_part + b"\x02\x20" + PREFIX_16
    eleven = b"\x80" * 10 + b"\x01"
    end, io, avro = "refuses RuntimeException", "refuses UncheckedIOException", "refuses AvroRuntimeException"
    bounds, unsupported = "refuses ArrayIndexOutOfBoundsException", "refuses UnsupportedOperationException"
    yield MetadataCase("empty", "no bytes at all", b"", "truncated", end)
    for version, java in ((0, unsupported), (2, unsupported), (0x7F, unsupported), (0x80, end), (0xFF, end)):
        comment = f"an unknown version byte, {version:#04x}"
        changed = bytes([version]) + encoded[1:]
        yield MetadataCase(f"version-{version:02x}", comment, changed, "unknown-version", java)
    for length in (0, 8, 15, 17, 33, 64):
        comment = f"a key of {length} bytes; Java notices when the key is used"
        wrong = encode_key_metadata(KeyMetadata(bytes(length), PREFIX_16))
        yield MetadataCase(f"key-length-{length}", comment, wrong, "bad-key-length", "accepts")
    malformed = {
        "key-length-negative": (
            b"\x01" + encode_varint(-1) + KEY_16 + b"\x00\x00",
            "a key length of -1",
            avro,
        ),
        "prefix-length-negative": (
            key_part + b"\x02\x01" + PREFIX_16 + b"\x00",
            "a prefix length of -1",
            avro,
        ),
        "file-length-negative": (both_parts + b"\x02\x01", "a file length of -1", "accepts"),
        "prefix-branch-2": (
            key_part + b"\x04\x20" + PREFIX_16 + b"\x00",
            "branch 2 of a union of two",
            bounds,
        ),
        "prefix-branch-negative": (
            key_part + b"\x01\x20" + PREFIX_16 + b"\x00",
            "branch -1 of a union",
            bounds,
        ),
        "length-branch-2": (both_parts + b"\x04\x48", "branch 2 of a union of two", bounds),
        "length-branch-negative": (both_parts + b"\x01\x48", "branch -1 of a union", bounds),
        "varint-eleven-bytes": (both_parts + b"\x02" + eleven, "an integer of eleven bytes", io),
        "varint-eleven-bytes-key": (b"\x01" + eleven + KEY_16 + b"\x00\x00", "a length of eleven bytes", io),
        "varint-over-64-bits": (
            both_parts + b"\x02" + b"\xff" * 9 + b"\x7f",
            "an integer over 64 bits",
            "accepts",
        ),
    }
    for name, (wrong, comment, java) in malformed.items():
        yield MetadataCase(name, comment, wrong, "malformed", java)
    for name, length in (("2-31", 1 << 31), ("2-62", 1 << 62)):
        wrong = key_part + b"\x02" + encode_varint(length) + PREFIX_16 + b"\x00"
        comment = f"a prefix length of {length}: nothing may be allocated for it"
        yield MetadataCase(f"prefix-length-{name}", comment, wrong, "truncated", unsupported)
    yield MetadataCase(
        "varint-unfinished",
        "an integer whose last byte says that more follow",
        both_parts + b"\x02\xd8",
        "truncated",
        io,
    )


def cuts() -> Iterator[MetadataCase]:
    """A three-field form, cut after every byte: one of the cuts is the two-field form."""
    fields = KeyMetadata(KEY_24, PREFIX_A, 1048620)
    encoded = encode_key_metadata(fields)
    two_field_end = len(encode_key_metadata(fields, fields=2))
    for end in range(1, len(encoded)):
        cut = encoded[:end]
        java = "refuses UncheckedIOException"
        if end == two_field_end:
            whole = KeyMetadata(fields.encryption_key, fields.aad_prefix)
            comment = "cut after the prefix, which makes it the two-field form"
            yield MetadataCase(f"cut-{end:02}", comment, cut, "success", java, whole)
        else:
            yield MetadataCase(f"cut-{end:02}", f"cut after {end} of {len(encoded)} bytes", cut, "truncated", java)


def cases() -> Iterator[MetadataCase]:
    """Return all key metadata vectors."""
    yield from good()
    yield from two_fields()
    yield from tolerated()
    yield from bad()
    yield from cuts()
