"""The report as one HTML page: it loads nothing else, and only its own script may run.

The texts of the page contain names from untrusted sources: each is escaped, and shown without control and direction
characters. If one still got through, the page's content security policy only allows the script with the given digest.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ags1.audit._page_parts import SCRIPT, STYLE
from ags1.audit.classification import PROTECTIONS, AuditedFile
from ags1.support.words import counted, printable, share_text, size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.audit.report import AuditReport

_WIDTH, _HEIGHT = 1200.0, 460.0
# More rectangles or rows are slow to draw, and too many to read.
_DIRECTORIES = 100
_ROWS = 5000
_FINDINGS = 1000
_DEPTH = 2
_CHARACTER = 6.6
_ORDER = ("plaintext", "unknown", "partly encrypted", "unreadable", "metadata", "empty", "encrypted")


def page(report: AuditReport) -> str:
    """The page, as text without lone surrogates: it can be encoded as UTF-8."""
    title = f"Audit of {report.location}"
    allowed = f"default-src 'none'; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        f"<p>{counted(len(report.files), 'file')}, {size_text(report.size)}</p>",
        f"<p>{_text(report.origin)}</p>",
        f'<p class="verdict{" bad" if report.exit_code else ""}">{_text(report.verdict)}</p>',
        _legend(report),
        _map(report),
        _findings(report),
        _groups(report),
        _leaks(report),
        _files(report),
        f"<script>{SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(each for each in parts if each)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(text: str) -> str:
    return html.escape(printable(text), quote=True)


def _class(protection: str) -> str:
    return protection.partition(" ")[0]


# -- the picture ---------------------------------------------------------------------------------------------------


def _legend(report: AuditReport) -> str:
    items = []
    for protection in PROTECTIONS:
        count, size = report.totals[protection]
        if count:
            share = f", {share_text(size, report.size)}" if report.size else ""
            items.append(
                f'<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{_class(protection)}" width="12" '
                f'height="12"/></svg>{protection}: {counted(count, "file")}, {size_text(size)}{share}</li>'
            )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _directory(file: AuditedFile, report: AuditReport) -> str:
    """The group that a file is counted in: its dataset or table, or the first directories of its name."""
    group = report.groups[file.group]
    if file.group:
        return group.name
    return "/".join(file.name.split("/")[:-1][:_DEPTH]) or "."


def _map(report: AuditReport) -> str:
    sums: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for each in report.files:
        held = sums[_directory(each, report)][each.protection]
        held[0] += 1
        held[1] += each.size
    sizes = {name: sum(size for _, size in below.values()) for name, below in sums.items()}
    names = sorted((name for name in sums if sizes[name]), key=lambda name: -sizes[name])
    if not names:
        return ""
    if len(names) > _DIRECTORIES:
        rest, names = names[_DIRECTORIES:], names[:_DIRECTORIES]
        other = f"{len(rest):,} smaller directories"
        for name in rest:
            for protection, (count, size) in sums[name].items():
                held = sums[other][protection]
                held[0] += count
                held[1] += size
        sizes[other] = sum(sizes[name] for name in rest)
        names = sorted([*names, other], key=lambda name: -sizes[name])
    drawn = []
    outer = squarified([float(sizes[name]) for name in names], Rectangle(0, 0, _WIDTH, _HEIGHT))
    for name, place in zip(names, outer, strict=True):
        below = sorted(((size, count, each) for each, (count, size) in sums[name].items() if size), reverse=True)
        inner = squarified([float(size) for size, _, _ in below], place)
        for (size, count, protection), at in zip(below, inner, strict=True):
            drawn.append(_tile(name, protection, count, size, at))
    label = "Bytes by directory and protection"
    return (
        f'<svg id="map" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{label}">{"".join(drawn)}</svg>'
        f'<p class="soft">{label}: a click shows its files below.</p>'
    )


def _tile(name: str, protection: str, count: int, size: int, at: Rectangle) -> str:
    said = f"{name}: {protection}, {counted(count, 'file')}, {size_text(size)}"
    lines = [name, f"{protection}, {size_text(size)}"][: int((at.height - 6) // 16)] if at.width > 40 else []
    room = int((at.width - 12) / _CHARACTER)
    texts = "".join(
        f'<text x="{at.x + 6:.1f}" y="{at.y + 17 + 16 * number:.1f}">{_text(_cut(line, room))}</text>'
        for number, line in enumerate(lines)
    )
    words = "" if name == "." else name
    return (
        f'<g data-directory="{_text(words)}" data-protection="{protection}"><title>{_text(said)}</title>'
        f'<rect class="{_class(protection)}" x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" '
        f'height="{at.height:.1f}"/>{texts}</g>'
    )


def _cut(text: str, room: int) -> str:
    text = printable(text)
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}\N{HORIZONTAL ELLIPSIS}"


# -- the tables ----------------------------------------------------------------------------------------------------


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, name: str = "") -> str:
    """A table of texts; columns of files and bytes have numbers."""
    kinds = [' class="number"' if each in ("files", "bytes") else "" for each in heads]
    head = "".join(f"<th{kind}>{each}</th>" for kind, each in zip(kinds, heads, strict=True))
    cells = ("".join(f"<td{kind}>{_text(each)}</td>" for kind, each in zip(kinds, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{each}</tr>" for each in cells)
    known = f' id="{name}"' if name else ""
    return f"<table{known}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _findings(report: AuditReport) -> str:
    if not report.findings:
        return ""
    shown = report.findings[:_FINDINGS]
    rows = [(each.severity, each.code, each.message) for each in shown]
    rest = sum(report.counts.values()) - len(shown)
    more = f'<p class="soft">and {counted(rest, "more finding")}</p>' if rest else ""
    return f"<h2>Findings</h2>{_table(('severity', 'code', 'what'), rows, name='findings')}{more}"


def _groups(report: AuditReport) -> str:
    rows = [
        (each.name, each.kind, ", ".join(each.keys), f"{each.files:,}", size_text(each.size), each.detail)
        for each in report.groups
        if each.kind != "files"
    ]
    heads = ("path", "what", "master keys", "files", "bytes", "more")
    return f"<h2>Datasets and tables</h2>{_table(heads, rows)}" if rows else ""


def _leaks(report: AuditReport) -> str:
    rows = [
        (leak, f"{len(files):,}", size_text(sum(each.size for each in files)), files[0].name)
        for leak, files in report.leaks.items()
    ]
    if not rows:
        return ""
    return (
        '<h2>What is visible without a key</h2><p class="soft">Besides names, sizes and times of files.</p>'
        f"{_table(('what', 'files', 'bytes', 'such as'), rows)}"
    )


def _files(report: AuditReport) -> str:
    ordered = sorted(report.files, key=lambda each: (_ORDER.index(each.protection), -each.size, each.name))
    rows = "".join(_row(each, report) for each in ordered[:_ROWS])
    rest = len(ordered) - _ROWS
    more = f'<p class="soft">{rest:,} more files are not in this table; --json has all.</p>' if rest > 0 else ""
    heads = (("name", ""), ("bytes", "number"), ("protection", ""), ("format", ""), ("keys", ""), ("more", ""))
    head = "".join(
        f'<th{" class=" + chr(34) + kind + chr(34) if kind else ""}><button type="button">{name}</button></th>'
        for name, kind in heads
    )
    options = "".join(f"<option>{each}</option>" for each in PROTECTIONS if report.totals[each][0])
    return (
        '<h2>Files</h2><div class="tools"><input id="words" type="search" placeholder="part of a name, key or format" '
        'aria-label="filter"><select id="only" aria-label="protection"><option value="">every protection</option>'
        f'{options}</select><span id="shown" class="soft"></span></div>{more}'
        f'<table id="files"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(file: AuditedFile, report: AuditReport) -> str:
    detail = [file.detail] if file.detail else []
    if file.protection == "partly encrypted":
        detail.append(f"plaintext columns: {', '.join(file.plaintext_columns)}")
    if file.leaks:
        detail.append(f"shows {', '.join(file.leaks)}")
    if file.problem is not None:
        detail.append(file.problem[1])
    return (
        f'<tr data-protection="{file.protection}"><td>{_text(file.name)}</td>'
        f'<td class="number" data-value="{file.size}">{file.size:,}</td><td>{file.protection}</td>'
        f"<td>{_text(file.format)}</td><td>{_text(', '.join(file.keys))}</td><td>{_text('; '.join(detail))}</td></tr>"
    )


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float


def squarified(sizes: list[float], inside: Rectangle) -> list[Rectangle]:
    """A rectangle for each size, together all of `inside`; the sizes are positive, in descending order.

    Source: Bruls, Huizing, van Wijk: "Squarified Treemaps", 2000.
    """
    found: list[Rectangle] = []
    rest, total = inside, sum(sizes)
    start = 0
    while start < len(sizes):
        scale = rest.width * rest.height / total if total > 0 else 0.0
        side = min(rest.width, rest.height)
        end = start + 1
        while end < len(sizes) and _worst(sizes[start : end + 1], side, scale) <= _worst(sizes[start:end], side, scale):
            end += 1
        row = sizes[start:end]
        placed, rest = _place(row, rest, sum(row) / total if total > 0 else 0.0)
        found += placed
        total -= sum(row)
        start = end
    return found


def _worst(row: list[float], side: float, scale: float) -> float:
    """The largest ratio of sides in a row along a side."""
    area = sum(row) * scale
    if area <= 0 or side <= 0:
        return float("inf")
    return max(side * side * row[0] * scale / area**2, area**2 / (side * side * row[-1] * scale))


def _place(row: list[float], rest: Rectangle, share: float) -> tuple[list[Rectangle], Rectangle]:
    """A row along the shorter side, and the rest of the rectangle."""
    found = []
    total = sum(row)
    if rest.width >= rest.height:
        width, y = rest.width * share, rest.y
        for size in row:
            height = rest.height * size / total
            found.append(Rectangle(rest.x, y, width, height))
            y += height
        return found, Rectangle(rest.x + width, rest.y, rest.width - width, rest.height)
    height, x = rest.height * share, rest.x
    for size in row:
        width = rest.width * size / total
        found.append(Rectangle(x, rest.y, width, height))
        x += width
    return found, Rectangle(rest.x, rest.y + height, rest.width, rest.height - height)
