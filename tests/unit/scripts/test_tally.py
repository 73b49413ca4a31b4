"""scripts/tally.py counts CMocka's own cases, and never loses a failure."""
import os
import subprocess
import sys

TALLY = os.path.join(os.path.dirname(__file__), "../../../scripts/tally.py")


def tally(tmp_path, cases):
    """The three numbers for a JUnit file with these cases."""
    path = tmp_path / "r.xml"
    path.write_text(f"<testsuite>{cases}</testsuite>")
    done = subprocess.run([sys.executable, TALLY, str(path)], capture_output=True, text=True,
                          check=True)
    return done.stdout.strip(), done.stderr


def cmocka(run, passed, failed=0, skipped=0):
    """What a CMocka program prints at its end."""
    lines = [f"[==========] {run} test(s) run.", f"[  PASSED  ] {passed} test(s)."]
    if skipped:
        lines.append(f"[  SKIPPED ] {skipped} test(s), listed below:")
    if failed:
        lines.append(f"[  FAILED  ] {failed} test(s), listed below:")
    return "<system-out>" + "\n".join(lines) + "</system-out>"


def test_plain_cases_are_counted(tmp_path):
    """As pytest writes them."""
    cases = ('<testcase name="a"/><testcase name="b"><failure/></testcase>'
             '<testcase name="c"><error/></testcase><testcase name="d"><skipped/></testcase>')
    numbers, named = tally(tmp_path, cases)
    assert numbers == "1 2 1"
    assert "failed: b" in named and "failed: c" in named


def test_cmocka_cases_are_counted_by_case(tmp_path):
    """As CTest writes them."""
    cases = (f'<testcase name="a">{cmocka(7, 7)}</testcase>'
             f'<testcase name="b"><failure/>{cmocka(5, 2, 2, 1)}</testcase>')
    assert tally(tmp_path, cases)[0] == "9 2 1"


def test_a_crash_after_passing_is_a_failure(tmp_path):
    """A sanitizer that reports at exit fails a program whose cases all passed."""
    cases = f'<testcase name="a"><failure/>{cmocka(3, 3)}</testcase>'
    assert tally(tmp_path, cases)[0] == "3 1 0"


def test_a_missing_file_is_a_failure(tmp_path):
    """A step that left no result did not pass."""
    done = subprocess.run([sys.executable, TALLY, str(tmp_path / "none")], capture_output=True,
                          text=True, check=True)
    assert done.stdout.strip() == "0 1 0"


def test_a_failed_case_says_why(tmp_path):
    """The lines that complain, out of however much else was printed; the last ones without any."""
    chatter = "\n".join(f"line {i}" for i in range(100))
    why = "[  ERROR   ] --- 0x1 != 0x2\n[   LINE   ] --- test_x.c:12: error: Failure!"
    said = [f"<failure/><system-out>{text}</system-out>"
            for text in (f"{chatter}\n{why}\n{chatter}", chatter)]
    cases = "".join(f'<testcase name="{i}">{text}</testcase>' for i, text in enumerate(said))
    named = tally(tmp_path, cases)[1]
    assert "test_x.c:12" in named and "0x1 != 0x2" in named and "line 99" in named
    assert len(named.splitlines()) < 25
