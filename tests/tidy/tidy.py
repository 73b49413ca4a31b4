#!/usr/bin/python3
"""The rules of the tree that a compiler does not check. `tidy.py [--root DIR] [--rule NAME...]`

Each rule is a generator of findings (path, line, detail, message). A finding is excused by a line
"rule path[:detail]  reason" in exceptions.txt; an excuse that is no longer needed is a finding too,
so the list only shrinks. Prints findings, then "N findings"; exit status 1 when there are any.
"""
import argparse
import ast
import os
import re
import shutil
import subprocess
import sys

BASE = {"base"}
MAY_INCLUDE = {  # besides itself; DESIGN's direction of dependence
    "base": set(), "proto": BASE, "scheduler": BASE, "sim": BASE | {"scheduler"},
    "rpc": BASE | {"proto"}, "checkpoint": BASE | {"proto"}, "release": BASE | {"proto"},
    "daemon": BASE | {"proto", "rpc", "scheduler", "checkpoint", "release"},
    "agent": BASE | {"proto", "rpc", "checkpoint"}, "ctl": BASE | {"proto", "rpc", "checkpoint"},
    "worker": BASE | {"proto", "checkpoint"},
}
WIRE = {"worker/page.h", "worker/env.h"}  # formats that two processes share
SILENT = {"proto", "scheduler", "checkpoint", "release"}  # return errors, never print or log
BANNED = ("strcpy stpcpy strncpy strcat strncat sprintf vsprintf gets strtok system popen alloca"
          " atoi atol atoll atof mktemp tmpnam tempnam asctime ctime localtime gmtime rand srand"
          " vfork")
LINES_MAX, FUNCTION_MAX, COLUMNS_MAX, README_MAX = 800, 70, 100, 60
C_COMMENT_OR_TEXT = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE = re.compile(r"(?<![\w.])/(wo" r"rk|ho" r"me)/\w|\.\./sha" r"red/")
HOSTS = re.compile(r"pypi\.o" r"rg|pythonho" r"sted|deb\.deb" r"ian\.org|npm" r"js\.|"
                   r"crates\.i" r"o|proxy\.gol" r"ang|docker\.i" r"o|ghcr\.i" r"o|quay\.i" r"o|"
                   r"huggingf" r"ace\.co")


class Tree:
    """The files under version control, or about to be, and their text."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                                capture_output=True, text=True, check=True).stdout.split("\n")
        self.files = sorted(name for name in listed if os.path.isfile(os.path.join(root, name)))
        self.c_files = [name for name in self.files if name.endswith((".c", ".h"))]
        self.texts, self.bare_texts = {}, {}

    def text(self, name):
        """The file's text; "" when it is not text."""
        if name not in self.texts:
            with open(os.path.join(self.root, name), "rb") as file:
                raw = file.read()
            self.texts[name] = "" if b"\0" in raw else raw.decode("utf-8", "replace")
        return self.texts[name]

    def bare(self, name):
        """C without comments and the insides of texts; lines stay where they are."""
        if name not in self.bare_texts:
            def blank(match):
                quote = match[0][0] if match[0][0] in "\"'" else ""
                return quote + "\n" * match[0].count("\n") + quote
            self.bare_texts[name] = C_COMMENT_OR_TEXT.sub(blank, self.text(name))
        return self.bare_texts[name]


def folder(name):
    """The top folder of a path."""
    return name.split("/")[0]


def stem(name):
    """The file's noun."""
    return os.path.basename(name).rsplit(".", 1)[0]


def functions(bare):
    """(first line, last line, name) of each function in C laid out by clang-format."""
    begin = 0
    for match in re.finditer(r"^\{$(.*?)^\}", bare, re.M | re.S):
        head = re.split(r"[;}]|^#.*$", bare[begin:match.start()], flags=re.M)[-1].strip()
        begin = match.end()
        plain = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head, flags=re.S)
        named = re.search(r"(\w+)\s*\(", plain)
        if named:
            first = bare.count("\n", 0, match.start()) - head.count("\n")
            yield first, bare.count("\n", 0, match.end()) + 1, named[1]


def rule_size(tree):
    """Files, functions and lines are short enough to read."""
    for name in tree.files:
        if not name.endswith((".c", ".h", ".py", ".sh")):
            continue
        lines = tree.text(name).split("\n")
        if len(lines) - 1 > LINES_MAX:
            yield name, 1, "", f"{len(lines) - 1} lines; at most {LINES_MAX}"
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS_MAX:
                yield name, number, "columns", f"{len(line)} columns; at most {COLUMNS_MAX}"


def rule_function(tree):
    """Functions fit on a screen."""
    for name in tree.files:
        found = []
        if name.endswith((".c", ".h")):
            found = functions(tree.bare(name))
        elif name.endswith(".py"):
            found = [(node.lineno, node.end_lineno, node.name)
                     for node in ast.walk(ast.parse(tree.text(name)))
                     if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for first, last, fn in found:
            if last - first + 1 > FUNCTION_MAX:
                yield name, first, fn, f"{fn} has {last - first + 1} lines; at most {FUNCTION_MAX}"


def rule_banned(tree):
    """Calls that have a safer form are not used; what returns errors does not print."""
    for name in tree.c_files:
        calls = BANNED.replace(" ", "|")
        if folder(name) in SILENT:
            calls += "|printf|fprintf|puts|perror|log_(?:debug|info|warn|error)"
        for match in re.finditer(rf"(?<![\w.>])({calls})\s*\(", tree.bare(name)):
            line = tree.bare(name).count("\n", 0, match.start()) + 1
            yield name, line, match[1], f"{match[1]}() is not used here"


def rule_header(tree):
    """Each noun begins by saying what it is."""
    for name in tree.c_files:
        if name.endswith(".c") and name[:-1] + "h" in tree.files:
            continue  # its header says it
        if not tree.text(name).startswith(f"/* {os.path.basename(name)} - "):
            yield name, 1, "", f"does not begin with /* {os.path.basename(name)} - what it is"
        if name.endswith(".h") and not re.search(r"^#(pragma once|ifndef \w+_H)$", tree.text(name),
                                                     re.M):
            yield name, 1, "guard", "no #pragma once"


def declared(bare):
    """(line, name) of the functions that a header declares."""
    flat = re.sub(r"^[ ]*#(?:[^\n]*\\\n)*[^\n]*", "", bare, flags=re.M)
    while re.search(r"\{[^{}]*\}", flat):
        flat = re.sub(r"\{[^{}]*\}", lambda match: "@" + "\n" * match[0].count("\n"), flat)
    for match in re.finditer(r"[^;@]+[;@]", flat):
        head = re.sub(r"__attribute__\s*\(\(.*?\)\)|\b[A-Z][A-Z_]+\s*(\([^()]*\))?", "", match[0],
                      flags=re.S)
        named = re.search(r"(\w+)\s*\(", head)
        if named and not re.search(r"\b(static|typedef|_Static_assert)\b|\(\s*\*", head):
            yield flat.count("\n", 0, match.end()) + 1, named[1]


def rule_name(tree):
    """What a header exports starts with the noun of its file, family, folder or of a type in it."""
    for name in tree.c_files:
        if not name.endswith(".h") or folder(name) in {"tests", "examples"}:
            continue
        bare, words = tree.bare(name), stem(name).split("_")
        nouns = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
        nouns += [f"{folder(name)}_{noun}" for noun in nouns]
        nouns += re.findall(r"^(?:struct|enum) (\w+)(?:;| \{)", bare, re.M)
        for line, symbol in declared(bare):
            if not any(symbol == noun or symbol.startswith(noun + "_") for noun in nouns):
                yield name, line, symbol, f"{symbol} does not start with {stem(name)}_"


def rule_include(tree):
    """Dependence points down; gRPC is rpc's and libpq is the store's."""
    for name in tree.c_files:
        for number, line in enumerate(tree.text(name).split("\n"), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
            if not match or folder(name) == "tests":
                continue
            path, top = match[2], folder(match[2])
            top = "proto" if top == "rondo" else top
            own = folder(name)
            if match[1] == '"' and "/" not in path:
                yield name, number, path, f"{path} is included without its folder"
            elif path in WIRE:
                continue
            elif own in MAY_INCLUDE and top in MAY_INCLUDE and top not in MAY_INCLUDE[own] | {own}:
                yield name, number, path, f"{own} may not include {path}"
            elif path.startswith("grpc") and own != "rpc":
                yield name, number, path, "only rpc includes gRPC"
            elif path.startswith("libpq") and not name.startswith("daemon/store_pg"):
                yield name, number, path, "only daemon/store_pg* includes libpq"


def rule_test(tree):
    """Each module has a unit test, its own or its family's."""
    tests = {(name.split("/")[2], stem(name)[5:]) for name in tree.files
             if re.match(r"tests/unit/\w+/test_\w+\.(c|py)$", name)}
    for name in tree.c_files:
        if folder(name) not in MAY_INCLUDE or name.endswith(".h") or stem(name).startswith("main_"):
            continue
        words, places = stem(name).split("_"), set(name.split("/")[:-1])
        family = {"_".join(words[:count]) for count in range(1, len(words) + 1)}
        if not any((place, noun) in tests for place in places for noun in family):
            yield name, 1, "", f"no tests/unit/{folder(name)}/test_{stem(name)}.c"


def rule_readme(tree):
    """Each folder says in a page what lives in it."""
    folders = {os.path.dirname(name) for name in tree.files
               if name.count("/") == 1 or name.endswith((".c", ".py", ".sql"))}
    for place in sorted(folders):
        if place and not re.match(r"\.|tests/unit/|.*/rondo(/|$)", place):
            if place + "/README.md" not in tree.files:
                yield place + "/README.md", 1, "", "missing"
    for name in tree.files:
        if name.endswith("/README.md") and tree.text(name).count("\n") > README_MAX:
            yield name, 1, "long", f"{tree.text(name).count(chr(10))} lines; at most {README_MAX}"


def rule_mark(tree):
    """Nothing is left for later, and nothing knows this machine."""
    for name in tree.files:
        for number, line in enumerate(tree.text(name).split("\n"), 1):
            for pattern, what in ((MARKS, "mark"), (MACHINE, "path of one machine"),
                                  (HOSTS, "registry host")):
                match = pattern.search(line)
                if match:
                    yield name, number, match[0], f"{what}: {match[0]}"


def rule_format(tree):
    """clang-format has nothing to change."""
    if not shutil.which("clang-format-14"):
        return
    done = subprocess.run(["clang-format-14", "--dry-run"] + tree.c_files, cwd=tree.root,
                          capture_output=True, text=True, check=False)
    seen = set()
    for match in re.finditer(r"^([^\s:]+):(\d+):\d+: warning: ", done.stderr, re.M):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1], int(match[2]), "", "clang-format-14 -i would change it"


def read_exceptions(path):
    """{(rule, "path" or "path:detail"): line number}."""
    excuses = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.split(None, 2)
                if words and not line.startswith("#"):
                    excuses[(words[0], words[1])] = number
    return excuses


def main():
    """Runs the rules."""
    rules = {name[5:]: rule for name, rule in globals().items() if name.startswith("rule_")}
    here = os.path.dirname(os.path.realpath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--rule", action="append", choices=sorted(rules), help="default: all")
    options = parser.parse_args()
    tree = Tree(options.root)
    excuses = read_exceptions(os.path.join(options.root, "tests/tidy/exceptions.txt"))
    chosen = options.rule or list(rules)
    needed, count = set(), 0
    for rule in chosen:
        for path, line, detail, message in rules[rule](tree):
            keys = {(rule, path), (rule, f"{path}:{detail}")} & set(excuses)
            needed |= keys
            if not keys:
                print(f"{path}:{line}: {rule}: {message}")
                count += 1
    for key, number in excuses.items():
        if key[0] not in rules or (key[0] in chosen and key not in needed):
            print(f"tests/tidy/exceptions.txt:{number}: exception: {' '.join(key)} is not needed")
            count += 1
    print(f"{count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
