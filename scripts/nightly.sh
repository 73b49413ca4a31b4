#!/bin/bash
# The long tests: many seeds, long outages, long fuzzing. Takes hours; scripts/test.sh is what
# every change must pass.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

all_parts=(setup build sim gates outage fuzz)

usage() {
    cat <<'END'
Usage: scripts/nightly.sh [PART...]

Runs the long tests, all parts by default, one after the other:

  setup    install the Debian packages (scripts/setup.sh)
  build    release build in build/; a part that needs it makes it
  sim      20,000 seeds of the simulated cluster from a new first seed (SIM_FIRST, SIM_SEEDS)
  gates    2,000,000 schedules of the gate protocol (GATE_SEEDS)
  outage   the end-to-end test with the database away for 1, 60 and 600 s (OUTAGES)
  fuzz     every fuzz target of tests/fuzz for FUZZ_SECONDS (600) each; what they learn is kept in
           build-fuzz/corpus/, what breaks one in build-fuzz/findings/

Ends with "N passed, N failed"; exit 0 only when none failed.

Examples:
  scripts/nightly.sh
  SIM_SEEDS=1000 FUZZ_SECONDS=30 OUTAGES=1 scripts/nightly.sh
  FUZZ_SECONDS=3600 scripts/nightly.sh fuzz
END
}

passed=0 failed=0
python=/usr/bin/python3
jobs=$(nproc 2>/dev/null || echo 2)
export HOME="${HOME:-/root}" LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

check() { # check NAME command...
    local name=$1 rc=0
    shift
    printf '%s %s\n' "$(date -u +%H:%M:%S)" "$name"
    "$@" </dev/null || rc=$?
    if [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s: FAILED, exit %s\n' "$name" "$rc"
    fi
    return "$rc"
}

configure_and_build() { # configure_and_build DIR TARGET cmake-option...
    local dir=$1 target=$2
    shift 2
    cmake -S . -B "$dir" -G Ninja -DCMAKE_C_COMPILER_LAUNCHER=ccache "$@" >/dev/null &&
        timeout -k 10 3600 ninja -C "$dir" -j "$jobs" "$target" | tail -n 20
}

built=""
need_build() {
    [ -n "$built" ] || check build configure_and_build build all || return 1
    built=yes
}

part_setup() { check setup timeout -k 10 1800 scripts/setup.sh; }
part_build() { need_build; }

# The simulator ends with "N seeds, 0 broken", or with another status than 0.
part_sim() {
    need_build || return
    check sim env RONDO_BUILD=build timeout -k 10 36000 tests/sim/run \
        --first-seed "${SIM_FIRST:-$(date +%s)}" --seeds "${SIM_SEEDS:-20000}"
}

part_gates() {
    need_build || return
    check gates env GATE_SEEDS="${GATE_SEEDS:-2000000}" timeout -k 10 7200 \
        build/tests/unit_worker_test_gate
}

part_outage() {
    local away
    need_build || return
    for away in ${OUTAGES:-1 60 600}; do
        check "outage $away s" env RONDO_BUILD=build RONDO_AWAY_S="$away" timeout -k 60 \
            $((1200 + 6 * away)) $python -m pytest -q -p no:cacheprovider \
            tests/e2e/test_away.py -k m41
    done
}

fuzz_one() { # fuzz_one PROGRAM NAME
    local corpus=build-fuzz/corpus/$2 findings=build-fuzz/findings/$2 kept=()
    mkdir -p "$corpus" "$findings"
    [ ! -d "tests/fuzz/corpus/$2" ] || kept=("tests/fuzz/corpus/$2")
    timeout -k 10 $((${FUZZ_SECONDS:-600} + 300)) "$1" -max_total_time="${FUZZ_SECONDS:-600}" \
        -max_len=4000 -timeout=30 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$findings/" "$corpus" "${kept[@]}"
}

part_fuzz() {
    local target count=0
    check fuzz-build configure_and_build build-fuzz fuzzers -DCMAKE_C_COMPILER=clang-14 \
        -DRONDO_SANITIZE=address || return
    for target in tests/fuzz/fuzz_*.c; do
        target=$(basename "$target" .c)
        check "$target" fuzz_one "build-fuzz/tests/$target" "$target"
        count=$((count + 1))
    done
    [ "$count" -gt 0 ] || check fuzz-targets false
}

parts=()
for word in "$@"; do
    case "$word" in
        -h | --help) usage; exit 0 ;;
        *)
            if ! printf '%s\n' "${all_parts[@]}" | grep -qx -- "$word"; then
                printf 'no such part: %s\n\n' "$word" >&2
                usage >&2
                exit 2
            fi
            parts+=("$word")
            ;;
    esac
done
[ "${#parts[@]}" -gt 0 ] || parts=("${all_parts[@]}")
for part in "${parts[@]}"; do
    "part_$part"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
