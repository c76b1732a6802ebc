"""Settings from environment variables and flags."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import UsageError
from kubewright.binaries import BinarySources, sources_from
from kubewright.binaries.settings import default_cache

HOME = {"HOME": "/home/me"}
CACHE = Path("/home/me/.cache/kubewright/binaries")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, BinarySources(cache=CACHE)),
        ({"KUBEWRIGHT_BINARIES_DIR": "/opt/bin"}, BinarySources(cache=CACHE, directory=Path("/opt/bin"))),
        ({"KUBEWRIGHT_BINARIES_DIR": ""}, BinarySources(cache=CACHE)),
        (
            {"KUBEWRIGHT_MIRRORS": "https://a.example/x/, https://b.example"},
            BinarySources(cache=CACHE, mirrors=("https://a.example/x", "https://b.example")),
        ),
        ({"KUBEWRIGHT_OFFLINE": "1"}, BinarySources(cache=CACHE, allow_download=False, offline=True)),
        ({"KUBEWRIGHT_OFFLINE": "no"}, BinarySources(cache=CACHE)),
        ({"KUBEWRIGHT_NO_BUILD": "true"}, BinarySources(cache=CACHE, allow_build=False)),
        ({"KUBEWRIGHT_PROXY": "http://p.example:3128"}, BinarySources(cache=CACHE, proxy="http://p.example:3128")),
        ({"KUBEWRIGHT_PROXY": ""}, BinarySources(cache=CACHE, proxy="")),
        ({"KUBEWRIGHT_CACHE_DIR": "/var/k"}, BinarySources(cache=Path("/var/k/binaries"))),
    ],
)
def test_variables_set_which_sources_may_be_used(environment, expected):
    assert sources_from({**HOME, **environment}) == expected


def test_a_flag_overrides_its_variable():
    environment = {
        **HOME, "KUBEWRIGHT_BINARIES_DIR": "/a", "KUBEWRIGHT_MIRRORS": "https://a.example", "KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_PROXY": "http://a",
        "KUBEWRIGHT_NO_BUILD": "1",
    }  # fmt: skip
    found = sources_from(
        environment, directory="/b", mirrors=("https://b.example",), allow_download=True, allow_build=True, proxy="http://b", cache="/c"
    )
    assert found == BinarySources(
        cache=Path("/c"), directory=Path("/b"), mirrors=("https://b.example",), allow_download=True, proxy="http://b"
    )


@pytest.mark.parametrize(
    ("environment", "cache"),
    [
        ({"XDG_CACHE_HOME": "/x", **HOME}, "/x/kubewright/binaries"),
        ({"XDG_CACHE_HOME": "relative", **HOME}, "/home/me/.cache/kubewright/binaries"),
        (HOME, "/home/me/.cache/kubewright/binaries"),
    ],
)
def test_the_cache_follows_the_xdg_directories(environment, cache):
    assert default_cache(environment) == Path(cache)


def test_without_a_home_the_error_names_the_variables():
    with pytest.raises(UsageError) as caught:
        default_cache({})
    assert caught.value.remedy == "set HOME, XDG_CACHE_HOME or KUBEWRIGHT_CACHE_DIR"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KUBEWRIGHT_OFFLINE", "maybe"),
        ("KUBEWRIGHT_NO_BUILD", "2"),
        ("KUBEWRIGHT_MIRRORS", "http://plain.example"),
        ("KUBEWRIGHT_MIRRORS", "mirror.example"),
        ("KUBEWRIGHT_MIRRORS", "https://user:secret@mirror.example"),
        ("KUBEWRIGHT_MIRRORS", "https://mirror.example/?x=1"),
        ("KUBEWRIGHT_MIRRORS", "https://[::1"),
        ("KUBEWRIGHT_PROXY", "socks5://user:secret@proxy.example"),
        ("KUBEWRIGHT_PROXY", "http://proxy.example:port"),
    ],
)
def test_an_unusable_value_is_refused_without_showing_secrets(name, value):
    with pytest.raises(UsageError) as caught:
        sources_from({**HOME, name: value})
    assert name in str(caught.value) + caught.value.remedy
    assert "secret" not in str(caught.value)


@given(
    st.dictionaries(
        st.sampled_from(["KUBEWRIGHT_OFFLINE", "KUBEWRIGHT_NO_BUILD", "KUBEWRIGHT_MIRRORS", "KUBEWRIGHT_PROXY", "KUBEWRIGHT_BINARIES_DIR"]),
        st.text(max_size=20) | st.sampled_from(["https://a", "http://[", "https://a:b", "1", "on"]),
    )
)
def test_any_environment_gives_settings_or_a_usage_error(environment):
    try:
        found = sources_from({**HOME, **{name: value.replace("\0", "") for name, value in environment.items()}})
    except UsageError:
        return
    assert all(mirror.startswith("https://") for mirror in found.mirrors)
