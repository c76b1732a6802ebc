"""The rows of `etcd`: the members of a cluster's etcd, and snapshots of its data. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, LIST, PATH, Argument, Command, Flag

_WHERE = (
    Flag("endpoints", "URLs where etcd answers clients; if not given, those in the manifests of this machine", kind=LIST, metavar="urls"),
    Flag("cert-dir", "directory of the certificates; if not given, the one in the manifests of this machine", metavar="dir", form=PATH),
)
_HOW = "Needs no API server: the manifests of this machine say where etcd is, and its certificates give access."

ROWS = (
    Command("etcd", summary("etcd")),
    Command(
        "etcd status",
        "Show how the members of etcd are",
        handler="kubewright.cli.handlers.etcd:status",
        flags=(*_WHERE, ALL_FORMATS),
        description=f"All members are asked at once, each for two seconds. Exits with 0 if all of them serve and none has raised an alarm, 4 otherwise. {_HOW}",
        examples=("etcd status", "etcd status -o json"),
    ),
    Command("etcd member", "List and remove members of etcd"),
    Command(
        "etcd member list",
        "List the members of etcd",
        handler="kubewright.cli.handlers.etcd:list_members",
        flags=(*_WHERE, ALL_FORMATS),
        description=f"If the members have no majority, the list is the one that a single member remembers, with a warning. {_HOW}",
        examples=("etcd member list",),
    ),
    Command(
        "etcd member remove",
        "Remove a member of etcd",
        handler="kubewright.cli.handlers.etcd:remove_member",
        argument=Argument("member", "name of the member, or its id", shown="NAME|ID", least=1),
        flags=(*_WHERE, Flag("yes", "do not ask for confirmation", kind=BOOL, default=False, short="y"), ALL_FORMATS),
        description="For a member whose machine no longer exists; on a machine that does, `reset` removes the member together with its data."
        " A member is not removed if the others would then not have a majority. The etcd of a removed member stops; its data stays.",
        examples=("etcd member remove three", "etcd member remove 83372268fbcf589d --yes"),
    ),
    Command("etcd snapshot", "Save and verify snapshots of etcd"),
    Command(
        "etcd snapshot save",
        "Save a snapshot of etcd to a file",
        handler="kubewright.cli.handlers.etcd_snapshots:save",
        argument=Argument("file", "file to write, or - for stdout", shown="FILE|-", least=1),
        flags=(
            *_WHERE,
            Flag("local", "save what the member of this machine has, which needs no majority", kind=BOOL, default=False),
            ALL_FORMATS,
        ),
        description="The leader sends its data. The file gets its name when it is complete and its checksum is right; only its owner may read it."
        f" Beside it, FILE.json describes which cluster it is of. A snapshot contains all Secrets, unencrypted unless the API server encrypts them. {_HOW}",
        examples=("etcd snapshot save /var/backups/etcd.db", "etcd snapshot save - | age -r RECIPIENT > etcd.db.age"),
    ),
    Command(
        "etcd snapshot verify",
        "Verify a file with a snapshot of etcd",
        handler="kubewright.cli.handlers.etcd_snapshots:verify",
        argument=Argument("file", "file to verify", shown="FILE", least=1),
        flags=(
            Flag("etcdutl", "program that reads the snapshot; if not given, the etcdutl on PATH", metavar="file", form=PATH),
            ALL_FORMATS,
        ),
        description="Checks the size and the checksum, compares the file with FILE.json, and if there is an etcdutl, counts the keys with it."
        " Exits with 3 if the file is not a whole snapshot.",
        examples=("etcd snapshot verify /var/backups/etcd.db",),
    ),
)
