"""The rows of `hub`. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, ANY, BOOL, DURATION, INT, LIST, Argument, Command, Flag, electing, serving

_STATE = (
    Flag("config", "file with the settings of the hub: a HubConfiguration; flags count more", metavar="file"),
    Flag(
        "state",
        "file with the state of the hub; or secrets:NAMESPACE/NAME, Secrets of a management cluster",
        default="/var/lib/kubewright/hub/state.db",
        metavar="file",
    ),
    Flag("state-kubeconfig", "kubeconfig of that cluster; empty: the cluster of this pod", default="", metavar="file"),
    Flag(
        "key-file",
        "file with the key that seals the state, 64 hexadecimal digits; the credential hub.key of the service counts more",
        default="/var/lib/kubewright/hub/state.key",
        metavar="file",
    ),
)
"""Flags of every command of the hub."""

RUN_FLAGS = (
    *_STATE,
    Flag("keep-journal", "how long lines of the journal stay", kind=DURATION, default="2160h0m0s"),
    Flag("keep-journal-lines", "how many lines of the journal stay at most", kind=INT, default=100_000),
    *electing(),
    *serving(bind="127.0.0.1", port=10270),
)

_CLUSTER = Argument("cluster", "name of the cluster", shown="cluster", least=1)
_CLUSTER_AND_NODE = Argument("which", "names of the cluster and of the node", shown="cluster node", least=2, most=2)
_EXAMPLE = "hub cluster add team-a --kubeconfig admin.conf --client-ca-cert-file pki/ca.crt --client-ca-key-file pki/ca.key"

_ADD_FLAGS = (
    Flag("kubeconfig", "kubeconfig with which the hub acts in the cluster; it is kept sealed", metavar="file"),
    Flag("server", "URL of the API server for nodes that do not name one; empty: that of the kubeconfig", default="", metavar="url"),
    Flag("kubernetes-version", "version of the kubelets; empty: that of the API server", default="", metavar="version"),
    Flag("client-ca-cert-file", "authority that signs kubelets' certificates for the API server", metavar="file"),
    Flag("client-ca-key-file", "its key", metavar="file"),
    Flag(
        "serving-ca-cert-file",
        "authority that signs kubelets' serving certificates; empty: the one for clients",
        default="",
        metavar="file",
    ),
    Flag("serving-ca-key-file", "its key", default="", metavar="file"),
    Flag("kubelet-client-ca-file", "authority that kubelets believe; empty: the one for clients", default="", metavar="file"),
    Flag("service-cidr", "range of service addresses", default="10.96.0.0/12", metavar="cidr"),
    Flag("service-dns-domain", "DNS domain of services", default="cluster.local", metavar="domain"),
    Flag("pod-network-cidr", "ranges of pod addresses, which no node may have", kind=LIST, metavar="cidrs"),
    Flag("approval", "who decides about a request that breaks no rule", default="automatic", choices=("automatic", "human")),
    Flag(
        "reserved-names", "further names and addresses that no node may have: of control planes, etcd, the hub", kind=LIST, metavar="names"
    ),
    Flag("allow-node-names", "patterns of node names that may join; none: any name", kind=LIST, metavar="patterns"),
    Flag("allow-names", "patterns of further DNS names that nodes may serve under", kind=LIST, metavar="patterns"),
    Flag("allow-ranges", "ranges that addresses of nodes have to be in; none: any that is not reserved", kind=LIST, metavar="cidrs"),
    Flag("kubelet-config", "file with further fields for the configuration of kubelets, YAML", default="", metavar="file"),
    Flag(
        "certificate-lifetime",
        "how long the certificates of nodes last; less where an authority ends sooner",
        kind=DURATION,
        default="8760h0m0s",
    ),
    Flag("key-algorithm", "kind of the keys that nodes are given", default="RSA-2048", choices=("RSA-2048", "ECDSA-P256")),
    Flag("vpn-cidr", "networks of a VPN that nodes are given, one of each family; none: no VPN", kind=LIST, metavar="cidrs"),
    Flag("vpn-endpoint", "host and port at which nodes reach the hub's end of the VPN", default="", metavar="host:port"),
    Flag("vpn-server", "URL of the API server through the VPN; empty: nodes reach it beside the VPN", default="", metavar="url"),
    Flag("vpn-interface", "name of the hub's interface; empty: made of the cluster's name", default="", metavar="name"),
    Flag("vpn-mtu", "bytes of a packet in the VPN", kind=INT, default=1420),
    Flag("vpn-keepalive", "seconds after which a silent node lets the hub hear of it; 0: never", kind=INT, default=20),
    Flag("keep-requests", "how long a request stays after its end", kind=DURATION, default="1h0m0s"),
)

ROWS = (
    Command("hub", summary("hub")),
    Command(
        "hub run",
        "Serve the clusters of this hub",
        handler="kubewright.cli.handlers.hub.run:run",
        flags=RUN_FLAGS,
        description="Answers the NodeJoinRequests of each cluster, repairs the kind, the rights and the join key in it, and keeps its tokens."
        " Commands beside it take effect at once. Of several with one state one works: in Secrets the others wait for its Lease, in a file they are refused. Runs until it is stopped by SIGTERM or Ctrl-C.",
        examples=("hub run --config hub.yaml",),
    ),
    Command("hub cluster", "Say which clusters the hub serves"),
    Command(
        "hub cluster add",
        "Add a cluster, or change one",
        handler="kubewright.cli.handlers.hub.clusters:add",
        argument=_CLUSTER,
        flags=(*_STATE, *_ADD_FLAGS, ALL_FORMATS),
        examples=(_EXAMPLE,),
    ),
    Command(
        "hub cluster list", "List the clusters", handler="kubewright.cli.handlers.hub.clusters:list_clusters", flags=(*_STATE, ALL_FORMATS)
    ),
    Command(
        "hub cluster remove",
        "Serve a cluster no more, and forget its keys, tokens and records",
        handler="kubewright.cli.handlers.hub.clusters:remove",
        argument=_CLUSTER,
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub cluster rotate-vpn-key",
        "Give the hub another key in the VPN of a cluster, and print it",
        handler="kubewright.cli.handlers.hub.clusters:rotate_vpn_key",
        argument=_CLUSTER,
        flags=(*_STATE, ALL_FORMATS),
        description="At once, and without an overlap: each node is cut off from the VPN until `kubewright node rotate-vpn-key --hub-key KEY` has been run on it, with the key that is printed."
        " For a key that others may have. Nodes that join later get the new one.",
    ),
    Command(
        "hub import",
        "Serve clusters of oneinfra's, as its manifests have them",
        handler="kubewright.cli.handlers.hub.importing:run",
        argument=Argument("files", "files with Clusters of oneinfra's", shown="file ...", least=1, most=ANY),
        flags=(
            *_STATE,
            Flag("dry-run", "tell what would be imported, and import nothing", kind=BOOL),
            Flag("token-ttl", "how long tokens live on, which have no end there", kind=DURATION, default="24h0m0s"),
            ALL_FORMATS,
        ),
        description="Takes over name, version, endpoint, authorities, join key, tokens, networks, and the VPN with its nodes. All of it, or nothing."
        " The hub acts in each cluster with a certificate of its own, which the cluster's authority signs.",
        examples=("hub import clusters.yaml --dry-run",),
    ),
    Command("hub token", "Work with the tokens that nodes join with"),
    Command(
        "hub token create",
        "Make a token for a cluster, and print it",
        handler="kubewright.cli.handlers.hub.tokens:create",
        argument=_CLUSTER,
        flags=(
            *_STATE,
            Flag("ttl", "how long the token lives", kind=DURATION, default="24h0m0s"),
            Flag("description", "what it is for", default="", metavar="text"),
            ALL_FORMATS,
        ),
    ),
    Command(
        "hub token list",
        "List the tokens, without their secrets",
        handler="kubewright.cli.handlers.hub.tokens:list_tokens",
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub token revoke",
        "End a token",
        handler="kubewright.cli.handlers.hub.tokens:revoke",
        argument=Argument("which", "name of the cluster, and the token or its id", shown="cluster token", least=2, most=2),
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub requests",
        "List what nodes have asked for, and what became of it",
        handler="kubewright.cli.handlers.hub.requests:list_requests",
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub requests approve",
        "Let a node in that waits for a person",
        handler="kubewright.cli.handlers.hub.requests:approve",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub requests refuse",
        "Refuse a node that waits for a person",
        handler="kubewright.cli.handlers.hub.requests:refuse",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub requests forget",
        "Forget a node that has joined, so that another machine may have its name",
        handler="kubewright.cli.handlers.hub.requests:forget",
        argument=_CLUSTER_AND_NODE,
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub nodes",
        "List the nodes that the hub has let in",
        handler="kubewright.cli.handlers.hub.requests:list_nodes",
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub backup",
        "Write a copy of the hub's state, also while it runs",
        handler="kubewright.cli.handlers.hub.backup:backup",
        argument=Argument(
            "file", "file to write; keys in it are sealed with the key of the state, which is not in it", shown="file", least=1
        ),
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub restore",
        "Put a copy in the place of the hub's state",
        handler="kubewright.cli.handlers.hub.backup:restore",
        argument=Argument("file", "file that hub backup has written", shown="file", least=1),
        flags=(*_STATE, ALL_FORMATS),
    ),
    Command(
        "hub migrate",
        "Take over a state that an earlier version has made",
        handler="kubewright.cli.handlers.hub.backup:migrate",
        flags=(*_STATE, ALL_FORMATS),
        description="`hub run` does so by itself, once, where it can write to the key file. In such a state nothing vouches for what clusters ask of nodes, for lifetimes and for authorities:"
        " it prints what it has taken over, to be compared with what you have set.",
    ),
    Command(
        "hub journal", "Show what the hub has done", handler="kubewright.cli.handlers.hub.requests:journal", flags=(*_STATE, ALL_FORMATS)
    ),
)
