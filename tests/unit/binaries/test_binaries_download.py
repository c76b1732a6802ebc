"""Downloads from a local HTTPS host: what is used, refused and resumed, and which host provides checksums."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import binaries_programs as programs
import pytest
from binaries_releases import ETCD, ETCD_PATH, KUBERNETES_PATH, Behaviour, Releases, archive, proxy, releases, sha256

from kubewright import binaries
from kubewright.base.clock import FakeClock
from kubewright.base.errors import BinariesError, DiskFull
from kubewright.base.events import Progress, RecordingReporter
from kubewright.binaries import BinarySources, download, fetching
from kubewright.http import tls

SCHEDULER = f"{KUBERNETES_PATH}kube-scheduler"
BODY = programs.program("kube-scheduler")


@pytest.fixture
def host() -> Iterator[Releases]:
    with releases() as host:
        yield host


def sources(tmp_path: Path, **changes: object) -> BinarySources:
    return BinarySources(**{"cache": tmp_path / "cache", "allow_build": False, **changes})  # type: ignore[arg-type]


def fetch(host: Releases, tmp_path: Path, *names: str, **changes: object) -> dict[str, binaries.Binary]:
    reporter = changes.pop("reporter", None)
    return binaries.ensure(
        names or ("kube-scheduler",),
        version="v1.36.3",
        sources=sources(tmp_path, **changes),
        fetcher=host.fetcher(),
        clock=FakeClock(),
        reporter=reporter,  # type: ignore[arg-type]
    )


def refusal(host: Releases, tmp_path: Path, *names: str, **changes: object) -> BinariesError:
    with pytest.raises(BinariesError) as caught:
        fetch(host, tmp_path, *names, **changes)
    assert not list((tmp_path / "cache").glob("v*/*/*"))
    assert not list((tmp_path / "cache").glob("work-*"))
    return caught.value


def test_programs_are_downloaded_checked_and_kept(host, tmp_path):
    host.release("etcd", "kube-scheduler")
    reporter = RecordingReporter()
    found = fetch(host, tmp_path, "etcd", "kube-scheduler", reporter=reporter)
    assert [binary.path.read_bytes() for binary in found.values()] == [programs.program("etcd"), BODY]
    assert found["kube-scheduler"].sha256 == sha256(BODY)
    assert found["kube-scheduler"].source == "download https://dl.k8s.io" + SCHEDULER.removeprefix("/dl.k8s.io")
    assert found["etcd"].version == "v3.6.8"
    assert sorted(host.paths()) == sorted([f"{ETCD_PATH}SHA256SUMS", f"{ETCD_PATH}{ETCD}.tar.gz", SCHEDULER, f"{SCHEDULER}.sha256"])
    assert {event.task.split()[1] for event in reporter.events if isinstance(event, Progress)} == {"etcd", "kube-scheduler"}
    assert not list((tmp_path / "cache" / "partial").iterdir())


def test_a_second_call_sends_no_request(host, tmp_path):
    host.release("kube-scheduler")
    first = fetch(host, tmp_path)
    count = len(host.requests)
    assert fetch(host, tmp_path) == first
    assert len(host.requests) == count == 2


def test_a_file_with_the_wrong_digest_is_refused(host, tmp_path):
    host.release("kube-scheduler")
    host.files[SCHEDULER].body = BODY + b"more"
    error = refusal(host, tmp_path)
    assert f"its SHA-256 is {sha256(BODY + b'more')}, expected {sha256(BODY)}" in error.detail
    assert not list((tmp_path / "cache" / "partial").iterdir())


def test_a_missing_file_is_reported(host, tmp_path):
    error = refusal(host, tmp_path)
    assert "https://dl.k8s.io/release/v1.36.3/bin/linux/" in error.detail
    assert "answered 404: the file does not exist" in error.detail
    assert "(KUBEWRIGHT_BINARIES_DIR)" in error.remedy


def test_a_redirect_is_followed(host, tmp_path):
    host.release("kube-scheduler")
    host.files["/elsewhere"] = host.files[SCHEDULER]
    host.files[SCHEDULER] = Behaviour(status=302, location="/elsewhere")
    assert fetch(host, tmp_path)["kube-scheduler"].sha256 == sha256(BODY)


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/plain", KUBERNETES_PATH + "kube-scheduler"])
def test_a_redirect_without_tls_or_without_an_end_is_refused(host, tmp_path, location):
    host.release("kube-scheduler")
    host.files[SCHEDULER] = Behaviour(status=302, location=location)
    assert "redirect" in refusal(host, tmp_path).detail
    assert len(host.requests) <= 8


@pytest.mark.parametrize("fault", [{"cut": 40}, {"stall": 40}])
def test_an_interrupted_download_is_resumed_where_it_stopped(host, tmp_path, fault):
    host.release("kube-scheduler")
    host.files[SCHEDULER] = Behaviour(body=BODY, times=1, **fault)
    assert fetch(host, tmp_path)["kube-scheduler"].sha256 == sha256(BODY)
    assert [asked for path, asked in host.requests if path == SCHEDULER] == ["", "bytes=40-"]


def test_the_next_run_resumes_the_download_of_a_killed_one(host, tmp_path):
    host.release("kube-scheduler")
    partial = tmp_path / "cache" / "partial"
    partial.mkdir(parents=True)
    (partial / f"{sha256(BODY)}.part").write_bytes(BODY[:50])
    fetch(host, tmp_path)
    assert [asked for path, asked in host.requests if path == SCHEDULER] == ["bytes=50-"]


@pytest.mark.parametrize("what", ["link", "hard link", "theirs", "writable"])
def test_a_partial_file_of_another_user_is_never_written_to(host, tmp_path, what):
    host.release("kube-scheduler")
    part = tmp_path / "cache" / "partial" / f"{sha256(BODY)}.part"
    part.parent.mkdir(parents=True, mode=0o755)
    precious = tmp_path / "precious"
    precious.write_bytes(BODY[:10])
    match what:
        case "link":
            part.symlink_to(precious)
        case "hard link":
            part.hardlink_to(precious)
        case "theirs" if os.geteuid() == 0:
            part.write_bytes(BODY[:10])
            os.chown(part, 12345, 12345)
        case _:
            part.write_bytes(BODY[:10])
            part.chmod(0o666)
    found = fetch(host, tmp_path)
    assert found["kube-scheduler"].path.read_bytes() == BODY
    assert precious.read_bytes() == BODY[:10]
    assert not part.exists()
    assert [asked for path, asked in host.requests if path == SCHEDULER] == [""]


@pytest.mark.parametrize("left", [b"wrong", BODY + b"too long", b"x" * len(BODY)], ids=["shorter", "longer", "as long"])
def test_a_wrong_partial_file_of_an_earlier_run_is_discarded(host, tmp_path, left):
    host.release("kube-scheduler")
    partial = tmp_path / "cache" / "partial"
    partial.mkdir(parents=True)
    (partial / f"{sha256(BODY)}.part").write_bytes(left)
    assert fetch(host, tmp_path)["kube-scheduler"].sha256 == sha256(BODY)


def test_a_host_that_cannot_resume_sends_everything_again(host, tmp_path):
    host.release("kube-scheduler")
    host.files[SCHEDULER] = Behaviour(body=BODY, cut=40, times=1, ranges=False)
    assert fetch(host, tmp_path)["kube-scheduler"].sha256 == sha256(BODY)
    assert len([path for path in host.paths() if path == SCHEDULER]) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [({"cut": 0}, "cut short"), ({"stall": 0}, "timed out"), ({"status": 503}, "answered 503"), ({"status": 403}, "access is refused")],
)
def test_a_host_that_makes_no_progress_is_given_up(host, tmp_path, fault, words):
    host.release("kube-scheduler")
    host.files[SCHEDULER] = Behaviour(body=BODY, **fault)
    assert words in refusal(host, tmp_path).detail
    assert len([path for path in host.paths() if path == SCHEDULER]) <= download.RETRIES


def test_a_mirror_is_tried_first_but_never_for_the_checksum(host, tmp_path):
    host.release("kube-scheduler")
    host.release("kube-scheduler", prefix="/mirror", checksums=True)
    fetch(host, tmp_path, mirrors=(host.at("/mirror"),))
    assert host.paths() == [f"{SCHEDULER}.sha256", f"/mirror{SCHEDULER}"]


def test_a_mirror_with_other_bytes_is_skipped(host, tmp_path):
    host.release("kube-scheduler")
    host.files[f"/mirror{SCHEDULER}"] = Behaviour(body=programs.elf_program("Kubernetes v1.36.3 with a back door"))
    host.files[f"/mirror{SCHEDULER}.sha256"] = Behaviour(body=sha256(host.files[f"/mirror{SCHEDULER}"].body).encode())
    assert fetch(host, tmp_path, mirrors=(host.at("/mirror"),))["kube-scheduler"].sha256 == sha256(BODY)
    assert f"/mirror{SCHEDULER}.sha256" not in host.paths()
    assert host.paths()[-2:] == [f"/mirror{SCHEDULER}", SCHEDULER]


def test_another_mirror_continues_an_interrupted_download(host, tmp_path):
    host.release("kube-scheduler")
    host.files[f"/one{SCHEDULER}"] = Behaviour(body=BODY, cut=30, ranges=False)
    host.files[f"/two{SCHEDULER}"] = Behaviour(body=BODY)
    fetch(host, tmp_path, mirrors=(host.at("/one"), host.at("/two")))
    assert (f"/two{SCHEDULER}", "bytes=30-") in host.requests


def test_a_host_that_sends_wrong_bytes_in_pieces_is_given_up(host, tmp_path):
    host.release("kube-scheduler")
    host.files[SCHEDULER] = Behaviour(body=BODY[:30] + b"?" * 5, cut=30)
    assert "has the wrong content" in refusal(host, tmp_path).detail
    assert len(host.requests) <= 10


def test_a_pinned_digest_needs_no_checksum_file(host, tmp_path, monkeypatch):
    from kubewright.base.versions import RELEASES

    host.release("kube-scheduler", checksums=False)
    monkeypatch.setitem(RELEASES["1.36"].digests, f"kube-scheduler v1.36.3 linux/{programs.NATIVE}", sha256(BODY))
    fetch(host, tmp_path)
    assert host.paths() == [SCHEDULER]


@pytest.mark.parametrize("text", [b"", b"<html>sign in</html>", b"zz" * 32, f"{'0' * 64}  kube-other\n".encode()])
def test_an_invalid_checksum_file_is_refused(host, tmp_path, text):
    host.release("kube-scheduler")
    host.files[f"{SCHEDULER}.sha256"].body = text
    assert "contains no SHA-256 of kube-scheduler" in refusal(host, tmp_path).detail
    assert SCHEDULER not in host.paths()


def test_an_oversized_checksum_file_is_not_read_to_its_end(host, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "CHECKSUM_LARGEST", 1000)
    host.release("kube-scheduler")
    host.files[f"{SCHEDULER}.sha256"].body = b"0" * 100_000
    assert "larger than allowed" in refusal(host, tmp_path).detail


def test_an_oversized_program_is_not_read_to_its_end(host, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", 100)
    host.release("kube-scheduler")
    assert "larger than allowed" in refusal(host, tmp_path).detail


def test_one_failure_of_the_primary_host_is_enough(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with releases() as host:
            fetcher = host.fetcher()
            fetcher._port = closed.getsockname()[1]  # nothing listens there
            with pytest.raises(BinariesError) as caught:
                binaries.ensure(version="v1.36.3", sources=sources(tmp_path), fetcher=fetcher, clock=FakeClock())
    assert len(fetcher.urls) == 1
    assert caught.value.detail.count("connection refused") == 1
    assert all(name in str(caught.value) for name in binaries.DEFAULT)


def test_a_hanging_resolver_does_not_block_the_run(host, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "FIRST_ANSWER_LIMIT", 0.1)

    class Silent:
        def get(self, url, /, *, start=0, most=None, within=None):
            host.leaving.wait(10)
            raise OSError

    with pytest.raises(BinariesError, match="no answer within 0 s"):
        binaries.ensure(("kubectl",), version="v1.36.3", sources=sources(tmp_path), fetcher=Silent(), clock=FakeClock())
    host.leaving.set()


def test_a_trickle_counts_as_stalled(tmp_path):
    clock = FakeClock()

    class Drip:
        status, headers = 200, {"content-length": "1000000"}

        def chunks(self):
            for _ in range(1000):
                clock.advance(10)
                yield b"x"

        def read(self):
            return sha256(BODY).encode()

    class Fetcher:
        count = 0

        def get(self, url, /, *, start=0, most=None, within=None):
            import contextlib

            Fetcher.count += 1
            return contextlib.nullcontext(Drip())

    with pytest.raises(BinariesError, match="sends less than 1024 bytes a second"):
        binaries.ensure(("kube-scheduler",), version="v1.36.3", sources=sources(tmp_path), fetcher=Fetcher(), clock=clock)
    assert Fetcher.count <= 6


def test_a_program_for_another_machine_is_not_installed(host, tmp_path):
    body = programs.program("kube-scheduler", architecture=programs.FOREIGN)
    host.files[SCHEDULER] = Behaviour(body=body)
    host.files[f"{SCHEDULER}.sha256"] = Behaviour(body=sha256(body).encode())
    assert f"is a program for {programs.FOREIGN}; {programs.NATIVE} is needed" in refusal(host, tmp_path).detail


def test_an_archive_without_the_program_is_refused(host, tmp_path):
    body = archive({f"{ETCD}/README.md": b"hello", "../etcd": b"out of the tree"})
    host.files[f"{ETCD_PATH}{ETCD}.tar.gz"] = Behaviour(body=body)
    host.files[f"{ETCD_PATH}SHA256SUMS"] = Behaviour(body=f"{sha256(body)}  {ETCD}.tar.gz\n".encode())
    assert "does not contain etcd" in refusal(host, tmp_path, "etcd").detail


@pytest.mark.parametrize(
    "body",
    [b"no archive at all", archive({"x": b"y" * 5000})[:-20], archive({"x": bytes(5000)})[:30] + bytes(60)],
    ids=["another file", "cut short", "damaged"],
)
def test_an_unreadable_archive_is_refused(host, tmp_path, body):
    host.files[f"{ETCD_PATH}{ETCD}.tar.gz"] = Behaviour(body=body)
    host.files[f"{ETCD_PATH}SHA256SUMS"] = Behaviour(body=f"{sha256(body)}  {ETCD}.tar.gz\n".encode())
    assert "is not a readable archive" in refusal(host, tmp_path, "etcd").detail


def test_unfinished_downloads_are_kept_for_a_week(host, tmp_path):
    host.release("kube-scheduler")
    partial = tmp_path / "cache" / "partial"
    partial.mkdir(parents=True)
    now = FakeClock().now().timestamp()
    for name, age in (("young", 6 * 86400), ("old", 8 * 86400)):
        (partial / f"{name}.part").write_bytes(b"")
        os.utime(partial / f"{name}.part", (now - age, now - age))
    fetch(host, tmp_path)
    assert [path.name for path in partial.iterdir()] == ["young.part"]


@pytest.mark.parametrize("environment", [{"HTTPS_PROXY": "socks5://proxy.example:1080"}, {"HTTPS_PROXY": "http://[::1"}])
def test_a_proxy_that_only_go_supports_leaves_the_other_sources(tmp_path, environment):
    with pytest.raises(BinariesError, match="HTTPS_PROXY is not the URL of an http or https proxy") as caught:
        binaries.ensure(("kubectl",), version="v1.36.3", sources=sources(tmp_path), environment=environment)
    assert "build: not allowed" in caught.value.detail


def test_missing_ca_certificates_of_the_machine_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "SYSTEM_BUNDLES", ("/nonexistent",))
    with pytest.raises(BinariesError, match="no bundle of trusted CA certificates") as caught:
        binaries.ensure(("kubectl",), version="v1.36.3", sources=sources(tmp_path), environment={})
    assert "install the package ca-certificates" in caught.value.remedy


def test_a_full_disk_ends_everything_and_leaves_nothing(host, tmp_path, monkeypatch):
    host.release("kube-scheduler")
    from kubewright.binaries import files

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(DiskFull, match="there is not enough space"):
        fetch(host, tmp_path)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != "lock"] == []


def test_leftovers_of_a_killed_run_are_removed_however_deep_they_are(tmp_path):
    from kubewright.binaries import files

    with files.work_directory(tmp_path) as work:
        left = tmp_path / f"{files.WORK_PREFIX}left"
        for top in (work, left):
            top.mkdir(exist_ok=True)
            for depth in range(1, sys.getrecursionlimit() + 50):
                (top / ("d/" * depth)).mkdir()
    assert files.remove_stale(tmp_path) == [left]
    assert list(tmp_path.iterdir()) == []


def test_an_untrusted_certificate_is_refused(tmp_path):
    with releases() as host, releases() as other:
        fetcher = other.fetcher()
        fetcher._port = host.port
        with pytest.raises(BinariesError, match="certificate is not trusted"):
            binaries.ensure(("kubectl",), version="v1.36.3", sources=sources(tmp_path), fetcher=fetcher, clock=FakeClock())
    assert host.requests == []


@pytest.mark.parametrize("how", ["setting", "environment"])
def test_everything_goes_through_the_proxy(tmp_path, monkeypatch, how):
    with releases(names=("dl.k8s.io",), by_host=True) as host, proxy(host.port) as through:
        host.release("kube-scheduler")
        monkeypatch.setattr(tls, "host_context", lambda: tls.client_context(host.ca_pem))
        address = f"http://user:secret@127.0.0.1:{through.port}"
        chosen = sources(tmp_path, proxy=address if how == "setting" else None)
        environment = {} if how == "setting" else {"HTTPS_PROXY": address}
        found = binaries.ensure(("kube-scheduler",), version="v1.36.3", sources=chosen, environment=environment)
    assert found["kube-scheduler"].sha256 == sha256(BODY)
    assert set(through.connects) == {"dl.k8s.io:443"}
    assert through.authorizations[0].startswith("Basic ")


def test_a_refusing_proxy_is_reported_without_its_password(tmp_path, monkeypatch):
    with releases(names=("dl.k8s.io",), by_host=True) as host, proxy(host.port) as through:
        through.refuse = "407 Proxy Authentication Required"
        monkeypatch.setattr(tls, "host_context", lambda: tls.client_context(host.ca_pem))
        chosen = sources(tmp_path, proxy=f"http://user:secret@127.0.0.1:{through.port}")
        with pytest.raises(BinariesError, match="the proxy failed") as caught:
            binaries.ensure(version="v1.36.3", sources=chosen, environment={})
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(chosen)
    assert len(through.connects) == 1


def test_an_empty_proxy_setting_means_none(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "host_context", lambda: tls.client_context(None, verify=False))
    web = fetching.web(sources(tmp_path, proxy=""), {"HTTPS_PROXY": "http://127.0.0.1:1"})
    assert web._proxies.for_url("https://dl.k8s.io/") is None


def test_a_file_that_is_no_program_is_downloaded_with_its_digest(host, tmp_path):
    (tmp_path / "cache").mkdir()
    host.files["/files.example/machine.tar.zst"] = Behaviour(body=b"tree", cut=2, times=1)

    def taken(digest: str) -> Path:
        return fetching.download(
            "https://files.example/machine.tar.zst",
            sha256=digest,
            label="machine tree",
            sources=sources(tmp_path),
            environment={},
            reporter=RecordingReporter(),
            clock=FakeClock(),
            fetcher=host.fetcher(),
        )

    assert taken(sha256(b"tree")).read_bytes() == b"tree"
    assert [asked for _, asked in host.requests] == ["", "bytes=2-"]
    with pytest.raises(BinariesError, match="has the wrong content"):
        taken(sha256(b"other"))
