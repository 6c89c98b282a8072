"""Blocks of data sets in Ceph, kept on this machine."""

import os
import re
import signal
import subprocess
import unittest

from smltest import SML
from stores import StoreTest, in_every_pool, in_one_pool

BLOCKS = ("--block-size", "64K", "--compress", "none")
CEPH_DIR = os.environ.get("SML_TEST_CEPH_DIR", "")


def counters(stderr):
    return {name.decode(): float(value) for name, value in re.findall(rb"^(\w+) ([0-9.]+)$", stderr, re.M)}


class BlockCacheTest(StoreTest):
    def packed(self, store):
        files = self.files("a", 300)
        self.pack("a", store, "one", *BLOCKS)
        self.cache = ("--cache-dir", os.path.join(self.dir, "cache"))
        self.ok("cache", "init", "--size", "16M", *self.cache)
        return files

    def read_all(self, store, files):
        """Reads every record by key, through the cache, and compares; what the reader counted."""
        keys = "".join(f"{key}\n" for key in files).encode()
        done = self.run_sml("cat", store.location, "--stats", *self.cache, stdin=keys)
        self.assertEqual((done.returncode, done.stdout), (0, b"".join(files.values())), done.stderr)
        return counters(done.stderr)

    @in_every_pool
    def test_what_was_read_once_is_not_asked_for_again(self, store):
        files = self.packed(store)
        blocks = len([name for name in store.objects()]) - 2  # header, footer
        first = self.read_all(store, files)
        self.assertEqual((first["blocks_kept"], first["operations"]), (blocks, blocks))
        second = self.read_all(store, files)
        self.assertEqual((second["operations"], second["cache_hits"]), (0, len(files)))

        # The object of a block, and the file of the cache, are the same bytes.
        directory = os.path.join(self.dir, "cache/blocks")
        (container,) = [name for name in os.listdir(directory) if len(name) == 32]
        kept = sorted(os.listdir(os.path.join(directory, container)))
        for name in kept:
            (an_object,) = [one for one in store.objects() if int(one.split(".")[1], 16) == int(name, 16) + 1]
            self.assertEqual(store.rados("get", an_object, "-"), self.read(f"cache/blocks/{container}/{name}"))

        # What is damaged here is fetched again.
        path = os.path.join(directory, container, kept[1])
        data = bytearray(self.read(f"cache/blocks/{container}/{kept[1]}"))
        data[len(data) // 2] ^= 1
        os.unlink(path)
        self.write(f"cache/blocks/{container}/{kept[1]}", bytes(data))
        third = self.read_all(store, files)
        self.assertEqual((third["blocks_damaged"], third["blocks_kept"], third["operations"]), (1, 1, 1))

        # A new container of the same name is another one.
        self.files("a", 300, size=2100)
        self.pack("a", store, "one", "--overwrite", *BLOCKS)
        self.assertEqual(self.read_all(store, self.files("a", 300, size=2100))["cache_hits"], 0)

    @in_every_pool
    def test_warming_takes_all_of_it(self, store):
        files = self.packed(store)
        said = self.ok("cache", "warm", store.location, *self.cache).decode()
        self.assertRegex(said, r"^fetched \d+ blocks, .*; 0 were there\n$")
        self.assertEqual(self.read_all(store, files)["operations"], 0)
        self.assertRegex(self.ok("cache", "clear", *self.cache).decode(), r"; 1 index file\n$")

    @unittest.skipUnless(CEPH_DIR, "no cluster whose OSDs may be stopped (SML_TEST_CEPH_DIR)")
    @in_one_pool
    def test_while_all_that_is_needed_is_cached_the_store_may_be_gone(self, store):
        files = self.packed(store)
        self.read_all(store, files)
        process = subprocess.Popen(
            [SML, "cat", store.location, "--ceph-timeout", "3", *self.cache],
            cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        keys = list(files)
        process.stdin.write(f"{keys[0]}\n".encode())
        process.stdin.flush()
        self.assertEqual(process.stdout.read(1), files[keys[0]][:1])
        pids = []
        for number in range(3):
            with open(os.path.join(CEPH_DIR, f"osd.{number}.pid"), encoding="ascii") as file:
                pids.append(int(file.read()))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            rest, said = process.communicate("".join(f"{key}\n" for key in keys[1:]).encode(), timeout=60)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        self.assertEqual((process.returncode, said), (0, b""))
        self.assertEqual(rest, b"".join(files.values())[1:])


if __name__ == "__main__":
    unittest.main()
