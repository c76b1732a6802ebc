#!/usr/bin/env bash
# What `make` needs before there is a virtual environment: Python >= 3.11 with venv. Further arguments add what these need: `runc` the build of
# runc, the only component with parts in C; `bundle` the archive's launcher; `machine-tree` the parts of whole machines in one file; `shells` the
# tests of shell completion; `virtual-hosts` virtual machines with Debian.
# As root with apt, missing packages are installed; otherwise the command that installs them is named. Never uses sudo.
set -euo pipefail
python=${1-}

install() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
  else
    echo "error: $1 is missing" >&2
    echo "hint: install it as root, on Debian and Ubuntu with: apt-get install $*" >&2
    exit 1
  fi
}

[ "$(uname -s)" = Linux ] || { echo "error: kubewright runs on Linux only, not on $(uname -s)" >&2; exit 1; }
if [ -z "$python" ]; then
  echo "error: no Python 3.11 or later was found as /usr/bin/python3 or python3" >&2
  echo "hint: install one and pass it with: make PYTHON=/path/to/python3 ..." >&2
  exit 1
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
if [[ " ${*:2} " = *" shells "* ]]; then
  command -v zsh >/dev/null && command -v fish >/dev/null || install zsh fish
fi
if [[ " ${*:2} " = *" runc "* ]]; then
  { command -v gcc && command -v pkg-config && pkg-config --exists libseccomp; } >/dev/null 2>&1 || install gcc libc6-dev libseccomp-dev pkg-config
fi
if [[ " ${*:2} " = *" bundle "* ]]; then
  { command -v gcc && [ -e "$(gcc -print-file-name=libc.a)" ]; } >/dev/null 2>&1 || install gcc libc6-dev
fi
if [[ " ${*:2} " = *" machine-tree "* ]]; then
  { command -v debootstrap && command -v zstd; } >/dev/null 2>&1 || install debootstrap zstd
fi
if [[ " ${*:2} " = *" virtual-hosts "* ]]; then
  # the others build and run Linux in user mode, for hosts without KVM
  { command -v qemu-system-x86_64 && command -v mmdebstrap && command -v slirp4netns && command -v flex && command -v bison && command -v bc &&
    command -v gcc && command -v xz && [ -e "$(gcc -print-file-name=libc.a)" ]; } >/dev/null 2>&1 ||
    install qemu-system-x86 mmdebstrap slirp4netns flex bison bc gcc libc6-dev xz-utils
fi
