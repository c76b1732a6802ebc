"""`certs renew`, `certs generate-csr`, `certs certificate-key` and `kubeconfig user` as commands."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certs_kit import CONFIG, EXTERNAL_ETCD, ControlPlane

import certificate_summaries as summaries
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.randomness import SeededRandom
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.rows import commands
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.locks import Lock
from kubewright.lifecycle.machine import LOCK
from kubewright.lifecycle.steps import renewal
from kubewright.pki import certificates, ensure, keys, specs, table
from kubewright.pki.ensure import IssuingSources

PERIOD = "certificateValidityPeriod: 240h\n"


@pytest.fixture
def plane(tmp_path, capsys, monkeypatch):
    plane = ControlPlane(tmp_path / "machine", capsys)
    monkeypatch.setattr(cli_machine, "host", lambda *_, **__: plane.host)
    monkeypatch.setenv("HOME", str(tmp_path))
    return plane


def test_commands_equal_the_rows_of_the_table():
    found = [row.words[-1] for row in commands.TABLE.children(commands.TABLE.command("certs", "renew"))]
    assert found == ["all", *(row.name for row in renewal.everything() if not row.optional)]  # the help shows those of kubeadm
    assert (len(found), len(renewal.everything())) == (12, 12)
    for alias in ("certs", "certificates"):
        assert all(commands.TABLE.command(alias, "renew", row.name).handler for row in renewal.everything())


COMMANDS = json.loads((Path(__file__).parents[2] / "data" / "reference" / "commands.json").read_text())
MINE = [row for row in COMMANDS if row["command"].split()[1:2] and row["command"].split()[1] in {"certs", "kubeconfig", "token"}]
OURS = {"output", "plan", "fail-within", "token-file", "print-bootstrap-kubeconfig", "node", "address", "name"}


@pytest.mark.parametrize("row", MINE, ids=lambda row: row["command"])
def test_commands_and_flags_equal_those_of_kubeadm(row):
    command = commands.TABLE.command(*row["command"].split()[1:])
    wanted = {flag["name"]: flag.get("default", "") for flag in row["flags"]}
    found = {flag.name: flag.default for flag in command.flags}
    inherited = set(row["inherited_flags"]) - {"rootfs", "v", "vmodule"}
    assert {*wanted, *inherited} - set(found) == set()
    assert set(found) - set(wanted) - inherited <= OURS
    for name in wanted.keys() & found.keys() - {"groups", "usages"}:  # lists: their defaults are those of the configuration
        assert str(found[name] or "").lower() == str(wanted[name] or "").lower()


def test_there_are_as_many_commands_as_kubeadm_has():
    assert len(MINE) == 24


def test_all_certificates_are_renewed_in_order_and_cas_stay(plane):
    before = plane.fill().snapshot()
    run = plane.run("certs", "renew", "all", "--config", plane.config)
    after = plane.snapshot()
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[:11] == [f"{row.long_name} renewed" for row in renewal.everything() if not row.optional]
    assert lines[11] == ""
    assert "kube-apiserver, kube-controller-manager, kube-scheduler and etcd" in lines[12]
    assert sorted(after) == sorted(before)
    same = {name for name in before if after[name] == before[name]}
    assert same == {
        "kubelet.conf", "pki/ca.crt", "pki/ca.key", "pki/etcd/ca.crt", "pki/etcd/ca.key", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key",
        "pki/sa.key", "pki/sa.pub",
    }  # fmt: skip


def test_one_certificate_is_renewed_and_the_others_stay(plane):
    before = plane.fill().snapshot()
    run = plane.run("certs", "renew", "etcd-peer", "--config", plane.config)
    after = plane.snapshot()
    assert run.out == "certificate for etcd nodes to communicate with each other renewed\n"
    assert {name for name in before if after[name] != before[name]} == {"pki/etcd/peer.crt", "pki/etcd/peer.key"}


def test_the_kubeconfig_of_our_controllers_is_renewed_where_it_exists(plane):
    plane.fill()
    own = plane.kubernetes / "kubewright-controllers.conf"
    own.write_bytes((plane.kubernetes / "scheduler.conf").read_bytes())
    before = plane.snapshot()
    run = plane.run("certs", "renew", "all", "--config", plane.config)
    lines = run.out.splitlines()
    assert (run.code, lines.count("certificate embedded in the kubeconfig file for kubewright's controllers to use renewed")) == (0, 1)
    assert lines[-1] == "Restart kubewright-controllers as well."
    after = plane.snapshot()
    assert after[own.name] != before[own.name]
    assert [row["name"] for row in plane.check("-o", "json").json["certificates"]].count(own.name) == 1
    own.unlink()
    run = plane.run("certs", "renew", own.name, "--config", plane.config)
    assert (run.code, run.out) == (0, "MISSING! certificate embedded in the kubeconfig file for kubewright's controllers to use\n")


def test_period_and_algorithm_come_from_the_configuration(plane):
    plane.fill()
    plane.config.write_text(CONFIG.replace("P256", "P384") + PERIOD)
    assert plane.run("certs", "renew", "apiserver", "--config", plane.config).code == 0
    found = plane.certificate("apiserver.crt")
    assert found.key_kind == "ECDSA-P384"
    assert found.lifetime == timedelta(hours=240, minutes=5)


def test_the_configured_certificate_directory_is_used_unless_a_flag_overrides_it(plane, tmp_path):
    """kubeadm takes the default of the flag instead (kubernetes#110708)."""
    plane.fill()
    moved = tmp_path / "moved"
    plane.pki.rename(moved)
    plane.config.write_text(f"{CONFIG}certificatesDir: {moved}\n")
    assert plane.run("certs", "renew", "apiserver", "--config", plane.config).out.endswith("renewed\n")
    assert plane.run("certs", "check-expiration", "--config", plane.config).code == 0
    empty = plane.run("certs", "renew", "apiserver", "--config", plane.config, "--cert-dir", tmp_path / "none")
    assert empty.out == "MISSING! certificate for serving the Kubernetes API\n"


def test_missing_and_external_certificates_are_reported_and_are_no_errors(plane):
    plane.fill()
    (plane.pki / "ca.key").unlink()
    (plane.kubernetes / "super-admin.conf").unlink()
    before = plane.snapshot()
    run = plane.run("certs", "renew", "all", "--config", plane.config)
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[1] == "Detected external ca, certificate for serving the Kubernetes API can't be renewed"
    assert lines[10] == "MISSING! certificate embedded in the kubeconfig file for the super-admin"
    assert sum("renewed" in line and "can't" not in line for line in lines[:11]) == 5
    assert {name for name, text in plane.snapshot().items() if text != before[name]} == {
        f"pki/{base}.{end}"
        for base in ("etcd/server", "etcd/peer", "etcd/healthcheck-client", "apiserver-etcd-client", "front-proxy-client")
        for end in ("crt", "key")
    }


def test_certificates_of_an_external_etcd_are_not_touched(plane):
    before = plane.fill().snapshot()
    plane.config.write_text(CONFIG + EXTERNAL_ETCD)
    run = plane.run("certs", "renew", "all", "--config", plane.config)
    assert len([line for line in run.out.splitlines() if line.endswith(" renewed")]) == 7
    after = plane.snapshot()
    assert all(after[name] == before[name] for name in before if "etcd" in name)


def test_a_structured_result_has_the_outcome_of_each(plane):
    plane.fill()
    (plane.pki / "apiserver.crt").unlink()
    run = plane.run("certs", "renew", "all", "--config", plane.config, "-o", "json")
    results = {row["name"]: row["result"] for row in run.json["certificates"]}
    assert len(results) == 11
    assert {name for name, result in results.items() if result != "renewed"} == {"apiserver"}


def test_a_missing_ca_is_an_error(plane):
    plane.fill()
    (plane.pki / "front-proxy-ca.crt").unlink()
    before = plane.snapshot()
    run = plane.run("certs", "renew", "front-proxy-client", "--config", plane.config)
    assert (run.code, run.out) == (1, "")
    assert "front-proxy-ca.crt is missing" in run.err
    assert plane.snapshot() == before


def test_a_plan_of_a_renewal_lists_the_files_and_writes_none(plane):
    before = plane.fill().snapshot()
    (plane.kubernetes / "super-admin.conf").unlink()
    plan = plane.run("certs", "renew", "all", "--config", plane.config, "--plan", "-o", "json")
    assert (plan.code, plan.err) == (0, "")
    found = {change["target"].removeprefix(f"file {plane.kubernetes}/"): change["action"] for change in plan.json}
    assert found == dict.fromkeys(sorted(found), "update")
    assert len(found) == 7 * 2 + 3
    assert {"admin.conf", "pki/apiserver.crt", "pki/apiserver.key"} < set(found)
    one = plane.run("certs", "renew", "admin.conf", "--config", plane.config, "--plan")
    assert (one.code, one.out.splitlines()[-1]) == (0, "plan: 1 to update")
    assert f"update file {plane.kubernetes}/admin.conf" in one.out
    assert {**plane.snapshot(), "super-admin.conf": before["super-admin.conf"]} == before


def test_a_plan_refuses_what_a_renewal_refuses(plane):
    plane.fill()
    (plane.pki / "front-proxy-ca.crt").unlink()
    runs = [plane.run("certs", "renew", "all", "--config", plane.config, *more) for more in ((), ("--plan",))]
    assert [(run.code, run.out) for run in runs] == [(1, "")] * 2
    assert "front-proxy-ca.crt is missing" in runs[0].err
    assert runs[0].err == runs[1].err


def test_progress_of_a_renewal_is_reported_in_addition_to_a_structured_result(plane):
    plane.fill()
    run = plane.run("certs", "renew", "apiserver", "--config", plane.config, "-o", "json")
    assert run.json == {"certificates": [{"name": "apiserver", "result": "renewed"}]}
    events = [json.loads(line) for line in run.err.splitlines()]
    changed = [event["target"].rpartition("/")[2] for event in events if event["event"] == "Changed"]
    assert changed == ["apiserver.key", "apiserver.crt"]


def test_two_concurrent_renewals_are_refused(plane):
    before = plane.fill().snapshot()
    plane.run("certs", "renew", "apiserver-etcd-client", "--config", plane.config)
    before = plane.snapshot()
    with Lock(plane.layout.run / LOCK, doing="init"):
        run = plane.run("certs", "renew", "all", "--config", plane.config)
    assert run.code == 1
    assert "another kubewright is running" in run.err
    assert plane.snapshot() == before


def test_defaults_are_used_silently_without_file_and_cluster(plane):
    plane.fill()
    run = plane.run("certs", "renew", "apiserver", "--kubeconfig", plane.root / "none")
    assert (run.code, run.out, run.err) == (0, "certificate for serving the Kubernetes API renewed\n", "")
    assert plane.certificate("apiserver.crt").key_kind == "RSA-2048"


def test_a_cluster_that_does_not_answer_is_reported(plane):
    plane.fill()
    text = (plane.kubernetes / "admin.conf").read_text().replace("https://10.98.0.11:6443", "https://127.0.0.1:1")
    (plane.kubernetes / "admin.conf").write_text(text)
    run = plane.run("certs", "check-expiration")
    lines = run.out.splitlines()
    assert run.code == 0
    assert [line.partition(" ")[0] for line in lines[:5]] == ["[check-expiration]"] * 3 + ["", "CERTIFICATE"]
    assert "127.0.0.1:1" in run.err
    assert plane.run("certs", "check-expiration", "-o", "json").json["kind"] == "CertificateExpirationInfo"


LEAVES = (
    "apiserver", "apiserver-kubelet-client", "front-proxy-client", "etcd/server", "etcd/peer", "etcd/healthcheck-client",
    "apiserver-etcd-client",
)  # fmt: skip
CONFS = ("admin.conf", "super-admin.conf", "kubelet.conf", "controller-manager.conf", "scheduler.conf")


def requests(plane, directory):
    return plane.run("certs", "generate-csr", "--config", plane.config, "--cert-dir", directory / "pki", "--kubeconfig-dir", directory)


def test_requests_are_created_with_their_keys(plane, tmp_path):
    place = tmp_path / "out"
    run = requests(plane, place)
    assert (run.code, run.err) == (0, "")
    assert [line.strip() for line in run.out.splitlines() if line.startswith("  ")] == [*LEAVES, *CONFS]
    found = {str(path.relative_to(place)): path.stat().st_mode & 0o777 for path in place.rglob("*") if path.is_file()}
    wanted = {f"pki/{base}.{end}" for base in LEAVES for end in ("key", "csr")} | {f"{conf}{end}" for conf in CONFS for end in ("", ".csr")}
    assert found == dict.fromkeys(wanted, 0o600)
    request = summaries.of_request((place / "pki" / "etcd" / "server.csr").read_bytes())
    key = keys.load((place / "pki" / "etcd" / "server.key").read_bytes(), source="key")
    assert request.signature_valid
    assert request.public_key == key.public_der()
    assert (request.common_name, request.extensions) == ("node1", ("subjectAltName",))
    assert request.names.dns == ("localhost", "node1")
    assert request.names.ips == ("10.98.0.11", "127.0.0.1", "::1")


def test_a_kubeconfig_without_its_certificate_is_written(plane, tmp_path):
    requests(plane, tmp_path / "out")
    document = yaml.load((tmp_path / "out" / "admin.conf").read_bytes())
    assert document["clusters"] == [{"cluster": {"server": "https://10.98.0.11:6443"}, "name": "kubernetes"}]
    assert list(document["users"][0]["user"]) == ["client-key-data"]
    request = summaries.of_request((tmp_path / "out" / "admin.conf.csr").read_bytes())
    key = keys.load(base64.b64decode(document["users"][0]["user"]["client-key-data"]), source="admin.conf")
    assert request.public_key == key.public_der()
    assert (request.common_name, request.organizations) == ("kubernetes-admin", ("kubeadm:cluster-admins",))


def test_a_plan_of_requests_lists_the_files_and_writes_none(plane, tmp_path):
    place = tmp_path / "out"
    argv = ("certs", "generate-csr", "--config", plane.config, "--cert-dir", place / "pki", "--kubeconfig-dir", place)
    plan = plane.run(*argv, "--plan", "-o", "json")
    assert (plan.code, plan.err, place.exists()) == (0, "", False)
    files = [change["target"] for change in plan.json if change["target"].startswith("file ")]
    assert len(files) == 2 * (len(LEAVES) + len(CONFS))
    made = plane.run(*argv, "-o", "json")
    assert made.json == {"certificates": list(LEAVES), "kubeconfigs": list(CONFS)}
    assert sorted(files) == sorted(f"file {path}" for path in place.rglob("*") if path.is_file())
    again = plane.run(*argv, "--plan")
    assert (again.code, again.out) == (1, "")
    assert f"{CONFS[0]}.csr" in again.err


def test_no_key_and_no_request_is_overwritten(plane, tmp_path):
    """kubeadm writes until it meets the first one that exists."""
    place = tmp_path / "out"
    place.mkdir()
    (place / "scheduler.conf.csr").write_text("mine")
    run = requests(plane, place)
    assert (run.code, run.out) == (1, "")
    assert "scheduler.conf.csr" in run.err
    assert [path.name for path in place.rglob("*")] == ["scheduler.conf.csr"]


def user(plane, *argv: object):
    return plane.run("kubeconfig", "user", "--config", plane.config, "--client-name", "ada", *argv)


def test_a_kubeconfig_for_a_user_is_printed(plane):
    plane.fill()
    run = user(plane, "--org", "a,b", "--org", "c", "--validity-period", "24h")
    assert (run.code, run.err) == (0, "")
    assert run.out.endswith("\n\n")
    document = yaml.load(run.out)
    assert document["current-context"] == "ada@kubernetes"
    entry = document["users"][0]["user"]
    pair = certificates.pair_of(base64.b64decode(entry["client-certificate-data"]), base64.b64decode(entry["client-key-data"]), source="x")
    assert (pair.leaf.common_name, sorted(pair.leaf.organizations), pair.leaf.usages) == ("ada", ["a", "b", "c"], ("clientAuth",))
    assert pair.leaf.not_before == plane.certificate("ca.crt").not_before
    assert timedelta(hours=24) <= pair.leaf.lifetime < timedelta(hours=25)
    assert certificates.chains_to(pair.leaf, roots=[plane.certificate("ca.crt")])
    assert base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]) == (plane.pki / "ca.crt").read_bytes()


def test_an_expired_ca_gives_a_warning_with_the_kubeconfig_of_a_user(plane):
    authority = specs.of_authority(table.authority("ca"), plane.configuration().cluster)
    ten_years_ago = IssuingSources(FakeClock(datetime.now(UTC) - timedelta(days=3700)), SeededRandom(1))
    ensure.ensure(HostCertificateStore(plane.host, directory=plane.layout.pki), authority, ten_years_ago)
    run = user(plane)
    assert run.code == 0
    assert run.err.startswith("warning: ca.crt is not valid now (expired ")
    assert run.err.count("\n") == 1


def test_a_period_of_more_than_a_year_gives_a_warning(plane):
    plane.fill()
    run = user(plane, "--validity-period", "8760h1s")
    assert run.code == 0
    assert run.err.startswith("warning: a validity period of 8760h0m1s")
    found = certificates.first(base64.b64decode(yaml.load(run.out)["users"][0]["user"]["client-certificate-data"]), source="x")
    assert found.lifetime > timedelta(days=365)


@pytest.mark.parametrize("period", ["0s", "-5h"])
def test_a_period_without_length_is_refused(plane, period):
    """kubeadm takes it for a year, or prints an expired certificate."""
    run = user(plane.fill(), f"--validity-period={period}")
    assert (run.code, run.out) == (1, "")


def test_a_token_kubeconfig_needs_no_ca_key(plane, tmp_path, monkeypatch):
    """kubeadm requires ca.key in both cases."""
    plane.fill()
    (plane.pki / "ca.key").unlink()
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("from-input\n"))
    given = (("--token", "visible"), ("--token-file", tmp_path / "token"), ("--token", "-"))
    found = [yaml.load(user(plane, *argv).out)["users"] for argv in given]
    assert found == [[{"name": "ada", "user": {"token": token}}] for token in ("visible", "from-file", "from-input")]
    assert user(plane).code == 1


def test_a_user_name_is_required(plane):
    run = plane.run("kubeconfig", "user")
    assert (run.code, run.out) == (1, "")
    assert "--client-name" in run.err


def test_the_group_alone_shows_its_help_and_succeeds(plane):
    run = plane.run("kubeconfig")
    assert (run.code, run.err) == (0, "")
    assert "kubeconfig" in run.out


def test_an_unknown_subcommand_is_refused(plane):
    """kubeadm prints the help and succeeds."""
    run = plane.run("kubeconfig", "nonsense")
    assert (run.code > 0, run.out) == (True, "")
    assert "nonsense" in run.err


def where_we_are() -> dict[str, str]:
    import kubewright

    return {**os.environ, "PYTHONPATH": str(Path(kubewright.__file__).parents[1])}


def test_a_certificate_key_has_64_digits_and_is_cheap(plane):
    run = plane.run("certs", "certificate-key")
    assert (len(run.out), set(run.out) <= set("0123456789abcdef\n")) == (65, True)
    source = (
        "import sys; sys.argv = ['kubewright', 'certs', 'certificate-key']; from kubewright.cli.main import main; main();"
        " print(sorted({'cryptography', 'msgspec', 'dataclasses', 'json'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", source], capture_output=True, text=True, check=True, env=where_we_are())
    assert done.stdout.splitlines()[1:] == ["[]"]
