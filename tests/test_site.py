"""The built documentation: each page can be searched and edited, and has its neighbours; its code can be pasted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT

REPOSITORY = "https://example.org/ags1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("material", "mkdocs", "mkdocstrings"):
        pytest.importorskip(needed)
    target = tmp_path_factory.mktemp("site")
    variables = {"PYTHONPATH": str(ROOT), "AGS1_REPOSITORY": REPOSITORY, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(target)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)
    return target


def pages() -> list[str]:
    """Return the pages in the order of the navigation, without those of the API and the figures."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    return re.findall(r"^ +- .+: ((?!api/|results/)\S+)\.md$", navigation, re.MULTILINE)


@pytest.mark.long
def test_each_page_has_a_search_an_edit_link_and_its_neighbours(site: Path) -> None:
    for number, page in enumerate(pages()):
        html = (site / f"{page}.html").read_text()
        assert 'class="md-search__input"' in html, page
        assert f'href="{REPOSITORY}/edit/main/docs/{page}.md" title="Edit this page"' in html, page
        assert ("md-footer__link--prev" in html) == (number > 0), page
        assert "md-footer__link--next" in html or page == pages()[-1], page


@pytest.mark.long
def test_the_first_page_helps_to_choose(site: Path) -> None:
    (table,) = re.findall(
        r"<table>\s*<thead>\s*<tr>\s*<th>I have</th>.*?</table>", (site / "index.html").read_text(), re.DOTALL
    )
    linked = set(re.findall(r'href="(guides/[\w-]+)\.html', table))
    guides = {page for page in pages() if page.startswith("guides/")}
    assert guides - linked <= {"guides/permissions", "guides/benchmarks", "guides/spark-clusters"}


@pytest.mark.long
def test_the_search_finds_each_page_and_its_headings(site: Path) -> None:
    found = {each["location"] for each in json.loads((site / "search/search_index.json").read_text())["docs"]}
    assert {f"{page}.html" for page in pages()} <= found
    assert "guides/rotate-master-keys.html#check-that-it-worked" in found


@pytest.mark.long
def test_code_has_a_button_that_copies_it(site: Path) -> None:
    for page in pages():
        html = (site / f"{page}.html").read_text()
        (config,) = re.findall(r'<script id="__config" type="application/json">(.*?)</script>', html)
        assert "content.code.copy" in json.loads(config)["features"]


def _code(page: Path) -> Iterator[str]:
    for _, block in re.findall(r"^( *)```.*?\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield from block.splitlines()


def test_code_is_pasted_without_prompts() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert [line for line in _code(page) if re.match(r" *([$%>] |>>> |\.\.\. )", line)] == [], page
