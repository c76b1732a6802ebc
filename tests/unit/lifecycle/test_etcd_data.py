"""Replacing the data directory of an etcd member, with runs that are killed between any two steps."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.records import replace
from kubewright.host.desired import Directory, Generated, Ownership
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.lifecycle.etcd.data import DataSwap

ETCD_USER = 61234
MAKE = "import sys, os; os.makedirs(sys.argv[1] + '/member'); open(sys.argv[1] + '/member/db', 'w').write('new')"


@pytest.fixture
def swap(tmp_path):
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    made = DataSwap(host=host, data=host.layout.etcd_data, label="1")
    Path(made.member).mkdir(parents=True)
    (Path(made.member) / "db").write_text("old")
    return made


def forward(swap: DataSwap):
    """Install new data; like a run, this first completes earlier steps."""
    if not swap.done:
        made = Generated(path=swap.staged, arguments=lambda place: [sys.executable, "-c", MAKE, str(place)], within=60)
        yield from swap.generate(made)
        yield from swap.put()


def killed(steps, after: int) -> None:
    """Do some steps of a run."""
    for _ in itertools.islice(steps, after):
        pass


def contents(swap: DataSwap) -> dict[str, str]:
    place = Path(swap.data)
    return {str(path.relative_to(place)): path.read_text() for path in sorted(place.rglob("*")) if path.is_file()}


NEW = {"member/db": "new", "member.before-1/db": "old"}
OLD = {"member/db": "old"}


@pytest.mark.parametrize("after", range(4))
def test_a_killed_run_continues_to_the_same_result(swap, after):
    killed(forward(swap), after)
    list(forward(swap))
    assert (contents(swap), swap.done) == (NEW, True)
    list(swap.finish())
    assert (contents(swap), sorted(one.name for one in Path(swap.data).iterdir())) == (NEW, ["member", "member.before-1"])


def test_a_run_killed_after_its_clean_up_keeps_the_new_data(swap):
    list(forward(swap))
    list(swap.finish())
    assert swap.done
    list(forward(swap))
    assert contents(swap) == NEW
    list(swap.back())
    assert (contents(swap), [one.name for one in Path(swap.data).iterdir()]) == (OLD, ["member"])


@pytest.mark.parametrize(("after", "back"), list(itertools.product(range(4), range(4))))
def test_a_rollback_restores_the_old_data_however_often_it_is_killed(swap, after, back):
    killed(forward(swap), after)
    killed(swap.back(), back)
    list(swap.back())
    assert (contents(swap), [one.name for one in Path(swap.data).iterdir()]) == (OLD, ["member"])


@pytest.mark.parametrize(("after", "back"), list(itertools.product(range(4), range(4))))
def test_a_run_killed_during_its_rollback_can_continue(swap, after, back):
    killed(forward(swap), after)
    killed(swap.back(), back)
    list(forward(swap))
    assert (contents(swap), swap.done) == (NEW, True)


@pytest.mark.parametrize("after", range(3))
def test_data_is_moved_aside_for_a_member_that_starts_empty(swap, after):
    killed(swap.clear(), after)
    list(swap.clear())
    assert (contents(swap), swap.done) == ({"member.before-1/db": "old"}, True)
    Path(swap.member).mkdir()
    (Path(swap.member) / "db").write_text("received")
    list(swap.clear())
    assert contents(swap) == {"member.before-1/db": "old", "member/db": "received"}


def test_data_is_installed_where_there_was_none(swap):
    (Path(swap.member) / "db").unlink()
    Path(swap.member).rmdir()
    list(forward(swap))
    assert (contents(swap), swap.done) == ({"member/db": "new"}, True)


def test_new_data_belongs_to_etcds_user_before_it_is_in_place(swap):
    planned = OverlayHost(swap.host)  # only root could change owners
    planned.ensure(Ownership(path=swap.data, owner=ETCD_USER, group=ETCD_USER, recursive=True))
    planned.ensure(Directory(path=swap.staged / "member", mode=0o700))
    owners = [found and found.owner for _ in replace(swap, host=planned).put() for found in [planned.state(swap.member)]]
    assert owners == [ETCD_USER, None, ETCD_USER]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_the_data_of_another_user_is_replaced_and_restored(swap):
    for path in (swap.data, swap.member, swap.member / "db"):
        os.chown(path, ETCD_USER, ETCD_USER)
    list(forward(swap))
    assert (contents(swap), {path.stat().st_uid for path in Path(swap.member).rglob("*")}) == (NEW, {ETCD_USER})
    list(swap.back())
    assert (contents(swap), {path.stat().st_uid for path in Path(swap.data).rglob("*")}) == (OLD, {ETCD_USER})


def test_a_link_to_the_data_is_followed_and_stays(swap):
    data = Path(swap.data)
    data.rename(data.with_name("disk"))
    data.symlink_to("disk")
    list(forward(swap))
    list(swap.finish())
    assert (data.is_symlink(), contents(replace(swap, data=PurePosixPath(data.with_name("disk"))))) == (True, NEW)
    assert contents(swap) == NEW
