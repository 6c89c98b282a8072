"""Large inputs in bounded memory: a million files, a record of 5 GiB. Peak private memory (RssAnon + RssShmem) is sampled while
the command runs."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest

SML = os.environ["SML"]
LIMIT_MIB = 512
SANITIZED = os.environ.get("SML_SANITIZE", "") != ""


def run_sampled(arguments, stdout):
    """Exit code and peak private memory in MiB."""
    process = subprocess.Popen([SML, *arguments], stdin=subprocess.DEVNULL, stdout=stdout)
    peak = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                fields = dict(line.split(":", 1) for line in status if line.startswith(("RssAnon", "RssShmem")))
        except (FileNotFoundError, ProcessLookupError):
            break
        peak = max(peak, sum(int(value.split()[0]) for value in fields.values()))
        time.sleep(0.005)
    return process.wait(), peak / 1024


@unittest.skipIf(SANITIZED, "sanitizers change memory and time; the release build measures")
class Scale(unittest.TestCase):
    def setUp(self):
        # A million files on a disk take minutes to remove; in memory, and as links to a few files, seconds.
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.files = tempfile.mkdtemp(prefix="sml-scale.", dir=parent)
        self.out = tempfile.mkdtemp(prefix="sml-scale.")

    def tearDown(self):
        shutil.rmtree(self.files)
        shutil.rmtree(self.out)

    def test_a_million_files(self):
        for d in range(1000):
            directory = f"{self.files}/n{d:08d}"
            os.mkdir(directory)
            first = f"{directory}/n{d:08d}_0.cls"
            with open(first, "w", encoding="ascii") as file:
                file.write(f"{d}\n")
            for i in range(1, 1000):
                os.link(first, f"{directory}/n{d:08d}_{i}.cls")
        container = f"{self.out}/million.sml"
        code, peak = run_sampled(["pack", self.files, "-o", container], subprocess.DEVNULL)
        self.assertEqual(code, 0)
        self.assertLessEqual(peak, LIMIT_MIB)
        with open(f"{self.out}/all", "wb") as out:
            code, peak = run_sampled(["cat", container, "--all"], out)
        self.assertEqual(code, 0)
        self.assertLessEqual(peak, LIMIT_MIB)
        # Each of the 1000 contents comes 1000 times.
        counts = {}
        with open(f"{self.out}/all", "rb") as lines:
            for line in lines:
                counts[int(line)] = counts.get(int(line), 0) + 1
        self.assertEqual(counts, {d: 1000 for d in range(1000)})
        listed = subprocess.run([SML, "ls", container], capture_output=True, check=True).stdout.split(b"\n")
        self.assertEqual(len(listed), 1000 * 1000 + 1)
        self.assertEqual(len(set(listed)), 1000 * 1000 + 1)

    def test_a_record_of_5_gib(self):
        size = 5 << 30
        source = f"{self.out}/large.bin"
        marks = {0: b"first", (1 << 31) - 2: b"two", (1 << 32) - 3: b"four and more", size - 4: b"last"}
        with open(source, "wb") as file:
            file.truncate(size)
            for offset, text in marks.items():
                file.seek(offset)
                file.write(text)
        container = f"{self.out}/large.sml"
        code, peak = run_sampled(["pack", source, "-o", container], subprocess.DEVNULL)
        self.assertEqual(code, 0)
        self.assertLessEqual(peak, LIMIT_MIB)
        # The container is small, so this is mostly the pipe; cmp is the judge.
        compare = subprocess.Popen(["cmp", "-", source], stdin=subprocess.PIPE)
        code, peak = run_sampled(["cat", container, "large.bin"], compare.stdin)
        compare.stdin.close()
        self.assertEqual(compare.wait(), 0)
        self.assertEqual(code, 0)
        self.assertLessEqual(peak, LIMIT_MIB)
        listed = subprocess.run([SML, "ls", "-l", container], capture_output=True, check=True).stdout
        self.assertEqual(listed, b"0\t5368709120\tlarge.bin\n")


if __name__ == "__main__":
    unittest.main()
