"""Print the seed of the differential tests, so that their findings can be reproduced."""


def pytest_terminal_summary(terminalreporter):
    from fuzzing import SEED  # not before the part of the suite is known, which determines the seed

    terminalreporter.write_line(f"differential tests: repeat with KUBEWRIGHT_DIFFERENTIAL_SEED={SEED}")
