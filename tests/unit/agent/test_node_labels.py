from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent.status.facts import check_labels, default_labels
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldErrorType


def test_every_node_has_labels_for_name_system_and_architecture():
    assert default_labels(host_name="node-1", operating_system="linux", architecture="arm64") == {
        "kubernetes.io/hostname": "node-1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
    }


@pytest.mark.parametrize(
    "key",
    [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "kubelet.kubernetes.io/anything",
        "deep.kubelet.kubernetes.io/anything",
        "node.kubernetes.io/anything",
        "sub.node.kubernetes.io/anything",
        "example.org/mine",
        "plain",
        "notkubernetes.io/mine",
    ],
)
def test_labels_that_a_node_may_give_itself(key):
    check_labels({key: "value"})


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        ({"node-restriction.kubernetes.io/x": ""}, [FieldErrorType.FORBIDDEN]),
        ({"node-role.kubernetes.io/control-plane": ""}, [FieldErrorType.FORBIDDEN]),
        ({"kubernetes.io/role": "x"}, [FieldErrorType.FORBIDDEN]),
        ({"x.k8s.io/role": "x"}, [FieldErrorType.FORBIDDEN]),
        ({"bad key": "x"}, [FieldErrorType.INVALID]),
        ({"UPPER.example/x": "x"}, [FieldErrorType.INVALID]),
        ({"x": "not ok"}, [FieldErrorType.INVALID]),
        ({"x": "v" * 64}, [FieldErrorType.INVALID]),
        ({"k8s.io/a": "bad value"}, [FieldErrorType.FORBIDDEN, FieldErrorType.INVALID]),
        ({"k8s.io/a": "", "k8s.io/b": ""}, [FieldErrorType.FORBIDDEN, FieldErrorType.FORBIDDEN]),
    ],
)
def test_labels_that_a_node_may_not_give_itself(labels, kinds):
    with pytest.raises(ValidationError) as caught:
        check_labels(labels)
    assert [error.type for error in caught.value.errors] == kinds


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=80), max_size=4))
def test_no_label_causes_another_error(labels):
    with suppress(ValidationError):
        check_labels(labels)
