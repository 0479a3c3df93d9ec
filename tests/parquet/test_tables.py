"""read_table and dataset: the rows of the plain files, only what is needed, and no nulls in place of what is locked."""

from __future__ import annotations

import io
import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from ags1 import AuthenticationError, FormatError, KeyAccessError
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetView,
    dataset,
    encrypt_file,
    read_table,
    verify_tree,
)
from tests.checks import CountingFile, flip, in_threads, run_python
from tests.parquet import corpus
from tests.parquet.view_files import COLUMN_KEYS, FOOTER_KEY, NAME, WAYS, decryption, encrypted, opened, plain_table

FOOTER_ONLY = DecryptionConfig(FOOTER_KEY)


# -- read_table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_read_table_answers_what_pyarrow_reads_from_the_plain_file(small_name: str, way: str) -> None:
    data = encrypted(small_name, way)
    expected = plain_table(small_name)
    found = read_table(data, decryption(way), page_checksum_verification=True)
    assert found.equals(expected)
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert read_table(io.BytesIO(data), decryption(way), use_threads=False).equals(expected)


def test_a_plaintext_file_is_read_without_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    path.write_bytes(corpus.build(NAME))
    assert read_table(path, None).equals(plain_table(NAME))
    with pytest.raises(FormatError, match="not encrypted"):
        read_table(path, decryption("java"))


@pytest.mark.parametrize(
    "columns", [["name"], ["number", "name"], ["struct.x", "deep"], ["name", "name"], [], ("map", "list")]
)
def test_columns_are_those_of_pyarrow(columns: Any) -> None:
    expected = plain_table(NAME, columns=list(columns))
    assert read_table(encrypted(NAME, "java"), decryption("java"), columns).equals(expected)


def test_names_with_dots_are_those_of_pyarrow() -> None:
    data = encrypted("odd-names", "uniform")
    for columns in (["a.b"], ["a"], ["a.b.c", "größe"], [""]):
        expected = plain_table("odd-names", columns=columns)
        assert read_table(data, decryption("java"), columns).equals(expected), columns


@pytest.mark.parametrize(
    "filters",
    [
        pc.field("number") > 380,
        [("number", ">", 380)],
        [[("number", ">", 380)], [("name", "==", "name 16")]],
        [[("name", "in", ["name 16", "name 1"]), ("number", "<", 50)]],
    ],
    ids=str,
)
def test_filters_are_those_of_pyarrow(filters: Any) -> None:
    expected = plain_table(NAME, columns=["number"], filters=filters)
    found = read_table(encrypted(NAME, "java"), decryption("java"), ["number"], filters)
    assert found.equals(expected)
    assert 0 < found.num_rows < 100


def test_only_what_is_wanted_is_read() -> None:
    data = encrypted("wide", "uniform")
    file = CountingFile(data)
    read_table(file, decryption("uniform"), ["column 007"])
    chunks = [chunk for chunk in opened("wide", "uniform").chunks if chunk.path == ("column 007",)]
    wanted = [(chunk.pages[0].offset, chunk.pages[0].offset + chunk.metadata[7]) for chunk in chunks]
    footer = opened("wide", "uniform").footer_offset
    for offset, size in set(file.reads) - {(0, 4)}:
        assert offset + size > footer or any(start <= offset < end for start, end in wanted), (offset, size)


def test_keys_that_are_not_needed_need_not_be_there() -> None:
    data = encrypted(NAME, "java")
    assert read_table(data, FOOTER_ONLY, ["deep", "struct.x"]).equals(plain_table(NAME, columns=["deep", "struct.x"]))
    for columns, missing in ((["name"], "name"), (["deep", "struct"], r"struct\.y"), (None, r"list\.list\.element")):
        with pytest.raises(
            KeyAccessError, match=rf"column {missing} is encrypted .*; `missing_keys='drop'` leaves out"
        ):
            read_table(data, FOOTER_ONLY, columns)


def test_columns_without_keys_are_left_out_by_choice() -> None:
    data = encrypted(NAME, "java")
    assert read_table(data, FOOTER_ONLY, missing_keys="drop").column_names == ["struct", "deep"]
    found = read_table(data, FOOTER_ONLY, ["name", "struct", "deep"], missing_keys="drop")
    assert found.schema.field("struct").type == pa.struct([("x", pa.int64())])
    assert found.column_names == ["struct", "deep"]
    assert read_table(data, FOOTER_ONLY, ["name"], missing_keys="drop").shape == (400, 0)


@pytest.mark.parametrize("missing_keys", ["error", "drop"])
@pytest.mark.parametrize("filters", [pc.field("name") == "name 16", [("name", "==", "name 16")]], ids=["field", "list"])
def test_a_filter_on_a_column_without_its_key_is_an_error(filters: Any, missing_keys: str) -> None:
    """Rows must not come back unfiltered."""
    with pytest.raises(KeyAccessError, match="column name is encrypted with a key that was not given"):
        read_table(encrypted(NAME, "java"), FOOTER_ONLY, ["deep"], filters, missing_keys=missing_keys)


def test_wrong_arguments_are_refused() -> None:
    data = encrypted(NAME, "uniform")
    with pytest.raises(ValueError, match=r"there is no column 'nam'; did you mean 'name'\?"):
        read_table(data, decryption("uniform"), ["nam"])
    with pytest.raises(TypeError, match="columns must be a list of column names, not str"):
        read_table(data, decryption("uniform"), "name")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="columns must be a list of str, but has a tuple"):
        read_table(data, decryption("uniform"), [("struct", "x")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="missing_keys must be 'error' or 'drop', not 'null'"):
        read_table(data, decryption("uniform"), missing_keys="null")
    for name in ("decryption_properties", "filesystem", "memory_map"):
        with pytest.raises(TypeError, match=f"{name} cannot be given: "):
            read_table(data, decryption("uniform"), **{name: True})
    with pytest.raises(pa.ArrowInvalid, match="nosuch"):
        read_table(data, decryption("uniform"), filters=pc.field("nosuch") == 1)
    with pytest.raises(TypeError, match="nosuch_option"):
        read_table(data, decryption("uniform"), nosuch_option=1)


def test_damage_is_an_error_of_ags1() -> None:
    page = next(chunk for chunk in opened("snappy-v1", "uniform").chunks if chunk.path == ("real",)).pages[-1]
    damaged = flip(encrypted("snappy-v1", "uniform"), page.offset + page.stored_size - 1)
    with pytest.raises(AuthenticationError, match="data page 0 of column 'real' in row group 0"):
        read_table(damaged, decryption("uniform"), use_threads=False)
    assert read_table(damaged, decryption("uniform"), ["name"]).num_rows == 200


def test_nothing_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(encrypted(NAME, "uniform"))
    with path.open("rb") as file:
        read_table(file, decryption("uniform"))
        assert not file.closed
    read_table(path, decryption("uniform"))
    with pytest.raises(ValueError, match="no column"):
        read_table(path, decryption("uniform"), ["nosuch"])
    assert str(path) not in _links()


def _links() -> set[str]:
    """What the descriptors of this process refer to."""
    found = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    # That of the listing itself is closed by now.
    return {os.readlink(link) for link in found if os.path.lexists(link)}


# -- dataset -------------------------------------------------------------------------------------------------

YEARS = (2024, 2025, 2026)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A table in three directories, with the manners of several writers."""
    base = tmp_path / "people"
    for year, way in zip(YEARS, ("java", "arrow", "ctr"), strict=True):
        part = base / f"year={year}"
        part.mkdir(parents=True)
        (part / "part-0.parquet").write_bytes(encrypted(NAME, way))
    (base / "_SUCCESS").write_bytes(b"")
    (base / "year=2024" / "_KEY_MATERIAL_FOR_part-0.parquet.json").write_text("{}")
    (base / "year=2024" / ".part-0.parquet.crc").write_bytes(b"crc!")
    return base


def test_a_directory_is_a_dataset(directory: Path) -> None:
    people = dataset(directory, decryption("java"))
    assert isinstance(people, ds.FileSystemDataset)
    assert people.schema.names == [*plain_table(NAME).column_names, "year"]
    assert people.count_rows() == 1200
    assert people.to_table().drop_columns("year").equals(pa.concat_tables([plain_table(NAME)] * 3))
    found = people.to_table(columns=["name", "year"], filter=(pc.field("year") > 2024) & (pc.field("number") < 10))
    assert found["year"].to_pylist() == [2025] * 10 + [2026] * 10
    assert people.head(5, columns=["number"])["number"].to_pylist() == [0, 1, 2, 3, 4]
    assert len(list(people.get_fragments(filter=pc.field("year") == 2025))) == 1


def test_partitions_and_columns_that_are_not_needed_are_not_opened(directory: Path) -> None:
    opened_files = []

    def keys(path: str) -> DecryptionConfig:
        opened_files.append(Path(path).parent.name)
        return decryption("java")

    people = dataset(directory, keys)
    opened_files.clear()
    assert people.to_table(filter=pc.field("year") == 2026, columns=["number"]).num_rows == 400
    assert opened_files == ["year=2026"]
    opened_files.clear()
    assert people.to_table().num_rows == 1200
    assert sorted(opened_files) == [f"year={year}" for year in YEARS]


def test_paths_globs_and_lists(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(str(path) for path in directory.glob("*/part-0.parquet"))
    for paths, expected in (
        (files[0], files[:1]),
        (files, files),
        ([Path(files[1]), Path(files[0])], [files[1], files[0]]),
        (f"{directory}/**/*.parquet", files),
        (directory / "year=202[45]" / "*", files[:2]),
        ([f"{directory}/*4/*.parquet", files[2], files[0]], [files[0], files[2]]),
        (f"file://{directory}", files),
        (str(directory) + "/./", files),
    ):
        assert dataset(paths, decryption("java")).files == expected, paths
    monkeypatch.chdir(directory.parent)
    for path in ("people", "./people/"):
        found = dataset(path, decryption("java"))
        assert found.files == [os.path.relpath(file, directory.parent) for file in files]
        assert found.count_rows() == 1200


def test_a_name_with_wildcards_is_a_name_first(tmp_path: Path) -> None:
    odd = tmp_path / "a[b]*.parquet"
    odd.write_bytes(encrypted("snappy-v1", "uniform"))
    assert dataset(odd, decryption("uniform")).count_rows() == 200


def test_paths_that_are_not_there(directory: Path) -> None:
    for paths in (directory / "nosuch", f"{directory}/nosuch*", [f"{directory}/year=2024/nosuch.parquet"]):
        with pytest.raises(FileNotFoundError, match="nosuch"):
            dataset(paths, decryption("java"))
    with pytest.raises(IsADirectoryError, match="a list must have files and patterns"):
        dataset([directory], decryption("java"))
    with pytest.raises(ValueError, match="paths is an empty list"):
        dataset([], decryption("java"))
    with pytest.raises(TypeError, match="paths must be a path, a URL, or a list of these, not int"):
        dataset([1], decryption("java"))


def test_remote_files() -> None:
    memory = fsspec.filesystem("memory")
    for year in YEARS:
        memory.pipe(f"/lake/people/year={year}/part-0.parquet", encrypted(NAME, "uniform"))
    seen = set()

    def keys(path: str) -> DecryptionConfig:
        seen.add(path)
        return decryption("uniform")

    urls = {f"memory:///lake/people/year={year}/part-0.parquet" for year in YEARS}
    try:
        for paths, options in (
            ("memory://lake/people", {}),
            ("memory://lake/people/**/*.parquet", {}),
            (sorted(urls), {}),
            ("/lake/people", {"filesystem": memory}),
            ("/lake/people", {"filesystem": pafs.PyFileSystem(pafs.FSSpecHandler(memory))}),
        ):
            seen.clear()
            found = dataset(paths, keys, **options)
            assert found.to_table(filter=pc.field("year") != 2025, columns=["number", "year"]).num_rows == 800
            assert found.count_rows() == 1200
            # Of a directory, the paths below it; else whole names.
            is_directory = isinstance(paths, str) and "*" not in paths
            assert {url.replace("memory:///", "memory://") for url in seen} == (
                {f"year={year}/part-0.parquet" for year in YEARS}
                if is_directory
                else {url.replace("memory:///", "memory://") for url in urls}
            )
            mapping = {url: decryption("uniform") for url in urls}
            assert dataset(paths, mapping, **options).to_table(columns=["name"]).num_rows == 1200
    finally:
        memory.rm("/lake", recursive=True)


def test_a_file_system_of_arrow(directory: Path) -> None:
    base = pafs.SubTreeFileSystem(str(directory), pafs.LocalFileSystem())
    found = dataset(["year=2024/part-0.parquet", "year=2025/part-0.parquet"], decryption("java"), filesystem=base)
    assert found.to_table().num_rows == 800
    assert dataset(directory, decryption("java"), filesystem=pafs.LocalFileSystem()).count_rows() == 1200
    with pytest.raises(ValueError, match="patterns need a file system of fsspec, or local files"):
        dataset("year=*/part-0.parquet", decryption("java"), filesystem=base)
    with pytest.raises(TypeError, match="filesystem must be a file system of fsspec or pyarrow, not str"):
        dataset(directory, decryption("java"), filesystem="s3")
    with pytest.raises(ValueError, match="different file systems"):
        dataset([str(directory), "memory://lake/people"], decryption("java"))


def _bound(directory: Path, prefixes: dict[str, bytes]) -> dict[str, bytes]:
    """Files that are bound to their names, each with a key of its own."""
    keys = {}
    directory.mkdir()
    for number, (name, prefix) in enumerate(prefixes.items()):
        keys[name] = bytes([number + 1]) * 16
        config = EncryptionConfig(keys[name], aad_prefix=prefix, store_aad_prefix=False)
        encrypt_file(corpus.build("snappy-v1"), directory / name, config)
    return keys


def test_files_have_keys_of_their_own(tmp_path: Path) -> None:
    prefixes = {f"{name}.parquet": name.encode() for name in "abc"}
    base = tmp_path / "bound"
    keys = _bound(base, prefixes)
    configs = {name: DecryptionConfig(keys[name], aad_prefix=prefixes[name]) for name in prefixes}
    by_path = {str(base / name): config for name, config in configs.items()}
    by_path_object = {Path(path): each for path, each in by_path.items()}
    for decrypt in (by_path, by_path_object, lambda path: configs[Path(path).name]):
        assert dataset(base, decrypt).to_table().num_rows == 600  # type: ignore[arg-type]
    del by_path[str(base / "c.parquet")]
    found = dataset(base, by_path)
    with pytest.raises(KeyAccessError, match=r"c\.parquet: decryption has no DecryptionConfig for this file"):
        found.to_table(use_threads=False)


def test_exchanged_files_are_noticed_by_their_prefixes(tmp_path: Path) -> None:
    """The threat: files of one key, each authentic, change places."""
    base = tmp_path / "bound"
    base.mkdir()
    for name in "ab":
        config = EncryptionConfig(FOOTER_KEY, aad_prefix=name.encode())
        encrypt_file(corpus.build("snappy-v1"), base / name, config)
    (base / "a").rename(base / "c")
    (base / "b").rename(base / "a")
    (base / "c").rename(base / "b")
    assert dataset(base, FOOTER_ONLY).count_rows() == 400
    # What `expected` has of prefixes is compared as a set.
    assert read_table(base, FOOTER_ONLY, ["number"], expected=[b"a", b"b"]).num_rows == 400

    def bound(path: str) -> DecryptionConfig:
        return FOOTER_ONLY.with_aad_prefix(path.encode())

    for read in (dataset, read_table):
        with pytest.raises(AuthenticationError, match="another AAD prefix"):
            read(base, bound)
    (base / "a").rename(base / "c")
    (base / "b").rename(base / "a")
    (base / "c").rename(base / "b")
    assert read_table(base, bound, ["number"]).num_rows == verify_tree(base, bound).checked["files"] * 200 == 400
    with pytest.raises(TypeError, match="decryption must be a DecryptionConfig for a single file, not function"):
        read_table(base / "a", bound)  # type: ignore[arg-type]


def test_a_set_of_files_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threat: files are removed, added or exchanged, each of them authentic. A set knows how many it has."""
    base = tmp_path / "set"
    for number in range(4):
        path = base / f"p={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        encrypt_file(corpus.build("snappy-v1"), path, EncryptionConfig(FOOTER_KEY, aad_prefix=f"set.{number}".encode()))
    names = [f"p={number % 2}/{number}.parquet" for number in range(4)]
    plain = FOOTER_ONLY
    memory = fsspec.filesystem("memory")
    memory.put(str(base), "/lake/set", recursive=True)
    monkeypatch.chdir(base)
    try:
        for place in (base, f"{base}/", ".", "memory://lake/set/"):
            for expected in (names, b"set.{0..3}", [*names, b"set.{0..3}"]):
                assert dataset(place, plain, expected=expected).count_rows() == 800
                assert read_table(place, plain, ["number"], expected=expected).num_rows == 800
            for wrong, message in (
                (names[1:], r"does not have the expected files: .*0\.parquet is not expected: no file with the name"),
                ([*names, "p=1/x"], r"does not have the expected files: p=1/x is missing"),
                (b"set.{0..4}", r"AAD prefix 'set\.4' is missing"),
                (b"set.{0..2}", r"3\.parquet is not expected: no file with the AAD prefix 'set\.3' is expected"),
            ):
                with pytest.raises(FormatError, match=message):
                    dataset(place, plain, expected=wrong)
                with pytest.raises(FormatError, match=message):
                    read_table(place, plain, expected=wrong)
    finally:
        memory.rm("/lake", recursive=True)
    assert dataset("p=*/*.parquet", plain, expected="{0..3}.parquet").count_rows() == 800
    # A file that takes the place of another after the set was checked.
    found = dataset(base, plain, expected=b"set.{0..3}")
    (base / names[1]).write_bytes((base / names[0]).read_bytes())
    with pytest.raises(AuthenticationError, match=r"1\.parquet: was exchanged for a file with another AAD prefix"):
        found.to_table()
    (base / names[1]).write_bytes(corpus.build("snappy-v1"))
    keys = DecryptionConfig(FOOTER_KEY, allow_plaintext=True)
    with pytest.raises(FormatError, match=r"1\.parquet is not expected: it has no AAD prefix that was authenticated"):
        dataset(base, keys, expected=b"set.{0..3}")
    with pytest.raises(ValueError, match="expected names the files of a directory"):
        read_table(base / names[0], plain, expected=names)


def test_read_table_of_a_directory_answers_what_pyarrow_reads(directory: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    for year in YEARS:
        (plain / f"year={year}").mkdir(parents=True)
        (plain / f"year={year}" / "part-0.parquet").write_bytes(corpus.build(NAME))
    for columns, filters in itertools.product(
        (None, ["name"], ["struct.x", "year"], []),
        (None, [("number", "<", 3)], [[("year", "=", 2025)], [("number", ">", 390)]], pc.field("number") == 7),
    ):
        expected = pq.read_table(plain, columns=columns, filters=filters)
        for missing_keys in ("error", "drop"):
            found = read_table(directory, decryption("java"), columns, filters, missing_keys=missing_keys)
            assert found.equals(expected), (columns, filters)
    # Keys of other columns are not needed.
    assert read_table(directory, FOOTER_ONLY, ["deep"], [("year", "=", 2025)]).num_rows == 400
    for columns, filters in ((["name"], None), (None, None), (["deep"], [("name", "=", "x")])):
        with pytest.raises(KeyAccessError, match="is encrypted with a key that was not given"):
            read_table(directory, FOOTER_ONLY, columns, filters)
    assert read_table(directory, FOOTER_ONLY, ["name", "deep"], missing_keys="drop").column_names == ["deep"]
    for filters in ([("name", "=", "x")], pc.field("name") == "x"):
        with pytest.raises(KeyAccessError, match="is encrypted with a key that was not given"):
            read_table(directory, FOOTER_ONLY, ["deep"], filters, missing_keys="drop")
    for missing_keys in ("error", "drop"):
        with pytest.raises(ValueError, match="the dataset has no column 'nam'"):
            read_table(directory, decryption("java"), ["nam"], missing_keys=missing_keys)
    with pytest.raises(TypeError, match="read_dictionary is for single files"):
        read_table(directory, decryption("java"), read_dictionary=["name"])


def test_plaintext_files_only_if_they_are_allowed(directory: Path) -> None:
    (directory / "year=2026" / "part-0.parquet").write_bytes(corpus.build(NAME))
    with pytest.raises(FormatError, match=r"year=2026/part-0\.parquet: the file is not encrypted"):
        dataset(directory, decryption("java")).to_table(use_threads=False)
    assert dataset(directory, decryption("java", allow_plaintext=True)).to_table().num_rows == 1200


def test_a_damaged_file_is_the_error_of_the_scan_that_meets_it(directory: Path) -> None:
    path = directory / "year=2025" / "part-0.parquet"
    chunk = next(chunk for chunk in opened(NAME, "arrow").chunks if chunk.path == ("number",))
    page = chunk.pages[-1]
    path.write_bytes(flip(path.read_bytes(), page.offset + page.stored_size - 1))
    people = dataset(directory, decryption("java"))
    with pytest.raises((AuthenticationError, FormatError), match=r"year=2025/part-0\.parquet: data page .* 'number'"):
        people.to_table(columns=["number"], use_threads=False)
    assert people.to_table(columns=["name"]).num_rows == 1200
    assert people.to_table(filter=pc.field("year") != 2025, columns=["number"]).num_rows == 800


def test_columns_choose_what_keys_are_needed(directory: Path) -> None:
    people = dataset(directory, FOOTER_ONLY, columns=["deep", "struct.x"])
    assert people.schema.names == ["struct", "deep", "year"]
    assert people.to_table().num_rows == 1200
    with pytest.raises(KeyAccessError, match="column name"):
        dataset(directory, FOOTER_ONLY, columns=["deep", ("name",)])
    with pytest.raises(ValueError, match="the dataset has no column 'nosuch', or its key is missing"):
        dataset(directory, decryption("java"), columns=["deep", "nosuch"])
    with pytest.raises(TypeError, match="columns must be a list of column names, not str"):
        dataset(directory, decryption("java"), columns="deep")


def test_columns_without_keys_are_left_out_by_choice_everywhere(directory: Path) -> None:
    with pytest.raises(KeyAccessError, match=r"year=2024/part-0\.parquet"):
        dataset(directory, FOOTER_ONLY)
    people = dataset(directory, FOOTER_ONLY, missing_keys="drop")
    assert people.schema.names == ["struct", "deep", "year"]
    expected = plain_table(NAME, columns=["deep"])
    assert people.to_table(columns=["deep"]).equals(pa.concat_tables([expected] * 3))


def test_a_key_that_some_files_lack_does_not_become_nulls(directory: Path) -> None:
    def keys(path: str) -> DecryptionConfig:
        without = {name: key for name, key in COLUMN_KEYS.items() if name != "struct.y" or "2026" not in path}
        return DecryptionConfig(FOOTER_KEY, column_keys=without)

    people = dataset(directory, keys, missing_keys="drop")
    with pytest.raises(KeyAccessError, match=r"2026.*the dataset has a column struct\.y, which would be all nulls"):
        people.to_table(use_threads=False)
    schema = people.schema.remove(people.schema.get_field_index("struct"))
    assert dataset(directory, keys, missing_keys="drop", schema=schema).to_table().num_rows == 1200
    assert dataset(directory, keys, columns=["name", "struct.x"], missing_keys="drop").to_table().num_rows == 1200


def test_files_may_lack_columns_as_ever(tmp_path: Path) -> None:
    for name, table in (("b", pa.table({"a": [1]})), ("a", pa.table({"a": [2], "new": ["x"]}))):
        encrypt_file(corpus.written(table), tmp_path / name, EncryptionConfig(FOOTER_KEY))
    found = dataset(tmp_path, FOOTER_ONLY, columns=["a", "new"]).to_table()
    assert found.to_pylist() == [{"a": 2, "new": "x"}, {"a": 1, "new": None}]


def test_options_of_datasets(directory: Path) -> None:
    flat = dataset(directory, decryption("java"), partitioning=None)
    assert "year" not in flat.schema.names
    form = ds.ParquetFileFormat(dictionary_columns=["name"])
    assert pa.types.is_dictionary(dataset(directory, decryption("java"), format=form).schema.field("name").type)
    with pytest.raises(TypeError, match=r"format must be a pyarrow\.dataset\.ParquetFileFormat, not str"):
        dataset(directory, decryption("java"), format="csv")
    with pytest.raises(TypeError, match="exclude_invalid_files cannot be given: files that were changed"):
        dataset(directory, decryption("java"), exclude_invalid_files=True)
    with pytest.raises(TypeError, match="decryption must be a DecryptionConfig, a callable or a mapping"):
        dataset(directory, FOOTER_KEY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="decryption must return a DecryptionConfig, not bytes"):
        dataset(directory, lambda path: FOOTER_KEY)  # type: ignore[arg-type, return-value]


def test_engines_query_datasets(directory: Path) -> None:
    people = dataset(directory, decryption("java"))
    with duckdb.connect() as connection:
        connection.register("people", people)
        found = connection.sql("SELECT count(*), sum(number) FROM people WHERE year = 2025 AND name = 'name 16'")
        expected = plain_table(NAME, filters=[("name", "==", "name 16")])
        assert found.fetchall() == [(expected.num_rows, pc.sum(expected["number"]).as_py())]
    lazy = pl.scan_pyarrow_dataset(people).filter(pl.col("year") == 2024).select("number")
    assert lazy.collect()["number"].to_list() == list(range(400))
    both = ds.dataset([people, dataset(directory, decryption("java"))])
    assert both.count_rows() == 2400


def test_threads_share_a_dataset(directory: Path) -> None:
    people = dataset(directory, decryption("java"), threads=1)
    expected = people.to_table(columns=["name"])
    for found in in_threads([lambda: people.to_table(columns=["name"])] * 6):
        assert found.equals(expected)


def test_a_dataset_lets_go_of_its_files_and_cannot_be_sent_away(directory: Path) -> None:
    from ags1.support.arrow_threads import _lent, wait_for_arrow

    # Errors of other tests may still hold some.
    others = set(_lent)
    people = dataset(directory, decryption("java"))
    people.to_table()
    wait_for_arrow()
    assert {each for each in _lent if isinstance(each, ParquetView)} <= others
    with pytest.raises((TypeError, pa.ArrowNotImplementedError, AttributeError, pickle.PicklingError)):
        pickle.dumps(people)


def test_a_dataset_writes_nothing(directory: Path) -> None:
    views = dataset(directory, decryption("java")).filesystem
    for use in (
        lambda: views.delete_file(str(directory / "_SUCCESS")),
        lambda: views.open_output_stream(str(directory / "new")),
        lambda: views.create_dir(str(directory / "new")),
        lambda: views.move(str(directory / "_SUCCESS"), str(directory / "new")),
    ):
        with pytest.raises(io.UnsupportedOperation, match="can only be read"):
            use()


@pytest.mark.parametrize("how", ["read_table", "dataset", "missing key"])
def test_a_process_may_end_at_once(how: str, directory: Path) -> None:
    """Threads of Arrow let go of Python objects after a read is over; a process that ends then must not abort."""
    program = """
        import sys
        from ags1.parquet import DecryptionConfig, dataset, read_table
        how, path = sys.argv[1:]
        config = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS)
        if how == "read_table":
            print(read_table(path + "/year=2024/part-0.parquet", config).num_rows)
        elif how == "dataset":
            print(dataset(path, config).to_table(columns=["number", "year"]).num_rows)
        else:
            try:
                dataset(path, lambda path: config if "2026" not in path else None).to_table()
            except Exception as error:
                print(type(error).__name__)
    """
    program = program.replace("FOOTER_KEY", repr(FOOTER_KEY), 1).replace("COLUMN_KEYS", repr(COLUMN_KEYS), 1)
    expected = {"read_table": "400", "dataset": "1200", "missing key": "KeyAccessError"}[how]
    for _ in range(3):
        assert run_python(program, how, str(directory)).strip() == expected
