"""Plans: what people and programs see of the changes that a run would make."""

from kubewright.base.change import Action, Change, Lifetime
from kubewright.workflow.runner import Plan

SAME = Change(target="file /same", action=Action.NONE)
KEY = Change(target="file /pki/ca.key", action=Action.CREATE, reason="made on apply")
FILE = Change(target="file /a", action=Action.UPDATE, diff="--- /a\n+++ /a\n@@ -1 +1 @@\n-old\n+new\n", reason="mode 0644 instead of 0600")
TOKEN = Change(target="secret kube-system/bootstrap-token-abcdef", action=Action.CREATE, lifetime=Lifetime.EPHEMERAL)


def test_nothing_is_printed_when_nothing_differs():
    plan = Plan.of([SAME, SAME])
    assert not plan
    assert plan.text() == ""
    assert plan.as_list() == []
    assert plan.summary() == "nothing to change"


def test_changes_are_printed_in_order_with_diffs_and_a_summary():
    assert Plan.of([SAME, KEY, FILE]).text() == (
        "create file /pki/ca.key (made on apply)\n"
        "update file /a (mode 0644 instead of 0600)\n"
        "  --- /a\n  +++ /a\n  @@ -1 +1 @@\n  -old\n  +new\n"
        "\nplan: 1 to create, 1 to update\n"
    )


def test_the_data_form_has_every_change():
    assert Plan.of([KEY, SAME, FILE]).as_list() == [KEY.as_map(), FILE.as_map()]


def test_drift_leaves_out_short_lived_changes():
    assert Plan.of([TOKEN, FILE]).changes == (TOKEN, FILE)
    assert Plan.of([TOKEN, FILE], ephemeral=False).changes == (FILE,)
    assert not Plan.of([TOKEN], ephemeral=False)
