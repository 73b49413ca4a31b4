#!/bin/bash
# All tests, from nothing. Last line: "N passed, N failed, N skipped"; exit 0 only when none failed.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

all_parts=(setup tidy unit asan tsan lint sim e2e)

usage() {
    cat <<'END'
Usage: scripts/test.sh [PART...]

Runs the tests, all parts by default, in this order:

  setup   install the Debian packages (scripts/setup.sh)
  tidy    rules of the tree: sizes, names, includes, READMEs (tests/tidy/tidy.py)
  unit    release build in build/, unit tests in C
  asan    build-asan/ with address and undefined behaviour sanitizers, the same tests, 50 seeds
  tsan    build-tsan/ with clang (its warnings are errors) and the thread sanitizer, the same tests
  lint    clang-tidy over our C, newest changes first, for at most LINT_SECONDS (240)
  sim     500 seeds of the simulated cluster (SIM_SEEDS)
  e2e     pytest: real processes, and the Python unit tests; two files more than cores at a time

Logs are kept as build*/log/PART.txt. A part that needs build/ makes it.

Examples:
  scripts/test.sh
  scripts/test.sh tidy unit
  PYTEST_ARGS='-k cancel -x' scripts/test.sh e2e
  PATIENCE=4 scripts/test.sh asan      a machine that is busy with other things: limits times 4
END
}

passed=0 failed=0 skipped=0
jobs=$(nproc 2>/dev/null || echo 2)
python=/usr/bin/python3
elsewhere='^tidy$|_python$' # by part tidy; by pytest
export HOME="${HOME:-/root}" LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-abort_on_error=0:detect_leaks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-ignore_noninstrumented_modules=1:report_thread_leaks=0}"

say() { printf '%s %s\n' "$(date -u +%H:%M:%S)" "$*"; }

# count PART PASSED FAILED SKIPPED
count() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    say "$1: $2 passed, $3 failed, $4 skipped"
}

# count_junit PART FILE STATUS: a run that failed without naming a case is one failure more.
count_junit() {
    local p f s
    read -r p f s < <($python scripts/tally.py "$2")
    if [ "$3" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    count "$1" "$p" "$f" "$s"
}

# bounded SECONDS LOG command...: output to the log, its end shown when it fails.
bounded() {
    local limit=$(($1 * ${PATIENCE:-1})) log=$2 rc=0
    shift 2
    mkdir -p "$(dirname "$log")"
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ "$rc" -ne 0 ]; then
        say "$(basename "$log" .txt): exit $rc (limit $limit s); from $log:"
        grep -E 'error:|undefined reference|^FAILED|ERROR|SUMMARY' "$log" | head -n 40
        echo "  ..." && tail -n "${TAIL_LINES:-40}" "$log"
    fi
    return "$rc"
}

# build DIR cmake-option...: configure and build all.
build() {
    local dir=$1
    shift
    [ ! -f "$dir/.built-now" ] || return 0
    bounded 120 "$dir/log/configure.txt" cmake -S . -B "$dir" -G Ninja \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache "$@" || return 1
    bounded 900 "$dir/log/build.txt" ninja -C "$dir" -j "$jobs" -k 20 || return 1
    touch "$dir/.built-now"
}

# run_ctest PART DIR LEFT_OUT [wrapper...]: LEFT_OUT is a pattern of tests that are run elsewhere.
run_ctest() {
    local part=$1 dir=$2 left_out=$3 rc=0
    shift 3
    rm -f "$dir/log/ctest.xml"
    # Half of what the tests do is to wait for a disk or a child: more of them than cores.
    bounded 900 "$dir/log/$part.txt" "$@" ctest --test-dir "$dir" -j $((jobs + 2)) \
        --timeout $((300 * ${PATIENCE:-1})) -E "$left_out" \
        --output-on-failure --no-tests=error --output-junit "log/ctest.xml" \
        --test-output-size-passed 200000 --test-output-size-failed 200000 || rc=$?
    count_junit "$part" "$dir/log/ctest.xml" "$rc"
}

# run_seeds PART DIR SEEDS: the simulator ends with "N seeds, B broken".
run_seeds() {
    local part=$1 dir=$2 seeds=$3 log="$2/log/$1.txt" last
    [ -x tests/sim/run ] || return 0
    RONDO_BUILD="$dir" bounded 600 "$log" tests/sim/run --first-seed 1 --seeds "$seeds"
    last=$(sed -n 's/^\([0-9]*\) seeds, \([0-9]*\) broken$/\1 \2/p' "$log" | tail -n 1)
    if [ -z "$last" ]; then
        count "$part" 0 1 0
    else
        count "$part" $((${last% *} - ${last#* })) "${last#* }" 0
    fi
}

part_setup() {
    mkdir -p build/log
    timeout -k 10 1800 scripts/setup.sh </dev/null || count setup 0 1 0
}

part_tidy() {
    local broken=0
    bounded 120 build/log/tidy.txt $python tests/tidy/tidy.py || broken=1
    count tidy $((1 - broken)) "$broken" 0
}

part_unit() {
    build build || { count unit 0 1 0; return; }
    run_ctest unit build "$elsewhere"
}

part_asan() {
    # gcc's warnings are wrong at times between instrumented code; the release build has them.
    build build-asan -DRONDO_SANITIZE=address -DRONDO_WERROR=OFF -DCMAKE_BUILD_TYPE=Debug ||
        { count asan 0 1 0; return; }
    # test_gate switches stacks by longjmp: the sanitizer warns that it cannot follow, and reports
    # faults that are none. The code under test is covered there by test_rondo and the simulator.
    run_ctest asan build-asan "$elsewhere|worker_test_gate$"
    run_seeds asan-sim build-asan 50
}

# Thread sanitizers of this age dislike much address randomisation; switch it off where one may.
part_tsan() {
    local wrapper=()
    build build-tsan -DRONDO_SANITIZE=thread -DCMAKE_C_COMPILER=clang-14 ||
        { count tsan 0 1 0; return; }
    if setarch -R true 2>/dev/null; then wrapper=(setarch -R); fi
    # test_gate switches stacks by longjmp, which the thread sanitizer cannot follow.
    run_ctest tsan build-tsan "$elsewhere|worker_test_gate$" ${wrapper[@]+"${wrapper[@]}"}
}

part_lint() {
    local sums
    build build || { count lint 0 1 0; return; }
    bounded $((${LINT_SECONDS:-240} + 120)) build/log/lint.txt \
        $python scripts/lint.py --build build --jobs "$jobs" --seconds "${LINT_SECONDS:-240}"
    sums=$(tail -n 1 build/log/lint.txt |
        sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    # shellcheck disable=SC2086 # three numbers
    count lint ${sums:-0 1 0}
}

part_sim() {
    build build || { count sim 0 1 0; return; }
    run_seeds sim build "${SIM_SEEDS:-500}"
}

part_e2e() {
    local path paths=() rc=0
    for path in tests/e2e tests/unit; do
        if [ -n "$(find "$path" -name 'test_*.py' -print -quit 2>/dev/null)" ]; then
            paths+=("$path")
        fi
    done
    [ "${#paths[@]}" -gt 0 ] || return 0
    build build || { count e2e 0 1 0; return; }
    rm -f build/log/pytest.xml
    # shellcheck disable=SC2086 # PYTEST_ARGS is words
    TAIL_LINES=150 bounded 900 build/log/e2e.txt $python -m pytest -p no:cacheprovider -q -ra \
        -n $((jobs + 2)) --dist loadfile --durations=10 --junitxml=build/log/pytest.xml \
        ${PYTEST_ARGS:-} "${paths[@]}" || rc=$?
    count_junit e2e build/log/pytest.xml "$rc"
}

main() {
    local parts=() part begin
    for part in "$@"; do
        case "$part" in
        -h | --help) usage && exit 0 ;;
        esac
        if [[ " ${all_parts[*]} " != *" $part "* ]]; then
            usage >&2
            exit 2
        fi
        parts+=("$part")
    done
    [ "${#parts[@]}" -gt 0 ] || parts=("${all_parts[@]}")
    rm -f build/.built-now build-asan/.built-now build-tsan/.built-now
    for part in "${parts[@]}"; do
        say "$part ..."
        begin=$SECONDS
        "part_$part"
        say "$part took $((SECONDS - begin)) s"
    done
    say "all took $SECONDS s"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

main "$@"
