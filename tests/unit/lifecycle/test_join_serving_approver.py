"""The rows that joining control planes write into the policy of nodes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from init_kit import DETECTED, TOKEN, asked

from kubewright.apis import node_approval
from kubewright.apis.node_approval import FileRow
from kubewright.base.randomness import SeededRandom
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.init.request import configure
from kubewright.lifecycle.join import serving_approver
from kubewright.manifests import node_policy


def joined(*, strict: bool, token: str) -> node_approval.NodeApprovalPolicy:
    """The policy after a machine with the name node1 has joined."""
    api, configuration = RecordingKube(), configure(asked(), detected=DETECTED, random=SeededRandom()).configuration
    rows = [FileRow(node="one", addresses=("10.98.0.11",))]
    api.create(node_policy.config_map(node_policy.of_cluster(configuration, rows, strict_clients=strict)))
    ctx = SimpleNamespace(
        api=api,
        configuration=configuration,
        detected=DETECTED,
        join=SimpleNamespace(discovery=SimpleNamespace(tls_bootstrap_token=token)),
        external_ca=False,
    )
    assert len(list(serving_approver.run(ctx))) == 1
    text = api.get(CONFIG_MAP, node_policy.NAME, "kube-system")["data"][node_policy.KEY]
    return node_approval.read(text.encode(), source="the policy")


@pytest.mark.parametrize(("strict", "token", "tokens"), [(True, TOKEN, {"abcdef"}), (True, "", set()), (False, TOKEN, set())])
def test_a_control_plane_lists_itself_with_the_token_it_joins_with_where_that_counts(strict, token, tokens):
    row = joined(strict=strict, token=token).row("node1")
    assert row is not None
    assert (row.lists("10.98.0.11"), row.tokens) == (True, tokens)
