"""The key services behind URLs, one entry each, for :func:`load` and the help of ``ags1 kms``."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ags1.kms.base import KeyManagementClient
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


_METHODS = ("wrap_key", "unwrap_key", "supports_key_generation", "generate_key", "initialize", "close")
_FORMS = ", ".join([*(each.form for each in SERVICES.values()), "local:PATH", "module:package.module.Class"])
# Option names that people may use for a secret. The error names a better place for it.
_SECRET = re.compile(r"pass|secret|token|access_?key|credential|api_?key|^key$|^pin$", re.IGNORECASE)
_NOT_SECRET = frozenset({"password_file", "token_file", "key_file"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def load(kms: str | KeyManagementClient, **options: Any) -> KeyManagementClient:
    """Make the KMS client that a URL names.

    Parameters
    ----------
    kms : str or client
        A URL, with options behind the question mark:

        - ``aws:?region=R&endpoint=URL&profile=NAME``
        - ``gcp:?endpoint=URL``
        - ``azure:https://VAULT``
        - ``vault:https://HOST:8200?mount=transit&namespace=N&token_file=PATH``
        - ``local:PATH?password_file=PATH`` (or ``key_file``)
        - ``module:package.module.Class?name=value`` (the options become its properties)

        All take ``cache_seconds`` and ``attempts``, all but local ones ``timeout``. All take ``check=no``, for a
        caller that may encrypt and not decrypt: see :attr:`KeyManagementClient.checks_keys`. Secrets in the URL are
        refused: put them into the environment or files. An object with the methods of a client is returned unchanged.
    **options
        More arguments for the client's constructor, for example a password; they override those of the URL.

    Raises
    ------
    ValueError
        An unknown form or option, or a secret in the URL. Messages never contain the values of options.
    ImportError
        The module of a ``module:`` URL, or one that it imports, is missing.
    """
    if not isinstance(kms, str):
        if all(callable(getattr(kms, name, None)) for name in _METHODS):
            if options:
                raise TypeError(f"an existing client accepts no options: {', '.join(sorted(options))}")
            return kms
        raise TypeError(f"kms must be a URL or a KMS client, not {type(kms).__name__}")
    found = _SCHEME.fullmatch(kms)
    if found is None:
        raise ValueError(f"this is not a KMS URL; the forms are {_FORMS}")
    scheme, rest = found[1].lower(), found[2]
    if scheme == "memory":
        raise ValueError("there is no memory: URL, because it would contain the key: pass an ags1.kms.MemoryKms")
    path, _, text = rest.partition("?")
    query = _Query(scheme, text)
    if scheme in SERVICES:
        client = _service(scheme, path, query, options)
    elif scheme in _OTHERS:
        client = _OTHERS[scheme](path, query, options)
    else:
        raise ValueError(f"there is no KMS {scheme[:20]!r}; the forms are {_FORMS}")
    client.checks_keys = query.checks_keys
    return client


class _Query:
    """The options after the question mark."""

    def __init__(self, scheme: str, text: str) -> None:
        self.scheme = scheme
        try:
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
        except ValueError:
            raise ValueError(f"the options of the {scheme}: URL are not of the form name=value&name=value") from None
        for name, _ in pairs:
            if _SECRET.search(name) and name not in _NOT_SECRET:
                raise ValueError(
                    f"a KMS URL must not contain a secret ({name}), because others can read it; use a file "
                    "(password_file, token_file) or the environment"
                )
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError(f"an option of the {scheme}: URL is given twice")
        self.pairs = dict(pairs)
        check = self.pairs.pop("check", "yes")
        if check not in ("yes", "no"):
            raise ValueError(f"the option check of the {scheme}: URL must be yes or no")
        self.checks_keys = check == "yes"

    def arguments(self, known: dict[str, Callable[[str], Any]], options: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, text in self.pairs.items():
            if name not in known:
                raise ValueError(
                    f"the {self.scheme}: URL has no option {name[:40]!r}; it has {', '.join(sorted([*known, 'check']))}"
                )
            try:
                found[name] = known[name](text)
            except ValueError:
                raise ValueError(f"the option {name} of the {self.scheme}: URL must be a number") from None
        return {**found, **options}


def _service(scheme: str, path: str, query: _Query, options: dict[str, Any]) -> KeyManagementClient:
    service = SERVICES[scheme]
    arguments = query.arguments({**REMOTE_OPTIONS, **service.options}, options)
    if "ca_file" in arguments:
        arguments["verify"] = arguments.pop("ca_file")
    has_address = "://" in service.form
    if path.strip("/") and not has_address:
        raise ValueError(
            f"between colon and question mark there must be nothing: {service.form}; give key ids separately"
        )
    module, _, name = service.client.partition(":")
    client = getattr(importlib.import_module(f"ags1.kms.{module}"), name)
    return client(*([_address(path, scheme)] if has_address else []), **arguments)  # type: ignore[no-any-return]


def _local(path: str, query: _Query, options: dict[str, Any]) -> KeyManagementClient:
    from ags1.kms.local import LocalKms

    if not path:
        raise ValueError("a local: URL names a keystore: local:PATH")
    if {"password", "password_file", "key_file"} & set(options):
        for name in ("password_file", "key_file"):
            query.pairs.pop(name, None)
    return LocalKms(os.path.expanduser(path), **query.arguments({**COMMON_OPTIONS, **LOCAL_OPTIONS}, options))


def _module(path: str, query: _Query, options: dict[str, Any]) -> KeyManagementClient:
    module, _, name = path.rpartition("." if ":" not in path else ":")
    if not module or not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ValueError("a module: URL names a class: module:package.module.Class")
    try:
        maker = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ImportError(
                f"there is no module {module}; a client of your own must be on PYTHONPATH", name=error.name
            ) from None
        raise
    if maker is None:
        raise ValueError(f"the module {module} has no {name}")
    if not callable(maker):
        raise ValueError(f"{module}.{name} is not a class: a module: URL names a class that is made without arguments")
    try:
        made = maker(**options)
    except TypeError as error:
        raise ValueError(
            f"{module}.{name} cannot be made without arguments ({error}): a module: URL names a class that can"
        ) from None
    missing = [each for each in _METHODS if not callable(getattr(made, each, None))]
    if missing:
        raise ValueError(f"{module}.{name} is not a KMS client: it has no {', '.join(missing)}")
    made.initialize(query.pairs)
    client: KeyManagementClient = made
    return client


_OTHERS = {"local": _local, "module": _module}


def _address(path: str, scheme: str) -> str | None:
    """The address in a URL; None if it comes from the environment."""
    if not path:
        return None
    text = path if "://" in path else f"https://{path.lstrip('/')}"
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.netloc:
        raise ValueError(f"a {scheme}: URL has an address after the colon: {scheme}:https://HOST")
    return urlunsplit(parts)
