"""``--spark``: the same commands on a cluster, and nothing of Spark before they need it.

What the commands do is in tests/spark/test_commands.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import run_python
from tests.cli.conftest import Run


@pytest.fixture
def _spark_is_there() -> None:
    for name in ("pyspark", "pyarrow", "pandas"):
        pytest.importorskip(name)


def test_help_without_it_needs_nothing_of_spark() -> None:
    loaded = run_python(
        """
        import sys
        from ags1.cli import main
        main(["dataset", "encrypt", "--help"])
        print("modules:", *sys.modules)
        """
    )
    shown, _, names = loaded.partition("modules:")
    assert "--spark" in shown
    modules = names.split()
    assert "ags1.cli" in modules
    assert not {name for name in modules if name.split(".")[0] in ("pyspark", "pyarrow") or name == "ags1.spark"}


def test_a_missing_extra_is_told_in_one_line() -> None:
    shown = run_python(
        """
        import contextlib, importlib.util, io
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name in ("pyspark", "pandas") else find(name, *more)
        from ags1.cli import main
        with contextlib.redirect_stderr(io.StringIO()) as said:
            code = main(["parquet", "verify", "vault", "--spark"])
        print(code, said.getvalue(), end="")
        """
    )
    assert shown == "2 ags1: ags1.spark needs pyspark and pandas: pip install 'ags1[spark]'\n"


@pytest.mark.usefixtures("_spark_is_there")
def test_exit_codes_and_messages_are_those_of_the_job(run: Run, work: Path) -> None:
    result = run("dataset", "ls", "vault", "--spark")
    assert result.code == 2
    assert result.err.startswith("ags1: there is no such action on Spark; there are encrypt, ")
    result = run("parquet", "verify", "nothing", "--spark")
    assert result.code == 4
    assert "No such file or directory" in result.err
    result = run("dataset", "encrypt", "plain", "vault", "--spark", "--key", "00112233445566778899aabbccddeeff")
    assert result.code == 2
    assert "unknown option --key" in result.err
    assert "00112233" not in result.err
