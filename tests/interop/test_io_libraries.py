"""Libraries that read and write binary files, through ags1.Writer and ags1.Reader instead of open()."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import fastavro
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import s3fs
from moto.server import ThreadedMotoServer

import ags1
from tests.checks import KEY, PREFIX, pattern

# Small, so that every library's reads and seeks cross many block edges; and Iceberg's own.
BLOCK_LENGTHS = (1000, 1 << 20)
ROWS = 20_000
TEXTS = {f"part/{number}.txt": pattern(1000 * number, number) for number in range(12)}
AVRO_SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string"}],
}


def table() -> pa.Table:
    return pa.table(
        {
            "number": pa.array(range(ROWS), pa.int64()),
            "real": pa.array([number / 7 for number in range(ROWS)]),
            "text": pa.array([str(number) * (number % 5) for number in range(ROWS)]),
            "maybe": pa.array([None if number % 3 == 0 else number for number in range(ROWS)], pa.int32()),
        }
    )


# -- each writes to a binary file and reads from one: what it reads is compared ------------------------------


def write_zip(file: Any) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in TEXTS.items():
            archive.writestr(name, data)


def read_zip(file: Any) -> Any:
    with zipfile.ZipFile(file) as archive:
        # In an order that seeks back and forth.
        names = sorted(archive.namelist(), key=lambda name: name[::-1])
        assert archive.testzip() is None
        return {name: archive.read(name) for name in names}


def write_tar(file: Any) -> None:
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in TEXTS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def read_tar(file: Any) -> Any:
    with tarfile.open(fileobj=file, mode="r") as archive:
        members = reversed(archive.getmembers())
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def write_gzip(file: Any) -> None:
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(b"".join(TEXTS.values()))


def read_gzip(file: Any) -> Any:
    with gzip.GzipFile(fileobj=file) as packed:
        start = packed.read(100)
        packed.seek(0)
        whole = packed.read()
        assert whole[:100] == start
        return whole


def write_csv(file: Any) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    csv.writer(text).writerows((number, f"é{number}", number / 3) for number in range(ROWS))
    text.flush()
    text.detach()


def read_csv(file: Any) -> Any:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        return list(csv.reader(text))


def write_json(file: Any) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8")
    for number in range(ROWS):
        text.write(json.dumps({"number": number, "text": "ü" * (number % 9)}) + "\n")
    text.flush()
    text.detach()


def read_json(file: Any) -> Any:
    return [json.loads(line) for line in file]


def write_ipc_stream(file: Any) -> None:
    with pa.ipc.new_stream(file, table().schema) as writer:
        writer.write_table(table(), max_chunksize=3000)


def write_ipc_file(file: Any) -> None:
    with pa.ipc.new_file(file, table().schema) as writer:
        writer.write_table(table(), max_chunksize=3000)


def read_ipc_file(file: Any) -> Any:
    with pa.ipc.open_file(file) as reader:
        batches = [reader.get_batch(index) for index in reversed(range(reader.num_record_batches))]
        return pa.Table.from_batches(batches[::-1])


def read_ipc_stream(file: Any) -> Any:
    with pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def write_parquet(file: Any) -> None:
    pq.write_table(table(), file, row_group_size=3000)


def read_parquet(file: Any) -> Any:
    parquet = pq.ParquetFile(file)
    assert parquet.read_row_group(4, columns=["text"]) == table().select(["text"]).slice(12_000, 3000)
    return parquet.read()


def through_python_file(function: Callable[[Any], Any], mode: str) -> Callable[[Any], Any]:
    def call(file: Any) -> Any:
        # Not as a context: that would close the file below it, which its opener does here.
        native = pa.PythonFile(file, mode)
        answer = function(native)
        if mode == "w":
            native.flush()
        return answer

    return call


def write_avro(file: Any) -> None:
    rows = [{"number": number, "text": str(number)} for number in range(ROWS)]
    fastavro.writer(file, AVRO_SCHEMA, rows, codec="deflate")


def read_avro_blocks(file: Any) -> Any:
    return [row for block in fastavro.block_reader(file) for row in block]


@dataclass(frozen=True)
class Library:
    """Two functions of a binary file, which both leave open."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


LIBRARIES = {
    "zipfile": Library(write_zip, read_zip),
    "tarfile": Library(write_tar, read_tar),
    "gzip": Library(write_gzip, read_gzip),
    "csv": Library(write_csv, read_csv),
    "json": Library(write_json, read_json),
    "pyarrow ipc stream": Library(write_ipc_stream, read_ipc_stream),
    "pyarrow ipc file": Library(write_ipc_file, read_ipc_file),
    "pyarrow csv": Library(lambda file: pa.csv.write_csv(table(), file), pa.csv.read_csv),
    "pyarrow feather": Library(lambda file: pa.feather.write_feather(table(), file), pa.feather.read_table),
    "pyarrow parquet": Library(write_parquet, read_parquet),
    "pyarrow parquet in a PythonFile": Library(
        through_python_file(write_parquet, "w"), through_python_file(read_parquet, "r")
    ),
    "pyarrow ipc in a PythonFile": Library(
        through_python_file(write_ipc_file, "w"), through_python_file(read_ipc_file, "r")
    ),
    "fastavro reader": Library(write_avro, lambda file: list(fastavro.reader(file))),
    "fastavro block_reader": Library(write_avro, read_avro_blocks),
    "pandas csv": Library(lambda file: table().to_pandas().to_csv(file, index=False), pd.read_csv),
    "pandas parquet": Library(lambda file: table().to_pandas().to_parquet(file), pd.read_parquet),
    "pandas feather": Library(lambda file: table().to_pandas().to_feather(file), pd.read_feather),
    "pandas json": Library(
        lambda file: table().to_pandas().to_json(file, orient="records", lines=True),
        lambda file: pd.read_json(file, lines=True),
    ),
    "polars csv": Library(lambda file: pl.from_arrow(table()).write_csv(file), pl.read_csv),
    "polars parquet": Library(lambda file: pl.from_arrow(table()).write_parquet(file), pl.read_parquet),
    "polars ipc": Library(lambda file: pl.from_arrow(table()).write_ipc(file), pl.read_ipc),
    "polars ipc stream": Library(lambda file: pl.from_arrow(table()).write_ipc_stream(file), pl.read_ipc_stream),
    "polars avro": Library(lambda file: pl.from_arrow(table()).write_avro(file), pl.read_avro),
}


def same(first: Any, second: Any) -> bool:
    """Whether two results of a library are equal, whatever equality is called there."""
    if hasattr(first, "equals"):
        return bool(first.equals(second))
    return bool(first == second)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("block_length", BLOCK_LENGTHS)
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_library_reads_and_writes_as_without_encryption(name: str, block_length: int, tmp_path: Path) -> None:
    library = LIBRARIES[name]
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    with open(plain, "wb") as file:
        library.write(file)
    with ags1.open(sealed, "wb", key=KEY, aad_prefix=PREFIX, block_length=block_length) as writer:
        library.write(writer)
        assert not sealed.exists(), "only the end of the Writer's block publishes"
    length = sealed.stat().st_size
    with open(plain, "rb") as file:
        expected = library.read(file)
    with ags1.open(sealed, key=KEY, aad_prefix=PREFIX, length=length) as reader:
        assert same(library.read(reader), expected), "written and read encrypted"
    ags1.encrypt_file(plain, sealed, KEY, aad_prefix=PREFIX, block_length=block_length)
    with ags1.open(sealed, key=KEY, aad_prefix=PREFIX) as reader:
        assert same(library.read(reader), expected), "encrypted as a file, read encrypted"


@pytest.mark.parametrize("name", ["pyarrow parquet", "zipfile", "fastavro reader", "pandas csv"])
def test_damage_stops_a_library(name: str, tmp_path: Path) -> None:
    library = LIBRARIES[name]
    path = tmp_path / "sealed"
    with ags1.open(path, "wb", key=KEY, block_length=1000) as writer:
        library.write(writer)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    with ags1.open(damaged, key=KEY) as reader, pytest.raises(Exception, match="failed authentication"):
        library.read(reader)


def test_text_through_a_text_wrapper_seeks_and_tells() -> None:
    lines = [f"Zeile {number}: größer\n" for number in range(3000)]
    sink = io.BytesIO()
    with ags1.open(sink, "wb", key=KEY, block_length=100) as writer:
        text = io.TextIOWrapper(writer, encoding="utf-8")
        text.writelines(lines)
        text.flush()
        text.detach()
    with io.TextIOWrapper(ags1.open(sink.getvalue(), key=KEY), encoding="utf-8") as text:
        assert text.readline() == lines[0]
        mark = text.tell()
        assert text.read() == "".join(lines[1:])
        text.seek(mark)
        assert text.readlines() == lines[1:]


def test_arrow_reads_a_whole_stream_without_a_temporary_file() -> None:
    sink = pa.BufferOutputStream()
    with ags1.open(sink, "wb", key=KEY, block_length=1000) as writer:
        pq.write_table(table(), writer)
    stored = sink.getvalue()
    with ags1.open(stored, key=KEY) as reader:
        assert pq.read_table(reader) == table()
    native = pa.BufferReader(stored)
    with ags1.open(native, key=KEY) as reader:
        assert pq.read_table(reader) == table()
    assert not native.closed


# -- fsspec --------------------------------------------------------------------------------------------------


@pytest.fixture
def memory_url() -> Iterator[str]:
    store = fsspec.filesystem("memory")
    yield "memory://ags1-tests/data.ags1"
    if store.exists("/ags1-tests"):
        store.rm("/ags1-tests", recursive=True)


@dataclass(frozen=True)
class Request:
    """One request to the S3 server; `first` and `last` byte if it asks for a range."""

    method: str
    path: str
    range: tuple[int, int] | None


OPENING = Request("GET", "/tests/data.ags1", (0, 65_535))


@dataclass
class Bucket:
    """A bucket of a real S3 server on the loopback interface."""

    client: Any
    requests: list[Request]

    def url(self, name: str) -> str:
        return f"s3://tests/{name}"

    def names(self) -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket="tests").get("Contents", ())]

    def unfinished(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket="tests")
        return [upload["Key"] for upload in found.get("Uploads", ())]

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket="tests", Key=name, Body=data)

    def get(self, name: str) -> bytes:
        return self.client.get_object(Bucket="tests", Key=name)["Body"].read()

    def asked(self) -> list[Request]:
        """What was asked for since the last time, other than by the test itself."""
        asked = list(self.requests)
        self.requests.clear()
        return asked


@pytest.fixture(scope="module")
def s3_server() -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.delenv("AWS_PROFILE", raising=False)
        s3fs.S3FileSystem.clear_instance_cache()
        client = boto3.session.Session().client("s3")
        client.create_bucket(Bucket="tests")
        # The instance that every s3:// URL without options gets.
        file_system, _ = fsspec.core.url_to_fs("s3://tests/any")
        file_system.connect()
        requests: list[Request] = []
        wsgi: Any = server._server
        application = wsgi.app

        def record(environ: dict[str, Any], respond: Any) -> Any:
            text = environ.get("HTTP_RANGE")
            if not environ.get("HTTP_USER_AGENT", "").startswith("Boto3"):
                span = tuple(map(int, text.removeprefix("bytes=").split("-"))) if text else None
                path = environ["PATH_INFO"]
                requests.append(Request(environ["REQUEST_METHOD"], path, span))  # type: ignore[arg-type]
            return application(environ, respond)

        wsgi.app = record
        yield Bucket(client, requests)
        client.close()
        s3fs.S3FileSystem.close_session(file_system.loop, file_system._s3)
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def bucket(s3_server: Bucket) -> Bucket:
    for name in s3_server.names():
        s3_server.client.delete_object(Bucket="tests", Key=name)
    s3fs.S3FileSystem.current().invalidate_cache()
    s3_server.requests.clear()
    return s3_server


TIMEOUT = pytest.mark.timeout(120)
OPEN = {"key": KEY, "aad_prefix": PREFIX}
STRIDE = 1000 + 28


@pytest.mark.parametrize("length", [0, 1, 1000, 50_007])
def test_memory_urls(length: int, memory_url: str) -> None:
    with ags1.open(memory_url, "wb", **OPEN, block_length=1000) as writer:
        writer.write(pattern(length))
        assert not fsspec.filesystem("memory").exists(memory_url)
    with ags1.open(memory_url, **OPEN, length=writer.encrypted_length) as reader:
        assert reader.name == memory_url
        assert reader.pread(length // 2, 10) == pattern(length)[length // 2 :][:10]
        assert reader.read() == pattern(length)
    with fsspec.open(memory_url, "rb") as file, ags1.open(file, **OPEN) as reader:
        assert reader.read() == pattern(length)


def test_an_aborted_writer_leaves_a_memory_url_as_it_was(memory_url: str) -> None:
    store = fsspec.filesystem("memory")

    def body() -> None:
        with ags1.open(memory_url, "wb", **OPEN, block_length=1000) as writer:
            writer.write(pattern(5000))
            writer.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()
    assert not store.exists(memory_url)
    store.pipe(memory_url, b"old")
    with pytest.raises(KeyboardInterrupt):
        body()
    assert store.cat(memory_url) == b"old"


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("memory://tests/x", "fsspec", "fsspec"), ("s3://without-obstore/x", "obstore.store", "objects")],
)
def test_without_a_library_its_extra_is_named(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    for mode in ("rb", "wb"):
        with pytest.raises(ImportError, match=rf"{url} needs .*: pip install 'ags1\[{extra}\]'"):
            ags1.open(url, mode, key=KEY)


@TIMEOUT
@pytest.mark.parametrize("length", [0, 1, 1000, 6 << 20, (60 << 20) + 1])
def test_s3_round_trip(length: int, bucket: Bucket) -> None:
    data = pattern(length)
    with ags1.open(bucket.url("data.ags1"), "wb", **OPEN) as writer:
        writer.write(data)
        assert bucket.names() == [], "nothing before close"
    assert bucket.names() == ["data.ags1"]
    assert bucket.unfinished() == []
    stored = bucket.get("data.ags1")
    assert len(stored) == writer.encrypted_length
    assert ags1.decrypt(stored, KEY, aad_prefix=PREFIX) == data
    with ags1.open(bucket.url("data.ags1"), **OPEN, length=writer.encrypted_length) as reader:
        assert reader.read() == data
        assert reader.pread(length // 2, 5000) == data[length // 2 :][:5000]


@TIMEOUT
def test_s3_a_pread_is_one_request_for_just_the_blocks_that_it_touches(bucket: Bucket) -> None:
    data = pattern(200_000)
    bucket.put("data.ags1", ags1.encrypt(data, KEY, aad_prefix=PREFIX, block_length=1000))
    with ags1.open(bucket.url("data.ags1"), **OPEN) as reader:
        assert bucket.asked() == [OPENING], "which tells its length too"
        for offset, size in ((57_123, 100), (0, 1000), (10_999, 2), (150_500, 20_000), (199_999, 5000)):
            assert reader.pread(offset, size) == data[offset : offset + size]
            first, last = offset // 1000, (min(offset + size, len(data)) - 1) // 1000
            start, end = 8 + first * STRIDE, 8 + (last + 1) * STRIDE - 1
            wanted = [Request("GET", "/tests/data.ags1", (start, end))]
            assert bucket.asked() == ([] if end <= OPENING.range[1] else wanted)  # type: ignore[index]
        assert reader.pread(199_500, 10) == data[199_500:199_510]
        assert bucket.asked() == [], "the block was kept"


@TIMEOUT
def test_s3_sequential_reading_asks_for_each_byte_once_in_few_requests(bucket: Bucket) -> None:
    data = pattern(40 << 20)
    stored = ags1.encrypt(data, KEY, aad_prefix=PREFIX)
    bucket.put("data.ags1", stored)
    with ags1.open(bucket.url("data.ags1"), **OPEN) as reader:
        assert b"".join(iter(lambda: reader.read(100_000), b"")) == data
    ranges = [request.range for request in bucket.asked() if request.method == "GET"]
    assert None not in ranges, "never the whole file"
    assert ranges[0] == OPENING.range
    covered = sorted(ranges[1:])  # type: ignore[type-var]
    assert [first for first, _ in covered[1:]] == [last + 1 for _, last in covered[:-1]]
    assert (covered[0][0], covered[-1][1]) == (8, len(stored) - 1)
    assert len(ranges) <= 20


@TIMEOUT
def test_s3_the_tail_of_a_file_takes_nothing_else_of_it(bucket: Bucket) -> None:
    bucket.put("data.ags1", ags1.encrypt(pattern(200_000), KEY, aad_prefix=PREFIX, block_length=1000))
    with ags1.open(bucket.url("data.ags1"), **OPEN) as reader:
        bucket.asked()
        reader.seek(-8, 2)
        assert reader.read() == pattern(200_000)[-8:]
        assert {request.range for request in bucket.asked()} == {(8 + 199 * STRIDE, 8 + 200 * STRIDE - 1)}


@TIMEOUT
@pytest.mark.parametrize("length", [0, 3000, 60 << 20])
@pytest.mark.parametrize("how", ["raise", "abort"])
def test_s3_an_aborted_writer_leaves_no_object_and_no_upload(how: str, length: int, bucket: Bucket) -> None:
    def body() -> None:
        with ags1.open(bucket.url("data.ags1"), "wb", **OPEN) as writer:
            writer.write(bytes(length))
            writer.flush()
            if how == "raise":
                raise KeyboardInterrupt
            writer.abort()

    for old in (None, b"old"):
        if old is not None:
            bucket.put("data.ags1", old)
        if how == "raise":
            with pytest.raises(KeyboardInterrupt):
                body()
        else:
            body()
        gc.collect()
        assert bucket.unfinished() == []
        assert bucket.names() == ([] if old is None else ["data.ags1"])
    assert bucket.get("data.ags1") == b"old"


@TIMEOUT
def test_s3_a_dropped_writer_leaves_no_object(bucket: Bucket) -> None:
    writer = ags1.open(bucket.url("data.ags1"), "wb", **OPEN)
    writer.write(bytes(5000))
    with pytest.warns(ResourceWarning, match="unclosed Writer s3://tests/data"):
        del writer
    gc.collect()
    assert (bucket.names(), bucket.unfinished()) == ([], [])


@TIMEOUT
def test_s3_file_objects_of_fsspec_are_read_by_ranges_too(bucket: Bucket) -> None:
    data = pattern(200_000)
    bucket.put("data.ags1", ags1.encrypt(data, KEY, aad_prefix=PREFIX, block_length=1000))
    with fsspec.open(bucket.url("data.ags1"), "rb") as file:
        with ags1.open(file, **OPEN) as reader:
            bucket.asked()
            assert reader.pread(57_123, 100) == data[57_123:57_223]
            assert [request.range for request in bucket.asked()] == [(8 + 57 * STRIDE, 8 + 58 * STRIDE - 1)]
        assert not file.closed
    with fsspec.open(bucket.url("other.ags1"), "wb") as file:
        with ags1.open(file, "wb", **OPEN) as writer:
            writer.write(data)
    assert ags1.decrypt(bucket.get("other.ags1"), KEY, aad_prefix=PREFIX) == data


@TIMEOUT
def test_s3_whole_files(bucket: Bucket, tmp_path: Path) -> None:
    plain, back = tmp_path / "plain", tmp_path / "back"
    plain.write_bytes(pattern(20 << 20))
    calls: list[tuple[int, int | None]] = []
    metadata = ags1.encrypt_file(plain, bucket.url("data.ags1"), progress=lambda *call: calls.append(call))
    assert (calls[0], calls[-1]) == ((0, 20 << 20), (20 << 20, 20 << 20))
    assert ags1.decrypt_file(bucket.url("data.ags1"), back, key_metadata=metadata) == 20 << 20
    assert back.read_bytes() == plain.read_bytes()
    ags1.decrypt_file(bucket.url("data.ags1"), bucket.url("plain"), key_metadata=metadata)
    assert bucket.get("plain") == plain.read_bytes()

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    for function, source in ((ags1.encrypt_file, plain), (ags1.decrypt_file, bucket.url("data.ags1"))):
        key: dict[str, Any] = {"key_metadata": metadata} if function is ags1.decrypt_file else {}
        with pytest.raises(KeyboardInterrupt):
            function(source, bucket.url("stopped"), progress=stop, **key)
    assert bucket.names() == ["data.ags1", "plain"]
    assert bucket.unfinished() == []


@TIMEOUT
def test_s3_what_is_wrong_is_named(bucket: Bucket) -> None:
    stored = ags1.encrypt(pattern(200_000), KEY, aad_prefix=PREFIX, block_length=1000)
    bucket.put("data.ags1", stored)
    url = bucket.url("data.ags1")
    with pytest.raises(FileNotFoundError, match="no-such"):
        ags1.open(bucket.url("no-such"), **OPEN)
    with pytest.raises(ags1.TruncatedError, match=f"{url}: has .* 7 bytes are missing"):
        ags1.open(url, **OPEN, length=len(stored) + 7)
    with ags1.open(url, key=KEY) as reader, pytest.raises(ags1.AuthenticationError, match=f"{url}: block 3"):
        reader.pread(3000, 1)
    with ags1.open(url, **OPEN) as reader:
        bucket.put("data.ags1", stored[:100_000])
        with pytest.raises(OSError, match=f"changed .*{url}"):
            reader.pread(90_000, 2000)


@TIMEOUT
def test_s3_finished_files_are_not_kept_by_the_file_system(bucket: Bucket) -> None:
    for _ in range(3):
        with ags1.open(bucket.url("data.ags1"), "wb", **OPEN) as writer:
            writer.write(b"data")
    assert not s3fs.S3FileSystem.current().transaction.files


@TIMEOUT
def test_s3_parquet_by_url(bucket: Bucket) -> None:
    with ags1.open(bucket.url("table.parquet.ags1"), "wb", **OPEN) as writer:
        pq.write_table(table(), writer, row_group_size=3000)
    with ags1.open(bucket.url("table.parquet.ags1"), **OPEN) as reader:
        assert pq.read_table(reader, columns=["maybe", "text"]) == table().select(["maybe", "text"])
