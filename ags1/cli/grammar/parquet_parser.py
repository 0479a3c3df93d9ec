"""The actions of ``ags1 parquet``: what each takes, and its help."""

from __future__ import annotations

from ags1.cli.grammar.parser import file_places, lazily, source_places
from ags1.support.command_line import CommandParser, OnSpark

_HELP = """\
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
  are copied, and --others says what becomes of the rest; --include selects.
"""

_REKEY_HELP = """
old and new:
  The options of `ags1 parquet encrypt` say how TARGET is encrypted, the same
  as ever; --old-footer-key, --old-column-key, --old-key-for, --old-key-metadata
  and --old-aad-prefix say how SOURCE is read, as their namesakes of
  `ags1 parquet decrypt` do. Without any key among them, SOURCE is read with
  --kms; --new-kms is the service of the new keys, if it is another one. Column
  chunks whose key, algorithm and AAD prefix stay the same are copied as they
  are.
"""

_ROTATE_HELP = """
The data keys stay what they are: whoever kept one can still read, and only
`ags1 parquet rekey` changes that. Key material beside a file is replaced, and
the file is not touched; of a file that holds its key material itself, the
footer is rewritten. Each is replaced whole or not at all; after an
interruption, run it again. If no key is under an old id of --new-key-id,
nothing is written: the exit code is 9 where all keys are under new ones
already, and 2 otherwise.
"""

_VERIFY_HELP = """
sets of files:
  With --expect, --expect-prefix or --expect-from, the files are to be those
  and no others: what is missing is named, and what is there and should not be.
  Names are those below a directory that is given. A file that was renamed has
  its own name only where --aad-prefix '{path}' binds it; --expect-prefix goes
  by the prefixes that the footers are authenticated with.
"""


_BOTH = {"source": "directory or file, or a URL", "target": "directory that the files go to, under the same names"}
_JOB = "workers-threads parallelism quiet report"
_MASTERS = "cache-seconds MASTERS kek-bits kms-instance-id kms-instance-url ENCRYPTION"
_READING = "cache-seconds PREFIX expected-key-ids allow-plaintext no-check-footer expected-algorithm"
# Of whom the storage has secrets, no master key is known.
_SECRETS = {"transfer-key-id": {"help": "master key that seals the storage's secrets for tasks (they stay here)"}}
_V2 = {"data-page-v2": {"default": "java", "help": "form of V2 pages: java, which Spark reads (java), or arrow"}}


def hint(option: str) -> str | None:
    """What to say of an option that no action has."""
    if option in ("--key", "--key-env"):
        return f"there is no {option}: name keys with --footer-key and --column-key, as file:PATH or env:NAME"
    return None


def command_parser(only: str | None = None, on_spark: bool = False) -> CommandParser:
    """The parser of all actions, or with the options of one alone."""
    parser = CommandParser(
        prog="ags1 parquet",
        what="ACTION",
        description="Work with encrypted Parquet files (Parquet Modular Encryption).",
        epilog=_HELP,
        only=only,
        on_spark=on_spark,
    )
    fields = "source, target, outcome (done, copied, left out, finished before), bytes, seconds, error"
    of_iceberg = {
        "help": "Iceberg's key metadata (key and AAD prefix) from a file, or for many files from a directory of "
        "NAME.key-metadata"
    }
    prefix = {
        "help": "identity of the file: text, in which {name} is the base name of the file and {path} its path below "
        "the directory that was given"
    }
    changes = {"key-metadata": of_iceberg, "aad-prefix": prefix}
    sources = source_places("Parquet file, glob ('*.parquet') or directory")
    files = file_places("Parquet file, glob or directory")
    parser.add_command(
        "encrypt",
        sources,
        "encrypt Parquet files without decoding them",
        "PARQUET-ENCRYPTION missing-columns CHOICE FILES others resume jobs WORK",
        spark=OnSpark(
            "encrypt_parquet",
            _BOTH,
            f"footer-key-id! workers-kms {_MASTERS} missing-columns CHOICE others keep-going no-resume {_JOB}",
            _V2,
        ),
        needs="(--footer-key KEY | --kms URL --footer-key-id ID | ...)",
        more="Pages are moved, not decoded; statistics, indexes and Bloom filters are kept and protected.",
        epilog=_KEY_HELP + _ENCRYPT_HELP,
        fields=fields,
        examples="""\
ags1 parquet encrypt in.parquet out.parquet --footer-key file:f.key \\
    --column-key ssn,salary=file:s.key
ags1 parquet encrypt people/ vault/ --kms 'aws:?region=eu-central-1' \\
    --footer-key-id alias/lake --column-key-id ssn,salary=alias/pii \\
    --aad-prefix 'people/{path}'
ags1 parquet encrypt data/ vault/ --key-metadata-out keys/""",
        changes=changes,
        run=lazily("parquet.files:encrypt"),
    )
    parser.add_command(
        "decrypt",
        sources,
        "decrypt Parquet files without decoding them",
        "PARQUET-DECRYPTION drop-bloom-filters CHOICE FILES others resume jobs WORK",
        spark=OnSpark(
            "decrypt_parquet",
            _BOTH,
            f"workers-kms transfer-key-id {_READING} drop-bloom-filters CHOICE others keep-going no-resume {_JOB}",
            _SECRETS,
        ),
        needs="(--footer-key KEY | --kms URL | ...)",
        more="Every module is authenticated before the result appears.",
        epilog=_KEY_HELP,
        fields=fields,
        examples="""\
ags1 parquet decrypt out.parquet in.parquet --footer-key file:f.key \\
    --column-key ssn,salary=file:s.key
ags1 parquet decrypt vault/ people/ --kms 'aws:?region=eu-central-1'
ags1 parquet decrypt a.parquet b.parquet --key-for kf=file:f.key""",
        changes=changes,
        run=lazily("parquet.files:decrypt"),
    )
    parser.add_command(
        "rekey",
        sources,
        "encrypt encrypted Parquet files in another way",
        "PARQUET-ENCRYPTION new-kms old-footer-key old-column-key old-key-for old-key-metadata old-aad-prefix "
        "old-aad-prefix-hex allow-plaintext no-check-footer plaintext-columns drop-bloom-filters missing-columns "
        "CHOICE FILES others resume jobs WORK",
        spark=OnSpark(
            "rekey_parquet",
            _BOTH,
            f"footer-key-id! workers-kms new-kms {_MASTERS} old-aad-prefix old-aad-prefix-hex old-expected-algorithm "
            "allow-plaintext no-check-footer plaintext-columns drop-bloom-filters missing-columns CHOICE others "
            f"keep-going no-resume {_JOB}",
            _V2,
        ),
        needs="--old-... (--footer-key KEY | ...)",
        more="Other keys, another algorithm or footer, more or fewer encrypted columns. An encrypted column that the "
        "new options do not name would become plaintext: --plaintext-columns says which may. An AAD prefix stays, "
        "unless --aad-prefix gives another one.",
        epilog=_KEY_HELP + _REKEY_HELP,
        fields=fields,
        examples="""\
ags1 parquet rekey a.parquet b.parquet --old-footer-key file:old.key \\
    --footer-key file:new.key
ags1 parquet rekey a.parquet b.parquet --old-footer-key file:f.key \\
    --old-column-key ssn=file:s.key --footer-key file:f.key \\
    --column-key ssn=file:new.key
ags1 parquet rekey vault/ other/ --kms local:keys.json \\
    --new-kms 'aws:?region=eu-central-1' --footer-key-id alias/lake""",
        changes=changes,
        run=lazily("parquet.files:rekey"),
    )
    parser.add_command(
        "rotate",
        {"files": ("FILE...", "Parquet file, glob, directory, or key material file")},
        "put encrypted Parquet files under other master keys, or newer versions of them, in place",
        "KMS new-key-ids PREFIX durable jobs WORK",
        needs="--kms URL",
        epilog=_ROTATE_HELP,
        fields="file, outcome (done, left out), keys (by master key), seconds, error",
        examples="""\
ags1 parquet rotate vault/ --kms 'aws:?region=eu-central-1' \\
    --new-key-id alias/lake=alias/lake-2027
ags1 parquet rotate vault/ --kms vault:https://kms:8200""",
        changes={"aad-prefix": {"help": "for files that do not contain theirs, as they have it"}},
        run=lazily("parquet.files:rotate"),
    )
    parser.add_command(
        "inspect",
        files,
        "draw which columns and modules of Parquet files are protected, and how",
        "PARQUET-DECRYPTION LIST",
        more="Without keys, what anybody can see; with them, all of it. Nothing but the footer is authenticated: that "
        "takes `ags1 parquet verify`.",
        epilog=_KEY_HELP,
        fields="file, what ags1.parquet.Inspection has, error",
        examples="ags1 parquet inspect out.parquet --footer-key file:f.key",
        changes=changes,
        run=lazily("parquet.inspect:inspect"),
    )
    parser.add_command(
        "verify",
        files,
        "authenticate every module of Parquet files without decoding them, and name those that fail",
        "PARQUET-DECRYPTION REQUIREMENTS expect-from WORK",
        spark=OnSpark(
            "verify_parquet",
            {"source": "directory or file, or a URL"},
            f"workers-kms transfer-key-id {_READING} REQUIREMENTS CHOICE {_JOB}",
            _SECRETS,
            {"on_error": "collect"},
        ),
        needs="(--footer-key KEY | --kms URL | ...)",
        more="A file is authentic, damaged or not protected; so are all of them together. Exit code 1 if anything is "
        "damaged or missing; 3 if a key is missing; 5 if anything is not protected: no footer is authenticated, or "
        "pages carry no tag, as those of AES_GCM_CTR_V1. In a directory, files that are not Parquet are left out.",
        epilog=_KEY_HELP + _VERIFY_HELP,
        fields="file, outcome, seconds, created, ags1, error, and what ags1.parquet.ParquetVerifyReport has; behind "
        "several files: total, outcome, outcomes, missing, unexpected",
        examples="""\
ags1 parquet verify vault/ --kms local:keys.json \\
    --require-encrypted ssn,salary --expect 'part-{0..99}.parquet'
ags1 parquet verify vault/ --footer-key file:f.key \\
    --expect-prefix 'people-2027.part{0..99}'""",
        changes=changes,
        run=lazily("parquet.verify:verify"),
    )
    for name, summary, form in (
        ("cat", "show the rows of encrypted Parquet files", "csv"),
        ("head", "show the first rows of encrypted Parquet files", "table"),
    ):
        parser.add_command(
            name,
            files,
            summary,
            f"PARQUET-DECRYPTION {'rows ' if name == 'head' else ''}columns missing-keys ROWS threads",
            needs="(--footer-key KEY | --kms URL | ...)",
            more="Needs pyarrow. Only the pages of the columns and rows that are shown are read.",
            epilog=_KEY_HELP,
            examples="""\
ags1 parquet head out.parquet -n 5 --columns id,ssn --kms local:keys.json
ags1 parquet cat out.parquet --format json --footer-key file:f.key | jq .id""",
            changes=changes | {"format": {"default": form, "help": f"form of rows ({form})"}},
            run=lazily(f"parquet.rows:{name}"),
        )
    return parser
