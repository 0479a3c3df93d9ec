"""Every extra that docs/install.md names can be installed with the oldest pip that it names."""

from __future__ import annotations

import os
import re
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL = (ROOT / "docs" / "install.md").read_text()
DOCUMENTED = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", INSTALL, re.MULTILINE)))
# Those that some page installs together.
TOGETHER = sorted(
    {each for page in (ROOT / "docs").rglob("*.md") for each in re.findall(r"ags1\[(\w+,[\w,]+)\]", page.read_text())}
)
# Those are for who works on the package itself.
OWN = {"bench", "check", "docs", "test"}
VERSION = "0.0.1.dev1"


def test_the_documentation_names_every_extra() -> None:
    assert sorted(DOCUMENTED) == sorted(set(PROJECT["optional-dependencies"]) - OWN)


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the oldest pip."""
    (oldest,) = re.findall(r"'pip>=([\d.]+)'", INSTALL)
    home = tmp_path_factory.mktemp("oldest")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", f"pip=={oldest}.0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        (pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip)(f"needs a package index: {done.stderr}")
    return python


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel that has this package's metadata, and nothing else."""
    directory = tmp_path_factory.mktemp("wheels")
    lines = ["Metadata-Version: 2.1", "Name: ags1", f"Version: {VERSION}"]
    for extra, wanted in PROJECT["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        for each in wanted:
            requirement, _, marker = each.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            lines.append(f"Requires-Dist: {requirement}; {condition}extra == '{extra}'")
    information = f"ags1-{VERSION}.dist-info"
    with zipfile.ZipFile(directory / f"ags1-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{information}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    return directory


# What resolves together resolves alone.
IN_ALL = set(re.findall(r"\w+", " ".join(PROJECT["optional-dependencies"]["all"])))


@pytest.mark.parametrize("extras", [*(each for each in DOCUMENTED if each not in IN_ALL), *TOGETHER])
def test_the_oldest_pip_resolves(extras: str, pip: Path, wheels: Path) -> None:
    command = [pip, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--quiet"]
    done = subprocess.run(
        [*command, "--find-links", wheels, f"ags1[{extras}]=={VERSION}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
