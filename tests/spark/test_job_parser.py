"""The arguments of ``python -m ags1.spark``: those of the functions, help that fits, no key among them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("pyspark")

import ags1.spark
from ags1.parquet import DecryptionConfig, EncryptionConfig
from ags1.spark.job import main
from ags1.spark.job_parser import JOB_OPTIONS, command_parser, parse
from ags1.support.command_line import UsageError

PROG = "python -m ags1.spark"
COMMANDS = {
    "encrypt": "encrypt_files",
    "decrypt": "decrypt_files",
    "verify": "verify_files",
    "audit": "audit",
    "plan": None,
    "rewrap": "rewrap",
    "clean": "clean",
    "encrypt-table": "encrypt_table",
    "decrypt-table": "decrypt_table",
    "rekey-table": "rekey_table",
    "verify-table": "verify_table",
    "parquet-encrypt": "encrypt_parquet",
    "parquet-decrypt": "decrypt_parquet",
    "parquet-rekey": "rekey_parquet",
    "parquet-verify": "verify_parquet",
}
# Arguments that are enough for each.
ENOUGH = {
    "encrypt": "a b --kms aws: --key-id k",
    "decrypt": "a b --kms aws:",
    "verify": "a --kms aws:",
    "audit": "a",
    "plan": "a",
    "rewrap": "a --kms aws: --new-key-id k",
    "clean": "a",
    "encrypt-table": "lake.db.t --kms aws: --key-id k",
    "decrypt-table": "lake.db.t --kms aws:",
    "rekey-table": "lake.db.t --kms aws:",
    "verify-table": "t --kms aws:",
    "parquet-encrypt": "a b --kms aws: --footer-key-id k",
    "parquet-decrypt": "a b --kms aws:",
    "parquet-rekey": "a b --kms aws: --footer-key-id k",
    "parquet-verify": "a",
}
KEY_TEXT = "00112233445566778899aabbccddeeff"


class Answer(NamedTuple):
    """What a job answered."""

    code: int
    out: str
    err: str


Job = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _no_kms_of_the_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGS1_KMS", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def job(capsys: pytest.CaptureFixture[str]) -> Job:
    """A job that ends before it needs a session."""

    def run(*arguments: str) -> Answer:
        code = main(arguments)
        return Answer(code, *capsys.readouterr())

    return run


def parsers() -> dict[str, Any]:
    choices = next(each.choices for each in command_parser(PROG)._actions if each.dest == "command")
    assert isinstance(choices, dict)
    return choices


def test_there_are_the_documented_commands() -> None:
    assert set(parsers()) == set(COMMANDS)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those of a function, and of the configuration to which it hands further ones."""
    found = dict(inspect.signature(function).parameters)
    for name, config in (("encryption", EncryptionConfig), ("decryption", DecryptionConfig)):
        if found.pop(name, None) is not None:
            further = inspect.signature(config.from_kms).parameters
            found = {**{each: further[each] for each in further if each != "internal_key_material"}, **found}
    return found


@pytest.mark.parametrize("command", [name for name, function in COMMANDS.items() if function])
def test_the_options_are_the_parameters_of_the_function_with_its_defaults(command: str) -> None:
    options = vars(parse([command, *ENOUGH[command].split()], PROG))
    assert options["function"] == COMMANDS[command]
    given = {name: value for name, value in options.items() if name not in JOB_OPTIONS}
    if "pin" in given:
        # A file on the command line.
        given["pins"] = given.pop("pin")
    parameters = parameters_of(getattr(ags1.spark, options["function"]))
    assert set(given) == set(parameters) - {"spark"}
    for name, parameter in parameters.items():
        has_default = parameter.default is not inspect.Parameter.empty
        if name in given and has_default and name not in ("kms", "key_id", "data_keys"):
            assert given[name] == parameter.default, name


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_shows_every_way_to_start(job: Job, command: str) -> None:
    answer = job(*filter(None, [command]), "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    for text in ("spark-submit --master yarn", "--archives 'env.tgz#environment'", "k8s://", "ags1.spark --path"):
        assert text in answer.out
    assert f"\n  {PROG} {command or 'encrypt'} " in answer.out
    assert "exit codes" in answer.out
    assert job(*filter(None, ["help", command])).out == answer.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option(job: Job, command: str) -> None:
    shown = job(command, "--help").out
    for action in parsers()[command]._actions:
        for option in action.option_strings:
            assert re.search(rf"^  .*{re.escape(option)}\b", shown, re.MULTILINE)


def test_the_path_is_that_of_a_script() -> None:
    done = subprocess.run([sys.executable, "-m", "ags1.spark", "--path"], capture_output=True, text=True, check=True)
    path = Path(done.stdout.rstrip("\n"))
    assert path.is_absolute()
    assert path.samefile(Path(ags1.spark.__file__).with_name("__main__.py"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("frobnicate", "there is no such command"),
        ("--frob", "unknown option --frob"),
        ("encrypt", "required: SOURCE, TARGET"),
        ("encrypt a", "required: TARGET"),
        ("encrypt a b c --kms aws: --key-id k", "too many arguments"),
        ("encrypt a b --key-id k", "a KMS is needed: --kms URL or the variable AGS1_KMS"),
        ("encrypt a b --kms aws:", "required: --key-id"),
        ("rewrap a --kms aws:", "required: --new-key-id"),
        ("parquet-encrypt a b --kms aws:", "required: --footer-key-id"),
        ("encrypt a b --frob=7", "unknown option --frob "),
        ("encrypt a b --part-bytes 0", "at least 1 byte is needed"),
        ("encrypt a b --part-bytes 1.5M", "'1.5M' is not a number of bytes"),
        ("encrypt a b --parallelism 0", "'0' is not a number of 1 or more"),
        ("encrypt a b --report r.csv", "a report ends with .parquet, .json, .jsonl: 'r.csv' does not"),
        ("encrypt a b --conf x", "argument --conf: needs NAME=VALUE"),
        ("decrypt a b --expected-version x", "'x' is not a version such as 7"),
        ("parquet-encrypt a b --column-key-id pii", "needs COLUMNS=ID, such as ssn,salary=alias/pii"),
        ("parquet-encrypt a b --column-key-id a,,b=pii", "there is an empty column name"),
        ("parquet-verify a --aad-prefix-hex xyz", "argument --aad-prefix-hex: 'xyz' is not hexadecimal"),
        ("parquet-verify a --cache-seconds nan", "'nan' is not a number of seconds"),
        (
            "verify-table t --kms aws: --snapshot last",
            "'last' is neither the id of a snapshot (`ags1 iceberg inspect` shows them), nor all, nor current",
        ),
    ],
)
def test_wrong_usage_is_told_in_one_line_with_the_help_to_read(job: Job, arguments: str, message: str) -> None:
    answer = job(*arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert re.search(r"\(see `python -m ags1\.spark( [a-z-]+)? --help`\)\n$", answer.err)
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--key", "--key-id ID"),
        ("--key-file", "--key-id ID"),
        ("--password", "--key-id ID"),
        ("--footer-key", "--footer-key-id ID"),
        ("--column-key", "--column-key-id COLUMNS=ID"),
    ],
)
def test_a_key_among_the_arguments_is_refused_and_not_repeated(job: Job, option: str, instead: str) -> None:
    for arguments in ([option, KEY_TEXT], [f"{option}={KEY_TEXT}"]):
        answer = job("encrypt", "a", "b", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert f"there is no {option}: other users, Spark's pages and its event log would show a key" in answer.err
        assert f"name the master key ({instead})" in answer.err
        assert KEY_TEXT not in answer.err


@pytest.mark.parametrize(
    "setting",
    ["spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword", "spark.hadoop.fs.azure.account.key.x.net"],
)
def test_a_secret_among_the_settings_is_refused_and_not_repeated(job: Job, setting: str) -> None:
    for option, command in (("--conf", "encrypt a b"), ("--property", "verify-table t")):
        answer = job(*command.split(), option, f"{setting}={KEY_TEXT}")
        assert answer.code == 2
        assert f"{setting} is a secret, and other users can read the arguments" in answer.err
        assert KEY_TEXT not in answer.err


def test_settings_that_only_name_where_a_secret_is_are_taken() -> None:
    names = (
        "spark.authenticate.secret.file",
        "spark.kubernetes.executor.secrets.name",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
    )
    given = [part for name in names for part in ("--conf", f"{name}=x=y")]
    assert parse(["clean", "a", *given], PROG).conf == dict.fromkeys(names, "x=y")


def test_options_may_stand_anywhere() -> None:
    for line in ("a b --key-id k --kms aws:", "--kms aws: a --key-id k b", "--kms aws: --key-id k a b"):
        options = parse(["encrypt", *line.split()], PROG)
        assert (options.source, options.target, options.kms, options.key_id) == ("a", "b", "aws:", "k")


def test_values_are_what_the_functions_take() -> None:
    line = "a b --kms aws: --footer-key-id k --aad-prefix-hex 00ff --single-wrapping --no-resume -q"
    columns = ["--column-key-id", "ssn,pay\\,ment=p", "--column-key-id", "a\\.b.c=p", "--column-key-id", "z=q"]
    options = parse(["parquet-encrypt", *line.split(), *columns], PROG)
    assert options.column_key_ids == {"p": ["ssn", "pay,ment", ("a.b", "c")], "q": ["z"]}
    assert options.aad_prefix == b"\x00\xff"
    assert (options.double_wrapping, options.resume, options.progress) == (False, False, False)
    options = parse(
        [
            "encrypt",
            "a",
            "b",
            "--kms",
            "aws:",
            "--key-id",
            "k",
            "--part-bytes",
            "2g",
            "--include",
            "*.a",
            "--include",
            "*.b",
        ],
        PROG,
    )
    assert (options.part_bytes, options.include, options.exclude) == (2 << 30, ["*.a", "*.b"], None)
    for text, value in (("all", "all"), ("current", None), ("-5", -5)):
        assert parse(["verify-table", "t", "--kms", "aws:", f"--snapshot={text}"], PROG).snapshot_id == value
    assert parse(
        ["verify-table", "t", "--kms", "aws:", "--property", "a=b", "--property", "c=d=e"], PROG
    ).properties == {
        "a": "b",
        "c": "d=e",
    }


def test_a_variable_stands_for_the_kms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS", "gcp:")
    assert parse(["verify", "a"], PROG).kms == "gcp:"
    assert parse(["verify", "a", "--kms", "aws:"], PROG).kms == "aws:"
    with pytest.raises(UsageError, match="required: --key-id"):
        parse(["encrypt", "a", "b"], PROG)
