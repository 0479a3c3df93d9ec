"""What is fuzzed: functions that take hostile bytes and fail when ags1 answers them wrongly.

Wrong is: an exception that is not documented, a result that differs from the reference's, accepting what the
reference refuses or the other way round. Crashes, hangs and memory are watched by whoever calls these functions.
The bytes are a script of choices (`Choices`), mostly of how a valid stream is damaged: random bytes alone would never
get past the first four.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import ags1
from ags1 import avro, layout
from ags1.cli import main
from ags1.parquet.native import thrift as native_thrift
from tests import checks, reference
from tests.fuzz import lake_targets, parquet_readers, parquet_targets
from tests.fuzz.choices import Choices

KEYS = [bytes(range(length)) for length in (16, 24, 32)]
PREFIXES = [b"", b"1234567890123456", bytes(600)]
BLOCK_LENGTHS = [1, 7, 16, 28, 29, 100, 1 << 20]
LENGTHS = [0, 1, 6, 7, 16, 28, 29, 57, 100, 300]
REFUSALS = (ags1.FormatError, ags1.AuthenticationError, ags1.LimitError)
MAX_BLOCKS = (1 << 31) - 1


# -- streams -------------------------------------------------------------------------------------------------


@cache
def plain_of(length: int) -> bytes:
    return checks.pattern(length)


@cache
def stream_of(length: int, block_length: int, key: bytes, prefix: bytes) -> bytes:
    return reference.encrypt(plain_of(length), key, prefix, block_length, reference.counter_nonce)


def damaged(choices: Choices, stream: bytes, block_length: int) -> bytes:
    """The stream after up to seven changes, as someone who knows the format would make them."""
    changed = bytearray(stream)
    for _ in range(choices.below(8)):
        kind = choices.below(9)
        position = choices.below(len(changed) + 1)
        stride = block_length + reference.OVERHEAD
        first, second = (8 + choices.below(8) * stride for _ in range(2))
        if kind == 0 and position < len(changed):
            changed[position] ^= choices.number()
        elif kind == 1:
            del changed[position:]
        elif kind == 2:
            changed += choices.octets(choices.below(64))
        elif kind == 3:
            changed[4:8] = struct.pack("<I", choices.size() & 0xFFFFFFFF)
        elif kind == 4:
            one, other = bytes(changed[first : first + stride]), bytes(changed[second : second + stride])
            if len(one) == len(other):
                changed[first : first + stride], changed[second : second + stride] = other, one
        elif kind == 5:
            changed[second:second] = changed[first : first + stride]
        elif kind == 6:
            del changed[first : first + stride]
        elif kind == 7:
            changed[position:position] = choices.octets(choices.below(32))
        else:
            changed[:8] = choices.octets(8)
    return bytes(changed)


def outcome_of_reference(stream: bytes, key: bytes, prefix: bytes, length: int | None) -> bytes | None:
    try:
        return reference.decrypt(stream, key, prefix, length)
    except reference.ReferenceFailure:
        return None


def outcome(call: Callable[[], Any]) -> bytes | None:
    try:
        return bytes(call())
    except REFUSALS:
        return None


def decrypt(data: bytes) -> None:
    """Whole streams, by every function that decrypts them."""
    choices = Choices(data)
    key, prefix = choices.one_of(KEYS), choices.one_of(PREFIXES)
    block_length = choices.one_of(BLOCK_LENGTHS)
    stream = damaged(choices, stream_of(choices.one_of(LENGTHS), block_length, key, prefix), block_length)
    length = [None, len(stream), choices.below(400), choices.size()][choices.below(4)]
    threads = choices.one_of([1, 2])
    expected = outcome_of_reference(stream, key, prefix, length)
    options: dict[str, Any] = {"aad_prefix": prefix, "length": length, "threads": threads}

    def into() -> Any:
        out = bytearray(len(stream))
        try:
            return out[: ags1.decrypt_into(stream, out, key, **options)]
        except ags1.AuthenticationError:
            assert not any(out), "unverified plaintext in the caller's memory"
            raise

    def many() -> Any:
        return ags1.decrypt_many([stream], key, aad_prefixes=[prefix], lengths=[length], threads=threads)[0]

    def packed() -> Any:
        offsets = memoryview(struct.pack("@2q", 0, len(stream))).cast("B").cast("q")
        out = bytearray(len(stream))
        try:
            batch = ags1.decrypt_many(
                (stream, offsets), key, aad_prefixes=prefix, lengths=[length], threads=threads, out=out
            )
        except ags1.AuthenticationError:
            assert not any(out), "unverified plaintext in the caller's memory"
            raise
        return batch[0]

    def to_sink() -> Any:
        sink = io.BytesIO()
        ags1.decrypt_file(io.BytesIO(stream), sink, key, **options)
        return sink.getvalue()

    calls: dict[str, Callable[[], Any]] = {
        "decrypt": lambda: ags1.decrypt(stream, key, **options),
        "decrypt_into": into,
        "decrypt_many": many,
        "decrypt_many of offsets": packed,
        "Reader": lambda: ags1.Reader(stream, key, **options).read(),
        "Reader of a file": lambda: ags1.Reader(io.BytesIO(stream), key, **options).readall(),
        "Reader of a pipe": lambda: ags1.Reader(checks.Pipe(stream, 37), key, **options).read(),
        "decrypt_file": to_sink,
    }
    for name, call in calls.items():
        found = outcome(call)
        assert found == expected, f"{name}: {found!r}, but the reference has {expected!r}"


def model_of(stream: bytes, key: bytes, prefix: bytes) -> tuple[int, list[bytes | None]] | None:
    """Block length and the plaintext of each block, None where it is not authentic; None for no stream at all."""
    if stream[:4] != b"AGS1" or len(stream) < 36:
        return None
    (block_length,) = struct.unpack("<I", stream[4:8])
    if not 1 <= block_length <= reference.MAX_BLOCK_LENGTH:
        return None
    tail = (len(stream) - 8) % (block_length + 28)
    if 0 < tail < 28 or (tail == 28 and len(stream) > 36):
        return None
    blocks: list[bytes | None] = []
    for index, block in enumerate(checks.blocks_of(stream, block_length)):
        try:
            aad = reference.block_aad(prefix, index)
            blocks.append(reference.AESGCM(key).decrypt(block[:12], block[12:], aad))
        except reference.InvalidTag:
            blocks.append(None)
    return block_length, blocks


def reader(data: bytes) -> None:
    """Sequences of reads, seeks and positioned reads, against a model that knows each block."""
    choices = Choices(data)
    key, prefix = choices.one_of(KEYS), choices.one_of(PREFIXES)
    block_length = choices.one_of(BLOCK_LENGTHS)
    stream = damaged(choices, stream_of(choices.one_of(LENGTHS), block_length, key, prefix), block_length)
    model = model_of(stream, key, prefix)
    source = choices.one_of([lambda: stream, lambda: io.BytesIO(stream), lambda: checks.ShortReads(stream, 50)])()
    try:
        opened = ags1.Reader(source, key, aad_prefix=prefix, threads=choices.one_of([1, 2, None]))
    except (ags1.FormatError, ags1.LimitError):
        assert model is None, "refused a stream of whole blocks"
        return
    assert model is not None, "opened what is no stream"
    block_length, blocks = model
    size = len(stream) - 8 - 28 * len(blocks)
    assert (opened.size, opened.block_length, opened.encrypted_length) == (size, block_length, len(stream))
    whole = all(block is not None for block in blocks)
    failed = False

    def known(start: int, data: Any) -> bool:
        """Whether the data is what the model has at a position, of authentic blocks alone."""
        for number, octet in enumerate(bytes(data)):
            block = blocks[(start + number) // block_length]
            if block is None or block[(start + number) % block_length] != octet:
                return False
        return True

    def touched(start: int, count: int) -> set[int]:
        """Blocks of which a read needs something."""
        return set(range(start // block_length, -(-(start + count) // block_length))) if count else set()

    position = 0
    with opened:
        for _ in range(12):
            kind = choices.below(8)
            amount, offset = choices.below(400), choices.below(400)
            precise: set[int] = set()
            start, wanted = position, max(0, min(amount, size - position))
            try:
                if kind == 0:
                    got: Any = opened.read(amount)
                elif kind == 1:
                    got, wanted = opened.read(), max(0, size - position)
                elif kind == 2:
                    out = bytearray(amount)
                    got = out[: opened.readinto(out)]
                elif kind == 3:
                    opened.seek(offset)
                    assert opened.tell() == offset
                    position = offset
                    continue
                elif kind == 4:
                    start, wanted = offset, max(0, min(amount, size - offset))
                    precise = touched(start, wanted)
                    got = opened.pread(offset, amount)
                elif kind == 5:
                    start, wanted = offset, max(0, min(amount, size - offset))
                    precise = touched(start, wanted)
                    out = bytearray(amount)
                    got = out[: opened.pread_into(offset, out)]
                elif kind == 6:
                    got = opened.read1(amount)
                    assert (len(got) == 0) == (wanted == 0)
                    wanted = len(got)
                else:
                    position = opened.seek(offset - 200, os.SEEK_END) if size + offset - 200 >= 0 else position
                    continue
            except ags1.AuthenticationError:
                assert not whole, "refused an authentic stream"
                if precise and not failed:
                    assert any(blocks[index] is None for index in precise), "refused authentic blocks"
                failed = True
                continue
            assert not failed or not wanted, "answered after a failure"
            assert len(got) == wanted, f"{len(got)} bytes instead of {wanted}"
            assert known(start, got), "wrong plaintext"
            if kind not in (4, 5):
                position += len(got)


# -- key metadata --------------------------------------------------------------------------------------------


def key_metadata(data: bytes) -> None:
    """StandardKeyMetadata as anyone may hand it in."""
    try:
        expected = reference.decode_key_metadata(data)
    except reference.ReferenceFailure:
        expected = None
    try:
        found = ags1.KeyMetadata.decode(data)
    except ags1.FormatError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert expected is None, f"refused what the reference reads: {message}"
        assert len(message) < 300, "the message grows with the data"
        return
    assert expected is not None, "accepted what the reference refuses"
    fields = (bytes(found.encryption_key), found.aad_prefix, found.file_length)
    assert fields == (expected.encryption_key, expected.aad_prefix, expected.file_length)
    assert found.encode() == reference.encode_key_metadata(expected)
    assert ags1.KeyMetadata.decode(found.encode()) == found


# -- layout --------------------------------------------------------------------------------------------------


# Where several arguments are wrong, either may be named.
BAD_ARGUMENT = (ValueError, ags1.LimitError)


def expect(call: Callable[[], object], expected: Any) -> None:
    """The call returns what is expected, or raises an error of a class that is."""
    try:
        found: object = call()
    except (ags1.Ags1Error, ValueError) as raised:
        found = raised
    if isinstance(found, Exception):
        assert isinstance(expected, (type, tuple)), f"raised {found!r} instead of answering {expected!r}"
        assert isinstance(found, expected), f"{found!r} is no {expected}"
        return
    assert found == expected, f"answered {found!r} instead of {expected!r}"


def layout_arithmetic(data: bytes) -> None:
    """Sizes and offsets against Python's integers, which do not overflow."""
    choices = Choices(data)
    size, block = choices.size(), choices.size()
    bad = not 1 <= block <= (1 << 31) - 1
    stride = block + 28
    blocks = max(1, -(-size // max(block, 1)))
    large = size >= 1 << 63

    def judge(call: Callable[[], object], expected: Any, limit: bool = large) -> None:
        expect(call, BAD_ARGUMENT if bad else ags1.LimitError if limit else expected)

    too_many = large or blocks > MAX_BLOCKS
    judge(lambda: ags1.encrypted_length(size, block), 8 + size + 28 * blocks, too_many)
    judge(lambda: layout.block_count(size, block), blocks, too_many)
    full, tail = divmod(max(0, size - 8), stride)
    expected: Any = full * block + max(0, tail - 28)
    if 0 < tail < 28:
        expected = ags1.TruncatedError
    elif tail == 28 and full:
        expected = ags1.FormatError
    if full + (tail > 0) > MAX_BLOCKS:
        # Such a stream is wrong in two ways, and either may be said.
        expected = ags1.Ags1Error
    if size < 36:
        expected = ags1.TruncatedError
    judge(lambda: ags1.plaintext_length(size, block), expected)
    judge(lambda: layout.plaintext_to_block(size, block), size // max(block, 1))
    judge(lambda: layout.block_to_ciphertext(size, block), 8 + size * stride, size > MAX_BLOCKS)
    for exact in (False, True):
        index, within = divmod(size - 8, stride)
        expected = index * block + min(max(within - 12 * exact, 0), block) if size >= 8 else ValueError
        judge(
            lambda e=exact: layout.ciphertext_to_plaintext(size, block, exact=e),  # type: ignore[misc]
            expected,
            large or index > MAX_BLOCKS,
        )
    split = choices.size()
    step = max(split - split % max(block, 1), block, 1)
    if size // step < 10_000:
        expected = list(range(0, max(size, 1), step)) if split >= 1 else BAD_ARGUMENT
        judge(lambda: ags1.split_offsets(size, split, block), expected, large and split >= 1)


# -- Avro ----------------------------------------------------------------------------------------------------

SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}


@cache
def container(codec: str, rows: int) -> bytes:
    import fastavro

    made = io.BytesIO()
    records = [{"n": number, "s": "x" * (number % 7)} for number in range(rows)]
    fastavro.writer(made, SCHEMA, records, codec=codec, sync_interval=60, sync_marker=b"0123456789abcdef")
    return made.getvalue()


def avro_split(data: bytes) -> None:
    """Splits of Avro containers that were damaged, or made to exhaust whoever reads them."""
    choices = Choices(data)
    whole = container(choices.one_of(["null", "deflate"]), choices.one_of([0, 1, 30]))
    changed = bytearray(whole)
    for _ in range(choices.below(6)):
        position = choices.below(len(changed) + 1)
        kind = choices.below(5)
        if kind == 0 and position < len(changed):
            changed[position] ^= choices.number()
        elif kind == 1:
            del changed[position:]
        elif kind == 2:
            changed[position:position] = choices.octets(choices.below(24))
        elif kind == 3:
            # A number of any size where one is read.
            changed[position : position + 1] = reference.encode_varint(choices.size() % (1 << 63))
        else:
            del changed[position : position + choices.below(64)]
    start, end = sorted((choices.below(len(changed) + 20), choices.below(len(changed) + 20)))
    file = io.BytesIO(changed)
    with contextlib.suppress(ags1.FormatError):
        avro.read_header(file)
    try:
        blocks = list(avro.iter_blocks(file, 0, len(changed)))
    except ags1.FormatError:
        blocks = []
    else:
        # Cut anywhere, the two sides have every block once, if the marker is only where markers are.
        marker = avro.read_header(file).marker
        if bytes(changed).count(marker) == len(blocks) + 1:
            parts = [*avro.iter_blocks(file, 0, start), *avro.iter_blocks(file, start, len(changed) + 40)]
            assert parts == blocks, "a block was lost or came twice"
    with contextlib.suppress(ags1.FormatError, ValueError):
        for row in itertools.islice(avro.read_split(file, start, end), 200):
            assert row is None or row is not file


# -- the command line ----------------------------------------------------------------------------------------


def inspect(data: bytes) -> None:
    """``ags1 inspect`` on any file, for people and for machines."""
    choices = Choices(data)
    block_length = choices.one_of(BLOCK_LENGTHS)
    stream = damaged(choices, stream_of(choices.one_of(LENGTHS), block_length, KEYS[0], b""), block_length)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        with open(path, "wb") as file:
            file.write(stream)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            code = main(["inspect", "--json", path])
        record = json.loads(said.getvalue())
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert main(["inspect", path]) == code
    model = model_of(stream, KEYS[0], b"")
    assert code in (0, 1), f"exit code {code}"
    assert (code == 0) == (model is not None), record
    assert record["encrypted_length"] == len(stream)
    if model is not None:
        block_length, blocks = model
        assert record["block_length"] == block_length
        assert record["blocks"] == len(blocks)
        assert record["plaintext_length"] == len(stream) - 8 - 28 * len(blocks)


# -- Thrift --------------------------------------------------------------------------------------------------


def walk_thrift(node: Any) -> list[native_thrift.Struct]:
    """Look at everything in a structure; return its structs."""
    found, left = [], [node]
    while left:
        each = left.pop()
        if isinstance(each, native_thrift.Struct):
            found.append(each)
            left += [each.get(field_id) for field_id in each.ids()]
        elif isinstance(each, native_thrift.List):
            left += list(each)
    return found


def thrift(data: bytes) -> None:
    """A Thrift structure: what is unchanged comes back byte for byte, and changes are found again."""
    source, _, rest = data.rpartition(b"\xfe\xff")
    source, choices = source or data, Choices(rest)
    try:
        parsed = native_thrift.Struct.parse(source)
        structs = walk_thrift(parsed)
    except ags1.FormatError:
        return
    assert parsed.encode() == source[: parsed.nbytes], "what was only looked at changed"
    for _ in range(choices.below(8)):
        node, field_id = choices.one_of(structs), choices.number(2) - (1 << 15)
        ids = node.ids()
        if ids and choices.below(2):
            node.remove(choices.one_of(ids))
        else:
            with contextlib.suppress(ValueError):
                node.set(field_id, native_thrift.STRUCT, choices.one_of(structs))
    again = native_thrift.Struct.parse(parsed.encode(), trailing=False)
    walk_thrift(again)
    assert again.encode() == parsed.copy().encode() == parsed.encode(), "what was changed does not last"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "decrypt": decrypt,
    "reader": reader,
    "key_metadata": key_metadata,
    "layout": layout_arithmetic,
    "avro": avro_split,
    "inspect": inspect,
    "thrift": thrift,
    **parquet_targets.TARGETS,
    **parquet_readers.TARGETS,
    **lake_targets.TARGETS,
}


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with."""
    if name in lake_targets.TARGETS:
        return lake_targets.seeds(name)
    if name == "key_metadata":
        found = [
            reference.encode_key_metadata(reference.KeyMetadata(key, prefix, length), fields)
            for key, prefix, length in itertools.product(KEYS, (None, b"", PREFIXES[1]), (None, 36, 1 << 40))
            for fields in (2, 3)
        ]
        return [*found, b"", b"\x01", b"\x02", b"\x01\x1f", b"\x01" + b"\xff" * 12, found[0] + b"more"]
    if name == "thrift":
        return [
            bytes.fromhex(structure) + b"\xfe\xff" + bytes.fromhex(changes)
            for structure in (
                "00", "1502191c150a0000", "112213f914d704158080808008160107000000000000f8bf00",
                "1801611a02290015020000", "1b0158016b150a0000", "1d000102030405060708090a0b0c0d0e0f00",
                "19411101020000", "050a82800005020400", "192c1502000000", "1c1c1c000000", "19fc0f" + "00" * 16,
            )
            for changes in ("", "01000080000000", "03000180000100000181ff010000")
        ]  # fmt: skip
    shapes = [bytes(each) for each in itertools.product(range(3), range(3), range(7), (0, 5, 8, 9))]
    changes = [
        b"", b"\x01\x00\x20\x00\x00\x04", b"\x01\x01\x24", b"\x02\x04\x00\x00\x01", b"\x01\x05\x00\x01\x02",
        b"\x01\x06\x00\x01", b"\x01\x03\x00\x00\x00\x02\x1f",
    ]  # fmt: skip
    return [shape + changes[number % len(changes)] + bytes(range(3, 40)) for number, shape in enumerate(shapes)]
