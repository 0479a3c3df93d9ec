"""What an attacker, a mistake or a broken disk does to a dataset: each is detected and named."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from tests.checks import pattern
from tests.dataset.conftest import (
    CONTENTS,
    MASTER,
    OTHER,
    CountingKms,
    assert_clean,
    control,
    fresh,
    killed_at,
    kinds,
    plain_of,
    read_tree,
    write_tree,
)

FIRST, SECOND = "year=2026/month=01/part-0.parquet", "year=2026/month=02/part-0.parquet"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


# -- files of the tree ---------------------------------------------------------------------------------------------


def test_a_dataset_that_nobody_touched_has_no_problems(vault: Path) -> None:
    with dataset.open(vault, fresh()) as opened:
        report = opened.verify()
    assert report.ok
    assert (report.file_count, report.plaintext_bytes) == (len(CONTENTS), sum(map(len, CONTENTS.values())))


def test_files_that_were_swapped_are_refused_and_each_is_named(vault: Path, raw: Path) -> None:
    (raw / SECOND).write_bytes(pattern(5000)[::-1])
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
    a, b = (vault / FIRST).read_bytes(), (vault / SECOND).read_bytes()
    (vault / FIRST).write_bytes(b)
    (vault / SECOND).write_bytes(a)
    with dataset.open(vault, fresh()) as opened:
        report = opened.verify()
        assert kinds(report) == {FIRST: "swapped", SECOND: "swapped"}
        assert report.problems[0].detail == f"{FIRST} is the file {SECOND}, put in its place"
        with opened.open(FIRST) as reader, pytest.raises(ags1.AuthenticationError, match="failed authentication"):
            reader.read()


def test_an_older_version_of_a_file_is_refused_and_named(vault: Path, raw: Path) -> None:
    old = (vault / FIRST).read_bytes()
    (raw / FIRST).write_bytes(pattern(5000)[::-1])
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
        (vault / FIRST).write_bytes(old)
        assert kinds(opened.verify()) == {FIRST: "replaced"}
        with opened.open(FIRST) as reader, pytest.raises(ags1.AuthenticationError):
            reader.read()


def test_a_truncated_file_is_refused_when_it_is_opened(vault: Path, tmp_path: Path) -> None:
    big = write_tree(tmp_path / "big", {"big": pattern(3 << 20)})
    with dataset.open(vault, fresh()) as opened:
        opened.add(big)
        path = vault / "big"
        # Whole blocks: as a stream by itself it is authentic.
        os.truncate(path, ags1.encrypted_length(2 << 20))
        with pytest.raises(ags1.TruncatedError, match=r"big: has .* bytes are missing at its end"):
            opened.open("big")
        assert kinds(opened.verify()) == {"big": "truncated"}
        with path.open("ab") as file:
            file.write(bytes(3 << 20))
        assert kinds(opened.verify()) == {"big": "extended"}


def test_a_small_file_that_was_cut_is_named(vault: Path) -> None:
    os.truncate(vault / FIRST, 100)
    (vault / "empty").write_bytes(b"")
    with dataset.open(vault, fresh()) as opened:
        assert kinds(opened.verify()) == {FIRST: "truncated", "empty": "truncated"}


def test_damaged_blocks_are_counted_and_named(vault: Path, tmp_path: Path) -> None:
    with dataset.open(vault, fresh()) as opened:
        opened.add(write_tree(tmp_path / "big", {"big": pattern(3 << 20)}))
        flip(vault / "big", (1 << 20) + 500)
        problem = opened.verify().problems[0]
        assert (problem.path, problem.kind) == ("big", "damaged")
        assert "1 of 3 blocks are damaged: 1" in problem.detail


def test_files_that_are_missing_or_no_files_any_more_are_named(vault: Path) -> None:
    (vault / "a.txt").unlink()
    (vault / FIRST).unlink()
    (vault / FIRST).mkdir()
    (vault / SECOND).unlink()
    os.mkfifo(vault / SECOND)
    with dataset.open(vault, fresh()) as opened:
        found = kinds(opened.verify())
        assert found["a.txt"] == "missing"
        assert found[FIRST] == found[SECOND] == "replaced"
        with pytest.raises(FileNotFoundError, match="is in the manifest, but missing from the dataset"):
            opened.open("a.txt")
        with pytest.raises(OSError, match="is no regular file any more"):
            opened.open(SECOND)


def test_foreign_files_are_named_and_never_touched(vault: Path, raw: Path) -> None:
    (vault / "sub" / "foreign").write_bytes(b"not of this dataset")
    shutil.copy(vault / "a.txt", vault / "copy")
    with dataset.open(vault, fresh()) as opened:
        report = opened.verify()
        assert kinds(report) == {"copy": "foreign", "sub/foreign": "foreign"}
        assert "copy is a copy of a.txt" in {each.path: each.detail for each in report.problems}["copy"]
        opened.add(raw)
        opened.rewrap("new")
    assert (vault / "sub" / "foreign").read_bytes() == b"not of this dataset"


def test_a_foreign_file_in_the_way_is_an_error_and_stays(vault: Path, raw: Path) -> None:
    (vault / "mine").write_bytes(b"precious")
    write_tree(raw, {"mine": b"from the source", "other": b"fine"})
    with dataset.open(vault, fresh()) as opened:
        with pytest.raises(FileExistsError, match="a file that is not of this dataset is in the way"):
            opened.add(raw)
        report = opened.add(raw, on_error="collect")
        assert [path for path, _ in report.errors] == ["mine"]
        assert "other" in opened.files
        assert "mine" not in opened.files
    assert (vault / "mine").read_bytes() == b"precious"


def test_nothing_is_written_through_a_link_in_place_of_a_directory(vault: Path, raw: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (vault / "linked").symlink_to(tmp_path / "outside")
    write_tree(raw, {"linked/file": b"data"})
    with dataset.open(vault, fresh()) as opened, pytest.raises(NotADirectoryError, match="is in the way"):
        opened.add(raw)
    assert not os.listdir(tmp_path / "outside")


def test_decrypting_stops_at_what_is_not_authentic_and_leaves_nothing_of_it(vault: Path, tmp_path: Path) -> None:
    flip(vault / FIRST, 100)
    with dataset.open(vault, fresh()) as opened:
        with pytest.raises(ags1.AuthenticationError, match=r"month=01/part-0\.parquet: block 0"):
            opened.decrypt(tmp_path / "stopped", threads=1)
        report = opened.decrypt(tmp_path / "back", on_error="collect")
    assert [path for path, _ in report.errors] == [FIRST]
    assert read_tree(tmp_path / "back") == {path: data for path, data in CONTENTS.items() if path != FIRST}


# -- manifest and metadata -----------------------------------------------------------------------------------------


def metadata_of(vault: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((vault / "_ags1" / "metadata.json").read_text())
    return found


def write_metadata(vault: Path, fields: Any) -> None:
    (vault / "_ags1" / "metadata.json").write_text(json.dumps(fields))


def test_an_older_manifest_is_not_taken_for_the_newer_one(vault: Path, raw: Path) -> None:
    before = metadata_of(vault)
    old = (vault / "_ags1" / before["manifest"]["file"]).read_bytes()
    (raw / "a.txt").write_bytes(b"second version")
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
    now = metadata_of(vault)
    current = vault / "_ags1" / now["manifest"]["file"]
    good = current.read_bytes()
    current.write_bytes(old)
    with pytest.raises((ags1.AuthenticationError, ags1.FormatError), match="manifest-2"):
        dataset.open(vault, fresh())
    current.write_bytes(good)
    # With its own key, too, and everything else as it is now.
    (vault / "_ags1" / before["manifest"]["file"]).write_bytes(old)
    keys = {entry["key-id"]: entry for entry in before["encryption-keys"] + now["encryption-keys"]}
    write_metadata(vault, {**now, "manifest": before["manifest"], "encryption-keys": list(keys.values())})
    with pytest.raises(
        ags1.AuthenticationError, match="says version 2, but the manifest, which is authenticated, says 1"
    ):
        dataset.open(vault, fresh())


def test_a_roll_back_of_everything_is_detected_by_whoever_pins_the_version(
    vault: Path, raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(vault, tmp_path / "old")
    (raw / "a.txt").write_bytes(b"second version")
    with dataset.open(vault, fresh()) as opened:
        opened.add(raw)
        version = opened.version
    shutil.rmtree(vault)
    shutil.copytree(tmp_path / "old", vault)
    with dataset.open(vault, fresh()) as opened:
        assert opened.verify().ok
    with pytest.raises(ags1.AuthenticationError, match="says version 1, but 2 is expected: an older copy was put back"):
        dataset.open(vault, fresh(), expected_version=version)


def change_manifest(field: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: fields["manifest"].update({field: value})


def change(field: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: fields.update({field: value})


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "uuid": change("uuid", "00000000-0000-0000-0000-000000000000"),
    "version": change("version", 2),
    "version as text": change("version", "1"),
    "negative version": change("version", -1),
    "format version": change("format-version", 2),
    "table key id": change("table-key-id", "new"),
    "no keys": change("encryption-keys", []),
    "keys of a wrong type": change("encryption-keys", {}),
    "created": change("created-ms", 1),
    "properties": change("properties", {"a": "b"}),
    "no properties": lambda fields: fields.pop("properties"),
    "staged": change("staged", "../../elsewhere"),
    "file count": change_manifest("file-count", 3),
    "bytes": change_manifest("plaintext-bytes", 3),
    "manifest elsewhere": change_manifest("file", "../../etc/passwd"),
    "manifest of another name": change_manifest("file", "manifest-9-0123456789abcdef.jsonl.ags1"),
    "key id": change_manifest("key-id", "another"),
    "wrapped key": lambda fields: [
        entry.update({"encrypted-key-metadata": base64.b64encode(bytes(80)).decode()})
        for entry in fields["encryption-keys"]
    ],
    "timestamp": lambda fields: [
        entry["properties"].update(KEY_TIMESTAMP="1") for entry in fields["encryption-keys"] if "properties" in entry
    ],
}


@pytest.mark.parametrize("name", TAMPERED)
def test_no_field_of_the_metadata_can_be_changed_unnoticed(vault: Path, name: str) -> None:
    fields = metadata_of(vault)
    TAMPERED[name](fields)
    write_metadata(vault, fields)
    with pytest.raises((ags1.Ags1Error, FileNotFoundError)) as caught:
        dataset.open(vault, fresh())
    assert str(vault) in str(caught.value) or "key" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format-version": true}', b"[" * 100_000])
def test_metadata_that_is_none_is_a_format_error(vault: Path, data: bytes) -> None:
    (vault / "_ags1" / "metadata.json").write_bytes(data)
    with pytest.raises(ags1.FormatError, match=r"metadata\.json"):
        dataset.open(vault, fresh())


@pytest.mark.parametrize("offset", [0, 5, 9, 40, -1])
def test_a_damaged_manifest_is_refused(vault: Path, offset: int) -> None:
    flip(vault / "_ags1" / metadata_of(vault)["manifest"]["file"], offset)
    with pytest.raises((ags1.AuthenticationError, ags1.FormatError), match="manifest-1"):
        dataset.open(vault, fresh())


def test_a_truncated_or_missing_manifest_is_refused(vault: Path) -> None:
    path = vault / "_ags1" / metadata_of(vault)["manifest"]["file"]
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ags1.TruncatedError, match="manifest-1"):
        dataset.open(vault, fresh())
    path.unlink()
    with pytest.raises(FileNotFoundError, match="the manifest of this dataset is missing"):
        dataset.open(vault, fresh())


def test_a_wrong_master_key_and_a_service_that_refuses_are_key_errors(vault: Path) -> None:
    with pytest.raises(ags1.KeyAccessError):
        dataset.open(vault, CountingKms(lake=OTHER))
    with pytest.raises(ags1.KeyAccessError):
        dataset.open(vault, CountingKms("another"))
    with pytest.raises(ags1.KeyAccessError, match="names the master key 'lake', but 'new' is expected"):
        dataset.open(vault, fresh(), key_id="new")


# -- journals ------------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(vault: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A dataset with the journal of a run that was killed, and its source."""
    more = write_tree(tmp_path / "more", {"a.txt": b"changed", "new": b"new", "big": pattern(1_500_000)})
    shutil.copytree(vault, tmp_path / "trial")
    steps = killed_at(1 << 30, lambda: _add(tmp_path / "trial", more))
    assert steps is not None
    assert killed_at(steps - 19, lambda: _add(vault, more)) is None
    assert journal_of(vault, "log").stat().st_size
    return vault, more


def _add(vault: Path, source: Path, **options: Any) -> dataset.RunReport:
    with dataset.open(vault, fresh(), threads=1) as opened:
        return opened.add(source, **options)


def journal_of(vault: Path, ending: str) -> Path:
    (found,) = (
        path for path in (vault / "_ags1").iterdir() if path.name.startswith("journal-") and path.suffix == f".{ending}"
    )
    return found


def test_a_journal_that_was_changed_is_refused_and_a_fresh_start_needs_no_journal(
    unfinished: tuple[Path, Path],
) -> None:
    vault, more = unfinished
    flip(journal_of(vault, "log"), 40)
    with pytest.raises(ags1.AuthenticationError, match=r"record 0 failed authentication: .*resume=False"):
        _add(vault, more)
    with dataset.open(vault, fresh()) as opened:
        assert plain_of(opened) == CONTENTS
    # Files of the lost journal are foreign now: named, and not touched.
    report = _add(vault, more, resume=False, on_error="collect")
    assert {path for path, _ in report.errors} <= {"new", "big"}
    with dataset.open(vault, fresh()) as opened:
        assert opened.open("a.txt").read() == b"changed"


def test_a_journal_of_an_older_version_does_not_come_back(unfinished: tuple[Path, Path], tmp_path: Path) -> None:
    vault, more = unfinished
    kept = {path.name: path.read_bytes() for path in (vault / "_ags1").glob("journal-*")}
    _add(vault, more)
    assert_clean(vault)
    for name, data in kept.items():
        if name.endswith(".json"):
            data = json.dumps({**json.loads(data), "base-version": 2}).encode()
        (vault / "_ags1" / name).write_bytes(data)
    with pytest.raises(ags1.AuthenticationError, match="failed authentication"):
        _add(vault, write_tree(tmp_path / "later", {"later": b"later"}))
    with dataset.open(vault, fresh()) as opened:
        assert opened.version == 2


def test_a_record_that_was_cut_short_is_dropped(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    with journal_of(vault, "log").open("ab") as file:
        file.write(b"\x00\x00\x01\x00half")
    _add(vault, more)
    with dataset.open(vault, fresh()) as opened:
        assert opened.verify().ok
    assert_clean(vault)


def test_journals_of_elsewhere_are_refused_by_name(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    path = journal_of(vault, "json")
    good = path.read_text()
    path.write_text(json.dumps({**json.loads(good), "uuid": "another"}))
    with pytest.raises(ags1.FormatError, match="is the journal of another dataset"):
        _add(vault, more)
    path.write_text(json.dumps({**json.loads(good), "base-version": 7}))
    with pytest.raises(ags1.FormatError, match=r"is of version 7, but metadata\.json says 1"):
        _add(vault, more)
    path.write_text("{")
    with pytest.raises(ags1.FormatError, match="is damaged"):
        _add(vault, more)
    path.write_text(good)
    (path.parent / "journal-0123456789abcdef.json").write_text(good)
    with pytest.raises(ags1.FormatError, match="the journals of 2 unfinished runs"):
        _add(vault, more)


def test_a_start_without_the_unfinished_run_removes_its_files(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    report = _add(vault, more, resume=False)
    assert (report.resumed, report.done) == (0, 3)
    with dataset.open(vault, fresh()) as opened:
        assert opened.verify().ok
    assert_clean(vault)


# -- keys ----------------------------------------------------------------------------------------------------------


def test_no_key_stands_in_any_file_or_text_but_wrapped(unfinished: tuple[Path, Path]) -> None:
    vault, more = unfinished
    client = fresh()
    secrets = [MASTER, OTHER]
    with dataset.open(vault, client) as opened:
        secrets += [bytes(opened.key_metadata(entry.path).encryption_key) for entry in opened.files]
        for entry in json.loads((vault / "_ags1" / "metadata.json").read_text())["encryption-keys"]:
            if "properties" in entry:
                secrets.append(client.unwrap_key(base64.b64decode(entry["encrypted-key-metadata"]), "lake"))
        shown = [
            repr(opened),
            repr(opened.files),
            *map(repr, opened.files),
            *map(str, opened.files),
            repr(opened.verify()),
        ]
        for each in (opened, *opened.files):
            with pytest.raises(TypeError, match="holds"):
                each.__reduce__()
    assert len(secrets) == 3 + len(CONTENTS)
    texts = [text.encode() for text in shown] + list(read_tree(vault).values())
    for secret in secrets:
        for piece in (secret[:12], secret[10:22], base64.b64encode(secret[:12]), secret[:12].hex().encode()):
            assert not any(piece in text for text in texts)
    assert "journal" in " ".join(control(vault))
    assert _add(vault, more).resumed
