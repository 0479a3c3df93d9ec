"""What importing ags1 costs, which module may import which, and that the promised names are there."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests.checks import KEY, run_python

PACKAGE = Path(ags1.__file__).resolve().parent
CONTRACT = Path(ags1.get_include()) / "ags1"

# The rooms from the ground up: a room imports from those before it alone.
ORDER = (
    *("version", "errors", "support", "core", "layout", "keys", "codec", "expected", "storage", "work", "kms"),
    *("streams", "arrow", "avro", "parquet", "iceberg", "dataset", "fs", "audit", "spark", "bench", "cli"),
)
# What imports from all rooms.
TOPS = ("__init__", "__main__")


# -- the weight of an import ---------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_importing_ags1_loads_nothing_heavy() -> None:
    heavy = {"pyarrow", "numpy", "fsspec", "rich", "fastavro", "argparse", "concurrent.futures", "asyncio"}
    heavy |= {
        "pandas",
        "polars",
        "s3fs",
        "boto3",
        "botocore",
        "cryptography",
        "logging",
        "multiprocessing",
        "ssl",
    }
    # What a .pth file of the environment loaded before is not counted.
    loaded = run_python(
        """
        import sys
        before = set(sys.modules)
        import ags1
        ags1.decrypt(ags1.encrypt(b"data", bytes(16)), bytes(16))
        with ags1.open(ags1.encrypt(b"data", bytes(16)), key=bytes(16)) as reader:
            assert reader.read() == b"data"
        print(*(set(sys.modules) - before))
        """
    ).split()
    assert "ags1.streams.stream" in loaded
    assert not {name for name in loaded if name in heavy or name.split(".")[0] in heavy}


@pytest.mark.timeout(60)
def test_importing_ags1_leaves_its_upper_rooms_alone() -> None:
    loaded = run_python("import sys, ags1; print(*sys.modules)").split()
    upper = {
        "ags1.streams.stream",
        "ags1.storage",
        "ags1.streams.files",
        "ags1.arrow",
        "ags1.avro",
        "ags1.cli",
        "ags1.streams.verify",
        "ags1.core.backend",
    }
    assert not upper & set(loaded)


@pytest.mark.timeout(60)
def test_a_command_that_does_little_loads_little() -> None:
    said = run_python(
        """
        import sys
        before = set(sys.modules)
        from ags1.cli import main
        assert main(["--version"]) == 0
        print(*(set(sys.modules) - before))
        """
    ).split()
    assert "argparse" in said
    assert not {"dataclasses", "inspect", "ags1.storage", "ags1.streams.stream"} & set(said)


@pytest.mark.timeout(60)
def test_rooms_are_loaded_when_they_are_first_used() -> None:
    shown = run_python(
        """
        import sys, ags1
        first = "ags1.streams.files" in sys.modules
        ags1.encrypt_file
        ags1.backend()
        print(first, "ags1.streams.files" in sys.modules, ags1.streams.files.encrypt_file is ags1.encrypt_file)
        """
    )
    assert shown.split() == ["False", "True", "True"]


@pytest.mark.timeout(120)
def test_a_missing_dependency_breaks_no_introspection() -> None:
    groups = (
        ("pyspark",),
        ("pyarrow",),
        ("fsspec",),
        ("pyiceberg",),
        (
            "pyspark",
            "pyarrow",
            "pandas",
            "numpy",
            "fsspec",
            "obstore",
            "pyiceberg",
            "fastavro",
            "boto3",
            "hvac",
            "rich",
        ),
    )
    for blocked in groups:
        shown = run_python(
            f"""
            import doctest, inspect, pydoc, sys

            class Missing:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] in {blocked}:
                        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

            sys.meta_path.insert(0, Missing())
            import ags1
            members = dict(inspect.getmembers(ags1))
            assert "encrypt_many" in pydoc.render_doc(ags1)
            assert not doctest.testmod(ags1).failed
            for room in ("kms", "parquet", "iceberg", "dataset", "avro", "streams"):
                assert len(inspect.getmembers(members[room])) > 3, room
            for room, extra in (("spark", "spark"), ("arrow", "arrow"), ("fs", "fsspec")):
                if room not in members:
                    try:
                        getattr(ags1, room)
                    except ImportError as error:
                        assert f"ags1[{{extra}}]" in str(error), error
            print(*(room for room in ("spark", "arrow", "fs") if room not in members))
            """
        ).split()
        expected = {
            "pyspark": ["spark"], "pyarrow": ["spark", "arrow"], "fsspec": ["fs"], "pyiceberg": [],
        }  # fmt: skip
        assert shown == (expected[blocked[0]] if len(blocked) == 1 else ["spark", "arrow", "fs"])


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'ags1' has no attribute 'encrypt_everything'"):
        ags1.encrypt_everything  # type: ignore[attr-defined]  # noqa: B018


# -- imports point down --------------------------------------------------------------------------------------


def is_for_type_checkers(node: ast.AST) -> bool:
    """Whether this is the body of `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports_of_python(node: ast.AST, *, inside_functions: bool) -> Iterator[str]:
    """Dotted names that Python code imports at run time."""
    for child in ast.iter_child_nodes(node):
        if is_for_type_checkers(child):
            continue
        if not inside_functions and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide where they point"
            yield child.module or ""
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports_of_python(child, inside_functions=inside_functions)


def imports_of_cython(text: str) -> Iterator[str]:
    """Dotted names that Cython code imports or cimports."""
    statement = r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]*)"
    for module, names in re.findall(statement, text, re.MULTILINE):
        yield module
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
    yield from re.findall(r"^\s*c?import\s+([\w.]+)", text, re.MULTILINE)


def name_of(path: Path) -> str:
    """Name of a module inside the package, such as ``cli._parser``."""
    parts = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else CONTRACT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its name inside it."""
    sources = [path for suffix in ("*.py", "*.pyx") for path in PACKAGE.rglob(suffix)]
    return {name_of(path): path for path in sources if "include" not in path.relative_to(PACKAGE).parts}


def imports_of(path: Path, *, inside_functions: bool = True) -> set[str]:
    """Modules of the package that this one imports, by their names inside the package."""
    text = path.read_text()
    if path.suffix == ".py":
        names = set(imports_of_python(ast.parse(text), inside_functions=inside_functions))
    else:
        declarations = CONTRACT / path.relative_to(PACKAGE).with_suffix(".pxd")
        names = set(imports_of_cython(text + (declarations.read_text() if declarations.exists() else "")))
    found = set()
    for name in names:
        inside = name.removeprefix("ags1.")
        if name == "ags1":
            # `from ags1 import x` names x too; the package alone is the top.
            if re.search(r"^\s*import ags1\b", text, re.MULTILINE):
                found.add("__init__")
        elif name.startswith("ags1.") and inside in modules():
            found.add(inside)
    return found - {name_of(path)}


def place_of(name: str) -> int:
    """Place of a module's room in the order; a room that nobody gave one has no place in the building."""
    if name in TOPS:
        return len(ORDER)
    room = name.split(".")[0]
    assert room in ORDER, f"give {room} a place in {Path(__file__).name}, and in CONTRIBUTING.md"
    return ORDER.index(room)


def room_of(name: str) -> str:
    """Room of a module: the first part of its name, or the entry point itself."""
    return name if name in TOPS else name.split(".")[0]


def test_the_parser_of_imports_sees_every_form() -> None:
    python = "import a.b\nfrom c import d\nif TYPE_CHECKING:\n    import e\ndef f():\n    from g import (h,\n i)\n"
    tree = ast.parse(python)
    everything = {"a.b", "c", "c.d", "g", "g.h", "g.i"}
    assert set(imports_of_python(tree, inside_functions=True)) == everything
    assert set(imports_of_python(tree, inside_functions=False)) == {"a.b", "c", "c.d"}
    cython = "from ags1.core.gcm cimport (\n    Key,\n    as_key,\n)\nfrom ags1.core.layout cimport X\n"
    cython += "import os\nfrom ags1 import y\n"
    assert {"ags1.core.gcm", "ags1.core.gcm.Key", "ags1.core.layout", "os", "ags1.y"} <= set(imports_of_cython(cython))


def test_every_room_has_a_place_and_is_found() -> None:
    assert {"errors", "core.gcm", "core.blocks", "codec", "streams.stream", "__init__"} <= set(modules())
    assert {room_of(name) for name in modules()} == {*ORDER, *TOPS}


def test_who_opens_the_folder_sees_the_rooms() -> None:
    """At most twenty-one packages and faces, none of them private."""
    shown = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    shown -= {"__init__", "__main__", "version"}
    assert len(shown) <= 21
    assert not {name for name in shown if name.startswith("_")}


def test_imports_point_down() -> None:
    upwards = {
        f"{name} imports {imported}"
        for name, path in modules().items()
        for imported in imports_of(path)
        if room_of(imported) != room_of(name) and place_of(imported) >= place_of(name)
    }
    assert not upwards


def test_the_folders_of_a_room_do_not_import_each_other_in_a_circle() -> None:
    for room in ("parquet", "iceberg", "spark", "cli"):
        below: dict[str, set[str]] = {}
        for name, path in modules().items():
            if room_of(name) == room and path.name != "__init__.py":
                here = {other for other in imports_of(path) if other.count(".") > 1 or other in below}
                folders = {".".join(other.split(".")[:2]) for other in here if other.startswith(f"{room}.")}
                own = ".".join(name.split(".")[:2])
                below.setdefault(own, set()).update(folders - {own})
        left = set(below)
        while free := {folder for folder in left if not below[folder] & left}:
            left -= free
        assert not left, f"in circles: {sorted(left)}"


def test_the_rooms_that_need_each_other_are_seen_to() -> None:
    # If these were not found, the tests above would prove nothing.
    assert {"core.buffer", "errors"} <= imports_of(modules()["core.gcm"])
    assert {"core.gcm", "core.buffer", "core.layout"} <= imports_of(modules()["core.blocks"])
    assert {"core.blocks", "core.batch"} <= imports_of(modules()["codec"])
    assert {"layout", "keys", "storage"} <= imports_of(modules()["streams.stream"])
    assert "core.items" in set(imports_of(modules()["core.window"]))


def test_every_native_module_has_its_stub_and_the_makefile_its_name() -> None:
    native = {name for name, path in modules().items() if path.suffix == ".pyx"}
    assert len(native) > 15
    assert native == {name_of(path) for path in PACKAGE.rglob("*.pyi")}
    rule = ("--eval", "stubbed: ; @echo $(STUBBED)", "stubbed")
    made = subprocess.run(["make", "--silent", "--no-print-directory", *rule], cwd=PACKAGE.parent, capture_output=True)
    assert set(made.stdout.decode().split()) == {f"ags1.{name}" for name in native}


def imports_for_type_checkers(path: Path) -> Iterator[str]:
    """Modules of the package in any import statement, also in those that only a type checker reads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_a_room_uses_public_names_of_another_alone() -> None:
    """Of other rooms, neither a private module nor a private name, not even for types."""
    found, looked_at = set(), 0
    for name, path in modules().items():
        room = name.split(".")[0]
        if path.suffix != ".py" or not (PACKAGE / room).is_dir():
            continue
        for imported in imports_for_type_checkers(path):
            parts = imported.split(".")
            if parts[0] != "ags1" or len(parts) < 3 or parts[1] == room or not (PACKAGE / parts[1]).is_dir():
                continue
            looked_at += 1
            if any(part.startswith("_") and not part.startswith("__") for part in parts[2:]):
                found.add(f"{name} imports {imported}")
    assert looked_at > 500
    assert not found


def test_a_folder_imports_no_private_module_of_another() -> None:
    found = {
        f"{name} imports {imported}"
        for name, path in modules().items()
        for imported in imports_of(path)
        if imported.rpartition(".")[2].startswith("_")
        and imported.rpartition(".")[2] != "__init__"
        and path.parent != modules()[imported].parent
    }
    assert not found


def test_no_private_module_is_imported_from_outside_of_the_package() -> None:
    """Nor by tests and benchmarks: what they need is public inside of the house, and has no underscore."""
    root, found = PACKAGE.parent, set()
    files = [path for folder in ("tests", "bench", "examples", "buildtools") for path in (root / folder).rglob("*.py")]
    for path in files:
        for imported in imports_for_type_checkers(path):
            inside = imported.removeprefix("ags1.")
            if inside in modules() and inside.rpartition(".")[2].startswith("_") and inside != "__init__":
                found.add(f"{path.relative_to(root)} imports {imported}")
    assert len(files) > 300
    assert not found


def test_no_function_that_users_do_not_call_has_more_than_eight_parameters() -> None:
    found, looked_at = set(), 0
    for name, path in modules().items():
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text())
        public = {"__init__", *_public_names()}
        classes = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name in public]
        methods = {node for each in classes for node in each.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name not in public:
                looked_at += 1
                if node in methods and not node.name.startswith("_"):
                    continue
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([each for each in arguments if each.arg not in ("self", "cls")]) > 8:
                    found.add(f"{name}: {node.name}")
    assert looked_at > 1000
    assert not found


@cache
def _public_names() -> frozenset[str]:
    rooms = {room_of(name) for name in modules()} - {"cli", "__init__", "__main__", ""}
    found = {*ags1.__all__}
    for room in rooms:
        module = importlib.import_module(f"ags1.{room}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            # What a public class inherits is public too.
            found |= {each.__name__ for each in value.__mro__} if isinstance(value, type) else {name}
    return frozenset(found)


@pytest.mark.parametrize("inside_functions", [False, True])
def test_no_modules_import_each_other_in_a_circle(inside_functions: bool) -> None:
    graph = {
        name: imports_of(path, inside_functions=inside_functions)
        for name, path in modules().items()
        if name != "__init__"
    }
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' -> '.join([*above, name])}"
        if name not in done:
            for imported in graph.get(name, ()):
                walk(imported, (*above, name))
            done.add(name)

    for name in graph:
        walk(name, ())


def test_only_one_module_knows_openssl() -> None:
    knowing = {name for name, path in modules().items() if "ags1.core.evp cimport" in path.read_text()}
    assert knowing == {"core.gcm"}


# -- the public API ------------------------------------------------------------------------------------------

BLOCK = 1 << 20

# Every name, with the parameters that were promised. Parameters behind these must be optional keywords.
SIGNATURES = {
    "encrypt": 'data, key, *, aad_prefix=b"", block_length=BLOCK, threads=None',
    "encrypt_into": 'data, out, key, *, aad_prefix=b"", block_length=BLOCK, threads=None',
    "decrypt": 'data, key, *, aad_prefix=b"", length=None, threads=None',
    "decrypt_into": 'data, out, key, *, aad_prefix=b"", length=None, threads=None',
    "encrypted_length": "plaintext_length, block_length=BLOCK",
    "plaintext_length": "encrypted_length, block_length=BLOCK",
    "encrypt_many": "buffers, key, *, aad_prefixes=None, block_length=BLOCK, threads=None",
    "decrypt_many": "buffers, key, *, aad_prefixes=None, lengths=None, threads=None",
    "open": (
        'file, mode="rb", *, key=None, aad_prefix=b"", length=None, key_metadata=None, block_length=BLOCK, threads=None'
    ),
    "Reader": 'source, key, *, aad_prefix=b"", length=None, threads=None',
    "Reader.pread": "self, offset, size",
    "Reader.pread_into": "self, offset, out",
    "Writer": 'sink, key, *, aad_prefix=b"", block_length=BLOCK, threads=None',
    "encrypt_file": ('source, target, key=None, *, aad_prefix=b"", block_length=BLOCK, threads=None, progress=None'),
    "decrypt_file": (
        'source, target, key=None, *, key_metadata=None, aad_prefix=b"", length=None, threads=None, progress=None'
    ),
    "Key.generate": "bits=256",
    "KeyMetadata": "encryption_key, aad_prefix=None, file_length=None",
    "KeyMetadata.encode": "self",
    "KeyMetadata.decode": "data",
    "split_offsets": "plaintext_size, split_size, block_length=BLOCK",
    "layout.plaintext_to_block": "offset, block_length=BLOCK",
    "layout.block_to_ciphertext": "block_index, block_length=BLOCK",
    "layout.ciphertext_to_plaintext": "offset, block_length=BLOCK",
    "backend": "",
    "get_include": "",
}
MEMBERS = {
    "Reader": (
        *("read", "read1", "readinto", "readall", "peek", "seek", "tell", "readable", "seekable", "close"),
        *("pread", "pread_into", "size", "encrypted_length", "block_length", "length_trusted"),
    ),
    "Writer": ("write", "flush", "tell", "close", "abort", "encrypted_length", "key_metadata"),
    "KeyMetadata": ("encode", "decode", "encryption_key", "aad_prefix", "file_length"),
    "Key": ("generate",),
}


def promised(parameters: str) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter."""
    scope: dict[str, Any] = {"BLOCK": BLOCK}
    exec(f"def function({parameters}): pass", scope)
    return described(scope["function"])


def described(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter of a function."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def public(name: str) -> Any:
    """The object behind a dotted name of the public API."""
    found: Any = ags1
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", SIGNATURES)
def test_each_public_function_has_the_promised_parameters(name: str) -> None:
    wanted, found = promised(SIGNATURES[name]), described(public(name))
    assert found[: len(wanted)] == wanted
    for parameter, kind, default in found[len(wanted) :]:
        assert kind is inspect.Parameter.KEYWORD_ONLY, parameter
        assert default is not inspect.Parameter.empty, parameter


@pytest.mark.parametrize("name", MEMBERS)
def test_each_public_class_has_the_promised_members(name: str) -> None:
    assert not [member for member in MEMBERS[name] if not hasattr(public(name), member)]


def test_a_key_is_made_of_one_bytes_like_argument() -> None:
    assert bytes(ags1.Key(KEY)) == KEY
    with pytest.raises(TypeError):
        ags1.Key()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        ags1.Key(KEY, KEY)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name",
    ["Ags1Error", "FormatError", "TruncatedError", "AuthenticationError", "LimitError", "BackendError"],
)
def test_each_public_error_is_there(name: str) -> None:
    assert issubclass(public(name), ags1.Ags1Error)


def test_all_names_exist_and_are_listed() -> None:
    # Submodules that need an extra are found by name; `from ags1 import *` must work without the extras.
    submodules = {"arrow", "audit", "avro", "bench", "dataset", "fs", "iceberg", "kms", "parquet", "spark", "streams"}
    assert set(dir(ags1)) == set(ags1.__all__) | submodules
    assert not submodules & set(ags1.__all__)
    for name in ags1.__all__:
        assert getattr(ags1, name) is not None
    assert {name.split(".")[0] for name in SIGNATURES} <= set(ags1.__all__)


def test_the_submodules_of_the_contract_are_there() -> None:
    for name in ("layout", "arrow", "avro"):
        assert getattr(ags1, name) is importlib.import_module(f"ags1.{name}")
    assert callable(ags1.avro.read_split)


def test_get_include_has_the_contract() -> None:
    assert (CONTRACT / "core" / "layout.h").is_file()
    assert {"__init__.pxd", "layout.pxd", "evp.pxd", "gcm.pxd"} <= {path.name for path in (CONTRACT / "core").iterdir()}


def test_every_public_name_is_documented() -> None:
    for name in {*SIGNATURES, *MEMBERS}:
        assert inspect.getdoc(public(name)), name


def test_every_long_run_ends_after_the_seconds_that_it_is_given() -> None:
    long_runs = [path for path in Path(__file__).parent.rglob("soak_*.py") if '"--seconds"' not in path.read_text()]
    assert long_runs == [], "make test-all takes a sample of each by this option"


def test_threads_are_made_in_the_rooms_for_them_alone() -> None:
    """Elsewhere work goes through ags1.support.parallel, so that all of it ends in one way."""
    made = {"Thread", "ThreadPoolExecutor", "ProcessPoolExecutor"}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in ("support", "storage")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in made
    ]
    assert found == []


def test_no_two_classes_have_one_name() -> None:
    """A reader who meets a name must not have to ask which of two is meant."""
    found = Counter(
        node.name
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in found.items() if count > 1] == []
