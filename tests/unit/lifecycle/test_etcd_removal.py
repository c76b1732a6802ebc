"""Which member may be removed, with synthetic clusters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_etcd_health import NAMES, THREE, FakeEtcd, member, status

from kubewright.base.change import Action
from kubewright.base.clock import FakeClock
from kubewright.base.errors import CheckFailed
from kubewright.base.records import replace
from kubewright.etcd.api import Member, MemberNotFound, Status
from kubewright.lifecycle.etcd import removal


def _etcd(*dead: str, members: Sequence[Member] = THREE, leader: int = 1) -> FakeEtcd:
    statuses = [
        Status(endpoint=one.client_urls[0], problem="refused") if one.name in dead else status(one.id, leader_id=leader, raft_index=one.id)
        for one in members
        if one.client_urls
    ]
    return FakeEtcd(members, statuses)


@pytest.mark.parametrize(
    ("name", "dead", "actions"),
    [
        ("three", (), [("remove", "three at https://10.0.0.3:2380")]),
        ("three", ("three",), [("remove", "three at https://10.0.0.3:2380")]),
        ("one", (), [("lead", "three at https://10.0.0.3:2380"), ("remove", "one at https://10.0.0.1:2380")]),
        ("one", ("one",), [("remove", "one at https://10.0.0.1:2380")]),
    ],
)
def test_a_member_that_the_others_can_spare_is_removed(name: str, dead: tuple[str, ...], actions: list[tuple[str, str]]) -> None:
    etcd = _etcd(*dead)
    assert removal.remove(etcd, removal.choose(THREE, name), clock=FakeClock()).action is Action.DELETE
    assert etcd.actions == actions


@pytest.mark.parametrize(
    ("name", "dead", "members", "why"),
    [
        ("one", ("two",), THREE, "the other voting members would not have a majority"),
        ("three", ("two", "three"), THREE, "because etcd has no majority"),
        ("two", ("two",), THREE[:2], "because etcd has no majority"),
        ("one", (), THREE[:1], "is the only member of etcd"),
        ("one", (), [THREE[0], replace(THREE[1], learner=True)], "the other voting members would not have a majority"),
    ],
)
def test_a_member_needed_for_the_majority_stays(name: str, dead: tuple[str, ...], members: Sequence[Member], why: str) -> None:
    etcd = _etcd(*dead, members=members)
    with pytest.raises(CheckFailed, match=why) as caught:
        removal.remove(etcd, removal.choose(members, name), clock=FakeClock())
    assert (caught.value.remedy != "", etcd.actions) == (True, [])


def test_members_with_an_alarm_count_for_the_majority() -> None:
    """All members report the alarm of one of them."""
    etcd = FakeEtcd(THREE, [status(number, errors=("memberID:2 alarm:CORRUPT ",)) for number in (1, 2, 3)])
    assert removal.remove(etcd, removal.choose(THREE, "two"), clock=FakeClock()).action is Action.DELETE
    assert etcd.actions == [("remove", "two at https://10.0.0.2:2380")]


def test_a_learner_that_never_started_is_removed() -> None:
    lost = member(3, name="", client_urls=(), learner=True)
    etcd = _etcd(members=[*THREE[:2], lost])
    assert removal.remove(etcd, removal.choose([*THREE[:2], lost], "3"), clock=FakeClock())
    assert etcd.actions == [("remove", "3 at https://10.0.0.3:2380")]


def test_a_member_is_selected_by_name_or_id() -> None:
    members = [*THREE, member(2, id=0xBEEF, name="two"), member(1, id=0xC0DE, name="beef")]
    assert removal.choose(members, "one").id == 1
    assert removal.choose(members, "3").name == "three"
    assert removal.choose(members, "0C0DE").name == "beef"
    assert removal.choose(members, "beef").id == 0xC0DE  # names come first
    assert removal.choose(members, str(0xC0DE)).name == "beef"  # as etcdctl's JSON has it
    assert removal.choose([member(1, id=16), member(2, id=10)], "10").id == 16  # hexadecimal first
    with pytest.raises(MemberNotFound, match="2 members of etcd have the name 'two'") as caught:
        removal.choose(members, "two")
    assert "beef: two at https://10.0.0.2:2380" in caught.value.detail.splitlines()
    with pytest.raises(MemberNotFound, match="etcd has no member 'four'") as caught:
        removal.choose(members, "four")
    assert len(caught.value.detail.splitlines()) == len(members)


@given(st.text(max_size=8))
def test_only_names_and_ids_of_members_select_one(text: str) -> None:
    try:
        found = removal.choose(THREE, text)
    except MemberNotFound:
        assert text not in NAMES
    else:
        assert text == found.name or int(text, 16) == found.id
