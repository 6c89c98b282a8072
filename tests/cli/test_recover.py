"""sml recover: what is told, what is written, and the exit codes."""

import json
import os
import unittest

from smltest import SmlTest


def crc32c(data):
    """Bit by bit, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Recover(SmlTest):
    def setUp(self):
        super().setUp()
        for i in range(300):
            self.write(f"in/{i:03}.bin", (b"%d " % i) * 600)
        self.ok("pack", "in", "-o", "sound.sml", "--compress", "none", "--block-size", "64K", "--seed", "3")
        self.sound = self.read("sound.sml")

    def damaged(self, *offsets, cut=None):
        data = bytearray(self.sound[:cut])
        for offset in offsets:
            data[offset] ^= 0x20
        self.write("damaged.sml", bytes(data))
        return bytes(data)

    def test_nothing_lost(self):
        for offset in (20, len(self.sound) - 300, len(self.sound) - 20):
            # Without the tail nothing says what its id was.
            remark = b"nothing is lost" if offset > len(self.sound) - 64 else b"the container is what it was"
            before = self.damaged(offset)
            self.assertEqual(self.run_sml("ls", "damaged.sml").returncode, 1)
            out = self.ok("recover", "damaged.sml", "-o", "out.sml", "--overwrite")
            self.assertEqual(out, b"recovered: 300 records, 638.7 KiB; " + remark + b"\n")
            self.assertEqual(self.read("out.sml"), self.sound)
            self.assertEqual(self.read("damaged.sml"), before)

    def test_a_lost_record_is_named_and_the_others_are_there(self):
        key = b"123.bin"
        at = self.sound.index(b"123 " * 100)
        self.damaged(at + 50)
        result = self.run_sml("recover", "damaged.sml", "-o", "out.sml")
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stdout, b"recovered: 299 records, 636.3 KiB; lost: 1 record\n")
        self.assertRegex(
            result.stderr,
            rb"\Asml recover: damaged.sml: record '123.bin': checksum mismatch \(stored [0-9a-f]{8}, computed [0-9a-f]{8}\)\n\Z",
        )
        self.ok("verify", "out.sml")
        self.ok("cat", "out.sml", "--all", "-C", "back")
        expected = self.tree("in")
        del expected[key]
        self.assertEqual(self.tree("back"), expected)

    def test_a_container_that_was_cut_off(self):
        self.damaged(cut=400_000)
        result = self.run_sml("recover", "damaged.sml", "-o", "out.sml", "--json")
        self.assertEqual(result.returncode, 3)
        report = json.loads(result.stdout)
        self.assertFalse(report["index_used"])
        self.assertFalse(report["all_known"])
        *records, end = [loss["message"] for loss in report["losses"]]
        self.assertIn("neither a block nor the footer follows", end)
        for loss in records:  # of the block that was cut
            self.assertRegex(loss, r"\Arecord '\d{3}.bin': it lies behind the end of the file\Z")
        self.assertEqual(report["records_lost"], len(records))
        self.ok("verify", "out.sml")
        self.ok("cat", "out.sml", "--all", "-C", "back")
        back, packed = self.tree("back"), self.tree("in")
        self.assertEqual(report["records"], len(back))
        self.assertGreater(len(back), 150)
        self.assertTrue(all(packed[name] == content for name, content in back.items()))
        # Its records come in the order in which they were.
        ids = self.ok("ls", "out.sml", "--ids").split()
        self.assertEqual(sorted(map(int, ids)), list(range(len(back))))

    def test_wrong_usage(self):
        self.damaged(20)
        os.mkdir(self.path("d"))
        os.link(self.path("damaged.sml"), self.path("same.sml"))
        for expected, arguments in (
            (b"no FILE given", ()),
            (b"no output given", ("damaged.sml",)),
            (b"is both input and output", ("damaged.sml", "-o", "damaged.sml", "--overwrite")),
            (b"is both input and output", ("damaged.sml", "-o", "same.sml", "--overwrite")),
            (b"is no file", ("damaged.sml", "-o", "d")),
            (b"standard output", ("damaged.sml", "-o", "-")),
        ):
            result = self.run_sml("recover", *arguments)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(expected, result.stderr)
            self.assertEqual(result.stdout, b"")

    def test_failures_leave_nothing_behind(self):
        self.write("text", b"no container at all " * 1000)
        self.write("out.sml", b"mine")
        for expected, arguments in (
            (b"text: there is neither a header nor a block of a container", ("text", "-o", "new.sml")),
            (b"missing.sml", ("missing.sml", "-o", "new.sml")),
            (b"in: is a directory", ("in", "-o", "new.sml")),
            (b"out.sml: exists already", ("sound.sml", "-o", "out.sml")),
        ):
            before = sorted(os.listdir(self.path(".")))
            result = self.run_sml("recover", *arguments)
            self.assertEqual(result.returncode, 1, result)
            self.assertIn(expected, result.stderr)
            self.assertEqual(sorted(os.listdir(self.path("."))), before)
        self.assertEqual(self.read("out.sml"), b"mine")

    def test_a_newer_container_is_not_a_damaged_one(self):
        newer = bytearray(self.sound)
        newer[8] = 2
        newer[124:128] = crc32c(newer[:124]).to_bytes(4, "little")
        self.write("newer.sml", bytes(newer))
        result = self.run_sml("recover", "newer.sml", "-o", "out.sml")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"version 2", result.stderr)
        self.assertFalse(os.path.exists(self.path("out.sml")))

    def test_a_damaged_version_is_damage(self):
        self.damaged(8)
        self.ok("recover", "damaged.sml", "-o", "out.sml")
        self.assertEqual(self.read("out.sml"), self.sound)


if __name__ == "__main__":
    unittest.main()
