"""verify_file: every block that fails is named, whatever the others do, and nothing is released."""

from __future__ import annotations

import functools
import io
import os
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.streams import verify
from ags1.support.reports import VerifyReport
from tests import checks
from tests.checks import KEY, OTHER_KEY, PREFIX, block_start, blocks_of, damage, flip, pattern

BLOCK = 16
COUNT = 40
PLAIN = pattern(COUNT * BLOCK - 5)
STREAM = ags1.encrypt(PLAIN, KEY, aad_prefix=PREFIX, block_length=BLOCK)

check = functools.partial(ags1.verify_file, key=KEY, aad_prefix=PREFIX)


def failed(report: VerifyReport) -> list[int]:
    """The blocks that failed."""
    return [block for each in report.having("damaged") for block in each.details["blocks"]]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of four blocks."""
    monkeypatch.setattr(verify, "_WINDOW_BYTES", 4 * BLOCK)


# -- whole files ---------------------------------------------------------------------------------------------


def test_an_authentic_stream_is_reported_with_its_shape() -> None:
    report = check(STREAM, length=len(STREAM))
    assert (report.ok, report.outcome, report.exit_code, report.findings) == (True, "authentic", 0, [])
    assert report.checked == {"blocks": COUNT, "bytes": len(STREAM)}
    assert report.facts == {
        "blocks": COUNT,
        "block_length": BLOCK,
        "plaintext_length": len(PLAIN),
        "encrypted_length": len(STREAM),
        "length_trusted": True,
    }
    assert str(report) == f"the stream: all authentic\nchecked: 40 blocks, {len(STREAM):,} bytes"


@pytest.mark.parametrize("length", checks.edge_lengths(BLOCK))
def test_every_length_is_verified_to_its_last_block(length: int) -> None:
    stream = ags1.encrypt(pattern(length), KEY, aad_prefix=PREFIX, block_length=BLOCK)
    count = max(1, -(-length // BLOCK))
    assert check(stream).ok
    assert check(stream).checked["blocks"] == count
    for index in range(count):
        report = check(flip(stream, block_start(index, BLOCK)))
        assert failed(report) == [index]


def test_paths_file_objects_and_buffers_are_sources(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(STREAM)
    assert check(path).ok
    assert check(str(path)).ok
    assert check(io.BytesIO(STREAM)).ok
    assert check(checks.ShortReads(STREAM, most=7)).ok
    assert check(memoryview(STREAM)).ok
    with path.open("rb") as file:
        assert check(file).ok
        assert not file.closed


def test_remote_files_are_sources() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/verify/stream", damage(STREAM, BLOCK, 3))
    assert failed(check("memory://verify/stream")) == [3]


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_any_number_of_threads_finds_the_same(threads: int | None) -> None:
    stream = damage(damage(STREAM, BLOCK, 7), BLOCK, 31)
    assert failed(check(stream, threads=threads)) == [7, 31]


def test_key_metadata_has_all_that_is_needed() -> None:
    metadata = ags1.KeyMetadata(KEY, PREFIX, len(STREAM))
    for found in (metadata, metadata.encode()):
        report = ags1.verify_file(STREAM, key_metadata=found)
        assert report.ok
        assert report.facts["length_trusted"]


# -- blocks that fail ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        [0],
        [COUNT // 2],
        [COUNT - 1],
        [0, COUNT - 1],
        [3, 4],
        [4, 5, 6, 7],
        list(range(0, COUNT, 2)),
        list(range(COUNT - 1)),
        list(range(1, COUNT)),
    ],
)
@pytest.mark.parametrize("window", [1, 4, 16, 1 << 20])
def test_every_block_that_fails_is_named_and_no_other(
    monkeypatch: pytest.MonkeyPatch, bad: list[int], window: int
) -> None:
    monkeypatch.setattr(verify, "_WINDOW_BYTES", window * BLOCK)
    stream = STREAM
    for index in bad:
        stream = damage(stream, BLOCK, index)
    report = check(stream)
    assert not report.ok
    assert failed(report) == bad
    assert report.checked["blocks"] == COUNT - len(bad)


@pytest.mark.parametrize("part", [0, 12, BLOCK + 12], ids=["nonce", "ciphertext", "tag"])
def test_a_flipped_bit_anywhere_in_a_block_is_found(part: int) -> None:
    assert failed(check(flip(STREAM, block_start(20, BLOCK) + part))) == [20]


def test_swapped_blocks_fail_both() -> None:
    blocks = blocks_of(STREAM, BLOCK)
    blocks[3], blocks[9] = blocks[9], blocks[3]
    assert failed(check(STREAM[:8] + b"".join(blocks))) == [3, 9]


def test_a_repeated_block_fails_where_it_does_not_belong() -> None:
    blocks = blocks_of(STREAM, BLOCK)
    blocks[9] = blocks[3]
    assert failed(check(STREAM[:8] + b"".join(blocks))) == [9]


def test_a_block_that_was_taken_out_fails_all_behind_it() -> None:
    blocks = blocks_of(STREAM, BLOCK)
    del blocks[30]
    assert failed(check(STREAM[:8] + b"".join(blocks))) == list(range(30, COUNT - 1))


@pytest.mark.parametrize("wrong", [{"key": OTHER_KEY}, {"aad_prefix": b"other"}, {"aad_prefix": b""}])
def test_a_wrong_key_or_prefix_fails_every_block(small_windows: None, wrong: dict[str, bytes]) -> None:
    report = check(STREAM, **wrong)
    assert failed(report) == list(range(COUNT))
    assert (report.outcome, report.exit_code, report.checked["blocks"]) == ("damaged", 1, 0)


def test_the_first_thousand_failures_are_listed_and_all_are_counted() -> None:
    stream = ags1.encrypt(bytes(1500), KEY, block_length=1)
    report = ags1.verify_file(stream, OTHER_KEY)
    assert failed(report) == list(range(1000))
    assert report.findings[0].details["failed"] == 1500


def test_runs_of_blocks_are_shown_as_ranges() -> None:
    assert verify._runs([]) == []
    assert verify._runs([7]) == ["7"]
    assert verify._runs([1, 2, 3, 7, 9, 10]) == ["1-3", "7", "9-10"]


@pytest.mark.timeout(60)
def test_failures_cost_in_proportion_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    first_failure = verify._first_failure

    def count(plaintext: Any, first: int, out: memoryview) -> int | None:
        sizes.append(len(out))
        return first_failure(plaintext, first, out)

    monkeypatch.setattr(verify, "_first_failure", count)
    stream = ags1.encrypt(bytes(20_000), KEY, block_length=1)
    assert ags1.verify_file(stream, OTHER_KEY).findings[0].details["failed"] == 20_000
    # A run after the first failure is one block, not the rest of a window again and again.
    assert sum(sizes) < 3 * 20_000


def test_verifying_keeps_no_more_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_WINDOW_BYTES", 3 * BLOCK)
    sizes = []
    monkeypatch.setattr(verify, "bytearray", lambda size: sizes.append(size) or bytearray(size), raising=False)
    assert check(STREAM).ok
    assert sizes == [3 * BLOCK]


# -- lengths -------------------------------------------------------------------------------------------------


def test_missing_blocks_at_the_end_go_unnoticed_without_a_trusted_length() -> None:
    cut = STREAM[: block_start(5, BLOCK)]
    report = check(cut)
    # What nobody can notice is said: it is not protected, as the caller accepted.
    assert (report.ok, report.outcome, report.exit_code) == (True, "not protected", 5)
    assert report.counts == {"untrusted-length": 1}
    assert report.checked["blocks"] == 5


def test_a_trusted_length_shows_missing_blocks_at_the_end() -> None:
    assert check(STREAM, length=len(STREAM)).facts["length_trusted"]
    with pytest.raises(ags1.TruncatedError, match=r"trusted length is 1763: 1537 bytes are missing"):
        check(STREAM[: block_start(5, BLOCK) - 2], length=len(STREAM))
    with pytest.raises(ags1.FormatError, match="bytes were added"):
        check(STREAM, length=len(STREAM) - 1)


@pytest.mark.parametrize("cut", [0, 3, 8, 20, 35])
def test_a_stream_that_ends_in_its_first_block_is_truncated(cut: int) -> None:
    with pytest.raises(ags1.TruncatedError, match=rf"\b{cut} bytes"):
        check(STREAM[:cut])


def test_other_files_are_no_streams(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    path.write_bytes(PLAIN)
    with pytest.raises(ags1.FormatError, match=r"plain: not an AGS1 stream"):
        check(path)


def test_a_file_that_shrinks_meanwhile_is_truncated(small_windows: None, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(STREAM)

    def cut(done: int, total: int | None) -> None:
        if done == 4 * BLOCK:
            os.truncate(path, 100)

    with pytest.raises(ags1.TruncatedError, match="stream"):
        check(path, progress=cut)


# -- progress ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, OTHER_KEY])
def test_progress_goes_from_nothing_to_all_by_windows(small_windows: None, key: bytes) -> None:
    told: list[tuple[int, int | None]] = []
    check(STREAM, key=key, progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {len(PLAIN)}
    done = [value for value, _ in told]
    assert (done[0], done[-1]) == (0, len(PLAIN))
    assert done == sorted(set(done))
    assert len(done) == 1 + COUNT // 4


def test_an_empty_stream_has_progress_too() -> None:
    told: list[tuple[int, int | None]] = []
    assert ags1.verify_file(ags1.encrypt(b"", KEY), KEY, progress=lambda *now: told.append(now)).ok
    assert told == [(0, 0), (0, 0)]


def test_an_exception_from_progress_stops_the_work(small_windows: None) -> None:
    def stop(done: int, total: int | None) -> None:
        if done:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        check(STREAM, progress=stop)


# -- what cannot be verified ---------------------------------------------------------------------------------


def test_a_pipe_is_refused() -> None:
    with pytest.raises(ValueError, match="a pipe cannot be verified: give a file, or decrypt the pipe to /dev/null"):
        check(checks.Pipe(STREAM))


def test_a_key_is_needed() -> None:
    with pytest.raises(TypeError, match="a key is needed"):
        ags1.verify_file(STREAM)
    with pytest.raises(TypeError, match="not both"):
        check(STREAM, key_metadata=ags1.KeyMetadata(KEY))


def test_a_disk_that_breaks_is_an_io_error_and_no_finding() -> None:
    with pytest.raises(OSError, match=r"Input/output error"):
        check(checks.FailingReads(STREAM, after=200))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        check(tmp_path / "missing")
