"""The CPythons of this machine, and those that Debian's archive has for it.

Debian's are binary packages that are unpacked into a directory of their own: nothing is installed. What they need is
unpacked beside them, the C library too, since that of a newer suite is newer than the machine's.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Version = tuple[int, ...]

SUPPORTED: tuple[Version, ...] = tuple((3, minor) for minor in range(10, 15))
"""The minor versions that there are wheels for."""

SUITES: dict[Version, str] = {(3, 11): "bookworm", (3, 13): "trixie", (3, 14): "sid"}
"""The suite of Debian that a CPython is taken from."""

EXPIRED = "AGS1_EXPIRED_SUITES"
"""The variable that stands for --expired-suites."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of machines."""

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


class MissingError(Exception):
    """An interpreter can't be had here; the message says why."""


def _candidates() -> Iterator[Path]:
    """What may be a Python, on PATH and of pyenv."""
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        yield from sorted(each for each in Path(directory).glob("python3*") if re.fullmatch(r"python3\.\d+", each.name))
    if (pyenv := shutil.which("pyenv")) is not None:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        yield from sorted(Path(root).glob("versions/*/bin/python3"))


@functools.cache
def installed() -> dict[Version, Path]:
    """Return the newest Python of each minor version on PATH and of pyenv, from 3.10 on, by its whole version."""
    found: dict[Version, tuple[Version, Path]] = {}
    for python in _candidates():
        done = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            # A shim of pyenv for a version that is not chosen here.
            continue
        said: dict[str, Any] = json.loads(done.stdout)
        version = tuple(said["version"])
        if version < SUPPORTED[0]:
            continue
        if not (said["cpython"] and said["gil"] and said["builds"]):
            print(f"left out: {python}: no CPython with its GIL and its headers")
        elif version > found.get(version[:2], ((), python))[0]:
            found[version[:2]] = version, python
    return dict(sorted(found.values()))


def unpack(version: Version, packages: Sequence[str], directory: Path, machine: str) -> Path:
    """Unpack Debian's `packages` and what they depend on for `machine` in `directory`, once; return the directory.

    Raises
    ------
    MissingError
        No suite has this version, mmdebstrap is missing, or the archive is not reached.
    """
    name = ".".join(map(str, version))
    suite = SUITES.get(version)
    if suite is None:
        raise MissingError(f"no suite of Debian has Python {name}")
    place = directory / f"{suite}-{machine}-{name}"
    if place.is_dir():
        return place
    if shutil.which("mmdebstrap") is None:
        raise MissingError(f"Debian's {suite} has Python {name}; mmdebstrap, which unpacks it, is not installed")
    partial = place.with_name(f"{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    said = debootstrapped(suite, machine, partial, "extract", packages)
    if said is not None:
        raise MissingError(f"Debian's {suite} has Python {name}; mmdebstrap could not unpack it: {said}")
    partial.rename(place)
    return place


def debootstrapped(suite: str, machine: str, target: Path, variant: str, packages: Sequence[str]) -> str | None:
    """Have mmdebstrap make a directory or an archive of a suite; return what it said, or None if it is made."""
    command = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--arch={ARCHITECTURES[machine]}"]
    if os.environ.get(EXPIRED):
        # Of a mirror that stands still. Signatures are checked all the same.
        command += ["--aptopt=Acquire::Check-Valid-Until false"]
    command += [f"--include={','.join(packages)}", suite, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    said = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
    remedy = ". --expired-suites takes it as it is" if " is expired " in done.stderr else ""
    return f"{' '.join(said[:1])}{remedy}"


def take_expired_suites(parser: argparse.ArgumentParser) -> None:
    """Add the option for a mirror that stands still."""
    parser.add_argument(
        "--expired-suites",
        action=_Expired,
        nargs=0,
        help="take suites of Debian whose lists are out of date, as those of a mirror that stands still",
    )


class _Expired(argparse.Action):
    def __call__(self, *_: object) -> None:
        os.environ[EXPIRED] = "1"


def from_debian(version: Version, directory: Path, machine: str) -> Path:
    """Return a CPython of Debian's that runs on this machine as it is, unpacked in `directory`, with its headers.

    Raises
    ------
    MissingError
        It can't be had.
    """
    name = f"python{version[0]}.{version[1]}"
    root = unpack(version, [name, f"{name}-dev", f"{name}-venv"], directory, machine)
    python = root / "usr" / "bin" / name
    if (root / "ready").exists():
        return python
    (loader,) = (root / "usr").glob("lib*/ld-linux-*.so.*")
    libraries = root / "usr" / "lib" / f"{machine}-linux-gnu"
    # Its own C library, for what it loads later too: RPATH, since RUNPATH is not for that.
    try:
        own = ("--set-interpreter", str(loader), "--force-rpath", "--set-rpath", str(libraries))
        subprocess.run(["patchelf", *own, str(python)], check=True)
    except FileNotFoundError:
        raise MissingError("patchelf is not installed") from None
    # Debian's pyconfig.h is found by its path below /usr/include, where the headers of that C library are too.
    multiarch = Path(f"{machine}-linux-gnu", name)
    headers = root / "usr" / "include"
    shutil.copytree(headers / multiarch, headers / name / multiarch)
    (root / "ready").touch()
    return python


def obtain(version: Version, directory: Path, machine: str) -> Path:
    """Return a CPython of this minor version: the machine's own, or Debian's, which is unpacked in `directory`.

    Raises
    ------
    MissingError
        It can't be had.
    """
    own = next((python for found, python in installed().items() if found[:2] == version), None)
    return own or from_debian(version, directory, machine)


def environment(python: Path, home: Path, requirements: Sequence[str]) -> Path:
    """Make a virtual environment of `python` in `home`, with `requirements`, unless it is there; return its Python."""
    own, stamp, wanted = home / "bin" / "python", home / "installed", "\n".join([str(python), *requirements])
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        # By the pip of this Python: Debian's has its own elsewhere, and an old one is slow.
        subprocess.run([python, "-m", "venv", "--without-pip", home], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(own), "install", "-qq"]
        subprocess.run([*pip, *requirements], check=True)
        stamp.write_text(wanted)
    return own
