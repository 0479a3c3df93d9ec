"""The commit in every order of events: two writers, a zombie and an expire; no committed file is ever lost."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ags1 import dataset
from ags1.dataset.maintenance import expire
from ags1.dataset.pins import Access
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import numbers, read_latest, read_version
from ags1.errors import ConflictError
from ags1.storage import Location
from tests.dataset.commits import KEY_ID, client, commit, contents, put_all, write_object
from tests.dataset.conftest import write_tree
from tests.dataset.interleavings import explore, run_schedule

_counter = itertools.count()
# The directory is the same for all examples: each makes its own below it.
_UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def check(root: Path, committed: dict[str, set[bytes]], removed: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Every version that is there opens whole, and the last one has what was committed."""
    where = Location(root)
    for number in numbers(where):
        contents(root, read_version(where, number))
    last = read_latest(where)
    assert last is not None
    found = contents(root, last)
    assert set(found) == set(committed) - removed
    for path, data in found.items():
        assert data in committed[path]


class Scene:
    """A dataset of one version with two files, and actors on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        commit(root, {"a": b"first", "old": b"old"})
        commit(root, {"b": b"second"}, removed=("old",))
        # It began before everything else, has written an object, and comes to its commit late.
        self._zombie = Transaction.begin(Access.of(Location(root), client()), "zombie", key_id=KEY_ID, durable=False)
        put_all(self._zombie, {"late": b"zombie"})

    def zombie(self) -> Any:
        return self._zombie.commit()

    def writer(self, files: dict[str, bytes]) -> Callable[[], Any]:
        return lambda: commit(self.root, files)

    def expire(self) -> Any:
        return expire(Access.of(Location(self.root), client()), keep=1, older_than=None, grace=0.0, dry_run=False)


def _expected(scene: Scene, actors: list[Any], named: dict[int, dict[str, bytes]]) -> None:
    committed = {"a": {b"first"}, "b": {b"second"}}
    for index, files in named.items():
        error = actors[index].error
        if error is None:
            for path, data in files.items():
                committed.setdefault(path, set()).add(data)
        else:
            assert isinstance(error, ConflictError), repr(error)
    check(scene.root, committed)


@pytest.mark.parametrize(("interruptions", "orders"), [(1, 10), pytest.param(2, 50, marks=pytest.mark.nightly)])
def test_a_zombie_an_expire_and_a_writer_that_are_interrupted(interruptions: int, orders: int, tmp_path: Path) -> None:
    def scenario() -> Any:
        scene = Scene(tmp_path / "vault")
        works = [scene.zombie, scene.expire, scene.writer({"c": b"third"})]

        def end(actors: list[Any]) -> None:
            assert actors[1].error is None or isinstance(actors[1].error, ConflictError), repr(actors[1].error)
            _expected(scene, actors, {0: {"late": b"zombie"}, 2: {"c": b"third"}})

        return works, end

    assert explore(scenario, interruptions=interruptions) > orders


def test_a_zombie_and_an_expire_in_every_order(tmp_path: Path) -> None:
    def scenario() -> Any:
        scene = Scene(tmp_path / "vault")
        return [scene.zombie, scene.expire], lambda actors: _expected(scene, actors, {0: {"late": b"zombie"}})

    assert explore(scenario, interruptions=20) > 20


def test_two_writers_of_one_path_in_every_order(tmp_path: Path) -> None:
    def scenario() -> Any:
        scene = Scene(tmp_path / "vault")
        works = [scene.writer({"a": b"one", "c": b"1"}), scene.writer({"a": b"other", "d": b"2"})]

        def end(actors: list[Any]) -> None:
            won = [each for each in actors if each.error is None]
            assert won
            for each in actors:
                assert each.error is None or isinstance(each.error, ConflictError)
            last = read_latest(Location(scene.root))
            assert last is not None
            found = contents(scene.root, last)
            assert found["a"] in (b"one", b"other")
            assert ("c" in found) == (actors[0].error is None)
            assert ("d" in found) == (actors[1].error is None)
            contents(scene.root, read_version(Location(scene.root), 1))

        return works, end

    assert explore(scenario, interruptions=10) > 5


@pytest.mark.parametrize("paths", [("d", "d/y"), ("d/y", "d"), ("d.e/f/g", "d.e/f"), ("d", "d/e/f")])
def test_a_file_and_a_directory_of_one_name_are_a_conflict(paths: tuple[str, str], tmp_path: Path) -> None:
    commit(tmp_path, {"d-": b"before", "d.txt": b"between d and d/"})
    one, other = (
        Transaction.begin(Access.of(Location(tmp_path), client()), "test", key_id=KEY_ID, durable=False)
        for _ in range(2)
    )
    put_all(one, {"c": b"1", paths[0]: b"2"})
    put_all(other, {"d!": b"3", paths[1]: b"4"})
    made = one.commit()
    with pytest.raises(ConflictError, match=rf"made {paths[0]} meanwhile, so {paths[1]} cannot exist"):
        other.commit()
    assert made is not None
    assert numbers(Location(tmp_path)) == list(range(1, made.version + 1))


def test_a_directory_that_leaves_makes_room_for_a_file_of_its_name(tmp_path: Path) -> None:
    commit(tmp_path, {"d/x": b"1"})
    one, other = (Transaction.begin(Access.of(Location(tmp_path), client()), "test", durable=False) for _ in range(2))
    put_all(one, {"d": b"2"})
    one.remove("d/x")
    put_all(other, {"d-": b"3"})
    other.commit()
    last = one.commit()
    assert last is not None
    assert contents(tmp_path, last) == {"d": b"2", "d-": b"3"}


def test_a_file_and_one_below_it_are_added_in_every_order(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "file", {"d": b"file"})
    below = write_tree(tmp_path / "below", {"d/y": b"below"})
    root = tmp_path / "vault"

    def scenario() -> Any:
        shutil.rmtree(root, ignore_errors=True)
        commit(root, {"x": b"other"})

        def add(tree: Path) -> Any:
            return dataset.open(root, client()).add(tree, threads=1, durable=False)

        works = [lambda: add(source), lambda: add(below)]

        def end(actors: list[Any]) -> None:
            assert sum(each.error is None for each in actors) == 1
            (error,) = (each.error for each in actors if each.error is not None)
            # One sees the other when it begins, or when it commits.
            assert isinstance(error, (ConflictError, IsADirectoryError, NotADirectoryError)), repr(error)
            last = read_latest(Location(root))
            assert last is not None
            assert len({"d", "d/y"} & set(contents(root, last))) == 1

        return works, end

    assert explore(scenario, interruptions=2) > 5


# Names that are often in each other's way.
_PATHS = st.dictionaries(st.sampled_from(["a", "a-", "a/b", "a/b/c", "a.b", "a/c", "b", "b/a"]), st.binary(max_size=2))


@settings(max_examples=40, deadline=None, suppress_health_check=_UNCHECKED)
@given(before=_PATHS, files=st.lists(_PATHS, min_size=2, max_size=3))
def test_no_version_has_a_file_that_is_a_directory_too(
    before: dict[str, bytes], files: list[dict[str, bytes]], tmp_path: Path
) -> None:
    """Writers that begin on one version commit in turn; each has no such file by itself."""
    root = tmp_path / f"vault-{next(_counter)}"
    before = _without_twins({}, before)
    commit(root, before)
    expected, changed = dict(before), set[str]()
    writers = [
        Transaction.begin(Access.of(Location(root), client()), "test", key_id=KEY_ID, durable=False) for _ in files
    ]
    mine = [_without_twins(before, wanted) for wanted in files]
    for writer, wanted in zip(writers, mine, strict=True):
        put_all(writer, wanted)
    for writer, wanted in zip(writers, mine, strict=True):
        twins = {
            (one, two)
            for one in wanted
            for two in expected
            if f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/")
        }
        if changed & wanted.keys() or any(one != two for one, two in twins):
            with pytest.raises(ConflictError):
                writer.commit()
        else:
            writer.commit()
            expected |= wanted
            changed |= wanted.keys()
    last = read_latest(Location(root))
    assert (contents(root, last) if last is not None else {}) == expected
    shutil.rmtree(root, ignore_errors=True)


def _without_twins(before: dict[str, bytes], files: dict[str, bytes]) -> dict[str, bytes]:
    kept: dict[str, bytes] = {}
    for path, data in files.items():
        others = {*before, *kept} - {path}
        if not any(path.startswith(f"{each}/") or each.startswith(f"{path}/") for each in others):
            kept[path] = data
    return kept


@settings(max_examples=40, deadline=None, suppress_health_check=_UNCHECKED)
@given(choices=st.lists(st.integers(0, 3), max_size=60))
def test_any_schedule_of_four(choices: list[int], tmp_path: Path) -> None:
    scene = Scene(tmp_path / f"vault-{next(_counter)}")
    works = [scene.zombie, scene.expire, scene.writer({"c": b"third"}), scene.writer({"d": b"fourth"})]
    left = iter(choices)

    def choose(waiting: list[int]) -> int:
        return waiting[next(left, 0) % len(waiting)]

    actors = run_schedule(works, choose)
    assert actors[1].error is None or isinstance(actors[1].error, ConflictError), repr(actors[1].error)
    _expected(scene, actors, {0: {"late": b"zombie"}, 2: {"c": b"third"}, 3: {"d": b"fourth"}})
    shutil.rmtree(scene.root)


@settings(max_examples=30, deadline=None, suppress_health_check=_UNCHECKED)
@given(choices=st.lists(st.integers(0, 19), max_size=120))
def test_any_schedule_of_two_expires_and_a_run_that_is_taken_over(choices: list[int], tmp_path: Path) -> None:
    scene = Scene(tmp_path / f"vault-{next(_counter)}")
    old = Transaction.begin(Access.of(Location(scene.root), client()), "interrupted", key_id=KEY_ID, durable=False)
    done = write_object(old, "taken", b"over")
    assert old.base is not None
    began = old.base.version

    def take_over() -> Any:
        with Transaction.begin(Access.of(Location(scene.root), client()), "test", durable=False) as transaction:
            transaction.take_over(old.run.id, began)
            transaction.put(transaction.entry(done, old.run.keys))
            return transaction.commit()

    works = [scene.zombie, scene.expire, scene.expire, scene.writer({"c": b"third"}), take_over]
    left, current = iter(choices), 0

    def choose(waiting: list[int]) -> int:
        # Mostly the same one goes on.
        nonlocal current
        wanted = next(left, 5)
        if current not in waiting or wanted < 5:
            current = waiting[wanted % len(waiting)]
        return current

    actors = run_schedule(works, choose)
    for each in actors[1:3]:
        assert each.error is None or isinstance(each.error, ConflictError), repr(each.error)
    _expected(scene, actors, {0: {"late": b"zombie"}, 3: {"c": b"third"}, 4: {"taken": b"over"}})
    shutil.rmtree(scene.root)
