"""The arguments of commands with ``--spark``: those of the functions, help that fits, no key among them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("pyspark")

import ags1.spark
from ags1.cli import main
from ags1.cli.cluster import OWN_OPTIONS
from ags1.cli.parser import CommandParser, whole_parser
from ags1.cli.parser import parse as parse_line
from ags1.parquet import DecryptionConfig, EncryptionConfig
from ags1.support.exit_codes import UsageError

COMMANDS = {
    "dataset encrypt": "encrypt_files",
    "dataset decrypt": "decrypt_files",
    "dataset verify": "verify_files",
    "iceberg encrypt": "encrypt_table",
    "iceberg decrypt": "decrypt_table",
    "iceberg rekey": "rekey_table",
    "iceberg compact": "compact_table",
    "iceberg verify": "verify_table",
    "parquet encrypt": "encrypt_parquet",
    "parquet decrypt": "decrypt_parquet",
    "parquet rekey": "rekey_parquet",
    "parquet verify": "verify_parquet",
}
# Arguments that are enough for each.
ENOUGH = {
    "dataset encrypt": "a b --kms aws: --key-id k",
    "dataset decrypt": "a b --kms aws:",
    "dataset verify": "a --kms aws:",
    "iceberg encrypt": "lake.db.t --kms aws: --key-id k",
    "iceberg decrypt": "lake.db.t --kms aws:",
    "iceberg rekey": "lake.db.t --kms aws:",
    "iceberg compact": "lake.db.t --kms aws:",
    "iceberg verify": "t --kms aws:",
    "parquet encrypt": "a b --kms aws: --footer-key-id k",
    "parquet decrypt": "a b --kms aws:",
    "parquet rekey": "a b --kms aws: --footer-key-id k",
    "parquet verify": "a",
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
        code = main([*arguments, "--spark"])
        return Answer(code, *capsys.readouterr())

    return run


def parse(arguments: list[str]) -> Any:
    return parse_line([*arguments, "--spark"])


def parsers(*, on_spark: bool = True) -> dict[str, CommandParser]:
    """The parser of each command."""
    groups = whole_parser(on_spark=on_spark).choices().values()
    return {parser.prog[5:]: parser for each in groups for parser in each.choices().values() or (each,)}


def test_there_are_the_documented_commands() -> None:
    assert set(parsers()) == set(COMMANDS)


def test_the_commands_are_those_without_spark_which_name_the_option() -> None:
    others = parsers(on_spark=False)
    assert set(COMMANDS) <= set(others)
    for name, parser in others.items():
        assert ("--spark" in parser.options()) == (name in COMMANDS), name
    for name, parser in parsers().items():
        assert "--spark" in parser.options(), name


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those of a function, and of the configuration to which it hands further ones."""
    found = dict(inspect.signature(function).parameters)
    for name, config in (("encryption", EncryptionConfig), ("decryption", DecryptionConfig)):
        if found.pop(name, None) is not None:
            further = inspect.signature(config.from_kms).parameters
            found = {**{each: further[each] for each in further if each != "internal_key_material"}, **found}
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_are_the_parameters_of_the_function_with_its_defaults(command: str) -> None:
    options = parse([*command.split(), *ENOUGH[command].split()])
    form = options.called.spark
    assert form.function == COMMANDS[command]
    given = {name: value for name, value in vars(options).items() if name not in OWN_OPTIONS} | form.further
    if "quiet" in given:
        given["progress"] = not given.pop("quiet")
    if "pin" in given:
        # A file on the command line.
        given["pins"] = given.pop("pin")
    parameters = parameters_of(getattr(ags1.spark, form.function))
    # `ags1 iceberg compact` has none for these two without --spark either.
    assert set(given) == set(parameters) - {"spark", "min_input_files", "snapshot_properties"}
    for name, parameter in parameters.items():
        has_default = parameter.default is not inspect.Parameter.empty
        # A command replaces no file of a dataset unasked, a call does, both as without --spark.
        if name in given and has_default and name not in ("kms", "key_id", "overwrite"):
            assert given[name] == parameter.default, name


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(job: Job, command: str) -> None:
    answer = job(*command.split(), "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert answer.out.startswith(f"usage: ags1 {command}".rstrip())
    if not command:
        assert "exit codes" in answer.out
        assert "spark-submit --master yarn" in answer.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option(job: Job, command: str) -> None:
    shown = job(*command.split(), "--help").out
    for action in parsers()[command]._actions:
        for option in action.option_strings:
            assert re.search(rf"^  .*{re.escape(option)}\b", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("frobnicate", "there is no such command on Spark; there are "),
        ("audit lake", "there is no such command on Spark; there are "),
        ("dataset ls v", "there is no such action on Spark; there are encrypt, verify, decrypt"),
        ("--frob", "unknown option --frob"),
        ("dataset encrypt", "required: SOURCE, TARGET"),
        ("dataset encrypt a", "required: TARGET"),
        ("dataset encrypt a b c --kms aws: --key-id k", "too many arguments"),
        ("dataset encrypt a b --kms aws:", "required: --key-id"),
        ("kms list local:k.json", "there is no such command on Spark; there are "),
        ("parquet encrypt a b --kms aws:", "required: --footer-key-id"),
        ("dataset encrypt a b --frob=7", "unknown option --frob "),
        ("dataset encrypt a b --part-bytes 0", "at least 1 byte is needed"),
        ("dataset encrypt a b --part-bytes 1.5M", "'1.5M' is not a number of bytes"),
        ("dataset encrypt a b --parallelism 0", "'0' is not a number of 1 or more"),
        ("dataset encrypt a b --report r.csv", "a report ends with .parquet, .json, .jsonl: 'r.csv' does not"),
        ("dataset encrypt a b --conf x", "argument --conf: needs NAME=VALUE"),
        ("dataset decrypt a b --expected-version x", "'x' is not a version such as 7"),
        ("parquet encrypt a b --column-key-id pii", "needs COLUMNS=ID, such as ssn,salary=alias/pii"),
        ("parquet encrypt a b --column-key-id a,,b=pii", "there is an empty column name"),
        ("parquet verify a --aad-prefix-hex xyz", "argument --aad-prefix-hex: 'xyz' is not hexadecimal"),
        ("parquet verify a --cache-seconds nan", "'nan' is not a number of seconds"),
        (
            "iceberg verify t --kms aws: --snapshot last",
            "'last' is neither the id of a snapshot (`ags1 iceberg inspect` shows them), nor all, nor current",
        ),
    ],
)
def test_wrong_usage_is_told_in_one_line_with_the_help_to_read(job: Job, arguments: str, message: str) -> None:
    answer = job(*arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert re.search(r"\(see `ags1( [a-z]+){0,2} --spark --help`\)\n$", answer.err)
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--key", "--key-file", "--password", "--footer-key", "--column-key"])
def test_a_key_among_the_arguments_is_refused_and_not_repeated(job: Job, option: str) -> None:
    for arguments in ([option, KEY_TEXT], [f"{option}={KEY_TEXT}"]):
        answer = job("dataset", "encrypt", "a", "b", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert f"there is no {option}" in answer.err or f"unknown option {option}" in answer.err
        assert KEY_TEXT not in answer.err


def test_a_kms_is_needed(job: Job) -> None:
    answer = job("dataset", "encrypt", "a", "b", "--key-id", "k")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("ags1: a KMS is needed: --kms URL or the variable AGS1_KMS")


@pytest.mark.parametrize(
    "setting",
    ["spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword", "spark.hadoop.fs.azure.account.key.x.net"],
)
def test_a_secret_among_the_settings_is_refused_and_not_repeated(job: Job, setting: str) -> None:
    for option, command in (("--conf", "dataset encrypt a b"), ("--property", "iceberg verify t")):
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
    assert parse(["parquet", "verify", "a", *given]).conf == dict.fromkeys(names, "x=y")


def test_options_may_stand_anywhere() -> None:
    for line in ("a b --key-id k --kms aws:", "--kms aws: a --key-id k b", "--kms aws: --key-id k a b"):
        options = parse(["dataset", "encrypt", *line.split()])
        assert (options.source, options.target, options.kms, options.key_id) == ("a", "b", "aws:", "k")


def test_values_are_what_the_functions_take() -> None:
    line = "a b --kms aws: --footer-key-id k --aad-prefix-hex 00ff --single-wrapping --no-resume -q"
    columns = ["--column-key-id", "ssn,pay\\,ment=p", "--column-key-id", "a\\.b.c=p", "--column-key-id", "z=q"]
    options = parse(["parquet", "encrypt", *line.split(), *columns])
    assert options.column_key_ids == {"p": ["ssn", "pay,ment", ("a.b", "c")], "q": ["z"]}
    assert options.aad_prefix == b"\x00\xff"
    assert (options.double_wrapping, options.resume, options.quiet) == (False, False, True)
    options = parse(
        [
            "dataset",
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
    )
    assert (options.part_bytes, options.include, options.exclude) == (2 << 30, ["*.a", "*.b"], None)
    for text, value in (("all", "all"), ("current", None), ("-5", -5)):
        assert parse(["iceberg", "verify", "t", "--kms", "aws:", f"--snapshot={text}"]).snapshot_id == value
    assert parse(
        ["iceberg", "verify", "t", "--kms", "aws:", "--property", "a=b", "--property", "c=d=e"]
    ).properties == {
        "a": "b",
        "c": "d=e",
    }


def test_a_variable_stands_for_the_kms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS", "gcp:")
    assert parse(["dataset", "verify", "a"]).kms == "gcp:"
    assert parse(["dataset", "verify", "a", "--kms", "aws:"]).kms == "aws:"
    with pytest.raises(UsageError, match="required: --key-id"):
        parse(["dataset", "encrypt", "a", "b"])
