"""tests/CASES.md: every case that is promised has a test, and every test that it names exists."""

import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parents[2]
PROMISED = [1, 3, 5, 7, *range(9, 14), *range(15, 24), 25, 26, *range(31, 36), *range(39, 43),
            *range(46, 50), 53, 54, 56]


def rows():
    for line in (TESTS / "CASES.md").read_text().splitlines():
        if found := re.fullmatch(r"\| ([KM]\d+|-) \| (\S+)::(\w+) \| (.+) \|", line):
            yield found.groups()


def test_every_case_has_a_test():
    assert {f"M{number}" for number in PROMISED} <= {case for case, *_ in rows()}


def test_every_named_test_exists_and_runs():
    for case, file, name, _ in rows():
        path = TESTS / ("unit" if "/" in file else "e2e") / file
        text = path.read_text()
        if path.suffix == ".py":
            assert re.search(rf"^def {name}\(", text, re.M), (case, file, name)
        else:  # defined, and in the list of main
            assert re.search(rf"\b{name}\(void", text), (case, file, name)
            assert len(re.findall(rf"\b{name}\b", text)) >= 2, (case, file, name)


def test_the_table_is_complete():
    table = [line for line in (TESTS / "CASES.md").read_text().splitlines()
             if line.startswith("| ")][1:]
    assert len(table) == len(list(rows()))
    assert all(len(line) <= 100 for line in table)
