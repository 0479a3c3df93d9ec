"""An extension of griffe: docstrings and native classes as the API reference can show them.

Markdown takes the lines of an interactive session, ``>>> ...``, for quotations: here they become blocks of code. Native
classes tell nobody their arguments at run time: the stubs beside them do.
"""

from __future__ import annotations

import re
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
            if each.docstring is not None and each.is_module:
                each.docstring.value = _SESSION.sub(_block, each.docstring.value)
            if each.is_class:
                _take_signature(each, stubs)


def _block(session: re.Match[str]) -> str:
    return f"```pycon\n{session[0].rstrip()}\n```\n"


def _objects(above: Any, seen: set[str]) -> Any:
    if above.path in seen:
        return
    seen.add(above.path)
    yield above
    for member in list(above.members.values()):
        if not member.is_alias and (member.is_module or member.is_class):
            yield from _objects(member, seen)


def _take_signature(cls: Any, stubs: dict[str, griffe.Module]) -> None:
    path = cls.filepath
    if not isinstance(path, Path) or path.suffix == ".py":
        return
    stub = path.parent / f"{path.name.partition('.')[0]}.pyi"
    if not stub.exists():
        return
    if str(stub) not in stubs:
        stubs[str(stub)] = griffe.visit(stub.stem, stub, stub.read_text(encoding="utf-8"))
    found = stubs[str(stub)].members.get(cls.name)
    if found is not None and "__init__" in found.members:
        cls.set_member("__init__", found.members["__init__"])
