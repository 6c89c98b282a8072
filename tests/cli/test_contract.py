"""Rules that hold for every command: arguments, streams, terminals, progress, signals."""

import fcntl
import io
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import tarfile
import termios
import time
import unittest

from smltest import SML, SmlTest


class Contract(SmlTest):
    FILES = {b"[a,b]": b"brackets", b"[ab]": b"ab", b"++": b"plus", b"-x": b"dash", b"a": b"A", b"x,y": b"comma", b"\x01": b"one"}

    def setUp(self):
        super().setUp()
        for name, data in self.FILES.items():
            self.write(b"src/" + name, data)
        self.ok("pack", "src", "-o", "x.sml")

    def pipe(self, script):
        return subprocess.run(["bash", "-c", script], cwd=self.dir, env={**os.environ, "SML": SML}, capture_output=True, check=False)


class Arguments(Contract):
    def test_keys_pass_as_they_are(self):
        self.assertEqual(self.ok("cat", "x.sml", "--", *self.FILES), b"".join(self.FILES.values()))
        self.assertEqual(self.ok("cat", "x.sml", "[a,b]", "++", "[ab]", "x,y", "\x01"), b"bracketsplusabcommaone")
        self.assertEqual(self.lines("ls", "x.sml", "[ab]"), [b"a"])
        self.assertEqual(self.lines("ls", "x.sml", "\\[ab\\]"), [b"[ab]"])
        self.assertEqual(self.lines("shuffle", "x.sml", "--match=[ab]"), [b"a"])
        self.assertEqual(self.lines("shuffle", "x.sml", "--match", "[ab]", "--match", "[x],[y]", "--exclude", "a"), [b"x,y"])
        self.ok("pack", "src", "-o", "p.sml", "--prefix", "[q,r]")
        self.assertEqual(self.ok("cat", "p.sml", "[q,r][a,b]"), b"brackets")
        self.ok("pack", "src", "-o", "q.sml", "--prefix", "--q=[r]/")  # a value that looks like an option
        self.assertEqual(self.ok("cat", "q.sml", "--", "--q=[r]/a"), b"A")
        self.ok("pack", "src", "-o", "[1,2].sml")
        self.assertEqual(self.ok("cat", "[1,2].sml", "a"), b"A")
        self.fails(1, "''", "cat", "x.sml", "")

    def test_a_tar_whose_names_are_patterns(self):
        data = self.ok("cat", "x.sml", "--format", "tar", "--", *self.FILES)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as tar:
            self.assertEqual([os.fsencode(m.name) for m in tar], list(self.FILES))
        self.assertEqual(len(data) % 10240, 0)

    def test_options_are_given_once_and_have_a_value(self):
        for message, *arguments in (
            ("--ids is given more than once", "ls", "x.sml", "--ids", "--ids"),
            ("--seed is given more than once", "shuffle", "x.sml", "--seed", "1", "--seed=1"),
            ("--threads is given more than once", "cat", "x.sml", "-j1", "--threads", "2"),
            ("--seed needs a value", "shuffle", "x.sml", "--seed"),
            ("--all takes no value", "cat", "x.sml", "--all=yes"),
            ("'-xyz'", "ls", "x.sml", "-xyz"),
            ("'b'", "info", "x.sml", "b"),
            ("''", "shuffle", "x.sml", "--seed="),
            ("which container", "pack", "src", "--resume", "-o", "y/"),
            ("'0' is no percentage", "verify", "x.sml", "--sample", "0"),
            ("'nan' is no percentage", "verify", "x.sml", "--sample", "nan"),
            ("--quick and --sample", "verify", "x.sml", "--sample", "5", "--quick"),
            ("--quick and --remote", "verify", "rados://p/d", "--remote", "--quick"),
            ("--remote is for data sets in Ceph", "verify", "x.sml", "--remote"),
            ("no settings behind", "ls", "rados://p/d?"),
            ("no setting of a location", "ls", "rados://p/d?x=1"),
            ("--ceph-timeout", "ls", "rados://p/d", "--ceph-timeout", "0"),
            ("revision cannot be written", "pack", "src", "-o", "rados://p/d@3"),
            ("name it once", "pack", "src", "-o", "rados://p/d/c", "--name", "c"),
            ("is a data set", "recover", "rados://p/d", "-o", "y.sml"),
            ("is a data set", "recover", "rados://p/d", "--overwrite"),
            ("a revision cannot be recovered", "recover", "rados://p/d@3"),
            ("-n is for data sets", "recover", "rados://p/d/c", "-n", "-o", "y.sml"),
            ("'x@3' is no name in Ceph", "pack", "src", "--name", "x@3", "-o", "rados://p/d"),
            ("'x?y' is no name in Ceph", "pack", "src", "--name", "x?y", "--part", "1/2", "-o", "rados://p/d"),
            ("'x@3' is no name in Ceph", "cp", "x.sml", "rados://p/d", "--name", "x@3"),
            ("is no file", "recover", "x.sml", "-o", "rados://p/d/c"),
            ("revision cannot be removed", "rm", "rados://p/d@3"),
            ("exclude each other", "rm", "y/", "--recursive", "--unsealed"),
            ("is no data set", "rm", "x.sml", "--recursive"),
        ):
            with self.subTest(arguments):
                self.assertEqual(self.fails(2, message, *arguments), b"")
        self.assertFalse(os.path.exists(self.path("y.sml")))

    def test_what_contradicts_itself(self):
        for arguments in (
            ("ls", "x.sml", "-l", "--ids"), ("ls", "x.sml", "--json", "-0"), ("ls", "x.sml", "--count-by", "dir", "-l"),
            ("cat", "x.sml", "--all", "a"), ("cat", "x.sml", "--all", "--ids"), ("cat", "x.sml", "a", "--keys-from", "-"),
            ("cat", "x.sml", "--all", "--overwrite"), ("shuffle", "x.sml", "--mode", "full", "--lanes", "3"),
            ("shuffle", "x.sml", "--from-state", "s", "--start", "1"), ("shuffle", "x.sml", "--from-state", "-", "--select", "-"),
            ("shuffle", "x.sml", "--state", "--ids"), ("shuffle", "-", "--from-state", "s"), ("shuffle", "-", "--select", "s"),
            ("pack", "src", "--archive", "--frames", "-o", "y"), ("pack", "--archive", "--files-from", "-", "-o", "y"),
            ("pack", "-", "-o", "y"), ("pack", "--archive", "-", "-", "-o", "y"), ("pack", "src", "-0", "-o", "y"),
            ("pack", "src", "--name", "n", "-o", "y.sml"), ("pack", "src", "--name", "a/b", "-o", "y/"), ("pack", "src", "--name", ".n", "-o", "y/"),
            ("pack", "src", "--prefix", "../", "-o", "y"), ("pack", "src", "--prefix", "/a", "-o", "y"),
            ("pack", "--archive", "-", "--on-duplicate", "replace", "-o", "y"),
        ):
            with self.subTest(arguments):
                self.assertEqual(self.fails(2, "", *arguments), b"")
        self.assertEqual(sorted(os.listdir(self.dir)), ["src", "x.sml"])

    def test_locations(self):
        self.fails(1, "revisions", "ls", "x.sml@3")
        for wrong in ("rados://", "rados://pool", "rados://pool/", "rados://pool/ds/", "rados:///ds", "rados://pool/ds//"):
            self.fails(2, "is no location", "ls", wrong)
        self.fails(2, "", "ls", "")
        os.rename(self.path("x.sml"), self.path("x.sml@3"))
        self.assertEqual(len(self.lines("ls", "x.sml@3")), len(self.FILES))
        self.fails(1, "nosuch@x", "ls", "nosuch@x")

    def test_sizes(self):
        for size in ("65536", "64K", "64k", "64KB", "64KiB", "0.0625M"):
            self.ok("pack", "src", "-o", "y.sml", "--overwrite", "--block-size", size)
        for size in ("", "K", "64X", "-64K", "64 K", "1e6", "0x10000", "1.5", ".5M", "1.M", "1..5M", "16777216T", "64KiBB", "64iB"):
            with self.subTest(size):
                self.fails(2, "--block-size", "pack", "src", "-o", "y.sml", "--overwrite", "--block-size", size)

    def test_environment(self):
        for name, good, bad in (("SML_THREADS", "2", ("0", "-1", "two", "100000")), ("SML_MEMORY", "64M", ("-1", "all", "64Q"))):
            self.ok("cat", "x.sml", "--all", env={name: good})
            self.ok("cat", "x.sml", "--all", env={name: ""})
            for value in bad:
                self.fails(2, name, "cat", "x.sml", "--all", env={name: value})
        self.ok("cat", "x.sml", "--all", "-j1", "--memory", "1M", env={"SML_THREADS": "bad", "SML_MEMORY": "bad"})


class Streams(Contract):
    def test_keys_with_newlines_need_nul(self):
        self.write(b"s2/new\nline", b"n")
        self.write(b"s2/d\nd/x", b"n")
        self.ok("pack", "s2", "-o", "n.sml")
        for arguments in (("ls",), ("ls", "-l"), ("shuffle",), ("ls", "--count-by", "dir")):
            with self.subTest(arguments):
                self.fails(1, "newline", arguments[0], "n.sml", *arguments[1:])
        self.assertEqual(sorted(self.ok("shuffle", "n.sml", "-0").split(b"\0")), [b"", b"d\nd/x", b"new\nline"])
        self.assertEqual(self.ok("cat", "n.sml", "-0", stdin=b"new\nline\0d\nd/x\0"), b"nn")
        self.assertEqual(sorted(self.lines("ls", "n.sml", "--ids")), [b"0", b"1"])
        self.assertEqual(len(self.lines("ls", "n.sml", "--json")), 2)
        # In messages such keys stay on one line.
        self.fails(1, "no\\nsuch", "cat", "n.sml", "no\nsuch")

    def test_pipelines(self):
        done = self.pipe('"$SML" shuffle x.sml --seed 3 | "$SML" cat x.sml --format tar | tar t | sort')
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        done = self.pipe('"$SML" ls x.sml | grep a | "$SML" shuffle - | "$SML" cat x.sml --format frames | "$SML" pack --frames - -o y.sml')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertEqual(self.lines("ls", "y.sml"), sorted(k for k in self.FILES if b"a" in k))
        done = self.pipe('find src -print0 | "$SML" pack --files-from - -0 -o f.sml && "$SML" ls f.sml | wc -l')
        self.assertEqual((done.returncode, done.stdout.strip()), (0, b"%d" % len(self.FILES)))
        done = self.pipe('tar c -C src . | "$SML" pack --archive - -o t.sml && tar c -C src . | "$SML" pack --archive <(cat) -o u.sml && cmp t.sml u.sml')
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_several_archives(self):
        for part in (1, 2):
            with tarfile.open(self.path(f"{part}.tar").decode(), "w") as tar:
                for i in range(5):
                    info = tarfile.TarInfo(f"p{part}/{i}")
                    info.size = 1
                    tar.addfile(info, io.BytesIO(b"%d" % i))
        keys = [b"p%d/%d" % (p, i) for p in (1, 2) for i in range(5)]
        self.ok("pack", "--archive", "1.tar", "2.tar", "-o", "y.sml")
        self.assertEqual(self.lines("ls", "y.sml"), keys)
        self.ok("pack", "--archive", "1.tar", "-", "-o", "z.sml", stdin=self.read("2.tar"))
        self.assertEqual([line.split(b"\t")[0::2] for line in self.lines("ls", "-l", "z.sml")], [[b"%d" % i, k] for i, k in enumerate(keys)])
        self.fails(1, "p1/0", "pack", "--archive", "1.tar", "1.tar", "-o", "q.sml")

    def test_closed_descriptors(self):
        self.assertEqual(self.pipe('"$SML" cat x.sml --all >&-').returncode, 1)
        self.assertEqual(self.pipe('"$SML" ls x.sml >&-').returncode, 1)
        self.assertEqual(self.pipe('"$SML" shuffle - <&-').returncode, 1)
        self.assertEqual(self.pipe('"$SML" pack src -o c.sml <&- >&- 2>&-').returncode, 0)
        self.ok("verify", "c.sml")
        self.assertEqual(self.pipe('"$SML" ls nosuch 2>&-').returncode, 1)

    def test_lists_into_closed_pipes(self):
        self.ok("pack", "--files-from", "-", "-o", "y.sml", stdin=b"src/a\n")
        lines = b"\n".join(b"%09d" % i for i in range(200000))
        self.write("many", lines)
        done = self.pipe('"$SML" shuffle - < many | head -n 1 | wc -c; exit ${PIPESTATUS[0]}')
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, b"10", b""))

    def test_stats_and_notes_are_on_standard_error(self):
        done = self.run_sml("cat", "x.sml", "--all", "--stats")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, rb"\Arecords 7\nbytes %d\nstored_bytes \d+\nfailed 0\nseconds [\d.]+\n"
                         rb"operations 0\nranges 0\nread_bytes 0\nmost_in_flight 0\nwaited 0.000\n"
                         rb"in_flight 0\noldest 0.000\ncache_hits 0\ncache_misses 0\ncache_bytes 0\nblocks_kept 0\nblocks_damaged 0\n\Z" % sum(map(len, self.FILES.values())))
        done = self.run_sml("shuffle", "x.sml", "--world", "2", "--even", "drop")
        self.assertEqual((done.returncode, done.stderr), (0, b"sml shuffle: 1 sample dropped at the end (--even drop)\n"))
        done = self.run_sml("shuffle", "x.sml", "--world", "4", "--even", "wrap")
        self.assertEqual((done.returncode, done.stderr), (0, b"sml shuffle: 1 sample repeated from the front (--even wrap)\n"))
        self.ok("shuffle", "x.sml", "--world", "2", "--even", "drop", "-q")


class Directory(Contract):
    def test_names_that_lead_elsewhere(self):
        # Such keys do not get into a container, whether an archive or frames hold them: "/" and "./" at the front are dropped.
        for name, key in ((b"../up", None), (b"a/../../up", None), (b"..", None), (b"a/..", None), (b"/abs", b"abs"), (b"./c", b"c")):
            with tarfile.open(self.path("h.tar").decode(), "w") as tar:
                info = tarfile.TarInfo(os.fsdecode(name))
                info.size = 1
                tar.addfile(info, io.BytesIO(b"!"))
            if key is None:
                self.fails(1, "..", "pack", "--archive", "h.tar", "-o", "h.sml", "--overwrite")
                self.fails(1, "..", "pack", "--archive", "-", "-o", "h.sml", "--overwrite", stdin=self.read("h.tar"))
                continue
            self.ok("pack", "--archive", "h.tar", "-o", "h.sml", "--overwrite")
            self.ok("cat", "h.sml", "--all", "-C", "jail")
            self.assertEqual(self.read(b"jail/" + key), b"!")
        self.assertEqual(sorted(os.listdir(self.path("jail"))), [b"abs", b"c"])

    def test_a_file_where_a_directory_should_be(self):
        self.write("s1/k", b"1")
        self.write("s2/k/below", b"2")
        self.write("s2/z", b"3")
        self.ok("pack", "s1", "-o", "1.sml")
        self.ok("pack", "s2", "-o", "2.sml")
        self.ok("cat", "1.sml", "--all", "-C", "out")
        self.fails(1, "k/below", "cat", "2.sml", "k/below", "-C", "out")
        done = self.run_sml("cat", "2.sml", "k/below", "z", "-C", "out", "--on-error", "skip")
        self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (3, b"", 1))
        self.assertEqual(self.tree("out"), {b"k": b"1", b"z": b"3"})
        # The other way round: a directory is not replaced by a file, whatever was asked.
        self.ok("cat", "2.sml", "k/below", "-C", "out2")
        self.fails(1, "k", "cat", "1.sml", "k", "-C", "out2", "--overwrite")
        self.assertEqual(self.tree("out2"), {b"k/below": b"2"})

    def test_links_are_replaced_not_followed(self):
        self.write("target", b"before")
        os.mkdir(self.path("out"))
        os.symlink("../target", self.path("out/a"))
        self.fails(1, "exists", "cat", "x.sml", "a", "-C", "out")
        self.ok("cat", "x.sml", "a", "-C", "out", "--overwrite")
        self.assertEqual((self.read("target"), self.read("out/a"), os.path.islink(self.path("out/a"))), (b"before", b"A", False))

    def test_a_full_disk_leaves_no_part_of_a_file(self):
        self.write("s2/big", bytes(range(256)) * 4096)
        self.ok("pack", "s2", "-o", "big.sml", "--compress", "none")

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))

        for arguments in (("cat", "big.sml", "--all", "-C", "out"), ("pack", "s2", "-o", "y.sml", "--compress", "none"),
                          ("pack", "s2", "-o", "ds/", "--compress", "none")):
            done = subprocess.run([SML, *arguments], cwd=self.dir, stderr=subprocess.PIPE, preexec_fn=limited, check=False)
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done.stderr)
        self.assertEqual(sorted(os.listdir(self.dir)), ["big.sml", "out", "s2", "src", "x.sml"])
        self.assertEqual(os.listdir(self.path("out")), [])


class Terminals(Contract):
    def on_terminal(self, *arguments, streams=("stderr",), columns=200):
        """Runs sml with these streams on a terminal of its own; gives exit code, what the terminal showed, and standard output."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kinds = {name: theirs for name in streams}
        process = subprocess.Popen([SML, *arguments], cwd=self.dir, stdin=kinds.get("stdin", subprocess.DEVNULL),
                                   stdout=kinds.get("stdout", subprocess.DEVNULL), stderr=kinds.get("stderr", subprocess.DEVNULL))
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 1 << 16):
                shown += piece
        except OSError:  # the other side is closed
            pass
        os.close(ours)
        return process.wait(timeout=60), shown

    def test_progress_is_for_people(self):
        code, shown = self.on_terminal("pack", "src", "-o", "y.sml")
        self.assertEqual(code, 0)
        self.assertIn(b"7 records", shown)
        self.assertIn(b"\r", shown)
        self.assertNotIn(b"\x1b", shown)
        self.assertEqual(self.on_terminal("pack", "src", "-o", "q.sml", "-q"), (0, b""))
        self.assertEqual(self.on_terminal("pack", "src", "-o", "n.sml", "--progress=never"), (0, b""))
        code, shown = self.on_terminal("pack", "src", "-o", "narrow.sml", columns=20)
        self.assertEqual(code, 0)
        for line in re.split(rb"[\r\n]+", shown)[:-2]:
            self.assertLessEqual(len(line), 20)

    def test_progress_into_a_file_where_asked(self):
        done = self.run_sml("pack", "src", "-o", "y.sml", "--progress=always")
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"records", done.stderr)
        self.fails(2, "--progress", "pack", "src", "-o", "z.sml", "--progress=maybe")

    def test_errors_stay_whole_between_progress(self):
        os.symlink("nowhere", self.path("src/dangling"))
        code, shown = self.on_terminal("pack", "src", "-o", "y.sml", "--on-error", "skip")
        self.assertEqual(code, 3)
        self.assertRegex(shown, rb"(\A|\r|\n)sml pack: skipped: src/dangling: [^\r\n]*\r\n")

    def test_refusals(self):
        for arguments, stream in (
            (("cat", "x.sml", "a"), "stdout"), (("cat", "x.sml", "--all", "--format", "tar"), "stdout"), (("cat", "x.sml"), "stdin"),
            (("cat", "x.sml", "--keys-from", "-"), "stdin"), (("shuffle", "-"), "stdin"), (("shuffle", "x.sml", "--select", "-"), "stdin"),
            (("shuffle", "x.sml", "--from-state", "-"), "stdin"), (("pack", "--archive", "-", "-o", "y.sml"), "stdin"),
            (("pack", "--frames", "-", "-o", "y.sml"), "stdin"), (("pack", "--files-from", "-", "-o", "y.sml"), "stdin"),
        ):
            with self.subTest(arguments):
                code, shown = self.on_terminal(*arguments, streams=(stream, "stderr"))
                self.assertEqual(code, 2)
                self.assertRegex(shown, rb"\Asml %s: [^\r\n]*\r\nhint: [^\r\n]*\r\n\Z" % arguments[0].encode())
        self.assertFalse(os.path.exists(self.path("y.sml")))

    def test_text_goes_to_terminals(self):
        for arguments in (("ls", "x.sml"), ("info", "x.sml"), ("shuffle", "x.sml"), ("verify", "x.sml"), ("help",)):
            code, shown = self.on_terminal(*arguments, streams=("stdout",))
            self.assertEqual(code, 0)
            self.assertTrue(shown)


class Signals(Contract):
    def test_a_container_that_becomes_shorter(self):
        self.write("s2/big", os.urandom(3 << 20))
        self.ok("pack", "s2", "-o", "big.sml", "--compress", "none")
        reader = subprocess.Popen([SML, "cat", "big.sml", "--format", "raw"], cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env={**os.environ, "ASAN_OPTIONS": "handle_sigbus=0:allow_user_segv_handler=1"})
        with open(f"/proc/{reader.pid}/maps", encoding="ascii", errors="replace") as maps:
            deadline = time.monotonic() + 60
            while "big.sml" not in maps.read():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
                maps.seek(0)
        time.sleep(0.2)  # it waits for keys by now
        os.truncate(self.path("big.sml"), 4096)
        out, err = reader.communicate(b"big\n", timeout=60)
        self.assertEqual((reader.returncode, err.count(b"\n")), (1, 1), err)
        self.assertTrue(err.startswith(b"sml cat: big.sml: "), err)
        self.assertLess(len(out), 3 << 20)

    def test_interrupted_extraction(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            reader = subprocess.Popen([SML, "cat", "x.sml", "-C", "out", "--overwrite"], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            reader.stdin.write(b"a\n")
            reader.stdin.flush()
            while not os.path.exists(self.path("out/a")):
                time.sleep(0.01)
            reader.send_signal(number)  # while it waits for more keys
            self.assertEqual(reader.wait(timeout=60), 128 + number)
            reader.communicate()
            self.assertEqual(self.tree("out"), {b"a": b"A"})
            os.remove(self.path("out/a"))

    def test_a_data_set_that_was_not_written_is_not_there(self):
        packer = subprocess.Popen([SML, "pack", "--archive", "-", "-o", "ds/sub/"], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        while not os.path.exists(self.path("ds/sub")):
            time.sleep(0.01)
        packer.stdin.write(b"no archive")
        packer.communicate(timeout=60)
        self.assertEqual(packer.returncode, 1)
        self.assertFalse(os.path.exists(self.path("ds")))


class ManyContainers(SmlTest):
    def test_a_directory_may_have_more_containers_than_a_process_has_files_at_first(self):
        def few_files():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

        for number in range(100):
            self.write(f"{number}", b"%d" % number)
            self.ok("pack", f"{number}", "-o", "ds/", "--name", f"{number:03}")
        done = subprocess.run(
            [SML, "cat", "ds/", "--all"], cwd=self.dir, capture_output=True, preexec_fn=few_files, check=False
        )
        expected = b"".join(b"%d" % number for number in range(100))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, expected, b""))


if __name__ == "__main__":
    unittest.main()
