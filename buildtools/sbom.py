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

from openssl import OpenSSL

NAME = "ags1.cdx.json"
"""Its file in ``.dist-info/sboms``."""

SPECIFICATION = "1.6"
_APACHE = [{"license": {"id": "Apache-2.0"}}]


def document(version: str, chosen: OpenSSL, tools: Mapping[str, str]) -> str:
    """Return the text of the list.

    Parameters
    ----------
    version
        Version of ags1.
    chosen
        The OpenSSL that was linked. A shared one is no part of the wheel, and only its name is told.
    tools
        Versions of what generated code that is in the wheel, by name.
    """
    package = f"pkg:pypi/ags1@{quote(version)}"
    libcrypto = _libcrypto(chosen)
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
        "components": [libcrypto],
        "dependencies": [
            {"ref": package, "dependsOn": [libcrypto["bom-ref"]]},
            {"ref": libcrypto["bom-ref"]},
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
        source = chosen.source
        hashes = [{"alg": "SHA-256", "content": source.sha256}]
        found["purl"] += f"?checksum=sha256:{source.sha256}&file_name={quote(source.file)}"
        found["externalReferences"] = [{"type": "source-distribution", "url": source.url, "hashes": hashes}]
    else:
        (archive,) = chosen.archives
        found["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(Path(archive).read_bytes()).hexdigest()}]
    return found
