"""The Parquet side of the benchmarks: its sample files and its picture. Nothing here asserts a speed."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from ags1 import parquet
from ags1.parquet.native.pages import PageList
from ags1.parquet.structure.source_file import SourceFile
from bench import parquet_files, parquet_samples, report

NBYTES = 2 << 20


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Sample files by variant, made once."""
    directory = tmp_path_factory.mktemp("cache")
    return lambda variant: parquet_files.cached(NBYTES, variant, directory)


def _pages(path, row_group=0):
    """Pages of each column of a row group, by name."""
    with SourceFile(str(path)) as file:
        group = list(file.row_groups())[row_group]
        found = {}
        for chunk in group.chunks():
            pages, walk = PageList(), chunk.to_walk()
            while not walk.done:
                pages.add(walk, file.pages(), 1 << 60, 1 << 40)
            found[chunk.leaf.name] = pages.details()
        return found


@pytest.mark.parametrize("variant", list(parquet_files.VARIANTS))
def test_a_sample_has_about_the_size_that_was_asked_for(sample, variant):
    path = sample(variant)
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == parquet_files.ROW_GROUPS
    assert path.stat().st_size == pytest.approx(NBYTES, rel=0.15)
    assert (metadata.row_group(0).column(0).has_offset_index) is parquet_files.VARIANTS[variant].page_index


def test_samples_have_the_same_rows_in_other_pages(sample):
    tables = [pq.read_table(sample(variant)) for variant in parquet_files.VARIANTS]
    assert all(each.equals(tables[0]) for each in tables)
    assert tables[0].column("score").null_count > 0
    small, large = _pages(sample("small")), _pages(sample("large"))
    assert len(small["token"]) > 10 * len(large["token"])
    # Dictionaries stay small, and the pages are close to what they were meant to be.
    assert small["city"][0]["type"] == 2
    assert max(page["uncompressed_length"] for page in small["token"]) < 16 << 10
    assert large["price"][0]["type"] == 0


def test_a_sample_is_made_once(sample):
    first = sample("large")
    before = first.stat().st_mtime_ns
    assert sample("large") == first
    assert first.stat().st_mtime_ns == before
    assert [each.name for each in first.parent.iterdir() if each.name.startswith(".making-")] == []


def test_the_sample_files_are_made_without_the_package():
    spec = importlib.util.spec_from_file_location("alone_parquet_files", Path(parquet_files.__file__))
    alone = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = alone
    try:
        spec.loader.exec_module(alone)
        assert alone.table(10).equals(parquet_files.table(10))
    finally:
        del sys.modules[spec.name]


def test_a_wide_file_has_a_chunk_for_each_column_and_row_group(tmp_path):
    path = tmp_path / "wide.parquet"
    parquet_files.write_wide(path, 30, 4)
    metadata = pq.read_metadata(path)
    assert (metadata.num_columns, metadata.num_row_groups, metadata.num_rows) == (30, 4, 4)


def test_encrypted_samples_hold_what_the_plain_ones_hold(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_samples.floors, "cache_directory", lambda: sample("large").parent)
    samples = parquet_samples.Samples(tmp_path, NBYTES)
    encrypted = samples.encrypted("large")
    assert encrypted.read_bytes()[:4] == b"PARE"
    with parquet.open(encrypted, parquet_samples.DECRYPTION) as view:
        assert pq.read_table(view).equals(pq.read_table(samples.plain("large")))
    assert samples.encrypted("large") == encrypted
    assert samples.blocks("large").read_bytes()[:4] == b"AGS1"


def _results(*parts):
    machine = {"cores": 2, "cpu_model": "a model"}
    return {"machine_info": machine, "benchmarks": [{"extra_info": {"parquet": part}} for part in parts]}


def test_the_picture_takes_the_bars_of_a_direction_together(tmp_path):
    results = _results(
        {"direction": "encrypt", "gbps": {"ags1": 1.5, "cp": 1.2}},
        {"direction": "encrypt", "gbps": {"ags1": 9.0, "PyArrow": 0.1}},
        {"direction": "rekey", "gbps": {"ags1": 1.1}},
    )
    results["benchmarks"].append({"extra_info": {}})
    assert report.parquet_of(results) == {"encrypt": {"ags1": 1.5, "cp": 1.2, "PyArrow": 0.1}, "rekey": {"ags1": 1.1}}
    pytest.importorskip("matplotlib")
    assert report.draw_parquet(results, tmp_path) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parquet.png", "parquet.svg"]
    first = (tmp_path / "parquet.svg").read_bytes()
    report.draw_parquet(results, tmp_path)
    assert (tmp_path / "parquet.svg").read_bytes() == first


def test_without_parquet_figures_there_is_no_picture():
    assert report.draw_parquet(_results(), Path("nowhere")) is False
