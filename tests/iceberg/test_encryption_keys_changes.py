"""Lists are moved to another master key, pruned and merged without losing what anybody needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ags1
from ags1.iceberg import EncryptionKeys, KeyRewrapReport, MergeReport, PruneReport
from ags1.kms import MemoryKms
from tests.iceberg.key_lists import (
    DAY,
    KEK,
    MASTERS,
    NOW_MS,
    OTHER_KEK,
    CountingKms,
    entry,
    kek_entry,
    key_metadata,
    keys_of,
    list_entry,
    seal,
    table,
)

pytestmark = pytest.mark.timeout(60)

NEW_MASTER = {"vault": bytes(range(200, 232))}


def two_generations() -> EncryptionKeys:
    """Two key encryption keys under two master keys, and three entries."""
    old = str(NOW_MS - 900 * DAY)
    return keys_of(
        kek_entry("kek-1", timestamp=old),
        kek_entry("kek-2", OTHER_KEK, master="lake-2"),
        list_entry("list-1", 1, by="kek-1", timestamp=old),
        list_entry("list-2", 2, by="kek-2", kek=OTHER_KEK),
        list_entry("list-3", 3, by="kek-2", kek=OTHER_KEK),
    )


# -- rewrap ----------------------------------------------------------------------------------------------------


def test_after_a_rewrap_only_the_new_master_key_is_needed() -> None:
    before = two_generations().to_list()
    keys = keys_of(*before)
    moved = keys.rewrap(CountingKms(), "vault", MemoryKms(NEW_MASTER))
    assert moved.report == KeyRewrapReport(("kek-1", "kek-2"), ("lake", "lake-2"), "vault")
    assert [moved.unwrap(f"list-{n}", MemoryKms(NEW_MASTER)) for n in (1, 2, 3)] == [key_metadata(n) for n in (1, 2, 3)]
    for old, new in zip(before, moved.to_list(), strict=True):
        if old["key-id"].startswith("list"):
            assert new == old
        else:
            assert new["encrypted-by-id"] == "vault"
            assert new["encrypted-key-metadata"] != old["encrypted-key-metadata"]
            assert (new["key-id"], new["properties"]) == (old["key-id"], old["properties"])
    assert keys.to_list() == before


def test_a_rewrap_stays_in_one_kms_without_another() -> None:
    kms = CountingKms()
    moved = keys_of(kek_entry(), list_entry()).rewrap(kms, "lake-2")
    assert moved["kek"].encrypted_by_id == "lake-2"
    assert moved.unwrap("list", CountingKms({"lake-2": MASTERS["lake-2"]})) == key_metadata()
    # One to unwrap, one to wrap, one to verify; what was verified is cached.
    assert kms.calls == {"unwrap": 2, "wrap": 1}
    moved.unwrap("list", kms)
    assert kms.calls == {"unwrap": 2, "wrap": 1}


def test_a_rewrap_to_the_same_id_wraps_anew() -> None:
    keys = keys_of(kek_entry(), list_entry())
    moved = keys.rewrap(CountingKms(), "lake")
    assert moved["kek"].encrypted_key_metadata != keys["kek"].encrypted_key_metadata
    assert moved.unwrap("list", CountingKms()) == key_metadata()


def test_a_dry_run_asks_for_everything_and_changes_nothing() -> None:
    keys, kms, new = two_generations(), CountingKms(), CountingKms(NEW_MASTER)
    tried = keys.rewrap(kms, "vault", new, dry_run=True)
    assert tried == keys
    assert tried.report == KeyRewrapReport(("kek-1", "kek-2"), ("lake", "lake-2"), "vault", dry_run=True)
    assert (kms.calls, new.calls) == ({"unwrap": 2}, {"wrap": 2, "unwrap": 2})
    with pytest.raises(
        ags1.KeyAccessError, match=r"MemoryKms did not wrap key encryption key 'kek-1' under .*'nowhere'"
    ):
        keys.rewrap(kms, "nowhere", MemoryKms(NEW_MASTER), dry_run=True)


class Failing(CountingKms):
    """Fails at the nth call of a method, or answers it wrongly."""

    def __init__(self, method: str, at: int, wrong: bytes | None = None) -> None:
        super().__init__(NEW_MASTER)
        self.method, self.at, self.wrong = method, at, wrong

    def _check_call(self, method: str) -> bool:
        if method != self.method or self.calls[method] != self.at:
            return False
        if self.wrong is None:
            raise ConnectionError("the line is dead")
        return True

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        wrapped = super().wrap_key(key, wrapping_key_id)
        return self.wrong or b"" if self._check_call("wrap") else wrapped

    def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
        key = super().unwrap_key(wrapped_key, wrapping_key_id)
        return self.wrong or b"" if self._check_call("unwrap") else key


@pytest.mark.parametrize("method", ["wrap", "unwrap"])
@pytest.mark.parametrize("at", [1, 2])
def test_a_rewrap_that_fails_half_way_changes_nothing(method: str, at: int) -> None:
    keys = two_generations()
    before = keys.to_list()
    with pytest.raises(
        ags1.KeyAccessError, match=f"Failing did not {method} key encryption key 'kek-{at}'.*the line is"
    ):
        keys.rewrap(CountingKms(), "vault", Failing(method, at))
    assert keys.to_list() == before
    assert keys.report is None
    assert keys.unwrap("list-1", CountingKms()) == key_metadata(1)


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        ("unwrap", bytes(16), "wrapped key encryption key 'kek-1' .*, and unwrapped it to another key"),
        ("unwrap", KEK[:15] + b"\x00", "unwrapped it to another key: the service"),
        ("wrap", bytes(44), "did not unwrap key encryption key 'kek-1' under master key 'vault'"),
    ],
)
def test_a_service_that_cannot_give_the_key_back_is_noticed(method: str, wrong: bytes, message: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match=message):
        two_generations().rewrap(CountingKms(), "vault", Failing(method, 1, wrong))


def test_a_key_that_opens_none_of_its_entries_is_not_carried_over() -> None:
    class Wrong(CountingKms):
        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            return bytes(16)

    with pytest.raises(
        ags1.AuthenticationError, match=r"'kek-1', as Wrong unwrapped it .* opens none of its 1 entries"
    ):
        two_generations().rewrap(Wrong(), "vault", MemoryKms(NEW_MASTER))


def test_a_rewrap_reports_what_does_not_open_and_what_it_left_alone() -> None:
    keys = keys_of(
        kek_entry(),
        list_entry(),
        list_entry("damaged", kek=OTHER_KEK),
        list_entry("orphan", by="lost"),
        entry("odd", b"x" * 40, None),
        kek_entry("unused", OTHER_KEK),
        kek_entry("no-time", timestamp=None),
        list_entry("below-no-time", by="no-time"),
    )
    moved = keys.rewrap(CountingKms(), "lake-2")
    report = moved.report
    assert isinstance(report, KeyRewrapReport)
    assert report.rewrapped == ("kek", "unused", "no-time")
    assert report.unopened == ("damaged",)
    assert report.untouched == ("orphan", "odd")
    assert [moved[each] for each in report.untouched] == [keys[each] for each in report.untouched]


def test_a_rewrap_leaves_circles_alone_and_ends() -> None:
    made = [entry(f"e{i}", seal(KEK, KEK), f"e{1 - i}", {"KEY_TIMESTAMP": "1"}) for i in (0, 1)]
    moved = keys_of(*made).rewrap(CountingKms(), "lake-2")
    assert moved.to_list() == made


def test_the_id_of_an_entry_is_no_master_key() -> None:
    with pytest.raises(ValueError, match="new_table_key_id 'kek' is the id of an entry"):
        keys_of(kek_entry()).rewrap(CountingKms(), "kek")
    with pytest.raises(TypeError, match="new_kms must have wrap_key and unwrap_key"):
        keys_of(kek_entry()).rewrap(CountingKms(), "lake-2", object())


# -- prune -----------------------------------------------------------------------------------------------------


def test_prune_keeps_what_snapshots_name_and_what_that_needs() -> None:
    keys = two_generations()
    pruned = keys.prune(table([], {11: "list-2", 12: None}))
    assert pruned.key_ids == ("kek-2", "list-2")
    assert pruned.report == PruneReport(dropped=("kek-1", "list-1", "list-3"), kept=("kek-2", "list-2"))
    assert pruned.unwrap("list-2", CountingKms()) == key_metadata(2)
    assert len(keys) == 5


def test_prune_drops_everything_of_a_table_without_snapshots() -> None:
    assert len(two_generations().prune(table([], {}))) == 0


def test_prune_keeps_everything_that_is_in_use() -> None:
    keys = two_generations()
    pruned = keys.prune(table([], {1: "list-1", 2: "list-2", 3: "list-3"}))
    assert pruned == keys
    assert pruned.report == PruneReport(dropped=(), kept=keys.key_ids)


def test_prune_keeps_what_it_cannot_judge_and_what_that_needs() -> None:
    future = {**list_entry("future", 1), "used-by": "something new"}
    purpose = list_entry("purpose", 2)
    purpose["properties"] = {"purpose": "statistics"}
    keys = keys_of(kek_entry(), future, purpose, entry("rootless", b"x" * 40, None), list_entry("plain", 3))
    pruned = keys.prune(table([], {}))
    assert pruned.report == PruneReport(
        dropped=("plain",),
        kept=("kek", "future", "purpose", "rootless"),
        unjudged=("kek", "future", "purpose", "rootless"),
    )


def test_prune_keeps_what_anything_else_in_the_metadata_names() -> None:
    keys = keys_of(kek_entry(), list_entry("a", 1), list_entry("b", 2), list_entry("c", 3))
    statistics = [{"snapshot-id": 1, "blob-metadata": [{"properties": {"key": "a"}}]}]
    metadata = table([], {}, statistics=statistics, **{"some-future-field": "b"})
    assert keys.prune(metadata).key_ids == ("kek", "a", "b")


def test_prune_keeps_what_the_caller_says() -> None:
    assert two_generations().prune(table([], {}), keep=["list-3", "unknown"]).key_ids == ("kek-2", "list-3")
    with pytest.raises(TypeError, match="keep must be an iterable of ids, not one str"):
        two_generations().prune(table([], {}), keep="list-3")


def test_prune_reports_snapshots_that_cannot_be_opened_any_more() -> None:
    pruned = two_generations().prune(table([], {1: "list-1", 2: "lost"}))
    assert isinstance(pruned.report, PruneReport)
    assert pruned.report.missing == ("lost",)


def test_prune_drops_unused_circles_and_ends() -> None:
    made = [entry(f"e{i}", seal(KEK, KEK), f"e{1 - i}", {"KEY_TIMESTAMP": "1"}) for i in (0, 1)]
    assert len(keys_of(*made).prune(table([], {}))) == 0
    assert len(keys_of(*made).prune(table([], {1: "e0"}))) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"snapshots": None}, "no list of snapshots"),
        ({"current-snapshot-id": 99}, "names snapshot 99 and does not list it"),
        ({"refs": {"audit": {"snapshot-id": 98, "type": "tag"}}}, "names snapshot 98 and does not list it"),
        ({"snapshot-log": [{"snapshot-id": 97, "timestamp-ms": 1}]}, "names snapshot 97 .*Load all snapshots first"),
        ({"snapshots": {}}, "snapshots must be a JSON list, not dict"),
        ({"snapshots": [7]}, "a snapshot must be a JSON object, not int"),
        ({"snapshots": [{"snapshot-id": "1"}]}, "snapshot-id must be a whole number, not str"),
        ({"snapshots": [{"snapshot-id": 1, "key-id": 5}]}, "snapshot 1: key-id must be text, not int"),
        ({"refs": []}, None),
        ({"refs": [1]}, "refs must be a JSON object"),
        ({"snapshot-log": [1]}, "must hold JSON objects"),
    ],
)
def test_prune_refuses_metadata_that_does_not_tell_what_is_in_use(more: dict[str, Any], message: str | None) -> None:
    # A REST catalog may answer with the snapshots of refs only: the rest would lose their keys.
    metadata = {**table([], {1: "list-1"}), **more}
    if message is None:
        assert two_generations().prune(metadata).key_ids == ("kek-1", "list-1")
        return
    with pytest.raises(ags1.FormatError, match=message):
        two_generations().prune(metadata)


# -- merge -----------------------------------------------------------------------------------------------------


def test_merge_unites_two_commits_and_loses_neither() -> None:
    base = keys_of(kek_entry(), list_entry("list-0"))
    ours, theirs = keys_of(*base.to_list()), keys_of(*base.to_list())
    mine = ours.add_manifest_list_key(key_metadata(1), CountingKms(), "lake")
    yours = theirs.add_manifest_list_key(key_metadata(2), CountingKms(), "lake")
    merged = ours.merge(theirs)
    assert merged.key_ids == ("kek", "list-0", mine, yours)
    assert merged.report == MergeReport(added=(yours,), common=("kek", "list-0"))
    assert merged.unwrap(mine, CountingKms()) == key_metadata(1)
    assert merged.unwrap(yours, CountingKms()) == key_metadata(2)
    assert (len(ours), len(theirs)) == (3, 3)
    assert set(theirs.merge(ours).key_ids) == set(merged.key_ids)


def test_merge_with_itself_and_with_nothing_changes_nothing() -> None:
    keys = two_generations()
    assert keys.merge(keys) == keys == keys.merge(keys_of()) == keys_of().merge(keys)


@pytest.mark.parametrize("field", ["encrypted-key-metadata", "encrypted-by-id", "properties", "unknown"])
def test_merge_replaces_nothing_and_names_what_conflicts(field: str) -> None:
    ours = {**kek_entry(), "unknown": "1"}
    theirs = dict(ours)
    theirs[field] = {"encrypted-key-metadata": "AAAA", "properties": {"KEY_TIMESTAMP": "1"}}.get(field, "other")
    with pytest.raises(ags1.FormatError, match="both lists have an entry 'kek', and the two differ; neither may be"):
        keys_of(ours).merge(keys_of(theirs))


def test_merge_says_that_a_list_may_have_been_rewrapped() -> None:
    keys = keys_of(kek_entry(), list_entry())
    with pytest.raises(ags1.FormatError, match=r"'kek'.*re-wrapped .* since: merge the lists from before"):
        keys.merge(keys.rewrap(CountingKms(), "lake-2"))


def test_merge_restores_fields_that_one_side_dropped() -> None:
    full = {**kek_entry(), "note": {"x": 1}}
    bare = {name: value for name, value in full.items() if name != "note"}
    assert keys_of(bare).merge(keys_of(full)).to_list() == keys_of(full).merge(keys_of(bare)).to_list() == [full]


def test_merge_finds_no_conflict_in_the_spelling_of_json() -> None:
    kek = kek_entry()
    theirs = keys_of({**kek, "note": {"b": 1.1, "a": True}})
    spelled = json.dumps(kek)[:-1] + ', "note": {"a":true,  "b":1.10}}'
    ours = EncryptionKeys.from_table_metadata('{"encryption-keys":[' + spelled + "]}")
    assert ours == theirs
    assert ours.merge(theirs) == theirs
    with pytest.raises(ags1.FormatError, match="both lists have an entry 'kek'"):
        ours.merge(keys_of({**kek, "note": {"b": 1.1, "a": 1}}))


def test_merge_takes_lists_only() -> None:
    with pytest.raises(TypeError, match="other must be an EncryptionKeys, not list"):
        keys_of().merge([])  # type: ignore[arg-type]
