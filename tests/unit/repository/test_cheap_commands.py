"""Cheap commands stay cheap: their imports are listed here, and adding to the list is a decision."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubewright.base.randomness import SystemRandom
from kubewright.cli.rows.commands import HEADS
from kubewright.pki import issuing, keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.specs import CertificateSpec

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


def test_a_worker_finds_its_name_without_the_x509_library(tmp_path):
    """Importing that takes a fifth of the time of `upgrade node` on a worker."""
    spec = CertificateSpec(name="x", base="x", common_name="system:node:one", lifetime=timedelta(days=1), algorithm=Algorithm.ECDSA_P256)
    key = keys.generate(spec.algorithm)
    text = issuing.self_signed(spec, key, started=datetime.now(UTC), random=SystemRandom())
    (tmp_path / "x.crt").write_bytes(text)
    source = (
        "import sys; from pathlib import Path; from kubewright.pki import certificates;"
        f" name = certificates.first_common_name(Path({str(tmp_path / 'x.crt')!r}).read_bytes(), source='x.crt');"
        " sys.stdout.write(' '.join([name, *sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=environment())
    name, *loaded = done.stdout.split()
    assert (name, "kubewright.pki.encoding.der" in loaded, "cryptography" in loaded) == ("system:node:one", True, False)


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
