"""What else of ags1.parquet is fuzzed: whoever looks at files, compares them with PyArrow, or unwraps their keys."""

from __future__ import annotations

import copy
import io
import json
import os
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import ags1
from ags1 import kms, parquet
from ags1.parquet.keys.material import parse_key_metadata, parse_store
from tests.fuzz.choices import Choices
from tests.fuzz.parquet_targets import (
    COLUMN_KEY,
    KEY,
    change_bytes,
    change_plain_footer,
    change_sealed_footer,
    change_tree,
    encrypted_file,
    judge,
    plain_file,
)
from tests.parquet.reference_model import CTR_PAGES, GCM
from tests.parquet.reference_thrift import I64, Struct, decode, encode

MARKER = b"known plaintext"
REFUSALS = (ags1.Ags1Error, ValueError)
# PyArrow allocates memory for as many rows as a row group claims, before it reads the first one.
MOST_ROWS = 1 << 20
MASTERS = {"k1": bytes(range(16)), "k2": bytes(range(32))}


def read_footer(data: bytes) -> tuple[int, Struct]:
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return begin, decode(data, begin)[0]


def with_footer(data: bytes, begin: int, footer: Struct) -> bytes:
    tail = encode(footer)
    return data[:begin] + tail + struct.pack("<I", len(tail)) + data[-4:]


# -- encrypting ------------------------------------------------------------------------------------------------


@cache
def marked_file(version: str, compression: str) -> bytes:
    """A plaintext file that has the marker in pages, statistics and page indexes of all columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [MARKER.decode() + str(number % 5) for number in range(20)]
    structs = [{"d": number, "e": text} for number, text in enumerate(texts)]
    table = pa.table({"a": texts, "b": [[text, None] for text in texts], "c": structs})
    made = io.BytesIO()
    blooms: Any = {"a": {"ndv": 10, "fpp": 0.5}}
    pq.write_table(
        table, made, row_group_size=10, data_page_version=version, data_page_size=60, write_batch_size=4,
        write_page_index=True, use_dictionary=["a"], compression=compression, store_schema=False,
        bloom_filter_options=blooms,
    )  # fmt: skip
    return made.getvalue()


def change_places(choices: Choices, data: bytes) -> bytes:
    """A plaintext file whose column chunks, indexes or row groups have changed places, or lie where others do."""
    begin, footer = read_footer(data)
    chunks = [chunk for group in footer[4] for chunk in group[1]]
    for _ in range(1 + choices.below(3)):
        kind = choices.below(7)
        one, other = choices.one_of(chunks), choices.one_of(chunks)
        fields = [choices.one_of([5, 6, 7, 9, 11, 14, 15, 3, 4, 1, 12, 13]) for _ in range(1 + choices.below(4))]
        if kind == 0:
            for field in fields:
                if field in one[3] and field in other[3]:
                    one[3].fields[field], other[3].fields[field] = other[3].fields[field], one[3].fields[field]
        elif kind == 1:
            for field in fields:
                if field in other[3]:
                    one[3].fields[field] = other[3].fields[field]
        elif kind == 2:
            for field in range(4, 8):
                if field in other:
                    one.fields[field] = other.fields[field]
        elif kind == 3:
            one.fields, other.fields = other.fields, one.fields
        elif kind == 4:
            groups = footer[4].items
            groups.insert(choices.below(3), copy.deepcopy(choices.one_of(groups)))
        elif kind == 5:
            items = footer[2].items
            first, second = 1 + choices.below(len(items) - 1), 1 + choices.below(len(items) - 1)
            items[first], items[second] = items[second], items[first]
        else:
            one[3].put(choices.one_of([9, 11]), I64, choices.below(begin))
    return with_footer(data, begin, footer)


def most_rows(data: bytes) -> int:
    """The largest number of rows that the file or a row group claims to have."""
    _, footer = read_footer(data)
    counts = [footer.fields.get(3, (I64, 0))[1]] + [group.fields.get(3, (I64, 0))[1] for group in footer[4]]
    return max((count for count in counts if isinstance(count, int)), default=0)


def table_of(read: Callable[[], Any]) -> Any:
    """A table, or None if PyArrow cannot read the file."""
    try:
        found = read()
        found.validate(full=True)
        return found
    except Exception:
        return None


def compare_with_arrow(data: bytes) -> None:
    """Files of strangers, encrypted: nothing of them shows, and PyArrow reads what it read before."""
    import pyarrow.parquet as pq

    choices = Choices(data)
    kind, signed = choices.below(4), bool(choices.below(2))
    # A page of 2 GiB that is only claimed is one for PyArrow if it has to be uncompressed.
    compression = "snappy" if kind != 3 and choices.below(2) else "none"
    plain = marked_file(choices.one_of(["1.0", "2.0"]), compression)
    changed = [change_plain_footer, change_places, change_places, change_bytes][kind](choices, plain)
    encryption = parquet.EncryptionConfig(
        KEY,
        plaintext_footer=signed,
        algorithm=choices.one_of(["AES_GCM_V1", "AES_GCM_CTR_V1"]),
        data_page_v2=choices.one_of(["java", "arrow"]),
    )
    made, back = io.BytesIO(), io.BytesIO()
    try:
        parquet.encrypt_file(changed, made, encryption, threads=1)
    except REFUSALS as error:
        judge(error)
        return
    encrypted = made.getvalue()
    assert len(encrypted) < 4 * len(changed) + 20_000, "a few bytes became many"
    if not signed or kind != 3:
        # Where bytes were moved about, text may have become the name of a column, which a signed footer shows.
        assert MARKER not in encrypted, "plaintext shows"
    decryption = parquet.DecryptionConfig(KEY)
    parquet.decrypt_file(encrypted, back, decryption)
    before = None
    if most_rows(changed) <= MOST_ROWS:
        before = table_of(lambda: pq.read_table(io.BytesIO(changed), use_threads=False, pre_buffer=False))
    if before is not None:
        assert parquet.read_table(encrypted, decryption, use_threads=False).equals(before), (
            "the view shows another table"
        )
        assert pq.read_table(back, use_threads=False, pre_buffer=False).equals(before), "the table has become another"
    look(encrypted, decryption)


# -- looking ---------------------------------------------------------------------------------------------------


def look(data: Any, decryption: Any) -> Any:
    """Inspect and verify, for people and for machines; what verification says."""
    for keys in (None, decryption):
        try:
            found = parquet.inspect(data, keys)
        except REFUSALS as error:
            judge(error)
        else:
            json.dumps(found.to_dict())
            str(found).encode()
    try:
        report = parquet.verify_file(data, decryption)
    except REFUSALS as error:
        judge(error)
        return None
    json.dumps(report.to_dict())
    str(report).encode()
    return report


def look_at_parquet(data: bytes) -> None:
    """Files that somebody damaged, inspected, verified, and given another footer."""
    choices = Choices(data)
    own = bool(choices.below(2))
    version, algorithm = choices.one_of(["1.0", "2.0"]), choices.one_of([GCM, CTR_PAGES])
    whole = encrypted_file(version, algorithm, bool(choices.below(2)), own, choices.one_of(["java", "arrow"]))
    kind = choices.below(6)
    if kind < 3:
        changed = [change_sealed_footer, change_bytes, change_first_structure][kind](choices, whole)
    else:
        changed = [change_plain_footer, change_bytes, change_places][kind - 3](choices, plain_file(version))
    keys = {"a": COLUMN_KEY} if own else None
    decryption = parquet.DecryptionConfig(KEY, column_keys=keys, allow_plaintext=bool(choices.below(2)))
    report = look(changed, decryption)
    if report is not None and report.ok and not report.having("contradiction") and not decryption.allow_plaintext:
        # A file that is authentic, and contradicts itself nowhere, can be read.
        parquet.decrypt_file(changed, io.BytesIO(), decryption)


def change_first_structure(choices: Choices, data: bytes) -> bytes:
    """FileCryptoMetaData, which nothing authenticates, or a signed footer, changed by somebody without keys."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, used = decode(data, begin)
    change_tree(choices, tree)
    tail = encode(tree) + data[used:-8]
    magic: bytes = choices.one_of([data[-4:], data[-4:], b"PAR1", b"PARE"])
    return data[:begin] + tail + struct.pack("<I", len(tail)) + magic


# -- key material ----------------------------------------------------------------------------------------------


@cache
def wrapped_file(internal: bool, double: bool, signed: bool) -> tuple[bytes, bytes]:
    """A file whose keys are wrapped, and its key material file."""
    config = parquet.EncryptionConfig.from_kms(
        kms.MemoryKms(MASTERS), footer_key_id="k1", column_key_ids={"k2": ["a"]}, internal_key_material=internal,
        double_wrapping=double, plaintext_footer=signed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "f")
        parquet.encrypt_file(plain_file("1.0"), path, config)
        beside = os.path.join(directory, "_KEY_MATERIAL_FOR_f.json")
        with open(path, "rb") as file:
            data = file.read()
        if internal:
            return data, b""
        with open(beside, "rb") as file:
            return data, file.read()


def json_value(choices: Choices) -> Any:
    return choices.one_of(
        [None, True, False, 0, -1, 1e308, 10**30, "", "k2", "k3", "\ud800", "x" * 3000, [], {}, [[]], {"a": {}}, "AAAA",
         "{}", "true", "footerKey", "columnKey0", "PKMT2", "\0", "..", "\u202e", 2**63]
    )  # fmt: skip


def change_json(choices: Choices, data: bytes) -> bytes:
    """JSON in which members were changed, also of JSON in its strings, or the text was."""
    if choices.below(4) == 0:
        return change_bytes(choices, data)
    found = json.loads(data)
    for _ in range(1 + choices.below(3)):
        if not isinstance(found, dict) or not found:
            break
        name = choices.one_of(sorted(found))
        kind = choices.below(5)
        value = found[name]
        if kind == 0:
            del found[name]
        elif kind == 1:
            found[json_text(choices)] = json_value(choices)
        elif kind == 2:
            found[name] = found[choices.one_of(sorted(found))]
        elif kind == 3 and isinstance(value, str) and value.startswith("{"):
            try:
                found[name] = change_json(choices, value.encode()).decode("utf-8", "replace")
            except (ValueError, UnicodeEncodeError):
                found[name] = "{"
        else:
            found[name] = json_value(choices)
    return json.dumps(found).encode()


def json_text(choices: Choices) -> str:
    value = json_value(choices)
    return value if isinstance(value, str) else "more"


def key_material(data: bytes) -> None:
    """Key material inside of a file and beside it, which anybody can change."""
    choices = Choices(data)
    internal, double, signed = (bool(choices.below(2)) for _ in range(3))
    whole, beside = wrapped_file(internal, double, signed)
    if internal:
        whole = change_key_metadata(choices, whole, signed)
    else:
        beside = change_json(choices, beside)
        for parse in (parse_store, parse_key_metadata):
            try:
                parse(beside)
            except ags1.FormatError as error:
                judge(error)
    service = kms.MemoryKms(MASTERS)
    decryption = parquet.DecryptionConfig.from_kms(service, check_footer_integrity=bool(choices.below(2)))
    with tempfile.TemporaryDirectory() as directory:
        path, target = os.path.join(directory, "f"), os.path.join(directory, "out")
        place = os.path.join(directory, "_KEY_MATERIAL_FOR_f.json")
        for name, content in ((path, whole), (place, beside)):
            if content:
                with open(name, "wb") as made:
                    made.write(content)
        names = set(os.listdir(directory))

        def succeeds(call: Callable[[], Any]) -> bool:
            try:
                call()
            except REFUSALS as error:
                judge(error)
                return False
            finally:
                left = set(os.listdir(directory)) - names
            assert left <= {"out"}, "it left something"
            return True

        calls: list[Callable[[], Any]] = [
            lambda: parquet.decrypt_file(path, target, decryption),
            lambda: parquet.rekey_file(path, target, decryption, parquet.EncryptionConfig(KEY, encrypt_all=True)),
            lambda: parquet.rotate_file(path, target, service),
        ]
        for call in calls:
            assert succeeds(call) == os.path.exists(target), "a target of what failed"
            if os.path.exists(target):
                os.unlink(target)
        look(path, decryption)
        if not internal:
            rotated = succeeds(lambda: parquet.rotate_master_keys(service, directory))
            with open(place, "rb") as file:
                assert rotated or file.read() == beside, "what failed has changed it"
            parquet.rotate_master_keys(service, directory, on_error="collect")


def change_key_metadata(choices: Choices, data: bytes, signed: bool) -> bytes:
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tree, used = decode(data, begin)
    places = [(tree, 9 if signed else 2)]
    if signed:
        places += [(chunk[8][2], 2) for group in tree[4] for chunk in group[1] if 8 in chunk]
    structure, field = choices.one_of(places)
    type_, value = structure.fields[field]
    structure.fields[field] = (type_, change_json(choices, value))
    tail = encode(tree) + data[used:-8]
    return data[:begin] + tail + struct.pack("<I", len(tail)) + data[-4:]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parquet_arrow": compare_with_arrow,
    "parquet_look": look_at_parquet,
    "key_material": key_material,
}
