"""The commands of ``ags1``: what each takes, and its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ags1.support.command_line import CommandParser
from ags1.support.exit_codes import EXIT_CODES, UsageError
from ags1.support.option_values import directory
from ags1.support.typing import Any

_EPILOG = f"""\
{EXIT_CODES}
examples:
  ags1 encrypt sales.avro sales.avro.ags1 --key-metadata-out sales.key-metadata
  ags1 verify sales.avro.ags1 --key-metadata sales.key-metadata
  ags1 cat sales.avro.ags1 --key-metadata sales.key-metadata --bytes 64
  ags1 encrypt data/ vault/ --key-metadata-out keys/
  ags1 decrypt vault/ plain/ --key-metadata keys/ --jobs 4

`ags1 COMMAND --help` explains each command.
"""

_SPARK_EPILOG = f"""\
{EXIT_CODES}
on this machine:
  ags1 dataset encrypt raw/ vault/ --kms 'local:keys.json?key_file=k' \\
      --key-id lake --spark --master 'local[8]'

on a cluster, ags1_job.py has `from ags1.cli import main` and
`raise SystemExit(main())`, and every node needs ags1[arrow] and pandas beside
its Spark, such as in an archive of venv-pack or conda-pack:
  spark-submit --master yarn --deploy-mode client \\
      --archives 'env.tgz#environment' \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      ags1_job.py dataset encrypt s3a://raw s3a://vault --spark \\
      --kms 'aws:?region=eu-central-1' --key-id alias/lake

Keys are never arguments: --key-id names a master key, and --kms the
service that has it, which driver and executors call themselves. The variable
AGS1_KMS is the default of --kms. `COMMAND --spark --help` explains each.
"""

_KEY_HELP = """\
keys:
  A key is never taken from the command line, where every user of the machine
  could read it. A key file holds 16, 24 or 32 raw bytes (what `ags1 keygen`
  writes), or the same as hexadecimal or base64 text; an environment variable
  holds text. Key metadata is Iceberg's StandardKeyMetadata: key, AAD prefix
  and trusted length of one file.
"""

_LENGTH_HELP = f"""\
{_KEY_HELP}
lengths:
  Only a trusted length shows that blocks are missing at the end of a file.
  Key metadata has it; with a key alone, give the --length that `ags1 encrypt`
  said. A file without one is refused, unless --any-length accepts any.
"""

_KMS_HELP = """\
actions:
  init     make a local keystore, or add keys to one that exists
  list     list the key ids of a local keystore
  rotate   give a key of a local keystore a fresh version: that one wraps from
           now on, and the older ones still unwrap what they wrapped
  remove   destroy a key of a local keystore, and with it all data below it;
           DATASETs and Iceberg tables without a catalog, given by their
           directories, are looked at first, and what would be lost is said
  password change the password or key file of a local keystore, or add another
           one that opens it too
  wrap     wrap the bytes of a file, a key for example
  unwrap   unwrap them; the result is a file that only you can read

services:
  local:PATH                             a keystore file; password from
                                         --password-file, AGS1_KMS_PASSWORD,
                                         or the terminal
{services}
  module:package.module.Class            a client of your own
  Secrets never stand in the URL, where every user of the machine could read
  them. The variable AGS1_KMS stands for --kms.

options of a URL, ?NAME=VALUE&NAME=VALUE behind it, in quotes for the shell:
{options}, check; of a service also timeout

examples:
  ags1 keygen keystore.key
  export AGS1_KMS='local:keys.json?key_file=keystore.key'
  ags1 kms init --key-id lake
  ags1 kms init --kms local:keys.json --key-id lake
  ags1 kms remove vault/ --kms local:keys.json --key-id tenant-a
  ags1 kms wrap my.key my.key.wrapped --kms local:keys.json --key-id lake
  ags1 kms unwrap my.key.wrapped my.key --kms 'aws:?region=eu-central-1' \\
      --key-id alias/lake
"""

_AUDIT_HELP = """\
examples:
  ags1 audit s3://lake/
  ags1 audit s3://lake/ --allow 'public/*' --kms 'aws:?region=eu-central-1'
  ags1 audit data/ --allow '*.md' --quiet || echo "not protected: $?"

A pattern without / is compared with each component of a name, one with / with
the whole name. --allow '*' allows everything.

exit codes: 0 all files outside of --allow look encrypted;
  1 something is damaged; 3 the KMS refused a key;
  4 something could not be read; 5 a file outside of --allow is not encrypted
"""

_COMPLETION_HELP = """
~/.zfunc, or where you keep such functions, must be in fpath of zsh.

examples:
  ags1 completion bash > ~/.local/share/bash-completion/completions/ags1
  ags1 completion zsh > ~/.zfunc/_ags1
  ags1 completion fish > ~/.config/fish/completions/ags1.fish

It needs shtab: pip install 'ags1[cli]'
"""

_TREES = (
    "A directory stands for {what} below it, and TARGET gets the same tree; links in it are left out. "
    "Every target appears whole or not at all. "
)

# Commands that have actions, each in a parser of its own.
_GROUPS = {"dataset": "dataset_parser", "iceberg": "iceberg_parser", "parquet": "parquet_parser"}
DATASET: dict[str, tuple[Any, ...]] = {"vault": ("DATASET", "directory or URL of the dataset", {"type": directory})}


def file_places(what: str) -> dict[str, tuple[str, str]]:
    """Any number of files."""
    return {"files": ("FILE...", what)}


def _kms_help() -> str:
    from ags1.kms.services import COMMON_OPTIONS, LOCAL_OPTIONS, SERVICES

    options = {"local": LOCAL_OPTIONS, **{name: each.options for name, each in SERVICES.items()}}
    options["any"] = COMMON_OPTIONS
    return _KMS_HELP.format(
        services="\n".join(f"  {each.form:<37}  {each.what}" for each in SERVICES.values()),
        options="\n".join(f"  {name:<9} {', '.join(sorted(each))}" for name, each in options.items()),
    )


def source_places(what: str) -> dict[str, tuple[Any, ...]]:
    """Any number of sources, and where they go."""
    target = (
        "file, or `-` for standard output; a directory if there are many sources, a glob or a directory among them, "
        "or if it exists or ends with /"
    )
    return {"sources": ("SOURCE...", what, {"nargs": "*", "default": []}), "target": ("TARGET", target, {"nargs": "?"})}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result is the function to call with it.

    UsageError: they make no sense; no value that might be a key is shown. SystemExit: help or the version was shown.
    """
    on_spark = "--spark" in arguments[: arguments.index("--") if "--" in arguments else None]
    if on_spark:
        arguments = [each for each in arguments if each != "--spark"]
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if arguments and arguments[0] in _GROUPS:
        import importlib

        group = importlib.import_module(f"ags1.cli.grammar.{_GROUPS[arguments[0]]}")
        words = arguments[1:] if arguments[1:2] != ["help"] else [*arguments[2:3], "--help"]
        if not on_spark and words and words[0] in getattr(group, "ON_SPARK", ()):
            raise UsageError(f"`ags1 {arguments[0]} {words[0]}` runs on Spark: add --spark")
        parser = group.command_parser(words[0] if words else None, on_spark)
        options = parser.parse(words, None if on_spark else getattr(group, "hint", None))
    elif arguments[:1] == ["--version"]:
        from ags1._version import version

        print(f"ags1 {version}")
        raise SystemExit(0)
    else:
        options = command_parser(arguments[0] if arguments else None, on_spark).parse(arguments, _hint)
    if on_spark:
        options.run = _on_spark
    if getattr(options, "kms", "") is None and (on_spark or arguments[0] != "parquet"):
        # There, keys may be named in other ways.
        import os

        options.kms = os.environ.get("AGS1_KMS") or None
    return options  # type: ignore[no-any-return]


def _on_spark(options: argparse.Namespace) -> int:
    from ags1.spark.commands import run

    return run(options)


def _hint(option: str) -> str | None:
    if option == "--key":
        return "there is no --key: other users could read a key in the arguments; use --key-file or --key-env"
    return None


def command_parser(only: str | None = None, on_spark: bool = False) -> CommandParser:
    """The parser of all commands, or with the options of one alone."""
    parser = CommandParser(
        prog="ags1",
        description="Encrypt, decrypt and examine AES GCM Stream (AGS1) files, the format of encrypted Iceberg tables.",
        epilog=_SPARK_EPILOG if on_spark else _EPILOG,
        only=only,
        on_spark=on_spark,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")

    parser.add_command(
        "keygen",
        {"keyfile": ("KEYFILE", "file to write; `-` is standard output")},
        "write a fresh random key to a file that only you can read",
        "bits format force",
        more="Whoever has the key can read everything that it encrypts; whoever loses it, nothing.",
        examples="ags1 keygen my.key",
        changes={
            "format": {"choices": ("raw", "hex", "base64"), "default": "raw", "help": "how to write it (raw)"},
            "force": {"help": "replace an existing file: what its key encrypted is lost"},
        },
        run=lazily("keys:keygen"),
    )
    parser.add_command(
        "encrypt",
        source_places("file, glob ('*.avro'), directory, or `-` for standard input"),
        "encrypt files into AGS1 files",
        "FILES KEY key-metadata-out replace-key-metadata block-length again jobs WORK",
        needs="(--key-metadata-out PATH | ...)",
        more=_TREES.format(what="all files") + " In a directory, each result has the name of its source and .ags1.",
        epilog=_KEY_HELP,
        fields="source, target, encrypted_length, seconds, error",
        examples="""\
ags1 encrypt sales.avro sales.avro.ags1 --key-metadata-out sales.key-metadata
ags1 encrypt data/ vault/ --key-metadata-out keys/ --aad-prefix '{path}'
tar c data | ags1 encrypt - data.tar.ags1 --key-metadata-out tar.key-metadata""",
        run=lazily("transfer:encrypt"),
    )
    parser.add_command(
        "decrypt",
        source_places("AGS1 file, glob ('*.ags1'), directory, or `-` for standard input"),
        "decrypt AGS1 files",
        "FILES KEY LENGTH jobs WORK",
        needs="(--key-metadata PATH | ...)",
        more=_TREES.format(what="the .ags1 files")
        + "In a directory, each result has the name of its source without .ags1.",
        epilog=_LENGTH_HELP,
        fields="source, target, plaintext_length, seconds, length_trusted, error",
        examples="""\
ags1 decrypt sales.avro.ags1 sales.avro --key-metadata sales.key-metadata
ags1 decrypt vault/ data/ --key-metadata keys/
ags1 decrypt data.tar.ags1 - --key-metadata tar.key-metadata | tar x
ags1 decrypt sales.avro.ags1 sales.avro --key-file my.key --length 5148""",
        run=lazily("transfer:decrypt"),
    )
    parser.add_command(
        "cat",
        file_places("AGS1 file, glob, directory, or `-` for standard input"),
        "decrypt to standard output, all of a file or a range of it",
        "KEY LENGTH offset bytes threads quiet progress",
        needs="(--key-metadata PATH | ...)",
        more="Nothing is written before it is authenticated, but what was written before a failure stays written.",
        epilog=_LENGTH_HELP,
        examples="""\
ags1 cat sales.avro.ags1 --key-metadata sales.key-metadata | head
ags1 cat log.ags1 --key-metadata log.key-metadata --offset 1G --bytes 64K""",
        run=lazily("transfer:cat"),
    )
    parser.add_command(
        "inspect",
        file_places("file, glob, directory, or `-` for standard input"),
        "show what can be known without a key",
        "LIST",
        more="Header, block length, blocks, plaintext length, and what is wrong with the file; a table for many "
        "files. Nothing of it is authenticated: that takes `ags1 verify` and the key.",
        fields="file, status (AGS1, damaged, not AGS1, unreadable), encrypted_length, format, problem, block_length, "
        "iceberg, plaintext_length, blocks, last_block_length, overhead, error",
        examples="ags1 inspect sales.avro.ags1\nags1 inspect vault/ --json",
        run=lazily("examine:inspect"),
    )
    parser.add_command(
        "verify",
        file_places("AGS1 file, glob or directory"),
        "authenticate every block, and name those that fail",
        "KEY LENGTH jobs WORK",
        needs="(--key-metadata PATH | ...)",
        more="A directory stands for the .ags1 files below it. With --any-length, the exit code is 5 at best.",
        epilog=_LENGTH_HELP,
        fields="file, blocks, plaintext_length, length_trusted, failed_count, failed_blocks (the first thousand), "
        "seconds, created, ags1, error",
        examples="""\
ags1 verify sales.avro.ags1 --key-metadata sales.key-metadata
ags1 verify vault/ --key-metadata keys/ --jobs 4""",
        run=lazily("examine:verify"),
    )
    parser.add_command(
        "audit",
        {"location": ("LOCATION", "directory, file or URL, with all that is below it")},
        "say what of a bucket, directory, dataset or table is encrypted, and what is not",
        "allow whole KMS threads SAY",
        more="Reads the beginning of each file, samples of it, and the footers of Parquet, and decrypts no data."
        " Without its key nothing proves that a file is encrypted; `verify` proves it.",
        epilog=_AUDIT_HELP,
        changes={
            "threads": {"help": "files to look at at once (32)"},
            "quiet": {"help": "say nothing but errors and violations"},
        },
        run=lazily("audit:audit"),
    )
    parser.add_command(
        "info",
        {},
        "show the version, the OpenSSL and what AES-GCM runs on",
        "json",
        examples="ags1 info",
        run=lazily("machine:info"),
    )
    parser.add_command(
        "bench",
        {},
        "measure encryption and decryption in memory on this machine, beside copies of as many bytes",
        "sample save baseline threshold json",
        examples="ags1 bench --bytes 64M\nags1 bench --save figures.jsonl\nags1 bench --baseline figures.jsonl",
        run=lazily("bench:bench"),
    )
    parser.add_command(
        "kms",
        {
            "action": (
                "ACTION",
                "what to do",
                {"choices": ("init", "list", "rotate", "remove", "password", "wrap", "unwrap")},
            ),
            "files": (
                "[SOURCE TARGET | DATASET...]",
                "what wrap and unwrap read and write (`-` is a standard stream), or what remove looks at",
                {"nargs": "*", "default": []},
            ),
        },
        "wrap keys with master keys of a key management service, or of a local keystore",
        "KMS new-password-file new-keystore-key-file add-secret only-secret key-id bits old-versions force dry-run yes "
        "quiet json",
        epilog=_kms_help() if only in (None, "kms") else "",
        changes={
            "key-id": {
                "action": "append", "default": [], "dest": "key_ids", "help": "master key; init takes several",
            },
            "bits": {"help": "size of new master keys (256)"},
            "force": {"help": "let wrap and unwrap replace an existing TARGET"},
            "dry-run": {"help": "only say what init, rotate or remove would do"},
        },
        run=lazily("kms:kms"),
    )  # fmt: skip
    parser.add_command("dataset", {}, "encrypt directories of files under master keys, and work with them")
    parser.add_command(
        "parquet", {}, "encrypt, decrypt, re-key, verify and show Parquet files (Parquet Modular Encryption)"
    )
    parser.add_command("iceberg", {}, "read, audit, verify and maintain encrypted Iceberg tables")
    parser.add_command(
        "completion",
        {"shell": ("SHELL", "bash, zsh, fish or tcsh", {"choices": ("bash", "zsh", "fish", "tcsh")})},
        "print what makes a shell complete the commands and options of ags1",
        epilog=_COMPLETION_HELP,
        run=lazily("grammar.completion:completion"),
    )
    return parser


def lazily(where: str) -> Callable[[argparse.Namespace], int]:
    """The function that ``module:name`` means, imported when it is called."""
    module, _, name = where.partition(":")

    def run(options: argparse.Namespace) -> int:
        import importlib

        function: Any = getattr(importlib.import_module(f"ags1.cli.{module}"), name)
        return int(function(options))

    return run
