"""Workers: files of every length, here and behind URLs, come back; what attacks them is refused or harmless."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import secrets
import signal
import stat
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from ags1.dataset import sources
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.targets import LocalTarget, open_target
from ags1.dataset.worker import cut, cut_entry
from ags1.errors import AuthenticationError, FormatError, TruncatedError
from ags1.kms import ServiceRefusal
from ags1.storage import Location, list_files, read_whole
from ags1.work.units import BATCH_UNITS
from tests.checks import MIB, in_child, pattern
from tests.dataset.works import Work, error_of
from tests.servers.s3 import S3Server

SIZES = (0, 1, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 3 * MIB + 7, 33 * MIB + 1)


def make(root: Path, sizes: tuple[int, ...] = SIZES) -> dict[str, bytes]:
    """Files of these sizes, in two directories."""
    contents = {f"d{size % 2}/of-{size:09}": pattern(size) for size in sizes}
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return contents


def read_all(root: Location) -> dict[str, bytes]:
    return {each.name: bytes(memoryview(read_whole(each.location, 1 << 30))) for each in list_files(root)}


def objects(work: Work) -> list[str]:
    """Names of the objects in a vault, without what the run has noted."""
    return [name for name in read_all(work.vault) if not name.startswith("_ags1/")]


def memory() -> Location:
    return Location(f"memory://work-{secrets.token_hex(4)}")


@pytest.fixture
def work(tmp_path: Path) -> Work:
    make(tmp_path / "raw", (5, 3 * MIB))
    return Work(Location(tmp_path / "raw"), Location(tmp_path / "vault"))


# -- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("where", ["local", "memory"])
def test_files_of_every_length_come_back(tmp_path: Path, threads: int, where: str) -> None:
    contents = make(tmp_path / "raw")
    vault, target = (
        (Location(tmp_path / "vault"), Location(tmp_path / "out")) if where == "local" else (memory(), memory())
    )
    work = Work(Location(tmp_path / "raw"), vault)
    entries = work.encrypt(threads=threads)
    stored = read_all(vault)
    for entry in entries:
        assert [len(stored[part.name]) for part in entry.parts] == [part.file_length for part in entry.parts]
    assert all(outcome.error is None for outcome in work.verify(entries, threads))
    done = work.decrypt(target, entries, threads)
    assert [outcome.result for outcome in done] == [((path, len(contents[path])),) for path in sorted(contents)]
    assert read_all(target) == contents
    # And from there into this machine.
    assert all(each.error is None for each in work.decrypt(Location(tmp_path / "again"), entries, threads))
    assert read_all(Location(tmp_path / "again")) == contents


def test_a_source_behind_a_url_is_encrypted_into_a_directory(tmp_path: Path) -> None:
    import fsspec

    contents = make(tmp_path / "raw", (0, 5, MIB + 1, 9 * MIB))
    source = memory()
    for name, data in contents.items():
        fsspec.filesystem("memory").pipe(f"{source}/{name}", data)
    work = Work(source, Location(tmp_path / "vault"))
    entries = work.encrypt(threads=2)
    assert all(each.error is None for each in work.decrypt(Location(tmp_path / "out"), entries))
    assert read_all(Location(tmp_path / "out")) == contents


@pytest.mark.parametrize("part_bytes", [1, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB, 40 * MIB])
def test_parts_of_every_length_are_files_of_their_own(tmp_path: Path, part_bytes: int) -> None:
    contents = make(tmp_path / "raw", (0, MIB, MIB + 1, 2 * MIB, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1))
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault"))
    entries = work.encrypt(part_bytes, threads=2)
    step = max(MIB, part_bytes // MIB * MIB)
    for entry in entries:
        lengths = [part.plaintext_length for part in entry.parts]
        assert sum(lengths) == len(contents[entry.path])
        assert all(length == step for length in lengths[:-1])
        assert lengths[-1] <= step
    assert all(each.error is None for each in work.verify(entries))
    for target in (Location(tmp_path / "out"), memory()):
        assert all(each.error is None for each in work.decrypt(target, entries))
        assert read_all(target) == contents


def test_a_file_is_never_cut_into_more_parts_than_names_can_count(work: Work) -> None:
    unit = work.units()[0]._replace(size=1 << 40)
    parts = cut(unit, 1)
    assert len(parts) <= 99_999
    assert [part.start for part in parts] == [sum(part.size for part in parts[:at]) for at in range(3)] + [
        part.start for part in parts[3:]
    ]
    assert parts[-1].start + parts[-1].size == unit.size
    assert len({part.name for part in parts}) == len(parts)


@pytest.mark.parametrize("name", [b"n" * 255, b"bad\xff\xfe", "ä".encode() * 127, b"new\nline", b"%41"])
def test_every_name_that_a_file_can_have_comes_back(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "raw").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "raw") + b"/" + name)).write_bytes(b"data")
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault"))
    entries = work.encrypt()
    assert all(each.error is None for each in work.decrypt(Location(tmp_path / "out"), entries))
    assert os.listdir(os.fsencode(tmp_path / "out")) == [name]
    assert all(len(each.encode()) <= 255 for each in os.listdir(tmp_path / "vault"))


def test_a_name_that_is_no_text_is_refused_behind_a_url(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")).write_bytes(b"data")
    work = Work(Location(tmp_path), memory())
    (outcome,) = work.decrypt(memory(), work.encrypt())
    assert isinstance(error_of(outcome), OSError)
    assert "is not UTF-8" in str(outcome.error)


def test_units_and_outcomes_travel_and_hold_no_key(work: Work) -> None:
    outcomes = work.outcomes(work.units(MIB))
    assert pickle.loads(pickle.dumps(outcomes)) == outcomes
    secret = bytes(work.run.keys.key())
    derived = [bytes(work.run.keys.derive(each.unit.name)[0]) for each in outcomes]
    text = pickle.dumps(outcomes)
    assert not [key for key in (secret, *derived) if key in text]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(work.encrypter())


# -- sources that change -------------------------------------------------------------------------------------------


def rewrite(path: Path) -> None:
    """Other content, of equal length and time."""
    seen = path.stat()
    path.write_bytes(b"x" * seen.st_size)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


@pytest.mark.parametrize("size", [5, 3 * MIB])
@pytest.mark.parametrize("part_bytes", [None, MIB])
def test_a_source_that_changed_since_it_was_listed_is_refused(work: Work, size: int, part_bytes: int | None) -> None:
    units = work.units(part_bytes)
    rewrite(Path(work.source.path) / f"d{size % 2}" / f"of-{size:09}")
    for outcome in work.outcomes(units):
        if outcome.unit.identity.size == size:
            error = error_of(outcome)
            assert isinstance(error, OSError)
            assert error.errno == errno.EBUSY
        else:
            assert outcome.error is None
    assert not [name for name in objects(work) if f"{size:09}" in name]


def test_a_large_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "raw", (70 * MIB,))
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault"))
    told: list[int] = []

    def change(more: int) -> None:
        if not told:
            rewrite(tmp_path / "raw" / "d0" / f"of-{70 * MIB:09}")
        told.append(more)

    (outcome,) = work.encrypter().in_turn(work.units(), change)
    assert isinstance(error_of(outcome), OSError)
    assert "was changed while" in str(outcome.error)
    assert sum(told) == 70 * MIB
    assert objects(work) == []


def test_a_small_source_that_changes_while_it_is_read_is_refused(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    read = sources._read_all

    def reading(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        rewrite(Path(work.source.path) / "d1" / f"of-{5:09}")
        return data

    monkeypatch.setattr(sources, "_read_all", reading)
    (outcome,) = [each for each in work.outcomes(work.units()) if each.unit.size == 5]
    assert "was changed while" in str(error_of(outcome))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_a_special_file_in_place_of_a_source_keeps_nobody_waiting(work: Work, size: int) -> None:
    units = work.units()
    path = Path(work.source.path) / f"d{size % 2}" / f"of-{size:09}"
    for replace in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
        path.unlink() if not path.is_dir() else path.rmdir()
        replace(path)
        (outcome,) = [each for each in work.outcomes(units) if each.unit.size == size]
        assert isinstance(error_of(outcome), OSError)
        units = [unit for unit in units if unit.size == size]


def test_a_source_that_went_away_is_an_error_of_its_own(work: Work) -> None:
    units = work.units()
    (Path(work.source.path) / "d1" / f"of-{5:09}").unlink()
    first, second = sorted(work.outcomes(units), key=lambda each: each.unit.size)
    assert isinstance(error_of(first), FileNotFoundError)
    assert second.error is None


# -- targets that somebody has prepared ----------------------------------------------------------------------------


def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "precious").write_bytes(b"precious")
    return path


@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_no_object_is_written_through_a_link(work: Work, tmp_path: Path, size: int) -> None:
    precious = outside(tmp_path) / "precious"
    unit = next(unit for unit in work.units() if unit.size == size)
    place = Path(work.vault.path) / unit.name
    place.parent.mkdir(parents=True)
    place.symlink_to(precious)
    (outcome,) = work.outcomes([unit])
    assert isinstance(error_of(outcome), FileExistsError)
    assert precious.read_bytes() == b"precious"
    assert place.is_symlink()
    place.unlink()
    place.parent.rmdir()
    place.parent.symlink_to(precious.parent)
    (outcome,) = work.outcomes([unit])
    assert isinstance(error_of(outcome), NotADirectoryError)
    assert "in the way of a directory" in str(outcome.error)
    assert os.listdir(precious.parent) == ["precious"]


@pytest.mark.parametrize("size", [5, 3 * MIB])
def test_an_object_that_is_there_is_never_touched(work: Work, size: int) -> None:
    unit = next(unit for unit in work.units() if unit.size == size)
    place = Path(work.vault.path) / unit.name
    place.parent.mkdir(parents=True)
    place.write_bytes(b"of somebody else")
    (outcome,) = work.outcomes([unit])
    assert isinstance(error_of(outcome), FileExistsError)
    assert place.read_bytes() == b"of somebody else"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part_bytes", [None, MIB])
def test_nothing_is_decrypted_through_a_link_or_into_a_special_file(
    work: Work, tmp_path: Path, part_bytes: int | None
) -> None:
    entries = work.encrypt(part_bytes)
    precious = outside(tmp_path) / "precious"
    prepared: list[Callable[[Path], object]] = [
        lambda path: path.symlink_to(precious),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to(tmp_path / "outside" / "new"),
        os.mkfifo,
        lambda path: os.link(precious, path),
    ]
    for number, prepare in enumerate(prepared):
        target = tmp_path / f"out-{number}"
        for entry in entries:
            (target / entry.path).parent.mkdir(parents=True, exist_ok=True)
            prepare(target / entry.path)
        assert all(each.error is None for each in work.decrypt(Location(target), entries))
        for entry in entries:
            assert stat.S_ISREG((target / entry.path).lstat().st_mode)
        assert read_all(Location(target)) == read_all(work.source)
        assert precious.read_bytes() == b"precious"
        assert os.listdir(precious.parent) == ["precious"]


@pytest.mark.parametrize("part_bytes", [None, MIB])
def test_a_directory_that_is_a_link_or_a_file_is_refused(work: Work, tmp_path: Path, part_bytes: int | None) -> None:
    entries = work.encrypt(part_bytes)
    precious = outside(tmp_path)
    target = tmp_path / "out"
    target.mkdir()
    (target / "d0").symlink_to(precious)
    (target / "d1").write_bytes(b"a file")
    for outcome in work.decrypt(Location(target), entries):
        assert isinstance(error_of(outcome), NotADirectoryError)
    assert os.listdir(precious) == ["precious"]
    assert (target / "d1").read_bytes() == b"a file"


def test_a_directory_in_the_place_of_a_file_is_an_error_and_stays(work: Work, tmp_path: Path) -> None:
    entries = work.encrypt()
    target = tmp_path / "out"
    for entry in entries:
        (target / entry.path).mkdir(parents=True)
    for outcome in work.decrypt(Location(target), entries):
        assert isinstance(error_of(outcome), OSError)
    assert all((target / entry.path).is_dir() for entry in entries)
    assert not [name for _, _, names in os.walk(target) for name in names]


# -- modes ---------------------------------------------------------------------------------------------------------


def modes(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o400])
@pytest.mark.parametrize("part_bytes", [None, MIB])
def test_modes_come_back_no_wider_than_the_umask_and_what_was_there(
    work: Work, tmp_path: Path, mode: int, part_bytes: int | None
) -> None:
    for path in Path(work.source.path).rglob("of-*"):
        path.chmod(mode)
    entries = work.encrypt(part_bytes)
    assert all(entry.mode == mode for entry in entries)
    before = os.umask(0o027)
    try:
        work.decrypt(Location(tmp_path / "out"), entries)
        assert modes(tmp_path / "out") == {mode & ~0o027}
        for path in (tmp_path / "out").rglob("of-*"):
            path.chmod(0o440)
        work.decrypt(Location(tmp_path / "out"), entries)
        assert modes(tmp_path / "out") == {mode & 0o440}
    finally:
        os.umask(before)


# -- full disks ----------------------------------------------------------------------------------------------------


def test_a_file_that_may_not_become_so_long_leaves_nothing(work: Work, tmp_path: Path) -> None:
    def encrypt() -> bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
        return pickle.dumps([(each.unit.size, getattr(each.error, "errno", None)) for each in work.outcomes(units)])

    units = work.units()
    assert pickle.loads(in_child(encrypt)) == [(3 * MIB, errno.EFBIG), (5, None)]
    assert [Path(name).name.partition(".")[0] for name in objects(work)] == [f"of-{5:09}"]


def test_after_a_full_disk_nothing_more_is_tried(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(2 * BATCH_UNITS):
        (Path(work.source.path) / f"e{number:03}").write_bytes(b"x")
    units = work.units()
    monkeypatch.setattr("ags1.dataset.targets.os.write", full)
    outcomes = list(work.encrypter().in_turn([unit for unit in units if unit.size < MIB], int))
    assert len(outcomes) == len(units) - 1
    assert all(isinstance(error_of(each), OSError) for each in outcomes)
    assert all(each.error.errno == errno.ENOSPC for each in outcomes)  # type: ignore[union-attr]
    # One batch was tried: the rest have its error, not one of their own.
    assert len({id(each.error) for each in outcomes}) <= BATCH_UNITS + 1
    assert objects(work) == []
    with pytest.raises(OSError, match="No space left") as error:
        work.outcomes([unit for unit in units if unit.size < MIB])
    assert str(work.vault) in str(error.value)


def test_a_kms_that_refuses_everything_is_asked_once(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(class_id: str | None = None) -> None:
        asked.append(class_id)
        raise ServiceRefusal("the credentials have expired")

    for number in range(3 * BATCH_UNITS):
        (Path(work.source.path) / f"e{number:03}").write_bytes(b"x")
    units = work.units()
    monkeypatch.setattr(work.run.keys, "key", refuse)
    outcomes = list(work.encrypter().in_turn(units, int))
    assert all(isinstance(error_of(each), ServiceRefusal) for each in outcomes)
    assert len(asked) <= BATCH_UNITS


# -- objects that are not what they were ---------------------------------------------------------------------------


def places(work: Work, entries: list[DatasetEntry]) -> Iterator[tuple[DatasetEntry, Path]]:
    for entry in entries:
        yield entry, Path(work.vault.path) / entry.parts[-1].name


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part_bytes", [None, MIB])
def test_objects_that_are_not_what_they_were_are_named_and_not_released(
    work: Work, tmp_path: Path, part_bytes: int | None
) -> None:
    entries = work.encrypt(part_bytes)

    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    def fifo(path: Path) -> None:
        path.unlink()
        os.mkfifo(path)

    damages: list[tuple[Callable[[Path], object], type[Exception]]] = [
        (flip, AuthenticationError),
        (lambda path: os.truncate(path, path.stat().st_size - 1), TruncatedError),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), FormatError),
        (lambda path: path.write_bytes(b""), FormatError),
        (Path.unlink, FileNotFoundError),
        (fifo, OSError),
    ]
    for damage, kind in damages:
        kept = {path: path.read_bytes() for _, path in places(work, entries)}
        for _, path in places(work, entries):
            damage(path)
        for outcome in [*work.verify(entries), *work.decrypt(Location(tmp_path / "out"), entries)]:
            error = error_of(outcome)
            assert isinstance(error, kind)
            assert outcome.unit.parts[-1].name in str(error)
        assert not [name for _, _, names in os.walk(tmp_path / "out") for name in names]
        for path, data in kept.items():
            path.unlink(missing_ok=True)
            path.write_bytes(data)
    assert all(each.error is None for each in work.verify(entries))


def test_one_damaged_file_does_not_take_its_batch_with_it(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / "raw" / f"{number:02}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pattern(100 + number))
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault"))
    entries = work.encrypt()
    path = tmp_path / "vault" / entries[7].parts[0].name
    path.write_bytes(bytes(len(path.read_bytes())))
    failed = [each.unit.path for each in work.decrypt(Location(tmp_path / "out"), entries) if each.error]
    assert failed == ["07"]
    assert len(list((tmp_path / "out").iterdir())) == 19


# -- a real object store -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part_bytes", [None, 8 * MIB])
def test_from_an_object_store_into_one_and_back(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str, part_bytes: int | None
) -> None:
    contents = make(tmp_path / "raw", (0, 5, 70_000, MIB, MIB + 1, 20 * MIB + 3))
    options = s3_server.storage_options()
    client = s3_server.client()
    for name, data in contents.items():
        client.put_object(Bucket=s3_bucket, Key=f"raw/{name}", Body=data)
    work = Work(Location(f"s3://{s3_bucket}/raw", options), Location(f"s3://{s3_bucket}/vault", options))
    entries = work.encrypt(part_bytes, threads=2)
    assert all(entry.source is not None and entry.source.etag for entry in entries)
    assert all(each.error is None for each in work.verify(entries, threads=2))
    for target in (Location(tmp_path / "out"), Location(f"s3://{s3_bucket}/out", options)):
        assert all(each.error is None for each in work.decrypt(target, entries, threads=2))
        assert read_all(target) == contents
    # Sources that were replaced after the listing.
    units = work.units(part_bytes)
    for name, data in contents.items():
        client.put_object(Bucket=s3_bucket, Key=f"raw/{name}", Body=data[::-1])
    for outcome in work.outcomes(units, threads=2):
        if outcome.unit.identity.size > 1:
            assert "was changed while" in str(error_of(outcome))
    # Objects that are not what they were.
    name = entries[-1].parts[-1].name
    client.put_object(Bucket=s3_bucket, Key=f"vault/{name}", Body=b"short")
    client.delete_object(Bucket=s3_bucket, Key=f"vault/{entries[0].parts[0].name}")
    errors = [each.error for each in work.verify(entries)]
    assert isinstance(errors[0], FileNotFoundError)
    assert isinstance(errors[-1], FormatError)
    assert [error for error in errors[1:-1] if error is not None] == []


# -- ranges of big files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(7 * MIB + 3,), (3 * MIB, 3 * MIB, 5), (MIB + 5, 2 * MIB, 7, 4 * MIB), (5, 0, 5)])
@pytest.mark.parametrize("part_bytes", [1, MIB, 2 * MIB + 9, 5 * MIB, 1 << 40])
def test_ranges_of_a_file_have_each_byte_once_and_begin_at_blocks(lengths: tuple[int, ...], part_bytes: int) -> None:
    parts = tuple(Part(f"p.0123456789ab-{index:08x}.ags1", size, b"") for index, size in enumerate(lengths))
    units = cut_entry(DatasetEntry("p", parts, "c", 1), part_bytes, "into")
    starts = dict(zip(parts, accumulate((0, *lengths)), strict=False))
    at = 0
    for unit in units:
        assert unit.start == at == starts[unit.entry.parts[0]] + unit.first
        assert unit.first % MIB == 0
        assert 0 < unit.size <= max(part_bytes, MIB)
        at += unit.size
        assert at <= starts[unit.entry.parts[-1]] + unit.entry.parts[-1].plaintext_length
    assert at == sum(lengths)
    assert sum(unit.stored for unit in units) == sum(part.file_length for part in parts)


@pytest.mark.parametrize("vault", ["local", "memory"])
@pytest.mark.parametrize("part_bytes", [MIB, 2 * MIB, 64 * MIB])
def test_ranges_that_many_write_are_the_file(tmp_path: Path, vault: str, part_bytes: int) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/big").write_bytes(pattern(7 * MIB + 3))
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault") if vault == "local" else memory())
    (entry,) = work.encrypt(part_bytes)
    target = LocalTarget(str(tmp_path / "out"))
    target.begin("aside/name", entry.plaintext_length, 0o440)
    units = cut_entry(entry, 3 * MIB, "aside/name")
    told: list[int] = []
    # In any order, and again: a task that is repeated writes the same.
    for unit in [*units[::-1], units[0]]:
        told.clear()
        (outcome,) = work.decrypter(Location(tmp_path / "out")).in_turn([unit], told.append)
        assert outcome.result == (("aside/name", unit.size),), outcome.error
        assert (sum(told), outcome.untold) == (unit.size, 0)
    assert not (tmp_path / "out/big").exists()
    (tmp_path / "out/big").symlink_to(tmp_path / "raw/big")
    target.finish("aside/name", "big", 0o440)
    target.close()
    assert not (tmp_path / "out/big").is_symlink()
    assert (tmp_path / "out/big").stat().st_mode & 0o777 == 0o440
    assert read_all(Location(tmp_path / "out")) == {"big": pattern(7 * MIB + 3)}
    # One that comes late finds nothing to write into, and makes nothing.
    (outcome,) = work.decrypter(Location(tmp_path / "out")).in_turn([units[0]], int)
    assert isinstance(outcome.error, FileNotFoundError)
    assert not os.listdir(tmp_path / "out/aside")


def test_a_range_whose_blocks_are_not_authentic_is_refused(tmp_path: Path, work: Work) -> None:
    entry = max(work.encrypt(), key=lambda each: each.plaintext_length)
    path = tmp_path / "vault" / entry.parts[0].name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with open_target(Location(tmp_path / "out")) as target:
        target.begin("name", entry.plaintext_length, None)
    ranges = cut_entry(entry, MIB, "name")
    for outcomes in (
        list(work.decrypter(Location(tmp_path / "out")).in_turn(ranges, int)),
        work.verify(ranges),
    ):
        assert [type(each.error) for each in outcomes] == [type(None), type(None), AuthenticationError]


@pytest.mark.parametrize("vault", ["local", "memory"])
@pytest.mark.parametrize("part_bytes", [MIB, 2 * MIB, 64 * MIB])
def test_ranges_authenticate_each_block_once(tmp_path: Path, vault: str, part_bytes: int) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/big").write_bytes(pattern(7 * MIB + 3))
    work = Work(Location(tmp_path / "raw"), Location(tmp_path / "vault") if vault == "local" else memory())
    (entry,) = work.encrypt(part_bytes)
    units = cut_entry(entry, 3 * MIB)
    assert [outcome.result for outcome in work.verify(units)] == [(("big", unit.size),) for unit in units]
    if vault == "memory":
        return
    block = MIB + 28
    for part in entry.parts:
        path = tmp_path / "vault" / part.name
        for index in range(-(-part.plaintext_length // MIB)):
            data = path.read_bytes()
            changed = bytearray(data)
            changed[8 + index * block + 100 % (len(data) - 8 - index * block)] ^= 1
            path.write_bytes(changed)
            assert sum(isinstance(each.error, AuthenticationError) for each in work.verify(units)) == 1
            path.write_bytes(data)
