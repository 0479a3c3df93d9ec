"""An extension of griffe: docstrings and native classes as the API reference can show them.

Markdown takes the lines of an interactive session, ``>>> ...``, for quotations: here they become blocks of code. Native
classes tell nobody their arguments at run time: the stubs beside them do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

_SESSION = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)


class Docstrings(griffe.Extension):
    """What ``mkdocs.yml`` names."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change every docstring of a package, and the signatures of its native classes."""
        stubs: dict[str, griffe.Module] = {}
        for each in _objects(pkg, set()):
            # A section of examples is known to griffe.
            if each.docstring is not None and "Examples\n---" not in each.docstring.value:
                each.docstring.value = _SESSION.sub(_block, each.docstring.value)
            if not each.is_module:
                _take_signature(each, stubs)


def _block(session: re.Match[str]) -> str:
    return f"```pycon\n{session[0].rstrip()}\n```\n"


def _objects(above: Any, seen: set[str]) -> Iterator[Any]:
    if above.path in seen:
        return
    seen.add(above.path)
    yield above
    for member in list(above.members.values()):
        if member.is_alias:
            continue
        if not member.is_attribute:
            yield from _objects(member, seen)
        elif above.is_module and isinstance(above.filepath, Path) and above.filepath.suffix != ".py":
            # At run time, a number of a native module has the docstring of int.
            member.docstring = griffe.Docstring("A constant of the format.", parent=member)


def _take_signature(what: Any, stubs: dict[str, griffe.Module]) -> None:
    path = what.filepath
    if not isinstance(path, Path) or path.suffix == ".py" or not what.parent.is_module:
        return
    stub = path.parent / f"{path.name.partition('.')[0]}.pyi"
    if not stub.exists():
        return
    if str(stub) not in stubs:
        stubs[str(stub)] = griffe.visit(stub.stem, stub, stub.read_text(encoding="utf-8"))
    found: Any = stubs[str(stub)].members.get(what.name)
    if found is None:
        return
    if what.is_function and found.is_function:
        what.parameters, what.returns = found.parameters, found.returns
    elif what.is_class and "__init__" in found.members:
        what.set_member("__init__", found.members["__init__"])
