"""The key of a run and those that come out of it: one for each file, the same for everybody, and nowhere to be seen."""

from __future__ import annotations

import copy
import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ags1.dataset._keys import KeyRing
from ags1.dataset._runs import RunKeys, RunReference, parse_record, record_name
from ags1.errors import KeyAccessError
from ags1.keys import Key
from ags1.layout import encrypted_length
from tests.dataset.conftest import CountingKms, fresh
from tests.threats.test_secrets import assert_silent

REFERENCE = RunReference("0b3f2f0e-uuid", "0123456789abcdef", 3, "lake", "key-1", "[]")
KEYS = RunKeys(REFERENCE, Key(bytes(range(32))))

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)
names = (
    st.binary(min_size=1)
    .filter(lambda name: b"\0" not in name)
    .map(lambda name: name.decode("utf-8", "surrogateescape"))
)
files = st.tuples(texts | names, st.integers(0, 1 << 50), st.integers(-(1 << 62), 1 << 62))


@given(files, files)
def test_no_two_files_have_a_key_or_a_prefix_in_common(
    first: tuple[str, int, int], second: tuple[str, int, int]
) -> None:
    made, other = KEYS.file_key(*first), KEYS.file_key(*second)
    same = first == second
    assert (bytes(made.encryption_key) == bytes(other.encryption_key)) is same
    assert (made.aad_prefix == other.aad_prefix) is same


def test_what_could_be_read_as_another_file_has_another_key() -> None:
    # The fields are joined by a zero byte, which a path cannot have and a number does not.
    cases = [("a", 1, 23), ("a", 12, 3), ("a", 123, 0), ("3\0a", 1, 2), ("0\0a", 1, 23), ("a", 1, -23)]
    keys = {bytes(KEYS.file_key(*case).encryption_key) for case in cases}
    assert len(keys) == len(cases)


def test_another_run_or_dataset_has_other_keys() -> None:
    references = [
        REFERENCE,
        RunReference("another", REFERENCE.run, 3, "lake", "key-1", "[]"),
        RunReference(REFERENCE.uuid, "fedcba9876543210", 3, "lake", "key-1", "[]"),
    ]
    made = [RunKeys(each, Key(bytes(range(32)))).file_key("a", 1, 2) for each in references]
    assert len({bytes(each.encryption_key) for each in made}) == 3
    assert len({each.aad_prefix for each in made}) == 3


def test_keys_are_those_of_hkdf() -> None:
    cryptography = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
    from cryptography.hazmat.primitives.hashes import SHA256

    info = b"\0".join((b"ags1 file of a run", b"0b3f2f0e-uuid", b"0123456789abcdef", b"70000", b"-5", b"sub/\xff"))
    expected = cryptography.HKDFExpand(SHA256(), 48, info).derive(bytes(range(32)))
    made = KEYS.file_key("sub/\udcff", 70000, -5)
    assert bytes(made.encryption_key) + (made.aad_prefix or b"") == expected
    assert made.file_length == encrypted_length(70000)


def test_a_worker_gets_the_same_keys_from_what_travels_by_asking_the_kms_once() -> None:
    client = CountingKms("lake")
    reference, keys = RunReference.create("uuid", 0, KeyRing([], "lake", "a test"), client)
    worker = fresh()
    found = pickle.loads(pickle.dumps(reference)).unwrap(worker)
    for path in ("a", "b/c"):
        made, other = keys.file_key(path, 1, 2), found.file_key(path, 1, 2)
        assert bytes(made.encryption_key) == bytes(other.encryption_key)
        assert made.aad_prefix == other.aad_prefix
    assert worker.unwraps == 1


def test_what_travels_and_what_is_shown_has_no_key_in_it() -> None:
    reference, keys = RunReference.create("uuid", 0, KeyRing([], "lake", "a test"), fresh())
    shown = [repr(reference), repr(keys), str(keys), repr(vars(reference)), reference.encode().decode()]
    for text in [*shown, pickle.dumps(reference, 0).decode("latin-1")]:
        assert_silent(text, bytes(keys.key))
        assert_silent(text, bytes(keys.file_key("a", 1, 2).encryption_key))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="the keys of a run cannot be pickled or copied: send its reference"):
            attempt(keys)


def test_a_record_is_read_as_it_was_written() -> None:
    reference, keys = RunReference.create("uuid", 5, KeyRing([], "lake", "a test"), fresh())
    assert re.fullmatch(r"run-[0-9a-f]{16}\.json", record_name(reference.run))
    found = parse_record(reference.run, reference.encode(), "a record")
    assert json.loads(found.encryption_keys) == json.loads(reference.encryption_keys)
    assert (found.uuid, found.base_version, found.table_key_id) == ("uuid", 5, "lake")
    assert bytes(found.unwrap(fresh()).key) == bytes(keys.key)


def test_another_master_key_does_not_open_a_run() -> None:
    reference, _ = RunReference.create("uuid", 0, KeyRing([], "lake", "a test"), fresh())
    with pytest.raises(KeyAccessError):
        reference.unwrap(CountingKms(lake=bytes(32)))
    with pytest.raises(KeyAccessError):
        reference.unwrap(CountingKms("another"))


def test_a_rewrapped_run_has_the_same_keys_under_the_other_master_key() -> None:
    reference, keys = RunReference.create("uuid", 0, KeyRing([], "lake", "a test"), fresh())
    ring = reference.key_ring().rewrapped(fresh(), "new", fresh())
    renewed = reference.rewrapped(ring)
    assert renewed.table_key_id == "new"
    assert bytes(renewed.unwrap(fresh()).key) == bytes(keys.key)
    with pytest.raises(KeyAccessError):
        renewed.unwrap(CountingKms("lake"))
