"""Count instructions and allocations of two revisions: ``python -m bench.count BASE [-k WORD] [--changed]``.

What a shared machine does to time it does not do to counts: callgrind executes fixed work on a CPU of its own, and
counts. Both revisions answer the questions of questions.py, each in one process, by the same interpreter and libraries,
with a fixed seed of hashes; the start of the interpreter, the imports and the preparation are not counted.

    more than 2 % more instructions or allocations, each time that they are counted    more: exit code 1
    only one of the times                                                              undecided: exit code 3

Valgrind has no AVX-512, and counts an instruction of AES as it counts an addition. So this is about what is ours,
around the cipher and not in it; and it says nothing of caches, of memory and of waiting. Times are bench.compare's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ags1 import bench
from bench import compare
from bench.compare import EXIT_FAILED, EXIT_UNDECIDED, CompareError, Side
from bench.floors import ROOT, cache_directory, openssl_environment
from bench.questions import GROUPS

GATE = 0.02
SMALLEST = {"instructions": 2_000, "allocations": 20}
"""A difference below this is of the interpreter's own making, however small the work is."""
BYTES = 256 << 10
_ALLOCATORS = {"malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign", "mmap"}
_STREAMS = ("streams/", "core/window", "core/ahead", "core/gathered", "storage/")
_BATCHES = ("core/batch", "core/items", "core/arena")
# Which paths below ags1/ a group of questions stands for. What all stand on is asked by the codec's questions.
PATHS: dict[str, tuple[str, ...]] = {
    "codec": (
        "codec",
        "core/gcm",
        "core/blocks",
        "core/buffer",
        "core/layout",
        *_BATCHES,
        "layout",
        "keys",
        "support/forks",
    ),
    "arrow": ("arrow/", *_BATCHES),
    "streams": _STREAMS,
    "files": ("core/descriptors", *_STREAMS),
    "parquet": ("parquet/",),
    "dataset": ("dataset/", "kms/"),
    "iceberg": ("iceberg/", "avro/", "support/avro_encoding", "kms/"),
}


@dataclass(frozen=True)
class Counts:
    """What a question took, each time that it was counted."""

    instructions: tuple[int, ...]
    allocations: tuple[int, ...]


@dataclass(frozen=True)
class Counted:
    """One question: verdict "same", "fewer", "more", "undecided" or "not asked", and why."""

    question: str
    base: Counts | None
    head: Counts | None
    verdict: str
    note: str = ""


def parse(text: str) -> tuple[str, int, int]:
    """The name, instructions and allocations of one dump of callgrind."""
    name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
    # Of all threads; `summary` leaves out some of what a thread did that has ended.
    total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
    if name is None or total is None:
        raise CompareError("this version of callgrind writes another form of files: no trigger, or no totals")
    names: dict[str, str] = {}
    allocations, callee = 0, ""
    for line in text.splitlines():
        if found := re.match(r"c?fn=\((\d+)\)(?: (.*))?$", line):
            if found[2]:
                names[found[1]] = found[2]
            if line.startswith("c"):
                callee = names.get(found[1], "")
        elif line.startswith("calls=") and callee.split("'")[0].split("@")[0] in _ALLOCATORS:
            allocations += int(line[6:].split()[0])
    return name[1], int(total[1]), allocations


def build_counter() -> Path:
    """Compile counter.c; return the library."""
    source = Path(__file__).with_name("counter.c")
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"counter-{source.stat().st_mtime_ns}.so"
    if not target.is_file():
        command = [
            os.environ.get("CC") or "cc",
            "-O1",
            "-fPIC",
            "-shared",
            "-o",
            f"{target}.{os.getpid()}",
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompareError(f"{source.name} does not compile; is valgrind there, with its headers?\n{done.stderr}")
        os.replace(f"{target}.{os.getpid()}", target)
    return target


def _number(path: Path) -> int:
    return int(path.suffix[1:])


class Counting:
    """One revision under callgrind, in a process of its own."""

    def __init__(self, tree: Path, directory: Path, nbytes: int = BYTES) -> None:
        if shutil.which("valgrind") is None:
            raise CompareError("valgrind is not there: install it (Debian: apt install valgrind)")
        directory.mkdir()
        self._directory = directory
        prefix = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"),
            *(f"--callgrind-out-file={directory}/out.%p", f"--log-file={directory}/log"),
        ]
        env = {
            "PYTHONHASHSEED": "0",
            # Every object that Python makes is an allocation that callgrind sees.
            "PYTHONMALLOC": "malloc",
            # How many instructions a copy takes must not depend on where its memory happens to be.
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "GLIBC_TUNABLES": ":".join(
                f"glibc.cpu.x86_{name}_threshold={1 << 30}" for name in ("rep_movsb", "non_temporal")
            ),
            "AGS1_BENCH_COUNTER": str(build_counter()),
        }
        self._side = Side(tree, nbytes, prefix, env)

    def __enter__(self) -> Counting:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exception: object) -> None:
        self._side.__exit__(*exception)

    def count(self, question: str, repeat: int = 2) -> Counts:
        """Count one question."""
        for request in ("prepare", *["count"] * repeat):
            answer = self._side.ask(**{request: question})
            if "error" in answer:
                raise compare.NotAskedError(answer["error"])
        found = [
            parse(path.read_text(errors="replace")) for path in sorted(self._directory.glob("out.*.*"), key=_number)
        ]
        for path in self._directory.glob("out.*.*"):
            path.unlink()
        mine = [each for each in found if each[0] == question]
        if len(mine) != repeat:
            raise CompareError(f"{question}: callgrind wrote {len(mine)} counts, where {repeat} were asked")
        return Counts(*(tuple(each[at] for each in mine) for at in (1, 2)))


def judge(question: str, base: Counts, head: Counts, gate: float = GATE) -> Counted:
    """Compare the first count with the first, the second with the second: each side did the same before."""
    notes, verdicts = [], set()
    for name in ("instructions", "allocations"):
        pairs = list(zip(getattr(base, name), getattr(head, name), strict=True))
        moved = [abs(after - before) > max(gate * before, SMALLEST[name]) for before, after in pairs]
        if not any(moved):
            continue
        more = {after > before for before, after in pairs}
        verdicts.add("undecided" if not all(moved) or len(more) > 1 else "more" if more == {True} else "fewer")
        notes.append(f"{name} {', '.join(f'{after / max(1, before) - 1:+.1%}' for before, after in pairs)}")
    worst = next((each for each in ("more", "undecided", "fewer") if each in verdicts), "same")
    return Counted(question, base, head, worst, "; ".join(notes))


def touched(paths: Iterable[str]) -> list[str]:
    """The groups of questions that a change of these files touches. The codec's ask modules that nobody names."""
    found: set[str] = set()
    for path in paths:
        inside = path.removeprefix("ags1/")
        if path.startswith("ags1/"):
            named = {group for group, starts in PATHS.items() if inside.startswith(starts)}
            found |= named or ({"codec"} if "/" not in inside else set())
    return [group for group in PATHS if group in found]


def questions_of(groups: Iterable[str], word: str = "") -> list[str]:
    """The questions of groups that are counted. Those of two threads do the same work again; `import` is a process."""
    names = [name for group in groups if group != "start" for name in GROUPS[group]]
    return [name for name in names if word in name and not name.endswith("-2")]


@contextmanager
def trees(base: str, head: str | None) -> Iterator[tuple[Path, Path]]:
    """Both sides. The working tree is taken where it is, as `make build` left it; base is built if it is native."""
    if head is not None:
        with compare.built(base, head) as both:
            yield both
        return
    with ExitStack() as stack:
        tree = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-count-"))).resolve() / "base"
        tree.mkdir()
        stack.enter_context(compare.checkout(base, tree))
        if not compare.take_modules(ROOT, tree):
            print(f"building {base}", file=sys.stderr, flush=True)
            compare.build(tree, openssl_environment())
        yield tree, ROOT


def table(lines: Sequence[Counted]) -> str:
    """Render the counts as a Markdown table."""
    rows = ["| question | base | head | instructions | allocations | verdict |", "|---|---:|---:|---:|---:|---|"]
    for line in lines:
        if line.base is None or line.head is None:
            rows.append(f"| {line.question} | | | | | {line.verdict}: {line.note} |")
            continue
        before, after = min(line.base.instructions), min(line.head.instructions)
        said = line.verdict if line.verdict == "same" else f"**{line.verdict}**: {line.note}"
        rows.append(
            f"| {line.question} | {before:,} | {after:,} | {after / max(1, before) - 1:+.2%} | "
            f"{min(line.base.allocations):,} → {min(line.head.allocations):,} | {said} |"
        )
    return "\n".join(rows) + "\n"


def count_both(base: Path, head: Path, questions: Sequence[str], limit: float, gate: float) -> list[Counted]:
    """Count all questions on both sides, until the time is up."""
    lines, began = [], time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-count-")))
        before = stack.enter_context(Counting(base, scratch / "base"))
        after = stack.enter_context(Counting(head, scratch / "head"))
        for question in questions:
            if time.monotonic() - began > limit:
                lines.append(Counted(question, None, None, "not asked", f"the {limit:g} seconds were over"))
                continue
            try:
                line = judge(question, before.count(question), after.count(question), gate)
            except compare.NotAskedError as error:
                line = Counted(question, None, None, "not asked", str(error))
            lines.append(line)
            print(f"{question}: {line.verdict} {line.note}", file=sys.stderr, flush=True)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print, and return the exit code that says what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.count",
        description="Count instructions and allocations of two revisions, under callgrind.",
        epilog="exit codes: 0 not more, 1 more, 2 no comparison, 3 undecided",
    )
    parser.add_argument("base", help="revision to compare with")
    parser.add_argument(
        "head", nargs="?", help="revision to judge; by default the working tree, as `make build` left it"
    )
    parser.add_argument("-k", metavar="WORD", default="", help="only questions whose name contains WORD")
    parser.add_argument("--changed", action="store_true", help="only questions about what differs between the two")
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS", help="begin no question after this time")
    parser.add_argument("--gate", type=float, default=GATE, metavar="SHARE", help="a share that is worse (0.02)")
    parser.add_argument("--allow-undecided", action="store_true", help="exit with 0 if something is undecided")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    options = parser.parse_args(arguments)
    try:
        of = compare.commits(options.base, options.head)
        groups = list(GROUPS)
        if options.changed:
            groups = touched(compare.changed_files(options.base, options.head))
        questions = questions_of(groups, options.k)
        if not questions:
            print("nothing to count: no question is about what changed" if options.changed else f"no {options.k!r}")
            return 0 if options.changed else EXIT_FAILED
        with trees(options.base, options.head) as (base, head):
            lines = count_both(base, head, questions, options.limit, options.gate)
    except CompareError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(table(lines))
    print("Counted without AVX-512 and without waiting: what is ours, not the cipher.")
    if options.json is not None:
        found = {**of, "gate": options.gate, "machine": bench.machine(), "questions": [asdict(line) for line in lines]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    code = compare.exit_code({line.verdict for line in lines}, "more")
    return 0 if code == EXIT_UNDECIDED and options.allow_undecided else code


if __name__ == "__main__":
    sys.exit(main())
