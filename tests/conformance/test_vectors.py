#!/usr/bin/env python3
"""The vectors of format-spec/vectors/ are what they were, and the reader written from the documents alone agrees."""

import base64
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import sml_forge  # noqa: E402
import sml_frames  # noqa: E402
import sml_order  # noqa: E402
import sml_reader  # noqa: E402
import vectors_valid  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "format-spec" / "vectors"
SML = os.environ["SML"]
ORDERS = ["input", "name", "random"]
GROUPINGS = ["none", "stem"]
KINDS = ["records", "first piece", "further piece", "dictionary"]


def document(path):
    return json.loads((VECTORS / path).read_text(encoding="utf-8"))


def bytes_of(shown):
    return shown.encode() if isinstance(shown, str) else base64.b64decode(shown["base64"])


def same_content(content, shown):
    if isinstance(shown, dict) and "sha256" in shown:
        return hashlib.sha256(content).hexdigest() == shown["sha256"]
    return content == bytes_of(shown)


class Vectors(unittest.TestCase):
    def test_files_are_those_of_the_sums(self):
        lines = (VECTORS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
        files = {p.relative_to(VECTORS).as_posix() for p in VECTORS.rglob("*") if p.is_file()}
        self.assertEqual(files - {"README.md", "SHA256SUMS"}, set(sums))
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((VECTORS / name).read_bytes()).hexdigest(), digest, name)

    def test_version_1_bytes_stay_as_they_are(self):
        versions = json.loads(subprocess.run([SML, "version", "--json"], check=True, capture_output=True).stdout)
        if versions["libraries"]["zstd"] != "1.5.4":
            self.skipTest("another libzstd compresses to other bytes: " + versions["libraries"]["zstd"])
        run = subprocess.run(["/usr/bin/python3", ROOT / "scripts" / "make-vectors", "--check"], capture_output=True,
                             text=True)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))

    def test_the_table_of_the_readme_names_every_valid_vector(self):
        text = (VECTORS / "README.md").read_text(encoding="utf-8")
        for path in VECTORS.glob("valid/*.json"):
            self.assertIn(f"| {path.stem} |", text)
        for path in VECTORS.glob("frames/valid/*.json"):
            self.assertIn(f"| {path.stem} |", text)


class IndependentReader(unittest.TestCase):
    def test_valid(self):
        for path in sorted(VECTORS.glob("valid/*.sml")):
            with self.subTest(path.stem):
                self.compare(path.read_bytes(), document(path.with_suffix(".json")))

    def compare(self, data, twin):
        self.assertEqual(hashlib.sha256(data).hexdigest(), twin["sha256"])
        c = sml_reader.Container(data)
        self.assertEqual(c.id, twin["id"])
        h = c.header
        self.assertEqual(
            {"version": h.version, "header_bytes": h.header_bytes, "incompatible_features": h.incompatible,
             "compatible_features": h.compatible, "seed": h.seed, "block_bytes": h.block_bytes,
             "piece_bytes": h.piece_bytes,
             "align": h.align, "part": h.part, "parts": h.parts, "order": ORDERS[h.order],
             "grouping": GROUPINGS[h.grouping], "tag": "%08x" % h.tag},
            twin["header"])
        self.assertEqual({name: getattr(c.footer, name) for name in twin["counts"]}, twin["counts"])
        self.assertEqual(sorted(c.sections), twin["footer"]["sections"])
        blocks = [{"offset": row.start, "size": row.end - row.start, "kind": KINDS[row.kind],
                   "first_record": row.first_record,
                   "slots": row.slots, "slots_offset": row.slots_offset, "crc32c": "%08x" % row.crc32c,
                   "xxh3_128": "%016x%016x" % (row.high, row.low)} for row in c.rows]
        self.assertEqual(blocks, twin["blocks"])
        records = list(c.records())
        self.assertEqual(len(records), len(twin["records"]))
        for record, row in zip(records, twin["records"]):
            here = [record.number, record.rank, record.sample, record.block, record.key, record.size]
            self.assertEqual(here, [*row[:4], bytes_of(row[4]), row[5]])
            self.assertTrue(same_content(record.content, row[6]), record.key)
            self.assertEqual(c.find(record.key), record.number)
        for key in twin["absent"]:
            self.assertIsNone(c.find(bytes_of(key)))
        for order in twin["orders"]:
            samples = sml_reader.order([c], order["seed"], order["epoch"], order["mode"], order["lanes"])
            samples = [c.samples[sample[0][1]] for sample in samples]
            self.assertEqual(samples[:64], order["first"])
            self.assertEqual(vectors_valid.digest(samples), order["digest"])

    def test_invalid(self):
        for vector in document("invalid/expected.json")["vectors"]:
            with self.subTest(vector["file"]):
                data = (VECTORS / "invalid" / vector["file"]).read_bytes()
                with self.assertRaises(sml_reader.Refused) as refused:
                    for _ in sml_reader.Container(data).records():
                        pass
                self.assertEqual(refused.exception.code, vector["code"], refused.exception)

    def test_valid_streams(self):
        for path in sorted(VECTORS.glob("frames/valid/*.frames")):
            with self.subTest(path.stem):
                found = []
                for r in sml_frames.read_frames(path.read_bytes()):
                    number = None if r.number == sml_frames.UNKNOWN else r.number
                    if r.content is None:
                        found.append({"number": number, "key": vectors_valid.shown(r.key),
                                      "failed": r.message.decode()})
                    else:
                        found.append({"number": number, "key": vectors_valid.shown(r.key), "size": len(r.content),
                                      "content": vectors_valid.shown_content(r.content)})
                self.assertEqual(found, document(path.with_suffix(".json"))["records"])

    def test_invalid_streams(self):
        for vector in document("frames/invalid/expected.json")["vectors"]:
            with self.subTest(vector["file"]):
                whole = 0
                with self.assertRaises(sml_reader.Refused) as refused:
                    data = (VECTORS / "frames" / "invalid" / vector["file"]).read_bytes()
                    for record in sml_frames.read_frames(data):
                        whole += record.content is not None
                self.assertEqual((refused.exception.code, whole), (vector["code"], vector["records"]),
                                 refused.exception)


@unittest.skipIf(os.environ.get("SML_SANITIZE"), "a million names take too long under sanitizers")
class MillionNames(unittest.TestCase):
    def test_the_container_is_the_one_whose_identity_is_checked_in(self):
        (path,) = VECTORS.glob("valid/*-million-names.json")
        twin = document(path)
        n = twin["records"]
        with tempfile.TemporaryDirectory() as directory:
            source, packed = os.path.join(directory, "in.frames"), os.path.join(directory, "out.sml")
            with open(source, "wb") as out:
                vectors_valid.million_stream(out)
            subprocess.run([SML, "pack", "--frames", source, "-q", "-o", packed, *vectors_valid.MILLION_OPTIONS],
                           check=True,
                           stdout=subprocess.DEVNULL)
            info = json.loads(subprocess.run([SML, "info", packed, "--json"], check=True, capture_output=True).stdout)
            (container,) = info["containers"]
            self.assertEqual(container["id"], twin["id"])
            self.assertEqual(os.path.getsize(packed), twin["container_bytes"])
            with open(packed, "rb") as file:
                self.assertEqual(hashlib.file_digest(file, "sha256").hexdigest(), twin["sha256"])

            # A few hundred of its names, in the middle and at the ends of name order; their numbers are computed apart.
            ranked = sorted((vectors_valid.million_key(i) for i in range(n)), key=sml_forge.name_order)
            ranks = [0, 1, 31, 32, n - 1, *random.Random(1).sample(range(n), 400)]
            p = sml_order.Permutation(n, sml_order.PACK, 12345)
            keys = [ranked[rank] for rank in ranks]
            numbers = b"".join(b"%d\n" % p.apply(rank) for rank in ranks)
            for options, wanted in (([], b"".join(key + b"\n" for key in keys)), (["--ids"], numbers)):
                run = subprocess.run([SML, "cat", packed, "--keys-from", "-", "--format", "frames", "-q", *options],
                                     input=wanted,
                                     check=True, capture_output=True)
                records = list(sml_frames.read_frames(run.stdout))
                self.assertEqual([record.key for record in records], keys)
                self.assertEqual(b"".join(b"%d\n" % record.number for record in records), numbers)
                contents = [int(key[:-5].rsplit(b"_", 1)[1]).to_bytes(8, "little") for key in keys]
                self.assertEqual([record.content for record in records], contents)
            absent = subprocess.run([SML, "cat", packed, keys[7] + b"x", "--format", "frames", "-q"],
                                    capture_output=True)
            self.assertEqual(absent.returncode, 1)


if __name__ == "__main__":
    unittest.main()
