"""The servers: each keeps what real clients write, and promises what the real service does."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from tests.servers import _install, faults
from tests.servers._install import MissingServerError, installed
from tests.servers._process import ROOT, ServerFailure, ServerProcess, listening
from tests.servers.azure import AzureServer
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import HdfsServer
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server

WRITERS = 8
# More than one part of a multipart upload.
BIG = random.Random(1).randbytes(12 << 20)


def bucket_name() -> str:
    return f"lake-{uuid.uuid4().hex[:12]}"


def check_round_trip(store: Any) -> None:
    """Objects with one part and with several come back, whole and in ranges, are listed, copied and deleted."""
    for name, data in {"one": b"1234", "deep/er/none": b"", "deep/big": BIG}.items():
        obstore.put(store, name, data, chunk_size=5 << 20)
        assert obstore.get(store, name).bytes() == data
        assert obstore.head(store, name)["size"] == len(data)
    assert obstore.get_range(store, "deep/big", start=7_000_001, end=7_000_101) == BIG[7_000_001:7_000_101]
    assert sorted(found["path"] for found in obstore.list(store, "deep").collect()) == ["deep/big", "deep/er/none"]
    obstore.copy(store, "one", "two")
    obstore.delete(store, ["one"])
    assert obstore.get(store, "two").bytes() == b"1234"
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "one")


def check_atomic_create(store: Any, rounds: int = 10) -> None:
    """Of several writers that create an object at once one is told that it did, and its bytes are there."""
    for number in range(rounds):
        start = threading.Barrier(WRITERS)

        def write(writer: int, name: str = f"created-{number}", start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                obstore.put(store, name, bytes([writer]) * 100_000, mode="create")
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(write, range(WRITERS)))
        assert sum(won) == 1
        assert obstore.get(store, f"created-{number}").bytes() == bytes([won.index(True)]) * 100_000


# -- S3 ------------------------------------------------------------------------------------------------------


class TestS3:
    def test_objects_come_back(self, s3_server: S3Server, s3_bucket: str) -> None:
        check_round_trip(s3_server.store(s3_bucket))

    def test_of_several_writers_that_create_one_wins(self, s3_server: S3Server, s3_bucket: str) -> None:
        if not s3_server.atomic_create:
            pytest.skip(f"{s3_server.kind} does not promise it")
        check_atomic_create(s3_server.store(s3_bucket))

    def test_objects_come_back_through_fsspec(self, s3_server: S3Server, s3_bucket: str) -> None:
        fs = s3_server.filesystem()
        fs.pipe_file(f"{s3_bucket}/deep/big", BIG)
        assert fs.cat_file(f"{s3_bucket}/deep/big", start=5, end=9) == BIG[5:9]
        assert fs.ls(f"{s3_bucket}/deep", detail=False) == [f"{s3_bucket}/deep/big"]

    def test_making_a_bucket_again_does_nothing(self, s3_server: S3Server, s3_bucket: str) -> None:
        assert s3_server.make_bucket(s3_bucket) == s3_bucket

    def test_objects_come_back_through_the_proxy_which_counts(
        self, s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy
    ) -> None:
        store = s3_server.through(shaping_proxy.endpoint).store(s3_bucket)
        check_round_trip(store)
        log = shaping_proxy.log()
        assert len(log.only("PUT", "partNumber=")) == 3
        assert log.only("GET", "deep/big").requests[-1].range == "bytes=7000001-7000100"

    def test_a_body_that_is_cut_is_resumed_where_it_ended(
        self, s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy
    ) -> None:
        store = s3_server.through(shaping_proxy.endpoint).store(s3_bucket)
        obstore.put(store, "a", BIG)
        shaping_proxy.forget()
        shaping_proxy.fault(faults.Cut(1_000_000), method="GET")
        assert obstore.get(store, "a").bytes() == BIG
        ranges = [request.range for request in shaping_proxy.log().only("GET").requests]
        assert ranges == [None, f"bytes=1000000-{len(BIG) - 1}"]

    def test_a_server_that_ignores_ranges_is_seen(
        self, s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy
    ) -> None:
        store = s3_server.through(shaping_proxy.endpoint).store(s3_bucket)
        obstore.put(store, "a", BIG)
        shaping_proxy.fault(faults.IgnoreRange())
        with pytest.raises(GenericError, match="non-partial"):
            obstore.get_range(store, "a", start=5, end=9)

    def test_a_created_object_whose_response_is_lost_is_in_the_way_of_its_own_retry(
        self, s3_server: S3Server, s3_bucket: str, shaping_proxy: ShapingProxy
    ) -> None:
        store = s3_server.through(shaping_proxy.endpoint).store(s3_bucket)
        shaping_proxy.fault(faults.Answer(503, carried_out=True), method="PUT")
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "mine", b"1234", mode="create")
        assert obstore.get(store, "mine").bytes() == b"1234"


class TestAzure:
    def test_objects_come_back(self, azure_server: AzureServer) -> None:
        check_round_trip(azure_server.store(azure_server.make_bucket(bucket_name())))

    def test_of_several_writers_that_create_one_wins(self, azure_server: AzureServer) -> None:
        check_atomic_create(azure_server.store(azure_server.make_bucket(bucket_name())))

    def test_making_a_bucket_again_does_nothing(self, azure_server: AzureServer) -> None:
        name = bucket_name()
        assert azure_server.make_bucket(name) == azure_server.make_bucket(name) == name

    def test_a_proxy_fits_in_front(self, azure_server: AzureServer) -> None:
        with ShapingProxy.start(azure_server.endpoint) as proxy:
            store = azure_server.through(proxy.endpoint).store(azure_server.make_bucket(bucket_name()))
            obstore.put(store, "a", BIG)
            proxy.fault(faults.Cut(1_000_000), method="GET")
            assert obstore.get(store, "a").bytes() == BIG
            assert [request.fault for request in proxy.log().only("GET").requests] == ["Cut", None]


class TestGcs:
    def test_objects_come_back(self, gcs_server: GcsServer) -> None:
        check_round_trip(gcs_server.store(gcs_server.make_bucket(bucket_name())))

    def test_of_several_writers_that_create_one_wins(self, gcs_server: GcsServer) -> None:
        check_atomic_create(gcs_server.store(gcs_server.make_bucket(bucket_name())))

    def test_a_copy_can_be_refused_where_something_is(self, gcs_server: GcsServer) -> None:
        store = gcs_server.store(gcs_server.make_bucket(bucket_name()))
        obstore.put(store, "a", b"1234")
        obstore.copy(store, "a", "b c", overwrite=False)
        with pytest.raises(AlreadyExistsError):
            obstore.copy(store, "a", "b c", overwrite=False)
        assert obstore.get(store, "b c").bytes() == b"1234"

    def test_an_object_that_was_replaced_is_seen(self, gcs_server: GcsServer) -> None:
        store = gcs_server.store(gcs_server.make_bucket(bucket_name()))
        obstore.put(store, "a", b"1234")
        tag = obstore.head(store, "a")["e_tag"]
        assert obstore.get(store, "a", options={"if_match": tag, "range": (1, 3)}).bytes() == b"23"
        obstore.put(store, "a", b"5678")
        with pytest.raises(PreconditionError):
            obstore.get(store, "a", options={"if_match": tag, "range": (1, 3)})

    def test_a_proxy_fits_in_front(self, gcs_server: GcsServer) -> None:
        with ShapingProxy.start(gcs_server.endpoint) as proxy:
            store = gcs_server.through(proxy.endpoint).store(gcs_server.make_bucket(bucket_name()))
            obstore.put(store, "a", BIG)
            assert obstore.get(store, "a").bytes() == BIG
            assert proxy.log().downloaded > len(BIG)


class TestHdfs:
    def test_files_come_back_through_webhdfs(self, hdfs_server: HdfsServer) -> None:
        fs = hdfs_server.filesystem()
        folder = f"/{bucket_name()}"
        for name, data in {"one": b"1234", "deep/big": BIG}.items():
            fs.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)
            fs.pipe_file(f"{folder}/{name}", data)
            assert fs.cat_file(f"{folder}/{name}") == data
            assert fs.size(f"{folder}/{name}") == len(data)
        assert fs.cat_file(f"{folder}/deep/big", start=7_000_001, end=7_000_101) == BIG[7_000_001:7_000_101]
        assert sorted(fs.find(folder)) == [f"{folder}/deep/big", f"{folder}/one"]
        fs.mv(f"{folder}/one", f"{folder}/two")
        assert fs.cat_file(f"{folder}/two") == b"1234"
        fs.rm(folder, recursive=True)
        assert not fs.exists(folder)


def test_moto_has_the_same_interface(tmp_path: Path) -> None:
    with S3Server.start(tmp_path, kind="moto") as server:
        check_round_trip(server.store(server.make_bucket("lake")))


# -- processes and installation ------------------------------------------------------------------------------


def test_a_server_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from tests.servers.s3 import S3Server\n"
        "with S3Server.start(sys.argv[1], kind='moto') as server:\n"
        "    print(server.endpoint, flush=True)\n"
        "    time.sleep(600)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().strip()).port
        assert port is not None
        assert listening(port)
        process.send_signal(signal.SIGKILL)
    while listening(port):
        pass


def test_a_server_that_ends_at_once_says_why() -> None:
    with pytest.raises(ServerFailure, match=r"ended with 3(.|\n)*no such option"):
        ServerProcess([sys.executable, "-c", "import sys; print('no such option'); sys.exit(3)"], lambda: False)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(_install, "_CACHE", tmp_path)
    monkeypatch.setenv("AGS1_BUILD_SERVERS", "1")
    return tmp_path


def test_a_server_is_built_once_by_several_threads_at_once(cache: Path) -> None:
    built = []

    def build(target: Path) -> None:
        built.append(target)
        (target / "program").write_text("x")

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: installed("it", "1", build), range(4)))
    assert found == {cache / "it-1"}
    assert len(built) == 1
    assert (cache / "it-1" / "program").read_text() == "x"


def test_a_build_that_failed_leaves_nothing_and_is_tried_again(cache: Path) -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("x")
        raise MissingServerError("no compiler")

    with pytest.raises(MissingServerError, match="no compiler"):
        installed("it", "1", fail)
    assert [path.name for path in cache.iterdir()] == ["it-1.lock"]
    assert installed("it", "1", lambda target: None) == cache / "it-1"


def test_a_run_that_builds_no_servers_says_how_to_get_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGS1_BUILD_SERVERS", "AGS1_NO_SKIP"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingServerError, match="it is not built: make servers"):
        installed("it", "1", lambda target: None)
    assert not list(cache.iterdir())


def test_a_build_says_what_it_does_for_as_long_as_it_lasts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said_twice = threading.Event()

    class Said(io.StringIO):
        """Not capfd: what a thread writes while readouterr() empties its file is lost."""

        def write(self, text: str) -> int:
            written = super().write(text)
            if self.getvalue().count("still building slow 1") == 2:
                said_twice.set()
            return written

    said = Said()
    monkeypatch.setattr(_install, "SAY_SECONDS", 0.001)
    monkeypatch.setattr(sys, "stderr", said)

    def build(target: Path) -> None:
        assert said_twice.wait(60)

    installed("slow", "1", build)
    assert said.getvalue().startswith("building slow 1, once for this machine\n")


def test_a_build_with_go_leaves_nothing_but_the_server(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "go"
    # What Go does: a cache of modules that nobody may write to, unless it is told otherwise.
    program.write_text(
        '#!/bin/sh -e\nmkdir -p "$GOMODCACHE/m" "$GOCACHE"\ntouch "$GOMODCACHE/m/f" "$GOCACHE/o" "$GOBIN/server"\n'
        'case "$GOFLAGS" in *-modcacherw*) ;; *) chmod -R a-w "$GOMODCACHE";; esac\n'
        '[ "$GOPATH" != "$HOME/go" ]\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    directory = installed("server", "1", lambda target: _install.go_install("module", "v1", target))
    assert [path.name for path in directory.rglob("*")] == ["server"]
    assert {path.name for path in cache.iterdir()} == {"bin", "server-1", "server-1.lock"}


def test_a_step_of_a_build_that_fails_says_why() -> None:
    with pytest.raises(MissingServerError, match="no such module"):
        _install.run([sys.executable, "-c", "raise SystemExit('no such module')"])
    with pytest.raises(MissingServerError, match="no command nothing-is-called-so"):
        _install.tool("nothing-is-called-so")
