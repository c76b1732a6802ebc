"""The rows of `hub`. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import (
    ALL_FORMATS,
    ANY,
    BOOL,
    CONTENT,
    DURATION,
    FIELDS,
    INT,
    LENGTH,
    LIST,
    PATH,
    RANGES,
    VERSION,
    Argument,
    Command,
    Flag,
    electing,
    serving,
)

_STATE = (
    Flag("config", "file with the settings of the hub (HubConfiguration); flags override it", metavar="file"),
    Flag(
        "state",
        "file with the state of the hub, or secrets:NAMESPACE/NAME for Secrets of a management cluster",
        default="/var/lib/kubewright/hub/state.db",
        metavar="file",
    ),
    Flag("state-kubeconfig", "kubeconfig of the management cluster; empty: the cluster of this pod", default="", metavar="file", form=PATH),
    Flag(
        "key-file",
        "file with the key that seals the state, 64 hexadecimal digits; the systemd credential hub.key overrides it",
        default="/var/lib/kubewright/hub/state.key",
        metavar="file",
        form=PATH,
    ),
)
"""Flags of every command of the hub."""

RUN_FLAGS = (
    *_STATE,
    Flag("keep-journal", "how long lines of the journal are kept", kind=DURATION, default="2160h0m0s", form=LENGTH),
    Flag("keep-journal-lines", "maximum number of lines in the journal", kind=INT, default=100_000),
    *electing(),
    *serving(bind="127.0.0.1", port=10270),
)

_CLUSTER = Argument("cluster", "name of the cluster", shown="cluster", least=1)
_CLUSTER_AND_NODE = Argument("which", "names of the cluster and of the node", shown="cluster node", least=2, most=2)
_EXAMPLE = "hub cluster add team-a --kubeconfig admin.conf --client-ca-cert-file pki/ca.crt --client-ca-key-file pki/ca.key"

_ADD_FLAGS = (
    Flag("kubeconfig", "kubeconfig that the hub uses for the cluster; it is stored sealed", metavar="file", form=PATH),
    Flag("server", "URL of the API server for nodes that do not specify one; empty: that of the kubeconfig", default="", metavar="url"),
    Flag("kubernetes-version", "version of the kubelets; empty: that of the API server", default="", metavar="version", form=VERSION),
    Flag("client-ca-cert-file", "CA certificate for the kubelets' client certificates", metavar="file", sets="client_ca", form=CONTENT),
    Flag("client-ca-key-file", "key of that CA", metavar="file", sets="client_key", form=CONTENT),
    Flag(
        "serving-ca-cert-file",
        "CA certificate for the kubelets' serving certificates; empty: the one for client certificates",
        default="",
        metavar="file",
        sets="serving_ca",
        form=CONTENT,
    ),
    Flag("serving-ca-key-file", "key of that CA", default="", metavar="file", sets="serving_key", form=CONTENT),
    Flag(
        "kubelet-client-ca-file",
        "CA certificate that kubelets trust for their clients; empty: the one for client certificates",
        default="",
        metavar="file",
        sets="kubelet_client_ca",
        form=CONTENT,
    ),
    Flag("service-cidr", "range of service addresses", default="10.96.0.0/12", metavar="cidr", sets="service_subnet", form=RANGES),
    Flag("service-dns-domain", "DNS domain of services", default="cluster.local", metavar="domain", sets="domain"),
    Flag(
        "pod-network-cidr", "ranges of pod addresses, which nodes may not use", kind=LIST, metavar="cidrs", sets="pod_subnets", form=RANGES
    ),
    Flag("approval", "who approves requests that break no rule", default="automatic", choices=("automatic", "human")),
    Flag(
        "reserved-names",
        "additional names and addresses that nodes may not use, such as those of control planes, etcd and the hub",
        kind=LIST,
        metavar="names",
        sets="reserved",
    ),
    Flag("allow-node-names", "patterns of the node names that may join; none: any name", kind=LIST, metavar="patterns", sets="node_names"),
    Flag(
        "allow-names",
        "patterns of additional DNS names for the nodes' serving certificates",
        kind=LIST,
        metavar="patterns",
        sets="names",
    ),
    Flag(
        "allow-ranges",
        "ranges that the addresses of nodes must be in; none: any address that is not reserved",
        kind=LIST,
        metavar="cidrs",
        sets="ranges",
        form=RANGES,
    ),
    Flag("kubelet-config", "YAML file with additional fields for the kubelets' configuration", default="", metavar="file", form=FIELDS),
    Flag(
        "certificate-lifetime",
        "lifetime of the nodes' certificates; shorter if a CA expires sooner",
        kind=DURATION,
        default="8760h0m0s",
        sets="lifetime",
        form=LENGTH,
    ),
    Flag("key-algorithm", "algorithm of the keys that nodes get", default="RSA-2048", choices=("RSA-2048", "ECDSA-P256")),
    Flag("vpn-cidr", "networks of the nodes' VPN, at most one of each IP family; none: no VPN", kind=LIST, metavar="cidrs"),
    Flag("vpn-endpoint", "host and port at which nodes reach the hub's end of the VPN", default="", metavar="host:port"),
    Flag("vpn-server", "URL of the API server inside the VPN; empty: nodes reach it outside the VPN", default="", metavar="url"),
    Flag("vpn-interface", "name of the hub's interface; empty: derived from the cluster's name", default="", metavar="name"),
    Flag("vpn-mtu", "MTU of the VPN in bytes", kind=INT, default=1420),
    Flag("vpn-keepalive", "interval in seconds of a node's keepalive packets to the hub; 0: none", kind=INT, default=20),
    Flag("keep-requests", "how long a completed request is kept", kind=DURATION, default="1h0m0s", sets="kept"),
)

ROWS = (
    Command("hub", summary("hub")),
    Command(
        "hub run",
        "Serve the clusters of this hub",
        handler="kubewright.cli.handlers.hub.run:run",
        flags=RUN_FLAGS,
        description="Answers the NodeJoinRequests of each cluster, and maintains the resource definition, the permissions, the join key and the tokens in it."
        " Other hub commands can be used at the same time and take effect at once. Only one hub works with a state: if it is in Secrets, others wait for its"
        " Lease; if it is in a file, they are refused. Runs until it is stopped by SIGTERM or Ctrl-C.",
        examples=("hub run --config hub.yaml",),
    ),
    Command("hub cluster", "Manage the clusters that the hub serves"),
    Command(
        "hub cluster add",
        "Add a cluster, or change its settings",
        handler="kubewright.cli.handlers.hub.clusters:add",
        argument=_CLUSTER,
        flags=(*_STATE, *_ADD_FLAGS, ALL_FORMATS),
        examples=(_EXAMPLE,),
    ),
    Command(
        "hub cluster list",
        "List the clusters",
        handler="kubewright.cli.handlers.hub.clusters:list_clusters",
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub cluster list",),
    ),
    Command(
        "hub cluster remove",
        "Stop serving a cluster, and remove its keys, tokens and records",
        handler="kubewright.cli.handlers.hub.clusters:remove",
        argument=_CLUSTER,
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub cluster remove team-a",),
    ),
    Command(
        "hub cluster rotate-vpn-key",
        "Replace the hub's key in the VPN of a cluster, and print the public key",
        handler="kubewright.cli.handlers.hub.clusters:rotate_vpn_key",
        argument=_CLUSTER,
        flags=(*_STATE, ALL_FORMATS),
        description="For a key that may have leaked. The change takes effect at once: each node loses the VPN until `kubewright node rotate-vpn-key --hub-key KEY` has been run"
        " on it with the printed key. Nodes that join later get the new key.",
        examples=("hub cluster rotate-vpn-key team-a",),
    ),
    Command(
        "hub import",
        "Take over clusters of oneinfra from their manifests",
        handler="kubewright.cli.handlers.hub.importing:run",
        argument=Argument("files", "files with Clusters of oneinfra", shown="file ...", least=1, most=ANY),
        flags=(
            *_STATE,
            Flag("dry-run", "show what would be imported, and import nothing", kind=BOOL, default=False),
            Flag(
                "token-ttl",
                "lifetime of the imported tokens, which never expire in oneinfra",
                kind=DURATION,
                default="24h0m0s",
                form=LENGTH,
            ),
            ALL_FORMATS,
        ),
        description="Imports name, version, endpoint, CAs, join key, tokens, networks, and the VPN with its nodes; if anything is wrong, nothing is imported."
        " The hub authenticates to each cluster with a certificate of its own that the cluster's CA signs.",
        examples=("hub import clusters.yaml --dry-run",),
    ),
    Command("hub token", "Manage the tokens with which nodes join"),
    Command(
        "hub token create",
        "Create a token for a cluster, and print it",
        handler="kubewright.cli.handlers.hub.tokens:create",
        argument=_CLUSTER,
        flags=(
            *_STATE,
            Flag("ttl", "lifetime of the token", kind=DURATION, default="24h0m0s", form=LENGTH),
            Flag("description", "purpose of the token", default="", metavar="text"),
            ALL_FORMATS,
        ),
        examples=('hub token create team-a --ttl 1h --description "rack 7"',),
    ),
    Command(
        "hub token list",
        "List the tokens, without their secrets",
        handler="kubewright.cli.handlers.hub.tokens:list_tokens",
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub token list -o json",),
    ),
    Command(
        "hub token revoke",
        "Revoke a token",
        handler="kubewright.cli.handlers.hub.tokens:revoke",
        argument=Argument("which", "name of the cluster, and the token or its id", shown="cluster token", least=2, most=2),
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub token revoke team-a abcdef",),
    ),
    Command(
        "hub requests",
        "List the requests of nodes and their states",
        handler="kubewright.cli.handlers.hub.requests:list_requests",
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub requests",),
    ),
    Command(
        "hub requests approve",
        "Approve a node that waits for approval",
        handler="kubewright.cli.handlers.hub.requests:approve",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub requests approve team-a worker-1",),
    ),
    Command(
        "hub requests refuse",
        "Refuse a node that waits for approval",
        handler="kubewright.cli.handlers.hub.requests:refuse",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub requests refuse team-a worker-1",),
    ),
    Command(
        "hub requests forget",
        "Forget a node that has joined, so that another machine can use its name",
        handler="kubewright.cli.handlers.hub.requests:forget",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub requests forget team-a worker-1",),
    ),
    Command(
        "hub nodes",
        "List the nodes that the hub has admitted",
        handler="kubewright.cli.handlers.hub.requests:list_nodes",
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub nodes -o json",),
    ),
    Command(
        "hub backup",
        "Back up the hub's state; the hub may be running",
        handler="kubewright.cli.handlers.hub.backup:backup",
        argument=Argument(
            "file", "file to write; it is sealed with the key of the state, which it does not contain", shown="file", least=1
        ),
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub backup /var/backups/hub.backup",),
    ),
    Command(
        "hub restore",
        "Replace the hub's state with a backup",
        handler="kubewright.cli.handlers.hub.backup:restore",
        argument=Argument("file", "file written by hub backup", shown="file", least=1),
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub restore /var/backups/hub.backup",),
    ),
    Command(
        "hub migrate",
        "Migrate a state that was written by an earlier version",
        handler="kubewright.cli.handlers.hub.backup:migrate",
        flags=(*_STATE, ALL_FORMATS),
        description="`hub run` does this automatically, once, if it can write to the key file. In such a state, the settings of clusters, lifetimes and CAs are not protected against"
        " changes, so the command prints what it has migrated: compare this with what you have configured.",
        examples=("hub migrate",),
    ),
    Command(
        "hub journal",
        "Show what the hub has done",
        handler="kubewright.cli.handlers.hub.requests:journal",
        flags=(*_STATE, ALL_FORMATS),
        examples=("hub journal -o json",),
    ),
)
