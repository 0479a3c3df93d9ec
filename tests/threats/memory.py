"""Searches the memory of a child process: what it holds in its heap, freed or not, on its stacks and in its data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def count(pid: int, needles: list[bytes]) -> list[int]:
    """How often each needle is in the readable memory of a process."""
    hits = [0] * len(needles)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            fields = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+ *(.*)", line)
            assert fields is not None
            start, end = int(fields[1], 16), int(fields[2], 16)
            if not fields[3].startswith("r") or fields[4].startswith("[v"):
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError):
                continue
            hits = [found + data.count(needle) for found, needle in zip(hits, needles, strict=True)]
    return hits


def count_after(code: str, given: bytes, needles: list[bytes], *arguments: str) -> list[int]:
    """Run a program that reads `given` from its standard input, and search it once it has closed its output.

    The program must stay alive until its standard input ends. `expect(number)`, defined for it, reads that many
    of the given bytes without leaving a copy of them anywhere but in the bytearray that it answers.
    """
    prelude = """
    import os, sys
    def expect(number):
        found, done = bytearray(number), 0
        while done < number:
            with memoryview(found) as view:
                done += os.readv(0, [view[done:]])
        return found
    """
    ending = """
    os.close(1)
    assert os.read(0, 1) == b""
    """
    program = "".join(textwrap.dedent(part) for part in (prelude, code, ending))
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(given)
        process.stdin.flush()
        said = process.stdout.read()
        hits = count(process.pid, needles) if not said and process.poll() is None else []
        process.stdin.close()
        failure = process.stderr.read().decode()
        if process.wait(600) != 0 or not hits:
            raise AssertionError(f"the program ended with {process.returncode}:\n{said!r}\n{failure}")
    return hits
