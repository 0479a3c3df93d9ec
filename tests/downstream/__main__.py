"""Run the tests of others over ags1, and say what passed, what failed and why: ``python -m tests.downstream``.

With ``--write`` the table goes into docs/compatibility.md. The exit status is 1 if a test fails for a reason that is
not in `REASONS`.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from tests.downstream import views
from tests.downstream.suites import ROOT, SuiteResult, run_pytest, sources
from tests.results import write_section

_WRITES = "a Reader does not write, and a Writer does not seek, cut or read"
_BYTES_IO = "what BytesIO alone has: its buffer, its constructor, its clamped seeks where files raise OSError, pickling"
_OWN_FILES = "the test makes or opens a plain file by FileIO beside the encrypted one, or asks for its descriptor"
_SAME = "an upsert replaces every row with the same key, and counts those that are the same already, too"
_MESSAGE = "it is refused as well, by an error or in words of ags1"
_METADATA_ALONE = "PyIceberg's own transactions change the metadata of an encrypted table, and no rows"
REASONS: dict[str, dict[str, str]] = {
    "cpython": {
        "test_buffered_file_io": _WRITES,
        "test_flags": _WRITES,
        "test_truncate": _WRITES,
        "test_unicode": _WRITES,
        "test_write*": _WRITES,
        "test_bytes_array": _BYTES_IO,
        "test_detach": "a Reader can be detached, as io.BufferedReader and unlike BytesIO",
        "test_getbuffer*": _BYTES_IO,
        "test_getvalue": _BYTES_IO,
        "test_init": _BYTES_IO,
        "test_overseek": _BYTES_IO,
        "test_pickling": _BYTES_IO,
        "test_*seek": _BYTES_IO,
        "test_subclassing": _BYTES_IO,
        "test_open_handles_NUL_chars": "bytes are a stream for ags1.open, and never a path",
        "test_closefd_attr": _OWN_FILES,
        "test_destructor": _OWN_FILES,
        "test_fileio_closefd": _OWN_FILES,
        "test_fspath_support": _OWN_FILES,
        "test_garbage_collection": _OWN_FILES,
        "test_read_closed": _OWN_FILES,
    },
    "pyiceberg": {
        "test_merge_scenario_*": _SAME,
        "test_upsert_with_identifier_fields": _SAME,
        "test_upsert_with_struct_field_as_non_join_key": _SAME,
        "test_stage_only_upsert": _SAME,
        "test_merge_rows*": "an upsert updates and inserts, and does not one of these alone",
        "test_upsert_with_nulls": "rows that an upsert replaced come in another order",
        "test_upsert_with_duplicate_rows_in_table": "all rows of the table with a key are replaced, as by MERGE",
        "test_upsert_with_struct_field_as_join_key": "a struct is no key of an upsert",
        "test_merge_source_dups": _MESSAGE,
        "test_key_cols_misaligned": _MESSAGE,
        "test_upsert_without_identifier_fields": _MESSAGE,
        "test_append_invalid_input_type_raises*": _MESSAGE,
        "test_concurrent_commit_table*": _MESSAGE,
        "test_create_table_without_namespace*": _MESSAGE,
        "test_table_properties_raise_for_none_value*": _MESSAGE,
        "test_transaction*": _METADATA_ALONE,
        "test_write_and_evolve*": _METADATA_ALONE,
        "test_create_v1_table*": "an encrypted table has format version 3",
        "test_catalog_commit_table_applies_schema_updates*": "PyIceberg itself commits no table of format version 3",
        "test_table_*metadata*": "a property that puts metadata elsewhere is refused, unless the place is allowed",
        "test_append_record_batch_reader_microbatched*": "files are of the size that the table's property says",
        "test_append_record_batch_reader_to_partitioned_table_raises*": "ags1 does append such a reader",
    },
    "fsspec": {"test_open_exclusive": "ags1.fs is read-only"},
    "pyarrow": {
        "*_wrong_key": "a wrong master key is a KeyAccessError of ags1, where the test's own client raises ValueError",
        "*_kms_error": "an unknown master key is a KeyAccessError of ags1, where the test's own client raises KeyError",
    },
}
"""Why tests fail that may, by patterns of their names: what a user should know of, not what is to be mended."""


def _cpython() -> Iterator[SuiteResult]:
    try:
        importlib.import_module("test.test_io")
    except ImportError:
        print("this Python is without its own tests; Debian has them in libpython3-testsuite", file=sys.stderr)
        return
    module = str(ROOT / "tests" / "downstream" / "cpython.py")
    yield run_pytest(f"CPython {platform.python_version()}: its tests of files", [module, *_OURS])


def _fsspec() -> Iterator[SuiteResult]:
    module = str(ROOT / "tests" / "downstream" / "fsspec_cases.py")
    yield run_pytest(f"fsspec {version('fsspec')}: its abstract tests of getting and opening", [module, *_OURS])


def _pyarrow() -> Iterator[SuiteResult]:
    options = ["-p", "tests.downstream.pyarrow_plugin", "--pyargs", "pyarrow.tests.parquet.test_encryption"]
    yield run_pytest(f"PyArrow {version('pyarrow')}: its tests of Parquet encryption, with our KMS client", options)


def _pyiceberg() -> Iterator[SuiteResult]:
    tests = sources("pyiceberg", version("pyiceberg"))
    modules = [str(tests / "tests" / each) for each in _PYICEBERG]
    options = ["-p", "tests.downstream.pyiceberg_plugin", "-c", "/dev/null", "--rootdir", str(tests), *modules]
    name = f"PyIceberg {version('pyiceberg')}: its tests of tables in catalogs, with encrypted tables"
    yield run_pytest(name, options, path=tests)


_PYICEBERG = ("table/test_upsert.py", "table/test_inspect.py", "catalog/test_catalog_behaviors.py")
# Not this project's settings: they make errors of what other people's tests warn of.
_OURS = ("-c", "/dev/null", "--rootdir", "/", "--import-mode=importlib", "--noconftest")
SUITES: dict[str, Callable[[], Iterable[SuiteResult]]] = {
    "cpython": _cpython,
    "fsspec": _fsspec,
    "pyarrow": _pyarrow,
    "pyiceberg": _pyiceberg,
    "views": views.run,
}


def table(results: Iterable[tuple[str, SuiteResult]]) -> Iterator[str]:
    """The result in Markdown, with the reason of each failure below it."""
    yield "| tests | passed | failed | not offered, or skipped by the suite |"
    yield "|---|---|---|---|"
    notes = []
    for suite, result in results:
        yield f"| {result.name} | {result.passed} | {len(result.failed)} | {len(result.skipped)} |"
        explained, unknown = result.explained(REASONS.get(suite, {}))
        notes += [f"- {result.name.partition(':')[0]}, {len(tests)}: {why}" for why, tests in explained.items()]
        notes += [f"- {result.name.partition(':')[0]}: `{test}` fails, and nobody knows why yet" for test in unknown]
    yield ""
    yield from notes


def main() -> None:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.downstream", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*SUITES, []])
    parser.add_argument("--write", action="store_true", help="put the table into docs/compatibility.md")
    arguments = parser.parse_args()
    results = [(name, result) for name in arguments.names or SUITES for result in SUITES[name]()]
    text = "\n".join(table(results))
    print(text)
    unexplained = 0
    for name, result in results:
        for test in result.explained(REASONS.get(name, {}))[1]:
            unexplained += 1
            print(f"{result.name}: {test}: {result.failed[test]}", file=sys.stderr)
    if arguments.write:
        write_section("docs/compatibility.md", "downstream", text)
    raise SystemExit(unexplained > 0)


if __name__ == "__main__":
    main()
