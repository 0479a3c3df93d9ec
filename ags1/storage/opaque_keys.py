"""Objects of S3 whose keys obstore cannot name, through boto3: ``a//b``, ``a/./b``, ``a/../b``, ``a/``, and others.

Keys of S3 are opaque, and Glue, Athena and others make such ones; obstore takes keys for paths. The functions have the
names, arguments and results of obstore's, as far as :mod:`ags1.storage.objects` uses them. Errors are botocore's.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from ags1.storage._clients import is_true, s3_settings
from ags1.storage.location import Location
from ags1.support.recently_used import RecentlyUsed

# Bytes of an object of unknown length that stay in memory.
_SPOOLED = 64 << 20
_clients = RecentlyUsed(8)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_path(key: str) -> bool:
    """Whether obstore names an object of this key."""
    return all(part not in ("", ".", "..") for part in key.split("/")) and not _CONTROL.search(key)


def client_of(location: Location) -> Any:
    """The client and the bucket. ImportError: boto3 is missing."""
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError as error:
        text = (
            f"{location}: only boto3 can name this object: pip install 'ags1[s3]', or copy the object to another name"
        )
        raise ImportError(text) from error
    settings, common, profile = s3_settings(location)

    def make() -> Any:
        virtual = is_true(settings.get("virtual_hosted_style_request", False))
        config = Config(
            signature_version=UNSIGNED if is_true(settings.get("skip_signature", False)) else None,
            s3={"addressing_style": "virtual" if virtual else "path" if settings.get("endpoint") else "auto"},
            read_timeout=common["client_options"]["read_timeout"].total_seconds(),
            connect_timeout=common["client_options"]["connect_timeout"].total_seconds(),
            retries={"total_max_attempts": 1 + common["retry_config"]["max_retries"], "mode": "standard"},
        )
        return boto3.session.Session(profile_name=profile).client(
            "s3", config=config, endpoint_url=settings.get("endpoint"), region_name=settings["region"],
            aws_access_key_id=settings.get("access_key_id"), aws_session_token=settings.get("session_token"),
            aws_secret_access_key=settings.get("secret_access_key"),
        )  # fmt: skip

    # A forked child would share the connections of its parent.
    name = (os.getpid(), repr(sorted(settings.items())), repr(common), profile)
    return _clients.get(name, make), location.container


def pages(location: Location, prefix: str, after: str = "", *, deep: bool = True) -> Iterator[list[Any]]:
    """Objects below a prefix, behind a key, as obstore's listing has them; without `deep`, those directly below it."""
    client, bucket = client_of(location)
    delimiter = {} if deep else {"Delimiter": "/"}
    listed = client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, StartAfter=after, **delimiter
    )
    return ([_meta(each, each["Size"], path=each["Key"]) for each in page.get("Contents", ())] for page in listed)


def head(store: Any, key: str) -> Any:
    """Return size, etag and time of an object."""
    client, bucket = store
    found = client.head_object(Bucket=bucket, Key=key)
    return _meta(found, found["ContentLength"])


def get(store: Any, key: str, *, options: Mapping[str, Any]) -> Any:
    """Return a range of bytes of an object."""
    client, bucket = store
    begin, end = options["range"]
    condition = {"IfMatch": options["if_match"]} if "if_match" in options else {}
    found = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={begin}-{end - 1}", **condition)
    data = found["Body"].read()
    said, _, size = found.get("ContentRange", "").partition("/")
    start = int(said.removeprefix("bytes ").partition("-")[0]) if said else 0
    meta = _meta(found, int(size) if size else len(data))
    return SimpleNamespace(range=(start, start + len(data)), meta=meta, bytes=lambda: data)


def put(store: Any, key: str, data: Any, **options: Any) -> dict[str, Any]:
    """Write an object; of `options`, only ``mode="create"`` means something here."""
    client, bucket = store
    if options.get("mode") == "create":
        from botocore.exceptions import ClientError

        try:
            found = client.put_object(Bucket=bucket, Key=key, Body=bytes(data), IfNoneMatch="*")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
                raise FileExistsError(errno.EEXIST, "it exists already", key) from None
            raise
        return {"e_tag": found.get("ETag")}
    if isinstance(data, Iterator):
        import tempfile

        with tempfile.SpooledTemporaryFile(_SPOOLED) as whole:
            for piece in data:
                whole.write(piece)
            whole.seek(0)
            client.upload_fileobj(whole, bucket, key)
        return {"e_tag": None}
    found = client.put_object(Bucket=bucket, Key=key, Body=bytes(data))
    return {"e_tag": found.get("ETag")}


def delete(store: Any, key: str) -> None:
    """Delete an object."""
    client, bucket = store
    client.delete_object(Bucket=bucket, Key=key)


def _meta(found: Mapping[str, Any], size: int, **more: str) -> dict[str, Any]:
    return {"size": size, "e_tag": found.get("ETag"), "last_modified": found.get("LastModified"), **more}
