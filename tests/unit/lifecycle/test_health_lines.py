"""The lines about waits for the kubelet and the components, which scripts look for."""

from __future__ import annotations

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.durations import MINUTE, Duration
from kubewright.base.errors import WaitTimeout
from kubewright.base.events import RecordingReporter, Waited
from kubewright.lifecycle.steps.health_lines import HealthLines

LIMIT = Duration(4 * MINUTE)
SERVER = "http://127.0.0.1:10248"


class Made:
    """The lines of one run."""

    def __init__(self, *, waits: bool = True) -> None:
        self.clock, self.reporter = FakeClock(), RecordingReporter()
        self.lines = HealthLines(reporter=self.reporter, clock=self.clock, socket="unix:///run/x.sock", waits=waits)

    def wait(self, seconds: float, *, fails: bool = False) -> Waited:
        self.clock.sleep(seconds)
        if fails:
            raise WaitTimeout("it takes too long")
        return Waited(what="it", seconds=seconds)

    @property
    def told(self) -> list[str]:
        return [f"[{event.topic}] {event.text}" if event.topic else event.text for event in self.reporter.events]


def test_a_healthy_kubelet_and_component_are_reported_with_their_time():
    made = Made()
    assert made.lines.kubelet(SERVER, lambda: made.wait(1.5012), within=LIMIT).seconds == 1.5012
    made.lines.components({"kube-scheduler": "https://127.0.0.1:10259/livez"}, within=LIMIT)
    made.lines.component("kube-scheduler", lambda: made.wait(0.25))
    assert made.told == [
        "[kubelet-check] Waiting for a healthy kubelet at http://127.0.0.1:10248/healthz. This can take up to 4m0s",
        "[kubelet-check] The kubelet is healthy after 1.501s",
        "[control-plane-check] Waiting for healthy control plane components. This can take up to 4m0s",
        "[control-plane-check] Checking kube-scheduler at https://127.0.0.1:10259/livez",
        "[control-plane-check] kube-scheduler is healthy after 250ms",
    ]


def test_an_unhealthy_kubelet_is_reported_with_commands_that_show_why():
    made = Made()
    with pytest.raises(WaitTimeout):
        made.lines.kubelet(SERVER, lambda: made.wait(240, fails=True), within=LIMIT)
    assert made.told[1] == "[kubelet-check] The kubelet is not healthy after 4m0s"
    assert [line.strip() for line in made.told[2].splitlines()[1:]] == ["- 'systemctl status kubelet'", "- 'journalctl -xeu kubelet'"]


def test_a_kubelet_without_certificate_gets_the_same_commands():
    made = Made()
    with pytest.raises(WaitTimeout), made.lines.kubelet_advice():
        made.wait(1, fails=True)
    assert "'journalctl -xeu kubelet'" in made.told[0]


def test_an_unhealthy_component_is_reported_with_commands_for_its_runtime():
    made = Made()
    with pytest.raises(WaitTimeout):
        made.lines.component("kube-apiserver", lambda: made.wait(3, fails=True), reports_success=False)
    assert made.told[0] == "[control-plane-check] kube-apiserver is not healthy after 3s"
    assert [line.strip() for line in made.told[1].splitlines()[1:]] == [
        "- 'crictl --runtime-endpoint unix:///run/x.sock ps -a | grep kube | grep -v pause'",
        "- 'crictl --runtime-endpoint unix:///run/x.sock logs CONTAINERID'",
    ]


def test_a_dry_run_reports_no_check():
    made = Made(waits=False)
    made.lines.kubelet(SERVER, lambda: made.wait(0), within=LIMIT)
    made.lines.components({"kube-apiserver": "https://127.0.0.1:6443/readyz"}, within=LIMIT)
    made.lines.component("kube-apiserver", lambda: made.wait(0))
    assert made.told == []
