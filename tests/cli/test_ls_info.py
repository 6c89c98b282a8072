"""sml ls, info, verify, help, version: what they print, exactly."""

import base64
import json
import os
import unittest

from smltest import SmlTest, name_order

COMMANDS = ("pack", "ls", "info", "shuffle", "cat", "verify", "recover", "cp", "rm", "help", "version")


class Ls(SmlTest):
    FILES = {b"a/1.jpg": b"x" * 5, b"a/1.txt": b"y" * 2, b"a/b/2.jpg": b"", b"[ab]": b"z", b"top.tar.gz": b"123", b".hidden": b"h",
             b"bad\xff": b"1", b"star*": b"22", b"a/1-x.jpg": b"w"}

    def setUp(self):
        super().setUp()
        for name, data in self.FILES.items():
            self.write(b"src/" + name, data)
        self.ok("pack", "src", "-o", "x.sml")

    def test_names_in_name_order(self):
        self.assertEqual(self.lines("ls", "x.sml"), name_order(self.FILES))
        self.assertEqual(self.ok("ls", "-0", "x.sml"), b"".join(k + b"\0" for k in name_order(self.FILES)))

    def test_sizes_and_numbers(self):
        rows = [line.split(b"\t") for line in self.lines("ls", "-l", "x.sml")]
        self.assertEqual([(r[2], int(r[1])) for r in rows], [(k, len(self.FILES[k])) for k in name_order(self.FILES)])
        self.assertEqual(sorted(int(r[0]) for r in rows), list(range(len(self.FILES))))
        self.assertEqual(self.lines("ls", "--ids", "x.sml"), [r[0] for r in rows])

    def test_globs(self):
        for glob, expected in ((b"*", [b".hidden", b"[ab]", b"bad\xff", b"star*", b"top.tar.gz"]), (b"[ab]", []), (b"\\[ab\\]", [b"[ab]"]),
                               (b"a/*", [b"a/1.jpg", b"a/1.txt", b"a/1-x.jpg"]), (b"**/*.jpg", [b"a/1.jpg", b"a/1-x.jpg", b"a/b/2.jpg"]),
                               (b"a/**", [b"a/1.jpg", b"a/1.txt", b"a/1-x.jpg", b"a/b/2.jpg"]), (b"a/[!2]*.txt", [b"a/1.txt"]),
                               (b"star\\*", [b"star*"]), (b"?????", [b"[ab]" + b""][:0] + [b"star*"])):
            with self.subTest(glob):
                if expected:
                    self.assertEqual(self.lines("ls", "x.sml", glob), name_order(expected))
                else:
                    self.assertEqual(self.fails(1, "match", "ls", "x.sml", glob), b"")
        self.assertEqual(self.lines("ls", "x.sml", "a/*.jpg", "*.gz"), [b"a/1.jpg", b"a/1-x.jpg", b"top.tar.gz"])
        self.fails(2, "[", "ls", "x.sml", "[a")

    def test_counts(self):
        counts = {}
        for key, data in self.FILES.items():
            directory = key.rpartition(b"/")[0] or b"."
            n, size = counts.get(directory, (0, 0))
            counts[directory] = (n + 1, size + len(data))
        expected = [b"%d\t%d\t%s" % (*counts[d], d) for d in sorted(counts)]
        self.assertEqual(self.lines("ls", "--count-by", "dir", "x.sml"), expected)
        by_ext = [line.split(b"\t") for line in self.lines("ls", "--count-by", "ext", "x.sml")]
        self.assertIn([b"3", b"6", b"jpg"], by_ext)
        self.assertIn([b"1", b"3", b"tar.gz"], by_ext)
        self.assertEqual(sum(int(row[0]) for row in by_ext), len(self.FILES))

    def test_json_lines(self):
        rows = [json.loads(line) for line in self.lines("ls", "--json", "x.sml")]
        keys = [r["key"].encode() if "key" in r else base64.b64decode(r["key_base64"]) for r in rows]
        self.assertEqual(keys, name_order(self.FILES))
        self.assertEqual([r["bytes"] for r in rows], [len(self.FILES[k]) for k in keys])
        self.assertEqual([("key" in r) for r in rows], [k != b"bad\xff" for k in keys])

    def test_info(self):
        text = self.ok("info", "x.sml")
        self.assertIn(b"records     9", text)
        report = json.loads(self.ok("info", "--json", "x.sml"))
        self.assertEqual(report["records"], 9)
        self.assertEqual(report["bytes"], sum(map(len, self.FILES.values())))
        self.assertEqual(len(report["containers"]), 1)
        self.assertEqual(report["containers"][0]["name"], "x")

    def test_verify(self):
        self.assertEqual(self.ok("verify", "x.sml")[:3], b"ok:")
        report = json.loads(self.ok("verify", "--json", "x.sml"))
        self.assertEqual((report["records"], report["damaged"]), (9, 0))
        # Every byte matters to verify, the padding included.
        data = self.read("x.sml")
        for at in list(range(0, len(data), 97)):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            self.write("bad.sml", damaged)
            done = self.run_sml("verify", "bad.sml")
            self.assertEqual(done.returncode, 1, at)
            self.assertNotEqual(done.stderr, b"")

    def test_verify_goes_on_behind_a_container_that_cannot_be_opened(self):
        os.mkdir(self.path("ds"))
        data = self.read("x.sml")
        self.write("ds/a.sml", data[:3000])
        damaged = bytearray(data)
        damaged[200] ^= 1
        self.write("ds/b.sml", damaged)
        done = self.run_sml("verify", "ds", "--json")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertEqual((report["ok"], report["containers"]), (False, 2))
        self.assertIn("a.sml", report["findings"][0]["message"])
        self.assertTrue(any("b" in f["message"] for f in report["findings"][1:]))
        self.assertGreaterEqual(done.stderr.count(b"\n"), 2)
        os.remove(self.path("ds/b.sml"))
        self.assertEqual(self.run_sml("verify", "ds").returncode, 1)

    def test_data_set_directories(self):
        os.mkdir(self.path("none"))
        self.fails(1, "none", "ls", "none")
        self.fails(1, "nosuch", "ls", "nosuch")
        self.write("src2/0", b"0")
        os.mkdir(self.path("ds"))
        os.rename(self.path("x.sml"), self.path("ds/b.sml"))
        self.ok("pack", "src2", "-o", "ds/a.sml")
        self.assertEqual(self.lines("ls", "ds"), name_order([*self.FILES, b"0"]))
        self.assertEqual(self.lines("ls", "-l", "ds")[[*name_order([*self.FILES, b"0"])].index(b"0")], b"0\t1\t0")
        # Containers that disagree about grouping are no data set.
        self.write("src3/3", b"3")
        self.ok("pack", "src3", "-o", "ds/c.sml", "--group-by", "stem")
        self.fails(1, "group", "ls", "ds")


class Help(SmlTest):
    def test_help_of_every_command(self):
        top = self.ok("help")
        self.assertEqual(self.ok(), top)
        for command in COMMANDS:
            self.assertIn(command.encode(), top)
            text = self.ok("help", command)
            self.assertIn(b"Usage: sml " + command.encode(), text)
            self.assertIn(b"Exit codes:", text)
            self.assertEqual(self.ok(command, "-h"), text)
            self.assertEqual(self.ok(command, "--help"), text)

    def test_version(self):
        text = self.ok("version")
        for word in (b"sml ", b"container", b"zstd", b"libarchive", b"xxhash"):
            self.assertIn(word, text)

    def test_unknown_commands_and_options(self):
        self.fails(2, "'pack'", "pakc")
        self.fails(2, "unknown command", "frobnicate")
        self.fails(2, "unknown command", "serve")
        for command in COMMANDS[:-2]:
            self.fails(2, "--frobnicate", command, "--frobnicate")
        self.fails(2, "", "help", "frobnicate")
        self.fails(2, "", "ls", "x.sml@3x", "--ids", "-l", "--bogus")
        self.fails(2, "", "ls")


if __name__ == "__main__":
    unittest.main()
