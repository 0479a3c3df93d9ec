"""The core tests on every other Python that this machine has: ``python -m tests.pythons``, with arguments for pytest.

It takes each CPython from 3.10 on that buildtools/interpreters.py finds, of each minor version the newest. Each gets a
virtual environment in .venv/pythons with what the core tests need, and the package built for it beside that. The
Python that runs this is left out: ``make test`` runs everything on it.

With ``--wheels dist`` the package is taken from the wheels that `make wheels` made, and Debian's Pythons are run too.
With ``--installed`` the tests run on this Python alone, with the ags1 that is installed for it, a wheel's;
``--requirements`` prints what that needs.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from buildtools import interpreters
from buildtools.openssl_source import cache_directory

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(sys.prefix) / "pythons"
CACHE = cache_directory() / "interpreters"
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
    "jsonschema",
    "numpy",
    "pyarrow",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "setuptools",
)


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


def core(python: Path, library: Path, arguments: list[str], env: Mapping[str, str]) -> int:
    """Run the core tests on a Python with the package in `library`; return the exit status."""
    # Not from the checkout: a program of a test would find the package there, without modules for this Python.
    command = [python, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={library} {ROOT}", *arguments, *(ROOT / "tests" / f"{each}.py" for each in CORE)]
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run(command, cwd=empty, env={**env, "PYTHONPATH": str(library)}, check=False).returncode


def run(version: tuple[int, ...], python: Path, wheels: Path | None, arguments: list[str]) -> int:
    """Build the package for one Python, or unpack its wheel, and run the core tests; return the exit status."""
    home = HOME / ".".join(map(str, version))
    # The same words for the compiler everywhere: they decide which OpenSSL is taken from the cache.
    env = {**os.environ, "CC": os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"}
    # What the core tests do without here has its own tests on the other Python.
    env.pop("AGS1_NO_SKIP", None)
    own = interpreters.environment(python, home, requirements())
    if wheels is not None:
        tag = "cp" + "".join(map(str, version[:2]))
        (wheel,) = wheels.glob(f"ags1-*-{tag}-{tag}-*{platform.machine()}.whl")
        library = home / "wheel"
        shutil.rmtree(library, ignore_errors=True)
        shutil.unpack_archive(wheel, library, "zip")
        return core(own, library, arguments, env)
    build = [own, "setup.py", "--quiet", "build", "--build-base", home / "build"]
    subprocess.run(build, cwd=ROOT, env=env, check=True)
    (library,) = (home / "build").glob("lib.*")
    return core(own, library, arguments, env)


def main(arguments: list[str]) -> int:
    """Run the core tests on each; the exit status is 0 if all pass on all."""
    if arguments[:1] == ["--requirements"]:
        print(*requirements(), sep="\n")
        return 0
    if arguments[:1] == ["--installed"]:
        return core(Path(sys.executable), Path(sysconfig.get_path("platlib")), arguments[1:], os.environ)
    wheels, found = None, interpreters.installed()
    if arguments[:1] == ["--wheels"]:
        wheels, arguments = Path(arguments[1]).resolve(), arguments[2:]
        found = {each: interpreters.obtain(each, CACHE, platform.machine()) for each in interpreters.SUPPORTED}
    failed = []
    for version, python in found.items():
        if wheels is None and version[:2] == sys.version_info[:2]:
            continue
        print(f"Python {'.'.join(map(str, version))}:", flush=True)
        if run(version, python, wheels, arguments) != 0:
            failed.append(".".join(map(str, version)))
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
