"""One big file that many tasks write: killed ones, twins and zombies change nothing about what is in it."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import signal
import threading
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ags1.errors import Ags1Error
from ags1.spark import _local_assembly, _multipart
from ags1.spark._assembly import Assembly, Layout, Range
from ags1.spark._local_assembly import LocalAssembly
from ags1.spark._locations import locate
from ags1.spark._multipart import MultipartUpload
from ags1.spark._storage import Storage
from tests.checks import pattern

LENGTH = 1000
RANGES = [(0, 400), (400, 400), (800, 200)]
DATA = pattern(LENGTH)
SCRATCH = "_ags1/scratch"


def begin(tree: Path, **options: Any) -> LocalAssembly:
    made = Assembly.begin(Storage(locate(tree)), "a/big", SCRATCH, LENGTH, RANGES, unit=1, **options)
    assert isinstance(made, LocalAssembly)
    return made


def fill(assembly: Assembly, index: int, data: bytes = DATA, ranges: list[tuple[int, int]] = RANGES) -> bool:
    """Write a range as a task does; answer whether there was something to do."""
    offset, length = ranges[index]
    with assembly.claim(index, offset, length) as part:
        if part is None:
            return False
        if part.descriptor is not None:
            assert os.pwrite(part.descriptor, data[offset : offset + length], offset) == length
        else:
            part.write(offset, data[offset : offset + length])
    return True


def stop(assembly: Assembly, index: int, ranges: list[tuple[int, int]] = RANGES) -> None:
    """Write half of a range, and fail."""
    offset, length = ranges[index]
    with assembly.claim(index, offset, length) as part:
        assert part is not None
        part.write(offset, bytes(length // 2))
        raise ZeroDivisionError


class Task:
    """A process that claims a range, says so, and writes it when it is told to."""

    def __init__(self, assembly: Assembly, index: int, data: bytes = DATA) -> None:
        self._said, say = os.pipe()
        told, self._tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._said)
                os.close(self._tell)
                offset, length = RANGES[index]
                os.write(say, b"t")
                with assembly.claim(index, offset, length) as part:
                    os.write(say, b"n" if part is None else b"c")
                    if part is not None:
                        assert part.descriptor is not None
                        os.read(told, 1)
                        os.pwrite(part.descriptor, data[offset : offset + length], offset)
                os.write(say, b"d")
            finally:
                os._exit(0)
        os.close(say)
        os.close(told)

    def hear(self) -> bytes:
        """What it says next: t (tries), c (claimed), n (nothing to do), d (done); empty if it has ended."""
        return os.read(self._said, 1)

    def go_on(self) -> None:
        os.write(self._tell, b"g")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        os.close(self._said)
        os.close(self._tell)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["ranges", "files"])
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Locks of ranges, and what is used where there are none."""
    if request.param == "files":
        monkeypatch.setattr(_local_assembly, "_HAS_RANGE_LOCKS", False)
    elif not _local_assembly._HAS_RANGE_LOCKS:
        pytest.skip("locks of ranges are Linux's")
    return str(request.param)


# -- layouts -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_a_layout_remembers_every_range(lengths: list[int]) -> None:
    ranges = list(zip(accumulate([0, *lengths[:-1]]), lengths, strict=True))
    layout = Layout.of(sum(lengths), ranges, 1, 0)
    assert (layout.count, layout.length) == (len(ranges), sum(lengths))
    assert list(layout.ranges()) == [(index, *each) for index, each in enumerate(ranges)]
    for index, (offset, length) in enumerate(ranges):
        layout.check(index, offset, length)
        for wrong in ((index + len(ranges), offset, length), (index, offset + 1, length), (index, offset, length + 1)):
            with pytest.raises(ValueError, match="of this file is not"):
                layout.check(*wrong)
    with pytest.raises(ValueError, match="of this file is not"):
        layout.check(-1, 0, lengths[0])


def test_a_layout_of_very_many_ranges_is_small() -> None:
    stride = 1_048_604
    lengths = [8 + 256 * stride, *[256 * stride] * 50_000, 77]
    offsets = accumulate([0, *lengths[:-1]])
    layout = Layout.of(sum(lengths), zip(offsets, lengths, strict=True), stride, 8)
    assert len(pickle.dumps(layout)) < 200


@pytest.mark.parametrize(
    ("length", "ranges", "unit", "origin", "text"),
    [
        (10, [(0, 5)], 1, 0, "have 5 bytes, but the file 10"),
        (10, [], 1, 0, "have 0 bytes"),
        (0, [], 1, 0, "have 0 bytes"),
        (10, [(0, 5), (6, 4)], 1, 0, "follow one another"),
        (10, [(0, 5), (4, 6)], 1, 0, "follow one another"),
        (10, [(0, 10), (10, 0)], 1, 0, "follow one another"),
        (18, [(0, 9), (9, 9)], 5, 8, "begins inside a unit: units of 5 begin at 8"),
        (18, [(0, 3), (3, 15)], 5, 8, "begins inside a unit"),
        (10, [(0, 10)], 0, 0, "a unit has 1 byte or more"),
    ],
)
def test_ranges_that_make_no_file_are_refused(
    tmp_path: Path, length: int, ranges: list[tuple[int, int]], unit: int, origin: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Assembly.begin(Storage(locate(tmp_path)), "x", SCRATCH, length, ranges, unit=unit, origin=origin)
    assert list(tmp_path.iterdir()) == []


# -- local ---------------------------------------------------------------------------------------------------


def test_ranges_in_any_order_make_one_file_and_leave_nothing(tmp_path: Path, locks: str) -> None:
    assembly = begin(tmp_path)
    for index in (2, 0, 1):
        assert not (tmp_path / "a").exists()
        assert fill(pickle.loads(pickle.dumps(assembly)), index)
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA
    assert list((tmp_path / "_ags1").iterdir()) == []


def test_an_old_file_is_replaced_only_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/big").write_bytes(b"old")
    assembly = begin(tmp_path)
    for index in range(3):
        fill(assembly, index)
        assert (tmp_path / "a/big").read_bytes() == b"old"
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_an_unfinished_file_is_not_put_in_place(tmp_path: Path) -> None:
    assembly = begin(tmp_path)
    fill(assembly, 0)
    with pytest.raises(ZeroDivisionError):
        stop(assembly, 1)
    with pytest.raises(Ags1Error, match="a/big: 2 of 3 ranges were not written, the first of them range 1"):
        assembly.complete()
    assert not (tmp_path / "a/big").exists()
    assert fill(assembly, 1)
    assert fill(assembly, 2)
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_completing_again_does_no_harm_but_another_file_is_not_taken_for_it(tmp_path: Path) -> None:
    assembly = begin(tmp_path)
    for index in range(3):
        fill(assembly, index)
    assembly.complete()
    assembly.complete()
    pickle.loads(pickle.dumps(assembly)).complete()
    assert (tmp_path / "a/big").read_bytes() == DATA
    # An old version has the same length as the new one, as often as not.
    later = begin(tmp_path)
    later.abort()
    with pytest.raises(Ags1Error, match="is not the file that was assembled"):
        later.complete()


def test_completing_that_was_killed_after_the_move_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = begin(tmp_path)
    for index in range(3):
        fill(assembly, index)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_local_assembly.shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            assembly.complete()
    assert not fill(assembly, 1, bytes(LENGTH))
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA
    assert list((tmp_path / "_ags1").iterdir()) == []


def test_what_is_written_outside_a_range_is_refused(tmp_path: Path) -> None:
    assembly = begin(tmp_path)
    with pytest.raises(ValueError, match="range 1 of this file is not 401 bytes at 400"), assembly.claim(1, 400, 401):
        pass
    with assembly.claim(1, 400, 400) as part:
        assert isinstance(part, Range)
        part.write(400, b"a" * 300)
        for offset, count in ((399, 1), (600, 1), (700, 101)):
            with pytest.raises(ValueError, match="are not the next of this range"):
                part.write(offset, bytes(count))
        part.write(700, memoryview(b"b" * 100))


def test_a_range_that_is_held_cannot_be_had_and_the_others_can(
    tmp_path: Path, locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever would wait fails instead.
    monkeypatch.setattr(_local_assembly, "_SET_WAIT", _local_assembly._SET)
    assembly = begin(tmp_path)
    monkeypatch.setattr(_local_assembly.fcntl, "LOCK_EX", fcntl.LOCK_EX | fcntl.LOCK_NB)
    with assembly.claim(1, 400, 400) as part:
        assert part is not None
        with pytest.raises(BlockingIOError):
            fill(assembly, 1)
        assert fill(assembly, 0)
        assert fill(assembly, 2)
    assert not fill(assembly, 1)


def test_a_killed_holder_gives_its_range_to_the_next(tmp_path: Path, locks: str) -> None:
    assembly = begin(tmp_path)
    first = Task(assembly, 1, b"\xff" * LENGTH)
    assert (first.hear(), first.hear()) == (b"t", b"c")
    second = Task(assembly, 1)
    assert second.hear() == b"t"
    # Another range is nobody's business.
    assert fill(assembly, 0)
    first.kill()
    first.end()
    assert second.hear() == b"c"
    second.go_on()
    assert second.hear() == b"d"
    second.end()
    assert fill(assembly, 2)
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_a_twin_waits_and_then_has_nothing_to_do(tmp_path: Path, locks: str) -> None:
    assembly = begin(tmp_path)
    first = Task(assembly, 1)
    assert (first.hear(), first.hear()) == (b"t", b"c")
    twin = Task(assembly, 1, b"\xff" * LENGTH)
    assert twin.hear() == b"t"
    first.go_on()
    assert first.hear() == b"d"
    assert (twin.hear(), twin.hear()) == (b"n", b"d")
    for task in (first, twin):
        task.end()
    for index in (0, 2):
        fill(assembly, index)
    assembly.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_threads_of_one_process_keep_each_other_out(tmp_path: Path, locks: str) -> None:
    assembly = begin(tmp_path)
    done: list[bool] = []
    trying = threading.Event()

    def twin() -> None:
        trying.set()
        done.append(fill(assembly, 1, b"\xff" * LENGTH))

    with assembly.claim(1, 400, 400) as part:
        assert part is not None
        thread = threading.Thread(target=twin)
        thread.start()
        assert trying.wait(600)
        part.write(400, DATA[400:800])
        assert done == []
    thread.join(600)
    assert done == [False]


def test_a_range_is_released_though_a_process_was_forked_while_it_was_held(tmp_path: Path, locks: str) -> None:
    assembly = begin(tmp_path)
    read, write = os.pipe()
    children = []

    def fork_and_fail() -> None:
        with assembly.claim(1, 400, 400):
            children.append(os.fork())
            if children == [0]:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fork_and_fail()
    assert fill(assembly, 1)
    os.close(write)
    os.close(read)
    os.waitpid(children[0], 0)


@pytest.mark.parametrize("ending", ["complete", "abort"])
def test_a_zombie_never_writes_into_a_file_that_is_in_its_place(tmp_path: Path, locks: str, ending: str) -> None:
    assembly = begin(tmp_path)
    for index in range(3):
        fill(assembly, index)
    getattr(assembly, ending)()
    for index in range(3):
        assert not fill(assembly, index, b"\xff" * LENGTH)
    if ending == "complete":
        assert (tmp_path / "a/big").read_bytes() == DATA
    else:
        assert not (tmp_path / "a").exists()
    assert list((tmp_path / "_ags1").iterdir()) == []


def test_a_zombie_that_opened_the_file_before_it_was_moved_does_not_write(
    tmp_path: Path, locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly = begin(tmp_path)
    for index in range(3):
        fill(assembly, index)
    lock = LocalAssembly._lock

    def late(self: LocalAssembly, descriptor: int, offset: int, length: int) -> None:
        # Between its opening the file and its getting the lock, all is done.
        assembly.complete()
        lock(self, descriptor, offset, length)

    monkeypatch.setattr(LocalAssembly, "_lock", late)
    assert not fill(assembly, 1, b"\xff" * LENGTH)
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_a_zombie_of_a_given_up_assembly_marks_nothing_in_the_next(tmp_path: Path, locks: str) -> None:
    old = begin(tmp_path)
    with old.claim(1, 400, 400) as part:
        assert part is not None
        old.abort()
        new = begin(tmp_path)
        part.write(400, b"\xff" * 400)
    for index in range(3):
        assert fill(new, index)
    new.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_an_interrupted_assembly_goes_on_where_it_was(tmp_path: Path, locks: str) -> None:
    fill(begin(tmp_path, identity="run 1"), 1)
    again = begin(tmp_path, identity="run 1")
    assert [fill(again, index) for index in range(3)] == [True, False, True]
    again.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


def test_another_file_is_not_continued(tmp_path: Path) -> None:
    storage = Storage(locate(tmp_path))
    for options in (
        {"identity": "another run"},
        {"ranges": [(0, 1000)]},
        {"length": 1001, "ranges": [(0, 1001)]},
        {"path": "a/other"},
        {"origin": 400, "unit": 400},
    ):
        fill(begin(tmp_path, identity="run 1"), 0)
        wanted: dict[str, Any] = {
            "path": "a/big", "length": LENGTH, "ranges": RANGES, "unit": 1, "identity": "run 1", **options,
        }  # fmt: skip
        other = Assembly.begin(storage, scratch=SCRATCH, **wanted)
        assert other is not None
        with other.claim(0, *wanted["ranges"][0]) as part:
            assert part is not None


def tear_data(scratch: Path, token: Path) -> None:
    os.truncate(token / "data", LENGTH - 1)


def tear_layout(scratch: Path, token: Path) -> None:
    (scratch / "layout").write_text('{"layout": ')


def lose_data(scratch: Path, token: Path) -> None:
    (token / "data").unlink()


def lose_layout(scratch: Path, token: Path) -> None:
    (scratch / "layout").unlink()


def lose_directory(scratch: Path, token: Path) -> None:
    for each in token.iterdir():
        each.unlink()
    token.rmdir()
    token.write_text("in the way")


@pytest.mark.parametrize("tear", [tear_data, tear_layout, lose_data, lose_layout, lose_directory])
def test_a_torn_scratch_directory_is_begun_anew(tmp_path: Path, tear: Callable[[Path, Path], None]) -> None:
    first = begin(tmp_path)
    fill(first, 0)
    scratch = tmp_path / SCRATCH
    tear(scratch, scratch / first.token)
    again = begin(tmp_path)
    assert all(fill(again, index) for index in range(3))
    again.complete()
    assert (tmp_path / "a/big").read_bytes() == DATA


@pytest.mark.parametrize("what", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_one_task_must_write_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: int, locks: str
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(what, os.strerror(what))

    monkeypatch.setattr(_local_assembly.fcntl, "fcntl", refuse)
    monkeypatch.setattr(_local_assembly.fcntl, "flock", refuse)
    assert Assembly.begin(Storage(locate(tmp_path)), "x", SCRATCH, LENGTH, RANGES, unit=1) is None
    assert list((tmp_path / "_ags1").iterdir()) == []


def test_a_kernel_without_locks_of_ranges_locks_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(_local_assembly.fcntl, "fcntl", refuse)
    assembly = begin(tmp_path)
    assert not assembly.by_range
    assert all(fill(assembly, index) for index in range(3))


def test_a_full_disk_is_told_with_the_name(tmp_path: Path) -> None:
    assembly = begin(tmp_path)
    with assembly.claim(1, 400, 400) as part:
        assert part is not None
        assert part.descriptor is not None
        full = os.open("/dev/full", os.O_WRONLY)
        kept = os.dup(part.descriptor)
        os.dup2(full, part.descriptor)
        try:
            with pytest.raises(OSError, match="No space left") as caught:
                part.write(400, b"x")
        finally:
            os.dup2(kept, part.descriptor)
            os.close(full)
            os.close(kept)
        assert str(caught.value.filename).startswith(str(tmp_path))


def test_other_file_systems_have_one_task_write_it_all() -> None:
    pytest.importorskip("fsspec")
    assert Assembly.begin(Storage(locate("memory://x")), "x", SCRATCH, LENGTH, RANGES, unit=1) is None


# -- S3 ------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")

MIB = 1 << 20
UNIT = MIB + 28
HEADER = 8
S3_LENGTH = HEADER + 19 * UNIT + 1000
S3_RANGES = [
    (0, HEADER + 6 * UNIT),
    (HEADER + 6 * UNIT, 12 * UNIT),
    (HEADER + 18 * UNIT, UNIT + 1000),
]
S3_DATA = pattern(S3_LENGTH)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as S3 has them."""
    monkeypatch.setattr(_multipart, "_PART", 7 * MIB)


def upload(s3: Any, length: int = S3_LENGTH, ranges: Any = S3_RANGES, unit: int = UNIT) -> MultipartUpload:
    made = Assembly.begin(Storage(locate(s3.url)), "a/big", "", length, ranges, unit=unit, origin=HEADER)
    assert isinstance(made, MultipartUpload)
    return made


def uploads(s3: Any) -> list[str]:
    return [each["Key"] for each in s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", ())]


def body(s3: Any) -> bytes:
    data: bytes = s3.client.get_object(Bucket=s3.bucket, Key="a/big")["Body"].read()
    return data


def test_ranges_in_any_order_make_one_object(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    for index in (2, 0, 1):
        assert "Contents" not in s3.client.list_objects_v2(Bucket=s3.bucket)
        assert fill(pickle.loads(pickle.dumps(assembly)), index, S3_DATA, S3_RANGES)
    # More pages than one: made here, as moto takes the marker for a count of parts, not for the number of one.
    call = MultipartUpload._call
    pages: list[int] = []

    def few(self: MultipartUpload, method: str, **arguments: Any) -> Any:
        marker = arguments.pop("PartNumberMarker", 0)
        answer = call(self, method, **arguments)
        if method == "list_parts":
            left = [part for part in answer["Parts"] if part["PartNumber"] > marker]
            answer = {**answer, "Parts": left[:2], "IsTruncated": len(left) > 2}
            answer["NextPartNumberMarker"] = left[:2][-1]["PartNumber"]
            pages.append(marker)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultipartUpload, "_call", few)
        assembly.complete()
    assert pages == [0, 3334]
    assert body(s3) == S3_DATA
    assert uploads(s3) == []
    assembly.complete()


def test_no_block_is_made_of_two_attempts(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    for index in range(3):
        fill(assembly, index, S3_DATA, S3_RANGES)
    # Another attempt at the middle range gets as far as its first part.
    other = bytes(each ^ 0xFF for each in S3_DATA)
    offset, length = S3_RANGES[1]
    with pytest.raises(ZeroDivisionError):
        stop_after(assembly, 1, offset, length, other[offset : offset + 8 * UNIT])
    assembly.complete()
    made = body(s3)
    blocks = [range(start, min(start + UNIT, S3_LENGTH)) for start in range(HEADER, S3_LENGTH, UNIT)]
    kinds = []
    for block in blocks:
        part = made[block.start : block.stop]
        kinds.append((part == S3_DATA[block.start : block.stop], part == other[block.start : block.stop]))
    assert all(sum(kind) == 1 for kind in kinds)
    assert kinds[6:18].count((False, True)) == 6


def stop_after(assembly: Assembly, index: int, offset: int, length: int, data: bytes) -> None:
    with assembly.claim(index, offset, length) as part:
        assert part is not None
        part.write(offset, data)
        raise ZeroDivisionError


def test_a_range_that_was_uploaded_twice_is_whole(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    other = bytes(S3_LENGTH)
    for index in (0, 1, 1, 2):
        fill(assembly, index, other if index == 1 else S3_DATA, S3_RANGES)
        fill(assembly, index, S3_DATA, S3_RANGES)
    assembly.complete()
    assert body(s3) == S3_DATA


def test_a_part_that_a_zombie_replaces_at_the_last_moment_is_taken_anew(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    for index in range(3):
        fill(assembly, index, S3_DATA, S3_RANGES)
    call, lists = MultipartUpload._parts, []

    def late(self: MultipartUpload) -> Any:
        found = call(self)
        lists.append(found)
        if len(lists) == 1:
            fill(self, 1, bytes(S3_LENGTH), S3_RANGES)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultipartUpload, "_parts", late)
        assembly.complete()
    assert len(lists) == 2
    offset, length = S3_RANGES[1]
    assert body(s3) == S3_DATA[:offset] + bytes(length) + S3_DATA[offset + length :]


def write(assembly: Assembly, index: int, offset: int, data: bytes) -> None:
    """Write something in a range, and call that all."""
    with assembly.claim(index, *S3_RANGES[index]) as part:
        assert part is not None
        part.write(offset, data)


def test_an_unfinished_object_does_not_appear(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    fill(assembly, 0, S3_DATA, S3_RANGES)
    with pytest.raises(ZeroDivisionError):
        stop(assembly, 1, S3_RANGES)
    with pytest.raises(Ags1Error, match="a/big: range 1 of 3 was not written"):
        assembly.complete()
    offset, length = S3_RANGES[2]
    with pytest.raises(ValueError, match="the last 5 bytes of this range were not written"):
        write(assembly, 2, offset, bytes(length - 5))
    with pytest.raises(ValueError, match="are not the next of this range"):
        write(assembly, 2, offset + 1, b"x")
    assert "Contents" not in s3.client.list_objects_v2(Bucket=s3.bucket)


def test_an_upload_that_is_given_up_leaves_nothing_and_its_zombies_fail(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    fill(assembly, 0, S3_DATA, S3_RANGES)
    assert uploads(s3) == ["a/big"]
    for _ in range(2):
        assembly.abort()
        assert uploads(s3) == []
    call = MultipartUpload._call

    def gone(self: MultipartUpload, method: str, **arguments: Any) -> Any:
        # moto fails with an internal error instead.
        if method == "upload_part":
            raise FileNotFoundError(errno.ENOENT, "The specified upload does not exist.")
        return call(self, method, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultipartUpload, "_call", gone)
        with pytest.raises(FileNotFoundError, match="its upload is gone"):
            fill(assembly, 2, S3_DATA, S3_RANGES)
    # An old object of the same length is not taken for the new one.
    s3.client.put_object(Bucket=s3.bucket, Key="a/big", Body=S3_DATA)
    with pytest.raises(Ags1Error, match="its upload is gone, and what was written with it"):
        assembly.complete()


def test_completing_whose_answer_was_lost_has_succeeded(s3: Any, small_parts: None) -> None:
    assembly = upload(s3)
    for index in range(3):
        fill(assembly, index, S3_DATA, S3_RANGES)
    call = MultipartUpload._call

    def twice(self: MultipartUpload, method: str, **arguments: Any) -> Any:
        if method == "complete_multipart_upload":
            call(self, method, **arguments)
            raise FileNotFoundError(errno.ENOENT, "The specified upload does not exist.")
        return call(self, method, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MultipartUpload, "_call", twice)
        assembly.complete()
    assert body(s3) == S3_DATA


def test_what_s3_cannot_assemble_is_for_one_task(s3: Any) -> None:
    def cannot(ranges: list[tuple[int, int]]) -> bool:
        made = Assembly.begin(Storage(locate(s3.url)), "x", "", sum(length for _, length in ranges), ranges, unit=1)
        return made is None

    # Only the last part may be small; there are 10,000 of them at most.
    assert cannot([(0, 5 * MIB - 1), (5 * MIB - 1, 5 * MIB)])
    assert cannot([(index * 5 * MIB, 5 * MIB) for index in range(10_001)])
    assert uploads(s3) == []
    assert not cannot([(0, 5 * MIB), (5 * MIB, 1)])
    assert not cannot([(0, 1)])


@given(
    st.integers(1, 40),
    st.integers(1, 400),
    st.sampled_from([1, 1000, MIB + 28, 9 * MIB, 17 * MIB, 31 * MIB, 40 * MIB]),
    st.integers(0, 40 * MIB),
)
def test_parts_are_whole_units_within_the_limits_of_s3(count: int, units: int, unit: int, last: int) -> None:
    length = units * unit + (0 if unit > 1000 else 5 * MIB // unit * unit)
    tail = min(last, length) or 1
    lengths = [HEADER + length, *[length] * (count - 1), tail]
    ranges = list(zip(accumulate([0, *lengths[:-1]]), lengths, strict=True))
    layout = Layout.of(sum(lengths), ranges, unit, HEADER)
    for index, offset, size in layout.ranges():
        sizes = _multipart._part_sizes(layout, offset, size)
        assert sum(sizes) == size
        assert len(sizes) <= 10_000 // layout.count
        ends = list(accumulate(sizes, initial=offset))[1:-1]
        assert all((end - HEADER) % unit == 0 for end in ends)
        # Two parts are in memory, so they grow with the range only if there are too few numbers for them.
        most = -(-(size // unit) // (10_000 // layout.count)) + 1
        assert max(sizes) <= HEADER + max(most * unit if len(sizes) > 100 else unit, 32 * MIB)
        if index < count and size >= 5 * MIB:
            assert min(sizes) >= 5 * MIB
        elif index == count:
            assert min(sizes[:-1], default=5 * MIB) >= 5 * MIB
