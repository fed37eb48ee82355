"""`benchmarks/run NAME`: the benchmarks by name."""

from __future__ import annotations

import argparse
import sys

import end_to_end
import fanout
import latency
import materializer
import views

BENCHMARKS = {
    "end-to-end": end_to_end,
    "fanout": fanout,
    "latency": latency,
    "materializer": materializer,
    "views": views,
}


def main() -> int:
    """Run the named benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks/run")
    names = parser.add_subparsers(required=True, metavar="NAME")
    for name, module in BENCHMARKS.items():
        found = names.add_parser(name, help=(module.__doc__ or "").splitlines()[0], description=module.__doc__)
        module.add_flags(found)
        found.set_defaults(run=module.run)
    flags = parser.parse_args()
    result: int = flags.run(flags)
    return result


if __name__ == "__main__":
    sys.exit(main())
