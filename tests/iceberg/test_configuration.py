"""PyIceberg's configuration: what is wrong with it is said with file and line, and which catalogs it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from ags1.iceberg.catalogs import catalog_table, loaded
from ags1.iceberg.configuration import configuration_fault
from tests.checks import HANG_SECONDS, every
from tests.cli.conftest import Run, run

__all__ = ["run"]

NO_YAML = "PyIceberg's configuration is no YAML"
FAULTS = {
    "catalog:\n  lake:\n    type: sql\n   uri: secret\n": f", line 4: {NO_YAML}: expected <block end>, but found",
    "catalog:\n  lake: {uri: secret}\n": f", line 2: {NO_YAML}: Found ugly disallowed JSONesque flow mapping",
    "\tcatalog: secret\n": f", line 1: {NO_YAML}: found character '\\t' that cannot start any token",
    "catalog:\n  a:\n    x: y\n  a:\n    x: y\n": f", line 4: {NO_YAML}: Duplicate key 'a' found",
    "": ": PyIceberg's configuration is empty, or a text: write `catalog:`",
    "secret": ": PyIceberg's configuration is empty, or a text: write `catalog:`",
    "catalog: secret": ", or a variable that begins with PYICEBERG_: Catalog configurations needs to be an object",
    "\udcff": ": PyIceberg's configuration cannot be read: 'utf-8' codec can't decode byte 0xff",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory and the current one: no configuration but what a test writes there."""
    for name in [each for each in os.environ if each.upper().startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every("text", FAULTS)
def test_a_configuration_that_cannot_be_read_is_named_with_its_line(text: str, home: Path) -> None:
    (home / ".pyiceberg.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match="yaml") as caught:
        loaded("lake")
    assert str(caught.value).startswith(f"{home}/.pyiceberg.yaml{FAULTS[text]}")
    assert "secret" not in str(caught.value)


def test_a_fault_in_a_variable_shows_no_value(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configuration_fault() is None
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE", "hidden")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3_SECRET", "hidden too")
    fault = str(configuration_fault())
    assert fault.startswith("a variable that begins with PYICEBERG_: ")
    assert "hidden" not in fault


def test_a_program_and_a_command_get_one_clear_error_where_pyiceberg_is_imported(home: Path) -> None:
    (home / ".pyiceberg.yaml").write_text("catalog:\n  lake:\n    type: sql\n   uri: x\n")
    for arguments, code in (
        (("-c", "from ags1 import iceberg; iceberg.load_table"), 1),
        (("-m", "ags1.cli", "iceberg", "scan", "db.t", "--catalog", "lake"), 2),
        (("-m", "ags1.cli", "iceberg", "inspect", "t"), 2),
    ):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
        *_, last = done.stderr.splitlines()
        assert (done.returncode, f"{home}/.pyiceberg.yaml, line 4: " in last) == (code, True), done.stderr
        assert last.startswith(("ValueError: ", "ags1: "))
        assert "strictyaml" not in done.stderr


def test_a_catalog_that_is_not_configured_leads_to_those_that_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configured(text: str) -> None:
        (home / ".pyiceberg.yaml").write_text(text)
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())

    configured("other: 1\n")
    with pytest.raises(ValueError, match=r"no catalog 'lak-e' .*which has none: .*PYICEBERG_CATALOG__LAK_E__URI"):
        loaded("lak-e")
    configured("catalog:\n  lake:\n    type: sql\n  prod:\n    uri: http://localhost:9\n")
    with pytest.raises(
        ValueError, match=r"there is no catalog 'lak' in .*, which has lake, prod: the first .pyiceberg.yaml"
    ):
        loaded("lak")
    with pytest.raises(ValueError, match=r"^the catalog 'Lake' of .*: it has no uri there, or in PYICEBERG_CATALOG__"):
        loaded("Lake")
    with pytest.raises(ValueError, match=r"^the catalog 'lake' of .*: 'sq' is not a valid CatalogType"):
        loaded("lake", type="sq")


def test_another_name_of_a_sql_catalog_leads_to_the_name_under_which_it_has_tables(home: Path, run: Run) -> None:
    uri = f"sqlite:///{home}/catalog.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=str(home))
    catalog.create_namespace("db")
    with pytest.raises(FileNotFoundError, match=r"the catalog has no such table: 'db.t'$"):
        catalog_table(catalog, "db.t").load()
    catalog.create_table("db.t", pa.schema({"id": pa.int64()}))
    given = ("--catalog", "lak", "--property", f"uri={uri}", "--property", "type=sql")
    said = ", under the name 'lak'; its database has tables of lake"
    scanned = run("iceberg", "scan", "db.t", *given)
    assert (scanned.code, scanned.err) == (4, f"ags1: db.t: the catalog has no such table{said}\n")
    catalog.engine.dispose()
