"""rondo.Sampler: one order for any number of workers, and a position that nothing loses."""

import itertools
import random

import pytest

import rondo
from rondo.sampler import Permutation

SIZES = (1, 2, 3, 5, 31, 64, 97, 1000)


def ranks(size, batch, world, state=None, seed=3):
    made = [rondo.Sampler(size, batch, seed, rank, world) for rank in range(world)]
    for sampler in made if state else []:
        sampler.load_state_dict(state)
    return made


def train(samplers, steps):
    """What the ranks train, in the order of the cursor."""
    out = []
    for _ in range(steps):
        shares = [sampler.share() for sampler in samplers]
        for row in itertools.zip_longest(*shares):
            out += [index for index in row if index is not None]
        for sampler in samplers:
            sampler.advance()
    return out


@pytest.mark.parametrize("size", SIZES)
def test_each_pass_has_every_sample_once_in_an_order_of_its_own(size):
    sampler = rondo.Sampler(size, 1, seed=5, rank=0, world=1)
    passes = [[sampler.order(number * size + at) for at in range(size)] for number in range(3)]
    for seen in passes:
        assert sorted(seen) == list(range(size))
    if size >= 64:
        assert passes[0] != passes[1] != passes[2] and passes[0] != sorted(passes[0])


@pytest.mark.parametrize("seed", range(20))
def test_m55_k40_scaled_every_sample_is_trained_once(seed):
    """4 -> 3 -> 2 -> 1 -> 4 workers; each is killed after steps that no checkpoint holds."""
    rnd = random.Random(seed)
    size, batch = rnd.choice((96, 97, 240, 1001)), rnd.choice((5, 12, 24))
    want = rondo.Sampler(size, batch, 3, 0, 1)
    seen, state = [], None
    for world in (4, 3, 2, 1, 4, rnd.randint(1, 7)):
        running = ranks(size, batch, world, state)
        seen += train(running, rnd.randint(1, 60))
        states = [sampler.state_dict() for sampler in running]
        assert all(one == states[0] for one in states)
        state = states[0]
        train(running, rnd.randint(0, 9))  # lost with the kill
    assert seen == [want.order(at) for at in range(len(seen))]
    for start in range(0, len(seen) - size + 1, size):
        assert sorted(seen[start : start + size]) == list(range(size))


@pytest.mark.parametrize("cursor", [(1 << 31) - 7, (1 << 53) - 7, (1 << 62) + 12345])
@pytest.mark.parametrize("size", [97, (1 << 31) + 11, (1 << 53) + 5, 1 << 62])
def test_m56_beyond_31_and_53_bits(cursor, size):
    whole = ranks(size, 24, 1)[0]
    state = {**whole.state_dict(), "cursor": cursor}
    one, four = ranks(size, 24, 1, state)[0], ranks(size, 24, 4, state)
    seen = train([one], 4)
    assert seen == train(four, 4)
    assert one.cursor == four[3].cursor == cursor + 96
    assert all(0 <= index < size for index in seen)
    assert len(set(seen)) == 96 or size < 200


def test_a_large_order_is_a_bijection_as_far_as_one_can_see():
    permutation = Permutation((1 << 53) + 5, "key")
    seen = {permutation.index(at) for at in range(20000)}
    assert len(seen) == 20000
    assert 0.45 < sum(index < 1 << 52 for index in seen) / 20000 < 0.55


def test_neighbours_are_spread():
    """Indices of one batch cover the dataset: each tenth gets about a tenth."""
    permutation = Permutation(100000, "key")
    counts = [0] * 10
    for at in range(10000):
        counts[permutation.index(at) // 10000] += 1
    assert all(850 < count < 1150 for count in counts)


def test_the_order_never_changes():
    """Checkpoints hold a cursor only: these numbers are a promise."""
    sampler = rondo.Sampler(1000, 4, seed=1, rank=0, world=1)
    assert [sampler.order(at) for at in (0, 1, 999, 1000, 1 << 40)] == PROMISED


PROMISED = [819, 144, 110, 129, 758]


def test_another_dataset_or_seed_is_refused():
    old = rondo.Sampler(1000, 8, seed=1, rank=0, world=1)
    old.advance(300)
    for size, seed, word in ((999, 1, "size 1000"), (1000, 2, "seed 1")):
        new = rondo.Sampler(size, 8, seed=seed, rank=0, world=1)
        with pytest.raises(rondo.SamplerMismatch, match=word):
            new.load_state_dict(old.state_dict())
        assert new.cursor == 0


def test_converted_on_request_a_new_pass_begins_where_the_old_data_ended():
    old = rondo.Sampler(100, 8, seed=1, rank=0, world=1)
    old.advance(250)  # half a pass is left
    new = rondo.Sampler(140, 8, seed=1, rank=0, world=1)
    new.load_state_dict(old.state_dict(), convert=True)
    assert (new.cursor, new.passes) == (250, 3)
    assert sorted(new.order(250 + at) for at in range(140)) == list(range(140))
    again = rondo.Sampler(140, 8, seed=1, rank=0, world=1)
    again.load_state_dict(new.state_dict())
    again.advance(17)
    assert again.share() == [new.order(267 + at) for at in range(8)]


def test_another_batch_goes_on_at_the_same_sample():
    old = rondo.Sampler(100, 8, seed=1, rank=0, world=1)
    old.advance()
    new = rondo.Sampler(100, 5, seed=1, rank=0, world=1)
    new.load_state_dict(old.state_dict())
    assert new.share() == [old.order(at) for at in range(8, 13)]


@pytest.mark.parametrize("change", [
    {"order": "other"}, {"cursor": -1}, {"cursor": "4"}, {"cursor": None}, {"size": 0},
    {"origin": 5}, {"cursor": True}, {"cursor": 1.0},
])
def test_a_state_that_is_none_is_never_the_beginning(change):
    sampler = rondo.Sampler(100, 8, seed=1, rank=0, world=1)
    with pytest.raises(rondo.SamplerMismatch):
        sampler.load_state_dict({**sampler.state_dict(), **change})
    with pytest.raises(rondo.SamplerMismatch):
        sampler.load_state_dict({})


def test_a_data_loader_that_fetches_ahead_loses_nothing():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(50))
    sampler = rondo.Sampler(50, 6, seed=2, rank=1, world=2)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=0)
    seen = []
    for rows, _ in zip(loader, range(5)):
        seen += rows[0].tolist()
        sampler.advance()
    assert sampler.cursor == 30
    assert seen == [sampler.order(at) for start in range(0, 30, 6)
                    for at in range(start + 1, start + 6, 2)]


def test_bad_numbers_are_refused():
    for size, batch, rank, world in ((0, 1, 0, 1), (5, 0, 0, 1), (5, 1, 2, 2), (5, 1, -1, 2)):
        with pytest.raises(ValueError):
            rondo.Sampler(size, batch, 0, rank, world)
    with pytest.raises(ValueError):
        rondo.Sampler(5, 1, 0, 0, 1).advance(-1)
