"""The core tests on every other Python that this machine has: ``python -m tests.pythons``, with arguments for pytest.

It takes each CPython from 3.10 on that is on PATH or a version of pyenv's, of each minor version the newest. Each gets
a virtual environment in .venv/pythons with what the core tests need, and the package built for it beside that. The
Python that runs this is left out: ``make test`` runs everything on it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(sys.prefix) / "pythons"
OLDEST = (3, 10)
CORE = (
    "core/test_backend",
    "core/test_batch",
    "core/test_blocks",
    "core/test_buffer",
    "test_codec",
    "test_errors",
    "streams/test_files",
    "core/test_gcm",
    "test_hardening",
    "test_keys",
    "test_layout",
    "streams/test_stream",
    "streams/test_stream_sinks",
    "streams/test_stream_sources",
    "streams/test_stream_text",
    "streams/test_stream_threads",
    "streams/test_stream_writer",
    "test_vectors",
    "streams/test_verify",
)
# Of the test extra, which says the versions.
NEEDED = (
    "cryptography",
    "cryptography-vectors",
    "cython",
    "hypothesis",
    "numpy",
    "pyarrow",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "setuptools",
)
_ASK = """
import json, os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(json.dumps({
    "version": sys.version_info[:3],
    "gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
    "cpython": sys.implementation.name == "cpython",
    "builds": os.path.exists(header),
}))
"""


def candidates() -> Iterator[Path]:
    """What may be a Python, on PATH and of pyenv."""
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        yield from sorted(each for each in Path(directory).glob("python3*") if re.fullmatch(r"python3\.\d+", each.name))
    if (pyenv := shutil.which("pyenv")) is not None:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        yield from sorted(Path(root).glob("versions/*/bin/python3"))


def interpreters() -> dict[tuple[int, ...], Path]:
    """The newest Python of each minor version but this one's, by its version."""
    found: dict[tuple[int, ...], tuple[tuple[int, ...], Path]] = {}
    for python in candidates():
        done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            # A shim of pyenv for a version that is not chosen here.
            continue
        said: dict[str, Any] = json.loads(done.stdout)
        version = tuple(said["version"])
        if version < OLDEST or version[:2] == sys.version_info[:2]:
            continue
        if not (said["cpython"] and said["gil"] and said["builds"]):
            print(f"left out: {python}: no CPython with its GIL and its headers")
        elif version > found.get(version[:2], ((), python))[0]:
            found[version[:2]] = version, python
    return dict(sorted(found.values()))


def requirements() -> list[str]:
    """What to install for the core tests, with the versions of the extra "test"."""
    of_extra = [
        each.partition(";")[0].strip()
        for each in importlib.metadata.requires("ags1") or ()
        if re.search(r"""extra == ['"]test['"]""", each)
    ]
    found = [each for each in of_extra if re.split(r"[^\w-]", each)[0] in NEEDED]
    assert len(found) == len(NEEDED), found
    return found


def run(version: tuple[int, ...], python: Path, arguments: list[str]) -> int:
    """Run the core tests on one Python; return the exit status."""
    home = HOME / ".".join(map(str, version))
    own, stamp, wanted = home / "bin" / "python", home / "installed", "\n".join(requirements())
    # The same words for the compiler everywhere: they decide which OpenSSL is taken from the cache.
    env = {**os.environ, "CC": os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"}
    # What the core tests do without here has its own tests on the other Python.
    env.pop("AGS1_NO_SKIP", None)
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([python, "-m", "venv", home], check=True)
        pip = [own, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        subprocess.run([*pip, "--upgrade", "pip>=25"], check=True)
        subprocess.run([*pip, *wanted.split("\n")], check=True)
        stamp.write_text(wanted)
    build = [own, "setup.py", "--quiet", "build", "--build-base", home / "build"]
    subprocess.run(build, cwd=ROOT, env=env, check=True)
    (library,) = (home / "build").glob("lib.*")
    env["PYTHONPATH"] = str(library)
    # Not from the checkout: a program of a test would find the package there, without modules for this Python.
    command = [own, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={library} {ROOT}", *arguments, *(ROOT / "tests" / f"{each}.py" for each in CORE)]
    return subprocess.run(command, cwd=home, env=env, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run the core tests on each; the exit status is 0 if all pass on all."""
    failed = []
    for version, python in interpreters().items():
        print(f"Python {'.'.join(map(str, version))}:", flush=True)
        if run(version, python, arguments) != 0:
            failed.append(".".join(map(str, version)))
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
