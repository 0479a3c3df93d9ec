"""SIGKILL at any moment: the dataset is its old version or its new one, whole; the next run completes what is left.

Here at a few moments, of which half are the last, where the commit is; soak_kills.py has as many as there is time for.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset
from tests.checks import pattern
from tests.dataset.conftest import CONTENTS, Tree, fresh, killed_at, plain_of, read_tree, write_tree

# Some files for each unit of work, and some of more than a megabyte.
MANY: Tree = {**CONTENTS, **{f"many/{i:03}": pattern(i) for i in range(150)}, "large": pattern(2_500_000)}
CHANGED: Tree = {"a.txt": b"changed", "many/007": b"changed too", "new/file": b"new", "large": pattern(1_800_000)}
NEVER = 1 << 30
# Which are enough to meet a commit before and after its last step.
KILLS = 8
LARGE = 40 << 20
CHANGES = ("add", "sync", "rm", "restore", "rewrap", "expire")


def moments(total: int, seed: int, kills: int) -> list[int]:
    """Moments to be killed at: the last ones, where the commit is, and some before."""
    last = list(range(max(1, total - kills // 2), total + 1))
    before = list(range(1, last[0]))
    return sorted({*last, *random.Random(seed).sample(before, min(kills // 2, len(before)))})


def encrypting(raw: Path, vault: Path, threads: int | None = None) -> Callable[[], Any]:
    return lambda: dataset.encrypt(raw, vault, fresh(), "lake", threads=threads, durable=False).close()


def opened(vault: Path, work: Callable[[dataset.Dataset], Any]) -> Callable[[], Any]:
    def run() -> None:
        with dataset.open(vault, fresh()) as found:
            work(found)

    return run


def assert_whole(vault: Path, *contents: Tree) -> Tree:
    """The dataset has one of these contents; after an expire, nothing else is there."""
    with dataset.open(vault, fresh()) as found:
        held = plain_of(found)
        assert held in contents
        problems = {each.code for each in found.verify().findings}
        assert problems <= {"unreferenced"}
        found.expire(older_than=None, grace=0)
        assert found.verify().findings == []
        assert plain_of(found) == held
    return held


def first_runs(tmp_path: Path, threads: int | None, seed: int, kills: int = KILLS) -> None:
    raw = write_tree(tmp_path / "raw", MANY)
    # What a process finds out once, such as what the file system can, is no step of the children.
    encrypting(raw, tmp_path / "before", threads)()
    # Threads that make one directory at once take a step or two more: the last steps are those of the least.
    counts = [killed_at(NEVER, encrypting(raw, tmp_path / f"counted-{index}", threads)) for index in range(3)]
    total = min(count for count in counts if count is not None)
    killed = 0
    for step in moments(total, seed, kills):
        vault = tmp_path / f"vault-{step}"
        killed += killed_at(step, encrypting(raw, vault, threads)) is None
        if list(vault.glob("_ags1/v-*.json")):
            with dataset.open(vault, fresh()) as found:
                assert plain_of(found) == MANY
        else:
            with pytest.raises(FileNotFoundError, match="its first run was not completed"):
                dataset.open(vault, fresh())
        encrypting(raw, vault, threads)()
        assert_whole(vault, MANY)
        shutil.rmtree(vault)
    assert killed >= kills * 2 // 3


@pytest.mark.parametrize("threads", [1, None])
def test_a_first_run_that_is_killed_is_no_dataset_yet_and_the_next_run_completes_it(
    tmp_path: Path, threads: int | None
) -> None:
    first_runs(tmp_path, threads, seed=1)


def changes(change: str, tmp_path: Path, seed: int, kills: int = KILLS) -> None:
    raw, more, origin = tmp_path / "raw", tmp_path / "more", tmp_path / "origin"
    write_tree(raw, CONTENTS), write_tree(more, {**CHANGED, "b": b"b"})
    encrypting(raw, origin)()
    opened(origin, lambda found: found.add(write_tree(tmp_path / "second", {"sub/a.txt": b"second version"})))()
    before = {**CONTENTS, "sub/a.txt": b"second version"}
    works: dict[str, tuple[Callable[[dataset.Dataset], Any], Tree]] = {
        "add": (lambda found: found.add(more, threads=1, durable=False), {**before, **CHANGED, "b": b"b"}),
        "sync": (
            lambda found: dataset.encrypt(more, found.path, fresh(), "lake", delete=True, durable=False),
            {**CHANGED, "b": b"b"},
        ),
        "rm": (lambda found: found.rm("sub"), {p: d for p, d in before.items() if not p.startswith("sub/")}),
        "restore": (lambda found: found.restore(1), CONTENTS),
        "rewrap": (lambda found: found.rewrap("new"), before),
        "expire": (lambda found: found.expire(older_than=None, grace=0), before),
    }
    work, after = works[change]
    shutil.copytree(origin, tmp_path / "counted")
    total = killed_at(NEVER, opened(tmp_path / "counted", work))
    assert total is not None
    seen = set()
    for step in moments(total, seed, kills):
        vault = tmp_path / f"vault-{step}"
        shutil.copytree(origin, vault)
        killed_at(step, opened(vault, work))
        with dataset.open(vault, fresh()) as found:
            done = plain_of(found) == after if change not in ("rewrap", "expire") else found.version > 2
            assert done or plain_of(found) == before
            seen.add(done)
        if not done or change in ("add", "sync", "expire"):
            opened(vault, work)()
        assert_whole(vault, after)
        shutil.rmtree(vault)
    assert seen == {True, False}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_killed_is_done_or_not_and_can_be_done_again(change: str, tmp_path: Path) -> None:
    changes(change, tmp_path, seed=2)


def decryptions(tmp_path: Path, seed: int, kills: int = KILLS) -> None:
    raw, vault = write_tree(tmp_path / "raw", MANY), tmp_path / "vault"
    encrypting(raw, vault)()

    def decrypting(target: Path) -> Callable[[], Any]:
        return opened(vault, lambda found: found.decrypt(target))

    total = killed_at(NEVER, decrypting(tmp_path / "counted"))
    assert total is not None
    for step in moments(total, seed, kills):
        target = tmp_path / f"back-{step}"
        killed_at(step, decrypting(target))
        for path, data in read_tree(target).items() if target.exists() else ():
            assert path.endswith(".ags1-tmp") or MANY[path] == data
        decrypting(target)()
        assert {path: data for path, data in read_tree(target).items() if not path.endswith(".ags1-tmp")} == MANY
        shutil.rmtree(target)


def test_a_killed_decryption_leaves_no_half_file_and_is_repeated(tmp_path: Path) -> None:
    decryptions(tmp_path, seed=3)


def test_what_was_recorded_before_a_kill_is_not_encrypted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.dataset import writing

    monkeypatch.setattr(writing, "_RECORD_BYTES", 0)
    raw, vault = write_tree(tmp_path / "raw", MANY), tmp_path / "vault"
    total = killed_at(NEVER, encrypting(raw, tmp_path / "counted", 1))
    assert total is not None
    assert killed_at(total // 2, encrypting(raw, vault, 1)) is None
    (raw / "many/100").write_bytes(pattern(101)[1:])
    before = {path for path in read_tree(vault) if not path.startswith("_ags1")}
    with dataset.encrypt(raw, vault, fresh(), "lake", durable=False) as found:
        assert found.report is not None
        assert found.report.resumed > 40
        assert found.report.resumed + found.report.done == len(MANY)
        assert len({part.name for entry in found.files for part in entry.parts} & before) == found.report.resumed
    assert_whole(vault, {**MANY, "many/100": pattern(101)[1:]})


CHILD = """
    import sys, os
    from ags1 import dataset, kms
    client = kms.MemoryKms({"lake": bytes(range(100, 132))})
    print("go", flush=True)
    while True:
        dataset.encrypt(sys.argv[1], sys.argv[2], client, "lake", durable=False).close()
        with dataset.open(sys.argv[2], client) as found:
            for entry in found.files:
                os.utime(os.path.join(sys.argv[1], entry.path))
            found.expire(older_than=None, grace=0)
"""


def kills_from_outside(tmp_path: Path, seed: int, kills: int = KILLS // 2) -> None:
    """Also inside native writes: the child is killed after a random number of its own bytes written."""
    raw, vault = write_tree(tmp_path / "raw", {**CONTENTS, "large": pattern(LARGE)}), tmp_path / "vault"
    generator = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(raw), str(vault)],
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "go\n"
            limit = generator.randrange(1 << 20, 120 << 20)
            while child.poll() is None and _written(child.pid) < limit:
                pass
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate()
        if list(vault.glob("_ags1/v-*.json")):
            with dataset.open(vault, fresh()) as found:
                assert plain_of(found).items() <= {**CONTENTS, "large": pattern(LARGE)}.items()
    encrypting(raw, vault)()
    assert_whole(vault, {**CONTENTS, "large": pattern(LARGE)})


def test_kills_from_outside_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    kills_from_outside(tmp_path, seed=4)


def _written(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return NEVER
    return int(text.split("wchar:")[1].split()[0])
