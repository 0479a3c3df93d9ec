"""What docs/storage.md says of object stores runs, as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import ags1
from ags1.storage import Location, list_files, open_output
from tests.checks import KEY
from tests.servers.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]


def test_the_commands_of_the_page_run(tmp_path: Path, s3_server: S3Server) -> None:
    text = (ROOT / "docs" / "storage.md").read_text()
    (script,) = re.findall(r'^```sh title="S3"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    raw, vault = (
        Location(f"s3://{s3_server.make_bucket(name)}", s3_server.storage_options()) for name in ("raw", "vault")
    )
    for location, data in ((raw.join("sales.csv"), b"id,amount\n"), (raw.join("day=1/sales.csv"), b"id\n1\n")):
        with open_output(location) as output:
            output.write(data)
            output.commit()
    people: Any = pa.BufferOutputStream()
    pq.write_table(pa.table({"name": ["Ada"]}), people)
    with open_output(raw.join("people.parquet")) as output:
        output.write(people.getvalue())
        output.commit()
    command = tmp_path / "bin" / "ags1"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ags1 "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, **s3_server.environment(), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{command.parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-eu", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sales.csv").read_bytes() == b"id,amount\n"
    assert {entry.name for entry in list_files(vault)} == {
        "sales.csv.ags1", "day=1/sales.csv.ags1", "people.parquet.ags1", "people.parquet",
    }  # fmt: skip


def test_the_options_of_the_page_reach_a_store(s3_server: S3Server, s3_bucket: str) -> None:
    text = (ROOT / "docs" / "storage.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/storage.md", "exec"), names)
    options = names["options"]
    options.update(endpoint_url=s3_server.endpoint, key=s3_server.access_key, secret=s3_server.secret_key)
    place = f"s3://{s3_bucket}/a.ags1"
    with ags1.open(place, "wb", key=KEY, storage_options=options) as writer:
        writer.write(b"data")
    with ags1.open(place, key=KEY, storage_options=options) as reader:
        assert reader.read() == b"data"


def test_the_options_of_hadoop_reach_a_store(s3_server: S3Server, s3_bucket: str) -> None:
    options = {
        "fs.s3a.endpoint": s3_server.endpoint.removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3_server.access_key,
        "fs.s3a.secret.key": s3_server.secret_key,
    }
    with ags1.open(f"s3a://{s3_bucket}/a.ags1", "wb", key=KEY, storage_options=options) as writer:
        writer.write(b"data")
    assert ags1.open(f"s3://{s3_bucket}/a.ags1", key=KEY, storage_options=s3_server.storage_options()).read() == b"data"
