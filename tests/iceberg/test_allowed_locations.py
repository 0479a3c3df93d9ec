"""Files that a table may name: below where it is, and where the caller or the catalog says; never by its own word."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1 import iceberg
from ags1.errors import Ags1Error, UnsupportedError
from ags1.expected import Expected
from ags1.iceberg import EncryptedTable, create_table, load_table, open_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.metadata.locations import TableLocations, local_path
from ags1.kms import MemoryKms
from tests.checks import every

KMS = MemoryKms({"lake": bytes(range(16)), "next": bytes(range(16, 32))})
ROWS = pyarrow.table({"id": [1, 2, 3]})
REFUSED = "outside of the table.*allowed_locations"


def new_table(place: Path, **properties: str) -> EncryptedTable:
    table = create_table(None, str(place), ROWS.schema, kms=KMS, key_id="lake", properties=properties)
    for _ in range(2):
        table.append(ROWS)
    return table


def edited(table: EncryptedTable, change: Callable[[dict[str, Any]], None]) -> str:
    """The table's directory, after somebody with write access to it changed its metadata."""
    path = Path(table.metadata_location.removeprefix("file://"))
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_text(json.dumps(fields))
    return str(path.parent.parent)


# -- what is outside -------------------------------------------------------------------------------------------------

METADATA = {
    "s3://lake/db/t/metadata/1.metadata.json": "s3://lake/db/t",
    "s3a://lake/db/t/1.metadata.json": "s3://lake/db/t",
    "s3://lake/metadata/1.metadata.json": "s3://lake",
    "gs://lake/t/metadata/1.metadata.json": "gs://lake/t",
    "abfss://c@a.dfs.core.windows.net/t/metadata/1.metadata.json": "abfss://c@a.dfs.core.windows.net/t",
    "hdfs://nn:8020/lake/t/metadata/1.metadata.json": "hdfs:///lake/t",
    "/lake/t/metadata/1.metadata.json": "file:/lake/t",
    "file:///lake/t/metadata/1.metadata.json": "/lake/t",
    "/metadata/1.metadata.json": "/",
}


@every("metadata", METADATA)
def test_files_below_the_table_are_its_own_however_they_are_spelled(metadata: str) -> None:
    places = TableLocations()
    places.add(metadata)
    for root in (METADATA[metadata], METADATA[metadata].replace("s3://", "s3n://")):
        places.check(f"{root.rstrip('/')}/data/x.parquet")
        places.check(f"{root.rstrip('/')}/metadata/snap.avro")


@every("metadata", METADATA)
def test_no_other_place_is_the_tables(metadata: str) -> None:
    places = TableLocations()
    places.add(metadata)
    root = METADATA[metadata].rstrip("/")
    outside = [
        "s3://victim/x", "s3://lakes/db/t/x", "https://victim/x", "gs://victim/x", "hdfs:///etc/x",
        "abfss://c@victim.dfs.core.windows.net/t/x", f"{root}2/x", f"{root}/../x", "",
    ]  # fmt: skip
    if root:
        outside += ["/etc/passwd", "file:/etc/passwd", root, "data/x.parquet"]
    for path in outside:
        if root == "" and path in (f"{root}2/x", f"{root}/../x"):
            continue
        if path:
            with pytest.raises(UnsupportedError, match=REFUSED):
                places.check(path)


def test_links_lead_out_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "data").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to("t")
    places = TableLocations()
    places.add(str(tmp_path / "link" / "metadata" / "1.metadata.json"))
    for path in ("t/x", "link/x", "t/metadata/../x"):
        places.check(str(tmp_path / path))
    for path in ("t/data/x", "link/data/x", "t/../x"):
        with pytest.raises(UnsupportedError, match=REFUSED):
            places.check(str(tmp_path / path))


def test_a_second_metadata_file_adds_no_place() -> None:
    places = TableLocations(["s3://other/"])
    places.add("s3://lake/t/metadata/1.metadata.json")
    places.add("s3://lake/t/metadata/2.metadata.json")
    places.add("s3://other/metadata/2.metadata.json")
    with pytest.raises(UnsupportedError, match=REFUSED):
        places.add("s3://victim/t/metadata/2.metadata.json")


def test_allowed_locations_are_a_list_of_texts() -> None:
    both = Expected(allowed_locations=["b,c"]).within({"ags1.allowed-locations": '["a"]'})
    assert both.allowed_locations == ("a", "b,c")
    with pytest.raises(TypeError, match="a list"):
        open_table("x.metadata.json", KMS, allowed_locations="s3://lake")
    for text in ("s3://lake", "{}", "[1]", '[""]'):
        with pytest.raises(ValueError, match="allowed-locations must be a JSON list"):
            Expected.of({"ags1.allowed-locations": text})


# -- whole tables ----------------------------------------------------------------------------------------------------


@every("url", ["s3://victim/x.avro", "https://169.254.169.254/latest", "/etc/passwd", "file:///etc/passwd", "gs://v/x"])
def test_no_request_goes_to_a_place_that_only_the_metadata_names(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ags1.iceberg.files.file_io as files

    place = tmp_path / url.replace("/", "_")
    table = new_table(place)

    def change(fields: dict[str, Any]) -> None:
        fields["snapshots"][-1]["manifest-list"] = url
        fields["location"] = url.rpartition("/")[0]
        fields["properties"] |= {"write.data.path": fields["location"], "write.metadata.path": fields["location"]}

    directory = edited(table, change)
    real = files.location_of

    def location_of(location: str, *arguments: Any) -> Any:
        assert location != url
        return real(location, *arguments)

    monkeypatch.setattr(files, "location_of", location_of)
    opened = load_table(None, directory, kms=KMS, allow_plaintext=True)
    reading = (lambda: opened.scan().to_arrow(), opened.files)
    writing = (
        lambda: opened.append(ROWS),
        lambda: iceberg.rekey_table(opened, data_keys=True),
        lambda: iceberg.expire_snapshots(opened),
    )
    for act in (*reading, *writing):
        with pytest.raises(UnsupportedError, match=REFUSED):
            act()
    for report in (opened.audit(), opened.verify()):
        assert not report.ok
        assert "allowed_locations" in str(report)


def test_no_file_is_written_where_only_the_metadata_says(tmp_path: Path) -> None:
    for name in ("write.data.path", "write.metadata.path"):
        table = new_table(tmp_path / name)
        other = tmp_path / f"others-{name}"
        directory = edited(table, lambda fields: fields["properties"].update({name: other.as_uri()}))  # noqa: B023
        opened = load_table(None, directory, kms=KMS)
        for act in (
            lambda: opened.append(ROWS),  # noqa: B023
            lambda: opened.delete("id = 1"),  # noqa: B023
            lambda: iceberg.rekey_table(opened, data_keys=True),  # noqa: B023
        ):
            with pytest.raises(UnsupportedError, match=REFUSED):
                act()
        assert not other.exists()
        assert opened.scan().count() == 6


def test_files_elsewhere_are_read_and_written_where_the_caller_says_so(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    made = new_table(tmp_path / "t", **{"write.data.path": other.as_uri()})
    assert made.scan().count() == 6
    with pytest.raises(UnsupportedError, match=REFUSED):
        load_table(None, str(tmp_path / "t"), kms=KMS).scan().to_arrow()
    allowed = [str(other)]
    assert open_table(made.metadata_location, KMS, allowed_locations=allowed).verify().ok
    opened = load_table(None, str(tmp_path / "t"), kms=KMS, allowed_locations=allowed)
    opened.append(ROWS)
    opened.delete("id = 1")
    iceberg.rekey_table(opened, data_keys=True, expire=True)
    assert opened.refresh().scan().count() == 6
    assert opened.verify().ok
    table = catalog_table(None, str(tmp_path / "t"), expected=Expected(allowed_locations=allowed))
    iceberg.rekey_table(table, key_id="next", data_keys=True, kms=KMS)
    iceberg.relocate_table(table, str(tmp_path / "copy"), kms=KMS)
    assert load_table(None, str(tmp_path / "copy"), kms=KMS).scan().count() == 6


def test_expiry_removes_nothing_that_others_have(tmp_path: Path) -> None:
    """Whoever can write the metadata could otherwise have files removed by somebody with more rights."""
    theirs = tmp_path / "theirs.stats"
    theirs.write_bytes(b"PFA1")
    table = new_table(tmp_path / "t")

    def change(fields: dict[str, Any]) -> None:
        usual = {"snapshot-id": fields["snapshots"][0]["snapshot-id"], "file-size-in-bytes": 4, "blob-metadata": []}
        fields["statistics"] = [{**usual, "file-footer-size-in-bytes": 4, "statistics-path": str(theirs)}]

    opened = load_table(None, edited(table, change), kms=KMS)
    for act in (iceberg.expire_snapshots, lambda each: iceberg.rekey_table(each, data_keys=True)):
        with pytest.raises(UnsupportedError, match=REFUSED):
            act(opened)
    assert theirs.exists()


def test_a_catalogs_pointer_says_where_a_table_is(tmp_path: Path) -> None:
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    table = create_table(catalog, "db.t", ROWS.schema, kms=KMS, key_id="lake")
    table.append(ROWS)
    assert load_table(catalog, "db.t", kms=KMS).scan().count() == 3
    shutil.copytree(table.metadata_location.removeprefix("file://").rpartition("/")[0], tmp_path / "copy" / "metadata")
    copied = load_table(None, str(tmp_path / "copy"), kms=KMS)
    with pytest.raises(UnsupportedError, match=r"outside of the table.*moved_from"):
        copied.scan().to_arrow()
    catalog.engine.dispose()


def test_the_path_of_a_file_url_is_what_urllib_makes_of_its_scheme_and_host() -> None:
    """The threat: two parsers take one location for two places, and the check is about the other one."""
    chance = random.Random(11)
    parts = ["file:", "file://", "file:///", "/", "//", "localhost", "a", "?", "#", "%2F", ":", "..", "é"]
    for _ in range(20_000):
        location = "".join(chance.choices(parts, k=chance.randint(1, 6)))
        parsed, path = urlparse(location), local_path(location)
        if location.startswith("/") or (parsed.scheme == "" and "://" not in location):
            assert path == location
        elif parsed.scheme == "file" and parsed.netloc in ("", "localhost"):
            behind = location.removeprefix("file:")
            assert path == (behind[2:].removeprefix("localhost") if behind.startswith("//") else behind), location
        elif parsed.scheme == "file":
            assert path is None


NEVER_NAMED = ["\ud800", "/lake/\udfff", "/lake/t\0", "file:///lake/\ud800/t", "s3://lake/\ud800"]


def places_of_text(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a parsed JSON document has texts: the keys and indexes that lead there."""
    if isinstance(value, str):
        return [above]
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in within for place in places_of_text(each, (*above, key))]


def test_a_text_that_names_no_file_is_refused_or_has_no_effect_wherever_it_stands(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    path = Path(table.metadata_location.removeprefix("file://"))
    authentic, chance = path.read_text(), random.Random(3)
    places = places_of_text(json.loads(authentic))
    assert ("location",) in places
    cases = [(("location",), text) for text in NEVER_NAMED]
    for place, text in [*cases, *((place, chance.choice(NEVER_NAMED)) for place in places)]:
        fields = json.loads(authentic)
        inner = fields
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = text
        path.write_text(json.dumps(fields))
        with contextlib.suppress(Ags1Error, OSError):
            found = open_table(table.metadata_location, KMS).scan().to_arrow()
            # Its files are where the metadata file is.
            assert found.num_rows == 2 * ROWS.num_rows, (place, ascii(text))
        with contextlib.suppress(Ags1Error, OSError):
            open_table(table.metadata_location, KMS).verify()
