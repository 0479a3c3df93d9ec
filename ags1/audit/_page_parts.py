"""Style and script of the report's page."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fff; --text: #1c2330; --soft: #5a6475; --line: #d5dae3; --band: #f4f6f9; --bad: #b3261e;
  --encrypted: #2f7d5b; --partly: #a86400; --plaintext: #b8382b; --unknown: #7d4bb3; --metadata: #4f7399;
  --empty: #6d7686; --unreadable: #333;
}
@media (prefers-color-scheme: dark) {
  :root { --page: #14181f; --text: #e4e8ef; --soft: #9aa5b6; --line: #333b48; --band: #1c222c; --bad: #ff8a7d; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1280px; padding: 24px; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif;
}
h1 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 32px 0 8px; }
p { margin: 4px 0; }
.soft { color: var(--soft); }
.verdict { font-weight: 600; }
.verdict.bad { color: var(--bad); }
#map { width: 100%; height: auto; display: block; border-radius: 4px; }
#map rect { stroke: var(--page); stroke-width: 1.5; }
#map g { cursor: pointer; }
#map g:hover rect { stroke: var(--text); }
#map text { fill: #fff; font: 12px system-ui, sans-serif; pointer-events: none; }
.encrypted { fill: var(--encrypted); }
.partly { fill: var(--partly); }
.plaintext { fill: var(--plaintext); }
.unknown { fill: var(--unknown); }
.metadata { fill: var(--metadata); }
.empty { fill: var(--empty); }
.unreadable { fill: var(--unreadable); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 12px 0; padding: 0; list-style: none; }
.legend svg { display: inline-block; width: 12px; height: 12px; margin-right: 6px; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; }
th, td {
  text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word;
}
td { min-width: 70px; }
#findings td:nth-child(2) { white-space: nowrap; }
#files td:first-child { overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: var(--page); white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--metadata); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tbody tr:hover { background: var(--band); }
.tools { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 8px 0; }
input, select {
  font: inherit; color: inherit; background: var(--band); border: 1px solid var(--line); border-radius: 4px;
  padding: 4px 8px;
}
input { flex: 1 1 260px; max-width: 480px; }
"""

SCRIPT = """
'use strict'
const find = selector => document.querySelector(selector)
const body = find('#files tbody'), rows = [...body.rows]
const words = find('#words'), only = find('#only'), shown = find('#shown')
function filter() {
  const wanted = words.value.toLowerCase()
  let count = 0
  for (const row of rows) {
    const fits = !only.value || row.dataset.protection === only.value
    row.hidden = !(fits && row.textContent.toLowerCase().includes(wanted))
    count += !row.hidden
  }
  shown.textContent = count.toLocaleString('en') + ' of ' + rows.length.toLocaleString('en') + ' rows'
}
function sort(head) {
  const column = head.cellIndex, up = head.getAttribute('aria-sort') !== 'ascending'
  const number = head.classList.contains('number')
  const value = row => number ? +row.cells[column].dataset.value : row.cells[column].textContent
  rows.sort((a, b) => {
    const order = value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0
    return up ? order : -order
  })
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort')
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending')
  body.append(...rows)
}
for (const head of document.querySelectorAll('#files th')) {
  head.firstElementChild.addEventListener('click', () => sort(head))
}
words.addEventListener('input', filter)
only.addEventListener('change', filter)
for (const each of document.querySelectorAll('#map g')) {
  each.addEventListener('click', () => {
    words.value = each.dataset.directory
    only.value = each.dataset.protection
    filter()
    find('.tools').scrollIntoView()
  })
}
filter()
"""
