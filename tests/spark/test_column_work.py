"""What one task does with columns, without Spark around it: keys, places, and everything that was changed since."""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

import ags1  # noqa: E402
from ags1.iceberg.metadata import key_entries  # noqa: E402
from ags1.kms import load  # noqa: E402
from ags1.spark.columns import _encrypting, _function  # noqa: E402
from ags1.spark.engine import column_keys, sealing  # noqa: E402
from ags1.spark.engine.column_keys import (  # noqa: E402
    LEAD,
    ColumnRecord,
    Wanted,
    data_key,
    keys_for,
    make_key,
    newest_key,
    read_key,
    write_key,
)
from ags1.spark.engine.column_work import DecryptColumns, EncryptColumns, KeyTable, Opening  # noqa: E402
from ags1.storage import Location  # noqa: E402
from tests.checks import count_of_messages, flip, leaks  # noqa: E402

FIELD = {"name": "ssn", "type": "string", "nullable": True, "metadata": {}}
ROW_KEY = ("id", "bigint")
ROWS = pa.record_batch({"id": [1, 2, 3, 4], "ssn": ["one", None, "three", ""]})


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Each test is a worker process of its own."""
    yield
    sealing._made.clear()


def new_key(table: Location, kms: str, column: str, key_id: str, **what: Any) -> ColumnRecord:
    """A key of a run of its own, whose record is in the table."""
    made = make_key(kms, Wanted(column, key_id, **what))
    write_key(table, kms, made)
    return made


class Columns:
    """A column of a key table, and the tasks that work on it."""

    def __init__(self, table: Path, kms_url: str, form: str = "gcm", row_key: Any = None) -> None:
        self.table, self.kms, self.form, self.row_key = Location(table), kms_url, form, row_key
        self.key = new_key(self.table, kms_url, "ssn", "lake", form=form, field=FIELD, row_key=row_key)

    def _bound(self) -> int | None:
        return None if self.row_key is None else ROWS.schema.names.index(self.row_key[0])

    def sealed(self, *batches: Any) -> list[Any]:
        task = pickle.loads(pickle.dumps(EncryptColumns({1: self.key}, self._bound(), self.kms)))
        return list(task(batches or (ROWS,)))

    def plain(self, *batches: Any, on_error: str = "raise", **what: Any) -> list[Any]:
        given = {
            "column": "ssn",
            "key_id": "lake",
            "form": self.form,
            "row_key": self.row_key,
            "type": "string",
            **what,
        }
        task = DecryptColumns(
            {1: (Opening(**given), pa.string())}, KeyTable(self.table), self._bound(), on_error, self.kms
        )
        return list(pickle.loads(pickle.dumps(task))(batches))


def changed(batch: Any, row: int, value: bytes | None) -> Any:
    values = batch["ssn"].to_pylist()
    values[row] = value
    return batch.set_column(1, "ssn", pa.array(values, pa.binary()))


@pytest.mark.parametrize("row_key", [None, ROW_KEY])
@pytest.mark.parametrize("form", ["ags1", "gcm"])
def test_batches_come_back_and_each_value_costs_what_is_said(
    tmp_path: Path, kms_url: str, form: str, row_key: Any
) -> None:
    columns = Columns(tmp_path, kms_url, form, row_key)
    sealed = columns.sealed(ROWS, ROWS.slice(1, 2), ROWS.slice(0, 0))
    assert [len(each) for each in sealed] == [4, 2, 0]
    assert sealed[0].schema == pa.schema([("id", pa.int64()), ("ssn", pa.binary())])
    more = LEAD + {"ags1": 36, "gcm": 28}[form]
    lengths = [None if each is None else len(each) - more for each in sealed[0]["ssn"].to_pylist()]
    assert lengths == [3, None, 5, 0]
    assert columns.plain(*sealed) == [ROWS, ROWS.slice(1, 2), ROWS.slice(0, 0)]


def test_a_value_is_what_the_format_says(tmp_path: Path, kms_url: str) -> None:
    # A page of plain Python: the record, the key id in front, the derived key, and the AAD.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    columns = Columns(tmp_path, kms_url, row_key=ROW_KEY)
    value = columns.sealed()[0]["ssn"][2].as_py()
    run, attempt = value[:6].hex(), value[6:18]
    (record,) = tmp_path.rglob("run.json")
    assert record.relative_to(tmp_path).parts[1:] == (run, "run.json")
    key = data_key(columns.key.reference.unwrap(load(kms_url)), attempt)
    aad = struct.pack("<I", 3) + b"ssn" + struct.pack("<I", 8) + struct.pack("<q", 3)
    assert AESGCM(bytes(key)).decrypt(value[18:30], value[30:], aad) == b"three"


def test_each_attempt_has_a_data_key_of_its_own_and_all_are_decrypted_together(tmp_path: Path, kms_url: str) -> None:
    columns = [Columns(tmp_path, kms_url), Columns(tmp_path, kms_url)]
    sealed = [columns[index % 2].sealed()[0] for index in range(6)]
    leads = [each["ssn"][0].as_py()[:LEAD] for each in sealed]
    assert len(set(leads)) == 6
    assert len({lead[:6] for lead in leads}) == 2
    assert len({each["ssn"][2].as_py() for each in sealed}) == 6
    mixed = pa.Table.from_batches(sealed).take([5, 3, 0, 1, 2, *range(23, 3, -1)]).combine_chunks().to_batches()[0]
    expected = pa.Table.from_batches([ROWS] * 6).take([5, 3, 0, 1, 2, *range(23, 3, -1)])
    (plain,) = columns[0].plain(mixed)
    assert plain.to_pydict() == expected.to_pydict()


def test_an_attempt_refuses_more_values_than_its_key_may_seal(
    tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.spark.engine import column_work

    def nearly(keys: Any, attempt: bytes) -> ags1.Key:
        key = data_key(keys, attempt)
        count_of_messages(key).value = (1 << 32) - 4
        return key

    columns = Columns(tmp_path, kms_url)
    monkeypatch.setattr(column_work, "data_key", nearly)
    assert len(list(EncryptColumns({1: columns.key}, None, kms_url)([ROWS]))) == 1
    with pytest.raises(ags1.LimitError):
        list(EncryptColumns({1: columns.key}, None, kms_url)([ROWS, ROWS]))


# -- what was changed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ags1", "gcm"])
def test_each_flipped_bit_is_an_error_that_names_column_and_row(tmp_path: Path, kms_url: str, form: str) -> None:
    columns = Columns(tmp_path, kms_url, form)
    (sealed,) = columns.sealed()
    value = sealed["ssn"][2].as_py()
    for bit in range(8 * len(value)):
        damaged = changed(sealed, 2, flip(value, bit // 8, bit % 8))
        if form == "ags1" and LEAD + 4 <= bit // 8 < LEAD + 8:
            # AGS1's block length is not authenticated: it may say nothing new about a value of one block.
            try:
                assert columns.plain(damaged) == [ROWS]
            except (ags1.AuthenticationError, ags1.FormatError):
                pass
            continue
        with pytest.raises((ags1.AuthenticationError, ags1.FormatError, ags1.KeyAccessError)) as caught:
            columns.plain(sealed, damaged)
        assert "column 'ssn', row " in str(caught.value)
        assert isinstance(caught.value, ags1.FormatError) or "row 6: " in str(caught.value)


def test_a_value_that_ends_early_is_an_error_also_where_damage_is_null(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    (sealed,) = columns.sealed()
    value = sealed["ssn"][2].as_py()
    for length in range(LEAD + 28):
        with pytest.raises(ags1.TruncatedError, match="column 'ssn', row "):
            columns.plain(changed(sealed, 2, value[:length]), on_error="null")


def test_a_long_value_cannot_be_cut_where_blocks_of_files_end(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url, "ags1")
    long = pa.record_batch({"id": [1], "ssn": ["x" * (3 << 20)]})
    (sealed,) = columns.sealed(long)
    value = sealed["ssn"][0].as_py()
    assert columns.plain(sealed) == [long]
    assert len(value) == LEAD + 36 + (3 << 20)
    for block_length in (1 << 20, (1 << 31) - 1):
        header = b"AGS1" + struct.pack("<I", block_length)
        cut = value[:LEAD] + header + value[LEAD + 8 : LEAD + 8 + (1 << 20) + 28]
        with pytest.raises(ags1.AuthenticationError, match="column 'ssn', row 0"):
            columns.plain(changed(sealed, 0, cut))


def test_values_that_changed_rows_are_found_by_the_rows_key_alone(tmp_path: Path, kms_url: str) -> None:
    for row_key in (None, ROW_KEY):
        columns = Columns(tmp_path, kms_url, row_key=row_key)
        (sealed,) = columns.sealed()
        values = sealed["ssn"].to_pylist()
        swapped = changed(changed(sealed, 0, values[2]), 2, values[0])
        if row_key is None:
            assert columns.plain(swapped)[0]["ssn"].to_pylist() == ["three", None, "one", ""]
            continue
        with pytest.raises(ags1.AuthenticationError, match=r"column 'ssn', row 0: .* another row"):
            columns.plain(swapped)
        # Sorted and filtered with their rows they are what they were.
        (plain,) = columns.plain(sealed.take(pa.array([3, 0])))
        assert plain == ROWS.take(pa.array([3, 0]))


def test_a_value_of_another_column_is_no_value_of_this_one(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    other = new_key(columns.table, kms_url, "notes", "lake", form="gcm", field=FIELD)
    (notes,) = EncryptColumns({1: other}, None, kms_url)([ROWS.rename_columns(["id", "notes"])])
    (sealed,) = columns.sealed()
    with pytest.raises(ags1.KeyAccessError, match=r"row 1: the key of this value cannot be used: .* no key"):
        columns.plain(changed(sealed, 1, notes["notes"][0].as_py()))
    # Not even where somebody has copied the record.
    (record,) = (tmp_path / column_keys._tag("notes")).iterdir()
    record.rename(tmp_path / column_keys._tag("ssn") / record.name)
    with pytest.raises(ags1.AuthenticationError, match=r"row 1: .*another dataset or table"):
        columns.plain(changed(sealed, 1, notes["notes"][0].as_py()))


def test_damage_is_null_where_that_is_asked_for_and_the_error_stands_beside_it(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    (sealed,) = columns.sealed()
    damaged = changed(sealed, 2, flip(sealed["ssn"][2].as_py(), 40))
    (plain,) = columns.plain(damaged, on_error="null")
    assert plain["ssn"].to_pylist() == ["one", None, None, ""]
    errors = plain[2].to_pylist()
    assert [each is None for each in errors] == [True, True, False, True]
    assert "the tag does not verify" in errors[2]
    # A batch by chance may have one value: it is this value that is damaged, and not the key that is wrong.
    (alone,) = columns.plain(damaged.slice(2, 1), on_error="null")
    assert alone["ssn"].to_pylist() == [None]
    (whole,) = columns.plain(sealed, on_error="null")
    assert whole.select(["id", "ssn"]) == ROWS
    assert whole[2].null_count == 4


# -- records that runs share ---------------------------------------------------------------------------------

WANTED = Wanted("ssn", "lake", "gcm", FIELD)


def test_runs_share_the_newest_record_while_it_is_young_and_says_the_same(
    tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Location(tmp_path)
    moment = 0

    def key(wanted: Wanted) -> ColumnRecord:
        nonlocal moment
        before = set(tmp_path.rglob("run.json"))
        (found,) = keys_for(table, kms_url, [wanted])
        for record in set(tmp_path.rglob("run.json")) - before:
            # Clocks of file systems tick slowly.
            moment += 1
            os.utime(record, ns=(moment, moment))
        return found

    first = key(WANTED)
    assert [key(WANTED) for _ in range(3)] == [first] * 3
    for other in (
        replace(WANTED, form="ags1"),
        replace(WANTED, field={**FIELD, "type": "long"}),
        replace(WANTED, row_key=ROW_KEY),
        replace(WANTED, column="notes"),
        replace(WANTED, key_id="lake2"),
    ):
        made = key(other)
        assert made != first
        assert key(other) == made
    # The newest record says the type of a column: no older one comes back.
    assert key(WANTED) != first
    again = key(WANTED)
    with monkeypatch.context() as later:
        later.setattr(key_entries, "KEK_LIFESPAN_MS", 0)
        assert key(WANTED) != again
    assert len(list(tmp_path.rglob("run.json"))) == 8


def test_appends_at_once_make_records_of_which_each_is_right(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    next(tmp_path.rglob("run.json")).unlink()
    together = threading.Barrier(4)

    def append(number: int) -> Any:
        together.wait(600)
        (key,) = keys_for(columns.table, kms_url, [WANTED])
        return next(EncryptColumns({1: key}, None, kms_url)([ROWS]))

    with ThreadPoolExecutor(4) as pool:
        sealed = list(pool.map(append, range(4)))
    assert columns.plain(*sealed) == [ROWS] * 4
    written = len(list(tmp_path.rglob("run.json")))
    assert 1 <= written <= 4
    keys_for(columns.table, kms_url, [WANTED])
    assert len(list(tmp_path.rglob("run.json"))) == written


def test_a_record_that_cannot_be_read_or_opened_stops_no_encryption(
    tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Location(tmp_path)
    (first,) = keys_for(table, kms_url, [WANTED])
    planted = next(tmp_path.iterdir()) / "ffffffffffff" / "run.json"
    planted.parent.mkdir()
    planted.write_text("{}")
    assert keys_for(table, kms_url, [WANTED]) == [first]

    def denied(directory: Location) -> Any:
        raise PermissionError("s3:ListBucket")

    with monkeypatch.context() as writer:
        writer.setattr(column_keys, "found_runs", denied)
        assert keys_for(table, kms_url, [WANTED]) != [first]


def test_a_master_key_that_is_refused_lets_no_record_of_another_column_be_written(tmp_path: Path, kms_url: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match="nobody"):
        keys_for(Location(tmp_path), kms_url, [WANTED, Wanted("notes", "nobody", "gcm", FIELD)])
    assert not list(tmp_path.rglob("run.json"))


def test_a_process_reads_the_record_of_each_value_once_and_side_by_side(
    tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [Columns(tmp_path, kms_url) for _ in range(48)]
    sealed = [each.sealed(ROWS)[0] for each in columns]
    read: list[str] = []
    # Four at once, or the first three wait for ever.
    together = threading.Event()

    def counted(table: Location, kms: str, column: str, run: str, key_id: str) -> ColumnRecord:
        read.append(run)
        if len(read) >= 4:
            together.set()
        assert together.wait(600)
        return read_key(table, kms, column, run, key_id)

    monkeypatch.setattr(column_keys, "read_key", counted)
    # The records of values that are not there are not read.
    some = pa.Table.from_batches(sealed[:40]).combine_chunks().to_batches()[0]
    for _ in range(3):
        assert columns[0].plain(some, some)[1].num_rows == some.num_rows
    assert sorted(read) == sorted(each.key.reference.run for each in columns[:40])
    # Until the client of the KMS would ask again too.
    now = time.monotonic()
    kept = column_keys.kept_keys(kms_url)
    monkeypatch.setattr(kept, "clock", lambda: now + kept.seconds + 1)
    columns[0].plain(some)
    assert len(read) == 80


def test_a_key_that_was_read_in_one_table_is_no_key_of_another(tmp_path: Path, kms_url: str) -> None:
    columns, elsewhere = Columns(tmp_path / "a", kms_url), Columns(tmp_path / "b", kms_url)
    (sealed,) = columns.sealed()
    assert columns.plain(sealed) == [ROWS]
    with pytest.raises(ags1.KeyAccessError, match=r"column 'ssn', row 0: .* no key"):
        elsewhere.plain(sealed)


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_wrong_key_raises_also_where_damage_is_null(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path / "a", kms_url)
    (sealed,) = columns.sealed()
    for what, message in (
        ({"key_id": "lake2"}, "under the master key 'lake', and 'lake2' is expected"),
        ({"form": "ags1"}, "give form='gcm'"),
        ({"row_key": ROW_KEY}, "bound to rows by another column"),
        ({"type": "long"}, "have the type string, and long is expected"),
    ):
        with pytest.raises((ags1.AuthenticationError, ags1.FormatError)) as caught:
            columns.plain(sealed, on_error="null", **what)
        assert "column 'ssn', row 0: " in str(caught.value)
        assert message in str(caught.value)
        sealing._made.clear()
    elsewhere = Columns(tmp_path / "b", kms_url)
    with pytest.raises(ags1.KeyAccessError, match=r"column 'ssn', row 0: .* no key"):
        elsewhere.plain(sealed, on_error="null")


def test_a_record_is_believed_whole_or_not_at_all(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    (sealed,) = columns.sealed()
    (record,) = tmp_path.rglob("run.json")
    data = record.read_bytes()
    run = columns.key.reference.run
    for place in range(0, len(data), 7):
        record.write_bytes(flip(data, place, 1))
        try:
            found = read_key(columns.table, kms_url, "ssn", run, "lake")
        except (ags1.Ags1Error, ValueError):
            continue
        # Spaces, and what nobody looks at: it says what it said.
        assert found.about() == columns.key.about()
    record.write_bytes(data[: len(data) // 2])
    with pytest.raises(ags1.FormatError, match="column 'ssn', row 0: "):
        columns.plain(sealed)
    record.unlink()
    with pytest.raises(ags1.KeyAccessError, match=r"column 'ssn', row 0: .* no key"):
        columns.plain(sealed)


def test_a_record_of_somebody_else_hides_no_key(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    new_key(columns.table, kms_url, "ssn", "lake2", form="ags1", field={**FIELD, "type": "long"})
    planted = next(tmp_path.iterdir()) / "ffffffffffff" / "run.json"
    planted.parent.mkdir()
    planted.write_text("{}")
    assert newest_key(columns.table, kms_url, "ssn", "lake") == columns.key
    assert newest_key(columns.table, kms_url, "other", "lake") is None
    planted.unlink()
    with pytest.raises(ags1.AuthenticationError, match="'other' is expected"):
        newest_key(columns.table, kms_url, "ssn", "other")


def test_a_key_table_that_cannot_be_written_encrypts_nothing(tmp_path: Path, kms_url: str) -> None:
    (tmp_path / "file").touch()
    for table in (Location(tmp_path / "file"), Location("memory://keys")):
        with pytest.raises(OSError):
            new_key(table, kms_url, "ssn", "lake", form="gcm", field=FIELD)


def test_no_run_takes_the_place_of_another(tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = Columns(tmp_path, kms_url)
    run = columns.key.reference.run
    (record,) = tmp_path.rglob("run.json")
    before = record.read_bytes()
    monkeypatch.setattr("ags1.dataset.runs.new_run", lambda: run)
    with pytest.raises(FileExistsError):
        new_key(columns.table, kms_url, "ssn", "lake", form="gcm", field=FIELD)
    assert record.read_bytes() == before


def test_nothing_that_is_pickled_or_stored_has_a_key(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    keys = columns.key.reference.unwrap(load(kms_url))
    (sealed,) = columns.sealed()
    secrets = {
        "run": bytes(keys.key()),
        "data": bytes(data_key(keys, sealed["ssn"][0].as_py()[6:18])),
        "storage": b"a secret key of S3 that is long",
    }
    location = Location("s3://vault/keys", {"aws_secret_access_key": secrets["storage"].decode()})
    hidden = KeyTable.of(location, kms_url, "lake")
    task = DecryptColumns({1: (Opening("ssn", "lake", "gcm"), pa.string())}, hidden, None, "raise", kms_url)
    places = {
        "encrypt": pickle.dumps(EncryptColumns({1: columns.key}, None, kms_url)),
        "decrypt": pickle.dumps(task),
        "text": repr((columns.key, hidden, task)).encode(),
        **{str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()},
    }
    assert leaks(places, secrets) == []
    assert pickle.loads(places["decrypt"]).table.open() == location


def test_a_null_row_key_is_refused(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url, row_key=ROW_KEY)
    batch = pa.record_batch({"id": [1, None], "ssn": ["a", "b"]}, pa.schema([("id", pa.int64()), ("ssn", pa.string())]))
    with pytest.raises(ValueError, match="column 'ssn', row 5: the row key is null"):
        columns.sealed(ROWS, batch)


def test_a_column_of_nulls_needs_no_key(tmp_path: Path, kms_url: str) -> None:
    columns = Columns(tmp_path, kms_url)
    nulls = pa.record_batch({"id": [1, 2], "ssn": pa.nulls(2, pa.string())})
    (sealed,) = columns.sealed(nulls)
    for record in tmp_path.rglob("run.json"):
        os.unlink(record)
    assert columns.plain(sealed) == [nulls]


def test_a_sql_function_refuses_what_it_cannot_encrypt(tmp_path: Path, kms_url: str) -> None:
    key = new_key(Location(tmp_path), kms_url, "", "lake", form="gcm")
    function = _function("ags1_encrypt", ["lake"], lambda key_id, column, _: _encrypting(key, column, kms_url))
    text, lake = pa.array(["a", "b"]), pa.array(["lake"] * 2)
    for batch, message in (
        ((text, pa.array(["other"] * 2)), "'other' is not one of key_ids"),
        ((pa.array([1, 2]), lake), "takes text or binary, not int64"),
        (text, "takes a value, a master key"),
        ((text, lake, lake, lake, lake), "takes a value, a master key"),
        ((text, text), "are text, the same for all rows"),
        ((text, lake, pa.array(["a", None])), "are text, the same for all rows"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            list(function(iter([batch])))
    nothing = text.slice(0, 0)
    assert [len(each) for each in function(iter([(nothing, nothing), (text, lake)]))] == [0, 2]


def test_a_key_table_in_an_object_store_has_each_key_once(
    s3: Any, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Location(f"{s3.url}/keys")
    record = new_key(table, kms_url, "ssn", "lake", form="gcm", field=FIELD)
    (sealed,) = EncryptColumns({1: record}, None, kms_url)([ROWS])
    opening = Opening("ssn", "lake", "gcm", None, "string")
    assert list(DecryptColumns({1: (opening, pa.string())}, KeyTable(table), None, "raise", kms_url)([sealed])) == [
        ROWS
    ]
    assert newest_key(table, kms_url, "ssn", "lake") == record
    monkeypatch.setattr("ags1.dataset.runs.new_run", lambda: record.reference.run)
    with pytest.raises(FileExistsError):
        new_key(table, kms_url, "ssn", "lake", form="gcm", field=FIELD)
