"""What each refusal protects from, by the names of its cases."""

from __future__ import annotations

from fnmatch import fnmatchcase

_THREATS: dict[str, dict[str, tuple[str, ...]]] = {
    "streams": {
        "changed bytes": ("*flip-nonce*", "*flip-ciphertext*", "*flip-tag*"),
        "a changed header": ("*flip-magic*", "*flip-block-length*", "header-block-length-*"),
        "moved or repeated blocks": ("*-swapped-blocks", "*-repeated-block", "*-inserted-block"),
        "missing blocks": ("*-missing-first-block", "*-missing-middle-block*"),
        "blocks of another file": ("*-block-of-another-file",),
        "a cut file": ("*-cut-*", "*-tail-*", "short-*", "one-block-shorter-than-length"),
        "an extended file": (
            "*-extended-*",
            "*-appended-byte",
            "*-trailing-*",
            "one-block-longer-than-length",
        ),
        "the wrong key": ("*-wrong-key*",),
        "the wrong AAD prefix": ("*-wrong-prefix", "*-missing-prefix", "*-longer-prefix"),
        "another format": ("foreign-*",),
        "a wrong writer": ("*wrong-aad-*",),
    },
    "key_metadata": {
        "a cut record": ("cut-*", "empty", "varint-unfinished", "prefix-length-2-*"),
        "another version": ("version-*",),
        "a key of a wrong length": ("key-length-*",),
        "malformed integers and branches": ("varint-*", "prefix-*", "length-branch-*", "file-length-*"),
    },
    "wrapped_keys": {
        "a changed timestamp": ("timestamp-*",),
        "changed bytes": ("nonce-changed", "ciphertext-changed", "tag-changed", "wrapped-kek-changed"),
        "the wrong key": ("another-kek", "another-master-key", "sealed-by-the-master-key"),
        "a cut or extended entry": ("entry-*",),
        "a wrong writer": ("sealed-with*",),
        "malformed key metadata": ("metadata-*",),
    },
}


def threat_of(group: str, name: str, expect: str) -> str | None:
    """Return what the refusal of a case protects from; None for a case that is accepted."""
    if expect == "success":
        return None
    for threat, patterns in _THREATS[group].items():
        if any(fnmatchcase(name, each) for each in patterns):
            return threat
    raise SystemExit(f"{group}: {name} is refused, and threats.py has no threat for it")
