"""Small hostile files cost little memory, whatever is done with them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.checks import run_python

MIB = 1 << 20


def test_a_small_footer_does_not_become_large_structures(tmp_path: Path) -> None:
    """The threat: a byte of a footer can be a whole structure, which costs a hundred times as much in memory."""
    grown = json.loads(
        run_python(
            f"""
            import io, json
            from pathlib import Path
            from ags1 import FormatError, LimitError, parquet
            from ags1.parquet.rewrite.trees import verify_tree
            from tests import peak_memory

            def varint(number):
                found = bytearray()
                while number > 127:
                    found.append(number & 127 | 128)
                    number >>= 7
                return bytes([*found, number])

            COUNT = 1_500_000
            def structs(count):
                return b"\\xfc" + varint(count)

            empty = structs(COUNT) + bytes(COUNT)
            schema = structs(2) + b"\\x48\\x01r\\x15\\x02\\x00" + b"\\x15\\x02\\x38\\x01a\\x00"
            # Fields: 1 version, 2 schema, 3 number of rows, 4 row groups, 5 pairs of keys and values, 9 unknown.
            def footer(schema, groups, more=b""):
                return b"\\x15\\x02\\x19" + schema + b"\\x16\\x00\\x19" + groups + more + b"\\x00"

            FOOTERS = {{
                "schema": footer(empty, structs(0)),
                "row groups": footer(schema, empty),
                "columns": footer(schema, structs(1) + b"\\x19" + empty + b"\\x00"),
                "pairs": footer(schema, structs(0), b"\\x19" + empty),
                "unknown": footer(schema, structs(0), b"\\x59" + empty),
            }}
            encryption = parquet.EncryptionConfig(bytes(range(16)))
            tree = Path({str(tmp_path)!r})
            path = tree / "x.parquet"
            WORKS = {{
                "encrypt": lambda: parquet.encrypt_file(path, io.BytesIO(), encryption),
                "verify": lambda: parquet.verify_file(path),
                "trees": lambda: verify_tree(tree, None, on_error="collect"),
                "inspect": lambda: parquet.inspect(path),
                "view": lambda: parquet.open(path, None).close(),
            }}
            found = {{}}
            for name, data in FOOTERS.items():
                path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
                for work, run in WORKS.items():
                    before = peak_memory.begin()
                    try:
                        run()
                    except (FormatError, LimitError):
                        pass
                    found[f"{{name}}, {{work}}"] = peak_memory.grown(before)
            print(json.dumps(found))
            """
        )
    )
    assert len(grown) == 25
    large = {name: f"{each / MIB:.0f} MiB" for name, each in grown.items() if each > 60 * MIB}
    assert not large
