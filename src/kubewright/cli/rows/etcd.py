"""The rows of `etcd`: the members of a cluster's etcd, and snapshots of its data. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, DURATION, ETCDUTL, LIST, PATH, PLAN, YES, Argument, Command, Flag, Workflow

_WHERE = (
    Flag("endpoints", "client URLs of etcd; if not given, those in the manifests of this machine", kind=LIST, metavar="urls"),
    Flag("cert-dir", "directory of the certificates; if not given, the one in the manifests of this machine", metavar="dir", form=PATH),
)
_HOW = "Needs no API server: the endpoints of etcd are read from this machine's manifests, and its certificates give access."

_RESTORE_FLAGS = (
    Flag("from-this-member", "use the data of this machine's member, for example if the other members are lost", kind=BOOL, default=False),
    Flag("fence", "only stop etcd and the API server of this machine, before another machine restores", kind=BOOL, default=False),
    Flag("unfence", "start what --fence has stopped", kind=BOOL, default=False),
    Flag("peers-are-gone", "confirm that the machines of members that do not answer no longer exist", kind=BOOL, default=False),
    ETCDUTL,
    Flag("again", "restore even if etcd already is the cluster that was restored from the same data", kind=BOOL, default=False),
    YES,
    PLAN,
    ALL_FORMATS,
)
_RESTORE = {flag.name: flag for flag in _RESTORE_FLAGS}
_REPLACE_FLAGS = (
    Flag("after", "how long the member must not have served before you are asked", kind=DURATION, default="1m0s"),
    Flag("endpoints", "client URLs of other members; if not given, they are looked up", kind=LIST, metavar="urls"),
    Flag("again", "replace the member even if the last run has replaced it, and it serves", kind=BOOL, default=False),
    YES,
    PLAN,
    ALL_FORMATS,
)
_REPLACE = {flag.name: flag for flag in _REPLACE_FLAGS}
_FILE = Argument("file", "snapshot to restore", shown="[FILE]")

ROWS = (
    Command("etcd", summary("etcd")),
    Command(
        "etcd status",
        "Show the state of the members of etcd",
        handler="kubewright.cli.handlers.etcd:status",
        flags=(*_WHERE, ALL_FORMATS),
        description=f"All members are queried at once, each for two seconds. Exits with 0 if all of them serve and none has raised an alarm, 4 otherwise. {_HOW}",
        examples=("etcd status", "etcd status -o json"),
    ),
    Command("etcd member", "List, remove and replace members of etcd"),
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
        flags=(*_WHERE, YES, ALL_FORMATS),
        description="For a member whose machine no longer exists; on a machine that does, `reset` removes the member together with its data."
        " A member is not removed if the others would then not have a majority. The etcd of a removed member stops; its data stays."
        " A member that etcd does not have is an error, as with etcdctl, also right after its removal: etcd keeps no names of removed members.",
        examples=("etcd member remove three", "etcd member remove 83372268fbcf589d --yes"),
    ),
    Command(
        "etcd member replace",
        "Let this machine's member of etcd receive all data from the other members",
        flags=_REPLACE_FLAGS,
        description="The member is removed, and added again as a new one, first without a vote. Use this for a member that lost its data, whose data"
        " is corrupt, or that was fenced by `etcd restore --fence`. A member that does not serve may be starting, so the command waits (--after) before it asks;"
        " with --yes it does neither. The others must have a majority. etcd and the API server of this machine are"
        " stopped meanwhile; the earlier data is renamed, not removed. Running the same command again continues an interrupted one, and changes nothing after"
        " a completed one, as long as the member serves.",
        examples=("etcd member replace", "etcd member replace --endpoints https://10.0.0.1:2379 --yes"),
        workflow=Workflow(
            "kubewright.lifecycle.etcd.replace:PHASES",
            flags=_REPLACE,
            ours="plan output",
            operation="kubewright.lifecycle.etcd.replace:ROW",
            request="kubewright.cli.handlers.etcd:replace_request",
        ),
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
        f" FILE.json next to it describes the cluster that the snapshot belongs to. A snapshot contains all Secrets, unencrypted unless the API server encrypts them. {_HOW}",
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
        " Exits with 3 if the file is not a complete snapshot.",
        examples=("etcd snapshot verify /var/backups/etcd.db",),
    ),
    Command(
        "etcd restore",
        "Start a new etcd cluster with one member, from a snapshot or from this member's data",
        argument=_FILE,
        flags=_RESTORE_FLAGS,
        description="This machine's member becomes the only one. etcd and the API server of this machine are stopped meanwhile, and the other members"
        " have to be stopped: run `etcd restore --fence` on their machines, or pass --peers-are-gone. The earlier data is renamed, not removed."
        " Revisions never decrease, and watching clients have to list again. If etcd does not serve the restored data, the earlier data is put back."
        " Running the same command again continues a restore that was interrupted, and changes nothing after one that was finished. Afterwards run `etcd member replace` on the other control planes.",
        examples=("etcd restore /var/backups/etcd.db", "etcd restore --from-this-member --peers-are-gone", "etcd restore --fence"),
        workflow=Workflow(
            "kubewright.lifecycle.etcd.restore:PHASES",
            flags=_RESTORE,
            arguments={"file": _FILE},
            ours="plan output",
            operation="kubewright.lifecycle.etcd.restore:ROW",
            request="kubewright.cli.handlers.etcd:restore_request",
        ),
    ),
)
