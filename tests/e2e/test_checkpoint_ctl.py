"""rondoctl checkpoint: on directories with no daemon, and on a cluster's own checkpoints."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

import rondo_cluster
from rondo_cluster import BIN, PYTHON, spec, until

numpy = pytest.importorskip("numpy")

ONLINE = '''
import numpy, rondo, sys, time
job = rondo.join()
state = {"w": numpy.arange(200000.0).reshape(400, 500) + job.attempt, "n": 0}
loaded = rondo.load(state)
for step in range(1, 4):
    state["n"] = step
    rondo.save(step * 10, state, samples=step * 80, sync=True)
job.finish()
'''

ALONE = '''
import sys, numpy, rondo
rondo.join()
shift, step = float(sys.argv[1]), int(sys.argv[2])
weights = numpy.arange(3000.0, dtype="f4").reshape(60, 50)
weights[1, 1] += shift
state = {"model": {"w": weights, "b": numpy.arange(7), "mask": numpy.ones(5, dtype=bool)}}
rondo.save(step, state, samples=8 * step)
'''


def ctl(cwd, *words, code=0, **more):
    done = subprocess.run([BIN / "rondoctl", *map(str, words)], cwd=cwd, timeout=120, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(cwd)},
                          **more)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    for line in done.stdout.splitlines():
        assert len(line) <= 100 or {"-o", "--help"} & set(words), line
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr
    return done


@pytest.fixture
def vault(tmp_path):
    """<tmp>/checkpoints/step-10 and step-20, which differ in one element by 0.5."""
    script = tmp_path / "save.py"
    script.write_text(ALONE)
    root = pathlib.Path(__file__).resolve().parents[2]
    for shift, step in ((0, 10), (0.5, 20)):
        subprocess.run([PYTHON, script, str(shift), str(step)], cwd=tmp_path, check=True,
                       timeout=120, env={"PATH": "/usr/bin:/bin",
                                         "PYTHONPATH": str(root / "worker/python"),
                                         "RONDO_LIBRARY": str(BIN.parent / "lib/librondo.so")})
    return tmp_path / "checkpoints"


def test_list_show_and_usage(vault):
    rows = json.loads(ctl(vault, "checkpoint", "list", "--vault", ".", "-o", "json").stdout)
    assert [row["step"] for row in rows["checkpoints"]] == ["20", "10"]
    assert {row["state"] for row in rows["checkpoints"]} == {"SEALED"}
    assert "known to the daemon only" in ctl(vault, "checkpoint", "list", "--vault", ".").stdout
    shown = ctl(vault, "checkpoint", "show", "./step-10").stdout
    assert "step 10, 80 samples" in shown and re.search(r"model\.w +F32 +60 x 50", shown)
    full = json.loads(ctl(vault, "checkpoint", "show", "./step-10", "-o", "json").stdout)
    assert {row["name"]: row["shape"] for row in full["tensors"]}["model.w"] == [60, 50]
    assert "did you mean 'verify'" in ctl(vault, "checkpoint", "verfy", code=2).stderr
    assert "Examples:" in ctl(vault, "checkpoint", "--help").stdout
    assert "--max-shard-bytes" in ctl(vault, "checkpoint", "export", "--help").stdout


def test_diff_says_by_how_much(vault):
    found = json.loads(ctl(vault, "checkpoint", "diff", "./step-10", "./step-20", "-o", "json",
                           code=1).stdout)
    assert found["differences"] == [{"tensor": "model.w", "kind": "VALUES", "dtype": "F32",
                                     "elements": "3000", "differing": "1", "max_abs": 0.5}]
    ctl(vault, "checkpoint", "diff", "./step-10", "./step-10")


def test_reshard_export_and_import_keep_every_bit(vault):
    ctl(vault, "checkpoint", "reshard", "./step-10", "on-4", "--to", "data=2,tensor=2",
        "--rule", "model.w=1:tensor")
    ctl(vault, "checkpoint", "reshard", "./on-4", "on-3", "--to", "3")
    ctl(vault, "checkpoint", "verify", "--vault", ".")
    ctl(vault, "checkpoint", "diff", "./step-10", "./on-3")
    ctl(vault, "checkpoint", "export", "./on-3", "hf", "--max-shard-bytes", "8kB")
    index = json.loads((vault / "hf/model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {"model.w", "model.b", "model.mask"}
    ctl(vault, "checkpoint", "import", "hf", "back")
    ctl(vault, "checkpoint", "diff", "./back", "./step-10")
    ctl(vault, "checkpoint", "export", "./on-3", "dcp", "--as", "dcp")
    assert all(name.startswith("shard-") for name in os.listdir(vault / "dcp"))
    assert not [name for name in os.listdir(vault) if "making" in name]


def test_k2_what_is_written_is_for_whom_the_umask_says(vault):
    def modes(name):
        return {oct(path.stat().st_mode & 0o777) for path in (vault / name).rglob("*")
                if path.is_file()}

    old = os.umask(0o027)
    try:
        ctl(vault, "checkpoint", "export", "./step-10", "hf", "--max-shard-bytes", "8kB")
        ctl(vault, "checkpoint", "export", "./step-10", "dcp", "--as", "dcp")
    finally:
        os.umask(old)
    assert modes("hf") == modes("dcp") == {"0o640"}


def test_k5_a_finished_copy_under_a_temporary_name_is_one(vault):
    (vault / "step-20").rename(vault / "step-20.orbax-checkpoint-tmp-99")
    (vault / "step-30").mkdir()
    rows = json.loads(ctl(vault, "checkpoint", "list", "--vault", ".", "-o", "json").stdout)
    assert [row["step"] for row in rows["checkpoints"]] == ["20", "10"]
    told = json.loads(ctl(vault, "checkpoint", "gc", "--dry-run", "--vault", ".", "-o",
                          "json").stdout)["verdicts"]
    assert [row["path"] for row in told if not row["keep"]] == ["step-30"]
    assert (vault / "step-30").is_dir()  # nothing was removed
    ctl(vault, "checkpoint", "gc", "--vault", ".", code=2)


def test_k13_a_target_with_old_shards_is_refused(vault):
    (vault / "hf").mkdir()
    (vault / "hf/model-00009-of-00009.safetensors").write_text("old")
    for words in (["export", "./step-10", "hf"], ["export", "./step-10", "hf", "--as", "dcp"],
                  ["reshard", "./step-10", "hf", "--to", "2"], ["import", "hf", "hf"]):
        ctl(vault, "checkpoint", *words, code=4)
    assert os.listdir(vault / "hf") == ["model-00009-of-00009.safetensors"]
    assert sorted(os.listdir(vault)) == ["hf", "step-10", "step-20"]


def test_damage_is_named_and_nothing_is_made_of_it(vault):
    shard = next((vault / "step-10").rglob("*.safetensors"))
    with shard.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xfe\xfd")
    done = ctl(vault, "checkpoint", "verify", "./step-10", code=1)
    assert shard.name in done.stderr and "block 0" in done.stderr
    found = json.loads(ctl(vault, "checkpoint", "verify", "./step-10", "./step-20", "-o", "json",
                           code=1).stdout)["verified"]
    assert [row["whole"] for row in found] == [False, True]
    for words in (["export", "./step-10", "out"], ["reshard", "./step-10", "out", "--to", "2"],
                  ["export", "./step-10", "out", "--as", "dcp"]):
        assert shard.name in ctl(vault, "checkpoint", *words, code=1).stderr
    assert sorted(os.listdir(vault)) == ["step-10", "step-20"]


def test_du_counts_shared_files_once(vault):
    shard = next((vault / "step-10").rglob("*.safetensors"))
    (vault / "step-30/trainer-0").mkdir(parents=True)
    os.link(shard, vault / "step-30/trainer-0/x.safetensors")
    rows = json.loads(ctl(vault, "checkpoint", "du", "--vault", ".", "--parts", "-o",
                          "json").stdout)["usage"]
    by = {(row["kind"], row["what"]): row for row in rows}
    of = [int(row["disk"]) for (kind, _), row in by.items() if kind == "checkpoint"]
    assert int(by["total", "total"]["disk"]) == sum(of) - shard.stat().st_blocks * 512


def test_interrupted_work_leaves_nothing(vault):
    """A copy that is large enough to be met in the middle; else it was done, which is fine too."""
    (vault.parent / "big.safetensors").write_bytes(b"")
    size = 256 << 20
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (vault.parent / "big.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + size)
    work = subprocess.Popen([BIN / "rondoctl", "checkpoint", "import",
                             vault.parent / "big.safetensors", "big"], cwd=vault,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: work.poll() is not None or
          any("making" in name for name in os.listdir(vault)), "it has begun", pause=0.005)
    work.send_signal(signal.SIGINT)
    said = work.communicate(timeout=120)[1]
    assert work.returncode in (0, -signal.SIGINT), said
    assert not [name for name in os.listdir(vault) if "making" in name]
    assert (vault / "big").exists() == (work.returncode == 0)


def test_with_a_daemon():
    with rondo_cluster.running(agents=1, slots=2) as cluster:
        script = cluster.home / "online.py"
        script.write_text(ONLINE)
        script.chmod(0o644)
        job = cluster.submit(spec("online", [PYTHON, script], workers=2))
        cluster.wait(job, "SUCCEEDED")
        rows = cluster.json("checkpoint", "list", job)["checkpoints"]
        assert rows[0]["step"] == "30"
        shown = cluster.ctl("checkpoint", "show", f"{job}@30").stdout
        assert "(online)" in shown and "240 samples" in shown and "400 x 500" in shown
        assert "VERIFIED" in cluster.ctl("checkpoint", "verify", f"{job}@30").stdout
        cluster.ctl("checkpoint", "verify", "--here", "online@30")
        cluster.ctl("checkpoint", "pin", "online@30", "--note", "kept")
        assert cluster.json("checkpoint", "list", job)["checkpoints"][0]["pinned"] is True
        verdicts = cluster.json("checkpoint", "gc", "--dry-run", job)["verdicts"]
        assert verdicts[0]["keep"] is True
        cluster.ctl("checkpoint", "unpin", "online@30")
        out = cluster.home / "out"
        cluster.ctl("checkpoint", "export", "online@30", out)
        assert (out / "model.safetensors").exists()
        cluster.ctl("checkpoint", "reshard", "online@30", cluster.home / "on-3", "--to", "3")
        cluster.ctl("checkpoint", "diff", "online@30", cluster.home / "on-3")
        left = cluster.json("checkpoint", "show", f"{job}@30")["checkpoint"].get("holds", [])
        assert left == []
