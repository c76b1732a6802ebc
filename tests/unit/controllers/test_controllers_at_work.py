"""The controllers with a cluster in memory: reads, writes and retries, one process with all of them. Time is virtual."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest
from controllers_cluster import CA, CA_KEY, GARBAGE, Cluster, cluster_info, token
from controllers_kit import NOW, authority_files, condition, csr, request
from cryptography import x509

from kubewright.base import unexpected
from kubewright.base.clock import rfc3339
from kubewright.base.errors import CertificateError, Conflict
from kubewright.controllers import options
from kubewright.controllers.certificates import AT_A_TIME, WORKERS
from kubewright.kube.answers import EventType
from kubewright.kube.daemons.electing import Election, LeadershipLost
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, CONFIG_MAP, SECRET

pytestmark = pytest.mark.looptime
APPROVED = [condition("Approved")]


async def test_a_request_of_a_node_is_approved_and_signed_with_two_writes():
    async with Cluster(csr()).running() as cluster:
        made = x509.load_pem_x509_certificate(base64.b64decode(cluster.csr()["status"]["certificate"]))
        assert made.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
        assert cluster.kinds() == ["Approved"]
        assert cluster.writes() == 2
        assert len(cluster.api.made("create", "subjectaccessreviews")) == 1


async def test_many_requests_of_one_user_share_their_reviews():
    names = [f"csr-{number}" for number in range(64)]
    async with Cluster(*(csr(name=name) for name in names)).running() as cluster:
        assert [cluster.kinds(name) for name in names] == [["Approved"]] * 64
        assert cluster.writes() == 2 * 64
        assert len(cluster.api.made("create", "subjectaccessreviews")) <= 2 * 64 / WORKERS


async def test_a_later_request_is_processed_at_once():
    async with Cluster().running() as cluster:
        cluster.api.put(csr())
        await asyncio.sleep(0.05)
        assert cluster.csr()["status"]["certificate"]


async def test_without_permission_the_review_is_repeated_with_backoff():
    async with Cluster(csr(), allowed=()).running(3.5) as cluster:
        times = [round(call.at, 1) for call in cluster.api.made("create", "subjectaccessreviews")]
        assert times == [0.0, 0.2, 0.6, 1.4, 3.0]
        assert cluster.writes() == 0
        cluster.client.allowed = frozenset({"nodeclient"})
        await asyncio.sleep(4)
        assert cluster.kinds() == ["Approved"]


async def test_a_conflict_is_retried_with_the_current_object():
    cluster = Cluster(csr())
    cluster.api.fail("update", "certificatesigningrequests", times=1, error=Conflict("it changed", code=409))
    async with cluster.running():
        assert cluster.csr()["status"]["certificate"]
        assert cluster.writes() == 3


async def test_a_broken_rule_fails_the_request_once():
    wrong = request(subject=[("2.5.4.10", "system:nodes"), ("2.5.4.3", "node:a")])
    async with Cluster(csr(wrong, conditions=APPROVED)).running(10) as cluster:
        assert cluster.kinds() == ["Approved", "Failed"]
        failed = cluster.csr()["status"]["conditions"][1]
        assert (failed["reason"], failed["message"]) == (
            "SignerValidationFailure",
            "subject common name does not begin with system:node:",
        )
        assert cluster.writes() == 1


@pytest.mark.parametrize("conditions", [[condition("Denied")], [condition("Approved"), condition("Failed")]])
async def test_denied_and_failed_requests_are_ignored(conditions):
    async with Cluster(csr(conditions=conditions)).running(10) as cluster:
        assert cluster.writes() == 0


async def test_an_expired_ca_signs_nothing_and_a_new_one_is_used():
    expired = dict(zip((CA, CA_KEY), authority_files(ends=NOW - timedelta(seconds=1)), strict=True))
    async with Cluster(csr(conditions=APPROVED), files=expired).running(3) as cluster:
        assert cluster.writes() == 0
        cluster.files.update(zip((CA, CA_KEY), authority_files(), strict=True))
        await asyncio.sleep(5)
        assert cluster.csr()["status"]["certificate"]
        assert cluster.kinds() == ["Approved"]


async def test_two_certificates_in_the_file_stop_signing_until_there_is_one():
    async with Cluster().running() as cluster:
        whole = cluster.files[CA]
        cluster.files[CA] = whole + authority_files(name="other")[0]
        await asyncio.sleep(1.5)
        cluster.api.put(csr(conditions=APPROVED))
        await asyncio.sleep(3)
        assert cluster.writes() == 0
        cluster.files[CA] = whole
        await asyncio.sleep(5)
        assert cluster.csr()["status"]["certificate"]


@pytest.mark.parametrize("half", [b"", b"-----BEGIN CERTIFICATE-----\n", authority_files(name="other")[0]])
async def test_a_half_written_pair_keeps_the_old_one_in_use(half):
    async with Cluster().running() as cluster:
        cluster.files[CA] = half
        await asyncio.sleep(1.5)
        cluster.api.put(csr(conditions=APPROVED))
        await asyncio.sleep(1)
        made = x509.load_pem_x509_certificate(base64.b64decode(cluster.csr()["status"]["certificate"]))
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority_files()[0]))


@pytest.mark.parametrize("files", [{}, {CA: authority_files()[0]}, {CA: authority_files()[0], CA_KEY: b"no key"}])
async def test_an_unreadable_ca_at_the_start_ends_the_run(files):
    with pytest.raises(CertificateError):
        await Cluster(files=files).manager.run()


async def test_a_thousand_hostile_requests_of_one_user_do_not_delay_others():
    hostile = [csr(b"junk", name=f"junk-{number:04d}", conditions=APPROVED, username="noisy") for number in range(1000)]
    async with Cluster(*hostile, csr(name="good", username="system:bootstrap:abcdef")).running(0.2) as cluster:
        assert cluster.csr("good")["status"]["certificate"]


async def test_failing_requests_of_one_user_do_not_extend_the_backoff_of_others():
    """In kube-controller-manager, all requests share the bucket for retries: a conflict would wait behind all failures, a quarter of an hour."""
    hostile = [csr(b"junk", name=f"junk-{number:05d}", conditions=APPROVED, username="noisy") for number in range(10_000)]
    async with Cluster(*hostile).running(1) as cluster:
        cluster.api.fail("update", "certificatesigningrequests", times=2, error=Conflict("it changed", code=409))
        cluster.api.put(csr(name="good", conditions=APPROVED, username="system:bootstrap:abcdef"))
        await asyncio.sleep(1)
        assert cluster.csr("good")["status"]["certificate"]
        assert cluster.writes() == 3


async def test_the_cleaner_waits_for_its_cache_and_runs_every_hour():
    old = [condition("Denied", lastUpdateTime=rfc3339(NOW - timedelta(minutes=90)))]
    young = [condition("Denied", lastUpdateTime=rfc3339(NOW - timedelta(minutes=30)))]
    cluster = Cluster(csr(name="old", conditions=old), csr(name="young", conditions=young), wanted=options.selected(["csrcleaner"]))
    async with cluster.running():
        assert [call.name for call in cluster.api.made("delete", "certificatesigningrequests")] == ["old"]
        await asyncio.sleep(3600)
        assert [call.name for call in cluster.api.made("delete", "certificatesigningrequests")] == ["old", "young"]


async def test_the_cleaner_lets_others_work_while_it_reads_many_requests():
    many = (csr(name=f"csr-{number}") for number in range(10 * AT_A_TIME))
    async with Cluster(*many, wanted=options.selected(["csrcleaner"])).running() as cluster:
        cluster.api.put(csr(name="old", conditions=[condition("Denied", lastUpdateTime="2020-01-01T00:00:00Z")]))
        await asyncio.sleep(1)
        cleaning, turns = asyncio.ensure_future(cluster.manager.controllers[0].clean()), 0
        while not cleaning.done():
            turns += 1
            await asyncio.sleep(0)
        assert cleaning.result() == 1
        assert turns >= 10


async def test_a_failing_deletion_does_not_prevent_the_others():
    old = [condition("Denied", lastUpdateTime="2020-01-01T00:00:00Z")]
    cluster = Cluster(*(csr(name=name, conditions=old) for name in "abc"), wanted=options.selected(["csrcleaner"]))
    cluster.api.fail("delete", "certificatesigningrequests", times=1)
    async with cluster.running():
        assert len(cluster.api.made("delete", "certificatesigningrequests")) == 3
        assert cluster.csr("a")


async def test_cluster_info_gets_and_loses_signatures():
    async with Cluster(cluster_info(other="stays"), token()).running() as cluster:

        def keys():
            return sorted(cluster.api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"])

        assert keys() == ["jws-kubeconfig-abcdef", "kubeconfig", "other"]
        cluster.api.put(token("123456"))
        await asyncio.sleep(1)
        assert keys() == ["jws-kubeconfig-123456", "jws-kubeconfig-abcdef", "kubeconfig", "other"]
        cluster.api.remove(SECRET, "bootstrap-token-abcdef", "kube-system")
        await asyncio.sleep(1)
        assert keys() == ["jws-kubeconfig-123456", "kubeconfig", "other"]
        assert cluster.writes("configmaps") == 3


async def test_a_burst_of_tokens_is_signed_in_few_passes():
    async with Cluster(cluster_info()).running() as cluster:
        for number in range(100):
            cluster.api.put(token(f"tok{number:03d}"))
        await asyncio.sleep(1)
        assert len(cluster.api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]) == 101
        assert cluster.writes("configmaps") <= 3


async def test_a_conflict_over_cluster_info_is_tried_again():
    cluster = Cluster(cluster_info(), token())
    cluster.api.fail("update", "configmaps", times=1, error=Conflict("it changed", code=409))
    async with cluster.running():
        assert "jws-kubeconfig-abcdef" in cluster.api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]


async def test_an_expired_token_is_deleted_with_its_signature():
    soon = token(expiration=rfc3339(NOW + timedelta(seconds=10)))
    async with Cluster(cluster_info(), soon, token("123456"), token("garbag", **GARBAGE)).running(5) as cluster:

        def left():
            return sorted(name for kind, _, name in cluster.api.objects if kind == "secrets")

        assert left() == ["bootstrap-token-123456", "bootstrap-token-abcdef"]
        await asyncio.sleep(6)
        assert left() == ["bootstrap-token-123456"]
        data = cluster.api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]
        assert sorted(data) == ["jws-kubeconfig-123456", "kubeconfig"]
        assert [call.body["uid"] for call in cluster.api.made("delete", "secrets")] == ["uid-garbag", "uid-abcdef"]


async def test_a_failed_deletion_of_a_token_is_retried():
    cluster = Cluster(token(**GARBAGE))
    cluster.api.fail("delete", "secrets", times=2)
    async with cluster.running():
        assert not [name for kind, _, name in cluster.api.objects if kind == "secrets"]
        assert len(cluster.api.made("delete", "secrets")) == 3


OLD_REQUEST = csr(name="old", conditions=[condition("Denied", lastUpdateTime="2020-01-01T00:00:00Z")])
PENDING_SINCE_2020 = csr(name="old", created="2020-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("seen", "then"),
    [
        (OLD_REQUEST, {"metadata": {**OLD_REQUEST["metadata"], "uid": "another"}}),
        (PENDING_SINCE_2020, {"status": {"conditions": [*APPROVED]}}),
        (token(**GARBAGE), {**token(), "metadata": {**token()["metadata"], "uid": "another"}}),
        (token(**GARBAGE), {"data": token(expiration=rfc3339(NOW + timedelta(hours=1)))["data"]}),
    ],
    ids=["another request of that name", "a request that was approved", "another token of that name", "a token that was prolonged"],
)
async def test_objects_that_changed_since_they_were_read_are_not_deleted(seen, then):
    """The change comes before the deletion, and its event after it."""
    cluster = Cluster(seen)

    def meanwhile(call):
        if call.verb == "delete" and not changed:
            changed.append(cluster.api.put({**seen, **then}))

    changed: list[dict] = []
    cluster.api.faults.append(meanwhile)
    async with cluster.running(10):
        assert len(changed) == 1
        [left] = [found for (kind, _, _), found in cluster.api.objects.items() if kind in {"certificatesigningrequests", "secrets"}]
        assert left["metadata"]["uid"] == changed[0]["metadata"]["uid"]
        assert sum(call.verb == "delete" for call in cluster.api.calls) == 1


async def test_a_candidate_watches_and_writes_nothing_until_it_leads():
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "controllers", "namespace": "kube-system"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "x"},
    }
    async with Cluster(csr(), lease, election=Election(name="controllers")).running(10) as cluster:
        assert (cluster.manager.synced, cluster.manager.leads, cluster.writes()) == (True, False, 0)
        await asyncio.sleep(10)
        assert cluster.manager.leads
        assert cluster.csr()["status"]["certificate"]
        assert len(cluster.api.made("list", "certificatesigningrequests")) == 1


async def test_disabled_controllers_do_nothing():
    async with Cluster(csr(), wanted=options.selected(["csrsigning"])).running() as cluster:
        assert cluster.kinds() == []
        assert {call.what for call in cluster.api.calls if call.verb == "list"} == {"certificatesigningrequests"}
        assert len(cluster.manager.controllers) == 4


@pytest.mark.parametrize(
    ("wanted", "watched"),
    [
        ("*", [""]),
        ("csrapproving", ["spec.signerName=kubernetes.io/kube-apiserver-client-kubelet"]),
        (
            "csrapproving,csrsigning",
            [
                f"spec.signerName=kubernetes.io/{name}"
                for name in ("kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown")
            ],
        ),
    ],
)
async def test_without_the_cleaner_only_requests_for_enabled_signers_are_watched(wanted, watched):
    foreign = csr(name="foreign", signer="example.com/x", conditions=APPROVED)
    async with Cluster(csr(), foreign, wanted=options.selected(wanted.split(","))).running() as cluster:
        assert sorted(call.name for call in cluster.api.made("watch", "certificatesigningrequests")) == watched
        assert cluster.kinds() == ["Approved"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("*", {"csrapproving", "csrsigning", "csrcleaner"}),
        ("*,bootstrapsigner,tokencleaner", {"csrapproving", "csrsigning", "csrcleaner", "bootstrapsigner", "tokencleaner"}),
        ("*,-csrapproving,bootstrap-signer-controller", {"csrsigning", "csrcleaner", "bootstrapsigner"}),
        ("csrsigning", {"csrsigning"}),
        ("-csrsigning,csrsigning", set()),
        ("csrsigning,-csrsigning", {"csrsigning"}),
        ("-certificatesigningrequest-cleaner-controller,*", {"csrapproving", "csrsigning"}),
    ],
)
async def test_controllers_are_selected_by_name(words, expected):
    found = options.selected(words.split(","))
    assert {row.alias for row in options.CONTROLLERS if row.name in found} == expected


async def test_a_leader_that_loses_its_lease_raises_a_single_error():
    cluster = Cluster(csr(), election=Election(name="controllers"))
    task = asyncio.create_task(cluster.manager.run())
    await asyncio.sleep(1)
    cluster.api.fail("get", "leases")
    await asyncio.sleep(20)
    assert isinstance(task.exception(), LeadershipLost)


KINDS = (
    ("list", "certificatesigningrequests"),
    ("watch", "certificatesigningrequests"),
    ("update", "certificatesigningrequests"),
    ("create", "subjectaccessreviews"),
    ("create", "events"),
    ("list", "secrets"),
    ("watch", "secrets"),
    ("update", "configmaps"),
    ("get", "leases"),
    ("create", "leases"),
    ("update", "leases"),
)


@pytest.mark.parametrize(("verb", "what"), KINDS)
async def test_an_unexpected_error_in_any_request_is_logged_counted_and_retried(verb: str, what: str) -> None:
    wrong = csr(request(subject=[("2.5.4.10", "system:nodes"), ("2.5.4.3", "node:a")]), name="wrong", conditions=APPROVED)  # worth an event
    cluster = Cluster(csr(), wrong, token(), cluster_info(), election=Election(name="controllers"))
    broken, before = [], sum(unexpected.counts().values())

    def fault(call):
        if (call.verb, call.what) == (verb, what) and not broken:
            broken.append(call)
            return RuntimeError("File descriptor 34 is used by transport")
        return None

    cluster.api.faults.append(fault)
    async with cluster.running(30):
        assert cluster.csr()["status"]["certificate"]
        assert cluster.kinds("wrong") == ["Approved", "Failed"]
        assert "jws-kubeconfig-abcdef" in cluster.api.get(CONFIG_MAP, "cluster-info", "kube-public")["data"]
        cluster.api.put(csr(name="later"))
        await asyncio.sleep(2)
        assert cluster.csr("later")["status"]["certificate"]
    assert len(broken) == 1
    assert sum(unexpected.counts().values()) - before == 1


async def test_unreadable_cas_and_malformed_objects_do_not_end_the_run() -> None:
    cluster, before = Cluster(csr()), sum(unexpected.counts().values())

    def read(path):
        raise RuntimeError("odd")

    async with cluster.running():
        for files in cluster.manager._authorities.values():
            files._read = read
        cluster.api._tell(CERTIFICATE_SIGNING_REQUEST, EventType.ADDED, {"kind": "CertificateSigningRequest", "spec": {"signerName": "a"}})
        await asyncio.sleep(10)
        cluster.api.put(csr(name="later"))
        await asyncio.sleep(10)
        assert cluster.csr("later")["status"]["certificate"]
    assert sum(unexpected.counts().values()) - before >= 2
