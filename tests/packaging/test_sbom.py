"""The list of what is inside a wheel, for each way in which an OpenSSL can be linked.

It was held against the schema of CycloneDX 1.6 by the validator of cyclonedx-python-lib; the tests do without that.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from buildtools import boringssl, openssl, openssl_source, sbom

TOOLS = {"cython": "3.2.0"}


def component(chosen: openssl.OpenSSL) -> dict[str, Any]:
    text = sbom.document("1.2", chosen, None, TOOLS)
    assert text == sbom.document("1.2", chosen, None, dict(TOOLS))
    found = json.loads(text)
    (libcrypto,) = found["components"]
    assert found["metadata"]["tools"]["components"][0]["purl"] == "pkg:pypi/cython@3.2.0"
    assert found["dependencies"][0] == {"ref": "pkg:pypi/ags1@1.2", "dependsOn": [libcrypto["bom-ref"]]}
    return libcrypto


def test_one_that_was_built_is_told_by_its_sources() -> None:
    for source in (openssl_source.RELEASE, openssl_source.CRATE):
        found = component(openssl.OpenSSL("bundled-static", source.version, (), ("/x/libcrypto.a",), source=source))
        assert found["version"] == source.version
        assert found["purl"].startswith(f"pkg:generic/openssl@{source.version}?checksum=sha256:{source.sha256}")
        (origin,) = found["externalReferences"]
        assert origin["hashes"] == [{"alg": "SHA-256", "content": source.sha256}]
        # Whatever place it was built in.
        assert "/x" not in json.dumps(found)
        assert "scope" not in found


def test_a_static_one_of_a_prefix_is_told_by_its_own_bytes(tmp_path: Path) -> None:
    archive = tmp_path / "libcrypto.a"
    archive.write_bytes(b"code")
    found = component(openssl.OpenSSL("prefix-static", "3.4.1", (), (str(archive),)))
    assert found["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"code").hexdigest()}]
    assert str(tmp_path) not in json.dumps(found)


def test_a_shared_one_is_no_part_of_the_wheel() -> None:
    found = component(openssl.OpenSSL("system-shared", "3.0.17", (), ("-lcrypto",)))
    assert found["scope"] == "excluded"
    assert "hashes" not in found


def test_boringssl_is_told_by_its_sources_beside_openssl(tmp_path: Path) -> None:
    chosen, second = openssl.OpenSSL("system-shared", "3.0.17", (), ("-lcrypto",)), boringssl.BoringSSL(tmp_path)
    found = json.loads(sbom.document("1.2", chosen, second, TOOLS))
    component = found["components"][1]
    assert component["name"] == "boringssl"
    assert component["externalReferences"][0]["hashes"][0]["content"] == openssl_source.BORINGSSL.sha256
    assert found["dependencies"][0]["dependsOn"] == ["openssl@3.0.17", component["bom-ref"]]
    assert str(tmp_path) not in json.dumps(found)
