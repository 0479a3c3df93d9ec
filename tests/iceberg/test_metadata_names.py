"""Metadata files under every name that a writer has used: none is passed over, whatever looks for them."""

from __future__ import annotations

import datetime
import gzip
import random
import tempfile
from pathlib import Path

import pyarrow
import pytest

from ags1.audit import audit
from ags1.errors import ConflictError, FormatError
from ags1.iceberg import EncryptedTable, clean, create_table, encrypt_table, expire_snapshots, load_table, rekey_table
from ags1.iceberg.catalogs.file import newest_metadata
from ags1.iceberg.conversion.old_keys import what_old_keys_open
from ags1.iceberg.metadata.metadata_document import is_metadata_file, version_of
from ags1.kms import MemoryKms
from tests import checks

KMS = MemoryKms({"lake": bytes(16), "other": bytes(range(16))})
NOW = datetime.timedelta(0)
ROWS = pyarrow.table({"id": pyarrow.array([1, 2, 3])})
SUFFIXES = (".metadata.json", ".gz.metadata.json", ".gzip.metadata.json", ".metadata.json.gz")
KNOWN = [f"{begin}{suffix}" for begin in ("v7", "00007-a23ed31f") for suffix in SUFFIXES]
UNKNOWN = ["v7.zstd.metadata.json", "v7.metadata.json.zst", "00007-a.metadata.json.snappy", "7.metadata.json"]
UNCOMMITTED = "12345678-1234-4234-8234-123456789012.metadata.json"


def stored_as(table: EncryptedTable, name: str) -> Path:
    """Give the newest metadata file of a table another name; the older ones stay."""
    path = Path(table.metadata_location.removeprefix("file://"))
    text = path.read_bytes()
    renamed = path.with_name(name)
    renamed.write_bytes(gzip.compress(text) if "gz" in name else text)
    path.unlink()
    return renamed


def new_table(place: Path) -> EncryptedTable:
    table = create_table(None, str(place), ROWS.schema, kms=KMS, key_id="lake")
    table.append(ROWS)
    table.append(ROWS)
    return table


@checks.every("name", KNOWN)
def test_the_newest_state_is_found_under_each_name(tmp_path: Path, name: str) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    path = stored_as(new_table(place / "t"), name)
    for opened in (load_table(None, str(place / "t"), kms=KMS), load_table(None, str(path), kms=KMS)):
        assert opened.scan().count() == 6
    assert path.name in str(audit(place, kms=KMS))
    opened.append(ROWS)
    rekey_table(opened, key_id="other")
    table = load_table(None, str(place / "t"), kms=KMS, table_key_id="other")
    report = what_old_keys_open(table.catalog_table, KMS)
    assert path.name in {each.rpartition("/")[2] for each in report.metadata_files}
    expire_snapshots(table)
    clean(table, older_than=NOW)
    assert load_table(None, str(place / "t"), kms=KMS).scan().count() == 9


@checks.every("name", UNKNOWN)
def test_a_file_whose_form_is_not_known_is_not_passed_over(tmp_path: Path, name: str) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    table = new_table(place / "t")
    (place / "t" / "metadata" / name).write_bytes(b"another state")
    with pytest.raises(FormatError, match=name):
        load_table(None, str(place / "t"), kms=KMS)
    before = sorted(place.rglob("*"))
    for act in (expire_snapshots, clean, lambda each: encrypt_table(each, key_id="lake")):
        with pytest.raises(ConflictError, match=name):
            act(load_table(None, table.metadata_location, kms=KMS, table_key_id="lake"))
        assert sorted(place.rglob("*")) == before


def test_older_files_and_commits_that_were_not_made_stop_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for name in ("v1.metadata.json.zst", UNCOMMITTED, ".v9.metadata.json.crc", "9.json"):
        (tmp_path / "t" / "metadata" / name).write_bytes(b"")
    assert load_table(None, str(tmp_path / "t"), kms=KMS).metadata_location.endswith(
        table.metadata_location.removeprefix("file://")
    )


@checks.every("hint", ["3", "v3", "00003-a", "00003-a.metadata.json\n"])
def test_a_hint_that_names_a_newer_state_is_believed(tmp_path: Path, hint: str) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    table = new_table(place / "t")
    path = place / "t" / "metadata" / "version-hint.text"
    path.write_text("1")
    assert load_table(None, str(place / "t"), kms=KMS).scan().count() == 6
    path.write_text(hint)
    with pytest.raises(FormatError, match=r"version-hint\.text is or names a state .* seems newer than 00002"):
        load_table(None, str(place / "t"), kms=KMS)
    with pytest.raises(ConflictError, match=r"version-hint\.text"):
        expire_snapshots(load_table(None, table.metadata_location, kms=KMS))


def test_of_random_directories_the_highest_number_is_taken_or_none(tmp_path: Path) -> None:
    draw = random.Random(6)
    for round_ in range(200):
        place = tmp_path / str(round_)
        place.mkdir()
        numbers = draw.sample(range(30), 4)
        names = [draw.choice(KNOWN).replace("7", str(number), 1) for number in numbers]
        names += [draw.choice(UNKNOWN).replace("7", str(draw.randrange(30)), 1)] if draw.random() < 0.5 else []
        for name in names:
            assert is_metadata_file(name)
            (place / name).touch()
        unknown = [int("".join(c for c in name.split(".")[0].split("-")[0] if c.isdigit())) for name in names[4:]]
        if any(each >= max(numbers) for each in unknown):
            with pytest.raises(FormatError, match="not known here"):
                newest_metadata(str(place))
        else:
            assert version_of(newest_metadata(str(place))) == max(numbers)
