"""A file of several objects reads as one: the same as a plain file, whatever is asked of it and by how many."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import pytest

import ags1
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.joined import JoinedReader, open_parts
from ags1.errors import AuthenticationError, FormatError, TruncatedError
from ags1.storage import Location
from tests.checks import MIB, in_threads, open_descriptors, pattern
from tests.dataset.works import Work

LENGTHS = ((MIB, 5), (1, 1), (MIB + 1, 2 * MIB, 7), (0, 3), (3, 0, 0, MIB - 1, 0), (5,) * 9, (3 * MIB, 3 * MIB + 1))


def joined(
    directory: Path, lengths: tuple[int, ...], location: Location | None = None
) -> tuple[Work, DatasetEntry, bytes]:
    """A file of parts of these lengths."""
    data = pattern(sum(lengths))
    source = directory / "raw"
    source.mkdir(parents=True)
    at = 0
    for index, length in enumerate(lengths):
        (source / f"{index:03}").write_bytes(data[at : at + length])
        at += length
    work = Work(Location(source), location or Location(directory / "vault"))
    parts: tuple[Part, ...] = tuple(part for entry in work.encrypt() for part in entry.parts)
    return work, DatasetEntry("the/file", parts, 1), data


def opened(work: Work, entry: DatasetEntry, **options: int) -> JoinedReader:
    reader = open_parts(work.vault, entry, work.keys, **options)
    assert isinstance(reader, JoinedReader)
    return reader


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("where", ["local", "memory"])
def test_random_use_is_that_of_a_plain_file(tmp_path: Path, lengths: tuple[int, ...], where: str) -> None:
    vault = Location(f"memory://joined-{'-'.join(map(str, lengths))}") if where == "memory" else None
    work, entry, data = joined(tmp_path, lengths, vault)
    rng = random.Random(len(data))
    with opened(work, entry, threads=rng.choice([1, 2])) as reader:
        plain = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
        size = len(data)
        assert (reader.size, reader.length_trusted, reader.name) == (size, True, "the/file")
        for _ in range(300):
            count = rng.choice([0, 1, 7, 4096, MIB - 1, MIB, MIB + 1, rng.randint(0, size + 5)])
            offset = rng.randint(0, size + 5)
            match rng.randrange(9):
                case 0:
                    assert reader.read(count) == plain.read(count)
                case 1:
                    memory, same = bytearray(count), bytearray(count)
                    assert (reader.readinto(memory), memory) == (plain.readinto(same), same)
                case 2:
                    assert reader.seek(offset) == plain.seek(offset)
                case 3:
                    back = -min(rng.randint(0, size), size)
                    assert reader.seek(back, os.SEEK_END) == plain.seek(back, os.SEEK_END)
                case 4:
                    assert reader.pread(offset, count) == data[offset : offset + count]
                case 5:
                    memory = bytearray(count)
                    got = reader.pread_into(offset, memory)
                    assert bytes(memory[:got]) == data[offset : offset + count]
                case 6:
                    piece = reader.read1(count)
                    assert piece == data[plain.tell() : plain.tell() + len(piece)]
                    assert piece or count == 0 or plain.tell() >= size
                    plain.seek(len(piece), os.SEEK_CUR)
                case 7:
                    peeked = reader.peek(1)
                    assert data[plain.tell() :].startswith(peeked)
                case 8:
                    if rng.random() < 0.1:
                        assert reader.readall() == plain.read()
            assert reader.tell() == plain.tell()
    assert reader.closed
    with pytest.raises(ValueError, match="closed"):
        reader.pread(0, 1)


def test_lines_and_text_cross_the_parts(tmp_path: Path) -> None:
    work, entry, data = joined(tmp_path, (MIB + 3, MIB))
    with opened(work, entry) as reader:
        assert list(reader) == io.BytesIO(data).readlines()


def test_one_object_is_read_by_the_plain_reader(tmp_path: Path) -> None:
    work, entry, data = joined(tmp_path, (5,))
    with open_parts(work.vault, entry, work.keys) as reader:
        assert type(reader) is ags1.Reader
        assert reader.read() == data


def test_many_threads_read_at_once_from_more_parts_than_are_kept_open(tmp_path: Path) -> None:
    work, entry, data = joined(tmp_path, (MIB + 1,) * 12)
    before = open_descriptors()
    with opened(work, entry) as reader:

        def read(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(60):
                offset, count = rng.randrange(len(data)), rng.choice([1, 100, MIB, 3 * MIB])
                assert reader.pread(offset, count) == data[offset : offset + count]

        in_threads([lambda seed=seed: read(seed) for seed in range(4)] + [lambda: reader.read()])  # type: ignore[misc]
        assert open_descriptors() - before <= 5
    assert open_descriptors() == before


def test_after_its_first_failure_it_refuses_everything(tmp_path: Path) -> None:
    work, entry, data = joined(tmp_path, (MIB, 2 * MIB, 5))
    path = Path(work.vault.path) / entry.parts[1].name
    stream = bytearray(path.read_bytes())
    stream[-1] ^= 1
    path.write_bytes(stream)
    with opened(work, entry) as reader:
        assert reader.read(5) == data[:5]
        with pytest.raises(AuthenticationError, match=entry.parts[1].name.replace("+", ".")):
            reader.pread(MIB + 5, 2 * MIB)
        for read in (lambda: reader.pread(0, 1), lambda: reader.seek(0) or reader.read(1)):
            with pytest.raises(AuthenticationError, match="refuses everything since"):
                read()
    with opened(work, entry) as reader, pytest.raises(AuthenticationError):
        reader.read()


@pytest.mark.timeout(60)
def test_parts_that_are_not_what_they_were_are_refused(tmp_path: Path) -> None:
    work, entry, data = joined(tmp_path, (MIB, MIB, 5))
    paths = [Path(work.vault.path) / part.name for part in entry.parts]
    kept = [path.read_bytes() for path in paths]

    def check(kind: type[Exception]) -> None:
        def read() -> None:
            with open_parts(work.vault, entry, work.keys) as reader:
                reader.read()

        with pytest.raises(kind):
            read()
        for path, stream in zip(paths, kept, strict=True):
            path.unlink(missing_ok=True)
            path.write_bytes(stream)

    for index, path in enumerate(paths):
        path.unlink()
        check(FileNotFoundError)
        os.truncate(path, 100 if index < 2 else 10)
        check(TruncatedError)
        path.write_bytes(kept[index] + b"x")
        check(FormatError)
        path.write_bytes(kept[index - 1])
        check(FormatError if index != 1 else AuthenticationError)
        path.unlink()
        os.mkfifo(path)
        check(OSError)
    with open_parts(work.vault, entry, work.keys) as reader:
        assert reader.read() == data


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_the_only_object_keeps_nobody_waiting(tmp_path: Path) -> None:
    work, entry, _ = joined(tmp_path, (5,))
    path = Path(work.vault.path) / entry.parts[0].name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        open_parts(work.vault, entry, work.keys)
