"""Print the seed of the differential tests, so that what they found can be found again."""

from fuzzing import SEED


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"differential tests: repeat with KUBEWRIGHT_DIFFERENTIAL_SEED={SEED}")
