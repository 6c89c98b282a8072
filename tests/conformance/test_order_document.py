#!/usr/bin/env python3
"""format-spec/order.md and the plain Python beside this file say the same."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
import sml_order  # noqa: E402

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "format-spec" / "order.md"


class OrderDocument(unittest.TestCase):
    def test_every_row_of_its_tables_is_what_the_code_computes(self):
        lines = set(DOCUMENT.read_text(encoding="utf-8").splitlines())
        for row in sml_order.table_rows():
            self.assertIn(row, lines)

    def test_permutations_are_bijections_with_their_inverse(self):
        for n in [*range(70), 128, 129, 1000, 4096, 4097]:
            p = sml_order.Permutation(n, sml_order.EPOCH, 5, 3)
            order = [p.apply(i) for i in range(n)]
            self.assertEqual(sorted(order), list(range(n)))
            self.assertEqual([p.invert(value) for value in order], list(range(n)))

    def test_block_orders_hold_every_sample_once(self):
        blocks = [(0, 5), (5, 4), (9, 1), (10, 6)]
        for lanes in (1, 2, 3, 16, 64):
            self.assertEqual(sorted(sml_order.block_order(blocks, 1, 2, lanes)), list(range(16)))


if __name__ == "__main__":
    unittest.main()
