"""The block cache: `sml cache`, and reading through it, with whatever happens to the directory meanwhile. `--far` reads a
container file as if it lay far away."""

import fcntl
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import threading
import time
import unittest

from smltest import SANITIZED, SML, SmlTest

SEED = 20261201
BLOCK = 64 << 10


def stats_of(stderr):
    return {name.decode(): float(value) for name, value in re.findall(rb"^(\w+) ([0-9.]+)$", stderr, re.M)}


class CacheTest(SmlTest):
    def setUp(self):
        super().setUp()
        self.cache = os.path.join(self.dir, "cache")
        self.numbers = random.Random(SEED)
        self.records = []

    def pack(self, name="data.sml", records=600, prefix=""):
        """Records of some 3 KB in blocks of 64 KiB; the container's path."""
        for number in range(records):
            self.write(f"src.{name}/{prefix}{number:05d}", self.numbers.randbytes(self.numbers.randrange(6000)))
        self.ok("pack", f"src.{name}", "-o", name, "--compress", "none", "--block-size", "64K", "-q")
        return os.path.join(self.dir, name)

    def data(self, name="data.sml"):
        """What `cat --all` gives."""
        return self.ok("cat", name, "--all")

    def init(self, size):
        return self.ok("cache", "init", "--size", str(size), "--cache-dir", self.cache)

    def info(self):
        return json.loads(self.ok("cache", "info", "--json", "--cache-dir", self.cache))

    def cat(self, name="data.sml", *options, code=0, env=None, **keywords):
        """All records by number, through the cache; the bytes, the counters, and what else was said."""
        done = self.run_sml(
            "cat", name, "--all", "--far", "--stats", "--cache-dir", self.cache, *options, env=env, **keywords
        )
        self.assertEqual(done.returncode, code, done.stderr)
        said = [line for line in done.stderr.splitlines() if not re.match(rb"^\w+ [0-9.]+$", line)]
        return done.stdout, stats_of(done.stderr), said

    def block_files(self):
        found = {}
        for directory, _, names in os.walk(os.path.join(self.cache, "blocks")):
            for name in names:
                if re.fullmatch("[0-9a-f]{8}", name):
                    found[os.path.join(directory, name)] = os.path.getsize(os.path.join(directory, name))
        return found

    def state(self):
        with open(os.path.join(self.cache, "blocks/state"), "rb") as file:
            magic, version, flags, limit, taken, generation = struct.unpack("<8sIIQQQ", file.read(40))
        self.assertEqual((magic, version, flags), (b"SMLCACHE", 1, 0))
        return limit, taken, generation

    def assert_sound(self, name="data.sml", taken=None):
        """Every file in the cache is a block of the container; what is counted is what is there, or more."""
        document = json.loads(self.ok("info", "--json", name))
        with open(self.path(name), "rb") as file:
            container = file.read()
        rounded = 0
        for path, size in self.block_files().items():
            self.assertIn(document["containers"][0]["id"], path)
            with open(path, "rb") as file:
                self.assertIn(file.read(), container, path)
            rounded += -(-size // 4096) * 4096
        limit, counted, _ = self.state()
        self.assertLessEqual(rounded, limit)
        self.assertLessEqual(rounded, counted)
        if taken is not None:
            self.assertEqual(counted, rounded)


class Directory(CacheTest):
    def test_a_cache_is_made_filled_looked_at_and_emptied(self):
        self.pack()
        expected = self.data()
        blocks = json.loads(self.ok("info", "--json", "data.sml"))["blocks"]
        self.assertEqual(self.init("8M").decode(), f"{self.cache}: room for 8.0 MiB of blocks\n")
        said = self.ok("cache", "warm", "data.sml", "--far", "--cache-dir", self.cache).decode()
        self.assertRegex(said, rf"^fetched {blocks} blocks, 1\.\d MiB; 0 were there\n$")
        said = self.ok("cache", "warm", "data.sml", "--far", "--cache-dir", self.cache).decode()
        self.assertEqual(said, f"fetched 0 blocks, 0 bytes; {blocks} were there\n")
        given, stats, said = self.cat()
        self.assertEqual((given, said), (expected, []))
        self.assertEqual((stats["cache_hits"], stats["cache_misses"], stats["operations"]), (600, 0, 0))
        self.assert_sound(taken=True)
        info = self.info()
        self.assertEqual((info["blocks"], info["limit_bytes"]), (blocks, 8 << 20))
        self.assertEqual([one["in_use"] for one in info["containers"]], [False])
        text = self.ok("cache", "info", "--cache-dir", self.cache).decode()
        self.assertRegex(text, rf"\nblocks      {blocks}, 1\.\d MiB of 8\.0 MiB\n")
        said = self.ok("cache", "trim", "--size", "1M", "--cache-dir", self.cache).decode()
        self.assertRegex(said, r"^removed \d+ blocks, [0-9.]+ KiB\n$")
        self.assertLessEqual(self.info()["block_bytes"], 1 << 20)
        said = self.ok("cache", "clear", "--cache-dir", self.cache).decode()
        self.assertRegex(said, r"^removed \d+ blocks, [0-9.]+ KiB; 1 index file\n$")
        self.assertEqual(self.block_files(), {})
        self.assertEqual(self.cat()[0], expected)

    def test_a_size_by_option_or_environment_makes_one_and_the_directory_keeps_its_own(self):
        self.pack()
        given, stats, said = self.cat()
        self.assertEqual((stats["blocks_kept"], said), (0, []))
        _, stats, said = self.cat(env={"SML_CACHE_SIZE": "4M"})
        self.assertGreater(stats["blocks_kept"], 10)
        self.assertEqual(said, [])
        _, stats, said = self.cat("data.sml", "--cache-size", "5M")
        self.assertEqual(stats["cache_hits"], 600)
        self.assertEqual(
            said,
            [f"sml cat: {self.cache}: the cache has room for 4.0 MiB already; 'sml cache init' changes it".encode()],
        )
        _, stats, said = self.cat("data.sml", "--cache-size", "0", env={"SML_CACHE_SIZE": "4M"})
        self.assertEqual((stats["cache_hits"], said), (0, []))
        self.init("6M")
        self.assertEqual(self.info()["limit_bytes"], 6 << 20)
        self.fails(2, "SML_CACHE_SIZE", "cat", "data.sml", "--all", "--far", env={"SML_CACHE_SIZE": "much"})

    def test_a_mapped_container_needs_no_cache(self):
        self.pack()
        self.init("8M")
        done = self.run_sml("cache", "warm", "data.sml", "--cache-dir", self.cache)
        self.assertEqual((done.returncode, done.stdout), (0, b""))
        self.assertIn(b"is mapped", done.stderr)
        self.assertEqual(self.block_files(), {})

    def test_what_somebody_broke_is_mended_by_init(self):
        self.pack()
        expected = self.data()
        for broken in ("state", "locks"):
            for content in (b"", b"garbage", None):
                self.init("8M")
                path = os.path.join(self.cache, "blocks", broken)
                os.unlink(path)
                if content is not None:
                    self.write(path, content)
                if broken == "state" and content is not None or broken == "locks" and content is None:
                    given, _, said = self.cat()
                    self.assertEqual((given, len(said)), (expected, 1))
                self.init("8M")
                given, _, said = self.cat()
                self.assertEqual((given, said), (expected, []))

    def test_other_peoples_directories_are_not_tagged(self):
        self.pack()
        self.write("mine/file", b"mine")
        self.ok("cache", "init", "--size", "8M", "--cache-dir", "mine")
        self.ok("cat", "data.sml", "--all", "--far", "--cache-dir", "mine")
        self.assertNotIn(b"CACHEDIR.TAG", os.listdir(self.path("mine")))
        self.ok("cache", "clear", "--cache-dir", "mine")
        self.assertEqual(self.read("mine/file"), b"mine")
        self.init("8M")
        self.assertIn("CACHEDIR.TAG", os.listdir(self.cache))

    def test_wrong_usage(self):
        self.pack(records=10)
        cache = ("--cache-dir", self.cache)
        self.fails(2, "no action", "cache")
        self.fails(2, "'fill' is none of", "cache", "fill", *cache)
        self.fails(2, "no size", "cache", "init", *cache)
        self.fails(2, "without room", "cache", "init", "--size", "63K", *cache)
        self.fails(2, "no DATASET", "cache", "warm", *cache)
        self.fails(2, "--group is not for trim", "cache", "trim", "--group", *cache)
        self.fails(2, "DATASET is not for clear", "cache", "clear", "data.sml", *cache)
        self.fails(1, "no room for blocks", "cache", "warm", "data.sml", "--far", *cache)
        self.fails(1, "no room for blocks", "cache", "trim", *cache)
        self.assertEqual(self.ok("cache", "info", *cache).decode().splitlines()[-1], "blocks      no room")

    def test_a_size_below_one_block_is_refused_with_the_size_needed(self):
        self.pack()
        self.ok("cp", "data.sml", "again.sml", "-q")
        self.ok("pack", "src.data.sml", "-o", "large.sml", "--compress", "none", "-q")
        self.init(BLOCK)
        self.fails(1, "a block of large.sml takes", "cat", "large.sml", "--all", "--far", "--cache-dir", self.cache)
        self.assertEqual(self.cat()[0], self.data())

    def test_warming_tells_what_has_no_room_and_what_is_damaged(self):
        path = self.pack()
        self.init("512K")
        done = self.run_sml("cache", "warm", "data.sml", "--far", "--cache-dir", self.cache)
        self.assertEqual((done.returncode, done.stderr), (3, b""))
        self.assertRegex(done.stdout.decode(), r"^fetched \d+ blocks, \d+\.\d KiB; 0 were there; no room for \d+\n$")
        self.init("8M")
        self.ok("cache", "clear", "--cache-dir", self.cache)
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"damaged")
        done = self.run_sml("cache", "warm", "data.sml", "--far", "--cache-dir", self.cache)
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr.decode(), r"^sml cache: data.sml: block \d+: checksum mismatch\n$")
        self.assertIn(b"; 1 cannot be read", done.stdout)


class Faults(CacheTest):
    def assert_goes_on(self, expected, warning, **keywords):
        given, stats, said = self.cat(**keywords)
        self.assertEqual(given, expected)
        self.assertEqual(len(said), 1, said)
        self.assertTrue(said[0].startswith(b"sml cat: warning: "), said)
        self.assertIn(warning, said[0].decode())
        return stats

    def test_what_cannot_be_written_means_no_cache_and_one_warning(self):
        self.pack()
        expected = self.data()
        self.init("8M")

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))  # the last block has 6,179 bytes

        done = subprocess.run(
            [SML, "cat", "data.sml", "--all", "--far", "--cache-dir", self.cache],
            cwd=self.dir, capture_output=True, preexec_fn=small_files, check=False, timeout=60,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, expected))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(b"File too large: blocks are no longer kept", done.stderr)
        self.assertEqual(self.block_files(), {})
        self.assert_sound(taken=True)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount")
    def test_a_full_disk_means_one_warning(self):
        self.pack(records=1500)
        expected = self.data()
        os.mkdir(self.cache)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", self.cache], check=False).returncode:
            self.skipTest("cannot mount")
        try:
            self.init("1G")
            stats = self.assert_goes_on(expected, "No space left on device: blocks are no longer kept")
            self.assertGreater(stats["blocks_kept"], 10)
            _, stats, _ = self.cat()
            self.assertGreater(stats["cache_hits"], 300)
            self.assert_sound(taken=True)
        finally:
            subprocess.run(["umount", self.cache], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
    def test_a_directory_of_somebody_else_is_not_used(self):
        self.pack()
        expected = self.data()
        self.init("8M")
        os.chmod(self.dir, 0o755)

        def nobody():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

        for mode in (0o700, 0o755, 0o777):
            for directory, names, files in os.walk(self.cache):
                for name in [".", *names, *files]:
                    os.chmod(os.path.join(directory, name), mode)
            done = subprocess.run(
                [SML, "cat", "data.sml", "--all", "--far", "--cache-dir", self.cache],
                cwd=self.dir, capture_output=True, preexec_fn=nobody, check=False, timeout=60,
            )  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, expected))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertRegex(done.stderr, rb"Permission denied|belongs to another user")
        self.assertEqual(self.block_files(), {})

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become members of a group")
    def test_members_of_a_group_share_a_cache(self):
        self.pack()
        expected = self.data()
        os.chmod(self.dir, 0o755)
        os.mkdir(self.cache)
        os.chown(self.cache, 0, 4321)
        self.ok("cache", "init", "--size", "8M", "--group", "--cache-dir", self.cache)
        kept = []
        for user in (4001, 4002):

            def member(user=user):
                os.umask(0o077)
                os.setgroups([4321])
                os.setgid(user)
                os.setuid(user)

            done = subprocess.run(
                [SML, "cat", "data.sml", "--all", "--far", "--stats", "--cache-dir", self.cache],
                cwd=self.dir, capture_output=True, preexec_fn=member, check=False, timeout=60,
            )  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)
            kept.append(stats_of(done.stderr)["blocks_kept"])
        self.assertGreater(kept[0], 10)
        self.assertEqual(kept[1], 0)

    @unittest.skipIf(SANITIZED, "the sanitizers' libraries come first")
    def test_a_file_system_without_unnamed_files(self):
        self.pack()
        expected = self.data()
        self.init("8M")
        source = self.write(
            "shim.c",
            br"""#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
#define OPENAT(name)                                                      \
  int name(int directory, const char* path, int flags, ...) {             \
    va_list rest;                                                         \
    va_start(rest, flags);                                                \
    int mode = va_arg(rest, int);                                         \
    va_end(rest);                                                         \
    if ((flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;  \
    return syscall(SYS_openat, directory, path, flags, mode);             \
  }
OPENAT(openat)
OPENAT(openat64)
""",
        )
        library = os.path.join(self.dir, "shim.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        given, stats, said = self.cat(env={"LD_PRELOAD": library})
        self.assertEqual((given, said), (expected, []))
        self.assertGreater(stats["blocks_kept"], 10)
        self.assert_sound(taken=True)
        names = [name for _, _, files in os.walk(self.cache) for name in files]
        self.assertEqual([name for name in names if name.endswith(".tmp")], [])
        self.assertEqual(self.cat(env={"LD_PRELOAD": library})[1]["operations"], 0)

    def test_a_cache_removed_while_it_is_read_through(self):
        self.pack()
        expected = self.data()
        self.init("8M")
        process = subprocess.Popen(
            [SML, "cat", "data.sml", "--ids", "--far", "--cache-dir", self.cache],
            cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        process.stdin.write(b"0\n1\n")
        process.stdin.flush()
        self.assertTrue(process.stdout.read(1))
        shutil.rmtree(self.cache)
        rest, said = process.communicate(b"".join(b"%d\n" % number for number in range(2, 600)), timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(rest, expected[1:])
        self.assertLessEqual(len(said.splitlines()), 1, said)

    def test_somebody_who_was_stopped_while_fetching_holds_up_nobody_for_long(self):
        self.pack()
        expected = self.data()
        self.init("8M")
        with open(os.path.join(self.cache, "blocks/locks"), "r+b") as locks:
            # All bytes that stand for fetching (format-spec/cache.md), as a process in this state would hold some of.
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 62, 1 << 61, 0)
            fcntl.fcntl(locks, 37, lock)  # F_OFD_SETLK
            begin = time.monotonic()
            given, stats, said = self.cat()
            waited = time.monotonic() - begin
        self.assertEqual((given, said), (expected, []))
        self.assertGreater(stats["blocks_kept"], 10)
        self.assertGreaterEqual(waited, 5)
        self.assert_sound(taken=True)

    def test_many_processes_fetch_each_block_once(self):
        self.pack()
        self.init("8M")
        processes = []
        for seed in range(8):
            order = list(range(600))
            random.Random(seed).shuffle(order)
            process = subprocess.Popen(
                [SML, "cat", "data.sml", "--ids", "--far", "--stats", "--cache-dir", self.cache],
                cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            processes.append((process, b"".join(b"%d\n" % number for number in order)))
        outcomes = [None] * 8

        def run(index):
            process, order = processes[index]
            outcomes[index] = process.communicate(order, timeout=120)

        threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counted = [stats_of(said) for _, said in outcomes]
        self.assertEqual({len(given) for given, _ in outcomes}, {len(self.data())})
        self.assertEqual(sum(one["blocks_kept"] for one in counted), len(self.block_files()))
        self.assertEqual(sum(one["operations"] for one in counted), len(self.block_files()))

    def test_readers_killed_at_any_moment_leave_the_cache_as_it_should_be(self):
        """Eight readers, killed again and again, over a cache with room for 60 % of the data; others trim and verify."""
        print(f"seed {SEED}")
        self.pack(records=1000)
        expected = self.data()
        size = os.path.getsize(self.path("data.sml"))
        limit = size * 6 // 10
        self.init(limit)
        for seed in range(8):
            order = list(range(1000))
            random.Random(seed).shuffle(order)
            # Often enough that most are killed while they read.
            with open(self.path(f"order{seed}"), "wb") as file:
                file.write(60 * b"".join(b"%d\n" % number for number in order))

        def start(index):
            options = ["--ids", "--keys-from", f"order{index}", "--far", "--cache-dir", self.cache]
            return subprocess.Popen(
                [SML, "cat", "data.sml", *options], cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )

        readers = [start(index) for index in range(8)]
        kills = step = 0
        wanted = 40 if SANITIZED else 200
        while kills < wanted:
            step += 1
            index = self.numbers.randrange(8)
            time.sleep(self.numbers.random() * 0.02)
            reader = readers[index]
            reader.send_signal(signal.SIGKILL)
            kills += reader.wait(timeout=60) == -signal.SIGKILL
            reader.stderr.close()
            readers[index] = start(index)
            if step % 20 == 0:
                self.ok("cache", "trim", "--size", str(limit // 2), "--cache-dir", self.cache)
                self.ok("verify", "data.sml", "-q")
        print(f"{kills} of {step} were at work")
        for reader in readers:
            self.assertEqual(reader.wait(timeout=120), 0)
            self.assertEqual(reader.stderr.read(), b"")
            reader.stderr.close()
        self.assert_sound()
        for _ in range(2):
            given, _, said = self.cat()
            self.assertEqual((given, said), (expected, []))
        # Nothing has to be mended by hand for the room to be used.
        self.ok("cache", "clear", "--cache-dir", self.cache)
        given, stats, _ = self.cat()
        self.assertEqual(given, expected)
        self.assertGreater(stats["blocks_kept"] * BLOCK, limit * 0.85)
        self.assert_sound(taken=True)
        for directory, _, names in os.walk(self.cache):
            self.assertEqual([name for name in names if name.endswith(".tmp")], [], directory)

    def test_counters_are_told_on_a_signal(self):
        self.pack()
        process = subprocess.Popen(
            [SML, "cat", "data.sml", "--ids", "--far", "--cache-dir", self.cache],
            cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        process.stdin.write(b"0\n" * 100)
        process.stdin.flush()
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGUSR1)
        _, said = process.communicate(b"1\n" * 100, timeout=60)
        self.assertEqual(process.returncode, 0)
        told = stats_of(said)
        for name in ("records", "cache_hits", "cache_misses", "read_bytes", "in_flight", "oldest", "waited"):
            self.assertIn(name, told)


if __name__ == "__main__":
    unittest.main()
