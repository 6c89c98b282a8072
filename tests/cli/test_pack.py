"""sml pack: what comes in comes back; the bytes depend on input and options alone; bad input loses nothing."""

import gzip
import io
import os
import json
import random
import signal
import socket
import subprocess
import tarfile
import threading
import time
import unittest
import zipfile

from smltest import SANITIZED, SML, SmlTest, name_order

SEED = 20261130


def corpus(test, name="src", files=300):
    """Text, noise, empty files, in directories, some sharing a stem."""
    rng = random.Random(SEED)
    for i in range(files):
        base = f"{name}/d{i % 7}/{rng.randrange(10**6)}_{i}"
        test.write(base + ".txt", b"word %d " % i * rng.randrange(400))
        if i % 3 == 0:
            test.write(base + ".bin", rng.randbytes(rng.randrange(5000)))
        if i % 5 == 0:
            test.write(base + ".cls", b"")
    return test.tree(name)


class Pack(SmlTest):
    def contents(self, container):
        """Every record of a container, by way of a tar in stream mode."""
        data = self.ok("cat", container, "--all", "--format", "tar")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
            return {os.fsencode(m.name): tar.extractfile(m).read() for m in tar}

    def test_files_come_back_from_every_order_and_compression(self):
        files = corpus(self)
        for order in ("random", "name", "input"):
            for options in ((), ("--compress", "none"), ("--compress", "zstd:9"), ("--group-by", "stem"), ("--align", "4K"),
                            ("--block-size", "64K", "--group-by", "stem")):
                with self.subTest(order=order, options=options):
                    self.ok("pack", "src", "-o", "x.sml", "--overwrite", "--order", order, *options)
                    self.assertEqual(self.contents("x.sml"), files)
                    self.ok("verify", "x.sml")

    def test_bytes_do_not_depend_on_threads(self):
        corpus(self)
        for options in ((), ("--group-by", "stem", "--block-size", "64K")):
            self.ok("pack", "src", "-o", "a.sml", "-j1", "--overwrite", *options)
            for threads in ("-j4", "-j2"):
                self.ok("pack", "src", "-o", "b.sml", threads, "--overwrite", *options)
                self.assertEqual(self.read("a.sml"), self.read("b.sml"))
        self.ok("pack", "src", "-o", "c.sml", "--seed", "1")
        self.assertNotEqual(self.read("a.sml"), self.read("c.sml"))
        self.ok("pack", "src", "-o", "d.sml", env={"SML_THREADS": "3"})
        self.ok("pack", "src", "-o", "e.sml", "-j", "1")
        self.assertEqual(self.read("d.sml"), self.read("e.sml"))

    def test_keys(self):
        self.write("top/sub/a.txt", b"1")
        self.write("top/b.txt", b"2")
        self.write("c.txt", b"3")
        self.ok("pack", "top", "c.txt", "-o", "x.sml")
        self.assertEqual(self.contents("x.sml"), {b"sub/a.txt": b"1", b"b.txt": b"2", b"c.txt": b"3"})
        self.ok("pack", "top/", "-o", "y.sml", "--prefix", "train/")
        self.assertEqual(self.contents("y.sml"), {b"train/sub/a.txt": b"1", b"train/b.txt": b"2"})
        self.ok("pack", "--files-from", "-", "-o", "z.sml", stdin=b"./top/b.txt\n" + os.fsencode(self.dir) + b"/c.txt\ntop\n")
        self.assertEqual(self.contents("z.sml"), {b"top/b.txt": b"2", os.fsencode(self.dir)[1:] + b"/c.txt": b"3"})
        self.ok("pack", "--files-from", "-", "-0", "-o", "n.sml", stdin=b"top/b.txt\0c.txt")
        self.assertEqual(self.contents("n.sml"), {b"top/b.txt": b"2", b"c.txt": b"3"})
        self.fails(1, "..", "pack", "--files-from", "-", "-o", "q.sml", stdin=b"top/../c.txt\n")
        self.fails(2, "", "pack", "top", "--files-from", "-", "-o", "q.sml")

    def test_names_of_all_kinds(self):
        names = [b"new\nline", b"tab\t", b" lead", b"trail ", b"-rf", b"--", b"back\\slash", b"q\"uo'te`$(x)", b"*?[a].png", b"[ab]", b"[a,b]",
                 b"latin1-\xe4", b"bad\xff\xfe", b"ctrl\x01\x7f", b"n" * 255, "é.txt".encode(), b".hidden", b"a.b.c", b"PaxHeader", b"..."]
        for i, name in enumerate(names):
            self.write(b"src/" + name, b"%d" % i)
        deep = b"/".join([b"d" * 200] * 15)
        self.write(b"src/" + deep + b"/leaf", b"deep")
        files = self.tree("src")
        self.assertEqual(len(files), len(names) + 1)
        self.ok("pack", "src", "-o", "x.sml")
        self.assertEqual(self.contents("x.sml"), files)
        self.ok("cat", "x.sml", "--all", "-C", "out")
        self.assertEqual(self.tree("out"), files)
        self.assertEqual(self.ok("ls", "x.sml", "-0").split(b"\0")[:-1], name_order(files))
        for name in (b"[ab]", b"[a,b]", b"*?[a].png", b"bad\xff\xfe"):
            self.assertEqual(self.ok("cat", "x.sml", b"--", name), files[name])
        self.fails(1, "newline", "ls", "x.sml")
        # A key of 4096 bytes, by way of a tar; one byte more is refused.
        for bytes_, code in ((4096, 0), (4097, 1)):
            name = b"/".join([b"k" * 15] * 256) + b"k" * (bytes_ - 4095)
            self.assertEqual(len(name), bytes_)
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
                info = tarfile.TarInfo(name.decode())
                info.size = 3
                tar.addfile(info, io.BytesIO(b"abc"))
            done = self.run_sml("pack", "--archive", "-", "-o", f"long{bytes_}.sml", stdin=buffer.getvalue())
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(self.contents("long4096.sml"), {b"/".join([b"k" * 15] * 256) + b"k": b"abc"})

    def test_empty_things(self):
        os.mkdir(self.path("nothing"))
        self.ok("pack", "nothing", "-o", "x.sml")
        self.assertEqual(self.ok("ls", "x.sml"), b"")
        self.assertEqual(self.ok("cat", "x.sml", "--all"), b"")
        self.assertEqual(self.ok("shuffle", "x.sml"), b"")
        self.ok("verify", "x.sml")
        self.write("src/empty")
        self.ok("pack", "src", "-o", "y.sml")
        self.assertEqual(self.ok("ls", "-l", "y.sml"), b"0\t0\tempty\n")

    def test_archives(self):
        files = corpus(self, files=60)
        for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tar.xz", "w:xz")):
            for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
                with tarfile.open(self.path(name), mode, format=form) as tar:
                    tar.add(self.path("src").decode(), ".")
                for order in ("random", "input"):
                    with self.subTest(name=name, form=form, order=order):
                        self.ok("pack", "--archive", name, "-o", "x.sml", "--overwrite", "--order", order)
                        self.assertEqual(self.contents("x.sml"), files)
                self.ok("pack", "--archive", "-", "-o", "y.sml", "--overwrite", stdin=self.read(name))
                self.assertEqual(self.contents("y.sml"), files)
        with zipfile.ZipFile(self.path("a.zip").decode(), "w", zipfile.ZIP_DEFLATED) as archive:
            for key, data in files.items():
                archive.writestr(key.decode(), data)
        self.ok("pack", "--archive", "a.zip", "-o", "z.sml")
        self.assertEqual(self.contents("z.sml"), files)
        # Every damaged bit of a gzip stream is found, also where it still inflates.
        with open(self.path("src/noise"), "wb") as noise:
            noise.write(random.Random(SEED).randbytes(20000))
        with tarfile.open(self.path("n.tgz"), "w:gz") as tar:
            tar.add(self.path("src/noise").decode(), "noise")
        whole = self.read("n.tgz")
        rng = random.Random(SEED)
        for at in [len(whole) - 1, len(whole) - 6, *(rng.randrange(100, len(whole)) for _ in range(20))]:
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            self.write("n2.tgz", damaged)
            self.fails(1, "gzip", "pack", "--archive", "n2.tgz", "-o", "q.sml")
            self.fails(1, "gzip", "pack", "--archive", "-", "-o", "q.sml", stdin=bytes(damaged))
        # One gzip stream in two members, padded with zeros.
        with tarfile.open(self.path("n.tar"), "w") as tar:
            tar.add(self.path("src/noise").decode(), "noise")
        plain = self.read("n.tar")
        self.write("two.tgz", gzip.compress(plain[:9999]) + gzip.compress(plain[9999:]) + bytes(512))
        self.ok("pack", "--archive", "two.tgz", "-o", "two.sml")
        self.assertEqual(self.contents("two.sml"), {b"noise": self.read("src/noise")})
        os.remove(self.path("src/noise"))
        # A list of files, an archive in a regular file and the directory itself give the same container.
        self.ok("pack", "src", "-o", "dir.sml")
        self.ok("pack", "--archive", "a.tar", "-o", "tar.sml")
        self.assertEqual(self.read("dir.sml"), self.read("tar.sml"))
        self.fails(2, "order", "pack", "--archive", "-", "-o", "q.sml", "--order", "random", stdin=self.read("a.tar"))
        for damage, data in (("cut", self.read("a.tar")[:5000]), ("cut gz", self.read("a.tar.gz")[:-40]), ("garbage", b"x" * 4000), ("nothing", b"")):
            with self.subTest(damage):
                self.write("bad.tar", data)
                self.fails(1, "", "pack", "--archive", "bad.tar", "-o", "q.sml")
                self.fails(1, "", "pack", "--archive", "-", "-o", "q.sml", stdin=data)
                self.assertFalse(os.path.exists(self.path("q.sml")))
        self.assertEqual(self.left_over(), [])

    def test_what_an_archive_holds_beside_files_is_told(self):
        self.write("src/a", b"1")
        os.symlink("a", self.path("src/link"))
        os.mkfifo(self.path("src/fifo"))
        subprocess.run(["tar", "cf", "a.tar", "src"], cwd=self.dir, check=True)
        for arguments, stdin in ((("--archive", "a.tar"), b""), (("--archive", "-"), self.read("a.tar"))):
            done = self.run_sml("pack", *arguments, "-o", "x.sml", "--overwrite", stdin=stdin)
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"2 archive members passed over", done.stderr)
            self.assertEqual(self.contents("x.sml"), {b"src/a": b"1"})
            self.ok("pack", *arguments, "-o", "x.sml", "--overwrite", "-q", stdin=stdin)
            self.assertIn(b"1 archive member ", self.run_sml("pack", *arguments, "-o", "x.sml", "--overwrite", "--symlinks", "skip", stdin=stdin).stderr)
            self.fails(1, "symbolic link", "pack", *arguments, "-o", "x.sml", "--overwrite", "--symlinks", "error", stdin=stdin)

    def test_frames(self):
        files = corpus(self, files=60)
        self.ok("pack", "src", "-o", "x.sml")
        frames = self.ok("cat", "x.sml", "--all", "--format", "frames")
        self.ok("pack", "--frames", "-", "-o", "y.sml", stdin=frames)
        self.assertEqual(self.contents("y.sml"), files)
        self.write("f.frames", frames)
        self.ok("pack", "--frames", "f.frames", "-o", "z.sml")
        self.assertEqual(self.read("z.sml"), self.read("x.sml"))
        rng = random.Random(SEED)
        cuts = [0, 1, 7, 8, 40, len(frames) - 1] + [rng.randrange(len(frames)) for _ in range(20)]
        for cut in cuts:
            with self.subTest(cut=cut):
                self.fails(1, "", "pack", "--frames", "-", "-o", "q.sml", stdin=frames[:cut])
        for _ in range(30):
            at = rng.randrange(len(frames))
            damaged = bytearray(frames)
            damaged[at] ^= 1 << rng.randrange(8)
            with self.subTest(at=at):
                self.fails(1, "", "pack", "--frames", "-", "-o", "q.sml", stdin=bytes(damaged))
        self.assertFalse(os.path.exists(self.path("q.sml")))

    def test_duplicates(self):
        self.write("one/k.txt", b"first")
        self.write("two/k.txt", b"second")
        self.fails(1, "k.txt", "pack", "one", "two", "-o", "x.sml")
        message = self.run_sml("pack", "one", "two", "-o", "x.sml").stderr
        self.assertIn(b"one/k.txt", message)
        self.assertIn(b"two/k.txt", message)
        for choice, kept in (("skip", b"first"), ("replace", b"second")):
            done = self.run_sml("pack", "one", "two", "-o", choice + ".sml", "--on-duplicate", choice)
            self.assertEqual(self.contents(choice + ".sml"), {b"k.txt": kept})
            self.assertIn(done.returncode, (0, 3))

    def test_symbolic_links(self):
        self.write("src/real.txt", b"real")
        self.write("elsewhere/e.txt", b"e")
        os.symlink("real.txt", self.path("src/link.txt"))
        os.symlink("../elsewhere", self.path("src/dir"))
        self.ok("pack", "src", "-o", "f.sml")
        self.assertEqual(self.contents("f.sml"), {b"real.txt": b"real", b"link.txt": b"real", b"dir/e.txt": b"e"})
        self.ok("pack", "src", "-o", "s.sml", "--symlinks", "skip")
        self.assertEqual(self.contents("s.sml"), {b"real.txt": b"real"})
        self.fails(1, "src/", "pack", "src", "-o", "e.sml", "--symlinks", "error")
        os.symlink(".", self.path("src/loop"))
        self.fails(1, "loop", "pack", "src", "-o", "l.sml")
        done = self.run_sml("pack", "src", "-o", "l.sml", "--on-error", "skip")
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"src/loop", done.stderr)
        self.assertEqual(self.contents("l.sml"), {b"real.txt": b"real", b"link.txt": b"real", b"dir/e.txt": b"e"})

    def test_what_is_no_file(self):
        self.write("src/good.txt", b"good")
        os.mkfifo(self.path("src/fifo"))
        os.symlink("nowhere", self.path("src/dangling"))
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(self.path("src"))
            listener.bind("socket")
            os.chdir("/")
        os.symlink("/dev/zero", self.path("src/device"))
        self.fails(1, "src/", "pack", "src", "-o", "x.sml")
        done = self.run_sml("pack", "src", "-o", "x.sml", "--on-error", "skip")
        self.assertEqual(done.returncode, 3)
        for name in (b"fifo", b"dangling", b"socket", b"device"):
            self.assertIn(b"src/" + name, done.stderr)
        self.assertEqual(self.contents("x.sml"), {b"good.txt": b"good"})
        self.fails(1, "nosuch", "pack", "nosuch", "-o", "y.sml")
        self.assertEqual(self.left_over(), [])

    def test_a_file_that_changes_is_told(self):
        # /proc files have size 0 and yet give bytes: they grow while they are read, every time.
        os.symlink("/proc/self/status", self.path("status"))
        self.fails(1, "changed", "pack", "status", "-o", "x.sml")
        self.assertFalse(os.path.exists(self.path("x.sml")))

    def test_unreadable_files_are_skipped_where_asked(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to become somebody else")
        self.write("src/good.txt", b"good")
        self.write("src/secret.txt", b"secret")
        os.chmod(self.path("src/secret.txt"), 0)
        os.chmod(self.dir, 0o777)

        def as_nobody(*arguments):
            return subprocess.run([SML, *arguments], cwd=self.dir, capture_output=True, user=65534, group=65534, check=False)

        if as_nobody("version").returncode != 0:
            self.skipTest("another user cannot reach the command here")
        done = as_nobody("pack", "src", "-o", "x.sml")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"secret.txt", done.stderr)
        done = as_nobody("pack", "src", "-o", "x.sml", "--on-error", "skip")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(b"secret.txt", done.stderr)
        self.assertEqual(self.contents("x.sml"), {b"good.txt": b"good"})

    def test_existing_output(self):
        self.write("src/a", b"1")
        self.ok("pack", "src", "-o", "x.sml")
        before = self.read("x.sml")
        self.write("src/b", b"2")
        self.fails(1, "exists", "pack", "src", "-o", "x.sml")
        self.assertEqual(self.read("x.sml"), before)
        self.ok("pack", "src", "-o", "x.sml", "--overwrite")
        self.assertEqual(self.contents("x.sml"), {b"a": b"1", b"b": b"2"})
        self.fails(2, "standard output", "pack", "src", "-o", "-")
        self.fails(2, "", "pack", "src")
        self.fails(1, "", "pack", "src", "-o", "no/such/dir.sml")

    def test_dry_run_writes_nothing(self):
        self.write("src/a", b"123")
        out = self.ok("pack", "src", "-o", "x.sml", "-n")
        self.assertIn(b"1 record", out)
        self.assertFalse(os.path.exists(self.path("x.sml")))

    def test_json_report(self):
        files = corpus(self, files=50)
        report = json.loads(self.ok("pack", "src", "-o", "x.sml", "--json"))
        self.assertEqual(report["records"], len(files))
        self.assertEqual(report["bytes"], sum(map(len, files.values())))
        self.assertEqual(report["container_bytes"], len(self.read("x.sml")))

    def test_data_sets_and_parts(self):
        files = corpus(self, files=100)
        for part in (3, 1, 2):
            self.ok("pack", "src", "-o", "ds/", "--part", f"{part}/3", "--group-by", "stem")
        self.assertEqual(sorted(os.listdir(self.path("ds")))[-3:], [b"part-1-of-3.sml", b"part-2-of-3.sml", b"part-3-of-3.sml"])
        self.assertEqual(self.contents("ds"), files)
        self.assertEqual(self.lines("ls", "ds"), name_order(files))
        for key in sorted(files)[::17]:
            self.assertEqual(self.ok("cat", "ds", key), files[key])
        os.rename(self.path("ds/part-2-of-3.sml"), self.path("away"))
        self.fails(1, "part-2-of-3.sml: is missing", "ls", "ds")
        self.fails(1, "exists already", "pack", "src", "-o", "ds/", "--part", "2/3", "--group-by", "stem")
        self.ok("rm", "ds/part-2-of-3.sml")
        self.fails(1, "2", "ls", "ds")
        self.assertTrue(set(self.lines("ls", "ds", "--partial")) < set(files))
        # Keys are unique in a data set.
        self.write("more/new.txt", b"new")
        self.ok("pack", "more", "-o", "ds2/", "--name", "first")
        self.fails(1, "new.txt", "pack", "more", "-o", "ds2/", "--name", "second")
        self.assertEqual(self.lines("ls", "ds2"), [b"new.txt"])
        self.write("other/other.txt", b"other")
        self.ok("pack", "other", "-o", "ds2")
        self.assertEqual(len([n for n in os.listdir(self.path("ds2")) if n.endswith(b".sml")]), 2)
        self.assertEqual(self.contents("ds2"), {b"new.txt": b"new", b"other.txt": b"other"})
        self.assertEqual(self.left_over("ds2"), [])
        for bad in ("0/3", "4/3", "x", "1/0", "-1/3", "1/3/5"):
            self.fails(2, "part", "pack", "more", "-o", "ds3/", "--part", bad)

    def test_of_packers_that_race_for_a_key_one_wins(self):
        self.write("src/k", b"x")
        os.mkdir(self.path("ds"))
        packers = [subprocess.Popen([SML, "pack", "src", "-o", "ds/", "--name", f"c{i}"], cwd=self.dir, stderr=subprocess.PIPE) for i in range(8)]
        codes = []
        for packer in packers:
            packer.communicate()
            codes.append(packer.returncode)
        self.assertEqual(sorted(codes), [0] + [1] * 7)
        self.assertEqual(self.lines("ls", "ds"), [b"k"])
        self.assertEqual(self.left_over("ds"), [])

    def test_interrupts_leave_nothing(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            read_end, write_end = os.pipe()
            packer = subprocess.Popen([SML, "pack", "--archive", "-", "-o", "x.sml"], cwd=self.dir, stdin=read_end, stderr=subprocess.PIPE)
            os.close(read_end)
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                info = tarfile.TarInfo("big")
                info.size = 1 << 20
                tar.addfile(info, io.BytesIO(bytes(1 << 20)))
            os.write(write_end, buffer.getvalue()[: 1 << 19])  # it waits for more, with its output begun
            while not self.left_over():
                time.sleep(0.01)
            packer.send_signal(number)
            _, stderr = packer.communicate(timeout=60)
            os.close(write_end)
            self.assertEqual(packer.returncode, code, stderr)
            self.assertEqual(os.listdir(self.path(".")), [])

    def test_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to mount a small file system")
        os.mkdir(self.path("small"))
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.path("small")], capture_output=True, check=False)
        if mount.returncode != 0:
            self.skipTest("cannot mount here")
        try:
            self.write("src/a.bin", random.Random(SEED).randbytes(3 << 20))
            self.fails(1, "space", "pack", "src", "-o", "small/x.sml")
            self.assertEqual(os.listdir(self.path("small")), [])
        finally:
            subprocess.run(["umount", self.path("small")], check=True)

    def test_the_output_is_no_source(self):
        self.write("src/a", b"1")
        os.symlink("a", self.path("src/b"))
        for _ in range(2):
            self.ok("pack", "src", "-o", "src/x.sml", "--overwrite", "--symlinks", "skip")
            self.assertEqual(self.contents("src/x.sml"), {b"a": b"1"})
        self.ok("pack", "src", "-o", "src/", "--name", "second", "--prefix", "again/")
        self.assertEqual(self.lines("ls", "src"), [b"a", b"again/a", b"again/b"])
        self.write("list", b"src/a\n")
        subprocess.run(["tar", "cf", "k.tar", "list"], cwd=self.dir, check=True)
        for arguments in (("src/a", "-o", "src/a"), ("src/b", "-o", "src/a"), ("--archive", "k.tar", "-o", "k.tar"), ("--files-from", "list", "-o", "list")):
            before = self.read(arguments[-1])
            self.fails(2, "both input and output", "pack", *arguments, "--overwrite")
            self.assertEqual(self.read(arguments[-1]), before)

    def test_a_directory_made_for_nothing_goes_and_one_in_use_stays(self):
        self.write("bad.tar", b"x" * 600)
        self.fails(1, "", "pack", "--archive", "bad.tar", "-o", "new/sub/")
        self.assertFalse(os.path.exists(self.path("new")))
        # Somebody else came to use the directory that the first one made.
        read_end, write_end = os.pipe()
        first = subprocess.Popen([SML, "pack", "--archive", "-", "-o", "new/"], cwd=self.dir, stdin=read_end, stderr=subprocess.PIPE)
        os.close(read_end)
        while not os.path.exists(self.path("new")):
            time.sleep(0.01)
        self.write("src/k", b"1")
        self.ok("pack", "src", "-o", "new/", "--name", "kept")
        os.write(write_end, b"garbage")
        os.close(write_end)
        first.communicate(timeout=60)
        self.assertEqual(first.returncode, 1)
        self.assertEqual(sorted(os.listdir(self.path("new"))), [b".sml-catalog", b".sml-lock", b"kept.sml"])

    def test_fewer_threads_than_asked_for_are_enough(self):
        if SANITIZED:
            self.skipTest("sanitizers need the address space themselves")
        files = corpus(self, files=50)
        script = f"ulimit -v 700000; exec '{SML}' pack src -o x.sml -j 1000"
        done = subprocess.run(["bash", "-c", script], cwd=self.dir, capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(self.contents("x.sml"), files)

    def test_a_request_for_counters_ends_nothing(self):
        self.write("src/a", b"1")
        read_end, write_end = os.pipe()
        packer = subprocess.Popen([SML, "pack", "--archive", "-", "-o", "x.sml"], cwd=self.dir, stdin=read_end, stderr=subprocess.PIPE)
        os.close(read_end)
        while not self.left_over():
            time.sleep(0.01)
        packer.send_signal(signal.SIGUSR1)
        os.write(write_end, bytes(10240))  # an empty tar
        os.close(write_end)
        packer.communicate(timeout=60)
        self.assertEqual(packer.returncode, 0)

    def test_wrong_usage(self):
        self.write("src/a", b"1")
        for arguments in (("--seed", "x"), ("--seed", "-1"), ("--block-size", "3"), ("--block-size", "1T"), ("--block-size", "-5"),
                          ("--block-size", "99999999999999999999"), ("--align", "3"), ("--align", "8K"), ("--compress", "lz4"),
                          ("--compress", "zstd:0"), ("--compress", "zstd:99"), ("--order", "sorted"), ("--group-by", "dir"), ("-j", "0x"),
                          ("--bogus",), ("--on-error",)):
            with self.subTest(arguments):
                self.fails(2, "", "pack", "src", "-o", "x.sml", *arguments)
        self.fails(2, "SML_THREADS", "pack", "src", "-o", "x.sml", env={"SML_THREADS": "many"})
        self.fails(2, "", "pack", "-o", "x.sml")
        self.fails(2, "no location", "pack", "src", "-o", "rados://pool/ds/")
        self.assertFalse(os.path.exists(self.path("x.sml")))


if __name__ == "__main__":
    unittest.main()
