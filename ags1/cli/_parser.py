"""The arguments of the `ags1` command, and its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ags1._command_line import CommandParser, Formatter, UsageError, option_name, refuse_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["command_parser", "parse"]

_MAX_BLOCK_LENGTH = (1 << 31) - 1

_EPILOG = """\
exit codes:
  0    success
  1    the data is not authentic, not AGS1, or truncated
  2    wrong usage
  3    a key could not be had
  4    an I/O error: a missing file, a full disk, ...
  5    not protected: a signed footer, pages without tags, or less than the
       policy of an audit asks for
  6    somebody else changed the same files of a dataset: run it again
  130  interrupted
  141  the reader of the output went away, as `head` does

examples:
  ags1 keygen my.key
  ags1 encrypt sales.avro sales.avro.ags1 --key-file my.key
  ags1 verify sales.avro.ags1 --key-file my.key
  ags1 cat sales.avro.ags1 --key-file my.key --offset 1000 --bytes 64
  ags1 decrypt vault/ plain/ --key-file my.key --jobs 4
  tar c data | ags1 encrypt - data.tar.ags1 --key-env LAKE_KEY

`ags1 COMMAND --help` explains each command.
"""

_KEY_HELP = """\
keys:
  A key is never taken from the command line, where every user of the machine
  could read it. A key file holds 16, 24 or 32 raw bytes (what `ags1 keygen`
  writes), or the same as hexadecimal or base64 text; an environment variable
  holds text. Key metadata is Iceberg's StandardKeyMetadata: key, AAD prefix
  and trusted length of one file.
"""

_ENCRYPT_EXAMPLES = """
examples:
  ags1 encrypt sales.avro sales.avro.ags1 --key-file my.key
  ags1 encrypt data/ vault/ --key-file my.key --aad-prefix '{path}'
  ags1 encrypt data/ vault/ --key-metadata-out keys/   (a fresh key for each)
  tar c data | ags1 encrypt - data.tar.ags1 --key-env LAKE_KEY
"""

_DECRYPT_EXAMPLES = """
examples:
  ags1 decrypt sales.avro.ags1 sales.avro --key-file my.key
  ags1 decrypt vault/ data/ --key-file my.key --aad-prefix '{path}'
  ags1 decrypt vault/ data/ --key-metadata keys/
  ags1 decrypt data.tar.ags1 - --key-env LAKE_KEY | tar x
"""

_KMS_HELP = """\
actions:
  init     make a local keystore, or add keys to one that exists
  list     list the key ids of a local keystore
  wrap     wrap the bytes of a file, a key for example
  unwrap   unwrap them; the result is a file that only you can read

services:
  local:PATH                             a keystore file; password from
                                         --password-file, AGS1_KMS_PASSWORD,
                                         or the terminal
  aws:?region=R                          AWS KMS (and &endpoint=, &profile=)
  gcp:                                   Google Cloud KMS
  azure:https://NAME.vault.azure.net     Azure Key Vault
  vault:https://HOST:8200?mount=transit  Vault or OpenBao; VAULT_TOKEN
  module:package.module.Class            a client of your own
  Secrets never stand in the URL, where every user of the machine could read
  them. The variable AGS1_KMS stands for --kms.

examples:
  ags1 kms init --kms local:keys.json --key-id lake
  ags1 kms wrap my.key my.key.wrapped --kms local:keys.json --key-id lake
  ags1 kms unwrap my.key.wrapped my.key --kms aws:?region=eu-central-1 \\
      --key-id alias/lake
"""

_DATASET_HELP = """\
actions that make a version:
  encrypt   encrypt a directory, or bring a dataset up to date
  add       add files to a dataset
  rm        leave files out of the new version
  mv        give files another path; no object is written
  repair    encrypt anew from the source what is missing or not authentic
  rewrap    put it, or one class of keys, under another master key
  expire    remove old versions, and what no version needs any more

actions that read:
  ls        list its files
  cat       decrypt files of it to standard output
  verify    authenticate every file; name what is missing, swapped or foreign
  decrypt   decrypt it into a directory
  versions  list the versions that are kept, each with its digest
  diff      say what differs between two versions
  classes   list which master key the files of a pattern are under

A dataset is a directory or a URL: s3://bucket/vault works wherever vault/
does. Nothing of a run is seen before all of it is there; interrupted, it is
taken over by the next one. Older versions stay until they are expired.

examples:
  export AGS1_KMS=local:keys.json
  ags1 dataset encrypt raw/ vault/ --key-id lake
  ags1 dataset verify vault/
  ags1 dataset cat vault/ a/b.csv | head
  ags1 dataset diff vault/ 1
  ags1 dataset expire vault/ --keep 5 --older-than 30d

`ags1 dataset ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms.
"""

_PARQUET_HELP = """\
actions:
  encrypt   encrypt Parquet files, all columns or some, without decoding them
  decrypt   decrypt them
  rekey     encrypt encrypted ones in another way
  rotate    put them under other master keys; no data key changes
  inspect   draw what of a file is protected, and how
  verify    authenticate every module; name those that fail
  cat       show the rows of encrypted files
  head      show the first rows

examples:
  ags1 parquet encrypt in.parquet out.parquet --footer-key file:f.key \\
      --column-key ssn,salary=file:s.key
  ags1 parquet inspect out.parquet
  ags1 parquet head out.parquet --footer-key file:f.key \\
      --column-key ssn,salary=file:s.key
  ags1 parquet encrypt people/ vault/ --kms local:keys.json \\
      --footer-key-id lake

`ags1 parquet ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms.
"""

_ICEBERG_HELP = """\
actions:
  inspect   draw a table: its encryption, keys, snapshots, manifests and files
  files     list its files, and how each is encrypted
  scan      show rows, or write them to a file
  audit     say what is wrong with its encryption
  verify    authenticate every file; name those that fail
  cat       decrypt one file of it
  rewrap    put it under another master key; no file of it changes
  prune     drop the keys that nothing uses any more
  encrypt   encrypt it in place, or what was added to it as plaintext
  decrypt   make a plaintext table of it, in place
  rekey     give every file of it a new key
  relocate  copy it to another place, encrypted files byte for byte
  expire    remove old snapshots, with files and keys that only they need
  clean     remove files below it that nothing names
  create    make an empty encrypted table
  append    add the rows of files to a table
  delete    delete the rows that pass a filter

examples:
  ags1 iceberg inspect t/metadata/00007-ab.metadata.json --kms local:keys.json
  ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \\
      --kms aws:?region=eu-central-1 --filter "amount > 10" --limit 20
  ags1 iceberg rewrap t/metadata/00007-ab.metadata.json \\
      --kms local:keys.json --new-key-id lake-2027 --dry-run

`ags1 iceberg ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms. Needs the extra: ags1[iceberg].
"""

_AUDIT_HELP = """\
examples:
  ags1 audit s3://lake/
  ags1 audit s3://lake/ --kms aws:?region=eu-central-1 --html report.html
  ags1 audit data/ --policy policy.toml --quiet || echo "not protected: $?"

A policy is a TOML file:
  [plaintext]
  allowed = ["public/**"]       # any other plaintext is a violation
  max_share = 0.05              # of all bytes
  [encrypted]
  required = ["customers/**"]
  [[columns]]
  files = "people/*.parquet"
  encrypted = ["ssn", "salary"]
  [keys]
  allowed = ["alias/lake"]

exit codes: 0 the policy holds, or there is none; 1 something is damaged;
  3 the KMS refused a key; 4 something could not be read; 5 a violation
"""

_SPARK_HELP = """\
commands:
  encrypt           encrypt a tree of files into a dataset
  decrypt           decrypt a dataset into a tree
  verify            authenticate every file; name those that fail
  rewrap            put a dataset under another master key; no file changes
  clean             throw away what interrupted runs left
  plan              say what encrypting a tree would be: files, bytes, tasks
  parquet-encrypt, parquet-decrypt, parquet-rekey, parquet-verify
                    the same for trees of Parquet files, column by column
  encrypt-table, decrypt-table, rekey-table
                    convert an Iceberg table in place
  verify-table      authenticate every file of an encrypted Iceberg table

examples:
  ags1 spark encrypt raw/ vault/ --kms 'local:keys.json?key_file=k' \\
      --key-id lake --master 'local[8]'
  ags1 spark verify s3a://vault --kms aws:?region=eu-central-1 --master yarn
  ags1 spark clean vault/

`ags1 spark COMMAND --help` explains each command; `ags1 spark help`, clusters,
spark-submit and exit codes, which are not those of the other commands.
The variable AGS1_KMS stands for --kms. Needs the extra: ags1[spark].
"""

_JSON_HELP = """
JSON, one object a line:
  {fields}
  `error` is null, or says what failed; then the other fields may be missing.
"""

_COMPLETION_HELP = """
examples:
  ags1 completion bash > ~/.local/share/bash-completion/completions/ags1
  ags1 completion zsh > ~/.zfunc/_ags1       (~/.zfunc is in fpath)

It needs shtab: pip install 'ags1[cli]'
"""

_TREES = (
    "A directory stands for {what} below it, and TARGET gets the same tree; links to directories are not "
    "followed. Every target appears whole or not at all. "
)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments; `run` of the result is the function to call with it.

    Raises
    ------
    UsageError
        They make no sense. The message names options, but shows no value that might be a key.
    SystemExit
        Help or the version was asked for, and shown.
    """
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parser = command_parser()
    options, rest = parser.parse_known_args(arguments)
    if options.version:
        from ags1._version import version

        print(f"ags1 {version}")
        raise SystemExit(0)
    if options.command is None:
        if rest:
            refuse_option(parser, None, rest[0])
        parser.print_help()
        raise SystemExit(2)
    _take_rest(parser, options, rest)
    return options


def _take_rest(parser: CommandParser, options: argparse.Namespace, rest: list[str]) -> None:
    """Sort what argparse left over: files behind an option are files, anything else is an error."""
    see = f"(see `ags1 {options.command} --help`)"
    for argument in rest:
        if argument.startswith("-") and argument != "-":
            if option_name(argument) == "--key" and hasattr(options, "key_file"):
                raise UsageError(
                    "there is no --key: other users could read a key in the arguments; use --key-file or "
                    f"--key-env {see}"
                )
            refuse_option(parser, options.command, argument)
    if hasattr(options, "target"):
        paths = [*options.sources, *([] if options.target is None else [options.target]), *rest]
        options.sources, options.target = paths[:-1], paths[-1] if paths else None
        if options.target is None or (not options.sources and not options.files_from):
            missing = "a SOURCE and a TARGET are" if options.target is None else "a TARGET is"
            raise UsageError(f"{missing} needed: ags1 {options.command} SOURCE TARGET {see}")
    elif hasattr(options, "files"):
        options.files = [*options.files, *rest]
    elif rest:
        raise UsageError(f"too many arguments {see}")


def command_parser() -> CommandParser:
    parser = CommandParser(
        prog="ags1",
        description="Encrypt, decrypt and examine AES GCM Stream (AGS1) files, the format of encrypted Iceberg tables.",
        epilog=_EPILOG,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    # Without `prog`, argparse formats a usage text to find it, and imports half of shutil for that.
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", prog="ags1")

    def command(
        name: str, run: str, summary: str, usage: str, more: str = "", epilog: str = ""
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            usage=f"ags1 {name} {usage}",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=epilog or None,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=_lazily(run))
        return sub

    sub = command(
        "keygen",
        "_keys:keygen",
        "write a fresh random key to a file that only you can read",
        "KEYFILE [options]",
        "Whoever has the key can read everything that it encrypts; whoever loses it, nothing.",
    )
    sub.add_argument("keyfile", metavar="KEYFILE", help="file to write; `-` is standard output")
    sub.add_argument("--bits", type=int, choices=(128, 192, 256), default=256, help="size of the key (256)")
    sub.add_argument("--format", choices=("raw", "hex", "base64"), default="raw", help="how to write it (raw)")
    sub.add_argument("--force", action="store_true", help="replace an existing file: what its key encrypted is lost")

    sub = command(
        "encrypt",
        "_transfer:encrypt",
        "encrypt files into AGS1 files",
        "SOURCE [SOURCE ...] TARGET (--key-file FILE | ...) [options]",
        _TREES.format(what="all files") + " In a directory, each result has the name of its source and .ags1.",
        _KEY_HELP + _ENCRYPT_EXAMPLES + _json_fields("source, target, encrypted_length, seconds, error"),
    )
    _add_files(sub, "file, glob ('*.avro'), directory, or `-` for standard input")
    _add_key(sub)
    group = sub.add_argument_group("work")
    group.add_argument(
        "--key-metadata-out",
        metavar="PATH",
        help="write the key metadata (key, AAD prefix, length) here: a file, or for many sources a "
        "directory of NAME.ags1.key-metadata. Without a key, each file gets a fresh one",
    )
    group.add_argument(
        "--replace-key-metadata",
        action="store_true",
        help="let --key-metadata-out replace the only copy of another key: what that encrypted is lost",
    )
    group.add_argument(
        "--block-length",
        type=_block_length,
        default=1 << 20,
        metavar="SIZE",
        help="bytes of plaintext in a block (1M, the only length that Iceberg reads)",
    )
    _add_work(group)

    sub = command(
        "decrypt",
        "_transfer:decrypt",
        "decrypt AGS1 files",
        "SOURCE [SOURCE ...] TARGET (--key-file FILE | ...) [options]",
        _TREES.format(what="the .ags1 files") + "In a directory, each result has the name of its source without .ags1.",
        _KEY_HELP
        + _DECRYPT_EXAMPLES
        + _json_fields("source, target, plaintext_length, seconds, length_trusted, error"),
    )
    _add_files(sub, "AGS1 file, glob ('*.ags1'), directory, or `-` for standard input")
    _add_key(sub)
    group = sub.add_argument_group("work")
    _add_length(group)
    _add_work(group)

    sub = command(
        "cat",
        "_transfer:cat",
        "decrypt to standard output, all of a file or a range of it",
        "FILE [FILE ...] (--key-file FILE | ...) [options]",
        "Nothing is written before it is authenticated, but what was written before a failure stays written.",
        _KEY_HELP,
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="AGS1 file, glob, directory, or `-` for standard input")
    _add_key(sub)
    group = sub.add_argument_group("work")
    group.add_argument(
        "--offset",
        type=_size,
        default=0,
        metavar="SIZE",
        help="plaintext offset to start at (0), such as 4096 or 2G",
    )
    group.add_argument(
        "--bytes", type=_size, default=None, metavar="SIZE", help="bytes of plaintext to write (to the end)"
    )
    _add_length(group)
    _add_threads(group)
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")

    sub = command(
        "inspect",
        "_examine:inspect",
        "show what can be known without a key",
        "FILE [FILE ...] [--json]",
        "Header, block length, blocks, plaintext length, and what is wrong with the file; a table for many "
        "files. "
        "Nothing of it is authenticated: that takes `ags1 verify` and the key.",
        _json_fields(
            "file, status (AGS1, damaged, not AGS1, unreadable), encrypted_length,\n"
            "  format, problem, block_length, iceberg, plaintext_length, blocks,\n"
            "  last_block_length, overhead, error"
        ),
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="file, glob, directory, or `-` for standard input")
    sub.add_argument("--json", action="store_true", help="one JSON object a line, for machines")

    sub = command(
        "verify",
        "_examine:verify",
        "authenticate every block, and name those that fail",
        "FILE [FILE ...] (--key-file FILE | ...) [options]",
        "A directory stands for the .ags1 files below it.",
        _KEY_HELP
        + _json_fields(
            "file, blocks, plaintext_length, length_trusted, failed_count,\n"
            "  failed_blocks (the first thousand), seconds, error"
        ),
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="AGS1 file, glob or directory")
    _add_key(sub)
    group = sub.add_argument_group("work")
    _add_length(group)
    _add_work(group)

    sub = command(
        "audit",
        "_audit:audit",
        "say what of a bucket, directory, dataset or table is encrypted, and what is not",
        "LOCATION [--policy FILE] [--html FILE] [--kms URL] [options]",
        "Looks at the beginning of each file and at the footers of Parquet, and decrypts no data.",
        _AUDIT_HELP,
    )
    sub.add_argument("location", metavar="LOCATION", help="directory, file or URL, with all that is below it")
    group = sub.add_argument_group("work")
    group.add_argument("--policy", metavar="FILE", help="what must be encrypted, as TOML")
    group.add_argument("--html", metavar="FILE", help="write the report as a page that needs no network")
    _add_threads(group, "files to look at at once (32)")
    group.add_argument("--json", action="store_true", help="one JSON object, for machines")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors and violations")
    _add_progress(group)
    _add_kms(sub)

    sub = command("info", "_machine:info", "show the version, the OpenSSL and what AES-GCM runs on", "[--json]")
    sub.add_argument("--json", action="store_true", help="one JSON object, for machines")

    sub = command("bench", "_machine:bench", "measure encryption and decryption in memory on this machine", "[options]")
    sub.add_argument(
        "--bytes",
        type=_some,
        default=256 << 20,
        metavar="SIZE",
        help="bytes of plaintext, such as 64M (256M)",
    )
    sub.add_argument("--json", action="store_true", help="one JSON object a line, for machines")

    sub = command(
        "kms",
        "_kms:kms",
        "wrap keys with master keys of a key management service, or of a local keystore",
        "init|list|wrap|unwrap [SOURCE TARGET] --kms URL [options]",
        epilog=_KMS_HELP,
    )
    sub.add_argument("action", metavar="ACTION", choices=("init", "list", "wrap", "unwrap"), help="what to do")
    sub.add_argument("files", nargs="*", metavar="FILE", help="SOURCE and TARGET of wrap and unwrap; `-` is standard")
    sub.add_argument(
        "--key-id", action="append", default=[], dest="key_ids", metavar="ID", help="master key; init takes several"
    )
    sub.add_argument("--bits", type=int, choices=(128, 192, 256), default=256, help="size of new master keys (256)")
    sub.add_argument("--force", action="store_true", help="let wrap and unwrap replace an existing TARGET")
    sub.add_argument("--dry-run", action="store_true", help="only say what init would do")
    sub.add_argument("--json", action="store_true", help="list: one JSON object a line, for machines")
    _add_kms(sub)

    sub = command(
        "dataset",
        "_dataset:dataset",
        "encrypt directories of files under master keys, and work with them",
        "ACTION ... [--kms URL] [options]",
        epilog=_DATASET_HELP,
    )
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ACTION", help="what to do, and with what")

    sub = command(
        "parquet",
        "_parquet:parquet",
        "encrypt, decrypt, re-key, verify and show Parquet files (Parquet Modular Encryption)",
        "ACTION ... [options]",
        epilog=_PARQUET_HELP,
    )
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ACTION", help="what to do, and with what")

    sub = command(
        "iceberg",
        "_iceberg:iceberg",
        "read, audit, verify and maintain encrypted Iceberg tables",
        "ACTION TABLE [options]",
        epilog=_ICEBERG_HELP,
    )
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ACTION", help="what to do, and with what")

    sub = command(
        "spark",
        "_spark:spark",
        "encrypt, decrypt and verify trees of files with Spark",
        "COMMAND ... [options]",
        epilog=_SPARK_HELP,
    )
    sub.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to do, and with what")

    sub = command(
        "completion",
        "_completion:completion",
        "print what makes a shell complete the commands and options of ags1",
        "SHELL",
        epilog=_COMPLETION_HELP,
    )
    sub.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    return parser


def _json_fields(fields: str) -> str:
    return _JSON_HELP.format(fields=fields)


def _add_files(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=text)
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="file, or `-` for standard output; a directory if there are many sources, a glob or a "
        "directory among "
        "them, or if it exists or ends with /",
    )
    group = parser.add_argument_group("files")
    group.add_argument(
        "--files-from",
        metavar="LIST",
        help="read more sources from this file (`-`: standard input), one a line or ended by NUL; lines "
        "that start with # are left out",
    )
    group.add_argument("--no-clobber", action="store_true", help="refuse to replace an existing target")
    group.add_argument("--durable", action="store_true", help="wait until each result is on the disk")


def _add_key(parser: argparse.ArgumentParser) -> None:
    outer = parser.add_argument_group("key")
    group = outer.add_mutually_exclusive_group()
    group.add_argument("--key-file", metavar="FILE", help="read the key from a file")
    group.add_argument(
        "--key-env",
        metavar="NAME",
        help="read the key from an environment variable, as hexadecimal or base64 text",
    )
    group.add_argument(
        "--key-metadata",
        metavar="PATH",
        help="read key, AAD prefix and trusted length from a file, or for many files from a directory of "
        "NAME.ags1.key-metadata",
    )
    prefix = outer.add_mutually_exclusive_group()
    prefix.add_argument(
        "--aad-prefix",
        metavar="TEXT",
        help="identity of the file, as text: what it was encrypted with is needed to decrypt it. {name} "
        "stands for the encrypted file's base name without .ags1, {path} for its path below the directory "
        "that was given",
    )
    prefix.add_argument("--aad-prefix-hex", metavar="HEX", help="identity of the file, as hexadecimal bytes")


def _add_kms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("key management service")
    group.add_argument("--kms", metavar="URL", help="local:PATH, aws:?region=R, gcp:, azure:https://... or vault:...")
    group.add_argument("--password-file", metavar="FILE", help="password of a local keystore (asked on a terminal)")
    group.add_argument("--key-file", metavar="FILE", help="key file of a local keystore, instead of a password")


def _add_length(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--length",
        type=_size,
        default=None,
        metavar="BYTES",
        help="trusted length of the encrypted file: shows a truncation that nothing else can",
    )


def _add_threads(group: argparse._ArgumentGroup, text: str = "threads for each file (every CPU)") -> None:
    group.add_argument("--threads", type=_count, default=None, metavar="N", help=text)


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-j",
        "--jobs",
        type=_count,
        default=None,
        metavar="N",
        help="files to work on at once (1 here, more in object stores)",
    )
    _add_show(group)


def _add_show(group: argparse._ArgumentGroup) -> None:
    _add_threads(group)
    group.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    group.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    group.add_argument("-v", "--verbose", action="store_true", help="a line for each file, also if there are many")
    _add_progress(group)


def _add_progress(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="a progress bar: auto shows it on a terminal",
    )


def _lazily(where: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = where.partition(":")

    def run(options: argparse.Namespace) -> int:
        import importlib

        function: Any = getattr(importlib.import_module(f"ags1.cli.{module}"), name)
        return int(function(options))

    return run


def _size(text: str) -> int:
    """A number of bytes: 4096, 64K, 16M, 2G (powers of 1024)."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 4096, 64K, 16M or 2G")
    return int(digits) << units.get(unit, 0)


def _some(text: str) -> int:
    """At least one byte."""
    size = _size(text)
    if size < 1:
        raise argparse.ArgumentTypeError("at least 1 byte is needed")
    return size


def _block_length(text: str) -> int:
    size = _size(text)
    if not 1 <= size <= _MAX_BLOCK_LENGTH:
        raise argparse.ArgumentTypeError(f"a block has 1 to {_MAX_BLOCK_LENGTH} bytes, not {text}")
    return size


def _count(text: str) -> int:
    """A number of threads or jobs."""
    if not (text.isascii() and text.isdigit()) or int(text[:9]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return min(int(text[:9]), 1024)
