#!/bin/bash
# Prints the pages of docs/ that come from tables anew. The ctest `docs` fails when one is stale.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
build=${RONDO_BUILD:-build}

case "${1:-}" in
'') ;;
*)
    cat <<'END_OF_USAGE'
Usage: scripts/docs.sh

Builds rondo-print-docs in build/ (RONDO_BUILD: elsewhere) and lets it write docs/states.md and
docs/reference/*.md from the tables of the programs.
END_OF_USAGE
    exit $(($# == 1 ? 0 : 2))
    ;;
esac

mkdir -p "$build/log" docs/reference
[ -f "$build/build.ninja" ] ||
    timeout 300 cmake -S . -B "$build" -G Ninja >"$build/log/docs.txt" 2>&1 </dev/null
timeout 1800 ninja -C "$build" rondo-print-docs >"$build/log/docs.txt" 2>&1 </dev/null ||
    { tail -n 20 "$build/log/docs.txt"; exit 1; }
"$build/tests/rondo-print-docs" .
git --no-pager diff --stat -- docs 2>/dev/null || true
