"""Listings by the SDKs of Google and Azure, for a prefix with a key that obstore takes for no path.

Keys, lengths, etags and times, as obstore's listing has them; objects are read and written by obstore alone.
ImportError: the SDK is missing, and the extra that has it is named.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

from ags1.storage._clients import client_of, is_true, timeout_of
from ags1.storage.location import Location

_PAGE = 1000


def list_objects(location: Location, prefix: str, after: str = "", *, deep: bool = True) -> Iterator[dict[str, Any]]:
    """Objects below a prefix, behind a key; without `deep`, those directly below it."""
    listed = _google if location.scheme == "gs" else _azure
    return (each for each in listed(location, prefix, after, None if deep else "/") if each["path"] > after)


def _google(location: Location, prefix: str, after: str, delimiter: str | None) -> Iterator[dict[str, Any]]:
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.storage import Client
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
        client._http.proxies.update(_proxies(location))
        found = client.list_blobs(
            location.container, prefix=prefix, start_offset=after or None, delimiter=delimiter, page_size=_PAGE,
            fields="items(name,size,updated),nextPageToken", timeout=timeout_of(location.storage_options),
        )  # fmt: skip
        for each in found:
            # The etag of this interface is another than that of the one which obstore uses: length and time are left.
            yield {"path": each.name, "size": each.size, "e_tag": None, "last_modified": each.updated}


def _azure(location: Location, prefix: str, after: str, delimiter: str | None) -> Iterator[dict[str, Any]]:
    try:
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
        from azure.storage.blob import BlobProperties, ContainerClient
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
    seconds = timeout_of(location.storage_options)
    with ContainerClient(
        settings.get("endpoint") or f"https://{settings.get('account_name')}.blob.core.windows.net",
        settings["container_name"],
        credential,
        connection_timeout=seconds, read_timeout=seconds, proxies=_proxies(location),
    ) as client:  # fmt: skip
        walk = client.list_blobs if delimiter is None else client.walk_blobs
        for each in walk(name_starts_with=prefix, results_per_page=_PAGE):
            # Else it is the name of a directory.
            if isinstance(each, BlobProperties):
                yield {
                    "path": each.name, "size": each.size, "e_tag": each.etag, "last_modified": each.last_modified
                }  # fmt: skip


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
