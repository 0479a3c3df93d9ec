"""The manual page names every command and option, and man finds no fault in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ags1.cli.parser import CommandParser, whole_parser
from buildtools.manpage import escaped, page


@pytest.mark.parametrize("on_spark", [False, True])
def test_the_page_names_every_command_and_option(on_spark: bool) -> None:
    sections = {each.partition("\n")[0]: each for each in page().split("\n.SS ")}

    def look(parser: CommandParser) -> None:
        for name, command in parser.choices().items():
            said = sections[escaped(command.prog)]
            assert said.startswith(escaped(f"{parser.prog} {name}"))
            for action in command._actions:
                if action.option_strings and action.dest != "help":
                    assert escaped(action.option_strings[-1]) in said, (command.prog, action.option_strings)
            look(command)

    look(whole_parser(on_spark=on_spark))


def test_a_character_of_a_text_is_no_request() -> None:
    assert escaped(".TH a\n'b' `c` --d \\e") == "\\&.TH a\n\\(aqb\\(aq \\(gac\\(ga \\-\\-d \\ee"


def test_it_is_rendered_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "ags1.1"
    file.write_text(page())
    commands = {
        "groff": ["groff", "-man", "-Tutf8", "-ww", "-z", str(file)],
        "mandoc": ["mandoc", "-T", "lint", "-W", "warning", str(file)],
    }
    known = {name: command for name, command in commands.items() if shutil.which(name)}
    if not known:
        pytest.skip("needs groff or mandoc")
    for command in known.values():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
