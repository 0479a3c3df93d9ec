"""Nodes of a tree of Thrift compact values: spans of a source, opened when looked at, and written back."""

from typing import Final

from typing_extensions import disjoint_base

# Of every Cython module.
__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@disjoint_base
class Node:
    __hash__: None  # type: ignore[assignment]
