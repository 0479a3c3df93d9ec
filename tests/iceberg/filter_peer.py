"""A process that runs Spark with Iceberg: makes tables step by step, and says for each row which filters it passes.

    python -m tests.iceberg.filter_peer DIRECTORY CLASS_PATH

It answers one line of JSON for each line of JSON on standard input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.iceberg.spark_process import Lake

_MARKS = {True: "1", False: "0", None: "n"}


def _step(lake: Lake, name: str, step: dict[str, Any]) -> None:
    if "sql" in step:
        lake.sql(step["sql"])
        return
    iceberg = lake.jvm.org.apache.iceberg
    kind = iceberg.types.Types.fromPrimitiveString(step["type"])
    literal = iceberg.expressions.Literal.of(step["default"]).to(kind)
    change = lake.table(name).updateSchema()
    add = change.addRequiredColumn if step["required"] else change.addColumn
    if step["parent"] is None:
        add(step["name"], kind, None, literal).commit()
    else:
        add(step["parent"], step["name"], kind, None, literal).commit()


def _answer(lake: Lake, request: dict[str, Any]) -> Any:
    name = request["table"]
    if "create" in request:
        lake.create(name, **request["create"])
    for step in request.get("steps", ()):
        _step(lake, name, step)
    if "drop" in request:
        return lake.sql(f"DROP TABLE {name}") and None
    if "filters" in request:
        # In the columns of one query, no filter is pushed down to Iceberg: the answer is Spark's own.
        filters = ", ".join(f"({each})" for each in request["filters"])
        rows = lake.sql(f"SELECT id, array({filters}) FROM {name}")
        return [[row[0], "".join(_MARKS[each] for each in row[1])] for row in rows]
    return lake.summary(name, ())["metadata"]


def main(directory: str, class_path: str) -> None:
    """Serve requests until standard input ends."""
    lake = Lake(Path(directory).resolve(), class_path)
    print(json.dumps({"ready": lake.spark.version}), flush=True)
    for line in sys.stdin:
        try:
            answer: Any = {"answer": _answer(lake, json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
