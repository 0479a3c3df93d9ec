"""A wheel in bare Debian systems: ``python -m tests.packaging.systems [NAME ...]``, after ``make wheels``.

Each system is made by mmdebstrap, with no packages but Debian's smallest set and python3-venv, and kept in the cache; a
run works on a copy. There a stranger's steps are timed: ``pip install`` of the wheel, and a table that is encrypted and
read. The core tests and the blocks of README.md follow. Results go to bench/results/systems.json, and from there into
docs/compatibility.md.

It needs root, for chroot, and mmdebstrap; for another machine than this one also qemu-user-static, arch-test and
binfmt_misc. What can't be run is said, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from buildtools.interpreters import debootstrapped, take_expired_suites
from buildtools.openssl_source import cache_directory

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results" / "systems.json"
PAGE = ROOT / "docs" / "compatibility.md"
# What the tests read besides themselves; ags1 is not among it, so that they find the one that is installed.
NEEDED = ("LICENSE", "README.md", "bench", "buildtools", "docs", "examples", "include", "pyproject.toml", "tests")


class CannotRunError(Exception):
    """This system can't be run here; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class System:
    """A Debian suite on a kind of machine, with the version of its python3."""

    title: str
    suite: str
    machine: str
    python: str


SYSTEMS = {
    "debian-12-x86_64": System("Debian 12, x86_64", "bookworm", "x86_64", "3.11"),
    "debian-13-x86_64": System("Debian 13, x86_64", "trixie", "x86_64", "3.13"),
    "debian-sid-x86_64": System("Debian sid, x86_64", "sid", "x86_64", "3.14"),
    "debian-12-aarch64": System("Debian 12, aarch64", "bookworm", "aarch64", "3.11"),
}


def packed(name: str, system: System) -> Path:
    """Return the archive of the bare system, made once."""
    path = cache_directory() / "systems" / f"{name}.tar"
    if not path.is_file():
        if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
            raise CannotRunError("mmdebstrap ('apt-get install mmdebstrap') and root are needed")
        if (
            system.machine != platform.machine()
            and not Path("/proc/sys/fs/binfmt_misc", f"qemu-{system.machine}").exists()
        ):
            raise CannotRunError("needs qemu-user-static, and binfmt_misc mounted with it in it (update-binfmts)")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.tar")
        said = debootstrapped(system.suite, system.machine, partial, "minbase", ["python3-venv"])
        if said is not None:
            raise CannotRunError(f"mmdebstrap could not make it: {said}")
        partial.rename(path)
    return path


def wheel_for(system: System, wheels: Path) -> Path:
    """Return the wheel of this system's Python."""
    tag = f"cp{system.python.replace('.', '')}"
    found = sorted(wheels.glob(f"ags1-*-{tag}-{tag}-manylinux*_{system.machine}.whl"))
    if not found:
        machine = f" --machine {system.machine}" if system.machine != platform.machine() else ""
        raise CannotRunError(f"no wheel: python -m buildtools.wheels {system.python}{machine}")
    return found[-1]


def run(name: str, wheels: Path, *, with_core: bool = True) -> dict[str, Any]:
    """Run everything in a copy of one system, or all but the core tests; return what it said.

    Raises
    ------
    CannotRunError
        The system, or the wheel, is not there.
    subprocess.CalledProcessError
        A step failed inside.
    """
    system = SYSTEMS[name]
    wheel, archive = wheel_for(system, wheels), packed(name, system)
    with tempfile.TemporaryDirectory(prefix="ags1-system-") as scratch:
        root = Path(scratch, "root")
        root.mkdir()
        subprocess.run(["tar", "-C", root, "--numeric-owner", "-xf", archive], check=True)
        tests = root / "ags1"
        tests.mkdir()
        for each in NEEDED:
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy
            copy(ROOT / each, tests / each)
        shutil.copy(wheel, root)
        shutil.copy("/etc/resolv.conf", root / "etc")
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        # How this machine reaches a package index, and by which certificates.
        environment |= {
            key: os.environ[key] for key in ("PIP_INDEX_URL", "PIP_PROXY", "HTTPS_PROXY") if key in os.environ
        }
        certificates = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
        if Path(certificates).is_file():
            shutil.copy(certificates, root / "certificates.pem")
            environment["PIP_CERT"] = "/certificates.pem"
        words = [f"{key}={value}" for key, value in environment.items()]
        inside = ["env", "-i", *words, "python3", "/ags1/tests/packaging/bare.py", f"/{wheel.name}", "/ags1"]
        inside += [] if with_core else ["without-core"]
        at = shlex.quote(str(root))
        # The mounts end with the process: nothing of this machine's is left in what is removed afterwards.
        script = (
            f"mount -t proc proc {at}/proc && mount --rbind /dev {at}/dev && mount -t tmpfs tmpfs {at}/dev/shm && "
            f"exec chroot {at} {shlex.join(inside)}"
        )
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {
        "title": system.title,
        "emulated": system.machine != platform.machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **found,
    }


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the results as a table of Markdown."""
    heads = [
        "bare system",
        "Python, C library",
        "`pip install`",
        "then a decrypted table",
        "core tests",
        "README",
        "AES-GCM",
    ]
    lines = [heads, ["---"] * len(heads)]
    for name in (name for name in SYSTEMS if name in results):
        found = results[name]
        of = " on a busy machine" if found["busy"] else ""
        seconds = [
            "emulated" if found["emulated"] else f"{found[each]:.0f} s{of}"
            for each in ("install_seconds", "first_table_seconds")
        ]
        core = ", ".join(f"{count:,} {word}" for word, count in found["core"].items() if count) or "not run"
        readme = "passed" if found["readme_passed"] else "failed"
        path = f"`{found['backend']['aes_gcm']}`"
        lines.append([found["title"], f"{found['python']}, {found['libc']}", *seconds, core, readme, path])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with the results between its marks."""
    return re.sub(
        r"(?<=<!-- systems -->\n).*?(?=<!-- end of systems -->)", lambda _: table(results), page, flags=re.DOTALL
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the systems that are named, or all; keep the results; the exit status is 0 if all of them passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.systems", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SYSTEMS))
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="directory of the wheels (dist)")
    parser.add_argument(
        "--without-core", action="store_true", help="leave out the core tests, about an hour under emulation"
    )
    take_expired_suites(parser)
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - SYSTEMS.keys():
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    passed = True
    for name in options.names or SYSTEMS:
        try:
            found = run(name, options.wheels, with_core=not options.without_core)
        except CannotRunError as error:
            print(f"NOT RUN: {name}: {error}")
            passed = False
            continue
        except subprocess.CalledProcessError as error:
            print(f"FAILED: {name}: exit status {error.returncode}")
            passed = False
            continue
        print(f"{name}: {json.dumps(found)}", flush=True)
        passed = passed and found["core_passed"] is not False and found["readme_passed"]
        results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
        RESULTS.write_text(json.dumps({**results, name: found}, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(with_table(PAGE.read_text(), {**results, name: found}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
