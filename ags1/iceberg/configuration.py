"""What is wrong with PyIceberg's own configuration: a YAML file, and variables of the environment.

PyIceberg reads it when it is imported, and raises what its YAML library raises: no file is named there.
"""

from __future__ import annotations

import os


def configuration_fault() -> ValueError | None:
    """Why PyIceberg cannot read its configuration, with file and line; None if it can, or is not installed."""
    try:
        import strictyaml
        from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML, Config
    except ImportError:
        return None
    try:
        Config().get_known_catalogs()
        return None
    except Exception as fault:
        # It may be about a value, which may be a secret.
        said = str(fault).partition(", value:")[0]
    for directory in (os.environ.get(PYICEBERG_HOME), os.path.expanduser("~"), os.getcwd()):
        path = os.path.join(directory or "", PYICEBERG_YML)
        if not directory or not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                found = strictyaml.load(file.read()).data
        except strictyaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f", line {mark.line + 1}"
            return ValueError(f"{path}{line}: PyIceberg's configuration is no YAML: {error.problem}")
        except (OSError, UnicodeDecodeError) as error:
            return ValueError(f"{path}: PyIceberg's configuration cannot be read: {error}")
        if not isinstance(found, dict):
            return ValueError(
                f"{path}: PyIceberg's configuration is empty, or a text: write `catalog:` and catalogs into it"
            )
        if found:
            return ValueError(f"{path}, or a variable that begins with PYICEBERG_: {said}")
    return ValueError(f"a variable that begins with PYICEBERG_: {said}")
