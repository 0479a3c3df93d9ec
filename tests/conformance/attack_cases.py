"""Attacks on good streams: changed, moved, missing and added bytes, wrong keys and prefixes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests import reference
from tests.conformance.cases import KEY_16, KEY_32, MIB, PREFIX_16, Base, Case, Part, flip, literal
from tests.conformance.loader import pattern

NEED_LENGTH = "; only a trusted length can tell"


def with_aad(plaintext: bytes, block_length: int, aad: Callable[[int], bytes]) -> bytes:
    """Return a stream whose blocks have any AAD."""
    stream = reference.encrypt(b"", KEY_16, b"", block_length)[:8]
    for index, start in enumerate(range(0, len(plaintext), block_length)):
        nonce = reference.counter_nonce(index)
        block = plaintext[start : start + block_length]
        stream += nonce + AESGCM(KEY_16).encrypt(nonce, block, aad(index))
    return stream


def java_returns(plaintext: bytes) -> str:
    """Render that Java returns bytes where a strict reader returns none."""
    return f"returns {len(plaintext)} {hashlib.sha256(plaintext).hexdigest()}"


class Attacks:
    """The attacks on one stream of two full blocks and a last one of 17 bytes.

    Parameters
    ----------
    label
        What the vectors' names begin with.
    block_length
        1 MiB for vectors that Iceberg Java can judge, less for vectors short enough to be written out.
    """

    def __init__(self, label: str, block_length: int) -> None:
        self.label = label
        self.base = Base(block_length=block_length, size=2 * block_length + 17)
        self.java = block_length == MIB
        self.total = len(self.base.stream())

    def case(self, name: str, comment: str, parts: tuple[Part, ...], expect: str, **more: object) -> Case:
        """Return a case on this stream, written out where the stream is short."""
        case = Case(f"{self.label}-{name}", comment, parts, expect, **{"base": self.base, **more})
        if not self.java:
            # What Java would do with 1 MiB blocks says nothing here.
            return literal(replace(case, java=""))
        return case

    def blocks(self, *indices: int) -> tuple[Part, ...]:
        """Return the header and the named blocks."""
        return ((0, 8), *(self.base.block(index) for index in indices))

    def flips(self) -> Iterator[Case]:
        """One bit changed in every region."""
        names = ("first", "middle", "last")
        for index, name in enumerate(names):
            start, size = self.base.block(index)
            regions = {"nonce": start, "ciphertext": start + 12 + (size - 28) // 2, "tag": start + size - 1}
            for region, offset in regions.items():
                comment = f"one bit changed in the {region} of the {name} block"
                yield self.case(f"flip-{region}-{name}", comment, flip(self.base, offset), "authentication")
        for offset in (0, 3):
            comment = f"one bit changed in byte {offset} of the magic"
            yield self.case(f"flip-magic-{offset}", comment, flip(self.base, offset), "not-ags1")
        comment = "one bit changed in the block length: the first block no longer ends where it did"
        yield self.case("flip-block-length", comment, flip(self.base, 4), "authentication")

    def moves(self) -> Iterator[Case]:
        """Authentic blocks in wrong places."""
        bad = "authentication"
        yield self.case("swapped-blocks", "the first two blocks changed places", self.blocks(1, 0, 2), bad)
        yield self.case("repeated-block", "the first block stands in the second place too", self.blocks(0, 0, 2), bad)
        yield self.case("inserted-block", "the first block comes twice", self.blocks(0, 0, 1, 2), bad)
        yield self.case("missing-first-block", "the first block is gone", self.blocks(1, 2), bad)
        yield self.case("missing-middle-block", "the second block is gone", self.blocks(0, 2), bad)
        yield self.case(
            "missing-middle-block-with-length",
            "the second block is gone, and the trusted length shows it",
            self.blocks(0, 2),
            "truncated",
            length=self.total,
        )
        other = replace(self.base, aad_prefix=b"another file 001")
        start, size = self.base.block(1)
        foreign = other.stream()[start : start + size]
        comment = "the second block comes from another file with the same key and another AAD prefix"
        if self.java:
            # The foreign stream is the base, so that only the short last block needs hexadecimal digits.
            tail = self.base.stream()[start + size :]
            parts: tuple[Part, ...] = ((0, start), (start, size), tail)
            yield self.case(
                "block-of-another-file",
                "the last block comes from another file with the same key and another AAD prefix",
                parts,
                bad,
                base=other,
                aad_prefix=other.aad_prefix,
            )
        else:
            yield self.case("block-of-another-file", comment, ((0, start), foreign, self.base.block(2)), bad)

    def cuts(self) -> Iterator[Case]:
        """Streams that lost their end."""
        block_length, stride, total = self.base.block_length, self.base.stride, self.total
        for blocks in (1, 2):
            end = 8 + blocks * stride
            plaintext = pattern(blocks * block_length)
            yield self.case(
                f"cut-after-{blocks}-blocks",
                "the end is gone at a block's end, and what is left is a good stream" + NEED_LENGTH,
                ((0, end),),
                "success",
                plaintext=plaintext,
            )
            yield self.case(
                f"cut-after-{blocks}-blocks-with-length",
                "the end is gone at a block's end, and the trusted length shows it",
                ((0, end),),
                "truncated",
                length=total,
            )
        inside = {
            "inside-last-block": total - 1,
            "inside-first-block": 8 + 28 + block_length // 2,
            "inside-second-block": 8 + stride + 28 + block_length // 2,
        }
        for name, end in inside.items():
            comment = "cut inside a block: what is left of it has no good tag"
            yield self.case(f"cut-{name}", comment, ((0, end),), "authentication")
            comment = "cut inside a block, and the trusted length shows it"
            yield self.case(f"cut-{name}-with-length", comment, ((0, end),), "truncated", length=total)
        yield self.case(
            "cut-28-bytes-into-block",
            "28 bytes are left of the third block, which then looks like an empty one",
            ((0, 8 + 2 * stride + 28),),
            "trailing-block",
            java=java_returns(pattern(2 * block_length)),
        )

    def tails(self) -> Iterator[Case]:
        """Remainders that are too short for a nonce and a tag.

        Java subtracts a whole block overhead for such a tail too, so that its ``getLength`` and its ``seek``
        end 1 to 27 bytes early, while reading on returns all of the full blocks.
        """
        block_length, stride = self.base.block_length, self.base.stride
        for size in (1, 12, 16, 27) if self.java else range(1, 28):
            yield self.case(
                f"tail-{size:02}",
                f"{size} bytes are left of the third block: too few for a nonce and a tag",
                ((0, 8 + 2 * stride + size),),
                "truncated",
                java=java_returns(pattern(2 * block_length)),
            )

    def additions(self) -> Iterator[Case]:
        """Streams that are longer than they were written."""
        stride, block_length, total = self.base.stride, self.base.block_length, self.total
        two = 8 + 2 * stride
        empty = reference.seal_block(b"", KEY_16, PREFIX_16, 2, reference.counter_nonce(2))
        full = java_returns(pattern(2 * block_length))
        yield self.case(
            "trailing-empty-block",
            "an authentic empty block after the last full one; no writer makes it",
            ((0, two), empty),
            "trailing-block",
            java=full,
        )
        yield self.case(
            "trailing-garbage-block",
            "28 bytes of nothing after the last full block",
            ((0, two), bytes(28)),
            "trailing-block",
            java=full,
        )
        yield self.case(
            "extended-by-a-block",
            "a good stream that is longer than its trusted length, such as a later version of the file",
            ((0, total),),
            "extended",
            length=two,
            java=full,
        )
        yield self.case(
            "extended-by-a-byte",
            "one byte after the end that the trusted length names",
            ((0, total), b"\x00"),
            "extended",
            length=total,
            java=java_returns(pattern(self.base.size)),
        )
        yield self.case(
            "appended-byte",
            "one byte after the last block, and no trusted length: the last block has no good tag",
            ((0, total), b"\x00"),
            "authentication",
        )

    def keys(self) -> Iterator[Case]:
        """Good streams, given the wrong key or prefix."""
        everything = ((0, self.total),)
        near = bytes([KEY_16[0] ^ 1]) + KEY_16[1:]
        wrong: dict[str, tuple[str, dict[str, object]]] = {
            "wrong-key": ("a key that differs in one bit", {"key": near}),
            "wrong-key-length": ("a longer key", {"key": KEY_32}),
            "wrong-prefix": ("another AAD prefix", {"aad_prefix": b"1234567890123457"}),
            "missing-prefix": ("no AAD prefix, and the stream was written with one", {"aad_prefix": None}),
            "cut-prefix": ("an AAD prefix that lost its last byte", {"aad_prefix": PREFIX_16[:-1]}),
            "longer-prefix": ("an AAD prefix with a zero byte more", {"aad_prefix": PREFIX_16 + b"\x00"}),
        }
        for name, (comment, given) in wrong.items():
            yield self.case(name, comment, everything, "authentication", **given)
        yield self.case(
            "good-with-length",
            "the unchanged stream with its trusted length",
            everything,
            "success",
            length=self.total,
            plaintext=pattern(self.base.size),
        )

    def all(self) -> Iterator[Case]:
        """Return every attack on this stream."""
        yield from self.flips()
        yield from self.moves()
        yield from self.cuts()
        yield from self.tails()
        yield from self.additions()
        yield from self.keys()


def single_block() -> Iterator[Case]:
    """Attacks on one short or one empty block, which Iceberg Java can judge and a few lines can hold."""
    for label, base in (("empty", Base(size=0)), ("one-block", Base(size=100))):
        stream = base.stream()
        offsets = {"nonce": 8, "ciphertext": 50, "tag": len(stream) - 1}
        for region, offset in offsets.items():
            if region == "ciphertext" and base.size == 0:
                continue
            comment = f"one bit changed in the {region} of the only block"
            changed = Case(f"{label}-flip-{region}", comment, flip(base, offset), "authentication", base=base)
            yield literal(changed)
        comment = "a key that differs in one bit; an empty stream has a tag to verify too"
        yield Case(f"{label}-wrong-key", comment, (stream,), "authentication", key=b"1" + KEY_16[1:])
        comment = "another AAD prefix; an empty stream has a tag to verify too"
        yield Case(f"{label}-wrong-prefix", comment, (stream,), "authentication", aad_prefix=b"other")
    stream = Base(size=100).stream()
    yield Case(
        "one-block-shorter-than-length",
        "shorter than its trusted length, and a tag that would not verify either",
        (stream[:-20],),
        "truncated",
        length=len(stream),
    )
    yield Case(
        "one-block-longer-than-length",
        "longer than its trusted length; Java never looks beyond that length",
        (stream + bytes(20),),
        "extended",
        length=len(stream),
        java=java_returns(pattern(100)),
    )


def cases() -> Iterator[Case]:
    """Return all attacks."""
    yield from Attacks("b64", 64).all()
    yield from Attacks("mib", MIB).all()
    yield from single_block()
