# Shared by the scripts of this directory; source it with `here` set to that directory.
# shellcheck shell=bash

say() { printf 'images: %s\n' "$*" >&2; }

die() {
  printf 'images: error: %s\n' "$*" >&2
  exit 1
}

# pin SECTION KEY: a value of versions.toml, empty if there is none. The file keeps to `key = "value"` lines.
pin() {
  awk -v section="[$1]" -v key="$2" '
    /^\[/ { inside = ($0 == section) }
    inside && $1 == key && $2 == "=" { sub(/^[^"]*"/, ""); sub(/"[^"]*$/, ""); print; exit }
  ' "${here:?}/versions.toml"
}

debian_arch() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64 | arm64) echo arm64 ;;
    *) die "no images for $(uname -m): only x86_64 and aarch64" ;;
  esac
}

# in_store STORE COMMAND…: runs the store's own engine program. STORE is docker, podman or podman:USER.
in_store() {
  local store=$1 user uid home
  shift
  case $store in
    docker | podman) "$store" "$@" ;;
    podman:*)
      user=${store#podman:}
      uid=$(id -u "$user") || die "no such user: $user"
      home=$(getent passwd "$user" | cut -d: -f6)
      (cd / && runuser -u "$user" -- env -i PATH="$PATH" HOME="$home" XDG_RUNTIME_DIR="/run/user/$uid" podman "$@")
      ;;
    *) die "unknown store '$store': docker, podman or podman:USER" ;;
  esac
}

answers() { in_store "$1" version >/dev/null 2>&1; }
