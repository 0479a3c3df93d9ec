"""Stores that lie about what they do: for each verb, nothing that was committed is lost, or an error says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1.storage.creation as creation
from ags1 import dataset
from ags1.errors import Ags1Error, UnsupportedError
from ags1.storage import Location
from tests.dataset.commits import client, commit
from tests.dataset.conftest import plain_of, write_tree

obstore = pytest.importorskip("obstore")
objects = pytest.importorskip("ags1.storage.objects")

VAULT = "s3://bucket/vault"
CONTENTS = {"a": b"1", "day=1/b": b"2" * 1000}


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An object store in memory, behind every URL, that no process has asked before."""
    made = obstore.store.MemoryStore()
    monkeypatch.setattr(objects, "client_of", lambda location: made)
    monkeypatch.setattr(creation, "_asked", set())
    return made


def names(store: Any) -> set[str]:
    return {each["path"] for batch in obstore.list(store) for each in batch}


def overwrite(location: Location, data: bytes) -> None:
    obstore.put(objects.client_of(location), location.path, data)


LIES_ABOUT_CREATION: dict[str, Callable[[Location, bytes], None]] = {
    "the condition is ignored": overwrite,
    "success, and nothing is written": lambda location, data: None,
    "success, and half is written": lambda location, data: overwrite(location, data[: len(data) // 2]),
}


def test_a_store_that_lies_about_creation_is_refused_before_anything_is_written(
    store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raw = write_tree(tmp_path / "raw", CONTENTS)
    honest = objects.create
    for name, lie in LIES_ABOUT_CREATION.items():
        monkeypatch.setattr(objects, "create", lie)
        with pytest.raises(UnsupportedError, match="says that it creates a file only if it is absent, and does not"):
            dataset.encrypt(raw, VAULT, client(), "lake")
        assert names(store) == set(), name
    # For a dataset that another process has made, too.
    monkeypatch.setattr(objects, "create", honest)
    commit(Location(VAULT), CONTENTS)
    before = names(store)
    monkeypatch.setattr(objects, "create", overwrite)
    monkeypatch.setattr(creation, "_asked", set())
    with dataset.open(VAULT, client()) as found:
        for use in (
            lambda: found.rm("a"), lambda: found.rewrap("new"),
            lambda: found.add(write_tree(tmp_path / "more", {"c": b"3"})),
            lambda: found.expire(older_than=None, grace=-1),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError):
                use()
            assert {each for each in names(store) if "/manifests/" not in each} == {
                each for each in before if "/manifests/" not in each
            }
        assert plain_of(found) == CONTENTS
    # One writer may promise that there is no other.
    with dataset.encrypt(raw, "s3://bucket/alone", client(), "lake", single_writer=True) as alone:
        assert plain_of(alone) == CONTENTS
        assert alone.versions()[-1].single_writer


def test_a_store_is_asked_once_by_a_writer_and_never_by_a_reader(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    honest = objects.create
    monkeypatch.setattr(
        objects, "create", lambda location, data: (asked.append(location.name), honest(location, data))[1]
    )
    for number in range(3):
        commit(Location(VAULT), {"a": b"%d" % number})
    probes = [each for each in asked if each.startswith("probe.")]
    assert (len(probes), len(set(probes))) == (5, 1)
    asked.clear()
    monkeypatch.setattr(creation, "_asked", set())
    with dataset.open(VAULT, client()) as found:
        assert plain_of(found) == {"a": b"2"}
        assert found.verify().ok
        list(found.changed_since(1))
        found.refresh()
    assert asked == []
    assert not [each for each in names(store) if "probe" in each]


def _rows(lie: Callable[[list[Any]], list[Any]]) -> Callable[..., Iterator[Any]]:
    honest = objects.list_objects
    return lambda location, on_error: iter(lie(list(honest(location, on_error))))


def _lies() -> dict[str, tuple[str, Any]]:
    head, get, names_of = objects.head, objects.get, objects.list_names
    beginning = objects.get_beginning
    return {
        "list: nothing": ("list_objects", _rows(lambda rows: [])),
        "list: half": ("list_objects", _rows(lambda rows: rows[::2])),
        "list: twice": ("list_objects", _rows(lambda rows: rows + rows)),
        "list: backwards": ("list_objects", _rows(lambda rows: rows[::-1])),
        "list: of no length": ("list_objects", _rows(lambda rows: [(each[0], 0, *each[2:]) for each in rows])),
        "list: very old": ("list_objects", _rows(lambda rows: [(*each[:3], 1) for each in rows])),
        "list: of the future": ("list_objects", _rows(lambda rows: [(*each[:3], 1 << 62) for each in rows])),
        "list: with names of nothing": (
            "list_objects", _rows(lambda rows: [*rows, ("vault/x.0123456789ab-01234567.ags1", 1, None, 1)])
        ),
        "names: without the last": ("list_names", lambda location: sorted(names_of(location))[:-1]),
        "names: none": ("list_names", lambda location: []),
        "head: another length": ("head", lambda location: (7, *head(location)[1:])),
        "head: another etag": ("head", lambda location: (head(location)[0], "other", 1)),
        "get: other bytes": ("get", lambda location, begin, end, etag=None: bytes(end - begin)),
        "get: fewer bytes": ("get", lambda location, begin, end, etag=None: bytes(get(location, begin, end))[:-1]),
        "get: another object": (
            "get_beginning", lambda location, length: beginning(Location(VAULT).join("_ags1/v-1.json"), length)
        ),
        "delete: nothing": ("delete", lambda locations: None),
        "delete: half": ("delete", lambda locations: [obstore.delete(objects.client_of(each), each.path)
                                                      for each in list(locations)[::2]]),
    }  # fmt: skip


def test_a_store_that_lies_about_another_verb_makes_nobody_lose_what_was_committed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each lie beside each use; afterwards an honest look finds every file, as it was or as the change left it."""
    uses: dict[str, Callable[[dataset.Dataset], Any]] = {
        "read": plain_of,
        "verify": lambda found: found.verify(),
        "refresh": lambda found: found.refresh(),
        "add": lambda found: found.add(write_tree(tmp_path / "more", {"c": b"3"})),
        "rm": lambda found: found.rm("b"),
        "expire": lambda found: found.expire(older_than=None, grace=3600),
        "expire at once": lambda found: found.expire(older_than=None, grace=-1),
        "decrypt": lambda found: found.decrypt(tmp_path / "plain"),
    }
    wanted = {**CONTENTS, "b": b"gone or not"}
    for lie, (verb, lying) in _lies().items():
        for use, call in uses.items():
            made = obstore.store.MemoryStore()
            with monkeypatch.context() as patch:
                patch.setattr(objects, "client_of", lambda location, made=made: made)
                commit(Location(VAULT), {**wanted, "old": b"old"})
                commit(Location(VAULT), {}, removed=("old",))
                shutil.rmtree(tmp_path / "plain", ignore_errors=True)
                with dataset.open(VAULT, client()) as found:
                    with monkeypatch.context() as lied:
                        lied.setattr(objects, verb, lying)
                        try:
                            result = call(found)
                        except (Ags1Error, OSError):
                            result = None
                    if use == "read" and result is not None:
                        assert result == wanted, (lie, use)
                    if use == "decrypt" and result is not None:
                        assert (tmp_path / "plain/a").read_bytes() == b"1", (lie, use)
                with dataset.open(VAULT, client()) as found:
                    left = plain_of(found)
                    assert {**left, "b": b"gone or not"} == wanted | ({"c": b"3"} if "c" in left else {}), (lie, use)
                    assert found.verify().ok, (lie, use)
