"""Links and special files at every place of a dataset: no operation leaves the dataset, and none waits for a pipe."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1.dataset.runs as runs
from ags1 import dataset
from ags1.dataset.names import MANIFESTS, RUNS
from ags1.dataset.runs import DatasetRun
from ags1.dataset.versions import read_latest
from ags1.errors import Ags1Error
from ags1.storage import Location
from tests.checks import covering, every
from tests.dataset.conftest import CountingKms, fresh, plain_of, read_tree, write_tree

OLD_RUN = "0123456789ab"

# Where an attacker puts something instead of what belongs there; a name that ends in a slash is a directory.
PLACES = (
    "_ags1/", f"{RUNS}/", f"{RUNS}/{OLD_RUN}/", f"{RUNS}/{OLD_RUN}/run.json", f"{RUNS}/{OLD_RUN}/done-1.sealed",
    f"{RUNS}/{OLD_RUN}", f"{MANIFESTS}/", "_ags1/v-1.json", "_ags1/v-2.json", "_ags1/v-3.json", "_ags1/v-4.json",
    "sub/", "sub/deep/",
)  # fmt: skip


def _add(vault: Path, client: CountingKms, work: Path) -> None:
    with dataset.open(vault, client) as found:
        found.add(write_tree(work / "more", {"sub/deep/new.txt": b"new"}))


def _operate(name: str) -> Callable[[Path, CountingKms, Path], Any]:
    def call(vault: Path, client: CountingKms, work: Path) -> None:
        with dataset.open(vault, client) as found:
            OF_DATASET[name](found, work)

    return call


OF_DATASET: dict[str, Callable[[dataset.Dataset, Path], Any]] = {
    "expire": lambda found, _: found.expire(keep=1, older_than=None, grace=0),
    "verify": lambda found, _: found.verify(),
    "rm": lambda found, _: found.rm("sub/a.txt"),
    "restore": lambda found, _: found.restore(1),
    "rewrap": lambda found, _: found.rewrap("new"),
    "decrypt": lambda found, work: found.decrypt(work / "plain"),
    "read": lambda found, _: plain_of(found),
}
OPERATIONS: dict[str, Callable[[Path, CountingKms, Path], Any]] = {
    **{name: _operate(name) for name in OF_DATASET},
    "add": _add,
    "encrypt": lambda vault, client, work: dataset.encrypt(
        write_tree(work / "raw", {"sub/deep/other.txt": b"other"}), vault, client, "lake"
    ).close(),
}


def make(path: Path) -> Path:
    """A dataset of two versions, and the record of a run that was interrupted."""
    client, place = fresh(), Location(path / "vault")
    with dataset.encrypt(write_tree(path / "raw"), path / "vault", client, "lake") as found:
        found.rm("empty")
    base = read_latest(place)
    assert base is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "new_run", lambda: OLD_RUN)
        run = DatasetRun(place, base.uuid, base.key, base.version, client, "add")
    run.begin()
    return path / "vault"


def put_link(place: Path, outside: Path) -> None:
    """What was there lies outside now, with more that looks like it; a link leads there."""
    if place.exists():
        shutil.move(place, outside / "moved")
    else:
        (outside / "moved").write_bytes(b"outside")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside / "moved")


def put_dangling(place: Path, outside: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(outside / "nothing")


def put_loop(place: Path, outside: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(place)


def put_pipe(place: Path, outside: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    os.mkfifo(place)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("links"))


@every("case", covering((put_link, put_dangling, put_loop, put_pipe), PLACES, tuple(OPERATIONS)))
def test_no_operation_leaves_the_dataset(
    case: tuple[Callable[[Path, Path], None], str, str], made: Path, tmp_path: Path
) -> None:
    put, where, name = case
    vault, outside = Path(shutil.copytree(made, tmp_path / "vault")), tmp_path / "outside"
    outside.mkdir()
    put(vault / where.rstrip("/"), outside)
    extra = outside / "moved" if (outside / "moved").is_dir() else outside
    for each in ("run.json", "1b22c3d4e5f6-00112233.ags1", f"x.{OLD_RUN}-00112233.ags1", "precious"):
        if not (extra / each).exists():
            (extra / each).write_bytes(b"precious")
    old = time.time() - 10_000
    for path in outside.rglob("*"):
        os.utime(path, (old, old))
    before = read_tree(outside)
    try:
        with contextlib.suppress(Ags1Error, OSError):
            OPERATIONS[name](vault, fresh(), tmp_path)
        assert read_tree(outside) == before
    finally:
        for path in tmp_path.iterdir():
            shutil.rmtree(path)


def test_what_lies_among_the_records_stops_no_run(made: Path, tmp_path: Path) -> None:
    vault = Path(shutil.copytree(made, tmp_path / "vault"))
    records = vault / RUNS
    os.mkfifo(records / "pipe")
    os.mkfifo(records / OLD_RUN / "done-1.sealed")
    (records / "loop").symlink_to(records / "loop")
    (records / "123456789abc").symlink_to(tmp_path)
    with dataset.open(vault, fresh()) as found:
        found.add(write_tree(tmp_path / "more", {"new.txt": b"new"}))
        found.expire(keep=1, older_than=None, grace=0)
    with dataset.open(vault, fresh()) as found:
        assert plain_of(found)["new.txt"] == b"new"
        assert found.verify().ok
    assert not (records / OLD_RUN / "run.json").exists()
    assert (records / "loop").is_symlink()


def test_a_directory_that_becomes_a_link_between_listing_and_removal_leads_nowhere(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ags1.dataset.maintenance as expiry

    vault = Path(shutil.copytree(made, tmp_path / "vault"))
    name = f"sub/deep/x.{OLD_RUN}-00112233.ags1"
    (vault / name).write_bytes(b"rubbish")
    outside = tmp_path / "outside"
    remove = expiry.remove

    def exchanged(locations: Any) -> None:
        if not outside.exists():
            os.rename(vault / "sub/deep", outside)
            (vault / "sub/deep").symlink_to(outside)
        remove(locations)

    monkeypatch.setattr(expiry, "remove", exchanged)
    with dataset.open(vault, fresh()) as found, pytest.raises(NotADirectoryError, match="move it away"):
        found.expire(keep=1, older_than=None, grace=0)
    assert (outside / f"x.{OLD_RUN}-00112233.ags1").read_bytes() == b"rubbish"


def test_what_a_link_of_the_target_leads_to_does_not_pass_for_decrypted(tmp_path: Path) -> None:
    """The directory has a link in the place of one of its own, to files of the same length and time."""
    client, elsewhere, target = fresh(), tmp_path / "elsewhere", tmp_path / "plain"
    with dataset.encrypt(write_tree(tmp_path / "raw", {"sub/a": b"1"}), tmp_path / "vault", client, "lake") as found:
        found.decrypt(elsewhere)
        target.mkdir()
        (target / "sub").symlink_to(elsewhere / "sub")
        report = found.decrypt(target, overwrite=False, on_error="collect")
        assert (report.unchanged, report.done) == (0, 0)
        assert [path for path, _ in report.errors] == ["sub/a"]
        assert read_tree(elsewhere) == {"sub/a": b"1"}
        # The directory itself may be reached through a link.
        (tmp_path / "here").symlink_to(elsewhere)
        assert found.decrypt(tmp_path / "here", overwrite=False).unchanged == 1
