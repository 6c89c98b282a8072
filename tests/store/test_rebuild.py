"""A catalog in Ceph that is damaged or lost is made anew from the objects; compared with what the format says of them."""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import unittest

from smltest import SML
from stores import POOLS, StoreTest, in_every_pool, in_one_pool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance"))
import sml_catalog  # noqa: E402

BLOCKS = ("--block-size", "64K", "--compress", "none")


def incarnations(store):
    return sorted({name.split(".")[0] for name in store.objects()})


def container_bytes(store, incarnation):
    names = [name for name in store.objects() if name.startswith(incarnation)]
    return b"".join(store.rados("get", name, "-") for name in names)


def get(store):
    return store.rados("get", "catalog", "-")


def put(store, data):
    store.rados("put", "catalog", "-", data=data)


class RebuildTest(StoreTest):
    def recover(self, store, code, *options):
        """Lines of standard output, and of standard error."""
        done = self.run_sml("recover", store.location, *options)
        self.assertEqual(done.returncode, code, (done.stdout, done.stderr))
        return done.stdout.decode().splitlines(), done.stderr.decode().splitlines()

    def expected(self, store, named, since=1):
        """The catalog of containers (name -> incarnation), worked out from their objects."""
        entries = [
            sml_catalog.entry(name, container_bytes(store, named[name]), since, named[name])
            for name in sorted(named, key=str.encode)
        ]
        return sml_catalog.decode(sml_catalog.encode(sml_catalog.document(since, since, entries)))

    def check_records(self, location, files):
        self.ok("verify", location, "--partial")
        self.ok("cat", location, "--all", "--partial", "-C", "out", "--overwrite")
        self.assertEqual({os.fsdecode(name): data for name, data in self.tree("out").items()}, files)

    def two_containers(self, store):
        files = {**self.files("a", 60), **self.files("b", 40)}
        self.pack("a", store, "one", *BLOCKS)
        self.pack("b", store, "two", "--block-size", "64K", "--align", "512")
        return files

    @in_every_pool
    def test_a_damaged_catalog_is_made_anew_with_the_names_that_it_shows(self, store):
        files = self.two_containers(store)
        whole = get(store)
        named = {one["name"]: one["incarnation"] for one in sml_catalog.decode(whole)["containers"]}
        self.assertEqual(sorted(named.values()), incarnations(store))
        lost = {f"recovered-{incarnation}": incarnation for incarnation in named.values()}
        one_lost = {"one": named["one"], f"recovered-{named['two']}": named["two"]}
        of_directory = sml_catalog.decode(whole)
        for one in of_directory["containers"]:
            one["incarnation"] = "0" * 16
        for damaged, result, why in (
            (whole.replace(b'"revision":2', b'"revision":3'), named, "checksum mismatch"),
            (whole[: whole.index(b'"name":"two"')], one_lost, "checksum mismatch"),
            (whole.replace(b'"two"', b'"t/o"'), one_lost, "checksum mismatch"),
            (whole.replace(b'"two"', b'"t?o"'), one_lost, "checksum mismatch"),
            (whole.replace(b'"two"', b'"t\xffo"'), one_lost, "checksum mismatch"),
            (whole.replace(b'"two"', b'"one"'), {"one": min(named.values()), f"one-{max(named.values())}": max(named.values())}, "checksum mismatch"),
            (b"", lost, "does not begin as a catalog does"),
            (b"SML catalog", lost, "does not begin as a catalog does"),
            (random.Random(1).randbytes(1 << 20), lost, "does not begin as a catalog does"),
            (sml_catalog.encode(of_directory), named, "is that of a directory"),
        ):
            with self.subTest(why, result=result):
                put(store, damaged)
                told = self.run_sml("ls", store.location).stderr.decode()
                self.assertIn(why, told)
                self.assertIn("hint: 'sml recover' of the data set makes it anew", told)
                would, _ = self.recover(store, 0, "-n")
                self.assertTrue(would[-1].startswith("would recover: 2 containers, 0 unsealed; "), would)
                self.assertIn(why, would[-1])
                self.assertEqual(get(store), damaged)
                did, told = self.recover(store, 0)
                self.assertEqual((did[:-1], told), (would[:-1], []))
                self.assertEqual(did[-1], would[-1].replace("would recover", "recovered"))
                self.assertEqual(sorted(line.split(": ")[0] for line in did[:-1]), sorted(map(store.container, result)))
                self.assertEqual(sml_catalog.decode(get(store)), self.expected(store, result))
                self.check_records(store.location, files)
                self.assertEqual(self.recover(store, 0), (["nothing to do: the catalog is sound, and names all that is there"], []))
        # It can be changed as any other.
        self.files("c", 5)
        self.pack("c", store, "three")
        self.assertEqual(sml_catalog.decode(get(store))["revision"], 2)

    @in_every_pool
    def test_a_lost_catalog_is_made_anew(self, store):
        files = self.files("a", 200)
        for part in ("1/3", "2/3", "3/3"):
            self.ok("pack", "a", "-o", store.location, "--part", part, "--name", "mine", "--group-by", "stem", *BLOCKS)
        named = {one["name"].replace("mine", "part"): one["incarnation"] for one in sml_catalog.decode(get(store))["containers"]}
        store.rados("rm", "catalog")
        report = json.loads(self.ok("recover", store.location, "--json"))
        self.assertEqual((report["sound"], report["dry_run"], report["unsealed"], report["losses"]), (False, False, [], []))
        self.assertEqual([one["name"] for one in report["containers"]], ["part-1-of-3", "part-2-of-3", "part-3-of-3"])
        self.assertEqual(sml_catalog.decode(get(store)), self.expected(store, named))
        self.check_records(store.location, files)
        self.fails(1, "there is no such data set", "recover", store.location + "-other")

    @in_every_pool
    def test_a_catalog_without_version_is_kept_as_it_is(self, store):
        files = self.two_containers(store)
        whole = get(store)
        store.rados("rmxattr", "catalog", "version")
        self.assertIn("makes it anew", self.run_sml("ls", store.location).stderr.decode())
        (line,), told = self.recover(store, 0)
        self.assertEqual(told, [])
        self.assertTrue(line.startswith("recovered: 0 containers, 0 unsealed; "), line)
        self.assertIn("has no attribute 'version'", line)
        self.assertEqual(get(store), whole)
        self.assertRegex(store.rados("getxattr", "catalog", "version"), rb"\A[0-9a-f]{32}\Z")
        self.check_records(store.location, files)

    @in_one_pool
    def test_where_nothing_is_wrong_nothing_is_done(self, store):
        self.two_containers(store)
        store.rados("put", "mine", "-", data=b"mine")
        store.rados("put", "0123456789ABCDEF.00000000", "-", data=b"mine")
        before, version = get(store), store.rados("getxattr", "catalog", "version")
        out, told = self.recover(store, 0)
        self.assertEqual(out, ["nothing to do: the catalog is sound, and names all that is there"])
        self.assertEqual(told, [f"sml recover: {store.location}: left alone: 2 objects that sml did not write"])
        self.assertEqual((get(store), store.rados("getxattr", "catalog", "version")), (before, version))
        # A newer one is not damaged.
        newer = before.replace(b"catalog 1", b"catalog 2")
        put(store, newer)
        self.fails(1, "newer", "recover", store.location)
        self.assertEqual(get(store), newer)
        put(store, before)
        for name in ("mine", "0123456789ABCDEF.00000000"):
            store.rados("rm", name)

    def killed_packer(self, store):
        """A packer of container 'three' that waits for more; `kill` it."""
        self.files("c", 400, size=20000)
        self.ok("pack", "c", "-o", "c.sml")
        feed = self.ok("cat", "c.sml", "--all", "--format", "frames")
        before = len(store.objects())
        packer = subprocess.Popen(
            [SML, "pack", "--frames", "-", "-o", store.location, "--name", "three", *BLOCKS],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.dir,
        )
        packer.stdin.write(feed[: len(feed) // 2])
        packer.stdin.flush()
        while len(store.objects()) < before + 20:
            pass
        return packer

    @in_every_pool
    def test_a_packer_that_lives_is_waited_for_and_what_a_dead_one_left_can_be_saved_or_removed(self, store):
        files = self.two_containers(store)
        sealed = store.objects()
        with self.killed_packer(store) as packer:
            whole = get(store)
            for lost in (False, True):
                put(store, b"damaged")
                if lost:
                    store.rados("rm", "catalog")
                before = store.left()
                self.fails(1, "a packer is at work on what the catalog does not name", "recover", store.location)
                self.assertEqual(store.left(), before)
                put(store, whole)
            packer.kill()
        store.rados("rm", "catalog")
        while b"a packer is at work" in (done := self.run_sml("recover", store.location)).stderr:
            pass
        self.assertEqual(done.returncode, 3, done.stderr)
        (unsealed,) = {name.split(".")[0] for name in store.objects()} - {name.split(".")[0] for name in sealed}
        place = store.container(f"unsealed-{unsealed}")
        told = done.stderr.decode().splitlines()
        self.assertEqual(told[0], f"sml recover: {place}: it was never sealed, or its end is lost")
        self.assertIn(f"'sml recover {place} -o FILE'", told[1])
        self.assertEqual(len(told), 2)
        self.assertIn(f"{place}: unsealed", done.stdout.decode().splitlines())
        catalog = sml_catalog.decode(get(store))
        (one,) = catalog["announced"]
        owner = one.pop("owner")
        self.assertRegex(owner, r"\A[0-9a-f]{16}\Z")
        self.assertEqual(
            one,
            {"name": f"unsealed-{unsealed}", "incarnation": unsealed, "recipe": 0, "grouping": "none", "part": 0, "parts": 0,
             "since": "an unknown time"},
        )
        self.check_records(store.location, files)
        # What was whole of it can be saved.
        done = self.run_sml("recover", place, "-o", "saved.sml")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.ok("cat", "saved.sml", "--all", "-C", "saved")
        saved = self.tree("saved")
        self.assertGreater(len(saved), 20)
        for name, data in saved.items():
            self.assertEqual(data, self.read(b"c/" + name))
        # It is in nobody's way, and removed when asked.
        self.assertIn("unknown time", self.fails_with(1, "pack", "a", "-o", store.location, "--name", f"unsealed-{unsealed}"))
        self.remove_unsealed(store.location)
        self.assertEqual(store.left(), sorted([*sealed, "catalog"]))
        self.check_records(store.location, files)

    def fails_with(self, code, *arguments):
        done = self.run_sml(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr.decode()

    @in_every_pool
    def test_what_the_catalog_does_not_name_is_taken_in(self, store):
        old = self.files("a", 60)
        self.pack("a", store, "one", *BLOCKS)
        (first,) = incarnations(store)
        # The catalog is lost, and nobody notices.
        store.rados("rm", "catalog")
        new = self.files("b", 40)
        self.pack("b", store, "two", *BLOCKS)
        (second,) = set(incarnations(store)) - {first}
        self.assertEqual(len(self.lines("ls", store.location)), 40)
        out, told = self.recover(store, 0)
        self.assertEqual((out[-1], told), ("recovered: 1 container, 0 unsealed", []))
        catalog = sml_catalog.decode(get(store))
        self.assertEqual((catalog["revision"], catalog["oldest"], catalog["announced"]), (2, 0, []))
        self.assertEqual([(one["name"], one["since"], one["incarnation"]) for one in catalog["containers"]],
                         [(f"recovered-{first}", 2, first), ("two", 1, second)])
        self.check_records(store.location, {**old, **new})
        self.assertEqual(len(self.lines("ls", store.location + "@1")), 40)

    def double(self, store, incarnation, other):
        """The objects of an incarnation once more, as another."""
        for name in store.objects():
            if name.startswith(incarnation):
                store.rados("put", name.replace(incarnation, other), "-", data=store.rados("get", name, "-"))

    @in_one_pool
    def test_keys_that_are_there_twice_are_told(self, store):
        files = self.two_containers(store)
        whole = get(store)
        named = {one["name"]: one["incarnation"] for one in sml_catalog.decode(whole)["containers"]}
        first = b"a-000.bin"  # in name order
        before = store.left()
        self.double(store, named["one"], "f" * 16)
        # A sound data set stays so.
        out, told = self.recover(store, 3)
        twin = f"one-{'f' * 16}"
        self.assertEqual(out, [f"{store.container(twin)}: unsealed", "recovered: 0 containers, 1 unsealed"])
        self.assertEqual(told, [f"sml recover: {store.location}: key '{first.decode()}' is in containers 'one' and '{twin}'"])
        self.assertEqual(sml_catalog.decode(get(store))["containers"], sml_catalog.decode(whole)["containers"])
        self.check_records(store.location, files)
        self.remove_unsealed(store.location)
        self.assertEqual(store.left(), before)
        # Where nothing tells which one is right, all are there.
        self.double(store, named["one"], "f" * 16)
        put(store, b"damaged")
        twin = f"recovered-{'f' * 16}"
        names = [f"recovered-{named['one']}", twin]
        out, told = self.recover(store, 3)
        self.assertEqual(out[-1].split(";")[0], "recovered: 3 containers, 0 unsealed")
        self.assertEqual(told, [
            f"sml recover: {store.location}: key '{first.decode()}' is in containers '{names[0]}' and '{names[1]}'",
            "hint: 'sml rm' of one of them makes keys unique again",
        ])
        self.assertIn("is in containers", self.fails_with(1, "cat", store.location, first.decode()))
        self.ok("rm", store.container(twin))
        self.check_records(store.location, files)
        self.assertEqual(store.left(), before)

    @in_one_pool
    def test_a_part_that_is_there_twice_is_told(self, store):
        self.files("a", 60)
        for part in ("1/2", "2/2"):
            self.ok("pack", "a", "-o", store.location, "--part", part, *BLOCKS)
        one = sml_catalog.decode(get(store))["containers"][0]["incarnation"]
        self.double(store, one, "f" * 16)
        store.rados("rm", "catalog")
        out, told = self.recover(store, 3)
        twin = f"part-1-of-2-{'f' * 16}"
        self.assertEqual([line.split(": ")[0] for line in out[:-1]],
                         [store.container(name) for name in ("part-1-of-2", twin, "part-2-of-2")])
        self.assertTrue(any("part 1 is there already: container 'part-1-of-2'" in line for line in told), told)
        self.ok("rm", store.container(twin))
        self.assertEqual(len(self.lines("ls", store.location)), 60)

    @in_one_pool
    def test_objects_that_are_missing_cost_what_was_in_them(self, store):
        files = self.files("a", 200)
        self.pack("a", store, "one", *BLOCKS)
        names, whole = store.objects(), {name: store.rados("get", name, "-") for name in store.objects()}
        (incarnation,) = incarnations(store)
        place = store.container(f"recovered-{incarnation}")
        for gone in (names[:1], names[2:4]):
            for name in gone:
                store.rados("rm", name)
            store.rados("rm", "catalog")
            out, told = self.recover(store, 3)
            self.assertEqual(out[0].split(": ")[0], place)
            count = "1 of its objects is" if len(gone) == 1 else "2 of its objects are"
            self.assertEqual(told[0], f"sml recover: {place}: {count} missing, the first one {gone[0]}")
            for name in gone:
                store.rados("put", name, "-", data=whole[name])
            self.assertEqual(sml_catalog.decode(get(store)), self.expected(store, {f"recovered-{incarnation}": incarnation}))
            self.check_records(store.location, files)
        # With the end the container is lost, and its records are not.
        for damaged in (None, whole[names[-1]][:-200] + b"x" + whole[names[-1]][-199:]):
            store.rados("rm", "catalog")
            if damaged:
                store.rados("put", names[-1], "-", data=damaged)
            else:
                store.rados("rm", names[-1])
            _, told = self.recover(store, 3)
            place = store.container(f"unsealed-{incarnation}")
            why = "footer: checksum mismatch" if damaged else "it was never sealed, or its end is lost"
            self.assertIn(f"sml recover: {place}: {why}", told[0])
            done = self.run_sml("recover", place, "-o", "saved.sml", "--overwrite")
            self.assertIn(done.returncode, (0, 3), done.stderr)
            self.check_records("saved.sml", files)
        # What cannot be found again is left alone.
        store.rados("rm", "catalog")
        far = f"{incarnation}.{len(names) + 40:08x}"
        store.rados("put", far, "-", data=b"far")
        out, told = self.recover(store, 3)
        self.assertEqual(out[-1].split(";")[0], "recovered: 0 containers, 0 unsealed")
        self.assertIn("what is behind would not be found", told[0])
        store.rados("rm", far)
        self.recover(store, 0)
        self.remove_unsealed(store.location)
        self.assertEqual(store.left(), ["catalog"])

    @in_one_pool
    def test_objects_behind_the_end_do_not_hide_it(self, store):
        files = self.files("a", 60)
        self.pack("a", store, "one", *BLOCKS)
        expected = self.expected(store, {f"recovered-{incarnations(store)[0]}": incarnations(store)[0]})
        late = f"{incarnations(store)[0]}.{len(store.objects()) + 20:08x}"
        store.rados("put", late, "-", data=b"late")
        store.rados("rm", "catalog")
        self.recover(store, 0)
        store.rados("rm", late)
        self.assertEqual(sml_catalog.decode(get(store)), expected)
        self.check_records(store.location, files)

    @in_every_pool
    def test_an_index_of_several_objects_is_found(self, store):
        # Keys that cannot be made smaller, for an index of more than 32 MiB; in rows whose blocks end anywhere.
        draw = random.Random(7)
        alphabet = [bytes([c]) for c in range(0x80, 0x100)]
        keys = [b"%05d" % i + b"".join(draw.choices(alphabet, k=3990)) for i in range(10000)]
        feed = io.BytesIO()
        with tarfile.open(fileobj=feed, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
            for i, key in enumerate(keys):
                member = tarfile.TarInfo(os.fsdecode(key))
                member.size = i % 50
                tar.addfile(member, io.BytesIO(b"x" * member.size))
        self.ok("pack", "--archive", "-", "-o", store.location, "--name", "one", stdin=feed.getvalue())
        before = sml_catalog.decode(get(store))
        (one,) = before["containers"]
        self.assertGreater(one["bytes"] - one["blocks_end"], 2 * sml_catalog.REST_OBJECT_BYTES)
        store.rados("rm", "catalog")
        self.recover(store, 0)
        after = sml_catalog.decode(get(store))
        self.assertEqual(after["containers"], [{**one, "name": f"recovered-{one['incarnation']}"}])
        self.assertEqual(self.ok("cat", store.location, keys[77]), b"x" * 27)

    @in_every_pool
    def test_the_rest_of_a_watch_is_removed(self, store):
        self.two_containers(store)
        before = store.left()
        store.rados("put", "00000000000000ab.w", "-", data=b"")
        out, told = self.recover(store, 0)
        self.assertEqual((out, told), ([f"{store.container('unsealed-00000000000000ab')}: unsealed",
                                        "recovered: 0 containers, 1 unsealed"], []))
        self.remove_unsealed(store.location)
        self.assertEqual(store.left(), before)


if __name__ == "__main__":
    if not POOLS:
        print("there is no cluster (SML_TEST_POOLS)")
        sys.exit(77)
    unittest.main()
