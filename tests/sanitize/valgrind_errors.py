"""Reads valgrind's XML and says what of it is about ags1: CPython itself makes many reports that are false.

A report counts if the innermost code in it that is neither valgrind's nor libc's is in a module of ags1, or if it is
of a kind that CPython never causes: memory used after it was freed, or beyond its end. Leaks of ags1 and of the
OpenSSL in it count likewise. Of CPython's integers valgrind
believes that they have no value (compilers read a digit before they ask whether there is one), and all that is made of
them is tainted: reports that go back to their allocation do not count, which needs --track-origins=yes.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

ALWAYS = {"InvalidRead", "InvalidWrite", "InvalidFree", "MismatchedFree", "InvalidJump", "Overlap"}
BELOW = ("vgpreload", "libc.so", "libc-", "ld-linux", "libpthread")


def ours(error: ElementTree.Element) -> bool:
    """Whether a report is about ags1."""
    if error.findtext("kind") in ALWAYS:
        return True
    if any(frame.findtext("fn") == "_PyLong_New" for frame in error.iter("frame")):
        return False
    stack = error.find("stack")
    for frame in stack.iter("frame") if stack is not None else ():
        where = frame.findtext("obj") or ""
        if not any(part in where for part in BELOW) and "PyMem_" not in (frame.findtext("fn") or ""):
            return "/ags1/" in where
    return False


def main(path: str) -> int:
    """Print the findings; return 1 if there are any, 2 if valgrind did not come to its end."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if "<state>FINISHED</state>" not in text:
        print("valgrind did not finish")
        return 2
    root = ElementTree.fromstring(text)
    found = [error for error in root.iter("error") if ours(error)]
    for error in found:
        print(error.findtext("kind"), error.findtext("what") or error.findtext("xwhat/text"))
        for frame in list(error.iter("frame"))[:12]:
            where = frame.findtext("file") or (frame.findtext("obj") or "").rpartition("/")[2]
            print(f"    {frame.findtext('fn') or '?'} ({where}:{frame.findtext('line') or '?'})")
    print(f"{sum(1 for _ in root.iter('error'))} reports, {len(found)} of them about ags1")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
