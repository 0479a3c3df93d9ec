"""The arguments of ``ags1 dataset``, and its help."""

from __future__ import annotations

import argparse

from ags1._command_line import CommandParser, Formatter, UsageError, refuse_option
from ags1.cli._parser import _add_kms, _add_show, _json_fields, _lazily, _size

__all__ = ["command_parser", "parse"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_RUN_FIELDS = (
    "dataset, version, changed, done, done_bytes, unchanged, resumed,\n"
    "  repaired, removed, others, skipped, notes, errors, seconds, dry_run,\n"
    "  paths (in a dry run), error"
)
_EXAMPLES = {
    "encrypt": """\
  export AGS1_KMS=local:keys.json
  ags1 dataset encrypt raw/ vault/ --key-id lake
  ags1 dataset encrypt raw/ vault/ --key-id lake --delete --dry-run
  ags1 dataset encrypt s3://raw/2026/ s3://vault/2026/ --key-id alias/lake \\
      --kms 'aws:?region=eu-central-1'
  ags1 dataset encrypt raw/ vault/ --keys 'tenant=a/**=tenant-a' --key-id lake
""",
    "add": """\
  ags1 dataset add today/ vault/ --prefix day=7
  ags1 dataset add report.csv s3://vault/2026/
""",
    "ls": """\
  ags1 dataset ls vault/ -r -l
  ags1 dataset ls vault/ day=7 --version 3
""",
    "cat": """\
  ags1 dataset cat vault/ day=7/a.csv | head
  ags1 dataset cat s3://vault/2026/ big.log --offset 1G --bytes 64K
""",
    "rm": """\
  ags1 dataset rm vault/ day=7 report.csv --dry-run
""",
    "mv": """\
  ags1 dataset mv vault/ day=7 archive/day=7
""",
    "repair": """\
  ags1 dataset repair raw/ vault/ --dry-run
  ags1 dataset repair raw/ vault/
""",
    "verify": """\
  ags1 dataset verify vault/
  ags1 dataset verify vault/ --expected-version 12
""",
    "decrypt": """\
  ags1 dataset decrypt vault/ plain/ --include 'day=7/*'
  ags1 dataset decrypt s3://vault/2026/ plain/ --version 3
""",
    "rewrap": """\
  ags1 dataset rewrap vault/ --new-key-id lake-2027 --dry-run
  ags1 dataset rewrap vault/ --key-id tenant-a --new-key-id tenant-a-2027
""",
    "versions": """\
  ags1 dataset versions vault/
""",
    "diff": """\
  ags1 dataset diff vault/ 3
  ags1 dataset diff vault/ 3 7 --json
""",
    "expire": """\
  ags1 dataset expire vault/ --keep 5 --older-than 30d --dry-run
  ags1 dataset expire vault/ --keep 1 --older-than 0s
""",
    "classes": """\
  ags1 dataset classes vault/
""",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse what stands behind ``ags1 dataset``; `run` of the result is the function to call with it.

    Raises
    ------
    UsageError
        They make no sense.
    SystemExit
        Help was asked for, and shown.
    """
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parser = command_parser()
    options, rest = parser.parse_known_args(arguments)
    for argument in rest:
        if argument.startswith("-") and argument != "-":
            refuse_option(parser, options.action, argument)
    if rest:
        raise UsageError(f"too many arguments (see `ags1 dataset {options.action} --help`)")
    return options


def command_parser() -> CommandParser:
    parser = CommandParser(prog="ags1 dataset", formatter_class=Formatter, allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", prog="ags1 dataset", required=True)

    def action(name: str, run: str, summary: str, usage: str, more: str, fields: str = "") -> argparse.ArgumentParser:
        sub = actions.add_parser(
            name,
            help=summary,
            usage=f"ags1 dataset {name} {usage} [--kms URL] [options]",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=(_json_fields(fields) if fields else "") + f"\nexamples:\n{_EXAMPLES[name]}",
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=_lazily(run))
        return sub

    _add_writing(action)
    _add_reading(action)
    _add_versions(action)
    return parser


def _vault(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vault", metavar="DATASET", help="directory or URL of the dataset")


# -- actions that make a version -----------------------------------------------------------------------------------


def _add_writing(action: _Action) -> None:
    sub = action(
        "encrypt",
        "_dataset:encrypt",
        "encrypt a directory into a dataset, or bring a dataset up to date",
        "SOURCE TARGET --key-id ID",
        "Each file gets a key of its own. Only what is new, changed or not whole is encrypted, and what an "
        "interrupted run has done is taken over. Files that the source has no more stay, unless --delete is given. "
        "Nothing is seen of it before all of it is there.",
        _RUN_FIELDS,
    )
    sub.add_argument("source", metavar="SOURCE", help="directory or file, or a URL")
    sub.add_argument("vault", metavar="TARGET", help="directory or URL of the dataset; made if it is missing")
    sub.add_argument("--key-id", metavar="ID", help="the master key")
    sub.add_argument(
        "--keys",
        action="append",
        type=_pattern,
        default=[],
        metavar="PATTERN=ID",
        help="another master key for the files whose path matches this pattern (may be repeated; the first that "
        "matches counts). Without any, a dataset that is there keeps its patterns; with some, they replace all of them "
        "('**=ID': no others)",
    )
    sub.add_argument("--delete", action="store_true", help="leave out of the new version what the source has no more")
    sub.add_argument(
        "--single-writer",
        action="store_true",
        help="for a new dataset in a store without create-if-absent: promise that nobody else ever writes",
    )
    _add_kms(sub)
    _add_choice(sub)
    _add_run(sub)

    sub = action(
        "add",
        "_dataset:add",
        "add files to a dataset that is there",
        "SOURCE DATASET",
        "Only what is named is looked at, so the cost does not grow with the dataset.",
        _RUN_FIELDS,
    )
    sub.add_argument("source", metavar="SOURCE", help="directory or file, or a URL")
    _vault(sub)
    sub.add_argument("--prefix", metavar="PATH", default="", help="directory in the dataset that they go to")
    _add_open(sub, choose=False)
    _add_choice(sub)
    _add_run(sub)

    sub = action(
        "rm",
        "_dataset:rm",
        "make a version without some files",
        "DATASET PATH [PATH ...]",
        "A directory stands for all that is below it. Older versions keep the files until `ags1 dataset expire`.",
        _RUN_FIELDS,
    )
    _vault(sub)
    sub.add_argument("paths", metavar="PATH", nargs="+", help="file or directory in it")
    _add_open(sub, choose=False)
    _add_short(sub)

    sub = action(
        "mv",
        "_dataset:mv",
        "make a version in which a file or a directory has another path",
        "DATASET PATH NEWPATH",
        "Only files that come under another class of keys are encrypted anew; no other object is written.",
        _RUN_FIELDS,
    )
    _vault(sub)
    sub.add_argument("path", metavar="PATH", help="file or directory in it")
    sub.add_argument("new_path", metavar="NEWPATH", help="its new path")
    sub.add_argument("--replace", action="store_true", help="replace files that have the new paths")
    _add_open(sub, choose=False)
    _add_short(sub)

    sub = action(
        "repair",
        "_dataset:repair",
        "encrypt anew from the source what is missing or not authentic",
        "SOURCE DATASET",
        "Every file is verified first. A file whose source has changed since is an error: encrypt that instead.",
        _RUN_FIELDS,
    )
    sub.add_argument("source", metavar="SOURCE", help="directory or URL that the dataset was made from")
    _vault(sub)
    sub.add_argument("--prefix", metavar="PATH", default="", help="directory in the dataset that the source stands for")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be done")
    _add_open(sub, choose=False)
    _add_show(sub.add_argument_group("work"))

    sub = action(
        "rewrap",
        "_dataset:rewrap",
        "put a dataset, or one class of keys, under another master key; no file changes",
        "DATASET --new-key-id ID",
        "Keep the old master key until this has succeeded and `ags1 dataset expire` has removed the older versions; "
        "whoever has a copy of those still needs it.",
        "dataset, version, old_key_id, new_key_id, keys, older_versions,\n  unfinished_runs, dry_run, error",
    )
    _vault(sub)
    sub.add_argument("--new-key-id", metavar="ID", required=True, help="the new master key")
    sub.add_argument("--new-kms", metavar="URL", help="the service that has it, if it is another one")
    sub.add_argument("--key-id", metavar="ID", help="the master key to be replaced (that of the default class)")
    _add_open(sub, choose=False)
    _add_short(sub)


# -- actions that read ---------------------------------------------------------------------------------------------


def _add_reading(action: _Action) -> None:
    sub = action(
        "ls",
        "_dataset_show:ls",
        "list the files of a dataset",
        "DATASET [PATH]",
        "Names are relative to the dataset; sizes are of the plaintext.",
        "path, type, plaintext_length, file_length",
    )
    _vault(sub)
    sub.add_argument("path", metavar="PATH", nargs="?", default="", help="directory or file in it")
    sub.add_argument("-r", "--recursive", action="store_true", help="every file below, not one directory")
    sub.add_argument("-l", "--long", action="store_true", help="plaintext size beside each name")
    _add_json(sub)
    _add_open(sub)

    sub = action(
        "cat",
        "_dataset_show:cat",
        "decrypt files of a dataset to standard output, whole or a range",
        "DATASET PATH [PATH ...]",
        "Nothing is written before it is authenticated, but what was written before a failure stays written.",
    )
    _vault(sub)
    sub.add_argument("paths", metavar="PATH", nargs="+", help="file in it")
    sub.add_argument("--offset", type=_size, default=0, metavar="SIZE", help="plaintext offset to start at (0)")
    sub.add_argument("--bytes", type=_size, default=None, metavar="SIZE", help="bytes of plaintext (to the end)")
    _add_open(sub)

    sub = action(
        "verify",
        "_dataset_show:verify",
        "authenticate every file; name what is missing, swapped, damaged or foreign",
        "DATASET",
        "What interrupted runs have left is named, and is no fault. A whole directory that was put back from an older "
        "copy is authentic: only a pin shows that, such as --expected-version.",
        "dataset, version, files, plaintext_bytes, problems (path, kind, detail),\n  seconds, error",
    )
    _vault(sub)
    _add_open(sub)
    _add_show(sub.add_argument_group("work"))

    sub = action(
        "decrypt",
        "_dataset:decrypt",
        "decrypt a dataset into a directory",
        "DATASET TARGET",
        "Files of the same names in TARGET are replaced, each atomically. Nothing is written through a link.",
        _RUN_FIELDS,
    )
    _vault(sub)
    sub.add_argument("plain", metavar="TARGET", help="directory or URL; made if it is missing")
    _add_open(sub)
    _add_choice(sub).add_argument("--durable", action="store_true", help="wait until everything is on the disk")
    _add_show(sub.add_argument_group("work"))

    sub = action(
        "classes",
        "_dataset_show:classes",
        "list the classes of keys: which master key the files of a pattern are under",
        "DATASET",
        "Whoever destroys the master key of a class has destroyed its files, whatever copies exist.",
        "id, pattern (null: it takes no new files), key_id",
    )
    _vault(sub)
    _add_json(sub)
    _add_open(sub)


def _add_versions(action: _Action) -> None:
    sub = action(
        "versions",
        "_dataset_show:versions",
        "list the versions that are kept, each with its digest",
        "DATASET",
        "Keep the last line elsewhere: its version or digest, as a pin, shows that an older copy was put back.",
        "uuid, version, operation, created_ms, files, plaintext_bytes, digest",
    )
    _vault(sub)
    _add_json(sub)
    _add_open(sub, choose=False)

    sub = action(
        "diff",
        "_dataset_show:diff",
        "say what differs between two versions",
        "DATASET BEFORE [AFTER]",
        "+ is a new file, - one that is gone, ~ one with other content. What both versions share is not read.",
        "path, change (added, removed, changed), before_length, after_length",
    )
    _vault(sub)
    sub.add_argument("before", metavar="BEFORE", type=_version, help="number of a version")
    sub.add_argument("after", metavar="AFTER", type=_version, nargs="?", help="number of another (the last one)")
    _add_json(sub)
    _add_open(sub, choose=False)

    sub = action(
        "expire",
        "_dataset:expire",
        "remove old versions, and what no version needs any more",
        "DATASET",
        "That includes what interrupted runs have left. No committed file is ever lost: a run that is given up can "
        "commit nothing afterwards.",
        "dataset, version, versions, kept, objects, object_bytes, dry_run, error",
    )
    _vault(sub)
    sub.add_argument("--keep", type=_kept, default=1, metavar="N", help="versions that stay in any case (1)")
    sub.add_argument(
        "--older-than",
        type=_duration,
        default=5.0 * _UNITS["d"],
        metavar="TIME",
        help="keep versions that were replaced since then, such as 12h or 30d (5d); a run that takes longer fails",
    )
    sub.add_argument(
        "--grace",
        type=_duration,
        default=1.0 * _UNITS["d"],
        metavar="TIME",
        help="spare what is younger than this and in no version: its writer may be about to commit it (24h)",
    )
    sub.add_argument(
        "--give-up",
        type=int,
        default=0,
        metavar="VERSION",
        help="remove this version and all before it even if they cannot be read: what only they have is lost",
    )
    _add_open(sub, choose=False)
    _add_short(sub)


# -- options -------------------------------------------------------------------------------------------------------


def _add_open(parser: argparse.ArgumentParser, *, choose: bool = True) -> None:
    _add_kms(parser)
    if choose:
        parser.add_argument("--version", type=_version, metavar="N", help="the version to show (the last one)")
    group = parser.add_argument_group("trust")
    group.add_argument("--expected-version", type=_version, metavar="N", help="refuse any other version")
    group.add_argument("--expected-uuid", metavar="UUID", help="refuse any other dataset")
    group.add_argument("--expected-digest", metavar="HEX", help="refuse any other content")
    if not any("--key-id" in each.option_strings for each in parser._actions):
        group.add_argument("--key-id", metavar="ID", help="refuse the dataset if it is under another master key")


def _add_choice(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("files")
    group.add_argument(
        "--include",
        action="append",
        metavar="GLOB",
        help="only these files: a pattern without / is compared with each component of a path, one with / with all "
        "of it (may be repeated)",
    )
    group.add_argument("--exclude", action="append", metavar="GLOB", help="not these files (may be repeated)")
    group.add_argument("--keep-going", action="store_true", help="report files that fail, and go on with the others")
    group.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return group


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("work")
    group.add_argument("--no-resume", action="store_true", help="do again what an interrupted run has done already")
    group.add_argument(
        "--no-durable",
        action="store_true",
        help="do not wait for the disk before the commit: a power cut may cost committed files (scratch data)",
    )
    _add_show(group)


def _add_short(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    _add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")


# -- values --------------------------------------------------------------------------------------------------------


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version such as 7")
    return int(text)


def _kept(text: str) -> int:
    count = _version(text)
    if count < 1:
        raise argparse.ArgumentTypeError("the last version always stays: at least 1")
    return count


def _duration(text: str) -> float:
    """Seconds: 90s, 30m, 24h, 5d, 2w."""
    digits, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m, 24h, 5d or 2w")
    return float(int(digits) * _UNITS[unit])


def _pattern(text: str) -> tuple[str, str]:
    """A pattern and a master key. The last = counts, because paths of partitions have some."""
    pattern, _, key_id = text.rpartition("=")
    if not pattern or not key_id:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pattern and a master key, such as 'tenant=a/**=tenant-a'")
    return pattern, key_id


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class _Action(Protocol):
        """Makes the parser of one action."""

        def __call__(
            self, name: str, run: str, summary: str, usage: str, more: str, fields: str = ""
        ) -> argparse.ArgumentParser: ...
