"""Work that goes to its tasks unsealed: no secret of the storage goes along.

Jobs that know no master key cannot seal. Their tasks use the credentials that their machines have; where the
environment has none, a job with secret settings is refused, and its error says how they are sealed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from ags1.spark.engine.captured import use_environment
from ags1.storage import Location

# In the names that Hadoop, obstore and PyIceberg have for options of a storage.
_SECRET = re.compile(
    r"access.key|account.key|secret|token|sas|credential|connection.string|passw|header", re.IGNORECASE
)
# A user and a password, as in the URL of a proxy.
_USER = re.compile(r"//[^/@]*:[^/@]*@")
_REMEDY = "give kms and transfer_key_id, a master key under which they are sealed for the tasks"


def has_secrets(options: Mapping[str, Any]) -> bool:
    """Whether some options of a storage are secrets."""
    return any(_is_secret(name, value) for name, value in options.items())


def _is_secret(name: str, value: Any) -> bool:
    return _SECRET.search(name) is not None or _USER.search(str(value)) is not None


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a storage that may be sent unsealed.

    PermissionError: there are others, and the environment of this process has no credentials in place of them.
    """
    secrets = [name for name, value in options.items() if _is_secret(name, value)]
    if secrets:
        use_environment(secrets[0], _REMEDY)
    return {name: value for name, value in options.items() if name not in secrets}


def unsealed(work: Any) -> bytes:
    """Pickle work, whose locations lose their secrets. PermissionError: as for :func:`without_secrets`."""
    from pyspark.cloudpickle import CloudPickler

    class Pickler(CloudPickler):  # type: ignore[misc, unused-ignore]
        def reducer_override(self, each: Any) -> Any:
            if isinstance(each, Location) and has_secrets(each.storage_options):
                return Location, (each.text, without_secrets(each.storage_options))
            return super().reducer_override(each)

    made = io.BytesIO()
    Pickler(made).dump(work)
    return made.getvalue()
