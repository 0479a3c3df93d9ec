"""What the tests of README.md and docs/ share: finding the blocks of a page, and running them.

``python -m tests.pages`` puts the files of ``examples/`` into the pages that show them, after a change of one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks whose fence says exactly this; an indented block counts too."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def as_typed(page: Path) -> str:
    """Return the blocks for a shell and for Python in their order, as one script for a shell."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return "".join(
        block if language == "sh" else f"python -W error::DeprecationWarning - <<'END_OF_BLOCK'\n{block}END_OF_BLOCK\n"
        for language, block in found
    )


def languages(page: Path) -> set[str]:
    """Return what the fences of a page say."""
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)
    return set(fences[::2])


def with_files(page: Path) -> str:
    """Return a page with the present text of the files that its blocks show, by their titles.

    A line ``# %%`` in a file divides the file into steps, and each block with its title shows the next step.
    """
    steps: dict[str, list[str]] = {}

    def block(match: re.Match[str]) -> str:
        if match[2] not in steps:
            steps[match[2]] = re.split(r"\n+# %%\n", (ROOT / match[2]).read_text())
        assert steps[match[2]], f"{page.name} has more blocks than {match[2]} has steps"
        return f"{match[1]}{steps[match[2]].pop(0).rstrip()}\n```\n"

    shown = r'^(```\w+ title="([^"]+\.(?:py|yml))"\n).*?^```\n'
    text = re.sub(shown, block, page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not any(steps.values()), f"{page.name} lacks steps: {steps}"
    return text


def pages_with_files() -> list[Path]:
    """Return the pages that show files of ``examples/``."""
    return sorted((ROOT / "docs" / "guides").glob("*.md"))


def commands(pages: Iterable[Path]) -> set[str]:
    """Return the first words of all commands ``ags1 WORD`` in blocks of shells."""
    return {
        name
        for page in pages
        for language in ("sh", 'sh title="S3"')
        for block in blocks(page, language)
        for name in re.findall(r"^ags1 ([a-z]+)", block, re.MULTILINE)
    }


def _run(command: list[str], directory: Path) -> str:
    tools = directory.parent / "bin"
    tools.mkdir(exist_ok=True)
    for name, module in (("ags1", " -m ags1"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGS1_K")}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_python(program: str | Path, directory: Path) -> str:
    """Run a program or a file in a directory, and return what it prints."""
    what = [str(program)] if isinstance(program, Path) else ["-c", program]
    return _run([sys.executable, "-W", "error::DeprecationWarning", *what], directory)


def run_shell(script: str, directory: Path) -> str:
    """Run a script, in which ``ags1`` is this one, in a directory, and return what it prints."""
    return _run(["sh", "-eu", "-c", script], directory)


if __name__ == "__main__":
    for each in pages_with_files():
        each.write_text(with_files(each))
