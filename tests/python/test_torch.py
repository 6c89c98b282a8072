#!/usr/bin/env python3
"""Data sets for PyTorch: apps/python/sml/torch.py against a real server."""

import importlib.util
import itertools
import json
import os
import pickle
import random
import sys
import unittest
from unittest import mock

from smltest import SML, SmlTest, name_order, stem

if importlib.util.find_spec("torch") is None:
    sys.exit(77)

import torch
import torch.distributed
from torch.utils.data import DataLoader

import sml
from sml.torch import EpochDataset, Loader, MapDataset

SEED = 20261203


def key_and_size(sample):
    """A transform: the key, and the bytes of the record."""
    (data,) = (value for name, value in sample.items() if name != "__key__")
    return sample["__key__"], len(data)


def as_list(samples):
    return samples


class Torch(SmlTest):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(SEED)
        for i in range(150):
            self.write(f"src/d{i % 3}/f{i:03}", self.rng.randbytes(self.rng.randrange(3000)))
        self.ok("pack", "src", "-o", "x.sml", "--block-size", "64K")
        self.files = {os.fsdecode(key): data for key, data in self.tree("src").items()}
        self.dataset = sml.open(self.path("x.sml"), sml=SML)
        self.addCleanup(self.dataset.close)

    def order(self, **options):
        """Key and size of each sample of an epoch, batch by batch."""
        batches = self.dataset.epoch(**options)
        return [[(key, len(record)) for key, record in zip(batch.keys, batch)] for batch in batches]

    def loader(self, workers, batch_size=8, rank=None, world=None, **options):
        source = EpochDataset(
            self.dataset, key_and_size, batch_size=batch_size, rank=rank, world=world, seed=1
        )
        return Loader(source, as_list, num_workers=workers, **options)

    def test_map_style(self):
        dataset = MapDataset(self.dataset)
        names = [os.fsdecode(key) for key in name_order(map(os.fsencode, self.files))]
        self.assertEqual(len(dataset), 150)
        self.assertEqual(dataset[7], {"__key__": names[7], "": self.files[names[7]]})
        self.assertEqual(
            [sample["__key__"] for sample in dataset.__getitems__([3, 0, 3, -1])],
            [names[i] for i in (3, 0, 3, -1)],
        )
        sizes = MapDataset(self.dataset, key_and_size)
        for workers in (0, 2):
            found = [
                pair
                for batch in DataLoader(sizes, 16, num_workers=workers, collate_fn=as_list)
                for pair in batch
            ]
            self.assertEqual(found, [(name, len(self.files[name])) for name in names])

    def test_map_style_of_samples_of_several_records(self):
        for i, extension in itertools.product(range(30), ("jpg", "seg.png")):
            self.write(f"pairs/a.b/{i:02}.{extension}", f"{i} {extension}".encode())
            self.write(f"pairs/a.b/{i:02}-x.{extension}", b"")
        self.ok("pack", "pairs", "-o", "pairs.sml", "--group-by", "stem")
        with sml.open(self.path("pairs.sml"), sml=SML) as pairs:
            dataset = MapDataset(pairs)
            self.assertEqual(len(dataset), 60)
            for i in range(30):
                self.assertEqual(dataset[2 * i], {
                    "__key__": f"a.b/{i:02}", "jpg": b"%d jpg" % i, "seg.png": b"%d seg.png" % i
                })  # fmt: skip
            stems = sorted({os.fsdecode(stem(key)) for key in self.tree("pairs")})
            self.assertEqual(sorted(sample["__key__"] for sample in dataset.__getitems__(range(60))), stems)

    def test_batches_come_in_order_whatever_the_workers(self):
        expected = self.order(seed=1, batch_size=8)
        source = EpochDataset(self.dataset, key_and_size, batch_size=8, seed=1)
        self.assertEqual(list(source), expected)
        self.assertEqual(len(source), len(expected))
        for workers, method in ((0, None), (1, "fork"), (2, "fork"), (2, "spawn")):
            loader = DataLoader(
                source, None, num_workers=workers, multiprocessing_context=method, collate_fn=as_list
            )
            self.assertEqual(list(loader), expected)

    def test_default_collation(self):
        expected = self.order(seed=1, batch_size=8)
        keys, sizes = next(iter(Loader(EpochDataset(self.dataset, key_and_size, batch_size=8, seed=1))))
        self.assertEqual(list(zip(keys, sizes.tolist())), expected[0])
        first = next(iter(Loader(EpochDataset(self.dataset, batch_size=8, seed=1))))
        self.assertEqual(first[""], [self.files[key] for key, _ in expected[0]])

    def test_workers_that_persist_hear_of_epochs_and_states(self):
        for method in ("fork", "spawn"):
            loader = self.loader(2, persistent_workers=True, multiprocessing_context=method)
            for epoch in (0, 3, 1):
                loader.set_epoch(epoch)
                self.assertEqual((loader.epoch, len(loader)), (epoch, 19))
                self.assertEqual(list(loader), self.order(seed=1, epoch=epoch, batch_size=8))
            for batch in itertools.islice(loader, 5):
                self.assertEqual(len(batch), 8)
            state = loader.state_dict()
            self.assertEqual((state["epoch"], state["position"]), (1, 40))
            list(loader)
            loader.load_state_dict(state)
            self.assertEqual(list(loader), self.order(seed=1, epoch=1, batch_size=8)[5:])

    def test_a_state_goes_on_with_other_ranks_and_workers(self):
        print(f"seed {SEED}")
        order = [sample for batch in self.order(seed=1, epoch=2) for sample in batch]
        for _ in range(4):
            got, state = [], None
            while len(got) < len(order):
                world, workers, batch = (
                    self.rng.randrange(1, 4),
                    self.rng.randrange(3),
                    self.rng.randrange(1, 9),
                )
                loaders = [self.loader(workers, batch, rank, world) for rank in range(world)]
                for loader in loaders:
                    if state is not None:
                        loader.load_state_dict(json.loads(json.dumps(state)))
                        self.assertEqual((loader.state_dict(), loader.epoch), (state, 2))
                    loader.set_epoch(2)
                iterators = [iter(loader) for loader in loaders]
                first = len(got) % world  # the rank that has the next position
                for _ in range(self.rng.randrange(1, 9)):
                    shares = [next(iterator, []) for iterator in iterators]
                    in_turn = itertools.zip_longest(*shares[first:], *shares[:first])
                    got += [sample for samples in in_turn for sample in samples if sample is not None]
                states = [loader.state_dict() for loader in loaders]
                state = max(states, key=lambda one: one["position"])
                for one, share in zip(states, shares):
                    self.assertTrue(one == state or not share)
                del iterators, loaders
            self.assertEqual(got, order)

    def test_the_end_of_an_epoch(self):
        for rank, sizes in ((0, [37, 1]), (1, [37, 1]), (2, [37]), (3, [37])):
            loader = self.loader(2, 37, rank, 4)
            self.assertEqual(list(map(len, loader)), sizes)
            self.assertEqual(loader.state_dict()["position"], 150)
            again = self.loader(0)
            again.load_state_dict(loader.state_dict())
            self.assertEqual((list(again), again.state_dict()["position"]), ([], 150))
            again.set_epoch(1)
            self.assertEqual(list(again), self.order(seed=1, epoch=1, batch_size=8))

    def test_rank_and_world(self):
        with mock.patch.multiple(
            torch.distributed, is_available=lambda: True, is_initialized=lambda: True,
            get_rank=lambda: 2, get_world_size=lambda: 3, create=True,
        ):  # fmt: skip
            self.assertEqual(list(self.loader(0)), self.order(seed=1, batch_size=8, rank=2, world=3))
            self.assertEqual(
                list(self.loader(0, rank=1, world=2)), self.order(seed=1, batch_size=8, rank=1, world=2)
            )
            self.assertEqual(list(self.loader(0, rank=0)), self.order(seed=1, batch_size=8, rank=0, world=3))
        self.assertEqual(list(self.loader(0)), self.order(seed=1, batch_size=8))

    def test_selections_and_damage(self):
        whole = self.read("x.sml")
        at = whole.index(self.files["d0/f003"])
        self.write("y.sml", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with sml.open(self.path("y.sml"), sml=SML) as damaged:
            source = EpochDataset(damaged.select(match="d0/*"), key_and_size, batch_size=8, on_error="skip")
            found = [sample for batch in Loader(source, as_list, num_workers=2) for sample in batch]
            expected = {(key, len(data)) for key, data in self.files.items() if key.startswith("d0/")}
            self.assertEqual(
                (len(found), set(found)), (49, expected - {("d0/f003", len(self.files["d0/f003"]))})
            )
            with self.assertRaises(sml.Corrupt):
                list(Loader(EpochDataset(damaged, key_and_size, batch_size=8), as_list, num_workers=2))

    def test_copies(self):
        source = EpochDataset(self.dataset, key_and_size, batch_size=8, seed=1)
        source.set_epoch(5)
        copy = pickle.loads(pickle.dumps(source))
        self.assertEqual(list(copy), self.order(seed=1, epoch=5, batch_size=8))


if __name__ == "__main__":
    unittest.main()
