"""Can the configuration of CoreDNS be carried over to the release that an upgrade brings? Pure.

kubeadm asks the library corefile-migration, which knows plugins and options by release of CoreDNS: what it does not know may work afterwards,
but nobody has looked. This is what v1.0.31 of it knows, which kubeadm v1.36.3 is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field

_LINES: Final = (
    ("1.1", "4"),
    ("1.2", "0 1 2 3 4 5 6"),
    ("1.3", "0 1"),
    ("1.4", "0"),
    ("1.5", "0 1 2"),
    ("1.6", "0 1 2 3 4 5 6 7 9"),
    ("1.7", "0 1"),
    ("1.8", "0 3 4 5 6 7"),
    ("1.9", "0 1 2 3 4"),
    ("1.10", "0 1"),
    ("1.11", "0 1 3 4"),
    ("1.12", "0 1 2 3 4"),
    ("1.13", "0 1 2"),
    ("1.14", "0 1 2"),
)
RELEASES: Final = tuple(f"{line}.{patch}" for line, patches in _LINES for patch in patches.split())
"""The releases that can be upgraded from and to, oldest first."""

_PLUGINS: Final[Mapping[str, str]] = {
    "autopath": "",
    "cache": "denial prefetch success serve_stale:1.6.6:1.7.0 serve_stale:1.9.4 disable:1.9.4 servfail:1.9.4 keepttl:1.10.1",
    "errors": "consolidate:1.2.6 stacktrace:1.9.3",
    "forward": (
        "except expire force_tcp health_check max_fails policy tls tls_servername prefer_udp:1.2.0 max_concurrent:1.6.9 next:1.11.4 "
        "fail_fast:1.11.4:1.12.0 failfast_all_unhealthy_upstreams:1.12.0"
    ),
    "health": "lameduck",
    "hosts": "fallthrough no_reverse reload ttl",
    "k8s_external:1.3.0": "apex ttl fallthrough:1.11.0",
    "kubernetes": (
        "endpoint endpoint_pod_names fallthrough ignore labels namespaces noendpoints pods tls ttl kubeconfig:1.2.3 "
        "resyncperiod::1.8.0 upstream::1.8.0 transfer::1.8.3"
    ),
    "loadbalance": "",
    "log": "class",
    "loop:1.2.1": "",
    "prometheus": "",
    "proxy::1.5.1": "except fail_timeout health_check max_fails policy protocol spray",
    "ready:1.5.0": "",
    "reload": "",
    "rewrite": "class edns0 name type ttl:1.2.3 cname_target:1.11.0",
    "transfer:1.8.0": "to",
}
"""Plugins and their options: `name:since:before`, the release that brought it and the first that does not know it any more."""

_ADDRESSES: Final = Pattern(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|[0-9A-Fa-f]{1,4}:[:0-9A-Fa-f]+:[0-9A-Fa-f]{1,4}", re.ASCII)
"""Lines of `hosts` begin with one."""
_FORWARDING: Final = frozenset({"forward", "proxy"})
_DEFAULT_BLOCKS: Final = frozenset({(".",), (".:53",)})
_TOKEN: Final = Pattern(
    r'(?P<blank>[^\S\n]+)|(?P<line>\n)|(?P<comment>#[^\n]*)|"(?P<quoted>(?:[^"\\]|\\.)*)"?|(?P<word>[^\s"#][^\s#]*)', re.DOTALL
)
_END_OF_PROXY: Final = "1.5.0"
"""With this release every zone that is forwarded became a server block of its own."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A plugin of a server block, or an option of a plugin: its name and what follows on its line."""

    name: str
    arguments: Sequence[str] = ()
    options: Sequence[Setting] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server block: its zones with their ports, and its plugins."""

    zones: Sequence[str]
    plugins: Sequence[Setting]


def parse(text: str) -> list[Server]:
    """Read a Corefile as the library does, which takes any text. What stands outside of a block, or deeper than options, does not count."""
    servers: list[tuple[Sequence[str], list[tuple[str, Sequence[str], list[Setting]]]]] = []
    depth = 0
    for words in _statements(text):
        if words == ["{"]:
            depth += 1
        elif words == ["}"]:
            depth -= 1
        elif depth == 0:
            servers.append((words, []))
        elif depth == 1 and servers:
            servers[-1][1].append((words[0], words[1:], []))
        elif depth == 2 and servers and servers[-1][1]:
            servers[-1][1][-1][2].append(Setting(name=words[0], arguments=words[1:]))
    return [
        Server(zones=zones, plugins=[Setting(name=name, arguments=rest, options=options) for name, rest, options in plugins])
        for zones, plugins in servers
    ]


def unknown(text: str, installed: str, target: str) -> Iterator[str]:
    """Yield the plugins and options that nobody has looked at, of the releases after `installed` up to `target`; both are of `RELEASES`."""
    path = range(RELEASES.index(installed) + 1, RELEASES.index(target) + 1)
    for server in parse(text):
        block = f"the server block {' '.join(server.zones)}"
        for plugin in server.plugins:
            known = _options(plugin.name, path)
            if known is None:
                yield f"the plugin {plugin.name} in {block}"
                continue
            for option in plugin.options:
                if not _knows(known, option.name, path) and not (plugin.name == "hosts" and _ADDRESSES.search(option.name)):
                    yield f"the option {option.name} of the plugin {plugin.name} in {block}"


def no_way(installed: str, target: str) -> str:
    """Say why there is no way from one release to another, empty if there is. `installed` may be any text, `target` is of `RELEASES`."""
    if installed not in RELEASES:
        return f"there is no known migration from CoreDNS {installed or 'of an unknown release'} to {target}"
    if RELEASES.index(installed) > RELEASES.index(target):
        return f"CoreDNS {installed} is newer than {target}, which the upgrade brings"
    return ""


def obstacle(text: str, installed: str) -> str:
    """Say why a Corefile cannot be carried over from a release of `RELEASES` to a newer one, empty if it can."""
    if RELEASES.index(installed) >= RELEASES.index(_END_OF_PROXY):
        return ""
    return next((reason for server in parse(text) for plugin in server.plugins if (reason := _stays(server, plugin))), "")


def _stays(server: Server, plugin: Setting) -> str:
    """Say why a forwarded zone cannot become a server block."""
    if plugin.name not in _FORWARDING or plugin.arguments[:1] == ["."]:
        return ""
    if not plugin.arguments:
        return f"the plugin {plugin.name} names no zone"
    if tuple(server.zones) not in _DEFAULT_BLOCKS:
        return f"{plugin.name} {plugin.arguments[0]} in the server block {' '.join(server.zones)} cannot become a block of its own"
    return ""


def _statements(text: str) -> Iterator[list[str]]:
    """Yield the words of each line; an opening brace, and a closing one that a line begins with, alone."""
    words: list[str] = []
    for found in _TOKEN.finditer(text.removeprefix("\ufeff").replace("\r", "")):
        word = found["word"] if found["quoted"] is None else found["quoted"].replace('\\"', '"')
        alone = word == "{" or (word == "}" and not words)
        if words and (alone or found["line"]):
            yield words
            words = []
        if alone:
            yield [word]
        elif word is not None:
            words.append(word)
    if words:
        yield words


def _options(plugin: str, path: range) -> Sequence[str] | None:
    """Return the options of a plugin that all releases on the way know, None where one does not."""
    for row, options in _PLUGINS.items():
        if _knows([row], plugin, path):
            return options.split()
    return None


def _knows(rows: Sequence[str], name: str, path: range) -> bool:
    """Tell whether every release on the way knows a name, by one row or another."""
    spans = [_span(row) for row in rows if row.partition(":")[0] == name]
    return all(any(release in span for span in spans) for release in path)


def _span(row: str) -> range:
    _, since, before = (*row.split(":"), "", "")[:3]
    return range(RELEASES.index(since) if since else 0, RELEASES.index(before) if before else len(RELEASES))
