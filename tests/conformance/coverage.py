"""What the cases cover, and what they do not: ``tests/vectors/COVERAGE.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

Row = tuple[str, str, tuple[str, ...]]
NONE = "none"

# What, the group of the cases, and patterns of their names. A row without patterns is not covered.
ROWS: dict[str, tuple[Row, ...]] = {
    "AGS1 streams: fields": (
        ("magic", "streams", ("*flip-magic-*", "foreign-*")),
        ("block length in the header", "streams", ("header-block-length-*", "*flip-block-length")),
        ("nonce, ciphertext and tag of a block", "streams", ("*flip-nonce*", "*flip-ciphertext*", "*flip-tag*")),
        ("nonces of any form", "streams", ("*nonces-arbitrary",)),
        ("AAD: prefix, then the index as 4 bytes, lowest first", "streams", ("*wrong-aad-*", "b1000-size-300000")),
        ("AAD prefix: none, empty, 16 and 200 bytes", "streams", ("*key??-*prefix*",)),
        ("keys of 16, 24 and 32 bytes", "streams", ("*key16-*", "*key24-*", "*key32-*", "*-wrong-key-length")),
        ("trusted length", "streams", ("*-good-with-length", "*-with-length", "*-extended-*", "one-block-*-length")),
        ("readable plaintexts", "streams", ("text-*",)),
    ),
    "AGS1 streams: bounds": (
        ("36 bytes, the empty stream", "streams", ("text-empty", "empty-*", "*-size-0", "short-*")),
        ("around one block of 1 MiB", "streams", ("mib-size-*", "mib-block*", "mib-2-blocks", "mib-3-blocks-17")),
        ("around blocks of 16, 64 and 1024 bytes", "streams", ("b16-*", "b64-size-*", "b1024-*")),
        ("block lengths of 1, 17, 1000 and 3 MiB", "streams", ("b1-*", "b17-*", "b1000-*", "b3mib-*")),
        ("block length 0, about 2^31, 2^32 - 1", "streams", ("header-block-length-0", "header-block-length-?????*")),
        ("1 to 27 bytes after the last full block", "streams", ("*-tail-*",)),
        ("an empty block after a full one", "streams", ("*-trailing-empty-block",)),
        ("block index of 2^31 and beyond (2 PiB)", NONE, ()),
        ("2^32 blocks under one key", NONE, ()),
    ),
    "AGS1 streams: threats": (
        ("changed bytes", "streams", ("*flip-*",)),
        ("moved and repeated blocks", "streams", ("*-swapped-blocks", "*-repeated-block", "*-inserted-block")),
        ("missing blocks", "streams", ("*-missing-*-block*",)),
        ("blocks of another file", "streams", ("*-block-of-another-file",)),
        ("a cut file", "streams", ("*-cut-*", "*-tail-*", "one-block-shorter*")),
        ("an extended file", "streams", ("*-appended-byte", "*-extended-*", "*-trailing-*", "one-block-longer*")),
        ("wrong key and wrong prefix", "streams", ("*-wrong-key*", "*-*-prefix")),
        ("another format", "streams", ("foreign-*",)),
    ),
    "Key metadata": (
        ("version byte", "key_metadata", ("version-*", "empty")),
        ("encryption_key", "key_metadata", ("key*", "cut-*")),
        ("aad_prefix: null, empty, 16 and 200 bytes", "key_metadata", ("no-prefix", "empty-prefix", "prefix*")),
        ("file_length: null, 0, above 32 bits, 2^63 - 1", "key_metadata", ("length-*", "long-file", "file-length-*")),
        ("two and three fields", "key_metadata", ("two-fields*",)),
        ("integers: unfinished, too long, padded", "key_metadata", ("varint-*", "padded-varint")),
        ("trailing bytes", "key_metadata", ("trailing-bytes",)),
    ),
    "Wrapped keys (encryption-keys)": (
        ("nonce, ciphertext, tag", "wrapped_keys", ("nonce-*", "ciphertext-*", "tag-*", "entry-*", "wrapped-kek-*")),
        ("AAD: the exact text of KEY_TIMESTAMP", "wrapped_keys", ("timestamp-*", "sealed-with*")),
        ("key encryption keys of 16, 24 and 32 bytes", "wrapped_keys", ("three-fields", "kek-*")),
        ("key metadata of two and three fields, without a prefix", "wrapped_keys", ("*-fields", "no-prefix")),
        ("wrong keys", "wrapped_keys", ("another-*", "sealed-by-the-master-key")),
        ("malformed content", "wrapped_keys", ("metadata-*",)),
        ("the wraps of AWS, Google Cloud and Azure", NONE, ()),
    ),
    "Whole tables": (
        ("data keys of 16, 24 and 32 bytes", "tables", ("appended", "key-*")),
        ("deletion vectors", "tables", ("deleted", "deletion-vector-*", "deletes-parquet", "deletes-avro")),
        ("position delete files", "tables", ("deletes-parquet", "deletes-avro", "*-position-delete-file-*")),
        ("equality delete files", "tables", ("deletes-parquet", "deletes-avro", "*-equality-delete-file*")),
        ("data files in Avro", "tables", ("deletes-avro", "deletes-avro-data-file*")),
        ("changed and cut files", "tables", ("*-changed", "*-cut")),
        ("missing files", "tables", ("*-missing",)),
        ("files of other places", "tables", ("*-exchanged", "*-data-file-as-deletes")),
        ("plaintext in place of ciphertext", "tables", ("*-plaintext",)),
        ("changed entries of encryption-keys", "tables", ("kek-*", "list-keys-exchanged")),
        ("another master key", "tables", ("wrong-master-key",)),
        ("an older metadata.json in place of the newest", NONE, ()),
        ("format version 4", NONE, ()),
    ),
    "Parquet: modes": (
        ("AES_GCM_V1: uniform, column keys, columns in plaintext", "parquet", ("gcm-uniform", "gcm-columns*")),
        ("AES_GCM_CTR_V1", "parquet", ("ctr-*",)),
        ("signed plaintext footer", "parquet", ("*plaintext-footer*", "hidden-12-to-17")),
        ("AAD prefix: none, stored, supplied", "parquet", ("prefix-*", "gcm-uniform", "*-prefix")),
        ("keys of 16, 24 and 32 bytes", "parquet", ("key-24", "key-32", "gcm-uniform")),
        ("V2 pages: both forms", "parquet", ("v2-*",)),
        ("zeros behind structs", "parquet", ("padded",)),
        ("row groups without ordinals", "parquet", ("no-ordinals",)),
        ("supply_aad_prefix unset", "parquet", ("no-supply-field",)),
        ("an identity of other than 8 bytes", "parquet", ("file-unique-16",)),
        ("key material in the file, wrapped once and twice", "parquet", ("double-wrapped", "gcm-columns")),
        ("page indexes and Bloom filters", "parquet", ("*-index", "*bloom*")),
        ("key material beside the file", "parquet", ("external-material", "external-material-double")),
        ("ordinals near 32767; compressed pages", NONE, ()),
    ),
    "Parquet: threats": (
        ("one bit of a module of each kind", "parquet", ("*-flip-*", "*-changed-footer")),
        ("moved pages", "parquet", ("*-repeated-page", "*-swapped-pages", "*-page-of-another-row-group")),
        ("parts of another file with the same keys", "parquet", ("*-of-another-file", "gcm-columns-another")),
        ("wrong keys", "parquet", ("wrong-*-key*",)),
        ("wrong, missing and needless AAD prefixes", "parquet", ("*-prefix",)),
        ("cut and extended files", "parquet", ("cut-*", "appended-byte")),
        ("the algorithm's name, which nothing authenticates", "parquet", ("downgraded-to-ctr",)),
        ("changed, foreign and missing key material", "parquet", ("external-material-*",)),
    ),
}  # fmt: skip

_HEAD = """# What the cases cover

Generated from `tests/conformance/coverage.py`. A row that says *not covered* has no case.

"""


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _lines(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    counted = {group: set[str]() for group in names}
    for title, rows in ROWS.items():
        yield f"\n## {title}\n\n| what | cases | how many |\n|---|---|---|\n"
        for what, group, patterns in rows:
            if not patterns:
                yield f"| {what} | *not covered* | |\n"
                continue
            found = set[str]()
            for pattern in patterns:
                if not (matching := _matching(names[group], pattern)):
                    raise SystemExit(f"coverage.py: no case of {group} is called {pattern}")
                found |= set(matching)
            counted[group] |= found
            shown = ", ".join(f"`{pattern}`" for pattern in patterns)
            yield f"| {what} | {group}: {shown} | {len(found)} |\n"
    for group, all_names in names.items():
        if missing := sorted(set(all_names) - counted[group]):
            raise SystemExit(f"coverage.py: nothing names these cases of {group}: {', '.join(missing)}")


def render(names: Mapping[str, Sequence[str]]) -> bytes:
    """Return COVERAGE.md for the names of the cases of each group; a case or a pattern without a match ends it."""
    return (_HEAD.rstrip("\n") + "\n" + "".join(_lines(names))).encode()
