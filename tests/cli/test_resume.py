"""sml pack --resume: a pack that was killed at any moment goes on, to the bytes of one that was not."""

import fcntl
import io
import json
import os
import random
import resource
import signal
import subprocess
import tarfile
import time
import unittest

from smltest import SANITIZED, SML, SmlTest

SEED = 20261130


class Resume(SmlTest):
    def corpus(self):
        """Text that is slow to compress, samples of two records, and records in pieces."""
        rng = random.Random(SEED)
        words = [rng.randbytes(rng.randrange(2, 9)).hex().encode() for _ in range(3000)]
        files = 60 if SANITIZED else 300
        for i in range(files):
            self.write(f"src/d{i % 5}/{i:04}.txt", b" ".join(rng.choices(words, k=rng.randrange(1000))))
            if i % 3 == 0:
                self.write(f"src/d{i % 5}/{i:04}.cls", b"%d" % i)
        self.write("src/large.txt", b" ".join(rng.choices(words, k=30_000)))

    OPTIONS = ("--compress", "zstd:19", "--block-size", "64K", "--group-by", "stem")

    def temporary(self):
        """The one file that is being written."""
        names = self.left_over()
        self.assertEqual(len(names), 1, names)
        return names[0]

    def stop_at(self, size, number, *command):
        """Runs a pack and signals it once so much is written. Exit code, and what it said."""
        packer = subprocess.Popen([SML, *command], cwd=self.dir, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while packer.poll() is None:
            names = self.left_over()
            try:
                if names and os.path.getsize(self.path(names[0])) >= size:
                    break
            except FileNotFoundError:
                pass  # published meanwhile
            time.sleep(0.001)
        packer.send_signal(number)
        _, stderr = packer.communicate(timeout=60)
        return packer.returncode, stderr

    def kill_at(self, size, *command):
        """Whether the pack was still running then."""
        code, stderr = self.stop_at(size, signal.SIGKILL, *command)
        self.assertIn(code, (-signal.SIGKILL, 0), stderr)
        return code != 0

    def fail_at(self, size, *command):
        """Runs a pack for which there is only so much room."""
        done = subprocess.run(
            [SML, *command],
            cwd=self.dir,
            capture_output=True,
            timeout=120,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def hint(self, name):
        return b"sml pack --resume ... continues it; " + os.fsencode(name) + b" is kept for that\n"

    def resumed(self, *command, **keywords):
        return json.loads(self.ok(*command, "--resume", "--json", **keywords))["resumed_records"]

    def test_killed_at_any_moment(self):
        self.corpus()
        self.ok("pack", "src", "-o", "whole.sml", *self.OPTIONS)
        whole = self.read("whole.sml")
        killed = 0
        for share in (0, 1, 3, 5, 7, 8):
            command = ("pack", "src", "-o", "x.sml", "-j1", *self.OPTIONS)
            # Also one that was not told that it would be resumed.
            was_killed = self.kill_at(len(whole) * share // 10, *command, *(["--resume"] if share % 2 else []))
            if not was_killed:
                self.assertEqual(self.read("x.sml"), whole)  # it was faster
                os.remove(self.path("x.sml"))
                continue
            killed += 1
            self.assertFalse(os.path.exists(self.path("x.sml")))
            written = os.path.getsize(self.path(self.temporary()))
            resumed = self.resumed(*command[:4], *self.OPTIONS)
            if written > len(whole) // 5:
                self.assertGreater(resumed, 0)
            self.assertEqual(self.read("x.sml"), whole)
            self.assertEqual(self.left_over(), [])
            os.remove(self.path("x.sml"))
        if killed == 0:
            self.skipTest("this machine packs faster than one can watch")

    def test_killed_again_and_again(self):
        self.corpus()
        self.ok("pack", "src", "-o", "whole.sml", *self.OPTIONS)
        whole = self.read("whole.sml")
        command = ("pack", "src", "-o", "x.sml", "-j1", "--resume", *self.OPTIONS)
        size = 0
        while size < len(whole) and self.kill_at(size, *command):
            size = os.path.getsize(self.path(self.temporary())) + len(whole) // 6
        if not os.path.exists(self.path("x.sml")):
            self.ok(*command)
        self.assertEqual(self.read("x.sml"), whole)
        self.assertEqual(self.left_over(), [])

    def archive(self, members=40):
        rng = random.Random(SEED)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for i in range(members):
                info = tarfile.TarInfo(f"{i:03}.bin")
                info.size = 100_000 if i == 20 else 20_000
                tar.addfile(info, io.BytesIO(rng.randbytes(info.size)))
        return buffer.getvalue()

    STREAM = ("pack", "--archive", "-", "-o", "x.sml", "--block-size", "64K")

    def stalled(self, *options):
        """A pack that has written some blocks and waits for the rest of its stream."""
        packer = subprocess.Popen([SML, *self.STREAM, *options], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        packer.stdin.write(self.archive()[:600_000])
        packer.stdin.flush()
        # More than the first batch, so that blocks are cut; with --compress none nothing is held back for a dictionary.
        while not (names := self.left_over()) or os.path.getsize(self.path(names[0])) < 128 << 10:
            time.sleep(0.005)
        return packer

    def test_a_stream_is_read_again(self):
        self.ok(*self.STREAM[:-3], "whole.sml", *self.STREAM[-2:], "--compress", "none", stdin=self.archive())
        whole = self.read("whole.sml")
        for options in ((), ("--resume",)):
            packer = self.stalled("--compress", "none", *options)
            packer.kill()
            packer.communicate(timeout=60)
            kept = os.path.getsize(self.path(self.temporary()))
            resumed = self.resumed(*self.STREAM, "--compress", "none", stdin=self.archive())
            self.assertGreaterEqual(resumed, kept // 21_000 - 4)
            self.assertEqual(self.read("x.sml"), whole)
            self.assertEqual(self.left_over(), [])
            # Complete: the stream is not needed.
            self.fails(0, "complete already", *self.STREAM, "--compress", "none", "--resume")
            os.remove(self.path("x.sml"))

    def test_a_packer_that_lives_is_left_alone(self):
        packer = self.stalled("--compress", "none")
        self.fails(1, "x.sml: is being packed by another process", *self.STREAM, "--compress", "none", "--resume", stdin=self.archive())
        self.assertEqual(len(self.left_over()), 1)
        packer.stdin.write(self.archive()[600_000:])
        packer.stdin.close()
        self.assertEqual(packer.wait(timeout=60), 0)
        packer.stderr.close()
        self.assertEqual(self.left_over(), [])

    def test_interrupted(self):
        self.corpus()
        self.ok("pack", "src", "-o", "whole.sml", *self.OPTIONS)
        command = ("pack", "src", "-o", "x.sml", "-j1", *self.OPTIONS)
        for number in (signal.SIGINT, signal.SIGTERM):
            code, stderr = self.stop_at(1, number, *command)
            if code == 0:
                self.skipTest("this machine packs faster than one can watch")
            self.assertEqual((code, self.left_over()), (128 + number, []), stderr)
            code, stderr = self.stop_at(1, number, *command, "--resume")
            self.assertEqual(code, 128 + number, stderr)
            # Where it takes longer to stop than it is given, it ends without a word.
            self.assertIn(stderr, (b"", b"sml pack: interrupted\nhint: " + self.hint(self.temporary())))
            self.ok(*command, "--resume")
            self.assertEqual(self.read("x.sml"), self.read("whole.sml"))
            os.remove(self.path("x.sml"))

    def test_interrupted_while_it_waits(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for options in ((), ("--resume",)):
                packer = self.stalled("--compress", "none", *options)
                packer.send_signal(number)
                self.assertEqual(packer.wait(timeout=60), 128 + number)
                packer.communicate()
                self.assertEqual(len(self.left_over()), len(options))
            self.assertGreater(self.resumed(*self.STREAM, "--compress", "none", stdin=self.archive()), 0)
            os.remove(self.path("x.sml"))

    def test_a_failure_keeps_what_is_there(self):
        cut_short = self.archive()[:600_000]
        done = self.run_sml(*self.STREAM, "--compress", "none", stdin=cut_short)
        self.assertEqual((done.returncode, self.left_over()), (1, []))
        done = self.run_sml(*self.STREAM, "--compress", "none", "--resume", stdin=cut_short)
        name = self.temporary()
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.endswith(b"\nhint: " + self.hint(name)), done.stderr)
        self.ok(*self.STREAM, "--compress", "none", "--resume", stdin=self.archive())
        self.assertEqual(self.left_over(), [])
        # Nothing was written, so there is nothing to keep.
        self.fails(1, "absent", "pack", "absent", "-o", "y.sml", "--resume")
        self.assertEqual(self.left_over(), [])

    def test_no_room(self):
        self.corpus()
        self.ok("pack", "src", "-o", "whole.sml", *self.OPTIONS)
        whole = self.read("whole.sml")
        command = ("pack", "src", "-o", "x.sml", *self.OPTIONS)
        self.fail_at(100_000, *command)
        self.assertEqual(self.left_over(), [])
        for size in (100_000, 150_000, len(whole) - 1):
            stderr = self.fail_at(size, *command, "--resume")
            name = self.temporary()
            self.assertEqual(stderr, b"sml pack: x.sml: cannot write: File too large\nhint: " + self.hint(name))
            self.assertEqual(self.read(name), whole[:size])
        self.assertEqual(self.resumed(*command), len(self.tree("src")))
        self.assertEqual(self.read("x.sml"), whole)

    def test_other_sources_and_options_are_refused(self):
        self.corpus()
        self.fail_at(100_000, "pack", "src", "-o", "x.sml", "--resume")
        name = self.temporary()
        before = self.read(name)
        for options in (("--seed", "1"), ("--compress", "zstd:4"), ("--align", "8"), ("--group-by", "stem")):
            done = self.run_sml("pack", "src", "-o", "x.sml", "--resume", *options)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(
                done.stderr,
                b"sml pack: x.sml: the options are not those of the interrupted pack\n"
                b"hint: pack without --resume, or remove " + name + b", to start anew\n",
            )
        self.write("src/one-more", b"x")
        done = self.run_sml("pack", "src", "-o", "x.sml", "--resume")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            b"sml pack: the sources or options are not those of the interrupted pack\n"
            b"hint: to start anew, remove what it left ('sml rm --unsealed' in a data set); "
            + os.fsencode(name)
            + b" is kept\n",
        )
        self.assertEqual(self.read(name), before)
        os.remove(self.path("src/one-more"))
        self.assertGreater(self.resumed("pack", "src", "-o", "x.sml"), 0)
        self.ok("pack", "src", "-o", "whole.sml")
        self.assertEqual(self.read("x.sml"), self.read("whole.sml"))

    def test_what_is_complete_stays(self):
        self.write("src/a", b"1")
        self.write("src/b", b"2")
        first = json.loads(self.ok("pack", "src", "-o", "x.sml", "--resume", "--json"))
        self.assertEqual(first["resumed_records"], 0)
        inode = os.stat(self.path("x.sml")).st_ino
        done = self.run_sml("pack", "src", "-o", "x.sml", "--resume", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, b"sml pack: x.sml: complete already\n"))
        self.assertEqual(json.loads(done.stdout), {**first, "resumed_records": 2})
        self.ok("pack", "src", "-o", "x.sml", "--resume", "-q")
        self.assertEqual(os.stat(self.path("x.sml")).st_ino, inode)
        self.write("src/c", b"3")
        self.fails(1, "exists already, from other sources or options", "pack", "src", "-o", "x.sml", "--resume")
        self.assertEqual(os.stat(self.path("x.sml")).st_ino, inode)
        self.ok("pack", "src", "-o", "x.sml", "--resume", "--overwrite")
        self.assertEqual(self.lines("ls", "x.sml"), [b"a", b"b", b"c"])
        self.write("y.sml", b"no container")
        self.fails(1, "y.sml", "pack", "src", "-o", "y.sml", "--resume")

    def test_a_data_set_is_told_which_container(self):
        self.corpus()
        for options, name in ((("--part", "1/2"), "part-1-of-2.sml"), (("--name", "n"), "n.sml")):
            self.ok("pack", "src", "-o", "whole/", *options)
            command = ("pack", "src", "-o", "ds/", *options)
            self.fail_at(100_000, *command, "--resume")
            self.assertEqual(len(self.left_over("ds")), 1)
            self.assertGreater(self.resumed(*command), 0)
            self.assertEqual(self.read("ds/" + name), self.read("whole/" + name))
            self.assertEqual(self.left_over("ds"), [])
            self.fails(0, "complete already", *command, "--resume")
            self.ok("rm", "ds/" + name)
            self.ok("rm", "whole/" + name)
        self.fails(2, "which container", "pack", "src", "-o", "ds/", "--resume")

    def test_a_lock_is_gone_with_its_process(self):
        packer = self.stalled("--compress", "none", "--resume")
        packer.kill()
        packer.communicate(timeout=60)
        with open(self.path(self.temporary()), "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.fails(1, "is being packed by another process", *self.STREAM, "--compress", "none", "--resume", stdin=self.archive())
        self.ok(*self.STREAM, "--compress", "none", "--resume", stdin=self.archive())


if __name__ == "__main__":
    unittest.main()
