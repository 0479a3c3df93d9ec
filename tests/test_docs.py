"""The pages in docs/ are true: their blocks run in order, and `help` knows every public name."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

from buildtools import wordcount
from tests.pages import ROOT, blocks, languages, pages_with_files, run_python, run_shell, with_files

DOCS = ROOT / "docs"
RUN_HERE = (
    "audit.md", "batches.md", "command-line.md", "files.md", "formats.md", "parquet.md",
)  # fmt: skip
"""Pages whose blocks need nothing; their Python runs first, in one process, then their shell, in the same directory."""
MODULES = (
    "",
    ".arrow",
    ".audit",
    ".avro",
    ".bench",
    ".dataset",
    ".iceberg",
    ".kms",
    ".layout",
    ".parquet",
    ".spark",
    ".fs",
)


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_blocks_of_the_page_run_in_order(name: str, tmp_path: Path) -> None:
    for needed in ("cryptography", "pandas", "polars", "pyarrow"):
        pytest.importorskip(needed)
    work = tmp_path / "work"
    work.mkdir()
    run_python("\n".join(blocks(DOCS / name, "python")), work)
    run_shell("\n".join(blocks(DOCS / name, "sh")), work)


def test_no_part_of_the_documentation_has_more_words_than_its_limit() -> None:
    """``python -m buildtools.wordcount`` lists the pages."""
    counted = {part: sum(pages.values()) for part, pages in wordcount.parts().items()}
    assert counted.keys() - {"README"} == {"Start here", "How to", "Reference", "Explanation"}
    assert {part: count for part, count in counted.items() if count > wordcount.LIMITS[part]} == {}


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    results = {"results/results.md", "results/without-avx512/results.md"}
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | results


def test_no_block_is_forgotten() -> None:
    """A page that needs a server or Spark is named by a test elsewhere; guides are run by tests/test_examples.py."""
    tests = "".join(test.read_text() for test in (ROOT / "tests").glob("*/test_docs*.py"))
    for page in DOCS.glob("*.md"):
        if {"python", "sh"} & languages(page) and page.name not in RUN_HERE:
            assert f'"{page.name}"' in tests or f"docs/{page.name}" in tests, page.name
    for page in (DOCS / "guides").glob("*.md"):
        scripts = re.findall(r'title="examples/(.*?)"', page.read_text())
        known = {"", "sh", "json", "hcl", *(f'python title="examples/{script}"' for script in scripts)}
        assert languages(page) <= known, page.name


NEEDED = {
    "cryptography": "pip install [^`]*cryptography",
    "fsspec": r"'ags1\[fsspec\]'",
    "pandas": "pip install [^`]*pandas",
    "polars": "pip install [^`]*polars",
    "pyarrow": r"(arrow|iceberg|spark)\]'",
    "pyiceberg": r"iceberg\]'",
    "pyspark": r"'ags1\[spark",
}
"""What a page says of a module that its blocks import: the extra that has it, or its own name."""


def test_a_page_says_what_to_install_for_what_it_imports() -> None:
    for page in (ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "guides").glob("*.md")):
        text = page.read_text()
        code = "\n".join(re.findall(r"^ *```python.*?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL))
        prose = re.sub(r"^ *```python.*?\n(.*?)^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
        used = set(re.findall(r"^ *(?:import|from) (\w+)", code, re.MULTILINE))
        for module in used & NEEDED.keys():
            assert re.search(NEEDED[module], prose), f"{page.name} imports {module}"


def test_the_policies_to_copy_are_json() -> None:
    policies = [json.loads(block) for block in blocks(DOCS / "guides" / "permissions.md", "json")]
    assert [each["Version"] for each in policies] == ["2012-10-17", "2012-10-17"]


def test_the_pages_show_the_files_as_they_are() -> None:
    """So that a guide is whole wherever its page is read; ``python -m tests.pages`` writes them anew."""
    for page in pages_with_files():
        assert page.read_text() == with_files(page), f"python -m tests.pages brings {page.name} up to date"
        assert "--8<--" not in page.read_text(), page.name


@pytest.mark.parametrize("name", MODULES)
def test_help_begins_with_a_sentence(name: str) -> None:
    """A name of a class in the place of a verb is a replacement that went wrong."""
    module = importlib.import_module(f"ags1{name}")
    for each in module.__all__:
        first = (inspect.getdoc(getattr(module, each)) or "").partition("\n")[0]
        assert not re.match(r"[A-Z][a-z]+[A-Z]\w* (the|a|an) ", first), f"{each}: {first}"


@pytest.mark.parametrize("name", MODULES)
def test_help_knows_every_public_name_at_run_time(name: str) -> None:
    """The reference is made from docstrings; native modules have them in their sources, not only in stubs."""
    module = importlib.import_module(f"ags1{name}")
    assert inspect.getdoc(module)
    for each in module.__all__:
        value = getattr(module, each)
        if not isinstance(value, (int, float, str, bytes)):
            assert inspect.getdoc(value), f"{module.__name__}.{each}"


def test_messages_that_are_explained_are_those_of_the_library() -> None:
    texts = [path.read_text() for path in (ROOT / "ags1").rglob("*.pyx")]
    for path in (ROOT / "ags1").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                # A value is anything.
                texts.append(
                    "".join(str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values)
                )
    others = {"AccessDenied", "403", "No such file or directory", "No space left on device", "plaintext", "foreign"}
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    unknown = []
    for message in {each for row in rows for each in re.findall("`(.+?)`", row)} - others:
        pieces = [re.escape(each) for each in message.split("...")]
        pattern = re.compile(r"[^\n]*?".join(pieces))
        if not any(pattern.search(text) for text in texts):
            unknown.append(message)
    assert not unknown
