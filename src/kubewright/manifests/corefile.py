"""Migrates CoreDNS configuration to the release that an upgrade installs. Pure.

kubeadm uses the library corefile-migration, which knows plugins and options by release of CoreDNS: unknown ones may
still work, but have not been checked. These tables are those of v1.0.31, which kubeadm v1.36.3 uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass, field, replace

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
"""The supported releases, oldest first."""

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
"""Plugins and their options: `name:since:before`, the release that added it and the first that no longer has it."""

_ADDRESSES: Final = Pattern(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|[0-9A-Fa-f]{1,4}:[:0-9A-Fa-f]+:[0-9A-Fa-f]{1,4}", re.ASCII)
"""The beginning of host lines in `hosts`."""
_FORWARDING: Final = frozenset({"forward", "proxy"})
_KUBERNETES: Final = ("pods insecure", "fallthrough in-addr.arpa ip6.arpa")
_DEFAULTS: Final = (
    {"health": ("lameduck 5s",), "ready": (), "kubernetes": (*_KUBERNETES, "ttl 30"), "forward": ("max_concurrent 1000",)},
    {"health": ("lameduck 5s",), "ready": (), "kubernetes": (*_KUBERNETES, "ttl 30"), "forward": ()},
    {"health": (), "ready": (), "kubernetes": (*_KUBERNETES, "ttl 30"), "forward": ()},
    {"health": (), "kubernetes": (*_KUBERNETES, "upstream", "ttl 30"), "forward": ()},
    {"health": (), "kubernetes": (*_KUBERNETES, "upstream"), "proxy": ()},
)
"""kubeadm's earlier defaults, by their differences: plugins and their options, the latest first."""
_IN_ALL_DEFAULTS: Final[Mapping[str, Sequence[str]]] = {"errors": (), "prometheus": (":9153",), "cache": ("30",), "reload": ()}
_IN_MOST_DEFAULTS: Final = ("loop", "loadbalance")
"""Plugins that only the oldest default lacks."""
_DEFAULT_BLOCKS: Final = frozenset({(".",), (".:53",)})
_TOKEN: Final = Pattern(
    r'(?P<blank>[^\S\n]+)|(?P<line>\n)|(?P<comment>#[^\n]*)|"(?P<quoted>(?:[^"\\]|\\.)*)"?|(?P<word>[^\s"#][^\s#]*)', re.DOTALL
)
_END_OF_PROXY: Final = "1.5.0"
"""From this release on, every forwarded zone has its own server block."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A plugin of a server block, or an option of a plugin: its name and the rest of its line."""

    name: str
    arguments: Sequence[str] = ()
    options: Sequence[Setting] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server block: its zones with their ports, and its plugins."""

    zones: Sequence[str]
    plugins: Sequence[Setting]


def parse(text: str) -> list[Server]:
    """Parse a Corefile as the library does, which accepts any text.

    Text outside blocks, or below options, is ignored.
    """
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
    """Yield the plugins and options that are not in the tables, for the releases after `installed` up to `target`.

    Both are of `RELEASES`.
    """
    releases = range(RELEASES.index(installed) + 1, RELEASES.index(target) + 1)
    for server in parse(text):
        for plugin in server.plugins:
            for name in _unknown_in(plugin, releases):
                yield f"{name} in the server block {' '.join(server.zones)}"


def _unknown_in(plugin: Setting, releases: Sequence[int]) -> Iterator[str]:
    known = _options(plugin.name, releases)
    if known is None:
        yield f"the plugin {plugin.name}"
        return
    for option in plugin.options:
        is_host = plugin.name == "hosts" and _ADDRESSES.search(option.name)
        if not is_host and not _all_have(releases, option.name, known):
            yield f"the option {option.name} of the plugin {plugin.name}"


def no_way(installed: str, target: str) -> str:
    """Return why a migration between two releases is impossible; '' if it is possible.

    `installed` may be any text, `target` is of `RELEASES`.
    """
    if installed not in RELEASES:
        return f"there is no known migration from CoreDNS {installed or 'of an unknown release'} to {target}"
    if RELEASES.index(installed) > RELEASES.index(target):
        return f"CoreDNS {installed} is newer than {target}, which the upgrade installs"
    return ""


def is_default(text: str) -> bool:
    """Return whether a Corefile is kubeadm's default for an earlier release, in any order and layout.

    The domain and upstream servers may be any. The current default is not one of them.
    """
    servers = parse(text)
    if len(servers) != 1 or list(servers[0].zones) != [".:53"]:
        return False
    found = {plugin.name: plugin for plugin in servers[0].plugins}
    return len(found) == len(servers[0].plugins) and any(_matches(found, options) for options in _DEFAULTS)


def _matches(found: Mapping[str, Setting], options: Mapping[str, Sequence[str]]) -> bool:
    """Return whether plugins are those of the default that differs from the others by these plugins and options."""
    required = options.keys() | _IN_ALL_DEFAULTS.keys()
    if found.keys() != required | set(_IN_MOST_DEFAULTS) and not ("proxy" in options and found.keys() == required):
        return False
    for name, arguments in _IN_ALL_DEFAULTS.items():
        if found[name].options or tuple(found[name].arguments) != arguments:
            return False
    for name, lines in options.items():
        if sorted(" ".join((one.name, *one.arguments)) for one in found[name].options) != sorted(lines):
            return False
    return all(found[name].arguments[:1] == ["."] for name in _FORWARDING & options.keys())


def migrated(text: str, installed: str, target: str) -> str:
    """Return a Corefile without the plugins and options that releases in between have removed; unchanged if there are none.

    Removed options are dropped, and `proxy` becomes `forward`. Comments are lost if something changes. Both releases
    are of `RELEASES`, and `obstacle` must have returned nothing.
    """
    servers = parse(text)
    here, there = ([RELEASES.index(one)] for one in (installed, target))
    changed = [replace(one, plugins=[_migrated_plugin(plugin, here, there) for plugin in one.plugins]) for one in servers]
    return text if changed == servers else "".join(map(_rendered, changed))


def _migrated_plugin(plugin: Setting, here: Sequence[int], there: Sequence[int]) -> Setting:
    """Return a plugin in the form of a later release; unknown ones stay unchanged."""
    known = [row for row in _PLUGINS if row.partition(":")[0] == plugin.name]
    name = "forward" if plugin.name == "proxy" and not _all_have(there, plugin.name, known) else plugin.name
    before, after = _options(plugin.name, here), _options(name, there)
    if before is None or after is None:
        return plugin
    gone = [one for one in plugin.options if _all_have(here, one.name, before) and not _all_have(there, one.name, after)]
    return replace(plugin, name=name, options=[one for one in plugin.options if one not in gone])


def _rendered(server: Server) -> str:
    lines = [f"{' '.join(server.zones)} {{"]
    for plugin in server.plugins:
        lines.append("    " + _line(plugin) + (" {" if plugin.options else ""))
        lines += [f"       {_line(option)}" for option in plugin.options]
        lines += ["    }"] if plugin.options else []
    return "\n".join([*lines, "}", ""])


def _line(setting: Setting) -> str:
    return " ".join(map(_word, (setting.name, *setting.arguments)))


def _word(text: str) -> str:
    if text and not any(character.isspace() or character in '"#' for character in text):
        return text
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def obstacle(text: str, installed: str) -> str:
    """Return why a Corefile cannot be migrated from a release of `RELEASES` to a newer one; '' if it can."""
    if RELEASES.index(installed) >= RELEASES.index(_END_OF_PROXY):
        return ""
    return next((reason for server in parse(text) for plugin in server.plugins if (reason := _inseparable(server, plugin))), "")


def _inseparable(server: Server, plugin: Setting) -> str:
    """Return why the zone that a plugin forwards cannot get a server block of its own; '' if it can, or already has one."""
    if plugin.name not in _FORWARDING or plugin.arguments[:1] == ["."]:
        return ""
    if not plugin.arguments:
        return f"the plugin {plugin.name} has no zone"
    if tuple(server.zones) not in _DEFAULT_BLOCKS:
        return f"{plugin.name} {plugin.arguments[0]} in the server block {' '.join(server.zones)} cannot become a block of its own"
    return ""


def _statements(text: str) -> Iterator[list[str]]:
    """Yield the words of each line; an opening brace, and a closing one at the beginning of a line, are separate."""
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


def _options(plugin: str, releases: Sequence[int]) -> Sequence[str] | None:
    """Return the rows of a plugin's options, None if one of these releases lacks the plugin."""
    for row, options in _PLUGINS.items():
        if _all_have(releases, plugin, [row]):
            return options.split()
    return None


def _all_have(releases: Sequence[int], name: str, rows: Sequence[str]) -> bool:
    """Return whether each of these releases has a plugin or an option: `rows` are `name:since:before`, perhaps several for one name."""
    spans = [_releases_of(row) for row in rows if row.partition(":")[0] == name]
    return all(any(release in span for span in spans) for release in releases)


def _releases_of(row: str) -> range:
    _, since, before = (*row.split(":"), "", "")[:3]
    return range(RELEASES.index(since) if since else 0, RELEASES.index(before) if before else len(RELEASES))
