"""verify_file of whole files, of files without a key, and of files that are none; its report."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ags1.errors import FormatError, KeyAccessError, TruncatedError
from ags1.kms import MemoryKms
from ags1.parquet import DecryptionConfig, EncryptionConfig, encrypt_file, verify_file
from ags1.parquet.structure import footer as footer_module
from ags1.parquet.verify import module_walk
from ags1.parquet.verify import verification as verify_module
from ags1.support import reports
from ags1.support.reports import VerifyReport
from tests.checks import flip
from tests.parquet import corpus
from tests.parquet.public_files import PUBLIC_FILES
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, GCM, File
from tests.parquet.verified import (
    COLUMN_KEYS,
    FOOTER_KEY,
    KEYS,
    NAME_KEY,
    PLAIN,
    Y_KEY,
    contradictions,
    counted,
    encrypted,
    failures,
    missing_keys,
    opened,
    places,
)

# Their pages are of types that the walk over pages does not know.
STRANGE_PAGES = {"index-pages", "unknown-pages"}
UNTAGGED = {"pages-without-tags", "levels-without-tags"}


# -- files that are whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_every_module_of_a_public_file_is_authenticated(name: str) -> None:
    public = PUBLIC_FILES[name]
    data = public.read()
    decryption = DecryptionConfig(public.footer_key, column_keys=public.column_keys, aad_prefix=public.aad_prefix)
    report = verify_file(data, decryption)
    assert (failures(report), contradictions(report)) == ([], [])
    assert report.outcome == ("not protected" if "ctr" in name else "authentic")
    file = open_encrypted(data, public.footer_key, public.column_keys, public.aad_prefix)
    assert counted(report) == Counter(module.kind for module in file.modules)
    assert report.checked["bytes"] == report.facts["size"] == len(data)
    assert report.facts["unchecked_bytes"] == 0


@pytest.mark.parametrize("algorithm", [GCM, CTR_PAGES])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_the_report_counts_the_modules_that_the_reference_finds(
    small_name: str, algorithm: str, plaintext_footer: bool
) -> None:
    for form in ("java", "arrow"):
        data = encrypted(
            small_name,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            data_page_v2=form,
            pad_thrift=form == "java",
        )
        file = opened(data)
        report = verify_file(data, KEYS)
        assert report.outcome == ("not protected" if report.counts.keys() & UNTAGGED else "authentic")
        assert report.ok == (report.outcome == "authentic")
        assert verify_file(data, KEYS, allow_unauthenticated_pages=True).ok
        assert not contradictions(report), report
        assert counted(report) == Counter(module.kind for module in file.modules)
        assert list(report.facts["columns"]) == _columns(file, report)
        assert report.facts["row_groups"] == len(file.row_groups)
        assert "plaintext-columns" not in report.counts


def _columns(file: File, report: VerifyReport) -> list[str]:
    if not file.row_groups:
        return list(report.facts["columns"])
    return [".".join(chunk.path) for chunk in file.row_groups[0].chunks]


def test_plain_files_are_checked_without_a_configuration(corpus_name: str) -> None:
    data = corpus.build(corpus_name)
    file = open_plain(data, strict=False)
    report = verify_file(data)
    if corpus_name in STRANGE_PAGES and failures(report):
        assert all("has page type" in each.message for each in failures(report))
        return
    assert (report.outcome, report.ok) == ("not protected", False)
    assert verify_file(data, DecryptionConfig(allow_plaintext=True)).ok
    assert (not contradictions(report)) == (not file.complaints), report
    assert report.facts["modules"] == {}
    pages = sum(len(chunk.pages) for chunk in file.chunks)
    assert [each.details["pages"] for each in report.having("plaintext-columns")] == [pages] * (pages > 0)
    assert report.facts["checksums"] == sum(4 in page.header for chunk in file.chunks for page in chunk.pages)
    assert "can change all of it unnoticed" in str(report)


def test_the_report_says_how_each_column_is_protected() -> None:
    report = verify_file(encrypted(encrypt_all=False), KEYS)
    found = report.facts["columns"]
    assert (found["name"], found["struct.y"], found["number"]) == ("column key", "column key", "plaintext")
    report = verify_file(encrypted(), KEYS)
    assert report.facts["columns"]["number"] == "footer key"
    assert sum(report.facts["modules"].values()) == report.checked["modules"]


def test_pages_of_ctr_files_are_said_to_be_unauthenticated() -> None:
    data = encrypted(algorithm=CTR_PAGES)
    report = verify_file(data, KEYS)
    kinds = Counter(module.kind for module in opened(data).modules if module.is_ctr)
    (finding,) = report.having("pages-without-tags")
    assert finding.details == kinds
    assert set(kinds) == {"data page", "dictionary page"}
    assert not set(kinds) & set(report.facts["modules"])
    assert "without a tag (AES_GCM_CTR_V1): changes of their contents cannot be noticed" in str(report)
    assert "without a tag" not in str(verify_file(encrypted(), KEYS))


def test_levels_in_plaintext_are_said_to_be_unauthenticated(tmp_path: Path) -> None:
    """parquet-java puts those of V2 pages before the module; a change of them is noticed by a CRC at most."""
    data = encrypted("small-nested-v2", data_page_v2="java")
    pages = [page for chunk in opened(data).chunks for page in chunk.data_pages if page.v2_form == "java"]
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    for source in (data, path, io.BytesIO(data)):
        report = verify_file(source, KEYS)
        (finding,) = report.having("levels-without-tags")
        assert finding.details == {"pages": len(pages)}
        assert f"the levels of {len(pages)} version 2 pages without a tag" in str(report)
    changed = flip(data, pages[0].offset + pages[0].header_size)
    assert verify_file(changed, KEYS).outcome == "not protected"
    assert verify_file(changed, KEYS, allow_unauthenticated_pages=True).ok
    arrow = verify_file(encrypted("small-nested-v2", data_page_v2="arrow"), KEYS)
    assert "levels" not in str(arrow)


@pytest.mark.parametrize("name", ["small-nested-v2", "everything-v2", "snappy-v1"])
def test_what_is_encrypted_with_the_defaults_is_authentic(name: str) -> None:
    kms = MemoryKms({"kf": FOOTER_KEY})
    for config, reading in (
        (EncryptionConfig(FOOTER_KEY), DecryptionConfig(FOOTER_KEY)),
        (EncryptionConfig.from_kms(kms, "kf"), DecryptionConfig.from_kms(kms)),
    ):
        target = io.BytesIO()
        encrypt_file(corpus.build(name), target, config)
        assert verify_file(target.getvalue(), reading).outcome == "authentic"


def test_no_byte_of_an_encrypted_file_can_be_changed_unnoticed() -> None:
    """Under AES_GCM_V1 with one key, levels inside the modules, and no gaps."""
    options: dict[str, Any] = {"column_keys": None, "data_page_v2": "arrow", "aad_prefix": b"prefix"}
    for name, step in (("snappy-v1", 1), ("small-nested-v2", 7)):
        data = encrypted(name, plaintext_footer=name != "snappy-v1", **options)
        for position in range(0, len(data), step):
            try:
                report = verify_file(flip(data, position), DecryptionConfig(FOOTER_KEY))
            except ValueError:
                # Not a Parquet file any more, or one that wants a prefix.
                assert position >= len(data) - 8 - int.from_bytes(data[-8:-4], "little")
                continue
            assert not report.ok, position


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_paths_objects_and_remote_files_are_sources(tmp_path: Path, threads: int | None) -> None:
    data = encrypted()
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    expected = verify_file(data, KEYS)
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/verify/file.parquet", data)
    for source in (path, str(path), io.BytesIO(data), memoryview(data), "memory://verify/file.parquet"):
        report = verify_file(source, KEYS, threads=threads)
        assert report.ok, report
        assert (report.checked, report.facts) == (expected.checked, expected.facts)
    with path.open("rb") as file:
        assert verify_file(file, KEYS).ok
        assert not file.closed


@pytest.mark.parametrize("window", [64, 1000, 1 << 20])
def test_small_windows_and_batches_find_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, window: int) -> None:
    data = encrypted()
    file = opened(data)
    bad = [file.find_modules("data page")[0], file.find_modules("data page")[-1], file.find_modules("column index")[2]]
    for module in bad:
        data = flip(data, module.offset + 20)
    expected = verify_file(data, KEYS)
    assert len(failures(expected)) == 3
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    monkeypatch.setattr(module_walk, "_WINDOW", window)
    monkeypatch.setattr(verify_module, "_BLOCK", window)
    # What is read with the footer is not read again.
    monkeypatch.setattr(footer_module, "_TAIL", window)
    for pages in (1, 7, 16384):
        monkeypatch.setattr(module_walk, "_BATCH_PAGES", pages)
        for source in (io.BytesIO(data), path, data):
            report = verify_file(source, KEYS)
            assert sorted(places(report), key=str) == sorted(places(expected), key=str)
            assert (report.checked, report.facts) == (expected.checked, expected.facts)


def test_progress_ends_with_the_whole_file() -> None:
    data = encrypted()
    calls: list[tuple[int, int]] = []
    verify_file(data, KEYS, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (0, len(data))
    assert calls[-1] == (len(data), len(data))
    assert calls == sorted(calls)


def test_an_exception_from_progress_stops_the_work() -> None:
    def stop(done: int, total: int) -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        verify_file(encrypted(), KEYS, progress=stop)


# -- keys that are missing -----------------------------------------------------------------------------------


def test_columns_without_a_key_are_named_and_not_ok_unless_skipped() -> None:
    data = encrypted()
    keys = DecryptionConfig(FOOTER_KEY, column_keys={"name": NAME_KEY})
    report = verify_file(data, keys)
    assert (report.ok, failures(report), missing_keys(report)) == (False, [], ["struct.y"])
    assert report.outcome == "not checked"
    assert "error: key-missing: column struct.y" in str(report)
    file = open_encrypted(data, FOOTER_KEY, {"name": NAME_KEY}, skip_missing=True)
    assert counted(report) == Counter(module.kind for module in file.modules)
    skipped = verify_file(data, keys, missing_keys="drop")
    assert (skipped.ok, skipped.outcome, skipped.exit_code) == (True, "not checked", 5)
    assert "not checked, as allowed" in str(skipped)
    assert missing_keys(skipped) == ["struct.y"]
    broken = flip(data, file.find_modules("data page")[0].offset + 20)
    assert not verify_file(broken, keys, missing_keys="drop").ok


def test_a_missing_key_is_asked_for_once() -> None:
    asked: list[bytes] = []

    def retrieve(key_metadata: bytes) -> None:
        asked.append(key_metadata)

    data = encrypted(column_key_metadata={"struct.y": b"y"})
    report = verify_file(data, DecryptionConfig(FOOTER_KEY, column_keys={"name": NAME_KEY}, key_retriever=retrieve))
    assert report.facts["row_groups"] > 1
    assert asked == [b"y"]


def test_a_signed_footer_without_the_footer_key_is_not_ok() -> None:
    data = encrypted(plaintext_footer=True, encrypt_all=False)
    keys = DecryptionConfig(column_keys=COLUMN_KEYS)
    report = verify_file(data, keys)
    assert (report.ok, report.outcome, report.facts["signature_verified"]) == (False, "not checked", False)
    assert missing_keys(report) == ["footer"]
    dropped = verify_file(data, keys, missing_keys="drop")
    assert (dropped.outcome, dropped.ok) == ("not protected", False)
    every = verify_file(encrypted(plaintext_footer=True), keys)
    assert "number" in missing_keys(every)
    assert every.facts["unchecked_bytes"] > 0


def test_a_signature_that_is_not_to_be_checked_is_said_to_be_unauthenticated() -> None:
    keys = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, check_footer_integrity=False)
    report = verify_file(encrypted(plaintext_footer=True), keys)
    assert (report.outcome, report.ok) == ("not protected", False)
    assert report.counts.keys() == {"footer-not-authenticated"}
    assert "its signature was not verified, as `check_footer_integrity=False` says" in str(report)


def test_an_encrypted_footer_without_its_key_is_refused() -> None:
    with pytest.raises(KeyAccessError, match="the footer is encrypted with a key that was not given"):
        verify_file(encrypted(), DecryptionConfig(column_keys=COLUMN_KEYS))
    with pytest.raises(KeyAccessError, match="give its keys with `decryption`"):
        verify_file(encrypted(), None)
    with pytest.raises(KeyAccessError, match="give its keys with `decryption`"):
        verify_file(encrypted(plaintext_footer=True))


def test_a_prefix_that_must_be_supplied_is_asked_for() -> None:
    data = encrypted(aad_prefix=b"prefix", store_aad_prefix=False)
    with pytest.raises(ValueError, match="give `aad_prefix`"):
        verify_file(data, KEYS)
    assert verify_file(data, DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, aad_prefix=b"prefix")).ok


# -- files that are none -------------------------------------------------------------------------------------


def test_a_plaintext_file_where_an_encrypted_one_is_wanted_is_not_protected() -> None:
    """A stranger may have put it in the place of the encrypted one."""
    for keys in (KEYS, None, DecryptionConfig(FOOTER_KEY)):
        report = verify_file(corpus.build(PLAIN), keys)
        assert (report.outcome, report.ok) == ("not protected", False)
        assert "NOT PROTECTED" in str(report)
    assert verify_file(corpus.build(PLAIN), DecryptionConfig(allow_plaintext=True)).ok


def test_truncated_files_are_refused() -> None:
    data = encrypted()
    for length in (0, 3, 11):
        with pytest.raises(TruncatedError, match="too few for a Parquet file"):
            verify_file(data[:length], KEYS)
    for length in (12, len(data) // 2, len(data) - 1):
        with pytest.raises(FormatError, match="not a Parquet file, or truncated"):
            verify_file(data[:length], KEYS)
    with pytest.raises(TruncatedError, match="it is truncated"):
        verify_file(b"PARE" + data[-100:], KEYS)


def test_bytes_missing_in_the_middle_are_found() -> None:
    for data, keys in ((encrypted(), KEYS), (corpus.build(PLAIN), None)):
        report = verify_file(data[:100] + data[150:], keys)
        assert not report.ok
        assert report.counts["damaged"] > 5


def test_a_wrong_beginning_is_damage() -> None:
    report = verify_file(b"PAR1" + encrypted()[4:], KEYS)
    assert (report.outcome, report.ok) == ("damaged", False)
    assert [each.message for each in failures(report)] == [
        "the file begins with b'PAR1' and ends with b'PARE' (offset 0)"
    ]
    assert failures(report)[0].details["module"] == "magic"
    assert report.checked["bytes"] == report.facts["size"]


def test_columns_that_an_authenticated_footer_declares_plaintext_are_listed_and_no_error() -> None:
    for plaintext_footer in (False, True):
        data = encrypted(encrypt_all=False, plaintext_footer=plaintext_footer)
        report = verify_file(data, KEYS)
        assert (report.outcome, report.ok) == ("authentic", True)
        plain = [name for name, protection in report.facts["columns"].items() if protection == "plaintext"]
        (finding,) = report.having("plaintext-columns")
        assert finding.details["columns"] == plain
        assert f"{len(plain)} columns not encrypted ({', '.join(plain)})" in str(report)


def test_columns_that_must_be_encrypted_and_are_not_are_not_protected() -> None:
    data = encrypted(encrypt_all=False)
    assert verify_file(data, KEYS, require_encrypted=["name", "struct.y"]).ok
    # A group means all leaves below it.
    for names, expected in ((["number"], ["number"]), (["struct"], ["struct.x"]), ([("struct", "x")], ["struct.x"])):
        for allow in (False, True):
            keys = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, allow_plaintext=allow)
            report = verify_file(data, keys, require_encrypted=names, allow_unauthenticated_pages=allow)
            assert (report.outcome, report.ok) == ("not protected", False)
            found = report.having("column-unprotected")
            assert [(each.subject, each.message) for each in found] == [
                (name, f"column {name} is not encrypted") for name in expected
            ]
    with pytest.raises(ValueError, match="there is no column 'nmae'; did you mean 'name'"):
        verify_file(data, KEYS, require_encrypted=["nmae"])
    with pytest.raises(TypeError, match="require_encrypted must be an iterable of column names, not one name"):
        verify_file(data, KEYS, require_encrypted="name")
    plain = verify_file(corpus.build(PLAIN), DecryptionConfig(allow_plaintext=True), require_encrypted=["name"])
    assert not plain.ok


def test_columns_with_a_key_must_be_encrypted_with_it() -> None:
    for options, what in (({}, "is encrypted with the footer key"), ({"column_keys": {}}, "is not encrypted")):
        options = {"column_keys": None, "encrypt_all": not options, **options}
        data = encrypted(**options)
        report = verify_file(data, DecryptionConfig(FOOTER_KEY, column_keys={"name": NAME_KEY}))
        assert (report.outcome, report.ok) == ("not protected", False)
        assert [each.message for each in report.having("column-unprotected")] == [
            f"column name {what}, although `column_keys` has a key for it"
        ]
        allowed = DecryptionConfig(FOOTER_KEY, column_keys={"name": NAME_KEY}, allow_plaintext=True)
        assert verify_file(data, allowed).ok


def test_damage_wins_over_what_is_not_protected() -> None:
    data = encrypted(algorithm=CTR_PAGES)
    header = opened(data).find_modules("data page header")[0]
    report = verify_file(flip(data, header.offset + 20), KEYS, allow_unauthenticated_pages=True)
    assert (report.outcome, report.ok) == ("damaged", False)


def test_the_authenticated_prefix_is_told() -> None:
    for stored in (True, False):
        for plaintext_footer in (True, False):
            data = encrypted(aad_prefix=b"people/7", store_aad_prefix=stored, plaintext_footer=plaintext_footer)
            keys = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS, aad_prefix=b"people/7")
            report = verify_file(data, keys)
            assert report.facts["aad_prefix"] == b"people/7"
            assert not report.counts.keys() & {"no-prefix", "prefix-not-compared"}
            assert not stored or "prefix-not-compared" in verify_file(data, KEYS).counts
    without = verify_file(encrypted(), KEYS)
    assert (without.facts["aad_prefix"], without.counts) == (None, {"no-prefix": 1})


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="missing_keys must be 'error' or 'drop', not 'skip'"):
        verify_file(encrypted(), KEYS, missing_keys="skip")


# -- the report ----------------------------------------------------------------------------------------------


def test_the_lists_are_bounded_and_the_counts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_KEPT", 4)
    monkeypatch.setattr(reports, "_LISTED", 2)
    data = encrypted()
    pages = opened(data).find_modules("data page")
    for module in pages:
        data = flip(data, module.offset + 20)
    report = verify_file(data, KEYS)
    assert (len(failures(report)), report.counts["damaged"]) == (4, len(pages))
    assert f"error: damaged: ... and {len(pages) - 2} more" in str(report)


def test_the_report_is_json_and_text_without_keys(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    data = encrypted()
    path.write_bytes(flip(data, opened(data).find_modules("data page")[0].offset + 20))
    report = verify_file(path, KEYS)
    found = json.loads(json.dumps(report.to_dict()))
    assert found["ok"] is False
    assert found["findings"][0]["details"]["module"] == "data page"
    text = str(report)
    assert str(report) == text
    assert text.startswith(f"{path}: DAMAGED (1 error)")
    assert "error: damaged: data page 0 of column 'list.list.element' in row group 0" in text
    for key in (FOOTER_KEY, NAME_KEY, Y_KEY):
        assert key.decode() not in text + json.dumps(found)
        assert key.hex() not in text + json.dumps(found)


def test_key_metadata_does_not_matter_when_keys_are_given() -> None:
    data = encrypted(footer_key_metadata=b"f", column_key_metadata={"name": b"n"})
    assert verify_file(data, KEYS).ok
