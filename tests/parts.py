"""Which tests `make test` runs, which only `make test-all` does, and which neither does: a table, and the option `--part`.

`make test` tests everything that kubewright does, and builds only what its own tests need: no programs of other minor releases, no archive, no
image. Tests that wait for long, kill processes or try many variants are in the rest. Long tests that vary a test of the rest are left to
`make soak-tests`. Without the option all tests run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final

import pytest
from hypothesis import is_hypothesis_test, settings


class Part(Enum):
    """A part of the suite, or a way to divide tests between the parts."""

    FIRST = "first"
    REST = "rest"
    SOAK = "soak"
    """Only `make soak-tests` runs them: another test shows the same for another variant, or `make soak` does it more often."""
    EXAMPLES = "examples"
    """In each part: the first and the rest each try a fifth of the generated examples, `make soak-tests` tries the others."""
    BOTH = "both"
    """Tests with `@given` that have no row: the first part tries a fifth of their examples, the rest tries all of them."""
    CASES = "cases"
    """The first part runs one case in five of each test, beginning with the first one; the rest runs the others."""


FIRST, REST, SOAK, EXAMPLES, BOTH, CASES = Part
_BAD_FLAG: Final = "tests/controlplane/test_local_faults.py::test_a_component_with_a_bad_flag_is_reported_with_its_last_output"
_FULL_DISK: Final = "tests/controlplane/test_local_faults.py::test_a_disk_that_fills_up_during_the_start_is_reported"
_FAILURES: Final = "tests/machines/test_upgrade_machines.py::test_a_component_that_does_not_run_takes_the_machine_back"
TABLE: Final[Mapping[str, Part]] = {
    "tests": FIRST,
    # comparisons with kubeadm and other components
    "tests/compat": CASES,
    "tests/controlplane/test_upgrade_plan.py": CASES,
    # generated configurations, files, machines, command lines and templates
    "tests/compat/test_command_differential.py": EXAMPLES,
    "tests/compat/test_config_differential.py": EXAMPLES,
    "tests/compat/test_init_differential.py": EXAMPLES,
    "tests/compat/test_malformed_input.py::test_damaged_files_give_a_proper_error_and_leave_nothing_half_done": EXAMPLES,
    "tests/compat/test_output_differential.py": EXAMPLES,
    "tests/compat/test_certs_comparison.py::test_requests_equal_those_of_kubeadm[RSA-3072-]": REST,
    # programs of other minor releases
    "tests/compat/test_other_versions.py": REST,
    "tests/compat/test_patches_comparison.py::test_kube_proxy_is_patched_as_by_the_next_kubeadm": REST,
    "tests/compat/test_row_deletion.py": REST,
    # generated requests for serving certificates
    "tests/unit/controllers/test_hostile_serving_requests.py": REST,
    # control planes: kills, replicas, several clusters at a time, builds, and long waits
    "tests/controlplane/test_agent_disturbed.py": REST,
    "tests/controlplane/test_agent_lifecycle.py": REST,
    "tests/controlplane/test_agent_rotation.py": REST,
    "tests/controlplane/test_agent_run.py::test_a_deleted_node_comes_back_and_one_that_leaves_does_not": REST,
    "tests/controlplane/test_agent_run.py::test_a_paused_agent_is_unreachable_and_ready_again_when_it_continues": REST,
    "tests/controlplane/test_agent_run.py::test_one_request_is_pending_until_approval_however_often_the_agent_restarts": REST,
    "tests/controlplane/test_binaries_build.py": REST,
    "tests/controlplane/test_ci_templates.py": REST,
    "tests/controlplane/test_controllers_real.py::test_every_request_ends_as_with_kube_controller_manager": REST,
    "tests/controlplane/test_controllers_real.py::test_a_killed_process_is_restarted_continues_and_cleans_up": REST,
    "tests/controlplane/test_controllers_replicas_real.py": REST,
    "tests/controlplane/test_etcd_membership.py": REST,
    "tests/controlplane/test_etcd_restore.py": REST,
    "tests/controlplane/test_etcd_restore.py::test_one_member_is_restored_from_a_snapshot_and_no_revision_is_reused": FIRST,
    "tests/controlplane/test_hub_real.py::test_joins_succeed_if_hubs_and_nodes_are_killed_at_random_moments": REST,
    "tests/controlplane/test_hub_real.py::test_a_killed_hub_continues_after_a_restart": REST,
    "tests/controlplane/test_hub_real.py::test_clients_that_occupy_all_connections_delay_neither_health_nor_joins": REST,
    "tests/controlplane/test_hub_real.py::test_hundreds_of_hostile_requests_do_not_delay_good_ones": REST,
    "tests/controlplane/test_hub_secrets_real.py": REST,
    "tests/controlplane/test_local_concurrency.py": REST,
    "tests/controlplane/test_local_control_planes.py": REST,
    "tests/controlplane/test_local_down.py": REST,
    "tests/controlplane/test_local_down.py::test_down_of_a_missing_cluster_is_no_error": FIRST,
    "tests/controlplane/test_local_faults.py::test_a_certificate_of_another_ca_is_reported": REST,
    _BAD_FLAG: REST,
    _FULL_DISK: REST,
    "tests/controlplane/test_local_faults.py::test_a_cluster_recovers_when_a_full_disk_has_space_again": REST,
    "tests/controlplane/test_local_faults.py::test_an_etcd_with_a_bad_flag_is_reported_with_its_last_output": CASES,
    "tests/controlplane/test_local_faults.py::test_a_port_taken_from_a_running_cluster_is_reported_by_the_component": REST,
    "tests/controlplane/test_local_faults.py::test_a_state_directory_that_becomes_read_only_is_reported": REST,
    "tests/controlplane/test_local_faults.py::test_phases_that_local_clusters_lack_may_be_skipped_and_warnings_appear_once": REST,
    "tests/controlplane/test_local_faults.py::test_damaged_data_is_reported_with_the_last_output_of_etcd_and_kept": REST,
    "tests/controlplane/test_local_killed.py": REST,
    "tests/controlplane/test_local_namespaces.py": REST,
    "tests/controlplane/test_local_ordinary_user.py": REST,
    "tests/controlplane/test_local_repeated.py::test_up_waits_until_a_killed_component_is_healthy_again": REST,
    "tests/controlplane/test_local_repeated.py::test_killed_components_are_restarted_automatically": REST,
    "tests/controlplane/test_local_repeated.py::test_a_cluster_whose_daemon_died_is_adopted_without_a_restart": REST,
    "tests/controlplane/test_local_repeated.py::test_a_cluster_recovers_when_all_processes_were_killed_at_once": REST,
    "tests/controlplane/test_serving_approver.py::test_a_node_gets_nothing_by_odd_names_by_replays_or_by_changes_meanwhile": REST,
    "tests/controlplane/test_serving_sources_real.py": REST,
    "tests/controlplane/test_plugin_guide.py": REST,
    "tests/controlplane/test_plugin_runs.py": REST,
    "tests/controlplane/test_plugin_runs.py::test_a_run_has_a_cluster_and_leaves_nothing": FIRST,
    "tests/controlplane/test_plugin_workers.py": REST,
    "tests/controlplane/test_readme_typed.py::test_the_commands_of_the_readme_about_local_clusters_work": REST,
    # whole machines: one of each operation
    "tests/machines": REST,
    "tests/machines/test_agent_machines.py::test_a_node_is_taken_over_and_given_back": FIRST,
    "tests/machines/test_agent_machines.py::test_every_difference_from_the_kubelet_is_documented": FIRST,
    "tests/machines/test_hub_machines.py::test_a_worker_joins_through_the_hub_and_is_ready": FIRST,
    "tests/machines/test_init_machines.py": FIRST,
    "tests/machines/test_interop_machines.py::test_machines_of_both_tools_form_one_cluster[kubeadm-kubewright]": FIRST,
    "tests/machines/test_kill_worker.py::TestWorkerJoin::test_killed_at_a_boundary_between_phases[0]": FIRST,
    "tests/machines/test_whole_plugin.py": FIRST,
    # further kills; `make soak` has all those of init, joins, upgrades and etcd
    "tests/controlplane/test_local_killed.py::test_killed_at_random_moments": SOAK,
    "tests/machines/test_kill_init.py::TestInit::test_killed_at_a_boundary_between_phases[1]": SOAK,
    "tests/machines/test_kill_init.py::TestInit::test_killed_at_a_boundary_between_phases[2]": SOAK,
    "tests/machines/test_kill_init.py::TestInit::test_killed_at_a_boundary_between_phases[3]": SOAK,
    "tests/controlplane/test_etcd_restore.py::test_a_restore_from_this_member_that_is_killed_at_any_change_continues": SOAK,
    "tests/machines/test_kill_upgrade.py": SOAK,
    "tests/machines/test_whole_kills.py": SOAK,
    # kills where another test kills at the same places: restores and replacements on local control planes, and a restore that loses power;
    # init that loses power; a join of a control plane while its member learns
    "tests/machines/test_etcd_machines.py::test_a_replacement_that_is_killed_at_a_random_moment_ends_as_an_undisturbed_one": SOAK,
    "tests/machines/test_etcd_machines.py::test_a_restore_that_is_killed_at_a_random_moment_ends_as_an_undisturbed_one": SOAK,
    "tests/machines/test_kill_control_plane.py": SOAK,
    "tests/machines/test_kill_init.py::TestInit::test_killed_at_a_random_moment": SOAK,
    # interrupted runs: the rest has an init that is interrupted and reset, one that is interrupted and run again (test_faults_starting.py),
    # and a join of a control plane (test_join_control_plane.py)
    "tests/machines/test_kill_init.py::TestInit::test_interrupted_and_run_again": SOAK,
    "tests/machines/test_kill_worker.py": SOAK,
    # storms of requests for serving certificates: the rest has storms of other requests at the same controllers (test_controllers_replicas_real.py)
    # and hostile requests for serving certificates (test_hostile_serving_requests.py); `make soak-controllers` has storms of thousands
    "tests/controlplane/test_serving_storms_real.py": SOAK,
    # the end of a killed `up` at each of its phases is tested without kept data, the use of kept data without a kill (test_local_repeated.py)
    "tests/controlplane/test_local_killed.py::test_up_killed_while_it_resumes_kept_data": SOAK,
    # a killed machine: the rest has two whose pods and addresses come back or move (test_whole_clusters.py)
    "tests/machines/test_whole_tree.py": SOAK,
    # variants of tests that are in the rest
    "tests/controlplane/test_local_concurrency.py::test_an_interrupted_up_leaves_nothing_running_and_the_next_one_succeeds[manifests]": SOAK,
    "tests/controlplane/test_local_down.py::test_down_leaves_nothing[_lose_the_records]": SOAK,
    "tests/controlplane/test_local_down.py::test_down_leaves_nothing[well]": SOAK,
    "tests/controlplane/test_local_down.py::test_processes_of_a_cluster_whose_files_were_removed_are_found[down]": SOAK,
    f"{_FULL_DISK}[20]": SOAK,
    f"{_FULL_DISK}[60]": SOAK,
    f"{_BAD_FLAG}[controllerManager-kube-controller-manager-unknown flag: --no-such-flag]": SOAK,
    f"{_BAD_FLAG}[scheduler-kube-scheduler-unknown flag: --no-such-flag]": SOAK,
    "tests/controlplane/test_local_killed.py::test_a_new_cluster_whose_daemon_is_killed_is_made_by_the_next_up[nodes-ready]": SOAK,
    "tests/controlplane/test_local_killed.py::test_a_new_cluster_whose_daemon_is_killed_is_made_by_the_next_up[wait-control-plane]": SOAK,
    "tests/controlplane/test_local_repeated.py::test_up_waits_until_a_killed_component_is_healthy_again[kube-controller-manager]": SOAK,
    "tests/controlplane/test_local_repeated.py::test_up_waits_until_a_killed_component_is_healthy_again[kube-scheduler]": SOAK,
    "tests/controlplane/test_plugin_runs.py::test_a_killed_run_takes_its_cluster_with_it[15]": SOAK,
    "tests/machines/test_agent_machines.py::test_a_node_created_by_the_agent_equals_the_kubelets[same-flags]": SOAK,
    "tests/machines/test_ci_machines.py::test_the_job_of_gitlab_has_a_machine_and_leaves_none": SOAK,
    "tests/machines/test_faults_quorum.py": SOAK,
    "tests/machines/test_upgrade_kubelets.py": SOAK,
    "tests/machines/test_upgrade_matrix.py": SOAK,
    "tests/machines/test_upgrade_minor.py": SOAK,
    "tests/machines/test_interop_machines.py::test_machines_of_both_tools_form_one_cluster[kubeadm-kubeadm]": SOAK,
    "tests/machines/test_interop_machines.py::test_machines_of_both_tools_form_one_cluster[kubewright-kubeadm]": SOAK,
    "tests/machines/test_interop_machines.py::test_machines_of_both_tools_form_one_cluster[kubewright-kubewright]": SOAK,
    "tests/machines/test_upgrade_cluster.py::test_a_member_that_dies_while_another_one_is_restarted_ends_as_before_or_as_wanted": SOAK,
    "tests/machines/test_upgrade_cluster.py::test_kubeadm_calls_an_etcd_that_is_never_ready_on_one_of_three_a_success": SOAK,
    f"{_FAILURES}[a scheduler, after etcd was replaced, a controller-manager that exits when it has begun]": SOAK,
    f"{_FAILURES}[the only member of etcd]": SOAK,
    "tests/machines/test_upgrade_machines.py::test_an_etcd_of_another_minor_release_passes_only_the_checks_of_kubeadm": SOAK,
    "tests/machines/test_upgrade_machines.py::test_kubeadm_leaves_a_new_etcd_beside_components_that_have_gone_back": SOAK,
    "tests/machines/test_upgrade_machines.py::test_kubeadm_calls_a_dead_controller_manager_a_success": SOAK,
    "tests/machines/test_whole_lifecycle.py": SOAK,
    "tests/machines/test_whole_outages.py": SOAK,
    "tests/machines/test_whole_planes.py": SOAK,
    "tests/machines/test_whole_systemd.py": SOAK,
    "tests/machines/test_whole_versions.py": SOAK,
}
"""Folders, files, tests and single cases of tests, each with its part. The most specific row applies."""
SHARE: Final = 5
"""The first part tries one in so many of the generated examples, and of the cases of a comparison. The rest tries as many other examples."""
_SEEDS: Final = {REST: 1, SOAK: 2}
"""What a part adds to the seed of the first part, so that it tries other examples."""

_chosen: Part | None = None


def part_of(nodeid: str) -> Part:
    """Return the part that a test is in."""
    return next(TABLE[prefix] for prefix in prefixes(nodeid) if prefix in TABLE)


def prefixes(nodeid: str) -> list[str]:
    """Return the names that a row may have to apply to a test: the case, the test function, its class, file and folders."""
    found, (path, *names) = [nodeid], nodeid.partition("[")[0].split("::")
    found += ["::".join((path, *names[:count])) for count in range(len(names), 0, -1)]
    folders = path.split("/")
    return found + ["/".join(folders[:count]) for count in range(len(folders), 0, -1)]


def examples(number: int) -> int:
    """Return how many of a number of generated examples the chosen part tries."""
    share = -(-number // SHARE)
    return {FIRST: share, REST: share, SOAK: number - 2 * share}.get(_chosen, number)  # type: ignore[arg-type]


def given(number: int = 100) -> int:
    """Return how many examples a test with `@given` tries that has no seed of its own."""
    return examples(number) if _chosen is FIRST else number


def seed(number: int) -> int:
    """Return the seed of the chosen part, so that no part repeats the examples of another one."""
    return number + _SEEDS.get(_chosen, 0)  # type: ignore[call-overload, no-any-return]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--part",
        choices=[FIRST.value, REST.value, SOAK.value],
        help="Run the tests of `make test`, the rest of `make test-all`, or the others.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note the part before test modules are imported: they ask how many examples they should try."""
    global _chosen
    chosen = config.getoption("part")
    _chosen = Part(chosen) if chosen else None
    if _chosen is FIRST:
        settings.register_profile("first part", max_examples=given())
        settings.load_profile("first part")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other part. Raises UsageError for a row that names a case which its test does not have."""
    if _chosen is None:
        return
    cases = {item.nodeid for item in items}
    functions = {nodeid.partition("[")[0] for nodeid in cases}
    if dead := [row for row in TABLE if "[" in row and row not in cases and row.partition("[")[0] in functions]:
        raise pytest.UsageError(f"tests/parts.py has rows for cases that do not exist: {dead}")
    earlier: Counter[str] = Counter()
    wanted = {_chosen, EXAMPLES} if _chosen is SOAK else {_chosen, EXAMPLES, BOTH}
    found = {item: _part_of(item, earlier) in wanted for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not found[item]])
    items[:] = [item for item in items if found[item]]


def _part_of(item: pytest.Item, earlier: Counter[str]) -> Part:
    """Return any part but CASES. `earlier` counts the cases of each test."""
    part, function = part_of(item.nodeid), item.nodeid.partition("[")[0]
    if part in {FIRST, CASES} and is_hypothesis_test(getattr(item, "obj", None)):
        return BOTH if part is FIRST else EXAMPLES
    if part is CASES:
        part = REST if earlier[function] % SHARE else FIRST
        earlier[function] += 1
    return part
