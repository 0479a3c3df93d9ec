"""The options of all commands in one table. Each parser takes the options of its command by name.

A name is the option without its leading hyphens. If one flag has two meanings, the names differ and `flags` has the
flag. A name of :data:`BUNDLES` stands for several options; ``old-NAME`` is the option NAME for reading SOURCE.
"""

from __future__ import annotations

import os

from ags1.support import option_values as values
from ags1.support.typing import Any

_DAY = 24.0 * 3600
_FLAG = {"action": "store_true"}
_OFF = {"action": "store_false"}
_MANY = {"action": "append"}
_BITS = {"type": int, "choices": (128, 192, 256)}
_ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")

# Names by section of the help.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "key": {
        "key-file": {"metavar": "FILE", "help": "read the key from a file, or as file:PATH or env:NAME"},
        "key-env": {
            "metavar": "NAME",
            "help": "read the key from an environment variable, as hexadecimal or base64 text",
        },
        "key-metadata": {
            "metavar": "PATH",
            "help": "read key, AAD prefix and trusted length from a file, or for many files from a directory of "
            "NAME.key-metadata",
        },
        "footer-key": {"metavar": "KEY", "help": "key of the footer, file:PATH or env:NAME"},
        "column-key": {
            "action": values.ColumnKeys,
            "default": (),
            "metavar": "COLUMNS=KEY",
            "help": "key of some columns: ssn,salary=file:s.key (may be repeated)",
        },
        "key-for": {
            "action": values.MetadataKeys,
            "default": (),
            "metavar": "METADATA=KEY",
            "help": "key for the key metadata that a file contains: text, or hex:DIGITS (may be repeated)",
        },
        "aad-prefix": {
            "type": values.prefix_text,
            "metavar": "TEXT",
            "help": "identity of the file: reading needs the same value as encryption. {name} stands for the base "
            "name of the encrypted file, {path} for its path below the given directory, without .ags1",
        },
        "aad-prefix-hex": {
            "dest": "aad_prefix",
            "type": values.hexadecimal,
            "metavar": "HEX",
            "help": "the AAD prefix as hexadecimal bytes",
        },
    },
    "key management service": {
        "kms": {
            "metavar": "URL",
            "help": "URL of the service, such as local:PATH or aws:?region=R: `ags1 kms --help` lists them (AGS1_KMS)",
        },
        "password-file": {"metavar": "FILE", "help": "password of a local keystore (asked on a terminal)"},
        "keystore-key-file": {
            "flags": ("--key-file",),
            "metavar": "FILE",
            "help": "key file of a local keystore, instead of a password",
        },
        "new-password-file": {"metavar": "FILE", "help": "new password of the keystore (asked on a terminal)"},
        "new-keystore-key-file": {
            "flags": ("--new-key-file",),
            "dest": "new_key_file",
            "metavar": "FILE",
            "help": "new key file of the keystore, instead of a password",
        },
        "add-secret": {**_FLAG, "help": "leave the secret that it has, and let another open it too (for emergencies)"},
        "only-secret": {**_FLAG, "help": "remove the other secrets that open it, and keep the one that is given"},
        "old-versions": {
            **_FLAG,
            "help": "remove only the versions of the key that `rotate` replaced, not the key",
        },
        "workers-kms": {
            "flags": ("--kms",),
            "metavar": "URL",
            "help": "URL of the service, such as aws:?region=R or local:FILE?key_file=FILE: `ags1 kms --help` lists "
            "them; without secrets: driver and executors take those from their environment (AGS1_KMS)",
        },
        "new-kms": {"metavar": "URL", "help": "the service that has the new master key, if it is another one"},
        "cache-seconds": {
            "type": values.integer("a number of seconds"),
            "default": 600,
            "metavar": "N",
            "help": "how long a worker keeps key encryption keys (600)",
        },
    },
    "master keys": {
        "key-id": {"metavar": "ID", "help": "the master key"},
        "new-key-id": {"metavar": "ID", "help": "the new master key"},
        "new-key-ids": {
            "flags": ("--new-key-id",),
            "action": values.Pair,
            "metavar": "OLD=NEW",
            "help": "master key NEW instead of OLD; others keep their id, in its current version (may be repeated)",
        },
        "footer-key-id": {"metavar": "ID", "help": "master key of the footer keys"},
        "column-key-id": {
            "dest": "column_key_ids",
            "action": values.ColumnIds,
            "metavar": "COLUMNS=ID",
            "help": "master key of the keys of some columns: ssn,salary=alias/pii (may be repeated)",
        },
        "transfer-key-id": {"metavar": "ID", "help": "master key for what is sent to the workers (the table's)"},
        "single-wrapping": {
            "dest": "double_wrapping",
            **_OFF,
            "help": "one call for each key, without key encryption keys",
        },
        "external-key-material": {
            "dest": "internal_key_material",
            **_OFF,
            "help": "store the wrapped keys beside the file, in _KEY_MATERIAL_FOR_NAME.json",
        },
        "data-key-bits": {
            **_BITS,
            "default": 128,
            "metavar": "BITS",
            "help": "128, 192 or 256: size of the fresh keys (128)",
        },
        "table-data-key-bits": {
            "flags": ("--data-key-bits",),
            "dest": "data_key_length",
            "type": values.key_bytes,
            "metavar": "BITS",
            "help": "128, 192 or 256: size of the keys of files (the table's, or 128)",
        },
        "kek-bits": {**_BITS, "default": 128, "help": "size of key encryption keys (128)"},
        "kms-instance-id": {
            "default": "DEFAULT",
            "metavar": "TEXT",
            "help": "name of the KMS, which readers find in the file",
        },
        "kms-instance-url": {
            "default": "DEFAULT",
            "metavar": "TEXT",
            "help": "URL of the KMS, which readers find there",
        },
    },
    "trust": {
        "expected-version": {"type": values.version, "metavar": "N", "help": "refuse any other version"},
        "expected-uuid": {"metavar": "UUID", "help": "refuse any other dataset"},
        "expected-digest": {"metavar": "HEX", "help": "refuse any other content"},
        "expected-key-id": {"metavar": "ID", "help": "refuse what is under another master key"},
        "expected-key-ids": {
            "flags": ("--expected-key-id",),
            "dest": "expected_key_ids",
            "action": "append",
            "metavar": "ID",
            "help": "refuse keys that are under another master key; repeat it for several",
        },
        "expected-dataset-key-id": {
            "flags": ("--expected-key-id",),
            "dest": "key_id",
            "metavar": "ID",
            "help": "refuse what is under another master key",
        },
        "pin": {
            "metavar": "FILE",
            "help": "keep UUID, master key, version and digest in this file, outside of the dataset, and refuse what "
            "is not the same, or older; made if it is missing",
        },
        "table-pin": {
            "flags": ("--pin",),
            "dest": "pin",
            "metavar": "FILE",
            "help": "keep the hash of the table's metadata in this file, outside of the table, and refuse what others "
            "have committed since; made if it is missing",
        },
        "repin": {**_FLAG, "help": "accept the table as it is now, and write that to the file of --pin"},
        "expected-table-key-id": {
            "flags": ("--expected-key-id",),
            "dest": "table_key_id",
            "metavar": "ID",
            "help": "refuse a table that is under another master key",
        },
        "expected-metadata-hash": {
            "dest": "metadata_hash",
            "metavar": "BASE64",
            "help": "refuse a metadata file whose JSON text has another SHA-256; Hive's table parameter metadata_hash "
            "has it",
        },
        "expected-algorithm": {"dest": "algorithm", "choices": _ALGORITHMS, "help": "refuse files with the other one"},
        "allow-plaintext": {**_FLAG, "help": "accept files that are not encrypted as well"},
        "no-check-footer": {
            "dest": "check_footer_integrity",
            **_OFF,
            "help": "do not verify the signature of a plaintext footer",
        },
        "length-policy": {
            "choices": ("trusted", "metadata-hint", "file"),
            "default": "trusted",
            "help": "for AGS1 files without a length in their key metadata, as iceberg-rust writes them: refuse them "
            "(trusted), use the length from the parent metadata (metadata-hint), or that of the file itself (file)",
        },
        "length": {
            "type": values.size,
            "metavar": "BYTES",
            "help": "trusted length of the one encrypted file, as `ags1 encrypt` said it",
        },
        "any-length": {
            **_FLAG,
            "help": "accept files without a trusted length: blocks missing at the end of one go unnoticed",
        },
    },
    "files": {
        "files-from": {
            "metavar": "LIST",
            "help": "read more sources from this file (`-`: standard input), one a line or ended by NUL; lines that "
            "start with # are left out",
        },
        "include": {
            **_MANY,
            "metavar": "GLOB",
            "help": "only these files: a pattern without / is compared with each component of a path, one with / with "
            "all of it (may be repeated)",
        },
        "exclude": {**_MANY, "metavar": "GLOB", "help": "not these files (may be repeated)"},
        "others": {
            "choices": ("error", "copy", "skip"),
            "default": "error",
            "help": "files that are not Parquet: refuse to begin (error), copy them as they are, or leave them out",
        },
        "missing-columns": {
            "choices": ("fail", "skip"),
            "default": "fail",
            "help": "files that lack a column with a key: refuse to begin (fail), or encrypt those that a file has",
        },
        "prefix": {"metavar": "PATH", "default": "", "help": "directory in the dataset that SOURCE stands for"},
        "delete": {**_FLAG, "help": "remove from the new version files that the source no longer has"},
        "allow-empty": {**_FLAG, "help": "let --delete remove all of them if the source has no files"},
        "recursive": {"flags": ("-r", "--recursive"), **_FLAG, "help": "every file below, not one directory"},
        "long": {"flags": ("-l", "--long"), **_FLAG, "help": "plaintext size beside each name"},
        "null": {
            "flags": ("-0", "--null"),
            **_FLAG,
            "help": "end each name with a null byte, and change no character of it, for `xargs -0`",
        },
        "sizes": {**_FLAG, "help": "request the current size of each file"},
        "offset": {
            "type": values.size,
            "default": 0,
            "metavar": "SIZE",
            "help": "plaintext offset to start at (0), such as 4096 or 2G",
        },
        "bytes": {"type": values.size, "metavar": "SIZE", "help": "bytes of plaintext (to the end)"},
    },
    "version": {
        "version": {"type": values.version, "metavar": "N", "help": "the version to show (the last one)"},
        "snapshot": {
            "dest": "snapshot_id",
            "type": values.snapshot,
            "metavar": "ID",
            "help": "the files of this snapshot, of all of them (all), or of the current one (current)",
        },
        "ref": {"metavar": "NAME", "help": "the newest snapshot of this branch or tag"},
        "as-of": {
            "type": values.moment,
            "metavar": "TIME",
            "help": "the snapshot that was current then: 2026-11-01, 2026-11-01T12:30 (UTC without zone)",
        },
        "from-snapshot": {
            "type": values.snapshot_id,
            "metavar": "ID",
            "help": "only the rows that were appended after this snapshot",
        },
        "to-snapshot": {
            "type": values.snapshot_id,
            "metavar": "ID",
            "help": "with --from-snapshot, the last snapshot of those (the current one)",
        },
    },
    "what stays": {
        "keep": {"type": values.kept, "default": 1, "metavar": "N", "help": "last versions that always stay (1)"},
        "keep-key": {
            "flags": ("--keep",),
            **_MANY,
            "default": [],
            "metavar": "ID",
            "help": "a key that is always kept (may be repeated)",
        },
        "older-than": {
            "type": values.duration,
            "metavar": "TIME",
            "default": 5 * _DAY,
            "help": "keep versions that were replaced less than this time ago, such as 12h or 30d (5d); a run that "
            "takes longer fails",
        },
        "orphans-older-than": {
            "type": values.duration,
            "metavar": "TIME",
            "default": 3 * _DAY,
            "help": "leave younger files alone that nothing names, which somebody may be about to commit: 12h (3d)",
        },
        "give-up": {
            "type": int,
            "default": 0,
            "metavar": "VERSION",
            "help": "remove this version and all before it, even unread: files that only they have are lost",
        },
        "grace": {
            "type": values.duration,
            "default": _DAY,
            "metavar": "TIME",
            "help": "keep objects that are in no version but younger than this: their writer may commit them (24h)",
        },
    },
    "rows": {
        "columns": {
            "type": values.column_names,
            "metavar": "COLUMNS",
            "help": "only these columns, with commas; no keys of others",
        },
        "filter": {"metavar": "EXPRESSION", "help": "only these rows: amount > 10 and country = 'CH'"},
        "limit": {"type": values.rows, "metavar": "N", "help": "no more than N rows"},
        "rows": {
            "flags": ("-n", "--rows"),
            "type": values.rows,
            "default": 10,
            "metavar": "N",
            "help": "how many rows to show (10)",
        },
        "missing-keys": {
            "choices": ("error", "drop"),
            "default": "error",
            "help": "columns whose key is missing: an error, or left out (error)",
        },
    },
    "encryption": {
        "footer-key-metadata": {
            "metavar": "TEXT",
            "help": "stored in the file, not encrypted, for readers to find the footer key: text, or hex:DIGITS",
        },
        "column-key-metadata": {
            "action": values.ColumnTexts,
            "default": (),
            "metavar": "COLUMNS=TEXT",
            "help": "as --footer-key-metadata, for columns that have --column-key (may be repeated)",
        },
        "key-metadata-out": {
            "metavar": "PATH",
            "help": "write the key metadata (key, AAD prefix, length) here: a file, or for many sources a directory of "
            "NAME.key-metadata. Without a key, each file gets a fresh one",
        },
        "replace-key-metadata": {
            **_FLAG,
            "help": "let --key-metadata-out replace the only copy of another key: files under that key are lost",
        },
        "block-length": {
            "type": values.block_length,
            "default": 1 << 20,
            "metavar": "SIZE",
            "help": "bytes of plaintext in a block (1M, the only length that Iceberg reads)",
        },
        "encrypt-all": {**_FLAG, "help": "encrypt columns without a key of their own with the footer key"},
        "algorithm": {
            "choices": _ALGORITHMS,
            "default": "AES_GCM_V1",
            "help": "AES_GCM_V1, or AES_GCM_CTR_V1, which does not authenticate the contents of pages",
        },
        "plaintext-footer": {**_FLAG, "help": "sign the footer instead of encrypting it: the schema stays readable"},
        "data-page-v2": {
            "choices": ("arrow", "java"),
            "help": "form of V2 pages: arrow (PyArrow, arrow-rs, DuckDB) or java (Spark, Iceberg; plaintext levels); "
            "by default java for Iceberg's key metadata, else arrow",
        },
        "no-store-aad-prefix": {
            "dest": "store_aad_prefix",
            **_OFF,
            "help": "do not store the prefix in the file: readers must supply it",
        },
        "shared-keys": {**_FLAG, "help": "encrypt many files with the same given keys"},
        "plaintext-columns": {
            "action": values.Names,
            "type": values.column_names,
            "default": (),
            "metavar": "COLUMNS",
            "help": "columns that are encrypted and may become plaintext: name,city (may be repeated)",
        },
        "drop-bloom-filters": {
            **_FLAG,
            "help": "leave the Bloom filters out; arrow-rs does not encrypt them, and such files are refused otherwise",
        },
    },
    "files of the table": {
        "sort-by": {
            **_MANY,
            "metavar": "FIELD",
            "help": "sort the rows of each file by this field: 'ts desc nulls last' (may be repeated)",
        },
        "target-size": {
            "dest": "target_size",
            "type": values.some_bytes,
            "metavar": "SIZE",
            "help": "bytes of a new file, such as 256M (the table's property, else 512M)",
        },
        "rewrite-all": {**_FLAG, "help": "write files of the right size without deletes again too"},
        "partition-paths": {**_FLAG, "help": "keep partition values in the paths of files, where everybody sees them"},
        "statistics": {
            "choices": ("drop", "keep"),
            "default": "drop",
            "help": "statistics files, which are never encrypted and tell of the data (drop)",
        },
        "enable-only": {**_FLAG, "help": "encrypt only new files; existing files stay as they are"},
        "expire": {**_FLAG, "help": "remove the snapshots and files from before, as `ags1 iceberg expire` does"},
    },
    "new table": {
        "schema": {"metavar": "FILE", "help": "columns of this Parquet, CSV or Arrow file, or Iceberg's JSON"},
        "partition-by": {
            **_MANY,
            "metavar": "FIELD",
            "help": "partition by this field: country, day(ts), bucket(16, id) (may be repeated)",
        },
        "location": {"metavar": "URL", "help": "directory of the table (where the catalog puts it)"},
        "set": {"action": values.Pair, "default": {}, "metavar": "NAME=VALUE", "help": "a property of the table"},
    },
    "policy": {
        "allow": {
            **_MANY,
            "metavar": "GLOB",
            "help": "these files may be plaintext: a pattern as for --include of other commands (may be repeated)",
        },
        "whole": {**_FLAG, "help": "read all of each file that looks encrypted, not only samples of it"},
        "require-encrypted": {
            "action": values.Names,
            "type": values.column_names,
            "default": (),
            "metavar": "COLUMNS",
            "help": "columns that must be encrypted: ssn,salary (may be repeated)",
        },
        "allow-unauthenticated-pages": {
            **_FLAG,
            "help": "accept files whose pages, or levels of pages, have no tag",
        },
        "expect": {
            **_MANY,
            "dest": "expected",
            "metavar": "NAME",
            "help": "name of a file, or of many: 'part-{0..99}.parquet'; other files are an error (may be repeated)",
        },
        "expect-prefix": {
            **_MANY,
            "dest": "expected",
            "type": os.fsencode,
            "metavar": "TEXT",
            "help": "AAD prefix of a file, or of many: 'people.part{0..99}' (may be repeated)",
        },
        "expect-from": {"metavar": "FILE", "help": "names of all files, one a line"},
    },
    "storage": {
        "catalog": {
            "metavar": "NAME",
            "help": "TABLE is the table's name, such as db.events, in this catalog of PyIceberg's configuration "
            "(.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI), or with --property uri=...",
        },
        "allow-location": {
            "dest": "allowed_locations",
            **_MANY,
            "default": [],
            "metavar": "URL",
            "help": "the table's files may also be below this path or URL; files elsewhere than the table are refused "
            "(may be repeated)",
        },
        "moved-from": {
            "metavar": "URL",
            "help": "TABLE is a copy, such as a backup, of a table that was in this directory: only the copy's own "
            "files are read",
        },
        "property": {
            **_MANY,
            "default": [],
            "metavar": "NAME=VALUE",
            "help": "for PyIceberg's FileIO and catalog: s3.endpoint=https://...; for a secret, give a variable: "
            "s3.secret-access-key=env:NAME (may be repeated)",
        },
        "workers-property": {
            "flags": ("--property",),
            "dest": "properties",
            "action": values.Setting,
            "metavar": "NAME=VALUE",
            "help": "for PyIceberg's FileIO; by default, Spark's configuration applies (may be repeated)",
        },
        "single-writer": {
            **_FLAG,
            "help": "for a store without create-if-absent, or that ignores it: promise that there is no other writer",
        },
    },
    "work": {
        "force": {**_FLAG, "help": "replace an existing file"},
        "overwrite": {**_FLAG, "help": "replace targets that exist"},
        "durable": {**_FLAG, "help": "wait until each result is on the disk"},
        "no-durable": {
            "dest": "durable",
            **_OFF,
            "help": "do not wait for the disk before the commit: a power cut may lose committed files (scratch data)",
        },
        "resume": {
            **_FLAG,
            "help": "skip files that an earlier run has finished: newer than the source, with the footer that this run "
            "would write",
        },
        "no-resume": {"dest": "resume", **_OFF, "help": "repeat the work that an interrupted run has done"},
        "keep-going": {
            "dest": "on_error",
            "action": "store_const",
            "const": "collect",
            "default": "fail",
            "help": "report files that fail, and continue with the others",
        },
        "again": {**_FLAG, "help": "encrypt what is encrypted already, too: AGS1 files, and datasets in the source"},
        "attempts": {
            "type": values.attempts,
            "default": 100,
            "metavar": "N",
            "help": "how often to go on top of what other writers commit meanwhile (100)",
        },
        "dry-run": {**_FLAG, "help": "make every check, report what would be done, and write nothing"},
        "yes": {"flags": ("-y", "--yes"), **_FLAG, "help": "do not ask for confirmation"},
        "jobs": {
            "flags": ("-j", "--jobs"),
            "type": values.threads,
            "metavar": "N",
            "help": "files to work on at once (1 here, more in object stores)",
        },
        "threads": {"type": values.threads, "metavar": "N", "help": "threads to use (every CPU)"},
        "workers-threads": {
            "flags": ("--threads",),
            "type": values.threads,
            "default": 1,
            "metavar": "N",
            "help": "threads for each file (1)",
        },
        "part-bytes": {
            "type": values.some_bytes,
            "default": 256 << 20,
            "metavar": "SIZE",
            "help": "split larger files into ranges of this size, for several tasks (256M)",
        },
        "parallelism": {
            "type": values.count,
            "metavar": "N",
            "help": "tasks for each 100,000 files (as many as useful)",
        },
        "bits": {**_BITS, "default": 256, "help": "size of the key (256)"},
        "sample": {
            "flags": ("--bytes",),
            "type": values.some_bytes,
            "default": 256 << 20,
            "metavar": "SIZE",
            "help": "bytes of plaintext, such as 64M (256M)",
        },
        "save": {"metavar": "FILE", "help": "add the figures to this file, one a line, as JSON"},
        "baseline": {
            "metavar": "FILE",
            "help": "compare with the last figures in this file: exit code 7 if one is slower, 8 if nobody can tell, 2 "
            "if another machine measured them",
        },
        "threshold": {
            "type": values.percent,
            "default": 5.0,
            "metavar": "PERCENT",
            "help": "the smallest slow-down that matters (5)",
        },
    },
    "output": {
        "format": {"choices": ("table", "csv", "json"), "default": "table", "help": "form of rows (table)"},
        "output": {
            "flags": ("-o", "--output"),
            "metavar": "FILE",
            "help": "write to this file instead of standard output",
        },
        "report": {
            "type": values.report,
            "metavar": "FILE",
            "help": "write a row for each file: FILE.parquet, or FILE.json[l] with one JSON object a line; each run "
            "replaces it",
        },
        "json": {**_FLAG, "help": "JSON output: one object, or one object a line"},
        "quiet": {"flags": ("-q", "--quiet"), **_FLAG, "help": "print errors only"},
        "verbose": {"flags": ("-v", "--verbose"), **_FLAG, "help": "a line for each file, also if there are many"},
        "progress": {
            "choices": ("auto", "always", "never"),
            "default": "auto",
            "help": "a progress bar on a terminal; always also writes a line to a log every ten seconds",
        },
        "traceback": {**_FLAG, "help": "show the traceback of errors, also from Java"},
    },
    "on a cluster": {
        "spark": {
            **_FLAG,
            "help": "run it on Spark; --spark --help shows the options that it has there",
        },
    },
    "Spark, without spark-submit": {
        "master": {"metavar": "URL", "help": "local[N], yarn, k8s://..., spark://... (as configured)"},
        "remote": {"metavar": "URL", "help": "Spark Connect: sc://HOST:15002 (SPARK_REMOTE)"},
        "conf": {
            "action": values.Setting,
            "metavar": "NAME=VALUE",
            "help": "a setting of the session (may be repeated)",
        },
    },
}

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
    "PINS": "expected-version expected-uuid expected-digest expected-key-id pin",
    "ENCRYPTION": "PREFIX encrypt-all algorithm plaintext-footer data-page-v2 no-store-aad-prefix",
    "MASTERS": "footer-key-id column-key-id single-wrapping data-key-bits",
    "PARQUET-ENCRYPTION": "footer-key column-key key-metadata footer-key-metadata column-key-metadata ENCRYPTION "
    "key-metadata-out replace-key-metadata shared-keys KMS MASTERS external-key-material",
    "PARQUET-DECRYPTION": "footer-key column-key key-for key-metadata PREFIX KMS expected-key-ids allow-plaintext "
    "no-check-footer",
    "REQUIREMENTS": "missing-keys require-encrypted allow-unauthenticated-pages expect expect-prefix",
    "TABLE": "catalog KMS expected-table-key-id PINNED allow-plaintext length-policy allow-location property",
    "PINNED": "expected-metadata-hash table-pin repin",
    "CONVERSION": "catalog KMS PINNED allow-location property dry-run yes SAY",
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
