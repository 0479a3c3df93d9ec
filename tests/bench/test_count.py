"""Counts of instructions and allocations: what callgrind writes, what that means, and one per cent that is found."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from bench import compare, count, questions
from bench.count import Counted, Counts
from tests.checks import every

ROOT = Path(__file__).resolve().parent.parent.parent
DUMP = """\
# callgrind format
version: 1
desc: Trigger: Client Request: encrypt
positions: line
events: Ir
summary: 1234

fn=(1) work
0 100
cfn=(2) malloc
calls=3 0
0 30
cfn=(3) other
calls=9 0
0 30
cfn=(2)
calls=4 0
0 40

fn=(4) calloc'2
0 7
cfn=(4)
calls=2 0
0 7
totals: 1234
"""


def test_a_dump_of_callgrind_is_read() -> None:
    assert count.parse(DUMP) == ("encrypt", 1234, 9)
    with pytest.raises(count.CompareError, match="another form of files"):
        count.parse("")


def test_one_per_cent_too_much_is_found_where_the_gate_is_there() -> None:
    base = Counts((1_000_000_000, 1_003_000_000), (1000, 1000))
    for share, gate, verdict in (
        (0.0, 0.02, "same"),
        (0.019, 0.02, "same"),
        (0.021, 0.02, "more"),
        (0.01, 0.009, "more"),
        (-0.03, 0.02, "fewer"),
    ):
        head = Counts(tuple(round(each * (1 + share)) for each in base.instructions), base.allocations)
        assert count.judge("q", base, head, gate).verdict == verdict, share
    assert count.judge("q", base, Counts(base.instructions, (1021, 1021))).note == "allocations +2.1%, +2.1%"
    once = Counts((1_000_000_000, 1_100_000_000), (1000, 1000))
    assert count.judge("q", base, once).verdict == "undecided"
    small = Counts((1000, 1000), (1, 1)), Counts((2000, 2000), (3, 3))
    assert count.judge("q", *small).verdict == "same"


def test_exit_codes_and_table_say_what_was_found() -> None:
    base = Counts((100_000, 100_000), (5, 5))
    lines = [Counted("q", base, base, each) for each in ("same", "fewer", "undecided", "more")]
    found = [compare.exit_code({line.verdict for line in lines[:end]}, "more") for end in (1, 2, 3, 4)]
    assert found == [0, 0, 3, 1]
    rows = count.table([*lines, Counted("new", None, None, "not asked", "no such function")]).splitlines()
    assert rows[2] == "| q | 100,000 | 100,000 | +0.00% | 5 → 5 | same |"
    assert rows[-1] == "| new | | | | | not asked: no such function |"


@every(
    "path", [str(path.relative_to(ROOT)) for path in (ROOT / "ags1").rglob("*.py*") if path.suffix in {".py", ".pyx"}]
)
def test_a_change_of_a_room_is_counted_by_the_questions_about_it(path: str) -> None:
    room = path.split("/")[1]
    groups = count.touched([path])
    assert set(groups) <= set(questions.GROUPS)
    if room in ("parquet", "dataset", "iceberg"):
        assert room in groups
    if room.endswith((".pyx", ".py")):
        # Of a package, one that has questions; a module of the top always.
        assert groups, path
    assert count.touched([f"docs/{path}"]) == []


def test_questions_of_two_threads_are_not_counted() -> None:
    found = count.questions_of(questions.GROUPS)
    assert "encrypt_into-4KiB-1" in found
    assert not [name for name in found if name.endswith("-2") or name == "import"]
    assert count.questions_of(["parquet"], "view") == ["parquet-view", "parquet-view-8KiB-pages"]


def _require_valgrind() -> None:
    if shutil.which("valgrind") is None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse("valgrind is not installed")


@pytest.mark.slow
def test_counts_of_one_revision_are_equal_and_injected_work_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the package that does between 1 and 2 % more in one path, beside the package itself."""
    _require_valgrind()
    for name in ("ags1", "include"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name)
    with (tmp_path / "tree" / "ags1" / "codec.py").open("a") as file:
        file.write(
            "\n_plain = decrypt\n\ndef decrypt(*arguments, **options):\n"
            "    for _ in range(70):\n        pass\n    return _plain(*arguments, **options)\n"
        )
    asked = ["encrypt_into-4KiB-1", "decrypt"]
    same, more = count.count_both(ROOT, (tmp_path / "tree").resolve(), asked, 1e9, 0.01)
    assert same.verdict == "same", same
    assert same.base is not None
    assert min(same.base.instructions) > 100_000
    assert (more.verdict, more.note[:14]) == ("more", "instructions +"), more
    assert more.base is not None
    assert more.head is not None
    assert 1.01 < more.head.instructions[0] / more.base.instructions[0] < 1.02
    assert "decrypt: more" in capsys.readouterr().err
    assert count.count_both(ROOT, ROOT, asked, -1, 0.01)[0].note == "the -1 seconds were over"


@pytest.mark.slow
def test_work_counts_on_whichever_thread_it_is_done(tmp_path: Path) -> None:
    """Once only the calling thread's was counted, and work that moved to it looked like more."""
    _require_valgrind()
    with count.Counting(ROOT, tmp_path / "counts") as counting:
        one, two = (min(counting.count(f"encrypt_into-256B-{threads}").instructions) for threads in (1, 2))
    # Of two threads each does about half; a thread takes some to start.
    assert 0.95 < two / one < 1.3


def test_nothing_is_counted_where_nothing_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count.compare, "changed_files", lambda base, head: ["docs/index.md"])
    monkeypatch.setattr(count.compare, "commits", lambda base, head: {})
    assert count.main(["HEAD", "--changed"]) == 0
    assert "nothing to count" in capsys.readouterr().out


def test_ci_passes_what_is_undecided_and_nothing_that_is_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base = Counts((100_000, 100_000), (5, 5))
    found = ["undecided"]
    monkeypatch.setattr(count.compare, "commits", lambda base, head: {"base": "a", "head": "b"})
    monkeypatch.setattr(count, "trees", lambda base, head: contextlib.nullcontext((tmp_path, tmp_path)))
    monkeypatch.setattr(count, "count_both", lambda *given: [Counted("q", base, base, each) for each in found])
    assert count.main(["HEAD"]) == 3
    assert count.main(["HEAD", "--allow-undecided", "--json", str(tmp_path / "counts.json")]) == 0
    stored = json.loads((tmp_path / "counts.json").read_text())
    assert (stored["base"], stored["questions"][0]["base"]["allocations"]) == ("a", [5, 5])
    found.append("more")
    assert count.main(["HEAD", "--allow-undecided"]) == 1
