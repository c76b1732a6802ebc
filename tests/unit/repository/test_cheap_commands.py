"""Cheap commands stay cheap: their imports are listed here, and adding to the list is a decision."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubewright.cli.rows.commands import HEADS

HEAVY = frozenset(
    {
        "aiohttp", "argparse", "asyncio", "concurrent", "cryptography", "dataclasses", "email", "http", "inspect", "json", "jsonpatch", "logging",
        "msgspec", "rich", "secrets", "shtab", "socket", "ssl", "subprocess", "urllib", "urllib3", "uvloop", "yaml",
    }
)  # fmt: skip

PROGRAM = """
import sys
sys.argv = ["kubewright", *{argv!r}]
before = set(sys.modules)
from kubewright.cli.main import main
code = main()
sys.stderr.write("LOADED " + " ".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


@pytest.mark.parametrize("argv", [["--help"], ["version"], ["version", "-o", "short"], ["token", "generate"], ["up", "--help"]])
def test_a_cheap_command_loads_nothing_heavy(argv):
    source = PROGRAM.format(argv=argv)
    done = subprocess.run([sys.executable, "-S", "-c", source], capture_output=True, text=True, check=True, env=environment())
    loaded = {name.partition(".")[0] for name in done.stderr.partition("LOADED ")[2].split()}
    assert loaded
    assert sorted(loaded & HEAVY) == []


def test_an_agent_loads_its_servers_only_after_registration():
    source = "import sys, kubewright.cli.handlers.agent.run, kubewright.agent.daemon; sys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=environment())
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"kubewright", "asyncio", "msgspec"} <= loaded
    assert sorted(loaded & {"aiohttp", "grpc", "prometheus_client", "rich", "urllib3"}) == []


def environment() -> dict[str, str]:
    import kubewright

    return {**os.environ, "PYTHONPATH": str(Path(kubewright.__file__).parents[1])}


@pytest.mark.parametrize(
    ("argv", "rows"),
    [
        (["--help"], set()),
        (["version"], set()),
        (["token", "generate"], {"cluster"}),
        (["init", "phase", "certs", "--help"], {"machine"}),
        (["upgrade", "node", "--help"], {"machine"}),
    ],
)
def test_a_command_loads_only_the_rows_of_its_first_word(argv, rows):
    source = PROGRAM.format(argv=argv)
    done = subprocess.run([sys.executable, "-S", "-c", source], capture_output=True, text=True, check=True, env=environment())
    loaded = {name.rpartition(".")[2] for name in done.stderr.partition("LOADED ")[2].split() if name.startswith("kubewright.cli.rows.")}
    homes = {head.rows.rpartition(".")[2] for head in HEADS} - {"commands"}
    assert loaded & homes == rows
