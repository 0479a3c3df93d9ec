"""The options of all commands. A command takes them by their names.

A name is the long flag without its leading hyphens. If one flag has two meanings, the names differ. A name of
:data:`BUNDLES` stands for several options; ``old-NAME`` is the option NAME for reading SOURCE.
"""

from __future__ import annotations

import os

import ags1.cli.values as values
from ags1.support.typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DAY = 24.0 * 3600
_BITS: dict[str, Any] = {"type": int, "choices": (128, 192, 256)}


class Option:
    """An option: its section of the help, its flags, and its settings for argparse."""

    def __init__(self, section: str, flags: list[str], settings: dict[str, Any]) -> None:
        self.section = section
        self.flags = flags
        self.settings = {"dest": flags[-1][2:].replace("-", "_")} | settings
        self.dest: str = self.settings["dest"]

    def of_source(self) -> Option:
        """The option for reading SOURCE, where this one is for TARGET."""
        changed = {"dest": f"old_{self.dest}", "help": f"SOURCE: {self.settings['help']}"}
        return Option("how SOURCE is encrypted", [f"--old-{each[2:]}" for each in self.flags], self.settings | changed)


OPTIONS: dict[str, Option] = {}


def _section(title: str) -> Callable[..., None]:
    """Return what adds options to a section of the help: ``option("-f --flag VALUE", help)``.

    A flag without a VALUE is True if it is given; with ``clears="name"`` it makes that False. A VALUE that ends with
    ``...`` may be given several times. A VALUE ``a|b`` is one of these, by default the first. Other settings are those
    of argparse.
    """

    def option(spelling: str, text: str, *, name: str = "", clears: str = "", **settings: Any) -> None:
        flags = [each for each in spelling.split() if each.startswith("-")]
        metavar = " ".join(spelling.split()[len(flags) :])
        if clears:
            settings |= {"action": "store_false", "dest": clears}
        elif "|" in metavar:
            choices = metavar.split("|")
            settings = {"choices": choices, "default": choices[0]} | settings
        elif metavar:
            settings["metavar"] = metavar.removesuffix("...")
        elif "choices" not in settings and "action" not in settings:
            settings["action"] = "store_true"
        if metavar.endswith("..."):
            settings["action"] = "append"
        OPTIONS[name or flags[-1][2:]] = Option(title, flags, settings | {"help": text})

    return option


def options_named(names: str) -> Iterator[tuple[str, Option, bool]]:
    """Yield the options with these names, each once, and whether it is required, as ``NAME!`` is."""
    wanted: dict[str, bool] = {}
    for name in _resolved(names):
        wanted[name.rstrip("!")] = name.endswith("!") or wanted.get(name, False)
    for name, is_required in wanted.items():
        yield name, OPTIONS[name] if name in OPTIONS else OPTIONS[name.removeprefix("old-")].of_source(), is_required


def _resolved(names: str) -> Iterator[str]:
    for name in names.split():
        if name in BUNDLES:
            yield from _resolved(BUNDLES[name])
        else:
            yield name


option = _section("key")
option("--key-file FILE", "read the key from a file, or as file:PATH or env:NAME")
option("--key-env NAME", "read the key from an environment variable, as hexadecimal or base64 text")
option(
    "--key-metadata PATH",
    "read key, AAD prefix and trusted length from a file, or for many files from a directory of NAME.key-metadata",
)
option("--footer-key KEY", "key of the footer, file:PATH or env:NAME")
option(
    "--column-key COLUMNS=KEY",
    "key of some columns: ssn,salary=file:s.key (may be repeated)",
    action=values.ColumnKeys,
    default=(),
)
option(
    "--key-for METADATA=KEY",
    "key for the key metadata that a file contains: text, or hex:DIGITS (may be repeated)",
    action=values.MetadataKeys,
    default=(),
)
option(
    "--aad-prefix TEXT",
    "identity of the file: reading needs the same value as encryption. {name} stands for the base name of the "
    "encrypted file, {path} for its path below the given directory, without .ags1",
    type=values.prefix_text,
)
option("--aad-prefix-hex HEX", "the AAD prefix as hexadecimal bytes", dest="aad_prefix", type=values.hexadecimal)

option = _section("key management service")
option("--kms URL", "URL of the service, such as local:PATH or aws:?region=R: `ags1 kms --help` lists them (AGS1_KMS)")
option("--password-file FILE", "password of a local keystore (asked on a terminal)")
option("--key-file FILE", "key file of a local keystore, instead of a password", name="keystore-key-file")
option("--new-password-file FILE", "new password of the keystore (asked on a terminal)")
option(
    "--new-key-file FILE",
    "new key file of the keystore, instead of a password",
    name="new-keystore-key-file",
    dest="new_key_file",
)
option("--add-secret", "leave the secret that it has, and let another open it too (for emergencies)")
option("--only-secret", "remove the other secrets that open it, and keep the one that is given")
option("--old-versions", "remove only the versions of the key that `rotate` replaced, not the key")
option(
    "--kms URL",
    "URL of the service, such as aws:?region=R or local:FILE?key_file=FILE: `ags1 kms --help` lists them; "
    "without secrets: driver and executors take those from their environment (AGS1_KMS)",
    name="workers-kms",
)
option("--new-kms URL", "the service that has the new master key, if it is another one")
option(
    "--cache-seconds N",
    "how long a worker keeps key encryption keys (600)",
    type=values.integer("a number of seconds"),
    default=600,
)

option = _section("master keys")
option("--key-id ID", "the master key")
option("--new-key-id ID", "the new master key")
option(
    "--new-key-id OLD=NEW",
    "master key NEW instead of OLD; others keep their id, in its current version (may be repeated)",
    name="new-key-ids",
    action=values.Pair,
)
option("--footer-key-id ID", "master key of the footer keys")
option(
    "--column-key-id COLUMNS=ID",
    "master key of the keys of some columns: ssn,salary=alias/pii (may be repeated)",
    action=values.ColumnIds,
    dest="column_key_ids",
)
option("--transfer-key-id ID", "master key for what is sent to the workers (the table's)")
option("--single-wrapping", "one call for each key, without key encryption keys", clears="double_wrapping")
option(
    "--external-key-material",
    "store the wrapped keys beside the file, in _KEY_MATERIAL_FOR_NAME.json",
    clears="internal_key_material",
)
option("--data-key-bits BITS", "128, 192 or 256: size of the fresh keys (128)", **_BITS, default=128)
option(
    "--data-key-bits BITS",
    "128, 192 or 256: size of the keys of files (the table's, or 128)",
    name="table-data-key-bits",
    dest="data_key_length",
    type=values.key_bytes,
)
option("--kek-bits", "size of key encryption keys (128)", **_BITS, default=128)
option("--kms-instance-id TEXT", "name of the KMS, which readers find in the file", default="DEFAULT")
option("--kms-instance-url TEXT", "URL of the KMS, which readers find there", default="DEFAULT")

option = _section("trust")
option("--expected-version N", "refuse any other version", type=values.version)
option("--expected-uuid UUID", "refuse any other dataset")
option("--expected-digest HEX", "refuse any other content")
option(
    "--expected-key-id ID...",
    "refuse keys that are under another master key; repeat it for several",
    name="expected-key-ids",
    dest="expected_key_ids",
)
option("--expected-key-id ID", "refuse what is under another master key", name="expected-dataset-key-id", dest="key_id")
option(
    "--pin FILE",
    "keep UUID, master key, version and digest in this file, outside of the dataset, and refuse what is not "
    "the same, or older; made if it is missing",
)
option(
    "--pin FILE",
    "keep the hash of the table's metadata in this file, outside of the table, and refuse what others have "
    "committed since; made if it is missing",
    name="table-pin",
    dest="pin",
)
option("--repin", "accept the table as it is now, and write that to the file of --pin")
option(
    "--expected-key-id ID",
    "refuse a table that is under another master key",
    name="expected-table-key-id",
    dest="table_key_id",
)
option(
    "--expected-metadata-hash BASE64",
    "refuse a metadata file whose JSON text has another SHA-256; Hive's table parameter metadata_hash has it",
    dest="metadata_hash",
)
option(
    "--expected-algorithm AES_GCM_V1|AES_GCM_CTR_V1", "refuse files with the other one", dest="algorithm", default=None
)
option("--allow-plaintext", "accept files that are not encrypted as well")
option("--no-check-footer", "do not verify the signature of a plaintext footer", clears="check_footer_integrity")
option(
    "--length-policy trusted|metadata-hint|file",
    "for AGS1 files without a length in their key metadata, as iceberg-rust writes them: refuse them "
    "(trusted), use the length from the parent metadata (metadata-hint), or that of the file itself (file)",
)
option("--length BYTES", "trusted length of the one encrypted file, as `ags1 encrypt` said it", type=values.size)
option("--any-length", "accept files without a trusted length: blocks missing at the end of one go unnoticed")

option = _section("files")
option(
    "--files-from LIST",
    "read more sources from this file (`-`: standard input), one a line or ended by NUL; lines that start "
    "with # are left out",
)
option(
    "--include GLOB...",
    "only these files: a pattern without / is compared with each component of a path, one with / with all of "
    "it (may be repeated)",
)
option("--exclude GLOB...", "not these files (may be repeated)")
option(
    "--others error|copy|skip",
    "files that are not Parquet: refuse to begin (error), copy them as they are, or leave them out",
)
option(
    "--missing-columns fail|skip",
    "files that lack a column with a key: refuse to begin (fail), or encrypt those that a file has",
)
option("--prefix PATH", "directory in the dataset that SOURCE stands for", default="")
option("--delete", "remove from the new version files that the source no longer has")
option("--allow-empty", "let --delete remove all of them if the source has no files")
option("-r --recursive", "every file below, not one directory")
option("-l --long", "plaintext size beside each name")
option("-0 --null", "end each name with a null byte, and change no character of it, for `xargs -0`")
option("--sizes", "request the current size of each file")
option("--offset SIZE", "plaintext offset to start at (0), such as 4096 or 2G", type=values.size, default=0)
option("--bytes SIZE", "bytes of plaintext (to the end)", type=values.size)

option = _section("version")
option("--version N", "the version to show (the last one)", type=values.version)
option(
    "--snapshot ID",
    "the files of this snapshot, of all of them (all), or of the current one (current)",
    dest="snapshot_id",
    type=values.snapshot,
)
option("--ref NAME", "the newest snapshot of this branch or tag")
option(
    "--as-of TIME",
    "the snapshot that was current then: 2026-11-01, 2026-11-01T12:30 (UTC without zone)",
    type=values.moment,
)
option("--from-snapshot ID", "only the rows that were appended after this snapshot", type=values.snapshot_id)
option(
    "--to-snapshot ID", "with --from-snapshot, the last snapshot of those (the current one)", type=values.snapshot_id
)

option = _section("what stays")
option("--keep N", "last versions that always stay (1)", type=values.kept, default=1)
option("--keep ID...", "a key that is always kept (may be repeated)", name="keep-key", default=[])
option(
    "--older-than TIME",
    "keep versions that were replaced less than this time ago, such as 12h or 30d (5d); a run that takes longer fails",
    type=values.duration,
    default=5 * _DAY,
)
option(
    "--orphans-older-than TIME",
    "leave younger files alone that nothing names, which somebody may be about to commit: 12h (3d)",
    type=values.duration,
    default=3 * _DAY,
)
option(
    "--give-up VERSION",
    "remove this version and all before it, even unread: files that only they have are lost",
    type=int,
    default=0,
)
option(
    "--grace TIME",
    "keep objects that are in no version but younger than this: their writer may commit them (24h)",
    type=values.duration,
    default=_DAY,
)

option = _section("rows")
option("--columns COLUMNS", "only these columns, with commas; no keys of others", type=values.column_names)
option("--filter EXPRESSION", "only these rows: amount > 10 and country = 'CH'")
option("--limit N", "no more than N rows", type=values.rows)
option("-n --rows N", "how many rows to show (10)", type=values.rows, default=10)
option("--missing-keys error|drop", "columns whose key is missing: an error, or left out (error)")

option = _section("encryption")
option(
    "--footer-key-metadata TEXT",
    "stored in the file, not encrypted, for readers to find the footer key: text, or hex:DIGITS",
)
option(
    "--column-key-metadata COLUMNS=TEXT",
    "as --footer-key-metadata, for columns that have --column-key (may be repeated)",
    action=values.ColumnTexts,
    default=(),
)
option(
    "--key-metadata-out PATH",
    "write the key metadata (key, AAD prefix, length) here: a file, or for many sources a directory of "
    "NAME.key-metadata. Without a key, each file gets a fresh one",
)
option(
    "--replace-key-metadata",
    "let --key-metadata-out replace the only copy of another key: files under that key are lost",
)
option(
    "--block-length SIZE",
    "bytes of plaintext in a block (1M, the only length that Iceberg reads)",
    type=values.block_length,
    default=1 << 20,
)
option("--encrypt-all", "encrypt columns without a key of their own with the footer key")
option(
    "--algorithm AES_GCM_V1|AES_GCM_CTR_V1",
    "AES_GCM_V1, or AES_GCM_CTR_V1, which does not authenticate the contents of pages",
)
option("--plaintext-footer", "sign the footer instead of encrypting it: the schema stays readable")
option(
    "--data-page-v2 arrow|java",
    "form of V2 pages: arrow (PyArrow, arrow-rs, DuckDB) or java (Spark, Iceberg; plaintext levels); by "
    "default java for Iceberg's key metadata, else arrow",
    default=None,
)
option(
    "--no-store-aad-prefix", "do not store the prefix in the file: readers must supply it", clears="store_aad_prefix"
)
option("--shared-keys", "encrypt many files with the same given keys")
option(
    "--plaintext-columns COLUMNS",
    "columns that are encrypted and may become plaintext: name,city (may be repeated)",
    action=values.Names,
    type=values.column_names,
    default=(),
)
option(
    "--drop-bloom-filters",
    "leave the Bloom filters out; arrow-rs does not encrypt them, and such files are refused otherwise",
)

option = _section("files of the table")
option("--sort-by FIELD...", "sort the rows of each file by this field: 'ts desc nulls last' (may be repeated)")
option(
    "--target-size SIZE",
    "bytes of a new file, such as 256M (the table's property, else 512M)",
    dest="target_bytes",
    type=values.some_bytes,
)
option("--rewrite-all", "write files of the right size without deletes again too")
option("--partition-paths", "keep partition values in the paths of files, where everybody sees them")
option("--statistics drop|keep", "statistics files, which are never encrypted and tell of the data (drop)")
option("--enable-only", "encrypt only new files; existing files stay as they are")
option("--expire", "remove the snapshots and files from before, as `ags1 iceberg expire` does")

option = _section("new table")
option("--schema FILE", "columns of this Parquet, CSV or Arrow file, or Iceberg's JSON")
option("--partition-by FIELD...", "partition by this field: country, day(ts), bucket(16, id) (may be repeated)")
option("--location URL", "directory of the table (where the catalog puts it)")
option("--set NAME=VALUE", "a property of the table", dest="properties", action=values.Pair, default={})

option = _section("policy")
option(
    "--allow GLOB...",
    "these files may be plaintext: a pattern as for --include of other commands (may be repeated)",
)
option("--whole", "read all of each file that looks encrypted, not only samples of it")
option(
    "--require-encrypted COLUMNS",
    "columns that must be encrypted: ssn,salary (may be repeated)",
    action=values.Names,
    type=values.column_names,
    default=(),
)
option("--allow-unauthenticated-pages", "accept files whose pages, or levels of pages, have no tag")
option(
    "--expect NAME...",
    "name of a file, or of many: 'part-{0..99}.parquet'; other files are an error (may be repeated)",
    dest="expected",
)
option(
    "--expect-prefix TEXT...",
    "AAD prefix of a file, or of many: 'people.part{0..99}' (may be repeated)",
    dest="expected",
    type=os.fsencode,
)
option("--expect-from FILE", "names of all files, one a line")

option = _section("storage")
option(
    "--catalog NAME",
    "TABLE is the table's name, such as db.events, in this catalog of PyIceberg's configuration "
    "(.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI), or with --property uri=...",
)
option(
    "--allow-location URL...",
    "the table's files may also be below this path or URL; files elsewhere than the table are refused (may be "
    "repeated)",
    dest="allowed_locations",
    default=[],
)
option(
    "--moved-from URL",
    "TABLE is a copy, such as a backup, of a table that was in this directory: only the copy's own files are read",
)
option(
    "--property NAME=VALUE...",
    "for PyIceberg's FileIO and catalog: s3.endpoint=https://...; for a secret, give a variable: "
    "s3.secret-access-key=env:NAME (may be repeated)",
    default=[],
)
option(
    "--property NAME=VALUE",
    "for PyIceberg's FileIO; by default, Spark's configuration applies (may be repeated)",
    name="workers-property",
    action=values.Setting,
    dest="properties",
)
option(
    "--single-writer", "for a store without create-if-absent, or that ignores it: promise that there is no other writer"
)

option = _section("work")
option("--force", "replace an existing file")
option("--overwrite", "replace targets that exist")
option("--durable", "wait until each result is on the disk")
option(
    "--no-durable",
    "do not wait for the disk before the commit: a power cut may lose committed files (scratch data)",
    clears="durable",
)
option(
    "--resume",
    "skip files that an earlier run has finished: newer than the source, with the footer that this run would write",
)
option("--no-resume", "repeat the work that an interrupted run has done", clears="resume")
option(
    "--keep-going",
    "report files that fail, and continue with the others",
    action="store_const",
    dest="on_error",
    const="collect",
    default="fail",
)
option("--again", "encrypt what is encrypted already, too: AGS1 files, and datasets in the source")
option(
    "--attempts N",
    "how often to go on top of what other writers commit meanwhile (100)",
    type=values.attempts,
    default=100,
)
option("--dry-run", "make every check, report what would be done, and write nothing")
option("-y --yes", "do not ask for confirmation")
option("-j --jobs N", "files to work on at once (1 here, more in object stores)", type=values.threads)
option("--threads N", "threads to use (every CPU)", type=values.threads)
option("--threads N", "threads for each file (1)", name="workers-threads", type=values.threads, default=1)
option(
    "--part-bytes SIZE",
    "split larger files into ranges of this size, for several tasks (256M)",
    type=values.some_bytes,
    default=256 << 20,
)
option("--parallelism N", "tasks for each 100,000 files (as many as useful)", type=values.count)
option("--bits", "size of the key (256)", **_BITS, default=256)
option(
    "--bytes SIZE", "bytes of plaintext, such as 64M (256M)", name="sample", type=values.some_bytes, default=256 << 20
)
option("--save FILE", "add the figures to this file, one a line, as JSON")
option(
    "--baseline FILE",
    "compare with the last figures in this file: exit code 7 if one is slower, 8 if nobody can tell, 2 if "
    "another machine measured them",
)
option("--threshold PERCENT", "the smallest slow-down that matters (5)", type=values.percent, default=5.0)

option = _section("output")
option("--format table|csv|json", "form of rows (table)")
option(
    "--report FILE",
    "write a row for each file: FILE.parquet, or FILE.json[l] with one JSON object a line; each run replaces it",
    type=values.report,
)
option("--json", "JSON output: one object, or one object a line")
option("-q --quiet", "print errors only")
option("-v --verbose", "a line for each file, also if there are many")
option(
    "--progress auto|always|never", "a progress bar on a terminal; always also writes a line to a log every ten seconds"
)
option("--traceback", "show the traceback of errors, also from Java")

option = _section("on a cluster")
option("--spark", "run it on Spark; --spark --help shows the options that it has there")

option = _section("Spark, without spark-submit")
option("--master URL", "local[N], yarn, k8s://..., spark://... (as configured)")
option("--remote URL", "Spark Connect: sc://HOST:15002 (SPARK_REMOTE)")
option("--conf NAME=VALUE", "a setting of the session (may be repeated)", action=values.Setting)

BUNDLES = {
    "KEY": "key-file key-env key-metadata PREFIX",
    "PREFIX": "aad-prefix aad-prefix-hex",
    "LENGTH": "length any-length",
    "KMS": "kms password-file keystore-key-file",
    "FILES": "files-from overwrite durable",
    "CHOICE": "include exclude",
    "LIST": "json progress",
    "SAY": "quiet LIST",
    "ROWS": "format quiet progress",
    "WORK": "threads verbose SAY",
    "PINS": "expected-version expected-uuid expected-digest expected-dataset-key-id pin",
    "ENCRYPTION": "PREFIX encrypt-all algorithm plaintext-footer data-page-v2 no-store-aad-prefix",
    "MASTERS": "footer-key-id column-key-id single-wrapping data-key-bits",
    "PARQUET-ENCRYPTION": "footer-key column-key key-metadata footer-key-metadata column-key-metadata ENCRYPTION "
    "key-metadata-out replace-key-metadata shared-keys KMS MASTERS external-key-material",
    "PARQUET-DECRYPTION": "footer-key column-key key-for key-metadata PREFIX KMS expected-key-ids allow-plaintext "
    "no-check-footer",
    "REQUIREMENTS": "missing-keys require-encrypted allow-unauthenticated-pages",
    "TABLE": "catalog KMS expected-table-key-id PINNED allow-plaintext length-policy allow-location property",
    "PINNED": "expected-metadata-hash table-pin repin",
    "JOB": "spark json traceback master remote conf",
}

# Of each of these, one may be given.
EXCLUSIVE = (
    ("key-file", "key-env", "key-metadata"),
    ("aad-prefix", "aad-prefix-hex"),
    ("length", "any-length"),
    ("old-aad-prefix", "old-aad-prefix-hex"),
    ("snapshot", "ref", "as-of", "from-snapshot"),
    ("enable-only", "expire"),
)
