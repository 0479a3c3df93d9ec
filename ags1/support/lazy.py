"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

from ags1.support.typing import Any


def can_import(*modules: str) -> bool:
    """Whether these modules are installed; none is imported."""
    import importlib.util

    try:
        return all(importlib.util.find_spec(module) is not None for module in modules)
    except (ImportError, ValueError):
        return False


def lazy_names(
    package: str,
    homes: Mapping[str, Iterable[str]],
    needs: Mapping[str, tuple[str, ...]] | None = None,
    extra: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package.

    `homes` maps its modules to the names that they define, `needs` to what they import of other projects. Names that
    cannot be imported are not listed: ``help()`` and ``inspect.getmembers`` get every name that is. For the
    others, an ImportError names the `extra` that has what is missing.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    needs = needs or {}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        missing = next((each for each in needs.get(home_of[name], ()) if not can_import(each)), None)
        if missing is not None:
            raise ImportError(f"{package}.{name} needs {missing}: pip install 'ags1[{extra}]'", name=missing)
        value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(name for name, home in home_of.items() if can_import(*needs.get(home, ())))
