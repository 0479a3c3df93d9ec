"""Checks of service addresses: keys are sent only to safe ones."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from ags1.errors import without_secrets


def checked_url(url: str, name: str) -> str:
    """Return the address if keys may be sent to it.

    Raises
    ------
    ValueError
        It is not an https or http URL, it contains a password, or it is http to another machine, which would send keys
        unencrypted.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{name} must be a URL such as https://host:port")
    if parts.password is not None or parts.username is not None:
        raise ValueError(f"{name} must not contain a user or password: other users could read them")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError(f"{name} is {without_secrets(url)}: http would send keys unencrypted; use https")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
