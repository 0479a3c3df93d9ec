"""Options of the data source: spelt as Spark gives them, secrets refused, mistakes said."""

from __future__ import annotations

import pickle
import re
from dataclasses import Field, fields
from typing import Any

import pytest

from ags1.spark.source._options import DECODES, SourceOptions, StreamOptions, WriteOptions
from tests.checks import KEY
from tests.spark.source_files import options


def test_options_are_the_same_however_they_are_spelt() -> None:
    assert options(splitBytes="64m") == options(split_bytes=64 << 20) == options(SPLITBYTES="67108864")


def test_options_can_be_pickled() -> None:
    chosen = options(decode="json", columns="a, b", keyref="env:KEY")
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert chosen.columns == ("a", "b")


@pytest.mark.parametrize(
    "name", ["key", "KEY", "password", "secret", "apikey", "api_key", "accessKey", "token", "dek", "encryption_key"]
)
def test_a_secret_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ValueError, match=r"keyref=env:NAME or keyref=file:PATH") as caught:
        SourceOptions.parse({"path": "vault", name: KEY.hex()})
    assert KEY.hex() not in str(caught.value)
    assert "kms=URL" in str(caught.value)


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
        ({"decode": "xml"}, f"decode must be one of binary, text, json, .*{DECODES[-1]}, not 'xml'"),
        ({"bogus": "1"}, "has no option 'bogus'; it has aad_prefix"),
        ({"decod": "json"}, r"has no option 'decod' \(is decode meant\?\); it has aad_prefix"),
        ({"format": "json"}, r"has no option 'format' \(is decode meant\?\)"),
        ({"partitionBy": "day"}, r"the option 'partitionBy' is for writing: df\.write\.format"),
        ({"startingVersion": "1"}, r"the option 'startingVersion' is for streams: spark\.readStream\.format"),
        ({"max_unpacked_bytes": "1m"}, "max_unpacked_bytes is for decode=csv or json or text, not binary"),
        ({"header": "true"}, "header is for decode=csv, not binary"),
        ({"decode": "json", "multiline": "yes"}, "multiline must be true or false, not 'yes'"),
        ({"split_bytes": "much"}, "split_bytes must be a number of bytes, such as 268435456 or 256m"),
        ({"pushdown": "true"}, "pushdown must be once, not true: Spark up to 4.3 .* rows are missing"),
        ({"pushdown": "yes"}, "pushdown must be false or once"),
        ({"threads": "0"}, "threads must be a number from 1"),
        ({"decode": "csv", "sep": "||"}, "sep must be one ASCII character"),
        ({"decode": "text", "encoding": "latin-1"}, "has no option 'encoding' but utf-8 or utf8: only UTF-8 is read"),
        ({"decode": "csv", "dateFormat": "dd.MM.yyyy"}, "has no option 'dateFormat': .*with to_date after reading"),
        ({"decode": "csv", "timestampFormat": "x"}, "has no option 'timestampFormat': .*with to_timestamp"),
        ({"decode": "parquet", "mergeSchema": "true"}, r"'mergeSchema' but false: .* give one with \.schema"),
        ({"pathGlobFilter": "*.csv"}, "'pathGlobFilter': include has globs of paths"),
        ({"recursiveFileLookup": "true"}, "'recursiveFileLookup': all directories are read; partition_discovery"),
        ({"decode": "json", "allowSingleQuotes": "false"}, "'allowSingleQuotes' but true: read the lines with"),
        ({"decode": "json", "prefersDecimal": "true"}, "'prefersDecimal' but false: give a schema"),
        ({"decode": "csv", "maxColumns": "5"}, "has no option 'maxColumns': there is no limit"),
        ({"decode": "csv", "samplingRatio": "0.1"}, "'samplingRatio' but 1 or 1.0: sampling_bytes"),
        ({"decode": "csv", "sep": "\\"}, "sep must not be the quote, the escape or the comment"),
        ({"decode": "csv", "multiLine": "true", "lineSep": ";"}, "multiline and line_sep contradict"),
        ({"decode": "json", "comment": "#"}, "comment is for decode=csv, not json"),
        ({"decode": "csv", "time_zone": "Nowhere"}, "time_zone must be a time zone"),
        ({"mode": "lenient", "decode": "json"}, "mode must be one of permissive, dropmalformed, failfast"),
        ({"content": "false", "columns": "path"}, "contradict each other"),
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


def test_options_of_spark_that_say_what_is_done_anyway_are_none() -> None:
    usual = {"encoding": "UTF-8", "allowSingleQuotes": "true", "samplingRatio": "1.0", "mergeSchema": "false"}
    assert options(decode="json", **usual) == options(decode="json")
    assert options(decode="json", primitivesAsString=True).as_strings
    assert options(decode="csv", ignoreLeadingWhiteSpace=True).trim_left


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+02:00", "GMT+1", "PST", "Z", "UTC"])
def test_time_zones_are_named_as_in_spark(zone: str) -> None:
    assert options(decode="csv", timeZone=zone).time_zone == zone


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
