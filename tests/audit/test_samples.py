"""A magic is no proof: what contradicts it is a finding, and every real encrypted file looks encrypted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import ags1
from ags1 import parquet
from ags1.audit import AuditedFile, audit
from tests.audit.lake import COLUMN_KEY, FILE_KEY, FOOTER_KEY, PEOPLE, client

CSV = b"name,born\nAda,1815\nAlan,1912\n"
LARGE = 400_000
ALL_KEYS = {"id": COLUMN_KEY, "name": COLUMN_KEY, "ssn": COLUMN_KEY}


def found_in(directory: Path, data: bytes, **options: Any) -> AuditedFile:
    (directory / "x").write_bytes(data)
    report = audit(directory, **options)
    (found,) = report.files
    looks = found.protection == "looks encrypted"
    assert looks == report.ok, report
    assert bool(report.totals["looks encrypted"][0]) == looks
    assert looks == (not report.findings) or found.detail.startswith("AES_GCM_CTR_V1")
    return found


def sealed(directory: Path, table: pa.Table = PEOPLE, written: Any = None, **options: Any) -> bytes:
    pq.write_table(table, directory / "plain", **(written or {}))
    config = parquet.EncryptionConfig(FOOTER_KEY, **options)
    parquet.encrypt_file(directory / "plain", directory / "sealed", config)
    (directory / "plain").unlink()
    data = (directory / "sealed").read_bytes()
    (directory / "sealed").unlink()
    return data


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


# -- contradictions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 3, 200, 30_000])
def test_a_magic_around_csv_is_damage_whatever_is_allowed(tmp_path: Path, lines: int) -> None:
    text = CSV * lines
    length = len(text).to_bytes(4, "little")
    footers = [footer_of(sealed(tmp_path)), footer_of(sealed(tmp_path, column_keys=ALL_KEYS, plaintext_footer=True))]
    for data in (
        b"PARE" + text + b"PARE",
        b"PARE" + text + length + b"PARE",
        b"PARE" + text + bytes(4) + b"PARE",
        b"PARE" + text + footers[0],
        b"PAR1" + text + footers[1],
        ags1.encrypt(b"", FILE_KEY)[:8] + text,
    ):
        assert found_in(tmp_path, data, allow="*").protection == "unknown"
        assert audit(tmp_path, allow="*").exit_code == 1


@pytest.mark.parametrize("size", [1, 3, 4, 5, 12, 40])
def test_few_bytes_before_a_real_footer_are_damage(tmp_path: Path, size: int) -> None:
    data = b"PARE" + bytes(range(200, 200 + size)) + footer_of(sealed(tmp_path))
    assert found_in(tmp_path, data).protection == "unknown"


def test_a_length_that_no_number_of_blocks_has_is_damage(tmp_path: Path) -> None:
    for size in (100, 70_000):
        stream = ags1.encrypt(bytes(size), FILE_KEY, block_length=4096)
        for cut in range(1, 28):
            whole = len(stream) - (len(stream) - 8) % (4096 + 28)
            assert found_in(tmp_path, stream[: whole + cut]).protection == "unknown"


def test_the_module_of_a_footer_and_a_signature_have_their_length(tmp_path: Path) -> None:
    for options in ({}, {"column_keys": ALL_KEYS, "plaintext_footer": True}):
        data = sealed(tmp_path, **options)
        end = footer_of(data)
        for changed in (end[:-9], end[:-8] + b"x"):
            longer = data[: -len(end)] + changed + (len(changed)).to_bytes(4, "little") + data[-4:]
            found = found_in(tmp_path, longer)
            assert found.protection == "unknown"
            assert found.problem is None or found.problem[0] == "damaged"


def test_text_in_a_large_file_is_seen_at_its_ends_and_with_whole_anywhere(tmp_path: Path) -> None:
    stream = ags1.encrypt(bytes(LARGE), FILE_KEY)
    for offset, seen in ((8, True), (LARGE // 4, False), (LARGE - 100, True)):
        data = stream[:offset] + CSV * 3 + stream[offset + 3 * len(CSV) :]
        assert (found_in(tmp_path, data).protection == "unknown") == seen
        assert found_in(tmp_path, data, whole=True).protection == "unknown"


@pytest.mark.parametrize("seed", range(12))
def test_damage_of_the_structure_never_passes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = pa.table({"id": range(20_000), "name": [chance.randbytes(4).hex() for _ in range(20_000)]})
    forms = [
        ags1.encrypt(chance.randbytes(200_000), FILE_KEY, block_length=chance.choice([4096, 1 << 20])),
        sealed(tmp_path, table),
        sealed(tmp_path, table, column_keys={"id": COLUMN_KEY, "name": COLUMN_KEY}, plaintext_footer=True),
    ]
    for number, data in enumerate(forms):
        assert found_in(tmp_path, data, whole=True).protection == "looks encrypted"
        body = len(data) if not number else len(data) - len(footer_of(data))
        at = chance.randrange(8, body - 100)
        text = (CSV * 4)[: chance.randint(80, 100)]
        changed = [data[:at] + text + data[at + len(text) :]]
        if number:
            more = chance.randbytes(chance.randint(1, 5000))
            changed += [data[:at] + more + data[at:], data[:at] + data[at + chance.randint(1, 99) :]]
            changed += [data[: -chance.randint(1, len(data) - body)]]
        for each in changed:
            assert found_in(tmp_path, each, whole=True).protection in ("unknown", "partly encrypted")


# -- real files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_every_stream_looks_encrypted(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        block_length = chance.choice([1, 16, 100, 4096, 65536, 1 << 20])
        data = bytes(
            chance.choice([0, 1, 5, chance.randrange(100), chance.randrange(min(300_000, 3000 * block_length))])
        )
        stream = ags1.encrypt(data, FILE_KEY, block_length=block_length)
        for whole in (False, True):
            assert found_in(tmp_path, stream, whole=whole).protection == "looks encrypted"


def random_table(chance: random.Random) -> pa.Table:
    rows = chance.choice([0, 1, 10, 3000, 60_000])
    strings = [chance.choice([None, "", "text" * 9, chance.randbytes(8).hex()]) for _ in range(rows)]
    lists = [[1, None, 3][: each % 4] if each % 5 else None for each in range(rows)]
    return pa.table({
        "id": pa.array(range(rows), pa.int64()),
        "name": pa.array(strings, pa.string()),
        "ssn": pa.array(lists, pa.list_(pa.int32())),
    })  # fmt: skip


def written(chance: random.Random) -> dict[str, Any]:
    return {
        "compression": chance.choice(["none", "snappy", "zstd"]),
        "data_page_version": chance.choice(["1.0", "2.0"]),
        "write_page_index": chance.random() < 0.5,
        "use_dictionary": chance.random() < 0.5,
        "data_page_size": chance.choice([100, 4000, 1 << 20]),
        "row_group_size": chance.choice([7000, 1 << 20]),
    }


@pytest.mark.parametrize("seed", range(16))
def test_every_file_of_ours_and_of_pyarrow_looks_encrypted(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table, options = random_table(chance), written(chance)
    names = {"id": COLUMN_KEY, "name": COLUMN_KEY, "ssn.list.element": COLUMN_KEY}
    choice: dict[str, Any] = {"algorithm": chance.choice(["AES_GCM_V1", "AES_GCM_CTR_V1"])}
    if chance.random() < 0.7:
        choice |= {"column_keys": names, "plaintext_footer": chance.random() < 0.5}
    files = [sealed(tmp_path, table, options, **choice)]

    class Kms(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, master_key_identifier: str) -> bytes:
            return bytes(key).hex().encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return bytes.fromhex(bytes(wrapped_key).decode())

    keys = {"uniform_encryption": True} if len(choice) == 1 else {"column_keys": {"c": ["id", "name", "ssn"]}}
    setting = pe.EncryptionConfiguration(
        "f", encryption_algorithm=choice["algorithm"], plaintext_footer=choice.get("plaintext_footer", False), **keys
    )
    factory = pe.CryptoFactory(lambda _: Kms())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), setting)
    try:
        pq.write_table(table, tmp_path / "arrow", encryption_properties=properties, **options)
    except OSError as refused:
        # Some versions of PyArrow name nested columns by their leaves.
        assert "column" in str(refused)  # noqa: PT017
    else:
        files.append((tmp_path / "arrow").read_bytes())
    (tmp_path / "arrow").unlink(missing_ok=True)
    for data in files:
        for whole in (False, True):
            assert found_in(tmp_path, data, whole=whole).protection == "looks encrypted"


def test_plaintext_columns_below_an_encrypted_footer_are_seen_without_its_key(tmp_path: Path) -> None:
    for first, protection in (("id", "partly encrypted"), ("ssn", "partly encrypted")):
        data = sealed(tmp_path, PEOPLE, {"compression": "none"}, column_keys={first: COLUMN_KEY})
        found = found_in(tmp_path, data)
        assert (found.protection, found.problem) == (protection, None)
        assert "values of some columns" in found.leaks


def test_with_a_kms_and_without_it_the_same_files_look_encrypted(lake: Path) -> None:
    for whole in (False, True):
        reports = [audit(lake, kms=kms, whole=whole) for kms in (None, client())]
        assert len({str(sorted(report.totals.items())) for report in reports}) == 1
