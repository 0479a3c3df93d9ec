"""Names of trees: what they mean, what Spark's configuration adds to them, and that no credential shows."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ags1.spark import _locations
from ags1.spark._locations import Location, locate
from tests.checks import in_child

SECRET = "wJalr/XUtnFEMI"


class Conf:
    """What a session's configuration is to us."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("__", "."): value for name, value in settings.items()}

    def get(self, name: str, default: str | None) -> str | None:
        if name.endswith(".forbidden"):
            raise PermissionError(name)
        return self.settings.get(name, default)


def spark(settings: dict[str, str]) -> Any:
    conf = Conf()
    conf.settings = settings
    return SimpleNamespace(conf=conf)


def options(location: Location) -> dict[str, Any]:
    return {name: _locations._thawed(value) for name, value in location.options}


@pytest.fixture
def any_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locations are made without the packages for them, which not everybody has."""
    monkeypatch.setattr(_locations, "_implementation", lambda protocol, name: None)


# -- local ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/a/b", "/a/b/", "file:/a/b", "file:///a/b", "file://localhost/a/b", "/a/./c/../b"])
def test_local_names_become_one_absolute_path(name: str) -> None:
    location = locate(name)
    assert (location.root, location.is_local, location.file_system()) == ("/a/b", True, None)
    assert location.join("c", "", "d") == location.url("c/d") == "/a/b/c/d"
    assert location.join() == location.url() == "/a/b"


def test_relative_names_are_of_the_drivers_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("x/y").root == str(tmp_path / "x/y")
    assert locate(Path("x/y")).root == str(tmp_path / "x/y")
    # A path object is a path, whatever is in it; a name with a colon is no URL.
    assert locate(Path("s3:x")).root == str(tmp_path / "s3:x")
    assert locate("a:b").root == str(tmp_path / "a:b")
    assert locate("./a::b").root == str(tmp_path / "a::b")


def test_the_root_directory_is_a_tree_too() -> None:
    assert locate("/").join("a") == "/a"
    assert locate("/").join() == "/"


def test_dbfs_is_where_databricks_mounts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_locations, "_DBFS", str(tmp_path))
    assert locate("dbfs:/a/b").root == str(tmp_path / "a/b")
    assert locate("dbfs:///a/b").root == str(tmp_path / "a/b")
    monkeypatch.setattr(_locations, "_DBFS", str(tmp_path / "missing"))
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
        ("nosuchthing://x", ValueError, "nosuchthing is no file system that fsspec knows"),
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
def test_every_name_of_s3_is_s3_and_rows_show_what_was_written(any_package: None, scheme: str) -> None:
    location = locate(f"{scheme}://bucket/a/b@2::3/")
    assert (location.root, location.protocol, location.options) == ("bucket/a/b@2::3", "s3", ())
    assert location.join("c") == "bucket/a/b@2::3/c"
    assert location.url("c") == f"{scheme}://bucket/a/b@2::3/c"


def test_s3_takes_its_settings_from_sparks_configuration(any_package: None) -> None:
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
    assert options(location) == {
        "endpoint_url": "http://minio:9000",
        "client_kwargs": {"region_name": "eu-west-1"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
        "key": "AKIA",
        "secret": SECRET,
        "token": "passing",
    }
    assert {location} == {pickle.loads(pickle.dumps(location))}
    other = options(locate("s3a://other/x", spark(settings)))
    assert (other["key"], other["secret"], other["endpoint_url"]) == ("OTHER", SECRET, "https://other.example/")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        ({"endpoint": "minio:9000"}, {"endpoint_url": "https://minio:9000"}),
        ({"endpoint": "s3.amazonaws.com", "endpoint.region": "sdk", "path.style.access": "false"}, {}),
        ({"connection.ssl.enabled": "false"}, {"use_ssl": False}),
        ({"access.key": "only half"}, {}),
        ({"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anon": True}),
    ],
)
def test_what_is_not_set_is_left_to_fsspec(any_package: None, settings: dict[str, str], expected: Any) -> None:
    conf = spark({f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()})
    assert options(locate("s3://bucket/x", conf)) == expected


def test_what_the_session_sets_wins_and_a_refused_setting_is_none(any_package: None) -> None:
    conf = spark({"fs.s3a.endpoint": "https://session", "spark.hadoop.fs.s3a.endpoint": "https://cluster"})
    assert options(locate("s3://bucket/x", conf)) == {"endpoint_url": "https://session"}

    class Refusing:
        def get(self, name: str, default: Any) -> Any:
            raise PermissionError(name)

    assert locate("s3://bucket/x", SimpleNamespace(conf=Refusing())).options == ()


def test_azure_and_google_take_their_keys_from_sparks_configuration(any_package: None) -> None:
    host = "lake.dfs.core.windows.net"
    conf = spark(
        {
            f"spark.hadoop.fs.azure.account.key.{host}": SECRET,
            "spark.hadoop.google.cloud.auth.service.account.json.keyfile": "/keys/g.json",
        }
    )
    for name in (f"abfss://data@{host}/x/y", f"abfs://data@{host}/x/y", "wasbs://data@lake.blob.core.windows.net/x/y"):
        location = locate(name, conf)
        assert (location.root, location.protocol) == ("data/x/y", "abfs")
        assert options(location) == {"account_key": SECRET, "account_name": "lake"}
    assert locate("abfs://data/x").options == ()
    google = locate("gs://bucket/x", conf)
    assert (google.root, google.protocol, options(google)) == ("bucket/x", "gs", {"token": "/keys/g.json"})


def test_no_repr_shows_a_credential(any_package: None) -> None:
    conf = spark({"spark.hadoop.fs.s3a.access.key": "AKIA", "spark.hadoop.fs.s3a.secret.key": SECRET})
    text = repr(locate("s3://bucket/x", conf))
    assert text == "Location('s3://bucket/x', protocol='s3', options=key, secret (values not shown))"


def test_other_file_systems_of_fsspec_are_asked_what_their_urls_mean() -> None:
    pytest.importorskip("fsspec")
    memory = locate("memory://lake/x")
    assert (memory.root, memory.url("y")) == ("/lake/x", "memory://lake/x/y")
    for name in ("hdfs://node:8020/a/b", "hdfs://node:8020/a/b/"):
        hadoop = locate(name)
        assert (hadoop.root, hadoop.protocol, options(hadoop)) == ("/a/b", "hdfs", {"host": "node", "port": 8020})
        assert hadoop.url("c") == "hdfs://node:8020/a/b/c"
    assert locate("hdfs:/a/b").root == "/a/b"


def test_missing_packages_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def get(protocol: str) -> Any:
        raise ImportError("not here")

    monkeypatch.setattr(fsspec, "get_filesystem_class", get)
    for name, how in (("s3://b/x", "ags1\\[s3\\]"), ("gs://b/x", "install gcsfs"), ("abfs://b/x", "install adlfs")):
        with pytest.raises(ImportError, match=f"{name} needs a package that is not installed: .*{how}"):
            locate(name)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"s3://b/x needs fsspec: pip install 'ags1\[fsspec\]'"):
        locate("s3://b/x")


def test_a_process_has_one_file_system_and_a_forked_one_its_own() -> None:
    pytest.importorskip("s3fs")
    location = Location("bucket/x", "s3", (("anon", True),), "s3://bucket/x")
    ours = location.file_system()
    assert ours is pickle.loads(pickle.dumps(location)).file_system()
    assert not ours.dircache.use_listings_cache
    assert in_child(lambda: b"same" if location.file_system() is ours else b"other") == b"other"
    other = Location("bucket/x", "s3", (("anon", True), ("use_ssl", False)), "s3://bucket/x").file_system()
    assert other is not ours
    assert os.getpid() in {key[0] for key in _locations._opened}
