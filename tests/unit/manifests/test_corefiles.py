"""Corefiles that an upgrade finds: defaults of earlier releases are replaced, and what releases on the way have removed is left out of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.manifests import corefile
from kubewright.manifests.coredns import corefile as present

OLD = {
    "1.8": """.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes example.org in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
""",
    "1.6.2": """.:53 {
    loadbalance
    errors
    health
    ready # comments and the order do not count
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 30
        fallthrough in-addr.arpa ip6.arpa
    }
    prometheus :9153
    forward . 10.0.0.1 10.0.0.2
    cache 30
    loop
    reload
}
""",
    "1.3.1": """.:53 {
    errors
    health
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        upstream
        fallthrough in-addr.arpa ip6.arpa
    }
    prometheus :9153
    proxy . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
""",
    "1.1.3": """.:53 {
    errors
    health
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        upstream
        fallthrough in-addr.arpa ip6.arpa
    }
    prometheus :9153
    proxy . /etc/resolv.conf
    cache 30
    reload
}
""",
}


@pytest.mark.parametrize("release", OLD)
def test_the_default_of_an_earlier_release_is_known(release):
    assert corefile.is_default(OLD[release])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cache 30", "cache 60"),
        (".:53", ".:53 org:53"),
        ("ttl 30", "ttl 31"),
        ("    ready\n", ""),
        ("    loop\n", ""),
        ("    loop\n", "    loop\n    log\n"),
        ("forward .", "forward org"),
        ("errors\n", "errors\n    errors\n"),
        ("}\n", "}\norg:53 {\n}\n"),
    ],
)
def test_a_changed_corefile_is_no_default(old, new):
    text = OLD["1.8"]
    changed = new.join(text.rsplit(old, 1))
    assert (changed != text, corefile.is_default(changed)) == (True, False)


def test_the_present_default_needs_neither():
    assert not corefile.is_default(present("cluster.local"))
    assert corefile.migrated(present("cluster.local"), "1.13.1", "1.14.2") == present("cluster.local")


def test_options_removed_by_intermediate_releases_are_left_out():
    text = """# mine
org:53 .:53 {
    log
    kubernetes cluster.local {
        resyncperiod 5m
        upstream
        pods verified
    }
    proxy . 10.0.0.1 {
        policy random
        protocol dns
        except a.org "b c"
    }
}
"""
    assert corefile.migrated(text, "1.3.1", "1.14.2") == (
        """org:53 .:53 {
    log
    kubernetes cluster.local {
       pods verified
    }
    forward . 10.0.0.1 {
       policy random
       except a.org "b c"
    }
}
"""
    )
    assert corefile.migrated(text.replace("proxy", "forward"), "1.8.7", "1.14.2").startswith("# mine\n")


@given(st.text(alphabet='abc.: {}\n"#\\', max_size=60), st.sampled_from(corefile.RELEASES))
def test_any_text_is_parsed_and_written_with_the_same_meaning(text, installed):
    assert corefile.is_default(text) is False
    assert corefile.migrated(text, installed, "1.14.2") == text
