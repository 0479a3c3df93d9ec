"""The commands: what each is called, the function that it is, and what it is for.

A command that runs on Spark too is marked; its module says how. Nothing of a command is imported before it is wanted.
"""

from __future__ import annotations

from ags1.support.exit_codes import EXIT_CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ags1.cli.command import Command

_EPILOG = f"""\
{EXIT_CODES}
examples:
  ags1 keygen my.key
  ags1 encrypt sales.avro sales.avro.ags1 --key-file my.key
  ags1 verify sales.avro.ags1 --key-file my.key
  ags1 cat sales.avro.ags1 --key-file my.key --offset 1000 --bytes 64
  ags1 decrypt vault/ plain/ --key-file my.key --jobs 4
  tar c data | ags1 encrypt - data.tar.ags1 --key-env LAKE_KEY

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


class CommandEntry:
    """A command: ``module:function`` below ``ags1.cli``, and a line of help.

    `has_cluster_form` is whether it takes ``--spark``, `is_for_clusters` whether it does nothing else.
    """

    def __init__(self, where: str, summary: str, spark: str = "") -> None:
        self._where = where
        self.summary = summary
        self.has_cluster_form = bool(spark)
        self.is_for_clusters = spark == FOR_CLUSTERS

    def load(self) -> Command:
        """Import the command."""
        import importlib

        module, _, name = self._where.partition(":")
        found: Command = getattr(importlib.import_module(f"ags1.cli.{module}"), name)
        return found


class CommandGroup:
    """Commands under a name of their own. `hints` are what to say of options that none of them has."""

    def __init__(
        self,
        prog: str,
        texts: tuple[str, str, str],
        commands: Mapping[str, CommandEntry | CommandGroup],
        hints: Mapping[str, str],
        epilog_on_spark: str = "",
    ) -> None:
        self.prog = prog
        self.summary, self.description, self.epilog = texts
        self.commands = commands
        self.hints = hints
        self.epilog_on_spark = epilog_on_spark or self.epilog
        self.what = "ACTION" if " " in prog else "COMMAND"


SPARK, FOR_CLUSTERS = "also on Spark", "on Spark alone"

_DATASET_GROUP = CommandGroup(
    "ags1 dataset",
    (
        "encrypt directories of files under master keys, and work with them",
        "Encrypt directories of files, each under a master key, and work with them.",
        _DATASET,
    ),
    {
        "encrypt": CommandEntry(
            "dataset.datasets:encrypt", "encrypt a directory into a dataset, or bring a dataset up to date", SPARK
        ),
        "add": CommandEntry("dataset.datasets:add", "add files to a dataset that is there"),
        "rm": CommandEntry("dataset.datasets:rm", "make a version without some files"),
        "restore": CommandEntry(
            "dataset.datasets:restore", "make a version that has the files of an older one, and no others"
        ),
        "repair": CommandEntry(
            "dataset.datasets:repair", "encrypt again, from the source, what is missing or not authentic"
        ),
        "rewrap": CommandEntry(
            "dataset.datasets:rewrap", "put a dataset under another master key; no file changes", SPARK
        ),
        "expire": CommandEntry("dataset.datasets:expire", "remove old versions, and what no version needs any more"),
        "ls": CommandEntry("dataset.show:ls", "list the files of a dataset"),
        "cat": CommandEntry("dataset.show:cat", "decrypt files of a dataset to standard output, whole or a range"),
        "verify": CommandEntry(
            "dataset.show:verify", "authenticate every file; name what is missing, swapped, damaged or foreign", SPARK
        ),
        "decrypt": CommandEntry("dataset.datasets:decrypt", "decrypt a dataset into a directory", SPARK),
        "versions": CommandEntry("dataset.show:versions", "list the versions that are kept, each with its digest"),
        "clean": CommandEntry(
            "dataset.datasets:clean",
            "remove what interrupted runs left at a dataset: their records, and with --kms their objects",
            FOR_CLUSTERS,
        ),
    },
    {},
)

_PARQUET_GROUP = CommandGroup(
    "ags1 parquet",
    (
        "encrypt, decrypt, re-key, verify and show Parquet files (Parquet Modular Encryption)",
        "Work with encrypted Parquet files (Parquet Modular Encryption).",
        _PARQUET,
    ),
    {
        "encrypt": CommandEntry("parquet.files:encrypt", "encrypt Parquet files without decoding them", SPARK),
        "decrypt": CommandEntry("parquet.files:decrypt", "decrypt Parquet files without decoding them", SPARK),
        "rekey": CommandEntry("parquet.files:rekey", "encrypt encrypted Parquet files in another way", SPARK),
        "rotate": CommandEntry(
            "parquet.files:rotate",
            "put encrypted Parquet files under other master keys, or newer versions of them, in place",
        ),
        "inspect": CommandEntry(
            "parquet.inspect:inspect", "draw which columns and modules of Parquet files are protected, and how"
        ),
        "verify": CommandEntry(
            "parquet.verify:verify",
            "authenticate every module of Parquet files without decoding them, and name those that fail",
            SPARK,
        ),
        "cat": CommandEntry("parquet.rows:cat", "show the rows of encrypted Parquet files"),
        "head": CommandEntry("parquet.rows:head", "show the first rows of encrypted Parquet files"),
    },
    {
        option: f"there is no {option}: name keys with --footer-key and --column-key, as file:PATH or env:NAME"
        for option in ("--key", "--key-env")
    },
)

_ICEBERG_GROUP = CommandGroup(
    "ags1 iceberg",
    (
        "read, audit, verify and maintain encrypted Iceberg tables",
        "Read, audit, verify and maintain encrypted Iceberg tables.",
        _ICEBERG,
    ),
    {
        "inspect": CommandEntry(
            "iceberg.show:inspect", "draw a table: its encryption, keys, snapshots, manifests and files"
        ),
        "files": CommandEntry("iceberg.tables:files", "list the files of a table, and how each is encrypted"),
        "scan": CommandEntry("iceberg.scan:scan", "show rows of a table, or write them to a file"),
        "audit": CommandEntry("iceberg.tables:audit", "say what is wrong with the encryption of a table"),
        "verify": CommandEntry(
            "iceberg.tables:verify",
            "authenticate every block and module of the files of a table, and name those that fail",
            SPARK,
        ),
        "cat": CommandEntry("iceberg.tables:cat", "decrypt one file of a table to standard output"),
        "rewrap": CommandEntry(
            "iceberg.keys:rewrap",
            "put a table under another master key, or the newest version of it; no file of it changes",
        ),
        "prune": CommandEntry(
            "iceberg.keys:prune",
            "drop the keys that nothing in a table uses any more, such as those of expired snapshots",
        ),
        "encrypt": CommandEntry(
            "iceberg.convert:encrypt", "encrypt a table in place, or what others added to it as plaintext", SPARK
        ),
        "decrypt": CommandEntry(
            "iceberg.convert:decrypt", "make a plaintext table of an encrypted one, in place", SPARK
        ),
        "rekey": CommandEntry("iceberg.convert:rekey", "give every file of a table a new key, in place", SPARK),
        "expire": CommandEntry(
            "iceberg.convert:expire",
            "remove the snapshots that no branch or tag has, with the files and keys that only they need",
        ),
        "clean": CommandEntry(
            "iceberg.convert:clean",
            "remove files below a table that nothing names, such as those of a conversion that was given up",
        ),
        "create": CommandEntry("iceberg.write:create", "make an empty encrypted table"),
        "append": CommandEntry("iceberg.write:append", "add the rows of files to a table"),
        "delete": CommandEntry("iceberg.write:delete", "delete the rows of a table that pass a filter"),
        "compact": CommandEntry(
            "iceberg.maintain:compact",
            "write small files, and files with deletes, again as fewer files with the same rows",
            SPARK,
        ),
        "maintain": CommandEntry(
            "iceberg.maintain:maintain",
            "compact, write manifests again, expire old snapshots with their keys, and remove orphans, in this order",
        ),
    },
    {
        "--data-keys": "there is no --data-keys: `ags1 iceberg rekey` gives every file a new key, "
        "`ags1 iceberg rewrap` none",
        **{
            option: f"there is no {option}: a table's keys come from its KMS, --kms URL"
            for option in ("--key", "--key-env", "--key-metadata")
        },
    },
)

COMMANDS = CommandGroup(
    "ags1",
    ("", "Encrypt, decrypt and examine AES GCM Stream (AGS1) files, the format of encrypted Iceberg tables.", _EPILOG),
    {
        "keygen": CommandEntry("keys:keygen", "write a fresh random key to a file that only you can read"),
        "encrypt": CommandEntry("transfer:encrypt", "encrypt files into AGS1 files"),
        "decrypt": CommandEntry("transfer:decrypt", "decrypt AGS1 files"),
        "cat": CommandEntry("transfer:cat", "decrypt to standard output, all of a file or a range of it"),
        "inspect": CommandEntry("examine:inspect", "show what can be known without a key"),
        "verify": CommandEntry("examine:verify", "authenticate every block, and name those that fail"),
        "audit": CommandEntry(
            "audit:audit", "say what of a bucket, directory, dataset or table is encrypted, and what is not"
        ),
        "info": CommandEntry("machine:info", "show the version, the OpenSSL and what AES-GCM runs on"),
        "bench": CommandEntry(
            "bench:bench", "measure encryption and decryption in memory on this machine, beside copies of as many bytes"
        ),
        "kms": CommandEntry(
            "kms:kms", "wrap keys with master keys of a key management service, or of a local keystore"
        ),
        "dataset": _DATASET_GROUP,
        "parquet": _PARQUET_GROUP,
        "iceberg": _ICEBERG_GROUP,
        "completion": CommandEntry(
            "completion:completion", "print what makes a shell complete the commands and options of ags1"
        ),
    },
    {"--key": "there is no --key: other users could read a key in the arguments; use --key-file or --key-env"},
    _SPARK_EPILOG,
)
