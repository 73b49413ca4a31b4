#!/bin/bash
# The main job, from nothing: packages, build, a cluster, a training job, a crash, the result.
# Last line "demo: ok"; exit 0 only then.
set -euo pipefail
exec </dev/null
umask 022

usage() {
    cat <<'HELP'
Usage: scripts/demo.sh [--width COLUMNS]

Installs the Debian packages (scripts/setup.sh), builds into build/, then in a private directory:
starts rondod dev with three agents, submits examples/charlm/job.yaml (a small GPT, two PyTorch
ranks), kills one rank with SIGKILL in the middle, and checks that the next attempt went on at the
last committed checkpoint and that the loss fell. Leaves no process, port or directory behind.

As root or as anybody (who needs sudo where packages are missing); from any directory; again and
again. The run takes about half a minute on two free cores.

  --width COLUMNS   draw for a terminal this wide (default: this terminal)

Environment: RONDO_BUILD, the build directory (default: build).
HELP
}

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
build=${RONDO_BUILD:-build}
[[ $build = /* ]] || build=$root/$build
targets=(rondod rondo-agent rondo-shim rondoctl rondo rondo_python)

fail() {
    echo "demo: failed: $*" >&2
    exit 1
}

# A tree that belongs to somebody else than root is built as him, so that he can go on with it.
as_owner=()
find_owner() {
    local owner group
    owner=$(stat -c %u "$root") group=$(stat -c %g "$root")
    if [ "$(id -u)" -eq 0 ] && [ "$owner" -ne 0 ] &&
        { [ ! -e "$build" ] || [ "$(stat -c %u "$build")" -eq "$owner" ]; }; then
        as_owner=(setpriv --reuid "$owner" --regid "$group" --clear-groups --)
    fi
}

# wait_child: for the last background command; a signal to us ends it first.
child=
wait_child() {
    local rc=0
    child=$!
    wait "$child" || rc=$?
    child=
    return "$rc"
}
stop() {
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" || true
    fi
    exit $((128 + $1))
}

# bounded SECONDS NAME command...: output to a log; its end is shown when it fails.
bounded() {
    local limit=$1 log="$build/log/demo-$2.txt" name=$2 rc=0
    shift 2
    rm -f "$log"
    ${as_owner[@]+"${as_owner[@]}"} timeout -k 10 "$limit" "$@" >"$log" 2>&1 &
    wait_child || rc=$?
    if [ "$rc" -ne 0 ]; then
        grep -E 'error:|CMake Error|undefined reference' "$log" | head -n 20 || true
        echo "  ..."
        tail -n 20 "$log" || true
        fail "$name: exit $rc (limit $limit s); all of it is in $log"
    fi
}

build_all() {
    local cache=${CCACHE_DIR:-${HOME:-/nonexistent}/.cache/ccache}
    find_owner
    ${as_owner[@]+"${as_owner[@]}"} mkdir -p "$build/log"
    ${as_owner[@]+"${as_owner[@]}"} test -w "$cache" || cache=$build/ccache
    bounded 300 configure env CCACHE_DIR="$cache" cmake -S "$root" -B "$build" -G Ninja \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache
    bounded 1800 build env CCACHE_DIR="$cache" ninja -C "$build" "${targets[@]}"
}

main() {
    local width=()
    while [ $# -gt 0 ]; do
        case "$1" in
        -h | --help) usage && exit 0 ;;
        --width) width=(--width "${2:?columns}") && shift 2 ;;
        *) usage >&2 && exit 2 ;;
        esac
    done
    trap 'stop 1' HUP
    trap 'stop 2' INT
    trap 'stop 15' TERM
    echo "== packages"
    timeout -k 10 1800 "$root/scripts/setup.sh" &
    wait_child || fail "scripts/setup.sh: exit $?"
    echo "== build"
    local begin=$SECONDS
    build_all
    echo "built in $((SECONDS - begin)) s"
    cd /
    exec /usr/bin/python3 -B "$root/scripts/demo.py" --root "$root" --build "$build" \
        ${width[@]+"${width[@]}"}
}

main "$@"
