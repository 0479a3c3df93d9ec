"""No key is where Spark keeps or shows things: events, plans, pages, broadcasts, shuffle files, logs and errors.

One job on a cluster of two executors does everything that the pipeline can, some of it badly, with one executor that is
killed, and shuffle and broadcast files kept. It tells this process every key that it used; they are looked for in
whatever there was of it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from ags1 import dataset, kms
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.versions import read_version
from ags1.errors import AuthenticationError
from ags1.storage import Location
from tests.checks import leaks
from tests.spark.sessions import LOCAL_CLUSTER, executor_logs, need_spark, run_spark_script
from tests.spark.trees import CONTENTS, objects, plain_of, read_tree, write_tree

SCRIPT = """
import json, os, shutil, sys, traceback, urllib.request
from functools import partial
from pyspark.sql import SparkSession
import pyarrow as pa, pyarrow.parquet as pq

import ags1.spark
from ags1 import dataset
from ags1.dataset import keys as dataset_keys
from ags1.dataset import runs
from ags1.spark import datasets
from ags1.spark.engine.column_keys import LEAD, RUN, data_key, read_key
from ags1.spark.engine.sealing import kms_client
from ags1.storage import Location
from tests.spark.works import Interrupted

raw, out, kms, secrets, shown = sys.argv[1:]
keys = set()
for kind in (runs.RunKeys, dataset_keys.DatasetKeys):
    def recording(self, real=kind.key):
        key = real(self)
        keys.add(bytes(key).hex())
        return key

    kind.key = recording
spark = SparkSession.builder.getOrCreate()
said, texts = {}, []

def failing(call):
    try:
        call()
    except Exception as error:
        texts.append("".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))
    else:
        raise SystemExit("it did not fail")

def explained(frame):
    texts.extend(frame._jdf.queryExecution().explainString(frame._sc._jvm.org.apache.spark.sql.execution.ExplainMode
                 .fromString(mode)) for mode in ("extended", "formatted", "codegen", "cost"))
    return frame

def looked_at(result):
    frame = explained(result.dataframe)
    texts.append(repr(result) + str(result) + str(frame.collect()) + repr(vars(result)))
    said[result.verb] = result.counts
    return result

vault = out + "/vault"
options = {"kms": kms, "part_bytes": 1 << 20, "parallelism": 8}
datasets.EncryptWork = partial(Interrupted, path="huge.bin", fault="executor")
encrypted = looked_at(ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **options))
said["attempts"] = max(row.attempt for row in encrypted.dataframe.collect())
datasets.EncryptWork = partial(Interrupted, path="b.txt", fault="raise")
with open(raw + "/b.txt", "w") as file:
    file.write("another file")
looked_at(ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **options))
# What attempts left that were killed.
with dataset.open(vault, kms) as opened:
    opened.expire(keep=100, grace=0)
looked_at(ags1.spark.verify_files(spark, vault, **options))
looked_at(ags1.spark.decrypt_files(spark, vault, out + "/plain", **options))
with dataset.open(vault, kms) as opened:
    name = opened.files["a.txt"].parts[0].name
with open(vault + "/" + name, "r+b") as file:
    file.seek(20)
    file.write(b"damage")
looked_at(ags1.spark.verify_files(spark, vault, **options))
failing(lambda: ags1.spark.decrypt_files(spark, vault, out + "/plain2", **options))
with open(raw + "/again", "wb") as file:
    file.write(ags1.encrypt(b"x", bytes(16)))
failing(lambda: ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **options))
failing(lambda: ags1.spark.encrypt_files(spark, raw, vault, key_id="lake", **{**options, "kms": bytes(32)}))
failing(lambda: ags1.spark.encrypt_files(spark, raw, vault, key_id="other", **options))
with dataset.open(vault, kms) as opened:
    opened.rewrap("lake2")

# Columns: what tasks derive is derived here once more, to be looked for.
table, columns = out + "/column-keys", {"text": "lake"}
given = {"kms": kms, "keys": table, "row_key": "id", "form": "gcm"}
people = spark.range(1000).selectExpr("id", "'text ' || id AS text")
explained(ags1.spark.encrypt_columns(people, columns, **given)).write.parquet(out + "/people")
sealed = spark.read.parquet(out + "/people")
plain = explained(ags1.spark.decrypt_columns(sealed, columns, **given))
said["columns"] = plain.exceptAll(people).count() + abs(plain.count() - 1000)
ags1.spark.register_columns(spark, kms=kms, keys=table, key_ids=["lake"], decrypt=True)
people.createOrReplaceTempView("people")
query = "SELECT id, ags1_decrypt(ags1_encrypt(text, 'lake', 'text', id), 'lake', 'text', id) AS text FROM people"
said["functions"] = explained(spark.sql(query)).where("text = encode('text ' || id, 'utf-8')").count()
failing(ags1.spark.decrypt_columns(sealed.withColumn("id", sealed.id + 1), columns, **given).collect)
leads = {bytes(row.text[:LEAD]) for row in sealed.collect()}
for lead in leads:
    record = read_key(Location(table), kms, "text", lead[:RUN].hex(), "lake")
    keys.add(bytes(data_key(record.reference.unwrap(kms_client(kms)), lead[RUN:])).hex())
said["data keys"] = len(leads)

pages = ["/jobs/", "/stages/", "/SQL/", "/environment/", "/executors/", "/storage/"]
api = f"/api/v1/applications/{spark.sparkContext.applicationId}"
pages += [api + "/" + name for name in ("jobs", "stages?details=true", "sql?details=true&length=1000", "environment")]
pages += [f"/jobs/job/?id={index}" for index in range(3)] + [f"/SQL/execution/?id={index}" for index in range(3)]
for page in pages:
    with urllib.request.urlopen(spark.sparkContext.uiWebUrl + page) as answer:
        texts.append(answer.read().decode(errors="replace"))
local = spark.conf.get("spark.local.dir")
shutil.copytree(local, shown + "/local")
with open(shown + "/texts", "w", errors="backslashreplace") as file:
    file.write("\\n".join(texts))
with open(secrets, "w") as file:
    json.dump(sorted(keys), file)
print(json.dumps(said))
"""


class Job:
    """What there is of the job after it."""

    def __init__(self, directory: Path, kms_url: str) -> None:
        self.kms = kms_url
        self.raw = write_tree(directory / "raw", CONTENTS)
        self.out = directory / "out"
        self.spark = directory / "spark"
        self.shown = directory / "shown"
        secrets = directory / "secrets"
        for each in (self.out, self.shown):
            each.mkdir()
        conf = {
            # What Spark compiles is searched, too.
            "spark.sql.codegen.wholeStage": "true",
            "spark.sql.codegen.factoryMode": "FALLBACK",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.cleaner.referenceTracking": "false",
            # Whatever a task is sent goes through a file.
            "spark.broadcast.UDFCompressionThreshold": "1",
            "spark.task.maxFailures": "4",
            "spark.broadcast.compress": "false",
            "spark.shuffle.compress": "false",
            "spark.rdd.compress": "false",
        }
        self.done = run_spark_script(
            SCRIPT, self.raw, self.out, kms_url, secrets, self.shown,
            master=LOCAL_CLUSTER, conf=conf, directory=self.spark,
        )  # fmt: skip
        self.said: dict[str, Any] = json.loads(self.done.stdout.splitlines()[-1])
        self.run_keys = [bytes.fromhex(text) for text in json.loads(secrets.read_text())]

    def places(self) -> dict[str, bytes]:
        """All that could be read afterwards, or while it ran."""
        found = {"stdout": self.done.stdout.encode(), "stderr": self.done.stderr.encode()}
        for root in (self.spark, self.shown, self.out):
            found |= {f"{root.name}/{path}": data for path, data in read_tree(root).items()}
        return found

    def secrets(self) -> dict[str, bytes]:
        """Every key that was used, and what opens the keystore."""
        path, _, _ = self.kms.removeprefix("local:").partition("?key_file=")
        found = {"key file": Path(path).with_name("secret").read_bytes()}
        client = kms.load(self.kms)
        for key_id in ("lake", "lake2"):
            (master,) = client._load().keys[key_id]
            found[f"master key {key_id}"] = bytes(master)
        found |= {f"run key {index}": key for index, key in enumerate(self.run_keys)}
        with dataset.open(self.out / "vault", self.kms) as opened:
            version = read_version(Location(self.out / "vault"), opened.version)
            for entry in version.key.encryption_keys:
                if entry["encrypted-by-id"] == version.key_id:
                    wrapped = base64.b64decode(entry["encrypted-key-metadata"])
                    found[f"KEK {entry['key-id']}"] = bytes(client.unwrap_key(wrapped, version.key_id))
            assert version.manifest is not None
            assert version.manifest_key is not None
            keys = DatasetKeys(version.key, client, "")
            found["dataset"] = bytes(keys.key())
            found["manifest"] = bytes(keys.open(version.manifest, version.manifest_key).encryption_key)
            for file in opened.files:
                if len(file.parts) == 1:
                    found[f"file {file.path}"] = bytes(opened.key_metadata(file.path).encryption_key)
        client.close()
        return found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, kms_url: str) -> Job:
    need_spark()
    return Job(tmp_path_factory.mktemp("leaks").resolve(), kms_url)


@pytest.mark.timeout(180)
def test_the_job_did_what_there_was_to_do_though_an_executor_died(job: Job) -> None:
    assert job.said["attempts"] == 1
    assert sum(job.said["encrypt"].values()) == len(CONTENTS) + 1
    assert job.said["decrypt"] == {"ok": len(CONTENTS) + 1}
    assert job.said["verify"] == {"ok": len(CONTENTS), "error": 1}
    assert (job.said["columns"], job.said["functions"]) == (0, 1000)
    assert job.said["data keys"] > 1
    plain = read_tree(job.out / "plain")
    assert plain == {**CONTENTS, "b.txt": b"another file"}
    with pytest.raises(AuthenticationError, match=r"a\.txt\..*: block 0 failed authentication"):
        plain_of(job.out / "vault", job.kms, "lake2")


def test_no_key_is_anywhere_but_wrapped(job: Job) -> None:
    places, secrets = job.places(), job.secrets()
    assert leaks(places, secrets) == []


def test_what_is_searched_is_what_there_is(job: Job) -> None:
    places = job.places()
    assert any(name.startswith("spark/events/") and b"SparkListenerTaskEnd" in data for name, data in places.items())
    broadcasts = [data for name, data in places.items() if name.startswith("shown/local/") and "/pyspark-" in name]
    assert any(b"_run_bins" in data for data in broadcasts)
    # The work of a task is sealed as a whole.
    assert not any(b"tests.spark.works" in data for data in broadcasts)
    assert len(executor_logs(job.spark)) >= 3
    texts = places["shown/texts"]
    assert b"Physical Plan" in texts
    assert b"ags1 encrypt: " in texts, "the pages do not say what runs"
    assert b"AuthenticationError" in texts
    assert b"column 'text', row 0 of partition" in texts
    assert b"MapInArrow" in texts
    assert b"ags1_encrypt" in texts or b"function(text" in texts
    assert b"the worker failed" in b"".join(places.values())
    # The check finds what is there: ids of keys, and a key that is put there in any spelling.
    secrets = job.secrets()
    kinds = {name.split()[0] for name in secrets}
    assert kinds == {"key", "master", "run", "KEK", "dataset", "manifest", "file"}
    assert len(job.run_keys) >= 4
    assert len(secrets) > len(CONTENTS)
    for name, key in secrets.items():
        for each in (key, key.hex(), base64.b64encode(b"x" + key), base64.urlsafe_b64encode(b"\1\2" + key)):
            data = each if isinstance(each, bytes) else each.encode()
            assert leaks({"here": b"text " + data + b" more"}, {name: key}) == [f"{name} in here"] or data != each


def test_no_path_or_content_of_a_file_is_shown_by_spark(job: Job) -> None:
    # Payloads of tasks are sealed whole: paths are not where operators look.
    events = b"".join(data for name, data in job.places().items() if name.startswith("spark/events/"))
    for path in ("year=2026", "large.bin", "many/100"):
        assert path.encode() not in events
    assert not [
        name for name, data in job.places().items() if name.startswith("spark/") and CONTENTS["huge.bin"][:64] in data
    ]


def test_the_dataset_is_whole_once_the_damaged_file_is_made_again(job: Job) -> None:
    (job.raw / "broken").unlink(missing_ok=True)
    with dataset.open(job.out / "vault", job.kms) as opened:
        before = objects(job.out / "vault", job.kms)["a.txt"]
        opened.repair(job.raw)
        assert objects(job.out / "vault", job.kms)["a.txt"] != before
    assert plain_of(job.out / "vault", job.kms, "lake2", whole=False) == {**CONTENTS, "b.txt": b"another file"}
