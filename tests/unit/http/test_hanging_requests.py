"""A hanging request ends with the wait that it belongs to, whatever it is for: a server, its name, an etcd, a program, a container runtime."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from dripping import DrippingServer
from test_http_deadlines import joined

from busy import HANGS
from kubewright.base import wait
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, HostError, KubewrightError, Unreachable, WaitTimeout
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter, retry
from kubewright.discovery import file as by_file
from kubewright.discovery import token as discovery
from kubewright.discovery.token import Question
from kubewright.etcd.api import Credentials
from kubewright.etcd.client import EtcdClient
from kubewright.etcd.membership import remove_member
from kubewright.host.cri.client import Client
from kubewright.host.programs.commands import RealCommands
from kubewright.http import loop
from kubewright.kube.answers import persist
from kubewright.kube.client import AsyncKubeClient, KubeClient
from kubewright.kube.credentials import Access
from kubewright.tokens.strings import parse

WITHIN: Final = 0.3
LONG: Final = 10 * HANGS
"""Seconds that each request, call and program would take without the wait."""
CLOCK: Final = SystemClock()
TOKEN: Final = parse("abcdef.0123456789abcdef")


class Hanging(NamedTuple):
    """What hangs: a server that sends a byte now and then, a name that is never resolved, and a socket at which no calls are accepted."""

    url: str
    ca_pem: bytes
    path: Path
    named: str = "https://hanging.test:6443"


@pytest.fixture
def hanging(server_tls, ca_pem: bytes, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    monkeypatch.setattr(wait, "LOOK_AT_LEAST", WITHIN)
    monkeypatch.setattr(discovery, "LOOK_AT_LEAST", WITHIN)
    path = short_path / "runtime.sock"
    ended, look_up = threading.Event(), socket.getaddrinfo

    def slow(host: str, *arguments: Any, **more: Any) -> Any:
        if host == "hanging.test" and not more.get("flags"):
            ended.wait()
        return look_up(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with DrippingServer("head", context=server_tls) as server, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        yield Hanging(server.url, ca_pem, path)
    ended.set()


def waiter() -> PollingWaiter:
    return PollingWaiter(clock=CLOCK, reporter=SilentReporter())


def polled(call: Callable[[], object]) -> None:
    def look() -> str | None:
        try:
            call()
        except KubewrightError as error:
            return str(error)
        return None

    waiter().until(look, within=WITHIN, saying="an answer")


def client(access: Access) -> KubeClient:
    return KubeClient(access, timeout=LONG)


def raw(hanging: Hanging) -> object:
    with contextlib.closing(client(Access(server=hanging.url, ca_pem=hanging.ca_pem))) as api:
        return api.raw("GET", "/readyz")


def name(hanging: Hanging) -> object:
    return raw(hanging._replace(url=hanging.named))


def question(hanging: Hanging) -> Question:
    return Question(server=hanging.url, token=TOKEN, within=WITHIN)


def file_discovery(hanging: Hanging) -> object:
    access = Access(server=hanging.url, ca_pem=hanging.ca_pem)
    return by_file.refresh(access, connect=client, clock=CLOCK, reporter=SilentReporter(), within=WITHIN, host_trust=None)


def token_discovery_async(hanging: Hanging) -> object:
    def connect(access: Access) -> AsyncKubeClient:
        return AsyncKubeClient(access, timeout=LONG)

    async def main() -> Access:
        return await discovery.discover_async(question(hanging), connect=connect, clock=CLOCK)

    return loop.run(main)


def etcd(hanging: Hanging) -> contextlib.closing[EtcdClient]:
    return contextlib.closing(EtcdClient([hanging.url], credentials=Credentials(ca=hanging.ca_pem), timeout=LONG))


def member_removal(hanging: Hanging) -> object:
    with etcd(hanging) as client:
        return remove_member(client, "https://10.0.0.2:2380", clock=CLOCK, within=WITHIN)


def member_statuses(hanging: Hanging) -> object:
    """They run in their own threads."""
    with etcd(hanging) as client:
        return waiter().until(lambda: client.statuses()[0].problem, within=WITHIN, saying="a healthy member")


def runtime(hanging: Hanging) -> object:
    with contextlib.closing(Client(f"unix://{hanging.path}", timeout=LONG)) as found:
        return found.version()


def program(_: Hanging) -> object:
    return RealCommands(environment={"PATH": "/usr/bin:/bin"}).run(["sleep", str(LONG)], within=LONG)


ROWS: dict[str, tuple[Callable[[Hanging], object], type[KubewrightError]]] = {
    "a look at a server": (lambda hanging: polled(lambda: raw(hanging)), WaitTimeout),
    "a look at a server whose name is never found": (lambda hanging: polled(lambda: name(hanging)), WaitTimeout),
    "a look at a runtime": (lambda hanging: polled(lambda: runtime(hanging)), WaitTimeout),
    "a look by a program": (lambda hanging: polled(lambda: program(hanging)), WaitTimeout),
    "a wait in an attempt": (
        lambda hanging: retry(lambda: polled(lambda: raw(hanging)), clock=CLOCK, on=HostError, within=LONG),
        WaitTimeout,
    ),
    "an attempt in a wait": (lambda hanging: polled(lambda: persist(lambda: raw(hanging), clock=CLOCK, within=LONG)), WaitTimeout),
    "attempts": (lambda hanging: retry(lambda: raw(hanging), clock=CLOCK, on=APIError, within=WITHIN), Unreachable),
    "a member of etcd": (member_removal, Unreachable),
    "the health of etcd's members": (member_statuses, WaitTimeout),
    "discovery by file": (file_discovery, Unreachable),
    "discovery by token": (
        lambda hanging: discovery.discover(question(hanging), connect=client, waiter=waiter(), clock=CLOCK),
        WaitTimeout,
    ),
    "discovery by token, asynchronously": (token_discovery_async, WaitTimeout),
    "a name, asynchronously": (lambda hanging: token_discovery_async(hanging._replace(url=hanging.named)), WaitTimeout),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_hanging_request_ends_with_its_wait_which_reports_its_duration(hanging: Hanging, row: str) -> None:
    call, kind = ROWS[row]
    start = time.monotonic()
    error = joined(lambda: call(hanging))
    took = time.monotonic() - start
    assert isinstance(error, kind), error
    if kind is WaitTimeout:
        said = re.search(r" after ([0-9.]+)s", error.what)
        assert said is not None
        assert WITHIN - 0.01 <= float(said[1]) <= took + 0.1
