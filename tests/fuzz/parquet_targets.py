"""What of ags1.parquet is fuzzed: footers and pages as an enemy, or a bug of some writer, may have made them.

Encrypted files are damaged by somebody who has the keys: what no tag refuses must be refused by what is read.
"""

from __future__ import annotations

import copy
import io
import os
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import ags1
from ags1 import parquet
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList, PageSource
from tests.fuzz.choices import Choices
from tests.parquet.handmade import structs_of
from tests.parquet.reference import open_plain
from tests.parquet.reference_model import CTR_PAGES, GCM, module_aad
from tests.parquet.reference_thrift import (
    BINARY,
    BOOL,
    I8,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Sequence,
    Struct,
    decode,
    encode,
)
from tests.parquet.reference_writer import AESGCM, Encryption, encrypt_reference

KEY, COLUMN_KEY, PREFIX = bytes(range(16)), bytes(range(32, 64)), b"prefix"
REFUSALS = (ags1.FormatError, ags1.AuthenticationError, ags1.LimitError, ags1.KeyAccessError)
# Of one input, whatever its footer claims: the files here have a few kilobytes.
MOST_BYTES = 1 << 20


@cache
def plain_file(version: str) -> bytes:
    """Two row groups of a nullable column and a list, with indexes, a Bloom filter and checksums."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": [1, None, 3] * 8, "b": pa.array([[n, n + 1] for n in range(24)], pa.list_(pa.int32()))})
    options: dict[str, Any] = {"bloom_filter_options": {"a": {"ndv": 10, "fpp": 0.5}}, "compression": "none"}
    made = io.BytesIO()
    pq.write_table(
        table, made, row_group_size=12, data_page_version=version, data_page_size=40, write_batch_size=4,
        write_page_index=True, write_page_checksum=True, store_schema=False, **options,
    )  # fmt: skip
    return made.getvalue()


@cache
def encrypted_file(version: str, algorithm: str, plaintext_footer: bool, own_key: bool, form: str) -> bytes:
    encryption = Encryption(
        KEY,
        {"a": COLUMN_KEY} if own_key else None,
        encrypt_all=True,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        data_page_v2=form,
    )
    return encrypt_reference(plain_file(version), encryption)


# -- trees ---------------------------------------------------------------------------------------------------


def number(choices: Choices, limit: int) -> int:
    """An integer as offsets and sizes are: near the ends of what fits, near another one's, or any."""
    size = choices.size() % (1 << limit)
    return size - (1 << limit) if choices.below(4) == 0 else min(size, (1 << (limit - 1)) - 1)


def change_tree(choices: Choices, tree: Struct) -> None:
    """Up to four changes of fields somewhere in a tree."""
    for _ in range(1 + choices.below(4)):
        structs = list(structs_of(tree))
        target = structs[choices.below(len(structs))]
        ids = list(target.fields)
        field = ids[choices.below(len(ids))] if ids else 1 + choices.below(20)
        kind = choices.below(8)
        type_, value = target.fields.get(field, (I32, 0))
        if kind == 0:
            target.remove(field)
        elif kind in (1, 2) and type_ in (I16, I32, I64):
            limit = {I16: 16, I32: 32, I64: 64}[type_]
            changed = number(choices, limit) if kind == 1 else value + choices.below(256) - 128
            target.fields[field] = (type_, max(-(1 << (limit - 1)), min(changed, (1 << (limit - 1)) - 1)))
        elif kind == 3:
            target.fields[field] = choices.one_of(
                [(BOOL, True), (I8, -1), (I64, (1 << 63) - 1), (BINARY, b"\xff"), (LIST, Sequence(I32, [1])),
                 (STRUCT, Struct()), (LIST, Sequence(STRUCT, []))]
            )  # fmt: skip
        elif kind == 4 and isinstance(value, Sequence) and len(value) < 100:
            at = choices.below(len(value) + 1)
            items = value.items
            items[at:at] = copy.deepcopy(items[: 1 + choices.below(3)])
        elif kind == 5 and isinstance(value, Sequence):
            del value.items[choices.below(len(value) + 1) :]
        elif kind == 6:
            target.put(1 + choices.below(20), I64, number(choices, 63))
        elif isinstance(value, bytes):
            at = choices.below(len(value) + 1)
            target.fields[field] = (type_, value[:at] + choices.octets(3) + value[at + 1 :])


def change_bytes(choices: Choices, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(choices.below(4)):
        kind, at = choices.below(4), choices.below(len(changed) + 1)
        if kind == 0 and at < len(changed):
            changed[at] ^= choices.number()
        elif kind == 1:
            changed[at:at] = choices.octets(choices.below(12))
        elif kind == 2:
            del changed[at : at + choices.below(40)]
        else:
            changed[at : at + 4] = struct.pack("<I", choices.size() & 0xFFFFFFFF)
    return bytes(changed)


def change_plain_footer(choices: Choices, data: bytes) -> bytes:
    """A plaintext file with a changed footer, which may have lost its length."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, _ = decode(data, begin)
    change_tree(choices, tree)
    tail = encode(tree)
    return data[:begin] + tail + struct.pack("<I", len(tail)) + data[-4:]


def change_sealed_footer(choices: Choices, data: bytes) -> bytes:
    """An encrypted file with a changed footer that has a good tag or signature all the same."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    first, used = decode(data, begin)
    nonce = bytes(12)
    if data[-4:] == b"PARE":
        unique = first[1].fields[next(iter(first[1].fields))][1][2]
        (length,) = struct.unpack_from("<I", data, used)
        sealed = data[used + 4 : used + 4 + length]
        aad = module_aad(unique, "footer")
        tree, _ = decode(AESGCM(KEY).decrypt(sealed[:12], sealed[12:], aad), 0)
        change_metadata(choices, tree, unique)
        made = AESGCM(KEY).encrypt(nonce, encode(tree), aad)
        tail = data[begin:used] + struct.pack("<I", 12 + len(made)) + nonce + made
    else:
        unique = first[8].fields[next(iter(first[8].fields))][1][2]
        change_metadata(choices, first, unique)
        tail = encode(first)
        tail += nonce + AESGCM(KEY).encrypt(nonce, tail, module_aad(unique, "footer signature"))[-16:]
    return data[:begin] + tail + struct.pack("<I", len(tail)) + data[-4:]


def change_metadata(choices: Choices, tree: Struct, unique: bytes) -> None:
    """Change the footer, or the encrypted metadata of a column in it."""
    if choices.below(3) == 0:
        group, column = choices.below(2), choices.below(2)
        chunk = tree[4][group][1][column]
        if 9 in chunk:
            key = COLUMN_KEY if 2 in chunk[8] else KEY
            aad = module_aad(unique, "column metadata", group, column)
            metadata, _ = decode(AESGCM(key).decrypt(chunk[9][4:16], chunk[9][16:], aad), 0)
            change_tree(choices, metadata)
            made = AESGCM(key).encrypt(bytes(12), encode(metadata), aad)
            chunk.put(9, BINARY, struct.pack("<I", 12 + len(made)) + bytes(12) + made)
            return
    change_tree(choices, tree)


# -- whole files ---------------------------------------------------------------------------------------------


def judge(error: Exception) -> None:
    """Whether an error is one that is documented."""
    supply = "AAD prefix that is not stored in it; the reader must supply it" in str(error)
    assert isinstance(error, REFUSALS) or supply, f"{error!r} is not documented"
    assert len(str(error)) < 1000, "the message grows with the data"


def attempt(call: Callable[[io.BytesIO], Any]) -> bytes | None:
    """What a call writes, or None if it refuses for a reason that is documented, having written nothing."""
    sink = io.BytesIO()
    try:
        call(sink)
    except (*REFUSALS, ValueError) as error:
        judge(error)
        return None
    made = sink.getvalue()
    assert len(made) < MOST_BYTES, "a few bytes became many"
    return made


def sources(data: bytes) -> Iterator[Any]:
    """The data in memory, behind an object that can only seek and read, and in a file."""
    yield data
    yield io.BytesIO(data)
    with in_file(data) as file:
        yield file


def in_file(data: bytes) -> Any:
    file = os.fdopen(os.memfd_create("ags1-fuzz"), "w+b", buffering=0)
    file.write(data)
    file.seek(0)
    return file


def read_all(source: Any, decryption: Any) -> bytes | None:
    try:
        with parquet.open(source, decryption, missing_keys="drop", threads=1) as view:
            return bytes(view.read())
    except (*REFUSALS, ValueError) as error:
        judge(error)
        return None


def encrypt_parquet(data: bytes) -> None:
    """Plaintext files with hostile footers and pages, encrypted."""
    choices = Choices(data)
    plain = plain_file(choices.one_of(["1.0", "2.0"]))
    if choices.below(4):
        plain = change_plain_footer(choices, plain)
    if choices.below(2):
        plain = change_bytes(choices, plain)
    algorithm = choices.one_of(["AES_GCM_V1", "AES_GCM_CTR_V1"])
    encryption = parquet.EncryptionConfig(
        KEY,
        algorithm=algorithm,
        plaintext_footer=bool(choices.below(2)),
        aad_prefix=choices.one_of([None, PREFIX]),
        data_page_v2=choices.one_of(["java", "arrow"]),
    )
    threads = choices.one_of([1, 2])
    made = [
        attempt(lambda sink, s=source: parquet.encrypt_file(s, sink, encryption, threads=threads))
        for source in sources(plain)
    ]
    assert len({each is None for each in made}) == 1, "what is refused depends on where it lies"
    for each in made:
        if each is not None:
            back = attempt(lambda sink, e=each: parquet.decrypt_file(e, sink, parquet.DecryptionConfig(KEY)))
            assert back is not None, "what was encrypted cannot be decrypted"
            read_all(each, parquet.DecryptionConfig(KEY))


def decrypt_parquet(data: bytes) -> None:
    """Encrypted files that were damaged by somebody without keys, and by somebody with them."""
    choices = Choices(data)
    version, own_key = choices.one_of(["1.0", "2.0"]), bool(choices.below(2))
    whole = encrypted_file(
        version, choices.one_of([GCM, CTR_PAGES]), bool(choices.below(2)), own_key, choices.one_of(["java", "arrow"])
    )
    has_keys = choices.below(3) > 0
    changed = change_sealed_footer(choices, whole) if has_keys else change_bytes(choices, whole)
    decryption = parquet.DecryptionConfig(KEY, column_keys={"a": COLUMN_KEY} if own_key else None)
    threads = choices.one_of([1, 2])
    made = [
        attempt(lambda sink, s=source: parquet.decrypt_file(s, sink, decryption, threads=threads))
        for source in sources(changed)
    ]
    assert len({each is None for each in made}) == 1, "what is refused depends on where it lies"
    for source in sources(changed):
        read_all(source, decryption)
    encryption = parquet.EncryptionConfig(COLUMN_KEY, encrypt_all=True)
    attempt(lambda sink: parquet.rekey_file(changed, sink, decryption, encryption, threads=threads))
    if changed == whole:
        assert made[0] is not None, "refused an authentic file"
        assert [page.body for page in pages_of(made[0])] == [page.body for page in pages_of(plain_file(version))]


def pages_of(data: bytes) -> list[Any]:
    return [page for chunk in open_plain(data, strict=False).chunks for page in chunk.pages]


# -- pages ---------------------------------------------------------------------------------------------------


def page_header(choices: Choices, body: int) -> Struct:
    """A page header, mostly sound."""
    type_ = choices.one_of([0, 3, 2, 0, 3, 0, 3, choices.below(256)])
    header = Struct().put(1, I32, type_).put(2, I32, choices.below(100)).put(3, I32, body)
    if choices.below(3) == 0:
        header.put(4, I32, choices.number(3))
    counts = Struct().put(1, I32, choices.below(100))
    if type_ == 3:
        levels = choices.below(body + 2)
        counts.put(2, I32, 0).put(3, I32, 1).put(4, I32, 0).put(5, I32, levels).put(6, I32, choices.below(3))
        header.put(8, STRUCT, counts)
    else:
        header.put(7 if type_ == 2 else 5, STRUCT, counts)
    if choices.below(4) == 0:
        header.put(9 + choices.below(5), BINARY, bytes(choices.one_of([1, 50, 200, 4000, 5000])))
    return header


def pages_from(choices: Choices) -> bytes:
    made = bytearray()
    while choices.left and len(made) < 20_000:
        body = choices.octets(choices.below(40))
        header = page_header(choices, len(body))
        if choices.below(5) == 0:
            change_tree(choices, header)
        made += encode(header) + body
    return change_bytes(choices, bytes(made)) if choices.below(4) == 0 else bytes(made)


def walked(data: bytes, source: PageSource, start: int, values: int, max_stored: int) -> Any:
    """The pages that a walk finds, or the error that it ends with."""
    chunk = Chunk(start, len(data), values, "a")
    found = []
    try:
        while not chunk.done:
            pages = PageList(b"")
            if not pages.add(chunk, source, max_stored):
                raise ags1.TruncatedError("more is needed")
            found += pages.details()
    except REFUSALS as error:
        return type(error), len(found) if max_stored == 1 else None
    return found


def parquet_pages(data: bytes) -> None:
    """Walks over any bytes as pages, and conversions of what they find, there and back."""
    choices = Choices(data)
    values = choices.below(300)
    start = choices.below(50)
    stream = choices.octets(choices.left) if choices.below(4) == 0 else pages_from(choices)
    memory = PageSource(bytes(start) + stream)
    with in_file(bytes(start) + stream) as file:
        on_disk = PageSource(file.fileno())
        for most in (1, 1 << 30):
            one, other = walked(stream, memory, start, values, most), walked(stream, on_disk, start, values, most)
            assert one == other, f"{one!r} in memory, {other!r} in a file"
    source_aad, target_aad = b"", b"file aad"
    for mode in (AES_GCM, AES_CTR):
        pages = PageList(b"")
        chunk = Chunk(start, len(stream), values, "a", target_protection=mode, target_key=KEY, target_ordinals=(1, 2))
        try:
            pages.add(chunk, memory, 1 << 30)
            inside = bool(choices.below(2))
            sealed = bytes(
                Conversion(source_aad, target_aad, levels_inside=inside, threads=2).convert(pages, memory, 4)
            )
        except REFUSALS:
            continue
        back = opened(sealed, target_aad, mode, [each["values"] for each in pages.details()])
        for each, again in zip(pages.details(), back, strict=True):
            place = each["offset"] + each["header_length"]
            # Headers are the same but for ways to write a number.
            assert again == stream[place - start :][: each["body_length"]]


def opened(sealed: bytes, aad: bytes, mode: int, values: list[int]) -> list[bytes]:
    """Bodies of the sealed pages, by conversion and by view."""
    key: dict[str, Any] = {"source_protection": mode, "source_key": KEY, "source_ordinals": (1, 2)}
    source = PageSource(sealed, base=4)
    pages = PageList(aad)
    chunk = Chunk(4, len(sealed), 0, "a", **key)
    pages.add(chunk, source, 1 << 30)
    plain = bytes(Conversion(aad, threads=2).convert(pages, source, 0))
    seen = bytearray(len(sealed))
    Conversion(aad, threads=2).view(pages, source, seen, 4)
    assert Conversion(aad, threads=2).verify(pages, source) == []
    bodies = []
    for made in (plain, bytes(seen)):
        found = PageList(b"")
        found.add(Chunk(0, len(made), 0, "a", source_protection=PLAINTEXT), PageSource(made), 1 << 30)
        details = found.details()
        assert [each["values"] for each in details] == values
        bodies.append([made[each["offset"] + each["header_length"] :][: each["body_length"]] for each in details])
    assert bodies[0] == bodies[1], "the view shows something else"
    return bodies[0]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parquet_encrypt": encrypt_parquet,
    "parquet_decrypt": decrypt_parquet,
    "parquet_pages": parquet_pages,
}
