"""``make demo``: a gigabyte of this machine's files, encrypted, verified, read and decrypted; one file beside `cp`.

Run it with ``python examples/demo [--bytes SIZE] [--keep DIRECTORY]``. Everything happens in a temporary
directory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import spark_part

import ags1
from ags1 import bench
from ags1.cli import main as ags1_command
from ags1.cli.values import size as size_of
from ags1.support.words import size_text

_PLACES = (
    sysconfig.get_paths()["stdlib"],
    sysconfig.get_paths()["platlib"],
    sys.base_prefix,
    "/usr/lib",
    "/usr/share",
)
_SMALL_FILES = 200
_ROUNDS = 3
_INTERRUPTED = 130


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=size_of, default=1 << 30, metavar="SIZE", help="how much to encrypt (1G)")
    parser.add_argument("--keep", metavar="DIRECTORY", help="work here, and leave the files")
    options = parser.parse_args()
    directory = Path(options.keep or tempfile.mkdtemp(prefix="ags1-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(directory)
    try:
        _demonstrate(options.bytes)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        os.chdir(before)
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


def _demonstrate(size: int) -> None:
    _say("ags1 info", "What this runs on")
    ags1_command(["info"])

    print(f"\nCollecting {size_text(size)} of real files from this machine (libraries, documents, data) ...")
    _collect(Path("plain"), size)
    total = sum(path.stat().st_size for path in Path("plain").iterdir())
    count = len(list(Path("plain").iterdir()))
    print(f"plain/: {count} files, {size_text(total)}; the largest is archive.tar")

    _beside_cp(Path("plain/archive.tar"))
    encrypted = _run(
        "encrypt plain/ vault/ --key-metadata-out keys/ --quiet", "Encrypt everything, each file under its own key"
    )
    print(
        f"encrypted {count} files, {size_text(total)}, in {encrypted:.2f} s; the time includes the wait until the "
        f"{count} keys are on the disk"
    )

    _run("inspect vault/archive.tar.ags1", "What anyone can see of a file, without a key")
    _run("verify vault/archive.tar.ags1 --key-metadata keys/", "Authenticate every block, and the length")

    offset = Path("plain/archive.tar").stat().st_size // 3
    _say(
        f"ags1.open(...).pread({offset}, 16)",
        "Read 16 bytes in the middle: one block is decrypted, not the file",
        prompt=">>>",
    )
    metadata = ags1.KeyMetadata.load("keys/archive.tar.ags1.key-metadata")
    with ags1.open("vault/archive.tar.ags1", key_metadata=metadata) as reader:
        started = time.perf_counter()
        middle = reader.pread(offset, 16)
        milliseconds = 1000 * (time.perf_counter() - started)
    with open("plain/archive.tar", "rb") as file:
        file.seek(offset)
        same = file.read(16) == middle
    print(f"{middle.hex(' ')}  in {milliseconds:.2f} ms; the same as in the original: {same}")

    decrypted = _run("decrypt vault/ restored/ --key-metadata keys/ --quiet", "Decrypt everything")
    different = subprocess.run(["diff", "-rq", "plain", "restored"], check=False).returncode
    print(f"decrypted in {decrypted:.2f} s; identical to the originals: {not different}")
    if different or not same:
        raise SystemExit("what was decrypted differs from the originals")

    _attack()
    _dataset()
    _parquet()
    spark_part.demonstrate(_say, size)
    print("\nThat was it. `ags1 --help` explains the rest.")


def _beside_cp(source: Path) -> None:
    """Encrypt one file by the command, in turns with `cp` of it: the first round pays for memory not used yet."""
    _run("keygen demo.key", "Encrypt one file, in turns with `cp` of the same file")
    ours = [sys.executable, "-m", "ags1", "encrypt", str(source), "one.ags1", "--key-file", "demo.key", "--quiet"]
    seconds: dict[str, list[float]] = {"ags1": [], "cp": []}
    print(f"$ ags1 {' '.join(ours[3:])}\n$ cp {source} copy.tar", flush=True)
    for _ in range(_ROUNDS):
        seconds["ags1"].append(_timed(lambda: subprocess.run(ours, check=True)))
        seconds["cp"].append(_timed(lambda: subprocess.run(["cp", source, "copy.tar"], check=True)))
        Path("one.ags1").unlink()
        Path("copy.tar").unlink()
    ags1_time, cp_time = (statistics.median(each) for each in seconds.values())
    size = source.stat().st_size
    print(
        f"work:    one file of {size_text(size)}, from and to the page cache, start-up included; medians of {_ROUNDS}\n"
        f"machine: {_machine()}\n"
        f"ags1 {ags1_time:.2f} s ({size_text(size / ags1_time)}/s), cp {cp_time:.2f} s "
        f"({size_text(size / cp_time)}/s): ags1 takes {ags1_time / cp_time:.2f} times the time of cp\n"
        "The table of README.md has the same work, on the machine that it names, with nothing else running there."
    )


def _machine() -> str:
    machine = bench.machine()
    others = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return f"{machine['cpu_model']} ({machine['aes_gcm']}), {machine['cores']} cores, {others}"


def _attack() -> None:
    target = Path("vault/archive.tar.ags1")
    _say("change one bit in the middle of vault/archive.tar.ags1", "And now the worst day", prompt="#")
    with target.open("r+b") as file:
        file.seek(target.stat().st_size // 2)
        octet = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([octet ^ 1]))
    sys.stdout.flush()
    code = ags1_command(f"verify {target} --key-metadata keys/ --quiet --progress never".split())
    if code != 1:
        raise SystemExit(f"the changed bit went unnoticed (exit code {code})")
    print(f"exit code {code}; `ags1 decrypt` of it leaves no output file")


def _dataset() -> None:
    """Encrypt the small files as a dataset under one master key, and rotate that."""
    small = Path("small")
    small.mkdir()
    for path in sorted(Path("plain").iterdir()):
        if path.name != "archive.tar":
            os.link(path, small / path.name)
    # A password for a demonstration: a real one comes from a terminal, a file or the environment.
    Path("password").write_text(os.urandom(16).hex())
    kms = "--kms local:keys.json --password-file password"
    _run(f"kms init {kms} --key-id lake-2026 --key-id lake-2027", "Two master keys, in a keystore of your own")
    _run(f"dataset encrypt small/ lake/ {kms} --key-id lake-2026 --progress never", "A directory under one master key")
    _run(f"dataset rewrap lake/ {kms} --new-key-id lake-2027", "A new master key: only wrapped keys are written")
    _run(
        f"dataset verify lake/ {kms} --expected-key-id lake-2027 --progress never",
        "And everything still opens, by one call",
    )


def _parquet() -> None:
    """Encrypt two columns of a Parquet file without re-encoding it, and read it with and without their key."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        print("\nThe part about Parquet needs PyArrow: pip install 'ags1[arrow]'")
        return
    rows = 1_000_000
    print(f"\nWriting a Parquet file of {rows:,} people ...")
    numbers = pa.array(range(rows), pa.int64())
    digits = pa.array([f"{number * 2654435761 % 10**9:09d}" for number in range(rows)])
    pq.write_table(
        pa.table({"id": numbers, "name": pa.array(["Ada", "Grace", "Edsger", "Barbara"] * (rows // 4)), "ssn": digits}),
        "people.parquet",
    )
    keys = "--footer-key file:footer.key --column-key ssn=file:ssn.key"
    _run("keygen footer.key", "A key for the file, and one for the column that only some may read")
    _run("keygen ssn.key", "")
    _run(
        f"parquet encrypt people.parquet vault.parquet {keys} --encrypt-all --progress never",
        "Encrypt a Parquet file: its pages are moved, not decoded",
    )
    _run(f"parquet inspect vault.parquet {keys}", "Which column is protected how")
    _run(f"parquet head vault.parquet {keys} -n 3", "With both keys")
    _run(
        "parquet head vault.parquet --footer-key file:footer.key --missing-keys drop -n 3",
        "Without the key of ssn: the file is read, the column is not",
    )


def _collect(directory: Path, size: int) -> None:
    """Gather small files as they are, and one large archive made of real files until there is enough."""
    directory.mkdir(exist_ok=True)
    left = size
    small = 0
    chosen: list[Path] = []
    for path in _real_files():
        length = path.stat().st_size
        if small < _SMALL_FILES and 1000 < length < 300_000 and length < left // 4:
            shutil.copyfile(path, directory / f"{small:03d}-{path.name}")
            small += 1
            left -= length
        elif length:
            chosen.append(path)
            if sum(1 for _ in chosen) > 4000:
                break
    with tarfile.open(directory / "archive.tar", "w") as archive:
        while left > 0 and chosen:
            for path in chosen:
                length = path.stat().st_size
                if length <= left:
                    archive.add(path, arcname=str(path).lstrip("/"), recursive=False)
                left -= length
                if left <= 0:
                    break
    with (directory / "archive.tar").open("ab") as file:
        # An archive that is too short, because no file fitted any more, ends in zeros, as tar archives do.
        missing = size - sum(path.stat().st_size for path in directory.iterdir())
        if missing > 0:
            file.truncate(file.tell() + missing)


def _real_files() -> list[Path]:
    found: list[Path] = []
    for place in _PLACES:
        for parent, directories, names in os.walk(place):
            directories.sort()
            for name in sorted(names):
                path = Path(parent, name)
                if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                    found.append(path)
            if len(found) > 8000:
                return found
    return found


def _run(command: str, title: str) -> float:
    _say(f"ags1 {command}", title)
    code = 0

    def run() -> None:
        nonlocal code
        code = ags1_command(command.split())

    seconds = _timed(run)
    if code == _INTERRUPTED:
        # The command caught it.
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)
    return seconds


def _timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _say(command: str, title: str, *, prompt: str = "$") -> None:
    heading = f"\n== {title}\n" if title else ""
    print(f"{heading}{prompt} {command}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
