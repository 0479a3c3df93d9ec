"""The stream vectors: good streams, streams that are not AGS1, and attacks."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterator

from tests import reference
from tests.conformance import attack_cases
from tests.conformance.cases import KEY_16, KEY_24, KEY_32, MIB, PREFIX_16, PREFIX_200, STATE, Base, Case, literal
from tests.conformance.loader import pattern

KEYS = {"key16": KEY_16, "key24": KEY_24, "key32": KEY_32}
PREFIXES = {"no-prefix": None, "empty-prefix": b"", "prefix16": PREFIX_16, "prefix200": PREFIX_200}


def whole(name: str, comment: str, base: Base, length: bool = False) -> Case:
    """Return a good vector: all of a base stream, written out if it is short."""
    size = len(base.stream())
    case = Case(
        name,
        comment,
        ((0, size),),
        key=base.key,
        aad_prefix=base.aad_prefix,
        length=size if length else None,
        plaintext=pattern(base.size),
        base=base,
    )
    return case if size > 8192 else literal(case)


def sealed(plaintext: bytes, aad_prefix: bytes | None = PREFIX_16) -> bytes:
    """Return a stream of any plaintext with the common key and the counter nonces."""
    return reference.encrypt(plaintext, KEY_16, aad_prefix or b"", MIB, reference.counter_nonce)


def plain_texts() -> Iterator[Case]:
    """Streams to compare by eye: readable plaintexts and the plain sizes around one block."""
    stream = sealed(b"")
    yield Case("text-empty", "the empty plaintext is one empty block", (stream,), plaintext=b"")
    yield Case(
        "text-iceberg",
        "the ASCII text iceberg without an AAD prefix",
        (sealed(b"iceberg", None),),
        aad_prefix=None,
        plaintext=b"iceberg",
    )
    yield Case(
        "text-hello",
        "the ASCII text hello AGS1 with a 16-byte AAD prefix",
        (sealed(b"hello AGS1"),),
        plaintext=b"hello AGS1",
    )
    for name, size in (("block", MIB), ("block-plus-1", MIB + 1), ("2-blocks", 2 * MIB)):
        yield whole(f"mib-{name}", f"{size} bytes in blocks of 1 MiB", Base(size=size))


def sizes() -> Iterator[Case]:
    """Sizes around the block length, for several block lengths and keys."""
    for size in (0, 1, 33, MIB - 1):
        base = Base(KEY_24, PREFIX_16, MIB, size)
        yield whole(f"mib-size-{size}", f"{size} bytes, less than one block", base, length=True)
    yield whole("mib-3-blocks-17", "three full blocks and 17 bytes", Base(KEY_32, PREFIX_200, MIB, 3 * MIB + 17))
    for block_length in (16, 64, 1024):
        around = [
            0,
            1,
            block_length - 1,
            block_length,
            block_length + 1,
            2 * block_length,
            3 * block_length + 7,
        ]
        for size in around:
            base = Base(KEY_32, PREFIX_16, block_length, size)
            comment = f"{size} bytes in blocks of {block_length}"
            yield whole(f"b{block_length}-size-{size}", comment, base, length=size % 2 == 0)
    yield whole(
        "b1024-three-blocks-last-553",
        "two full blocks of 1024 and a last one of 553 bytes, the example of the format's discussion",
        Base(KEY_16, PREFIX_16, 1024, 2 * 1024 + 553),
    )
    yield whole("b1-size-5", "the smallest block length: five blocks of one byte", Base(block_length=1, size=5))
    yield whole("b17-size-50", "a block length that is no multiple of 16", Base(block_length=17, size=50))
    yield whole(
        "b1000-size-300000",
        "300 blocks: the block index needs more than one byte, lowest byte first",
        Base(block_length=1000, size=300_000),
    )
    yield whole("b3mib-size-4mib", "blocks larger than 1 MiB", Base(block_length=3 * MIB, size=4 * MIB))


def keys_and_prefixes() -> Iterator[Case]:
    """Every key length with every kind of AAD prefix."""
    for key_name, key in KEYS.items():
        for prefix_name, prefix in PREFIXES.items():
            comment = "no and an empty AAD prefix give the same bytes" if not prefix else "100 bytes in one block"
            yield whole(f"{key_name}-{prefix_name}", comment, Base(key, prefix, MIB, 100))
            small = Base(key, prefix, 64, 65)
            yield whole(f"b64-{key_name}-{prefix_name}", "one full block and one byte", small)


def headers() -> Iterator[Case]:
    """Block lengths that the header may and may not hold."""
    for name, block_length in (("0", 0), ("2147483648", 1 << 31), ("4294967295", (1 << 32) - 1)):
        stream = reference.MAGIC + struct.pack("<I", block_length) + sealed(b"block length")[8:]
        comment = f"a block length of {block_length} is out of range"
        yield Case(f"header-block-length-{name}", comment, (stream,), "bad-block-length")
    largest = reference.MAX_BLOCK_LENGTH
    yield Case(
        "header-block-length-2147483647",
        "the largest block length: do not allocate a whole block before looking at the stream's length",
        (reference.MAGIC + struct.pack("<I", largest) + sealed(pattern(40))[8:],),
        plaintext=pattern(40),
    )
    yield Case(
        "header-block-length-changed-one-block",
        "nothing authenticates the header: another block length goes unseen while the only block is shorter",
        (reference.MAGIC + struct.pack("<I", MIB ^ 1) + sealed(pattern(40))[8:],),
        plaintext=pattern(40),
    )
    for name, block_length in (("65", 65), ("63", 63), ("128", 128)):
        stream = Base(block_length=64, size=145).stream()
        changed = reference.MAGIC + struct.pack("<I", block_length) + stream[8:]
        comment = f"the block length changed from 64 to {block_length}: the blocks no longer fit"
        yield Case(f"header-block-length-64-to-{name}", comment, (changed,), "authentication")


def foreign_bytes() -> Iterator[Case]:
    """Files of other formats, and streams that end before their first block does."""
    compressed = gzip.compress(b"not encrypted " * 9, mtime=0)
    # The operating system byte of the gzip header differs between Python versions.
    compressed = compressed[:9] + b"\xff" + compressed[10:]
    foreign = {
        "parquet": b"PAR1" + pattern(100) + struct.pack("<I", 60) + b"PAR1",
        "parquet-encrypted-footer": b"PARE" + pattern(100) + struct.pack("<I", 60) + b"PARE",
        "avro": b"Obj\x01" + pattern(100),
        "puffin": b"PFA1" + pattern(100),
        "gzip": compressed,
        "json": b'{"format-version": 3, "table-uuid": "00000000-0000-0000-0000-000000000000"}',
        "zeros": bytes(100),
        "lower-case-magic": b"ags1" + sealed(pattern(40))[4:],
        "next-version": b"AGS2" + sealed(pattern(40))[4:],
        "reversed-magic": b"1SGA" + sealed(pattern(40))[4:],
        "leading-byte": b"\x00" + sealed(pattern(40)),
        "without-header": sealed(pattern(40))[8:],
        "short-text": b"hello",
    }
    for name, stream in foreign.items():
        yield Case(f"foreign-{name}", "the first four bytes are not AGS1", (stream,), "not-ags1")
    stream = sealed(b"")
    for size in (0, 1, 4, 7, 8, 9, 20, 35):
        comment = f"{size} bytes: shorter than the 36 of an empty stream, and no sign of another format"
        yield Case(f"short-{size}", comment, (stream[:size],) if size else (), "truncated", java=STATE)


def writers() -> Iterator[Case]:
    """Nonces of any kind are good; a wrong AAD is not."""

    def hashed(index: int) -> bytes:
        return hashlib.sha256(f"ags1 nonce {index}".encode()).digest()[:12]

    for name, block_length, size in (("", 64, 200), ("mib-", MIB, 200)):
        stream = reference.encrypt(pattern(size), KEY_32, PREFIX_16, block_length, hashed)
        yield Case(
            f"{name}nonces-arbitrary",
            "a reader takes each nonce from the stream and expects no structure in it",
            (stream,),
            key=KEY_32,
            plaintext=pattern(size),
        )
    wrong = {
        "index-from-1": lambda i: PREFIX_16 + struct.pack("<i", i + 1),
        "index-big-endian": lambda i: PREFIX_16 + struct.pack(">i", i),
        "index-64-bit": lambda i: PREFIX_16 + struct.pack("<q", i),
        "index-before-prefix": lambda i: struct.pack("<i", i) + PREFIX_16,
        "without-index": lambda i: PREFIX_16,
        "without-prefix": lambda i: struct.pack("<i", i),
    }
    for name, aad in wrong.items():
        stream = attack_cases.with_aad(pattern(100), 64, aad)
        comment = "written with a wrong AAD: " + name.replace("-", " ")
        yield Case(f"wrong-aad-{name}", comment, (stream,), "authentication")
    for name in ("index-from-1", "without-index", "without-prefix"):
        stream = attack_cases.with_aad(pattern(100), MIB, wrong[name])
        comment = "written with a wrong AAD: " + name.replace("-", " ")
        yield Case(f"mib-wrong-aad-{name}", comment, (stream,), "authentication")


def cases() -> Iterator[Case]:
    """Return all stream vectors."""
    yield from plain_texts()
    yield from sizes()
    yield from keys_and_prefixes()
    yield from headers()
    yield from foreign_bytes()
    yield from writers()
    yield from attack_cases.cases()
