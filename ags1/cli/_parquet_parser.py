"""The arguments of ``ags1 parquet``, and its help."""

from __future__ import annotations

import argparse

from ags1._command_line import CommandParser, Formatter, UsageError, option_name, refuse_option
from ags1.cli._parser import _add_files, _add_kms, _add_show, _add_work, _count, _json_fields, _lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["command_parser", "parse"]

_KEY_HELP = """\
keys:
  A key is named, never given: file:PATH (16, 24 or 32 raw bytes as
  `ags1 keygen` writes them, or the same as hexadecimal or base64 text) or
  env:NAME (text). Columns are named by the path of a leaf (a.b.list.element)
  or by a group (a: all leaves below it), several with commas; \\, and \\. are
  a comma and a dot in a name.
"""

_ENCRYPT_HELP = """
columns:
  Without --column-key or --column-key-id every column is encrypted with the
  footer key. With them, the other columns stay plaintext, or take the footer
  key with --encrypt-all.

many files:
  With --kms or --key-metadata-out every file has fresh keys. --footer-key
  encrypts many files with the same keys only with --shared-keys: all of them
  count against the 2^32 invocations that AES GCM allows a key.
  A directory's Parquet files get the same names below TARGET. _metadata,
  .NAME.crc and old key material are left out, empty markers such as _SUCCESS
  are copied, and --others says what becomes of the rest.
"""

_ENCRYPT_EXAMPLES = """
examples:
  ags1 parquet encrypt in.parquet out.parquet --footer-key file:f.key \\
      --column-key ssn,salary=file:s.key
  ags1 parquet encrypt people/ vault/ --kms aws:?region=eu-central-1 \\
      --footer-key-id alias/lake --column-key-id ssn,salary=alias/pii \\
      --aad-prefix 'people/{path}'
  ags1 parquet encrypt data/ vault/ --key-metadata-out keys/   (Iceberg)
"""

_DECRYPT_EXAMPLES = """
examples:
  ags1 parquet decrypt out.parquet in.parquet --footer-key file:f.key \\
      --column-key ssn,salary=file:s.key
  ags1 parquet decrypt vault/ people/ --kms aws:?region=eu-central-1
  ags1 parquet decrypt a.parquet b.parquet --key-for kf=file:f.key
"""

_REKEY_HELP = """
old and new:
  The options of `ags1 parquet encrypt` say how TARGET is encrypted, the same
  as ever; --old-footer-key, --old-column-key, --old-key-for, --old-kms,
  --old-key-metadata and --old-aad-prefix say how SOURCE is read, as their
  namesakes of `ags1 parquet decrypt` do. Without any key among them, SOURCE
  is read with --kms. Column chunks whose key, algorithm and AAD prefix stay
  the same are copied as they are.

examples:
  ags1 parquet rekey a.parquet b.parquet --old-footer-key file:old.key \\
      --footer-key file:new.key
  ags1 parquet rekey a.parquet b.parquet --old-footer-key file:f.key \\
      --old-column-key ssn=file:s.key --footer-key file:f.key \\
      --column-key ssn=file:new.key
  ags1 parquet rekey vault/ other/ --old-kms local:keys.json \\
      --kms aws:?region=eu-central-1 --footer-key-id alias/lake
"""

_ROTATE_HELP = """
The data keys stay what they are: whoever kept one can still read, and only
`ags1 parquet rekey` changes that. Key material beside a file is replaced, and
the file is not touched; of a file that holds its key material itself, the
footer is written anew. Each is replaced whole or not at all; after an
interruption, run it again.

examples:
  ags1 parquet rotate vault/ --kms aws:?region=eu-central-1 \\
      --new-key-id alias/lake=alias/lake-2027
  ags1 parquet rotate vault/ --kms vault:https://kms:8200   (new versions)
"""

_VERIFY_HELP = """
sets of files:
  With --expect, --expect-prefix or --expect-from, the files are to be those
  and no others: what is missing is named, and what is there and should not be.
  Names are those below a directory that is given. A file that was renamed has
  its own name only where --aad-prefix '{path}' binds it; --expect-prefix goes
  by the prefixes that the footers are authenticated with.

examples:
  ags1 parquet verify vault/ --kms local:keys.json \\
      --require-encrypted ssn,salary --expect 'part-{0..99}.parquet'
  ags1 parquet verify vault/ --footer-key file:f.key \\
      --expect-prefix 'people-2027.part{0..99}'
"""

_SHOW_EXAMPLES = """
examples:
  ags1 parquet head out.parquet -n 5 --columns id,ssn --kms local:keys.json
  ags1 parquet cat out.parquet --format json --footer-key file:f.key | jq .id
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse what stands behind ``ags1 parquet``; `run` of the result is the function to call with it.

    Raises
    ------
    UsageError
        They make no sense. The message names options, but shows no value that might be a key.
    SystemExit
        Help was asked for, and shown.
    """
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    parser = command_parser()
    options, rest = parser.parse_known_args(arguments)
    _take_rest(parser, options, rest)
    return options


def _take_rest(parser: CommandParser, options: argparse.Namespace, rest: list[str]) -> None:
    """Sort what argparse left over: files behind an option are files, anything else is an error."""
    name = f"ags1 parquet {options.action}"
    see = f"(see `{name} --help`)"
    for argument in rest:
        if argument.startswith("-") and argument != "-":
            option = option_name(argument)
            if option in ("--key", "--key-env"):
                raise UsageError(
                    f"there is no {option}: name keys with --footer-key and --column-key, as file:PATH or env:NAME "
                    f"{see}"
                )
            refuse_option(parser, options.action, argument)
    if hasattr(options, "target"):
        paths = [*options.sources, *([] if options.target is None else [options.target]), *rest]
        options.sources, options.target = paths[:-1], paths[-1] if paths else None
        if options.target is None or (not options.sources and not options.files_from):
            missing = "a SOURCE and a TARGET are" if options.target is None else "a TARGET is"
            raise UsageError(f"{missing} needed: {name} SOURCE TARGET {see}")
    else:
        options.files = [*options.files, *rest]


def command_parser() -> CommandParser:
    parser = CommandParser(prog="ags1 parquet", formatter_class=Formatter, allow_abbrev=False)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", prog="ags1 parquet", required=True)

    def action(
        name: str, run: str, summary: str, usage: str, more: str = "", epilog: str = ""
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(
            name,
            help=summary,
            usage=f"ags1 parquet {name} {usage}",
            description=f"{summary[0].upper()}{summary[1:]}. {more}".strip(),
            epilog=epilog or None,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        sub.set_defaults(run=_lazily(run))
        return sub

    fields = _json_fields("source, target, outcome (done, copied, left out, finished before),\n  bytes, seconds, error")
    sub = action(
        "encrypt",
        "_parquet:encrypt",
        "encrypt Parquet files without decoding them",
        "SOURCE [...] TARGET (--footer-key KEY | --kms ...)",
        "Pages are moved, not decoded; statistics, indexes and Bloom filters are kept and protected.",
        _KEY_HELP + _ENCRYPT_HELP + _ENCRYPT_EXAMPLES + fields,
    )
    _add_files(sub, "Parquet file, glob ('*.parquet') or directory")
    _add_encryption(sub, key_metadata_out=True)
    _add_tree(sub, encrypting=True)
    _add_work(sub.add_argument_group("work"))

    sub = action(
        "decrypt",
        "_parquet:decrypt",
        "decrypt Parquet files without decoding them",
        "SOURCE [...] TARGET (--footer-key KEY | --kms ...)",
        "Every module is authenticated before the result appears.",
        _KEY_HELP + _DECRYPT_EXAMPLES + fields,
    )
    _add_files(sub, "encrypted Parquet file, glob ('*.parquet') or directory")
    _add_decryption(sub)
    _add_rewriting(sub, rekeying=False)
    _add_tree(sub, encrypting=False)
    _add_work(sub.add_argument_group("work"))

    sub = action(
        "rekey",
        "_parquet:rekey",
        "encrypt encrypted Parquet files in another way",
        "SOURCE [...] TARGET --old-... (--footer-key KEY | ...)",
        "Other keys, another algorithm or footer, more or fewer encrypted columns. "
        "An encrypted column that the new options do not name would become plaintext: --plaintext-columns says which "
        "may.",
        _KEY_HELP + _REKEY_HELP + fields,
    )
    _add_files(sub, "encrypted Parquet file, glob ('*.parquet') or directory")
    _add_decryption(sub, old=True)
    _add_encryption(sub, key_metadata_out=True)
    _add_rewriting(sub, rekeying=True)
    _add_tree(sub, encrypting=True)
    _add_work(sub.add_argument_group("work"))

    sub = action(
        "rotate",
        "_parquet:rotate",
        "put encrypted Parquet files under other master keys, or newer versions of them, in place",
        "FILE [FILE ...] --kms URL [--new-key-id OLD=NEW ...]",
        epilog=_ROTATE_HELP + _json_fields("file, outcome (done, left out), keys (by master key), seconds, error"),
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="Parquet file, glob, directory, or key material file")
    _add_kms(sub)
    group = sub.add_argument_group("master keys")
    group.add_argument(
        "--new-key-id",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="master key NEW instead of OLD; others keep their id, and take its current version (may be repeated)",
    )
    group.add_argument("--aad-prefix", metavar="TEXT", help="for files that do not contain theirs, as they have it")
    group.add_argument("--aad-prefix-hex", metavar="HEX", help="the same as hexadecimal bytes")
    group = sub.add_argument_group("work")
    group.add_argument("--durable", action="store_true", help="wait until each file is on the disk")
    _add_work(group)

    sub = action(
        "inspect",
        "_parquet_inspect:inspect",
        "draw which columns and modules of Parquet files are protected, and how",
        "FILE [FILE ...] [--footer-key KEY | --kms URL | ...]",
        "Without keys, what anybody can see; with them, all of it. Nothing but the footer is authenticated: that "
        "takes `ags1 parquet verify`.",
        _KEY_HELP,
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="Parquet file, glob or directory")
    _add_decryption(sub)
    group = sub.add_argument_group("output")
    group.add_argument("-v", "--verbose", action="store_true", help="every column and row group, also of large files")
    group.add_argument("--json", action="store_true", help="one JSON object a line, for machines")

    sub = action(
        "verify",
        "_parquet_verify:verify",
        "authenticate every module of Parquet files without decoding them, and name those that fail",
        "FILE [FILE ...] (--footer-key KEY | --kms URL | ...)",
        "A file is authentic, damaged or not protected; so are all of them together. Exit code 1 if anything is "
        "damaged or missing; 3 if a key is missing; 5 if anything is not protected: no footer is authenticated, or "
        "pages carry no tag, as those of AES_GCM_CTR_V1. In a directory, files that are not Parquet are left out.",
        _KEY_HELP
        + _VERIFY_HELP
        + _json_fields(
            "file, outcome, seconds, error, and what ags1.parquet.VerifyReport has;\n  behind several files: total, "
            "outcome, outcomes, missing, unexpected"
        ),
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="Parquet file, glob or directory")
    _add_decryption(sub)
    group = sub.add_argument_group("what must be protected")
    group.add_argument(
        "--require-encrypted",
        action="append",
        default=[],
        metavar="COLUMNS",
        help="columns that must be encrypted: ssn,salary (may be repeated)",
    )
    group.add_argument(
        "--allow-unauthenticated-pages",
        action="store_true",
        help="let files pass whose pages, or levels of pages, carry no tag",
    )
    group.add_argument(
        "--missing-keys",
        choices=("error", "drop"),
        default="error",
        help="whether columns without a key make it fail (error); they are named in either case",
    )
    group = sub.add_argument_group("what must be there")
    group.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="NAME",
        help="name of a file, or of many: 'part-{0..99}.parquet' (may be repeated)",
    )
    group.add_argument(
        "--expect-prefix",
        action="append",
        default=[],
        metavar="TEXT",
        help="AAD prefix of a file, or of many: 'people.part{0..99}' (may be repeated)",
    )
    group.add_argument("--expect-from", metavar="FILE", help="names of all files, one a line")
    group = sub.add_argument_group("work")
    _add_show(group)

    for name, summary, form in (
        ("cat", "show the rows of encrypted Parquet files", "csv"),
        ("head", "show the first rows of encrypted Parquet files", "table"),
    ):
        sub = action(
            name,
            f"_parquet_rows:{name}",
            summary,
            "FILE [FILE ...] (--footer-key KEY | --kms URL | ...)",
            "Needs pyarrow. Only the pages of the columns and rows that are shown are read.",
            _KEY_HELP + _SHOW_EXAMPLES,
        )
        sub.add_argument("files", nargs="+", metavar="FILE", help="Parquet file, glob or directory")
        _add_decryption(sub)
        group = sub.add_argument_group("output")
        if name == "head":
            group.add_argument("-n", "--rows", type=_count_or_none, default=10, metavar="N", help="rows (10)")
        group.add_argument("--columns", metavar="NAMES", help="only these columns, with commas; no keys of others")
        group.add_argument(
            "--missing-keys",
            choices=("error", "drop"),
            default="error",
            help="refuse files with columns whose key is missing, or leave these columns out (error)",
        )
        group.add_argument("--format", choices=("table", "csv", "json"), default=form, help=f"form of rows ({form})")
        group.add_argument("--threads", type=_count, default=None, metavar="N", help="threads (every CPU)")
    return parser


def _add_encryption(parser: argparse.ArgumentParser, *, key_metadata_out: bool) -> None:
    group = parser.add_argument_group("encryption")
    group.add_argument("--footer-key", metavar="KEY", help="key of the footer, file:PATH or env:NAME")
    group.add_argument(
        "--column-key",
        action="append",
        default=[],
        metavar="COLUMNS=KEY",
        help="key of some columns: ssn,salary=file:s.key (may be repeated)",
    )
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
        "--footer-key-metadata",
        metavar="TEXT",
        help="what readers find the footer key by, in the file, not encrypted: text, or hex:DIGITS",
    )
    group.add_argument(
        "--column-key-metadata",
        action="append",
        default=[],
        metavar="COLUMNS=TEXT",
        help="the same for columns that have --column-key (may be repeated)",
    )
    group.add_argument(
        "--data-page-v2",
        choices=("java", "arrow"),
        default="java",
        help="form of V2 pages: java (Spark, Iceberg), arrow (PyArrow, arrow-rs, DuckDB)",
    )
    _add_prefix(group, "", "the file: text, in which {name} is the base name of the file and {path} its path")
    group.add_argument(
        "--no-store-aad-prefix", action="store_true", help="leave the prefix out of the file: readers must bring it"
    )
    group.add_argument("--key-metadata", metavar="PATH", help=_METADATA)
    if key_metadata_out:
        group.add_argument(
            "--key-metadata-out",
            metavar="PATH",
            help="encrypt each file as Iceberg does, with a fresh key, and write its key metadata here: a file, or for "
            "many a directory of NAME.key-metadata",
        )
        group.add_argument(
            "--replace-key-metadata",
            action="store_true",
            help="let --key-metadata-out replace the only copy of another key",
        )
    _add_kms(parser)
    group = parser.add_argument_group("master keys in the key management service")
    group.add_argument("--footer-key-id", metavar="ID", help="master key of the footer keys")
    group.add_argument(
        "--column-key-id",
        action="append",
        default=[],
        metavar="COLUMNS=ID",
        help="master key of the keys of some columns: ssn,salary=alias/pii (may be repeated)",
    )
    group.add_argument(
        "--single-wrapping", action="store_true", help="one call for each key, without key encryption keys"
    )
    group.add_argument(
        "--external-key-material",
        action="store_true",
        help="store the wrapped keys beside the file, in _KEY_MATERIAL_FOR_NAME.json",
    )
    group.add_argument(
        "--data-key-bits", type=int, choices=(128, 192, 256), default=128, help="size of the fresh keys (128)"
    )


_METADATA = (
    "Iceberg's key metadata (key and AAD prefix) from a file, or for many files from a directory of NAME.key-metadata"
)


def _add_decryption(parser: argparse.ArgumentParser, *, old: bool = False) -> None:
    dash, of = ("old-", "SOURCE: ") if old else ("", "")
    group = parser.add_argument_group("decryption of SOURCE" if old else "decryption")
    group.add_argument(f"--{dash}footer-key", metavar="KEY", help=f"{of}key of the footer, file:PATH or env:NAME")
    group.add_argument(
        f"--{dash}column-key",
        action="append",
        default=[],
        metavar="COLUMNS=KEY",
        help=f"{of}key of some columns: ssn,salary=file:s.key (may be repeated)",
    )
    group.add_argument(
        f"--{dash}key-for",
        action="append",
        default=[],
        metavar="METADATA=KEY",
        help=f"{of}key for the key metadata that a file contains: text, or hex:DIGITS (may be repeated)",
    )
    _add_prefix(group, dash, f"{'SOURCE' if old else 'the file'}: another file is refused. As for encrypting")
    group.add_argument(f"--{dash}key-metadata", metavar="PATH", help=f"{of}{_METADATA}")
    group.add_argument("--allow-plaintext", action="store_true", help="take files that are not encrypted, too")
    group.add_argument(
        f"--{dash}no-check-footer", action="store_true", help=f"{of}do not verify the signature of a plaintext footer"
    )
    if not old:
        _add_kms(parser)
        return
    group.add_argument("--old-kms", metavar="URL", help="SOURCE: the key management service (that of --kms)")
    group.add_argument("--old-password-file", metavar="FILE", help="password of its local keystore")
    group.add_argument("--old-key-file", metavar="FILE", help="key file of its local keystore")


def _add_rewriting(parser: argparse.ArgumentParser, *, rekeying: bool) -> None:
    group = parser.add_argument_group("what TARGET loses")
    if rekeying:
        group.add_argument(
            "--plaintext-columns",
            action="append",
            default=[],
            metavar="COLUMNS",
            help="columns that are encrypted and may become plaintext: name,city (may be repeated)",
        )
    group.add_argument(
        "--drop-bloom-filters",
        action="store_true",
        help="leave the Bloom filters out; arrow-rs does not encrypt them, and such files are refused otherwise",
    )


def _add_prefix(group: argparse._ArgumentGroup, dash: str, of: str) -> None:
    prefix: Any = group.add_mutually_exclusive_group()
    prefix.add_argument(f"--{dash}aad-prefix", metavar="TEXT", help=f"identity of {of}")
    prefix.add_argument(f"--{dash}aad-prefix-hex", metavar="HEX", help="the same as hexadecimal bytes")


def _add_tree(parser: argparse.ArgumentParser, *, encrypting: bool) -> None:
    group = parser.add_argument_group("directories")
    group.add_argument(
        "--others",
        choices=("error", "copy", "skip"),
        default="error",
        help="files that are not Parquet: refuse to begin (error), copy them as they are, or leave them out",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="pass over files that an earlier run has finished: newer than the source, and with such a footer as this "
        "run would write",
    )
    if encrypting:
        group.add_argument("--shared-keys", action="store_true", help="encrypt many files with the same given keys")


def _count_or_none(text: str) -> int:
    """A number of rows."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)
