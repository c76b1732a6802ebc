"""Discovering a cluster with a kubeconfig: from this machine, or from a URL, whose author is not trusted with this machine."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import PurePosixPath

import pytest

from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.errors import APIError, CertificateError, Forbidden, NotFound, TrustError, Unauthorized, UsageError, ValidationError
from kubewright.base.events import SilentReporter
from kubewright.discovery import file as by_file
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Response
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.tokens import cluster_info

CA, OTHER_CA, TRUST = b"-----CA-----", b"-----OTHER-----", b"-----HOST-----"
SERVER, URL = "https://cluster.example:6443", "https://files.example/discovery.conf"
PLACE = PurePosixPath("/srv/discovery.conf")


def document(*, ca: bytes | None = CA, user: dict | None = None, server: str = SERVER, **cluster: object) -> dict:
    found = cluster_info.document(server=server, ca_pem=ca or CA)
    entry = found["clusters"][0]["cluster"]
    if ca is None:
        del entry["certificate-authority-data"]
    entry.update(cluster)
    if user is not None:
        found["clusters"][0]["name"] = "c"
        found |= {"users": [{"name": "u", "user": user}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
        found["current-context"] = "x"
    return found


def reading(content: object, **more: bytes):
    files = {PLACE: yaml.dump(content).encode()} | {PurePosixPath(f"/srv/{name}"): data for name, data in more.items()}
    return files.get


class Downloads:
    """Answers any URL."""

    def __init__(self, body: object, status: int = 200) -> None:
        self.body = body if isinstance(body, bytes) else yaml.dump(body).encode()
        self.status = status
        self.most = self.within = None

    @contextmanager
    def get(self, url, /, *, most=None, within=None):
        assert url == URL
        self.most, self.within = most, within
        yield self

    def read(self):
        return self.body


def test_a_file_without_credentials_is_anonymous():
    found = by_file.load(PLACE, read=reading(document()))
    assert found == Access(server=SERVER, ca_pem=CA, identity=Anonymous())
    assert by_file.anonymous(found)


def test_credentials_and_paths_of_a_file_are_used():
    given = document(user={"tokenFile": "token"}, **{"certificate-authority": "ca.crt"}, ca=None)
    found = by_file.load(PLACE, read=reading(given, **{"ca.crt": CA, "token": b"abc\n"}))
    assert found == Access(server=SERVER, ca_pem=CA, identity=BearerToken("abc"))


def test_a_missing_discovery_file_is_reported_by_name():
    with pytest.raises(CertificateError, match=r"/srv/discovery\.conf does not exist"):
        by_file.load(PLACE, read=lambda _: None)


def test_no_program_is_run_for_a_local_file():
    with pytest.raises(UsageError, match="credentials by exec"):
        by_file.load(PLACE, read=reading(document(user={"exec": {"command": "id"}})))


def test_a_kubeconfig_from_a_url_is_limited_in_size_and_redirects():
    downloads = Downloads(document(user={"token": "abc"}))
    assert by_file.fetch(URL, downloads=downloads, within=7) == Access(server=SERVER, ca_pem=CA, identity=BearerToken("abc"))
    assert (downloads.most, downloads.within) == (by_file.MOST, 7)


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"exec": {"command": "id"}}, {}, "may not run a program"),
        ({"auth-provider": {"name": "x"}}, {}, "may not run a plugin"),
        ({"tokenFile": "/etc/shadow"}, {}, "may not name files of this machine"),
        ({"client-certificate": "/a", "client-key": "/b"}, {}, "may not name files of this machine"),
        ({"token": "a"}, {"insecure-skip-tls-verify": True}, "may not disable verification"),
        ({"token": "a"}, {"certificate-authority": "/a"}, "may not name files of this machine"),
    ],
)
def test_a_kubeconfig_from_a_url_may_not_access_this_machine(user: dict, cluster: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        by_file.fetch(URL, downloads=Downloads(document(user=user, ca=None if cluster else CA, **cluster)), within=7)


def test_an_error_page_is_reported_as_one():
    with pytest.raises(APIError, match=r"answers 503.*<html>"):
        by_file.fetch(URL, downloads=Downloads(b"<html>sorry</html>", status=503), within=7)


class Cluster:
    """Answers reads of cluster-info from a script whose last line repeats."""

    def __init__(self, *script: object, ready: int = 200) -> None:
        self.script = list(script)
        self.ready = ready
        self.asked: list[Access] = []
        self.open = 0

    def connect(self, access: Access) -> Cluster:
        self.asked.append(access)
        self.open += 1
        return self

    def raw(self, method, path):
        assert (method, path) == ("GET", "/readyz")
        return Response(status=self.ready, headers={})

    def get(self, resource, name, namespace=None):
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.open -= 1


def refreshed(cluster: Cluster, access: Access, *, clock: FakeClock | None = None, within: float = 300):
    clock, reporter = clock or FakeClock(), SilentReporter()
    found = by_file.refresh(access, connect=cluster.connect, clock=clock, reporter=reporter, within=within, host_trust=TRUST)
    assert cluster.open == 0
    return found


def info(*, server: str = SERVER, ca: bytes = CA) -> dict:
    return cluster_info.config_map(server=server, ca_pem=ca)


NOBODY = Access(server=SERVER, ca_pem=CA)
ACCESS = NOBODY.as_identity(BearerToken("abc"))


def test_the_settings_of_the_file_are_used_for_the_cluster():
    cluster = Cluster(NoAnswer("no", reason=Reason.REFUSED), NotFound("no", code=404), info(ca=OTHER_CA))
    clock = FakeClock()
    assert refreshed(cluster, ACCESS, clock=clock) == by_file.Refreshed(access=ACCESS)
    assert cluster.asked == [ACCESS]
    assert 0 < clock.monotonic() < 1


def test_another_server_in_cluster_info_is_reported_and_not_used():
    found = refreshed(Cluster(info(server="https://other:6443")), ACCESS)
    assert found.access == ACCESS
    assert found.warnings == ("the discovery file names https://cluster.example:6443, and the cluster names https://other:6443",)


def test_a_missing_ca_is_read_over_a_connection_that_this_machine_trusts():
    cluster = Cluster(info(ca=OTHER_CA))
    assert refreshed(cluster, Access(server=SERVER)).access == Access(server=SERVER, ca_pem=OTHER_CA)
    assert cluster.asked == [Access(server=SERVER, ca_pem=TRUST)]


def test_an_unreadable_cluster_info_is_only_reported():
    found = refreshed(Cluster(Forbidden("no", code=403)), ACCESS)
    assert found.access == ACCESS
    assert len(found.warnings) == 1


def test_without_any_ca_nothing_is_trusted():
    with pytest.raises(TrustError, match="there is no CA certificate"):
        refreshed(Cluster(Forbidden("no", code=403)), Access(server=SERVER))


def test_discovery_gives_up_if_the_cluster_does_not_answer():
    clock = FakeClock()
    with pytest.raises(NoAnswer):
        refreshed(Cluster(NoAnswer("no", reason=Reason.REFUSED)), ACCESS, clock=clock, within=5)
    assert 5 <= clock.monotonic() < 6


@pytest.mark.parametrize(("ready", "seconds"), [(200, 2), (401, 2), (503, 60)])
def test_credentials_refused_by_a_ready_server_fail_at_once(ready: int, seconds: float):
    clock, cluster = FakeClock(), Cluster(Unauthorized("no", code=401), ready=ready)
    with pytest.raises(Unauthorized):
        refreshed(cluster, ACCESS, clock=clock, within=60)
    assert cluster.open == 0
    assert cluster.asked[:2] == [ACCESS, NOBODY]
    assert seconds <= clock.monotonic() < seconds + 1


def test_a_ca_that_is_not_that_of_the_server_fails_at_once():
    clock = FakeClock()
    with pytest.raises(NoAnswer):
        refreshed(Cluster(NoAnswer("no", reason=Reason.UNTRUSTED)), ACCESS, clock=clock)
    assert clock.monotonic() == 0


@pytest.mark.parametrize(("place", "url"), [("https://a/b", True), ("HTTPS://a/b", True), ("/etc/x", False), ("http://a/b", False)])
def test_urls_and_paths_are_distinguished(place: str, url: bool):
    assert by_file.is_url(place) is url
