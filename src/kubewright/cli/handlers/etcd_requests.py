"""The options of `etcd restore` and `etcd member replace`, from their flags."""

from __future__ import annotations

import functools

from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.lifecycle.etcd.request import ReplaceOptions, RestoreOptions


def restore_request(parsed: Parsed, *, only: tuple[str, ...]) -> RestoreOptions:
    """Return the options from the flags of `etcd restore`."""
    return inputs.record(
        parsed,
        RestoreOptions,
        file=inputs.absolute(parsed.text("file")),
        only=only,
        ask=functools.partial(inputs.ask, form=parsed.text("output")),
    )


def replace_request(parsed: Parsed, *, only: tuple[str, ...]) -> ReplaceOptions:
    """Return the options from the flags of `etcd member replace`."""
    return inputs.record(parsed, ReplaceOptions, only=only, ask=functools.partial(inputs.ask, form=parsed.text("output")))
