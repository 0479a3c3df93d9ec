"""What an attacker without keys, a mistake or a broken disk does to a dataset: each is detected and named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import new_object_name
from ags1.dataset.pins import Access
from ags1.dataset.runs import DatasetRun, Done
from ags1.dataset.transaction import Transaction
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.storage import Location
from tests.checks import pattern
from tests.dataset.conftest import (
    CONTENTS,
    MASTER,
    OTHER,
    CountingKms,
    fresh,
    killed_at,
    kinds,
    plain_of,
    read_tree,
    write_tree,
)

FIRST, SECOND = "year=2026/month=01/part-0.parquet", "year=2026/month=02/part-0.parquet"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def objects(vault: Path, version: int | None = None) -> dict[str, Path]:
    """The object of each file."""
    with dataset.open(vault, fresh(), version=version) as opened:
        return {entry.path: vault / entry.parts[0].name for entry in opened.files}


# -- objects of files --------------------------------------------------------------------------------------------------


def test_objects_that_were_swapped_are_refused_and_each_is_named(vault: Path, raw: Path) -> None:
    (raw / SECOND).write_bytes(pattern(5000)[::-1])
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
    found = objects(vault)
    a, b = found[FIRST].read_bytes(), found[SECOND].read_bytes()
    found[FIRST].write_bytes(b)
    found[SECOND].write_bytes(a)
    with dataset.open(vault, fresh()) as opened:
        report = opened.verify()
        assert kinds(report) == {FIRST: "damaged", SECOND: "damaged"}
        with opened.open(FIRST) as reader, pytest.raises(ags1.AuthenticationError, match="failed authentication"):
            reader.read()


def test_an_older_object_in_place_of_a_newer_one_is_refused_and_named(vault: Path, raw: Path) -> None:
    (raw / FIRST).write_bytes(pattern(5000)[::-1])
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
        objects(vault)[FIRST].write_bytes(objects(vault, 1)[FIRST].read_bytes())
        assert kinds(opened.verify())[FIRST] == "damaged"
        with opened.open(FIRST) as reader, pytest.raises(ags1.AuthenticationError):
            reader.read()


def test_a_truncated_object_is_refused_when_it_is_opened(vault: Path, tmp_path: Path) -> None:
    with dataset.open(vault, fresh()) as opened:
        opened.add(write_tree(tmp_path / "big", {"big": pattern(3 << 20)}))
        path = objects(vault)["big"]
        # Whole blocks: as a stream by itself it is authentic.
        os.truncate(path, ags1.encrypted_length(2 << 20))
        with pytest.raises(ags1.TruncatedError, match="bytes are missing at its end"):
            opened.open("big")
        assert kinds(opened.verify()) == {"big": "truncated"}
        with path.open("ab") as file:
            file.write(bytes(3 << 20))
        assert kinds(opened.verify()) == {"big": "extended"}


def test_special_files_in_place_of_objects_are_named_and_nobody_waits(vault: Path) -> None:
    found = objects(vault)
    found["a.txt"].unlink()
    for path in (FIRST, SECOND):
        found[path].unlink()
    found[FIRST].mkdir()
    os.mkfifo(found[SECOND])
    with dataset.open(vault, fresh()) as opened:
        problems = kinds(opened.verify())
        assert problems["a.txt"] == "missing"
        assert problems[FIRST] in ("replaced", "unreadable")
        assert problems[SECOND] in ("replaced", "unreadable")
        with pytest.raises(FileNotFoundError, match="its object is missing"):
            opened.open("a.txt")
        with pytest.raises(OSError, match="regular file"):
            opened.open(SECOND)
        with pytest.raises(OSError, match=r"regular file|directory"):
            opened.open(FIRST)


def test_foreign_files_are_named_and_never_touched(vault: Path, raw: Path) -> None:
    (vault / "sub" / "foreign").write_bytes(b"not of this dataset")
    shutil.copy(objects(vault)["a.txt"], vault / "copy")
    (vault / "a.txt").write_bytes(b"under the very path of a file")
    with dataset.open(vault, fresh()) as opened:
        assert kinds(opened.verify()) == {"a.txt": "foreign", "copy": "foreign", "sub/foreign": "foreign"}
        told = dict(opened.repair(raw).notes)
        assert sorted(told) == ["a.txt", "copy", "sub/foreign"]
        assert all("no run of this dataset has written it, and it stays" in each for each in told.values())
        opened.add(raw)
        opened.rewrap("new")
        opened.expire(older_than=None, grace=0)
    assert (vault / "sub" / "foreign").read_bytes() == b"not of this dataset"
    assert (vault / "a.txt").read_bytes() == b"under the very path of a file"
    assert (vault / "copy").exists()


# -- links and special files -----------------------------------------------------------------------------------------


def test_nothing_is_written_through_a_link_in_place_of_a_directory(vault: Path, raw: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (vault / "linked").symlink_to(tmp_path / "outside")
    write_tree(raw, {"linked/file": b"data", "linked/large": pattern(2 << 20)})
    with dataset.open(vault, fresh()) as opened:
        for path in ("linked/file", "linked/large"):
            with pytest.raises(OSError, match=r"in the way|Not a directory|link"):
                opened.add(raw / path, prefix="linked")
        report = opened.add(raw, on_error="collect")
        assert sorted(path for path, _ in report.errors) == ["linked/file", "linked/large"]
    assert not os.listdir(tmp_path / "outside")


@pytest.mark.parametrize("size", [10, 3 << 20])
@pytest.mark.parametrize("what", ["link", "link to a directory", "fifo", "directory link"])
def test_decryption_writes_through_no_link_and_into_no_special_file(what: str, size: int, tmp_path: Path) -> None:
    raw = write_tree(tmp_path / "raw", {"dir/file": pattern(size)})
    outside, target = tmp_path / "outside", tmp_path / "back"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    target.mkdir()
    if what == "directory link":
        (target / "dir").symlink_to(outside)
    else:
        (target / "dir").mkdir()
        if what == "fifo":
            os.mkfifo(target / "dir/file")
        else:
            (target / "dir/file").symlink_to(outside / "precious" if what == "link" else outside)
    with dataset.encrypt(raw, tmp_path / "vault", fresh(), "lake") as opened:
        if what == "directory link":
            with pytest.raises(OSError, match=r"in the way|Not a directory|link"):
                opened.decrypt(target)
        else:
            report = opened.decrypt(target, on_error="collect")
            assert [path for path, _ in report.errors] in ([], ["dir/file"])
            if report.ok:
                assert not (target / "dir/file").is_symlink()
                assert (target / "dir/file").read_bytes() == pattern(size)
    assert read_tree(outside) == {"precious": b"precious"}


@pytest.mark.parametrize("name", ["v-1.json", "v-2.json", "manifests", "runs"])
def test_special_files_in_place_of_control_files_hang_nobody(name: str, vault: Path, raw: Path) -> None:
    place = vault / "_ags1" / name
    if place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    os.mkfifo(place)
    (raw / "a.txt").write_bytes(b"changed")

    def use() -> None:
        with dataset.open(vault, fresh()) as opened:
            opened.add(raw)
            opened.verify()
            opened.expire(older_than=None, grace=0)

    with pytest.raises((OSError, ags1.Ags1Error)):
        use()


def test_control_files_are_read_with_a_bound(vault: Path) -> None:
    with (vault / "_ags1/v-2.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ags1.FormatError, match="more than"):
        dataset.open(vault, fresh())
    (vault / "_ags1/v-2.json").unlink()
    with dataset.open(vault, fresh()) as opened:
        manifest = next((vault / "_ags1/manifests").iterdir())
        opened.close()
    with manifest.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ags1.FormatError, match="more than"):
        dataset.open(vault, fresh())


# -- versions and manifests --------------------------------------------------------------------------------------------


def test_an_older_version_under_a_newer_number_is_refused(vault: Path, raw: Path) -> None:
    fields = json.loads((vault / "_ags1/v-1.json").read_text())
    (raw / "a.txt").write_bytes(b"second version")
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
    shutil.copy(vault / "_ags1/v-1.json", vault / "_ags1/v-3.json")
    with pytest.raises(ags1.FormatError, match="put in another's place"):
        dataset.open(vault, fresh())
    (vault / "_ags1/v-3.json").write_text(json.dumps({**fields, "version": 3}, indent=2) + "\n")
    with pytest.raises(ags1.AuthenticationError, match="was changed"):
        dataset.open(vault, fresh())
    os.unlink(vault / "_ags1/v-3.json")
    now = json.loads((vault / "_ags1/v-2.json").read_text())
    (vault / "_ags1/v-2.json").write_text(json.dumps({**now, "manifest": fields["manifest"]}, indent=2) + "\n")
    with pytest.raises(ags1.Ags1Error):
        dataset.open(vault, fresh())


def test_a_manifest_that_is_damaged_swapped_cut_or_missing_is_refused_and_named(vault: Path, raw: Path) -> None:
    (raw / "a.txt").write_bytes(b"second version")
    first = next((vault / "_ags1/manifests").iterdir())
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
    (second,) = set((vault / "_ags1/manifests").iterdir()) - {first}
    good = second.read_bytes()
    damages: list[Callable[[], Any]] = [
        lambda: second.write_bytes(first.read_bytes()), lambda: os.truncate(second, len(good) - 1),
        lambda: second.write_bytes(good + b"x"), lambda: second.unlink(),
        *(lambda offset=offset: flip(second, offset) for offset in (0, 9, 40, -1)),
    ]  # fmt: skip
    for damage in damages:
        second.write_bytes(good)
        damage()
        with pytest.raises((ags1.Ags1Error, FileNotFoundError), match=second.name):
            dataset.open(vault, fresh())
    second.write_bytes(good)
    with dataset.open(vault, fresh()) as opened:
        assert opened.open("a.txt").read() == b"second version"


def test_a_wrong_master_key_and_a_service_that_refuses_are_key_errors(vault: Path) -> None:
    for client in (CountingKms(lake=OTHER), CountingKms("another")):
        with pytest.raises(ags1.KeyAccessError):
            dataset.open(vault, client)


def test_a_long_chain_of_keys_costs_no_more_than_its_length(vault: Path) -> None:
    path = vault / "_ags1/v-1.json"
    fields = json.loads(path.read_text())
    keys = fields["key"]["encryption-keys"]
    keys += [{**keys[0], "key-id": f"k{index}", "encrypted-by-id": f"k{index + 1}"} for index in range(20_000)]
    path.write_text(json.dumps(fields))
    with pytest.raises(ags1.Ags1Error):
        dataset.open(vault, fresh())


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A dataset with the record of a run that was killed, and its source."""
    from ags1.dataset import writing

    monkeypatch.setattr(writing, "_RECORD_BYTES", -1)
    more = write_tree(tmp_path / "more", {f"{index}": pattern(index) for index in range(200)})
    shutil.copytree(vault, tmp_path / "trial")
    steps = killed_at(1 << 30, lambda: add(tmp_path / "trial", more))
    assert steps is not None
    assert killed_at(steps // 2, lambda: add(vault, more)) is None
    assert list((vault / "_ags1/runs").glob("*/done-*"))
    return vault, more


def add(vault: Path, source: Path, **options: Any) -> dataset.RunReport:
    with dataset.open(vault, fresh(), threads=1) as opened:
        return opened.add(source, durable=False, **options)


def test_a_record_that_was_changed_is_not_believed_and_is_said(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    first, *others = sorted((vault / "_ags1/runs").glob("*/done-*"))
    flip(first, 60)
    report = add(vault, more)
    # Each record has one file here, and the others are as authentic as before.
    assert report.resumed == len(others)
    assert len(report.notes) == 1
    assert "cannot be used" in report.notes[0][1]
    with dataset.open(vault, fresh()) as opened:
        assert plain_of(opened) == {**CONTENTS, **{f"{index}": pattern(index) for index in range(200)}}


def test_objects_of_a_killed_run_that_were_damaged_are_done_again(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    for path in vault.glob("*.ags1"):
        if path.name.startswith("1"):
            os.truncate(path, path.stat().st_size // 2)
    report = add(vault, more)
    assert report.resumed > 0
    with dataset.open(vault, fresh()) as opened:
        assert {each.code for each in opened.verify().findings} <= {"unreferenced"}
        assert plain_of(opened).items() >= {f"{index}": pattern(index) for index in range(200)}.items()


def test_a_run_that_is_not_to_be_resumed_is_done_again(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    report = add(vault, more, resume=False)
    assert (report.resumed, report.done) == (0, 200)


def test_what_was_recorded_under_a_former_master_key_is_done_again(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    with dataset.open(vault, fresh()) as opened:
        opened.rewrap("new")
    report = add(vault, more)
    assert (report.resumed, report.done) == (0, 200)


def test_no_key_stands_in_any_file_or_text_but_wrapped(unfinished: tuple[Path, Path]) -> None:
    vault, _ = unfinished
    with dataset.open(vault, fresh()) as opened:
        keys = [bytes(opened.key_metadata(entry.path).encryption_key) for entry in opened.files]
        view = opened._view()
        keys.append(bytes(view.keys.key()))
        text = f"{opened!r} {opened.files!r} {list(opened.files)!r} {opened.versions()!r} {view.root!r} {view.keys!r}"
        with pytest.raises(TypeError, match="cannot be pickled"):
            view.keys.__reduce__()
    stored = b"".join(read_tree(vault).values())
    for key in [*keys, MASTER]:
        assert key not in stored
        assert key.hex() not in text
        assert key.hex().encode() not in stored
        assert repr(key)[2:-1] not in text


def test_the_holder_of_another_master_key_moves_no_file_with_a_forged_record(tmp_path: Path) -> None:
    """A record is under the master key of the dataset, whatever it says itself about its key."""
    client = CountingKms("lake", a=OTHER)
    source, vault = write_tree(tmp_path / "raw", {"own.txt": b"own", "secret.txt": b"secret"}), tmp_path / "v"
    dataset.encrypt(source, vault, client, "lake")
    place = Location(str(vault))
    begun = Transaction.begin(Access.of(place, client), "add")
    begun.run.begin()
    # What a killed run of the victim has left: an object under the master key lake.
    write_tree(tmp_path / "new", {"taken.txt": b"SECRET"})
    name = new_object_name("secret.txt", begun.run.id)
    metadata = begun.run.keys.object_key(name)
    (vault / name).write_bytes(ags1.encrypt(b"SECRET", metadata.encryption_key, aad_prefix=metadata.aad_prefix or b""))
    found = (tmp_path / "new/taken.txt").stat()
    identity = SourceIdentity(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    # The attacker has the master key a, and says that the run is under it.
    forged = DatasetRun(place, begun.base.uuid if begun.base else "", WrappedKey("a"), 1, client, "add")
    forged.begin()
    forged.record([Done("taken.txt", ((name, 6),), identity)])
    victims, theirs = (vault / "_ags1/runs" / each for each in (begun.run.id, forged.id))
    shutil.copy(theirs / "run.json", victims / "run.json")
    for each in theirs.glob("done-*"):
        shutil.copy(each, victims)
    report = dataset.open(vault, client).add(tmp_path / "new")
    assert (report.resumed, report.done) == (0, 1)
    assert len(report.notes) == 2
    with dataset.open(vault, client) as opened:
        assert plain_of(opened) == {"own.txt": b"own", "secret.txt": b"secret", "taken.txt": b"SECRET"}
