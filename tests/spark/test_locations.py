"""Names of trees: what they mean, what Spark's configuration adds to them, and that no credential shows."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ags1.spark.engine import locations
from ags1.spark.engine.locations import locate
from ags1.storage import Location, inside

SECRET = "wJalr/XUtnFEMI"


class Conf:
    """What a session's configuration is to us."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("__", "."): value for name, value in settings.items()}

    @property
    def getAll(self) -> dict[str, str]:
        return self.settings


def spark(settings: dict[str, str]) -> Any:
    conf = Conf()
    conf.settings = settings
    return SimpleNamespace(conf=conf)


# -- local ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/a/b", "/a/b/", "file:/a/b", "file:///a/b", "file://localhost/a/b", "/a/./c/../b"])
def test_local_names_become_one_absolute_path(name: str) -> None:
    location = locate(name)
    assert (location.path, location.text, location.is_local) == ("/a/b", "/a/b", True)
    assert location.join("c/d").path == "/a/b/c/d"


def test_relative_names_are_of_the_drivers_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("x/y").path == str(tmp_path / "x/y")
    assert locate(Path("x/y")).path == str(tmp_path / "x/y")
    # A path object is a path, whatever is in it; a name with a colon is no URL.
    assert locate(Path("s3:x")).path == str(tmp_path / "s3:x")
    assert locate("a:b").path == str(tmp_path / "a:b")
    assert locate("./a::b").path == str(tmp_path / "a::b")


def test_the_root_directory_is_a_tree_too() -> None:
    assert locate("/").join("a").path == "/a"


@pytest.mark.parametrize(
    ("outer", "inner", "where"),
    [
        ("/a", "/a/b/c", "b/c"),
        ("/a", "/a", ""),
        ("/a/b", "/a", None),
        ("/a", "/ab", None),
        ("/", "/a", "a"),
        ("s3://b/x", "s3a://b/x/y", "y"),
        ("s3://b", "s3a://b/x/y", "x/y"),
        ("s3://b/x", "s3://b/xy", None),
        ("s3://b/x", "s3://c/x/y", None),
        ("s3://b/x", "/x/y", None),
    ],
)
def test_it_is_known_which_tree_lies_in_which(outer: str, inner: str, where: str | None) -> None:
    assert inside(locate(outer), locate(inner)) == where


def test_a_link_does_not_hide_that_a_tree_lies_in_another(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert inside(locate(tmp_path / "a"), locate(tmp_path / "link" / "b")) == "b"


def test_dbfs_is_where_databricks_mounts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "_DBFS", str(tmp_path))
    assert locate("dbfs:/a/b").path == str(tmp_path / "a/b")
    assert locate("dbfs:///a/b").path == str(tmp_path / "a/b")
    monkeypatch.setattr(locations, "_DBFS", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match="where Databricks mounts dbfs:, is not there"):
        locate("dbfs:/a/b")


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("", ValueError, "is empty"),
        (b"data", TypeError, "not by bytes"),
        (None, TypeError, "not by NoneType"),
        ("s3:/bucket/x", ValueError, "write s3://"),
        ("abfss:data", ValueError, "write abfss://"),
        ("s3://", ValueError, "names no bucket"),
        ("file://elsewhere/x", ValueError, "on the host elsewhere"),
        ("simplecache::s3://bucket/x", ValueError, "chained"),
        ("a::b", ValueError, "begins with ./"),
        ("zip://a.csv::s3://bucket/x", ValueError, "chained"),
    ],
)
def test_names_that_mean_nothing_are_refused(name: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        locate(name)


@pytest.mark.parametrize(
    "name",
    [
        f"s3://AKIA:{SECRET}@bucket/x",
        "s3a://AKIA:simple@bucket/x",
        f"hdfs://user:{SECRET.replace('/', '')}@host/x",
        "gs://user:simple@bucket/x",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ValueError, match="has a user name and a password in it") as caught:
        locate(name)
    for part in ("AKIA", "wJalr", "XUtn", "simple", "user:"):
        assert part not in str(caught.value)


# -- remote --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_every_name_of_s3_is_s3_and_rows_show_what_was_written(scheme: str) -> None:
    location = locate(f"{scheme}://bucket/a/b@2::3/")
    assert (location.container, location.path, location.scheme) == ("bucket", "a/b@2::3", "s3")
    assert location.storage_options == {}
    assert location.join("c").text == f"{scheme}://bucket/a/b@2::3/c"


def test_s3_takes_its_settings_from_sparks_configuration() -> None:
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "minio:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": "AKIA",
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.hadoop.fs.s3a.session.token": "passing",
        "spark.hadoop.fs.s3a.bucket.other.access.key": "OTHER",
        "spark.hadoop.fs.s3a.bucket.other.endpoint": "https://other.example/",
    }
    location = locate("s3a://bucket/x", spark(settings))
    prefix = "spark.hadoop."
    assert location.storage_options == {
        name.removeprefix(prefix): value for name, value in settings.items() if ".bucket." not in name
    }
    assert pickle.loads(pickle.dumps(location)) == location
    other = locate("s3a://other/x", spark(settings)).storage_options
    assert other["fs.s3a.access.key"] == "OTHER"
    assert (other["fs.s3a.secret.key"], other["fs.s3a.endpoint"]) == (SECRET, "https://other.example/")


def test_the_client_of_a_bucket_is_made_of_these_settings() -> None:
    from ags1.storage import status

    settings = {"endpoint": "127.0.0.1:1", "connection.ssl.enabled": "false", "path.style.access": "true"}
    settings |= {"access.key": "AKIA", "secret.key": SECRET, "endpoint.region": "eu-west-1"}
    location = locate("s3a://bucket/x", spark({f"fs.s3a.{name}": value for name, value in settings.items()}))
    place = Location(location, {"max_retries": 0, "retry_seconds": 1})
    # Nothing answers there: it was the endpoint that was asked, by plain HTTP.
    with pytest.raises(OSError, match="s3a://bucket/x") as caught:
        status(place)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"endpoint": "minio:9000"}, {"fs.s3a.endpoint": "minio:9000"}),
        (
            {"endpoint": "s3.amazonaws.com", "endpoint.region": "sdk", "path.style.access": "false"},
            {"fs.s3a.path.style.access": "false"},
        ),
        ({"access.key": "only half"}, {}),
        ({"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
         {"skip_signature": True}),
    ],
)  # fmt: skip
def test_what_is_not_set_is_left_to_the_machine(settings: dict[str, str], expected: Any) -> None:
    conf = spark({f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()})
    assert locate("s3://bucket/x", conf).storage_options == expected


def test_what_the_session_sets_wins_and_a_refused_setting_is_none() -> None:
    conf = spark({"fs.s3a.endpoint": "https://session", "spark.hadoop.fs.s3a.endpoint": "https://cluster"})
    assert locate("s3://bucket/x", conf).storage_options == {"fs.s3a.endpoint": "https://session"}

    class Refusing:
        @property
        def getAll(self) -> Any:
            raise PermissionError

    assert locate("s3://bucket/x", SimpleNamespace(conf=Refusing())).storage_options == {}


def test_azure_and_google_take_their_keys_from_sparks_configuration() -> None:
    host = "lake.dfs.core.windows.net"
    conf = spark(
        {
            f"spark.hadoop.fs.azure.account.key.{host}": SECRET,
            "spark.hadoop.google.cloud.auth.service.account.json.keyfile": "/keys/g.json",
        }
    )
    for name in (f"abfss://data@{host}/x/y", f"abfs://data@{host}/x/y", "wasbs://data@lake.blob.core.windows.net/x/y"):
        location = locate(name, conf)
        assert (location.scheme, location.container, location.path) == ("abfss", f"data@{host}", "x/y")
        assert location.storage_options == {"account_key": SECRET}
    assert locate("abfs://data/x").storage_options == {}
    google = locate("gs://bucket/x", conf)
    assert (google.scheme, google.container, google.path) == ("gs", "bucket", "x")
    assert google.storage_options == {"service_account_path": "/keys/g.json"}


def test_no_repr_shows_a_credential() -> None:
    conf = spark({"spark.hadoop.fs.s3a.access.key": "AKIA", "spark.hadoop.fs.s3a.secret.key": SECRET})
    assert repr(locate("s3://bucket/x", conf)) == "Location('s3://bucket/x')"


def test_other_file_systems_are_fsspecs() -> None:
    pytest.importorskip("fsspec")
    assert locate("memory://lake/x/").join("y").text == "memory://lake/x/y"
    for name in ("hdfs://node:8020/a/b", "hdfs://node:8020/a/b/"):
        hadoop = locate(name)
        assert (hadoop.scheme, hadoop.is_object, hadoop.is_local) == ("hdfs", False, False)
        assert hadoop.join("c").text == "hdfs://node:8020/a/b/c"
    assert locate("hdfs:/a/b").text == "hdfs:///a/b"
