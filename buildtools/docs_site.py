"""Hooks of MkDocs: edit links where the repository is known; roles of Sphinx, such as :func:`name`, become code."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):<code>(~[\w.]*\.)?([^<]*)</code>")


def on_config(config: Any) -> None:
    """Give pages an edit link where `repo_url` is set: elsewhere it would lead nowhere, which is an error."""
    config["edit_uri"] = "edit/main/docs/" if config["repo_url"] else None


def on_page_content(html: str, **_: Any) -> str:
    """Return the page without the names of roles; ``~`` leaves out the modules, as in Sphinx."""
    return _ROLE.sub(r"<code>\2</code>", html)
