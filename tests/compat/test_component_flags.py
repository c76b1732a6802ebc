"""The table of components' flags beside the components themselves, of our own release; the other releases of the table were made the same way."""

from __future__ import annotations

import os

import flag_collecting
import pytest
from flag_collecting import Found

from kubewright import binaries
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import OWN
from kubewright.manifests.extra_arguments import ComponentFlags, flags_of

LINES = dict.fromkeys(flag_collecting.KUBERNETES, OWN.line) | {"etcd": "3.6"}


@pytest.fixture(scope="module", params=LINES)
def pair(request: pytest.FixtureRequest) -> tuple[ComponentFlags, dict[str, Found]]:
    """What the table says of a component, and what the component says."""
    name = request.param
    found = binaries.locate((name,), version=KUBERNETES, sources=binaries.sources_from(os.environ)).found
    if name not in found:
        pytest.skip(f"no {name}: run `kubewright binaries fetch {name}`, or set KUBEWRIGHT_BINARIES_DIR")
    known = flags_of(name, LINES[name])
    assert known is not None
    return known, flag_collecting.collect(found[name].path, name)


def test_the_table_is_what_the_component_says(pair):
    known, found = pair
    assert {name: (flag.type, flag.deprecated) for name, flag in known.flags.items()} == {
        name: (flag.type, flag.deprecated) for name, flag in found.items()
    }


def test_the_flags_of_other_releases_are_told_apart(pair):
    known, found = pair
    assert len(found) > 50
    assert known.flags.keys() == found.keys()
    for name, lines in known.elsewhere.items():  # a flag may have another type or other words in another release
        assert known.line not in lines
        assert name in found or name not in known.flags
