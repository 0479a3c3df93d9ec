"""That records of runs are believed only if they are authentic, in every room, whatever an attacker does to them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from ags1 import kms
from ags1.core.gcm import Key
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import RUNS, new_object_name
from ags1.dataset.runs import DatasetRun, Done, RunReference, interrupted, record
from ags1.errors import AuthenticationError
from ags1.iceberg.conversion.journal import KIND, Journal, moved
from ags1.iceberg.conversion.work import FileResult
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.storage import Location
from ags1.work.records import RunName, RunSeal, found_runs, opened_runs
from tests.checks import every
from tests.forged_runs import MASTER, OTHER_MASTER, Believed, Room, attack

KMS = kms.MemoryKms({MASTER: bytes(range(32)), OTHER_MASTER: bytes(range(50, 82))})


def _done(path: str, run: RunReference) -> Done:
    name = new_object_name(path, run.run)
    return Done(path, ((name, 5), (name.replace(".ags1", "-p00001.ags1"), 7)), SourceIdentity(12, 3, 4, 5))


def _begun(vault: Path, owner: str, key_id: str) -> DatasetRun:
    run = DatasetRun(Location(str(vault)), owner, WrappedKey(key_id), 1, KMS, "add")
    run.begin()
    return run


def _write_dataset(directory: Path, owner: str, key_id: str, files: list[str]) -> str:
    run = _begun(directory, owner, key_id)
    for each in files:
        run.record([_done(each, run.keys.reference)])
    return run.id


def _write_spark(directory: Path, owner: str, key_id: str, files: list[str]) -> str:
    """As a task does, which was sent a reference."""
    run = _begun(directory, owner, key_id)
    keys = pickle.loads(pickle.dumps(run.keys.reference)).unwrap(KMS)
    for each in files:
        record(run.location, keys, [_done(each, run.keys.reference)])
    return run.id


def _read_dataset(directory: Path, owner: str, key_id: str) -> Believed:
    found = interrupted(Location(str(directory)), KMS, key_id, owner, [])
    return {(each.run, done.path) for each in found for done in each.done}


def _write_table(directory: Path, owner: str, key_id: str, files: list[str]) -> str:
    journal = Journal.create(Location(str(directory)), owner, WrappedKey(key_id).another(KMS))
    seal = journal.open(KMS)
    journal.begin(seal, {"change": "decrypt"})
    for each in files:
        records = journal.records(seal)
        records.add(FileResult(each, f"new {each}", 12, None, None, "origin", "identity"))
        records.flush()
    return journal.name.run


def _read_table(directory: Path, owner: str, key_id: str) -> Believed:
    def refused(name: str, error: Exception) -> None:
        pass

    opened = opened_runs(found_runs(Location(str(directory))), KIND, owner, unwrapping_under(key_id, KMS), refused)
    return {(run.found.run, each.source) for run in opened for each in moved(run, refused)}


@every(
    "room",
    [
        Room("dataset", RUNS, _write_dataset, _read_dataset),
        Room("spark", RUNS, _write_spark, _read_dataset),
        Room("iceberg", "", _write_table, _read_table),
    ],
    ids=lambda room: room.name,
)
def test_no_record_is_believed_that_was_changed_exchanged_moved_or_made_by_others(room: Room, tmp_path: Path) -> None:
    assert attack(room, tmp_path / room.name) > 150


@every("wrong", ["another run", "fewer bytes", "no object"])
def test_a_record_of_a_dataset_must_fit_its_source_and_its_run(wrong: str, tmp_path: Path) -> None:
    run = _begun(tmp_path / wrong, "owner", MASTER)
    good = _done("file", run.keys.reference)
    name, length = good.parts[0]
    parts = {
        "another run": ((name.replace(run.id, "0" * 12), length), good.parts[1]),
        "fewer bytes": good.parts[:1],
        "no object": (),
    }[wrong]
    run.record([Done(good.path, parts, good.source)])
    notes: list[tuple[str, str]] = []
    (found,) = interrupted(run.location, KMS, MASTER, "owner", notes)
    assert not found.done
    assert len(notes) == 1


@every(
    "other",
    [
        lambda seal: RunSeal(Key(bytes(32)), RunName("other", "owner", "run")),
        lambda seal: RunSeal(Key(bytes(32)), RunName("kind", "other", "run")),
        lambda seal: RunSeal(Key(bytes(32)), RunName("kind", "owner", "other")),
        lambda seal: RunSeal(Key(bytes(31) + b"x"), RunName("kind", "owner", "run")),
    ],
    ids=lambda other: str(other(None).name),
)
def test_a_seal_is_of_one_key_kind_owner_and_run(other: Callable[[object], RunSeal]) -> None:
    seal = RunSeal(Key(bytes(32)), RunName("kind", "owner", "run"))
    sealed = seal.seal(b"text", "name")
    assert seal.open(sealed, "name") == b"text"
    assert b"text" not in sealed
    for opened, name in ((other(seal), "name"), (seal, "nam"), (seal, "name\0")):
        with pytest.raises(AuthenticationError, match="was not sealed by run"):
            opened.open(sealed, name)


def test_a_seal_does_not_travel_and_parts_of_a_name_do_not_run_together() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(RunSeal(Key(bytes(32)), RunName("kind", "owner", "run")))
    assert RunName("a", "b\0c", "d").bound("e") != RunName("a\0b", "c", "d").bound("e")
    assert RunName("a", "b", 'c", "d').bound("e") != RunName("a", "b", "c").bound('d", "e')
