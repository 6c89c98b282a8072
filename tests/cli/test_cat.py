"""sml cat: the records asked for, in that order, whole and verified, in every form of output."""

import io
import os
import random
import re
import select
import struct
import subprocess
import tarfile
import unittest

from smltest import SML, SmlTest

SEED = 7


class Cat(SmlTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(SEED)
        for i in range(200):
            self.write(f"src/d{i % 5}/f{i:03}.txt", b"text %d " % i * rng.randrange(300))
        self.write("src/big.bin", rng.randbytes(200000))
        self.write("src/pieces.bin", rng.randbytes(400000))
        self.files = self.tree("src")
        self.ok("pack", "src", "-o", "x.sml", "--block-size", "256K")
        self.keys = sorted(self.files)
        rng.shuffle(self.keys)

    def test_raw_records_in_the_order_asked_for(self):
        wanted = self.keys[:50] + self.keys[:3]
        expected = b"".join(self.files[k] for k in wanted)
        for options in ((), ("-j1",), ("-j4",), ("--memory", "1"), ("--memory", "1M")):
            self.assertEqual(self.ok("cat", "x.sml", *options, stdin=b"\n".join(wanted) + b"\n"), expected)
        self.assertEqual(self.ok("cat", "x.sml", *wanted), expected)
        self.assertEqual(self.ok("cat", "x.sml", "-0", stdin=b"\0".join(wanted)), expected)
        self.write("list", b"\n".join(wanted))
        self.assertEqual(self.ok("cat", "x.sml", "--keys-from", "list"), expected)
        self.assertEqual(self.ok("cat", "x.sml", stdin=b""), b"")

    def test_numbers(self):
        ids = [int(line.split(b"\t")[0]) for line in self.lines("ls", "-l", "x.sml")]
        keys = [line.split(b"\t", 2)[2] for line in self.lines("ls", "-l", "x.sml")]
        self.assertEqual(sorted(ids), list(range(len(self.files))))
        for number, key in list(zip(ids, keys))[::20]:
            self.assertEqual(self.ok("cat", "x.sml", "--ids", str(number)), self.files[key])
        by_number = sorted(zip(ids, keys))
        self.assertEqual(self.ok("cat", "x.sml", "--all"), b"".join(self.files[k] for _, k in by_number))
        self.fails(1, str(len(ids)), "cat", "x.sml", "--ids", str(len(ids)))
        self.fails(2, "", "cat", "x.sml", "--ids", "--all", "1")

    def test_tar(self):
        data = self.ok("cat", "x.sml", "--format", "tar", stdin=b"\n".join(self.keys))
        self.assertEqual(data, self.ok("cat", "x.sml", "--format", "tar", "-j1", stdin=b"\n".join(self.keys)))
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as tar:
            members = [(os.fsencode(m.name), tar.extractfile(m).read(), m.mode, m.uid, m.gid, m.mtime, m.uname) for m in tar]
        self.assertEqual(members, [(k, self.files[k], 0o644, 0, 0, 0, "") for k in self.keys])
        os.mkdir(self.path("gnu"))
        subprocess.run(["tar", "x"], input=data, cwd=self.path("gnu"), check=True)
        self.assertEqual(self.tree("gnu"), self.files)

    def test_frames(self):
        data = self.ok("cat", "x.sml", "--format", "frames", stdin=b"\n".join(self.keys))
        # Read here by the document: magic of 8 bytes, then frames with a header of 32.
        at, records, name = 8, [], None
        while True:
            _, kind, flags, key_bytes, payload_bytes, _, number, record_bytes = struct.unpack_from("<IBBHIIQQ", data, at)
            key = data[at + 32 : at + 32 + key_bytes]
            payload = data[at + 32 + key_bytes : at + 32 + key_bytes + payload_bytes]
            at += 32 + key_bytes + payload_bytes
            if kind == 3:
                break
            self.assertEqual(kind, 1)
            if name is None:
                name, parts = key, []
            parts.append(payload)
            if not flags & 1:
                self.assertEqual(record_bytes, sum(map(len, parts)))
                records.append((name, b"".join(parts)))
                name = None
        self.assertEqual(records, [(k, self.files[k]) for k in self.keys])
        self.assertEqual((number, record_bytes, at), (len(records), sum(len(r) for _, r in records), len(data)))

    def test_what_goes_through_a_pipe_is_what_goes_into_a_file(self):
        """Records of all sizes, stored and compressed, mapped and not, into readers of all kinds."""
        rng = random.Random(SEED)
        for i in range(400):
            size = rng.choice((0, 1, 100, 2047, 2048, 2049, 4096, 5000, 40_000, 131_072, 300_000))
            self.write(f"mixed/{i:03}", rng.randbytes(size) if i % 3 else b"x" * size)
        self.ok("pack", "mixed", "-o", "stored.sml", "--compress", "none", "--block-size", "256K")
        self.ok("pack", "mixed", "-o", "auto.sml", "--block-size", "256K")
        for container in ("stored.sml", "auto.sml"):
            for arguments in ((), ("--format", "frames"), ("--format", "tar"), ("--far", "--cache-size", "64M", "--cache-dir", "cache")):
                command = [SML, "cat", container, "--all", *arguments]
                with open(self.path("out"), "wb") as out:
                    subprocess.run(command, cwd=self.dir, stdout=out, check=True, timeout=60)
                expected = self.read("out")
                for size, blocking in ((100, True), (1 << 20, True), (70_000, False)):
                    ours, theirs = os.pipe()
                    os.set_blocking(theirs, blocking)
                    process = subprocess.Popen(command, cwd=self.dir, stdout=theirs)
                    os.close(theirs)
                    got = bytearray()
                    while piece := os.read(ours, size if len(got) < 2_000_000 else 1 << 20):
                        got += piece
                    os.close(ours)
                    self.assertEqual(process.wait(timeout=60), 0)
                    self.assertEqual(bytes(got), expected, (container, arguments, size))

    def test_directory(self):
        self.ok("cat", "x.sml", "--all", "-C", "out")
        self.assertEqual(self.tree("out"), self.files)
        self.fails(1, "exists", "cat", "x.sml", self.keys[0], "-C", "out")
        self.ok("cat", "x.sml", self.keys[0], "-C", "out", "--overwrite")
        self.assertEqual(self.tree("out"), self.files)

    def test_nothing_is_written_outside_the_directory(self):
        os.mkdir(self.path("out"))
        os.mkdir(self.path("outside"))
        os.symlink("../outside", self.path("out/d0"))
        done = self.run_sml("cat", "x.sml", "--all", "-C", "out", "--on-error", "skip")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(os.listdir(self.path("outside")), [])
        self.assertTrue(os.path.islink(self.path("out/d0")))

    def test_unknown_keys(self):
        key = self.keys[0]
        out = self.fails(1, "nosuch", "cat", "x.sml", key, "nosuch", self.keys[1])
        self.assertEqual(out, self.files[key])
        self.fails(1, "no such key", "cat", "x.sml", "")
        done = self.run_sml("cat", "x.sml", key, "nosuch", self.keys[1], "--on-error", "skip")
        self.assertEqual((done.returncode, done.stdout), (3, self.files[key] + self.files[self.keys[1]]))
        self.assertIn(b"nosuch", done.stderr)

    def test_lines_that_can_be_no_key_are_refused_early(self):
        for text in (b"k" * 5000, b"k" * 3000000):
            done = self.run_sml("cat", "x.sml", stdin=text)
            self.assertEqual(done.returncode, 1)
            self.assertLess(len(done.stderr), 300)
            done = self.run_sml("shuffle", "x.sml", "--select", "-", stdin=text)
            self.assertEqual(done.returncode, 1)
            self.assertLess(len(done.stderr), 300)
        done = self.run_sml("pack", "--files-from", "-", "-o", "q.sml", stdin=b"p" * 3000000)
        self.assertEqual(done.returncode, 1)
        self.assertLess(len(done.stderr), 300)

    def test_damaged_records_are_told_and_the_others_are_given(self):
        self.ok("pack", "src", "-o", "plain.sml", "--compress", "none", "--block-size", "256K")
        original = self.read("plain.sml")
        rng = random.Random(SEED)
        lost = set()
        for _ in range(40):
            damaged = bytearray(original)
            at = rng.randrange(300, sum(map(len, self.files.values())))
            damaged[at] ^= 1 << rng.randrange(8)
            self.write("bad.sml", damaged)
            done = self.run_sml("cat", "bad.sml", "--on-error", "skip", stdin=b"\n".join(self.keys))
            missing = {k for k in self.keys if re.search(rb"record '" + re.escape(k) + rb"'", done.stderr)}
            self.assertEqual(done.stdout, b"".join(self.files[k] for k in self.keys if k not in missing), at)
            self.assertEqual(done.returncode, 3 if missing else 0)
            self.assertLessEqual(len(missing), 1)
            lost |= missing
            # Whatever was damaged, verify finds it.
            self.assertEqual(self.run_sml("verify", "bad.sml").returncode, 1, at)
            if missing:
                self.assertIn(b"checksum mismatch", done.stderr)
                self.assertEqual(self.run_sml("cat", "bad.sml", *missing).returncode, 1)
        self.assertGreater(len(lost), 3)

    def test_a_key_in_two_containers_is_ambiguous(self):
        for name, files in (("a", ("both", "a")), ("b", ("b",)), ("c", ("both", "c"))):
            for file in files:
                self.write(f"s{name}/{file}", file.encode() + name.encode())
            self.ok("pack", f"s{name}", "-o", f"{name}.sml")
        os.mkdir(self.path("ds"))
        for name in "abc":
            os.rename(self.path(f"{name}.sml"), self.path(f"ds/{name}.sml"))
        self.assertEqual(self.ok("cat", "ds", "a", "b", "c"), b"aabbcc")
        self.fails(1, "both", "cat", "ds", "both")
        message = self.run_sml("cat", "ds", "both").stderr
        self.assertTrue(re.search(rb"\ba\b.*\bc\b", message), message)
        self.assertEqual(self.run_sml("verify", "ds").returncode, 1)

    def test_one_key_at_a_time(self):
        process = subprocess.Popen([SML, "cat", "x.sml", "--format", "raw"], cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for key in self.keys[:20]:
            process.stdin.write(key + b"\n")
            process.stdin.flush()
            got = b""
            while len(got) < len(self.files[key]):
                ready, _, _ = select.select([process.stdout], [], [], 60)
                self.assertTrue(ready, "no record came for a key")
                got += os.read(process.stdout.fileno(), 1 << 16)
            self.assertEqual(got, self.files[key])
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        process.stdout.close()

    def test_closed_pipes_and_full_devices(self):
        # More than a pipe holds.
        self.write("more/huge.bin", bytes(range(256)) * 16384)
        self.ok("pack", "more", "-o", "huge.sml", "--compress", "none")
        for form, code in (("raw", 0), ("tar", 0), ("frames", 1)):
            script = f"'{SML}' cat huge.sml --all --format {form} | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}"
            done = subprocess.run(["bash", "-c", script], cwd=self.dir, capture_output=True, check=False)
            self.assertEqual(done.returncode, code, form)
            self.assertEqual(done.stderr == b"", code == 0, form)
        for arguments in (("cat", "x.sml", "--all"), ("cat", "x.sml", "--all", "--format", "tar"), ("ls", "x.sml"), ("info", "x.sml"),
                          ("shuffle", "x.sml"), ("version",), ("help",), ("cat", "x.sml", "--all", "--format", "frames")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([SML, *arguments], cwd=self.dir, stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_terminals(self):
        def on_terminal(arguments, stdin=subprocess.DEVNULL, terminal_stdin=False):
            ours, theirs = os.openpty()
            done = subprocess.run([SML, *arguments], cwd=self.dir, stdin=theirs if terminal_stdin else stdin,
                                  stdout=subprocess.PIPE if terminal_stdin else theirs, stderr=subprocess.PIPE, check=False, timeout=60)
            os.close(theirs)
            os.close(ours)
            return done

        done = on_terminal(["cat", "x.sml", "--all"])
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"hint: ", done.stderr)
        self.assertEqual(on_terminal(["cat", "x.sml"], terminal_stdin=True).returncode, 2)
        self.assertEqual(on_terminal(["ls", "x.sml"]).returncode, 0)

    def test_containers_that_are_none(self):
        data = self.read("x.sml")
        cases = {"cut": data[: len(data) // 2], "short": data[:50], "empty": b"", "text": b"hello" * 100, "newer": data[:8] + b"\x02" + data[9:],
                 "twice": data + data, "head gone": data[4096:]}
        for name, content in cases.items():
            self.write("bad.sml", content)
            for command in (("cat", "bad.sml", "--all"), ("ls", "bad.sml"), ("info", "bad.sml"), ("verify", "bad.sml"), ("shuffle", "bad.sml")):
                with self.subTest(name=name, command=command):
                    self.fails(1, "bad.sml", *command)
        self.write("bad.sml", cases["newer"])
        self.fails(1, "version 2", "info", "bad.sml")
        self.fails(1, "nosuch.sml", "cat", "nosuch.sml", "--all")

    def test_wrong_usage(self):
        for arguments in (("--format", "zip"), ("--memory", "-1"), ("--memory", "lots"), ("--all", "key"), ("--all", "--keys-from", "-"),
                          ("--on-error", "never"), ("-C", "out", "--format", "tar")):
            with self.subTest(arguments):
                self.fails(2, "", "cat", "x.sml", *arguments)
        self.fails(2, "", "cat")
        self.fails(2, "SML_MEMORY", "cat", "x.sml", "--all", env={"SML_MEMORY": "much"})


if __name__ == "__main__":
    unittest.main()
