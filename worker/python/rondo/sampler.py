"""The data's order and the position in it: one sequence of samples for any number of workers.

The position (`cursor`) counts samples over all ranks and all passes, so it means the same to 4
workers and to 3. Sample number c is index `order(c)` of the dataset: a keyed permutation, computed
without a table, with another key in each pass. The cursor moves when the script says that a batch
is trained (`advance`), not when a data loader has fetched one.
"""

import hashlib

from . import _current
from ._library import Error

INVALID = 3
MASK64 = (1 << 64) - 1
ROUNDS = 6
SIZE_MAX = 1 << 62
ORDER = "rondo-order-1"


class SamplerMismatch(Error):
    """The checkpoint's order of the data is another one than this sampler's."""

    def __init__(self, text):
        super().__init__(INVALID, text)


def mix(value):
    """A bijection of 64-bit numbers in which every bit of the result depends on every bit given."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


class Permutation:
    """Of 0..size-1: a Feistel network over the next power of two that walks on until it lands
    inside. Equal keys give equal permutations, on every machine."""

    def __init__(self, size, key):
        bits = max(2, (size - 1).bit_length())
        self.size, self.low = size, bits // 2
        self.low_mask, self.high_mask = (1 << self.low) - 1, (1 << bits - self.low) - 1
        text = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest()
        self.keys = [int.from_bytes(text[8 * at : 8 * at + 8], "little") for at in range(ROUNDS)]

    def index(self, value):
        low, low_mask, high_mask, keys = self.low, self.low_mask, self.high_mask, self.keys
        while True:
            left, right = value >> low, value & low_mask
            for at in range(0, ROUNDS, 2):
                left ^= mix(right + keys[at] & MASK64) & high_mask
                right ^= mix(left + keys[at + 1] & MASK64) & low_mask
            value = left << low | right
            if value < self.size:
                return value


class Sampler:
    """size: samples of the dataset. batch: samples a step over all ranks. rank and world: of the
    job that was joined, or given.

        sampler = rondo.Sampler(len(dataset), batch=24, seed=1)
        loader = DataLoader(dataset, batch_sampler=sampler)      # this rank's share of each batch
        for rows in loader:
            train(rows)
            sampler.advance()
            job.report(step, samples=sampler.cursor, loss=loss)

    Where the batch is no multiple of the world the shares differ by one sample; give each rank's
    gradient the weight len(share) / batch there."""

    def __init__(self, size, batch, seed=0, rank=None, world=None):
        if rank is None or world is None:
            job = _current.job()
            rank, world = job.rank, job.world
        size, batch, seed = int(size), int(batch), int(seed)
        if not 0 < size <= SIZE_MAX:
            raise ValueError(f"a sampler over {size} samples")
        if batch < 1:
            raise ValueError(f"a batch of {batch} samples")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world} workers")
        self.size, self.batch, self.seed, self.rank, self.world = size, batch, seed, rank, world
        self.cursor = 0
        self._origin = self._first_pass = 0  # where this order begins: another dataset came before
        self._permutations = {}

    # --- the order

    def order(self, cursor):
        """Index of sample number `cursor` of all that are ever trained."""
        number, place = divmod(cursor - self._origin, self.size)
        if number < 0:
            raise ValueError(f"sample {cursor} was of the dataset before")
        number += self._first_pass
        found = self._permutations.get(number)
        if found is None:
            if len(self._permutations) > 1:
                self._permutations.clear()
            found = Permutation(self.size, f"{ORDER}/{self.seed}/{self.size}/{number}")
            self._permutations[number] = found
        return found.index(place)

    def share(self, cursor=None):
        """This rank's indices of the batch that begins at the cursor."""
        start = self.cursor if cursor is None else cursor
        return [self.order(at) for at in range(start + self.rank, start + self.batch, self.world)]

    def advance(self, samples=None):
        """A batch (or so many samples, over all ranks) has been trained."""
        samples = self.batch if samples is None else int(samples)
        if samples < 0:
            raise ValueError(f"a step of {samples} samples")
        self.cursor += samples

    @property
    def passes(self):
        """Whole passes over the data that are done."""
        return self._first_pass + (self.cursor - self._origin) // self.size

    def __iter__(self):
        """Shares from the cursor on, without an end. Data loaders fetch ahead: what counts as
        trained is what `advance` is told."""
        cursor = self.cursor
        while True:
            yield self.share(cursor)
            cursor += self.batch

    # --- in a checkpoint

    def state_dict(self):
        return {
            "order": ORDER,
            "size": self.size,
            "seed": self.seed,
            "batch": self.batch,
            "cursor": self.cursor,
            "origin": self._origin,
            "first_pass": self._first_pass,
        }

    def load_state_dict(self, state, convert=False):
        """Goes on at the state's cursor. Another batch or world changes nothing in the order.
        Another size or seed is refused, unless convert: then a pass over the new dataset begins
        here, numbered after the unfinished one."""
        found = read_state(state)
        what = [f"{name} {found[name]} in the checkpoint, {mine} here"
                for name, mine in (("size", self.size), ("seed", self.seed))
                if found[name] != mine]
        if what and not convert:
            raise SamplerMismatch("the order of the data is another one: " + "; ".join(what) +
                                  ". convert=True begins a new pass at this point")
        self.cursor = found["cursor"]
        if what:
            done = found["cursor"] - found["origin"]
            self._origin = found["cursor"]
            self._first_pass = found["first_pass"] + -(-done // found["size"])
        else:
            self._origin, self._first_pass = found["origin"], found["first_pass"]
        self._permutations.clear()

    def __repr__(self):
        return (f"Sampler(size={self.size}, batch={self.batch}, seed={self.seed}, "
                f"cursor={self.cursor}, rank={self.rank}, world={self.world})")


def read_state(state):
    """Its numbers, checked: a state that is not one is refused, never taken for the beginning."""
    if not isinstance(state, dict) or state.get("order") != ORDER:
        order = state.get("order") if isinstance(state, dict) else type(state).__name__
        raise SamplerMismatch(f"the state of a sampler has order {order!r}, this is {ORDER!r}")
    found = {}
    for name in ("size", "seed", "batch", "cursor", "origin", "first_pass"):
        value = state.get(name)
        if type(value) is not int or value < 0 and name != "seed":
            raise SamplerMismatch(f"the state of a sampler has {name} {value!r}")
        found[name] = value
    if found["size"] == 0 or found["origin"] > found["cursor"]:
        raise SamplerMismatch(f"the state of a sampler has origin {found['origin']}, cursor "
                              f"{found['cursor']}, size {found['size']}")
    return found
