"""Optimizers by names, random streams, modules under wrappers: what a run of torch would have
computed is what it computes after a load, in any world."""

import pytest

from ranks_of import needs_torch

pytestmark = needs_torch

RUN = """
    import os, sys, random, numpy, torch, rondo
    import torch.distributed as dist
    job = rondo.join()
    if job.world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 6)
            self.body = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh())
            self.head = torch.nn.Linear(6, 10, bias=False)
            self.head.weight = self.embed.weight
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.count += 1
            return self.head(self.body(self.embed(x)))

    model = Net()
    groups = [{"params": [model.embed.weight], "weight_decay": 0.0},
              {"params": list(model.body.parameters()), "lr": 0.02}]

    def train(net, optimizer, steps):
        losses = []
        for _ in range(steps):
            x = torch.arange(10)
            loss = torch.nn.functional.cross_entropy(net(x), (x * 3) % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        return losses

    def digest(state):
        return [(name, value.numpy().tobytes()) for name, value in sorted(state.items())]
"""


def test_an_optimizer_goes_on_bit_for_bit(ranks):
    text = RUN + """
    optimizer = torch.optim.AdamW(groups, lr=0.01, amsgrad=True)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.3)
    state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model), "schedule": schedule}
    """
    out = ranks.run(1, text + """
    train(model, optimizer, 3)
    schedule.step(); schedule.step(); schedule.step()
    rondo.save(3, state, samples=3)
    schedule.step()
    print(train(model, optimizer, 3), schedule.get_last_lr())
    """)
    again = ranks.run(1, text + """
    rondo.load(state)
    assert optimizer.state[model.embed.weight]["step"].dtype == torch.float32
    schedule.step()
    print(train(model, optimizer, 3), schedule.get_last_lr())
    """)
    assert again == out


def test_the_same_parameters_in_another_order_find_their_entries(ranks):
    ranks.run(1, RUN + """
    optimizer = torch.optim.Adam(groups, lr=0.01)
    train(model, optimizer, 2)
    rondo.save(1, {"optimizer": rondo.Optimizer(optimizer, model)}, samples=0)
    torch.save({name: optimizer.state[p] for name, p in model.named_parameters()}, "want")
    """)
    ranks.run(1, RUN + """
    optimizer = torch.optim.Adam([{"params": groups[1]["params"][::-1]},
                                  {"params": groups[0]["params"]}])
    rondo.load({"optimizer": rondo.Optimizer(optimizer, model)})
    for name, entries in torch.load("want").items():
        for key, value in entries.items():
            assert torch.equal(optimizer.state[dict(model.named_parameters())[name]][key], value)
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert optimizer.param_groups[1]["weight_decay"] == 0
    other = torch.optim.Adam(model.parameters())
    try:
        rondo.load({"optimizer": rondo.Optimizer(other, model)})
        print("loaded")
    except rondo.Mismatch as problem:
        assert "no group" in str(problem)
    """)


def test_zero_saves_each_ranks_own_part_and_loads_in_any_world(ranks):
    text = RUN + """
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    state = {"model": net, "optimizer": rondo.ZeroOptimizer(optimizer, model)}
    """
    address = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    first = ranks.run(3, text + """
    train(net, optimizer, 3)
    rondo.save(3, state, samples=3)
    print(train(net, optimizer, 2))
    """, **address, MASTER_PORT=str(ranks.port()))
    for world in (2, 4):
        out = ranks.run(world, text + """
    rondo.load(state)
    print(train(net, optimizer, 2))
    """, **address, MASTER_PORT=str(ranks.port()))
        assert set(out) == set(first)  # equal inputs on every rank: the mean is exact
    # And as a plain optimizer, in one process.
    out = ranks.run(1, RUN + """
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    rondo.load({"model": model, "optimizer": rondo.Optimizer(optimizer, model)})
    assert optimizer.param_groups[0]["lr"] == 0.01
    print(train(model, optimizer, 2))
    """)
    assert set(out) == set(first)


def test_random_streams_go_on_in_the_same_world_and_are_new_ones_in_another(ranks):
    text = """
    import random, numpy, torch, rondo
    job = rondo.join()
    state = {"random": rondo.Random()}
    def draw():
        return [random.random(), float(numpy.random.rand()), torch.rand(1).item(),
                torch.randn(3).sum().item()]
    """
    first = ranks.run(2, text + """
    for module in (random, numpy.random): module.seed(job.rank)
    torch.manual_seed(job.rank)
    draw()
    rondo.save(1, state, samples=0)
    print(draw())
    """)
    again = "    rondo.load(state)\n    print(draw())\n"
    assert ranks.run(2, text + again.lstrip(" ")) == first
    three = ranks.run(3, text + again.lstrip(" "))
    assert len(set(three) | set(first)) == 5
    assert ranks.run(3, text + again.lstrip(" ")) == three


def test_wrapped_modules_and_extra_state(ranks):
    text = """
    import torch, rondo
    rondo.join()
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(3))
            self.calls = 0
        def get_extra_state(self): return {"calls": self.calls}
        def set_extra_state(self, state): self.calls = state["calls"]
    model = torch.nn.Sequential(Counter(), torch.nn.BatchNorm1d(3))
    """
    ranks.run(1, text + """
    model[0].calls = 7
    torch.nn.init.ones_(model[0].weight)
    rondo.save(1, {"model": torch.nn.DataParallel(model)}, samples=0)
    """)
    ranks.run(1, text + """
    rondo.load({"model": model})
    assert model[0].calls == 7 and model[0].weight.sum() == 3
    """)


def test_tied_weights_travel_as_one(ranks):
    ranks.run(2, RUN + """
    rondo.save(1, {"model": model}, samples=0)
    """, MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", MASTER_PORT=str(ranks.port()))
    ranks.run(1, RUN + """
    with rondo.Stored("checkpoints/step-1") as stored:
        assert stored.aliases == {"model.head.weight": "model.embed.weight"}
    torch.nn.init.zeros_(model.embed.weight)
    rondo.load({"model": model})
    assert model.head.weight is model.embed.weight and model.embed.weight.abs().sum() > 0
    untied = Net()
    untied.head.weight = torch.nn.Parameter(torch.zeros(10, 6))
    rondo.load({"model": untied})
    assert torch.equal(untied.head.weight, model.embed.weight)
    """)


def test_tensor_parallel_moments_follow_their_parameter(ranks):
    text = """
    import torch, rondo
    job = rondo.join()
    torch.manual_seed(3)
    whole = torch.randn(12, 5)
    def build():
        cuts = rondo.placement.balanced_cuts(12, job.world)
        part = torch.nn.Parameter(whole[cuts[job.rank]:cuts[job.rank + 1]].clone())
        model = torch.nn.ParameterDict({"w": part})
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        layout = {"model.w": rondo.Shard(0, size=12, rule="balanced")}
        state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model)}
        return model, optimizer, layout, state
    model, optimizer, layout, state = build()
    def step():
        optimizer.zero_grad(); (model["w"] ** 3).sum().backward(); optimizer.step()
    """
    ranks.run(4, text + """
    step(); step()
    rondo.save(2, state, layout, samples=2)
    step()
    rondo.save(3, state, layout, samples=3)
    """)
    for world in (1, 3):
        ranks.run(world, text + """
    rondo.load(state, layout, directory="checkpoints/step-2")
    step()
    after = {name: value.clone() for name, value in optimizer.state[model["w"]].items()}
    weight = model["w"].detach().clone()
    rondo.load(state, layout, directory="checkpoints/step-3")
    assert torch.equal(model["w"], weight)
    for name, value in optimizer.state[model["w"]].items():
        assert torch.equal(value, after[name]), name
    """)


def test_stages_of_a_pipeline_are_declared_by_the_whole_module_on_meta(ranks):
    """Three stages, of which each rank has one; then one process with all of it, then two."""
    text = """
    import torch, rondo
    job = rondo.join()
    torch.manual_seed(7)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    stage = lambda name: int(name.split(".")[0]) * job.world // 6
    for at in range(6):
        if stage(f"{at}.") != job.rank:
            model[at].to_empty(device="meta")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    layout = rondo.Layout(lambda path, value: rondo.On([stage(path.partition(".")[2])])
                          if path.startswith("model.") else None)
    state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model)}

    def step():
        optimizer.zero_grad()
        mine = [p for p in model.parameters() if p.device.type != "meta"]
        sum((p ** 3).sum() for p in mine).backward()
        optimizer.step()

    def seen():
        return {name: (p.detach().clone(), optimizer.state[p]["exp_avg"].clone(),
                       optimizer.state[p]["step"].clone())
                for name, p in model.named_parameters() if p.device.type != "meta"}
    """
    ranks.run(3, text + "step(); step(); rondo.save(2, state, layout, samples=2)")
    ranks.run(1, text + """
    step(); step()
    torch.save(seen(), "want")
    """)
    for world in (1, 2):
        ranks.run(world, text + """
    with torch.no_grad():
        for p in model.parameters():
            if p.device.type != "meta": p.zero_()
    rondo.load(state, layout)
    want = torch.load("want")
    found = seen()
    assert len(found) == 12 // job.world
    for name, values in found.items():
        assert all(torch.equal(a, b) for a, b in zip(values, want[name])), name
    """)


@pytest.mark.parametrize("steps", ["train(net, optimizer, 2); save(2)",
                                   "save(0); train(net, optimizer, 2); save(2)"])
def test_zero_saves_what_is_frozen_or_has_not_stepped_yet(ranks, steps):
    """Which parameters have entries only their owners know."""
    text = RUN + """
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel
    model.body[0].bias.requires_grad_(False)
    net = DistributedDataParallel(model) if job.world > 1 else model
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    state = {"model": net, "optimizer": rondo.ZeroOptimizer(optimizer, model)}
    def save(step):
        assert rondo.save(step, state, samples=step) == "file"
    """
    address = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    first = ranks.run(3, text + steps + "; print(train(net, optimizer, 2))\n",
                      **address, MASTER_PORT=str(ranks.port()))
    out = ranks.run(2, text + """
    assert rondo.load(state).step == 2
    print(train(net, optimizer, 2))
    """, **address, MASTER_PORT=str(ranks.port()))
    assert set(out) == set(first)


def test_a_pipeline_with_a_frozen_stage_is_saved(ranks):
    text = RUN.replace('dist.init_process_group("gloo")', "pass") + """
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[0].weight.requires_grad_(False)
    where = lambda name: int(name[0]) % job.world
    for at in range(2):
        if at % job.world != job.rank:
            frozen = [p.requires_grad for p in model[at].parameters()]
            model[at].to_empty(device="meta")
            for p, grad in zip(model[at].parameters(), frozen):
                p.requires_grad_(grad)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    layout = rondo.Layout(lambda path, value: rondo.On([where(path.partition(".")[2])])
                          if path.startswith("model.") else None)
    state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model)}
    """
    ranks.run(2, text + """
    loss = sum((p ** 3).sum() for p in model.parameters()
               if p.device.type != "meta" and p.requires_grad)
    loss.backward()
    optimizer.step()
    rondo.save(1, state, layout, samples=1)
    """)
    ranks.run(1, text + "assert rondo.load(state, layout).step == 1\n")


def test_of_buffers_rank_0s_count(ranks):
    """Each rank has seen other data; parameters are the same on all."""
    text = """
    import torch, rondo
    job = rondo.join()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(700, 800), torch.nn.BatchNorm1d(800))
    state = {"model": model}
    """
    ranks.run(3, text + """
    model(torch.randn(5, 700) + job.rank)
    rondo.save(1, state, samples=0)
    if job.rank == 0: torch.save(model.state_dict(), "want")
    """)
    for world in (1, 2):
        ranks.run(world, text + """
    with torch.no_grad():
        for p in model.parameters(): p.zero_()
    assert rondo.load(state).step == 1
    for name, want in torch.load("want").items():
        assert torch.equal(model.state_dict()[name], want), name
    """)
