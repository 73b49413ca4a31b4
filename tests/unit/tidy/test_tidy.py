"""Each rule of tests/tidy/tidy.py finds what breaks it, and passes what does not."""
import os
import shutil
import subprocess
import sys

import pytest

TIDY = os.path.join(os.path.dirname(__file__), "../../tidy/tidy.py")
README = "# x\n"
GOOD = {
    "base/README.md": README,
    "base/good.h": "/* good.h - a noun.\n */\n#pragma once\n\nstruct good;\n"
                   "int good_count(const struct good *good);\n",
    "base/good.c": '#include "base/good.h"\n\n'
                   "int good_count(const struct good *good)\n{\n    return good != 0;\n}\n",
    "tests/README.md": README,
    "tests/unit/base/test_good.c": "/* test_good.c - tests it. */\n",
}


def tidy(root, files, *arguments):
    """Findings for a tree of files."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(os.path.join(os.path.dirname(TIDY), "../../.clang-format"), root)
    done = subprocess.run([sys.executable, TIDY, "--root", str(root), *arguments],
                          capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} findings"
    assert done.returncode == (1 if len(lines) > 1 else 0)
    return lines[:-1]


def body(statement):
    """A C function with one statement."""
    return f"void good_do(void)\n{{\n    {statement}\n}}\n"


BROKEN = [
    ("size", "base/good_x.c", "/* good_x.c - x. */\n" + "\n" * 801, "802 lines"),
    ("size", "base/x.py", "#" * 101 + "\n", "101 columns"),
    ("function", "base/good_x.c", "/* good_x.c - x. */\n" + body("\n" * 70), "good_do has"),
    ("function", "base/x.py", "def f():\n" + "    f()\n" * 70, "f has 71 lines"),
    ("banned", "base/good_x.c", "/* good_x.c - x. */\n" + body('strcpy(a, "b");'), "strcpy()"),
    ("banned", "scheduler/x.c", "/* x.c - x. */\n" + body("log_info(1);"), "log_info()"),
    ("header", "base/other.c", "int x;\n", "/* other.c - what it is"),
    ("header", "base/other.h", "/* other.h - x. */\n", "no #pragma once"),
    ("name", "base/other.h", "/* other.h - x. */\n#pragma once\nint good_other(void);\n",
     "good_other does not start with other_"),
    ("include", "base/good_x.c", '/* good_x.c - x. */\n#include "rpc/client.h"\n',
     "base may not include rpc/client.h"),
    ("include", "scheduler/x.c", '/* x.c - x. */\n#include "rondo/v1/job.pb-c.h"\n',
     "scheduler may not include rondo/"),
    ("include", "daemon/x.c", "/* x.c - x. */\n#include <grpc/grpc.h>\n", "only rpc"),
    ("include", "daemon/x.c", "/* x.c - x. */\n#include <libpq-fe.h>\n", "only daemon/store_pg*"),
    ("include", "daemon/x.c", '/* x.c - x. */\n#include "x.h"\n', "without its folder"),
    ("test", "base/other.c", "/* other.c - x. */\n", "no tests/unit/base/test_other.c"),
    ("readme", "ctl/other.c", "/* other.c - x. */\n", "missing"),
    ("readme", "base/README.md", "\n" * 61, "61 lines"),
    ("mark", "base/x.md", "TO" + "DO later\n", "mark"),
    ("mark", "base/x.md", "see /ho" + "me/someone/x\n", "path of one machine"),
    ("mark", "base/x.md", "from https://pypi.o" + "rg/simple\n", "registry host"),
]


def test_a_good_tree_has_no_findings(tmp_path):
    """No rule is broken by what keeps them all."""
    assert tidy(tmp_path, GOOD) == []


@pytest.mark.parametrize("rule,name,text,message", BROKEN)
def test_each_rule_finds_what_breaks_it(tmp_path, rule, name, text, message):
    """One broken file, one rule asked, one finding."""
    findings = tidy(tmp_path, {**GOOD, name: text}, "--rule", rule)
    assert len(findings) == 1
    assert f": {rule}: " in findings[0] and message in findings[0]


def test_comments_and_texts_are_not_code(tmp_path):
    """What only looks like a call or a brace is passed over."""
    text = "/* good_x.c - strcpy() it. */\n" + body('puts("strcpy(a) {"); /* gets() { */')
    assert tidy(tmp_path, {**GOOD, "base/good_x.c": text}) == []


def test_types_and_families_name_functions(tmp_path):
    """A header may export what starts with its family's noun or a type of its own."""
    text = ("/* good_part.h - x. */\n#pragma once\nstruct plate;\nenum shade { LIGHT };\n"
            "#define good_macro(x) other_thing(x)\nint good_split(void);\n"
            "void plate_turn(struct plate *plate, void (*done)(void *arg));\n"
            "static inline int helper(void)\n{\n    return 0;\n}\n")
    assert tidy(tmp_path, {**GOOD, "base/good_part.h": text}, "--rule", "name") == []


def test_exceptions_excuse_and_must_be_needed(tmp_path):
    """The list of exceptions only shrinks."""
    files = {**GOOD, "base/other.c": "/* other.c - x. */\n",
             "tests/tidy/exceptions.txt": "# why\ntest base/other.c  no code in it\n"}
    assert tidy(tmp_path, files, "--rule", "test") == []
    files["tests/tidy/exceptions.txt"] += "test base/good.c  old\n"
    findings = tidy(tmp_path, files, "--rule", "test")
    assert len(findings) == 1 and "exceptions.txt:3: exception: test base/good.c" in findings[0]
