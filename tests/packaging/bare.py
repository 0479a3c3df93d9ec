"""What tests/packaging/systems.py runs inside of a bare system, with nothing but its python3: prints a line of JSON.

argv: the wheel, the directory with the tests, and "without-core" if those take too long, as under emulation. PIP_...
and the like say where packages come from.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOME = Path("/opt/ags1")
PYTHON = HOME / "bin" / "python"


def run(*command: str | Path, cwd: Path) -> tuple[int, str]:
    """Run a command, let its output be seen, and return the exit status with the last 100 lines."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            lines = [*lines[-99:], line]
    return process.returncode, "".join(lines)


def must(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed."""
    status, said = run(*command, cwd=cwd)
    if status != 0:
        raise SystemExit(f"{command}: exit status {status}")
    return said


def pip(*requirements: str, cwd: Path) -> None:
    must(PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "-qq", *requirements, cwd=cwd)


def counts(said: str) -> dict[str, int]:
    """Return the numbers in the last line of pytest."""
    found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", said)}
    return {word: found.get(word, 0) for word in ("passed", "failed", "skipped", "error")}


def main(wheel: Path, tests: Path, *, with_core: bool) -> dict[str, Any]:
    """Install, and run the first table, the core tests and README."""
    work = Path("/tmp/work")
    work.mkdir()
    # Then the seconds say little.
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    started = time.monotonic()
    must(sys.executable, "-m", "venv", HOME, cwd=work)
    pip(f"ags1[iceberg] @ {wheel.as_uri()}", cwd=work)
    installed = time.monotonic()
    must(PYTHON, tests / "examples" / "iceberg_table.py", cwd=work)
    decrypted = time.monotonic()
    backend = json.loads(
        subprocess.run(
            [PYTHON, "-I", "-c", "import ags1, json; print(json.dumps(ags1.backend()))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    # Versions that fit what is installed, for both at once: what a user installed is not replaced.
    needed = subprocess.run(
        [PYTHON, "-m", "tests.pythons", "--requirements"], cwd=tests, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    pip(*needed, cwd=work)
    core, said = None, ""
    if with_core:
        core, said = run(PYTHON, "-m", "tests.pythons", "--installed", "--each", cwd=tests)
    readme = run(PYTHON, "-m", "pytest", "-q", "tests/test_readme.py", "-k", "each_block", cwd=tests)[0]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "wheel": wheel.name,
        "busy": busy,
        "install_seconds": round(installed - started, 1),
        "first_table_seconds": round(decrypted - installed, 1),
        "core": counts(said),
        "core_passed": None if core is None else core == 0,
        "core_skipped": sorted(
            {line.partition("tests/")[2] for line in said.splitlines() if line.startswith("SKIPPED ")}
        ),
        "readme_passed": readme == 0,
        "backend": {name: backend[name] for name in ("openssl_version", "linkage", "aes_gcm", "cpu_features")},
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), with_core="without-core" not in sys.argv[3:])))
