#!/bin/bash
# Installs what Rondo needs to build, run and be tested on Debian 12. Idempotent; root or sudo.
set -euo pipefail

usage() {
    cat <<'END'
Usage: scripts/setup.sh [--check | --list]

Installs the Debian packages that building, running and testing Rondo need. Does nothing, and needs
no rights, when all of them are there. Never lets Debian create or start a PostgreSQL cluster.

  --check   install nothing; exit 1 and name what is missing
  --list    print the package names

Examples:
  scripts/setup.sh
  scripts/setup.sh --check
END
}

# The one list. build, code tools, libraries, Python side, database, network tools of the tests.
packages=(
    build-essential cmake ninja-build ccache pkg-config
    clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev
    libgrpc-dev libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
    libuv1-dev libpq-dev libssl-dev libmicrohttpd-dev libyaml-dev libjansson-dev libcmocka-dev
    libhwloc-dev libxxhash-dev libzstd-dev libarchive-dev
    python3 protobuf-compiler-grpc python3-grpcio python3-protobuf python3-pytest python3-psycopg2
    python3-pytest-xdist python3-torch libopenblas0-pthread python3-numpy
    postgresql-15 postgresql-contrib
    iproute2 nftables curl procps openssl tmux fio
)

missing() {
    comm -23 <(printf '%s\n' "${packages[@]}" | sort -u) \
        <(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>/dev/null |
            sed -n 's/^ii //p' | sort -u)
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n -- "$@"; fi
}

# retry SECONDS command...: again every 5 s until it works or the time is up.
retry() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        echo "setup: failed, trying again: $*" >&2
        sleep 5
    done
}

# Debian creates and starts a cluster on port 5432 unless this file says no before the install.
forbid_default_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf
    if grep -qs '^[[:space:]]*create_main_cluster' "$conf"; then return; fi
    as_root mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 apt-get \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Install-Recommends=false \
        -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef -qq -y "$@" </dev/null
}

main() {
    case "${1:-}" in
    -h | --help) usage && return ;;
    --list) printf '%s\n' "${packages[@]}" && return ;;
    --check | '') ;;
    *) usage >&2 && return 2 ;;
    esac
    if ! command -v apt-get >/dev/null; then
        echo "setup: this is not Debian: no apt-get" >&2
        return 1
    fi
    local lacking
    lacking=$(missing)
    if [ -z "$lacking" ]; then
        echo "setup: all ${#packages[@]} packages are installed"
        return
    fi
    echo "setup: missing:" $lacking
    [ "${1:-}" != --check ] || return 1
    if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; then
        echo "setup: run it as root, or allow sudo without a password" >&2
        return 1
    fi
    forbid_default_cluster
    retry 300 apt_get update
    # shellcheck disable=SC2086 # one word a package
    retry 900 apt_get install $lacking
    lacking=$(missing)
    if [ -n "$lacking" ]; then
        echo "setup: still missing:" $lacking >&2
        return 1
    fi
    echo "setup: done in $SECONDS s"
}

main "$@"
