"""``ags1 dataset``, what only reads: ls, cat, verify, versions."""

from __future__ import annotations

import time
from argparse import Namespace

from ags1.cli.command import OnSpark, Positional
from ags1.cli.dataset.datasets import CLUSTER, dataset_command, opened
from ags1.cli.output import say, say_json
from ags1.cli.standard import copy_out, standard_output
from ags1.cli.verification import VERIFY_FIELDS, say_report
from ags1.support.exit_codes import UsageError
from ags1.support.typing import Any
from ags1.support.words import counted, size_text


@dataset_command(
    path=Positional("[PATH]", "directory or file in it", default=""),
    how="recursive long null",
    version="version",
    said="LIST",
    fields="path, type, plaintext_length, file_length",
)
def ls(
    where: Namespace,
    path: str,
    how: Namespace,
    version: int | None,
    said: Namespace,
) -> int:
    """Names are relative to the dataset; sizes are of the plaintext. Control characters of a name are shown as escapes,
    except with -0.

    examples:
      ags1 dataset ls vault/ -r -l
      ags1 dataset ls vault/ -r -0 | xargs -0 ags1 dataset cat vault/
      ags1 dataset ls vault/ day=7 --version 3
    """
    with opened(where, said, version=version) as (opened_one, reporter):
        path, files = path.strip("/"), opened_one.files
        if path and path in files:
            found: Any = iter([(path, files[path])])
        elif path and not files.is_directory(path):
            raise FileNotFoundError(2, "the dataset has no such file or directory", path)
        elif how.recursive:
            found = ((entry.path, entry) for entry in files.below(path))
        else:
            found = ((f"{path}/{name}" if path else name, entry) for name, entry in files.children(path))
        for name, entry in reporter.rows(found):
            if said.json:
                record = {"path": name, "type": "directory" if entry is None else "file"}
                if entry is not None:
                    record.update(plaintext_length=entry.plaintext_length, file_length=entry.file_length)
                say_json(record)
            else:
                size = ""
                if how.long:
                    size = f"{'-' if entry is None else f'{entry.plaintext_length:,}':>19}  "
                line = f"{size}{name}{'/' if entry is None else ''}"
                say(line, raw=how.null, end="\0" if how.null else "\n")
    return 0


@dataset_command(
    files=Positional("PATH...", "file in it"),
    offset="offset",
    size="bytes",
    version="version",
    said="quiet progress",
)
def cat(
    where: Namespace,
    files: list[str],
    offset: int,
    size: int | None,
    version: int | None,
    said: Namespace,
) -> int:
    """Nothing is written before it is authenticated, but what was written before a failure stays written.

    examples:
      ags1 dataset cat vault/ day=7/a.csv | head
      ags1 dataset cat s3://vault/2026/ big.log --offset 1G --bytes 64K
    """
    if len(files) > 1 and (offset or size is not None):
        raise UsageError("--offset and --bytes are for one file, but there are many")
    output = standard_output()
    words = ("decrypting", "decrypted")
    with opened(where, said, words, to_stdout=False, version=version) as (found, reporter):
        for path in files:
            with found.open(path) as reader:
                reader.seek(offset)
                copy_out(reader, output, size, reporter.progress_of(path))
    output.flush()
    return 0


@dataset_command(
    version="version",
    threads="threads",
    said="verbose SAY",
    fields=VERIFY_FIELDS,
    spark=OnSpark(
        "verify_files", {"source": ""}, f"workers-kms expected-dataset-key-id expected-version pin {CLUSTER}"
    ),
)
def verify(where: Namespace, version: int | None, threads: int | None, said: Namespace) -> int:
    """What interrupted runs have left is named, and is no fault. A whole directory that was put back from an older copy
    is authentic: only a pin shows that, such as --pin or --expected-version.

    examples:
      ags1 dataset verify vault/
      ags1 dataset verify vault/ --expected-version 12
    """
    started = time.monotonic()
    words = ("verifying", "verified")
    with opened(where, said, words, version=version, threads=threads) as (found, reporter):
        report = found.verify(threads=threads, progress=reporter.progress_of(where.vault))
    return say_report(said, report, started, f"version {report.facts['version']}")


@dataset_command(
    said="LIST",
    fields="uuid, version, operation, created_ms, files, plaintext_bytes, digest",
)
def versions(where: Namespace, said: Namespace) -> int:
    """Keep the last line elsewhere: its version or digest, as a pin, shows that an older copy was put back. --pin FILE
    does that by itself.

    examples:
      ags1 dataset versions vault/
    """
    with opened(where, said) as (opened_one, _):
        found = opened_one.versions()
        uuid = opened_one.uuid
    if not said.json:
        say(f"dataset {uuid}")
    for each in found:
        if said.json:
            names = ("uuid", "version", "operation", "created_ms", "plaintext_bytes", "digest")
            say_json({**{name: getattr(each, name) for name in names}, "files": each.file_count})
        else:
            when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(each.created_ms / 1000))
            what = f"{each.operation}, {counted(each.file_count, 'file')}, {size_text(each.plaintext_bytes)}"
            say(f"{each.version:>6}  {when}  {each.digest}  {what}")
    return 0
