"""An audit of a bucket says what one of the same files in a directory says, in few requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ags1.audit import AuditReport, audit
from ags1.iceberg import create_table
from ags1.storage import Location, open_output
from tests.audit.lake import PEOPLE, client
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server

pytest.importorskip("obstore")


@pytest.fixture
def bucket(lake: Path, s3_server: S3Server, s3_bucket: str) -> str:
    """A bucket with the lake's files, and a table of its own."""
    for path in lake.rglob("*"):
        name = path.relative_to(lake).as_posix()
        if path.is_file() and not name.startswith("db/"):
            with open_output(Location(f"s3://{s3_bucket}/{name}", s3_server.storage_options())) as output:
                output.write(path.read_bytes())
                output.commit()
    properties = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    where = f"s3://{s3_bucket}/db/events"
    table = create_table(None, where, PEOPLE.schema, kms=client(), key_id="lake", storage_options=properties)
    table.append(PEOPLE)
    return s3_bucket


def test_a_bucket_is_audited_as_a_directory_is(lake: Path, bucket: str, s3_server: S3Server) -> None:
    options = s3_server.storage_options()
    for kms in (None, client()):
        here = audit(lake, kms=kms)
        there = audit(f"s3://{bucket}/", kms=kms, storage_options=options)

        def outside(report: AuditReport) -> list[object]:
            return [each.to_dict() for each in report.files if not each.name.startswith("db/")]

        assert outside(there) == outside(here)
        assert [each.kind for each in there.groups] == [each.kind for each in here.groups]
        assert there.counts == here.counts
        assert there.exit_code == here.exit_code == 5
    tables = [each for each in there.files if each.name.startswith("db/")]
    assert {each.protection for each in tables} == {"looks encrypted", "metadata"}
    assert all(each.columns_known for each in tables)


def test_a_file_takes_one_request_and_parquet_few_more(
    bucket: str, lake: Path, s3_server: S3Server, shaping_proxy: ShapingProxy
) -> None:
    options = s3_server.through(shaping_proxy.endpoint).storage_options()
    for name, most in (("logs", 1), ("people", 4)):
        shaping_proxy.reset()
        report = audit(f"s3://{bucket}/{name}", storage_options=options)
        reads = [each for each in shaping_proxy.log().only("GET").requests if "list-type" not in each.path]
        assert len(reads) <= most * len(report.files)
    assert len(report.files) > 3


def test_one_object_can_be_audited(bucket: str, s3_server: S3Server) -> None:
    (found,) = audit(f"s3://{bucket}/logs/a.csv", storage_options=s3_server.storage_options()).files
    assert (found.name, found.format) == ("a.csv", "CSV")
