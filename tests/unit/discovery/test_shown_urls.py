"""Errors about URLs show the location, and not the possibly secret parts: query and user."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest
from scripted_server import Raw, ScriptedServer, answer

from kubewright.base.errors import KubewrightError
from kubewright.discovery import file as by_file
from kubewright.discovery import token as by_token
from kubewright.http import tls
from kubewright.http.sync import Downloads

MakeServer = Callable[..., ScriptedServer]

ANSWERS = {
    "an error page": answer(503, b"busy"),
    "no kubeconfig": answer(200, b"[1, 2"),
    "a kubeconfig without a cluster": answer(200, b"apiVersion: v1\nkind: Config\n"),
    "a server that is no https URL": answer(
        200, b"apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: 'http://u:canary@a.example?canary'}}]\n"
    ),
    "nothing": Raw((), close=True),
    "a redirect to a place without TLS": answer(302, headers={"Location": "http://u:canary@a.example/x?canary"}),
    "a redirect to what is no URL": answer(302, headers={"Location": "https://[canary/x?canary"}),
    "a redirect to a port that is none": answer(302, headers={"Location": "https://a.example:canary/x?canary"}),
    "redirects without end": answer(302, headers={"Location": "/again?canary"}),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_error_about_a_discovery_url_shows_only_the_place(make_server: MakeServer, ca_pem: bytes, case: str) -> None:
    server = make_server(lambda _: ANSWERS[case])
    context: ssl.SSLContext = tls.client_context(ca_pem)
    downloads = Downloads(context)
    url = server.url.replace("https://", "https://user:canary@") + "/discovery.conf?token=canary#canary"
    with pytest.raises(KubewrightError) as caught:
        by_file.fetch(url, downloads=downloads, within=20)
    downloads.close()
    shown = f"{caught.value} {caught.value.detail} {caught.value.remedy}"
    assert "canary" not in shown
    assert "127.0.0.1" in shown


@pytest.mark.parametrize(
    "typed", ["10.0.0.1:6443?token=canary", "10.0.0.1/path?canary", "https://10.0.0.1:6443?canary", "https://u:canary@10.0.0.1"]
)
def test_an_error_about_the_address_that_was_typed_shows_no_query(typed: str) -> None:
    with pytest.raises(KubewrightError) as caught:
        by_token.server_url(typed)
    assert "canary" not in f"{caught.value} {caught.value.remedy}"
