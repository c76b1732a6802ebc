"""Structs of other APIs that configuration documents embed: core/v1 (k8s.io/api v0.36) and k8s.io/component-base."""

from __future__ import annotations

from typing import Final

from kubewright.apis.scalars import AMOUNT, FLAG, TEXT, Text
from kubewright.apis.schema import Field, Plain, Pointer, table

TAINT: Final = table("""
key | text! | | | name of the taint
value | text | | | its value
effect | text! | | | NoSchedule, PreferNoSchedule or NoExecute
timeAdded | moment | | | must not be set here
""")

_OPTIONAL: Final = Field("optional", Pointer(FLAG))
_KEY_OF: Final = Plain((Field("name", TEXT), Field("key", TEXT, keep=True), _OPTIONAL))

ENV_SOURCE: Final = Plain(
    (
        # kubeadm's own default: SetDefaults_EnvVar
        Field("fieldRef", Pointer(Plain((Field("apiVersion", Text(default="v1")), Field("fieldPath", TEXT, keep=True))))),
        Field(
            "resourceFieldRef",
            Pointer(Plain((Field("containerName", TEXT), Field("resource", TEXT, keep=True), Field("divisor", AMOUNT, keep=True)))),
        ),
        Field("configMapKeyRef", Pointer(_KEY_OF)),
        Field("secretKeyRef", Pointer(_KEY_OF)),
        Field(
            "fileKeyRef",
            Pointer(
                Plain(
                    (
                        Field("volumeName", TEXT, keep=True),
                        Field("path", TEXT, keep=True),
                        Field("key", TEXT, keep=True),
                        _OPTIONAL,
                    ),
                ),
            ),
        ),
    ),
)
"""A core/v1 EnvVarSource."""

_ROUTING: Final = table("""
splitStream | flag | false | | errors to stderr, the rest to stdout
infoBufferSize | amount | 0 | | lines on stdout are kept back up to this size
""")
LOGGING: Final = table(
    """
format | text | text | | text or json
flushFrequency | logspan | 5s | | longest time that lines are kept back
verbosity | uint32! | 0 | 1.21 | how much is logged
vmodule | []struct | | 1.21 | verbosity of single source files
vmodule.filePattern | text! | | | name of the file without .go; * and ? stand for others
vmodule.verbosity | uint32! | | | its verbosity
options | struct | | 1.21 | options of the formats
options.text | routing | | 1.27 | of text
options.json | routing | | | of json
""",
    routing=_ROUTING,
)
"""component-base logs/api/v1 LoggingConfiguration."""
