"""An audit over Spark is the local one: the same report of the same lake, whoever looks at the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import ags1.spark
from ags1.audit import audit
from ags1.spark.job import main
from tests.audit.lake import make
from tests.spark.conftest import keystore
from tests.spark.trees import STRANGE, write_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICY = {"plaintext": {"allowed": ["logs/**"]}, "keys": {"allowed": ["lake"]}}


@pytest.fixture(scope="module")
def kms(tmp_path_factory: pytest.TempPathFactory) -> str:
    return keystore(tmp_path_factory.mktemp("keystore"), "lake", "people")


@pytest.fixture(scope="module")
def lake(kms: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with everything in it, a damaged stream and a name that is no UTF-8."""
    from ags1.kms import load

    with load(kms) as client:
        lake = make(tmp_path_factory.mktemp("audit") / "lake", client)
    return write_tree(lake, {"damaged.ags1": b"AGS1\0\0\1\0" + bytes(3000), STRANGE: b"name,born\nAda,1815\n"})


@pytest.mark.parametrize("with_kms", [False, True])
@pytest.mark.parametrize("policy", [None, POLICY], ids=["no policy", "a policy"])
def test_the_report_is_the_one_of_a_local_audit(
    spark: SparkSession, lake: Path, kms: str, with_kms: bool, policy: dict[str, object] | None
) -> None:
    url = kms if with_kms else None
    there = ags1.spark.audit(spark, lake, policy=policy, kms=url, progress=False)
    assert there.to_dict() == {**audit(lake, policy=policy, kms=url).to_dict(), **there.made}
    assert len(there.files) > 20
    assert there.exit_code == 1, "a stream is damaged"


def test_one_file_and_one_dataset_are_audited_as_a_tree_is(spark: SparkSession, lake: Path) -> None:
    for name in ("people/plain.parquet", "vault"):
        there = ags1.spark.audit(spark, lake / name, progress=False)
        assert there.to_dict() == {**audit(lake / name).to_dict(), **there.made}
        assert there.exit_code == 0


def test_progress_counts_what_is_read(spark: SparkSession, lake: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    ags1.spark.audit(spark, lake, progress=lambda *call: calls.append(call))
    read = sum(min(path.stat().st_size, 4096) for path in lake.rglob("*") if path.is_file())
    assert calls[-1] == (read, read)


def test_the_job_prints_the_report_and_exits_as_the_command_does(
    spark: SparkSession, lake: Path, kms: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[plaintext]\nallowed = ["nothing/**"]\n')
    people = str(lake / "people")
    local = audit(people, policy=policy)
    assert main(["audit", people, "--policy", str(policy), "--quiet"], spark=spark) == local.exit_code == 5
    # The line that ends with the digest of the policy begins with the time.
    assert local.policy_digest is not None
    lines = [capsys.readouterr().out.rstrip("\n").splitlines(), str(local).splitlines()]
    assert lines[0][-2].endswith(local.policy_digest)
    assert [[*each[:-2], each[-1]] for each in lines] == [[*lines[1][:-2], lines[1][-1]]] * 2
    assert main(["audit", people, "--kms", kms, "--json", "--quiet"], spark=spark) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["command"], record["ok"]) == ("audit", True)
    assert {each["name"]: each["protection"] for each in record["files"]}["kms.parquet"] == "encrypted"
    assert main(["audit", str(lake / "nowhere")], spark=spark) == 4
    assert "No such file" in capsys.readouterr().err
