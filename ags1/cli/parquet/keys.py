"""Keys, prefixes and configurations of ``ags1 parquet``: what is named in the options, never what is a key itself."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable

from ags1.cli.command import Command, command
from ags1.cli.keys import Keys as MetadataKeys
from ags1.cli.keys import aad_prefix, note, refuse_key_as_name, warned_of_readers
from ags1.core.gcm import Key
from ags1.keys import KeyMetadata
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.support.exit_codes import UsageError
from ags1.support.key_files import key_of_variable, parse_key, read_key_file
from ags1.support.typing import Any, Self

Columns = list[Any]

# How the help of commands describes options that other commands have too.
_CHANGED: dict[str, Any] = {
    "key-metadata": "Iceberg's key metadata (key and AAD prefix) from a file, or for many files from a directory of "
    "NAME.key-metadata",
    "aad-prefix": "identity of the file: text, in which {name} is the base name of the file and {path} its path below "
    "the directory that was given",
}
KEY_HELP = """\
keys:
  A key is named, never given: file:PATH (16, 24 or 32 raw bytes as
  `ags1 keygen` writes them, or the same as hexadecimal or base64 text) or
  env:NAME (text). Columns are named by the path of a leaf (a.b.list.element)
  or by a group (a: all leaves below it), several with commas; \\, and \\. are
  a comma and a dot in a name.
"""


def parquet_command(**settings: Any) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command of ``ags1 parquet``, with the help of keys."""
    return command(epilog=KEY_HELP, changed=_CHANGED | settings.pop("changed", {}), **settings)


# Stands in for the prefix of each file while what all files share is checked.
_SOME_PREFIX = b"?"


class KeyReferences:
    """Reads the keys that are named as ``file:PATH`` and ``env:NAME``, each once: a file may be a pipe."""

    def __init__(self) -> None:
        self._known: dict[str, Key] = {}

    def load(self, reference: str, option: str) -> Key:
        """The key. UsageError: the reference has neither form; what it is, is not repeated."""
        found = self._known.get(reference)
        if found is None:
            found = self._known[reference] = _load(reference, option)
        return found


def _load(reference: str, option: str) -> Key:
    kind, colon, name = reference.partition(":")
    if not colon or kind not in ("file", "env") or not name:
        raise UsageError(f"{option} needs a key as file:PATH or env:NAME (a key itself must not stand there)")
    refuse_key_as_name(name, option, f"{kind}: and the name of a {'file' if kind == 'file' else 'variable'}")
    if kind == "env":
        return Key(key_of_variable(name))
    data, mode = read_key_file(name)
    warned_of_readers(name, mode)
    return Key(parse_key(data, name, note=note))


class Clients:
    """Clients of key management services, each opened once; closed at the end of the ``with`` body."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def open(self, given: Namespace, new_kms: str | None = None) -> Any:
        """The client that --kms names, or for what is encrypted --new-kms."""
        from ags1.cli.kms.clients import new_client_of

        url = new_kms or given.kms
        if url not in self._known:
            self._known[url] = new_client_of(given, new_kms)
        return self._known[url]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for client in self._known.values():
            client.close()


class _Prefix:
    """The AAD prefix that the options give to each file."""

    def __init__(self, text: str | bytes | None) -> None:
        self._text = text
        self.given = text is not None
        self.per_file = isinstance(text, str) and ("{name}" in text or "{path}" in text)
        if self.given:
            # What is wrong with it is wrong usage, and no failure of the first file.
            self.of("name")

    def of(self, name: str) -> bytes:
        prefix = aad_prefix(self._text, name)
        if not prefix:
            raise UsageError("an empty AAD prefix is none for some readers: leave it out, or give one")
        return prefix


class WritingOptions:
    """What files are encrypted with. UsageError: the options make no sense together. KeyAccessError: a key is missing.

    Attributes
    ----------
    fresh : bool
        Whether every file gets keys of its own, or key metadata of its own says them.
    makes_metadata : bool
        Whether key metadata is to be made, with a fresh key, for each file.
    same_prefix : bool
        Whether many files would be bound to one identity.
    """

    def __init__(self, given: Namespace, references: KeyReferences, clients: Clients) -> None:
        self._options = given
        self._prefix = _Prefix(given.aad_prefix)
        self.makes_metadata = given.key_metadata_out is not None
        if given.kms is None and given.footer_key_id:
            given.kms = os.environ.get("AGS1_KMS")
        ways = {
            "--footer-key": given.footer_key is not None,
            "--footer-key-id (with --kms)": given.footer_key_id is not None,
            "--key-metadata": given.key_metadata is not None,
            "--key-metadata-out": self.makes_metadata,
        }
        chosen = [way for way, given in ways.items() if given]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} are different ways to say the keys: give one")
        if not chosen:
            raise UsageError(
                "a key is needed: --footer-key file:PATH or env:NAME (`ags1 keygen` makes one), --kms URL with "
                "--footer-key-id ID, or --key-metadata-out PATH for a fresh key for each file"
            )
        self._metadata: MetadataKeys | None = None
        self._config: EncryptionConfig | None = None
        if given.footer_key is not None:
            _refuse(given, "--footer-key", _KMS_OPTIONS)
            if given.kms is not None and not hasattr(given, "new_kms"):
                raise UsageError(
                    "--kms has no meaning with --footer-key: for keys under a KMS give --footer-key-id ID instead"
                )
            self._config = self._given(references)
        elif given.footer_key_id is not None:
            _refuse(given, "--footer-key-id", _GIVEN_OPTIONS)
            self._config = self._from_kms(clients)
        else:
            _refuse(given, chosen[0], _KMS_OPTIONS + _GIVEN_OPTIONS + _NOT_ICEBERG)
            if given.key_metadata is not None:
                self._metadata = _metadata_keys(given.key_metadata)
        self.fresh = given.footer_key is None and (
            given.key_metadata is None or os.path.isdir(_path(given.key_metadata))
        )
        self.same_prefix = self._prefix.given and not self._prefix.per_file

    def _common(self) -> dict[str, Any]:
        options = self._options
        if not (options.store_aad_prefix or self._prefix.given):
            raise UsageError("--no-store-aad-prefix needs an --aad-prefix, or there is nothing to leave out")
        return {
            "encrypt_all": options.encrypt_all,
            "algorithm": options.algorithm,
            "plaintext_footer": options.plaintext_footer,
            "aad_prefix": _SOME_PREFIX if self._prefix.given else None,
            "store_aad_prefix": options.store_aad_prefix,
            "data_page_v2": options.data_page_v2 or "arrow",
        }

    def _given(self, references: KeyReferences) -> EncryptionConfig:
        options = self._options
        key = references.load(options.footer_key, "--footer-key")
        columns = _column_keys(options.column_key, "--column-key", references)
        given = options.column_key_metadata
        metadata = {name: _octets(text, "--column-key-metadata") for names, text in given for name in names}
        footer = options.footer_key_metadata
        return EncryptionConfig(
            key,
            column_keys=columns or None,
            column_key_metadata=metadata or None,
            footer_key_metadata=None if footer is None else _octets(footer, "--footer-key-metadata"),
            **self._common(),
        )

    def _from_kms(self, clients: Clients) -> EncryptionConfig:
        options = self._options
        return EncryptionConfig.from_kms(
            clients.open(options, getattr(options, "new_kms", None)),
            options.footer_key_id,
            options.column_key_ids,
            double_wrapping=options.double_wrapping,
            internal_key_material=options.internal_key_material,
            data_key_bits=options.data_key_bits,
            **self._common(),
        )

    def config(self, path: str, name: str, made: KeyMetadata | None = None) -> EncryptionConfig:
        """What one file is encrypted with; `path` is where it will be, `made` its fresh key metadata."""
        if made is None and self._metadata is not None:
            made = self._metadata.metadata_for(path, name)
        if made is not None:
            return EncryptionConfig.for_iceberg(made, data_page_v2=self._options.data_page_v2 or "java")
        assert self._config is not None
        return self._config.with_aad_prefix(self._prefix.of(name)) if self._prefix.given else self._config

    def prefix(self, name: str) -> bytes | None:
        """The AAD prefix that the options give to a file."""
        return self._prefix.of(name) if self._prefix.given else None


class ReadingOptions:
    """What files are read with. `named` is whether the options name a key; `old` ones begin with ``--old-``."""

    def __init__(self, options: Namespace, references: KeyReferences, clients: Clients, *, old: bool = False) -> None:
        shown = "--old-" if old else "--"
        footer, columns, for_metadata, metadata = (
            getattr(options, each) for each in ("footer_key", "column_key", "key_for", "key_metadata")
        )
        given = footer is not None or bool(columns) or bool(for_metadata)
        kms = None if old and (given or metadata is not None) else options.kms
        if kms is None and not given and metadata is None:
            kms = options.kms = os.environ.get("AGS1_KMS") or None
        self._prefix = _Prefix(options.aad_prefix)
        self._metadata: MetadataKeys | None = None
        self._allow_plaintext: bool = options.allow_plaintext
        self._check_footer: bool = options.check_footer_integrity
        self.named = given or metadata is not None or kms is not None
        chosen = [
            way
            for way, there in (
                (f"{shown}footer-key, {shown}column-key or {shown}key-for", given),
                ("--kms", kms is not None),
                (f"{shown}key-metadata", metadata is not None),
            )
            if there
        ]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} are different ways to say the keys: give one")
        common: dict[str, Any] = {
            "check_footer_integrity": self._check_footer,
            "allow_plaintext": self._allow_plaintext,
        }
        expected = None if old else getattr(options, "expected_key_ids", None)
        if kms is not None:
            self._config = DecryptionConfig.from_kms(clients.open(options), expected_key_ids=expected, **common)
            return
        if expected is not None:
            raise UsageError("--expected-key-id is for the master keys of --kms")
        if metadata is not None:
            if self._prefix.given:
                raise UsageError(f"{shown}key-metadata already has an AAD prefix: leave {shown}aad-prefix out")
            self._metadata = _metadata_keys(metadata)
        option = f"{shown}key-for"
        found = {_octets(text, option): references.load(reference, option) for text, reference in for_metadata}
        self._config = DecryptionConfig(
            None if footer is None else references.load(footer, f"{shown}footer-key"),
            column_keys=_column_keys(columns, f"{shown}column-key", references) or None,
            key_retriever=found.get if found else None,
            **common,
        )

    def config(self, path: str, name: str) -> DecryptionConfig:
        """What one file is read with."""
        if self._metadata is not None:
            metadata = self._metadata.metadata_for(path, name)
            return DecryptionConfig(
                metadata.encryption_key,
                aad_prefix=metadata.aad_prefix,
                # Key metadata are for this one: without it, somebody could name the one that authenticates no page.
                algorithm="AES_GCM_V1",
                check_footer_integrity=self._check_footer,
                allow_plaintext=self._allow_plaintext,
            )
        return self._config.with_aad_prefix(self._prefix.of(name)) if self._prefix.given else self._config

    def require(self, options: str = "--footer-key file:PATH or env:NAME, --kms URL, --key-metadata PATH") -> None:
        """Raise a UsageError if the options name no key."""
        if not self.named and not self._allow_plaintext:
            raise UsageError(f"a key is needed: {options}")


_GIVEN_OPTIONS = (
    ("column_key", "--column-key"),
    ("footer_key_metadata", "--footer-key-metadata"),
    ("column_key_metadata", "--column-key-metadata"),
)
_KMS_OPTIONS = (
    ("new_kms", "--new-kms"),
    ("column_key_ids", "--column-key-id"),
    ("double_wrapping", "--single-wrapping"),
    ("internal_key_material", "--external-key-material"),
)
_NOT_ICEBERG = (
    ("plaintext_footer", "--plaintext-footer"),
    ("encrypt_all", "--encrypt-all"),
    ("store_aad_prefix", "--no-store-aad-prefix"),
)
# Those that take something away.
_OFF = ("--single-wrapping", "--external-key-material", "--no-store-aad-prefix")


def _refuse(options: Namespace, way: str, others: tuple[tuple[str, str], ...]) -> None:
    for attribute, option in others:
        if bool(getattr(options, attribute, None)) is not option.startswith(_OFF):
            raise UsageError(f"{option} has no meaning with {way}: leave it out")
    if way.startswith("--key-metadata") and options.algorithm != "AES_GCM_V1":
        raise UsageError(f"--algorithm has no meaning with {way}, which is for AES_GCM_V1: leave it out")
    if way == "--key-metadata" and options.aad_prefix is not None:
        raise UsageError("--key-metadata already has an AAD prefix: leave --aad-prefix out")


def _column_keys(given: Any, option: str, references: KeyReferences) -> list[tuple[Columns, Key]]:
    return [(names, references.load(reference, option)) for names, reference in given]


def _octets(text: str, option: str) -> bytes:
    """Text as UTF-8, or bytes as ``hex:DIGITS``."""
    if not text.startswith("hex:"):
        return os.fsencode(text)
    try:
        return bytes.fromhex(text[4:])
    except ValueError:
        raise UsageError(f"{option}: what stands behind hex: is not hexadecimal") from None


def _path(text: str) -> str:
    return text.removeprefix("file:")


def _metadata_keys(where: str) -> MetadataKeys:
    return MetadataKeys(Namespace(key_file=None, key_env=None, key_metadata=_path(where), aad_prefix=None))
