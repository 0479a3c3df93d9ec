"""Addresses of services: what may be sent keys, and what may not."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def checked(url: str, name: str) -> str:
    """The address, if keys may be sent there.

    Raises
    ------
    ValueError
        No https or http URL, one with a password in it, or http to another machine: keys would travel in the open.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{name} must be a URL such as https://host:port")
    if parts.password is not None or parts.username is not None:
        raise ValueError(f"{name} must not have a user or password in it: other users could read them")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError(f"{name} is {url}: over http keys would travel in the open; use https")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
