"""Bad lists, lost keys and services that fail are told apart, and no message shows a key."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1.iceberg import EncryptedKey, EncryptionKeys, MissingKekError
from ags1.iceberg.metadata.key_entries import kek_above
from ags1.kms import GeneratedKey, MemoryKms, key_cache_of
from tests import reference
from tests.checks import run_python
from tests.iceberg.key_lists import (
    DATA_KEY,
    KEK,
    MASTERS,
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


def with_fields(**fields: Any) -> dict[str, Any]:
    """An entry of which some fields are replaced; underscores stand for hyphens, None removes."""
    changed = {**list_entry(), **{name.replace("_", "-"): value for name, value in fields.items()}}
    return {name: value for name, value in changed.items() if value is not None}


# -- what is missing -------------------------------------------------------------------------------------------


def test_a_lost_entry_is_named_with_its_snapshot() -> None:
    keys = keys_of(kek_entry(), list_entry())
    metadata = table([], {11: "lost"})
    with pytest.raises(ags1.KeyAccessError, match=r"snapshot 11 \(key-id 'lost'\): .* no entry 'lost' among its 2"):
        keys.for_snapshot(metadata, 11, CountingKms())
    with pytest.raises(ags1.KeyAccessError, match="no entry 'lost' among its 2: it was lost"):
        keys.unwrap("lost", CountingKms())


def test_a_lost_key_encryption_key_is_named_with_the_entry_that_needs_it() -> None:
    message = r"'list' is encrypted by key encryption key 'kek', which is missing.*merge their lists"
    for kind in (MissingKekError, ags1.KeyAccessError, ags1.FormatError):
        with pytest.raises(kind, match=message):
            keys_of(list_entry()).unwrap("list", CountingKms())
    with pytest.raises(MissingKekError, match=r"snapshot 11 \(key-id 'list'\): .*'kek', which is missing"):
        keys_of(list_entry()).for_snapshot(table([], {11: "list"}), 11, CountingKms())


def test_a_snapshot_that_is_not_there_is_named() -> None:
    with pytest.raises(ags1.KeyAccessError, match="snapshot 12 is not in the metadata, which lists 1 snapshots"):
        keys_of().for_snapshot(table([], {11: None}), 12, CountingKms())


# -- what is no hierarchy --------------------------------------------------------------------------------------


def circle(length: int) -> list[dict[str, Any]]:
    """Entries that encrypt each other."""
    made = (entry(f"e{i}", seal(KEK, KEK), f"e{(i + 1) % length}", {"KEY_TIMESTAMP": "1"}) for i in range(length))
    return list(made)


@pytest.mark.parametrize("length", [1, 2, 3, 1000])
def test_a_circle_is_refused_and_ends(length: int) -> None:
    kms = CountingKms()
    with pytest.raises(ags1.FormatError, match=r"in a circle: 'e0' -> 'e|'e1' is encrypted by another entry \('e2'\)"):
        keys_of(*circle(length)).unwrap("e0", kms)
    with pytest.raises(ags1.FormatError, match=r"in a circle: 'list' -> 'e0' -> 'e|'e0' is encrypted by another entry"):
        keys_of(*circle(length), list_entry(by="e0")).unwrap("list", kms)
    assert kms.calls == {}


def test_a_chain_of_any_length_is_looked_at_no_further_than_its_third_level() -> None:
    class Counted(dict[str, EncryptedKey]):
        looked_at = 0

        def __getitem__(self, key_id: str) -> EncryptedKey:
            self.looked_at += 1
            return super().__getitem__(key_id)

        def get(self, key_id: str, default: Any = None) -> Any:
            self.looked_at += 1
            return super().get(key_id, default)

    length = 2000
    entries = [EncryptedKey.from_dict(each) for each in circle(length + 1)[:-1]]
    counted = Counted((each.key_id, each) for each in entries)
    for each in entries[: length - 2]:
        with pytest.raises(ags1.FormatError, match="is encrypted by another entry"):
            kek_above(counted, each)
    assert counted.looked_at <= 3 * length


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([kek_entry(timestamp=None), list_entry()], "'kek' has no KEY_TIMESTAMP property.*such as 'list'"),
        ([kek_entry(timestamp=""), list_entry()], "'kek' has no KEY_TIMESTAMP property"),
        ([list_entry(by="x"), list_entry("x", by="kek"), kek_entry()], "'x' is encrypted by another entry .'kek'."),
        ([entry("list", b"1" * 50, None)], "'list' has no encrypted-by-id"),
        ([entry("kek", b"1" * 50, None, {"KEY_TIMESTAMP": "1"}), list_entry()], "'kek' has no encrypted-by-id"),
        ([kek_entry("list")], "'list' is a key encryption key, not key metadata of a manifest list"),
    ],
    ids=["no-timestamp", "empty-timestamp", "three-levels", "no-parent", "kek-without-parent", "kek"],
)
def test_a_list_without_the_hierarchy_is_refused_before_the_kms_is_asked(
    entries: list[dict[str, Any]], message: str
) -> None:
    kms = CountingKms()
    with pytest.raises(ags1.FormatError, match=message):
        keys_of(*entries).unwrap("list", kms)
    assert kms.calls == {}


# -- entries that are none -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (with_fields(key_id=None), "key-id of an entry .* must be text, not absent"),
        (with_fields(key_id=7), "key-id of an entry .* must be text, not int"),
        (with_fields(encrypted_key_metadata=None), "'list': encrypted-key-metadata must be base64 text, not absent"),
        (with_fields(encrypted_key_metadata=[1]), "'list': encrypted-key-metadata must be base64 text, not list"),
        (with_fields(encrypted_key_metadata="%%%%"), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_key_metadata="AA=A"), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_key_metadata="A"), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_key_metadata="AA AA"), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_key_metadata="-_-_"), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_key_metadata="é==="), "'list': encrypted-key-metadata is not standard base64"),
        (with_fields(encrypted_by_id=7), "'list': encrypted-by-id must be text, not int"),
        (with_fields(properties=[]), "'list': properties must be a JSON object, not list"),
        (with_fields(properties={"KEY_TIMESTAMP": 7}), "'list': property 'KEY_TIMESTAMP' must be text, not int"),
        (with_fields(properties={"x": None}), "'list': property 'x' must be text, not absent"),
        (with_fields(key_id="\ud800"), "key-id of an entry .* half a surrogate pair"),
        (with_fields(key_id="k" * 70_000), "key-id .* has 70000 characters; more than 65536 are refused"),
        (with_fields(encrypted_key_metadata="A" * (1 << 21)), "'list': .* larger than 1048576 bytes"),
        ("list", "an entry of encryption-keys must be a JSON object, not str"),
        (None, "an entry of encryption-keys must be a JSON object, not NoneType"),
    ],
)
def test_an_entry_with_wrong_fields_is_refused_by_name(bad: Any, message: str) -> None:
    metadata = table([kek_entry(), bad])
    for form in (metadata, json.dumps(metadata)):
        with pytest.raises(ags1.FormatError, match=message):
            EncryptionKeys.from_table_metadata(form)


def test_an_id_that_occurs_twice_is_refused() -> None:
    # Iceberg Java cannot commit to such a table either; which of the two is meant, nobody can say.
    for second in (list_entry("kek", 1), kek_entry()):
        with pytest.raises(ags1.FormatError, match="encryption-keys has two entries with the id 'kek'"):
            EncryptionKeys.from_table_metadata(table([kek_entry(), second]))


@pytest.mark.parametrize("field", ["key-id", "encrypted-by-id", "properties"])
def test_a_field_that_occurs_twice_is_refused(field: str) -> None:
    text = json.dumps(table([kek_entry()]))
    twice = text.replace(f'"{field}":', f'"{field}": "other", "{field}":', 1)
    with pytest.raises(ags1.FormatError, match=f"has the field '{field}' twice"):
        EncryptionKeys.from_table_metadata(twice)


def test_a_timestamp_that_occurs_twice_is_refused() -> None:
    twice = json.dumps(table([kek_entry()])).replace('"KEY_TIMESTAMP":', '"KEY_TIMESTAMP": "1", "KEY_TIMESTAMP":')
    with pytest.raises(ags1.FormatError, match="has the field 'KEY_TIMESTAMP' twice"):
        EncryptionKeys.from_table_metadata(twice)


def test_too_many_entries_are_refused_before_they_are_read() -> None:
    with pytest.raises(ags1.FormatError, match="has 1000001 entries; more than 1000000 are refused"):
        EncryptionKeys.from_table_metadata({"encryption-keys": [None] * 1_000_001})


def test_a_long_or_odd_name_does_not_flood_or_forge_a_log() -> None:
    name = "evil\n2026-01-01 ERROR all keys lost\x1b[31m" + "x" * 10_000
    with pytest.raises(ags1.KeyAccessError) as caught:
        keys_of().unwrap(name, CountingKms())
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("wrong", [{"key_id": 1}, {"encrypted_key_metadata": "text"}, {"properties": {1: "x"}}])
def test_an_entry_of_wrong_types_cannot_be_made(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"key_id": "id", "encrypted_key_metadata": b"wrapped"}
    with pytest.raises(ags1.FormatError, match=r"must be (text|bytes), not (int|str)"):
        EncryptedKey(**{**good, **wrong})


# -- what does not open ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 11, 12, 40, -16, -1])
def test_a_changed_entry_does_not_open(position: int) -> None:
    changed = list_entry()
    wrapped = bytearray(base64.b64decode(changed["encrypted-key-metadata"]))
    wrapped[position] ^= 1
    keys = keys_of(kek_entry(), entry("list", bytes(wrapped), "kek"))
    with pytest.raises(ags1.AuthenticationError, match="'list' does not open under key encryption key 'kek'") as caught:
        keys.unwrap("list", CountingKms())
    assert caught.value.block_index is None


def test_an_entry_under_another_key_encryption_key_does_not_open() -> None:
    keys = keys_of(kek_entry(), kek_entry("other", OTHER_KEK), list_entry(by="other"))
    with pytest.raises(ags1.AuthenticationError, match="'list' does not open under key encryption key 'other'"):
        keys.unwrap("list", CountingKms())


@pytest.mark.parametrize("length", [0, 1, 12, 27])
def test_an_entry_that_is_cut_short_is_told_from_a_wrong_key(length: int) -> None:
    keys = keys_of(kek_entry(), entry("list", bytes(length), "kek"))
    with pytest.raises(ags1.TruncatedError, match=f"'list' has {length} bytes, fewer than the 28"):
        keys.unwrap("list", CountingKms())


HOSTILE_VARINT = b"\x01" + b"\xff" * 11


@pytest.mark.parametrize(
    ("plain", "kind", "message"),
    [
        (b"", ags1.TruncatedError, "entry 'list': key metadata ends before the version byte"),
        (b"\x02rest", ags1.FormatError, "entry 'list': Cannot resolve schema for version: 2"),
        (b"\x01\x20" + DATA_KEY[:5], ags1.TruncatedError, "entry 'list': key metadata ends inside encryption_key"),
        (HOSTILE_VARINT, ags1.FormatError, "entry 'list': key metadata has a number of more than 64 bits"),
        (KEK, ags1.FormatError, "entry 'list': "),
        (reference.encode_varint(1 << 40), ags1.FormatError, "entry 'list': "),
    ],
)
def test_what_opens_to_no_key_metadata_is_refused_by_name(
    plain: bytes, kind: type[ags1.FormatError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        keys_of(kek_entry(), list_entry(plain=plain)).unwrap("list", CountingKms())


# -- services that fail ----------------------------------------------------------------------------------------


class Answering(CountingKms):
    """Answers, or raises, what a test says."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers

    def _answer(self, method: str, real: Callable[[], Any]) -> Any:
        answer = self.answers.get(method)
        if isinstance(answer, BaseException):
            raise answer
        return real() if answer is None else answer

    def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
        return self._answer("unwrap", lambda: super(Answering, self).unwrap_key(wrapped_key, wrapping_key_id))

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        return self._answer("wrap", lambda: super(Answering, self).wrap_key(key, wrapping_key_id))

    def supports_key_generation(self) -> bool:
        return "generate" in self.answers

    def generate_key(self, wrapping_key_id: str) -> GeneratedKey:
        return self._answer("generate", lambda: None)


REFUSALS = [RuntimeError("denied"), OSError("no route"), ags1.KeyAccessError("throttled"), ValueError("closed")]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_refusal_names_the_service_the_keys_and_the_cause(error: Exception) -> None:
    keys = keys_of(kek_entry(), list_entry())
    message = rf"Answering did not unwrap key encryption key 'kek' under master key 'lake': (\w+: )?{error}"
    wrapping = rf"Answering did not wrap .* 'lake-2': (\w+: )?{error}"
    if isinstance(error, ags1.KeyAccessError):
        # What a client of ours says comes first.
        message = rf"^{error} \(Answering did not unwrap key encryption key 'kek' under master key 'lake'\)$"
        wrapping = rf"^{error} \(Answering did not wrap .* 'lake-2'\)$"
    with pytest.raises(ags1.KeyAccessError, match=message) as caught:
        keys.unwrap("list", Answering(unwrap=error))
    assert caught.value.__cause__ is error
    with pytest.raises(ags1.KeyAccessError, match=wrapping):
        keys.add_manifest_list_key(key_metadata(), Answering(wrap=error), "lake-2")
    assert len(keys) == 2


def test_an_unknown_and_a_wrong_master_key_are_refusals() -> None:
    keys = keys_of(kek_entry(), list_entry())
    with pytest.raises(ags1.KeyAccessError, match="did not unwrap key encryption key 'kek' under master key 'lake'"):
        keys.unwrap("list", MemoryKms({"other": bytes(16)}))
    with pytest.raises(ags1.KeyAccessError, match=r"wrapped with another key, or it is damaged \(\w+ did not unwrap"):
        keys.unwrap("list", MemoryKms({"lake": bytes(16)}))


def test_a_service_whose_sdk_is_missing_says_what_to_install() -> None:
    with pytest.raises(ImportError, match="pip install"):
        keys_of(kek_entry(), list_entry()).unwrap("list", Answering(unwrap=ImportError("pip install 'ags1[aws]'")))


def test_an_interrupt_passes_through_and_the_object_goes_on() -> None:
    keys = keys_of(kek_entry(), list_entry())
    with pytest.raises(KeyboardInterrupt):
        keys.unwrap("list", Answering(unwrap=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        keys.add_manifest_list_key(key_metadata(), Answering(wrap=KeyboardInterrupt()), "lake-2")
    assert keys.unwrap("list", CountingKms()) == key_metadata()
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "0 bytes; an AES key has 16, 24 or 32"),
        (bytes(17), "17 bytes; an AES key has 16, 24 or 32"),
        (bytes(64), "64 bytes; an AES key has 16, 24 or 32"),
        ("x" * 16, "str instead of bytes"),
        (7, "int instead of bytes"),
    ],
)
def test_garbage_instead_of_a_key_is_refused(answer: Any, said: str) -> None:
    with pytest.raises(
        ags1.KeyAccessError, match=f"Answering did not unwrap key encryption key 'kek'.*: it returned {said}"
    ):
        keys_of(kek_entry(), list_entry()).unwrap("list", Answering(unwrap=answer))


def test_another_key_than_the_wrapped_one_is_noticed() -> None:
    with pytest.raises(ags1.AuthenticationError, match="'list' does not open under key encryption key 'kek'"):
        keys_of(kek_entry(), list_entry()).unwrap("list", Answering(unwrap=OTHER_KEK))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"short", "5 bytes, which cannot hold a wrapped key of 16 bytes"),
        (b"", "nothing"),
        ("vault:v1:text", "str instead of bytes"),
    ],
)
def test_garbage_instead_of_a_wrapped_key_is_refused(answer: Any, said: str) -> None:
    keys = keys_of()
    with pytest.raises(ags1.KeyAccessError, match=f"Answering did not wrap key encryption key .*: it returned {said}"):
        keys.add_manifest_list_key(key_metadata(), Answering(wrap=answer), "lake")
    assert len(keys) == 0


@pytest.mark.parametrize("spell", [bytes, base64.b64encode, lambda key: key.hex().encode()])
def test_a_service_that_wraps_nothing_is_refused(spell: Callable[[bytes], bytes]) -> None:
    class Transparent(CountingKms):
        def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
            return b"wrapped:" + spell(key)

    keys = keys_of()
    with pytest.raises(ags1.KeyAccessError, match="bytes that show the key: this service does not encrypt"):
        keys.add_manifest_list_key(key_metadata(), Transparent(), "lake")
    assert len(keys) == 0


@pytest.mark.parametrize(
    "answer",
    [GeneratedKey(bytes(17), bytes(60)), GeneratedKey(KEK, b"short"), GeneratedKey(KEK, b"xx" + KEK), None, (KEK,)],
)
def test_garbage_instead_of_a_made_key_is_refused(answer: Any) -> None:
    keys = keys_of()
    if answer is None:
        answer = RuntimeError("quota")
    with pytest.raises(ags1.KeyAccessError, match=r"Answering did not make a key encryption key under master"):
        keys.add_manifest_list_key(key_metadata(), Answering(generate=answer), "lake")
    assert len(keys) == 0


# -- no key in any text ----------------------------------------------------------------------------------------


def spellings(secret: bytes) -> list[str]:
    """How a key could look in a text."""
    return [secret.hex(), secret.decode("latin-1"), repr(secret)[2:-1], base64.b64encode(secret).decode().rstrip("=")]


def test_an_error_that_quotes_the_key_it_was_given_is_not_passed_on() -> None:
    class Chatty(CountingKms):
        seen: bytes = b""

        def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
            self.seen = bytes(key)
            raise ValueError(f"cannot wrap {key!r} ({key.hex()}, {base64.b64encode(key).decode()})")

    kms = Chatty()
    with pytest.raises(ags1.KeyAccessError, match="its text is left out, because it contains the key") as caught:
        keys_of().add_manifest_list_key(key_metadata(), kms, "lake")
    shown = "".join(traceback.format_exception(caught.value))
    assert not [each for each in spellings(kms.seen) if each in shown]


def test_no_text_of_any_object_or_error_shows_a_key() -> None:
    kms = CountingKms()
    keys = keys_of(kek_entry(), list_entry(), list_entry("bad", kek=OTHER_KEK), list_entry("odd", plain=DATA_KEY))
    texts = [repr(keys), repr(keys.unwrap("list", kms)), repr(list(keys)), str(keys.to_list())]
    for key_id in ("bad", "odd", "kek"):
        with pytest.raises(ags1.Ags1Error) as caught:
            keys.unwrap(key_id, kms)
        texts += traceback.format_exception(caught.value)
    rewrapped = keys.rewrap(kms, "lake-2")
    pruned = keys.prune(table([], {1: "list"}))
    texts += [repr(rewrapped), repr(rewrapped.report), repr(pruned.report), repr(keys.merge(keys).report)]
    texts += [repr(key_cache_of(kms)), repr(kms)]
    for secret in (KEK, OTHER_KEK, DATA_KEY, *MASTERS.values()):
        assert not [text for text in texts for each in spellings(secret) if each in text]


def test_objects_out_of_failed_constructors_have_a_repr() -> None:
    assert repr(EncryptionKeys.__new__(EncryptionKeys)) == "<ags1.iceberg.EncryptionKeys, not made>"
    assert repr(EncryptedKey.__new__(EncryptedKey)) == "<ags1.iceberg.EncryptedKey, not made>"


def test_importing_the_room_loads_no_sdk() -> None:
    loaded = run_python("import sys, ags1.iceberg; ags1.iceberg.EncryptionKeys; print(*sys.modules)").split()
    assert "ags1.iceberg.keys.encryption_keys" in loaded
    assert not {"boto3", "pyarrow", "pyiceberg", "hvac", "cryptography", "asyncio"} & set(loaded)
