"""Generated tokens: repeated runs do not accumulate them."""

from __future__ import annotations

import base64

import pytest
from init_kit import FAST, Box, names

from kubewright.base import yaml
from kubewright.kube.resources import SECRET
from kubewright.lifecycle.init.request import InitOptions

HOUR = 3600.0


def asked(init: str = "") -> InitOptions:
    """A request that names no token, unless `init` does."""
    text = (
        f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n{FAST}"
        f"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n{init}"
    )
    return InitOptions(documents=yaml.load_all(text, source="kubeadm.yaml"), from_file=True)


def tokens(box: Box) -> list[str]:
    """The tokens of the cluster, sorted."""
    found = box.kube.list(SECRET, "kube-system")
    data = [row["data"] for row in found if row["metadata"]["name"].startswith("bootstrap-token-")]
    return sorted(".".join(base64.b64decode(row[key]).decode() for key in ("token-id", "token-secret")) for row in data)


def joins_with(box: Box) -> str:
    """The token of the last printed join command."""
    told = next(line for line in reversed([text for text in box.lines() if "--token" in text]))
    return told.split("kubewright join ")[1].split("--token ")[1].split()[0]


def test_a_second_run_keeps_the_generated_token(box):
    box.run(asked())
    [token] = tokens(box)
    assert names(box.run(asked())) == []
    assert tokens(box) == [token]
    assert joins_with(box) == token


def test_a_token_past_half_of_its_lifetime_gets_a_successor(box):
    box.run(asked())
    [token] = tokens(box)
    box.clock.advance(11 * HOUR)
    box.run(asked())
    assert tokens(box) == [token]
    box.clock.advance(2 * HOUR)
    box.run(asked())
    assert len(tokens(box)) == 2
    assert joins_with(box) != token


@pytest.mark.parametrize(
    "init",
    [
        "bootstrapTokens: [{token: zyxwvu.0123456789abcdef}]\n",
        "bootstrapTokens: [{usages: [authentication]}]\n",
        "bootstrapTokens: [{groups: ['system:bootstrappers:others']}]\n",
        "bootstrapTokens: [{ttl: 0s}]\n",
        "bootstrapTokens: [{description: mine}]\n",
    ],
)
def test_a_requested_token_is_created_in_addition(box, init):
    box.run(asked())
    [token] = tokens(box)
    box.run(asked(init))
    assert len(tokens(box)) == 2
    assert joins_with(box) != token


def test_two_generated_tokens_stay_two(box):
    twice = "bootstrapTokens: [{}, {}]\n"
    box.run(asked(twice))
    first = tokens(box)
    assert len(first) == 2
    assert names(box.run(asked(twice))) == []
    assert tokens(box) == first
