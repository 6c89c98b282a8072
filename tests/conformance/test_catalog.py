"""Catalogs: the command and a reader written from the document agree on what is one."""

import copy
import json
import os
import unittest

import sml_catalog
from smltest import SmlTest


class Catalog(SmlTest):
    def setUp(self):
        super().setUp()
        for name in ("b", "a"):
            self.write(f"{name}/{name}.txt", name.encode())
            self.ok("pack", name, "-o", "ds/", "--name", name)
        self.whole = self.read("ds/.sml-catalog")

    def verdict(self, data):
        """What the command makes of a catalog: its report, or the kind of error."""
        self.write("ds/.sml-catalog", data)
        done = self.run_sml("info", "ds", "--json")
        if done.returncode == 0:
            self.assertEqual(done.stderr, b"")
            return json.loads(done.stdout)
        lines = done.stderr.decode().splitlines()
        self.assertEqual((done.returncode, len(lines)), (1, 1), lines)
        self.assertTrue(lines[0].startswith("sml info: ds/.sml-catalog: catalog: "), lines)
        return "unsupported" if any(word in lines[0] for word in ("newer", "does not know", "unknown")) else "corrupt"

    def test_what_pack_writes_is_what_the_document_says(self):
        document = sml_catalog.decode(self.whole)
        self.assertEqual((document["revision"], document["oldest"], document["needs"]), (2, 0, []))
        self.assertEqual([(one["name"], one["since"]) for one in document["containers"]], [("a", 2), ("b", 1)])
        report = json.loads(self.ok("info", "ds", "--json"))
        for one, told in zip(document["containers"], report["containers"]):
            self.assertEqual(one["id"], told["id"])
            self.assertEqual(one["bytes"], os.path.getsize(self.path(f"ds/{one['name']}.sml")))
            self.assertEqual((one["records"], one["blocks"]), (told["records"], told["blocks"]))
        self.assertEqual(self.verdict(sml_catalog.encode(document))["revision"], 2)

    def test_what_is_more_than_a_reader_knows_is_ignored(self):
        document = sml_catalog.decode(self.whole)
        document["colour"] = {"red": [1, None]}
        document["containers"][0]["weight"] = 3
        self.assertEqual(self.verdict(sml_catalog.encode(document))["records"], 2)

    def test_both_refuse_what_is_none(self):
        cases = {
            "empty": b"",
            "cut in the first line": self.whole[:20],
            "cut": self.whole[:-5],
            "other magic": b"XML" + self.whole[3:],
            "newer": self.whole.replace(b"catalog 1 ", b"catalog 2 ", 1),
            "no JSON": sml_catalog.seal(b"{"),
            "no object": sml_catalog.seal(b"[]\n"),
            "a bit": self.whole[:100] + bytes([self.whole[100] ^ 1]) + self.whole[101:],
        }
        for path, value in (
            (("needs",), ["hidden"]), (("needs",), 3), (("revision",), -1), (("revision",), 1.5), (("revision",), 1), (("revision",), None),
            (("oldest",), 3), (("containers",), {}), (("announced",), None), (("removed",), [3]),
            (("containers", 0, "name"), "c"), (("containers", 0, "name"), "b"), (("containers", 0, "name"), ""), (("containers", 0, "name"), "x/y"),
            (("containers", 0, "name"), ".a"), (("containers", 0, "name"), "n" * 201), (("containers", 0, "name"), "\n"), (("containers", 0, "name"), 7),
            (("containers", 0, "id"), "0" * 31), (("containers", 0, "id"), "g" * 32), (("containers", 0, "incarnation"), "0"),
            (("containers", 0, "since"), 3), (("containers", 0, "grouping"), "size"), (("containers", 0, "part"), 1), (("containers", 0, "parts"), 2),
            (("containers", 0, "parts"), 65537), (("containers", 0, "records"), 2**32), (("containers", 0, "bytes"), 100),
            (("containers", 0, "header_bytes"), 127), (("containers", 0, "header_bytes"), 4097), (("containers", 0, "blocks"), 2**40),
            (("containers", 0, "blocks_end"), 2**63), (("containers", 0, "bytes"), None),
        ):
            document = copy.deepcopy(sml_catalog.decode(self.whole))
            place = document
            for step in path[:-1]:
                place = place[step]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            cases[f"{path}: {value!r}"[:80]] = sml_catalog.encode(document)
        for name, data in cases.items():
            with self.subTest(name):
                with self.assertRaises(sml_catalog.BadCatalog) as refused:
                    sml_catalog.decode(data)
                self.assertEqual(self.verdict(data), refused.exception.args[0])


if __name__ == "__main__":
    unittest.main()
