#!/bin/bash
# The long tests: many seeds, long outages, long fuzzing. Takes hours; scripts/test.sh is what
# every change must pass.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

usage() {
    cat <<'END'
Usage: scripts/nightly.sh

Builds as scripts/test.sh does, then runs, one after the other:

  sim      20,000 seeds of the simulated cluster from a new first seed (SIM_FIRST, SIM_SEEDS)
  gates    2,000,000 schedules of the gate protocol (GATE_SEEDS)
  outage   the end-to-end tests with the database away for 1, 60 and 600 s (RONDO_AWAY_S)
  fuzz     every fuzz target for FUZZ_SECONDS (600) each

Ends with "N passed, N failed".

Example:
  SIM_SEEDS=1000 FUZZ_SECONDS=30 scripts/nightly.sh
END
}

case "${1:-}" in
    "") ;;
    *) usage; exit 0 ;;
esac

passed=0 failed=0
check() { # check NAME command...
    local name=$1
    shift
    printf '%s %s\n' "$(date -u +%H:%M:%S)" "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s: FAILED\n' "$name"
    fi
}

check setup scripts/setup.sh
check build cmake -S . -B build -G Ninja -DCMAKE_C_COMPILER_LAUNCHER=ccache
check build ninja -C build
check sim env RONDO_BUILD=build timeout 36000 tests/sim/run \
    --first-seed "${SIM_FIRST:-$(date +%s)}" --seeds "${SIM_SEEDS:-20000}"
check gates env GATE_SEEDS="${GATE_SEEDS:-2000000}" timeout 7200 build/tests/unit_worker_test_gate
for away in 1 60 600; do
    check "outage $away s" env RONDO_BUILD="$PWD/build" RONDO_AWAY_S="$away" timeout 3600 \
        /usr/bin/python3 -m pytest -q tests/e2e/test_faults.py -k away
done
check fuzz-build cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang-14 \
    -DRONDO_SANITIZE=address
check fuzz-build ninja -C build-fuzz
for target in build-fuzz/tests/fuzz_*; do
    [ -x "$target" ] || continue
    check "$(basename "$target")" timeout 7200 "$target" -max_total_time="${FUZZ_SECONDS:-600}"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
