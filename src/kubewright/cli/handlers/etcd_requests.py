"""Requests of `etcd restore` and `etcd member replace`, from the flags of the command line."""

from __future__ import annotations

import functools

from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.lifecycle.etcd.request import ReplaceOptions, RestoreOptions


def restore_request(parsed: Parsed, *, only: tuple[str, ...]) -> RestoreOptions:
    """Turn the flags of `etcd restore` into a request."""
    return inputs.record(
        parsed,
        RestoreOptions,
        file=inputs.absolute(parsed.text("file")),
        only=only,
        ask=functools.partial(inputs.ask, form=parsed.text("output")),
    )


def replace_request(parsed: Parsed, *, only: tuple[str, ...]) -> ReplaceOptions:
    """Turn the flags of `etcd member replace` into a request."""
    return inputs.record(parsed, ReplaceOptions, only=only, ask=functools.partial(inputs.ask, form=parsed.text("output")))
