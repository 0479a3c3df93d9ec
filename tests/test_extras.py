"""Every extra that docs/install.md names can be installed with the oldest pip that it names."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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


# -- what the code of an extra imports, and what it says where that is missing ----------------------------------------

ROOMS = {
    "iceberg": ("iceberg",), "arrow": ("arrow",), "parquet": ("arrow",), "avro": ("avro", "iceberg"), "fs": ("fsspec",),
    "spark": ("spark", "avro", "fsspec"),
}  # fmt: skip
"""The extras for the code of a room."""
OF_ANOTHER = {
    "pyiceberg": {"hive_metastore", "pydantic", "sqlalchemy", "strictyaml", "thrift"},
    "pandas": {"numpy"},
}
"""Modules that a package of an extra brings along."""
BESIDES = {
    # Each says its own name where it is missing, or the caller has it already.
    "arrow": {"numpy"}, "iceberg": {"botocore"}, "spark": {"pyiceberg"},
}  # fmt: skip


def imported(path: Path) -> set[str]:
    """The modules of other projects that a file imports when it runs, NumPy where Arrow would import it."""
    tree = ast.parse(path.read_text())
    blocks = [each for each in ast.walk(tree) if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test)]
    never = {id(inner) for each in blocks for inner in ast.walk(each)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in never:
            continue
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Attribute) and node.attr == "to_numpy":
            found.add("numpy")
    return found - sys.stdlib_module_names - {"ags1", ""}


@pytest.mark.parametrize("room", ROOMS)
def test_what_the_code_of_an_extra_imports_is_in_it(room: str) -> None:
    wanted = [each for extra in ROOMS[room] for each in PROJECT["optional-dependencies"][extra]]
    brought = {re.split(r"[^\w-]", each)[0] for each in wanted}
    brought |= {each for name in brought for each in OF_ANOTHER.get(name, ())} | BESIDES.get(room, set())
    place = ROOT / "ags1" / room
    for path in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        assert imported(path) <= brought, path


def test_pyicebergs_transforms_and_its_catalog_in_a_file_need_no_second_install() -> None:
    """Without its core, PyIceberg does not write to a table that is partitioned by bucket or truncate."""
    (found,) = [each for each in PROJECT["optional-dependencies"]["iceberg"] if each.startswith("pyiceberg")]
    assert {"pyiceberg-core", "sql-sqlite"} <= set(found.partition("[")[2].partition("]")[0].split(","))


MISSING = """
import importlib, sys
room, *missing = sys.argv[1:]
for each in missing:
    sys.modules[each] = None
try:
    module = importlib.import_module(f"ags1.{room}")
except ImportError as error:
    print(error)
    sys.exit()
for name in module.__all__:
    try:
        getattr(module, name)
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("room", "extra", "missing"),
    [
        ("iceberg", "iceberg", ["pyarrow"]),
        ("iceberg", "iceberg", ["pyroaring", "fastavro"]),
        ("parquet", "arrow", ["pyarrow"]),
        ("fs", "fsspec", ["fsspec"]),
        ("spark", "spark", ["pandas"]),
    ],
)
def test_what_needs_an_extra_names_it(room: str, extra: str, missing: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING, room, *missing], capture_output=True, text=True, check=True, cwd=ROOT
    )
    said = done.stdout.splitlines()
    assert said
    for line in said:
        assert re.search(rf"needs? ({'|'.join(missing)}): pip install 'ags1\[{extra}\]'", line), line
