"""The key services behind URLs, one entry each: :func:`ags1.kms.load` and the help of ``ags1 kms`` read them here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ags1.support.typing import Any


class ServiceEntry(NamedTuple):
    """What a URL with this scheme makes.

    Attributes
    ----------
    client : str
        Module of ``ags1/kms`` and class, ``module:Class``; imported when a URL names it. The constructor takes an
        address, if the form has one, and by name `options`, ``timeout`` and what
        :class:`~ags1.kms.KeyManagementClient` takes.
    form : str
        A URL, as help and errors show it. With ``://`` it has an address; without, only options.
    what : str
        The service, in 39 characters of the help.
    options : dict
        Options of the URL, besides those that all services have, and how the text of each is read.
    """

    client: str
    form: str
    what: str
    options: dict[str, Callable[[str], Any]]


SERVICES: dict[str, ServiceEntry] = {
    "aws": ServiceEntry(
        "aws:AwsKms",
        "aws:?region=R",
        "AWS KMS (and &endpoint=, &profile=)",
        dict.fromkeys(("region", "endpoint", "profile", "encryption_algorithm", "data_key_spec"), str),
    ),
    "gcp": ServiceEntry("gcp:GcpKms", "gcp:", "Google Cloud KMS", {"endpoint": str}),
    "azure": ServiceEntry(
        "azure:AzureKms", "azure:https://NAME.vault.azure.net", "Azure Key Vault", {"algorithm": str}
    ),
    "vault": ServiceEntry(
        "vault:VaultKms",
        "vault:https://HOST:8200?mount=transit",
        "Vault or OpenBao; VAULT_TOKEN",
        {**dict.fromkeys(("mount", "namespace", "token_file", "ca_file"), str), "data_key_bits": int},
    ),
}  # fmt: skip

LOCAL_OPTIONS: dict[str, Callable[[str], Any]] = {"key_file": str, "password_file": str}
COMMON_OPTIONS: dict[str, Callable[[str], Any]] = {"attempts": int, "cache_seconds": float}
REMOTE_OPTIONS: dict[str, Callable[[str], Any]] = {**COMMON_OPTIONS, "timeout": float}
"""Options of ``local:`` URLs, of all URLs, and of those of services."""
