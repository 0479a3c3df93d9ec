"""Messages name arguments of functions; a command spells them as its options."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import ags1
from ags1.cli import main
from ags1.cli.spelling import option_of, options_of_arguments
from ags1.storage.location import or_options
from ags1.support.arguments import spell_by, spelled, spelling

PACKAGE = Path(ags1.__file__).parent
WRITTEN_OUT = re.compile(r"`[A-Za-z_]\w*(=[^`]*)?`")
# Whose messages nobody reads on a command line.
OTHERS = ("cli", "bench", "support")
# Commands do not have these, or are commands for one value of them.
PYTHON_ALONE = {"data_keys", "decrypt", "dry_run", "storage_options", "target_location", "relocate_table", "keys"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    """The modules of the library."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(OTHERS):
            yield name, ast.parse(path.read_text())


@pytest.mark.parametrize(
    ("name", "value", "in_python", "as_option"),
    [
        ("allow_plaintext", True, "`allow_plaintext=True`", "--allow-plaintext"),
        ("others", "copy", "`others='copy'`", "--others copy"),
        ("on_error", "collect", "`on_error='collect'`", "--keep-going"),
        ("check_footer_integrity", False, "`check_footer_integrity=False`", "--no-check-footer"),
        ("allowed_locations", ..., "`allowed_locations`", "--allow-location"),
        ("column_keys", ..., "`column_keys`", "--column-key"),
        ("rekey_file", ..., "`rekey_file`", "`ags1 parquet rekey`"),
        ("relocate_table", ..., "`relocate_table`", "`relocate_table`"),
    ],
)
def test_an_argument_becomes_the_option_of_a_command(name: str, value: object, in_python: str, as_option: str) -> None:
    assert spelled(name, value) == in_python
    before = spell_by(option_of)
    try:
        assert spelled(name, value) == as_option
    finally:
        spell_by(before)


def test_where_a_file_is_rekeyed_the_options_for_reading_are_the_old_ones() -> None:
    names = ("footer_key", "key_retriever", "missing_columns")
    assert [option_of(name, ..., old=True) for name in names] == [
        "--old-footer-key",
        "--old-key-for",
        "--missing-columns",
    ]


def test_a_store_is_told_its_options_only_where_a_command_takes_them() -> None:
    assert or_options() == ", or `storage_options`"
    for properties, wanted in ((True, ", or --property"), (False, "")):
        before = spell_by(partial(option_of, properties=properties))
        try:
            assert or_options() == wanted
        finally:
            spell_by(before)


def test_a_command_leaves_messages_of_the_program_that_calls_it_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k").write_bytes(bytes(16))
    assert main(["parquet", "decrypt", str(tmp_path / "no"), "-", "--footer-key", f"file:{tmp_path}/k"])
    assert spelled("overwrite", True) == "`overwrite=True`"


def test_tasks_of_spark_spell_arguments_as_the_command_does() -> None:
    of_command = partial(option_of, old=True)
    before = spell_by(of_command)
    try:
        sent = pickle.loads(pickle.dumps(spelling()))
    finally:
        spell_by(before)
    assert sent("footer_key", ...) == "--old-footer-key"


def test_messages_have_arguments_as_data_and_each_has_an_option() -> None:
    known = {name for name, _ in options_of_arguments()} | PYTHON_ALONE
    written, unknown = [], []
    for place, tree in trees():
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                written += [f"{place}:{node.lineno}: {each[0]}" for each in WRITTEN_OUT.finditer(node.value)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "spelled":
                name = node.args[0]
                if isinstance(name, ast.Constant) and name.value not in known:
                    unknown.append(f"{place}:{node.lineno}: {name.value}")
    assert written == []
    assert unknown == []
