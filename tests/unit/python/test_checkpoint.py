"""rondo.save and rondo.load outside Rondo: any layout into any other, bit for bit, strict, and
whatever was cut off never counts."""

import json
import os
import random

import numpy
import pytest

import rondo
from ranks_of import needs_torch

TENSORS = """
    import json, os, sys, numpy, rondo
    job = rondo.join()
    numpy.random.seed(5)
    SHAPES = {"a": (12, 8), "b": (7,), "c": (), "d": (0, 3), "e.f": (5, 6, 4), "g": (1,)}
    DTYPES = ("f4", "f8", "i1", "u2", "i8", "bool", "c8", "f2")
    WHOLE = {}
    for at, (name, shape) in enumerate(SHAPES.items()):
        for dtype in DTYPES:
            raw = numpy.random.bytes(max(1, int(numpy.prod(shape, dtype=int))) * 8)
            size = int(numpy.prod(shape, dtype=int))
            made = numpy.frombuffer(raw, "u1")[: size * numpy.dtype(dtype).itemsize]
            made = made & 1 if dtype == "bool" else made
            WHOLE[f"{name}.{dtype}"] = made.view(dtype).reshape(shape).copy()

    def cut(layout, loading=False):
        # This rank's part of every tensor, by a layout of one dimension's cuts a rank count.
        state = {}
        for name, whole in WHOLE.items():
            dim = layout(name, whole)
            if dim is None or whole.ndim <= dim:
                state[name] = whole.copy()
            else:
                cuts = rondo.placement.balanced_cuts(whole.shape[dim], job.world)
                index = (slice(None),) * dim + (slice(cuts[job.rank], cuts[job.rank + 1]),)
                state[name] = whole[index].copy()
            if loading:
                state[name].view("u1" if state[name].ndim else state[name].dtype).fill(0) \\
                    if state[name].size else None
        return state

    def placements(layout):
        def find(path, value):
            whole = WHOLE[path]
            dim = layout(path, whole)
            if dim is None or whole.ndim <= dim:
                return None
            return rondo.Shard(dim, size=whole.shape[dim], rule="balanced")
        return rondo.Layout(find)

    def same(a, b):
        return a.tobytes() == b.tobytes() and a.dtype == b.dtype and a.shape == b.shape

    LAYOUTS = [lambda n, w: None, lambda n, w: 0, lambda n, w: 1,
               lambda n, w: hash_of(n) % 3 if hash_of(n) % 4 else None]
    def hash_of(text): return sum(map(ord, text))
"""


@pytest.mark.parametrize("seed", range(6))
def test_any_layout_into_any_other_in_any_world(ranks, seed):
    rnd = random.Random(seed)
    before, after = rnd.randint(1, 4), rnd.randint(1, 4)
    saved, loaded = rnd.randrange(4), rnd.randrange(4)
    ranks.run(before, TENSORS + f"""
    layout = LAYOUTS[{saved}]
    rondo.save(10, cut(layout), placements(layout), samples=80)
    """)
    ranks.run(after, TENSORS + f"""
    layout = LAYOUTS[{loaded}]
    state = cut(layout, loading=True)
    found = rondo.load(state, placements(layout))
    assert (found.step, found.samples, found.world) == (10, 80, {before}), found
    want = cut(layout)
    for name in want:
        assert same(state[name], want[name]), (name, job.rank)
    """)


@pytest.mark.parametrize("before,after", [(3, 2), (2, 4), (1, 3), (4, 1)])
def test_flat_ranges_and_boxes_into_each_other_in_any_world(ranks, before, after):
    text = """
    import math, numpy, rondo
    job = rondo.join()
    WHOLE = {"a": numpy.arange(7 * 5 * 3, dtype="f4").reshape(7, 5, 3), "b": numpy.arange(11) * 1.5}

    def flat(whole):
        # As flat parameters are cut: equal lengths, the last ones with padding.
        step = -(-whole.size // job.world)
        ranges = [(rank, rank * step, rank * step + step) for rank in range(job.world)]
        begin, end = ranges[job.rank][1:]
        return (numpy.pad(whole.reshape(-1), (0, step * job.world - whole.size))[begin:end].copy(),
                rondo.Flat(whole.shape, ranges))

    def boxes(whole):
        # Every row goes to a rank of its own choice: several boxes a rank.
        rest = whole.shape[1:]
        listed = [((5 * row + 1) % job.world, (row, *(0 for _ in rest)), (1, *rest))
                  for row in range(whole.shape[0])]
        mine = [whole[row : row + 1].copy() for row, (rank, *_) in enumerate(listed)
                if rank == job.rank]
        return mine, rondo.Boxes(whole.shape, listed)

    def place(how):
        out = {}
        for name, whole in WHOLE.items():
            value, placement = how(whole)
            empty = isinstance(value, list) and not value
            out[name] = rondo.Placed(rondo.Absent(whole.dtype, whole.shape) if empty else value,
                                     placement)
        return out
    """
    for number, (one, other) in enumerate((("flat", "boxes"), ("boxes", "flat")), 1):
        ranks.run(before, text + f"rondo.save({number}, place({one}), samples=0)")
        ranks.run(after, text + f"""
    want, state = place({other}), place({other})
    for value in state.values():
        for part in value.value if isinstance(value.value, list) else [value.value]:
            if not isinstance(part, rondo.Absent):
                part[:] = 0  # padding is nobody's
    rondo.load(state)
    for name, value in want.items():
        if isinstance(value.value, list):
            assert all((a == b).all() for a, b in zip(state[name].value, value.value)), name
        elif not isinstance(value.value, rondo.Absent):
            assert (state[name].value == value.value).all(), name
    """)


def test_declared_aliases_are_filled_where_they_are_two(ranks):
    text = """
    import numpy, rondo
    job = rondo.join()
    """
    ranks.run(2, text + """
    layout = rondo.Layout({"*": rondo.On([0, 1])}, aliases={"head": "embed"})
    rondo.save(1, {("embed", "head")[job.rank]: numpy.arange(4.0), "x": 1}, layout, samples=0)
    """)
    ranks.run(1, text + """
    layout = rondo.Layout(aliases={"head": "embed"})
    state = {"embed": numpy.zeros(4), "head": numpy.zeros(4), "x": 0}
    rondo.load(state, layout, partial=True)
    assert (state["embed"] == numpy.arange(4.0)).all() and (state["head"] == state["embed"]).all()
    """)


def test_replicas_are_written_once_between_them(ranks, tmp_path):
    ranks.run(3, """
    import numpy, rondo
    job = rondo.join()
    rondo.save(1, {"w": numpy.ones((9990, 1000), "f4"), "small": numpy.ones(7)}, samples=0)
    """)
    sizes = [sum(os.path.getsize(part / name) for name in os.listdir(part)
                 if name.endswith(".safetensors"))
             for part in sorted((tmp_path / "checkpoints" / "step-1").glob("trainer-?"))]
    assert len(sizes) == 3 and sum(sizes) < 1.2 * 9990 * 4000 and max(sizes) < 0.4 * 9990 * 4000


def test_the_directory_is_what_the_format_says(ranks, tmp_path):
    ranks.run(2, """
    import numpy, rondo
    job = rondo.join()
    rondo.save(3, {"w": numpy.arange(10), "v": numpy.arange(10), "lr": 0.1}, samples=24)
    """)
    top = tmp_path / "checkpoints" / "step-3"
    manifest = json.loads((top / "manifest.json").read_text())
    assert manifest["format"] == "rondo-checkpoint-2"
    assert manifest["layout"] == "trainer-0/layout.json"
    assert (manifest["step"], manifest["samples"], manifest["world"]) == (3, 24, 2)
    for rank, part in enumerate(manifest["parts"]):
        directory = top / f"trainer-{rank}"
        names = {entry["path"].partition("/")[2]: entry["bytes"] for entry in part["files"]}
        assert names == {name: os.path.getsize(directory / name) for name in os.listdir(directory)}
        assert ("layout.json" in names) == (rank == 0)
        assert {"state.json", "blocks.crc32c"} <= set(names)
        assert f"shard-{rank + 1:05}-model-00001-of-00001.safetensors" in names


def test_plain_values_and_what_is_each_ranks_own(ranks):
    text = """
    import math, numpy, rondo
    job = rondo.join()
    state = {"lr": 0.1, "nan": math.nan, "big": 1 << 100, "none": None, "list": [1, {"x": (2, 3)}],
             "own": rondo.PerRank({"rank": job.rank, "noise": numpy.arange(4) + job.rank}),
             "w": numpy.arange(3)}
    """
    ranks.run(2, text + "rondo.save(5, state, samples=1)")
    ranks.run(2, text + """
    got = {"lr": 0, "nan": 0, "big": 0, "none": 1, "list": [], "own": rondo.PerRank(None),
           "w": numpy.zeros(3, int)}
    rondo.load(got)
    own = got.pop("own").value
    assert own["rank"] == job.rank and (own["noise"] == numpy.arange(4) + job.rank).all()
    assert got.pop("nan") != state.pop("nan")
    state.pop("own"); assert (got.pop("w") == state.pop("w")).all()
    assert got == state, got
    """)
    out = ranks.run(3, text + """
    try:
        rondo.load(state)
        print("loaded")
    except rondo.Mismatch as problem:
        print(problem)
    """)
    assert [line.strip() for line in out[:2]] == ["loaded", "loaded"]
    assert out[2].startswith("own: this rank has no value")


@pytest.mark.parametrize("change,word", [
    ('state["more"] = numpy.ones(2)', "more"),
    ('del state["w"]', "w"),
    ('state["w"] = numpy.ones(5)', "w"),
    ('state["w"] = numpy.ones(4, "f4")', "w"),
    ('state["lr2"] = state.pop("lr")', "lr"),
    ('state["group"] = {"x": 1, "z": 2}', "z"),
])
def test_k26_loading_is_strict_and_names_what_differs(ranks, change, word):
    text = """
    import numpy, rondo
    job = rondo.join()
    state = {"w": numpy.arange(4.0), "lr": 0.1, "group": {"x": 1}}
    """
    ranks.run(1, text + "rondo.save(1, state, samples=0)")
    out = ranks.run(1, text + f"""
    {change}
    try:
        rondo.load(state)
        print("loaded")
    except (rondo.Mismatch, rondo.Error) as problem:
        print("refused", problem)
    """)
    assert out[0].startswith("refused") and word in out[0]


def test_partial_loads_pass_over_what_one_side_lacks(ranks):
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    rondo.save(1, {"a": numpy.arange(4.0), "b": numpy.ones(2), "x": 1, "y": 2}, samples=0)
    """)
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    state = {"a": numpy.zeros(4), "c": numpy.full(2, 7.0), "x": 0, "z": 3}
    rondo.load(state, partial=True)
    assert (state["a"] == numpy.arange(4.0)).all() and (state["c"] == 7).all()
    assert (state["x"], state["z"]) == (1, 3)
    """)


def test_a_flipped_byte_is_named_by_file_and_block(ranks, tmp_path):
    text = """
    import numpy, rondo
    rondo.join()
    state = {"w": numpy.arange(100000, dtype="i4"), "lr": 1}
    """
    ranks.run(1, text + "rondo.save(0, state, samples=0); rondo.save(1, state, samples=0)")
    part = tmp_path / "checkpoints" / "step-1" / "trainer-0"
    shard = part / "shard-00001-model-00001-of-00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[3 * 65536 + 17] ^= 4
    shard.write_bytes(data)
    out = ranks.run(1, text + """
    try:
        rondo.load(state)
    except rondo.Damaged as problem:
        print("damaged", problem)
    """)
    assert out[0].startswith("damaged") and shard.name in out[0] and "block 3" in out[0]
    # The next run goes on from the one before; of the damaged one every file is there.
    ranks.run(1, text + "assert rondo.load(state).step == 0")
    assert shard.exists() and (part.parent / "manifest.damaged.json").exists()


def test_k38_a_rank_that_is_gone_holds_up_no_save(ranks):
    ranks.run(2, """
    import numpy, rondo
    job = rondo.join()
    for step in (1, 2):
        if step == 1 or job.rank == 0:
            rondo.save(step, {"w": numpy.full(10, float(step))}, samples=step)
    """)
    ranks.run(3, """
    import numpy, rondo
    rondo.join()
    state = {"w": numpy.zeros(10)}
    assert rondo.load(state).step == 1 and (state["w"] == 1).all()
    """)


def test_ranks_that_declare_different_layouts_are_refused(ranks):
    out = ranks.run(2, """
    import numpy, rondo
    job = rondo.join()
    try:
        rondo.save(1, {"w": numpy.ones(3 + job.rank)}, rondo.Shard(0), samples=0)
        print("saved")
    except rondo.Error as problem:
        print("refused")
    """)
    # Whoever is done second is refused; both are when each was done before the other looked.
    assert "refused" in {line.strip() for line in out} <= {"refused", "saved"}
    ranks.run(1, "import rondo; assert not rondo.join().resume")


@pytest.mark.parametrize("rules,near", [
    ('{"modle.*": rondo.Shard(0)}', ""), ('{"model.wt": rondo.Shard(0)}', "model.w"),
])
def test_a_rule_that_matches_nothing_is_refused(ranks, rules, near):
    out, = ranks.run(1, f"""
    import numpy, rondo
    rondo.join()
    state, rules = {{"model": {{"w": numpy.ones(3)}}}}, {rules}
    try:
        rondo.save(1, state, rules, samples=0)
    except ValueError as problem:
        print(problem)
    rondo.save(1, state, {{"*": rondo.Replicate()}}, samples=0)
    """)
    assert "matches no tensor of the state" in out and near in out


@pytest.mark.parametrize("step,samples,word", [
    ("-1", "0", "step"), ("1 << 63", "0", "step"), ("2.0", "0", "step"), ("'7'", "0", "step"),
    ("1", "-1", "samples"), ("1", "1.5", "samples"), ("1", "1 << 64", "samples"),
])
def test_numbers_that_are_none_are_refused(ranks, step, samples, word):
    out, = ranks.run(1, f"""
    import numpy, rondo
    rondo.join()
    try:
        rondo.save({step}, {{"w": numpy.ones(3)}}, samples={samples})
    except (TypeError, ValueError) as problem:
        print(problem)
    rondo.save(numpy.int64(3), {{"w": numpy.ones(3)}}, samples=numpy.int32(24))
    """)
    assert out.startswith(word + " is ")


@pytest.mark.parametrize("boxes,word", [
    ("[(0, (0,), (2,)), (1, (3,), (2,))]", "w"),
    ("[(0, (0,), (3,)), (1, (2,), (3,))]", "w"),
])
def test_k24_holes_and_overlaps_are_refused_at_the_save(ranks, boxes, word):
    out = ranks.run(2, f"""
    import numpy, rondo
    job = rondo.join()
    boxes = rondo.Boxes((5,), {boxes})
    size = boxes.boxes[job.rank][2]
    try:
        rondo.save(1, {{"w": rondo.Placed(numpy.ones(size), boxes)}}, samples=0)
    except rondo.Error as problem:
        print(problem.status, problem)
    """)
    assert all(line.startswith("3 ") and word in line for line in out)


def test_m55_the_cursor_is_compared_at_the_resume(ranks):
    text = """
    import numpy, rondo
    job = rondo.join()
    sampler = rondo.Sampler(SIZE, batch=8, seed=1)
    state = {"sampler": sampler, "w": numpy.ones(2)}
    """
    ranks.run(2, text.replace("SIZE", "100") + """
    sampler.advance(); sampler.advance()
    rondo.save(2, state)
    try:
        rondo.save(3, state, samples=17)
    except ValueError as problem:
        print(problem)
    """)
    ranks.run(3, text.replace("SIZE", "100") + """
    assert rondo.load(state).samples == 16 and sampler.cursor == 16
    """)
    out = ranks.run(1, text.replace("SIZE", "99") + """
    try:
        rondo.load(state)
    except rondo.SamplerMismatch as problem:
        print(problem)
    """)
    assert "size 100 in the checkpoint, 99 here" in out[0]


@needs_torch
def test_strides_conjugates_and_dtypes_of_torch_are_honoured(ranks):
    text = """
    import torch, rondo
    rondo.join()
    torch.manual_seed(1)
    base = torch.randn(6, 8)
    pair = torch.randn(4, dtype=torch.complex64)
    state = {"t": base.t(), "half": base[:, ::2], "conj": pair.conj(),
             "neg": pair.clone().conj().imag, "expanded": torch.ones(1).expand(5),
             "bf": base.bfloat16(), "bool": base > 0, "scalar": torch.tensor(2.5),
             "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
             "grad": torch.nn.Parameter(torch.ones(3)), "empty": torch.ones(0, 4)}
    """
    ranks.run(2, text + "rondo.save(1, state, samples=0)")
    ranks.run(1, text + """
    want = {name: value.detach().clone() for name, value in state.items()}
    got = {name: torch.zeros_like(value, memory_format=torch.preserve_format)
           for name, value in want.items()}
    got["half"] = torch.zeros(6, 8)[:, ::2]
    rondo.load(got)
    for name in want:
        assert torch.equal(got[name], want[name]), name
    try:
        rondo.load({**got, "expanded": torch.zeros(1).expand(5)})
        print("loaded")
    except rondo.Unsaveable as problem:
        print(problem)
    """)


@needs_torch
@pytest.mark.parametrize("value,word", [
    ("torch.ones(2).to_sparse()", "sparse"),
    ("torch.ones(2, dtype=torch.complex128)", "complex128"),
    ("torch.optim.SGD([torch.ones(1)], 0.1)", "rondo.Optimizer"), ("print", "cannot be saved"),
])
def test_what_cannot_be_saved_is_named(value, word):
    import torch  # noqa: F401

    from rondo.checkpoint import Described, as_layout
    from rondo._state import Tree

    with pytest.raises(rondo.Unsaveable, match=f"(?s)^a.b: .*{word}"):
        Described(Tree({"a": {"b": eval(value)}}), as_layout(None), 0, 1, False)


def test_arrays_of_another_order_of_bytes(ranks):
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    want = numpy.arange(20, dtype=">i4").reshape(4, 5)
    columns = numpy.asfortranarray(want)
    rondo.save(1, {"big": want, "columns": columns, "step": want[:, ::2]}, samples=0)
    got = {"big": numpy.zeros((4, 5), "<i4"), "columns": numpy.zeros((4, 5), ">i4", order="F"),
           "step": numpy.zeros((4, 6), ">i4")[:, ::2]}
    rondo.load(got, directory="checkpoints/step-1")
    assert (got["big"] == want).all() and (got["columns"] == want).all()
    assert (got["step"] == want[:, ::2]).all()
    """)


class NoRoom:
    """A job of Rondo's whose agent has no room."""

    rank, world, managed = 0, 1, True

    class _lib:
        @staticmethod
        def rondo_save_sharded(request):
            return -8

        @staticmethod
        def rondo_error():
            return b"no space left on the vault"


def test_k9_a_save_without_room_does_not_end_training():
    state = {"w": numpy.ones(3)}
    with pytest.warns(RuntimeWarning, match="step 7 failed: no space left"):
        assert rondo.save(7, state, samples=1, job=NoRoom()) == "failed"
    with pytest.raises(rondo.Error, match="no space left"):
        rondo.save(7, state, samples=1, job=NoRoom(), sync=True)
    alone = NoRoom()
    alone.managed = False
    with pytest.raises(rondo.Error):
        rondo.save(7, state, samples=1, job=alone)


THING = """
    import numpy, rondo

    class Thing:
        def __init__(self, value):
            self.value = value
        def state_dict(self):
            return {"value": self.value}
        def load_state_dict(self, state):
            self.value = state["value"]

    job = rondo.join()
    """


def test_what_stands_in_a_tuple_is_filled(ranks):
    ranks.run(1, THING + """
    def state(n):
        tensor = numpy.full(3, n * 1.0)
        return {"p": (Thing(n), [n], {"k": n}, rondo.PerRank(n), (Thing(n), 7), tensor)}
    rondo.save(1, state(5), samples=0)
    """)
    out, = ranks.run(1, THING + """
    given = {"p": (Thing(0), [0], {"k": 0}, rondo.PerRank(0), (Thing(0), 0), numpy.zeros(3))}
    first = given["p"][0]
    rondo.load(given)
    one, items, mapping, own, (inner, plain), tensor = given["p"]
    assert one is first
    print(one.value, items, mapping, own.value, inner.value, plain, tensor.tolist())
    """)
    assert out.strip() == "5 [5] {'k': 5} 5 5 7 [5.0, 5.0, 5.0]"


@pytest.mark.parametrize("state,word", [
    ("{1: rondo.PerRank('x'), '1': rondo.PerRank('y')}", "1: two values have this path"),
    ("{'m': numpy.ma.array([1, 2], mask=[0, 1])}", "m: a masked array"),
    ("(lambda w: {'a': w, 'h': w[:2]})(numpy.ones(4))", "shares a part of its memory with"),
])
def test_what_could_not_be_loaded_is_refused_at_the_save(ranks, state, word):
    out, = ranks.run(1, f"""
    import numpy, rondo
    rondo.join()
    try:
        rondo.save(1, {state}, samples=0)
    except rondo.Unsaveable as problem:
        print(problem)
    """)
    assert word in out


@needs_torch
def test_no_strides_that_overlap_are_loaded_into(ranks):
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    rondo.save(1, {"w": numpy.arange(6, dtype="f4").reshape(3, 2)}, samples=0)
    """)
    out, = ranks.run(1, """
    import torch, rondo
    rondo.join()
    for strides in ((1, 1), (2, 2), (0, 1), (1, 0)):
        try:
            rondo.load({"w": torch.zeros(8).as_strided((3, 2), strides)})
        except rondo.Unsaveable as problem:
            print("refused")
    good = torch.zeros(8).as_strided((3, 2), (1, 3))
    rondo.load({"w": good})
    assert good.tolist() == [[0, 1], [2, 3], [4, 5]]
    """)
    assert out.split() == ["refused"] * 4


MIXED = """
    import sys, numpy, rondo
    job = rondo.join()
    def save(value):
        return rondo.save(2, {"w": numpy.full((16, 9), value, "f4"), "v": value}, samples=0)
    """


def test_parts_of_two_runs_never_make_one_checkpoint(ranks):
    """Of each run one rank dies before its save; the other one's part is there."""
    ranks.run(2, MIXED + "if job.rank == 1: save(1.0)")
    ranks.run(2, MIXED + "if job.rank == 0: save(2.0)")
    ranks.run(1, "import rondo; assert not rondo.join().resume")
    ranks.run(2, MIXED + "save(3.0)")
    out, = ranks.run(1, """
    import numpy, rondo
    job = rondo.join()
    state = {"w": numpy.zeros((16, 9), "f4"), "v": 0.0}
    rondo.load(state)
    print(numpy.unique(state["w"]).tolist(), state["v"])
    """)
    assert out.strip() == "[3.0] 3.0"


@pytest.mark.parametrize("again", ["if job.rank == 0: print(save(2.0))", "print(save(2.0))"])
def test_what_is_sealed_is_not_written_again(ranks, again):
    ranks.run(2, MIXED + "save(1.0); assert save(9.0) in ('sealed', 'file')")
    out = ranks.run(2, MIXED + again)
    assert {line.strip() for line in out} <= {"sealed", ""}
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    state = {"w": numpy.zeros((16, 9), "f4"), "v": 0.0}
    rondo.load(state)
    assert (state["w"] == 1).all() and state["v"] == 1.0
    """)


def test_a_run_that_starts_over_writes_its_own(ranks):
    ranks.run(2, MIXED + "save(1.0)")
    begin = "import os; os.environ['RONDO_RESUME_DIR'] = ''\n"
    ranks.run(2, begin + MIXED.replace("\n    ", "\n") + "if job.rank == 0: save(2.0)")
    ranks.run(1, "import rondo; assert not rondo.join().resume")
    ranks.run(2, begin + MIXED.replace("\n    ", "\n") + "assert save(3.0) == 'file'")
    ranks.run(1, """
    import numpy, rondo
    rondo.join()
    state = {"w": numpy.zeros((16, 9), "f4"), "v": 0.0}
    rondo.load(state)
    assert (state["w"] == 3).all() and state["v"] == 3.0
    """)
