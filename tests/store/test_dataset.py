"""Data sets in directories and in Ceph behave alike."""

import json
import os
import signal
import subprocess
import unittest

from smltest import SML
from stores import StoreTest, in_every_store, in_one_pool

BLOCKS = ("--block-size", "64K", "--compress", "none")


class DatasetTest(StoreTest):
    def keys(self, location, *options):
        return [line.decode() for line in self.lines("ls", location, *options)]

    @in_every_store
    def test_what_is_packed_is_read_again(self, store):
        files = self.files("a", 200)
        self.ok("pack", "a", "-o", "a.sml", *BLOCKS)
        self.pack("a", store, "one", *BLOCKS)
        self.assertEqual(self.keys(store.location), sorted(files))
        self.assertEqual(self.ok("cat", store.location, "a-007.bin").decode(), files["a-007.bin"].decode())
        order = self.ok("shuffle", store.location, "--mode", "full", "--seed", "5")
        self.assertEqual(order, self.ok("shuffle", "a.sml", "--mode", "full", "--seed", "5"))
        self.assertEqual(
            self.ok("cat", store.location, stdin=order), self.ok("cat", "a.sml", stdin=order)
        )
        for how in ((), ("--quick",), ("--sample", "50")):
            self.assertTrue(self.ok("verify", store.location, *how).startswith(b"ok: "))
        self.assertEqual(store.bytes_of("one"), self.read("a.sml"))

    @in_every_store
    def test_a_revision_stays_what_it_was_until_a_container_of_it_is_removed(self, store):
        first, second = self.files("a", 20), self.files("b", 20)
        self.pack("a", store, "one")
        self.pack("b", store, "two")
        report = json.loads(self.ok("info", store.location, "--json"))
        self.assertEqual((report["revision"], report["records"]), (2, 40))
        at = store.location.rstrip("/") + "@"
        self.assertEqual(self.keys(at + "1"), sorted(first))
        self.assertEqual(self.keys(at + "2"), sorted({**first, **second}))
        self.fails(1, "no revision 3", "ls", at + "3")
        self.fails(1, "is empty", "ls", at + "0")
        self.ok("rm", store.container("one"))
        self.assertEqual(self.keys(store.location), sorted(second))
        self.assertEqual(self.keys(at + "3"), sorted(second))
        self.fails(1, "revision 2 is gone", "ls", at + "2")

    @in_every_store
    def test_a_key_is_in_one_container_only(self, store):
        self.files("a", 20)
        self.write("again/a-003.bin", b"another")
        self.pack("a", store, "one")
        before = store.left()
        self.fails(
            1, "key 'a-003.bin' is in container 'one' and in 'two'", "pack", "again", "-o", store.location, "--name", "two"
        )
        self.assertEqual(store.left(), before)

    @in_every_store
    def test_a_name_is_given_once_unless_it_is_replaced(self, store):
        self.files("a", 20)
        second = self.files("b", 30)
        self.pack("a", store, "one", *BLOCKS)
        before = store.left()
        self.fails(1, "exists already", "pack", "b", "-o", store.location, "--name", "one")
        self.assertEqual(store.left(), before)
        self.pack("b", store, "one", "--overwrite", *BLOCKS)
        self.assertEqual(self.keys(store.location), sorted(second))
        self.assertEqual(len(store.left()), len(before))
        self.ok("verify", store.location)

    @in_every_store
    def test_parts_make_a_whole_and_nothing_less(self, store):
        files = self.files("a", 60)
        pack = ("pack", "a", "-o", store.location, "--part")
        self.ok(*pack, "1/3")
        self.ok(*pack, "3/3")
        self.fails(1, "part 2 of 3 missing", "ls", store.location)
        some = self.keys(store.location, "--partial")
        self.assertTrue(0 < len(some) < len(files))
        self.fails(1, "exists already", *pack, "3/3")
        self.fails(1, "part 3 is there already", *pack, "3/3", "--name", "other")
        self.fails(1, "one of 3 parts, not 2", *pack, "2/2", "--name", "other")
        self.fails(1, "--group-by none, not stem", *pack, "2/3", "--group-by", "stem")
        self.ok(*pack, "2/3")
        self.assertEqual(self.keys(store.location), sorted(files))

    @in_every_store
    def test_removing_leaves_nothing(self, store):
        self.files("a", 30)
        self.files("b", 30)
        self.pack("a", store, "one", *BLOCKS)
        self.pack("b", store, "two", *BLOCKS)
        before = store.left()
        self.fails(2, "is a data set", "rm", store.location)
        told = self.ok("rm", "-n", "--recursive", store.location).decode().splitlines()
        self.assertEqual(
            told, [f"would remove {store.container(name)}" for name in ("one", "two")]
        )
        self.assertEqual(store.left(), before)
        self.fails(1, "o such", "rm", store.container("three"))
        self.ok("rm", "--recursive", store.location)
        self.assertEqual(store.left(), [])
        self.fails(1, "", "ls", store.location)

    @in_every_store
    def test_containers_are_copied_bit_by_bit_and_once(self, store):
        files = self.files("a", 100)
        self.ok("pack", "a", "-o", "a.sml", *BLOCKS)
        self.write("other/x", b"x")
        self.ok("pack", "other", "-o", "x.sml")
        self.ok("cp", "a.sml", store.location)
        self.assertEqual(store.bytes_of("a"), self.read("a.sml"))
        done = self.run_sml("cp", "a.sml", store.location)
        self.assertEqual((done.returncode, done.stderr), (0, b"sml cp: a is there already\n"))
        self.fails(1, "exists already", "cp", "x.sml", store.location, "--name", "a")
        back = f"back-{store.kind}/"
        self.ok("cp", store.location, back)
        self.assertEqual(self.read(back + "a.sml"), self.read("a.sml"))
        self.assertEqual(self.keys(back), sorted(files))
        self.fails(2, "is no data set", "cp", store.location, "one.sml")
        self.ok("cp", store.container("a"), f"one-{store.kind}.sml")
        self.assertEqual(self.read(f"one-{store.kind}.sml"), self.read("a.sml"))

    def test_a_file_beside_the_catalog_is_told_and_taken_in_when_asked(self):
        for name in ("a", "b"):
            self.write(f"{name}/{name}", b"x")
        self.ok("pack", "a", "-o", "set/", "--name", "one")
        self.ok("pack", "b", "-o", "two.sml")
        self.fails(1, "its directory is a data set", "pack", "b", "-o", "set/two.sml")
        os.rename(self.path("two.sml"), self.path("set/two.sml"))
        done = self.run_sml("ls", "set")
        told = b"sml ls: set/two.sml: passed over: the data set's catalog does not list it\n"
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"a\n", told))
        self.assertEqual(self.ok("ls", "set", "-q"), b"a\n")
        self.ok("cp", "set/two.sml", "set/")
        self.assertEqual(self.keys("set"), ["a", "b"])

    def test_a_publication_that_was_cut_off_is_finished_or_forgotten(self):
        for name in ("a", "b", "c"):
            self.write(f"{name}/{name}", name.encode())
        catalog, fresh = "set/.sml-catalog", "set/.sml-catalog.new"
        for replaced in (True, False):
            with self.subTest(replaced=replaced):
                self.ok("pack", "a", "-o", "set/", "--name", "one")
                before, one = self.read(catalog), self.read("set/one.sml")
                name = "one" if replaced else "two"
                self.ok("pack", "b", "-o", "set/", "--name", name, "--overwrite")
                after, packed = self.read(catalog), self.read(f"set/{name}.sml")
                pack_c = ("pack", "c", "-o", "set/", "--name", "three")
                # Cut off behind the container, before the catalog.
                for then in (
                    ("pack", "b", "-o", "set/", "--name", name, "--resume"),
                    pack_c,
                    ("cp", f"set/{name}.sml", "set/"),
                    ("rm", f"set/{name}.sml"),
                ):
                    self.write(catalog, before)
                    self.write(fresh, after)
                    self.write(f"set/{name}.sml", packed)
                    if replaced:
                        self.fails(1, "is another container", "ls", "set")
                    done = self.run_sml(*then)
                    self.assertEqual(done.returncode, 0, (then, done.stderr))
                    keys = {b"b"} if replaced else {b"a", b"b"}
                    if then is pack_c:
                        keys |= {b"c"}
                    if then[0] == "rm":
                        keys -= {b"b"}
                    self.assertEqual(set(self.run_sml("ls", "set").stdout.split()), keys)
                    self.assertFalse(os.path.exists(self.path(fresh)))
                    if then is pack_c:
                        os.remove(self.path("set/three.sml"))
                # Cut off before the container, or while the catalog was written.
                for written in (after, after[:40], b""):
                    self.write(catalog, before)
                    self.write(fresh, written)
                    self.write("set/one.sml", one)
                    if not replaced and os.path.exists(self.path("set/two.sml")):
                        os.remove(self.path("set/two.sml"))
                    self.assertEqual(self.keys("set"), ["a"])
                    self.ok(*pack_c)
                    self.assertEqual(self.keys("set"), ["a", "c"])
                    os.remove(self.path("set/three.sml"))
                self.ok("rm", "set/three.sml")
                self.ok("rm", "--recursive", "set")

    def test_what_is_not_the_data_sets_own_is_not_removed(self):
        self.write("a/a", b"a")
        self.ok("pack", "a", "-o", "set/", "--name", "one")
        self.ok("pack", "a", "--prefix", "x/", "-o", "two.sml")
        for name in (".x.0123456789abcdef.tmp", ".x.sml.0123456789abcdeg.tmp", ".sml.0123456789abcdef.tmp"):
            self.write(f"set/{name}", b"foreign")
        os.mkfifo(self.path("set/.y.sml.0123456789abcdef.tmp"))
        os.mkdir(self.path("set/.z.sml.0123456789abcdef.tmp"))
        os.rename(self.path("two.sml"), self.path("set/two.sml"))
        before = sorted(os.listdir(self.path("set")))
        self.nothing_unsealed("set")
        self.fails(1, "set/two.sml: the data set's catalog does not list it", "rm", "--recursive", "set")
        self.assertEqual(sorted(os.listdir(self.path("set"))), before)
        self.ok("rm", "set/two.sml")
        self.ok("rm", "--recursive", "set")
        own = {b"one.sml", b"two.sml", b".sml-catalog", b".sml-lock"}
        self.assertEqual(set(os.listdir(self.path("set"))), set(before) - own)
        # Who locked it meanwhile does so again: it is a data set as ever.
        self.ok("pack", "a", "-o", "set/", "--name", "one")
        self.assertEqual(self.keys("set"), ["a"])

    def test_a_file_whose_name_no_catalog_can_hold_is_told_before_packing(self):
        self.write("a/a", b"a")
        self.ok("pack", "a", "-o", "one.sml")
        for name in (b"b\x01d", b"\xff", b"x" * 201):
            self.write(b"set/" + name + b".sml", self.read("one.sml"))
            self.fails(1, "its name cannot stand in a catalog", "pack", "no-such-source", "-o", "set/")
            os.remove(self.path(b"set/" + name + b".sml"))

    @in_every_store
    def test_what_would_be_copied_is_told(self, store):
        for name in ("a", "b"):
            self.write(f"{name}/{name}", b"x")
            self.pack(name, store, name)
        told = self.ok("cp", store.location, "to/", "-n").decode()
        self.assertEqual([line.split()[-1] for line in told.splitlines()], ["to/a.sml", "to/b.sml"])
        self.assertFalse(os.path.exists(self.path("to")))
        self.fails(2, "standard output", "cp", store.container("a"), "-")

    @in_every_store
    def test_names_that_cannot_be_are_told_before_anything_is_copied(self, store):
        self.write("a/a", b"x")
        self.ok("pack", "a", "-o", "a.sml")
        for name in ("a", "b?", "c"):
            self.write(f"from/{name}.sml", self.read("a.sml"))
        self.write(b"odd/a.sml", self.read("a.sml"))
        self.write(b"odd/b\x01.sml", self.read("a.sml"))
        if store.kind == "directory":
            self.ok("cp", "from/b?.sml", store.location)
            self.ok("rm", store.container("b?"))
        else:
            self.fails(1, "from/b?.sml: its name cannot stand in", "cp", "from/", store.location)
            self.fails(2, "'b?' is no name in Ceph", "cp", "from/a.sml", store.location, "--name", "b?")
        self.fails(1, "odd/b\\x01.sml: its name cannot stand in", "cp", "odd/", store.location)
        self.assertEqual(self.run_sml("ls", store.location).stdout, b"")
        self.ok("cp", "from/b?.sml", store.location, "--name", "b")
        self.assertEqual(self.keys(store.location), ["a"])

    def test_a_revision_of_a_directory_is_only_read(self):
        self.write("a/a", b"x")
        self.ok("pack", "a", "-o", "set/", "--name", "one")
        for command in (("pack", "a", "-o"), ("cp", "set/one.sml")):
            self.fails(2, "a revision cannot be written to", *command, "set@1")
            self.fails(2, "a revision cannot be written to", *command, "set/@1")
        self.fails(2, "a revision cannot be removed", "rm", "--recursive", "set@1")
        self.assertEqual(self.keys("set@1"), ["a"])

    @in_every_store
    def test_a_damaged_block_is_not_copied(self, store):
        self.files("a", 100)
        self.ok("pack", "a", "-o", "a.sml", *BLOCKS)
        damaged = bytearray(self.read("a.sml"))
        damaged[100000] ^= 1
        self.write("a.sml", damaged)
        self.fails(1, "block 1 at offset", "cp", "a.sml", store.location)
        self.fails(1, "", "ls", store.location)

    def begun(self, store):
        """A packer that has begun container 'two' and waits for the rest of its input, which is the second value."""
        feed = self.ok("cat", store.location, "--all", "--format", "frames")
        packer = subprocess.Popen(
            [SML, "pack", "--frames", "-", "--prefix", "x/", "-o", store.location, "--name", "two"],
            stdin=subprocess.PIPE,
            cwd=self.dir,
        )
        packer.stdin.write(feed[:3000])
        packer.stdin.flush()
        # What it watches is there before it is announced.
        while b"is being packed" not in self.run_sml("rm", "--unsealed", "-n", store.location).stderr:
            pass
        return packer, feed[3000:]

    @in_every_store
    def test_what_is_being_packed_is_not_visible_and_left_alone(self, store):
        self.files("a", 10)
        self.pack("a", store, "one")
        packer, rest = self.begun(store)
        with packer:
            self.assertEqual(len(self.keys(store.location)), 10)
            done = self.run_sml("rm", "--unsealed", store.location)
            self.assertIn(b"is being packed: left alone", done.stderr)
            self.fails(1, "is being packed", "rm", "--recursive", store.location)
            self.fails(1, "is being packed", "pack", "a", "--resume", "--prefix", "x/", "-o", store.location, "--name", "two")
            packer.stdin.write(rest)
            packer.stdin.close()
            self.assertEqual(packer.wait(timeout=60), 0)
        self.assertEqual(len(self.keys(store.location)), 20)

    @in_every_store
    def test_an_interrupted_pack_takes_back_what_it_wrote(self, store):
        self.files("a", 2000, size=20000)
        self.write("b/b", b"b")
        self.pack("b", store, "one")
        before = store.left()
        for blocks in (1, 50, 300):
            command = [SML, "pack", "a", "-o", store.location, "--name", "two", *BLOCKS]
            with subprocess.Popen(command, cwd=self.dir, stderr=subprocess.PIPE) as packer:
                while packer.poll() is None and self.written(store) < blocks + 3:
                    pass
                packer.send_signal(signal.SIGINT)
                told = packer.communicate(timeout=60)[1]
            if packer.returncode == 0:  # it was faster
                self.ok("rm", store.container("two"))
            else:
                self.assertEqual((packer.returncode, told), (130, b"sml pack: interrupted\n"))
            self.assertEqual(store.left(), before)

    @in_every_store
    def test_what_a_killed_packer_left_is_removed_when_asked(self, store):
        self.files("a", 10)
        self.pack("a", store, "one")
        before = store.left()
        packer, _ = self.begun(store)
        with packer:
            packer.kill()
        self.assertEqual(len(self.keys(store.location)), 10)
        # Ceph gives up a client that died after a while.
        self.remove_unsealed(store.location)
        self.assertEqual(store.left(), before)
        self.nothing_unsealed(store.location)

    @in_every_store
    def test_removing_that_was_cut_off_is_done_again(self, store):
        self.files("a", 1200, size=20000)
        self.ok("pack", "a", "-o", "a.sml")
        feed = self.ok("cat", "a.sml", "--all", "--format", "frames")
        for unsealed in (True, False):
            command = [SML, "pack", "--frames", "-", "-o", store.location, "--name", "one", *BLOCKS]
            with subprocess.Popen(command, cwd=self.dir, stdin=subprocess.PIPE) as packer:
                packer.stdin.write(feed[:-100] if unsealed else feed)
                packer.stdin.flush()
                while unsealed and self.written(store) < 300:
                    pass
                if unsealed:
                    packer.kill()
            remove = ("rm", "--unsealed", store.location) if unsealed else ("rm", store.container("one"))
            while unsealed and b"is being packed" in self.run_sml(*remove, "-n").stderr:  # Ceph gives up a client that died after a while
                pass
            there = self.written(store)
            with subprocess.Popen([SML, *remove], cwd=self.dir) as remover:
                while remover.poll() is None and self.written(store) > there - 100:
                    pass
                remover.kill()
            self.remove_unsealed(store.location)
            self.assertEqual(self.keys_or_none(store), [])
            self.assertEqual([name for name in store.left() if "." in name.lstrip(".")], [])

    def keys_or_none(self, store):
        return self.run_sml("ls", store.location).stdout.split()

    @in_every_store
    def test_a_killed_pack_is_resumed_to_the_same_bytes(self, store):
        files = self.files("a", 400, size=20000)
        pack = ("pack", "a", "-j", "2", *BLOCKS)
        self.ok(*pack, "-o", "whole.sml")
        for blocks in (1, 20, 60):
            command = [SML, *pack, "-o", store.location, "--name", "one", "--resume"]
            with subprocess.Popen(command, cwd=self.dir) as packer:
                while packer.poll() is None and self.written(store) < blocks:
                    pass
                packer.kill()
            while True:
                done = self.run_sml(*pack, "-o", store.location, "--name", "one", "--resume", "--json")
                if b"is being packed" not in done.stderr:
                    break
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(store.bytes_of("one"), self.read("whole.sml"))
            self.assertEqual(self.keys(store.location), sorted(files))
            self.ok("verify", store.location)
            again = self.run_sml(*pack, "-o", store.location, "--name", "one", "--resume")
            self.assertEqual(again.returncode, 0)
            self.assertIn(b"complete already", again.stderr)
            self.ok("rm", store.container("one"))

    @in_every_store
    def test_a_killed_copy_goes_on(self, store):
        self.files("a", 400, size=20000)
        self.ok("pack", "a", "-o", "one.sml", *BLOCKS)
        copy = ("cp", "one.sml", store.location)
        for blocks in (1, 60):
            with subprocess.Popen([SML, *copy], cwd=self.dir) as copier:
                while copier.poll() is None and self.written(store) < blocks:
                    pass
                copier.kill()
            while b"is being packed" in (done := self.run_sml(*copy)).stderr:
                pass
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(store.bytes_of("one"), self.read("one.sml"))
            self.nothing_unsealed(store.location)
            self.assertEqual(self.left_over(store.name) if store.kind == "directory" else [], [])
            self.ok("rm", store.container("one"))

    def written(self, store):
        """Some 64 KiB written of a container that is not sealed."""
        if store.kind != "directory":
            return len(store.objects())
        total = 0
        for name in store.left():
            try:
                if name.endswith((".tmp", ".sml")):
                    total += os.path.getsize(self.path(f"{store.name}/{name}"))
            except FileNotFoundError:  # renamed or removed meanwhile
                pass
        return total // 65536

    @in_one_pool
    def test_a_hundred_packers_publish_at_once(self, store):
        packers = []
        for i in range(100):
            self.write(f"p{i}/key-{i}", b"%d" % i)
            packers.append(
                subprocess.Popen(
                    [SML, "pack", f"p{i}", "-o", store.location, "--name", f"c{i:03}", "-j", "1"],
                    cwd=self.dir,
                    stderr=subprocess.PIPE,
                )
            )
        for packer in packers:
            self.assertEqual((packer.communicate(timeout=300)[1], packer.returncode), (b"", 0))
        self.assertEqual(len(self.keys(store.location)), 100)
        self.assertEqual(json.loads(self.ok("info", store.location, "--json"))["revision"], 100)


if __name__ == "__main__":
    unittest.main()
