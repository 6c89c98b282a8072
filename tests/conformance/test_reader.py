#!/usr/bin/env python3
"""What sml writes, and the reader in plain Python beside this file, agree in every record and order."""

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import struct
import sys
import unittest

from smltest import SmlTest, name_order, stem

sys.dont_write_bytecode = True
import sml_frames  # noqa: E402
import sml_reader  # noqa: E402
from sml_hash import crc32c, xxh3_64, xxh3_128  # noqa: E402
from sml_parts import Refused  # noqa: E402

NASTY = [b"\xff\xfe.bin", b"new\nline", b"...", b".hidden", b".x.y", b"a.b/..c.d", b"-o", b"sp ace'\"", b"a..b"]
NASTY += [b"\xc3\xa4.\x01", b"~" * 200]
WORDS = [b"alpha", b"beta", b'{"label":', b"cat", b"dog"]


def words(r, count):
    return b" ".join(r.choice([*WORDS, b"%d" % r.randrange(999)]) for _ in range(count))


def small(r, count):
    """Names and contents of some small files, one sample of up to three files after the other."""
    files = {}
    for i in range(count):
        for suffix in r.choice([[b""], [b".txt"], [b".jpg", b".json"], [b".a.b", b".a", b"-x.a"]]):
            files[b"%s/%d%s" % (r.choice([b"a", b"b/c", b"d.e"]), i, suffix)] = words(r, r.randrange(60))
    return files


def large(r):
    """Records of several pieces, and at the bounds of one: of 64 KiB blocks, a piece has some 57,000 bytes."""
    files = {b"big/%d" % size: r.randbytes(size) for size in (57341, 57342, 114682, 114683)}
    return {**files, b"big/text": words(r, 30000), b"big/zeros": bytes(150000)}


def attempt(read):
    """`read()`'s result, or None where it is refused."""
    try:
        return read()
    except Refused:
        return None


class Reader(SmlTest):
    def pack(self, files, *options, name="c.sml", source="source"):
        shutil.rmtree(self.path(source), ignore_errors=True)
        os.makedirs(self.path(source))
        for key, content in files.items():
            self.write(os.path.join(os.fsencode(source), key), content)
        self.ok("pack", source, "-o", name, "--overwrite", *options)
        return sml_reader.Container(self.read(name))

    def compare(self, container, files):
        """All that is said of records: contents, numbers, ranks, samples, look-ups."""
        records = list(container.records())
        self.assertEqual({r.key: r.content for r in records}, files)
        self.assertEqual([r.number for r in records], list(range(len(files))))
        self.assertEqual([r.key for r in sorted(records, key=lambda r: r.rank)], name_order(files))
        grouped = container.header.grouping == 1
        before = [None, *records]
        for last, r in zip(before, records):
            self.assertEqual((r.size, container.find(r.key)), (len(r.content), r.number))
            new = last is None or not grouped or stem(last.key) != stem(r.key)
            self.assertEqual(r.sample, (last.sample if last else -1) + new)
        if records:
            self.assertEqual(len({stem(key) for key in files} if grouped else files), records[-1].sample + 1)
        self.assertIsNone(container.find(b"no such key"))
        slots = [start for start, _ in container.slots] + [row.start + row.slots_offset for row in container.rows]
        aligned = [row.start for row in container.rows] + [start + 16 for start in slots]
        self.assertFalse([place for place in aligned if place % container.header.align])
        if container.header.order == 1:
            self.assertEqual([r.rank for r in records], [r.number for r in records])
        return records

    def test_orders_groupings_and_codecs(self):
        r = random.Random(1)
        for order in ("name", "input", "random"):
            for grouping in ("none", "stem"):
                for codec in ("none", "zstd", "auto"):
                    for count in (0, 1, 2, 70):
                        with self.subTest(order=order, grouping=grouping, codec=codec, count=count):
                            files = small(r, count)
                            seed = ("--seed", str(count)) if order == "random" else ()
                            options = ("--order", order, "--group-by", grouping, "--compress", codec, *seed)
                            self.compare(self.pack(files, *options), files)

    def test_dictionary(self):
        files = small(random.Random(2), 3000)
        container = self.pack(files)
        self.assertIsNotNone(container.dictionary)
        self.assertIn(7, container.sections)
        self.compare(container, files)

    def test_pieces_blocks_and_alignment(self):
        r = random.Random(3)
        files = {**small(r, 300), **large(r)}
        for align in ("1", "512"):
            for options in ("--compress none", "--group-by stem", "--order name --compress zstd:19"):
                with self.subTest(align=align, options=options):
                    container = self.pack(files, "--block-size", "64K", "--align", align, *options.split())
                    self.assertGreater(sum(row.kind == 2 for row in container.rows), 5)
                    self.compare(container, files)
        only = {b"only": words(r, 100000)}
        self.compare(self.pack(only, "--block-size", "64K"), only)

    def test_names(self):
        r = random.Random(4)
        files = {key: words(r, 9) for key in NASTY}
        for directory in (b"x" * 200, b"y" * 200):
            files |= {b"/".join([directory] * 15 + [b"%d.jpg" % i]): b"" for i in range(40)}
        files |= {b"train/n%08d/n%08d_%d.JPEG" % (c, c, r.randrange(10**6)): b"" for c in range(30) for _ in range(30)}
        for options in (("--order", "name"), ("--group-by", "stem"), ("--order", "input", "--group-by", "stem")):
            with self.subTest(options=options):
                self.compare(self.pack(files, *options), files)

    def test_parts(self):
        files, seen = small(random.Random(5), 200), {}
        self.pack(files, "--group-by", "stem", name="whole.sml")
        for i in (1, 2, 3):
            self.ok("pack", "source", "-o", "parts/", "--name", "p", "--part", f"{i}/3", "--group-by", "stem")
        names = sorted(n for n in os.listdir(self.path("parts")) if n.endswith(b".sml"))
        for i, name in enumerate(names):
            container = sml_reader.Container(self.read(b"parts/" + name))
            self.assertEqual((container.header.part, container.header.parts), (i + 1, 3))
            records = {r.key: r.content for r in container.records()}
            self.assertFalse({stem(key) for key in seen} & {stem(key) for key in records})
            self.compare(container, records)
            seen |= records
        self.assertEqual(seen, files)

    def test_input_order(self):
        files = {k.encode(): k.encode() for k in "b.z a.y b.a c.q a.b b.m .h a".split()}
        for grouping, expected in (("none", list(files)), ("stem", b"b.z b.a b.m a.y a.b a c.q .h".split())):
            self.pack(files)
            for key in files:
                shutil.copy(self.path(b"source/" + key), self.path(key))
            listed = b"".join(key + b"\n" for key in files)
            options = ("-o", "i.sml", "--overwrite", "--order", "input", "--group-by", grouping)
            self.ok("pack", "--files-from", "-", *options, stdin=listed)
            self.assertEqual([r.key for r in sml_reader.Container(self.read("i.sml")).records()], expected)

    def test_shuffle(self):
        r = random.Random(6)
        for grouping in ("none", "stem"):
            parts = {}
            os.makedirs(self.path(grouping))
            for name, order in (("a", "random"), ("b", "name"), ("c", "input")):
                files = {name.encode() + b"/" + key: content for key, content in {**small(r, 120), **large(r)}.items()}
                options = ("--order", order, "--block-size", "64K", "--group-by", grouping, "--compress", "none")
                parts[f"{grouping}/{name}.sml"] = self.pack(files, *options, name=f"{grouping}/{name}.sml")
            for data_set, parts in ((grouping, list(parts.values())), *((name, [c]) for name, c in parts.items())):
                for mode in (("full", 1), ("block", 1), ("block", 3), ("block", 64), ("block", 4000)):
                    seed, epoch = r.randrange(1 << 64), r.randrange(100)
                    with self.subTest(data_set=data_set, mode=mode, seed=seed, epoch=epoch):
                        samples = sml_reader.order(parts, seed, epoch, *mode)
                        keys = [container.key(number) for sample in samples for container, number in sample]
                        lanes = () if mode[0] == "full" else ("--lanes", str(mode[1]))
                        options = ("--seed", str(seed), "--epoch", str(epoch), "--mode", mode[0], *lanes)
                        self.assertEqual(self.ok("shuffle", data_set, "-0", *options).split(b"\0")[:-1], keys)

    def test_frames(self):
        files = {**small(random.Random(7), 100), **large(random.Random(8)), **{key: b"x" for key in NASTY}}
        container = self.pack(files, "--block-size", "64K")
        stream = self.ok("cat", "c.sml", "--all", "--format", "frames")
        given = [(f.number, f.key, f.content) for f in sml_frames.read_frames(stream)]
        self.assertEqual(given, [(r.number, r.key, r.content) for r in container.records()])
        stream = self.run_sml("cat", "c.sml", "none", "new", "--format", "frames", "--on-error", "skip").stdout
        failed = [(f.key, f.number, f.content) for f in sml_frames.read_frames(stream)]
        self.assertEqual(failed, [(key, sml_frames.UNKNOWN, None) for key in (b"none", b"new")])

    def test_damaged_frames_are_refused(self):
        r = random.Random(9)
        self.pack({b"a": b"hello", b"b/c.x": words(r, 30), b"e": b""})
        stream = self.ok("cat", "c.sml", "--all", "--format", "frames")
        for size in range(len(stream)):
            with self.assertRaises(Refused) as caught:
                list(sml_frames.read_frames(stream[:size]))
            self.assertEqual(caught.exception.code, "truncated", size)
        for place in range(len(stream)):
            damaged = bytearray(stream)
            damaged[place] ^= 1 << r.randrange(8)
            with self.assertRaises(Refused):
                list(sml_frames.read_frames(bytes(damaged)))

    def test_damage_is_refused(self):
        """No flipped bit goes unseen, and no cut; opening and one record alone never give anything wrong."""
        r = random.Random(10)
        for options in (("--align", "512", "--group-by", "stem"), ("--order", "input", "--block-size", "64K")):
            files = {**small(r, 40), b"piece": words(r, 30000)}
            self.pack(files, *options)
            whole = self.read("c.sml")
            ends = [*range(130), *range(len(whole) - 64, len(whole))]
            places = ends + [r.randrange(len(whole)) for _ in range(400)]
            for place in places:
                damaged = bytearray(whole)
                damaged[place] ^= 1 << r.randrange(8)
                with self.assertRaises(Refused, msg=place):
                    list(sml_reader.Container(bytes(damaged)).records())
                opened = attempt(lambda: sml_reader.Container(bytes(damaged)))  # noqa: B023
                for key in r.sample(sorted(files), 2) if opened else []:
                    content = attempt(lambda: opened.content(opened.find(key)))  # noqa: B023
                    self.assertIn(content, (None, files[key]), place)
            for size in [*range(0, 200, 7), len(whole) - 1, *(r.randrange(len(whole)) for _ in range(100))]:
                with self.assertRaises(Refused) as caught:
                    sml_reader.Container(whole[:size])
                self.assertEqual(caught.exception.code, "truncated" if size >= 128 else "corrupt", size)

    def test_program(self):
        files = {b"\xff": b"1", b"a": b"22"}
        self.pack(files, "--order", "name")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(sml_reader.main(self.path("c.sml")), 0)
        document = json.loads(out.getvalue())
        self.assertEqual([r.get("key", r.get("key_hex")) for r in document["records"]], ["a", "ff"])
        self.assertEqual((document["header"]["order"], document["counts"]["raw_bytes"]), (1, 3))
        self.write("c.sml", self.read("c.sml")[:-1])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(sml_reader.main(self.path("c.sml")), 1)
        self.assertEqual(out.getvalue().count("\n"), 1)


class Hashes(unittest.TestCase):
    def test_known_values(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(b"6789", crc32c(b"12345")), 0xE3069283)
        self.assertEqual(xxh3_64(b"train/n01440764/n01440764_10026.JPEG"), 0x82060EB90C707DCD)
        self.assertEqual(xxh3_64(b"a/001.jpg"), 0xB0B5EB6E0AF205C4)

    def test_all_small_sizes(self):
        """The digest is that of what libxxhash 0.8.1 gives."""
        data, all_hashes = bytes(i * i >> 3 & 255 for i in range(3100)), hashlib.sha256()
        for size in range(3100):
            all_hashes.update(struct.pack("<3Q", xxh3_64(data[:size]), *xxh3_128(data[:size])))
        expected = "68c9979bbca21f923adf9ac2e82fbff36a087eeb4ba4c918eb41dec0c486d3c3"
        self.assertEqual(all_hashes.hexdigest(), expected)


if __name__ == "__main__":
    unittest.main()
