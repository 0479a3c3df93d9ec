"""The environment travels to executors as an archive, as docs/spark.md says: a real one, and they have no other."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks import MIB, pattern
from tests.spark.conftest import Run
from tests.spark.sessions import ROOT
from tests.spark.trees import assert_dataset, write_tree

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

# PySpark itself comes with every Spark.
DISTRIBUTIONS = ("pyarrow", "pandas", "numpy", "python-dateutil", "six", "tzdata", "pytz")
NOT_NEEDED = ("tests", "include", "__pycache__")

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


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What venv-pack makes of a virtual environment with this package and what it needs on executors."""
    directory = tmp_path_factory.mktemp("environment")
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=600)
    packages = next(environment.glob("lib/python*/site-packages"))
    _link(ROOT / "ags1", packages / "ags1")
    for name in DISTRIBUTIONS:
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            # Not all versions need all.
            continue
        for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
            _link(Path(str(importlib.metadata.distribution(name).locate_file(top))), packages / top)
    packed = directory / "environment.tar.gz"
    # Spark unpacks .tar.gz by tar, but .tar by itself, without the permissions.
    # Nothing is compressed: it does not go far.
    venv_pack.pack(prefix=str(environment), output=str(packed), compress_level=0)
    return packed


def _link(source: Path, target: Path) -> None:
    """A copy without its bytes, and without what nobody imports."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_copy, ignore=shutil.ignore_patterns(*NOT_NEEDED))
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
