#!/usr/bin/env python3
"""The orders of format-spec/order.md in plain Python, written from that text alone: slow and obvious.

Run as a program it prints the rows of that document's tables; given the document, those that it lacks (exit 1).
"""

import sys

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

def row(*cells):
    return "| " + " | ".join(" ".join(map(str, c)) if isinstance(c, list) else str(c) for c in cells) + " |"


def table_rows():
    for key in ((1, 0, 0, 0), (2, 0, 0, 0), (4, 42, 7, 123456)):
        draw = draws(*key)
        yield row(", ".join(map(str, key)), ["`%016x`" % next(draw) for _ in range(4)])
    for n, *key in VECTORS:
        p = Permutation(n, *key)
        yield row(n, *key, [p.apply(i) for i in range(min(n, 10))], p.apply(n - 1), p.invert(0))
    blocks, some = [(0, 5), (5, 4), (9, 1), (10, 6)], [1, 2, 3, 8, 12, 15]
    yield row("full", full_order(list(range(16)), 1, 2))
    yield row("full, of a selection", full_order(some, 1, 2))
    yield row("the sequence S", block_sequence(blocks, 1, 2))
    yield row("block, 1 lane", block_order(blocks, 1, 2, 1))
    yield row("block, 3 lanes", block_order(blocks, 1, 2, 3))
    yield row("block, 64 lanes", block_order(blocks, 1, 2, 64))
    yield row("block, 2 lanes, of the selection", block_order(blocks, 1, 2, 2, set(some)))
    for even in ("none", "drop", "wrap"):
        yield row(even, *(rank_positions(16, 3, 2, rank, 2, even) for rank in (0, 1)))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(*table_rows(), sep="\n")
    else:
        with open(sys.argv[1], encoding="utf-8") as document:
            lines = set(document.read().splitlines())
        missing = [r for r in table_rows() if r not in lines]
        print(*missing, sep="\n", end="\n" if missing else "")
        sys.exit(1 if missing else 0)
