"""The parts of a user's text that are shown: in quotes, and of URLs only the location."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.messages import shown_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://files.example/a/discovery.conf", "https://files.example/a/discovery.conf"),
        ("https://files.example:8443/a?token=canary", "https://files.example:8443/a"),
        ("https://files.example/a#canary", "https://files.example/a"),
        ("https://files.example?canary", "https://files.example"),
        ("https://user:canary@files.example/a?canary", "https://files.example/a"),
        ("https://canary@files.example", "https://files.example"),
        ("https://user:can@ary@files.example/a", "https://files.example/a"),
        ("https://user:can/ary@files.example/a", "https://..."),
        ("https://user:can?ary@files.example/a", "https://..."),
        ("https://[fd00::1]:6443/a?canary", "https://[fd00::1]:6443/a"),
        ("https://[fd00::1/a?canary", "https://[fd00::1/a"),
        ("https://10.0.0.1:6443/@scope/a", "https://10.0.0.1:6443/@scope/a"),
        ("https://files.example/@scope/a", "https://files.example/@scope/a"),
        ("unix:///run/containerd.sock", "unix:///run/containerd.sock"),
        ("/etc/kubernetes/what?.conf", "/etc/kubernetes/what?.conf"),
        ("", ""),
    ],
)
def test_only_the_location_of_a_url_is_shown(text: str, shown: str) -> None:
    assert shown_url(text) == shown


PART = st.text(st.characters(codec="ascii", categories=("L", "N", "P"), exclude_characters="/?#"), max_size=8)


@given(PART, PART, PART)
def test_no_user_and_no_query_is_ever_shown(user: str, password: str, query: str) -> None:
    secret = "canary0canary"
    for text in (
        f"https://{user}:{password}{secret}@host.example/a?{query}",
        f"https://{secret}{user}@host.example/a",
        f"https://host.example/a?{query}{secret}",
        f"https://{user}:{password}@host.example?{secret}",
    ):
        assert secret not in shown_url(text), text
