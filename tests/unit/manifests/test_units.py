"""What is written for systemd, kubeconfigs, the kubelet and shells: every value stays unchanged or is refused.

No input adds a line or a word.
"""

from __future__ import annotations

import ctypes
import shlex
from pathlib import PurePosixPath

import pytest
import trustme
from hypothesis import example, given
from hypothesis import strategies as st
from manifest_cases import configuration_of

import systemd_kit
from kubewright.agent.service import install
from kubewright.apis.kubeconfig import kubeconfig_document
from kubewright.apis.machine import Detected, Layout
from kubewright.base import plain_text, yaml
from kubewright.base.errors import HostError, KubewrightError, UnsafeText
from kubewright.host.desired import Tunnel
from kubewright.host.programs import tunnels as interfaces
from kubewright.host.programs.tunnels import TunnelPrograms
from kubewright.lifecycle import bootstrap_tokens
from kubewright.manifests import kubelet, tunnels, units
from kubewright.manifests.tunnels import NodeTunnel

CA = trustme.CA().cert_pem.bytes()
UNSAFE = "\0\n\r\x0b\x1b\x7f\x85\u2028\u2029"
SPEAKING = st.text(st.sampled_from("ab;#%$\"'\\=[]{}*? \t\u00a0é" + UNSAFE) | st.characters(), max_size=12)
"""Texts that have a meaning for systemd, and others."""
PROGRAMS = TunnelPrograms(ip=PurePosixPath("/sbin/ip"), wg=PurePosixPath("/bin/wg"))
KEY = "A" * 43 + "="


def is_safe(text: str) -> bool:
    return not any(char in UNSAFE or char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in text)


@given(st.lists(SPEAKING, max_size=5))
@example(words=["a", ";", "/bin/sh"])
@example(words=["", "\\", '"', "%h", "$HOME", "${PATH}", "'"])
@example(words=["fd00::5%x\0StandardInput=data\0"])
def test_arguments_reach_the_program_unchanged(words):
    if not all(map(is_safe, words)):
        with pytest.raises(UnsafeText):
            units.arguments(*words)
        return
    text = f"[Service]\nExecStart=/bin/x {units.arguments(*words)}\nType=oneshot\n"
    assert systemd_kit.names(text) == [("[Service]", "ExecStart"), ("[Service]", "Type")]
    assert systemd_kit.commands(systemd_kit.values(text, "ExecStart")[0]) == [["/bin/x", *words]]


@given(st.lists(SPEAKING.filter(bool), max_size=3))
def test_a_variable_keeps_its_words(words):
    if not all(map(is_safe, words)):
        with pytest.raises(UnsafeText):
            units.variable("ARGS", *words)
        return
    text = f"[Service]\nEnvironment={units.variable('ARGS', *words)}\nType=oneshot\n"
    name, value = systemd_kit.assignment(systemd_kit.values(text, "Environment")[0])
    assert (name, systemd_kit.words(value)) == ("ARGS", words)


@given(SPEAKING)
@example(text="back\\")
@example(text="*[a]?")
def test_only_the_named_file_of_variables_is_read(text):
    path = f"/etc/{text}"
    if not is_safe(text):
        with pytest.raises(UnsafeText):
            units.pattern(PurePosixPath(path))
        return
    path = str(PurePosixPath(path))
    pattern = units.pattern(PurePosixPath(path)).replace("%%", "%")
    match = ctypes.CDLL(None).fnmatch  # what glob(3), which systemd calls, compares with
    assert match(pattern.encode(), path.encode(), 0) == 0
    assert match(pattern.encode(), f"{path}x".encode(), 0) != 0


def _node_unit(**changed: object) -> str:
    given = {"name": "oi-wg", "key_file": PurePosixPath("/k"), "addresses": ("10.0.0.7/16",), "networks": ("10.0.0.0/16",), "peer": KEY}
    more = {"endpoint": "h:1", "mtu": 1420, "keepalive": 20, "node_addresses": ("10.0.0.7",)}
    return tunnels.node_unit(NodeTunnel(**{**given, **more, **changed}), PROGRAMS)


def _joined(**changed: object) -> str:
    given = {"kubeconfig": PurePosixPath("/a"), "config": PurePosixPath("/b"), "node": "n", "addresses": ("10.0.0.7",)}
    return "".join(kubelet.joined_unit_files(PurePosixPath("/bin/kubelet"), **{**given, **changed}).values())


UNITS = {
    "name of an interface": lambda text: _node_unit(name=text),
    "key of a tunnel": lambda text: _node_unit(key_file=PurePosixPath("/k", text)),
    "peer of a tunnel": lambda text: _node_unit(peer=text),
    "another peer of a tunnel": lambda text: tunnels.with_peer(_node_unit().encode(), text).decode(),
    "endpoint of a tunnel": lambda text: _node_unit(endpoint=text),
    "addresses of a node": lambda text: _node_unit(node_addresses=(text,)),
    "device of a hub": lambda text: tunnels.device_unit(text, PROGRAMS),
    "program of a tunnel": lambda text: tunnels.device_unit("wg", TunnelPrograms(ip=PurePosixPath("/", text), wg=PurePosixPath("/w"))),
    "name of a node": lambda text: _joined(node=text),
    "address of a kubelet": lambda text: _joined(addresses=(text,)),
    "kubeconfig of a kubelet": lambda text: _joined(kubeconfig=PurePosixPath("/", text)),
    "place of a kubelet": lambda text: "".join(kubelet.unit_files(PurePosixPath("/k"), Layout(kubelet=PurePosixPath("/", text))).values()),
    "program of a kubelet": lambda text: "".join(kubelet.unit_files(PurePosixPath("/", text, "kubelet"), Layout()).values()),
    "flag of the agent": lambda text: install.unit(["/bin/kubewright", "agent", "run", f"--node-labels={text}"]),
    "program of the agent": lambda text: install.unit([f"/{text}", "agent"]),
}
"""How a text gets into each written unit and drop-in."""


@pytest.mark.parametrize("write", UNITS.values(), ids=UNITS.keys())
@given(text=SPEAKING)
@example(text="x\0StandardInput=data\0StandardInputData=aWQK\0")
@example(text="x\rExecStartPre=/bin/sh")
@example(text="back\\")
@example(text="%h%%")
def test_no_text_adds_a_line_or_a_command_to_a_unit(write, text):
    try:
        found = write(text)
    except (UnsafeText, HostError):
        assert not is_safe(text) or set(text) & set("\"'\\")
        return
    assert is_safe(text)
    assert systemd_kit.names(found) == systemd_kit.names(write("x"))
    for name in ("ExecStart", "ExecStartPre", "ExecStop"):
        before = [len(words) for value in systemd_kit.values(write("x"), name) for words in _commands(value)]
        assert [len(words) for value in systemd_kit.values(found, name) for words in _commands(value)] == before


def _commands(value: str) -> list[list[str]]:
    plain = value.replace(" $KUBELET_", " KUBELET_").replace("/bin/kill -HUP $MAINPID", "")  # intended variables
    return systemd_kit.commands(plain)


def _document(**more: str) -> object:
    return kubeconfig_document(**{"server": "s", "cluster_name": "c", "user": "u", "credentials": None, "ca_pem": CA, **more})


def _configured(text: str) -> object:
    configuration = configuration_of("ipv4-minimal")
    return kubelet.config(configuration, Detected(host_name="n"), patch=lambda found: {**found, "clusterDomain": text})


OTHERS = {
    "server of a kubeconfig": lambda text: _document(server=text),
    "user of a kubeconfig": lambda text: _document(user=text),
    "cluster of a kubeconfig": lambda text: _document(cluster_name=text),
    "the kubelet's configuration": _configured,
    "the join command": lambda text: bootstrap_tokens.join_command(bootstrap_tokens.ClusterInfo(server=f"https://{text}", ca_pem=CA), "t"),
    "a word of a shell": lambda text: plain_text.shell_word(text, what="it"),
    "wg's configuration": lambda text: interfaces.configuration(Tunnel(name="a", private_key=text, port=1, addresses=(), mtu=1)),
}


@pytest.mark.parametrize("write", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("char", UNSAFE)
def test_control_characters_are_refused_in_all_written_formats(write, char):
    with pytest.raises(UnsafeText, match="holds a control character") as refused:
        write(f"before{char}after")
    assert refused.value.detail == f"U+{ord(char):04X} after {refused.value.detail.split()[2]} characters"
    assert "before" not in str(refused.value)  # it may be secret


@given(SPEAKING)
@example(text="10.0.0.1:6443; reboot")
@example(text="$(reboot)")
def test_a_word_of_a_shell_is_one_word(text):
    if is_safe(text):
        assert shlex.split(plain_text.shell_word(text, what="it")) == [text]
    for plain in ("10.0.0.1:6443", "[fd00::1]:6443", "abcdef.0123456789abcdef", "/etc/kubernetes/admin.conf"):
        assert shlex.split(plain_text.shell_word(plain, what="it")) == [plain]
    assert plain_text.shell_word("10.0.0.1:6443", what="it") == "10.0.0.1:6443"


def test_the_server_of_a_kubeconfig_is_one_word_of_the_join_command():
    made = bootstrap_tokens.join_command(bootstrap_tokens.ClusterInfo(server="https://a:1; reboot", ca_pem=CA), "t")
    assert shlex.split(made)[:5] == ["kubewright", "join", "a:1; reboot", "--token", "t"]


def test_the_position_of_a_control_character_is_reported():
    with pytest.raises(UnsafeText) as refused:
        plain_text.require_one_line_each({"a": [{"b": "x"}, {"b": "\0"}]}, what="it")
    assert refused.value.what == "it.a[1].b holds a control character"
    with pytest.raises(KubewrightError, match="a field's name in it holds"):
        plain_text.require_one_line_each({"a\n": 1}, what="it")
    plain_text.require_one_line_each(yaml.load("a: [1, null, {b: true}]"), what="it")
