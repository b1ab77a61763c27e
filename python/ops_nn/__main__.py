"""`ops-nn VERB ...`, also `python -m ops_nn VERB ...`.

Exit codes: 0 all is well, 1 it is not (one line says why), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from . import __version__
from .errors import OpsNNError
from .tools import check, compile, explain, info, run

VERBS: dict[str, Any] = {"compile": compile, "run": run, "explain": explain, "check": check, "info": info}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ops-nn", description="Compile, run and look into neural networks for small boards.", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"ops-nn {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    for name, module in VERBS.items():
        assert module.__doc__ is not None
        verb = verbs.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.arguments(verb)
        verb.add_argument("--debug", action="store_true", help="show where an error comes from")
    return top


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = parser().parse_args(argv)
    try:
        code: int = VERBS[args.verb].run(args)
        return code
    except OpsNNError as error:
        if args.debug:
            raise
        print(f"ops-nn {args.verb}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
