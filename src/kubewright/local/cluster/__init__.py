"""The functions of a local cluster that commands, programs and the pytest plugin call."""
