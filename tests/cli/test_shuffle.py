"""sml shuffle: orders as the specification computes them, shares of ranks, selections, resume."""

import json
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance"))
import sml_order  # noqa: E402  (the orders of format-spec/order.md in plain Python)

from smltest import SmlTest  # noqa: E402

SEED = 3


class Shuffle(SmlTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(SEED)
        for i in range(500):
            self.write(f"src/c{i // 50}/{i:04}.bin", rng.randbytes(rng.randrange(1500)))
        self.ok("pack", "src", "-o", "x.sml", "--block-size", "64K")
        rows = [line.split(b"\t", 2) for line in self.lines("ls", "-l", "x.sml")]
        self.key_of = {int(r[0]): r[2] for r in rows}
        self.n = len(self.key_of)

    def ids(self, *arguments, **keywords):
        return [int(line) for line in self.lines("shuffle", "x.sml", "--ids", *arguments, **keywords)]

    def test_full_mode_is_the_specified_permutation(self):
        for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**64 - 1, 9)):
            permutation = sml_order.Permutation(self.n, 2, seed, epoch, 0)
            expected = [permutation.apply(p) for p in range(self.n)]
            self.assertEqual(self.ids("--mode", "full", "--seed", str(seed), "--epoch", str(epoch)), expected)

    def test_every_order_holds_every_sample_once(self):
        for arguments in ((), ("--mode", "full"), ("--lanes", "1"), ("--lanes", "3"), ("--lanes", "1000"), ("--seed", "5", "--epoch", "7")):
            order = self.ids(*arguments)
            self.assertEqual(sorted(order), list(range(self.n)), arguments)
            self.assertEqual(self.lines("shuffle", "x.sml", *arguments), [self.key_of[i] for i in order])
        self.assertNotEqual(self.ids(), self.ids("--epoch", "1"))
        self.assertNotEqual(self.ids(), self.ids("--seed", "1"))

    def test_ranks_share_the_global_order(self):
        order = self.ids("--seed", "4")
        for world in (1, 2, 3, 7, 64):
            ranks = [self.ids("--seed", "4", "--rank", str(r), "--world", str(world)) for r in range(world)]
            for r in range(world):
                self.assertEqual(ranks[r], order[r::world])

    def test_even(self):
        order = self.ids()
        for start, world, batch in ((0, 3, 4), (7, 2, 9), (0, 1, 499), (100, 8, None)):
            step = world * (batch or 1)
            share = ["--start", str(start), "--world", str(world)] + (["--batch", str(batch)] if batch else [])
            drop_end = start + (self.n - start) // step * step
            wrap_end = start + -(-(self.n - start) // step) * step
            for rank in range(world):
                positions = [p for p in range(start, drop_end) if p % world == rank]
                self.assertEqual(self.ids("-q", "--even", "drop", "--rank", str(rank), *share), [order[p] for p in positions])
                positions = [p for p in range(start, wrap_end) if p % world == rank]
                self.assertEqual(self.ids("-q", "--even", "wrap", "--rank", str(rank), *share), [order[p % self.n] for p in positions])

    def test_ranges_and_resume(self):
        order = self.ids("--seed", "2")
        self.assertEqual(self.ids("--seed", "2", "--start", "100", "--count", "50"), order[100:150])
        self.assertEqual(self.ids("--seed", "2", "--start", "500"), [])
        self.fails(1, "501", "shuffle", "x.sml", "--start", "501")
        done, got = 0, []
        state = self.ok("shuffle", "x.sml", "--seed", "2", "--count", "0", "--state")
        while done < self.n:
            self.write("state", state)
            got += self.ids("--from-state", "state", "--count", "120")
            state = self.ok("shuffle", "x.sml", "--from-state", "-", "--count", "120", "--state", stdin=state)
            self.assertEqual(state.count(b"\n"), 1)
            done += 120
            self.assertEqual(json.loads(state)["position"], min(done, self.n))
        self.assertEqual(got, order)
        # Another world size goes on where this one stopped; another seed, or another data set, is refused.
        state = self.ok("shuffle", "x.sml", "--seed", "2", "--count", "200", "--world", "4", "--state")
        rest = [self.ids("--from-state", "-", "--world", "3", "--rank", str(r), stdin=state) for r in range(3)]
        for r in range(3):
            self.assertEqual(rest[r], [order[p] for p in range(200, self.n) if p % 3 == r])
        self.fails(1, "seed", "shuffle", "x.sml", "--seed", "3", "--from-state", "-", stdin=state)
        self.write("more/x", b"x")
        self.ok("pack", "more", "-o", "y.sml")
        self.fails(1, "containers", "shuffle", "y.sml", "--from-state", "-", stdin=state)
        for bad in (b"", b"{}", b"[1]", b"nonsense", state.replace(b'"epoch"', b'"epock"')):
            done = self.run_sml("shuffle", "x.sml", "--from-state", "-", stdin=bad)
            self.assertIn(done.returncode, (1, 2))
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_selections(self):
        everything = set(self.key_of.values())
        c3 = {k for k in everything if k.startswith(b"c3/")}
        for mode in ("block", "full"):
            self.assertEqual(sorted(self.lines("shuffle", "x.sml", "--mode", mode, "--match", "c3/*")), sorted(c3))
            self.assertEqual(sorted(self.lines("shuffle", "x.sml", "--mode", mode, "--exclude", "c3/*")), sorted(everything - c3))
            some = sorted(c3)[::3]
            self.assertEqual(sorted(self.lines("shuffle", "x.sml", "--mode", mode, "--select", "-", stdin=b"\n".join(some))), some)
        self.fails(1, "nosuch", "shuffle", "x.sml", "--select", "-", stdin=b"nosuch\n")
        state = self.ok("shuffle", "x.sml", "--match", "c3/*", "--count", "10", "--state")
        self.fails(1, "selection", "shuffle", "x.sml", "--from-state", "-", stdin=state)
        order = self.lines("shuffle", "x.sml", "--match", "c3/*")
        self.assertEqual(self.lines("shuffle", "x.sml", "--match", "c3/*", "--from-state", "-", stdin=state), order[10:])

    def test_samples_stay_together(self):
        for i in range(100):
            for ext in ("jpg", "txt", "cls")[: 1 + i % 3]:
                self.write(f"g/{i:03}.{ext}", f"{i}{ext}".encode())
        self.ok("pack", "g", "-o", "g.sml", "--group-by", "stem")
        for mode in ("block", "full"):
            keys = self.lines("shuffle", "g.sml", "--mode", mode)
            self.assertEqual(sorted(keys), sorted(self.tree("g")))
            stems = [k.split(b".")[0] for k in keys]
            changes = sum(1 for a, b in zip(stems, stems[1:]) if a != b)
            self.assertEqual(changes, 99)
            self.assertEqual(len(self.lines("shuffle", "g.sml", "--mode", mode, "--count", "100")), len(keys))

    def test_lists_from_standard_input(self):
        lines = [b"line %d" % i for i in range(1000)] + [b"", b"line 5", b"\xff"]
        permutation = sml_order.Permutation(len(lines), 2, 6, 1, 0)
        expected = [lines[permutation.apply(p)] for p in range(len(lines))]
        for text in (b"\n".join(lines), b"\n".join(lines) + b"\n"):
            self.assertEqual(self.lines("shuffle", "-", "--seed", "6", "--epoch", "1", stdin=text), expected)
        self.assertEqual(self.ok("shuffle", "-", "-0", "--seed", "6", "--epoch", "1", stdin=b"\0".join(lines) + b"\0"),
                         b"".join(line + b"\0" for line in expected))
        self.assertEqual(self.lines("shuffle", "-", "--seed", "6", "--epoch", "1", "--world", "2", "--rank", "1", stdin=b"\n".join(lines)), expected[1::2])
        self.assertEqual(self.ok("shuffle", "-", stdin=b""), b"")
        for option in (("--ids",), ("--state",), ("--lanes", "3"), ("--mode", "block")):
            self.fails(2, "", "shuffle", "-", *option)

    def test_huge_worlds_end(self):
        order = self.ids()
        for world in (499, 500, 501, 2**32, 2**64 - 500, 2**64 - 1):
            for rank in (0, 7, world - 1):
                got = self.ids("--world", str(world), "--rank", str(rank))
                self.assertEqual(got, order[rank::world] if rank < len(order) else [])
        self.assertEqual(len(self.lines("shuffle", "-", "--world", str(2**64 - 1), stdin=b"1\n2\n3\n")), 1)

    def test_wrong_usage(self):
        for arguments in (("--rank", "1"), ("--rank", "2", "--world", "2"), ("--world", "0"), ("--lanes", "0"), ("--mode", "none"), ("--even", "odd"),
                          ("--seed", "18446744073709551616"), ("--seed", "-1"), ("--count", "x"), ("--match", "[a")):
            with self.subTest(arguments):
                self.fails(2, "", "shuffle", "x.sml", *arguments)


if __name__ == "__main__":
    unittest.main()
