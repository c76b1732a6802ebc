"""The rows of the commands for local clusters: up, down, local, binaries. Imports nothing heavy."""

from __future__ import annotations

from kubewright.base.level import KUBERNETES
from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import (
    ALL_FORMATS,
    ANY,
    BINARIES_DIR,
    BOOL,
    CLIENT_CERTIFICATES,
    DURATION,
    INT,
    LIST,
    PATH,
    SERVING_CERTIFICATES,
    Argument,
    Command,
    Flag,
)

NAME = Flag("name", "name of the cluster", default="default")
STATE_DIR = Flag("state-dir", "directory of the clusters (default: $XDG_STATE_HOME/kubewright/clusters)", metavar="dir")
VERSION = Flag("kubernetes-version", "Kubernetes version of the cluster", default=KUBERNETES, metavar="version")
CONFIG = Flag(
    "config",
    "kubeadm configuration file (InitConfiguration, ClusterConfiguration, component configurations; with --machines also JoinConfiguration)",
    metavar="file",
)
CHOSEN_BINARIES = Flag(
    "binaries-dir", "take the component binaries from this directory, not those of the last up; needs root", metavar="dir"
)
MACHINE = Flag("machine", "name of the machine (default: the first control plane)", metavar="name")

ADDRESS = Flag("address", "address of the host on which published ports listen", default="127.0.0.1", metavar="ip")

UP_FLAGS = (
    NAME,
    Flag(
        "nodes",
        "number of worker nodes, in addition to the control planes' own nodes; 3 for a new cluster, 0 with --machines; a different number"
        " scales the cluster",
        kind=INT,
        metavar="number",
    ),
    Flag(
        "control-planes", "number of control planes; 1 for a new cluster; a different number scales the cluster", kind=INT, metavar="number"
    ),
    VERSION,
    CONFIG,
    Flag(
        "controllers",
        "which controllers approve and sign certificate requests: kube-controller-manager (default), or those of this program",
        metavar="name",
    ),
    Flag("machines", "make a cluster of whole machines, in which pods really run; needs root", kind=BOOL, default=False),
    Flag(
        "publish",
        "with --machines: forward ports of the host to ports of the machines (NodePorts or hostPorts): [address:]host:target[/udp]",
        kind=LIST,
        metavar="ports",
    ),
    ADDRESS,
    Flag("mount", "with --machines: directories and files of the host that all machines see: path:path[:ro]", kind=LIST, metavar="paths"),
    Flag(
        "registry-config",
        "with --machines: directory of hosts.toml files, as containerd has in /etc/containerd/certs.d: mirrors, CAs; '' for none",
        metavar="dir",
        form=PATH,
    ),
    Flag(
        "cni",
        "with --machines: the network of pods: default, or none, for a network plugin that you install; until then Nodes are not ready",
        choices=("default", "none"),
    ),
    SERVING_CERTIFICATES,
    CLIENT_CERTIFICATES,
    BINARIES_DIR,
    STATE_DIR,
    Flag("wait", "how long to wait for the cluster to be ready", kind=DURATION, default="5m"),
    ALL_FORMATS,
)
ON_CLUSTER = (NAME, STATE_DIR)
ON_MACHINE = (Flag("name", "name of the cluster (default: the one that has the machine)"), STATE_DIR)
BINARIES = (VERSION, BINARIES_DIR)

ONE_MACHINE = Argument("machine", "name of the machine", shown="MACHINE", least=1)
CLUSTER = Argument("cluster", "name of the cluster, as with --name", shown="[name]")

ROWS = (
    Command(
        "up",
        summary("up"),
        handler="kubewright.cli.handlers.local:up",
        flags=UP_FLAGS,
        description="Runs a real control plane as local processes, without root or containers, and joins nodes to it. A second run repairs"
        " what is broken and changes nothing else. Nodes are real API clients; the containers of their pods are simulated. With --machines, each"
        " node is a machine with systemd, containerd and the kubelet, and pods really run; creating, repairing and scaling such a cluster needs"
        " root.",
        examples=(
            "up",
            "up --nodes 10 --name wide",
            "up --control-planes 3",
            "up --config kubeadm.yaml -o json",
            "up --machines --name dev --nodes 2 --publish 8080:30080",
        ),
    ),
    Command(
        "down",
        summary("down"),
        handler="kubewright.cli.handlers.local:down",
        argument=CLUSTER,
        flags=(
            NAME,
            Flag(
                "keep-data",
                "keep etcd's data and the certificates, or the disks of whole machines, so that the next up resumes",
                kind=BOOL,
                default=False,
            ),
            STATE_DIR,
            ALL_FORMATS,
        ),
        description="Stops a local cluster and removes it. Removing a cluster of machines needs root.",
        examples=(
            "down",
            "down --keep-data",
        ),
    ),
    Command("local", summary("local")),
    Command(
        "local status",
        "Show machines, components and nodes of a cluster",
        handler="kubewright.cli.handlers.local:status",
        argument=CLUSTER,
        flags=(*ON_CLUSTER, ALL_FORMATS),
        examples=(
            "local status",
            "local status wide -o json",
        ),
    ),
    Command(
        "local logs",
        "Show the log of a component, or the daemon's",
        handler="kubewright.cli.handlers.local:logs",
        argument=Argument("component", "component, for example kube-apiserver; none: the daemon", shown="[component]"),
        flags=(
            *ON_CLUSTER,
            MACHINE,
            Flag("follow", "keep printing lines as they are written", kind=BOOL, default=False, short="f"),
            Flag("tail", "number of lines from the end; -1 for all", kind=INT, default=-1, metavar="lines"),
        ),
        description="In a cluster of machines, components are the static pods of a machine, kubelet, and containerd.",
        examples=(
            "local logs",
            "local logs kube-apiserver --tail 50",
            "local logs --name dev --machine dev-worker-1 kubelet --follow",
        ),
    ),
    Command(
        "local list",
        "List the clusters of this user",
        handler="kubewright.cli.handlers.local:list_clusters",
        flags=(STATE_DIR, ALL_FORMATS),
        examples=(
            "local list",
            "local list -o json",
        ),
    ),
    Command(
        "local env",
        "Print shell commands that set KUBECONFIG and PATH for a cluster",
        handler="kubewright.cli.handlers.local:env",
        argument=CLUSTER,
        flags=(*ON_CLUSTER, ALL_FORMATS),
        examples=('eval "$(kubewright local env)"',),
    ),
    Command(
        "local use",
        "Make a cluster the current context of your kubeconfig",
        handler="kubewright.cli.handlers.local:use",
        argument=CLUSTER,
        flags=(
            *ON_CLUSTER,
            Flag("kubeconfig", "file to change (default: the first file of $KUBECONFIG that exists, or ~/.kube/config)", metavar="file"),
            ALL_FORMATS,
        ),
        description="Adds a cluster, a user and a context named kubewright-NAME, and leaves everything else unchanged except comments, which"
        " are lost as with kubectl config. down removes them again.",
        examples=("local use", "local use wide"),
    ),
    Command(
        "local shell",
        "Run a shell or a command in a machine of a cluster of machines",
        handler="kubewright.cli.handlers.machines:shell",
        argument=Argument(
            "words", "machine, and a command with its arguments; without one, a shell", shown="MACHINE [-- command]", least=1, most=ANY
        ),
        flags=ON_MACHINE,
        examples=("local shell dev-worker-1", "local shell dev-worker-1 -- journalctl -u kubelet"),
    ),
    Command(
        "local load",
        "Load an archive of images into all machines of a cluster of machines",
        handler="kubewright.cli.handlers.machines:load",
        argument=Argument("archive", "archive of Docker or OCI images; - for standard input", shown="ARCHIVE", least=1),
        flags=(*ON_CLUSTER, ALL_FORMATS),
        examples=("local load --name dev app.tar", "local load --name dev - < app.tar"),
    ),
    Command(
        "local publish",
        "Forward ports of the host to ports of a cluster of machines, while it runs",
        handler="kubewright.cli.handlers.machines:publish",
        argument=Argument(
            "ports", "[address:]host:target[/udp]; the target is a NodePort or a hostPort", shown="[HOST:TARGET] ...", most=ANY
        ),
        flags=(
            *ON_CLUSTER,
            ADDRESS,
            Flag("list", "list the published ports, which is the default", kind=BOOL, default=False),
            Flag("remove", "ports of the host to stop publishing: host[/udp]", kind=LIST, metavar="ports"),
            ALL_FORMATS,
        ),
        description="Connections to a published port of the host go to the target port of a machine that runs. The ports belong to the"
        " cluster: up restores them, down removes them. They listen on 127.0.0.1 unless an address is given.",
        examples=(
            "local publish --name dev 8080:30080",
            "local publish --name dev 5353:30053/udp",
            "local publish --name dev --remove 8080",
        ),
    ),
    Command(
        "local export",
        "Write status, objects and logs of a cluster to a directory, for a bug report",
        handler="kubewright.cli.handlers.local:export",
        argument=Argument("directory", "directory that does not exist yet, or is empty", shown="DIRECTORY", least=1),
        flags=(*ON_CLUSTER, ALL_FORMATS),
        description="Secrets are written without their data. Parts that cannot be read, for example of stopped machines, are listed in problems.txt."
        " The files belong to the user, also with sudo.",
        examples=("local export --name dev report",),
    ),
    Command("local machine", "Change single machines of a cluster of machines; adding and removing them needs root"),
    *(
        Command(
            f"local machine {verb}",
            text,
            handler=f"kubewright.cli.handlers.machines:{verb}",
            argument=ONE_MACHINE,
            flags=(*ON_MACHINE, *programs, ALL_FORMATS),
            examples=(f"local machine {verb} --name dev dev-worker-1",),
        )
        for verb, text, *programs in (
            ("kill", "Stop a machine like a power failure; its disk stays"),
            ("stop", "Shut a machine down"),
            ("pause", "Freeze all processes of a machine, as if it hung"),
            ("start", "Start a machine that was killed or stopped, or let a paused one continue", CHOSEN_BINARIES),
            ("remove", "Remove a worker, or a control plane other than the first, with its Node and its disk; needs root"),
        )
    ),
    Command(
        "local machine add",
        "Add a worker, or a control plane; needs root",
        handler="kubewright.cli.handlers.machines:add",
        argument=Argument("machine", "name of the machine (default: the next worker)", shown="[MACHINE]"),
        flags=(*ON_CLUSTER, BINARIES_DIR, ALL_FORMATS),
        description="Adds the next worker or the next control plane. The machine's name begins with that of its cluster. Needs root.",
        examples=("local machine add --name dev", "local machine add dev-worker-3"),
    ),
    Command("binaries", summary("binaries")),
    Command(
        "binaries list",
        "List the binaries, their locations and their origins",
        handler="kubewright.cli.handlers.local:list_binaries",
        flags=(*BINARIES, ALL_FORMATS),
        examples=(
            "binaries list",
            "binaries list --kubernetes-version v1.35.4 -o json",
        ),
    ),
    Command(
        "binaries fetch",
        "Fetch binaries into the cache",
        handler="kubewright.cli.handlers.local:fetch",
        argument=Argument("program", "programs; none: those that a local cluster needs", shown="[program] ...", most=ANY),
        flags=(*BINARIES, ALL_FORMATS),
        examples=(
            "binaries fetch",
            "binaries fetch kubeadm --kubernetes-version v1.35.4",
        ),
    ),
    Command(
        "binaries verify",
        "Compare the binaries with the digests that were recorded when they were fetched",
        handler="kubewright.cli.handlers.local:verify",
        argument=Argument("program", "programs; none: all that are present", shown="[program] ...", most=ANY),
        flags=(*BINARIES, ALL_FORMATS),
        examples=(
            "binaries verify",
            "binaries verify etcd kube-apiserver",
        ),
    ),
)
