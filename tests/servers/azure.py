"""Azure Blob Storage on loopback: Azurite."""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.servers._install import installed, run, tool
from tests.servers._process import start_on_free_port

# The last one that runs on Node.js before 22.
VERSION = "3.35.0"
ACCOUNT = "ags1tests"
KEY = base64.b64encode(b"not a secret of anybody").decode()
_MAIN = "node_modules/azurite/dist/src/blob/main.js"


def install() -> Path:
    """Return the script that starts Azurite, installed first if need be."""
    tool("node")

    def build(target: Path) -> None:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        run([tool("npm"), "install", *options, "--prefix", target, f"azurite@{VERSION}"], cwd=target)

    return installed("azurite", VERSION, build) / _MAIN


@dataclass(frozen=True)
class AzureServer:
    """Where the server is, and how clients reach it.

    Attributes
    ----------
    endpoint
        URL of the account, without a slash at its end: its last part is the account's name.
    account, key
        Credentials of the tests.
    """

    endpoint: str
    account: str = ACCOUNT
    key: str = field(default=KEY, repr=False)

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[AzureServer]:
        """Start a server for as long as the context lasts, with its objects in a temporary directory."""
        script = install()
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-azure-", ignore_cleanup_errors=True))

            def command(port: int) -> list[str]:
                options = ["--location", where, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
                return [tool("node"), str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]

            process, port = start_on_free_port(command, env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"})
            stack.enter_context(process)
            yield cls(f"http://127.0.0.1:{port}/{ACCOUNT}")

    def through(self, endpoint: str) -> AzureServer:
        """Return the same server behind another address: a proxy's that was started with this `endpoint`."""
        return replace(self, endpoint=endpoint)

    def make_bucket(self, name: str) -> str:
        """Make a container, unless it is there, and return its name."""
        import email.utils
        import hashlib
        import hmac
        import http.client
        from urllib.parse import urlsplit

        url = urlsplit(self.endpoint)
        date, version = email.utils.formatdate(usegmt=True), "2021-12-02"
        # The account is in the path here, and its name comes before the path: so it is there twice.
        resource = f"/{self.account}{url.path}/{name}\nrestype:container"
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        digest = hmac.digest(base64.b64decode(self.key), signed.encode(), hashlib.sha256)
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {self.account}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        with contextlib.closing(http.client.HTTPConnection(url.netloc, timeout=30)) as connection:
            connection.request("PUT", f"{url.path}/{name}?restype=container", headers=headers)
            response = connection.getresponse()
            said = response.read()
        if response.status not in (201, 409):
            raise OSError(f"container {name} was not made: {response.status} {said.decode()}")
        return name

    def store(self, bucket: str, prefix: str | None = None, **options: Any) -> Any:
        """Return obstore's store of a container. `options` are further ones of ``obstore.store.AzureStore``."""
        from obstore.store import AzureStore

        return AzureStore(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            account_name=self.account,
            account_key=self.key,
            **{"client_options": {"allow_http": True}, **options},
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables in which Azure's clients look."""
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": self.account,
            "AccountKey": self.key,
            "BlobEndpoint": self.endpoint,
        }
        return {
            "AZURE_STORAGE_CONNECTION_STRING": ";".join(f"{name}={value}" for name, value in parts.items()),
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }
