"""A control plane's files in a temporary directory, and the commands run on them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base import yaml
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SeededRandom
from kubewright.cli.main import main
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.real import RealHost
from kubewright.lifecycle.certs import configuration
from kubewright.lifecycle.steps.renewal import CertificateLocations
from kubewright.pki import certificates, ensure, kubeconfigs, specs
from kubewright.pki.ensure import IssuingSources

CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
encryptionAlgorithm: ECDSA-P256
"""
EXTERNAL_ETCD = "etcd: {external: {endpoints: ['https://10.0.0.1:2379'], caFile: /a, certFile: /b, keyFile: /c}}\n"
DETECTED = Detected(host_name="node1", default_ipv4="10.98.0.11")


class Machine1(RealHost):
    """This machine with the facts of another."""

    @property
    def facts(self):
        return Facts(detected=DETECTED, machine=MachineInfo())


@dataclass
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class ControlPlane:
    """The files that `init` creates, below a directory; `run` calls a command on them."""

    def __init__(self, root: Path, capsys) -> None:
        self.root, self.capsys = root, capsys
        self.layout = Layout.below(PurePosixPath(root))
        self.host = Machine1(layout=self.layout)
        self.pki = Path(self.layout.pki)
        self.kubernetes = Path(self.layout.kubernetes)
        root.mkdir(exist_ok=True)
        self.config = root / "kubeadm.yaml"
        self.config.write_text(CONFIG)

    @property
    def places(self):
        return CertificateLocations.of(self.host, certificates=self.layout.pki)

    def configuration(self, text=CONFIG):
        documents = yaml.load_all(text, source="kubeadm.yaml")
        return configuration.whole_configuration(
            configuration.GivenConfiguration(documents=documents),
            detected=DETECTED,
            random=SeededRandom(1),
            layout=self.layout,
        ).configuration

    def fill(self, text=CONFIG, *, address="10.98.0.11"):
        """Create everything."""
        whole, addresses = self.configuration(text), Addresses.of_machine(address)
        means = IssuingSources(SystemClock(), SeededRandom(1))
        for spec in specs.certificates_for(whole, addresses):
            ensure.ensure(self.places.certificates, spec, means)
        for spec in specs.kubeconfigs_for(whole, addresses):
            kubeconfigs.ensure_kubeconfig(self.places.kubeconfigs, self.places.certificates, spec, means)
        return self

    def run(self, *argv: object) -> Run:
        self.capsys.readouterr()
        code = main([str(one) for one in argv])
        return Run(code, *self.capsys.readouterr())

    def check(self, *argv: object) -> Run:
        """Call `certs check-expiration` with the configuration file, so that no cluster is used."""
        return self.run("certs", "check-expiration", "--config", self.config, *argv)

    def certificate(self, name):
        return certificates.first((self.pki / name).read_bytes(), source=name)

    def snapshot(self):
        """Every file below the machine except the lock."""
        below = self.kubernetes
        return {str(path.relative_to(below)): path.read_bytes() for path in below.rglob("*") if path.is_file()}
