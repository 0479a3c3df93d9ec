"""Options that several commands of ``python -m ags1.spark`` have, and what their values may be."""

from __future__ import annotations

import argparse
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Patterns",
    "Setting",
    "add_cache",
    "add_choice",
    "add_decryption",
    "add_encryption",
    "add_job",
    "add_kms",
    "add_losses",
    "add_places",
    "add_requirements",
    "add_threads",
    "add_trust",
    "add_work",
    "count",
    "is_secret_name",
    "seconds",
    "snapshot",
]

_PART_BYTES = 256 << 20
_CACHE_SECONDS = 600.0
_REPORT_ENDINGS = (".parquet", ".json", ".jsonl")
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
_SECRET = re.compile(r"secret|passw|passphrase|account\.key|session[.-]?token|sas[.-]token", re.IGNORECASE)
# Kubernetes' own "secrets" are names of things; and the name of a file, or of a class, is none.
_NO_SECRET = re.compile(r"^spark\.kubernetes\.|(file|path|provider|class|enabled)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name would be a secret, which others could read among the arguments."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


def add_places(parser: argparse.ArgumentParser, source: str | None, target: str | None = None) -> None:
    group = parser.add_argument_group("places: paths that all executors see, or URLs (s3a://, gs://, abfss://, ...)")
    if source is not None:
        group.add_argument("--source", metavar="PLACE", help=source)
    if target is not None:
        group.add_argument("--target", metavar="PLACE", help=target)


def add_kms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kms",
        metavar="URL",
        help="aws:?region=R, gcp:, azure:https://..., vault:https://..., local:FILE?key_file=FILE or "
        "module:package.Class; without secrets, which driver and executors find for themselves (AGS1_KMS)",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trust")
    group.add_argument("--key-id", metavar="ID", help="refuse the dataset if it is under another master key")
    group.add_argument(
        "--expected-version", type=_version, metavar="N", help="refuse the dataset if it has another version"
    )


def add_choice(parser: argparse.ArgumentParser, *, others: bool = False) -> None:
    group = parser.add_argument_group("files")
    group.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="only these files: a pattern without / is compared with each component of a path, one with / with all "
        "of it (may be repeated)",
    )
    group.add_argument("--exclude", action="append", metavar="GLOB", help="not these files (may be repeated)")
    if others:
        group.add_argument(
            "--others",
            choices=("error", "copy", "skip"),
            default="error",
            help="files that are not Parquet: refuse to begin (error), copy them as they are, or leave them out",
        )


def add_work(
    parser: argparse.ArgumentParser,
    *,
    cuts: bool = False,
    on_error: str | None = None,
    resume: bool = False,
    progress: bool = True,
) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("work")
    if cuts:
        group.add_argument(
            "--part-bytes",
            type=_size,
            default=_PART_BYTES,
            metavar="SIZE",
            help="larger files are cut into ranges of so many bytes, for many tasks (256M)",
        )
    group.add_argument("--parallelism", type=count, metavar="N", help="tasks of 100,000 files (as many as are useful)")
    if on_error is not None:
        group.add_argument(
            "--on-error",
            choices=("fail", "collect"),
            default=on_error,
            help=f"end at the first file that fails, or report it and go on ({on_error})",
        )
    if resume:
        group.add_argument(
            "--no-resume", action="store_false", dest="resume", help="do again what an interrupted run has done already"
        )
    if progress:
        group.add_argument("-q", "--quiet", action="store_false", dest="progress", help="say nothing but errors")
    return group


def add_threads(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--threads", type=count, default=1, metavar="N", help="threads for each file (1)")


def add_encryption(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("master keys")
    group.add_argument("--footer-key-id", metavar="ID", help="master key of the footer keys")
    group.add_argument(
        "--column-key-id",
        action=_Columns,
        dest="column_key_ids",
        metavar="COLUMNS=ID",
        help="master key of the keys of some columns: ssn,salary=alias/pii (may be repeated)",
    )
    group.add_argument(
        "--single-wrapping",
        action="store_false",
        dest="double_wrapping",
        help="one call for each key, without key encryption keys",
    )
    group.add_argument("--kek-bits", type=int, choices=(128, 192, 256), default=128, help="size of these (128)")
    group.add_argument("--kms-instance-id", default="DEFAULT", metavar="TEXT", help="written in the file, for readers")
    group.add_argument("--kms-instance-url", default="DEFAULT", metavar="TEXT", help="the same")
    group = parser.add_argument_group("encryption")
    group.add_argument("--data-key-bits", type=int, choices=(128, 192, 256), default=128, help="size of keys (128)")
    group.add_argument(
        "--encrypt-all", action="store_true", help="encrypt the columns that have no key of their own with the footer's"
    )
    group.add_argument(
        "--algorithm",
        choices=("AES_GCM_V1", "AES_GCM_CTR_V1"),
        default="AES_GCM_V1",
        help="AES_GCM_V1, or AES_GCM_CTR_V1, which does not authenticate what is in pages",
    )
    group.add_argument(
        "--plaintext-footer", action="store_true", help="sign the footer instead: everybody sees the schema"
    )
    group.add_argument(
        "--data-page-v2",
        choices=("java", "arrow"),
        default="java",
        help="form of V2 pages: java (Spark, Iceberg), arrow (PyArrow, arrow-rs, DuckDB)",
    )
    _add_prefix(group, "", "the file: text, in which {name} is the base name of the file and {path} its path")
    group.add_argument(
        "--no-store-aad-prefix",
        action="store_false",
        dest="store_aad_prefix",
        help="leave the prefix out of the file: readers must bring it",
    )


def add_decryption(parser: argparse.ArgumentParser, *, old: bool = False) -> None:
    dash, of = ("old-", "the source: ") if old else ("", "")
    group = parser.add_argument_group("decryption")
    _add_prefix(group, dash, "the source: another file is refused" if old else "the file: another file is refused")
    group.add_argument(
        f"--{dash}algorithm", choices=("AES_GCM_V1", "AES_GCM_CTR_V1"), help=f"{of}refuse files of the other one"
    )
    group.add_argument(
        f"--{dash}no-check-footer",
        action="store_false",
        dest="check_footer_integrity",
        help=f"{of}do not verify the signature of a plaintext footer",
    )
    group.add_argument("--allow-plaintext", action="store_true", help="take files that are not encrypted, too")


def add_losses(parser: argparse.ArgumentParser, *, rekeying: bool) -> None:
    """What the target loses."""
    group = parser.add_argument_group("what the target loses")
    if rekeying:
        group.add_argument(
            "--plaintext-columns",
            action=_Names,
            default=(),
            metavar="COLUMNS",
            help="columns that are encrypted and may become plaintext: name,city (may be repeated)",
        )
    group.add_argument("--drop-bloom-filters", action="store_true", help="leave the Bloom filters out")


def add_requirements(parser: argparse.ArgumentParser) -> None:
    """What verification is to find."""
    group = parser.add_argument_group("what must be protected, and be there")
    group.add_argument(
        "--require-encrypted",
        action=_Names,
        default=(),
        metavar="COLUMNS",
        help="columns that must be encrypted: ssn,salary (may be repeated)",
    )
    group.add_argument(
        "--allow-unauthenticated-pages",
        action="store_true",
        help="let files pass whose pages, or levels of pages, carry no tag",
    )
    group.add_argument(
        "--expect",
        action="append",
        dest="expected",
        metavar="NAME",
        help="name of a file, or of many: 'part-{0..99}.parquet'; no others may be there (may be repeated)",
    )
    group.add_argument(
        "--expect-prefix",
        action="append",
        dest="expected",
        type=os.fsencode,
        metavar="TEXT",
        help="AAD prefix of a file, or of many: 'people.part{0..99}' (may be repeated)",
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """How long keys are kept."""
    parser.add_argument(
        "--cache-seconds",
        type=seconds,
        default=_CACHE_SECONDS,
        metavar="N",
        help="how long a worker keeps key encryption keys (600)",
    )


def _add_prefix(group: argparse._ArgumentGroup, dash: str, of: str) -> None:
    prefix: Any = group.add_mutually_exclusive_group()
    prefix.add_argument(f"--{dash}aad-prefix", metavar="TEXT", help=f"identity of {of}")
    prefix.add_argument(f"--{dash}aad-prefix-hex", metavar="HEX", help="the same as hexadecimal bytes")


def add_job(parser: argparse.ArgumentParser, *, report: bool = True) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object on standard output, for machines")
    if report:
        group.add_argument(
            "--report",
            type=_report,
            metavar="FILE",
            help="write a row for each file: FILE.parquet, or FILE.json[l] with one JSON object a line",
        )
    group.add_argument("--traceback", action="store_true", help="show where errors come from, also in Java")
    group = parser.add_argument_group("Spark, without spark-submit")
    group.add_argument("--master", metavar="URL", help="local[N], yarn, k8s://..., spark://... (as configured)")
    group.add_argument("--remote", metavar="URL", help="Spark Connect: sc://HOST:15002 (SPARK_REMOTE)")
    group.add_argument(
        "--conf", action=Setting, metavar="NAME=VALUE", help="a setting of the session (may be repeated)"
    )


# -- values --------------------------------------------------------------------------------------------------------


class Setting(argparse.Action):
    """NAME=VALUE into a dict; nothing that is a secret."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        name, equals, value = values.partition("=")
        if not equals or not name:
            raise argparse.ArgumentError(self, "needs NAME=VALUE")
        if is_secret_name(name):
            raise argparse.ArgumentError(
                self,
                f"{name} would be a secret that others can read among the arguments: put it into spark-defaults.conf, "
                "or use the environment, a profile or a role",
            )
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), name: value})


class _Columns(argparse.Action):
    """COLUMNS=ID into a dict of lists."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        text, equals, key_id = values.partition("=")
        if not equals or not key_id:
            raise argparse.ArgumentError(self, "needs COLUMNS=ID, such as ssn,salary=alias/pii")
        found = dict(getattr(namespace, self.dest) or {})
        found[key_id] = [*found.get(key_id, ()), *_column_names(text, self)]
        setattr(namespace, self.dest, found)


class Patterns(argparse.Action):
    """GLOB=ID into a dict. A pattern may have ``=`` in it, as in ``day=1/**``."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        pattern, equals, key_id = values.rpartition("=")
        if not equals or not pattern or not key_id:
            raise argparse.ArgumentError(self, "needs GLOB=ID, such as 'tenant=a/**=alias/a'")
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), pattern: key_id})


class _Names(argparse.Action):
    """COLUMNS into a tuple."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), *_column_names(values, self)))


def _column_names(text: str, action: argparse.Action) -> list[str | tuple[str, ...]]:
    r"""Names with commas between them; ``\,`` and ``\.`` are a comma and a dot inside a name."""
    names: list[str | tuple[str, ...]] = []
    for piece in re.split(r"(?<!\\),", text):
        name = piece.replace("\\,", ",")
        if not name:
            raise argparse.ArgumentError(action, "there is an empty column name")
        if "\\." in name:
            names.append(tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", name)))
        else:
            names.append(name)
    return names


def _size(text: str) -> int:
    """A number of bytes: 4096, 64K, 256M, 2G (powers of 1024)."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in _UNITS else (text, "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes such as 64M or 1G")
    return int(digits) << _UNITS.get(unit, 0)


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version such as 7")
    return int(text)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found


def snapshot(text: str) -> int | str | None:
    if text in ("all", "current"):
        return None if text == "current" else text
    if re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither the id of a snapshot, nor all, nor current")
    return int(text)


def _report(text: str) -> str:
    if not text.lower().endswith(_REPORT_ENDINGS):
        raise argparse.ArgumentTypeError(f"a report ends with {', '.join(_REPORT_ENDINGS)}: {text!r} does not")
    return text
