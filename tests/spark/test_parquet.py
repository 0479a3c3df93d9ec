"""Trees of Parquet files on Spark: nothing before it is known to be right, each file once, markers at the end."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from ags1 import AuthenticationError, FormatError, KeyAccessError, parquet
from ags1.dataset.sources import Found
from ags1.kms import LocalKms
from ags1.spark.engine import parquet_run
from ags1.spark.engine.parquet_run import _Spool
from ags1.spark.engine.planning import Unit
from ags1.spark.parquet import decrypt_parquet, encrypt_parquet, rekey_parquet, verify_parquet
from ags1.storage import Location
from tests import modes
from tests.pages import ROOT, blocks
from tests.parquet import corpus
from tests.spark.test_parquet_work import add, flip_page, plain, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Run, Storage

NAMES = ("b.parquet", "p=1/a.parquet", "p=2/000000_0")
QUIET: dict[str, Any] = {"progress": False}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Parquet files, a marker, and what is left out."""
    root = tmp_path / "lake"
    for number, name in enumerate(NAMES):
        add(root, name, plain(100 + number))
    add(root, "_SUCCESS", b"")
    add(root, ".b.parquet.crc", b"crc\0")
    return root


def below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def rows_of(result: Any) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in result.table().to_pylist()}


def encrypt(spark: Any, lake: Path, vault: Path, kms_url: str, **options: Any) -> Any:
    given: dict[str, Any] = {"footer_key_id": "lake", "column_key_ids": {"lake2": ["name"]}, **QUIET}
    return encrypt_parquet(spark, lake, vault, **({"kms": kms_url} | given | options))


def test_a_tree_whose_parquet_files_are_gone_does_not_pass(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    for name in (*NAMES, ".b.parquet.crc"):
        (lake / name).unlink()
    for leaving in (["_SUCCESS"], []):
        checked = verify_parquet(spark, lake, kms=kms_url, **QUIET)
        assert (checked.ok, checked.counts.get("left out", 0)) == (False, len(leaving))
        assert checked.errors == [(str(lake), "nothing was checked: there are no Parquet files in it")]
        with pytest.warns(UserWarning, match=f"there are no Parquet files in {lake}"):
            encrypt(spark, lake, tmp_path / "vault", kms_url)
        for name in leaving:
            (lake / name).unlink()


# -- there and back ------------------------------------------------------------------------------------------------


def test_a_tree_goes_and_comes_back(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    vault, back = tmp_path / "vault", tmp_path / "back"
    result = encrypt(spark, lake, vault, kms_url)
    assert result.ok
    assert result.counts == {"ok": 4, "left out": 1}
    # So that the numbers of encryption and verification can be compared.
    assert result.copied == 1
    assert ", 1 of them copied unchanged, 1 left out" in str(result)
    assert result.notes == [(".b.parquet.crc", "was left out: it is a checksum of the old file")]
    assert below(vault) == sorted([*NAMES, "_SUCCESS"])
    assert all((vault / name).read_bytes()[:4] == b"PARE" for name in NAMES)
    # Plain Python reads what Spark's workers wrote.
    assert parquet.verify_tree(vault, parquet.DecryptionConfig.from_kms(kms_url)).ok
    verified = verify_parquet(spark, vault, kms=kms_url, **QUIET)
    assert verified.ok
    assert verified.counts == {"ok": 3, "left out": 1}
    decrypted = decrypt_parquet(spark, vault, back, kms=kms_url, **QUIET)
    assert decrypted.ok
    assert below(back) == below(vault)
    for name in NAMES:
        assert table_of((back / name).read_bytes()).equals(table_of((lake / name).read_bytes()))


def test_directories_keep_their_modes_and_links_are_left_out(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    (lake / "p=1").chmod(0o500)
    (lake / "p=2").chmod(0o710)
    lake.chmod(0o770)
    for name, place in {"file": "b.parquet", "directory": "p=1", "dangling": "nothing"}.items():
        (lake / name).symlink_to(place)
    vault, back = tmp_path / "vault", tmp_path / "back"
    with modes.umask(0o022):
        result = encrypt(spark, lake, vault, kms_url)
        assert result.links == 3
        assert {path for path, text in result.notes if text.endswith("it is a link, which is not followed")} == {
            "file", "directory", "dangling",
        }  # fmt: skip
        decrypt_parquet(spark, vault, back, kms=kms_url, **QUIET)
    for target in (vault, back):
        assert [(target / each).stat().st_mode & 0o777 for each in ("", "p=1", "p=2")] == [0o750, 0o500, 0o710]
    (lake / "p=1").chmod(0o700)


def test_a_result_is_looked_at_without_doing_the_work_again(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    result = encrypt(spark, lake, vault, kms_url)
    before = {name: (vault / name).read_bytes() for name in NAMES}
    for _ in range(2):
        rows = {row.path: row for row in result.dataframe.where("status = 'ok'").collect()}
        assert sorted(rows) == sorted([*NAMES, "_SUCCESS"])
        assert rows[NAMES[0]].target == str(vault / NAMES[0])
        assert rows[NAMES[0]].file_length == len(before[NAMES[0]])
        assert rows[NAMES[0]].plaintext_length == (lake / NAMES[0]).stat().st_size
    assert {name: (vault / name).read_bytes() for name in NAMES} == before


def test_a_second_run_does_what_is_left(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    vault = tmp_path / "vault"
    encrypt(spark, lake, vault, kms_url)
    (vault / NAMES[1]).unlink()
    before = (vault / NAMES[0]).read_bytes()
    again = encrypt(spark, lake, vault, kms_url)
    statuses = {name: rows_of(again)[name]["status"] for name in NAMES}
    assert statuses == {NAMES[0]: "skipped", NAMES[1]: "ok", NAMES[2]: "skipped"}
    assert (vault / NAMES[0]).read_bytes() == before
    assert encrypt(spark, lake, vault, kms_url, resume=False).counts["ok"] == 4
    assert (vault / NAMES[0]).read_bytes() != before


def test_files_that_could_change_places_are_told_of(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    encrypt(spark, lake, vault, kms_url)
    found = verify_parquet(spark, vault, kms=kms_url, **QUIET)
    assert found.ok
    assert [text[:30] for _, text in found.notes if "AAD prefix" in text] == ["3 files: without an AAD prefix"]


def test_a_tree_is_keyed_anew_by_another_service(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    from tests.spark.java_kms import URL

    vault, other = tmp_path / "vault", tmp_path / "other"
    encrypt(spark, lake, vault, kms_url, aad_prefix="old/{path}")
    given: dict[str, Any] = {"kms": kms_url, "new_kms": URL, "footer_key_id": "pii", "encrypt_all": True, **QUIET}
    result = rekey_parquet(spark, vault, other, old_aad_prefix="old/{path}", aad_prefix="new/{path}", **given)
    assert result.counts == {"ok": 4}
    prefixes = ("new/{path}", None)
    compared, stored = (verify_parquet(spark, other, kms=URL, aad_prefix=each, **QUIET) for each in prefixes)
    assert (compared.ok, stored.ok) == (True, True)
    assert not any("was not compared" in text for _, text in compared.notes)
    assert [text[:8] for _, text in stored.notes if "was not compared" in text] == ["3 files:"]
    assert not any("without an AAD prefix" in text for each in (compared, stored) for _, text in each.notes)
    assert verify_parquet(spark, other, kms=URL, expected_key_ids=["pii"], **QUIET).ok
    with pytest.raises(KeyAccessError, match="under the master key 'pii', but 'other' is expected"):
        verify_parquet(spark, other, kms=URL, expected_key_ids=["other"], **QUIET)
    swapped = verify_parquet(spark, other, kms=URL, aad_prefix="old/{path}", **QUIET)
    assert swapped.counts["error"] == 3
    assert not verify_parquet(spark, other, kms=kms_url, missing_keys="drop", **QUIET).ok


def test_only_what_is_meant_is_encrypted(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    encrypt(spark, lake, tmp_path / "vault", kms_url, include="p=*", exclude="p=2")
    assert below(tmp_path / "vault") == ["p=1/a.parquet"]


# -- what else lies in a tree --------------------------------------------------------------------------------------


def test_files_that_are_no_parquet_files_stop_it_before_anything_is_written(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    for number in range(10):
        add(lake, f"p=1/{number}.txt", b"what is this?")
    with pytest.raises(
        FormatError, match=r"p=1/0\.txt.* and 5 more are not Parquet files: nothing was written; `others='copy'`"
    ):
        encrypt(spark, lake, vault, kms_url)
    assert not vault.exists()
    left_out = encrypt(spark, lake, vault, kms_url, others="skip")
    assert left_out.counts == {"ok": 4, "left out": 11}
    copied = encrypt(spark, lake, vault, kms_url, others="copy")
    # The others are as they were before: the Parquet files and the marker.
    assert copied.counts == {"ok": 10, "skipped": 4, "left out": 1}
    assert (vault / "p=1/9.txt").read_bytes() == b"what is this?"


def test_files_that_no_directory_can_hold_together_stop_it_before_anything_is_written(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(source: Location, *_: Any) -> Iterator[Found]:
        # As a store can list them.
        yield from (Found(name, name, source) for name in ("a.parquet", "a.parquet/b.parquet"))

    monkeypatch.setattr(parquet_run, "scan", scan)
    with pytest.raises(NotADirectoryError, match=r"a\.parquet and a\.parquet/b\.parquet cannot both be written"):
        encrypt(spark, lake, tmp_path / "vault", kms_url)
    assert not (tmp_path / "vault").exists()


def test_columns_that_some_files_lack_are_decided_on_before_anything_is_written(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    add(lake, "z.parquet", corpus.written(table_of((lake / NAMES[0]).read_bytes()).drop_columns(["name"])))
    vault = tmp_path / "vault"
    with pytest.raises(ValueError, match=r"^z\.parquet lacks a column: there is no column 'name'; .* nothing was wri"):
        encrypt(spark, lake, vault, kms_url)
    assert not vault.exists()
    with pytest.raises(ValueError, match=r"^no file has the column nmae: nothing was written"):
        encrypt(spark, lake, vault, kms_url, missing_columns="skip", column_key_ids={"lake2": ["nmae"]})
    assert not vault.exists()
    skipped = encrypt(spark, lake, vault, kms_url, missing_columns="skip")
    assert skipped.ok
    found = parquet.inspect(vault / "z.parquet", parquet.DecryptionConfig.from_kms(kms_url)).columns
    assert {each.protection for each in found} == {"plaintext"}
    again = encrypt(spark, lake, vault, kms_url, missing_columns="skip")
    assert again.counts == {"skipped": 5, "left out": 1}
    collected = encrypt(spark, lake, tmp_path / "other", kms_url, on_error="collect")
    assert [path for path, row in rows_of(collected).items() if row["status"] == "error"] == ["z.parquet"]


def test_markers_come_last_and_not_at_all_after_an_error(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    (lake / NAMES[1]).write_bytes(plain()[:-5])
    result = encrypt(spark, lake, vault, kms_url, on_error="collect")
    assert not result.ok
    assert result.counts == {"ok": 2, "error": 1, "left out": 2}
    assert rows_of(result)["_SUCCESS"]["error"] == "a file before it failed"
    assert below(vault) == [NAMES[0], NAMES[2]]
    with pytest.raises(FormatError, match=r"encrypt: .*p=1/a\.parquet.*run it again"):
        encrypt(spark, lake, vault, kms_url)
    add(lake, NAMES[1], plain())
    assert encrypt(spark, lake, vault, kms_url).ok
    assert below(vault) == sorted([*NAMES, "_SUCCESS"])


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_changed_page_fails_one_file_at_the_first_attempt(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    vault, back = tmp_path / "vault", tmp_path / "back"
    encrypt(spark, lake, vault, kms_url, column_key_ids=None)
    flip_page(vault / NAMES[0])
    result = decrypt_parquet(spark, vault, back, kms=kms_url, on_error="collect", **QUIET)
    row = rows_of(result)[NAMES[0]]
    assert (row["status"], row["attempt"]) == ("error", 0)
    assert "column" in row["error"]
    assert below(back) == list(NAMES[1:])
    with pytest.raises(
        AuthenticationError, match=r"decrypt: .*b\.parquet: dictionary page of column 'number'"
    ) as caught:
        decrypt_parquet(spark, vault, back, kms=kms_url, **QUIET)
    assert caught.value.result.counts["error"] == 1  # type: ignore[attr-defined]
    verified = verify_parquet(spark, vault, kms=kms_url, **QUIET)
    assert verified.counts["error"] == 1
    assert "page of column 'number'" in verified.errors[0][1]
    with pytest.raises(AuthenticationError, match="page of column 'number'"):
        verify_parquet(spark, vault, kms=kms_url, on_error="fail", **QUIET)


def test_a_kms_that_refuses_is_noticed_before_any_task(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.spark.java_kms import URL

    vault = tmp_path / "vault"
    encrypt(spark, lake, vault, kms_url)
    monkeypatch.setattr("ags1.spark.engine.parquet_run.Engine", None)
    with pytest.raises(KeyAccessError, match="did not wrap a key with 'nobody'"):
        encrypt(spark, lake, tmp_path / "other", kms_url, column_key_ids={"nobody": ["name"]})
    for work in (decrypt_parquet, verify_parquet):
        places = (vault, tmp_path / "back") if work is decrypt_parquet else (vault,)
        with pytest.raises(KeyAccessError, match=r"b\.parquet: the footer"):
            work(spark, *places, kms=URL, **QUIET)  # type: ignore[operator]
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "back").exists()


def test_keys_are_given_by_reference_only(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    client = LocalKms(tmp_path / "keys")
    for kms in (client, bytes(16), None):
        with pytest.raises(TypeError, match="every worker makes its own client"):
            encrypt_parquet(spark, lake, tmp_path / "vault", kms=kms, footer_key_id="lake")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="new_kms must be a URL"):
        rekey_parquet(
            spark,
            lake,
            tmp_path / "vault",
            kms=kms_url,
            new_kms=client,
            footer_key_id="lake",  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"others": "delete"}, "others must be 'error', 'copy' or 'skip'"),
        ({"on_error": "ignore"}, "on_error must be 'fail' or 'collect'"),
        ({"algorithm": "AES"}, "algorithm must be "),
        ({"aad_prefix": ""}, "aad_prefix must not be empty"),
        ({"column_key_ids": {"lake": ["name"], "lake2": ["name"]}}, "name"),
        ({"footer_key_id": ""}, "footer_key_id has an empty master key id"),
        ({"kms": "no such thing"}, "not a KMS URL"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encrypt(spark, lake, tmp_path / "vault", kms_url, **options)
    assert not (tmp_path / "vault").exists()


def test_no_key_is_an_argument(spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str) -> None:
    # It would travel in Spark's plans.
    key: dict[str, Any] = {"footer_key": bytes(16)}
    with pytest.raises(TypeError, match="has no argument footer_key; its further arguments are algorithm"):
        decrypt_parquet(spark, lake, tmp_path / "plain", kms=kms_url, **key)
    with pytest.raises(TypeError, match="has no argument footer_key"):
        verify_parquet(spark, lake, allow_plaintext=True, **key)
    with pytest.raises(TypeError, match="footer_key"):
        encrypt(spark, lake, tmp_path / "vault", kms_url, **key)
    with pytest.raises(TypeError, match="internal_key_material is not for Spark"):
        encrypt(spark, lake, tmp_path / "vault", kms_url, internal_key_material=False)


@pytest.mark.parametrize("name", ["column_keys", "column_key_id"])
def test_an_unknown_argument_is_named_with_the_nearest_one(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str, name: str
) -> None:
    unknown: dict[str, Any] = {name: {"lake2": ["name"]}}
    for work in (encrypt_parquet, rekey_parquet):
        with pytest.raises(TypeError, match=f"^{work.__name__} has no argument {name}; did you mean column_key_ids"):
            work(spark, lake, tmp_path / "vault", kms=kms_url, footer_key_id="lake", **unknown)
    with pytest.raises(TypeError, match=r"^decrypt_parquet has no argument aad_prefixes; did you mean aad_prefix"):
        decrypt_parquet(spark, lake, tmp_path / "plain", kms=kms_url, aad_prefixes={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^verify_parquet has no argument require_encryption; did you mean require_"):
        verify_parquet(spark, lake, kms=kms_url, require_encryption={})  # type: ignore[arg-type]
    assert not (tmp_path / "vault").exists()


def test_a_column_in_the_place_of_a_master_key_is_explained(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    message = (
        r"lists of column names: give \{'lake2': \['name'\]\} if 'lake2' is the master key, else \{'name': \['lake2"
    )
    with pytest.raises(TypeError, match=message):
        encrypt(spark, lake, tmp_path / "vault", kms_url, column_key_ids={"name": "lake2"})
    reversed_keys: Any = {"name": "lake2"}
    with pytest.raises(TypeError, match=message):
        parquet.EncryptionConfig.from_kms(kms_url, "lake", reversed_keys)


def test_trees_must_not_overlap_but_for_a_target_in_its_source(
    spark: SparkSession, lake: Path, tmp_path: Path, kms_url: str
) -> None:
    (tmp_path / "link").symlink_to(lake)
    for target in (lake, lake / "p=1" / "..", tmp_path / "link", f"file://{lake}"):
        with pytest.raises(ValueError, match="same directory"):
            encrypt(spark, lake, target, kms_url)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lies in the target"):
        encrypt(spark, lake, tmp_path, kms_url)
    for _ in range(2):
        result = encrypt(spark, lake, lake / "vault", kms_url, resume=False)
        assert result.counts["ok"] == 4
    assert below(lake / "vault") == sorted([*NAMES, "_SUCCESS"])


def test_a_tree_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path, kms_url: str) -> None:
    with pytest.raises(FileNotFoundError):
        encrypt(spark, tmp_path / "missing", tmp_path / "vault", kms_url)


def test_names_that_are_no_text_are_kept_on_disk() -> None:
    units = [Unit(os.fsdecode(b"\xff"), 3, {"mtime_ns": 7}), Unit('line\n"', 1)]
    with closing(_Spool()) as spool:
        spool.fill(units[:1])
        assert list(spool) == units[:1]
        spool.fill(units[1:])
        assert list(spool) == list(spool) == units


# -- places --------------------------------------------------------------------------------------------------------


def test_a_tree_in_an_object_store_goes_and_comes_back(
    spark: SparkSession, s3: Storage, lake: Path, kms_url: str
) -> None:
    for name in (*NAMES, "_SUCCESS"):
        s3.client.put_object(Bucket=s3.bucket, Key=f"lake/{name}", Body=(lake / name).read_bytes())
    places = [f"{s3.url.replace('s3://', 's3a://')}/{name}" for name in ("lake", "vault", "back")]
    result = encrypt_parquet(spark, places[0], places[1], kms=kms_url, footer_key_id="lake", **QUIET)
    assert result.counts == {"ok": 4}
    assert rows_of(result)[NAMES[0]]["target"] == f"{places[1]}/{NAMES[0]}"
    assert verify_parquet(spark, places[1], kms=kms_url, **QUIET).ok
    assert decrypt_parquet(spark, places[1], places[2], kms=kms_url, **QUIET).ok
    for name in NAMES:
        stored = [
            s3.client.get_object(Bucket=s3.bucket, Key=f"{place}/{name}")["Body"].read() for place in ("vault", "back")
        ]
        assert stored[0][:4] == b"PARE"
        assert table_of(stored[1]).equals(table_of((lake / name).read_bytes()))


# -- other readers and writers -------------------------------------------------------------------------------------


def test_spark_itself_reads_what_is_encrypted_here_and_writes_what_is_decrypted_here(
    run_spark: Run, lake: Path, tmp_path: Path
) -> None:
    from tests.interop.java_peer import available
    from tests.interop.jvm import build
    from tests.spark.java_kms import KEY_LIST

    if (reason := available()) is not None:
        (pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip)(f"no classes of parquet-java's: {reason}")
    (block,) = blocks(ROOT / "docs" / "parquet-on-spark.md", 'python title="Spark with a KMS client for Parquet"')
    page = f"import ags1.spark\nhere, kms = os.getcwd(), URL\n{block}"
    # Spark reads no files above partitions, nor those without the suffix.
    for name in (NAMES[0], ".b.parquet.crc"):
        (lake / name).unlink()
    (lake / NAMES[2]).rename(lake / f"{NAMES[2]}.parquet")
    conf = {
        "spark.driver.extraClassPath": str(build("parquet") / "classes"),
        "spark.hadoop.parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
        "spark.hadoop.parquet.encryption.kms.client.class": "ags1.interop.parquet.ServerWrapKms",
        "spark.hadoop.parquet.encryption.key.list": KEY_LIST,
    }
    done = run_spark(
        """
        import json
        import os
        import sys

        from pyspark.sql import SparkSession

        from ags1.spark.parquet import decrypt_parquet, encrypt_parquet, verify_parquet
        from tests.spark.java_kms import URL

        lake, vault, written, back = sys.argv[1:]
        # Where Java finds the relative paths of the page, too.
        os.chdir(os.path.dirname(lake))
        spark = SparkSession.builder.getOrCreate()
        options = {"kms": URL, "progress": False}
        encrypt_parquet(spark, lake, vault, footer_key_id="lake", column_key_ids={"pii": ["name"]}, **options)
        read = spark.read.parquet(vault)
        sums = read.selectExpr("count(*)", "sum(number)", "count(distinct name)", "count(distinct p)").first()
        keys = {"parquet.encryption.footer.key": "lake", "parquet.encryption.column.keys": "pii:name"}
        writer = read.select("number", "name").coalesce(1).write.options(**keys)
        writer.option("parquet.encryption.key.material.store.internally", "false").parquet(written)
        verified = verify_parquet(spark, written, **options)
        decrypted = decrypt_parquet(spark, written, back, **options)
        print(json.dumps([list(sums), verified.counts, decrypted.counts, spark.read.parquet(back).count()]))
        """
        + textwrap.indent(page, " " * 8).lstrip(),
        lake,
        tmp_path / "vault",
        tmp_path / "written",
        tmp_path / "back",
        conf=conf,
    )
    sums, verified, decrypted, count = json.loads(next(line for line in done.stdout.splitlines() if line[:2] == "[["))
    tables = [table_of((lake / name).read_bytes()) for name in (NAMES[1], f"{NAMES[2]}.parquet")]
    numbers = [number for table in tables for number in table["number"].to_pylist()]
    names = {name for table in tables for name in table["name"].to_pylist()} - {None}
    assert sums == [len(numbers), sum(numbers), len(names), 2]
    assert count == len(numbers)
    # The file and its marker; key material and checksums are left out.
    assert (verified["ok"], decrypted["ok"]) == (1, 2)
    assert "error" not in verified
    (file,) = (name for name in below(tmp_path / "written") if name.endswith(".parquet") and "_KEY" not in name)
    assert (tmp_path / "written" / file).read_bytes()[:4] == b"PARE"
    assert any("_KEY_MATERIAL_FOR_" in name for name in below(tmp_path / "written"))
