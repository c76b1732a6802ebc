"""The types of the command table: commands, flags and arguments as plain values, and the flags that several commands share.

Nothing here may import heavy modules; a test keeps the list of modules that the cheap commands load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kubewright.base.records import dataclass, field

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

# Kinds of flags, by pflag's names.
STRING = "string"
BOOL = "bool"
INT = "int"
INT32 = "int32"
LEVEL = "Level"
"""klog's verbosity: a decimal number."""
MODULES = "moduleSpec"
"""klog's `pattern=N,…`."""
LIST = "strings"
"""Comma lists, repeatable."""
PAIRS = "mapStringString"
"""`name=value,…`, repeatable."""
DURATION = "duration"
"""Go's form, such as `1h30m`."""

# How texts of flags are parsed (`inputs.given`), if the kind is not sufficient.
SECRET = "secret"  # noqa: S105 - the name of a form
"""Literal, `-` for the next line of standard input, or the path of a file."""
PATH = "path"
"""Made absolute."""
GATES = "gates"
"""`name=true,…`"""
CONTENT = "content"
"""The content of the file, empty without one."""
FIELDS = "fields"
"""The map in a YAML file."""
LENGTH = "length"
"""A positive duration."""
RANGES = "ranges"
"""CIDRs."""
VERSION = "version"
"""A version like v1.36.3."""

OWN = "own"
"""Exit codes by the class of the error."""
KUBEADM = "kubeadm"
"""Exit code 1 for every error, as in kubeadm."""
DIFF = "diff"
"""1 is the command's own result (there are differences), as with `diff`.

Errors whose class says 1 exit 2, all others as with OWN.
"""

OPERATION = "kubewright.cli.handlers.operations:run"
"""The handler of all operations on a machine."""

ANY = -1
"""No limit, for `Argument.most`."""


@dataclass(eq=False)
class Flag:
    """A flag.

    `kind` is one of the kinds above, which the default must match. `deprecated` is the message when it is used.

    `sets` is the field of the command's options that the flag sets, by default its name with underscores
    (`inputs.record`); `form` defines how its text is parsed.
    `not_as` is a name of the program: the flag does not exist if we are called by it.
    """

    name: str
    summary: str
    _: KW_ONLY
    kind: str = STRING
    default: object = None
    short: str = ""
    metavar: str = ""
    sets: str = ""
    form: str = ""
    choices: Sequence[str] = ()
    hidden: bool = False
    deprecated: str = ""
    not_as: str = ""

    def __post_init__(self) -> None:
        self.metavar = self.metavar or self.kind
        self.sets = self.sets or self.dest
        self.form = self.form or self.kind

    @property
    def dest(self) -> str:
        """The key of the value after parsing."""
        return self.name.replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default as pflag writes it; empty for the zero value of the kind."""
        if self.default in (None, "", False, 0, ()):
            return ""
        if self.kind == BOOL:
            return "true"
        return f"[{','.join(self.default)}]" if isinstance(self.default, tuple) else str(self.default)


@dataclass(eq=False)
class Argument:
    """The positional arguments of a command. `name` is the key after parsing, `shown` is used in the usage line.

    At least `least` and at most `most` are accepted, ANY for no limit; with `most` 1 the value is a string, else a
    tuple.
    """

    name: str
    summary: str
    _: KW_ONLY
    shown: str
    least: int = 0
    most: int = 1


@dataclass(eq=False)
class Workflow:
    """A tree of phases that a command runs, and how its phases become commands.

    Objects are named as `module:name` and imported when needed.
    """

    phases: str = ""
    """The tree, which contains the names of flags and arguments; '' if its phases are not commands."""
    _: KW_ONLY
    flags: Mapping[str, Flag] = field(default_factory=dict)
    """The flags that the tree names."""
    handler: str = OPERATION
    """The handler of the phases' commands."""
    ours: str = ""
    """The names of flags that every phase has in addition, separated by spaces."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    """The arguments that the tree names."""
    operation: str = ""
    """The operation that runs the tree."""
    request: str = ""
    """The function that converts the flags to the operation's options."""
    silent: frozenset[str] | None = frozenset()
    """Phases that are skipped for one of these reasons are not reported; None: for any reason."""
    batches: bool = False
    """Whether files are synced once at the end, not one by one."""
    text: str = ""
    """The reporter for people, if it is not that of `init`."""


@dataclass(eq=False)
class Command:
    """A command: one row of the table."""

    path: str
    """The words that call it."""
    summary: str
    _: KW_ONLY
    handler: str = ""
    """`module:function`, imported only when the command runs. A row without a handler has that of its workflow, or is a group."""
    flags: Sequence[Flag] = ()
    argument: Argument | None = None
    description: str = ""
    examples: Sequence[str] = ()
    aliases: Sequence[str] = ()
    """Other words for the last one of the path."""
    exit_scheme: str = OWN
    hidden: bool = False
    shows_help: bool = False
    """Whether a group that is called without a sub-command succeeds, as kubeadm's `kubeconfig` does."""
    flags_in_usage: bool = True
    """False if kubeadm's usage line ends without `[flags]`."""
    workflow: Workflow | None = None
    """The tree of phases that the command runs; each phase is also a command `… phase NAME`."""
    makes: str = ""
    """`module:function`, which returns further rows below this one; it is called when they are read."""

    def __post_init__(self) -> None:
        if isinstance(self.examples, str):
            raise TypeError(f"the examples of {self.path} are one text; write a tuple")
        self.handler = self.handler or (self.workflow.handler if self.workflow else "")

    def flags_as(self, program: str) -> tuple[Flag, ...]:
        """Return the flags that the command has if the program is called by this name."""
        return tuple(flag for flag in self.flags if flag.not_as != program)

    @property
    def words(self) -> tuple[str, ...]:
        """The path as words; empty for the program itself."""
        return tuple(self.path.split())


def output(*formats: str) -> Flag:
    """Return an `-o` flag with these formats, the first of which is the default."""
    return Flag("output", f"format of the result: {', '.join(formats)}", default=formats[0], short="o", choices=formats, metavar="format")


ALL_FORMATS = output("text", "json", "yaml")
DOCUMENTS = output("yaml", "json")
"""For commands whose text is YAML documents."""

CONFIG = Flag("config", "kubeadm configuration file", default="", metavar="file")
KUBECONFIG = Flag(
    "kubeconfig",
    "kubeconfig to talk to the cluster with",
    default="/etc/kubernetes/admin.conf",
    metavar="file",
    form=PATH,
)
CERT_DIR = Flag("cert-dir", "directory of the certificates", default="/etc/kubernetes/pki", metavar="dir")
CRI_SOCKET = Flag("cri-socket", "socket of the container runtime; empty: detect", default="", metavar="socket")
ETCDUTL = Flag(
    "etcdutl", "program that reads the snapshot; if not given, the etcdutl on PATH, else it is fetched", metavar="file", form=PATH
)
FEATURE_GATES = Flag("feature-gates", "kubeadm feature gates, name=true or name=false", default="", metavar="gates", form=GATES)
IMAGE_REPOSITORY = Flag("image-repository", "repository of the control plane images", default="registry.k8s.io", metavar="repository")
KUBERNETES_VERSION = Flag("kubernetes-version", "version of the control plane, or a label", default="stable-1", metavar="version")
PLAN = Flag("plan", "show what would change; write nothing", kind=BOOL, default=False)
YES = Flag("yes", "do not ask for confirmation", kind=BOOL, default=False, short="y")

SERVING_CERTIFICATES = Flag(
    "serving-certificates",
    "certificates of kubelets' own API: self-signed (default), or strict: the cluster signs them if a policy allows all their names",
    choices=("self-signed", "strict"),
)
CLIENT_CERTIFICATES = Flag(
    "client-certificates",
    "who approves client certificates of nodes: stock (default), or strict, with --serving-certificates strict: a token is for one node and"
    " one key, and no node gets the name of another one",
    choices=("stock", "strict"),
)
BINARIES_DIR = Flag("binaries-dir", "take the component binaries from this directory", metavar="dir")
ADOPT = Flag("adopt", "take over a machine that another tool added to a cluster", kind=BOOL, default=False)

MACHINE_FLAGS = (
    CONFIG,
    KUBECONFIG,
    CERT_DIR,
    Flag(
        "apiserver-advertise-address",
        "IP address at which this API server is reached; empty: that of the default route",
        default="",
        metavar="ip",
        sets="advertise_address",
    ),
    Flag("apiserver-bind-port", "port of the API server", kind=INT32, default=6443, metavar="port", sets="bind_port"),
    Flag(
        "certificate-key",
        "key that encrypts the uploaded certificates, 64 hexadecimal digits; or -, or a path",
        default="",
        metavar="hex",
        form=SECRET,
    ),
    CRI_SOCKET,
    Flag("dry-run", "write nothing to the machine; show what would be done", kind=BOOL, default=False),
    Flag("ignore-preflight-errors", "checks whose errors become warnings, or all", kind=LIST, metavar="names"),
    Flag("node-name", "name of this node", default="", metavar="name"),
    Flag("patches", "directory of patches", default="", metavar="dir", form=PATH),
    Flag("skip-phases", "phases to skip", kind=LIST, metavar="phases"),
)
"""The common flags of init, join, reset and upgrade."""


def by_name(*flags: Flag) -> dict[str, Flag]:
    """Return the common flags of the machine commands and these by name; a flag of the same name replaces a common one."""
    return {flag.name: flag for flag in (*MACHINE_FLAGS, *flags)}


def serving(*, bind: str, port: int) -> tuple[Flag, ...]:
    """Return the flags of a daemon that serves health and metrics: kube-controller-manager's."""
    return (
        Flag("bind-address", "address to serve health and metrics on", default=bind, metavar="ip"),
        Flag("secure-port", "port to serve health and metrics on; 0: none", kind=INT, default=port),
        Flag("tls-cert-file", "serving certificate; without it one is generated", metavar="file"),
        Flag("tls-private-key-file", "key of the serving certificate", metavar="file"),
        Flag("authentication-kubeconfig", "kubeconfig for authenticating clients that read metrics", metavar="file"),
        Flag(
            "authorization-kubeconfig",
            "kubeconfig for authorizing clients that read metrics; without it, no client is authorized",
            metavar="file",
        ),
    )


def electing() -> tuple[Flag, ...]:
    """Return the flags of a daemon with leader election: kube-controller-manager's, with its times."""
    return (
        Flag("leader-elect", "become the leader before writing anything", kind=BOOL, default=True),
        Flag(
            "leader-elect-lease-duration",
            "how long others wait before they replace a leader that does not renew its lease",
            kind=DURATION,
            default="15s",
        ),
        Flag(
            "leader-elect-renew-deadline", "how long the leader tries to renew its lease before it gives up", kind=DURATION, default="10s"
        ),
        Flag("leader-elect-retry-period", "how often the lease is checked", kind=DURATION, default="2s"),
    )


PRINTED_FORMATS = (
    "text",
    "json",
    "yaml",
    "kyaml",
    "go-template",
    "go-template-file",
    "template",
    "templatefile",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
)
"""In kubeadm's order; a test compares them with those of `printers.choosing`. Templates and paths follow a `=`."""
PRINTED_OUTPUT = Flag("output", f"format of the result: {', '.join(PRINTED_FORMATS)}", default="text", short="o", metavar="format")
MISSING_KEYS = Flag("allow-missing-template-keys", "ignore missing fields and keys in templates and paths", kind=BOOL, default=True)
MANAGED_FIELDS = Flag(
    "show-managed-fields", "keep managedFields in json and yaml; objects of these commands have none", kind=BOOL, default=False
)
PRINTED = (PRINTED_OUTPUT, MISSING_KEYS, MANAGED_FIELDS)
