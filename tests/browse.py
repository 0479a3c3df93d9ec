"""Look at each page of the documentation in a browser: ``python -m tests.browse build/docs``, which needs Chromium.

At three widths, light and dark: nothing may be wider than the window, unless it scrolls by itself, and no text may have
less contrast than 3.5 to what is behind it. It prints what it finds; the exit status is 1 if that is anything.
"""

from __future__ import annotations

import argparse
import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

WIDTHS = (390, 900, 1300)
CONTRAST = 3.5
SECONDS = 600
_NAME = "ags1-look.html"
# What the page that looks at the others is made of; it is told the pages, the widths and the least contrast.
_SCRIPT = """
const luminance = c => { const [r, g, b] = c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b; };
const parts = text => text.match(/[\\d.]+/g).map(Number);
const over = (c, below) => c.slice(0, 3).map((v, i) => v * (c[3] ?? 1) + below[i] * (1 - (c[3] ?? 1)));
function behind(e, w) {
  if (!e) return w.matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0] : [255, 255, 255];
  const c = parts(w.getComputedStyle(e).backgroundColor);
  return c[3] === 0 ? behind(e.parentElement, w) : over(c, behind(e.parentElement, w));
}
function scrolls(e, w) {
  for (e = e.parentElement; e && e.tagName !== 'BODY'; e = e.parentElement)
    if (w.getComputedStyle(e).overflowX !== 'visible') return true;
  return false;
}
function faults(d, w, width) {
  const found = new Set();
  if (d.scrollingElement.scrollWidth > width + 1) {
    const wide = [...d.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > width + 1);
    const worst = wide.filter(e => !scrolls(e, w)).pop();
    const what = worst ? `${worst.tagName} ${worst.textContent.trim().slice(0, 60)}` : '';
    found.add(`${d.scrollingElement.scrollWidth} pixels wide: ${what}`);
  }
  const texts = d.createTreeWalker(d.body, NodeFilter.SHOW_TEXT);
  for (let n = texts.nextNode(); n; n = texts.nextNode()) {
    const e = n.parentElement, text = n.textContent.trim();
    // Signs beside headings are there for who looks for them.
    if (!text || !e.getClientRects().length || e.matches('script, style, .headerlink')) continue;
    const style = w.getComputedStyle(e), below = behind(e, w);
    const a = luminance(over(parts(style.color), below)), b = luminance(below);
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (style.visibility !== 'hidden' && contrast < least)
      found.add(`contrast ${contrast.toFixed(1)}: ${e.tagName}.${e.className} ${text.slice(0, 40)}`);
  }
  return [...found];
}
const look = (page, width) => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.style.width = width + 'px'; frame.style.height = '1200px'; frame.src = page;
  frame.onload = () => setTimeout(() => {
    const found = faults(frame.contentDocument, frame.contentWindow, width).map(each => `${page} at ${width}: ${each}`);
    frame.remove(); done(found);
  }, 150);
  document.body.append(frame);
});
(async () => {
  const found = [];
  for (const page of pages) for (const width of widths) found.push(...await look(page, width));
  document.getElementById('found').textContent = JSON.stringify(found);
})();
"""


def look(site: Path, browser: str, *, dark: bool) -> list[str]:
    """Return what is wrong with the pages of a site, each as a line."""
    pages = sorted(str(each.relative_to(site)) for each in site.rglob("*.html") if each.name not in (_NAME, "404.html"))
    given = f"const pages = {json.dumps(pages)}, widths = {json.dumps(WIDTHS)}, least = {CONTRAST};"
    (site / _NAME).write_text(f"<!doctype html><body><pre id=found></pre><script>{given}{_SCRIPT}</script>")
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(prefix="ags1-site-") as profile:
            command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
            command += [f"--virtual-time-budget={1000 * SECONDS}", "--dump-dom"]
            command += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
            command += [f"http://127.0.0.1:{server.server_port}/{_NAME}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    finally:
        server.shutdown()
        (site / _NAME).unlink()
    said = re.search(r'<pre id="found">(\[.*?\])</pre>', done.stdout, re.DOTALL)
    if said is None:
        raise RuntimeError(f"the browser said nothing: {done.stderr[-500:]}")
    found: list[str] = json.loads(html.unescape(said[1]))
    return found


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def main() -> None:
    """Look at a site."""
    parser = argparse.ArgumentParser(prog="python -m tests.browse", description=__doc__)
    parser.add_argument("site", type=Path, metavar="DIRECTORY", help="the documentation, as `make docs` makes it")
    site = parser.parse_args().site.resolve()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("NOT LOOKED AT: no Chromium ('apt-get install chromium')")
        return
    wrong = [
        f"{'dark' if dark else 'light'}: {each}" for dark in (False, True) for each in look(site, browser, dark=dark)
    ]
    print("\n".join(wrong) or "each page was looked at: nothing is too wide, and no text too faint")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
