"""Arrow buffers, tables, IPC streams and files: nothing is copied in vain, and every failure reaches the caller."""

from __future__ import annotations

import datetime
import decimal
import gc
import io
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests import checks
from tests.checks import (
    KEY,
    MIB,
    OTHER_KEY,
    PREFIX,
    CountingFile,
    block_start,
    blocks_of,
    damage,
    flip,
    open_descriptors,
)

pa = pytest.importorskip("pyarrow")

from ags1 import arrow  # noqa: E402  needs pyarrow

BLOCK = 64
INTS = pa.array([1, None, 3, 4, None])


def make_arrays() -> dict[str, Any]:
    """Arrays of many types, most with nulls."""
    words = ["a", None, "", "a longer text than a view holds inline", "a"]
    dates = [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]
    found = {
        "null": pa.nulls(7),
        "bool": pa.array([True, None, False] * 5),
        "int8": pa.array([1, None, -3], pa.int8()),
        "int64": pa.array(range(1000)),
        "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "float16": pa.array([1.5, None, -2.0], pa.float16()),
        "float64": pa.array([1.5, None, float("inf")]),
        "decimal128": pa.array([decimal.Decimal("1.23"), None], pa.decimal128(10, 2)),
        "decimal256": pa.array([decimal.Decimal("-9.99"), None], pa.decimal256(50, 2)),
        "date32": pa.array(dates, pa.date32()),
        "timestamp": pa.array([0, None, 10**15], pa.timestamp("us", "UTC")),
        "duration": pa.array([1, None], pa.duration("ns")),
        "string": pa.array(words),
        "large_string": pa.array(words, pa.large_string()),
        "binary": pa.array([b"\x00", None, b""], pa.binary()),
        "fixed_size_binary": pa.array([b"abcd", None, b"efgh"], pa.binary(4)),
        "list": pa.array([[1, None], None, [], [3]]),
        "large_list": pa.array([["a"], None, [None, "b"]], pa.large_list(pa.string())),
        "fixed_size_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2)),
        "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "nested": pa.array([[[{"a": [1, 2]}], None], [], None]),
        "dictionary": pa.array(words).dictionary_encode(),
        "empty": pa.array([], pa.string()),
        "sliced": pa.array(range(100)).slice(13, 40),
        "sliced-text": pa.array(["x" * index for index in range(50)]).slice(7, 20),
    }
    if hasattr(pa, "string_view"):
        found["string_view"] = pa.array(words, pa.string_view())
        found["binary_view"] = pa.array([b"x" * 50, None], pa.binary_view())
    if hasattr(pa, "run_end_encoded"):
        found["run_end_encoded"] = pa.RunEndEncodedArray.from_arrays([2, 5], ["a", None])
    return found


ARRAYS = make_arrays()


def make_table(rows: int = 100) -> Any:
    """A table with text, numbers and lists."""
    return pa.table(
        {
            "number": pa.array(range(rows), pa.int64()),
            "text": [f"row {index}" for index in range(rows)],
            "list": [[index] * (index % 3) for index in range(rows)],
        }
    )


TABLE = make_table()


def nested_buffers(array: Any) -> list[Any]:
    """All buffers of an array; of a dictionary's indices and values for one."""
    if pa.types.is_dictionary(array.type):
        return nested_buffers(array.indices) + nested_buffers(array.dictionary)
    return list(array.buffers())


def address_range(buffer: Any) -> range:
    """Addresses of a buffer's bytes."""
    return range(buffer.address, buffer.address + buffer.size)


# -- buffers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARRAYS)
def test_buffers_of_every_type_come_back(name: str) -> None:
    buffers = nested_buffers(ARRAYS[name])
    streams = arrow.encrypt_buffers(buffers, KEY, block_length=BLOCK)
    back = arrow.decrypt_buffers(streams, KEY)
    assert [None if found is None else found.to_pybytes() for found in back] == [
        None if found is None else found.to_pybytes() for found in buffers
    ]


@pytest.mark.parametrize("name", [name for name in ARRAYS if name not in {"dictionary", "run_end_encoded", "null"}])
def test_an_array_is_rebuilt_from_its_decrypted_buffers(name: str) -> None:
    array = ARRAYS[name]
    streams = arrow.encrypt_buffers(array.buffers(), KEY, block_length=BLOCK)
    rebuilt = rebuild(array, iter(arrow.decrypt_buffers(streams, KEY)))
    rebuilt.validate(full=True)
    assert rebuilt.equals(array)


def rebuild(array: Any, buffers: Iterator[Any]) -> Any:
    """An array like `array` over other buffers, in the order of ``buffers()``."""
    count = array.type.num_buffers
    if array.type in {getattr(pa, name)() for name in ("string_view", "binary_view") if hasattr(pa, name)}:
        return pa.Array.from_buffers(array.type, len(array), list(buffers), offset=array.offset)
    own = [next(buffers) for _ in range(count)]
    children = [rebuild(child, buffers) for child in children_of(array)]
    return pa.Array.from_buffers(array.type, len(array), own, offset=array.offset, children=children)


def children_of(array: Any) -> list[Any]:
    """The arrays below an array, with all that their buffers hold."""
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
        )
        return [entries]
    if pa.types.is_nested(array.type) and hasattr(array, "values"):
        return [array.values]
    if pa.types.is_struct(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    return []


def test_a_dictionary_array_is_rebuilt_from_indices_and_values() -> None:
    array = ARRAYS["dictionary"]
    streams = arrow.encrypt_buffers(nested_buffers(array), KEY)
    back = iter(arrow.decrypt_buffers(streams, KEY))
    rebuilt = pa.DictionaryArray.from_arrays(rebuild(array.indices, back), rebuild(array.dictionary, back))
    assert rebuilt.equals(array)


def test_an_absent_buffer_stays_absent() -> None:
    entries = [None, pa.py_buffer(b"a"), None, pa.py_buffer(b"b"), None]
    streams = arrow.encrypt_buffers(entries, KEY)
    assert [stream is None for stream in streams] == [True, False, True, False, True]
    back = arrow.decrypt_buffers(streams, KEY)
    assert [found and found.to_pybytes() for found in back] == [None, b"a", None, b"b", None]


def test_no_buffers_and_only_absent_ones_are_fine() -> None:
    for entries in ([], [None], [None, None]):
        assert arrow.encrypt_buffers(entries, KEY) == entries
        assert arrow.decrypt_buffers(entries, KEY) == entries


def test_an_empty_buffer_is_a_stream_of_its_own_and_authenticated() -> None:
    (stream,) = arrow.encrypt_buffers([pa.py_buffer(b"")], KEY)
    assert stream.size == 36
    (back,) = arrow.decrypt_buffers([stream], KEY)
    assert back.size == 0
    with pytest.raises(ags1.AuthenticationError):
        arrow.decrypt_buffers([flip(stream.to_pybytes(), 10)], KEY)


def test_each_stream_is_what_ags1_decrypts() -> None:
    buffers = [pa.py_buffer(checks.pattern(length)) for length in checks.edge_lengths(BLOCK)]
    prefixes = [b"p%d" % index for index in range(len(buffers))]
    streams = arrow.encrypt_buffers(buffers, KEY, aad_prefixes=prefixes, block_length=BLOCK)
    for buffer, stream, prefix in zip(buffers, streams, prefixes, strict=True):
        assert ags1.decrypt(stream, KEY, aad_prefix=prefix) == buffer.to_pybytes()


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_decrypted_buffers_are_aligned_as_arrow_recommends(threads: int | None) -> None:
    buffers = [pa.py_buffer(checks.pattern(length)) for length in (1, 63, 64, 65, 1000, 0, 7)]
    streams = arrow.encrypt_buffers(buffers, KEY, block_length=BLOCK, threads=threads)
    back = arrow.decrypt_buffers(streams, KEY, threads=threads)
    assert [found.to_pybytes() for found in back] == [found.to_pybytes() for found in buffers]
    assert all(found.address % 64 == 0 for found in back if found.size)


def test_prefixes_and_keys_belong_to_the_entries_also_beside_absent_ones() -> None:
    entries = [None, pa.py_buffer(b"a"), pa.py_buffer(b"b")]
    keys, prefixes = [OTHER_KEY, KEY, OTHER_KEY], [b"x", b"y", b"z"]
    streams = arrow.encrypt_buffers(entries, keys, aad_prefixes=prefixes)
    assert ags1.decrypt(streams[1], KEY, aad_prefix=b"y") == b"a"
    assert ags1.decrypt(streams[2], OTHER_KEY, aad_prefix=b"z") == b"b"
    back = arrow.decrypt_buffers(streams, keys, aad_prefixes=prefixes)
    assert [found and found.to_pybytes() for found in back] == [None, b"a", b"b"]


@pytest.mark.parametrize("entries", [[None, b"a"], [b"a", b"b"]])
def test_keys_and_prefixes_of_another_number_are_refused(entries: list[bytes | None]) -> None:
    for operation in (arrow.encrypt_buffers, arrow.decrypt_buffers):
        with pytest.raises(ValueError, match="keys"):
            operation(entries, [KEY])
        with pytest.raises(ValueError, match="prefixes"):
            operation(entries, KEY, aad_prefixes=[b"x"])


def test_swapped_buffers_are_detected_by_their_prefixes() -> None:
    prefixes = [b"left", b"right"]
    left, right = arrow.encrypt_buffers([b"1" * 100, b"2" * 100], KEY, aad_prefixes=prefixes)
    with pytest.raises(ags1.AuthenticationError, match="block 0"):
        arrow.decrypt_buffers([right, left], KEY, aad_prefixes=prefixes)


def test_a_damaged_buffer_is_named_and_none_is_returned() -> None:
    streams = arrow.encrypt_buffers([bytes(200), bytes(200)], KEY, block_length=BLOCK)
    streams[1] = damage(streams[1].to_pybytes(), BLOCK, 2)
    with pytest.raises(ags1.AuthenticationError, match="block 2") as caught:
        arrow.decrypt_buffers(streams, KEY)
    assert caught.value.block_index == 2


def test_a_damaged_buffer_is_named_by_its_place_also_beside_absent_ones() -> None:
    sealed = arrow.encrypt_buffers([None, b"one", None, b"two"], KEY)
    damaged = [*sealed[:3], pa.py_buffer(flip(bytes(sealed[3]), -1))]
    with pytest.raises(ags1.AuthenticationError, match=r"^buffer 3: block 0") as caught:
        arrow.decrypt_buffers(damaged, KEY)
    assert caught.value.item_index == 3


def test_inputs_are_read_where_they_lie() -> None:
    array = pa.array(range(4 * MIB))
    before = pa.total_allocated_bytes()
    streams = arrow.encrypt_buffers(array.buffers(), KEY)
    # Results lie in an arena that is not Arrow's, and nothing of the input was copied into Arrow's memory.
    assert pa.total_allocated_bytes() - before < 64 << 10
    back = arrow.decrypt_buffers(streams, KEY)
    assert pa.total_allocated_bytes() - before < 64 << 10
    assert back[1].equals(array.buffers()[1])


def test_results_share_one_arena_that_lives_as_long_as_any_of_them() -> None:
    streams = arrow.encrypt_buffers([bytes(100), b"x" * 100], KEY)
    back = arrow.decrypt_buffers(streams, KEY)
    second = back[1]
    del back, streams
    gc.collect()
    assert second.to_pybytes() == b"x" * 100
    assert not second.is_mutable


# -- tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARRAYS)
def test_a_table_of_every_type_comes_back(name: str) -> None:
    array = ARRAYS[name]
    table = pa.table({"column": array, "again": array}).replace_schema_metadata({"k": "v"})
    back = arrow.decrypt_table(arrow.encrypt_table(table, KEY, block_length=BLOCK), KEY)
    back.validate(full=True)
    assert back.equals(table, check_metadata=True)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: TABLE, id="table"),
        pytest.param(lambda: TABLE.to_batches()[0], id="batch"),
        pytest.param(lambda: TABLE.to_reader(max_chunksize=7), id="reader"),
    ],
)
def test_tables_batches_and_readers_are_encrypted(make: Callable[[], Any]) -> None:
    stream = arrow.encrypt_table(make(), KEY, aad_prefix=PREFIX, block_length=BLOCK)
    assert arrow.decrypt_table(stream, KEY, aad_prefix=PREFIX).equals(TABLE)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(pa.table({}), id="no-columns"),
        pytest.param(TABLE.slice(0, 0), id="no-rows"),
        pytest.param(TABLE.schema.empty_table(), id="no-chunks"),
        pytest.param(pa.chunked_array([[1], [], [2, 3]]), id="chunks"),
    ],
)
def test_a_table_with_little_in_it_comes_back(table: Any) -> None:
    if isinstance(table, pa.ChunkedArray):
        table = pa.table({"column": table})
    assert arrow.decrypt_table(arrow.encrypt_table(table, KEY), KEY).equals(table)


def test_the_columns_of_a_decrypted_table_lie_in_the_one_decrypted_allocation() -> None:
    table = make_table(20_000)
    stream = arrow.encrypt_table(table, KEY)
    size = ags1.plaintext_length(stream.size)
    before = pa.total_allocated_bytes()
    back = arrow.decrypt_table(stream, KEY)
    assert pa.total_allocated_bytes() - before < size + (64 << 10)
    ranges = [
        address_range(buffer)
        for column in back.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size
    ]
    assert len(ranges) >= 5
    assert max(found.stop for found in ranges) - min(found.start for found in ranges) <= size
    assert back.equals(table)


def test_a_table_is_an_ags1_stream_of_an_ipc_stream() -> None:
    stream = arrow.encrypt_table(TABLE, KEY, aad_prefix=PREFIX, block_length=BLOCK)
    plain = ags1.decrypt(stream, KEY, aad_prefix=PREFIX)
    assert pa.ipc.open_stream(plain).read_all().equals(TABLE)


def test_a_table_that_was_damaged_truncated_or_locked_by_another_key_is_refused() -> None:
    stream = arrow.encrypt_table(TABLE, KEY, block_length=BLOCK).to_pybytes()
    with pytest.raises(ags1.AuthenticationError, match="block 3"):
        arrow.decrypt_table(damage(stream, BLOCK, 3), KEY)
    with pytest.raises(ags1.AuthenticationError, match="block 0"):
        arrow.decrypt_table(stream, OTHER_KEY)
    with pytest.raises(ags1.AuthenticationError, match="block 0"):
        arrow.decrypt_table(stream, KEY, aad_prefix=b"other")
    with pytest.raises(ags1.TruncatedError, match="are missing at its end"):
        arrow.decrypt_table(stream[: block_start(5, BLOCK)], KEY, length=len(stream))
    for start in (b"", b"AGS1", b"PAR1" + bytes(100)):
        with pytest.raises(ags1.FormatError):
            arrow.decrypt_table(start, KEY)


def test_plaintext_that_is_no_ipc_stream_is_arrows_to_refuse() -> None:
    with pytest.raises(pa.ArrowInvalid):
        arrow.decrypt_table(ags1.encrypt(b"not an IPC stream at all", KEY), KEY)


@pytest.mark.parametrize("wrong", [None, [1, 2], {"a": [1]}, INTS, b"bytes"])
def test_what_is_no_table_is_refused_before_a_target_is_touched(tmp_path: Path, wrong: Any) -> None:
    message = f"a pyarrow Table, RecordBatch or RecordBatchReader is needed, not {type(wrong).__name__}"
    with pytest.raises(TypeError, match=message):
        arrow.encrypt_table(wrong, KEY)
    for write in (arrow.write_ipc_stream, arrow.write_ipc_file):
        with pytest.raises(TypeError, match=message):
            write(wrong, tmp_path / "out", KEY)
    assert not list(tmp_path.iterdir())


# -- IPC streams and files -----------------------------------------------------------------------------------

WRITERS = {"stream": arrow.write_ipc_stream, "file": arrow.write_ipc_file}


def read_back(kind: str, source: Any, **options: Any) -> Any:
    """The table in an encrypted IPC stream or file."""
    if kind == "stream":
        with arrow.open_ipc_stream(source, **options) as reader:
            return reader.read_all()
    with arrow.open_ipc_file(source, **options) as file:
        return file.read_all()


@pytest.mark.parametrize("kind", WRITERS)
def test_a_path_holds_what_was_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.arrow"
    metadata = WRITERS[kind](TABLE, path, KEY, aad_prefix=PREFIX, block_length=BLOCK)
    assert metadata == ags1.KeyMetadata(KEY, PREFIX, path.stat().st_size)
    for source in (path, str(path), path.read_bytes(), pa.py_buffer(path.read_bytes()), io.BytesIO(path.read_bytes())):
        assert read_back(kind, source, key_metadata=metadata).equals(TABLE)
    assert read_back(kind, path, key=KEY, aad_prefix=PREFIX, length=metadata.file_length).equals(TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_key_metadata_may_be_given_to_write(kind: str) -> None:
    sink = io.BytesIO()
    given = ags1.KeyMetadata.generate()
    metadata = WRITERS[kind](TABLE, sink, key_metadata=given)
    assert metadata == given.with_length(len(sink.getvalue()))
    assert read_back(kind, sink.getvalue(), key_metadata=metadata.encode()).equals(TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_arrows_own_sinks_and_sources_are_file_objects(kind: str) -> None:
    sink = pa.BufferOutputStream()
    WRITERS[kind](TABLE, sink, KEY)
    buffer = sink.getvalue()
    assert read_back(kind, buffer, key=KEY).equals(TABLE)
    assert read_back(kind, pa.BufferReader(buffer), key=KEY).equals(TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_remote_files_come_back(kind: str) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://arrow/{kind}"
    WRITERS[kind](TABLE, url, KEY)
    assert read_back(kind, url, key=KEY).equals(TABLE)


def test_a_stream_is_read_from_a_pipe() -> None:
    stream = arrow.encrypt_table(TABLE, KEY, block_length=BLOCK).to_pybytes()
    assert read_back("stream", checks.Pipe(stream, most=100), key=KEY).equals(TABLE)


@pytest.mark.timeout(60)
def test_a_stream_goes_through_an_operating_system_pipe_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            arrow.write_ipc_stream(TABLE.to_reader(max_chunksize=10), path, KEY, block_length=BLOCK)
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with arrow.open_ipc_stream(path, KEY) as reader:
        batches = list(reader)
    writer.join(600)
    assert not errors
    assert len(batches) == 10
    assert pa.Table.from_batches(batches).equals(TABLE)


def test_a_file_cannot_be_read_from_a_pipe() -> None:
    sink = io.BytesIO()
    arrow.write_ipc_file(TABLE, sink, KEY)
    with pytest.raises((OSError, io.UnsupportedOperation), match="seek"):
        arrow.open_ipc_file(checks.Pipe(sink.getvalue()), KEY)


@pytest.mark.parametrize("kind", WRITERS)
def test_compression_and_other_options_are_arrows(kind: str) -> None:
    plain, packed = io.BytesIO(), io.BytesIO()
    table = pa.table({"column": pa.array([7] * 10_000)})
    WRITERS[kind](table, plain, KEY)
    WRITERS[kind](table, packed, KEY, options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(packed.getvalue()) < len(plain.getvalue()) // 10
    assert read_back(kind, packed.getvalue(), key=KEY).equals(table)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_reader_of_batches_is_written_batch_by_batch(kind: str) -> None:
    sink = io.BytesIO()
    WRITERS[kind](TABLE.to_reader(max_chunksize=25), sink, KEY)
    assert read_back(kind, sink.getvalue(), key=KEY).column("number").num_chunks == 4


@pytest.mark.parametrize("kind", WRITERS)
def test_batches_that_fail_leave_no_file(tmp_path: Path, kind: str) -> None:
    def batches() -> Iterator[Any]:
        yield TABLE.to_batches()[0]
        raise RuntimeError("the query failed")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with pytest.raises(RuntimeError, match="the query failed"):
        WRITERS[kind](reader, tmp_path / "out", KEY)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_an_os_error_with_its_number(kind: str) -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        WRITERS[kind](make_table(10_000), checks.FailingWrites(after=1000), KEY, block_length=BLOCK, threads=1)
    assert caught.value.errno == 28


def test_a_stream_closes_its_path_when_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x"
    arrow.write_ipc_stream(TABLE, path, KEY)
    before = open_descriptors()
    for _ in range(3):
        reader = arrow.open_ipc_stream(path, KEY)
        reader.read_next_batch()
        del reader
    assert open_descriptors() == before


@pytest.mark.parametrize("open_", [arrow.open_ipc_stream, arrow.open_ipc_file])
def test_an_open_that_fails_closes_its_path(tmp_path: Path, open_: Callable[..., Any]) -> None:
    path = tmp_path / "x"
    path.write_bytes(ags1.encrypt(b"no IPC" * 100, KEY))
    before = open_descriptors()
    errors = []
    for _ in range(3):
        with pytest.raises(pa.ArrowInvalid) as caught:
            open_(path, KEY)
        # Its traceback keeps what was opened in sight: closed it must be all the same.
        errors.append(caught)
    assert open_descriptors() == before


# -- random access -------------------------------------------------------------------------------------------

BATCHES = 20
ROWS = 1000


@pytest.fixture(scope="module")
def wide() -> bytes:
    """An encrypted IPC file of many batches, each of several blocks."""
    sink = io.BytesIO()
    table = pa.table({"number": pa.array(range(BATCHES * ROWS))})
    arrow.write_ipc_file(table.to_reader(max_chunksize=ROWS), sink, KEY, block_length=1024)
    return sink.getvalue()


def test_batches_are_read_by_their_numbers(wide: bytes) -> None:
    with arrow.open_ipc_file(wide, KEY) as file:
        assert file.num_record_batches == BATCHES
        assert file.schema.names == ["number"]
        for index in (BATCHES - 1, 0, 7):
            assert file.read_batch(index).column(0)[0].as_py() == index * ROWS
        with pytest.raises((IndexError, ValueError)):
            file.read_batch(BATCHES)


def test_one_batch_of_many_touches_only_its_blocks(wide: bytes) -> None:
    source = CountingFile(wide)
    with arrow.open_ipc_file(source, KEY, threads=1) as file:
        opened = source.bytes_read
        assert opened < len(wide) // 4
        source.reads.clear()
        batch = file.read_batch(9)
    assert batch.num_rows == ROWS
    # 8000 bytes of numbers, the batch's own header, and whole blocks at either end.
    assert source.bytes_read < 3 * ROWS * 8


def test_damage_in_other_batches_does_not_keep_one_from_being_read(wide: bytes) -> None:
    count = len(blocks_of(wide, 1024))
    stream = wide
    for index in range(3, count // 3):
        stream = damage(stream, 1024, index)
    with arrow.open_ipc_file(stream, KEY) as file:
        last = file.read_batch(BATCHES - 1)
        assert last.column(0)[-1].as_py() == BATCHES * ROWS - 1
        with pytest.raises(ags1.AuthenticationError) as caught:
            file.read_batch(1)
    assert caught.value.block_index in range(3, count // 3)


def test_a_batch_outlives_its_file(wide: bytes) -> None:
    with arrow.open_ipc_file(wide, KEY) as file:
        batch = file.read_batch(3)
    del file
    gc.collect()
    assert batch.column(0)[0].as_py() == 3 * ROWS


def test_a_closed_file_says_so(tmp_path: Path, wide: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(wide)
    file = arrow.open_ipc_file(path, KEY)
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed file"):
        file.read_batch(0)


# -- failures that pass through Arrow ------------------------------------------------------------------------


# An IPC file's first block here has only a schema, which its footer repeats: Arrow does not read it.
@pytest.mark.parametrize(
    ("kind", "index"), [("stream", 0), ("stream", 9), ("stream", -1), ("file", 4), ("file", 9), ("file", -1)]
)
def test_a_damaged_block_reaches_the_caller_as_what_it_is(kind: str, index: int) -> None:
    sink = io.BytesIO()
    WRITERS[kind](make_table(1000), sink, KEY, block_length=256)
    stream = sink.getvalue()
    bad = index % len(blocks_of(stream, 256))
    with pytest.raises(ags1.AuthenticationError, match=f"block {bad} failed authentication") as caught:
        read_back(kind, damage(stream, 256, bad), key=KEY)
    assert caught.value.block_index == bad


@pytest.mark.parametrize("kind", WRITERS)
def test_a_wrong_key_reaches_the_caller_as_what_it_is(kind: str) -> None:
    sink = io.BytesIO()
    WRITERS[kind](TABLE, sink, KEY)
    with pytest.raises(ags1.AuthenticationError, match="wrong key"):
        read_back(kind, sink.getvalue(), key=OTHER_KEY)


def test_damage_in_a_late_batch_comes_after_the_good_ones() -> None:
    table = pa.table({"number": pa.array(range(400_000))})
    stream = arrow.encrypt_table(table.to_reader(max_chunksize=50_000), KEY).to_pybytes()
    with arrow.open_ipc_stream(checks.Pipe(damage(stream, MIB, 3)), KEY, threads=1) as reader:
        good = [reader.read_next_batch() for _ in range(7)]
        with pytest.raises(ags1.AuthenticationError, match="block 3"):
            reader.read_next_batch()
    assert pa.Table.from_batches(good).equals(table.slice(0, 350_000))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_disk_that_breaks_is_an_os_error(kind: str) -> None:
    sink = io.BytesIO()
    WRITERS[kind](make_table(10_000), sink, KEY, block_length=1024)
    stream = sink.getvalue()
    with pytest.raises(OSError, match="Input/output error") as caught:
        read_back(kind, checks.FailingReads(stream, after=len(stream) // 2), key=KEY, threads=1)
    assert caught.value.errno == 5


@pytest.mark.parametrize("kind", WRITERS)
def test_a_truncation_is_seen_before_anything_is_read(kind: str) -> None:
    sink = io.BytesIO()
    metadata = WRITERS[kind](TABLE, sink, KEY, block_length=BLOCK)
    with pytest.raises(ags1.TruncatedError, match="missing at its end"):
        read_back(kind, sink.getvalue()[: block_start(4, BLOCK)], key_metadata=metadata)


def test_readers_are_not_kept_alive_by_errors() -> None:
    stream = damage(arrow.encrypt_table(TABLE, KEY, block_length=BLOCK).to_pybytes(), BLOCK, 9)
    source = io.BytesIO(stream)
    gone = weakref.ref(source)
    with pytest.raises(ags1.AuthenticationError):
        arrow.open_ipc_stream(source, KEY).read_all()
    del source
    gc.collect()
    assert gone() is None


# -- without pyarrow -----------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_without_pyarrow_the_extra_to_install_is_named() -> None:
    code = textwrap.dedent(
        """
        import sys
        sys.modules["pyarrow"] = None
        import ags1
        assert ags1.decrypt(ags1.encrypt(b"x", bytes(16)), bytes(16)) == b"x"
        try:
            ags1.arrow
        except ImportError as error:
            print(error)
        """
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=600, text=True)
    assert shown.stdout == "ags1.arrow needs pyarrow: pip install 'ags1[arrow]'\n"
