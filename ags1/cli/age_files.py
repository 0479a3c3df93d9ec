"""Key metadata inside standard age files: for recipients, or under a passphrase."""

from __future__ import annotations

import argparse
import re
import sys

from ags1.cli.standard import ask_password
from ags1.errors import KeyAccessError
from ags1.support.exit_codes import UsageError
from ags1.support.key_files import read_key_file
from ags1.support.typing import Any

AGE_SUFFIX = ".key-metadata.age"
_INTRO = b"age-encryption.org/v1\n"
_SCRYPT = re.compile(rb"^-> scrypt \S+ (\d{1,3})$", re.MULTILINE)
_MOST_WORK = 20
"""The greatest base-2 logarithm of scrypt's N in a file that is read: 1 GiB of memory, and a few seconds."""


def is_age_file(data: bytes) -> bool:
    """Whether these are the bytes of an age file, not those of its text form."""
    return data.startswith(_INTRO)


class AgeKeys:
    """What seals or opens age files: recipients, identities, or a passphrase. It is asked for when it is first needed.

    UsageError: recipients and a passphrase are given together, which age does not have; or a text is no recipient.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        recipients = list(getattr(options, "recipient", ()))
        self._identities = list(getattr(options, "identity", ()))
        self._file: str | None = getattr(options, "passphrase_file", None)
        self._asks: bool = getattr(options, "passphrase", False)
        self._passphrase: str | None = None
        self.named = bool(recipients or self._identities or self._file or self._asks)
        kinds = (bool(recipients or self._identities), bool(self._file), self._asks)
        if sum(kinds) > 1:
            raise UsageError("give recipients (or identities), or a passphrase, not both")
        self._recipients = [_recipient(_age(), text) for text in recipients]

    def seal(self, data: bytes) -> bytes:
        """Return an age file."""
        age = _age()
        if self._recipients:
            return bytes(age.encrypt(data, self._recipients))
        sealed = bytes(age.passphrase.encrypt(data, self._secret(new=True)))
        if _work(sealed) > _MOST_WORK:
            # It takes what it thinks a second of this machine.
            raise KeyAccessError(
                f"pyrage made the passphrase cost 2^{_work(sealed)} rounds of scrypt, more than would be read again: "
                "give --recipient"
            )
        return sealed

    def open(self, data: bytes, path: str) -> bytes:
        """Return what an age file holds.

        Raises
        ------
        KeyAccessError
            It opens with none of these, it is damaged, or its passphrase would cost more than a bound.
        """
        age = _age()
        if _work(data) > _MOST_WORK:
            raise KeyAccessError(
                f"{path} was not opened: its passphrase costs 2^{_work(data)} rounds of scrypt, and at most "
                f"2^{_MOST_WORK} are done"
            )
        if bool(_work(data)) is bool(self._identities):
            other = "it is under a passphrase: give --passphrase or --passphrase-file FILE"
            if not self._identities:
                other = "it has no passphrase, but recipients: give --identity FILE"
            raise KeyAccessError(f"{path} was not opened: {other}")
        try:
            if self._identities:
                return bytes(age.decrypt(data, [each for name in self._identities for each in _identities(age, name)]))
            return bytes(age.passphrase.decrypt(data, self._secret(new=False)))
        except age.DecryptError as error:
            given = "these identities" if self._identities else "this passphrase"
            if self._file:
                given = f"the passphrase in {self._file}"
            raise KeyAccessError(f"{path} does not open with {given}, or it is damaged: {error}") from None

    def _secret(self, *, new: bool) -> str:
        if self._passphrase is None:
            if self._file:
                data = read_key_file(self._file, "passphrase file")[0]
                try:
                    self._passphrase = data.removesuffix(b"\n").removesuffix(b"\r").decode()
                except UnicodeDecodeError:
                    raise KeyAccessError(f"the passphrase file {self._file} is not UTF-8") from None
            elif self._asks:
                if sys.stdin is None or not sys.stdin.isatty():
                    raise UsageError("nobody can be asked for a passphrase here: give --passphrase-file FILE")
                self._passphrase = ask_password("the key metadata", new=new, kind="passphrase")
            else:
                raise KeyAccessError(
                    "this is an age file: give --identity FILE, --passphrase or --passphrase-file FILE"
                )
            if not self._passphrase:
                raise UsageError("an empty passphrase protects nothing: nothing was done")
        return self._passphrase


def _work(data: bytes) -> int:
    """The base-2 logarithm of scrypt's N in an age file; 0 if it has no passphrase."""
    return max((int(each) for each in _SCRYPT.findall(data.partition(b"\n---")[0])), default=0)


def _age() -> Any:
    try:
        import pyrage
    except ImportError as error:
        raise ImportError("age files need pyrage: pip install 'ags1[age]'", name=error.name) from None
    return pyrage


def _recipient(age: Any, text: str) -> Any:
    kind = age.ssh if text.startswith("ssh-") else age.x25519
    try:
        return kind.Recipient.from_str(text)
    except age.RecipientError:
        if text.upper().startswith("AGE-SECRET-KEY-"):
            raise UsageError("this is a secret identity of age, not repeated here: give its recipient") from None
        raise UsageError(f"{text} is no recipient of age: age1..., ssh-ed25519 ... or ssh-rsa ...") from None


def _identities(age: Any, path: str) -> list[Any]:
    data = read_key_file(path, "identity file")[0]
    try:
        if data.startswith(b"-----BEGIN"):
            return [age.ssh.Identity.from_buffer(data)]
        lines = (line.strip() for line in data.decode("ascii").splitlines())
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (age.IdentityError, UnicodeDecodeError):
        found = []
    if not found:
        raise KeyAccessError(f"{path} holds no identity of age: AGE-SECRET-KEY-..., or an SSH key without a password")
    return found
