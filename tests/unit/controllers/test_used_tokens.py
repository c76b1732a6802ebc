"""Stored uses of bootstrap tokens: what is read, what is kept, and how many writes many first requests cost."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from controllers_kit import NOW

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from fake_api import FakeAPI, FakeClient

from kubewright.controllers.serving import used_tokens
from kubewright.controllers.serving.used_tokens import MOST, Use, UsedTokens
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.controller import NotNow
from kubewright.kube.resources import CONFIG_MAP
from kubewright.manifests import node_policy

KEYS = [bytes([number]) * 32 for number in range(8)]


def use(number: int = 0, *, seconds: float = 0, node: str = "worker-1") -> Use:
    return Use.of(KEYS[number], node, now=NOW + timedelta(seconds=seconds))


def test_written_uses_are_read_again_and_the_first_one_stays():
    written = used_tokens.with_uses(node_policy.used_tokens(), {"aaaaaa": use()})
    assert used_tokens.read(written) == {"aaaaaa": use()}
    assert used_tokens.with_uses(written, {"aaaaaa": use(1), "bbbbbb": use(2)})["data"] == {"aaaaaa": use().text, "bbbbbb": use(2).text}


def test_entries_that_are_no_uses_are_ignored():
    assert used_tokens.read({"data": {"aaaaaa": "x", "bbbbbb": "", "cccccc": f"now {'0' * 63} a", "dddddd": use().text}}) == {
        "dddddd": use()
    }
    assert used_tokens.read({}) == {}


def test_the_oldest_uses_are_dropped_and_an_object_stays_below_its_largest_size():
    uses = {f"{number:06}": use(seconds=number, node="n" * 253) for number in range(MOST + 2)}
    written = used_tokens.with_uses(node_policy.used_tokens(), uses)
    assert (len(written["data"]), "000001" in written["data"], "000002" in written["data"]) == (MOST, False, True)
    assert sum(len(name) + len(text) for name, text in written["data"].items()) < 700_000


@pytest.mark.looptime
async def test_many_first_requests_at_the_same_time_cost_few_writes():
    api = FakeAPI()
    api.put(node_policy.used_tokens())
    uses = UsedTokens(FakeClient(api, Access(server="https://api")))
    await asyncio.gather(*(uses.record(f"token{number}", use(number)) for number in range(8)))
    assert len(used_tokens.read(api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system"))) == 8
    assert len(api.made("update", "configmaps")) <= 2


@pytest.mark.looptime
async def test_a_token_is_stored_for_one_key_only():
    api = FakeAPI()
    api.put(node_policy.used_tokens())
    uses = UsedTokens(FakeClient(api, Access(server="https://api")))
    found = await asyncio.gather(*(uses.record("aaaaaa", use(number)) for number in range(2)), return_exceptions=True)
    assert [type(one) for one in found] == [type(None), NotNow]
    assert used_tokens.read(api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system"))["aaaaaa"] == use()


@pytest.mark.looptime
async def test_a_write_for_several_tokens_that_fails_is_repeated_for_each_of_them():
    api = FakeAPI()
    api.put(node_policy.used_tokens())
    api.fail("update", "configmaps", times=2)
    uses = UsedTokens(FakeClient(api, Access(server="https://api")))
    names = ("aaaaaa", "bbbbbb")
    failed = await asyncio.gather(*(uses.record(name, use(number)) for number, name in enumerate(names)), return_exceptions=True)
    assert [type(one) for one in failed] == [NotNow, NotNow]
    await asyncio.gather(*(uses.record(name, use(number)) for number, name in enumerate(names)))
    stored = used_tokens.read(api.get(CONFIG_MAP, node_policy.USED_TOKENS, "kube-system"))
    assert stored == {"aaaaaa": use(0), "bbbbbb": use(1)}


@pytest.mark.looptime
async def test_a_use_that_is_older_than_all_entries_of_a_full_object_is_not_taken_for_stored():
    api = FakeAPI()
    api.put(used_tokens.with_uses(node_policy.used_tokens(), {f"{number:06}": use(seconds=1) for number in range(MOST)}))
    uses = UsedTokens(FakeClient(api, Access(server="https://api")))
    with pytest.raises(NotNow, match="not stored"):
        await uses.record("aaaaaa", use())
