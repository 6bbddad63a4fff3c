"""Decode and prefill of every model in turn: `python bench/speed.py [--json] [--quick]`.

The rows of decode.py and prefill.py, with each pair of models made once.
"""

from __future__ import annotations

import argparse
import sys

import decode
import prefill
import versus

from engine.bench.rows import show


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    versus.add_flags(parser)
    prefill.add_flags(parser)
    args = parser.parse_args()
    show(versus.over_models(args, decode.rows_of, prefill.rows_of), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
