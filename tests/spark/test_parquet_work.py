"""What a worker does with Parquet files, without Spark: attempts do not disturb each other, and errors are outcomes."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from ags1 import Key, KeyAccessError, parquet
from ags1.dataset.selection import Filter
from ags1.dataset.sources import scan
from ags1.kms import LocalKms, ServiceRefusal
from ags1.parquet.rewrite.tree_files import LEFT_OUT, PUT_OFF
from ags1.spark.engine import sealing
from ags1.spark.engine.dataset_work import DecryptionRecords
from ags1.spark.engine.locations import locate
from ags1.spark.engine.parquet_run import (
    ReadingSettings,
    TransferSettings,
    TreeTask,
    Verifying,
    WritingSettings,
    prefix_of,
    tree_work,
    unit_of,
)
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.results import raise_for
from ags1.spark.engine.runner import Outcome
from ags1.spark.engine.sealing import of_process
from ags1.storage import Location
from ags1.work.records import RunName, RunSeal
from tests.parquet import corpus

LONG_AGO = (1_000_000_000, 1_000_000_000)
COLUMN = "name"


def plain(rows: int = 100) -> bytes:
    return corpus.written(corpus.flat(rows))


def add(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, LONG_AGO)
    return path


def units_of(location: Location) -> list[Unit]:
    found = scan(location, "", Filter(), None, lambda path, why: None)
    return [unit_of(each.path, each.source, each.identity) for each in found]


def run(work: Any, location: Location) -> dict[str, Outcome]:
    return {each.path: each for each in work.run(units_of(location))}


def transferring(verb: str, source: Location, target: Location, how: TransferSettings) -> TreeTask:
    return TreeTask(verb, source, tree_work(source, target, how).transfer)


class Lake:
    """A tree of two Parquet files, and where it goes."""

    def __init__(self, directory: Path, kms: str) -> None:
        self.kms = kms
        self.path = directory / "lake"
        for number, name in enumerate(("a.parquet", "p=1/000000_0")):
            add(self.path, name, plain(100 + number))
        self.source = locate(self.path)
        self.vault = locate(directory / "vault")
        self.back = locate(directory / "back")
        self.writing = WritingSettings(kms, footer_key_id="lake", columns=(("lake2", (COLUMN,)),))
        self.reading = ReadingSettings(kms)

    def encrypting(self, **options: Any) -> TreeTask:
        return transferring("encrypt", self.source, self.vault, TransferSettings(None, self.writing, **options))

    def encrypt(self, **options: Any) -> dict[str, Outcome]:
        return run(self.encrypting(**options), self.source)

    def decrypt(self, reading: ReadingSettings | None = None) -> dict[str, Outcome]:
        how = TransferSettings(reading or self.reading, None)
        return run(transferring("decrypt", self.vault, self.back, how), self.vault)

    def verify(self, **options: Any) -> dict[str, Outcome]:
        return run(Verifying(self.vault, options.pop("reading", self.reading), options), self.vault)


@pytest.fixture
def lake(tmp_path: Path, kms_url: str) -> Lake:
    return Lake(tmp_path, kms_url)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which master keys a KMS was asked for, by a process that has asked none before."""
    asked: list[str] = []

    def counted(original: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(self: LocalKms, data: bytes, key_id: str) -> bytes:
            asked.append(key_id)
            return original(self, data, key_id)

        return call

    monkeypatch.setattr(LocalKms, "_wrap", counted(LocalKms._wrap))
    monkeypatch.setattr(LocalKms, "_unwrap", counted(LocalKms._unwrap))
    sealing._made.clear()
    return asked


def table_of(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data), use_threads=False)


# -- there and back ------------------------------------------------------------------------------------------------


def test_files_go_and_come_back(lake: Lake) -> None:
    there = lake.encrypt()
    assert {each.status for each in there.values()} == {"ok"}
    for name, each in there.items():
        stored = Path(lake.vault.join(name))
        assert each.target == str(stored)
        assert stored.read_bytes()[:4] == b"PARE"
        assert each.file_length == stored.stat().st_size
        assert each.plaintext_length == (lake.path / name).stat().st_size
        assert each.seconds > 0
    back = lake.decrypt()
    for name, each in back.items():
        assert each.plaintext_length == Path(lake.back.join(name)).stat().st_size
        assert each.file_length == there[name].file_length
        assert table_of(Path(lake.back.join(name)).read_bytes()).equals(table_of((lake.path / name).read_bytes()))


@pytest.mark.parametrize("way", ["decrypt", "verify"])
def test_a_service_that_refuses_everything_is_asked_for_one_file_of_a_task(
    way: str, lake: Lake, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.encrypt()
    # Another process has no key in its cache.
    sealing._made.clear()
    asked: list[str] = []

    def refuse(self: LocalKms, data: bytes, key_id: str) -> bytes:
        asked.append(key_id)
        raise ServiceRefusal("the password is wrong")

    monkeypatch.setattr(LocalKms, "unwrap_key", refuse)
    first, second = (lake.decrypt() if way == "decrypt" else lake.verify()).values()
    assert len(asked) <= 2, "for the keys of one file"
    assert (first.status, first.kind) == (second.status, second.kind) == ("error", "ServiceRefusal")
    assert str(second.error).startswith("not tried: ")
    with pytest.raises(KeyAccessError, match="the password is wrong"):
        raise_for(first, "ags1", None)


def test_files_are_keyed_anew(lake: Lake, tmp_path: Path) -> None:
    lake.encrypt()
    for name in ("a.parquet", "p=1/000000_0"):
        # The clock of the file system is coarse.
        os.utime(Path(lake.vault.join(name)), LONG_AGO)
    other = locate(tmp_path / "other")
    shared = (("encrypt_all", True),)
    how = TransferSettings(lake.reading, WritingSettings(lake.kms, footer_key_id="lake2", options=shared))
    again = transferring("rekey", lake.vault, other, how)
    assert {each.status for each in run(again, lake.vault).values()} == {"ok"}
    for name in ("a.parquet", "p=1/000000_0"):
        material = _footer_material(Path(other.join(name)))
        assert material.master_key_id == "lake2"
    # Done is done: for this master key, and for no other.
    assert {each.status for each in run(again, lake.vault).values()} == {"skipped"}
    how = TransferSettings(lake.reading, WritingSettings(lake.kms, footer_key_id="lake", options=shared))
    changed = transferring("rekey", lake.vault, other, how)
    assert {each.status for each in run(changed, lake.vault).values()} == {"ok"}


def _footer_material(path: Path) -> Any:
    from ags1.parquet.keys.material import parse_key_metadata
    from ags1.parquet.structure.footer import read_footer
    from ags1.storage import open_source

    source: Any = open_source(path.read_bytes())
    metadata = read_footer(source, None).key_metadata
    assert metadata is not None
    return parse_key_metadata(metadata)


def test_a_file_gets_its_own_identity(lake: Lake) -> None:
    lake.writing = WritingSettings(lake.kms, footer_key_id="lake", aad_prefix="people/{path}")
    lake.encrypt()
    expected = ReadingSettings(lake.kms, aad_prefix="people/{path}")
    assert {each.status for each in lake.verify(reading=expected).values()} == {"ok"}
    Path(lake.vault.join("a.parquet")).write_bytes(Path(lake.vault.join("p=1/000000_0")).read_bytes())
    swapped = lake.verify(reading=expected)["a.parquet"]
    assert (swapped.status, swapped.kind) == ("error", "AuthenticationError")
    assert "another AAD prefix" in str(swapped.error)


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ("lake/{path}", "p=1/a.parquet", b"lake/p=1/a.parquet"),
        ("{name}", "p=1/a.parquet", b"a.parquet"),
        ("{path}|{name}", "{name}/{path}", b"{name}/{path}|{path}"),
        (b"{path}", "a", b"{path}"),
        ("{path}", os.fsdecode(b"\xff"), b"\xff"),
    ],
)
def test_a_prefix_is_made_of_names_in_one_go(given: str | bytes, name: str, expected: bytes) -> None:
    assert prefix_of(given, name) == expected


# -- once for each process ------------------------------------------------------------------------------------------


def test_a_kms_is_asked_once_for_all_files_of_a_process(lake: Lake, calls: list[str]) -> None:
    for number in range(5):
        add(lake.path, f"more/{number}.parquet", plain(10))
    # Each bin of units comes with a copy of the work.
    for unit in units_of(lake.source):
        work = pickle.loads(pickle.dumps(lake.encrypting()))
        assert [each.status for each in work.run([unit])] == ["ok"]
    assert sorted(calls) == ["lake", "lake", "lake2", "lake2"], "each new key is wrapped, and opened again"
    calls.clear()
    # Another process has no key in its cache.
    sealing._made.clear()
    lake.verify()
    lake.decrypt()
    assert sorted(calls) == ["lake", "lake2"]


def test_a_forked_process_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sealing._made.clear()
    assert of_process("p", object) is of_process("p", object)
    first = of_process("p", object)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert of_process("p", object) is not first
    assert first not in sealing._made.newest_first()


def test_what_travels_is_names(lake: Lake) -> None:
    work = lake.encrypting()
    list(work.run(units_of(lake.source)))
    data = pickle.dumps(work)
    assert pickle.loads(data).function.__self__.target == lake.vault
    key = Path(lake.kms.partition("key_file=")[2].replace("%2F", "/")).read_bytes()
    assert key not in data
    assert key.hex().encode() not in data


# -- attempts ------------------------------------------------------------------------------------------------------


def test_two_attempts_at_a_file_at_once_leave_one_whole_file(lake: Lake) -> None:
    data = plain(20_000)
    add(lake.path, "a.parquet", data)
    (unit,) = (each for each in units_of(lake.source) if each.path == "a.parquet")
    start = threading.Barrier(4)
    outcomes: list[Outcome] = []

    def attempt() -> None:
        start.wait()
        for _ in range(3):
            outcomes.extend(lake.encrypting(resume=False).run([unit]))

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.status for each in outcomes] == ["ok"] * 12
    assert os.listdir(lake.vault.path) == ["a.parquet"]
    assert lake.verify()["a.parquet"].status == "ok"
    lake.decrypt()
    assert table_of(Path(lake.back.join("a.parquet")).read_bytes()).equals(table_of(data))


def test_a_finished_file_is_passed_over_and_a_newer_source_is_not(lake: Lake) -> None:
    first = lake.encrypt()
    before = {name: Path(lake.vault.join(name)).read_bytes() for name in first}
    again = lake.encrypt()
    assert {each.status for each in again.values()} == {"skipped"}
    assert {name: Path(lake.vault.join(name)).read_bytes() for name in first} == before
    assert again["a.parquet"].file_length == first["a.parquet"].file_length
    assert {each.status for each in lake.encrypt(resume=False).values()} == {"ok"}
    os.utime(lake.path / "a.parquet")
    os.utime(Path(lake.vault.join("a.parquet")), LONG_AGO)
    assert {name: each.status for name, each in lake.encrypt().items()} == {
        "a.parquet": "ok",
        "p=1/000000_0": "skipped",
    }


@pytest.mark.parametrize("change", [{"footer_key_id": "lake2"}, {"options": (("plaintext_footer", True),)}])
def test_a_file_that_was_encrypted_in_another_way_is_not_finished(lake: Lake, change: dict[str, Any]) -> None:
    lake.encrypt()
    given: dict[str, Any] = {"footer_key_id": "lake"} | change
    before = {name: Path(lake.vault.join(name)).read_bytes() for name in lake.encrypt()}
    lake.writing = WritingSettings(lake.kms, **given)
    refused = lake.encrypt()
    assert {each.kind for each in refused.values()} == {"FileExistsError"}
    assert "this run would take protection from it" in str(refused["a.parquet"].error)
    assert {name: Path(lake.vault.join(name)).read_bytes() for name in before} == before
    assert {each.status for each in lake.encrypt(resume=False).values()} == {"ok"}


def test_a_torn_target_is_not_finished(lake: Lake) -> None:
    lake.encrypt()
    target = Path(lake.vault.join("a.parquet"))
    target.write_bytes(target.read_bytes()[:-1])
    assert lake.encrypt()["a.parquet"].status == "ok"


# -- what else lies in a tree --------------------------------------------------------------------------------------


def test_each_file_says_what_it_is(lake: Lake) -> None:
    add(lake.path, "_SUCCESS", b"")
    add(lake.path, ".a.parquet.crc", b"crc\0")
    add(lake.path, ".other.crc", b"crc\0")
    add(lake.path, "_metadata", plain())
    add(lake.path, "_KEY_MATERIAL_FOR_a.parquet.json", b"{}")
    add(lake.path, "notes.txt", b"what is this?")
    found = lake.encrypt(others="skip")
    done = {name for name, each in found.items() if each.status == "ok"}
    assert done == {"a.parquet", "p=1/000000_0"}
    assert {name: each.error for name, each in found.items() if each.status == LEFT_OUT} == {
        ".a.parquet.crc": "it is a checksum of the old file",
        ".other.crc": "it is not a Parquet file",
        "_KEY_MATERIAL_FOR_a.parquet.json": "it is the key material of another file",
        "_metadata": "it repeats the statistics of all files, and readers do not need it",
        "notes.txt": "it is not a Parquet file",
    }
    # What is copied at the end is marked; nothing of it is there yet.
    assert [name for name, each in found.items() if each.status == PUT_OFF] == ["_SUCCESS"]
    assert found["_SUCCESS"].detail.path == "_SUCCESS"
    assert sorted(os.listdir(lake.vault.path)) == ["a.parquet", "p=1"]
    how = TransferSettings(None, lake.writing)
    examined = run(TreeTask("examine", lake.source, tree_work(lake.source, lake.vault, how).kind), lake.source)
    assert sorted(name for name, each in examined.items() if each.detail[0] == "other") == [
        ".other.crc",
        "notes.txt",
    ]
    refused = lake.encrypt(others="error")["notes.txt"]
    assert (refused.status, refused.kind) == ("error", "FormatError")
    assert "others='copy'" in str(refused.error)


def test_copies_are_the_same_bytes_and_are_made_once(lake: Lake) -> None:
    add(lake.path, "p=1/notes.txt", b"what is this?")
    how = TransferSettings(None, lake.writing)
    work = TreeTask("copy", lake.source, tree_work(lake.source, lake.vault, how).copy)
    units = [each for each in units_of(lake.source) if each.path.endswith(".txt")]
    (outcome,) = work.run(units)
    assert (outcome.status, outcome.plaintext_length, outcome.file_length) == ("ok", 13, 13)
    assert Path(lake.vault.join("p=1/notes.txt")).read_bytes() == b"what is this?"
    assert [each.status for each in work.run(units)] == ["skipped"]
    work.function = tree_work(lake.source, lake.vault, replace(how, resume=False)).copy
    assert [each.status for each in work.run(units)] == ["ok"]


# -- errors --------------------------------------------------------------------------------------------------------


def flip_page(path: Path) -> None:
    """Change a byte in the first page of a file."""
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)


def test_a_changed_page_is_named_and_nothing_of_it_appears(lake: Lake) -> None:
    lake.writing = WritingSettings(lake.kms, footer_key_id="lake")
    lake.encrypt()
    flip_page(Path(lake.vault.join("a.parquet")))
    back = lake.decrypt()
    assert (back["a.parquet"].status, back["a.parquet"].kind) == ("error", "AuthenticationError")
    assert "column" in str(back["a.parquet"].error)
    assert "page" in str(back["a.parquet"].error)
    assert back["p=1/000000_0"].status == "ok"
    assert os.listdir(lake.back.path) == ["p=1"]


def test_verifying_names_every_file_that_fails_and_why(lake: Lake) -> None:
    lake.writing = WritingSettings(lake.kms, footer_key_id="lake")
    lake.encrypt()
    sound = lake.verify()
    assert {each.status for each in sound.values()} == {"ok"}
    assert all(each.detail == (None, True, ("no-prefix",)) for each in sound.values())
    flip_page(Path(lake.vault.join("a.parquet")))
    Path(lake.vault.join("p=1/000000_0")).write_bytes(plain())
    found = lake.verify()
    changed, unencrypted = found["a.parquet"], found["p=1/000000_0"]
    assert (changed.status, changed.kind) == ("error", "AuthenticationError")
    assert "page" in str(changed.error)
    assert "column 'number'" in str(changed.error)
    assert (unencrypted.status, unencrypted.kind) == ("not protected", "AuthenticationError")
    assert "not encrypted" in str(unencrypted.error)


def test_a_column_whose_key_cannot_be_had_is_an_error_or_allowed(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    keys = {"lake": b"0123456789012345", "lake2": b"1123456789012345"}
    urls = {}
    for number in (1, 2):
        LocalKms.create(
            tmp_path / f"keys{number}", dict(list(keys.items())[:number]), key_file=tmp_path / "key"
        ).close()
        urls[number] = f"local:{tmp_path / f'keys{number}'}?key_file={tmp_path / 'key'}"
    lake = Lake(tmp_path, urls[2])
    lake.encrypt()
    reading = ReadingSettings(urls[1])
    found = lake.verify(reading=reading)["a.parquet"]
    assert (found.status, found.kind) == ("error", "KeyAccessError")
    assert f"column {COLUMN}: there is no key with this id" in str(found.error)
    assert lake.verify(reading=reading, missing_keys="drop")["a.parquet"].status == "ok"


def test_a_file_that_vanished_is_an_error_of_its_own(lake: Lake) -> None:
    units = units_of(lake.source)
    (lake.path / "a.parquet").unlink()
    found = {each.path: each for each in lake.encrypting().run(units)}
    assert (found["a.parquet"].status, found["a.parquet"].kind) == ("error", "FileNotFoundError")
    assert found["p=1/000000_0"].status == "ok"


# -- remote file systems -------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Any]:
    file_system = fsspec.filesystem("memory")
    yield file_system
    file_system.store.clear()
    file_system.pseudo_dirs[:] = [""]


def test_files_of_a_remote_file_system_go_and_come_back(lake: Lake, memory: Any) -> None:
    for name in ("a.parquet", "p=1/000000_0"):
        memory.pipe(f"/place/lake/{name}", (lake.path / name).read_bytes())
    lake.source, lake.vault, lake.back = (locate(f"memory://place/{name}") for name in ("lake", "vault", "back"))
    found = lake.encrypt()
    assert {each.status for each in found.values()} == {"ok"}, found
    stored = memory.cat("/place/vault/a.parquet")
    assert stored[:4] == b"PARE"
    assert found["a.parquet"].target == "memory://place/vault/a.parquet"
    assert found["a.parquet"].file_length == len(stored)
    assert {each.status for each in lake.encrypt().values()} == {"skipped"}
    assert {each.status for each in lake.verify().values()} == {"ok"}
    assert {each.status for each in lake.decrypt().values()} == {"ok"}
    assert table_of(memory.cat("/place/back/a.parquet")).equals(table_of((lake.path / "a.parquet").read_bytes()))


def test_an_object_that_failed_does_not_appear(lake: Lake, memory: Any) -> None:
    memory.pipe("/place/lake/a.parquet", (lake.path / "a.parquet").read_bytes()[:-9] + b"123456789")
    lake.source, lake.vault = locate("memory://place/lake"), locate("memory://place/vault")
    assert lake.encrypt()["a.parquet"].status == "error"
    assert not memory.exists("/place/vault/a.parquet")


def test_an_object_that_was_replaced_meanwhile_is_noticed(lake: Lake, memory: Any) -> None:
    memory.pipe("/place/lake/a.parquet", plain())
    lake.source, lake.vault = locate("memory://place/lake"), locate("memory://place/vault")
    units = units_of(lake.source)
    memory.pipe("/place/lake/a.parquet", plain(99))
    (outcome,) = lake.encrypting().run(units)
    assert "was changed since it was listed" in str(outcome.error)
    assert not memory.exists("/place/vault/a.parquet")


def test_key_material_beside_a_file_is_read_from_the_same_file_system(lake: Lake, memory: Any, tmp_path: Path) -> None:
    config = parquet.EncryptionConfig.from_kms(lake.kms, "lake", internal_key_material=False)
    for each in ("a.parquet", "p=1/000000_0"):
        parquet.encrypt_file(lake.path / each, tmp_path / "one.parquet", config)
        folder, _, name = f"/place/vault/{each}".rpartition("/")
        memory.pipe(f"{folder}/{name}", (tmp_path / "one.parquet").read_bytes())
        material = (tmp_path / "_KEY_MATERIAL_FOR_one.parquet.json").read_bytes()
        memory.pipe(f"{folder}/_KEY_MATERIAL_FOR_{name}.json", material)
    lake.vault = locate("memory://place/vault")

    found = lake.decrypt()
    assert {name: each.status for name, each in found.items()} == {
        "_KEY_MATERIAL_FOR_a.parquet.json": LEFT_OUT,
        "a.parquet": "ok",
        "p=1/_KEY_MATERIAL_FOR_000000_0.json": LEFT_OUT,
        "p=1/000000_0": "ok",
    }
    memory.rm("/place/vault/_KEY_MATERIAL_FOR_a.parquet.json")
    lost = lake.verify()["a.parquet"]
    assert (lost.status, lost.kind) == ("error", "KeyAccessError")
    assert "_KEY_MATERIAL_FOR_a.parquet.json" in str(lost.error)


# -- links in the target -------------------------------------------------------------------------------------------


def test_a_task_writes_through_no_link(lake: Lake, tmp_path: Path) -> None:
    assert {each.status for each in lake.encrypt().values()} == {"ok"}
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000000_0").write_bytes(b"precious")
    (outside / "a").write_bytes(b"precious")
    for work, root in ((lake.encrypting(), tmp_path / "linked"), (None, tmp_path / "back")):
        root.mkdir()
        (root / "p=1").symlink_to(outside)
        (root / "a.parquet").symlink_to(outside / "a")
        if work is None:
            outcomes = lake.decrypt()
        else:
            lake.vault = locate(root)
            outcomes = run(lake.encrypting(), lake.source)
            lake.vault = locate(tmp_path / "vault")
        assert sorted(each.status for each in outcomes.values()) == ["error", "ok"]
        # In the place of a file it is replaced.
        assert outcomes["a.parquet"].status == "ok"
        assert not (root / "a.parquet").is_symlink()
        assert {each.name: each.read_bytes() for each in outside.iterdir()} == {
            "000000_0": b"precious", "a": b"precious",
        }  # fmt: skip


def test_records_of_decryption_are_not_listed_written_or_removed_through_a_link(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    seal = RunSeal(Key(bytes(32)), RunName("decryption", "12345678-owner", "0123456789abcdef-run"))
    (outside / "a").touch(), (target / "b").touch()
    elsewhere = DecryptionRecords(Location(outside), seal)
    elsewhere.begin()
    elsewhere.write([("a", 1)])
    (made,) = outside.glob(".ags1-*")
    (target / made.name).symlink_to(made)
    before = {each.name: each.read_bytes() for each in made.rglob("*.sealed")}
    assert before
    records = DecryptionRecords(Location(target), seal)
    for call in (records.read, records.begin, records.remove, lambda: records.write([("b", 1)])):
        with pytest.raises(NotADirectoryError):
            call()
        assert {each.name: each.read_bytes() for each in made.rglob("*.sealed")} == before
