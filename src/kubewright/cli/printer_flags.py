"""The flags of commands that print objects in kubeadm's output kinds (spec/kubeadm.md 1.9). Imports nothing heavy, as the command table.

A command that has them calls `output.printer`, which gives their meaning.
"""

from __future__ import annotations

from kubewright.cli.model import BOOL, Flag

FORMATS = (
    "text",
    "json",
    "yaml",
    "kyaml",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
)
"""In kubeadm's order; a test compares them with what `printers.choosing` takes. Templates and paths come behind a `=`."""
OUTPUT = Flag("output", f"form of the result: {', '.join(FORMATS)}", default="text", short="o", metavar="format")
MISSING_KEYS = Flag("allow-missing-template-keys", "let a template or path go on where a field or key is missing", kind=BOOL, default=True)
MANAGED_FIELDS = Flag(
    "show-managed-fields", "keep managedFields in json and yaml; objects of these commands have none", kind=BOOL, default=False
)
PRINTED = (OUTPUT, MISSING_KEYS, MANAGED_FIELDS)
