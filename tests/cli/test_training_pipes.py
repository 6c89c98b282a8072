"""shuffle | cat --format tar as loaders of tar streams take it: tarfile in stream mode, and samples of adjacent members."""

import os
import random
import subprocess
import tarfile
import unittest

from smltest import SML, SmlTest

SEED = 20261201


def samples_of(stream):
    """The rules of WebDataset: a member's key is its name up to the first dot of the base name, its field the rest in lower case;
    adjacent members of one key are a sample."""
    samples = []
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            directory, slash, base = os.fsencode(member.name).rpartition(b"/")
            stem, _, field = base.partition(b".")
            key = directory + slash + stem
            if not samples or samples[-1]["__key__"] != key or field.lower() in samples[-1]:
                samples.append({"__key__": key})
            samples[-1][field.lower()] = tar.extractfile(member).read()
    return samples


class TarStreams(SmlTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(SEED)
        self.samples = {}
        for i in range(150):
            key = b"class%d/%05d" % (i % 7, i)
            fields = {b"jpg": rng.randbytes(rng.randrange(20_000)), b"cls": b"%d" % (i % 7), b"seg.PNG": rng.randbytes(100)}
            for field, data in fields.items():
                self.write(os.path.join(b"src", key + b"." + field), data)
            self.samples[key] = {field.lower(): data for field, data in fields.items()}
        self.ok("pack", "src", "-o", "x.sml", "--group-by", "stem", "--block-size", "256K")

    def stream(self, *options):
        shuffle = subprocess.Popen([SML, "shuffle", "x.sml", *options], cwd=self.dir, stdout=subprocess.PIPE)
        cat = subprocess.Popen([SML, "cat", "x.sml", "--format", "tar"], cwd=self.dir, stdin=shuffle.stdout, stdout=subprocess.PIPE)
        shuffle.stdout.close()
        samples = samples_of(cat.stdout)
        cat.stdout.read()
        cat.stdout.close()
        self.assertEqual((shuffle.wait(timeout=60), cat.wait(timeout=60)), (0, 0))
        return samples

    def test_every_sample_is_whole_and_comes_once_over_the_ranks(self):
        for epoch in ("0", "1"):
            seen = {}
            for rank in range(8):
                for sample in self.stream("--rank", str(rank), "--world", "8", "--epoch", epoch):
                    key = sample.pop("__key__")
                    self.assertNotIn(key, seen)
                    seen[key] = sample
            self.assertEqual(seen, self.samples)

    def test_seeds_and_epochs_give_orders_of_their_own(self):
        def keys(*options):
            return [sample["__key__"] for sample in self.stream(*options)]

        first = keys("--seed", "1", "--epoch", "0")
        self.assertEqual(keys("--seed", "1", "--epoch", "0"), first)
        self.assertNotEqual(keys("--seed", "1", "--epoch", "1"), first)
        self.assertNotEqual(keys("--seed", "2", "--epoch", "0"), first)


if __name__ == "__main__":
    unittest.main()
