"""The arguments of ``python -m ags1.spark``, and its help.

The `dest` of each option is a parameter of the function in :mod:`ags1.spark` that it is for.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence

from ags1._command_line import CommandParser, Formatter, UsageError, option_name, refuse_option
from ags1.spark._job_options import (
    Patterns,
    Setting,
    add_cache,
    add_choice,
    add_decryption,
    add_encryption,
    add_job,
    add_kms,
    add_losses,
    add_places,
    add_requirements,
    add_threads,
    add_trust,
    add_work,
    count,
    seconds,
    snapshot,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

__all__ = ["JOB_OPTIONS", "command_parser", "parse"]

# Options of the job itself; all others are handed on to a function of ags1.spark.
JOB_OPTIONS = frozenset({"command", "function", "json", "report", "traceback", "master", "remote", "conf", "yes"})

_LOOKS_LIKE_A_KEY = re.compile(r"key|secret|passw|passphrase|token", re.IGNORECASE)

_SEE = {
    "footer-key": "--footer-key-id ID",
    "column-key": "--column-key-id COLUMNS=ID",
    "table-key": "--table-key-id ID",
    "transfer-key": "--transfer-key-id ID",
    "new-key": "--new-key-id ID",
}

_EPILOG = """\
exit codes:
  0    all well
  1    some files failed, or verification found problems
  2    wrong usage: an argument, a form of KMS URL, or a missing package
  3    it could not run: the KMS refused, the dataset is absent, damaged or
       in use, the storage failed, or Spark did
  130  interrupted; what was done is kept, and the same command goes on

on this machine:
  {prog} encrypt raw/ vault/ --kms local:keys.json?key_file=k \\
      --key-id lake --master 'local[8]'
  {prog} verify vault/ --kms local:keys.json?key_file=k

on a cluster (every node needs ags1 with its extra "spark"; the archive is one
of venv-pack or conda-pack, and the driver's Python has it installed too):
  spark-submit --master yarn --deploy-mode client \\
      --archives env.tgz#environment \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      $(python -m ags1.spark --path) encrypt --source s3a://raw \\
      --target s3a://vault --kms aws:?region=eu-central-1 --key-id alias/lake
  spark-submit --master k8s://https://HOST:6443 \\
      --archives env.tgz#environment \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      $(python -m ags1.spark --path) decrypt --source s3a://vault \\
      --target s3a://plain --kms aws:?region=eu-central-1

Keys never stand among arguments: --key-id names a master key, and --kms the
service that has it, which driver and executors ask themselves. The variable
AGS1_KMS stands for --kms. `{prog} COMMAND --help` explains each.
"""

_COMMAND_EPILOG = """\
examples:
  {local}
  spark-submit --master yarn --archives env.tgz#environment \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      $(python -m ags1.spark --path) \\
      {remote}
  The same with --master k8s://https://HOST:6443, or without an archive where
  every node has ags1[spark]; `{prog} --help` has more.

exit codes: 0 all well, 1 files failed or problems were found, 2 wrong usage,
3 it could not run, 130 interrupted
"""

_MOVED = (
    "Files are moved to new paths by tasks, without decoding pages of Parquet files, and one commit makes them the "
    "table's. A killed run is resumed by the next. Old snapshots keep their files until they are expired."
)
_LOCAL_KMS = "--kms local:keys.json?key_file=k"
_AWS = "--kms aws:?region=eu-central-1"


def parse(arguments: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse the arguments.

    Returns
    -------
    argparse.Namespace
        `command`, `function` (a name in :mod:`ags1.spark`), what is in :data:`JOB_OPTIONS`, and the function's own.

    Raises
    ------
    UsageError
        They make no sense. The message names options, but shows no value that might be a key.
    SystemExit
        Help or the path was asked for, and shown.
    """
    arguments = list(arguments)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parser = command_parser(prog)
    options, rest = parser.parse_known_args(arguments)
    if options.path:
        import ags1.spark

        print(os.path.join(os.path.dirname(os.path.abspath(ags1.spark.__file__)), "__main__.py"))
        raise SystemExit(0)
    if options.command is None:
        if rest:
            refuse_option(parser, None, rest[0])
        parser.print_help()
        raise SystemExit(2)
    del options.path
    see = f"(see `{prog} {options.command} --help`)"
    _refuse_unknown(parser, options.command, rest, see)
    _take_places(options, rest, see)
    if "kms" in vars(options) and options.kms is None:
        options.kms = os.environ.get("AGS1_KMS") or None
        if options.kms is None and options.command not in ("parquet-verify", "clean", "audit"):
            raise UsageError(
                f"a KMS is needed: --kms URL or the variable AGS1_KMS, such as aws:?region=eu-central-1 {see}"
            )
    for name in ("key_id", "footer_key_id", "new_key_id"):
        if name in options.needed and getattr(options, name) is None:
            raise UsageError(f"a master key is needed: --{name.replace('_', '-')} ID {see}")
    del options.needed
    _merge_prefixes(options, see)
    return options


def _refuse_unknown(parser: CommandParser, command: str, rest: list[str], see: str) -> None:
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            continue
        name = option_name(argument)
        if name.startswith("--") and _LOOKS_LIKE_A_KEY.search(name):
            instead = _SEE.get(name[2:], "--key-id ID")
            raise UsageError(
                f"there is no {name}: other users, Spark's pages and its event log would show a key; name the master "
                f"key ({instead}) and the service that has it (--kms URL) {see}"
            )
        refuse_option(parser, command, argument)


def _take_places(options: argparse.Namespace, rest: list[str], see: str) -> None:
    """What stands without an option is the source, the target, or what else the command has first."""
    given = [*options.places, *(each for each in rest if each == "-" or not each.startswith("-"))]
    names: tuple[str, ...] = options.place_names
    del options.places, options.place_names
    for name in names:
        if getattr(options, name) is None:
            if not given:
                raise UsageError(f"--{name.replace('_', '-')} is needed: a path or URL {see}")
            setattr(options, name, given.pop(0))
    if given:
        raise UsageError(f"too many arguments {see}")


def _merge_prefixes(options: argparse.Namespace, see: str) -> None:
    for name in ("aad_prefix", "old_aad_prefix"):
        digits = vars(options).pop(f"{name}_hex", None)
        if digits is None:
            continue
        try:
            setattr(options, name, bytes.fromhex(digits))
        except ValueError:
            raise UsageError(f"--{name.replace('_', '-')}-hex is not hexadecimal {see}") from None


# -- the commands --------------------------------------------------------------------------------------------------


def command_parser(prog: str) -> CommandParser:
    """The parser of all commands of the job; `prog` is what it is called in help."""
    parser = CommandParser(
        prog=prog,
        description="Encrypt, decrypt and verify trees of files with Spark; work with encrypted Parquet and Iceberg.",
        epilog=_EPILOG.format(prog=prog),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--path", action="store_true", help="print the path of the file for spark-submit, and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", prog=prog)

    def command(
        name: str,
        function: str,
        places: Sequence[str],
        summary: str,
        more: str = "",
        needed: Sequence[str] = (),
        local: str = "",
        remote: str = "",
        aliases: Sequence[str] = (),
    ) -> argparse.ArgumentParser:
        names = " ".join("TABLE" if place == "metadata_location" else place.upper() for place in places)
        required = "".join(f"\n           --{each.replace('_', '-')} ID" for each in needed)
        sub = commands.add_parser(
            name,
            aliases=aliases,
            help=summary,
            usage=f"{prog} {name} {names}{required} [options]",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=_COMMAND_EPILOG.format(prog=prog, local=f"{prog} {name} {local}", remote=f"{name} {remote}"),
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(function=function, place_names=tuple(places), needed=tuple(needed))
        sub.add_argument("places", nargs="*", metavar=names.replace(" ", "|"), help="may stand without its option")
        return sub

    _add_tree_commands(command)
    _add_maintenance_commands(command)
    _add_table_commands(command)
    _add_parquet_commands(command)
    return parser


def _add_tree_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "encrypt",
        "encrypt_files",
        ("source", "target"),
        "encrypt a tree of files into a dataset, or bring a dataset up to date",
        "Only what is new or changed is encrypted; what an interrupted run has done is taken over. Files that the "
        "source has no more stay.",
        ("key_id",),
        f"raw/ vault/ {_LOCAL_KMS} \\\n      --key-id lake",
        f"--source s3a://raw --target s3a://vault \\\n      {_AWS} --key-id alias/lake --report run.parquet",
    )
    add_places(sub, "directory or file to encrypt", "the dataset")
    add_kms(sub)
    sub.add_argument("--key-id", metavar="ID", help="the master key")
    sub.add_argument(
        "--keys",
        action=Patterns,
        metavar="GLOB=ID",
        help="master key of the files of a pattern: 'tenant=a/**=alias/a' (may be repeated; the first that matches)",
    )
    sub.add_argument(
        "--single-writer",
        action="store_true",
        help="for a new dataset on HDFS and the like: nobody else ever writes to it",
    )
    add_choice(sub)
    add_work(sub, cuts=True, on_error="fail", resume=True)
    add_job(sub)

    sub = command(
        "decrypt",
        "decrypt_files",
        ("source", "target"),
        "decrypt the files of a dataset into a tree",
        "Files of the same names in the target are replaced, each atomically. An interrupted run is resumed.",
        (),
        f"vault/ plain/ {_LOCAL_KMS}",
        f"--source s3a://vault --target s3a://plain \\\n      {_AWS} --include '*.csv'",
    )
    add_places(sub, "the dataset", "directory that the files go to")
    add_kms(sub)
    add_trust(sub)
    add_choice(sub)
    add_work(sub, cuts=True, on_error="fail", resume=True)
    add_job(sub)

    sub = command(
        "verify",
        "verify_files",
        ("source",),
        "authenticate every file of a dataset, and name what is missing, swapped or foreign",
        "Exit code 1 if something is wrong. A whole directory that was put back from an older copy is authentic: only "
        "--expected-version shows that. An Iceberg table is verified as by verify-table.",
        (),
        f"vault/ {_LOCAL_KMS} \\\n      --report problems.jsonl",
        f"--source s3a://vault {_AWS} \\\n      --expected-version 7",
    )
    add_places(sub, "the dataset")
    add_kms(sub)
    add_trust(sub)
    add_work(sub, cuts=True)
    add_job(sub)

    sub = command(
        "audit",
        "audit",
        ("source",),
        "say what is encrypted, how and under whose key, and what is not; no data is decrypted",
        "With --kms the metadata of datasets and tables is opened too. The exit codes are those of `ags1 audit`: 5 if "
        "the policy is violated.",
        (),
        "lake/ --policy policy.toml",
        f"--source s3a://lake {_AWS} \\\n      --policy s3a://rules/policy.toml --json",
    )
    add_places(sub, "bucket, directory, dataset or table")
    add_kms(sub)
    sub.add_argument("--policy", metavar="PLACE", help="what must be encrypted (TOML)")
    add_work(sub)
    add_job(sub, report=False)

    sub = command(
        "plan",
        "plan",
        ("source",),
        "list a source, and say what encrypting it would be: files, bytes, tasks",
        "Nothing is read or written, and a local source needs no Spark.",
        (),
        "raw/ --slots 8 --json",
        "--source s3a://raw --slots 400 --part-bytes 1G",
    )
    add_places(sub, "directory or file")
    add_choice(sub)
    group = add_work(sub, cuts=True, progress=False)
    group.add_argument("--slots", type=count, metavar="N", help="tasks that run at once (CPUs of this machine)")
    add_job(sub, report=False)


def _add_maintenance_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "rewrap",
        "rewrap",
        ("target",),
        "put a dataset under another master key (also: rekey); no file changes",
        "Keep the old master key until the older versions are expired: they, and copies of them, still need it.",
        ("new_key_id",),
        f"vault/ {_LOCAL_KMS} \\\n      --new-key-id lake-2027",
        f"--target s3a://vault {_AWS} \\\n      --new-key-id alias/lake-2027 --dry-run",
        ("rekey",),
    )
    add_places(sub, None, "the dataset")
    add_kms(sub)
    sub.add_argument("--new-key-id", metavar="ID", help="the new master key")
    sub.add_argument("--key-id", metavar="ID", help="the one to be replaced, if there are several (that of most files)")
    sub.add_argument("--new-kms", metavar="URL", help="the service that has it, if it is another one")
    sub.add_argument("--dry-run", action="store_true", help="make every call to the service, and write nothing")
    add_job(sub, report=False)

    sub = command(
        "clean",
        "clean",
        ("target",),
        "throw away what interrupted runs left at a dataset: their records, and with --kms their objects",
        "The files stay as they are. Going on with a run, by the same command again, costs less than beginning anew.",
        (),
        f"vault/ {_LOCAL_KMS}",
        f"--target s3a://vault {_AWS}",
    )
    add_places(sub, None, "the dataset")
    add_kms(sub)
    sub.add_argument("--grace", type=seconds, default=86400.0, metavar="S", help="younger objects stay (86400)")
    add_job(sub, report=False)


def _add_table_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "encrypt-table",
        "encrypt_table",
        ("table",),
        "encrypt an Iceberg table in place, or what others added to it as plaintext",
        f"Format version 2 becomes 3. {_MOVED}",
        ("key_id",),
        f"lake.db.events \\\n      {_LOCAL_KMS} --key-id lake --dry-run",
        f"lake.db.events {_AWS} \\\n      --key-id alias/lake --expire --yes",
    )
    sub.add_argument("--key-id", metavar="ID", help="the master key")
    _add_length(sub)
    steps = sub.add_mutually_exclusive_group()
    steps.add_argument(
        "--enable-only",
        action="store_const",
        dest="steps",
        const=("enable",),
        default=("enable", "convert"),
        help="encrypt what is written from now on, and leave all files as they are",
    )
    steps.add_argument(
        "--expire",
        action="store_const",
        dest="steps",
        const=("enable", "convert", "expire"),
        default=("enable", "convert"),
        help="remove the plaintext snapshots and files afterwards",
    )
    _add_conversion(sub)

    sub = command(
        "decrypt-table",
        "decrypt_table",
        ("table",),
        "make a plaintext table of an encrypted Iceberg table, in place",
        _MOVED,
        (),
        f"lake.db.events \\\n      {_LOCAL_KMS} --dry-run",
        f"lake.db.events {_AWS} --yes",
    )
    sub.add_argument("--expire", action="store_true", help="remove the encrypted snapshots and files afterwards")
    _add_conversion(sub)

    sub = command(
        "rekey-table",
        "rekey_table",
        ("table",),
        "give every file of an encrypted Iceberg table a new key, in place",
        f"For keys that leaked. {_MOVED}",
        (),
        f"lake.db.events \\\n      {_LOCAL_KMS} --key-id lake-2027 --dry-run",
        f"lake.db.events {_AWS} \\\n      --key-id alias/lake-2027 --expire --yes",
    )
    sub.set_defaults(data_keys=True)
    sub.add_argument("--key-id", metavar="ID", help="another master key (the same)")
    _add_length(sub)
    sub.add_argument("--expire", action="store_true", help="remove the old snapshots and files afterwards")
    _add_conversion(sub)

    sub = command(
        "verify-table",
        "verify_table",
        ("metadata_location",),
        "authenticate every file of an encrypted Iceberg table",
        "Every block of AGS1 and every module of Parquet, each file once. Exit code 1 if something is wrong.",
        (),
        f"db/t/metadata/00007-ab.metadata.json \\\n      {_LOCAL_KMS}",
        f"s3a://lake/db/t/metadata/00007-ab.metadata.json \\\n      {_AWS} --snapshot-id current",
    )
    group = sub.add_argument_group("table")
    group.add_argument("--metadata-location", metavar="FILE", help="its metadata.json, or its directory")
    group.add_argument(
        "--snapshot-id", type=snapshot, default="all", metavar="N|all|current", help="files of which snapshots (all)"
    )
    group.add_argument(
        "--property",
        action=Setting,
        dest="properties",
        metavar="NAME=VALUE",
        help="for PyIceberg's FileIO; without any, as Spark's configuration says (may be repeated)",
    )
    group.add_argument(
        "--length-policy",
        choices=("trusted", "metadata-hint", "file"),
        default="trusted",
        help="where the length of files may come from (trusted); without one, a cut file is not seen",
    )
    group.add_argument("--allow-plaintext", action="store_true", help="take files that are not encrypted, too")
    add_kms(sub)
    group = sub.add_argument_group("master keys")
    group.add_argument("--table-key-id", metavar="ID", help="the one that the table must be under")
    group.add_argument("--transfer-key-id", metavar="ID", help="the one for the way to the workers (the table's)")
    add_threads(add_work(sub, on_error="collect"))
    add_job(sub)


def _add_length(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-key-length", type=int, choices=(16, 24, 32), help="bytes of the keys of files (the table's, or 16)"
    )


def _add_conversion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", metavar="NAME", help="its name in the session's SQL: CATALOG.NAMESPACE.TABLE")
    add_kms(parser)
    group = add_work(parser)
    add_threads(group)
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    group.add_argument("-y", "--yes", action="store_true", help="do it: needed, as nobody can be asked here")
    add_job(parser, report=False)


def _add_parquet_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "parquet-encrypt",
        "encrypt_parquet",
        ("source", "target"),
        "encrypt the Parquet files of a tree without decoding them (Parquet Modular Encryption)",
        "Without --column-key-id every column is encrypted with the footer key.",
        ("footer_key_id",),
        f"people/ vault/ \\\n      {_LOCAL_KMS} --footer-key-id lake",
        "--source s3a://raw/people \\\n      --target s3a://vault/people --kms aws:?region=eu-central-1 \\\n"
        "      --footer-key-id alias/lake --column-key-id ssn,salary=alias/pii",
    )
    add_places(sub, "directory or file to encrypt", "directory that the files go to, under the same names")
    add_kms(sub)
    add_encryption(sub)
    add_cache(sub)
    add_choice(sub, others=True)
    add_threads(add_work(sub, on_error="fail", resume=True))
    add_job(sub)

    sub = command(
        "parquet-decrypt",
        "decrypt_parquet",
        ("source", "target"),
        "decrypt the Parquet files of a tree without decoding them",
        "Every module is authenticated before a file appears.",
        (),
        f"vault/ people/ \\\n      {_LOCAL_KMS}",
        f"--source s3a://vault/people \\\n      --target s3a://plain/people {_AWS}",
    )
    add_places(sub, "encrypted tree", "directory that the files go to, under the same names")
    add_kms(sub)
    add_decryption(sub)
    add_losses(sub, rekeying=False)
    add_cache(sub)
    add_choice(sub, others=True)
    add_threads(add_work(sub, on_error="fail", resume=True))
    add_job(sub)

    sub = command(
        "parquet-rekey",
        "rekey_parquet",
        ("source", "target"),
        "encrypt the encrypted Parquet files of a tree in another way, with new data keys",
        "The --old-... options say how the source is read, the others how the target is encrypted. An encrypted column "
        "that they do not name, once they name any, would become plaintext: --plaintext-columns says which may.",
        ("footer_key_id",),
        f"vault/ other/ \\\n      {_LOCAL_KMS} --footer-key-id lake-2027",
        f"--source s3a://vault/people \\\n      --target s3a://new/people {_AWS} \\\n"
        "      --footer-key-id alias/lake-2027",
    )
    add_places(sub, "encrypted tree", "directory that the files go to, under the same names")
    add_kms(sub)
    sub.add_argument("--new-kms", metavar="URL", help="the service of the new master keys, if it is another one")
    add_encryption(sub)
    add_cache(sub)
    add_decryption(sub, old=True)
    add_losses(sub, rekeying=True)
    add_choice(sub, others=True)
    add_threads(add_work(sub, on_error="fail", resume=True))
    add_job(sub)

    sub = command(
        "parquet-verify",
        "verify_parquet",
        ("source",),
        "authenticate every module of the Parquet files of a tree without decoding them",
        "Exit code 1 if a module fails or a file is missing; 5 if a file is not protected: no footer is authenticated, "
        "or pages carry no tag. Without --kms, only files that are not encrypted can be checked.",
        (),
        f"vault/ {_LOCAL_KMS}",
        f"--source s3a://vault/people \\\n      {_AWS} --missing-keys drop",
    )
    add_places(sub, "encrypted tree")
    add_kms(sub)
    add_decryption(sub)
    add_cache(sub)
    sub.add_argument(
        "--missing-keys", choices=("error", "drop"), default="error", help="what columns without a key are (error)"
    )
    add_requirements(sub)
    add_choice(sub)
    add_threads(add_work(sub, on_error="collect"))
    add_job(sub)
