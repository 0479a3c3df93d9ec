"""What a policy forbids, and what it lets pass."""

from __future__ import annotations

import datetime
import hashlib
import html
import json
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.audit import AuditReport, Policy, audit
from ags1.support.words import share_text
from tests.audit.lake import client
from tests.checks import KEY


def violations(report: AuditReport) -> set[tuple[str, str]]:
    return {(each.code, each.subject) for each in report.findings if each.severity == "violation"}


def judged(lake: Path, policy: dict[str, Any], **options: Any) -> AuditReport:
    return audit(lake, policy=policy, **options)


def test_a_policy_that_holds_is_exit_code_0_and_said(lake: Path) -> None:
    report = judged(lake, {"plaintext": {"allowed": ["*"]}})
    assert report.exit_code == 0
    assert report.verdict == "policy policy: holds"
    assert violations(judged(lake, {})) == set()


def test_plaintext_that_is_not_allowed_is_a_violation(lake: Path) -> None:
    report = judged(lake, {"plaintext": {"allowed": ["logs/**", "my.key", "*.key-metadata", "people/signed.*"]}})
    assert violations(report) == {("plaintext-not-allowed", "people/plain.parquet")}
    assert report.exit_code == 5
    assert "VIOLATED (1 violation)" in report.verdict


def test_a_file_that_must_be_encrypted_must_even_if_it_is_allowed(lake: Path) -> None:
    policy = {"plaintext": {"allowed": ["**"]}, "encrypted": {"required": ["logs/?.csv", "streams/*.ags1"]}}
    assert violations(judged(lake, policy)) == {("must-be-encrypted", "logs/a.csv")}


def test_columns_that_must_be_encrypted_are_looked_for_in_each_file(lake: Path) -> None:
    rule = {"files": "people/*", "encrypted": "ssn"}
    report = judged(lake, {"columns": [rule]}, kms=client())
    assert violations(report) == {
        ("column-not-encrypted", "people/plain.parquet"),
        # Its key is in no KMS.
        ("column-not-checked", "people/uniform.parquet"),
    }
    assert ("column-not-checked", "people/kms.parquet") in violations(judged(lake, {"columns": [rule]}))
    # To Spark, names that differ in case are one column.
    for pattern in ("n*", "NAME"):
        names = judged(lake, {"columns": [{"files": ["people/signed.*"], "encrypted": [pattern]}]})
        (found,) = names.findings[:1]
        assert "'name' must be encrypted" in found.message


def test_files_in_other_plaintext_formats_have_no_encrypted_columns(lake: Path) -> None:
    report = judged(lake, {"columns": [{"files": "logs/*.csv", "encrypted": "name"}]})
    assert violations(report) == {("column-not-encrypted", "logs/a.csv")}


def test_a_file_with_its_columns_encrypted_counts_as_protected(lake: Path) -> None:
    policy = {
        "encrypted": {"required": ["people/signed.parquet"]},
        "columns": [{"files": "people/signed.parquet", "encrypted": "ssn"}],
    }
    assert not violations(judged(lake, policy))
    assert violations(judged(lake, {"encrypted": policy["encrypted"]}))


def test_master_keys_that_are_not_allowed_are_violations(lake: Path) -> None:
    found = violations(judged(lake, {"keys": {"allowed": ["lake", "kf"]}}))
    assert found == {("key-not-allowed", "vault"), ("key-not-allowed", "people/kms.parquet")}
    report = judged(lake, {"keys": {"allowed": ["lake", "kf", "people"]}})
    assert report.exit_code == 0
    assert report.counts["key-not-known"] == 1


def test_the_share_of_plaintext_is_of_all_bytes(lake: Path) -> None:
    report = audit(lake)
    bare = sum(report.totals[each][1] for each in ("plaintext", "unknown", "partly encrypted"))
    for share, exit_code in ((bare / report.size - 1e-6, 5), (bare / report.size + 1e-6, 0), (1, 0), (0, 5)):
        assert judged(lake, {"plaintext": {"max_share": share}}).exit_code == exit_code


def test_metadata_that_a_format_has_only_in_plaintext_is_no_violation(lake: Path) -> None:
    for place in ("vault", "db/events"):
        assert judged(lake / place, {"plaintext": {"allowed": [], "max_share": 0}}).exit_code == 0


def test_damage_goes_before_violations(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes((lake / "people" / "plain.parquet").read_bytes()[:-9])
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    assert judged(tmp_path, {"plaintext": {"allowed": []}}).exit_code == 1


def test_what_could_not_be_read_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    report = judged(tmp_path, {"plaintext": {"allowed": []}})
    assert (report.exit_code, "NOT SHOWN TO HOLD" in report.verdict) == (4, True)


# -- the file ------------------------------------------------------------------------------------------------------


def test_a_policy_is_a_toml_file(tmp_path: Path, lake: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        '[plaintext]\nallowed = ["logs/**"]\nmax_share = 0.5\n[encrypted]\nrequired = "streams/*"\n'
        '[[columns]]\nfiles = "people/*"\nencrypted = ["ssn", "name"]\n[keys]\nallowed = ["lake"]\n'
    )
    policy = Policy.read(path)
    assert (policy.plaintext_allowed, policy.max_plaintext_share) == (("logs/**",), 0.5)
    assert (policy.encrypted_required, policy.keys_allowed) == (("streams/*",), ("lake",))
    (rule,) = policy.columns
    assert (rule.files, rule.columns) == (("people/*",), ("ssn", "name"))
    assert audit(lake, policy=path).policy == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[plaintxt]\n", r"there is no \[plaintxt\] in a policy; there are plaintext, encrypted, columns, keys"),
        ("[plaintext]\nalowed = []\n", r"\[plaintext\] has no alowed; it has allowed, max_share"),
        ("[plaintext]\nmax_share = 5\n", "plaintext.max_share is a share, 0 to 1, not 5"),
        ("[plaintext]\nmax_share = true\n", "is a share"),
        ("[keys]\nallowed = [1]\n", "keys.allowed is a list of texts"),
        ("keys = 1\n", r"keys is a table: write \[keys\]"),
        ('[[columns]]\nfiles = "a"\n', "needs files and encrypted"),
        ("columns = [1]\n", "columns is a table"),
        ("[plaintext\n", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_a_policy_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as error:
        audit(tmp_path, policy=path)
    assert str(path) in str(error.value)


def test_a_report_says_when_by_what_and_with_which_policy_it_was_made(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_bytes(b"[plaintext]\nallowed = []\n")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.csv").write_bytes(b"1")
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    report = audit(tmp_path / "lake", policy=policy)
    found = report.to_dict()
    digest = hashlib.sha256(policy.read_bytes()).hexdigest()
    assert (found["ags1"], found["policy_digest"]) == (ags1.__version__, digest)
    assert before <= datetime.datetime.fromisoformat(found["created"]) <= datetime.datetime.now(datetime.timezone.utc)
    for shown in (str(report), report.html()):
        for each in (found["created"], f"ags1 {ags1.__version__}", digest):
            assert each in shown
    assert audit(tmp_path / "lake").to_dict()["policy_digest"] is None


def test_nothing_but_all_is_a_hundred_percent_and_nothing_but_nothing_is_none(tmp_path: Path) -> None:
    for part, whole, said in (
        (0, 7, "0.0 %"), (7, 7, "100.0 %"), (1, 10**6, "< 0.1 %"), (10**6 - 1, 10**6, "99.9 %"), (0, 0, "0.0 %"),
        (10**30 - 1, 10**30, "99.9 %"), (1, 3, "33.3 %"), (2, 3, "66.6 %"), (1, 1000, "0.1 %"),
    ):  # fmt: skip
        assert share_text(part, whole) == said
    (tmp_path / "large.ags1").write_bytes(ags1.encrypt(bytes(200_000), KEY))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes(b"1,2\n")
    report = audit(tmp_path, policy={"plaintext": {"max_share": 0.0}})
    for shown in (str(report), html.unescape(report.html())):
        assert ("99.9 %" in shown, "< 0.1 %" in shown, "100.0 %" in shown) == (True, True, False)
    (finding,) = [each for each in report.findings if "max_share" in each.message]
    assert finding.message.startswith("< 0.1 % of the bytes (8 B) are not encrypted")


def test_a_report_is_json(lake: Path) -> None:
    found = json.loads(json.dumps(judged(lake, {"plaintext": {"allowed": []}}).to_dict()))
    assert found["exit_code"] == 5
    assert found["totals"]["encrypted"]["files"] > 0
    assert {each["name"] for each in found["files"]} >= {"logs/a.csv"}
