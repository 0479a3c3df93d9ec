"""Object stores through obstore, on a real S3 server: what the room promises, beyond what the client does."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.storage import (
    Location,
    PlannedSource,
    Source,
    create,
    is_directory,
    list_files,
    match,
    open_output,
    open_source,
    read_whole,
    remove,
    status,
)
from tests.checks import HANG_SECONDS, KEY, run_python
from tests.servers.fixtures import needs_credentials
from tests.servers.s3 import S3Server

MIB = 1 << 20


@pytest.fixture
def lake(s3_server: S3Server, s3_bucket: str) -> Location:
    return Location(f"s3://{s3_bucket}", s3_server.storage_options())


def put(location: Location, data: bytes) -> None:
    with open_output(location) as output:
        output.write(data)
        output.commit()


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 20 * MIB + 1])
def test_an_object_is_written_and_read_at_any_position(lake: Location, size: int) -> None:
    data = os.urandom(size)
    put(lake.join("a/b c#%.bin"), data)
    source: Any = open_source(lake.join("a/b c#%.bin"))
    assert source.size == size
    for offset, length in [(0, size), (size // 2, size - size // 2), (max(0, size - 1), min(1, size)), (size, 0)]:
        assert bytes(memoryview(source.read(offset, length))) == data[offset : offset + length]
    with pytest.raises(ags1.TruncatedError, match="only"):
        source.read(size // 2, size + 1)


def test_a_number_in_a_name_or_in_a_request_id_is_no_status(
    s3_server: S3Server, s3_bucket: str, shaping_proxy: Any
) -> None:
    """416 is what a range of an empty object is refused with; only then the object is asked for again."""
    through = s3_server.through(shaping_proxy.endpoint).storage_options()
    lake = Location(f"s3://{s3_bucket}", through)
    with pytest.raises(FileNotFoundError):
        read_whole(lake.join("416"), 10)
    assert not shaping_proxy.log().only("HEAD")
    put(lake.join("416 empty"), b"")
    assert bytes(memoryview(read_whole(lake.join("416 empty"), 10))) == b""


def test_marks_of_directories_are_no_files(lake: Location, s3_server: S3Server) -> None:
    """Consoles and Hadoop make them; a file without content is one, though it stands beside them."""
    names = ["day=1/a.csv", "day=1/_SUCCESS", "day=1.csv", "empty"]
    for name in names:
        put(lake.join("raw").join(name), b"" if name in ("day=1/_SUCCESS", "empty") else b"data")
    for mark in ("raw/day=1/", "raw/new folder/", "raw/"):
        s3_server.client().put_object(Bucket=lake.container, Key=mark, Body=b"")
    assert [each.name for each in list_files(lake.join("raw"))] == sorted(names)
    assert [each.name for each in match(Location(f"{lake.text}/raw/*", lake.storage_options))] == ["day=1.csv", "empty"]


def test_nothing_appears_before_the_commit_and_nothing_after_an_abort(lake: Location) -> None:
    with open_output(lake.join("small")) as output:
        output.write(b"data")
    with open_output(lake.join("large")) as output:
        for _ in range(40):
            output.write_owned(os.urandom(MIB))
    with pytest.raises(FileNotFoundError, match="small"):
        status(lake.join("small"))
    assert list_files(lake.join("")) == [] if is_directory(lake) else True


def test_an_upload_that_was_given_up_leaves_no_parts(s3_server: S3Server, lake: Location) -> None:
    with open_output(lake.join("large")) as output:
        for _ in range(40):
            output.write_owned(os.urandom(MIB))
    client, until = s3_server.client(), time.monotonic() + HANG_SECONDS
    while client.list_multipart_uploads(Bucket=lake.container).get("Uploads"):
        assert time.monotonic() < until, "the parts stay"


def test_of_many_that_create_a_file_one_wins(lake: Location, tmp_path: Path) -> None:
    for place in (lake.join("pointer"), Location(tmp_path / "pointer")):
        won: list[int] = []
        barrier = threading.Barrier(8)

        def work(
            index: int, place: Location = place, won: list[int] = won, barrier: threading.Barrier = barrier
        ) -> None:
            barrier.wait(HANG_SECONDS)
            try:
                create(place, f"writer {index}".encode())
                won.append(index)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
        assert len(won) == 1
        source: Any = open_source(place)
        assert bytes(memoryview(source.read(0, source.size))) == f"writer {won[0]}".encode()


def test_create_is_refused_by_name_where_it_cannot_be_promised() -> None:
    with pytest.raises(OSError, match="only if it is absent") as error:
        create(Location("memory://x/pointer"), b"")
    assert error.value.errno == errno.ENOTSUP


def test_an_object_that_is_replaced_while_it_is_read_is_noticed(lake: Location) -> None:
    place = lake.join("changing")
    put(place, b"1" * MIB)
    source: Any = open_source(place)
    put(place, b"2" * MIB)
    with pytest.raises(OSError, match="changed after it was opened") as error:
        source.read(MIB // 2, 100)
    assert error.value.errno == errno.ESTALE
    assert error.value.filename == str(place)


@pytest.mark.parametrize("name", ["a//b", "a/../b", "a/", "a\nb", "./a"])
def test_a_name_that_the_client_would_change_is_refused(name: str) -> None:
    """The threat: obstore drops slashes, so that one object is taken for another."""
    with pytest.raises(OSError, match="this name cannot be used") as error:
        put(Location(f"gs://lake/{name}", {"skip_signature": True}), b"")
    assert error.value.errno == errno.EINVAL


def test_missing_objects_and_denied_ones_are_told_apart(s3_server: S3Server, lake: Location) -> None:
    needs_credentials(s3_server)
    with pytest.raises(FileNotFoundError, match="nothing"):
        open_source(lake.join("nothing"))
    wrong = Location(f"{lake}/x", {**lake.storage_options, "secret_access_key": "wrong", "max_retries": 0})
    with pytest.raises(PermissionError) as error:
        open_source(wrong)
    assert "\n" not in str(error.value)
    assert s3_server.secret_key not in str(error.value)


def test_listings_and_patterns(lake: Location) -> None:
    names = ["raw/a.csv", "raw/b.json", "raw/day=1/c.csv", "raw/day=1/d/e.csv", "rawer/f.csv"]
    for name in names:
        put(lake.join(name), b"12345")
    assert [entry.name for entry in list_files(lake.join("raw"))] == [name[4:] for name in names[:4]]
    assert [entry.name for entry in list_files(lake)] == sorted(names)
    assert {entry.size for entry in list_files(lake)} == {5}
    assert [entry.name for entry in match(lake.join("raw/*.csv"))] == ["a.csv"]
    assert [entry.name for entry in match(lake.join("raw/**/*.csv"))] == ["a.csv", "day=1/c.csv", "day=1/d/e.csv"]
    assert is_directory(lake.join("raw"))
    assert not is_directory(lake.join("ra"))
    remove([lake.join("raw/a.csv"), lake.join("raw/none")])
    assert [entry.name for entry in match(lake.join("raw/*"))] == ["b.json"]
    with pytest.raises(FileNotFoundError):
        list_files(lake.join("ra"))


def test_a_stream_in_a_store_is_what_a_plain_file_would_be(lake: Location) -> None:
    data = os.urandom(30 * MIB + 17)
    place = lake.join("stream.ags1")
    with ags1.open(place, "wb", key=KEY) as writer:
        for begin in range(0, len(data), 700_001):
            writer.write(data[begin : begin + 700_001])
    with ags1.open(place, key=KEY, length=writer.encrypted_length) as reader:
        assert reader.read(100) == data[:100]
        pieces = []
        while piece := reader.read(333_333):
            pieces.append(piece)
        assert b"".join(pieces) == data[100:]
        for offset in (29 * MIB, 5, 15 * MIB - 3, 0):
            assert reader.seek(offset) == offset
            assert reader.read(2 * MIB) == data[offset : offset + 2 * MIB]
        assert reader.pread(10 * MIB - 5, 12 * MIB) == data[10 * MIB - 5 : 22 * MIB - 5]


def test_a_source_that_fetches_ahead_returns_what_the_object_has(lake: Location) -> None:
    data = os.urandom(25 * MIB)
    put(lake.join("a"), data)
    opened = open_source(lake.join("a"))
    assert isinstance(opened, Source)
    source = PlannedSource(opened)
    source.will_read([(0, 100), (MIB, 9 * MIB), (9 * MIB, 25 * MIB)])
    at = 0
    for length in [100, 5, MIB, 3, 10 * MIB, 7 * MIB, 1]:
        assert bytes(memoryview(source.read(at, length))) == data[at : at + length]
        at += length
    assert bytes(memoryview(source.read(3, 4))) == data[3:7]
    source.close()


def test_a_forked_child_of_a_process_that_used_a_store_is_told_so(lake: Location, s3_server: S3Server) -> None:
    """The threat: the client's threads did not survive the fork, and its next call never returns."""
    put(lake.join("a"), b"data")
    shown = run_python(
        f"""
        import os
        from ags1.storage import Location, open_source
        place = Location({str(lake.join("a"))!r}, {lake.storage_options!r})
        unused = Location("s3://other/a", {{"region": "us-east-1"}})
        assert bytes(open_source(place).read(0, 4)) == b"data"
        codes = set()
        for _ in range(50):
            child = os.fork()
            if child == 0:
                try:
                    open_source(place)
                except OSError as error:
                    os._exit(7 if "spawn" in str(error) and "forkserver" in str(error) else 8)
                os._exit(9)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(codes, bytes(open_source(place).read(0, 4)))
        """
    )
    assert shown.strip() == "{7} b'data'"


def test_first_use_after_the_fork_is_safe(lake: Location) -> None:
    """PySpark's workers are forked before they read anything."""
    put(lake.join("a"), b"data")
    shown = run_python(
        f"""
        import os
        import obstore
        from ags1.storage import Location, open_source
        place = Location({str(lake.join("a"))!r}, {lake.storage_options!r})
        child = os.fork()
        if child == 0:
            os._exit(0 if bytes(open_source(place).read(0, 4)) == b"data" else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert shown.strip() == "0"


def test_idle_readers_cost_neither_threads_nor_memory(lake: Location) -> None:
    place = lake.join("a")
    with ags1.open(place, "wb", key=KEY) as writer:
        writer.write(bytes(4 * MIB))
    before = threading.active_count()
    readers = [ags1.open(place, key=KEY) for _ in range(200)]
    assert threading.active_count() <= before + 1
    for reader in readers:
        assert reader.read(10) == bytes(10)
    for reader in readers:
        reader.close()
