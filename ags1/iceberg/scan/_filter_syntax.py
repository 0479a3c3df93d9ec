"""The syntax tree of a row filter as text, by sqlglot; what Spark's grammar does not have is refused.

sqlglot is lenient: it leaves out a word that it cannot place, or does without a missing one. So the tree is written
again, and must have the same words as the text, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

_Word = str | tuple[str, str]
_SYMBOLS = {
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NULLSAFE_EQ": "<=>",
    "NullSafeEQ": "<=>",
    "NullSafeNEQ": "<=>",
}
_TYPES = ("DOUBLE", "FLOAT", "DATE", "BIGINT", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ")
_VALUES = ("STRING", "NUMBER", "HEX_STRING", "RAW_STRING")
_BEFORE_VALUES = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NULLSAFE_EQ", "L_PAREN", "COMMA", "DASH", "PLUS")


def refuse(text: str, reason: str) -> NoReturn:
    """Raise the ValueError that says why a filter is refused."""
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    raise ValueError(f"the filter {shown!r} is refused: {reason}") from None


def shown_sql(tree: Any) -> str:
    """Return a part of a filter, for a message."""
    try:
        shown: str = tree.sql(dialect="spark")
    except ValueError:
        # It cannot write X''.
        return f"a part of it ({type(tree).__name__})"
    return shown if len(shown) <= 100 else f"{shown[:100]}..."


def syntax_tree(text: str) -> tuple[Any, list[Any]]:
    """Return sqlglot's tree of a condition, and its tokens; a ValueError reports a text that is none."""
    # Its import takes as long as that of all the rest.
    try:
        from sqlglot import exp
        from sqlglot.dialects.spark import Spark
        from sqlglot.errors import SqlglotError
    except ImportError:
        raise ImportError("row filters as text need sqlglot: pip install 'ags1[iceberg]'") from None

    try:
        text.encode()
    except UnicodeEncodeError:
        refuse(text, "it has half a character (a surrogate), which no text of a table has")
    dialect = Spark()
    try:
        tokens = dialect.tokenize(text)
    except SqlglotError:
        refuse(text, _NO_CONDITION)
    _check(tokens, text)
    tokens = _with_joined_texts(tokens)
    try:
        found = dialect.parser().parse_into(exp.Condition, tokens, text)
    except (SqlglotError, ArithmeticError, ValueError):
        refuse(text, _NO_CONDITION)
    if len(found) != 1 or found[0] is None:
        refuse(text, "it must be one condition, such as amount > 10")
    return found[0], tokens


_NO_CONDITION = (
    "it is no condition of Spark's SQL. Write, for example, amount > 10 and country = 'CH', with and, or, not, in, "
    "between, like and is null. A text stands in single quotes, a name with other characters than letters, digits and "
    "_ in backticks"
)


def _check(tokens: list[Any], text: str) -> None:
    """Refuse words that sqlglot reads, and Spark does not or in another way."""
    for token in tokens:
        raw, kind = text[token.start : token.end + 1], token.token_type.name
        if token.comments:
            refuse(text, "leave out its comment")
        if kind == "STRING" and raw[:1] != "'":
            refuse(text, f"write {raw} in single quotes if it is a text, in backticks if it is a name")
        if kind == "HEX_STRING" and raw[:1] not in ("x", "X"):
            refuse(text, f"{raw} is no number of Spark's SQL")
        if raw == "!":
            refuse(text, "write not instead of !")
        if kind == "SEMICOLON":
            refuse(text, "it must be one condition, without a semicolon")


def _with_joined_texts(tokens: list[Any]) -> list[Any]:
    """Return tokens in which 'it''s' is one text: a quote is doubled in it."""
    made: list[Any] = []
    for token in tokens:
        last = made[-1] if made else token
        if last.token_type.name == token.token_type.name == "STRING" and last.end + 1 == token.start:
            joined = f"{last.text}'{token.text}"
            made[-1] = type(token)(token.token_type, joined, last.line, last.col, last.start, token.end)
        else:
            made.append(token)
    return made


def check_whole(tree: Any, tokens: list[Any], text: str) -> None:
    """Refuse a text that has more words than its tree, or less; both in one of the ways to write the same."""
    read, written = list(_of_tokens(tokens)), list(_of_tree(tree))
    # A not stands at several places for the same; it counts that none is lost.
    words, wanted = ([each for each in found if each != "not"] for found in (read, written))
    if words == wanted and len(read) == len(written):
        return
    pairs = enumerate(zip(words, wanted, strict=False))
    place = next((place for place, pair in pairs if pair[0] != pair[1]), min(len(words), len(wanted)))
    near = " ".join(each if isinstance(each, str) else str(each[1]) for each in words[max(0, place - 2) : place + 1])
    refuse(text, f"something is missing or too much near {near!r}, so {_NO_CONDITION}")


def _of_tokens(tokens: list[Any]) -> Iterator[_Word]:
    kinds = [each.token_type.name for each in tokens] + [""] * 6
    place = 0
    while place < len(tokens):
        kind, token = kinds[place], tokens[place]
        is_cast = token.text.lower() == "cast"
        if (found := _value(tokens, kinds, place)) is not None:
            words, place = found
            yield from words
        elif kind in _TYPES and kinds[place + 1] == "STRING":
            place += 1
        elif (
            (is_cast or kind in _TYPES)
            and kinds[place + 1] == "L_PAREN"
            and (found := _value(tokens, kinds, place + 2)) is not None
            and (end := _end_of_cast(kinds, found[1], is_cast=is_cast)) is not None
        ):
            yield from found[0]
            place = end
        elif kinds[place : place + 3] == ["IS", "DISTINCT", "FROM"]:
            yield from ("not", "<=>")
            place += 3
        elif kinds[place : place + 4] == ["IS", "NOT", "DISTINCT", "FROM"]:
            yield "<=>"
            place += 4
        else:
            is_truth = kind == "UNKNOWN" and "IS" in kinds[max(0, place - 2) : place]
            name = token.text if kind == "IDENTIFIER" else token.text.lower()
            yield "null" if is_truth else (kind, name) if kind == "IDENTIFIER" else _SYMBOLS.get(kind, name)
            place += 1


def _value(tokens: list[Any], kinds: list[str], place: int) -> tuple[list[_Word], int] | None:
    """Return the words of a literal with its signs, and the place after it."""
    words: list[_Word] = []
    start = place
    while kinds[place] in ("DASH", "PLUS"):
        words += ["-"] * (kinds[place] == "DASH")
        place += 1
    before = ""
    if kinds[place] == "DOT" and kinds[place + 1] == "NUMBER":
        last = tokens[place - 1] if place else None
        apart = last is None or last.end + 1 < tokens[place].start or kinds[place - 1] in _BEFORE_VALUES
        if not apart or tokens[place].end + 1 != tokens[place + 1].start:
            return None
        before, place = "0.", place + 1
    # A sign makes a number of a text, for which Spark has rules of its own.
    if kinds[place] not in _VALUES or (place > start and kinds[place] != "NUMBER"):
        return None
    words.append(("VALUE", before + tokens[place].text))
    # 5L has the tokens 5, :: and L, all at its place.
    has_suffix = kinds[place + 1] == "DCOLON" and tokens[place + 1].start == tokens[place].start
    return words, place + (3 if has_suffix else 1)


def _end_of_cast(kinds: list[str], place: int, *, is_cast: bool) -> int | None:
    if is_cast:
        return (
            place + 3
            if kinds[place] == "ALIAS" and kinds[place + 1] in _TYPES and kinds[place + 2] == "R_PAREN"
            else None
        )
    return place + 1 if kinds[place] == "R_PAREN" else None


def _of_tree(tree: Any) -> Iterator[_Word]:
    name = type(tree).__name__
    if name in ("And", "Or"):
        for number, each in enumerate(tree.flatten(unnest=False)):
            yield from [name.lower()] * bool(number)
            yield from _of_tree(each)
    elif name in ("Column", "Dot"):
        for number, each in enumerate(tree.parts):
            yield from ["."] * bool(number)
            yield ("IDENTIFIER", each.this) if each.args.get("quoted") else str(each.this).lower()
    elif name in ("Literal", "HexString", "RawString"):
        yield ("VALUE", str(tree.this))
    elif name in ("In", "Anonymous", "IsNan", "Paren"):
        if name == "In":
            yield from _of_tree(tree.this)
        if name != "Paren":
            yield str(tree.this).lower() if name == "Anonymous" else name.lower()
        yield "("
        for number, each in enumerate(tree.expressions or [tree.this]):
            yield from [","] * bool(number)
            yield from _of_tree(each)
        yield ")"
    elif name == "Between":
        for word, part in (("", "this"), ("between", "low"), ("and", "high")):
            yield from [word] * bool(word)
            yield from _of_tree(tree.args[part])
    else:
        yield from ["not"] * (name in ("Not", "NullSafeNEQ") or bool(tree.args.get("negate")))
        yield from ["-"] * (name == "Neg")
        if name in ("Boolean", "Null"):
            yield str(bool(tree.this)).lower() if name == "Boolean" else "null"
            return
        yield from _of_tree(tree.this)
        # Of a cast only the value counts here.
        if (other := tree.args.get("expression")) is not None:
            yield _SYMBOLS.get(name, name.lower())
            yield from _of_tree(other)
