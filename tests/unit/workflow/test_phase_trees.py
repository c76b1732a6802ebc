"""Trees of phases: names, selection, dependencies, help."""

import operator
import subprocess
import sys

import grimp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import UsageError
from kubewright.cli.rows.commands import TABLE, imported
from kubewright.workflow.phases import Node, Phase, Phases


def nothing(context):
    return ()


def leaf(name, **more: object):
    return Phase(name, f"does {name}", run=nothing, **more)


TREE = Phases(
    leaf("preflight"),
    Phase(
        "certs",
        "makes certificates",
        run=nothing,
        children=(Phase("all", "makes all of them", every=True), leaf("ca"), leaf("apiserver"), leaf("etcd-CA")),
    ),
    Phase("etcd", "starts etcd", children=(leaf("local"),)),
    leaf("check-etcd", hidden=True),
    leaf("upload-config", aliases=("uploadconfig",), children=(leaf("kubeadm"),)),
    leaf("bootstrap-token", aliases=("bootstraptoken",)),
    leaf("show-join-command", depends=("bootstrap-token", "upload-config")),
)


def names(nodes):
    return [node.name for node in nodes]


EVERYTHING = [
    "preflight", "certs", "certs/ca", "certs/apiserver", "certs/etcd-ca", "etcd", "etcd/local", "check-etcd",
    "upload-config", "upload-config/kubeadm", "bootstrap-token", "show-join-command",
]  # fmt: skip


def test_full_names_are_joined_in_lower_case():
    assert names(TREE.nodes) == EVERYTHING


@pytest.mark.parametrize(
    ("only", "skip", "chosen"),
    [
        pytest.param([], [], EVERYTHING, id="everything, hidden phases too, no all"),
        pytest.param(["certs/ca"], [], ["certs/ca"], id="a leaf runs without its parent"),
        pytest.param(["certs"], [], ["certs", "certs/ca", "certs/apiserver", "certs/etcd-ca"], id="a group runs with its children"),
        pytest.param(["certs/all"], [], ["certs", "certs/ca", "certs/apiserver", "certs/etcd-ca"], id="all is the parent"),
        pytest.param(["check-etcd"], [], ["check-etcd"], id="a hidden one can be named"),
        pytest.param(["etcd", "preflight"], [], ["preflight", "etcd", "etcd/local"], id="several run in the order of the tree"),
        pytest.param(["certs"], ["certs/ca"], ["certs", "certs/apiserver", "certs/etcd-ca"], id="skip a child of what is chosen"),
        pytest.param(["etcd"], ["etcd"], [], id="skip wins"),
        pytest.param([], ["certs"], [n for n in EVERYTHING if not n.startswith("certs")], id="skip a group with its children"),
        pytest.param([], ["check-etcd"], [n for n in EVERYTHING if n != "check-etcd"], id="skip a hidden one"),
        pytest.param([], ["certs/all"], EVERYTHING, id="skipping all leaves nothing out (kubeadm v1.36)"),
    ],
)
def test_phases_are_selected_and_skipped(only, skip, chosen):
    assert names(TREE.select(only=only, skip=skip)) == chosen


@pytest.mark.parametrize("name", ["foo", "all", "CERTS", "certs ", "", "ca", "certs/", "uploadconfig", "etcd-CA"])
@pytest.mark.parametrize("how", ["only", "skip"])
def test_an_unknown_name_is_refused(name, how):
    with pytest.raises(UsageError) as refused:
        TREE.select(**{how: [name]})
    assert str(refused.value) == f"invalid phase name: {name}"
    assert "certs/apiserver" in refused.value.remedy
    assert "check-etcd" not in refused.value.remedy


@pytest.mark.parametrize(
    ("only", "skip", "missing"),
    [
        (["show-join-command"], [], "[bootstrap-token upload-config]"),
        ([], ["bootstrap-token"], "[bootstrap-token]"),
        ([], ["upload-config", "bootstrap-token"], "[bootstrap-token upload-config]"),
    ],
)
def test_a_phase_without_its_dependencies_is_refused(only, skip, missing):
    with pytest.raises(UsageError) as refused:
        TREE.select(only=only, skip=skip)
    assert refused.value.what == "unresolved dependencies"
    assert refused.value.detail == f'missing {missing} phase(s) needed by "show-join-command" phase'


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["certs", "apiserver"], "certs/apiserver"),
        (["certs", "all"], "certs/all"),
        (["uploadconfig", "kubeadm"], "upload-config/kubeadm"),
        (["bootstraptoken"], "bootstrap-token"),
        (["check-etcd"], None),
        (["certs", "nope"], None),
        (["certs", "ca", "more"], None),
        ([], None),
    ],
)
def test_phases_are_selected_on_the_command_line_by_words_and_aliases(words, name):
    found = TREE.named(words)
    assert (found.name if found else None) == name


def test_every_visible_phase_has_a_command():
    groups = ["certs", "certs/all"]
    assert names(TREE.commands) == [name for one in EVERYTHING for name in (groups if one == "certs" else [one]) if name != "check-etcd"]


def test_the_function_of_a_phase_can_be_named_and_is_imported_late():
    phase = Phase("p", "s", run="operator:itemgetter", condition="no.such.module:f")
    assert phase.action() is operator.itemgetter
    with pytest.raises(ModuleNotFoundError):
        phase.left_out(None)


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param((leaf("a"), leaf("A")), id="the same name twice"),
        pytest.param((leaf("a", children=(leaf("b"), leaf("B"))),), id="the same child twice"),
    ],
)
def test_an_inconsistent_tree_is_refused(phases):
    with pytest.raises(ValueError, match="same full name"):
        Phases(*phases)


WORD = st.sampled_from("abc")
SHAPE = st.recursive(st.just({}), lambda below: st.dictionaries(WORD, below, max_size=3), max_leaves=8)


def built(shape):
    return tuple(Phase(word, "", run=nothing, children=built(below)) for word, below in shape.items())


def paths(shape, above=()):
    for word, below in shape.items():
        yield (*above, word)
        yield from paths(below, (*above, word))


@given(shape=SHAPE, data=st.data())
def test_selection_equals_a_list_of_paths(shape, data):
    every = list(paths(shape))
    some = st.lists(st.sampled_from(every), max_size=3) if every else st.just([])
    only, skip = data.draw(some), data.draw(some)

    def covered(path, chosen):
        return any(path[: len(one)] == one for one in chosen)

    expected = [path for path in every if (not only or covered(path, only)) and not covered(path, skip)]
    chosen = Phases(*built(shape)).select(only=["/".join(path) for path in only], skip=["/".join(path) for path in skip])
    assert names(chosen) == ["/".join(path) for path in expected]


def test_a_phase_has_its_path():
    child = leaf("b")
    parent = Node(leaf("a", children=(child,)))
    assert [node.name for node in parent.below()] == ["a", "a/b"]


def test_phases_are_cheap_to_import():
    code = "import sys, kubewright.workflow.phases; print(*sorted({'json', 'asyncio', 'concurrent', 'msgspec', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


OF_COMMANDS = {row.workflow.phases for row in TABLE.every() if row.workflow is not None and row.workflow.phases}
OF_LOCAL_CLUSTERS = {"kubewright.local.cluster.up_phases:UP_PHASES", "kubewright.local.cluster.join_phases:JOIN_PHASES"}


def test_functions_named_by_a_tree_are_in_lower_layers_and_do_not_import_it():
    graph = grimp.build_graph("kubewright", exclude_type_checking_imports=True, cache_dir=None)
    for exported in graph.find_modules_directly_imported_by("kubewright"):  # lazily
        graph.remove_import(importer="kubewright", imported=exported)
    named, upward = 0, []
    for tree in OF_COMMANDS | OF_LOCAL_CLUSTERS:
        own = tree.partition(":")[0]
        targets = (target for node in imported(tree).nodes for target in (node.phase.run, node.phase.condition))
        modules = {target.partition(":")[0] for target in targets if isinstance(target, str)}
        named += len(modules)
        upward += [(own, one) for one in modules if one == own or graph.chain_exists(importer=one, imported=own)]
    assert (len(OF_COMMANDS), named > 20, upward) == (13, True, [])
