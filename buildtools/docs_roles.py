"""A hook of MkDocs: roles of Sphinx in docstrings, such as :func:`name`, become code."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):<code>(~[\w.]*\.)?([^<]*)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page without the names of roles; ``~`` leaves out the modules, as in Sphinx."""
    return _ROLE.sub(r"<code>\2</code>", html)
