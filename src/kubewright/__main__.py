"""`python -m kubewright`."""

from kubewright.cli.main import run

run()
