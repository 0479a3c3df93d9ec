"""BoringSSL's AES-GCM beside OpenSSL's: who is chosen, equal bytes, and forks."""

from __future__ import annotations

import pytest

from ags1.core import choice
from ags1.errors import BackendError
from tests.checks import run_python

ZEN_3 = "OPENSSL_ia32cap=0x7ed8320b078bffff:0x40069c219c97a9"


def built() -> None:
    pytest.importorskip("ags1.core.boringssl", reason="this ags1 was built without BoringSSL")


@pytest.mark.parametrize(
    ("wanted", "provider", "settings", "name"),
    [
        ("", "fips", ZEN_3, "OpenSSL"),
        ("", "default", "OPENSSL_ia32cap=0x0:0x0", "OpenSSL"),
        ("", "default", "OPENSSL_armcap=0xbd", "OpenSSL"),
        ("openssl", "default", ZEN_3, "OpenSSL"),
        ("boringssl", "default", "", "BoringSSL"),
    ],
)
def test_the_library_is_chosen_by_provider_cpu_and_environment(
    wanted: str, provider: str, settings: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built()
    monkeypatch.setenv("AGS1_CIPHER", wanted)
    assert choice.choose(provider, settings)[0] == name


def test_a_library_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_CIPHER", "libressl")
    with pytest.raises(BackendError, match="AGS1_CIPHER=libressl names no library: set it to openssl or boringssl"):
        choice.choose("default", "")


def test_a_child_forked_beside_threads_that_met_bad_tags_ends() -> None:
    built()
    said = run_python(
        """
        import os, threading
        os.environ["AGS1_CIPHER"] = "boringssl"
        from ags1.core import gcm

        key, nonce = bytes(32), bytes(12)
        def bad():
            for _ in range(200):
                assert gcm.open_message(bytes(40), key, nonce) is None
        for _ in range(100):
            threads = [threading.Thread(target=bad) for _ in range(3)]
            for each in threads:
                each.start()
            child = os.fork()
            if child == 0:
                bad()
                again = threading.Thread(target=bad)
                again.start()
                again.join()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            for each in threads:
                each.join()
        print(gcm.CIPHER)
        """
    )
    assert said.strip() == "BoringSSL"
