"""The types of tailrace.js are those of tailrace.js."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from conformance.logic import node

PACKAGE = Path(__file__).parents[2] / "clients" / "js"


def test_a_program_that_uses_every_type_compiles() -> None:
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        pytest.skip("needs the TypeScript compiler: `npm ci` in clients/js, which `scripts/setup` does where npm is")
    found = subprocess.run([node(), str(compiler), "-p", str(PACKAGE)], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout


def test_what_the_types_name_is_there() -> None:
    script = """
        const { Client, Subscription, ...others } = await import(process.argv[1]);
        const names = (one) => Object.getOwnPropertyNames(one.prototype);
        console.log(["Client", "Subscription", ...Object.keys(others)].sort().join());
        console.log(names(Client).filter((name) => name !== "constructor").sort().join());
    """
    command = [node(), "--input-type=module", "-e", script, str(PACKAGE / "tailrace.js")]
    exported, methods = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    types = (PACKAGE / "tailrace.d.ts").read_text()
    assert sorted(re.findall(r"^export (?:class|function) (\w+)", types, re.MULTILINE)) == exported.split(",")
    client = types[types.index("export class Client") :]
    assert sorted(set(re.findall(r"^  (\w+)(?:<[^>]*>)?\(", client, re.MULTILINE)) - {"constructor"}) == methods.split(
        ","
    )
