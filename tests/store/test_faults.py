"""What goes wrong in Ceph, and behind our back, is told in one line, in time, and nothing is half visible."""

import os
import signal
import struct
import subprocess
import sys
import unittest

from smltest import SML
from stores import POOLS, StoreTest, in_every_pool, in_one_pool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance"))
import sml_catalog  # noqa: E402
import sml_forge  # noqa: E402

BLOCKS = ("--block-size", "64K", "--compress", "none")
CEPH_DIR = os.environ.get("SML_TEST_CEPH_DIR", "")
CEPH_DEV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/ceph-dev")


def ceph(*arguments):
    return subprocess.run(["ceph", *arguments], check=True, capture_output=True, timeout=120).stdout


def ceph_dev(*arguments):
    subprocess.run([CEPH_DEV, *arguments, "--dir", CEPH_DIR], check=True, capture_output=True, timeout=120)


def osd_pid(number):
    with open(os.path.join(CEPH_DIR, f"osd.{number}.pid"), encoding="ascii") as file:
        return int(file.read())


class FaultTest(StoreTest):
    def packed(self, store, count=200):
        files = self.files("a", count)
        self.pack("a", store, "one", *BLOCKS)
        return files

    @in_every_pool
    def test_a_missing_object_is_named_and_only_its_records_are_lost(self, store):
        files = self.packed(store)
        block = store.objects()[3]
        store.rados("rm", block)
        for how in ("--quick", "--remote"):
            self.finds(store, how, block, "block 2")
        done = self.run_sml("cat", store.location, "--all", "--on-error", "skip", "-C", "out")
        self.assertEqual(done.returncode, 3)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), len(files) - len(self.tree("out")))
        self.assertTrue(lines and all(block in line and "is missing from pool" in line for line in lines), lines[:3])
        for name, data in self.tree("out").items():
            self.assertEqual(data, files[os.fsdecode(name)])
        # What is there can be saved.
        done = self.run_sml("recover", store.container("one"), "-o", "saved.sml")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(len(self.lines("ls", "saved.sml")), len(self.tree("out")))
        told = done.stderr.decode().splitlines()
        self.assertEqual(len(told), len(files) - len(self.tree("out")))
        for line in told:
            self.assertRegex(line, rf": record 'a-\d+.bin': reading object {block}: it is missing from pool {store.pool}$")
        # So is one that is cut, and one that is damaged is none of both.
        store.rados("put", block, "-", data=b"short")
        told = self.run_sml("recover", store.container("one"), "-o", "saved.sml", "--overwrite").stderr
        self.assertEqual(told.count(b"reading object " + block.encode() + b": it is too short"), len(lines))
        store.rados("put", block, "-", data=bytes(65536))
        told = self.run_sml("recover", store.container("one"), "-o", "saved.sml", "--overwrite").stderr
        self.assertEqual(told.count(b"checksum mismatch"), len(lines))

    def finds(self, store, how, *expected):
        """`sml verify` with the option `how` finds one thing, whose line has all of `expected`."""
        done = self.run_sml("verify", store.location, how)
        self.assertEqual(done.returncode, 1)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        for text in expected:
            self.assertIn(text, lines[0])

    @in_every_pool
    def test_damaged_and_cut_objects_are_found(self, store):
        self.packed(store)
        names = store.objects()
        damaged = bytearray(store.rados("get", names[2], "-"))
        damaged[5000] ^= 1
        store.rados("put", names[2], "-", data=bytes(damaged))
        self.finds(store, "--remote", "block 1", "checksum mismatch")
        self.assertTrue(self.ok("verify", store.location, "--quick").startswith(b"ok: "))
        self.assertNotEqual(self.run_sml("verify", store.location).returncode, 0)
        self.assertEqual(self.run_sml("cat", store.location, "--all").returncode, 1)
        store.rados("put", names[2], "-", data=bytes(damaged[:1000]))
        self.finds(store, "--quick", names[2], "has 1000 bytes instead of")

    @in_every_pool
    def test_a_damaged_header_and_footer_are_found(self, store):
        self.packed(store)
        names = store.objects()
        for name, where in ((names[0], "header"), (names[-1], "footer")):
            whole = store.rados("get", name, "-")
            store.rados("put", name, "-", data=whole[:20] + b"x" + whole[21:])
            self.finds(store, "--remote", where, "checksum mismatch")
            self.assertEqual(self.run_sml("verify", store.location).returncode, 1)
            store.rados("put", name, "-", data=whole)
            self.ok("verify", store.location, "--remote")

    @in_every_pool
    def test_a_damaged_catalog_is_told(self, store):
        self.packed(store, 10)
        whole = store.rados("get", "catalog", "-")
        for damaged, expected in (
            (whole.replace(b'"revision":1', b'"revision":2'), "checksum mismatch"),
            (whole[:-30], "checksum mismatch"),
            (b"", "does not begin as a catalog does"),
            (whole.replace(b"catalog 1", b"catalog 2"), "newer"),
        ):
            store.rados("put", "catalog", "-", data=damaged)
            for command in (("ls",), ("verify",), ("rm", "--recursive"), ("pack", "a", "--name", "x", "-o")):
                self.fails(1, expected, *command, store.location)
        store.rados("put", "catalog", "-", data=whole)
        self.assertEqual(len(self.lines("ls", store.location)), 10)

    @in_one_pool
    def test_a_catalog_that_has_no_version_is_told(self, store):
        self.packed(store, 10)
        version = store.rados("getxattr", "catalog", "version").decode()
        store.rados("rmxattr", "catalog", "version")
        for command in (("ls",), ("rm", "--recursive"), ("pack", "a", "--name", "x", "-o")):
            self.fails(1, "no attribute 'version'", *command, store.location)
        store.rados("setxattr", "catalog", "version", version)

    @in_one_pool
    def test_a_packer_that_was_away_does_no_harm_to_who_took_over(self, store):
        for key, data in self.files("a", 1200, size=20000).items():
            self.write(f"b/{key}", data[::-1])
        whole, other = (self.frames(name) for name in "ab")
        cut = len(sml_forge.FRAMES_MAGIC)  # a quarter, up to the end of a frame
        while cut < len(whole) // 4:
            cut += 32 + sum(struct.unpack_from("<HI", whole, cut + 6))
        pack = [SML, "pack", "--frames", "-", "-o", store.location, "--name", "one", "--resume", *BLOCKS]

        def begin(bytes_given):
            packer = subprocess.Popen(pack, cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            packer.stdin.write(whole[:bytes_given])
            packer.stdin.flush()
            return packer

        with begin(len(whole) // 2) as packer:
            while len(store.objects()) < 40:
                pass
            packer.kill()
        while b"is being packed" in self.run_sml("rm", "--unsealed", "-n", store.location).stderr:
            pass
        with begin(cut) as away:
            while b"is being packed" not in self.run_sml("rm", "--unsealed", "-n", store.location).stderr:
                pass
            away.send_signal(signal.SIGSTOP)
            while b"is being packed" in (done := self.run_sml(*pack[1:], stdin=whole)).stderr:
                pass
            self.assertEqual(done.returncode, 0, done.stderr)
            away.send_signal(signal.SIGCONT)
            told = away.communicate(other[cut:], timeout=120)[1]
            self.assertEqual(away.returncode, 1, told)
            self.assertIn(b"another process", told)
            self.assertNotIn(b"--resume", told)
            self.assertNotIn(b"is kept", told)
        self.ok("verify", store.location)
        self.assertEqual(self.ok("cat", store.location, "--all", "--format", "frames"), whole)

    def frames(self, directory):
        self.ok("pack", directory, "-o", f"{directory}.sml")
        return self.ok("cat", f"{directory}.sml", "--all", "--format", "frames")

    @unittest.skipUnless(CEPH_DIR, "no cluster whose OSDs may be stopped (SML_TEST_CEPH_DIR)")
    @in_one_pool
    def test_writes_without_an_answer_leave_nothing_that_is_not_found_again(self, store):
        files = self.packed(store)
        before = store.left()
        self.files("b", 400, size=20000)
        for i in range(3):
            pid = osd_pid(i)
            os.kill(pid, signal.SIGSTOP)
            try:
                done = self.run_sml(
                    "pack", "b", "-o", store.location, "--name", "two", "--ceph-timeout", "2", *BLOCKS, timeout=60
                )
            finally:
                os.kill(pid, signal.SIGCONT)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.remove_unsealed(store.location)
            self.assertEqual(store.left(), before)

    @in_one_pool
    def test_a_catalog_that_says_what_is_not_there_is_told_and_takes_no_memory(self, store):
        files = self.packed(store, 600)
        whole = store.rados("get", "catalog", "-")
        (one,) = sml_catalog.decode(whole)["containers"]
        end, blocks, size = one["blocks_end"], one["blocks"], one["bytes"]
        rest, footer = f"{one['incarnation']}.{blocks + 1:08x}", store.bytes_of("one")[end:]
        other_id, catalog_of_directory = {"id": "0" * 32}, {"incarnation": "0" * 16}
        for fields, expected in (
            ({"bytes": 2**63 - 1}, "instead of 16777216"),
            ({"bytes": 2**63 - 1, "blocks_end": 2**63 - 4096 - 64, "blocks": 2**56}, "is missing"),
            ({"bytes": size + 1}, f"instead of {len(footer) + 1}"),
            ({"blocks": blocks - 1}, "instead of"),
            ({"blocks": blocks + 1}, "is missing"),
            ({"blocks_end": end - 1}, "instead of"),
            ({"header_bytes": 256}, "its objects are those of container"),
            ({"records": 601}, "has other records"),
            ({"grouping": "stem"}, "has other records"),
            ({"part": 1, "parts": 2}, "has other records"),
            (other_id, "its objects are those of container"),
            (catalog_of_directory, "that of a directory"),
            # Objects that fit, and a footer that begins before.
            ({"blocks_end": (end + 4095) // 4096 * 4096 + 64}, "does not begin where the catalog says"),
        ):
            with self.subTest(**fields):
                catalog = sml_catalog.decode(whole)
                catalog["containers"][0].update(fields)
                store.rados("put", "catalog", "-", data=sml_catalog.encode(catalog))
                if "catalog says" in expected:
                    store.rados("put", rest, "-", data=footer[fields["blocks_end"] - end :])
                for command in ("ls", "verify"):
                    self.fails(1, expected, command, store.location, "--partial", env={"SML_CACHE_DIR": self.dir + "/none"})
                if fields.get("blocks") == 2**56:
                    done = self.run_sml("recover", store.container("one"), "-o", "saved.sml")
                    self.assertIn(done.returncode, (0, 3), done.stderr)
                    self.assertEqual(len(self.lines("ls", "saved.sml")), len(files))
        store.rados("put", rest, "-", data=footer)
        store.rados("put", "catalog", "-", data=whole)
        self.assertEqual(len(self.lines("ls", store.location)), len(files))

    @in_one_pool
    def test_who_cannot_be_reached_or_may_not_is_told_in_one_line(self, store):
        self.packed(store, 10)
        self.fails(1, "no such pool 'nosuchpool'", "ls", "rados://nosuchpool/x")
        nowhere = self.write("nowhere.conf", b"[global]\nmon host = 127.0.0.1:1\nkeyring = /nowhere\nauth client required = none\n")
        timeout = ("--ceph-timeout", "2")
        self.fails(1, "", "ls", store.location, "--ceph-conf", os.fsdecode(nowhere), *timeout)
        self.fails(1, "", "ls", store.location, "--ceph-conf", "no-such-file.conf", *timeout)
        self.fails(1, "nobody", "ls", store.location, "--ceph-user", "nobody", *timeout)
        self.fails(1, "nobody", "ls", store.location + "?user=nobody", *timeout)

    @in_one_pool
    def test_a_user_can_be_confined_to_one_data_set(self, store):
        self.packed(store, 10)
        self.write("b/b", b"b")
        user = f"sml-test-{os.getpid()}"
        caps = f"allow rwx pool={store.pool} namespace={store.name_space}"
        key = ceph("auth", "get-or-create", f"client.{user}", "mon", "allow r", "osd", caps)
        keyring = os.fsdecode(self.write("keyring", key))
        with open(os.environ["CEPH_CONF"], encoding="utf-8") as file:
            conf = "".join(line for line in file if not line.lstrip().startswith("keyring"))
        own = os.fsdecode(self.write("own.conf", (conf + f"\n[client.{user}]\nkeyring = {keyring}\n").encode()))
        confined = f"?conf={own}&user={user}"
        try:
            self.assertEqual(len(self.lines("ls", store.location + confined)), 10)
            self.ok("pack", "b", "-o", store.location + confined, "--name", "two")
            self.ok("verify", store.location + confined, "--remote")
            self.ok("rm", store.location + "/two" + confined)
            other = f"rados://{store.pool}/another-{os.getpid()}"
            for command in (("ls",), ("pack", "b", "-o")):
                self.fails(1, "not permitted", *command, other + confined)
        finally:
            ceph("auth", "rm", f"client.{user}")

    @in_one_pool
    def test_a_full_pool_is_told_and_nothing_is_left(self, store):
        pool = f"small-{os.getpid()}"
        ceph("osd", "pool", "create", pool, "8", "8", "replicated")
        ceph("osd", "pool", "set-quota", pool, "max_objects", "10")
        location = f"rados://{pool}/set"
        try:
            self.files("a", 400, size=20000)
            # The pool is marked as full some time after it has become so.
            for i in range(100):
                done = self.run_sml("pack", "a", "--prefix", f"{i}/", "-o", location, "--name", f"c{i}", *BLOCKS)
                if done.returncode != 0:
                    break
            lines = done.stderr.decode().splitlines()
            self.assertEqual((done.returncode, len(lines)), (1, 2), lines)
            self.assertIn(f"pool {pool} is full", lines[0])
            ceph("osd", "pool", "set-quota", pool, "max_objects", "0")
        finally:
            ceph("osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")

    @unittest.skipUnless(CEPH_DIR, "no cluster whose OSDs may be stopped (SML_TEST_CEPH_DIR)")
    @in_one_pool
    def test_an_osd_that_is_gone_ends_the_wait_and_nothing_is_half_visible(self, store):
        files = self.packed(store)
        self.files("b", 400, size=20000)
        timeout = ("--ceph-timeout", "3")
        ceph_dev("stop-osd", "1")
        try:
            for command in (
                ("cat", store.location, "--all", *timeout),
                ("verify", store.location, *timeout),
                ("verify", store.location, "--quick", *timeout),
                ("pack", "b", "-o", store.location, "--name", "two", *timeout, *BLOCKS),
            ):
                done = self.run_sml(*command, timeout=60)
                lines = done.stderr.decode().splitlines()
                self.assertEqual((done.returncode, len(lines)), (1, 2), lines)
                self.assertIn("no answer within 3 s", lines[0])
                self.assertIn("ceph -s", lines[1])
        finally:
            ceph_dev("start-osd", "1")
        self.assertEqual(len(self.lines("ls", store.location)), len(files))
        self.ok("verify", store.location)
        # What was begun may have been left: it is removed when asked.
        self.remove_unsealed(store.location)
        self.pack("b", store, "two", *BLOCKS)

    @unittest.skipUnless(CEPH_DIR, "no cluster whose OSDs may be stopped (SML_TEST_CEPH_DIR)")
    @in_one_pool
    def test_with_two_copies_an_osd_that_is_gone_is_not_noticed(self, store):
        files = self.files("b", 3000, size=20000)
        location = f"rados://sml-rep2/{store.name_space}"
        try:
            command = [SML, "pack", "b", "-o", location, "--name", "one", *BLOCKS]
            with subprocess.Popen(command, cwd=self.dir, stderr=subprocess.PIPE) as packer:
                ceph_dev("stop-osd", "0")
                self.assertEqual(packer.communicate(timeout=120), (None, b""))
                self.assertEqual(packer.returncode, 0)
            self.assertEqual(self.ok("cat", location, "b-007.bin").decode(), files["b-007.bin"].decode())
            self.ok("verify", location)
        finally:
            ceph_dev("start-osd", "0")
            self.run_sml("rm", "--recursive", location)


if __name__ == "__main__":
    if not POOLS:
        print("there is no cluster (SML_TEST_POOLS)")
        sys.exit(77)
    unittest.main()
