"""Master keys in a local file, protected by a password or a key file."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ags1.core.gcm import Key
from ags1.core.typing import KeyLike
from ags1.errors import KeyAccessError
from ags1.kms import keystore
from ags1.kms.base import KeyManagementClient, Refusal, Unusable
from ags1.kms.keystore import check_key_id as check_key_id
from ags1.kms.memory import MemoryKms, open_wrapped, seal_wrapped, unknown_key
from ags1.support.arguments import spelled
from ags1.support.key_files import parse_key, read_key_file
from ags1.support.secrets import Secret
from ags1.support.typing import Any

Path = str | os.PathLike[str]

PASSWORD_VARIABLE = "AGS1_KMS_PASSWORD"
_LOOK = ": look for the one that has the keys; a new one would have others"
_ICEBERG_PASSWORD_VARIABLE = "KEYSTORE_PASSWORD"
_ICEBERG_PATH_PROPERTY = "kms.client.keystore.path"


class LocalKms(KeyManagementClient):
    """A KMS in a file: for a laptop, for tests, for users without a key management service.

    Keys are wrapped as :class:`~ags1.kms.MemoryKms` does. A PKCS12 keystore, as Iceberg's ``KeyStoreKmsClient`` uses
    and Java's ``keytool -genseckey`` writes, is read too (extra "kms"); its key ids are lower case, and it cannot be
    changed from here.

    Parameters
    ----------
    path : path, optional
        The keystore that :meth:`create` made. Otherwise the property ``kms.client.keystore.path`` names it.
    password : str or bytes, optional
        The password of the keystore. Without any of these three arguments it comes from the variable
        ``AGS1_KMS_PASSWORD``, and for PKCS12 from ``KEYSTORE_PASSWORD``, as in Iceberg.
    password_file : path, optional
        A file with the password; a line end after it is ignored.
    key_file : path, optional
        A file with a key, as ``ags1 keygen`` writes it, for a keystore that a key file protects.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.

    Notes
    -----
    The file is read at first use, and again after a change, so that keys which another process added are found. The
    keys are as safe as the password is strong: a guess costs 128 MiB and some tenths of a second.
    """

    service = "LocalKms"

    def __init__(
        self,
        path: Path | None = None,
        *,
        password: str | bytes | None = None,
        password_file: Path | None = None,
        key_file: Path | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._path = None if path is None else os.fspath(path)
        self._given = _Given(password, password_file, key_file)
        # A secret that failed to open a version of the file is remembered: a guess costs tenths of a second or more.
        self._refused: tuple[tuple[int, ...], Secret, str] | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        keys: Mapping[str, KeyLike] | None = None,
        *,
        password: str | bytes | None = None,
        password_file: Path | None = None,
        key_file: Path | None = None,
        **common: Any,
    ) -> LocalKms:
        """Make a new keystore that only its owner can read, and return a client for it.

        Parameters
        ----------
        path : path
            A file that does not exist yet.
        keys : mapping of str to key, optional
            Its first keys; :meth:`add_key` makes more.
        password, password_file, key_file, **common
            As :class:`LocalKms`.

        Raises
        ------
        FileExistsError
            The file exists.
        KeyAccessError
            No password or key file was given.
        OSError
            It cannot be written.
        """
        client = cls(path, password=password, password_file=password_file, key_file=key_file, **common)
        first = _as_keys(keys)
        # The frames of a later exception must not hold these keys.
        del keys, password
        client.make(first)
        return client

    def make(self, keys: Mapping[str, KeyLike] | None = None) -> None:
        """Make the keystore at the path of this client; as :meth:`create`."""
        first = _as_keys(keys)
        del keys
        for key_id in first:
            check_key_id(key_id)
        file = self._call(lambda: self._file, "make a keystore")
        protection = self._call(self._given.protect, "make a keystore")
        with _alone(file):
            if os.path.lexists(file):
                raise FileExistsError(errno.EEXIST, "it exists and was not replaced: its keys would be lost", file)
            self._write({key_id: (key,) for key_id, key in first.items()}, protection)

    def add_key(self, key_id: str, key: KeyLike | None = None, *, bits: int = 256) -> None:
        """Add a master key; by default a fresh random one.

        Parameters
        ----------
        key_id : str
            Its name: 1 to 1024 characters, without control characters.
        key : key, optional
            16, 24 or 32 bytes.
        bits : int
            Size of a fresh key: 128, 192 or 256.

        Raises
        ------
        KeyAccessError
            A key with this id exists already, or the keystore cannot be opened.
        OSError
            It cannot be written; the old file stays as it is.
        """
        check_key_id(key_id)
        added = Key.generate(bits) if key is None else key if isinstance(key, Key) else Key(key)
        del key
        with self._changing(f"add the key {key_id!r}") as store:
            if key_id in store.keys:
                raise KeyAccessError(f"{self._file} has a key {key_id!r} already: what it wrapped would be lost")
            self._write({**store.keys, key_id: (added,)}, store.protection)

    def rotate_key(self, key_id: str, *, bits: int = 256) -> int:
        """Give a master key a fresh version: it wraps from now on, and the older ones still unwrap what they wrapped.

        Parameters
        ----------
        key_id : str
            A key of this keystore.
        bits : int
            Size of the new version: 128, 192 or 256.

        Returns
        -------
        int
            How many versions the key has now.

        Raises
        ------
        KeyAccessError
            There is no such key, or the keystore cannot be opened.
        OSError
            It cannot be written; the old file stays as it is.
        """
        fresh = Key.generate(bits)
        action = f"rotate the key {key_id!r}"
        with self._changing(action) as store:
            versions = (fresh, *self._call(lambda: _versions(store, key_id), action))
            self._write({**store.keys, key_id: versions}, store.protection)
        return len(versions)

    def remove_key(self, key_id: str, *, old_versions: bool = False) -> int:
        """Destroy a master key: what it wrapped can't be unwrapped any more, and no data below it be read.

        Other copies of the file keep the key: destroy those, or what opens them, too.

        Parameters
        ----------
        key_id : str
            A key of this keystore.
        old_versions : bool
            Destroy only the versions that :meth:`rotate_key` replaced. What they wrapped must have been wrapped again.

        Returns
        -------
        int
            How many versions were destroyed; 0 if there are no old ones.

        Raises
        ------
        KeyAccessError
            There is no such key, or the keystore cannot be opened.
        OSError
            It cannot be written; the old file stays as it is.
        """
        action = f"remove the key {key_id!r}"
        with self._changing(action) as store:
            versions = self._call(lambda: _versions(store, key_id), action)
            kept = versions[:1] if old_versions else ()
            if kept != versions:
                self._write(_without(store.keys, key_id, kept), store.protection)
                self._key_cache.clear()
        return len(versions) - len(kept)

    def without(self, key_id: str, *, old_versions: bool = False) -> MemoryKms:
        """Make a client that has all keys but those that :meth:`remove_key` would destroy, to see what needs them.

        Raises
        ------
        KeyAccessError
            There is no such key, or the keystore cannot be opened.
        """
        action = f"look at the key {key_id!r}"
        store = self._call(self._load, action)
        versions = self._call(lambda: _versions(store, key_id), action)
        return MemoryKms({**_without(store.keys, key_id, versions[:1] if old_versions else ())})

    def list_keys(self) -> list[str]:
        """The key ids, in order; the whole file is authenticated first.

        Raises
        ------
        KeyAccessError
            The keystore cannot be opened.
        """
        return sorted(self.key_versions())

    def key_versions(self) -> dict[str, int]:
        """How many versions each key has, by its id.

        Raises
        ------
        KeyAccessError
            The keystore cannot be opened.
        """
        return {key_id: len(versions) for key_id, versions in self._call(self._load, "list its keys").keys.items()}

    def rotate_password(
        self,
        password: str | bytes | None = None,
        *,
        password_file: Path | None = None,
        key_file: Path | None = None,
    ) -> int:
        """Change the password or key file of the keystore. The master keys stay the same.

        An old copy of the file can still be opened with the old password. Of several secrets, the one that this client
        has is changed, and the others go on opening the file; whoever has an older copy and the old password can open
        the new file too, until :meth:`keep_one_secret`.

        Parameters
        ----------
        password, password_file, key_file
            One of them: the new password, or the key file.

        Returns
        -------
        int
            How many secrets open the keystore now.

        Raises
        ------
        KeyAccessError
            The keystore cannot be opened.
        OSError
            It cannot be written; the old file stays as it is.
        """
        given = _Given(password, password_file, key_file, needed="a new password")
        del password
        protection = self._call(given.protect, "change its password")
        with self._changing("change its password") as store:
            assert store.protection is not None
            changed = store.protection.replacing(protection)
            self._write(store.keys, changed)
            self._given = given
        return changed.count

    def add_secret(
        self,
        password: str | bytes | None = None,
        *,
        password_file: Path | None = None,
        key_file: Path | None = None,
    ) -> int:
        """Add a password or key file that opens the keystore by itself, such as one in a safe for an emergency.

        Parameters
        ----------
        password, password_file, key_file
            One of them. At most eight secrets open a keystore, and four of them can be passwords.

        Returns
        -------
        int
            How many secrets open the keystore now.

        Raises
        ------
        KeyAccessError
            The keystore cannot be opened, or has too many secrets.
        OSError
            It cannot be written; the old file stays as it is.
        """
        given = _Given(password, password_file, key_file, needed="another password")
        del password
        action = "add a secret"
        protection = self._call(given.protect, action)
        with self._changing(action) as store:
            before = store.protection
            assert before is not None
            added = self._call(lambda: before.adding(protection), action)
            self._write(store.keys, added)
        return added.count

    def keep_one_secret(self) -> int:
        """Let the secret of this client alone open the keystore; return how many others were removed.

        Copies of the file from before still open with them.

        Raises
        ------
        KeyAccessError
            The keystore cannot be opened.
        OSError
            It cannot be written; the old file stays as it is.
        """
        action = "remove the other secrets"
        with self._changing(action) as store:
            assert store.protection is not None
            removed = store.protection.count - 1
            if removed:
                self._write(store.keys, self._call(self._given.protect, action))
        return removed

    def close(self) -> None:
        """Wipe the master keys and the cached ones."""
        super().close()
        self._given = _Given(None, None, None)
        self._refused = None

    # -- inside ----------------------------------------------------------------------------------------------

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        return seal_wrapped(key, _versions(self._load(f"; {spelled('LocalKms.create')} makes a new one"), key_id)[0])

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        return open_wrapped(wrapped, *_versions(self._load(), key_id))

    def _is_transient(self, error: Exception) -> bool:
        return False

    @property
    def _file(self) -> str:
        path = self._path if self._path is not None else self._properties.get(_ICEBERG_PATH_PROPERTY)
        if path is None:
            raise Unusable(f"no keystore was given: set its path, or the property {_ICEBERG_PATH_PROPERTY}")
        return path

    def _load(self, remedy: str = "") -> _Store:
        """The opened keystore, read again if the file has changed; `remedy` ends the message if there is no file.

        A new keystore opens nothing that exists, so it is the remedy only where something new is made.
        """
        with self._lock:
            self._refuse_closed()
            file = self._file
            try:
                found = _mark(os.stat(file))
                store: _Store | None = self._connected
                if store is None or store.mark != found:
                    with open(file, "rb") as stream:
                        found = _mark(os.fstat(stream.fileno()))
                        data = stream.read(keystore.LARGEST + 1)
                    store = self._connected = self._opened(data, found)
            except OSError as error:
                text = f"the keystore {file} cannot be read: {error.strerror}"
                if error.errno == errno.ENOENT:
                    where = "" if os.path.isabs(file) else f", which is {os.path.abspath(file)} from this directory"
                    text = f"there is no keystore {file}{where}{remedy or _LOOK}"
                raise Unusable(text) from None
            except Refusal as error:
                raise Unusable(f"the keystore {file} cannot be opened: {error}") from None
            return store

    def _opened(self, data: bytes, mark: tuple[int, ...]) -> _Store:
        is_pkcs12 = data[:1] == b"\x30"
        key = None if is_pkcs12 else self._given.key()
        variables = (PASSWORD_VARIABLE, *((_ICEBERG_PASSWORD_VARIABLE,) if is_pkcs12 else ()))
        password = None if key is not None else self._given.password(*variables)
        if is_pkcs12 and password is None:
            raise Refusal(f"it is protected by a password: give one, or set {_ICEBERG_PASSWORD_VARIABLE}")
        tried = bytes(key) if key is not None else password.encode() if isinstance(password, str) else password or b""
        refused = self._refused
        if refused is not None and refused[0] == mark and bytes(refused[1]) == tried:
            raise Refusal(refused[2])
        try:
            if is_pkcs12:
                from ags1.kms.pkcs12 import secret_keys

                assert password is not None
                return _Store({key_id: (key,) for key_id, key in secret_keys(data, password).items()}, None, mark)
            protection = keystore.Protection.of(data, password=password, key=key)
            return _Store(keystore.parse(data, protection), protection, mark)
        except Refusal as error:
            self._refused = (mark, Secret(tried), str(error))
            raise

    @contextlib.contextmanager
    def _changing(self, action: str) -> Iterator[_Store]:
        """Hold the lock of the keystore, so that no change of another process is lost."""
        file = self._call(lambda: self._file, action)
        with self._lock, _alone(file):
            store = self._call(self._load, action)
            if store.protection is None:
                raise KeyAccessError(
                    f"{file} is a PKCS12 keystore and is only read here: change it with Java's keytool"
                )
            yield store

    def _write(self, keys: Mapping[str, tuple[Key, ...]], protection: keystore.Protection | None) -> None:
        from ags1.storage import AtomicFile

        assert protection is not None
        with AtomicFile(self._file, mode=0o600) as output:
            output.write(keystore.serialize(keys, protection))
            mark = _mark(os.fstat(output.descriptor))
            output.commit(durable=True)
        with self._lock:
            self._connected = _Store(dict(keys), protection, mark)


class _Store(NamedTuple):
    """An opened keystore: the versions of each key, the newest first. `protection` is None for a PKCS12 keystore."""

    keys: dict[str, tuple[Key, ...]]
    protection: keystore.Protection | None
    mark: tuple[int, ...]


def _versions(store: _Store, key_id: str) -> tuple[Key, ...]:
    found = store.keys.get(key_id if store.protection is not None else key_id.lower())
    if found is None:
        raise unknown_key(store.keys)
    return found


def _without(keys: Mapping[str, tuple[Key, ...]], key_id: str, kept: tuple[Key, ...]) -> dict[str, tuple[Key, ...]]:
    """The keys, and of one of them only these versions; the id goes with the last one."""
    return {each: kept if each == key_id else versions for each, versions in keys.items() if each != key_id or kept}


class _Given:
    """The secret of the user, or its file; a file is read when it is needed, and its content is not kept."""

    __slots__ = ("_key_file", "_password", "_password_file")

    def __init__(
        self, password: str | bytes | None, password_file: Path | None, key_file: Path | None, needed: str = ""
    ) -> None:
        count = sum(each is not None for each in (password, password_file, key_file))
        if count > 1:
            raise ValueError(f"give one of password, {spelled('password_file')} and {spelled('key_file')}")
        if needed and not count:
            file, key = spelled("password_file"), spelled("key_file")
            raise ValueError(f"{needed} is needed, as password or {file}, or a {key}")
        self._password = password
        self._password_file = password_file
        self._key_file = key_file

    def password(self, *variables: str) -> str | bytes | None:
        found = self._password
        if self._password_file is not None:
            found = _read_secret(self._password_file, "password file")
            found = found.removesuffix(b"\n").removesuffix(b"\r")
            with contextlib.suppress(UnicodeDecodeError):
                found = found.decode()
        elif found is None and self._key_file is None:
            found = next((os.environ[name] for name in variables if os.environ.get(name)), None)
        if found is not None and not found:
            raise Refusal("the password is empty")
        return found

    def key(self) -> Key | None:
        if self._key_file is None:
            return None
        data, where = _read_secret(self._key_file, "key file"), f"the key file {os.fspath(self._key_file)}"
        try:
            return Key(parse_key(data, where, note=lambda _: None))
        except KeyAccessError as error:
            raise Refusal(str(error)) from None

    def protect(self) -> keystore.Protection:
        if self._key_file is not None and not os.path.lexists(self._key_file):
            name = os.fspath(self._key_file)
            raise Refusal(f"there is no key file {name}: `ags1 keygen {shlex.quote(name)}` makes one")
        key = self.key()
        if key is not None:
            return keystore.Protection.by_key(key)
        password = self.password(PASSWORD_VARIABLE)
        if password is None:
            raise Refusal(
                f"it needs a password, as {spelled('password_file')} or in {PASSWORD_VARIABLE}, or a "
                f"{spelled('key_file')}"
            )
        return keystore.Protection.by_password(password)


def _read_secret(path: Path, kind: str) -> bytes:
    try:
        return read_key_file(os.fspath(path), kind)[0]
    except KeyAccessError as error:
        raise Refusal(str(error)) from None


def _as_keys(keys: Mapping[str, KeyLike] | None) -> dict[str, Key]:
    return {key_id: key if isinstance(key, Key) else Key(key) for key_id, key in (keys or {}).items()}


def _mark(found: os.stat_result) -> tuple[int, ...]:
    """Identifies a version of the file; each version is a new file."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """Lock the directory, so that no other process changes its keystores."""
    directory = os.path.dirname(os.path.realpath(path))
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, path) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
