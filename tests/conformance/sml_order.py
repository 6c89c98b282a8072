#!/usr/bin/env python3
"""The orders of format-spec/order.md in plain Python, written from that text alone: slow and obvious.

Run as a program it prints the vectors of that document.
"""

MASK64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
PACK, EPOCH, BLOCKS, BLOCK = 1, 2, 3, 4  # what a permutation is for


def scramble(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    return ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64


def mix(x):
    x = scramble(x)
    return x ^ (x >> 31)


def scale(bits, limit):
    return (bits * limit) >> 64


def draws(use, seed, epoch, index):
    """The endless sequence of 64-bit numbers that a key stands for."""
    state = 0
    for word in (use, seed, epoch, index):
        state = mix((state + word + GAMMA) & MASK64)
    while True:
        state = (state + GAMMA) & MASK64
        yield mix(state)


class Permutation:
    def __init__(self, n, use, seed, epoch=0, index=0):
        draw = draws(use, seed, epoch, index)
        self.n = n
        self.table = None
        if n <= 64:
            self.table = list(range(n))
            for i in range(n - 1, 0, -1):
                j = scale(next(draw), i + 1)
                self.table[i], self.table[j] = self.table[j], self.table[i]
            return
        self.columns = 1 << ((n - 1).bit_length() // 2)
        self.rows = -(-n // self.columns)
        self.keys = [next(draw) for _ in range(12 if n <= 4096 else 8)]

    def _step(self, x):
        row, column = divmod(x, self.columns)
        for i, key in enumerate(self.keys):
            if i % 2 == 0:
                row = (row + scale(scramble((column + key) & MASK64), self.rows)) % self.rows
            else:
                shift = scale(scramble((row + key) & MASK64), self.columns)
                column = (column + shift) % self.columns
        return row * self.columns + column

    def _unstep(self, x):
        row, column = divmod(x, self.columns)
        for i, key in reversed(list(enumerate(self.keys))):
            if i % 2 == 0:
                row = (row - scale(scramble((column + key) & MASK64), self.rows)) % self.rows
            else:
                shift = scale(scramble((row + key) & MASK64), self.columns)
                column = (column - shift) % self.columns
        return row * self.columns + column

    def apply(self, position):
        if self.table is not None:
            return self.table[position]
        x = self._step(position)
        while x >= self.n:
            x = self._step(x)
        return x

    def invert(self, value):
        if self.table is not None:
            return self.table.index(value)
        x = self._unstep(value)
        while x >= self.n:
            x = self._unstep(x)
        return x


def full_order(samples, seed, epoch):
    """`samples`: the selected sample numbers, ascending."""
    p = Permutation(len(samples), EPOCH, seed, epoch)
    return [samples[p.apply(i)] for i in range(len(samples))]


def block_sequence(blocks, seed, epoch, selected=None):
    """Block mode before it is cut into lanes. `blocks`: (first sample, count) of every block in which a sample
    starts, in their numbering; `selected`: a set of sample numbers, None for all."""
    parts = []
    for number, (first, count) in enumerate(blocks):
        inside = [s for s in range(first, first + count) if selected is None or s in selected]
        if inside:
            parts.append((number, inside))
    order = Permutation(len(parts), BLOCKS, seed, epoch)
    sequence = []
    for i in range(len(parts)):
        number, inside = parts[order.apply(i)]
        p = Permutation(len(inside), BLOCK, seed, epoch, number)
        sequence += [inside[p.apply(j)] for j in range(len(inside))]
    return sequence


def block_order(blocks, seed, epoch, lanes, selected=None):
    sequence = block_sequence(blocks, seed, epoch, selected)
    n = len(sequence)
    cut, starts = 0, []
    for lane in range(lanes):
        starts.append(cut)
        cut += n // lanes + (1 if lane < n % lanes else 0)
    return [sequence[starts[p % lanes] + p // lanes] for p in range(n)]


def end_position(n, start, multiple, even):
    """Where the order ends that starts at `start`; `multiple`: world x batch, or world."""
    left = max(0, n - start)
    if even == "drop":
        return start + left // multiple * multiple
    if even == "wrap":
        return start + -(-left // multiple) * multiple
    return start + left


def rank_positions(n, start, world, rank, batch=1, even="none", count=None):
    """The positions of one rank; position p holds sample order[p % n]."""
    end = end_position(n, start, world * batch, even)
    if count is not None:
        end = min(end, start + count)
    return [p for p in range(start, end) if p % world == rank]


VECTORS = [
    # n, use, seed, epoch, index
    (1, PACK, 0, 0, 0),
    (2, EPOCH, 0, 0, 0),
    (3, EPOCH, 0, 0, 0),
    (4, EPOCH, 0, 0, 0),
    (4, EPOCH, 1, 0, 0),
    (4, EPOCH, 0, 1, 0),
    (10, PACK, 0, 0, 0),
    (10, EPOCH, 0, 0, 0),
    (10, BLOCKS, 0, 0, 0),
    (10, BLOCK, 0, 0, 0),
    (10, BLOCK, 0, 0, 1),
    (64, EPOCH, 42, 7, 0),
    (65, EPOCH, 42, 7, 0),
    (1000, EPOCH, 0, 0, 0),
    (1000, BLOCK, 42, 7, 123456),
    (4096, EPOCH, 42, 7, 0),
    (4097, EPOCH, 42, 7, 0),
    (10**7, EPOCH, 0, 0, 0),
    (10**7, PACK, MASK64, 0, 0),
    (2**40, EPOCH, 42, 7, 0),
    (2**63, EPOCH, 42, 7, 0),
]

if __name__ == "__main__":
    print("draws 1 0 0 0:", " ".join("%016x" % v for v, _ in zip(draws(1, 0, 0, 0), range(4))))
    print("draws 4 42 7 123456:",
          " ".join("%016x" % v for v, _ in zip(draws(4, 42, 7, 123456), range(4))))
    for vector in VECTORS:
        p = Permutation(*vector)
        n = vector[0]
        print(*vector, "|", *[p.apply(i) for i in range(min(n, 10))], "|", p.apply(n - 1), "|",
              p.invert(0))
    blocks = [(0, 5), (5, 4), (9, 1), (10, 6)]
    print("full", *full_order(list(range(16)), 1, 2))
    print("full selected", *full_order([1, 2, 3, 8, 12, 15], 1, 2))
    print("sequence", *block_sequence(blocks, 1, 2))
    print("block L=1", *block_order(blocks, 1, 2, 1))
    print("block L=3", *block_order(blocks, 1, 2, 3))
    print("block L=64", *block_order(blocks, 1, 2, 64))
    print("block selected L=2", *block_order(blocks, 1, 2, 2, {1, 2, 3, 8, 12, 15}))
    for even in ("none", "drop", "wrap"):
        for rank in (0, 1):
            print("rank", rank, "of 2, start 3, batch 2,", even,
                  rank_positions(16, 3, 2, rank, 2, even))
