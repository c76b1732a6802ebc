"""`certs check-expiration`: kubeadm's tables and objects, workers, and the threshold for monitoring."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certs_kit import CONFIG, EXTERNAL_ETCD, ControlPlane
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base import yaml
from kubewright.base.errors import CheckFailed
from kubewright.cli.handlers import certs
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.printers import output
from kubewright.lifecycle.certs.expiration import Expiration, Expiry
from kubewright.lifecycle.steps import renewal
from kubewright.pki import certificates

REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "structured-output"
ROWS = [
    "admin.conf", "apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "controller-manager.conf", "etcd-healthcheck-client",
    "etcd-peer", "etcd-server", "front-proxy-client", "scheduler.conf", "super-admin.conf",
]  # fmt: skip
AUTHORITIES = ["ca", "etcd-ca", "front-proxy-ca"]


@pytest.fixture
def plane(tmp_path, capsys, monkeypatch):
    plane = ControlPlane(tmp_path / "machine", capsys)
    monkeypatch.setattr(cli_machine, "host", lambda *_, **__: plane.host)
    monkeypatch.setenv("HOME", str(tmp_path))
    return plane


def recorded():
    """The output of kubeadm v1.36.2, as a value of ours."""
    document = json.loads((REFERENCE / "certs-check-expiration.json").read_text())

    def rows_of(name):
        return [
            Expiry(name=row["name"], expires=datetime.fromisoformat(row["expirationDate"]), authority=row.get("caName", ""))
            for row in document[name]
        ]

    first = document["certificates"][0]
    now = datetime.fromisoformat(first["expirationDate"]) - timedelta(seconds=first["residualTime"])
    return Expiration(certificates=rows_of("certificates"), authorities=rows_of("certificateAuthorities"), now=now)


def test_the_tables_equal_those_of_kubeadm_byte_for_byte():
    assert output.kubeadm_table(certs._table(recorded())) == (REFERENCE / "certs-check-expiration.txt").read_text()


def test_the_object_equals_that_of_kubeadm_byte_for_byte():
    text = (REFERENCE / "certs-check-expiration.json").read_text()
    found = recorded().as_map()
    assert json.dumps(found, indent=4).split("\n") == text.rstrip("\n").split("\n")


def test_every_row_of_a_control_plane_is_shown(plane):
    run = plane.fill().check("-o", "json")
    assert run.code == 0
    assert [row["name"] for row in run.json["certificates"]] == ROWS == [row.name for row in renewal.everything() if not row.optional]
    assert [row["name"] for row in run.json["certificateAuthorities"]] == AUTHORITIES
    assert {row["externallyManaged"] for row in run.json["certificates"]} == {False}
    assert yaml.load(plane.check("-o", "yaml").out)["kind"] == "CertificateExpirationInfo"


def test_missing_files_are_rows_including_cas(plane):
    """kubeadm fails without the CA's certificate of a certificate that is there."""
    plane.fill()
    for name in ("apiserver.crt", "etcd/ca.crt", "etcd/ca.key"):
        (plane.pki / name).unlink()
    run = plane.check()
    assert run.code == 0
    lines = [line.rstrip() for line in run.out.splitlines() if "MISSING" in line]
    assert lines == ["!MISSING! apiserver", "!MISSING! etcd-ca"]
    found = plane.check("-o", "json").json["certificates"][1]
    assert found == {"name": "apiserver", "expirationDate": None, "residualTime": 0, "externallyManaged": False, "missing": True}


def test_certificates_of_an_external_ca_are_managed_externally(plane):
    plane.fill()
    (plane.pki / "ca.key").unlink()
    found = plane.check("-o", "json").json
    external = [row["name"] for key in ("certificates", "certificateAuthorities") for row in found[key] if row["externallyManaged"]]
    assert external == [
        "admin.conf", "apiserver", "apiserver-kubelet-client", "controller-manager.conf", "scheduler.conf", "super-admin.conf", "ca",
    ]  # fmt: skip


def test_rows_of_an_external_etcd_are_left_out(plane):
    plane.fill()
    plane.config.write_text(CONFIG + EXTERNAL_ETCD)
    found = plane.check("-o", "json").json
    assert [row["name"] for row in found["certificates"]] == [name for name in ROWS if "etcd" not in name]
    assert [row["name"] for row in found["certificateAuthorities"]] == ["ca", "front-proxy-ca"]


def worker(plane, *, embedded: bool):
    plane.fill()
    kubelet = yaml.load((plane.kubernetes / "kubelet.conf").read_bytes())
    for path in [*plane.kubernetes.rglob("*")]:
        if path.is_file() and (path.name not in {"ca.crt", "kubelet.conf"} or path.parent.name == "etcd"):
            path.unlink()
    if not embedded:
        import base64

        user = kubelet["users"][0]["user"]
        pem = certificates.join(base64.b64decode(user["client-certificate-data"]), base64.b64decode(user["client-key-data"]))
        place = Path(plane.layout.kubelet_client_current)
        place.parent.mkdir(parents=True)
        place.write_bytes(pem)
        kubelet["users"][0]["user"] = {"client-certificate": str(place), "client-key": str(place)}
        (plane.kubernetes / "kubelet.conf").write_text(yaml.dump(kubelet))


@pytest.mark.parametrize("embedded", [True, False])
def test_a_worker_shows_its_ca_and_the_certificate_of_its_kubelet(plane, embedded):
    """kubeadm fails here: with a CA that has no key it requires the certificates of a control plane."""
    worker(plane, embedded=embedded)
    run = plane.check("-o", "json")
    assert run.code == 0
    assert [(row["name"], row["caName"], row["missing"]) for row in run.json["certificates"]] == [("kubelet.conf", "ca", False)]
    assert [row["name"] for row in run.json["certificateAuthorities"]] == ["ca"]
    assert 31_000_000 < run.json["certificates"][0]["residualTime"] < 31_536_000


def test_on_a_machine_without_certificates_all_are_missing_as_in_kubeadm(plane):
    run = plane.check()
    assert run.code == 0
    missing = [line.split()[1] for line in run.out.splitlines() if line.startswith("!MISSING!")]
    assert (len(missing), missing[:2], missing[-1]) == (14, ["admin.conf", "apiserver"], "front-proxy-ca")
    rows = plane.check("-o", "json").json
    assert {row["missing"] for row in (*rows["certificates"], *rows["certificateAuthorities"])} == {True}


@pytest.mark.parametrize(
    "kept", [["pki/ca.crt", "pki/ca.key"], ["pki/ca.crt", "pki/ca.key", "kubelet.conf"], ["pki/etcd/ca.crt", "pki/etcd/ca.key"]]
)
def test_a_machine_with_the_key_of_a_ca_is_no_worker_and_its_other_certificates_are_missing_as_in_kubeadm(plane, kept):
    plane.fill()
    for path in [*plane.kubernetes.rglob("*")]:
        if path.is_file() and str(path.relative_to(plane.kubernetes)) not in kept:
            path.unlink()
    run = plane.check()
    assert (run.code, run.out.count("!MISSING!")) == (0, 13)


@pytest.mark.parametrize("name", ["pki/apiserver.crt", "admin.conf", "pki/ca.crt"])
def test_an_unreadable_certificate_file_is_reported(plane, name):
    plane.fill()
    (plane.kubernetes / name).write_text("nonsense")
    run = plane.check()
    assert (run.code, run.out) == (1, "")
    assert name.rpartition("/")[2] in run.err


@pytest.mark.parametrize(("limit", "code", "ending"), [("30d", 0, 0), ("366d", 4, 11), ("365d1h", 4, 11), ("5000d", 4, 14), ("48h", 0, 0)])
def test_the_threshold_decides_the_exit_code(plane, limit, code, ending):
    run = plane.fill().check("--fail-within", limit)
    assert run.code == code
    assert run.out.startswith("CERTIFICATE ")
    assert run.err.count("expires in") == ending


def test_the_threshold_is_reported_in_addition_to_a_structured_result(plane):
    run = plane.fill().check("--fail-within", "366d", "-o", "json")
    assert run.code == 4
    assert len(run.json["certificates"]) == 11
    assert run.err.startswith("error: 11 certificates expire within 366d\n")


@pytest.mark.parametrize("limit", ["d", "30", "x", "1w", "30dd", "-"])
def test_an_invalid_threshold_is_refused(plane, limit):
    run = plane.fill().check(f"--fail-within={limit}")
    assert (run.code, run.out) == (1, "")
    assert "--fail-within" in run.err


def test_an_expired_certificate_fails_and_a_missing_one_does_not():
    now = datetime(2026, 1, 2, tzinfo=UTC)
    gone = Expiration(certificates=[Expiry(name="a")], authorities=[], now=now)
    gone.require(timedelta(days=30), text="30d")
    past = Expiration(certificates=[Expiry(name="a", expires=now - timedelta(hours=5))], authorities=[], now=now)
    with pytest.raises(CheckFailed, match="1 certificate expires within 0h") as caught:
        past.require(timedelta(0), text="0h")
    assert caught.value.detail == "a: expired 5 h ago"


# Observed with kubeadm v1.36.3; the limits are those of apimachinery's HumanDuration.
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"), (-1.5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (3480, "58m"), (10799, "179m"),
        (10800, "3h"), (18180, "5h3m"), (28800, "8h"), (86399, "23h"), (172799, "47h"), (172800, "2d"), (176400, "2d1h"), (691199, "7d23h"),
        (691200, "8d"), (31449600, "364d"), (63071999, "729d"), (63072000, "2y"), (68396400, "2y61d"), (252287999, "7y364d"),
        (252288000, "8y"), (315359999, "9y"),
    ],
)  # fmt: skip
def test_durations_are_formatted_as_by_kubernetes(seconds, text):
    assert output.human_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (5399, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (365 * 86400 - 1, "364d"),
        (365 * 86400, "1y"),
        (3 * 365 * 86400, "3y"),
    ],
)
def test_durations_of_tokens_are_formatted_briefly(seconds, text):
    assert output.short_duration(seconds) == text


@given(st.lists(st.lists(st.text(alphabet="ab ", max_size=14), max_size=4), max_size=6))
def test_columns_keep_every_cell_and_line(lines):
    text = output.kubeadm_table(lines)
    assert text.count("\n") == len(lines)
    for line, cells in zip(text.split("\n"), lines, strict=False):
        position = 0
        for cell in cells:
            position = line.index(cell, position) + len(cell)


@given(st.lists(st.lists(st.text(alphabet="ab", max_size=14), min_size=3, max_size=3), min_size=1, max_size=6))
def test_all_columns_except_the_last_are_aligned(lines):
    found = output.kubeadm_table(lines).split("\n")
    widths = [max(10, *(len(line[index]) + 3 for line in lines)) for index in range(2)]
    for line, cells in zip(found, lines, strict=False):
        assert line == cells[0].ljust(widths[0]) + cells[1].ljust(widths[1]) + cells[2]
