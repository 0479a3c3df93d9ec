"""The core tests on every other Python that this machine has: ``python -m tests.pythons``, with arguments for pytest.

It takes each CPython from 3.10 on that buildtools/interpreters.py finds, of each minor version the newest. Each gets a
virtual environment in .venv/pythons with what the core tests need, and the package built for it beside that. The
Python that runs this is left out: ``make test`` runs everything on it.

With ``--wheels dist`` the package is taken from the wheels that `make wheels` made, and Debian's Pythons are run too.
With ``--installed`` the tests run on this Python alone, with the ags1 that is installed for it, a wheel's;
``--requirements`` prints what that needs. ``--installed --each`` runs each file in a process of its own, so that one
that hangs, as on an emulated CPU, does not stop the others.
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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
# Of one file: under emulation, on a busy machine, the longest takes half an hour.
FILE_SECONDS = 2 * 3600
# Of the test extra, which says the versions.
NEEDED = (
    "cryptography",
    "cryptography-vectors",
    "cython",
    "fsspec",
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
    """What to install for the core tests: of the extra "test", and the extra "iceberg", with their versions."""

    def of(extra: str) -> list[str]:
        wanted = rf"""extra == ['"]{extra}['"]"""
        return [
            each.partition(";")[0].strip()
            for each in importlib.metadata.requires("ags1") or ()
            if re.search(wanted, each)
        ]

    found = [each for each in of("test") if re.split(r"[^\w-]", each)[0] in NEEDED]
    assert len(found) == len(NEEDED), found
    # The vectors have whole tables.
    return [*found, *of("iceberg")]


def core(
    python: Path,
    library: Path,
    arguments: Sequence[str],
    env: Mapping[str, str],
    files: Sequence[str] = CORE,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run the core tests on a Python with the package in `library`; options are subprocess.run's."""
    # Not from the checkout: a program of a test would find the package there, without modules for this Python.
    command = [python, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider"]
    command += ["-o", f"pythonpath={library} {ROOT}", *arguments, *(ROOT / "tests" / f"{each}.py" for each in files)]
    with tempfile.TemporaryDirectory() as empty:
        env = {**env, "PYTHONPATH": str(library)}
        return subprocess.run(command, cwd=empty, env=env, check=False, text=True, **options)


def each_file(python: Path, library: Path, arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Run each file of the core tests by itself, as many at once as there are CPUs; return an exit status.

    The last lines printed are the tests that were skipped, and the numbers of all files.
    """
    counts, skipped, status = dict.fromkeys(("passed", "failed", "skipped", "error"), 0), list[str](), 0

    def run_one(file: str) -> tuple[int, str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": FILE_SECONDS}
        try:
            # A test of 4 GiB meets its ten minutes on an emulated CPU that others use too.
            given = ["--no-fold-skipped", f"--timeout={FILE_SECONDS // 2}", *arguments]
            done = core(python, library, given, env, [file], **options)
        except subprocess.TimeoutExpired:
            return 1, f"killed after {FILE_SECONDS} seconds\n"
        return done.returncode, done.stdout

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, (code, said) in zip(CORE, pool.map(run_one, CORE), strict=True):
            print(f"{file}\n{said}", flush=True)
            status = status or code
            lines = said.splitlines() or [""]
            skipped += (line for line in lines if line.startswith("SKIPPED "))
            found = re.findall(r"(\d+) (passed|failed|skipped|error)", lines[-1])
            # A file that ended before pytest counted is one error.
            for number, word in found or [(1, "error")]:
                counts[word] += int(number)
    print(*skipped, ", ".join(f"{number} {word}" for word, number in counts.items()), sep="\n")
    return status


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
        return core(own, library, arguments, env).returncode
    build = [own, "setup.py", "--quiet", "build", "--build-base", home / "build"]
    subprocess.run(build, cwd=ROOT, env=env, check=True)
    (library,) = (home / "build").glob("lib.*")
    return core(own, library, arguments, env).returncode


def main(arguments: list[str]) -> int:
    """Run the core tests on each; the exit status is 0 if all pass on all."""
    if arguments[:1] == ["--requirements"]:
        print(*requirements(), sep="\n")
        return 0
    if arguments[:1] == ["--installed"]:
        own, library = Path(sys.executable), Path(sysconfig.get_path("platlib"))
        if arguments[1:2] == ["--each"]:
            return each_file(own, library, arguments[2:], os.environ)
        return core(own, library, arguments[1:], os.environ).returncode
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
