"""Objects over a link that breaks: right bytes, or one error in one line that names the object; never a hang."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import parquet
from ags1.cli import main
from ags1.storage import Location, create, open_output, open_source
from tests.checks import KEY, every, in_threads
from tests.servers.faults import (
    Answer,
    Cut,
    CutUpload,
    Fault,
    FlipByte,
    HideHeaders,
    IgnoreRange,
    LongBody,
    Lost,
    Reset,
    ShortBody,
    Stall,
)
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server

MIB = 1 << 20
# A silence of a second is a fault here, and each request has few attempts.
SHORT = {"timeout": 1, "max_retries": 3, "retry_seconds": 10}
PLAIN = random.Random(7).randbytes(3 * MIB + 5)
TABLE = pa.table({"a": list(range(50_000)), "b": [f"text {n}" for n in range(50_000)]})


class Lake(NamedTuple):
    """A bucket, reached through the proxy and past it."""

    bucket: str
    proxy: ShapingProxy
    shaped: dict[str, Any]
    direct: dict[str, Any]
    variables: dict[str, str]

    def url(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"

    def place(self, name: str, **options: Any) -> Location:
        return Location(self.url(name), {**self.shaped, **options})

    def put(self, name: str, data: bytes) -> None:
        with open_output(Location(self.url(name), self.direct)) as output:
            output.write(data)
            output.commit()

    def content(self, name: str) -> bytes | None:
        try:
            source: Any = open_source(Location(self.url(name), self.direct))
        except FileNotFoundError:
            return None
        return bytes(memoryview(source.read(0, source.size)))


@pytest.fixture
def lake(s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy) -> Lake:
    through = s3_server.through(shaping_proxy.endpoint)
    made = Lake(
        s3_bucket,
        shaping_proxy,
        {**through.storage_options(), **SHORT},
        s3_server.storage_options(),
        through.environment(),
    )
    made.put("a.ags1", ags1.encrypt(PLAIN, KEY))
    made.put("plain", PLAIN)
    with io.BytesIO() as plain, io.BytesIO() as sealed:
        pq.write_table(TABLE, plain)
        plain.seek(0)
        parquet.encrypt_file(plain, sealed, parquet.EncryptionConfig(KEY))
        made.put("a.parquet", sealed.getvalue())
    shaping_proxy.reset()
    return made


def assert_one_line(error: BaseException, name: str) -> None:
    assert "\n" not in str(error)
    assert name in str(error)
    assert isinstance(error, (OSError, ags1.AuthenticationError))


def read_in_order(lake: Lake, tmp_path: Path) -> bool:
    with ags1.open(lake.url("a.ags1"), key=KEY, storage_options=lake.shaped) as reader:
        pieces = []
        while piece := reader.read(300_001):
            pieces.append(piece)
        return b"".join(pieces) == PLAIN


def read_at_positions(lake: Lake, tmp_path: Path) -> bool:
    with ags1.open(lake.url("a.ags1"), key=KEY, storage_options=lake.shaped) as reader:
        reader.seek(2 * MIB + 1)
        return reader.read(100) == PLAIN[2 * MIB + 1 : 2 * MIB + 101] and reader.pread(MIB, MIB) == PLAIN[MIB : 2 * MIB]


def decrypt(lake: Lake, tmp_path: Path) -> bool:
    target = tmp_path / "plain"
    try:
        ags1.decrypt_file(lake.url("a.ags1"), target, KEY, storage_options=lake.shaped)
    except BaseException:
        assert list(tmp_path.iterdir()) == []
        raise
    return target.read_bytes() == PLAIN


def encrypt(lake: Lake, tmp_path: Path) -> bool:
    target = tmp_path / "sealed"
    try:
        ags1.encrypt_file(lake.url("plain"), target, KEY, storage_options=lake.shaped)
    except BaseException:
        assert list(tmp_path.iterdir()) == []
        raise
    return ags1.decrypt(target.read_bytes(), KEY) == PLAIN


READING: dict[str, Callable[[Lake, Path], bool]] = {
    "read": read_in_order,
    "pread": read_at_positions,
    "decrypt_file": decrypt,
    "encrypt_file": encrypt,
}
PASSING: dict[str, tuple[Fault, int]] = {
    "cut": (Cut(10), 1),
    "cut later": (Cut(40_000), 1),
    "stall": (Stall(100), 1),
    "no head": (Stall(), 1),
    "reset": (Reset(), 2),
    "reset inside": (Reset(100), 1),
    "503": (Answer(503), 2),
    "429": (Answer(429), 2),
    "no etag": (HideHeaders(("etag",)), 9),
}
LASTING: dict[str, Fault] = {
    "cut": Cut(10),
    "stall": Stall(100),
    "reset": Reset(),
    "503": Answer(503),
    "412": Answer(412),
    "404": Answer(404),
    "416": Answer(416),
    "short": ShortBody(5),
    "long": LongBody(5),
    "whole": IgnoreRange(),
    "no length": HideHeaders(("content-length",)),
    "no length, no etag": HideHeaders(),
}


# All read by the same requests, so that one use meets all faults.
@every("case", [*(("read", fault) for fault in PASSING), *((use, "cut later") for use in READING), ("pread", "stall")])
def test_a_fault_that_passes_is_not_noticed(lake: Lake, tmp_path: Path, case: tuple[str, str]) -> None:
    use, fault = case
    kind, count = PASSING[fault]
    for skip in (0, 1):
        lake.proxy.reset()
        lake.proxy.fault(kind, method="GET", skip=skip, count=count)
        for left in tmp_path.iterdir():
            left.unlink()
        assert READING[use](lake, tmp_path)


@every("case", [*(("read", fault) for fault in LASTING), ("encrypt_file", "cut"), ("encrypt_file", "short")])
def test_a_fault_that_lasts_is_one_error(lake: Lake, tmp_path: Path, case: tuple[str, str]) -> None:
    """From the first request on, and from the second: bounded requests, and nothing on the disk."""
    use, fault = case
    for skip in (0, 1):
        lake.proxy.reset()
        lake.proxy.fault(LASTING[fault], method="GET", skip=skip, count=None)
        try:
            assert READING[use](lake, tmp_path)
            # The client puts what came before each cut together.
            assert skip == 0
            (tmp_path / ("sealed" if use == "encrypt_file" else "plain")).unlink(missing_ok=True)
        except OSError as error:
            assert_one_line(error, lake.bucket)
        assert len(lake.proxy.log()) <= 40


@pytest.mark.parametrize("use", ["read", "pread", "decrypt_file"])
def test_a_flipped_byte_is_an_authentication_error(lake: Lake, tmp_path: Path, use: str) -> None:
    lake.proxy.fault(FlipByte(100), method="GET", offset=3 * MIB // 2, count=None)
    with pytest.raises(ags1.AuthenticationError) as error:
        READING[use](lake, tmp_path)
    assert_one_line(error.value, "a.ags1")


def test_a_body_of_another_length_is_no_sign_of_a_shorter_object(lake: Lake) -> None:
    """The threat: whoever is told that the object is truncated throws it away."""
    for fault in (ShortBody(5), LongBody(5)):
        source: Any = open_source(lake.place("plain"))
        lake.proxy.fault(fault, method="GET")
        with pytest.raises(OSError, match=r"the server sent \d+ of 1048576 bytes at 1048576"):
            source.read(MIB, MIB)
        assert bytes(memoryview(source.read(MIB, MIB))) == PLAIN[MIB : 2 * MIB]


def test_a_dead_server_is_asked_no_more_than_max_retries_says(lake: Lake) -> None:
    for retries in (0, 2):
        lake.proxy.reset()
        lake.proxy.fault(Answer(503), count=None)
        with pytest.raises(OSError, match=r"a\.ags1"):
            open_source(lake.place("a.ags1", max_retries=retries))
        assert len(lake.proxy.log()) == 1 + retries


def test_a_table_over_a_broken_link(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in lake.variables.items():
        monkeypatch.setenv(name, value)
    for fault in (Cut(10), Reset(), Answer(503)):
        lake.proxy.fault(fault, method="GET", skip=1)
        assert parquet.read_table(lake.url("a.parquet"), parquet.DecryptionConfig(KEY)).equals(TABLE)
        lake.proxy.reset()
    lake.proxy.fault(ShortBody(5), method="GET", skip=1, count=None)
    with pytest.raises(OSError, match=r"the server sent .* bytes") as error:
        parquet.read_table(lake.url("a.parquet"), parquet.DecryptionConfig(KEY))
    assert_one_line(error.value, "a.parquet")


@pytest.mark.parametrize("command", ["cat", "verify"])
def test_a_command_over_a_dead_link_ends_with_one_line(
    lake: Lake, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in lake.variables.items():
        monkeypatch.setenv(name, value)
    key = tmp_path / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    read = ["--key-file", str(key), "--length", str(ags1.encrypted_length(len(PLAIN)))]
    lake.proxy.fault(ShortBody(5), method="GET", offset=MIB, count=None)
    assert main([command, lake.url("a.ags1"), *read]) == 4
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "a.ags1" in said
    lake.proxy.reset()
    lake.proxy.fault(Answer(503), method="GET", count=2)
    assert main([command, lake.url("a.ags1"), *read]) == 0


LARGE = random.Random(8).randbytes(17 * MIB)
BEGIN = {"method": "POST", "path": "uploads"}
PART = {"method": "PUT", "path": "partNumber=2"}
COMPLETE = {"method": "POST", "path": "uploadId"}


FAULTS = (Lost(), Reset(), Answer(503), Stall())
UPLOADS: list[tuple[Fault, dict[str, str], int | None]] = [
    *((fault, where, 1) for where in (BEGIN, PART, COMPLETE) for fault in (*FAULTS, Answer(503, carried_out=True))),
    *((fault, where, None) for where in (BEGIN, PART, COMPLETE) for fault in FAULTS[:3]),
    (Stall(), PART, None),
    (CutUpload(1000), PART, 1),
    (CutUpload(1000), PART, None),
]


@every("case", enumerate(UPLOADS))
def test_an_upload_over_a_broken_link_is_whole_or_not_there(
    lake: Lake, case: tuple[int, tuple[Fault, dict[str, str], int | None]]
) -> None:
    number, (fault, where, count) = case
    lake.proxy.reset()
    lake.proxy.fault(fault, count=count, **where)  # type: ignore[arg-type]
    known = isinstance(fault, (Reset, CutUpload)) or fault == Answer(503) or where is not COMPLETE
    try:
        with ags1.open(lake.url(f"new-{number}"), "wb", key=KEY, storage_options=lake.shaped) as writer:
            writer.write(LARGE)
        assert count == 1
    except OSError as error:
        assert_one_line(error, "new")
        assert count is None or not known
        # It may be there: nobody is told that it is not.
        found = type(error)
        assert found is not FileNotFoundError
    stored = lake.content(f"new-{number}")
    if stored is not None:
        assert ags1.decrypt(stored, KEY) == LARGE
    assert count is None or stored is not None


@every("case", enumerate([*((fault, 1) for fault in (*FAULTS, CutUpload(30))), (Reset(), None), (Lost(), None)]))
def test_a_small_object_over_a_broken_link_is_whole_or_not_there(
    lake: Lake, case: tuple[int, tuple[Fault, int | None]]
) -> None:
    number, (fault, count) = case
    lake.proxy.reset()
    lake.proxy.fault(fault, method="PUT", count=count)
    try:
        ags1.encrypt_file(lake.url("plain"), lake.url(f"new-{number}"), KEY, storage_options=lake.shaped)
        assert count == 1
    except OSError as error:
        assert count is None
        assert_one_line(error, "new")
    stored = lake.content(f"new-{number}")
    assert stored is None or ags1.decrypt(stored, KEY) == PLAIN


@every("case", enumerate([*FAULTS, Answer(503, carried_out=True), CutUpload(3)]))
def test_a_creation_whose_answer_was_lost_is_recognised(lake: Lake, case: tuple[int, Fault]) -> None:
    number, fault = case
    name = f"pointer-{number}"
    lake.proxy.reset()
    lake.proxy.fault(fault, method="PUT")
    create(lake.place(name), b"version 1")
    assert lake.content(name) == b"version 1"
    lake.proxy.fault(fault, method="PUT")
    with pytest.raises(FileExistsError, match="pointer"):
        create(lake.place(name), b"version 2")
    assert lake.content(name) == b"version 1"


def test_a_creation_over_a_dead_link_ends(lake: Lake) -> None:
    lake.proxy.fault(Lost(), method="PUT", count=None)
    create(lake.place("first"), b"it is there all the same")
    assert lake.content("first") == b"it is there all the same"
    lake.proxy.reset()
    lake.proxy.fault(Reset(), method="PUT", count=None)
    with pytest.raises(OSError, match="second") as error:
        create(lake.place("second"), b"")
    assert not isinstance(error.value, FileExistsError)
    assert lake.content("second") is None


def test_of_many_creations_over_a_link_that_loses_answers_one_wins(lake: Lake) -> None:
    for index in range(5):
        lake.proxy.fault(Lost(), method="PUT", count=3)
        won: list[int] = []

        def work(writer: int, name: str = f"pointer {index}", won: list[int] = won) -> None:
            try:
                create(lake.place(name), b"writer %d" % writer)
                won.append(writer)
            except FileExistsError:
                pass

        in_threads([lambda writer=writer: work(writer) for writer in range(4)])  # type: ignore[misc]
        assert [b"writer %d" % writer for writer in won] == [lake.content(f"pointer {index}")]
        lake.proxy.reset()


def test_bytes_of_random_reads_over_a_link_that_breaks_at_random(lake: Lake) -> None:
    seeded = random.Random(9)
    data = os.urandom(20 * MIB)
    lake.put("large", ags1.encrypt(data, KEY, block_length=64 << 10))
    with ags1.open(lake.url("large"), key=KEY, storage_options=lake.shaped) as reader:
        for _ in range(60):
            if seeded.random() < 0.3:
                lake.proxy.fault(seeded.choice([Cut(5000), Reset(), Answer(503), Reset(70_000)]), method="GET")
            if seeded.random() < 0.5:
                reader.seek(seeded.randrange(len(data)))
            position = reader.tell()
            size = seeded.choice([100, 70_000, 3 * MIB])
            assert reader.read(size) == data[position : position + size]
