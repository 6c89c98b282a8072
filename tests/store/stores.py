"""What the tests of data sets share: the same behaviour in a directory and in every pool."""

import functools
import itertools
import os
import subprocess

from smltest import SmlTest

POOLS = os.environ.get("SML_TEST_POOLS", "").split()

_numbers = itertools.count()


class Directory:
    def __init__(self, test):
        self.name = f"set{next(_numbers)}"
        self.location = self.name + "/"
        self.kind = "directory"
        self.test = test

    def container(self, name):
        return f"{self.name}/{name}.sml"

    def left(self):
        """What is left where the data set was."""
        path = self.test.path(self.name)
        return sorted(map(os.fsdecode, os.listdir(path))) if os.path.isdir(path) else []

    def bytes_of(self, name):
        return self.test.read(self.container(name))


class Pool:
    def __init__(self, pool):
        self.pool = pool
        self.name_space = f"test-{os.getpid()}-{next(_numbers)}"
        self.location = f"rados://{pool}/{self.name_space}"
        self.kind = pool

    def container(self, name):
        return f"{self.location}/{name}"

    def rados(self, *arguments, data=None):
        return subprocess.run(
            ["rados", "-p", self.pool, "-N", self.name_space, *arguments],
            input=data,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        ).stdout

    def left(self):
        return sorted(os.fsdecode(self.rados("ls")).split())

    def objects(self):
        """Of containers, in the order of their numbers."""
        return [name for name in self.left() if "." in name and not name.endswith(".w")]

    def bytes_of(self, _name):
        """Of the only container there is."""
        return b"".join(self.rados("get", name, "-") for name in self.objects())


def _over(kinds):
    """Runs a test with each kind of store in turn, in an empty directory and with a data set that is not there yet."""

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            if not kinds:
                self.skipTest("there is no cluster (SML_TEST_POOLS)")
            for kind in kinds:
                self.tearDown()
                self.setUp()
                store = Directory(self) if kind == "directory" else Pool(kind)
                with self.subTest(store=kind):
                    try:
                        test(self, store)
                    finally:
                        if store.left():
                            self.run_sml("rm", "--recursive", store.location)

        return run

    return decorate


in_every_store = _over(["directory", *POOLS])
in_every_pool = _over(POOLS)
in_one_pool = _over(POOLS[:1])


class StoreTest(SmlTest):
    def files(self, directory, count, size=2000):
        """Small files with bytes that their names tell, packed from `directory`: key -> bytes."""
        made = {}
        for i in range(count):
            key = f"{directory}-{i:03}.bin"
            made[key] = (key.encode() + b"\n") * (size // (len(key) + 1) + i % 7)
            self.write(f"{directory}/{key}", made[key])
        return made

    def remove_unsealed(self, location):
        """Removes what a packer left that is gone, or just about to be: Ceph gives up a client that died after a while."""
        while True:
            done = self.run_sml("rm", "--unsealed", location)
            if done.returncode == 0 and b"is being packed" not in done.stderr:
                return

    def nothing_unsealed(self, location):
        done = self.run_sml("rm", "--unsealed", location)
        told = f"sml rm: {location}: nothing is unsealed\n".encode()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", told))

    def pack(self, directory, store, name, *options):
        return self.ok("pack", directory, "-o", store.location, "--name", name, *options)
