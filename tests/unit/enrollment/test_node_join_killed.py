"""`node join` killed before and after each persistent step: the same command succeeds, with one request and consistent files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_kit import CLOCK
from node_kit import TOKEN, Box, killed_at_each_step
from tenants_kit import Killer

from kubewright.apis.node_join_requests import Condition
from kubewright.base import yaml
from kubewright.base.errors import (
    APIError,
    ConfigurationChanged,
    Forbidden,
    HostError,
    NotFound,
    ServerError,
    TrustError,
    Unauthorized,
    Unreachable,
)
from kubewright.base.events import Waiting, Warned
from kubewright.base.records import replace
from kubewright.enrollment.node.joining import RequestLost, RequestRefused
from kubewright.kube.resources import CONFIG_MAP


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_same_command_succeeds_after_a_kill_at_any_step(tmp_path, after):
    kills = 0
    for box in killed_at_each_step(lambda number: Box(tmp_path / str(number)), lambda box, killer: box.join(killer=killer), after=after):
        kills += 1
        box.join()
        box.require_whole()
        assert box.cluster.created == 1
        assert box.join().changes == ()
    assert kills >= 9


def test_another_name_is_refused_after_a_join_has_started(box):
    box.join()
    with pytest.raises(ConfigurationChanged) as refused:
        box.join(node="other")
    assert "nodeName: other" in refused.value.detail


def test_a_refusal_of_the_hub_is_reported_and_nothing_is_written(box):
    box.cluster.condition = Condition(status="False", reason="SanNotAllowed", message="not this one")
    with pytest.raises(RequestRefused, match="does not admit worker: SanNotAllowed") as refused:
        box.join()
    assert refused.value.detail == "not this one"
    assert not Path(box.layout.oneinfra).exists()


def test_an_answer_that_differs_from_the_request_is_not_written(box):
    box.cluster.change = lambda answer: replace(answer, client_ca=answer.serving_certificate)
    with pytest.raises(TrustError, match="the CA of clients that the hub sent cannot be used"):
        box.join()
    assert not Path(box.layout.oneinfra).exists()


STATIC_PODS = "staticPodPath: /etc/kubernetes/manifests\n"


def test_fields_that_a_hub_may_not_set_are_refused_unless_the_owner_accepts_them(box):
    box.cluster.change = lambda answer: replace(answer, kubelet_config=answer.kubelet_config + STATIC_PODS)
    for phases in ({}, {"only": ("files",)}):  # no phase writes unchecked data
        with pytest.raises(TrustError, match="the kubelet's configuration that the hub sent cannot be used") as refused:
            box.join(**phases)
        assert "staticPodPath: a hub may not set it" in refused.value.detail
        assert not Path(box.layout.oneinfra).exists()
    assert "--accept-kubelet-fields=staticPodPath" in refused.value.remedy
    box.join(accepted=("staticPodPath",))
    box.require_whole()
    config = yaml.load(Path(box.layout.kubelet_config).read_text())
    assert config.pop("staticPodPath") == "/etc/kubernetes/manifests"
    place, runtime = box.layout.oneinfra, "unix:///run/containerd/containerd.sock"
    assert config == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{place}/kubelet-client-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": runtime,
        "imageServiceEndpoint": runtime,
        "tlsCertFile": f"{place}/kubelet.crt",
        "tlsPrivateKeyFile": f"{place}/kubelet.key",
    }


def test_the_version_from_the_hub_must_be_compatible_with_the_api_server(box):
    box.cluster.version = b'{"gitVersion": "v1.40.1"}'
    with pytest.raises(TrustError, match="the version that the hub sent cannot be used") as refused:
        box.join()
    assert "v1.36.3 is not compatible with the API server v1.40.1" in refused.value.detail
    assert not Path(box.layout.oneinfra).exists()
    box.cluster.version = b"forbidden"
    box.join()
    [warned] = [event.text for event in box.reporter.events if isinstance(event, Warned)]
    assert warned.startswith("the API server does not report its version")


def test_a_missing_pin_gives_a_warning_and_with_a_wrong_one_nothing_is_sent(box, tmp_path):
    box.join(fingerprint="")
    assert next(event.text for event in box.reporter.events if isinstance(event, Warned)).startswith(
        "the join key of the hub is not pinned"
    )
    other = Box(tmp_path / "other")
    with pytest.raises(TrustError, match="is not the one you pinned"):
        other.join(fingerprint=f"sha256:{'0' * 64}")
    assert other.cluster.created == 0


REFUSALS = (Unauthorized("no", code=401), Forbidden("no", code=403))
FAILURES = (*REFUSALS, ServerError("no", code=503), Unreachable("no"))


@pytest.mark.parametrize("error", FAILURES)
def test_a_starting_api_server_gets_some_seconds(box, error):
    box.cluster.refusals = (error,) * 4
    box.join()
    box.require_whole()
    assert box.cluster.created == 1


@pytest.mark.parametrize(
    ("error", "ready", "seconds"),
    [*((error, 200, 2) for error in REFUSALS), *((error, 503, 10) for error in FAILURES)],
)
def test_a_refusal_of_a_ready_server_is_reported_soon_and_a_starting_one_waited_for(box, error, ready, seconds):
    box.cluster.refusals, box.cluster.ready = (error,) * 10_000, ready
    began = CLOCK.monotonic()
    with pytest.raises(type(error)):
        box.join()
    assert seconds <= CLOCK.monotonic() - began <= seconds * 1.25
    assert {event.what for event in box.reporter.events if isinstance(event, Waiting)} == {"the API server to answer"}


@pytest.mark.parametrize(
    ("error", "says", "remedy"),
    [
        (Unauthorized("no", code=401), "the token is no longer valid, and worker has no answer yet", "hub token create"),
        (NotFound("no", code=404), "the request was deleted: worker", "sends a new request"),
    ],
)
def test_expired_tokens_and_deleted_requests_are_not_waited_for_long(box, error, says, remedy):
    answered = box.cluster.answered

    def then_lost(call):
        box.cluster.refusals = (error,) * 10_000
        return answered(call)

    box.cluster.answered = then_lost
    began = CLOCK.monotonic()
    with pytest.raises(RequestLost, match=says) as lost:
        box.join()
    assert 20 <= CLOCK.monotonic() - began <= 25
    assert remedy in lost.value.remedy
    box.cluster.refusals = ()
    box.join()  # with another token, and after the request exists after all
    box.require_whole()
    assert box.cluster.created == 1


def test_a_cluster_without_a_hub_is_reported(box):
    box.cluster.delete(CONFIG_MAP, "oneinfra-join", "oneinfra-system")
    with pytest.raises(APIError, match="has no configmap oneinfra-system/oneinfra-join") as told:
        box.join()
    assert "hub cluster list" in told.value.remedy


def test_messages_contain_no_key_or_token(box):
    box.join()
    told = repr(box.reporter.events) + repr(box.join().changes)
    key = (Path(box.layout.oneinfra) / "kubelet.key").read_text().splitlines()[1]
    for secret in (TOKEN.partition(".")[2], key):
        assert secret not in told
    record = Path(box.layout.machine_record).read_text()
    assert TOKEN.partition(".")[2] not in record


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"server": "http://10.0.0.1"}, "is not the URL of an API server"),
        ({"server": "https://10.0.0.1:x"}, "is not the URL of an API server"),
        ({"server": "https://10.0.0.1:6443\n"}, "is not the URL of an API server"),
        ({"server": "https://10.0.0.1:6443#x"}, "is not the URL of an API server"),
        ({"server": "https://a b:6443"}, "is not the URL of an API server"),
        ({"server": "https://a\x00b:6443"}, "is not the URL of an API server"),
        ({"server": "https://[fe80::1%25eth0]:6443"}, "is not the URL of an API server"),
        ({"server": "https://:6443"}, "is not the URL of an API server"),
        ({"node": "a" * 64}, "63 characters"),
        ({"node": "Worker"}, "cannot have the name"),
        ({"token": "short"}, "bootstrap token"),
        ({"ca_pem": b"nothing"}, "contains no certificate"),
        ({"fingerprint": "md5:00"}, "public key pin"),
        ({"sans": [f"10.0.0.{number}" for number in range(17)]}, "more than 16"),
    ],
)
def test_invalid_requests_are_refused_before_anything_is_done(box, more, error):
    with pytest.raises(Exception, match=error):
        box.join(**more)
    assert box.cluster.created == 0
    assert not Path(box.layout.oneinfra).exists()


@pytest.mark.parametrize("server", ["https://10.0.0.1", "https://[fd00::1]:6443", "https://[fd00::1]", "https://api.example:6443/"])
def test_endpoints_of_both_families_with_and_without_port_are_used_unchanged(tmp_path, server):
    box = Box(tmp_path)
    box.join(server=server)
    assert f"server: {server.rstrip('/')}\n" in (Path(box.layout.oneinfra) / "kubelet.conf").read_text()


def test_a_machine_of_another_tool_is_not_changed_and_no_missing_flag_suggested(box):
    for path in (box.layout.kubeconfig("kubelet"), box.layout.kubelet_config):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("kind: Config\n")
    with pytest.raises(HostError, match="part of a cluster, but kubewright did not set it up") as told:
        box.join()
    assert ("--adopt" in told.value.remedy, "kubewright reset" in told.value.remedy) == (False, True)
    assert box.cluster.created == 0


def test_the_key_is_used_again_after_a_failure_of_the_host(box):
    class Full(Killer):
        def before(self) -> bool:
            if self.steps == 8:
                raise HostError("no space is left")
            self.steps += 1
            return False

    with pytest.raises(HostError):
        box.join(killer=Full())
    box.join()
    box.require_whole()
