"""Those structs of the core/v1 API that configuration documents embed (k8s.io/api/core/v1, v0.36)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.scalars import AMOUNT, FLAG, MOMENT, TEXT, Text
from kubewright.apis.schema import Field, Plain, Pointer

TAINT: Final = Plain((Field("key", TEXT, keep=True), Field("value", TEXT), Field("effect", TEXT, keep=True), Field("timeAdded", MOMENT)))

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
