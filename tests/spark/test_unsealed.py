"""What goes to tasks unsealed has no secret of a storage, whatever its options are called."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

pytest.importorskip("pyspark")

from ags1.spark.engine import captured
from ags1.spark.engine.unsealed import has_secrets, unsealed, without_secrets
from ags1.storage import Location
from tests.checks import every

OPEN = {
    "fs.s3a.endpoint": "http://127.0.0.1:9000",
    "fs.s3a.endpoint.region": "eu-central-1",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.connection.ssl.enabled": "false",
    "skip_signature": True,
    "service_account_path": "/keys/lake.json",
    "s3.region": "eu-central-1",
    "s3.force-virtual-addressing": "true",
    "adls.account-name": "lake",
    "adls.tenant-id": "1234",
    "ags1.allowed-locations": '["abfss://raw@lake.dfs.core.windows.net/t"]',
}
SECRET = {
    "fs.s3a.access.key": "AWS_PROFILE",
    "fs.s3a.secret.key": "AWS_PROFILE",
    "fs.s3a.session.token": "AWS_PROFILE",
    "secret_access_key": "AWS_PROFILE",
    "s3.secret-access-key": "AWS_PROFILE",
    "client.session-token": "AWS_PROFILE",
    "account_key": "AZURE_CLIENT_ID",
    "adls.sas-token": "AZURE_CLIENT_ID",
    "adls.client-secret": "AZURE_CLIENT_ID",
    "adls.connection-string": "AZURE_CLIENT_ID",
    "gcs.oauth2.token": "GOOGLE_APPLICATION_CREDENTIALS",
    "header.Authorization": "AWS_PROFILE",
}


@dataclass
class Nested:
    """Work with work in it."""

    source: Location
    inner: object = None


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in captured._ELSEWHERE.values():
        for each in names:
            monkeypatch.delenv(each, raising=False)


def test_options_that_are_no_secrets_go_along() -> None:
    assert not has_secrets(OPEN)
    assert without_secrets(OPEN) == OPEN
    found = pickle.loads(unsealed(Nested(Location("s3://lake/a", OPEN))))
    assert (found.source.text, found.source.storage_options) == ("s3://lake/a", OPEN)


@every("name", SECRET)
def test_a_secret_is_refused_or_stays_where_the_environment_has_another(name: str) -> None:
    options = {**OPEN, name: "hidden"}
    work = Nested(Location("s3://lake/a"), Nested(Location("s3://lake/b", options)))
    assert has_secrets(options)
    with pytest.raises(
        PermissionError, match=f"the secret setting {name}, .*{SECRET[name]}.*machines have a role"
    ) as caught:
        unsealed(work)
    assert "hidden" not in str(caught.value)
    with pytest.MonkeyPatch.context() as there:
        there.setenv(SECRET[name], "lake")
        data = unsealed(work)
    assert b"hidden" not in data
    assert pickle.loads(data).inner.source.storage_options == OPEN


def test_a_password_in_the_url_of_a_proxy_is_a_secret() -> None:
    assert has_secrets({"proxy_url": "http://me:hidden@proxy:3128"})
    assert not has_secrets({"proxy_url": "http://proxy:3128"})
