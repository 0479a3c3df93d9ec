"""One-line messages for requests that a store refused, or that did not reach it, from the errors of obstore.

obstore's own text has the request, the whole body of the response and pages of debug output. A message has only the
status, the service's code and message, and the endpoint: the body is XML, and may contain the signed data.
"""

from __future__ import annotations

import errno
import os
import re

from ags1.storage.location import Location, or_options

BY_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 408: errno.ETIMEDOUT, 504: errno.ETIMEDOUT}
# obstore has exception types for missing objects and for conditions that were not met.
_TYPED = (304, 404, 409, 412)

_REQUEST = re.compile(r"Error performing [A-Z]+ (https?://[^/\s?]+)")
_STATUS = re.compile(r"non-2xx status code: ((\d{3})[^:]*):\s*(.*)", re.DOTALL)
_ONE_OF_SEVERAL = "request failed for key"
# The body of S3, GCS and Azure; one object of several; OAuth.
_CODE = re.compile(r"<Code>\s*([A-Za-z]\w*)\s*<|\(code: ([A-Za-z]\w*)\)|\"error\":\s*\"(\w+)\"")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,200})|\"message\":\s*\"([^\"\n]{1,200})\"")
_REGION = re.compile(r"<Region>\s*([\w-]+)\s*<|expecting '([\w-]+)'")

_NO_CONTAINER = {"NoSuchBucket": "bucket", "ContainerNotFound": "container", "FilesystemNotFound": "container"}
_NOT_ALLOWED = ("AccessDenied", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions")
# These come with status 400.
_REFUSED = (
    "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "invalid_client", "invalid_grant", "unauthorized_client",
)  # fmt: skip
_ELSEWHERE = ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
# obstore's text for S3's PermanentRedirect, whose body it drops.
_REDIRECTED = "Received redirect without LOCATION"
_OTHER_REGION = "the bucket is in another region: set AWS_REGION"

# Where clients request credentials if they find them nowhere else.
_METADATA_SERVERS = ("//169.254.169.254", "//169.254.170.2", "//metadata.google.internal")
_NO_ACCOUNT = "Account must be specified"

# Words in the debug output of a failed connection, and their meaning.
_SYSTEM_ERROR = re.compile(r"Os \{\s*code: (\d+)")
_NO_CONNECTION = {
    "BadScheme": "http:// needs the option allow_http",
    "dns error": "the host name is not known",
    "InvalidContentType": "it does not use TLS; it may be an http:// endpoint",
    "InvalidCertificate": "its certificate is not trusted",
}

# The variables for the credentials, and those for the endpoint.
_AZURE = (
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
)
_VARIABLES = {
    "s3": ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", "AWS_ENDPOINT_URL and AWS_REGION"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BASE_URL"),
    "az": _AZURE,
    "abfss": _AZURE,
}


def explained(error: BaseException, name: str | None) -> tuple[int, str] | None:
    """Errno and text of an OSError for an exception of obstore; None if its type is enough, or it has another text.

    `name` is the URL of the object or prefix.
    """
    text, _, debug = str(error).partition("Debug source:")
    location = _location(name)
    variables = _VARIABLES[location.scheme] if location is not None else None
    credentials, endpoint = variables or ("the credentials of the store", "the endpoint of the store")
    if _NO_ACCOUNT in text or any(each in text for each in _METADATA_SERVERS):
        return errno.EACCES, f"no credentials were found: set {credentials}{or_options()}"
    request = _REQUEST.search(text)
    if request is not None and ("kind: Connect" in debug or "BadScheme" in debug):
        number, reason = _no_connection(debug)
        return number, f"{request[1]} cannot be reached: {reason}; check {endpoint}{or_options()}"
    if _REDIRECTED in text:
        return errno.EACCES, f"{_OTHER_REGION}{or_options()}"
    response = _STATUS.search(text)
    if response is None and _ONE_OF_SEVERAL not in text:
        return None
    status, code = int(response[2]) if response is not None else 0, _first(_CODE, text)
    if code in _NO_CONTAINER:
        container = location.container.partition("@")[0] if location is not None else ""
        return errno.ENOENT, f"no such {_NO_CONTAINER[code]} {container}".rstrip()
    if code in _ELSEWHERE and (region := _first(_REGION, text)):
        return errno.EACCES, f"{_OTHER_REGION} to {region}{or_options()}"
    if code in _NOT_ALLOWED:
        return errno.EACCES, f"access refused ({code}): the credentials of {credentials}{or_options()} may not do this"
    if response is None:
        return None
    if code in _REFUSED or BY_STATUS.get(status) == errno.EACCES:
        return errno.EACCES, f"access refused ({code or response[1].strip()}): check {credentials}{or_options()}"
    return None if status in _TYPED else (BY_STATUS.get(status, errno.EIO), _status_text(response, code))


def _status_text(response: re.Match[str], code: str) -> str:
    message = _first(_MESSAGE, response[3])
    text = f"the store returned {response[1].strip()}{code and f' ({code})'}{message and f': {message.strip()}'}"
    if response[2] == "400" and not response[3].strip():
        # The response to a HEAD has no body.
        text += ", as S3 does without a reason for a wrong region or an expired token: check AWS_REGION and credentials"
    return text


def _no_connection(debug: str) -> tuple[int, str]:
    system = _SYSTEM_ERROR.search(debug)
    if system is not None:
        return int(system[1]), os.strerror(int(system[1])).lower()
    return errno.EIO, next((reason for sign, reason in _NO_CONNECTION.items() if sign in debug), "no connection")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next((each for each in found.groups() if each), "") if found is not None else ""


def _location(name: str | None) -> Location | None:
    try:
        found = Location(name or "")
    except ValueError:
        return None
    return found if found.is_object else None
