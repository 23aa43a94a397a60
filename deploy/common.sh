# Shared by deploy/quickstart and tests/run; source it with `me` set to the script's name and `root` to the repository.
# shellcheck shell=bash

say() { printf '%s: %s\n' "${me:?}" "$*" >&2; }

die() {
  printf '%s: error: %s\n' "${me:?}" "$*" >&2
  exit 1
}

# need_packages PACKAGE…: installs Debian packages as root, or says what is missing.
need_packages() {
  [ $# -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "missing: $*. Install them (sudo apt-get install $*) and run this again"
  command -v apt-get >/dev/null || die "missing: $*, and this is not a Debian system: install them and run this again"
  local log
  log=$(mktemp "${TMPDIR:-/tmp}/laneyard-apt.XXXXXX")
  say "installing $*"
  {
    apt-get update && DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
      apt-get install --yes --no-install-recommends "$@"
  } >"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; die "apt-get failed, its log is $log"; }
  rm -f "$log"
}

# need_build_tools: a Rust toolchain, a C compiler (SQLite is built from source) and git.
need_build_tools() {
  [ -n "${HOME:-}" ] || export HOME=/root
  command -v cargo >/dev/null || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  local packages=() needed
  needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "${root:?}/Cargo.toml")
  command -v cc >/dev/null || packages+=(gcc libc6-dev)
  command -v git >/dev/null || packages+=(git ca-certificates)
  need_packages "${packages[@]}"
  command -v cargo >/dev/null || die "no Rust toolchain. Install Rust $needed or newer: see https://rustup.rs, or
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt"
}

# need_image_tools: what images/build needs on this machine.
need_image_tools() {
  local packages=()
  command -v npm >/dev/null || packages+=(nodejs npm)
  PATH=$PATH:/usr/sbin command -v debootstrap >/dev/null || [ "$(id -u)" != 0 ] || packages+=(debootstrap)
  need_packages "${packages[@]}"
}
