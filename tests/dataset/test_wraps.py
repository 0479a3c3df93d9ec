"""Several master keys for one class: each opens it alone where it is named, and what an attacker adds opens nothing."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.dataset.classes import ClassKeys, KeyClass, KeyWrap, OpenedBy
from ags1.dataset.versions import read_latest
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError
from ags1.kms import LocalKms
from ags1.storage import Location
from tests.dataset.conftest import CONTENTS, MASTER, OTHER, CountingKms, plain_of, write_tree

THIRD = bytes(range(1, 33))


def first() -> CountingKms:
    return CountingKms("lake", tenant=THIRD)


def second() -> CountingKms:
    """The service of another region, which has none of the first one's keys."""
    return CountingKms(dr=OTHER)


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    keys = {"sub/**": "tenant", "**": "lake"}
    with dataset.encrypt(write_tree(tmp_path / "raw"), tmp_path / "vault", first(), keys=keys, durable=False) as made:
        report = made.add_wrap("dr", second())
        assert (report.old_key_id, report.new_key_id, report.keys, report.version) == ("lake", "dr", 2, 2)
        assert [each.key_ids for each in made.classes] == [("tenant", "dr"), ("lake", "dr")]
    return tmp_path / "vault"


def last(vault: Path) -> Path:
    return max((vault / "_ags1").glob("v-*.json"), key=lambda each: int(each.stem[2:]))


def rewritten(vault: Path, change: Any) -> None:
    """Change the last version's file, in the very form that the library writes."""
    fields = json.loads(last(vault).read_bytes())
    change(fields)
    last(vault).write_text(json.dumps(fields, indent=2) + "\n")


def test_each_master_key_opens_all_classes_alone_and_for_every_change(vault: Path, tmp_path: Path) -> None:
    for kms, key_id in ((first(), None), (first(), "lake"), (second(), "dr")):
        with dataset.open(vault, kms, key_id=key_id) as opened:
            assert plain_of(opened) == CONTENTS
            assert opened.verify().ok
    write_tree(tmp_path / "more", {"sub/new": b"of the other region", "x": b"y"})
    with dataset.open(vault, second(), key_id="dr") as opened:
        opened.add(tmp_path / "more")
        opened.mv("x", "sub/x")
        opened.rm("a.txt")
        opened.expire(keep=1, older_than=None, grace=0)
        assert [each.version for each in opened.versions()] == [5, 6]
    wanted = {**CONTENTS, "sub/new": b"of the other region", "sub/x": b"y"}
    del wanted["a.txt"]
    # The first service reads what the second wrote.
    with dataset.open(vault, first()) as opened:
        assert plain_of(opened) == wanted
        assert opened.verify().ok
        opened.rm("sub/x")
    with dataset.open(vault, second(), key_id="dr") as opened:
        assert plain_of(opened) == {path: data for path, data in wanted.items() if path != "sub/x"}


def test_a_further_master_key_is_not_tried_unless_it_is_named(vault: Path) -> None:
    asked: list[str] = []
    both = CountingKms(dr=OTHER)
    both._unwrap = lambda wrapped, key_id: asked.append(key_id) or b""  # type: ignore[func-returns-value, method-assign]
    with pytest.raises(KeyAccessError, match=r"give `key_id=...` to open it by the master key 'dr'"):
        dataset.open(vault, both)
    assert asked == ["lake"]
    named = CountingKms("lake", tenant=THIRD, dr=OTHER)
    with dataset.open(vault, named, key_id="dr"):
        pass
    with pytest.raises(KeyAccessError, match="is under the master key 'lake', but 'other' is expected"):
        dataset.open(vault, first(), key_id="other")


def test_rewrap_by_the_further_master_key_ends_an_outage(vault: Path) -> None:
    with dataset.open(vault, second(), key_id="dr") as opened:
        opened.rewrap("dr")
        opened.rewrap("dr", key_id="tenant")
        assert [each.key_ids for each in opened.classes] == [("dr",), ("dr",)]
        assert plain_of(opened) == CONTENTS
    with dataset.open(vault, second()) as opened:
        assert (opened.pins.key_id, opened.verify().ok) == ("dr", True)


def test_a_further_master_key_stays_over_a_rewrap_of_the_first(vault: Path) -> None:
    with dataset.open(vault, first()) as opened:
        opened.rewrap("tenant")
        assert opened.classes[1].key_ids == ("tenant", "dr")
    with dataset.open(vault, second(), key_id="dr") as opened:
        assert plain_of(opened) == CONTENTS


def test_what_was_dropped_opens_the_older_versions_alone(vault: Path) -> None:
    with dataset.open(vault, first()) as opened:
        with pytest.raises(ValueError, match="'lake' is the first master key"):
            opened.rm_wrap("lake")
        with pytest.raises(ValueError, match=r"no class of keys of .* is under 'no'; there are: dr, lake, tenant"):
            opened.rm_wrap("no")
        before = last(vault).read_bytes()
        assert opened.rm_wrap("dr", dry_run=True).dry_run
        assert last(vault).read_bytes() == before
        opened.rm_wrap("dr")
        with pytest.raises(ValueError, match="under the master key 'tenant' already"):
            opened.classes[0].also_under(first(), "tenant", first())
    with pytest.raises(KeyAccessError, match="'dr' is expected"):
        dataset.open(vault, second(), key_id="dr")
    with dataset.open(vault, second(), key_id="dr", version=2) as opened:
        assert plain_of(opened) == CONTENTS
        with pytest.raises(ValueError, match="was opened by the master key 'dr'"):
            opened.rm_wrap("dr")


@pytest.mark.parametrize("what", ["rewrap", "rm_wrap"])
def test_a_copy_of_an_old_version_opens_later_files_too(vault: Path, tmp_path: Path, what: str) -> None:
    """As the documentation warns: whoever had the old key and a few kilobytes needs no copy of the files."""
    old_id, old = ("lake", first()) if what == "rewrap" else ("dr", second())
    before = read_latest(Location(vault))
    assert before is not None
    with dataset.open(vault, first()) as opened:
        opened.rewrap("tenant") if what == "rewrap" else opened.rm_wrap("dr")
        opened.expire(keep=1, older_than=None, grace=0)
        opened.add(write_tree(tmp_path / "more", {"later": b"secret"}))
        (part,) = opened.files["later"].parts
    with pytest.raises(KeyAccessError):
        dataset.open(vault, old, key_id=old_id)
    keys = ClassKeys(before.classes, OpenedBy(old, old_id), "copy")
    metadata = keys.open(next(each.id for each in before.classes if each.pattern == "**"), part)
    assert ags1.open(vault / part.name, key_metadata=metadata).read() == b"secret"


def test_a_service_that_refuses_leaves_the_dataset_as_it_was(vault: Path) -> None:
    before = last(vault).read_bytes()
    with dataset.open(vault, first()) as opened:
        with pytest.raises(KeyAccessError):
            opened.add_wrap("missing", second())
        assert not opened.refresh()
    assert last(vault).read_bytes() == before


def test_the_key_encryption_key_stays_however_old_it_is(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("ags1.iceberg.keys.encryption_keys.time.time", lambda: now + 10 * 366 * 86_400)
    with dataset.open(vault, first()) as opened:
        opened.rm("a.txt")
    with dataset.open(vault, second(), key_id="dr") as opened:
        assert len(plain_of(opened)) == len(CONTENTS) - 1
        # From before there was a further master key.
        assert [each.path for each in opened.verify().problems] == ["version 1"]


def test_a_wrap_that_is_added_without_keys_opens_nothing_and_hides_none(vault: Path, tmp_path: Path) -> None:
    with dataset.encrypt(
        write_tree(tmp_path / "theirs", {"a.txt": b"evil"}), tmp_path / "made", second(), "dr"
    ) as made:
        theirs = [dict(each) for each in made.classes[0].encryption_keys]
    true = last(vault).read_bytes()

    def added(fields: dict[str, Any]) -> None:
        for each in fields["classes"]:
            forged = [{**theirs[0], "key-id": entry["key-id"]} for entry in each["encryption-keys"][:1]]
            each["wraps"].insert(0, {"key-id": "evil", "encryption-keys": forged})

    def replaced(fields: dict[str, Any]) -> None:
        for each in fields["classes"]:
            each["wraps"][0]["encryption-keys"] = [
                {**theirs[0], "key-id": entry["key-id"]} for entry in each["encryption-keys"][:1]
            ]

    def removed(fields: dict[str, Any]) -> None:
        for each in fields["classes"]:
            del each["wraps"]

    evil = CountingKms(evil=OTHER)
    for change in (added, replaced, removed):
        rewritten(vault, change)
        for kms, key_id in ((first(), None), (first(), "lake"), (second(), "dr"), (evil, "evil"), (evil, None)):
            with pytest.raises((AuthenticationError, KeyAccessError)):
                dataset.open(vault, kms, key_id=key_id)
        # The version before it is open as before, and so is this one once the true file is back.
        with dataset.open(vault, first(), version=1) as opened:
            assert plain_of(opened) == CONTENTS
        last(vault).write_bytes(true)
        with dataset.open(vault, second(), key_id="dr") as opened:
            assert plain_of(opened) == CONTENTS


@pytest.mark.parametrize("pinned", ["lake", "dr"])
def test_nobody_puts_a_dataset_of_another_key_behind_the_name_of_a_master_key(
    vault: Path, tmp_path: Path, pinned: str
) -> None:
    # The attacker may use "evil" of a service that the victim uses too, and "lake" and "dr" not at all.
    victim = {"lake": MASTER, "tenant": THIRD, "dr": OTHER, "evil": bytes(32)}
    kms = CountingKms(**victim)
    with dataset.encrypt(write_tree(tmp_path / "theirs", {"a": b"x"}), tmp_path / "made", kms, "evil"):
        pass
    theirs, mine = read_latest(Location(tmp_path / "made")), read_latest(Location(vault))
    assert theirs is not None
    assert mine is not None
    evil = theirs.default_class
    garbage = tuple({**each, "encrypted-by-id": "lake"} for each in evil.encryption_keys)
    wraps = (KeyWrap("evil", evil.encryption_keys), KeyWrap("dr", garbage))
    forged = replace(evil, key_id="lake", encryption_keys=garbage, wraps=wraps)
    shutil.copytree(tmp_path / "made", vault, dirs_exist_ok=True, ignore=shutil.ignore_patterns("v-*.json"))
    version = replace(theirs, version=3, parent=mine.digest, uuid=mine.uuid, classes=(forged,))
    # The tag is under the attacker's own class key, as in a dataset of theirs.
    keys = ClassKeys((evil,), kms, "")
    with dataset.open(vault, CountingKms(**victim), key_id=pinned) as opened:
        (vault / "_ags1/v-3.json").write_bytes(version.authenticated(keys)[1])
        with pytest.raises(Ags1Error):
            opened.refresh()
        with pytest.raises(Ags1Error):
            opened.rm("a.txt")
    with pytest.raises(Ags1Error):
        dataset.open(vault, CountingKms(**victim), key_id=pinned)
    # Whoever names that key gets what it opens: it is the attacker's word.
    assert (vault / "_ags1/v-4.json").exists() is False


def test_tasks_of_spark_open_by_the_first_master_key_and_say_so(tmp_path: Path) -> None:
    decryption = pytest.importorskip("ags1.spark.decryption", exc_type=ImportError)
    (tmp_path / "k").write_text("11" * 32)
    (tmp_path / "k").chmod(0o600)
    keystore = LocalKms.create(tmp_path / "keys.json", {"lake": MASTER, "dr": OTHER}, key_file=tmp_path / "k")
    with keystore, dataset.encrypt(write_tree(tmp_path / "raw"), tmp_path / "vault", keystore, "lake") as made:
        made.add_wrap("dr")
    url, place = f"local:{tmp_path / 'keys.json'}?key_file={tmp_path / 'k'}", Location(tmp_path / "vault")
    with decryption.open_dataset(place, url, None, "lake", None) as opened:
        assert plain_of(opened) == CONTENTS
    with pytest.raises(KeyAccessError, match="by which tasks open it: rewrap it under 'dr'"):
        decryption.open_dataset(place, url, None, "dr", None)


@pytest.mark.parametrize(
    "wraps",
    [
        [], {}, [1], [{"key-id": "x"}], [{"key-id": 1, "encryption-keys": []}],
        [{"key-id": "x", "encryption-keys": [1]}], [{"key-id": "x", "encryption-keys": [{"key-id": None}]}],
        [{"key-id": "lake", "encryption-keys": []}], [{"key-id": "x", "encryption-keys": []}] * 2,
        [{"key-id": str(number), "encryption-keys": []} for number in range(9)],
        [{"key-id": "x", "encryption-keys": [{"key-id": "k"}] * 65}],
    ],
    ids=range(11),
)  # fmt: skip
def test_damaged_wraps_are_refused(vault: Path, wraps: Any) -> None:
    rewritten(vault, lambda fields: fields["classes"][1].update(wraps=wraps))
    with pytest.raises(FormatError):
        dataset.open(vault, first())


@pytest.mark.parametrize("odd", [[], {}, None, 7])
def test_an_id_of_a_key_that_is_no_text_is_refused(vault: Path, odd: Any) -> None:
    before = last(vault).read_bytes()
    for key_id in (None, "dr"):
        rewritten(vault, lambda fields: fields["classes"][1]["encryption-keys"][0].update({"key-id": odd}))
        with pytest.raises(FormatError):
            dataset.open(vault, first() if key_id is None else second(), key_id=key_id)
        last(vault).write_bytes(before)


def test_a_class_has_at_most_eight_further_master_keys() -> None:
    kms = CountingKms("lake", *(str(number) for number in range(9)))
    made = KeyClass.create("**", "lake", kms)
    for number in range(8):
        made = made.also_under(kms, str(number), kms)
    with pytest.raises(ValueError, match="8 further master keys"):
        made.also_under(kms, "8", kms)
