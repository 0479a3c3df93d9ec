"""The `ags1` command as a whole: exit codes, messages of one line, standard streams, what it loads."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ags1
from ags1.support.exit_codes import describe, exit_code
from tests.checks import KEY, run_python
from tests.cli.conftest import PLAIN, Run

pytestmark = pytest.mark.timeout(60)

COMMAND = (sys.executable, "-m", "ags1")


def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, with buffered standard streams as a user has them."""
    environment = {**os.environ, **options.pop("env", {})}  # type: ignore[dict-item]
    environment.pop("PYTHONUNBUFFERED", None)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([*COMMAND, *arguments], check=False, timeout=600, env=environment, **options)  # type: ignore[call-overload, no-any-return]


def shell(text: str) -> subprocess.CompletedProcess[bytes]:
    """A shell line in which `ags1` is the command."""
    line = f'ags1() {{ {shlex.quote(sys.executable)} -m ags1 "$@"; }}; {text}'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["bash", "-c", line], check=False, timeout=600, capture_output=True, env=environment)


@pytest.fixture
def encrypted(work: Path) -> Path:
    """`plain.ags1` beside `plain`."""
    ags1.encrypt_file(work / "plain", work / "plain.ags1", KEY)
    return work / "plain.ags1"


# -- the promised commands, for real -------------------------------------------------------------------------


def test_the_documented_commands_work_in_processes_of_their_own(work: Path) -> None:
    assert call("keygen", "new.key").returncode == 0
    assert call("encrypt", "plain", "x.ags1", "--key-file", "new.key", "--key-metadata-out", "x.meta").returncode == 0
    assert call("inspect", "x.ags1").returncode == 0
    assert call("verify", "x.ags1", "--key-metadata", "x.meta").returncode == 0
    assert call("decrypt", "x.ags1", "back", "--key-metadata", "x.meta").returncode == 0
    assert (work / "back").read_bytes() == PLAIN


# Sends Ctrl-C when a module is looked for.
_INTERRUPT_AT = """
import os, signal, sys
class Interrupt:
    def find_spec(name, *_):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
"""
_SCRIPT = "import sys\nfrom ags1.cli import main\nsys.exit(main())\n"


@pytest.mark.parametrize("module", ["ags1.layout", "ags1.codec", "ags1.cli", "ags1.cli.entry", "ags1.cli.parser"])
@pytest.mark.parametrize("start", [("-m", "ags1"), ("-m", "ags1.cli"), ("bin/ags1",)], ids=["-m", "-m cli", "script"])
def test_an_interrupt_while_the_command_is_imported_is_one_line(
    tmp_path: Path, start: tuple[str, ...], module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPT_AT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ags1").write_text(_SCRIPT)
    roots = (str(tmp_path), str(Path(ags1.__file__).parent.parent))
    done = subprocess.run(
        [sys.executable, *start, "--version"],
        env={**os.environ, "INTERRUPT_AT": module, "PYTHONPATH": os.pathsep.join(roots)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "ags1: interrupted; no file was left half-written\n"


def test_importing_the_library_leaves_ctrl_c_to_the_program() -> None:
    run_python("import signal, ags1.cli; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler")


def test_python_m_ags1_cli_is_the_same_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "ags1.cli", "--version"], capture_output=True, check=True, timeout=600
    )
    assert found.stdout.decode() == f"ags1 {ags1.__version__}\n"


# -- exit codes ----------------------------------------------------------------------------------------------


def test_the_version_is_shown(run: Run) -> None:
    result = run("--version")
    assert (result.code, result.out, result.err) == (0, f"ags1 {ags1.__version__}\n", "")


def test_alone_it_shows_its_help_and_fails(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert "keygen" in result.out
    assert "exit codes" in result.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("verify", "plain.ags1", "--key-file", "k", "--length", "5036"), 0),
        (("verify", "plain.ags1", "--key-file", "k", "--any-length"), 5),
        (("verify", "plain.ags1", "--key-file", "k"), 2),
        (("verify", "plain", "--key-file", "k", "--any-length"), 1),
        (("inspect", "plain"), 1),
        (("verify", "plain.ags1"), 2),
        (("encrypt", "plain", "plain", "--key-file", "k"), 2),
        (("verify", "plain.ags1", "--key-file", "missing"), 3),
        (("keygen", "k"), 9),
        (("verify", "missing", "--key-file", "k", "--any-length"), 4),
        (("inspect", "missing"), 4),
    ],
)
def test_exit_codes_are_the_documented_ones(run: Run, encrypted: Path, arguments: tuple[str, ...], code: int) -> None:
    result = run(*arguments)
    assert result.code == code
    assert len(result.err.splitlines()) <= 1
    if code not in (0, 5):
        assert result.out == "" or arguments[0] == "inspect"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ags1.AuthenticationError("x"), 1),
        (ags1.FormatError("x"), 1),
        (ags1.BackendError("x"), 1),
        (ags1.KeyAccessError("x"), 3),
        (ags1.AlreadyEncryptedError("x"), 9),
        (FileExistsError(17, "x", "y"), 9),
        (OSError(28, "x"), 4),
        (MemoryError(), 4),
        (RuntimeError("a store's client failed"), 4),
        (ValueError("x"), 2),
        (ImportError("x"), 2),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


# -- messages ------------------------------------------------------------------------------------------------


def test_an_os_error_is_told_by_its_file_and_not_by_its_number(tmp_path: Path) -> None:
    assert describe(FileNotFoundError(2, "No such file or directory", "x")) == "x: No such file or directory"
    assert describe(OSError(28, "No space left on device")) == "No space left on device"
    assert describe(OSError("it was changed")) == "it was changed"
    assert describe(PermissionError(13, "Permission denied", b"x")) == "x: Permission denied"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    error = FileNotFoundError(2, "No such file or directory", str(tmp_path / "no" / "x"))
    assert describe(error).endswith(
        f"there is no directory {tmp_path / 'no'}: correct the name, or make it to write there"
    )


def test_an_error_without_words_is_told_by_its_type() -> None:
    assert describe(ValueError()) == "ValueError"
    assert describe(MemoryError()) == "there is not enough memory for this"


def test_control_characters_in_a_name_do_not_reach_the_terminal(run: Run, work: Path) -> None:
    (work / "new\nline\x1b[31m").write_bytes(b"x")
    result = run("encrypt", "new\nline\x1b[31m", "out", "--key-file", "k")
    assert result.out.startswith("new\\nline\\x1b[31m -> out")
    result = run("decrypt", "new\nline\x1b[31m", "back", "--key-file", "k", "--any-length")
    assert result.err.startswith("ags1: new\\nline\\x1b[31m: ")
    assert len(result.err.splitlines()) == 1


def test_a_name_that_is_not_utf8_is_shown_as_its_bytes(work: Path) -> None:
    name = b"caf\xe9"
    Path(os.fsdecode(name)).write_bytes(b"x")
    for encoding in ("utf-8:strict", "ascii:strict"):
        keyed = ("--key-file", "k", "--key-metadata-out", "m", "--overwrite")
        result = call("encrypt", os.fsdecode(name), "out", *keyed, env={"PYTHONIOENCODING": encoding})
        assert (result.returncode, result.stderr) == (0, b"")
        assert result.stdout.startswith(name + b" -> out")


def test_a_name_that_the_output_cannot_encode_is_escaped(work: Path) -> None:
    (work / "é").write_bytes(b"x")
    result = call(
        "encrypt", "é", "out", "--key-metadata-out", "m", env={"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "1"}
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(b"\\xe9 -> out")


# -- standard streams ----------------------------------------------------------------------------------------


@pytest.fixture
def large(work: Path) -> Path:
    """More than a pipe holds, encrypted."""
    (work / "large").write_bytes(bytes(1 << 20))
    ags1.encrypt_file(work / "large", work / "large.ags1", KEY)
    return work / "large.ags1"


@pytest.mark.parametrize(
    "command",
    [
        "cat large.ags1 --key-file k --any-length -q",
        "decrypt large.ags1 - --key-file k --any-length -q",
        "encrypt large - --key-file k -q",
    ],
)
def test_a_reader_that_goes_away_ends_the_command_quietly(large: Path, command: str) -> None:
    result = shell(f"ags1 {command} 2>err | head -c 10 | wc -c; exit ${{PIPESTATUS[0]}}")
    assert result.returncode == 141
    assert result.stdout.strip() == b"10"
    assert (large.parent / "err").read_text() == ""


def test_work_goes_on_when_nobody_reads_what_is_said_of_it(work: Path) -> None:
    (work / "many").mkdir()
    for index in range(3000):
        (work / "many" / f"a-name-that-fills-the-pipe-{index}").touch()
    encrypt = "ags1 encrypt many out --key-metadata-out keys -v --progress never"
    result = shell(f"{encrypt} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (0, b"")
    assert len(list((work / "out").iterdir())) == 3000


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "info",
        "inspect large.ags1",
        "inspect large.ags1 large",
        "cat large.ags1 --key-file k --any-length -q",
        "encrypt large out --key-file k",
        "encrypt large - --key-file k",
        "keygen -",
    ],
)
def test_a_full_disk_behind_standard_output_is_an_io_error(large: Path, command: str) -> None:
    result = shell(f"ags1 {command} > /dev/full")
    assert result.returncode == 4
    assert result.stderr.decode().splitlines() == ["ags1: standard output: No space left on device"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_was_cut_short_is_an_io_error(large: Path, unbuffered: str) -> None:
    result = shell(f"ulimit -f 8; PYTHONUNBUFFERED={unbuffered} ags1 cat large.ags1 --key-file k --any-length > cut")
    assert (result.returncode, result.stderr) == (4, b"ags1: standard output: File too large\n")
    assert (large.parent / "cut").stat().st_size == 8 * 1024


def test_standard_output_may_be_closed_if_nothing_needs_it(large: Path) -> None:
    assert shell("ags1 encrypt large out --key-metadata-out m >&- 2>&- <&-").returncode == 0
    assert shell("ags1 verify out --key-metadata m >&-").returncode == 0
    assert shell("ags1 inspect out >&-").returncode == 0


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        ("cat large.ags1 --key-file k --any-length >&-", "standard output"),
        ("encrypt large - --key-file k >&-", "standard output"),
        ("keygen - >&-", "standard output"),
        ("encrypt - out --key-file k <&-", "standard input"),
        ("inspect - <&-", "standard input"),
        ("encrypt --files-from - out --key-file k <&-", "standard input"),
    ],
)
def test_a_closed_stream_that_is_needed_is_an_io_error(large: Path, command: str, stream: str) -> None:
    result = shell(f"ags1 {command}")
    assert result.returncode == 4
    assert result.stderr.decode() == f"ags1: {stream}: it is closed\n"


def test_nothing_is_written_into_a_file_that_took_the_place_of_a_closed_stream(large: Path) -> None:
    # Without care the target is descriptor 1 or 2, and what is said of the work ends up in it.
    shell("ags1 decrypt large.ags1 back --key-file k --any-length >&- 2>&-")
    assert (large.parent / "back").read_bytes() == bytes(1 << 20)


# -- what is loaded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["keygen", "new.key"],
        ["encrypt", "plain", "out.ags1", "--key-file", "k"],
        ["decrypt", "plain.ags1", "out", "--key-file", "k", "--length", "5036"],
        ["verify", "plain.ags1", "--key-file", "k", "--length", "5036"],
        ["inspect", "plain.ags1"],
        ["info"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_loads_only_what_it_shows(encrypted: Path, arguments: list[str]) -> None:
    code = (
        "import sys; before = set(sys.modules); from ags1.cli import main\n"
        f"assert main({arguments!r}) == 0\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=600, cwd=encrypted.parent
    )
    loaded = set(result.stderr.decode().splitlines()[-1].split())
    heavy = {"rich", "json", "glob", "shutil", "concurrent.futures", "difflib", "pyarrow", "numpy", "fsspec"}
    assert not {
        name for name in loaded if name in heavy or name.split(".")[0] in {"rich", "pyarrow", "numpy", "fsspec"}
    }
    assert "ags1.arrow" not in loaded
    others = {
        "keygen": {"ags1.cli.transfer"},
        "encrypt": {"ags1.streams.verify", "ags1.cli.examine"},
        "--version": {"ags1.streams.files"},
    }
    assert not others.get(arguments[0], set()) & loaded


@pytest.mark.parametrize(
    "line",
    [
        "verify https://me:GEHEIM0123@127.0.0.1:9/x --key-file key --any-length",
        "verify https://127.0.0.1:9/x?sig=GEHEIM0123 --key-file key --any-length",
        "verify plain.ags1 --key-file=hex:GEHEIM0123",
        "verify plain.ags1 --no-such-option=hex:00112233445566778899aabbccddeeff",
        "kms create --kms vault:http://vault.example?token=GEHEIM0123 --key-id a",
        "no-such-command-https://me:GEHEIM0123@host/",
    ],
)
def test_no_message_shows_a_secret_of_the_arguments(run: Run, encrypted: Path, line: str) -> None:
    done = run(*line.split())
    assert done.code != 0
    assert "GEHEIM0123" not in done.out + done.err
    assert "00112233" not in done.out + done.err
