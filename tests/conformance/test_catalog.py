#!/usr/bin/env python3
"""Catalogs: the vectors are what they were, and the command and a reader written from the document agree on them."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import sml_catalog  # noqa: E402
from smltest import SmlTest  # noqa: E402

VECTORS = sml_catalog.VECTORS
CATALOGS = VECTORS / "catalog"
VALID = sorted(CATALOGS.glob("valid/*.catalog"))
UNSUPPORTED = ("newer", "does not know", "unknown")


def twin(path):
    return json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def expected():
    return json.loads((CATALOGS / "invalid" / "expected.json").read_text(encoding="utf-8"))["vectors"]


def files(top):
    return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}


class Vectors(unittest.TestCase):
    def test_they_are_what_is_written(self):
        with tempfile.TemporaryDirectory() as directory:
            fresh = pathlib.Path(directory)
            sml_catalog.write(fresh)
            written, checked_in = files(fresh), files(CATALOGS)
        self.assertEqual(sorted(written), sorted(checked_in))
        for name, data in written.items():
            self.assertEqual(data, checked_in[name], name)

    def test_valid(self):
        self.assertTrue(VALID)
        for path in VALID:
            with self.subTest(path.stem):
                told = twin(path)
                catalog = sml_catalog.decode(path.read_bytes())
                for field in ("revision", "oldest", "containers", "announced", "removed"):
                    self.assertEqual(catalog[field], told[field])
                for row in told["revisions"]:
                    names = [one["name"] for one in sml_catalog.at(catalog, row["revision"])]
                    self.assertEqual(names, row["containers"])
                for name, file in told["files"].items():
                    (one,) = [one for one in catalog["containers"] if one["name"] == name]
                    data = (VECTORS / file).read_bytes()
                    made = sml_catalog.entry(name, data, one["since"], one["incarnation"])
                    self.assertEqual(one, made)
                # All of a container's bytes but its blocks.
                for one in catalog["containers"]:
                    parts = [size for _, _, size in sml_catalog.objects(one)]
                    self.assertEqual(sum(parts), one["bytes"] - one["blocks_end"] + one["header_bytes"])

    def test_invalid(self):
        self.assertEqual(sorted(p.name for p in CATALOGS.glob("invalid/*.catalog")), [v["file"] for v in expected()])
        for vector in expected():
            with self.subTest(vector["file"]):
                with self.assertRaises(sml_catalog.BadCatalog) as refused:
                    sml_catalog.decode((CATALOGS / "invalid" / vector["file"]).read_bytes())
                self.assertEqual(refused.exception.code, vector["code"], refused.exception)


class Command(SmlTest):
    def refused(self, *arguments):
        """The one line of a command that finds no catalog in ds/."""
        done = self.run_sml(*arguments)
        lines = done.stderr.decode().splitlines()
        self.assertEqual((done.returncode, done.stdout, len(lines)), (1, b"", 1), lines)
        self.assertTrue(lines[0].startswith(f"sml {arguments[0]}: ds/.sml-catalog: catalog: "), lines)
        return lines[0]

    def test_refuses_the_invalid_ones(self):
        for vector in expected():
            with self.subTest(vector["file"]):
                data = (CATALOGS / "invalid" / vector["file"]).read_bytes()
                self.write("ds/.sml-catalog", data)
                line = self.refused("info", "--json", "ds/")
                self.assertIn(vector["message"], line)
                self.assertEqual(any(word in line for word in UNSUPPORTED), vector["code"] == "unsupported", line)
                self.assertEqual(self.read("ds/.sml-catalog"), data)

    def test_refuses_one_that_is_too_large(self):
        self.write("ds/.sml-catalog", sml_catalog.encode(sml_catalog.document()))
        os.truncate(self.path("ds/.sml-catalog"), sml_catalog.MOST_BYTES + 1)
        self.assertIn("too large", self.refused("info", "ds/"))

    def test_refuses_a_container_that_is_not_as_it_says(self):
        name, file = "part-2-of-3", "29-part"
        self.write(f"ds/{name}.sml", (VECTORS / "valid" / f"{file}.sml").read_bytes())
        whole = sml_catalog.vector_entry(file, name, 1)

        def lists(entry):
            self.write("ds/.sml-catalog", sml_catalog.encode(sml_catalog.document(1, 0, [entry])))

        others = {"id": "0" * 32, "grouping": "none", "part": 3, "parts": 4, "records": 77, "bytes": 1 << 40,
                  "header_bytes": whole["header_bytes"] + 1, "blocks": 0, "blocks_end": whole["blocks_end"] - 1}
        if whole["grouping"] == "none":
            others["grouping"] = "stem"
        for field, value in others.items():
            with self.subTest(field):
                lists({**whole, field: value})
                self.fails(1, "is another container", "info", "--partial", "ds/")
        lists({**whole, "since": 0, "incarnation": "1" * 16})
        self.ok("info", "--partial", "ds/")

    def test_others_than_info_refuse_as_well(self):
        self.write("a/a", b"a")
        self.write("ds/.sml-catalog", (CATALOGS / "invalid" / expected()[-1]["file"]).read_bytes())
        for arguments in (("ls", "ds/"), ("verify", "ds/"), ("shuffle", "ds/"), ("rm", "--recursive", "ds/"),
                          ("pack", "a", "-o", "ds/")):
            self.refused(*arguments)
        self.assertEqual(set(self.tree("ds")), {b".sml-catalog"})

    def names(self, location):
        done = self.run_sml("info", "--json", "--partial", location)
        if b"the data set is empty" in done.stderr:
            return []
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return [one["name"] for one in json.loads(done.stdout)["containers"]]

    def test_reads_the_valid_ones(self):
        for path in VALID:
            with self.subTest(path.stem):
                self.tearDown()
                self.setUp()
                told = twin(path)
                self.write("ds/.sml-catalog", path.read_bytes())
                would = "".join(f"would remove ds/{one['name']}.sml\n" for one in told["containers"])
                self.assertEqual(self.ok("rm", "-n", "--recursive", "ds/").decode(), would)
                if told["oldest"] > 0:
                    gone = told["oldest"] - 1
                    self.fails(1, f"ds: revision {gone} is gone", "info", f"ds@{gone}")
                if told["revision"] < 2**64 - 1:
                    later = told["revision"] + 1
                    self.fails(1, f"ds: there is no revision {later} yet", "info", f"ds@{later}")
                if len(told["files"]) < len(told["containers"]):
                    continue
                for name, file in told["files"].items():
                    self.write(f"ds/{name}.sml", (VECTORS / file).read_bytes())
                for row in told["revisions"]:
                    self.assertEqual(self.names(f"ds@{row['revision']}"), row["containers"])
                self.assertEqual(self.names("ds/"), [one["name"] for one in told["containers"]])
                if told["containers"]:
                    report = json.loads(self.ok("info", "--json", "--partial", "ds/"))
                    self.assertEqual(report["revision"], told["revision"])
                    found = [(one["name"], one["id"]) for one in report["containers"]]
                    self.assertEqual(found, [(one["name"], one["id"]) for one in told["containers"]])

    def test_changes_the_valid_ones_and_keeps_what_it_knows(self):
        for path in VALID:
            told = twin(path)
            if len(told["files"]) < len(told["containers"]):
                continue
            with self.subTest(path.stem):
                self.tearDown()
                self.setUp()
                self.write("ds/.sml-catalog", path.read_bytes())
                for name, file in told["files"].items():
                    self.write(f"ds/{name}.sml", (VECTORS / file).read_bytes())
                self.write("z/a key of its own", b"z")
                stem = any(one["grouping"] == "stem" for one in told["containers"])
                self.ok("pack", "z", "-o", "ds/", "--name", "zz", *(("--group-by", "stem") if stem else ()))
                written = self.read("ds/.sml-catalog")
                catalog = sml_catalog.decode(written)
                new = sml_catalog.entry("zz", self.read("ds/zz.sml"), told["revision"] + 1)
                wanted = {"needs": [], "revision": told["revision"] + 1, "oldest": told["oldest"],
                          "containers": [*told["containers"], new], "announced": told["announced"],
                          "removed": told["removed"]}
                self.assertEqual(catalog, wanted)
                self.assertEqual(written, sml_catalog.encode(wanted))

    def test_writes_what_the_document_says(self):
        def pack(name, *options):
            self.write(f"{name}/{name}.txt", name.encode())
            self.ok("pack", name, "-o", "ds/", "--name", name, *options)
            return self.read(f"ds/{name}.sml")

        def stands(revision, oldest, *containers):
            written = self.read("ds/.sml-catalog")
            wanted = sml_catalog.document(revision, oldest, containers)
            self.assertEqual(sml_catalog.decode(written), wanted)
            self.assertEqual(written, sml_catalog.encode(wanted))

        b = sml_catalog.entry("b", pack("b", "--align", "4096"), 1)
        stands(1, 0, b)
        a = sml_catalog.entry("a", pack("a"), 2)
        stands(2, 0, a, b)
        self.write("b/more", b"more")
        b = sml_catalog.entry("b", pack("b", "--overwrite"), 3)
        stands(3, 3, a, b)
        self.ok("rm", "ds/a.sml")
        stands(4, 4, b)
        self.assertEqual(sorted(self.tree("ds")), [b".sml-catalog", b".sml-lock", b"b.sml"])
        self.ok("rm", "ds/b.sml")
        stands(5, 5)

    def test_files_that_were_there_first_are_of_revision_0(self):
        for name in ("a", "a-b", "c"):
            self.write(f"{name}/{name}", b"x")
            self.ok("pack", name, "-o", f"{name}.sml")
            if name != "c":
                self.write(f"ds/{name}.sml", self.read(f"{name}.sml"))
        self.assertEqual(self.names("ds@0"), ["a", "a-b"])
        self.ok("cp", "c.sml", "ds/")
        catalog = sml_catalog.decode(self.read("ds/.sml-catalog"))
        found = [(one["name"], one["since"]) for one in catalog["containers"]]
        self.assertEqual(found, [("a", 0), ("a-b", 0), ("c", 1)])
        self.assertEqual((catalog["revision"], catalog["oldest"]), (1, 0))

    def test_parts(self):
        for i in range(40):
            self.write(f"a/{i}", b"%d" % i)
        for part in (3, 1, 2):
            self.ok("pack", "a", "-o", "ds/", "--part", f"{part}/3", "--group-by", "stem")
        catalog = sml_catalog.decode(self.read("ds/.sml-catalog"))
        fields = ("name", "part", "parts", "grouping", "since")
        found = [tuple(one[field] for field in fields) for one in catalog["containers"]]
        self.assertEqual(found, [(f"part-{i}-of-3", i, 3, "stem", since) for i, since in ((1, 2), (2, 3), (3, 1))])
        self.assertEqual(sum(one["records"] for one in catalog["containers"]), 40)


if __name__ == "__main__":
    unittest.main()
