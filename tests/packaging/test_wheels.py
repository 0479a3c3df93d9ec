"""`python -m buildtools.wheels`: two builds of one commit are equal, in whatever directory and by whomever."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from buildtools import wheels

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ".".join(map(str, sys.version_info[:2]))
# The one with libcrypto, and what it needs: the whole package takes minutes.
KEPT = {"buffer.pyx", "gcm.pyx", "layout.pyx"}


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None, umask: int = -1) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def commit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit: what makes a wheel, with few of the native modules."""
    tree = tmp_path_factory.mktemp("commit") / "ags1"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("ags1", "buildtools", "include"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "LICENSE", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, tree)
    for path in tree.rglob("*.pyx"):
        if path.name not in KEPT:
            path.unlink()
    shutil.rmtree(tree / "ags1" / "parquet")
    # It imports the others.
    (tree / "ags1" / "__init__.py").write_text("")
    run("git", "init", "--quiet", cwd=tree)
    run("git", "add", ".", cwd=tree)
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one", cwd=tree)
    return tree


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="auditwheel is for Linux")
def test_two_builds_of_one_commit_give_equal_bytes(commit: Path, tmp_path: Path) -> None:
    made = []
    for name, umask, zone in (("first", 0o022, "UTC"), ("a much longer name of the second", 0o077, "Asia/Tokyo")):
        clone, out = tmp_path / name / "ags1", tmp_path / name / "out"
        run("git", "clone", "--quiet", commit, clone, cwd=tmp_path, umask=umask)
        # Not the clone's business: what is not committed.
        (clone / "ags1" / "stray.py").write_text("")
        env = {**os.environ, "PYTHONPATH": str(clone), "TZ": zone, "HOME": os.environ["HOME"]}
        env.pop("SOURCE_DATE_EPOCH", None)
        said = run(
            *(sys.executable, "-m", "buildtools.wheels", HERE, "--out", out, "--work", tmp_path / name / "work"),
            cwd=clone,
            env=env,
            umask=umask,
        )
        assert "NOT BUILT" not in said
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    first, second = made
    assert sorted(first) == sorted(second)
    (wheel,) = [name for name in first if name.endswith(".whl")]
    (sdist,) = [name for name in first if name.endswith(".tar.gz")]
    assert "manylinux" in wheel
    ours, theirs = (zipfile.ZipFile(io.BytesIO(each[wheel])) for each in made)
    differing = [name for name in ours.namelist() if ours.read(name) != theirs.read(name)]
    assert differing == []
    assert first[wheel] == second[wheel]
    assert first[sdist] == second[sdist]
    assert not [name for name in ours.namelist() if "stray" in name]
    # The date of the commit, and all may read.
    date = int(run("git", "log", "-1", "--format=%ct", cwd=commit))
    assert {entry.date_time for entry in ours.infolist()} == {time.gmtime(date - date % 2)[:6]}
    assert {entry.external_attr >> 16 & 0o007 for entry in ours.infolist()} <= {0o4, 0o5}
    for name in ours.namelist():
        assert str(tmp_path).encode() not in ours.read(name), name


def test_an_sdist_is_repacked_without_its_maker(tmp_path: Path) -> None:
    made = []
    for order, (owner, clock) in enumerate([("alice", 1_700_000_000), ("bob", 1_800_000_000)]):
        path = tmp_path / f"{order}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in ("x/b", "x/a") if order else ("x/a", "x/b"):
                entry = tarfile.TarInfo(name)
                entry.size, entry.uname, entry.uid, entry.mtime = 2, owner, order, clock
                entry.mode = 0o600 if order else 0o664
                archive.addfile(entry, io.BytesIO(name[2:].encode() * 2))
        wheels.repack(path, 1_600_000_000)
        made.append(path.read_bytes())
        with tarfile.open(path) as archive:
            assert {each.name: archive.extractfile(each).read() for each in archive} == {"x/a": b"aa", "x/b": b"bb"}  # type: ignore[union-attr]
            assert {(each.uid, each.uname, each.mtime, each.mode) for each in archive} == {
                (0, "", 1_600_000_000, 0o644)
            }
    assert made[0] == made[1]


def test_an_interpreter_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the exit status says that one is missing."""

    # As the module itself has imported it.
    interpreters = wheels.interpreters

    def build_one(sdist: Path, version: tuple[int, ...], machine: str, *rest: object) -> Path:
        interpreters.obtain(version, tmp_path, machine)
        return sdist

    sdist = tmp_path / "ags1.tar.gz"
    with tarfile.open(sdist, "w:gz"):
        pass
    monkeypatch.setattr(interpreters, "installed", lambda: {(3, 11, 7): Path(sys.executable)})
    monkeypatch.setattr(wheels, "sdist", lambda revision, work: (sdist, 0))
    monkeypatch.setattr(wheels, "build_one", build_one)
    monkeypatch.setattr(interpreters.shutil, "which", lambda name: None)
    status = wheels.main(["3.11", "3.12", "3.14", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert status == 1
    assert "NOT BUILT for Python 3.12: no suite of Debian has Python 3.12" in said
    assert "NOT BUILT for Python 3.14: Debian's sid has Python 3.14; mmdebstrap, which unpacks it, is not" in said
    assert "for Python 3.11" not in said


@pytest.mark.skipif(platform.machine() == "aarch64", reason="that is this machine's own")
def test_a_cross_compiled_wheel_needs_the_compiler_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    with pytest.raises(wheels.MissingError, match="aarch64-linux-gnu-gcc is not installed"):
        wheels._cross((3, 11), tmp_path, "aarch64", tmp_path)
