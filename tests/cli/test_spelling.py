"""Messages name arguments of functions; a command spells them as its options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ags1
from ags1.cli.spelling import in_options, options_of_arguments

PACKAGE = Path(ags1.__file__).parent
BARE = re.compile(r"(\w+)=(?:True|False)\b")
ARGUMENT = re.compile(r"`([A-Za-z]\w*)(?:=[^`]*)?`")
# Whose messages nobody reads on a command line, or whose options are options of Spark's data source.
OTHERS = ("cli", "bench", "spark/source", "support")
# Commands do not have these, or are commands for one value of them.
PYTHON_ALONE = {"data_keys", "decrypt", "storage_options", "target_location", "relocate_table", "keys"}


def texts() -> Iterator[tuple[str, str]]:
    """The texts of the library that are no documentation, with their places."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(OTHERS):
            continue
        tree = ast.parse(path.read_text())
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                yield f"{name}:{node.lineno}", node.value


def test_arguments_become_the_options_of_commands() -> None:
    for text, wanted in (
        ("give `allow_plaintext=True`", "give --allow-plaintext"),
        ("`others='copy'` copies them", "--others copy copies them"),
        ("with `on_error='collect'`", "with --keep-going"),
        ("with `allowed_locations`", "with --allow-location"),
        ("although `column_keys` has one", "although --column-key has one"),
        ("use `rekey_file`", "use `ags1 parquet rekey`"),
        ("set AWS_REGION, or `storage_options`", "set AWS_REGION"),
        ("access refused: A or B, or `storage_options` may not do this", "access refused: A or B may not do this"),
        ("try again, or set a longer timeout in `storage_options`", "try again"),
    ):
        assert in_options(text) == wanted
    assert in_options("set A, or `storage_options`", properties=True) == "set A, or --property"
    longer = "try again, or set a longer timeout in --property"
    assert in_options("try again, or set a longer timeout in `storage_options`", properties=True) == longer
    assert in_options("give `footer_key` or `key_retriever`", old=True) == "give --old-footer-key or --old-key-for"


def test_no_message_has_an_argument_that_a_command_cannot_spell() -> None:
    known = {name for name, _ in options_of_arguments()} | PYTHON_ALONE
    bare, unknown = [], []
    for place, text in texts():
        bare += [place for name in BARE.findall(in_options(text)) if name not in PYTHON_ALONE]
        unknown += [(place, name) for name in ARGUMENT.findall(text) if name not in known]
    assert bare == []
    assert unknown == []
