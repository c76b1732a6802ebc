"""The rows of `backup`. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, ETCDUTL, PLAN, YES, Argument, Command, Flag, Workflow

_KEY = Flag("key-file", "file with the key, or - for standard input; `certs certificate-key` makes one", metavar="file")
_FILE = Argument("file", "backup", shown="FILE", least=1)
_RESTORE_FLAGS = (
    _KEY,
    Flag("peers-are-gone", "confirm that the machines of members that do not answer no longer exist", kind=BOOL, default=False),
    ETCDUTL,
    YES,
    PLAN,
    ALL_FORMATS,
)
_RESTORE = {flag.name: flag for flag in _RESTORE_FLAGS}

ROWS = (
    Command("backup", summary("backup")),
    Command(
        "backup create",
        "Save this control plane: the data of etcd, certificates and keys, manifests and configuration",
        handler="kubewright.cli.handlers.backup:create",
        argument=Argument("file", "file to write, or - for stdout", shown="FILE|-", least=1),
        flags=(
            _KEY,
            Flag("plain", "write an ordinary tar file that is not encrypted", kind=BOOL, default=False),
            Flag("local", "save what the etcd member of this machine has, which needs no majority", kind=BOOL, default=False),
            ALL_FORMATS,
        ),
        description="The file is encrypted with the key (AES-256-GCM), and gets its name when it is complete; only its owner may read it."
        " It contains /etc/kubernetes, the kubelet's configuration, the patches that were kept, and all data of etcd. Needs no API server.",
        examples=("backup create /var/backups/one.kwb --key-file backup.key", "backup create - --plain | age -r RECIPIENT > one.tar.age"),
    ),
    Command(
        "backup show",
        "Check a backup, and list what is in it",
        handler="kubewright.cli.handlers.backup:show",
        argument=_FILE,
        flags=(_KEY, ALL_FORMATS),
        description="Reads the whole file. Exits with an error if the key is the wrong one, or the file was changed or cut off.",
        examples=("backup show /var/backups/one.kwb --key-file backup.key",),
    ),
    Command(
        "backup restore",
        "Make this machine the control plane that was backed up",
        argument=_FILE,
        flags=_RESTORE_FLAGS,
        description="For a fresh machine with the same name and address, the same versions of kubelet and container runtime, and the same images."
        " etcd starts again with one member. The whole backup is checked before anything is changed; running the same command again continues"
        " an interrupted restore. On other control planes run `etcd member replace` afterwards.",
        examples=("backup restore /var/backups/one.kwb --key-file backup.key",),
        workflow=Workflow(
            "kubewright.lifecycle.etcd.backup_restore:PHASES",
            flags=_RESTORE,
            ours="plan output",
            arguments={"file": _FILE},
            operation="kubewright.lifecycle.etcd.backup_restore:ROW",
            request="kubewright.cli.handlers.backup:restore_request",
        ),
    ),
)
