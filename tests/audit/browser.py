"""A real headless Chromium, driven through its DevTools pipe: it opens a page, runs expressions and takes pictures.

It is the browser of ``$AGS1_BROWSER``, one of this machine, or the build of the npm package @sparticuz/chromium, which
is fetched once, through npm, into the cache of the test servers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from tests.servers._install import MissingServerError, installed, run, tool

PACKAGE, VERSION = "@sparticuz/chromium", "131.0.1"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
FLAGS = (
    *("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-extensions", "--disable-sync", "--mute-audio", "--hide-scrollbars"),
    *("--window-size=1280,1000", "--remote-debugging-pipe"),
)
_UNPACK = """
const fs = require('fs'), zlib = require('zlib')
for (const name of ['chromium', 'swiftshader.tar'])
  fs.writeFileSync(name, zlib.brotliDecompressSync(fs.readFileSync(`package/bin/${name}.br`)))
"""


def _fetch(target: Path) -> None:
    """Fetch the browser from the registry of npm, which checks its digest."""
    node, npm = tool("node"), tool("npm")
    run([npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"], cwd=target)
    (archive,) = target.glob("*.tgz")
    run(["tar", "xzf", archive.name], cwd=target)
    run([node, "-e", _UNPACK], cwd=target)
    run(["tar", "xf", "swiftshader.tar"], cwd=target)
    (target / "swiftshader.tar").unlink()
    (target / "chromium").chmod(0o755)
    shutil.rmtree(target / "package")
    archive.unlink()


def find() -> Path:
    """The browser's program.

    Raises
    ------
    MissingServerError
        There is none, and none can be had.
    """
    named = os.environ.get("AGS1_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if named is not None:
        return Path(named)
    return installed("chromium", VERSION, _fetch) / "chromium"


class Browser:
    """A browser with one page open."""

    def __init__(self, program: Path, profile: Path) -> None:
        reads, self._requests = os.pipe()
        self._answers, writes = os.pipe()

        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(reads), str(writes), program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(reads)
        os.close(writes)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.requested: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._requests)
        os.close(self._answers)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol; return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise MissingServerError("the browser ended: a library of the system is missing, perhaps")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        parameters = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        if found.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))
        return found

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def dark(self, dark: bool) -> None:
        """Let the system prefer dark or light."""
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def started() -> Iterator[Browser]:
    """A running browser."""
    program = find()
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        with Browser(program, Path(profile)) as browser:
            yield browser
