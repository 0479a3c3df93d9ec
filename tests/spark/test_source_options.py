"""Options of the data source: spelt as Spark gives them, secrets refused, mistakes said."""

from __future__ import annotations

import pickle
import re
from dataclasses import Field, fields
from typing import Any

import pytest

from ags1.spark.source.options import DECODES, SourceOptions, StreamOptions, WriteOptions
from tests.checks import KEY
from tests.spark.source_files import options


def test_options_are_the_same_however_they_are_spelt() -> None:
    assert options(splitBytes="64m") == options(split_bytes=64 << 20) == options(SPLITBYTES="67108864")


def test_options_can_be_pickled() -> None:
    chosen = options(decode="text", columns="a, b", keyref="env:KEY")
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert chosen.columns == ("a", "b")


@pytest.mark.parametrize("name", ["key", "password", "apiKey", KEY.hex()])
def test_a_secret_is_no_option_and_is_not_repeated(name: str) -> None:
    with pytest.raises(ValueError, match="A key is never an option: kms and keyref refer to keys") as caught:
        SourceOptions.parse({"path": "vault", name: KEY.hex()})
    assert KEY.hex() not in str(caught.value)


@pytest.mark.parametrize("name", ["key_id", "keyref", "kms"])
def test_references_to_keys_are_no_secrets(name: str) -> None:
    assert getattr(options(**{name: "env:NAME"}), name) == "env:NAME"


def test_a_key_in_place_of_a_reference_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="keyref must be env:NAME or file:PATH") as caught:
        options(keyref=KEY.hex())
    assert KEY.hex() not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode": "xml"}, f"decode must be one of binary, text, .*{DECODES[-1]}, not 'xml'"),
        ({"bogus": "1"}, "has no option 'bogus' here; it has aad_prefix, .*, wholetext"),
        ({"inferSchema": "true"}, "has no option 'inferSchema' here; it has aad_prefix"),
        ({"startingVersion": "1"}, "has no option 'startingVersion' here"),
        ({"max_unpacked_bytes": "1m"}, "max_unpacked_bytes is for decode=text, not binary"),
        ({"wholetext": "yes", "decode": "text"}, "wholetext must be true or false, not 'yes'"),
        ({"split_bytes": "much"}, "split_bytes must be a number of bytes, such as 268435456 or 256m"),
        ({"threads": "0"}, "threads must be a number from 1"),
        ({"columns": "a,a"}, "names a column twice"),
        ({"aad_prefix": "a", "aad_prefix_hex": "00"}, "only one of aad_prefix and aad_prefix_hex"),
        ({"aad_prefix_hex": "0x"}, "must be hexadecimal"),
        ({"path": ""}, "give a path"),
        ({"kms": "keys.json"}, "kms must be a URL"),
        ({"expected_version": "new"}, "expected_version must be a number"),
    ],
)
def test_a_mistake_is_said(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**given)


def test_without_a_key_the_places_for_it_are_said() -> None:
    with pytest.raises(ValueError, match=r"Give the option kms .* or keyref=env:NAME"):
        SourceOptions.parse({"path": "vault"})


def test_a_stream_has_options_of_its_own() -> None:
    given = {"path": "v", "kms": "aws:", "startingVersion": " Latest", "max_versions_per_batch": "3"}
    made = StreamOptions.parse(given)
    assert (made.kms, made.starting_version, made.max_versions_per_batch) == ("aws:", "latest", 3)


def test_several_paths_come_as_commas_or_as_json() -> None:
    parse = SourceOptions.parse
    assert parse({"path": "a.ags1,b.ags1", "keyref": "env:K"}).path == ("a.ags1", "b.ags1")
    assert parse({"paths": '["a,1", "b"]', "keyref": "env:K"}).path == ("a,1", "b")
    with pytest.raises(ValueError, match="a dataset is one path"):
        parse({"path": "a,b", "kms": "aws:"})


def test_a_separator_that_can_overlap_itself_is_not_split_by() -> None:
    assert options(decode="text", lineSep="||").whole_files
    assert not options(decode="text", lineSep="|;").whole_files


def is_option(field: Field[Any]) -> bool:
    return bool(field.metadata)


def test_help_lists_every_option_with_its_default() -> None:
    pytest.importorskip("pyspark")
    import ags1.spark.source.data_source as source

    text = source.__doc__ or ""
    reading, _, rest = text.partition("Writing  ")
    writing, _, streaming = rest.partition("Streaming  ")
    defaults = SourceOptions()
    for field in filter(is_option, fields(SourceOptions)):
        found = re.search(rf"^``{field.name}`` +(\S+)", reading, re.MULTILINE)
        assert found, f"the table in the docstring of data_source.py has no row for {field.name}"
        default = getattr(defaults, field.name)
        if isinstance(default, bool):
            assert found[1] == str(default).lower(), field.name
        elif isinstance(default, int) and default > 0:
            assert found[1].removesuffix("m") == str(default >> 20 if found[1].endswith("m") else default), field.name
    (formats,) = re.findall(r"^``decode`` .*\n(?: .*\n)*", reading, re.MULTILINE)
    assert [each for each in DECODES if not re.search(rf"\b{each}\b", formats)] == [], "the row of decode names all"
    for field in filter(is_option, fields(WriteOptions)):
        assert re.search(rf"^``{field.name}``[ ,]", writing, re.MULTILINE), f"{field.name} is missing"
    of_streams = {field.name for field in fields(StreamOptions)} - {field.name for field in fields(SourceOptions)}
    assert set(re.findall(r"^``(\w+)`` ", streaming, re.MULTILINE)) == of_streams
