"""The list of what a wheel has inside it, as CycloneDX JSON: PEP 770 has it in ``.dist-info/sboms``.

It says nothing of when or where it was made, so that two builds of one commit say the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from boringssl import BoringSSL
from openssl import OpenSSL
from openssl_source import BORINGSSL, Source

NAME = "ags1.cdx.json"
"""Its file in ``.dist-info/sboms``."""

SPECIFICATION = "1.6"
_APACHE = [{"license": {"id": "Apache-2.0"}}]


def document(version: str, chosen: OpenSSL, second: BoringSSL | None, tools: Mapping[str, str]) -> str:
    """Return the text of the list.

    Parameters
    ----------
    version
        Version of ags1.
    chosen
        The OpenSSL that was linked. A shared one is no part of the wheel, and only its name is told.
    second
        The BoringSSL that was linked, if one was.
    tools
        Versions of what generated code that is in the wheel, by name.
    """
    package = f"pkg:pypi/ags1@{quote(version)}"
    libraries = [_libcrypto(chosen), *([_boringssl()] if second is not None else [])]
    found = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": package,
                "name": "ags1",
                "version": version,
                "licenses": _APACHE,
                "purl": package,
            },
            "tools": {
                "components": [
                    {
                        "type": "application",
                        "name": name,
                        "version": tools[name],
                        "purl": f"pkg:pypi/{name}@{tools[name]}",
                    }
                    for name in sorted(tools)
                ]
            },
        },
        "components": libraries,
        "dependencies": [
            {"ref": package, "dependsOn": [each["bom-ref"] for each in libraries]},
            *({"ref": each["bom-ref"]} for each in libraries),
        ],
    }
    return json.dumps(found, indent=2) + "\n"


def _libcrypto(chosen: OpenSSL) -> dict[str, Any]:
    """Return the component of the OpenSSL that was linked."""
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"openssl@{chosen.version}",
        "name": "openssl",
        "version": chosen.version,
        "description": f"libcrypto, {chosen.linkage}",
        "licenses": _APACHE,
        "cpe": f"cpe:2.3:a:openssl:openssl:{chosen.version}:*:*:*:*:*:*:*",
        "purl": f"pkg:generic/openssl@{chosen.version}",
    }
    if not chosen.static:
        # Any that the system has when ags1 is imported: the version is that of the headers.
        return {**found, "scope": "excluded"}
    if chosen.source is not None:
        _tell_source(found, chosen.source)
    else:
        (archive,) = chosen.archives
        found["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(Path(archive).read_bytes()).hexdigest()}]
    return found


def _boringssl() -> dict[str, Any]:
    """Return the component of BoringSSL."""
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"boringssl@{BORINGSSL.version}",
        "name": "boringssl",
        "version": BORINGSSL.version,
        "description": "AES-GCM of BoringSSL; the version is that of the crate with its sources",
        "licenses": _APACHE,
        "cpe": "cpe:2.3:a:google:boringssl:-:*:*:*:*:*:*:*",
        "purl": f"pkg:generic/boringssl@{BORINGSSL.version}",
    }
    _tell_source(found, BORINGSSL)
    return found


def _tell_source(found: dict[str, Any], source: Source) -> None:
    """Add to a component what it was built from."""
    hashes = [{"alg": "SHA-256", "content": source.sha256}]
    found["purl"] += f"?checksum=sha256:{source.sha256}&file_name={quote(source.file)}"
    found["externalReferences"] = [{"type": "source-distribution", "url": source.url, "hashes": hashes}]
