"""obstore clients, one for each bucket and process, from the environment, profiles, roles and storage options.

Options may have the names of obstore and object_store ("access_key_id", "aws_region"), of s3fs ("key", "secret",
"endpoint_url", "anon") or of Spark ("fs.s3a.access.key"). Options that are not given come from the environment (AWS_*,
GOOGLE_*, AZURE_*), and for S3 from the profile and roles that boto3 finds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

from ags1.storage._errors import naming
from ags1.storage.location import Location
from ags1.support.forks import ForkSafeLock
from ags1.support.typing import Any

_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 180.0
_CLIENT_OPTIONS = {"timeout", "connect_timeout", "read_timeout", "allow_http", "proxy_url", "root_certificate"}

# Names of options in s3fs, gcsfs, adlfs and Hadoop -> names in object_store.
_S3_NAMES = {
    "key": "access_key_id",
    "username": "access_key_id",
    "secret": "secret_access_key",
    "password": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.path.style.access": "path_style",
    "fs.s3a.connection.ssl.enabled": "ssl",
}
_GCS_NAMES = {"token": "service_account_path", "endpoint_url": "base_url", "anon": "skip_signature"}
_AZURE_NAMES = {"endpoint_url": "endpoint", "anon": "skip_signature"}
_NAMES = {"s3": _S3_NAMES, "gs": _GCS_NAMES, "az": _AZURE_NAMES, "abfss": _AZURE_NAMES}

# A change of one of these variables makes another client.
_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

_clients: dict[tuple[Any, ...], Any] = {}
_lock = ForkSafeLock()
# obstore has one runtime per process. A forked child does not have its threads, so a call there would never return.
_used_by: int | None = None


def option_name(scheme: str, name: str) -> str:
    """The name in object_store of a storage option, for locations of this scheme."""
    return _NAMES[scheme].get(name, name)


def timeout_of(options: Mapping[str, Any]) -> float:
    """Seconds without data after which a request ends, from storage options."""
    return float(options.get("timeout", (options.get("client_options") or {}).get("timeout", _TIMEOUT_SECONDS)))


def client_of(location: Location) -> Any:
    """Return the client of an object's bucket.

    ImportError: obstore is missing. OSError: this process was forked from one that had used an object store.
    ValueError: an unknown option.
    """
    global _used_by
    process = os.getpid()
    if _used_by is not None and _used_by != process:
        raise OSError(
            f"{location}: this process was forked from one that had already used an object store, and a fork does not "
            "copy the client's threads: start processes with multiprocessing's 'spawn' or 'forkserver' method, or fork "
            "before the first use"
        )
    options = location.storage_options
    said = tuple((name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLES))
    key = (location.scheme, location.container, repr(sorted(options.items(), key=lambda item: item[0])), said)
    with _lock.lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = _make(location, options)
        _used_by = process
    return found


def _make(location: Location, options: dict[str, Any]) -> Any:
    try:
        import obstore.store as stores
    except ImportError as error:
        raise ImportError(f"{location} needs obstore: pip install 'ags1[objects]'") from error
    if location.scheme == "s3":
        return _s3(stores, location)
    common = _common(options)
    if location.scheme == "gs":
        config = _named(options, "gs")
        # Without this header, the service decompresses objects that are stored with `Content-Encoding: gzip`.
        headers = common["client_options"].get("default_headers") or {}
        common["client_options"]["default_headers"] = {"accept-encoding": "gzip", **headers}
        return _checked(stores.GCSStore, location, location.container, config, common)
    config = _named(options, location.scheme)
    container, _, host = location.container.partition("@")
    if host:
        config.setdefault("account_name", host.partition(".")[0])
    return _checked(stores.AzureStore, location, container, config, common)


def _checked(kind: Any, location: Location, container: str, config: dict[str, Any], common: dict[str, Any]) -> Any:
    try:
        with naming(location.shown):
            return kind(container, config=config, **common)
    except OSError as fault:
        if type(fault.__cause__).__name__ == "UnknownConfigurationKeyError":
            raise ValueError(f"{location}: {str(fault.__cause__).splitlines()[0]}") from None
        raise


def _common(options: dict[str, Any]) -> dict[str, Any]:
    """Timeouts and retries, taken out of the options."""
    seconds = timeout_of(options)
    client: dict[str, Any] = dict(options.pop("client_options", None) or {})
    for name in _CLIENT_OPTIONS & options.keys():
        client[name] = options.pop(name)
    # `timeout` limits the time without any data, not the time of a request: a large part over a slow link may take
    # long.
    client.setdefault("read_timeout", timedelta(seconds=seconds))
    client.setdefault("connect_timeout", timedelta(seconds=min(seconds, 10)))
    client["timeout"] = timedelta(seconds=max(10 * seconds, 600))
    retry_seconds = float(options.pop("retry_seconds", _RETRY_SECONDS))
    retries = int(options.pop("max_retries", 10))
    retry = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=retry_seconds),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
    }
    return {"client_options": client, "retry_config": retry}


def _named(options: dict[str, Any], scheme: str) -> dict[str, Any]:
    inner = options.pop("client_kwargs", None) or {}
    config: dict[str, Any] = {}
    for name, value in {**inner, **options}.items():
        if value is None or name in ("use_ssl", "profile", "config_kwargs"):
            continue
        config[option_name(scheme, name)] = value
    return config


def s3_settings(location: Location) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Settings of a client of S3 by their names in object_store, its timeouts and retries, and a profile."""
    options = location.storage_options
    common = _common(options)
    profile = options.get("profile") or options.get("fs.s3a.profile")
    options.pop("fs.s3a.profile", None)
    options.pop("fs.s3a.aws.credentials.provider", None)
    config = _named(options, "s3")
    secure = is_true(config.pop("ssl", True))
    path_style = config.pop("path_style", None)
    if path_style is not None:
        config["virtual_hosted_style_request"] = not is_true(path_style)
    environment = s3_environment()
    endpoint = config.get("endpoint") or environment.get("endpoint")
    if endpoint:
        if "://" not in endpoint:
            endpoint = f"{'https' if secure else 'http'}://{endpoint}"
        config["endpoint"] = endpoint
        if endpoint.startswith("http://"):
            common["client_options"].setdefault("allow_http", True)
    config["region"] = config.get("region") or environment.get("region")
    return config, common, profile


def _s3(stores: Any, location: Location) -> Any:
    config, common, profile = s3_settings(location)
    given = "access_key_id" in config or "aws_access_key_id" in config or is_true(config.get("skip_signature", False))
    if not given and (profile or not _environment("AWS_ACCESS_KEY_ID")):
        session = _boto3_session(profile, location)
        if session is not None:
            config["region"] = config["region"] or session.region_name
            provider = _credential_provider(session)
            if provider is not None:
                common["credential_provider"] = provider
    config["region"] = config["region"] or "us-east-1"
    return _checked(stores.S3Store, location, location.container, config, common)


def is_true(value: object) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "1", "yes")


def s3_environment() -> dict[str, str]:
    """Endpoint and region of S3, where environment variables set them."""
    found = {
        "endpoint": _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "region": _environment("AWS_REGION", "AWS_DEFAULT_REGION"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _boto3_session(profile: str | None, location: Location) -> Any:
    """A boto3 session if there are profile files, which object_store does not read; else None."""
    profile = profile or _environment("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
    if profile is None and not any(
        os.path.exists(os.environ.get(variable) or os.path.expanduser(path))
        for variable, path in (
            ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
            ("AWS_CONFIG_FILE", "~/.aws/config"),
        )
    ):
        return None
    try:
        import boto3
    except ImportError as error:
        raise ImportError(f"{location}: reading AWS profiles needs boto3: pip install 'ags1[aws]'") from error
    return boto3.session.Session(profile_name=profile)


def _credential_provider(session: Any) -> Any:
    if session.get_credentials() is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider(session)
