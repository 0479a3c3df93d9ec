"""The actions of ``ags1 dataset``: what each takes, and its help."""

from __future__ import annotations

from collections.abc import Callable

from ags1.cli.grammar.parser import DATASET, lazily
from ags1.support.command_line import CommandParser, OnSpark
from ags1.support.option_values import directory, version
from ags1.support.typing import Any

_HELP = """\
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
_RUN = (
    "dataset, version, changed, done, done_bytes, unchanged, resumed, repaired, removed, others, excluded, skipped, "
    "notes, errors, seconds, dry_run, paths (in a dry run), error"
)
_REWRAP = "dataset, version, old_key_id, new_key_id, older_versions, unfinished_runs, dry_run, error"
_SOURCE: dict[str, tuple[Any, ...]] = {"source": ("SOURCE", "directory or file, or a URL", {"type": directory})}
_NUMBER = {"type": version}
_PATHS = {"files": ("PATH...", "file or directory in it")}
_OPEN = "KMS PINS"
ON_SPARK = ("clean",)
_JOB = "part-bytes parallelism quiet report"
_CALLS = {"default": 20, "help": "how often to begin again when other writers commit meanwhile (20)"}


def command_parser(only: str | None = None, on_spark: bool = False) -> CommandParser:
    """The parser of all actions, or with the options of one alone."""
    parser = CommandParser(
        prog="ags1 dataset",
        what="ACTION",
        description="Encrypt directories of files, each under a master key, and work with them.",
        epilog=_HELP,
        only=only,
        on_spark=on_spark,
    )

    def action(name: str, run: str, *arguments: Any, **settings: Any) -> None:
        parser.add_command(name, *arguments, run=lazily(run), subject=("dataset", "vault"), **settings)

    _add_writing(action)
    _add_reading(action)
    if on_spark:
        action(
            "clean",
            "",
            DATASET,
            "remove what interrupted runs left at a dataset: their records, and with --kms their objects",
            spark=OnSpark("clean", {"target": ""}, "workers-kms pin grace dry-run yes"),
            more="The files stay as they are. To resume a run, with the same command, costs less than to start again. "
            "Without --yes nothing is removed; --dry-run says what would be.",
        )
    return parser


def _add_writing(action: _Action) -> None:
    action(
        "encrypt",
        "dataset.datasets:encrypt",
        _SOURCE | {"vault": ("TARGET", "directory or URL of the dataset; made if it is missing", {"type": directory})},
        "encrypt a directory into a dataset, or bring a dataset up to date",
        "key-id KMS pin CHOICE delete allow-empty keep-going dry-run no-resume again no-durable single-writer "
        "attempts WORK",
        spark=OnSpark(
            "encrypt_files",
            {"source": "", "target": ""},
            f"key-id! workers-kms pin CHOICE again single-writer keep-going no-resume {_JOB}",
        ),
        more="A new dataset needs --key-id. Each file gets a key of its own. Only what is new, changed or not whole is "
        "encrypted, and what an "
        "interrupted run has done is taken over. Files that the source has no more stay, unless --delete is given, "
        "which refuses a source without any; "
        "those that --include and --exclude leave out stay in any case. Nothing is seen of it before all of it is "
        "there.",
        fields=_RUN,
        examples="""\
export AGS1_KMS=local:keys.json
ags1 dataset encrypt raw/ vault/ --key-id lake
ags1 dataset encrypt raw/ vault/ --key-id lake --delete --dry-run
ags1 dataset encrypt s3://raw/2026/ s3://vault/2026/ --key-id alias/lake \\
    --kms 'aws:?region=eu-central-1'""",
    )
    action(
        "add",
        "dataset.datasets:add",
        DATASET | _SOURCE,
        "add files to a dataset that is there",
        f"prefix {_OPEN} CHOICE keep-going dry-run again no-resume no-durable attempts WORK",
        more="Only what is named is looked at, so the cost does not grow with the dataset.",
        fields=_RUN,
        examples="""\
ags1 dataset add vault/ today/ --prefix day=7
ags1 dataset add s3://vault/2026/ report.csv""",
    )
    action(
        "rm",
        "dataset.datasets:rm",
        DATASET | _PATHS,
        "make a version without some files",
        f"{_OPEN} attempts dry-run SAY",
        more="A directory stands for all that is below it. Older versions keep the files until `ags1 dataset expire`.",
        fields=_RUN,
        examples="ags1 dataset rm vault/ day=7 report.csv --dry-run",
    )
    action(
        "restore",
        "dataset.datasets:restore",
        DATASET | {"number": ("VERSION", "number of a version", _NUMBER)},
        "make a version that has the files of an older one, and no others",
        f"{_OPEN} attempts dry-run SAY",
        more="Its objects are used again.",
        fields=_RUN,
        examples="""\
ags1 dataset versions vault/
ags1 dataset restore vault/ 3 --dry-run
ags1 dataset restore vault/ 3""",
    )
    action(
        "repair",
        "dataset.datasets:repair",
        DATASET | {"source": ("SOURCE", "directory or URL that the dataset was made from", {"type": directory})},
        "encrypt again, from the source, what is missing or not authentic",
        f"prefix {_OPEN} attempts dry-run WORK",
        more="Every file is verified first. A file whose source has changed since is an error: encrypt that instead.",
        fields=_RUN,
        examples="""\
ags1 dataset repair vault/ raw/ --dry-run
ags1 dataset repair vault/ raw/""",
    )
    action(
        "rewrap",
        "dataset.datasets:rewrap",
        DATASET,
        "put a dataset under another master key; no file changes",
        f"new-key-id! new-kms {_OPEN} attempts dry-run SAY",
        spark=OnSpark("rewrap", {"target": ""}, "new-key-id! workers-kms new-kms pin dry-run"),
        more="Keep the old master key until this has succeeded and `ags1 dataset expire` has removed the older "
        "versions; whoever has a copy of those still needs it.",
        fields=_REWRAP,
        changes={"attempts": _CALLS},
        examples="""\
ags1 dataset rewrap vault/ --new-key-id lake-2027 --dry-run
ags1 dataset rewrap vault/ --new-key-id lake-2027""",
    )
    action(
        "expire",
        "dataset.datasets:expire",
        DATASET,
        "remove old versions, and what no version needs any more",
        f"keep older-than grace give-up {_OPEN} attempts dry-run yes SAY",
        more="That includes what interrupted runs have left. No committed file is ever lost: a run that is given up "
        "can commit nothing afterwards. It asks first.",
        fields="dataset, version, versions, kept, objects, object_bytes, young_objects, dry_run, error",
        examples="""\
ags1 dataset expire vault/ --keep 5 --older-than 30d --dry-run
ags1 dataset expire vault/ --keep 1 --older-than 0s --yes""",
    )


def _add_reading(action: _Action) -> None:
    action(
        "ls",
        "dataset.show:ls",
        DATASET | {"path": ("[PATH]", "directory or file in it", {"default": ""})},
        "list the files of a dataset",
        f"recursive long null version {_OPEN} LIST",
        more="Names are relative to the dataset; sizes are of the plaintext. Control characters of a name are shown as "
        "escapes, except with -0.",
        fields="path, type, plaintext_length, file_length",
        examples="""\
ags1 dataset ls vault/ -r -l
ags1 dataset ls vault/ -r -0 | xargs -0 ags1 dataset cat vault/
ags1 dataset ls vault/ day=7 --version 3""",
    )
    action(
        "cat",
        "dataset.show:cat",
        DATASET | {"files": ("PATH...", "file in it")},
        "decrypt files of a dataset to standard output, whole or a range",
        f"offset bytes version {_OPEN} quiet progress",
        more="Nothing is written before it is authenticated, but what was written before a failure stays written.",
        examples="""\
ags1 dataset cat vault/ day=7/a.csv | head
ags1 dataset cat s3://vault/2026/ big.log --offset 1G --bytes 64K""",
    )
    action(
        "verify",
        "dataset.show:verify",
        DATASET,
        "authenticate every file; name what is missing, swapped, damaged or foreign",
        f"version {_OPEN} WORK",
        spark=OnSpark(
            "verify_files", {"source": ""}, f"workers-kms expected-dataset-key-id expected-version pin {_JOB}"
        ),
        more="What interrupted runs have left is named, and is no fault. A whole directory that was put back from an "
        "older copy is authentic: only a pin shows that, such as --pin or --expected-version.",
        fields="dataset, version, files, plaintext_bytes, problems (path, kind, detail), seconds, created, ags1, error",
        examples="""\
ags1 dataset verify vault/
ags1 dataset verify vault/ --expected-version 12""",
    )
    action(
        "decrypt",
        "dataset.datasets:decrypt",
        DATASET | {"plain": ("TARGET", "directory or URL; made if it is missing", {"type": directory})},
        "decrypt a dataset into a directory",
        f"version {_OPEN} CHOICE keep-going dry-run durable overwrite WORK",
        spark=OnSpark(
            "decrypt_files",
            {"source": "", "target": ""},
            "workers-kms expected-dataset-key-id expected-version pin CHOICE keep-going no-resume overwrite " + _JOB,
        ),
        more="Files of the same names in TARGET that differ are refused before anything is written, unless --overwrite "
        "is given; those of the same length and time, as of an earlier run, stay as they are. Files have the modes and "
        "times of the sources, directories their modes. Nothing is written through a link.",
        fields=_RUN,
        examples="""\
ags1 dataset decrypt vault/ plain/ --include 'day=7/*'
ags1 dataset decrypt s3://vault/2026/ plain/ --version 3""",
    )
    action(
        "versions",
        "dataset.show:versions",
        DATASET,
        "list the versions that are kept, each with its digest",
        f"{_OPEN} LIST",
        more="Keep the last line elsewhere: its version or digest, as a pin, shows that an older copy was put back. "
        "--pin FILE does that by itself.",
        fields="uuid, version, operation, created_ms, files, plaintext_bytes, digest",
        examples="ags1 dataset versions vault/",
    )


_Action = Callable[..., None]
