"""The page of a report in a real browser: it needs nothing else, sorts, filters, and shows hostile names as names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ags1.audit import audit
from tests.audit.browser import Browser, started
from tests.servers._install import MissingServerError
from tests.servers.fixtures import missing

HOSTILE = (
    "<script>document.title='caught'<!--",
    '"><img src=x onerror="document.title=\'caught\'">',
    "'onmouseover='document.title=1",
    "</script></td></table><h1>caught",
    "</title><script>document.title='caught'",
    "line\nend\r\x1b[31mred",
    "right\u202eto left",
    "&lt;amp&amp;",
    "javascript:alert(1)",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        opened = started()
        found = opened.__enter__()
    except MissingServerError as error:
        missing(error)
    yield found
    opened.__exit__(None, None, None)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of names that want to be markup."""
    root = tmp_path_factory.mktemp("hostile")
    for number, name in enumerate(HOSTILE):
        directory = root / name.replace("/", "\u2215")
        directory.mkdir()
        (directory / f"{name.replace('/', '')}.csv").write_text("a,b\n1,2\n" * (number + 1) * 100)
    (root / os.fsdecode(b"bytes \xff\xfe")).write_text("x")
    return root


def opened(browser: Browser, tmp_path: Path, text: str) -> list[str]:
    """Open a page; return what it asked for besides itself."""
    path = tmp_path / "report.html"
    path.write_bytes(text.encode())
    browser.requested.clear()
    browser.complaints.clear()
    browser.open(path.as_uri())
    return [each for each in browser.requested if each != path.as_uri()]


def names(browser: Browser) -> list[str]:
    rows = "[...document.querySelectorAll('#files tbody tr')].filter(row => !row.hidden)"
    found: list[str] = browser.evaluate(f"{rows}.map(row => row.cells[0].textContent)")
    return found


def click(browser: Browser, selector: str) -> None:
    browser.evaluate(f"document.querySelector({selector!r}).dispatchEvent(new MouseEvent('click'))")


def test_the_page_fetches_nothing_and_nothing_in_it_fails(browser: Browser, lake: Path, tmp_path: Path) -> None:
    report = audit(lake, policy={"plaintext": {"allowed": []}})
    assert opened(browser, tmp_path, report.html()) == []
    assert browser.complaints == []
    assert browser.evaluate("document.querySelector('.verdict').textContent") == report.verdict
    assert sorted(names(browser)) == sorted(each.name for each in report.files)
    assert len(browser.picture()) > 10_000


def test_rectangles_are_in_proportion_to_bytes(browser: Browser, lake: Path, tmp_path: Path) -> None:
    report = audit(lake)
    opened(browser, tmp_path, report.html())
    one = "each.width.baseVal.value * each.height.baseVal.value"
    area = f"[...document.querySelectorAll('#map rect')].reduce((sum, each) => sum + {one}, 0)"
    total = browser.evaluate(area)
    bare = browser.evaluate(area.replace("#map rect", "#map rect.plaintext"))
    assert bare / total == pytest.approx(report.totals["plaintext"][1] / report.size, abs=0.01)


def test_the_table_sorts_and_filters(browser: Browser, lake: Path, tmp_path: Path) -> None:
    report = audit(lake)
    opened(browser, tmp_path, report.html())
    sizes = sorted(each.size for each in report.files)
    shown = "[...document.querySelectorAll('#files tbody tr')].map(row => +row.cells[1].dataset.value)"
    click(browser, "#files th.number button")
    assert browser.evaluate(shown) == sizes
    click(browser, "#files th.number button")
    assert browser.evaluate(shown) == sizes[::-1]
    browser.evaluate("words.value = 'PARQUET'; words.dispatchEvent(new Event('input'))")
    assert set(names(browser)) == {each.name for each in report.files if each.format == "Parquet"}
    browser.evaluate("only.value = 'plaintext'; only.dispatchEvent(new Event('change'))")
    assert names(browser) == ["people/plain.parquet"]
    assert browser.evaluate("shown.textContent").startswith("1 of ")


def test_a_click_on_a_rectangle_shows_its_files(browser: Browser, lake: Path, tmp_path: Path) -> None:
    report = audit(lake)
    opened(browser, tmp_path, report.html())
    click(browser, "#map g[data-directory=vault]")
    assert names(browser)
    assert all(name.startswith("vault/") for name in names(browser))


def test_dark_is_dark_and_light_is_light(browser: Browser, lake: Path, tmp_path: Path) -> None:
    text = audit(lake).html()
    for dark in (True, False):
        browser.dark(dark)
        opened(browser, tmp_path, text)
        colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour))) < 200) == dark


def test_names_are_shown_and_never_markup(browser: Browser, hostile: Path, tmp_path: Path) -> None:
    report = audit(hostile, policy={"plaintext": {"allowed": ["nothing"]}})
    assert opened(browser, tmp_path, report.html()) == []
    assert browser.complaints == []
    assert "caught" not in browser.evaluate("document.querySelector('.verdict').textContent + document.location")
    assert browser.evaluate("document.title").startswith("Audit of ")
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert browser.evaluate("document.querySelectorAll('img, h1 + h1, [onmouseover], [onerror]').length") == 0
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    shown = names(browser)
    assert len(shown) == len(report.files)
    assert all(each.isprintable() for each in shown)
    assert any("right\\u202eto left" in each for each in shown)
    assert any("<script>document.title='caught'<!--" in each for each in shown)


def test_the_page_would_refuse_a_script_that_got_into_it(browser: Browser, lake: Path, tmp_path: Path) -> None:
    text = audit(lake).html().replace("</h1>", "</h1><script>document.title = 'caught'</script>", 1)
    opened(browser, tmp_path, text)
    assert browser.evaluate("document.title") != "caught"
    assert any("Content Security Policy" in each for each in browser.complaints)


def test_many_files_make_no_endless_page(tmp_path: Path) -> None:
    for number in range(5200):
        path = tmp_path / f"d{number % 130}" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    text = audit(tmp_path).html()
    assert text.count("<tr data-protection") == 5000
    assert "200 more files are not in this table" in text
    assert "30 smaller directories" in text
