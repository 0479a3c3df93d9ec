"""What ``register(spark)`` takes along of a session, because Spark plans reads and writes where no setting is seen.

driver   capture(spark, kms, key_id)     open settings as they are, secret ones sealed under the KMS
worker   locate(name, captured)          one call to the KMS in each process, if there is something sealed
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ags1.spark.engine.sealing import Opener, Sealer, kms_reference, of_process

_LABEL = "settings of a session"
_OPEN = re.compile(
    r"fs\.s3a\.(bucket\..+\.)?"
    r"(endpoint|endpoint\.region|connection\.ssl\.enabled|path\.style\.access|aws\.credentials\.provider)"
    r"|google\.cloud\.auth\.service\.account\.json\.keyfile"
)
_SECRET = re.compile(r"fs\.s3a\.(bucket\..+\.)?(access\.key|secret\.key|session\.token)|fs\.azure\.account\.key\..+")
# Where clients of these stores find credentials without a session.
_ELSEWHERE = {
    "azure|adls|account|sas": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_ID"),
    "gcs|google": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),
    "": (
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
}
_log = logging.getLogger("ags1.spark")
_warned_of: set[tuple[int, str]] = set()


@dataclass(frozen=True)
class CapturedSession:
    """Settings of a session when it was captured. It has no secret in clear, and can be pickled.

    Attributes
    ----------
    settings : tuple of (str, str)
        Hadoop's settings of the storage that are no secrets, without ``spark.hadoop.``.
    withheld : frozenset of str
        Names of secret settings that nobody sealed.
    sealed : bytes
        The secret settings, for `opener`.
    """

    settings: tuple[tuple[str, str], ...] = ()
    withheld: frozenset[str] = frozenset()
    sealed: bytes = field(default=b"", repr=False)
    opener: Opener | None = field(default=None, repr=False, compare=False)

    def get(self, name: str) -> str | None:
        """A setting of the storage, for this process only.

        PermissionError: it is a secret that was not sealed, and the environment of this process has none either.
        """
        found = dict(self.settings).get(name)
        if found is not None or _SECRET.fullmatch(name) is None:
            return found
        if name in self.withheld:
            use_environment(name, "seal it with ags1.spark.register(spark, kms=URL, key_id=MASTER_KEY)")
            return None
        return self._secrets().get(name)

    def _secrets(self) -> Mapping[str, str]:
        if self.opener is None:
            return {}
        opener = self.opener
        found: Mapping[str, str] = of_process(
            (_LABEL, self.sealed), lambda: json.loads(opener.open(self.sealed, _LABEL))
        )
        return found


def use_environment(name: str, remedy: str) -> None:
    """Say that the credentials of the environment are used, and not a secret setting, which nobody has sealed.

    PermissionError: this process's environment has none. The message has the remedy.
    """
    names = next(names for words, names in _ELSEWHERE.items() if re.search(words, name))
    other = next((each for each in names if os.environ.get(each)), None)
    if other is None:
        raise PermissionError(
            f"the session has the secret setting {name}, which does not go to tasks unsealed: {remedy}; or set the "
            f"credentials in the environment of the driver and of all executors ({', '.join(names)}); or leave the "
            "setting out, if the machines have a role"
        )
    if (os.getpid(), name) not in _warned_of:
        _warned_of.add((os.getpid(), name))
        _log.warning("%s names the credentials that are used here, not the session's %s", other, name)


def capture(spark: Any, kms: str | None = None, key_id: str | None = None) -> CapturedSession:
    """Capture a session; secrets only with a KMS and the master key that is to protect them.

    ValueError: only one of `kms` and `key_id`. KeyAccessError: the KMS refused.
    """
    if (kms is None) != (key_id is None):
        raise ValueError("give kms and key_id together: the master key seals the session's secrets for its tasks")
    found = settings_of(spark)
    secrets = {name: value for name, value in found.items() if _SECRET.fullmatch(name)}
    sealed, opener = b"", None
    if kms is not None and key_id is not None:
        sealer = Sealer.create(kms_reference(kms), key_id)
        sealed, opener = sealer.seal(json.dumps(secrets).encode(), _LABEL), sealer.opener
    return CapturedSession(
        tuple(sorted((name, value) for name, value in found.items() if _OPEN.fullmatch(name))),
        frozenset(secrets) if opener is None else frozenset(),
        sealed,
        opener,
    )


def settings_of(spark: Any) -> dict[str, str]:
    """All settings of a session, if there is one; its own win over those with the prefix ``spark.hadoop.``."""
    if spark is None:
        return {}
    try:
        found = {name: str(value).strip() for name, value in spark.conf.getAll.items() if value is not None}
    except Exception:
        # Some hosted Spark services do not show their settings. The machine's own apply then.
        return {}
    hadoop = "spark.hadoop."
    below = {name.removeprefix(hadoop): value for name, value in found.items() if name.startswith(hadoop)}
    return {name: value for name, value in {**below, **found}.items() if value}
