"""Table metadata in every form is read, and a list is put into its fields with no other changed."""

from __future__ import annotations

import base64
import gzip
import json
import string
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ags1
from ags1.iceberg import EncryptionKeys
from ags1.iceberg.catalogs.successor import java_text
from tests.iceberg.key_lists import CountingKms, entry, kek_entry, key_metadata, keys_of, list_entry, table

pytestmark = pytest.mark.timeout(120)


def of(metadata: Any) -> EncryptionKeys:
    """The list in some metadata."""
    return EncryptionKeys.from_table_metadata(metadata)


# -- forms -----------------------------------------------------------------------------------------------------


def test_every_form_gives_the_same_list(tmp_path: Path) -> None:
    metadata = table([kek_entry(), list_entry()])
    text = json.dumps(metadata)
    plain, packed = tmp_path / "v1.metadata.json", tmp_path / "v2.gz.metadata.json"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    wanted = of(metadata)
    assert len(wanted) == 2
    forms = [text, text.encode(), bytearray(text.encode()), "\ufeff" + text, plain, str(plain), packed]
    forms += [gzip.compress(text.encode()), memoryview(text.encode()), f"  \n{text}\n"]
    for form in forms:
        assert of(form) == wanted


@pytest.mark.parametrize("none", [{}, {"encryption-keys": None}, {"encryption-keys": []}, "{}", b'{"a":1}', "{ }"])
def test_metadata_without_a_list_has_no_entries(none: Any) -> None:
    keys = of(none)
    assert len(keys) == 0
    assert keys.to_list() == []


def test_null_and_absent_are_the_same_where_iceberg_may_leave_a_field_out() -> None:
    # Iceberg Rust writes null where Java writes nothing.
    one = {**entry("id", b"wrapped", None), "encrypted-by-id": None, "properties": None}
    assert of(table([one])).to_list() == [{"key-id": "id", "encrypted-key-metadata": "d3JhcHBlZA=="}]
    assert of(json.dumps(table([one]))) == of(table([one]))


def test_base64_without_padding_is_read_and_written_with_it() -> None:
    one = {"key-id": "id", "encrypted-key-metadata": "d3JhcHBlZA"}
    assert of(table([one])).to_list()[0]["encrypted-key-metadata"] == "d3JhcHBlZA=="


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "table metadata is not a JSON object"),
        ("[]", "table metadata is not a JSON object"),
        (b"null", "table metadata is not a JSON object"),
        ("{", "not JSON: Expecting property name"),
        ('{"a":1', "not JSON: Expecting ',' delimiter at character 6"),
        ('{"a" 1}', "not JSON: Expecting ':' delimiter at character 5"),
        ('{"a":}', "not JSON: Expecting value at character 5"),
        ('{"a":1,}', "not JSON: "),
        ("{a:1}", "not JSON: Expecting property name"),
        ('{"a":1}x', "not JSON: Extra data at character 7"),
        ('{"a":NaN}', "NaN is not a JSON number"),
        ('{"a":-Infinity}', "-Infinity is not a JSON number"),
        ('{"a":1,"a":2}', "has the field 'a' twice"),
        ('{"snapshots":[{"key-id":"x","key-id":"y"}]}', "has the field 'key-id' twice"),
        ('{"encryption-keys":[],"encryption-keys":[]}', "has the field 'encryption-keys' twice"),
        ('{"a":' + "[" * 100_000, "nested too deeply"),
        ('{"a":' + "9" * 5000 + "}", "a number is out of range"),
        ('{"encryption-keys":{}}', "encryption-keys must be a JSON list, not dict"),
        ('{"encryption-keys":"x"}', "encryption-keys must be a JSON list, not str"),
        ({"encryption-keys": 7}, "encryption-keys must be a JSON list, not int"),
        (b'{"a":"\xff"}', "table metadata is not UTF-8: byte 6"),
        (gzip.compress(b"{}", mtime=0)[:-9], "table metadata is damaged gzip"),
        (b"\x1f\x8bnot gzip at all", "table metadata is damaged gzip"),
    ],
)
def test_what_is_no_metadata_is_refused(bad: Any, message: str) -> None:
    with pytest.raises(ags1.FormatError, match=message):
        of(bad)


def test_an_error_quotes_nothing_of_the_document() -> None:
    secret = base64.b64encode(bytes(range(32))).decode()
    for bad in (f'{{"a":"{secret}"', f'{{"a":"{secret}" "b"}}', f'{{"encryption-keys":["{secret}"]}}'):
        with pytest.raises(ags1.FormatError) as caught:
            of(bad)
        assert secret[:8] not in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 7, [], object()])
def test_what_is_no_form_of_metadata_is_a_wrong_argument(wrong: Any) -> None:
    with pytest.raises(TypeError, match="metadata must be a mapping, JSON or a path, not"):
        of(wrong)


def test_a_file_that_is_missing_stays_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        of(tmp_path / "v1.metadata.json")


# -- writing back ----------------------------------------------------------------------------------------------


def test_every_form_gives_its_fields_with_another_list_and_is_not_changed(tmp_path: Path) -> None:
    keys, text = keys_of(kek_entry()), '{"odd": [1.10, {"x": null}], "encryption-keys": [], "snapshots": []}'
    path = tmp_path / "v1.metadata.json"
    path.write_text(text)
    for form in (text, text.encode(), gzip.compress(text.encode()), path, json.loads(text)):
        written = keys.to_table_metadata(form)
        assert written == {**json.loads(text), "encryption-keys": keys.to_list()}
        assert list(written) == ["odd", "encryption-keys", "snapshots"]
        assert len(of(form)) == 0


@pytest.mark.parametrize("text", ["{}", '{"a":[1.10]}', " {} "])
def test_an_empty_list_is_not_added(text: str) -> None:
    assert keys_of().to_table_metadata(text) == json.loads(text)


def test_an_empty_list_replaces_one() -> None:
    assert keys_of().to_table_metadata('{"encryption-keys":[ ]}') == {"encryption-keys": []}
    assert keys_of().to_table_metadata(table([kek_entry()]))["encryption-keys"] == []


def test_a_dict_gives_a_new_dict_with_the_same_values() -> None:
    number, unknown = Decimal("1.10"), {"x": [1]}
    metadata = {"price": number, "unknown": unknown, "encryption-keys": [], "snapshots": []}
    written = keys_of(kek_entry()).to_table_metadata(metadata)
    assert written["price"] is number
    assert written["unknown"] is unknown
    assert list(written) == list(metadata)
    assert metadata["encryption-keys"] == []


def test_writing_back_refuses_to_lose_a_key_that_a_snapshot_needs() -> None:
    # Somebody committed while this list was being changed.
    entries = [kek_entry(), list_entry("list-1", 1), list_entry("list-2", 2)]
    theirs = table(entries, {1: "list-1", 2: "list-2"})
    stale = keys_of(*entries[:2])
    message = r"snapshot 2 \(key-id 'list-2'\) needs entry 'list-2', which the metadata has and the new list lacks"
    for form in (theirs, json.dumps(theirs)):
        with pytest.raises(ags1.KeyAccessError, match=message):
            stale.to_table_metadata(form)
    with pytest.raises(ags1.KeyAccessError, match=r"snapshot 1 \(key-id 'list-1'\) needs entry 'kek'"):
        keys_of(*entries[1:]).to_table_metadata(theirs)
    assert of(stale.merge(of(theirs)).to_table_metadata(theirs)) == of(theirs)


def test_what_the_metadata_had_lost_already_stops_nothing() -> None:
    keys = keys_of(kek_entry())
    assert of(keys.to_table_metadata(table([], {1: "lost"}))) == keys


# -- unknown fields --------------------------------------------------------------------------------------------


def test_unknown_fields_are_kept_through_every_change() -> None:
    spelled = '"a": {"b":[1.10, 1e3 ]}, "c":null,"d\\u0041":"\\/"'
    kek = json.dumps(kek_entry())[:-1] + "," + spelled + "}"
    metadata = f'{{"encryption-keys":[{kek},{json.dumps(list_entry())}],"snapshots":[]}}'
    keys = of(metadata)
    for changed in (keys, keys.rewrap(CountingKms(), "lake-2"), keys.prune(metadata), keys.merge(keys)):
        found = changed.to_list()[0]
        assert (found["a"], found["c"], found["dA"]) == ({"b": [1.1, 1000.0]}, None, "/")
        assert of(json.dumps({"encryption-keys": changed.to_list()})) == changed


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"bytes", object()])
def test_an_unknown_field_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ags1.FormatError, match="entry 'kek': field 'odd' is not made of JSON values"):
        of(table([{**kek_entry(), "odd": value}]))


def test_control_characters_are_spelled_as_iceberg_java_spells_them() -> None:
    one = entry('\x01\x1f\n\t\\"é\u2028😀\x7f\\u001f', b"x", "\x0e")
    assert java_text(of(table([one])).to_list()) == (
        '[{"key-id":"\\u0001\\u001F\\n\\t\\\\\\"é\u2028😀\x7f\\\\u001f","encrypted-key-metadata":"eA==",'
        '"encrypted-by-id":"\\u000E"}]'
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = TEXT.filter(lambda name: name not in ("key-id", "encrypted-key-metadata", "encrypted-by-id", "properties"))


@st.composite
def lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Entries with ids of their own, some with fields that nobody knows."""
    made = []
    for key_id in draw(st.lists(TEXT, unique=True, max_size=4)):
        by = draw(st.none() | TEXT)
        properties = draw(st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3))
        made.append({**entry(key_id, draw(st.binary(max_size=40)), by, properties)})
        made[-1].update(draw(st.dictionaries(NAMES, VALUES, max_size=2)))
    return made


@settings(max_examples=300, deadline=None)
@given(entries=lists(), outside=st.dictionaries(NAMES, VALUES, max_size=3), indent=st.sampled_from([None, 0, 2]))
def test_any_list_survives_the_round_trip(entries: list[dict[str, Any]], outside: dict[str, Any], indent: Any) -> None:
    outside = {name: value for name, value in outside.items() if name not in ("encryption-keys", "snapshots")}
    metadata = {**outside, "encryption-keys": entries, "z": 1}
    text = json.dumps(metadata, indent=indent, ensure_ascii=bool(indent))
    from_dict, from_text = of(metadata), of(text)
    assert from_dict.to_list() == from_text.to_list() == entries
    for keys in (from_dict, from_text):
        assert keys.to_table_metadata(text) == keys.to_table_metadata(metadata) == metadata
    assert from_dict == from_text


@settings(max_examples=300, deadline=None)
@given(st.text(string.printable, max_size=60) | st.binary(max_size=60))
def test_any_text_is_metadata_or_refused(data: str | bytes) -> None:
    for form in (data, b"{" + data if isinstance(data, bytes) else "{" + data):
        if isinstance(form, str) and form.lstrip("\ufeff \t\r\n")[:1] not in ("", "{", "["):
            continue
        try:
            of(form)
        except ags1.FormatError:
            pass


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_metadata_cut_or_changed_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(json.dumps(table([kek_entry(), list_entry()], {1: "list"})).encode())
    position = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[position:]
    else:
        raw[position] ^= data.draw(st.integers(1, 255))
    try:
        keys = of(bytes(raw))
    except ags1.FormatError:
        return
    try:
        assert keys.unwrap("list", CountingKms()) == key_metadata()
    except ags1.Ags1Error:
        pass
