"""A fake Go: answers `env`, `list` and `build` as configured, and records its calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import binaries_programs as programs

SCRIPT = """#!/bin/sh
own=$PATH; PATH=/usr/bin:/bin
here=$(dirname "$0")
{ echo "cwd=$PWD"; for word in "$@"; do echo "arg=$word"; done; echo "PATH=$own"; env | grep -v ^PATH=; echo "--"; } >> "$here/../calls"
verb=$1; out=""; packages=""
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out=$2; shift ;;
    k8s.io/*|go.etcd.io/*|github.com/*) packages="$packages $1" ;;
  esac
  shift
done
. "$here/../behaviour"
case "$verb" in
  env) echo "${version:-go1.26.8}" ;;
  list) echo "go: downloading example.com/one v1.0.0"; for p in $packages; do echo "$p"; done ;;
  build)
    for p in $packages; do
      echo "$p"
      name=$(basename "$p"); [ "$name" = v3 ] && name=$(basename "$(dirname "$p")")
      cp "$here/../programs/$name" "$out$name"
    done ;;
esac
"""


@dataclass(frozen=True)
class FakeGo:
    """A directory with `bin/go`, the programs that it will build, and a shell snippet that injects a fault."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> FakeGo:
        programs.put(root / "bin", "go", SCRIPT.encode())
        for name in ("kube-apiserver", "kubectl", "kube-scheduler", "kube-controller-manager"):
            programs.put(root / "programs", name, programs.program(name))
        programs.put(root / "programs", "server", programs.program("etcd"))
        (root / "behaviour").write_text("")
        return cls(root)

    def behave(self, snippet: str) -> None:
        """Run a piece of shell before every answer; `$verb` is the subcommand."""
        (self.root / "behaviour").write_text(snippet)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.root}/bin:/usr/bin:/bin", "HOME": str(self.root)}

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        """Return arguments and environment of each call; the working directory is `cwd` in the environment."""
        path = self.root / "calls"
        found = []
        for call in path.read_text().split("--\n")[:-1] if path.exists() else []:
            pairs = [line.partition("=") for line in call.splitlines()]
            arguments = [value for key, _, value in pairs if key == "arg"]
            found.append((arguments, {key: value for key, _, value in pairs if key != "arg"}))
        return found

    def builds(self) -> list[list[str]]:
        return [arguments for arguments, _ in self.calls() if arguments[0] == "build"]


def stamps_of(directory: Path) -> dict[str, dict[str, object]]:
    """Read the stamp file of a directory of the cache."""
    document = json.loads((directory / "stamps.json").read_text())
    return dict(document["programs"])
