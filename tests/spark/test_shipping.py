"""The environment travels to executors as a real archive, as the guide of clusters says, and they have no other."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.checks import MIB, pattern
from tests.spark.conftest import Run
from tests.spark.sessions import ROOT
from tests.spark.trees import assert_dataset, write_tree

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

venv_pack = pytest.importorskip("venv_pack")

SCRIPT = """\
import json
import sys

root, source, target, kms = sys.argv[1:]
# The driver's own environment; executors are told nothing of it.
sys.path.insert(0, root)
from pyspark.sql import SparkSession

import ags1.spark


def look(batches):
    import ags1, os, pyarrow, sys

    for _ in batches:
        pass
    found = [sys.prefix, os.path.dirname(ags1.__file__), pyarrow.__file__, os.getcwd()]
    yield pyarrow.RecordBatch.from_pydict({"path": found})


spark = SparkSession.builder.getOrCreate()
found = spark.range(0, 2, 1, 2).mapInArrow(look, "path string").toArrow().column("path").to_pylist()
result = ags1.spark.encrypt_files(spark, source, target, kms=kms, key_id="lake", part_bytes=1 << 20, progress=False)
print(json.dumps({"found": found, "counts": result.counts, "ok": result.ok}))
spark.stop()
"""


def documented(program: str) -> list[str]:
    """The arguments of a program of the environment, as the guide of clusters has them."""
    lines = (ROOT / "docs/guides/spark-clusters.md").read_text().splitlines()
    line = next(each for each in lines if each.startswith(f"environment/bin/{program} "))
    return shlex.split(line, comments=True)[1:]


def needed(requirement: Requirement, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Add what pip would install for a requirement, from the environment of the tests."""
    distribution = importlib.metadata.distribution(requirement.name)
    if not requirement.extras and distribution.name in found:
        return
    found[distribution.name] = distribution
    for text in distribution.requires or ():
        each = Requirement(text)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
            needed(each, found)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with what the documentation says."""
    environment = tmp_path_factory.mktemp("environment") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=600)
    packages = next(environment.glob("lib/python*/site-packages"))
    found: dict[str, importlib.metadata.Distribution] = {}
    for text in documented("pip")[1:]:
        # The path of a clone stands for its name.
        needed(Requirement(text.replace("${AGS1}", "ags1")), found)
    assert found.keys() >= {"ags1", "pyarrow", "pandas", "obstore", "boto3"}
    # It comes with every Spark.
    assert "pyspark" not in found
    _link(ROOT / "ags1", packages / "ags1")
    for distribution in (each for name, each in found.items() if name != "ags1"):
        files = distribution.files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            _link(Path(str(distribution.locate_file(top))), packages / top)
    return environment


@pytest.fixture(scope="module")
def archive(environment: Path) -> Path:
    """What venv-pack makes of it."""
    packed = environment.with_name("environment.tar.gz")
    arguments = documented("venv-pack")
    (named,) = (value for name, value in itertools.pairwise(arguments) if name == "-o")
    assert named == packed.name
    packing = venv_pack.Env(str(environment))
    for excluded in (value for name, value in itertools.pairwise(arguments) if name == "--exclude"):
        packing = packing.exclude(excluded)
    # Spark unpacks .tar.gz by tar, but .tar by itself, without the permissions.
    packing.pack(output=str(packed))
    return packed


def _link(source: Path, target: Path) -> None:
    """A copy without its bytes."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_copy, dirs_exist_ok=True)
    elif source.is_file():
        _copy(source, target)


def _copy(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def test_executors_run_in_the_archive_and_encrypt_there(
    local_cluster: Run, archive: Path, tmp_path: Path, kms_url: str
) -> None:
    contents = {"big.bin": pattern(3 * MIB + 5), **{f"many/{index:03}": pattern(index) for index in range(50)}}
    source, target = write_tree(tmp_path / "raw", contents), tmp_path / "vault"
    done = local_cluster(
        SCRIPT,
        ROOT,
        source,
        target,
        kms_url,
        conf={"spark.archives": f"{archive}#environment"},
        # Executors inherit these. They find neither this checkout nor the environment of the tests.
        env={"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": ""},
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["ok"]
    assert said["counts"] == {"ok": len(contents)}
    for prefix, package, arrow, directory in zip(*[iter(said["found"])] * 4, strict=True):
        # Each executor has unpacked it where it runs.
        assert Path(prefix).samefile(Path(directory) / "environment")
        assert Path(package).is_relative_to(prefix)
        assert Path(arrow).is_relative_to(prefix)
    assert len(set(said["found"][::4])) == 2
    assert_dataset(target, contents, kms_url)


def test_the_archive_is_small_and_has_no_pyspark_of_its_own(environment: Path, archive: Path) -> None:
    assert archive.stat().st_size < 150e6
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    assert sum(each.size for each in members) < 400e6
    assert not [each.name for each in members if "/pyspark/" in each.name]
    python = [str(environment / "bin/python")]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*python, *arguments], env=variables, cwd="/", capture_output=True, text=True, timeout=600
        )

    # What does need it says so.
    for arguments in (
        ("-m", "ags1", "parquet", "verify", "vault", "--spark"),
        ("-c", "from ags1.spark import encrypt_files"),
    ):
        done = run(*arguments)
        assert done.returncode != 0
        assert done.stderr.splitlines()[-1].endswith("ags1.spark needs pyspark: pip install 'ags1[spark]'")
