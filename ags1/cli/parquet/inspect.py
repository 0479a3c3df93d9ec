"""``ags1 parquet inspect``: which columns and modules of a file are protected."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

from ags1.cli.command import Positional
from ags1.cli.output import say, say_json, warn
from ags1.cli.parquet.files import parquet_files
from ags1.cli.parquet.keys import Clients, KeyReferences, ReadingOptions, parquet_command
from ags1.cli.report import Reporter
from ags1.errors import Ags1Error
from ags1.parquet.structure.inspection import Inspection
from ags1.support.exit_codes import describe, exit_code
from ags1.support.words import counted, with_name


@parquet_command(
    decryption="PARQUET-DECRYPTION",
    files=Positional("FILE...", "Parquet file, glob or directory"),
    said="LIST",
    fields="file, what ags1.parquet.Inspection has, error",
)
def inspect(decryption: Namespace, files: list[str], said: Namespace) -> int:
    """Without keys, what anybody can see; with them, all of it. Nothing but the footer is authenticated: that takes
    `ags1 parquet verify`.

    examples:
      ags1 parquet inspect out.parquet --footer-key file:f.key
    """
    code = 0
    found = parquet_files(files, said)
    kinds: Counter[str] = Counter()
    with Clients() as clients, Reporter(said, ("reading", "read")) as reporter:
        reading = ReadingOptions(decryption, KeyReferences(), clients)
        looks = ((path, _look(path, name, reading)) for path, name in found)
        for number, (path, each) in enumerate(reporter.rows(looks)):
            if isinstance(each, Exception):
                code = code or exit_code(each)
                kinds["unreadable"] += 1
                text = with_name(path, describe(each))
                if said.json:
                    say_json({"file": path, "error": text})
                else:
                    warn(f"ags1: {text}")
                continue
            kinds["encrypted" if each.encryption is not None else "plaintext"] += 1
            if said.json:
                say_json({"file": path, **each.to_dict(), "error": None})
                continue
            if number:
                say("")
            for line in str(each).split("\n"):
                say(line)
    if len(found) > 1 and not said.json:
        say("")
        say(f"{counted(len(found), 'file')}: {', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}")
    return code


def _look(path: str, name: str, reading: ReadingOptions) -> Inspection | Exception:
    from ags1.parquet.structure.inspecting import inspect as look

    try:
        config = reading.config(path, name) if reading.named else None
        return look(path, config)
    except (Ags1Error, OSError, ValueError) as error:
        return error
