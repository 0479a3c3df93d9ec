"""The base of every KMS client: the five methods, the cache of unwrapped keys, retries, and errors.

wrap_key / unwrap_key / generate_key        here: arguments, cache, one call for many threads, retries, errors
    _wrap / _unwrap / _generate             in each client: one call of the service, raising what its SDK raises
    _is_transient, _describe                in each client: which of those faults pass, and what they are called
"""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from urllib.parse import urlsplit

from ags1.core.buffer import BufferView
from ags1.core.gcm import Key
from ags1.errors import KeyAccessError, without_secrets
from ags1.kms.cache import CACHE_SECONDS, KeyCache, name_of_key
from ags1.support.closing import Closing
from ags1.support.secrets import Secret, shows_secret
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")

_ATTEMPTS = 5
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_AES_SIZES = (16, 24, 32)
_LONGEST_CAUSE = 300

TOO_SLOW = "the answer was not complete at the end of all attempts: the service sends too slowly"
DEADLINE: ContextVar[float | None] = ContextVar("until when an answer may arrive, by the monotonic clock", default=None)


class GeneratedKey:
    """A new key that the service generated, and its wrapped form.

    Attributes
    ----------
    key : bytes
        The key itself.
    wrapped_key : bytes
        What ``unwrap_key`` takes.
    """

    __slots__ = ("key", "wrapped_key")

    def __init__(self, key: bytes, wrapped_key: bytes) -> None:
        self.key = key
        self.wrapped_key = wrapped_key

    def __repr__(self) -> str:
        return "ags1.kms.GeneratedKey(key=<redacted>, wrapped_key=<...>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("ags1.kms.GeneratedKey cannot be pickled or copied: it holds a key; send its wrapped_key")


class Refusal(Exception):
    """An error that a client itself detects, such as an unknown key id; its text is the cause in the message."""


class Unusable(Refusal):
    """A Refusal that holds for every key: the service cannot be used, for example with a wrong password."""


class ServiceRefusal(KeyAccessError):
    """The service cannot be reached, or refuses this caller: every other key would fail too."""

    holds_for_all = True


class KeyManagementClient(Closing):
    """Wraps and unwraps keys with master keys that stay in a key management service.

    The methods are those of Iceberg's and PyIceberg's interface. To make a client for another service, derive from
    this class and implement :meth:`_wrap` and :meth:`_unwrap` (and :meth:`_generate`), which make one call each.

    Parameters
    ----------
    cache_seconds : float
        How long an unwrapped key is kept in this process, without another call of the service; 0 keeps none.
    attempts : int
        How often a call is tried before a temporary fault (throttling, the network) is raised.
    clock, sleep : callable
        A monotonic clock in seconds, and a function that waits: for tests.

    Raises
    ------
    KeyAccessError
        From every call: the service is down, throttles, denies access or returns an invalid response, or the key was
        not wrapped with that master key. The message has the service, the key id and the cause, never key material. It
        is a :class:`ServiceRefusal` if every other key would fail too.

    Notes
    -----
    Safe to share between threads; if several request the same key at once, one makes the call. A forked child starts
    with an empty cache and a connection of its own. Cannot be pickled: send its URL or its arguments instead.
    """

    service = "KMS"
    """Name of the service in messages."""

    checks_keys = True
    """Whether what encrypts has each new wrapped key unwrapped, and compared, before anything depends on that key."""

    _connected: Any
    # Seconds to wait for a response; None where nothing is sent.
    _timeout: float | None = None

    def __init__(
        self,
        *,
        cache_seconds: float = CACHE_SECONDS,
        attempts: int = _ATTEMPTS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        # The tables and files that use this client use the same cache: see ags1.kms.key_cache_of.
        self._key_cache = KeyCache(cache_seconds, clock)
        self._attempts = attempts
        self._sleep = sleep
        self._properties: dict[str, str] = {}
        self._closed = False
        self._after_fork()
        _clients.add(self)

    # -- the protocol ----------------------------------------------------------------------------------------

    def initialize(self, properties: Mapping[str, str]) -> None:
        """Take the properties of a catalog. Arguments of the constructor have precedence.

        Parameters
        ----------
        properties : mapping of str to str
            Those of the Iceberg catalog; each client documents the ones that it reads.
        """
        with self._lock:
            self._refuse_closed()
            self._properties = dict(properties)
            self._drop_connection()
            self._key_cache.clear()

    def wrap_key(self, key: Buffer, wrapping_key_id: str) -> bytes:
        """Encrypt a key with a master key.

        Parameters
        ----------
        key : buffer or Key
            The key to wrap; not empty.
        wrapping_key_id : str
            The service's name of the master key.

        Returns
        -------
        bytes
            The wrapped key, in the format of the service.

        Raises
        ------
        KeyAccessError
            As the class says.
        TypeError, ValueError
            A wrong argument, or a closed client.
        """
        # Tracebacks do not show the contents of this object. There must be no other reference to the key.
        secret = _secret(_octets(key, "key"))
        del key
        self._check(wrapping_key_id)
        action = f"wrap a key with {wrapping_key_id!r}"
        wrapped = self._call(lambda: self._wrap(bytes(secret), wrapping_key_id), action, secret)
        return self._require_bytes(wrapped, action)

    def unwrap_key(self, wrapped_key: Buffer, wrapping_key_id: str) -> bytes:
        """Decrypt a wrapped key; a key in the cache needs no call.

        Parameters
        ----------
        wrapped_key : buffer
            The result of :meth:`wrap_key`, here or in Iceberg.
        wrapping_key_id : str
            The service's name of the master key.

        Raises
        ------
        KeyAccessError
            As the class says.
        TypeError, ValueError
            A wrong argument, or a closed client.
        """
        wrapped = _octets(wrapped_key, "wrapped_key")
        self._check(wrapping_key_id)
        name = name_of_key(wrapping_key_id, wrapped)
        return bytes(self._key_cache.get(name, lambda: self._unwrapped(wrapped, wrapping_key_id)))

    def supports_key_generation(self) -> bool:
        """Whether the service generates keys; if not, make one with ``ags1.Key.generate`` and wrap it."""
        return False

    def generate_key(self, wrapping_key_id: str) -> GeneratedKey:
        """Let the service generate a key and wrap it with a master key.

        Raises
        ------
        NotImplementedError
            :meth:`supports_key_generation` returns False.
        KeyAccessError
            As the class says.
        """
        self._check(wrapping_key_id)
        if not self.supports_key_generation():
            raise NotImplementedError(
                f"{self.service} generates no keys: make one with ags1.Key.generate() and wrap it with wrap_key"
            )
        action = f"generate a key with {wrapping_key_id!r}"
        key, wrapped = self._call(lambda: self._generated(wrapping_key_id, action), action)
        if len(key) not in _AES_SIZES:
            raise KeyAccessError(self._message(action, f"the service returned a key of {len(key)} bytes"))
        return GeneratedKey(bytes(key), self._require_bytes(wrapped, action))

    def close(self) -> None:
        """Wipe the cached keys and close the connection. A second call does nothing; any other raises ValueError."""
        with self._lock:
            self._closed = True
            self._key_cache.close()
            self._drop_connection()

    def as_pyarrow(self) -> Any:
        """Make a ``pyarrow.parquet.encryption.KmsClient`` over this client, for PyArrow's ``CryptoFactory``.

        Wrapped keys are the standard base64 of :meth:`wrap_key`'s bytes, as in parquet-java's key tools for services
        that return bytes. `CryptoFactory` needs a function: ``lambda config: client.as_pyarrow()``.

        Raises
        ------
        ImportError
            PyArrow is not installed; names the extra.
        """
        from ags1.kms._pyarrow import pyarrow_client

        return pyarrow_client(self)

    # -- for derived classes ---------------------------------------------------------------------------------

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        raise NotImplementedError

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        raise NotImplementedError

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        raise NotImplementedError

    def _is_transient(self, error: Exception) -> bool:
        """Whether the same call may succeed a moment later, by the rules of the client's SDK."""
        return isinstance(error, (ConnectionError, TimeoutError))

    def _refuses_everything(self, error: Exception) -> bool:
        """Whether every other key would fail too, as with credentials that the service does not know."""
        return False

    def _describe(self, error: Exception) -> str:
        """The cause, for messages."""
        text = str(error)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def _connect(self) -> Any:
        """Make the SDK's client. Called under a lock, once in each process."""
        raise NotImplementedError

    def _hang_up(self, connection: Any) -> None:
        """Release what `_connect` made."""
        close = getattr(connection, "close", None)
        if close is not None:
            close()

    @property
    def _connection(self) -> Any:
        """The SDK's client, made at first use."""
        with self._connecting:
            self._refuse_closed()
            # Another thread may drop it.
            found = self._connected
            if found is None:
                found = self._connected = self._connect()
            return found

    # -- inside ----------------------------------------------------------------------------------------------

    def _after_fork(self) -> None:
        """Start again: a child must not use its parent's keys, locks or connections."""
        self._lock, self._connecting = threading.RLock(), threading.RLock()
        self._connected = None

    def _drop_connection(self) -> None:
        connection, self._connected = self._connected, None
        if connection is not None:
            try:
                self._hang_up(connection)
            except Exception:
                # The connection is not needed any more, so an error while it is closed does not matter.
                pass

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError(f"this {type(self).__name__} is closed")

    def _check(self, key_id: str) -> None:
        if not isinstance(key_id, str):
            raise TypeError(f"wrapping_key_id must be a str, not {type(key_id).__name__}")
        if not key_id:
            raise ValueError("wrapping_key_id must not be empty")
        self._refuse_closed()

    def _unwrapped(self, wrapped: bytes, key_id: str) -> Key | Secret:
        action = f"unwrap a key with {key_id!r}"
        return self._call(lambda: _secret(self._require_bytes(self._unwrap(wrapped, key_id), action)), action)

    def _generated(self, key_id: str, action: str) -> tuple[Key | Secret, bytes]:
        key, wrapped = self._generate(key_id)
        return _secret(self._require_bytes(key, action)), wrapped

    def _call(self, function: Callable[[], T], action: str, secret: Key | Secret | None = None) -> T:
        """Call the service until it responds, a fault is permanent, or all attempts have failed."""
        final: Exception | None = None
        started = time.monotonic()
        deadline = None if self._timeout is None else started + self._timeout * self._attempts
        for attempt in range(1, self._attempts + 1):
            DEADLINE.set(deadline)
            try:
                result = function() if deadline is None else self._until(deadline, function)
                self._log(action, started, attempt)
                return result
            except (KeyAccessError, ImportError, NotImplementedError) as error:
                final = error.with_traceback(None)
                break
            except Exception as error:
                # An error that the client itself detected is permanent, and its text is complete.
                transient = not isinstance(error, Refusal) and self._is_transient(error)
                holds_for_all = (
                    isinstance(error, Unusable)
                    if isinstance(error, Refusal)
                    else transient or self._refuses_everything(error)
                )
                cause = self._cause(error, secret)
            self._refuse_closed()
            if not transient:
                break
            if attempt < self._attempts:
                self._sleep(_pause(attempt))
        # Raised here, outside the handler: the error must not refer to an exception whose text was not checked for
        # keys, nor to a frame that holds the key.
        if final is not None:
            self._log(action, started, attempt, type(final).__name__)
            final.__context__ = final.__cause__ = None
            raise final
        self._log(action, started, attempt, cause)
        if transient and self._attempts > 1:
            cause = f"{cause} (tried {self._attempts} times)"
        raise (ServiceRefusal if holds_for_all else KeyAccessError)(self._message(action, cause))

    def _until(self, deadline: float, function: Callable[[], T]) -> T:
        """Call on a thread that is left alone at the deadline: no SDK limits slow headers, or its own credentials."""
        from ags1.storage import within

        call = copy_context().run
        try:
            # One time-out more: where the service is silent, the SDK says so itself.
            last = deadline + (self._timeout or 0)
            return within(max(0.0, last - time.monotonic()), lambda: call(function))
        except TimeoutError:
            if time.monotonic() < last:
                raise
            # That thread still makes the connection, or uses it.
            self._connected, self._connecting = None, threading.RLock()
            raise Unusable(TOO_SLOW) from None

    def _log(self, action: str, started: float, attempts: int, failure: str | None = None) -> None:
        """Log a call: service, operation, key id, duration, outcome. `failure` has no key material."""
        # Not imported here: before somebody else did, nobody listens.
        logging = sys.modules.get("logging")
        if logging is None:
            return
        logger = logging.getLogger("ags1.kms")
        if not logger.handlers:
            # Without handlers of the program's own, nothing is written, not even a warning on standard error.
            logger.addHandler(logging.NullHandler())
        took = f"{1000 * (time.monotonic() - started):.0f} ms" + (f", {attempts} attempts" if attempts > 1 else "")
        if failure is None:
            logger.info("%s: %s: done in %s", self.service, action, took)
        else:
            logger.warning("%s: %s: failed in %s: %s", self.service, action, took, failure)

    def _cause(self, error: Exception, secret: Key | Secret | None) -> str:
        said = str(error) if isinstance(error, Refusal) else self._describe(error)
        text = " ".join(said.split())
        if secret is not None and (shows_secret(said, bytes(secret)) or shows_secret(text, bytes(secret))):
            # The service's text repeats what was sent to it.
            return f"{type(error).__name__} (its text is left out, because it contains the key)"
        text = without_secrets(text)
        return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]}..."

    def _message(self, action: str, cause: str) -> str:
        return f"{self.service} could not {action}: {cause}"

    def _require_bytes(self, response: object, action: str) -> bytes:
        if not isinstance(response, bytes) or not response:
            kind = "nothing" if response is None or response == b"" else f"{type(response).__name__} instead of bytes"
            raise KeyAccessError(self._message(action, f"the service returned {kind}"))
        return response

    def __repr__(self) -> str:
        return f"<ags1.kms.{type(self).__name__}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: it holds keys and connections; send the URL for "
            "ags1.kms.load, or the arguments, and make another one there"
        )


def bytes_of(response: object, name: str) -> bytes:
    """Return the bytes of a response that have this name, as an item or as an attribute.

    Raises
    ------
    Refusal
        It has none.
    """
    value = response.get(name) if isinstance(response, dict) else getattr(response, name, None)
    if not isinstance(value, bytes) or not value:
        raise Refusal(f"the service returned no {name}")
    return value


def missing_sdk(error: ImportError, client: str, extra: str) -> ImportError:
    """The error for an SDK that is not installed."""
    return ImportError(f"ags1.kms.{client} needs {error.name}: pip install 'ags1[{extra}]'", name=error.name)


def _octets(data: Buffer, name: str) -> bytes:
    if isinstance(data, str):
        raise TypeError(f"{name} must be a bytes-like object, not str")
    BufferView(data).release()
    octets = data if isinstance(data, bytes) else memoryview(data).tobytes()
    if not octets:
        raise ValueError(f"{name} must not be empty")
    return octets


def _secret(octets: bytes) -> Key | Secret:
    """Wrap a secret so that tracebacks do not show it."""
    return Key(octets) if len(octets) in _AES_SIZES else Secret(octets)


def _pause(attempt: int) -> float:
    """Seconds before the next attempt: doubling and random, so that clients do not retry at the same moment."""
    longest: float = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE)
    return longest * (0.5 + int.from_bytes(os.urandom(2), "big") / 131072)


_clients: weakref.WeakSet[KeyManagementClient] = weakref.WeakSet()


def _renew_clients() -> None:
    for client in list(_clients):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_clients)


def checked_url(url: str, name: str) -> str:
    """Return the address if keys may be sent to it.

    Raises
    ------
    ValueError
        It is not an https or http URL, it contains a password, or it is http to another machine, which would send keys
        unencrypted.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{name} must be a URL such as https://host:port")
    if parts.password is not None or parts.username is not None:
        raise ValueError(f"{name} must not contain a user or password: other users could read them")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError(f"{name} is {without_secrets(url)}: http would send keys unencrypted; use https")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
