"""Keys of single files inside standard age files: for recipients, under passphrases; hostile age files."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests.cli.conftest import PLAIN, Run, make_tree

pyrage: Any = pytest.importorskip("pyrage")
PASSPHRASE = "correct horse battery staple"


@pytest.fixture
def people(work: Path) -> dict[str, str]:
    """Recipients by name; each has the identity in a file of that name, with a comment as age-keygen writes it."""
    recipients = {}
    for name in ("ada", "bob", "eve"):
        identity = pyrage.x25519.Identity.generate()
        (work / name).write_text(f"# created: today\n# public key: {identity.to_public()}\n{identity}\n")
        (work / name).chmod(0o600)
        recipients[name] = str(identity.to_public())
    return recipients


@pytest.fixture
def passphrase(work: Path) -> list[str]:
    (work / "secret").write_text(f"{PASSPHRASE}\n")
    (work / "secret").chmod(0o600)
    return ["--passphrase-file", "secret"]


def opened(work: Path, name: str = "out.ags1", identity: str = "ada") -> ags1.KeyMetadata:
    """The key metadata beside a file, opened by another reader of age files."""
    lines = (work / identity).read_text().splitlines()
    found = pyrage.x25519.Identity.from_str(lines[-1])
    return ags1.KeyMetadata.decode(pyrage.decrypt((work / f"{name}.key-metadata.age").read_bytes(), [found]))


def test_each_recipient_opens_the_file_and_nobody_else_does(run: Run, work: Path, people: dict[str, str]) -> None:
    both = ["--recipient", people["ada"], "--recipient", people["bob"]]
    assert run("encrypt", "plain", "out.ags1", *both).out.endswith("; its key is in out.ags1.key-metadata.age\n")
    for name in ("ada", "bob"):
        result = run("decrypt", "out.ags1", f"back-{name}", "--identity", name)
        assert (result.code, result.err) == (0, ""), "the length in the key metadata was not trusted"
        assert (work / f"back-{name}").read_bytes() == PLAIN
    result = run("decrypt", "out.ags1", "back-eve", "--identity", "eve")
    assert result.code == 3
    assert not (work / "back-eve").exists()
    assert run("cat", "out.ags1", "--identity", "ada", "--bytes", "10").raw == PLAIN[:10]
    assert run("verify", "out.ags1", "--identity", "eve", "--identity", "bob").code == 0


def test_a_local_url_has_its_age_file_beside_it(run: Run, work: Path, people: dict[str, str]) -> None:
    url = f"file://{work}/out.ags1"
    made = run("encrypt", "plain", url, "--recipient", people["ada"])
    assert (made.code, (work / "out.ags1.key-metadata.age").exists()) == (0, True), made.err
    assert run("cat", url, "--identity", f"file://{work}/ada").raw == PLAIN
    assert run("verify", url, "--identity", "ada", "--key-metadata", f"{url}.key-metadata.age").code == 0
    assert "beside file:///" in run("cat", url).err
    assert run("encrypt", "plain", "other.ags1", "--key-metadata-out", f"file://{work}/other").code == 0
    assert run("cat", "other.ags1", "--key-metadata", f"file://{work}/other").raw == PLAIN
    refused = run("encrypt", "plain", url, "--overwrite", "--key-metadata-out", "out.ags1")
    assert (refused.code, "is also the TARGET" in refused.err) == (2, True)


def test_the_key_that_a_killed_run_left_is_judged_by_its_target(run: Run, work: Path, people: dict[str, str]) -> None:
    encrypt = ("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    pending = work / "out.ags1.key-metadata.age.pending"
    pending.write_bytes(pyrage.encrypt(b"of nothing", [pyrage.x25519.Recipient.from_str(people["ada"])]))
    begun_again = run(*encrypt)
    assert (begun_again.code, "opens nothing, and is replaced" in begun_again.err) == (0, True), begun_again.err
    # Killed behind the target: nobody without an identity knows whether it opens that.
    (work / "out.ags1.key-metadata.age").rename(pending)
    before = pending.read_bytes()
    refused = run(*encrypt)
    assert (refused.code, "it may be the only key of out.ags1: if it opens that, rename it" in refused.err) == (9, True)
    assert pending.read_bytes() == before


def test_an_age_file_of_the_other_kind_is_said_to_be_one(
    run: Run, work: Path, people: dict[str, str], passphrase: list[str]
) -> None:
    assert run("encrypt", "plain", "a.ags1", "--recipient", people["ada"]).code == 0
    refused = run("decrypt", "a.ags1", "back", *passphrase)
    assert (refused.code, "it has no passphrase, but recipients: give --identity" in refused.err) == (3, True)
    assert run("encrypt", "plain", "b.ags1", *passphrase).code == 0
    refused = run("decrypt", "b.ags1", "back", "--identity", "ada")
    assert (refused.code, "it is under a passphrase: give --passphrase" in refused.err) == (3, True)


def test_another_program_opens_what_was_written(run: Run, work: Path, people: dict[str, str]) -> None:
    run("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    metadata = opened(work)
    assert metadata.file_length == (work / "out.ags1").stat().st_size
    with ags1.open(work / "out.ags1", key_metadata=metadata) as reader:
        assert reader.read() == PLAIN
    if (age := shutil.which("age") or shutil.which("rage")) is not None:
        command = [age, "-d", "-i", "ada", "out.ags1.key-metadata.age"]
        done = subprocess.run(command, cwd=work, capture_output=True, check=True)
        assert done.stdout == metadata.encode()


def test_what_another_program_wrote_is_opened(run: Run, work: Path, people: dict[str, str]) -> None:
    metadata = ags1.encrypt_file(work / "plain", work / "theirs.ags1")
    recipient = pyrage.x25519.Recipient.from_str(people["ada"])
    (work / "sent.age").write_bytes(pyrage.encrypt(metadata.encode(), [recipient]))
    assert run("decrypt", "theirs.ags1", "back", "--identity", "ada", "--key-metadata", "sent.age").code == 0
    assert (work / "back").read_bytes() == PLAIN


def test_no_key_lies_beside_the_file(run: Run, work: Path, people: dict[str, str]) -> None:
    run("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    key = bytes(opened(work).encryption_key)
    (beside,) = (path for path in work.iterdir() if path.name.startswith("out.ags1."))
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    for path in work.iterdir():
        assert key not in path.read_bytes()
        assert key.hex() not in path.read_bytes().hex()


def test_a_tree_has_an_age_file_for_each_file(run: Run, work: Path, people: dict[str, str]) -> None:
    contents = make_tree(work)
    out = ["--recipient", people["ada"], "--key-metadata-out", "keys/"]
    assert run("encrypt", "tree", "vault", *out).code == 0
    assert {str(path.relative_to(work / "keys")) for path in (work / "keys").rglob("*.age")} == {
        f"{name}.ags1.key-metadata.age" for name in contents
    }
    assert run("decrypt", "vault", "back", "--identity", "ada", "--key-metadata", "keys").code == 0
    for name, data in contents.items():
        assert (work / "back" / name).read_bytes() == data


def test_a_second_run_does_not_replace_the_only_key(run: Run, work: Path, people: dict[str, str]) -> None:
    run("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    before = (work / "out.ags1").read_bytes()
    result = run("encrypt", "plain", "out.ags1", "--recipient", people["bob"])
    assert result.code == 9
    assert "exists and was not replaced" in result.err
    assert (work / "out.ags1").read_bytes() == before
    assert ags1.decrypt(before, opened(work).encryption_key, aad_prefix=opened(work).aad_prefix or b"") == PLAIN


@pytest.mark.parametrize("work_factor", [21, 40, 63, 255, 999])
def test_a_hostile_file_does_not_decide_what_a_passphrase_costs(
    run: Run, work: Path, passphrase: list[str], work_factor: int
) -> None:
    ags1.encrypt_file(work / "plain", work / "out.ags1")
    header = f"age-encryption.org/v1\n-> scrypt {'A' * 22} {work_factor}\n{'A' * 43}\n--- {'A' * 43}\n"
    (work / "out.ags1.key-metadata.age").write_bytes(header.encode() + bytes(100))
    result = run("decrypt", "out.ags1", "back", *passphrase)
    assert result.code == 3
    assert f"2^{work_factor} rounds" in result.err


@pytest.mark.parametrize("at", [0, 30, 60, -1])
def test_a_changed_age_file_is_refused(run: Run, work: Path, people: dict[str, str], at: int) -> None:
    run("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    path = work / "out.ags1.key-metadata.age"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert run("decrypt", "out.ags1", "back", "--identity", "ada").code == 3
    assert not (work / "back").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--recipient", "age1nonsense"], 2, "no recipient of age"),
        (["--passphrase"], 2, "nobody can be asked"),
        (["--passphrase-file", "nowhere"], 3, "cannot be read"),
        (["--recipient", "ADA", "--passphrase-file", "k"], 2, "not both"),
        (["--recipient", "ADA", "--key-file", "k"], 2, "leave --key-file"),
    ],
)
def test_a_wrong_argument_is_said_before_anything_is_written(
    run: Run, work: Path, arguments: list[str], code: int, said: str
) -> None:
    ada = str(pyrage.x25519.Identity.generate().to_public())
    arguments = [ada if each == "ADA" else each for each in arguments]
    result = run("encrypt", "plain", "out.ags1", *arguments, stdin=b"")
    assert (result.code, said in result.err) == (code, True), result.err
    assert {path.name for path in work.iterdir()} == {"k", "plain"}


def test_an_identity_in_place_of_a_recipient_is_not_repeated(run: Run, work: Path) -> None:
    secret = str(pyrage.x25519.Identity.generate())
    result = run("encrypt", "plain", "out.ags1", "--recipient", secret, stdin=b"")
    assert (result.code, "secret identity of age" in result.err) == (2, True)
    assert secret not in result.err + str(result.out)
    assert {path.name for path in work.iterdir()} == {"k", "plain"}


def test_an_age_file_without_an_identity_says_what_is_needed(run: Run, work: Path, people: dict[str, str]) -> None:
    run("encrypt", "plain", "out.ags1", "--recipient", people["ada"])
    result = run("decrypt", "out.ags1", "back", "--key-metadata", "out.ags1.key-metadata.age")
    assert result.code == 3
    assert "--identity" in result.err
