#!/usr/bin/python3
"""Counts test cases in JUnit files: prints "PASSED FAILED SKIPPED"; on stderr each failed one and
the lines of its output that say why, so that a log that was cut still tells.

CTest reports one case a program; where the program is a CMocka one its own cases are counted
instead, from what it printed. A program that failed without saying so counts as one failure.
"""
import re
import sys
import xml.etree.ElementTree as tree

REASONS = 15
COMPLAINT = re.compile(r"^\[  ERROR   \]|^\[   LINE   \]|^\[  FAILED  \]|^E  |error:|ERROR:"
                       r"|SUMMARY:|WARNING: T|[Aa]ssert|    #[0-5] ")


def cmocka_cases(output):
    """(passed, failed, skipped) by CMocka's closing lines; None when it is no CMocka program."""
    if not re.search(r"^\[=+\] .*\d+ test\(s\) run\.", output, re.M):
        return None

    def total(word):
        return sum(map(int, re.findall(rf"^\[ +{word} +\] (\d+) test", output, re.M)))

    return total("PASSED"), total("FAILED"), total("SKIPPED")


def case_counts(case):
    """(passed, failed, skipped) of one <testcase>."""
    failed = case.find("failure") is not None or case.find("error") is not None
    skipped = case.find("skipped") is not None
    inner = cmocka_cases(case.findtext("system-out") or "")
    if inner:
        return inner[0], inner[1] or int(failed), inner[2]
    return int(not failed and not skipped), int(failed), int(skipped and not failed)


def reasons(case):
    """What a failed <testcase> said: the lines of complaint, or its last ones without any."""
    said = "\n".join(case.findtext(tag) or "" for tag in ("failure", "error", "system-out"))
    lines = [line for line in said.splitlines() if line.strip()]
    return [line for line in lines if COMPLAINT.search(line)][:REASONS] or lines[-REASONS:]


def main(paths):
    """Sums over files; a file that cannot be read is one failure."""
    sums = [0, 0, 0]
    for path in paths:
        try:
            cases = list(tree.parse(path).iter("testcase"))
        except (OSError, tree.ParseError) as problem:
            print(f"  no result: {path}: {problem}", file=sys.stderr)
            sums[1] += 1
            continue
        for case in cases:
            counts = case_counts(case)
            sums = [a + b for a, b in zip(sums, counts)]
            if counts[1]:
                name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
                print(f"  failed: {name}", file=sys.stderr)
                for line in reasons(case):
                    print(f"    {line[:200]}", file=sys.stderr)
    print(*sums)


if __name__ == "__main__":
    main(sys.argv[1:])
