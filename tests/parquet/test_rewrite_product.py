"""The product of what an encryption can be, on small files: encrypted, opened, decrypted, compared.

Algorithm, footer mode, which columns have which keys, AAD prefix, key size, and for files that have V2 pages their
form, on every file of ``corpus.SMALL``: here a few configurations in which every two options meet, and all of them in
soak_rewrites.py. Of what is done twice in a row (re-keying from one configuration to another) a sample is drawn.
"""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ags1.parquet import DecryptionConfig, EncryptionConfig, decrypt_file, encrypt_file, rekey_file
from tests.checks import covering
from tests.parquet import corpus
from tests.parquet.compare import differences
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_model import CTR_PAGES, DATA_PAGE_V2, GCM, File

Path = tuple[str, ...]

ALGORITHMS = (GCM, CTR_PAGES)
# Which columns have keys of their own, and what becomes of the others.
KEY_MODES = ("uniform", "some columns", "some columns, all encrypted", "every column", "footer only")
PREFIXES = ("no prefix", "stored", "not stored")
KEY_LENGTHS = (16, 24, 32)
FORMS = ("java", "arrow")
PREFIX = b"table/part-00007"
REKEYED_PAIRS = 70


def key(length: int, number: int) -> bytes:
    return bytes((number * 37 + index * 11 + 1) & 255 for index in range(length))


@dataclass(frozen=True)
class Configuration:
    """One point of the product."""

    algorithm: str
    plaintext_footer: bool
    key_mode: str
    prefix: str
    key_length: int
    form: str
    # Distinguishes the keys of one configuration from those of another.
    number: int = 0

    @property
    def footer_key(self) -> bytes:
        return key(self.key_length, self.number)

    @property
    def aad_prefix(self) -> bytes | None:
        return None if self.prefix == "no prefix" else PREFIX

    def supplied_prefix(self) -> bytes | None:
        return PREFIX if self.prefix == "not stored" else None

    def column_keys(self, paths: list[Path]) -> dict[Path, bytes] | None:
        """Keys of other sizes than the footer's, so that all sizes meet in one file."""
        if self.key_mode == "uniform":
            return None
        if self.key_mode == "footer only":
            return {}
        step = 1 if self.key_mode == "every column" else 2
        first = KEY_LENGTHS.index(self.key_length) + 1
        return {
            path: key(KEY_LENGTHS[(first + index) % 3], self.number + 1 + index)
            for index, path in enumerate(paths)
            if index % step == 0
        }

    def encryption(self, paths: list[Path]) -> EncryptionConfig:
        prefix: dict[str, Any] = {}
        if self.aad_prefix is not None:
            prefix = {"aad_prefix": self.aad_prefix, "store_aad_prefix": self.prefix == "stored"}
        return EncryptionConfig(
            self.footer_key,
            column_keys=self.column_keys(paths),
            encrypt_all=self.key_mode in ("uniform", "some columns, all encrypted"),
            algorithm=self.algorithm,
            plaintext_footer=self.plaintext_footer,
            data_page_v2=self.form,
            **prefix,
        )

    def decryption(self, paths: list[Path]) -> DecryptionConfig:
        return DecryptionConfig(self.footer_key, column_keys=self.column_keys(paths), aad_prefix=self.supplied_prefix())

    def check(self, data: bytes, plain: File) -> None:
        """Open every module of a file that this encrypted, and compare it with the plaintext file."""
        paths = paths_of(plain)
        keys = self.column_keys(paths)
        opened = open_encrypted(data, self.footer_key, keys, self.supplied_prefix())
        assert differences(plain, opened) == []
        assert opened.gaps() == []
        assert opened.algorithm == self.algorithm
        assert opened.footer_mode == ("plaintext" if self.plaintext_footer else "encrypted")
        assert (opened.is_prefix_stored, opened.supply_aad_prefix) == (
            self.prefix == "stored",
            self.prefix == "not stored",
        )
        protections = {chunk.path: chunk.encryption for chunk in opened.chunks}
        for path, protection in protections.items():
            if keys is not None and path in keys:
                assert protection == "column key"
            elif self.key_mode in ("uniform", "some columns, all encrypted"):
                assert protection == "footer key"
            else:
                assert protection == "plaintext"
        assert {page.v2_form for chunk in opened.chunks for page in chunk.pages} <= {None, self.form}


def options_of(plain: File) -> tuple[tuple[Any, ...], ...]:
    """The values of each field of a configuration that mean something for this file."""
    has_v2 = any(page.type == DATA_PAGE_V2 for chunk in plain.chunks for page in chunk.pages)
    return ALGORITHMS, (False, True), KEY_MODES, PREFIXES, KEY_LENGTHS, FORMS if has_v2 else FORMS[:1]


def configurations(plain: File) -> list[Configuration]:
    """The whole product."""
    return [Configuration(*each) for each in itertools.product(*options_of(plain))]


@cache
def plaintext(name: str) -> File:
    return open_plain(corpus.build(name))


def paths_of(plain: File) -> list[Path]:
    return [chunk.path for chunk in plain.row_groups[0].chunks] if plain.row_groups else []


def assert_comes_back(configuration: Configuration, plain: File) -> None:
    """Encrypt a file, open it with the reference, decrypt it and compare."""
    paths = paths_of(plain)
    secret, back = io.BytesIO(), io.BytesIO()
    encrypt_file(plain.data, secret, configuration.encryption(paths))
    configuration.check(secret.getvalue(), plain)
    decrypt_file(secret.getvalue(), back, configuration.decryption(paths))
    decrypted = open_plain(back.getvalue())
    assert differences(plain, decrypted) == []
    assert decrypted.gaps() == []


def test_every_two_options_together_open_and_come_back(small_name: str) -> None:
    plain = plaintext(small_name)
    for each in covering(*options_of(plain)):
        assert_comes_back(Configuration(*each), plain)


def test_any_configuration_is_re_keyed_to_any_other(small_name: str) -> None:
    """Chosen at random, from a seed: with a chance of one half each, the second keeps one of the first's options.

    Otherwise hardly any pair would have the same algorithm and prefix, where chunks are copied rather than sealed.
    """
    plain = plaintext(small_name)
    paths = paths_of(plain)
    chosen = random.Random(small_name)
    everything = configurations(plain)
    for _ in range(REKEYED_PAIRS // len(corpus.SMALL)):
        one, other = chosen.sample(everything, 2)
        kept = {
            name: getattr(one, name)
            for name in ("algorithm", "plaintext_footer", "key_mode", "prefix", "key_length", "form", "number")
            if chosen.random() < 0.5
        }
        values = {**vars(other), "number": 100, **kept}
        target = Configuration(**values)
        # A file keeps its identity, unless it gets another one.
        made = replace(target, prefix=one.prefix) if target.prefix == "no prefix" else target
        secret, changed, back = io.BytesIO(), io.BytesIO(), io.BytesIO()
        encrypt_file(plain.data, secret, one.encryption(paths))
        rekey_file(secret.getvalue(), changed, one.decryption(paths), target.encryption(paths), plaintext_columns=paths)
        made.check(changed.getvalue(), plain)
        decrypt_file(changed.getvalue(), back, made.decryption(paths))
        assert differences(plain, open_plain(back.getvalue())) == [], (one, target)


def test_the_sample_is_of_the_whole_product() -> None:
    plain = plaintext("everything-v2")
    assert len(configurations(plain)) == 2 * 2 * 5 * 3 * 3 * 2
    sample = covering(*options_of(plain))
    assert len(sample) < 30
    for one, other in itertools.combinations(range(6), 2):
        met = {(each[one], each[other]) for each in sample}
        assert met == set(itertools.product(options_of(plain)[one], options_of(plain)[other]))
