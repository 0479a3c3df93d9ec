"""Runs the fuzz targets for a while, guided by coverage (atheris), each in a process of its own, one on each processor.

    python tests/fuzz/run.py --seconds 60                     every target
    python tests/fuzz/run.py --seconds 600 --target decrypt   one
    python tests/fuzz/run.py --seconds 5 --seed 1             the same inputs each time, as far as the time allows
    python tests/fuzz/run.py --target decrypt --replay FILE   a finding once more

A finding is any exception, crash, hang (10 s for one input) or 2 GiB of memory. It is printed with a reproducer, and
the exit code is 1. Without atheris (it has wheels for Linux only) inputs are mutated blindly, and that is said.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import io
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

SECONDS_FOR_ONE = 10
MEBIBYTES = 2048
LONGEST = 256
NAMES = (
    "decrypt", "reader", "key_metadata", "layout", "avro", "inspect", "thrift", "parquet_encrypt", "parquet_decrypt",
    "parquet_pages", "parquet_arrow", "parquet_look", "key_material", "table", "dataset",
)  # fmt: skip


def load() -> bool:
    """Import the targets, with counters of what they reach if atheris is there; whether it is."""
    try:
        import atheris
    except ImportError:
        return False
    # A line for each module.
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["ags1"]):
        importlib.import_module("tests.fuzz.targets")
    return True


def work(name: str, seconds: int, seed: int, directory: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
    if not load():
        blindly(name, seconds, seed, directory)
        return
    import atheris

    from tests.fuzz import targets

    corpus = directory / "corpus"
    corpus.mkdir()
    for number, data in enumerate(targets.seeds(name)):
        (corpus / f"seed{number}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}", f"-timeout={SECONDS_FOR_ONE}", f"-rss_limit_mb={MEBIBYTES}",
        f"-max_len={LONGEST}", f"-artifact_prefix={directory}/", "-print_final_stats=1", "-verbosity=1",
        f"-seed={seed}",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], targets.TARGETS[name])
    try:
        atheris.Fuzz()
    except SystemExit as error:
        # The fuzzer writes the input down when C's exit runs, which the end of a child of multiprocessing does not do.
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).exit(1 if error.code else 0)


def blindly(name: str, seconds: int, seed: int, directory: Path) -> None:
    """Mutate seeds without knowing what they reach."""
    from tests.fuzz import targets

    target, corpus = targets.TARGETS[name], targets.seeds(name)
    chance = random.Random(seed or None)
    end = time.monotonic() + seconds
    runs = 0
    with open(directory / "crash-blind", "w+b", buffering=0) as current:
        while time.monotonic() < end:
            data = mutated(chance, chance.choice(corpus))
            # On the disk before it runs, in case nothing is left to write it afterwards.
            os.ftruncate(current.fileno(), 0)
            os.pwrite(current.fileno(), data, 0)
            target(data)
            runs += 1
    (directory / "crash-blind").unlink()
    print(f"stat::number_of_executed_units: {runs}")


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Make a few changes to an input."""
    changed = bytearray(data)
    for _ in range(chance.randrange(6)):
        position = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0 and position < len(changed):
            changed[position] = chance.randrange(256)
        elif kind == 1:
            del changed[position : position + chance.randrange(8)]
        elif kind == 2:
            changed[position:position] = chance.randbytes(chance.randrange(8))
        elif position < len(changed):
            changed[position] ^= 1 << chance.randrange(8)
    return bytes(changed[:LONGEST])


def run(names: Sequence[str], seconds: int, seed: int = 0) -> bool:
    """Fuzz targets in children, one on each processor; print what came of each, and return whether all are well.

    They are forked when the targets are loaded, which takes some seconds with the counters.
    """
    load()
    context = multiprocessing.get_context("fork")
    left, well = list(names), True
    running: list[tuple[multiprocessing.process.BaseProcess, str, Path, float]] = []
    while left or running:
        while left and len(running) < (os.cpu_count() or 1):
            name, directory = left.pop(0), Path(tempfile.mkdtemp(prefix="ags1-fuzz-"))
            child = context.Process(target=work, args=(name, seconds, seed, directory))
            child.start()
            running.append((child, name, directory, time.monotonic() + seconds + 120))
        # The fuzzer watches time and memory itself; the limit is for when it cannot.
        limit = max(0.0, min(end for *_, end in running) - time.monotonic())
        ended = connection.wait([child.sentinel for child, *_ in running], limit)
        for entry in running[:]:
            child, name, directory, end = entry
            if child.sentinel in ended or time.monotonic() >= end:
                child.kill()
                child.join()
                running.remove(entry)
                well = judged(name, directory, child.exitcode) and well
    return well


def judged(name: str, directory: Path, code: int | None) -> bool:
    """Print what came of one target, and return whether it is well."""
    output = (directory / "output").read_text(errors="replace")
    found = re.findall(r"number_of_executed_units: (\d+)", output)
    guided = "INFO: Seed" in output
    how = "coverage-guided" if guided else "blind: no atheris"
    kinds = ("crash", "timeout", "oom", "leak")
    artifacts = sorted(path for path in directory.iterdir() if path.name.partition("-")[0] in kinds)
    well = code == 0 and not artifacts and bool(found) and int(found[-1]) > 0
    # Where nothing may be skipped, neither may the guidance.
    well = well and (guided or not os.environ.get("AGS1_NO_SKIP"))
    lines = [f"{name:>15}  {found[-1] if found else '?':>9} executions  {how}  {'ok' if well else 'FAILED'}"]
    if not well:
        lines.append("\n".join(line for line in output.splitlines() if not line.startswith("#"))[-6000:])
        for path in artifacts:
            given = path.read_bytes().hex() or "-"
            lines.append(f"reproducer ({path.name}): tests/fuzz/run.py --target {name} --replay-hex {given}")
    print("\n".join(lines), flush=True)
    shutil.rmtree(directory)
    return well


def replay(name: str, data: bytes) -> int:
    """Run one input, and show what it raises."""
    from tests.fuzz import targets

    try:
        targets.TARGETS[name](data)
    except BaseException:
        traceback.print_exc()
        return 1
    print("ok")
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20, help="for each target (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs; 0 takes another one each time (0)")
    parser.add_argument("--target", choices=NAMES, action="append", help="only this one; may be repeated")
    parser.add_argument("--replay", type=Path, help="a file with one input")
    parser.add_argument("--replay-hex", help="one input in hexadecimal; - is the empty one")
    options = parser.parse_args()
    names = options.target or NAMES
    if options.replay is not None:
        return replay(names[0], options.replay.read_bytes())
    if options.replay_hex is not None:
        return replay(names[0], bytes.fromhex(options.replay_hex.replace("-", "")))
    return 0 if run(names, options.seconds, options.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
