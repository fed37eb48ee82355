"""The long run: rounds of the same tests that `scripts/test` runs, with more of everything, each with its own seed.

Prints the seed of every round first. `--seed` with that number runs the same histories and kills again,
though not at the same moments of a busy machine. Exits with 1 if any round found a violation.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
TESTS = (
    "tests/unit/test_checker.py",
    "tests/service/pipeline/test_kinds_in_a_dry_run.py",
    "tests/journey/test_kinds_agree.py",
    "tests/failure/test_pipeline_breaks.py",
    "tests/failure/test_topics_change.py",
    "tests/failure/test_parents_are_rebuilt.py",
    "tests/failure/test_topics_change_at_random.py",
    "tests/service/store/test_redis_topologies.py",
    "tests/failure/test_redis_topologies_fail.py",
    "tests/journey/test_least_rights.py",
    "tests/journey/test_ways_to_connect.py",
    "tests/attack/test_secrets.py",
    "tests/attack/test_hostile_clients.py",
)
# Seconds that one test may take, which has twenty times the examples and kills of the ordinary run.
_LONGEST = 7200


@dataclass(frozen=True)
class Round:
    """What one round found."""

    seed: int
    seconds: float
    tests: int
    failed: tuple[str, ...]


def main() -> int:
    """Run rounds until the time is over. Returns 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="of round 1")
    parser.add_argument("--minutes", type=float, default=0, help="start rounds for so long; one round where 0")
    parser.add_argument("--kills", type=int, default=20, help="of the pipeline, per round")
    parser.add_argument("--examples", type=int, default=20, help="random histories through a pipeline, per test")
    parser.add_argument("--soak", type=float, default=0, help="minutes that clients come and go, beside hostile ones")
    parser.add_argument("tests", nargs="*", default=list(TESTS), help="instead of all; as for pytest")
    flags = parser.parse_args()
    end = time.monotonic() + flags.minutes * 60
    rounds: list[Round] = []
    while not rounds or time.monotonic() < end:
        seed = flags.seed + len(rounds)
        print(f"round {len(rounds) + 1}: --seed {seed} --kills {flags.kills} --examples {flags.examples}", flush=True)
        rounds.append(_round(seed, flags))
    print("\nround  seed        tests  failed  minutes")
    for number, one in enumerate(rounds, 1):
        print(f"{number:5}  {one.seed:<10}  {one.tests:5}  {len(one.failed):6}  {one.seconds / 60:7.1f}")
    for one in rounds:
        for test in one.failed:
            print(f"violated with --seed {one.seed}: {test}")
    return 1 if any(one.failed for one in rounds) else 0


def _round(seed: int, flags: argparse.Namespace) -> Round:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tailrace-campaign-") as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", *flags.tests, "-q", f"--junitxml={report}"]
        command += [f"--basetemp={directory}/tests", "-o", "tmp_path_retention_policy=failed"]
        command += ["--seed", str(seed), f"--hypothesis-seed={seed}", "--every-kind"]
        command += ["--kills", str(flags.kills), "--examples", str(flags.examples), "--soak", str(flags.soak)]
        command += [f"--timeout={_LONGEST}", "-o", f"faulthandler_timeout={_LONGEST}"]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    if code != 0 and not failed:
        failed = [f"pytest ended with {code}"]
    return Round(seed, time.monotonic() - began, len(cases), tuple(failed))


if __name__ == "__main__":
    sys.exit(main())
