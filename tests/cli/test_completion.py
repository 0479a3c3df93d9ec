"""That shells complete commands, actions, options and files, with what `ags1 completion` prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run

# The shell is asked for what it would offer after these words, the last of which is not complete.
_ASK = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMP_LINE="${{COMP_WORDS[*]}}"
COMP_POINT=${{#COMP_LINE}}
$(complete -p ags1 | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p') ags1 "${{COMP_WORDS[$COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ags1 enc", {"encrypt"}),
        ("ags1 encrypt --key-f", {"--key-file"}),
        ("ags1 dataset ver", {"verify", "versions"}),
        ("ags1 dataset encrypt --key-i", {"--key-id"}),
        ("ags1 iceberg rew", {"rewrap"}),
        ("ags1 parquet encrypt --footer-k", {"--footer-key"}),
        ("ags1 keygen --format b", {"base64"}),
    ],
)
def test_bash_completes(words: str, offered: set[str], run: Run, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    script = tmp_path / "completion"
    result = run("completion", "bash")
    assert result.code == 0
    script.write_text(result.out)
    program = _ASK.format(script=script, words=words)
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_every_shell_gets_every_command(shell: str, run: Run) -> None:
    pytest.importorskip("shtab")
    text = run("completion", shell).out
    for word in ("keygen", "dataset", "rewrap", "--key-metadata-out"):
        assert word in text
