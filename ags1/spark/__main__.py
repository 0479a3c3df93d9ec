"""``python -m ags1.spark``, and the file that spark-submit takes: ``$(python -m ags1.spark --path)``.

Nothing of it is pickled: executors import the modules with the code that they run.
"""

import os
import sys


def _run() -> int:
    here = os.path.dirname(os.path.abspath(__file__))
    # When started by its path, Python finds the modules beside this file as top-level modules, and maybe not this
    # package.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != here]
    try:
        from ags1.spark.job import main
    except ModuleNotFoundError as error:
        if error.name != "ags1":
            raise
        sys.path.append(os.path.dirname(os.path.dirname(here)))
        from ags1.spark.job import main
    return main()


if __name__ == "__main__":
    try:
        code = _run()
    except ImportError as error:
        print(f"ags1: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)
