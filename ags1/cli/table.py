"""The commands: what each is called, the function that it is, and what it is for.

A command that runs on Spark too is marked; its module says how. Nothing of a command is imported before it is wanted.
"""

from __future__ import annotations

from ags1.support.exit_codes import EXIT_CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ags1.cli.command import Command

    Text = str | Callable[[], str]

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

SPARK_EPILOG = f"""\
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

_DATASET = """\
A dataset is a directory or a URL: s3://bucket/vault works wherever vault/
does. Nothing of a run is seen before all of it is there; interrupted, it is
taken over by the next one. Older versions stay until they are expired.

examples:
  export AGS1_KMS=local:keys.json
  ags1 dataset encrypt raw/ vault/ --key-id lake
  ags1 dataset verify vault/
  ags1 dataset cat vault/ a/b.csv | head
  ags1 dataset expire vault/ --keep 5 --older-than 30d --dry-run

`ags1 dataset ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms.
"""
TABLE_HELP = """\
table:
  With --catalog, TABLE is the table's name there, such as db.events. Without,
  it is the location of a metadata file: a path or a URL such as
  s3://lake/db/t/metadata/00007-....metadata.json. A directory stands for the
  metadata file with the highest number in it, or in metadata/ below it, which
  may be older or newer than what a catalog has; the command names it.
"""
_ICEBERG = f"""\
{TABLE_HELP}
examples:
  ags1 iceberg inspect t/metadata/00007-ab.metadata.json --kms local:keys.json
  ags1 iceberg scan s3://lake/db/t/metadata/00007-ab.metadata.json \\
      --kms 'aws:?region=eu-central-1' --filter 'amount > 10' --limit 20
  ags1 iceberg verify db.events --catalog prod --kms local:keys.json
  ags1 iceberg rewrap db.events --catalog prod \\
      --kms local:keys.json --new-key-id lake-2027 --dry-run

`ags1 iceberg ACTION --help` explains each action; `ags1 kms --help`, the URLs.
The variable AGS1_KMS stands for --kms. Needs the extra: ags1[iceberg].
"""
_PARQUET = """\
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


_KMS = """\
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

`ags1 kms ACTION --help` explains each action.
"""


def _kms_help() -> str:
    from ags1.kms.services import COMMON_OPTIONS, LOCAL_OPTIONS, SERVICES

    options = {"local": LOCAL_OPTIONS, **{name: each.options for name, each in SERVICES.items()}}
    options["any"] = COMMON_OPTIONS
    return _KMS.format(
        services="\n".join(f"  {each.form:<37}  {each.what}" for each in SERVICES.values()),
        options="\n".join(f"  {name:<9} {', '.join(sorted(each))}" for name, each in options.items()),
    )


class CommandEntry:
    """A command: the module that has it, a line of help, and whether it runs on Spark too."""

    def __init__(self, module: str, summary: str, spark: str) -> None:
        self.module = module
        self.summary = summary
        self.has_cluster_form = bool(spark)


class CommandGroup:
    """Commands under a name of their own. `hints` are what to say of options that none of them has."""

    def __init__(
        self, prog: str, summary: str, description: str, epilog: Text, hints: Mapping[str, str] | None = None
    ) -> None:
        self.prog = prog
        self.summary, self.description, self.epilog = summary, description, epilog
        self.hints = hints or {}
        self.commands: dict[str, CommandEntry | CommandGroup] = {}
        self.what = "ACTION" if " " in prog else "COMMAND"

    @property
    def has_cluster_form(self) -> bool:
        """Whether a command of it runs on Spark too."""
        return any(each.has_cluster_form for each in self.commands.values())

    def add(self, name: str, module: str, summary: str, spark: str = "") -> None:
        """Add a command, which is the function of its name in a module of the folder of this group."""
        self.commands[name] = CommandEntry(module, summary, spark)

    def group(
        self, name: str, summary: str, description: str, epilog: Text, hints: Mapping[str, str] | None = None
    ) -> CommandGroup:
        """Add a group."""
        made = self.commands[name] = CommandGroup(f"{self.prog} {name}", summary, description, epilog, hints)
        return made

    def load(self, name: str) -> Command:
        """Import a command."""
        import importlib

        entry = self.commands[name]
        assert isinstance(entry, CommandEntry)
        module = ".".join(["ags1.cli", *self.prog.split()[1:], entry.module])
        made = importlib.import_module(module)
        # A name that Python has itself gets an underscore.
        found: Command = getattr(made, f"{name}_", None) or getattr(made, name)
        return found


SPARK = "also on Spark"

COMMANDS = CommandGroup(
    "ags1",
    "",
    "Encrypt, decrypt and examine AES GCM Stream (AGS1) files, the format of encrypted Iceberg tables.",
    _EPILOG,
    {"--key": "there is no --key: other users could read a key in the arguments; use --key-file or --key-env"},
)
COMMANDS.add("keygen", "keys", "write a fresh random key to a file that only you can read")
COMMANDS.add("encrypt", "transfer", "encrypt files into AGS1 files")
COMMANDS.add("decrypt", "transfer", "decrypt AGS1 files")
COMMANDS.add("cat", "transfer", "decrypt to standard output, all of a file or a range of it")
COMMANDS.add("inspect", "examine", "show what can be known without a key")
COMMANDS.add("verify", "examine", "authenticate every block, and name those that fail")
COMMANDS.add("audit", "audit", "say what of a bucket, directory, dataset or table is encrypted, and what is not")
COMMANDS.add("info", "machine", "show the version, the OpenSSL and what AES-GCM runs on")
COMMANDS.add(
    "bench", "bench", "measure encryption and decryption in memory on this machine, beside copies of as many bytes"
)
_kms = COMMANDS.group(
    "kms",
    "wrap keys with master keys of a key management service, or of a local keystore",
    "Wrap keys with master keys of a key management service, or of a local keystore.",
    _kms_help,
)
_dataset = COMMANDS.group(
    "dataset",
    "encrypt directories of files under master keys, and work with them",
    "Encrypt directories of files, each under a master key, and work with them.",
    _DATASET,
)
_parquet = COMMANDS.group(
    "parquet",
    "encrypt, decrypt, re-key, verify and show Parquet files (Parquet Modular Encryption)",
    "Work with encrypted Parquet files (Parquet Modular Encryption).",
    _PARQUET,
    hints={
        each: f"there is no {each}: name keys with --footer-key and --column-key, as file:PATH or env:NAME"
        for each in ("--key", "--key-env")
    },
)
_iceberg = COMMANDS.group(
    "iceberg",
    "read, audit, verify and maintain encrypted Iceberg tables",
    "Read, audit, verify and maintain encrypted Iceberg tables.",
    _ICEBERG,
    hints={
        each: f"there is no {each}: a table's keys come from its KMS, --kms URL"
        for each in ("--key", "--key-env", "--key-metadata")
    }
    | {
        "--data-keys": "there is no --data-keys: `ags1 iceberg rekey` gives every file a new key, "
        "`ags1 iceberg rewrap` none"
    },
)
COMMANDS.add("completion", "completion", "print what makes a shell complete the commands and options of ags1")

_kms.add("init", "actions", "make a local keystore, or add keys to one that exists")
_kms.add("list", "actions", "list the key ids of a local keystore")
_kms.add("rotate", "actions", "give a key of a local keystore a fresh version")
_kms.add("remove", "actions", "destroy a key of a local keystore")
_kms.add("password", "actions", "change the password or key file of a local keystore, or add another one")
_kms.add("wrap", "actions", "wrap the bytes of a file, a key for example")
_kms.add("unwrap", "actions", "unwrap what `wrap` wrapped, into a file that only you can read")

_dataset.add("encrypt", "datasets", "encrypt a directory into a dataset, or bring a dataset up to date", SPARK)
_dataset.add("add", "datasets", "add files to a dataset that is there")
_dataset.add("rm", "datasets", "make a version without some files")
_dataset.add("restore", "datasets", "make a version that has the files of an older one, and no others")
_dataset.add("repair", "datasets", "encrypt again, from the source, what is missing or not authentic")
_dataset.add("rewrap", "datasets", "put a dataset under another master key; no file changes")
_dataset.add("expire", "datasets", "remove old versions, and what no version needs any more")
_dataset.add("ls", "datasets", "list the files of a dataset")
_dataset.add("cat", "datasets", "decrypt files of a dataset to standard output, whole or a range")
_dataset.add("verify", "datasets", "authenticate every file; name what is missing, replaced, damaged or foreign", SPARK)
_dataset.add("decrypt", "datasets", "decrypt a dataset into a directory", SPARK)
_dataset.add("versions", "datasets", "list the versions that are kept, each with its digest")

_parquet.add("encrypt", "files", "encrypt Parquet files without decoding them", SPARK)
_parquet.add("decrypt", "files", "decrypt Parquet files without decoding them", SPARK)
_parquet.add("rekey", "files", "encrypt encrypted Parquet files in another way", SPARK)
_parquet.add(
    "rotate", "files", "put encrypted Parquet files under other master keys, or newer versions of them, in place"
)
_parquet.add("inspect", "verify", "draw which columns and modules of Parquet files are protected, and how")
_parquet.add(
    "verify",
    "verify",
    "authenticate every module of Parquet files without decoding them, and name those that fail",
    SPARK,
)
_parquet.add("cat", "rows", "show the rows of encrypted Parquet files")
_parquet.add("head", "rows", "show the first rows of encrypted Parquet files")

_iceberg.add("inspect", "tables", "draw a table: its encryption, keys, snapshots, manifests and files")
_iceberg.add("files", "tables", "list the files of a table, and how each is encrypted")
_iceberg.add("scan", "tables", "show rows of a table, or write them to a file")
_iceberg.add("audit", "tables", "say what is wrong with the encryption of a table")
_iceberg.add(
    "verify", "tables", "authenticate every block and module of the files of a table, and name those that fail", SPARK
)
_iceberg.add("cat", "tables", "decrypt one file of a table to standard output")
_iceberg.add(
    "rewrap", "keys", "put a table under another master key, or the newest version of it; no file of it changes"
)
_iceberg.add("prune", "keys", "drop the keys that nothing in a table uses any more, such as those of expired snapshots")
_iceberg.add("encrypt", "convert", "encrypt a table in place, or what others added to it as plaintext", SPARK)
_iceberg.add("decrypt", "convert", "make a plaintext table of an encrypted one, in place", SPARK)
_iceberg.add("rekey", "convert", "give every file of a table a new key, in place", SPARK)
_iceberg.add(
    "expire", "convert", "remove the snapshots that no branch or tag has, with the files and keys that only they need"
)
_iceberg.add(
    "clean", "convert", "remove files below a table that nothing names, such as those of a conversion that was given up"
)
_iceberg.add("create", "write", "make an empty encrypted table")
_iceberg.add("append", "write", "add the rows of files to a table")
_iceberg.add("delete", "write", "delete the rows of a table that pass a filter")
_iceberg.add(
    "compact", "convert", "write small files, and files with deletes, again as fewer files with the same rows", SPARK
)
_iceberg.add(
    "maintain",
    "convert",
    "compact, write manifests again, expire old snapshots with their keys, and remove orphans, in this order",
)
