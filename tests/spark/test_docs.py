"""What docs/spark.md and examples/ have for Spark runs, as it stands; what is for a cluster is shell, at least."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.iceberg.keys import keystore
from tests.interop.jvm import compiler_missing
from tests.pages import run_shell

GUIDE = "spark_cluster.py"
ROOT = Path(__file__).resolve().parent.parent.parent


def _blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_spark_examples_of_the_pages_and_the_script_of_the_guide_run(
    tmp_path: Path, run_spark: Callable[..., CompletedProcess[str]]
) -> None:
    others = _blocks("docs/left-out.md", 'python title="Spark"')
    # They continue the script of the guide.
    page = [
        block for name in ("spark", "parquet-on-spark") for block in _blocks(f"docs/{name}.md", 'python title="Spark"')
    ]
    assert others
    assert len(page) == 2
    (tmp_path / "guide").mkdir()
    # The JVM and its workers begin in the current directory of whoever starts them; the guide's script does not mind.
    guide = f"os.chdir({str(tmp_path / 'guide')!r})\n{(ROOT / 'examples' / GUIDE).read_text()}"
    # All of them in one session.
    program = "\n".join(["import os", f"os.chdir({str(tmp_path)!r})", *others, guide, *page])
    done = run_spark(program.replace("\nspark.stop()\n", "\n"))
    assert "above 150" in done.stdout
    assert "3 files" in done.stdout
    (stored,) = (tmp_path / "guide/spark-cluster/vault/day=1").glob("sales.json.*.ags1")
    assert stored.read_bytes().startswith(b"AGS1")


@pytest.fixture
def trial_jar(tmp_path: Path) -> Path:
    """The class of the page, compiled."""
    import pyspark

    if (reason := compiler_missing()) is not None:
        (pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip)(reason)
    (source,) = _blocks("docs/parquet-on-spark.md", 'java title="com/example/TrialKms.java"')
    (tmp_path / "com/example").mkdir(parents=True)
    (tmp_path / "com/example/TrialKms.java").write_text(source)
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    subprocess.run(["javac", "-cp", jars, "com/example/TrialKms.java"], cwd=tmp_path, check=True)
    subprocess.run(["jar", "cf", "trial.jar", "com"], cwd=tmp_path, check=True)
    return tmp_path / "trial.jar"


def test_the_trial_class_compiles(trial_jar: Path) -> None:
    assert trial_jar.is_file()


@pytest.mark.nightly
def test_the_trial_class_opens_what_a_local_keystore_wrapped(
    tmp_path: Path, trial_jar: Path, run_spark: Callable[..., CompletedProcess[str]]
) -> None:
    masters = {"lake": bytes(range(16)), "pay": bytes(range(16, 32))}
    conf = {
        "spark.jars": str(trial_jar),
        "spark.hadoop.parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
        "spark.hadoop.parquet.encryption.kms.client.class": "com.example.TrialKms",
        **{f"spark.hadoop.trial.secret.{name}": base64.b64encode(key).decode() for name, key in masters.items()},
    }
    kms = keystore(tmp_path, masters)
    (block,) = _blocks("docs/parquet-on-spark.md", 'python title="Spark with a KMS client for Parquet"')
    begin = (
        "from pyspark.sql import SparkSession\nimport ags1.spark\n"
        f"here = {str(tmp_path)!r}\nkms = {kms!r}\nspark = SparkSession.builder.getOrCreate()\n"
    )
    run_spark(begin + block, conf=conf)


def test_the_commands_for_an_environment_are_shell(tmp_path: Path) -> None:
    blocks = [
        each
        for each in _blocks("docs/guides/spark-clusters.md", "")
        if each.startswith(("python -m", "PYSPARK", "spark-"))
    ]
    assert len(blocks) == 3
    run_shell("\n".join(["if false; then", *blocks, "fi"]), tmp_path)
