"""The arguments: help that names every option and fits, wrong usage told in one line, no value of a key repeated."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ags1.cli.command import OnSpark, Positional, command
from ags1.cli.output import say_json
from ags1.cli.parser import parse, whole_parser
from ags1.cli.table import COMMANDS, SPARK, CommandEntry
from ags1.support.exit_codes import UsageError
from tests.cli.conftest import Run
from tests.pages import ROOT

KEY_TEXT = "00112233445566778899aabbccddeeff"
OPTIONS = {
    "keygen": {"--bits", "--format", "--force"},
    "encrypt": {
        *("--key-file", "--key-env", "--key-metadata", "--aad-prefix", "--aad-prefix-hex", "--key-metadata-out"),
        *(
            "--replace-key-metadata",
            "--block-length",
            "--again",
            "--files-from",
            "--overwrite",
            "--durable",
            "--jobs",
            "-j",
        ),
        *("--threads", "--json", "--quiet", "-q", "--verbose", "-v", "--progress"),
    },
    "decrypt": {
        *("--key-file", "--key-env", "--key-metadata", "--aad-prefix", "--aad-prefix-hex", "--length", "--any-length"),
        *("--files-from", "--overwrite", "--durable", "--jobs", "-j", "--threads", "--json", "--quiet", "-q"),
        *("--verbose", "-v", "--progress"),
    },
    "cat": {
        *("--key-file", "--key-env", "--key-metadata", "--aad-prefix", "--aad-prefix-hex", "--length", "--any-length"),
        *("--offset", "--bytes", "--threads", "--quiet", "-q", "--progress"),
    },
    "inspect": {"--json", "--progress"},
    "verify": {
        *("--key-file", "--key-env", "--key-metadata", "--aad-prefix", "--aad-prefix-hex", "--length", "--any-length"),
        *("--threads", "--jobs", "-j", "--json", "--quiet", "-q", "--verbose", "-v", "--progress"),
    },
    "audit": {
        *("--allow", "--whole", "--threads", "--json", "--quiet", "-q", "--progress"),
        *("--kms", "--password-file", "--key-file"),
    },
    "info": {"--json"},
    "bench": {"--bytes", "--save", "--baseline", "--threshold", "--json"},
    "kms": set(),
    "dataset": set(),
    "parquet": set(),
    "iceberg": set(),
    "completion": set(),
}


def options_of(command: str) -> set[str]:
    """Every option that the parser of a command takes."""
    return {name for action in whole_parser().choices()[command]._actions for name in action.option_strings}


def test_there_are_the_documented_commands(run: Run) -> None:
    shown = run("--help").out
    for name in OPTIONS:
        assert re.search(rf"^    {name}\s+\w", shown, re.MULTILINE)
    assert set(whole_parser().choices()) == set(OPTIONS), "OPTIONS, above, has a line for each command"
    page = (ROOT / "docs" / "command-line.md").read_text()
    missing = [command for command in OPTIONS if re.search(rf"^\|.*`ags1 {command}\b", page, re.MULTILINE) is None]
    assert missing == [], "docs/command-line.md has a line for each command"


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_takes_the_documented_options(command: str) -> None:
    assert options_of(command) - {"-h", "--help"} == OPTIONS[command]


@pytest.mark.parametrize("command", OPTIONS)
def test_the_help_of_a_command_names_every_option(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.code == 0
    for option in options_of(command):
        assert re.search(rf"^  .*{re.escape(option)}\b", result.out, re.MULTILINE)


@pytest.mark.parametrize("command", ["", *OPTIONS])
def test_help_fits_a_terminal_of_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(*([command] if command else []), "--help").out.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["1", "40", "300"])
def test_help_is_shown_at_any_width(run: Run, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = run("encrypt", "--help")
    assert result.code == 0
    assert "--key-metadata-out" in result.out
    assert max(map(len, result.out.splitlines())) <= 100


def test_help_is_a_command_too(run: Run) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "verify").out == run("verify", "--help").out


@pytest.mark.parametrize("command", ["encrypt", "decrypt", "cat", "verify"])
def test_help_says_where_keys_come_from(run: Run, command: str) -> None:
    assert "never taken from the command line" in run(command, "--help").out


@pytest.mark.parametrize("command", ["encrypt", "decrypt", "inspect", "verify"])
def test_help_lists_the_fields_of_json(run: Run, command: str) -> None:
    assert "JSON, one object a line" in run(command, "--help").out


def test_a_command_with_a_cluster_form_is_a_function_and_a_line_of_the_table(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    @command(
        name=Positional("NAME", "who is greeted"),
        said="quiet json",
        changed={"quiet": "whisper it"},
        spark=OnSpark("greet", {"source": "who is greeted by all"}, "parallelism quiet"),
    )
    def hello(name: str, said: argparse.Namespace) -> int:
        """Politeness costs nothing.

        examples:
          ags1 hello Ada
        """
        say_json({"hello": name, **vars(said)})
        return 0

    monkeypatch.setitem(sys.modules, "ags1.cli.greeting", SimpleNamespace(hello=hello))  # type: ignore[arg-type]
    monkeypatch.setitem(COMMANDS.commands, "hello", CommandEntry("greeting", "greet somebody", SPARK))
    assert run("hello", "Ada", "-q").records == [{"hello": "Ada", "quiet": True, "json": False}]
    shown = run("hello", "--help").out
    assert "usage: ags1 hello NAME [options]" in shown
    assert "Greet somebody. Politeness costs nothing." in shown
    assert re.search("--quiet +whisper it", shown)
    assert "examples:\n  ags1 hello Ada\n" in shown
    assert "--spark" in shown
    assert re.search("hello +greet somebody", run("--help").out)
    shown = run("hello", "--spark", "--help").out
    assert "who is greeted by all" in shown
    assert "--parallelism" in shown
    options = parse(["hello", "Ada", "--spark", "--parallelism", "3"])
    assert (options.source, options.parallelism, options.called.spark.function) == ("Ada", 3, "greet")


# -- wrong usage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("frobnicate", r"there is no such command; there are keygen, encrypt, .* \(see `ags1 --help`\)"),
        ("--frob", r"unknown option --frob \(see `ags1 --help`\)"),
        ("keygen", r"required: KEYFILE \(see `ags1 keygen --help`\)"),
        ("keygen a b", "too many arguments"),
        ("keygen a --bits 100", "argument --bits: invalid choice"),
        ("encrypt", "a SOURCE and a TARGET are needed: ags1 encrypt SOURCE TARGET"),
        ("encrypt a", "a TARGET is needed: ags1 encrypt SOURCE TARGET"),
        ("decrypt a", "a TARGET is needed: ags1 decrypt SOURCE TARGET"),
        ("encrypt a b --frob", r"unknown option --frob \(see `ags1 encrypt --help`\)"),
        ("encrypt a b --frob=7", "unknown option --frob "),
        ("encrypt a b -z", "unknown option -z "),
        ("encrypt a b --block-length 0", "a block has 1 to 2147483647 bytes, not 0"),
        ("encrypt a b --block-length 2G", "a block has 1 to 2147483647 bytes, not 2G"),
        ("encrypt a b --block-length x", "'x' is not a number of bytes such as 4096, 64K, 16M or 2G"),
        ("encrypt a b --threads 0", "argument --threads: '0' is not a number of 1 or more"),
        ("encrypt a b --jobs -1", "argument -j/--jobs"),
        ("encrypt a b --jobs many", "'many' is not a number of 1 or more"),
        ("encrypt a b --key-file x --key-env y", "not allowed with argument --key-file"),
        ("encrypt a b --aad-prefix x --aad-prefix-hex 00", "not allowed with argument --aad-prefix"),
        ("encrypt a b --progress maybe", "argument --progress: invalid choice"),
        ("parquet encrypt a b --key-id x", "unknown option --key-id: did you mean --footer-key-id\\? "),
        ("encrypt a b --key-f x", "unknown option --key-f: did you mean --key-file\\? "),
        ("verify", "required: FILE"),
        ("verify a --length -5", "argument --length"),
        ("verify a --length 5x", "'5x' is not a number of bytes"),
        ("cat a --offset ²", "is not a number of bytes"),
        ("bench --bytes 0", "at least 1 byte is needed"),
        ("bench --threshold 0", "'0' is not a percentage above 0"),
        ("info x", "too many arguments"),
    ],
)
def test_wrong_usage_is_told_in_one_line_with_the_help_to_read(run: Run, arguments: str, message: str) -> None:
    result = run(*arguments.split())
    assert (result.code, result.out) == (2, "")
    assert re.search(message, result.err)
    assert re.search(r"\(see `ags1( \w+)* --help`\)\n$", result.err)
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["encrypt", "plain", "out", "--key", KEY_TEXT],
        ["encrypt", "plain", "out", f"--key={KEY_TEXT}"],
        ["decrypt", "plain", "out", f"--secret={KEY_TEXT}"],
        ["encrypt", "plain", "out", "--key-file", KEY_TEXT],
        ["encrypt", "plain", "out", "--key-env", KEY_TEXT],
        ["verify", "plain", "--key-file", "ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8="],
    ],
)
def test_a_key_among_the_arguments_is_refused_and_not_repeated(run: Run, work: Path, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert KEY_TEXT not in result.err
    assert "ABEiM0RV" not in result.err
    assert not (work / "out").exists()


def test_a_key_as_an_argument_is_pointed_to_the_right_options(run: Run, work: Path) -> None:
    assert "use --key-file or --key-env" in run("encrypt", "plain", "out", "--key", KEY_TEXT).err
    assert "do not use this key" in run("encrypt", "plain", "out", "--key-file", KEY_TEXT).err


# -- what is taken -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "encrypt a b c --key-file k",
        "encrypt --key-file k a b c",
        "encrypt a --key-file k b c",
        "encrypt a b --key-file k c",
        "encrypt a --key-file k b -q c",
    ],
)
def test_options_may_stand_anywhere(arguments: str) -> None:
    options = parse(arguments.split())
    assert (options.sources, options.target, options.key_file) == (["a", "b"], "c", "k")


def test_files_of_other_commands_may_stand_behind_options_too() -> None:
    assert parse(["verify", "a", "--key-file", "k", "b"]).files == ["a", "b"]
    assert parse(["cat", "-", "--key-file", "k", "-"]).files == ["-", "-"]


def test_a_list_of_files_stands_for_the_sources() -> None:
    options = parse(["encrypt", "--files-from", "list", "out"])
    assert (options.sources, options.target) == ([], "out")


def test_names_behind_two_hyphens_may_begin_with_one() -> None:
    options = parse(["encrypt", "--key-file", "k", "--", "-a", "-b"])
    assert (options.sources, options.target) == (["-a"], "-b")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("4096", 4096), ("64K", 65536), ("64k", 65536), ("16M", 16 << 20), ("2g", 2 << 30)]
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert parse(["cat", "a", "--offset", text]).offset == size


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1KB", "0x10", "1 K", "9" * 19])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--bytes"):
        parse(["cat", "a", f"--bytes={text}"])
