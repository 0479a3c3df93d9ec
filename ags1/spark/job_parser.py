"""The commands of ``ags1`` that run on Spark with ``--spark``: the arguments that they have there, and their help.

The attributes of the parsed namespace are parameters of the command's function in :mod:`ags1.spark`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from ags1.support.command_line import CommandParser
from ags1.support.exit_codes import EXIT_CODES, UsageError
from ags1.support.option_values import directory

# Options of the job itself; all others are passed to a function of ags1.spark.
JOB_OPTIONS = frozenset(
    {"command", "function", "json", "report", "traceback", "master", "remote", "conf", "yes", "spark", "catalog"}
)

_LOOKS_LIKE_A_KEY = re.compile(r"key|secret|passw|passphrase|token", re.IGNORECASE)

_SEE = {
    "footer-key": "--footer-key-id ID",
    "column-key": "--column-key-id COLUMNS=ID",
    "transfer-key": "--transfer-key-id ID",
    "new-key": "--new-key-id ID",
}

_EPILOG = """\
{exit_codes}
on this machine:
  ags1 dataset encrypt raw/ vault/ --kms 'local:keys.json?key_file=k' \\
      --key-id lake --spark --master 'local[8]'
  ags1 dataset verify vault/ --kms 'local:keys.json?key_file=k' --spark

on a cluster (every node needs ags1[arrow] and pandas beside its Spark; the
archive is one of venv-pack or conda-pack, and the driver's Python has them too):
  spark-submit --master yarn --deploy-mode client \\
      --archives 'env.tgz#environment' \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      "$(python -m ags1.spark --path)" dataset encrypt s3a://raw s3a://vault \\
      --kms 'aws:?region=eu-central-1' --key-id alias/lake
  spark-submit --master k8s://https://HOST:6443 \\
      --archives 'env.tgz#environment' \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      "$(python -m ags1.spark --path)" dataset decrypt s3a://vault s3a://plain \\
      --kms 'aws:?region=eu-central-1'

Keys are never arguments: --key-id names a master key, and --kms the
service that has it, which driver and executors call themselves. The variable
AGS1_KMS is the default of --kms. `COMMAND --spark --help` explains each.
"""

_COMMAND_EPILOG = """\
examples:
  {prog} {name} {local} --spark
  spark-submit --master yarn --archives 'env.tgz#environment' \\
      --conf spark.pyspark.python=./environment/bin/python \\
      --conf spark.pyspark.driver.python=python \\
      "$(python -m ags1.spark --path)" \\
      {words} {remote}
  The same with --master k8s://https://HOST:6443, or without an archive where
  every node has ags1[arrow] and pandas; `ags1 --spark --help` has more,
  such as the exit codes.
"""

_MOVED = (
    "Files are moved to new paths by tasks, without decoding pages of Parquet files, and one commit makes them the "
    "table's. A killed run is resumed by the next. Old snapshots keep their files until they are expired."
)
_LOCAL_KMS = "--kms 'local:keys.json?key_file=k'"
_AWS = "--kms 'aws:?region=eu-central-1'"
_TREE_JOB = "part-bytes parallelism quiet report JOB"
_FILES_JOB = "workers-threads parallelism quiet report JOB"
_TABLE_JOB = "catalog workers-threads parallelism dry-run yes quiet JOB"
_MASTERS = "cache-seconds MASTERS kek-bits kms-instance-id kms-instance-url ENCRYPTION"

_SECRETS = {"transfer-key-id": {"help": "master key that seals the storage's secrets for tasks (they stay here)"}}

_Add = Callable[..., None]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of ``ags1``, of a command that runs on Spark; ``--spark`` may be among them.

    Returns
    -------
    argparse.Namespace
        `command` (such as "dataset encrypt"), `function` (a name in :mod:`ags1.spark`), those of :data:`JOB_OPTIONS`,
        and the function's own.

    Raises
    ------
    UsageError
        The arguments are invalid. The message names options, but shows no value that might be a key.
    SystemExit
        Help or the path was requested and printed.
    """
    words = [each for each in arguments if each != "--spark"]
    if words == ["--path"]:
        import ags1.spark

        print(os.path.join(os.path.dirname(os.path.abspath(ags1.spark.__file__)), "__main__.py"))
        raise SystemExit(0)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    group = words.pop(0) if words[:1] and words[0] in _GROUPS else ""
    parser = command_parser(group)
    _refuse_other(parser, words)
    options = parser.parse(words, _hint)
    if group:
        options.command = f"{group} {vars(options).pop('action')}"
    if "kms" in vars(options) and options.kms is None:
        options.kms = os.environ.get("AGS1_KMS") or None
        if options.kms is None and options.command not in ("parquet verify", "dataset clean", "audit"):
            raise UsageError(
                "a KMS is needed: --kms URL or the variable AGS1_KMS, such as aws:?region=eu-central-1 "
                f"(see `ags1 {options.command} --spark --help`)"
            )
    if "quiet" in vars(options):
        options.progress = not options.quiet
        del options.quiet
    return options


def _refuse_other(parser: CommandParser, words: Sequence[str]) -> None:
    """Refuse a command that does not run on Spark."""
    name = next((each for each in words if not each.startswith("-")), None)
    if name is not None and name != "help" and name not in parser.choices():
        raise UsageError(
            f"`{parser.prog} {name}` is no command that runs on Spark; these are: {', '.join(parser.choices())} "
            f"(see `{parser.prog} --spark --help`)"
        )


def _hint(option: str) -> str | None:
    if not option.startswith("--") or option.endswith("id") or not _LOOKS_LIKE_A_KEY.search(option):
        return None
    return (
        f"there is no {option}: other users, Spark's pages and its event log would show a key; name the master key "
        f"({_SEE.get(option[2:], '--key-id ID')}) and the service that has it (--kms URL)"
    )


def command_parser(group: str = "") -> CommandParser:
    """The parser of the commands of ``ags1 dataset``, ``parquet`` or ``iceberg``; else of those of ``ags1`` itself."""
    prog = f"ags1 {group}".rstrip()
    parser = CommandParser(
        prog=prog,
        what="ACTION" if group else "COMMAND",
        help_options="--spark --help",
        description="With --spark, on a cluster: encrypt, decrypt and verify trees of files, Parquet, Iceberg tables.",
        epilog=_EPILOG.format(exit_codes=EXIT_CODES),
    )

    def command(
        name: str, places: Any, summary: str, options: str, *, local: str, remote: str, **settings: Any
    ) -> None:
        words = f"{group} {name}".lstrip()
        epilog = _COMMAND_EPILOG.format(prog=prog, name=name, words=words, local=local, remote=remote)
        parser.add_command(name, places, summary, options, epilog=epilog, **settings)

    if group:
        _GROUPS[group](command)
        return parser
    for name, what in _SUMMARIES.items():
        parser.add_command(name, {}, what)
    _add_audit(command)
    return parser


def _place(dest: str, name: str, text: str) -> dict[str, tuple[Any, ...]]:
    return {dest: (name, f"{text}; a path that all executors see, or a URL", {"type": directory})}


def _add_dataset_commands(command: _Add) -> None:
    source, target = _place("source", "SOURCE", "directory or file"), _place("target", "TARGET", "directory")
    command(
        "encrypt",
        source | _place("target", "TARGET", "the dataset"),
        "encrypt a tree of files into a dataset, or bring a dataset up to date",
        f"key-id! workers-kms pin CHOICE again single-writer keep-going no-resume {_TREE_JOB}",
        more="Only new and changed files are encrypted; the work of an interrupted run is reused. Files that are no "
        "longer in the source stay.",
        local=f"raw/ vault/ {_LOCAL_KMS} \\\n      --key-id lake",
        remote=f"s3a://raw s3a://vault {_AWS} \\\n      --key-id alias/lake --report run.parquet",
        function="encrypt_files",
    )
    command(
        "decrypt",
        _place("source", "DATASET", "the dataset") | target,
        "decrypt the files of a dataset into a tree",
        f"workers-kms expected-dataset-key-id expected-version pin CHOICE keep-going no-resume overwrite {_TREE_JOB}",
        more="Files of the same names in the target that differ are refused before anything is written, unless "
        "--overwrite is given. An interrupted run is resumed.",
        local=f"vault/ plain/ {_LOCAL_KMS}",
        remote=f"s3a://vault s3a://plain \\\n      {_AWS} --include '*.csv'",
        function="decrypt_files",
    )
    command(
        "verify",
        _place("source", "DATASET", "the dataset"),
        "authenticate every file of a dataset, and name missing, swapped and foreign files",
        f"workers-kms expected-dataset-key-id expected-version pin {_TREE_JOB}",
        more="A whole directory that was restored from an older copy is authentic: only --pin or --expected-version "
        "detects that. An Iceberg table is verified as by `ags1 iceberg verify`.",
        local=f"vault/ {_LOCAL_KMS} \\\n      --report problems.jsonl",
        remote=f"s3a://vault {_AWS} \\\n      --expected-version 7",
        function="verify_files",
    )
    command(
        "plan",
        source,
        "list a source, and show what encrypting it would take: files, bytes, tasks",
        "CHOICE part-bytes parallelism slots JOB",
        more="Nothing is read or written, and a local source needs no Spark.",
        local="raw/ --slots 8 --json",
        remote="s3a://raw --slots 400 --part-bytes 1G",
        function="plan",
    )
    command(
        "rewrap",
        _place("target", "DATASET", "the dataset"),
        "put a dataset under another master key; no file changes",
        "new-key-id! workers-kms new-kms pin dry-run JOB",
        more="Keep the old master key until the older versions are expired: they, and copies of them, still need it.",
        local=f"vault/ {_LOCAL_KMS} \\\n      --new-key-id lake-2027",
        remote=f"s3a://vault {_AWS} \\\n      --new-key-id alias/lake-2027 --dry-run",
        function="rewrap",
    )
    command(
        "clean",
        _place("target", "DATASET", "the dataset"),
        "remove what interrupted runs left at a dataset: their records, and with --kms their objects",
        "workers-kms pin grace dry-run yes JOB",
        more="The files stay as they are. Resuming a run, with the same command, costs less than starting over. "
        "Without --yes nothing is removed; --dry-run says what would be.",
        local=f"vault/ {_LOCAL_KMS} \\\n      --dry-run",
        remote=f"s3a://vault {_AWS} --yes",
        function="clean",
    )


def _add_audit(command: _Add) -> None:
    command(
        "audit",
        _place("source", "LOCATION", "bucket, directory, dataset or table"),
        "report what is encrypted, how and under which key, and what is not; no data is decrypted",
        "policy workers-kms transfer-key-id parallelism quiet JOB",
        changes=_SECRETS,
        more="With --kms the metadata of datasets and tables is opened too.",
        local="lake/ --policy policy.toml",
        remote=f"s3a://lake {_AWS} \\\n      --policy s3a://rules/policy.toml --json",
        function="audit",
    )


def _add_table_commands(command: _Add) -> None:
    table = {
        "table": ("TABLE", "its name in the session's SQL, CATALOG.NAMESPACE.TABLE; with --catalog its name there")
    }
    steps = ("enable", "convert")
    here: dict[str, dict[str, Any]] = {
        "catalog": {"help": "a catalog of PyIceberg's configuration on the driver, instead of the session's"}
    }
    command(
        "encrypt",
        table,
        "encrypt an Iceberg table in place, or the plaintext files that others added to it",
        f"key-id! table-data-key-bits workers-kms enable-only expire {_TABLE_JOB}",
        more=f"Format version 2 becomes 3. {_MOVED}",
        local=f"lake.db.events \\\n      {_LOCAL_KMS} --key-id lake --dry-run",
        remote=f"lake.db.events \\\n      {_AWS} --key-id alias/lake --expire --yes",
        changes=here
        | {
            "enable-only": {"action": "store_const", "dest": "steps", "const": ("enable",), "default": steps},
            "expire": {"action": "store_const", "dest": "steps", "const": (*steps, "expire"), "default": steps},
        },
        function="encrypt_table",
    )
    command(
        "decrypt",
        table,
        "decrypt an encrypted Iceberg table in place",
        f"workers-kms expire {_TABLE_JOB}",
        more=_MOVED,
        local=f"lake.db.events \\\n      {_LOCAL_KMS} --dry-run",
        remote=f"lake.db.events \\\n      {_AWS} --yes",
        changes=here,
        function="decrypt_table",
    )
    command(
        "rekey",
        table,
        "give every file of an encrypted Iceberg table a new key, in place",
        f"new-key-id table-data-key-bits workers-kms expire {_TABLE_JOB}",
        more=f"For keys that leaked. {_MOVED}",
        local=f"lake.db.events \\\n      {_LOCAL_KMS} \\\n      --new-key-id lake-2027 --dry-run",
        remote=f"lake.db.events \\\n      {_AWS} \\\n      --new-key-id alias/lake-2027 --expire --yes",
        changes=here | {"new-key-id": {"dest": "key_id", "help": "another master key (the same)"}},
        function="rekey_table",
        data_keys=True,
    )
    command(
        "compact",
        table,
        "write small files of an encrypted Iceberg table, and files with deletes, again as fewer files",
        "filter target-size sort-by rewrite-all ref catalog workers-kms parallelism dry-run yes quiet JOB",
        more="Every row keeps its number. Files that others change meanwhile stay as they are, and are named. Old "
        "snapshots keep their files until they are expired.",
        local=f"lake.db.events \\\n      {_LOCAL_KMS} --dry-run",
        remote=f"lake.db.events \\\n      {_AWS} --target-size 256M --yes",
        changes=here
        | {
            "filter": {"dest": "where", "help": "only files that may have such rows: day >= '2026-11-01'"},
            "target-size": {"dest": "target_bytes"},
            "ref": {"metavar": "BRANCH", "default": "main", "help": "the branch to compact (main)"},
        },
        function="compact_table",
    )
    command(
        "verify",
        {"metadata_location": ("TABLE", "its metadata.json, or its directory; with --catalog its name")},
        "authenticate every file of an encrypted Iceberg table",
        "snapshot workers-kms transfer-key-id expected-table-key-id allow-plaintext length-policy allow-location "
        f"catalog workers-property {_FILES_JOB}",
        more="Every block of AGS1 and every module of Parquet, each file once.",
        local=f"db/t/metadata/00007-ab.metadata.json \\\n      {_LOCAL_KMS}",
        remote=f"s3a://lake/db/t/metadata/00007-ab.metadata.json \\\n      {_AWS} --snapshot current",
        changes=here | {"snapshot": {"default": "all"}, "allow-location": {"default": None}},
        function="verify_table",
        on_error="collect",
    )


def _add_parquet_commands(command: _Add) -> None:
    source = _place("source", "SOURCE", "directory or file")
    both = source | _place("target", "TARGET", "directory that the files go to, under the same names")
    v2 = {"data-page-v2": {"default": "java", "help": "form of V2 pages: java, which Spark reads (java), or arrow"}}
    command(
        "encrypt",
        both,
        "encrypt the Parquet files of a tree without decoding them (Parquet Modular Encryption)",
        f"footer-key-id! workers-kms {_MASTERS} missing-columns CHOICE others keep-going no-resume {_FILES_JOB}",
        more="Without --column-key-id every column is encrypted with the footer key. Files of the same names in the "
        "target are replaced.",
        local=f"people/ vault/ \\\n      {_LOCAL_KMS} --footer-key-id lake",
        remote=f"s3a://raw/people s3a://vault/people \\\n      {_AWS} --footer-key-id alias/lake \\\n"
        "      --column-key-id ssn,salary=alias/pii",
        function="encrypt_parquet",
        changes=v2,
    )
    command(
        "decrypt",
        both,
        "decrypt the Parquet files of a tree without decoding them",
        "workers-kms transfer-key-id cache-seconds PREFIX expected-key-ids allow-plaintext no-check-footer "
        "expected-algorithm "
        f"drop-bloom-filters CHOICE others keep-going no-resume {_FILES_JOB}",
        changes=_SECRETS,
        more="Every module is authenticated before a file appears. Files of the same names in the target are replaced.",
        local=f"vault/ people/ \\\n      {_LOCAL_KMS}",
        remote=f"s3a://vault/people s3a://plain/people \\\n      {_AWS}",
        function="decrypt_parquet",
    )
    command(
        "rekey",
        both,
        "re-encrypt the encrypted Parquet files of a tree with new data keys and other settings",
        f"footer-key-id! workers-kms new-kms {_MASTERS} old-aad-prefix old-aad-prefix-hex old-expected-algorithm "
        "allow-plaintext no-check-footer plaintext-columns drop-bloom-filters missing-columns CHOICE others keep-going "
        f"no-resume {_FILES_JOB}",
        more="The --old-... options are for reading the source, the others for encrypting the target. An encrypted "
        "column that they do not name, once they name any, would become plaintext: --plaintext-columns says which may. "
        "Files of the same names in the target are replaced.",
        local=f"vault/ other/ \\\n      {_LOCAL_KMS} --footer-key-id lake-2027",
        remote=f"s3a://vault/people s3a://new/people \\\n      {_AWS} --footer-key-id alias/lake-2027",
        function="rekey_parquet",
        changes=v2,
    )
    command(
        "verify",
        source,
        "authenticate every module of the Parquet files of a tree without decoding them",
        "workers-kms transfer-key-id cache-seconds PREFIX expected-key-ids allow-plaintext no-check-footer "
        "expected-algorithm "
        f"REQUIREMENTS CHOICE {_FILES_JOB}",
        changes=_SECRETS,
        more="Without --kms, only files that are not encrypted can be checked.",
        local=f"vault/ {_LOCAL_KMS}",
        remote=f"s3a://vault/people \\\n      {_AWS} --missing-keys drop",
        function="verify_parquet",
        on_error="collect",
    )


_GROUPS = {"dataset": _add_dataset_commands, "parquet": _add_parquet_commands, "iceberg": _add_table_commands}
_SUMMARIES = {
    "dataset": "encrypt, decrypt, verify, rewrap, clean, plan: datasets, which are directories of encrypted files",
    "parquet": "encrypt, decrypt, rekey, verify: directories of Parquet files, column by column",
    "iceberg": "encrypt, decrypt, rekey, compact, verify: an Iceberg table, in place",
}
