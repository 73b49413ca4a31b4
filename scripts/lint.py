#!/usr/bin/python3
"""Runs clang-tidy over our C within a time limit, files changed last first.

Results are remembered in BUILD/lint by what a file's result depends on, so a second run is quick.
Last line: "N passed, N failed, N skipped"; skipped ones were not reached in time.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import subprocess
import sys
import time

TOOL = "clang-tidy-14"


def digest(paths):
    """One digest over the contents of files."""
    total = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            total.update(hashlib.sha256(file.read()).digest())
    return total


def changed_last_first(files):
    """Files in uncommitted changes, then by their last commit, newest first."""
    rank = {}
    for command in (["git", "diff", "--name-only", "HEAD"],
                    ["git", "log", "-n", "500", "--name-only", "--format="]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for name in done.stdout.split():
            rank.setdefault(name, len(rank))
    return sorted(files, key=lambda file: (rank.get(file, len(rank)), file))


def our_files(build):
    """The .c files of the compilation database that lie in the tree and not in the build folder."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        names = {os.path.relpath(entry["file"]) for entry in json.load(file)}
    outside = ("..", os.path.relpath(build) + os.sep)
    return sorted(name for name in names if not name.startswith(outside) and os.path.exists(name))


def lint(build, file, until):
    """(verdict, text) of one file; verdict None: no time left."""
    left = until - time.monotonic()
    if left <= 1:
        return None, ""
    try:
        done = subprocess.run([TOOL, "-p", build, "--quiet", "--warnings-as-errors=*",
                               "--extra-arg=-Wno-unknown-warning-option", file],
                              capture_output=True, text=True, timeout=left + 60, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode == 0, done.stdout


def main():
    """Lints, prints findings, sums up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("files", nargs="*", help="default: all")
    options = parser.parse_args()
    headers = [name for name in glob.glob("**/*.h", recursive=True) if not name.startswith("build")]
    headers += glob.glob(os.path.join(options.build, "gen/**/*.h"), recursive=True)
    shared = digest([".clang-tidy", "tests/.clang-tidy"] + sorted(headers))
    store = os.path.join(options.build, "lint")
    os.makedirs(store, exist_ok=True)
    until = time.monotonic() + options.seconds
    counts = {True: 0, False: 0, None: 0}

    def work(file):
        key = shared.copy()
        key.update(digest([file]).digest() + file.encode())
        mark = os.path.join(store, key.hexdigest())
        if os.path.exists(mark):
            return file, True, ""
        verdict, text = lint(options.build, file, until)
        if verdict:
            with open(mark, "w", encoding="utf-8"):
                pass
        return file, verdict, text

    files = options.files or changed_last_first(our_files(options.build))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, verdict, text in pool.map(work, files):
            counts[verdict] += 1
            if verdict is False:
                print(f"--- {file}\n{text}", flush=True)
    print(f"{counts[True]} passed, {counts[False]} failed, {counts[None]} skipped")
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
