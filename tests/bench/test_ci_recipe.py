"""The recipe for a third party's CI runs as it is written, in a clone of their repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("pytest_benchmark")

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ROOT / "examples" / "ci"


def test_the_recipe_runs_in_a_clone(tmp_path: Path) -> None:
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    shutil.copytree(FILES, theirs, ignore=shutil.ignore_patterns("__pycache__"))
    workflow = theirs / ".github" / "workflows" / "speed.yml"
    workflow.parent.mkdir(parents=True)
    (theirs / "speed.yml").rename(workflow)
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*person, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(theirs), *command], check=True)
    subprocess.run(["git", "clone", "-q", str(theirs), str(clone)], check=True)
    steps = re.findall(r"^ +- run: (.*)$", (clone / ".github" / "workflows" / "speed.yml").read_text(), re.MULTILINE)
    assert [step.split()[2] for step in steps] == ["pip", "pytest"]
    # What `pip install ags1` does for them: the package, its plugin, and little time for each question.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = os.pathsep.join([str(clone), str(ROOT), env.get("PYTHONPATH", "")])
    env["PYTEST_ADDOPTS"] = "-p ags1.bench.pytest_plugin -p no:xdist --paired-seconds=0 --paired-limit=0"
    command = steps[1].replace("python", sys.executable, 1)
    done = subprocess.run(command, shell=True, cwd=clone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((clone / "speed.json").read_text())["benchmarks"]
    assert {"test_encrypt_is_as_fast_as_its_cipher", "test_each_question_beside_ags1[encrypt, 4 KiB a call]"} <= {
        each["name"] for each in stored
    }
    assert all(each["extra_info"]["paired"]["machine"]["cpu_model"] for each in stored)
