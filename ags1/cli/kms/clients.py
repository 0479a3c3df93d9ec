"""The client of a key management service that the options of a command name."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ags1.cli.output import ask_password, warn
from ags1.support.exit_codes import UsageError
from ags1.support.reports import UNCHECKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.kms import KeyManagementClient


def client_of(given: Namespace, *, new: bool = False) -> KeyManagementClient:
    """The client that --kms names; on a terminal it asks for a local keystore's password, twice if it is new."""
    from ags1.kms import load

    url = given.kms
    if not url:
        raise UsageError(
            "a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json or aws:?region=eu-central-1"
        )
    secret: dict[str, Any] = {}
    if url.lower().startswith("local:"):
        secret = _secret_of(given, url, new=new)
    elif given.password_file or given.key_file:
        raise UsageError("--password-file and --key-file are for local: keystores")
    try:
        client = load(url, **secret)
    except ValueError as error:
        raise UsageError(f"--kms: {error}") from None
    if not client.checks_keys:
        warn(UNCHECKED)
    return client


def new_client_of(given: Namespace, url: str | None) -> KeyManagementClient:
    """The client for the `url` of --new-kms; without one, that of --kms.

    --password-file and --key-file are those of --kms: another local keystore has its own in its URL.
    """
    if url is None:
        return client_of(given)
    both_local = all(str(each).lower().startswith("local:") for each in (given.kms, url))
    secret = {} if both_local else {"password_file": None, "key_file": None}
    return client_of(Namespace(**{**vars(given), **secret, "kms": url}))


def _secret_of(given: Namespace, url: str, *, new: bool) -> dict[str, Any]:
    if given.password_file and given.key_file:
        raise UsageError("give one of --password-file and --key-file")
    if given.password_file:
        return {"password_file": given.password_file}
    if given.key_file:
        return {"key_file": given.key_file}
    named = "password_file=" in url or "key_file=" in url
    if named or os.environ.get("AGS1_KMS_PASSWORD") or os.environ.get("KEYSTORE_PASSWORD"):
        return {}
    if sys.stdin is None or not sys.stdin.isatty():
        return {}
    return {"password": ask_password(url.partition(":")[2].partition("?")[0], new=new)}
