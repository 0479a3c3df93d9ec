"""Listings by the SDKs of Google and Azure, for a prefix with a key that obstore takes for no path.

Keys, lengths, etags and times, as obstore's listing has them; objects are read and written by obstore alone.
ImportError: the SDK is missing, and the extra that has it is named.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from ags1.storage._clients import client_of, is_true, timeout_of
from ags1.storage._errors import as_os_error
from ags1.storage.location import Location, shown
from ags1.support.http import answer_by

_PAGE = 1000
# A name has at most 1024 characters. Google's service sends up to 1000 names a page, Azure's 5000.
_MOST_BYTES = 64 << 20
_RETRIES = 3


def pages(location: Location, prefix: str, after: str = "", *, deep: bool = True) -> Iterator[list[dict[str, Any]]]:
    """Objects below a prefix, behind a key at most; without `deep`, those directly below it.

    OSError: the service redirects, refuses, or sends what is no page of a listing.
    """
    listed = _google if location.scheme == "gs" else _azure
    try:
        yield from listed(location, prefix, after, None if deep else "/")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise as_os_error(error) or OSError(errno.EIO, "the store sends a listing that cannot be read") from error


def _google(location: Location, prefix: str, after: str, delimiter: str | None) -> Iterator[list[dict[str, Any]]]:
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.storage import Client
        from google.cloud.storage.retry import DEFAULT_RETRY
        from google.oauth2 import credentials as user_credentials
        from google.oauth2.service_account import Credentials
    except ImportError as error:
        raise _missing(location, "google-cloud-storage", "gcp") from error
    settings = _settings(location)
    account: dict[str, Any] = {}
    if "service_account_key" in settings:
        account = json.loads(settings["service_account_key"])
    elif "service_account_path" in settings:
        with open(settings["service_account_path"], "rb") as file:
            account = json.load(file)
    credentials: Any = None
    if settings.get("bearer_token"):
        credentials = user_credentials.Credentials(token=settings["bearer_token"])
    elif account.get("disable_oauth") or is_true(settings.get("skip_signature", False)):
        credentials = AnonymousCredentials()
    elif account:
        credentials = Credentials.from_service_account_info(account)
    endpoint = account.get("gcs_base_url") or settings.get("base_url")
    with Client(
        project="ags1", credentials=credentials, client_options={"api_endpoint": endpoint} if endpoint else None
    ) as client:
        answer_by(client._http, _body_of).proxies.update(_proxies(location))
        found = client.list_blobs(
            location.container, prefix=prefix, start_offset=after or None, delimiter=delimiter, page_size=_PAGE,
            fields="items(name,size,updated),nextPageToken", timeout=timeout_of(location.storage_options),
            retry=DEFAULT_RETRY if _retries(location) else None,
        )  # fmt: skip
        for page in found.pages:
            # The etag of this interface is another than that of the one which obstore uses: length and time are left.
            yield [_listed(each.name, each.size, None, each.updated) for each in page]


def _azure(location: Location, prefix: str, after: str, delimiter: str | None) -> Iterator[list[dict[str, Any]]]:
    try:
        from azure.core.pipeline.transport import RequestsTransport
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
        from azure.storage.blob import BlobProperties, ContainerClient
        from requests import Session
    except ImportError as error:
        raise _missing(location, "azure-storage-blob", "azure") from error
    settings = _settings(location)
    credential: Any = settings.get("account_key") or settings.get("sas_key")
    if credential is None and settings.get("token"):
        credential = _Token(settings["token"])
    application = [str(settings.get(each) or "") for each in ("tenant_id", "client_id", "client_secret")]
    if is_true(settings.get("skip_signature", False)):
        credential = None
    elif credential is None:
        credential = ClientSecretCredential(*application) if all(application) else DefaultAzureCredential()
    seconds, session = timeout_of(location.storage_options), answer_by(Session(), _body_of)
    with ContainerClient(
        settings.get("endpoint") or f"https://{settings.get('account_name')}.blob.core.windows.net",
        settings["container_name"],
        credential,
        connection_timeout=seconds, read_timeout=seconds, proxies=_proxies(location), retry_total=_retries(location),
        transport=RequestsTransport(session=session, connection_timeout=seconds, read_timeout=seconds),
    ) as client:  # fmt: skip
        walk = client.list_blobs if delimiter is None else client.walk_blobs
        for page in walk(name_starts_with=prefix, results_per_page=_PAGE).by_page():
            # Else it is the name of a directory.
            blobs = (each for each in page if isinstance(each, BlobProperties))
            yield [_listed(each.name, each.size, each.etag, each.last_modified) for each in blobs]


def _listed(path: str, size: int, etag: str | None, modified: Any) -> dict[str, Any]:
    if size < 0 or not isinstance(path, str):
        raise ValueError(f"{path!r} has a size of {size}")
    return {"path": path, "size": size, "e_tag": etag, "last_modified": modified}


def _body_of(response: Any) -> bytes:
    if 300 <= response.status_code < 400:
        target = shown(response.headers.get("Location") or "nowhere")
        text = f"the server redirects to {target}, and no redirect is followed: give the address there if you trust it"
        raise OSError(errno.EACCES, text, shown(response.url))
    body = bytearray()
    for piece in response.iter_content(1 << 16):
        body += piece
        if len(body) > _MOST_BYTES:
            text = f"the server sends a page of more than {_MOST_BYTES:,} bytes of a listing: have the store repaired"
            raise OSError(errno.EIO, text, shown(response.url))
    return bytes(body)


def _retries(location: Location) -> int:
    return min(_RETRIES, int(location.storage_options.get("max_retries", _RETRIES)))


class _Token:
    """A bearer token of the caller, as Azure's SDK asks for it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **options: Any) -> Any:
        from azure.core.credentials import AccessToken

        # Nobody knows how long it holds; the service says so.
        return AccessToken(self._token, int(time.time()) + 3600)


def _settings(location: Location) -> dict[str, Any]:
    """Settings of obstore's client by one name each: those of the environment, and those that were given."""
    store, found = client_of(location), dict[str, Any]()
    known = {"account_name": "none", "container_name": "none"} if location.scheme != "gs" else {"bucket": "none"}
    for name, value in os.environ.items():
        if name.startswith(("GOOGLE_", "AZURE_")):
            try:
                found |= type(store)(config={**known, name.lower(): value}).config.items() - known.items()
            except Exception:
                # A variable of others.
                continue
    return {**found, **store.config}


def _proxies(location: Location) -> dict[str, str]:
    options = location.storage_options
    proxy = options.get("proxy_url") or (options.get("client_options") or {}).get("proxy_url")
    return {"http": proxy, "https": proxy} if proxy else {}


def _missing(location: Location, package: str, extra: str) -> ImportError:
    return ImportError(f"{location}: only {package} lists objects of such names: pip install 'ags1[{extra}]'")
