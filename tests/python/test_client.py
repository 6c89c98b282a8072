#!/usr/bin/env python3
"""The Python client against a real server: apps/python."""

import ast
import concurrent.futures
import contextlib
import ctypes
import gc
import glob
import io
import itertools
import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import unittest
import weakref
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../conformance"))
from smltest import SML, SmlTest, name_order, stem

import sml
import sml._memory
import sml.keys
import sml.writer
import sml_reader  # (a reader of containers in plain Python, written from format-spec/ alone)
from sml._crc32c import crc32c
from sml.mix import Choices
from sml_frames import read_frames
from sml_hash import crc32c as slow_crc32c

SEED = 20261202
PR_SET_CHILD_SUBREAPER = 36
PACKAGE = os.path.dirname(sml.__file__)


def children():
    """Ids of the processes of sml that this one started, among them those that it has not waited for."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            continue  # it has gone
        number, name = text[: text.rindex(b")")].split(b" (", 1)
        parent = int(text[text.rindex(b")") :].split()[2])
        if (name, parent) == (b"sml", os.getpid()):
            found.append(int(number))
    return found


def in_child(function):
    """What the function gives in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(writer, "wb") as pipe:
                pickle.dump(function(), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return pickle.loads(data)


class FakeServer:
    """A program that gives these answers, whatever it is asked; those to hello and info come before. What has
    a code is an error."""

    BEGIN = [
        {"limits": {"request_bytes": 1 << 24}},
        {"location": "x", "revision": 0, "containers": "c", "records": 9, "samples": 9, "grouped": False},
    ]

    def __init__(self, path, *answers):
        lines = []
        for number, answer in enumerate([*self.BEGIN, *answers]):
            fields = {"ok": False, "error": answer} if "code" in answer else {"ok": True, **answer}
            lines.append(json.dumps({"id": number, **fields}))
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
            file.writelines(f"read -r request; echo '{line}'\n" for line in lines)
            file.write("exec cat > /dev/null\n")
        os.chmod(path, 0o700)


def contents_of(dataset, keys):
    """And how many processes were started for it."""
    return [bytes(record) for record in dataset.batch(keys)], len(children())


def epoch_of(source, options):
    return [(batch.keys, list(map(bytes, batch))) for batch in source.epoch(**options)]


class Client(SmlTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: self.assertEqual(children(), []))
        self.rng = random.Random(SEED)
        self.files = {b"no utf-8 \xff": b"bytes", b"empty": b"", "\u00e4/\u00f6".encode(): b"umlauts"}
        for i in range(300):
            self.files[b"d%d/f%03d" % (i % 3, i)] = self.rng.randbytes(self.rng.randrange(6000))
        self.files[b"big"] = self.rng.randbytes(900_000)
        for key, data in self.files.items():
            self.write(os.path.join(b"src", key), data)
        self.ok("pack", "src", "-o", "x.sml", "--block-size", "64K")

    def open(self, name="x.sml", **options):
        dataset = sml.open(self.path(name), sml=SML, **options)
        self.addCleanup(dataset.close)
        return dataset

    def expected(self, *arguments):
        """Keys in the order that the specification says."""
        container = sml_reader.Container(self.read("x.sml"))
        samples = sml_reader.order([container], *arguments)
        return [container.key(number) for sample in samples for _, number in sample]

    def keys_of(self, batches):
        return [sml.keys.to_bytes(key) for batch in batches for key in batch.keys]

    @contextlib.contextmanager
    def standard_error(self):
        """What goes to descriptor 2, in a file; read it behind the block."""
        with open(self.path("stderr"), "w+b") as file:
            before = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(before, 2)
                os.close(before)

    def damage(self, key):
        """A copy of the container, y.sml, without that record."""
        whole = self.read("x.sml")
        at = whole.index(self.files[key])
        self.write("y.sml", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    # ---- records

    def test_a_mapping_of_keys_to_records(self):
        dataset = self.open()
        self.assertEqual(len(dataset), len(self.files))
        self.assertEqual(
            {sml.keys.to_bytes(key): bytes(record) for key, record in dataset.items()}, self.files
        )
        self.assertEqual([sml.keys.to_bytes(key) for key in dataset], name_order(self.files))
        self.assertEqual(dataset["big"], self.files[b"big"])
        self.assertIn("empty", dataset)
        self.assertIn(b"empty", dataset)
        for key in ("none", "", "a\0", b"\xff", 7, None):
            self.assertNotIn(key, dataset)
        self.assertIsNone(dataset.get("none"))
        with self.assertRaises(KeyError) as raised:
            dataset["none"]
        self.assertIsInstance(raised.exception, sml.NotFound)
        self.assertEqual((raised.exception.code, raised.exception.key), ("not_found", "none"))
        self.assertEqual(str(raised.exception), "record 'none': there is no such key")

    def test_a_key_is_text_where_it_is_utf_8(self):
        dataset = self.open()
        self.assertEqual({type(key) for key in dataset}, {str, bytes})
        self.assertIn("\u00e4/\u00f6", list(dataset))
        for key in (b"no utf-8 \xff", os.fsdecode(b"no utf-8 \xff")):
            self.assertEqual(dataset[key], b"bytes")
            self.assertEqual(dataset.batch([key]).keys, [b"no utf-8 \xff"])
        self.assertEqual(dataset["\u00e4/\u00f6".encode()], b"umlauts")

    def test_entries(self):
        dataset = self.open()
        with mock.patch("sml.dataset._LIST_COUNT", 7):
            for prefix in ("", "d1/", "d1/f0", b"no utf-8 \xff", "nothing"):
                entries = list(dataset.entries(prefix))
                expected = [
                    key for key in name_order(self.files) if key.startswith(sml.keys.to_bytes(prefix))
                ]
                self.assertEqual([sml.keys.to_bytes(entry.key) for entry in entries], expected)
                self.assertEqual(
                    [entry.size for entry in entries], [len(self.files[key]) for key in expected]
                )
                by_number = dataset.batch(entry.number for entry in entries)
                self.assertEqual(list(by_number), [self.files[key] for key in expected])

    def test_batches(self):
        dataset = self.open()
        keys = self.rng.choices(sorted(self.files), k=200)
        batch = dataset.batch(keys)
        self.assertEqual(len(batch), 200)
        self.assertEqual(list(batch), [self.files[key] for key in keys])
        self.assertEqual(batch[-3:], [self.files[key] for key in keys[-3:]])
        self.assertTrue(all(isinstance(record, memoryview) for record in batch))
        self.assertTrue(all(record.readonly for record in batch))
        # Views of the container file and of one payload: nothing was copied for a record alone.
        self.assertLessEqual(len({id(record.obj) for record in batch}), 2)
        numbers = [number for number in batch.numbers if number is not None]
        again = dataset.batch(numbers)
        self.assertEqual((list(again), again.numbers), (list(batch), numbers))
        self.assertEqual(again.keys, [None] * 200)
        self.assertEqual(len(dataset.batch([])), 0)
        for wrong in (["big", 1], [1, "big"], [None], [1.5], "big", b"big"):
            with self.assertRaises(TypeError):
                dataset.batch(wrong)

    def test_files_that_cannot_be_mapped_are_done_without(self):
        def check(dataset):
            for _ in range(2):
                for batch in dataset.epoch(seed=3, batch_size=70):
                    self.assertEqual(list(batch), [self.files[sml.keys.to_bytes(key)] for key in batch.keys])
            keys = ["none", *self.files]
            batch = dataset.batch(keys)
            self.assertEqual(batch[1:], [self.files[key] for key in self.files])
            self.assertEqual([error.code for error in batch.errors], ["not_found"])

        self.ok("pack", "src", "-o", "stored.sml", "--compress", "none", "--block-size", "64K")
        self.ok("cache", "init", "--size", "16M", "--cache-dir", "cache", "-q")
        cached = {"far": True, "cache_dir": self.path("cache")}
        for options in ({}, cached):
            check(self.open("stored.sml", **options))
            check(self.open("stored.sml", map_files=False, **options))
            with mock.patch("sml._files._MOST", 2):
                check(self.open("stored.sml", **options))
            with mock.patch("sml._files.os.open", side_effect=FileNotFoundError):
                check(self.open("stored.sml", **options))
        dataset = self.open("stored.sml", **cached)
        first = next(dataset.epoch(batch_size=300))
        for path in glob.glob(os.path.join(self.dir, "cache/blocks/*/0*")):
            os.unlink(path)  # what was mapped stays
        self.assertEqual(list(first), [self.files[sml.keys.to_bytes(key)] for key in first.keys])
        check(dataset)

    def test_children_of_multiprocessing_wait_for_their_servers(self):
        dataset = self.open()
        self.assertEqual(len(dataset), len(self.files))
        before = children()
        libc = ctypes.CDLL(None)
        self.assertEqual(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0)
        try:
            child = multiprocessing.get_context("fork").Process(target=dataset.batch, args=(["big"], "raise"))
            child.start()
            child.join()
            self.assertEqual((child.exitcode, children()), (0, before))
        finally:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def test_errors_keep_nothing(self):
        class Something:
            pass

        dataset = self.open()
        failing = (
            lambda: dataset["none"], lambda: dataset.open_record("none"), lambda: dataset.batch(["none"])[0],
            lambda: dataset.batch(["none"], on_error="raise"), lambda: next(dataset.epoch(world=0)),
        )  # fmt: skip
        gc.disable()
        try:
            for index, fails in enumerate(failing):
                something = Something()
                there = weakref.ref(something)

                def call(something=something, fails=fails):
                    fails()

                del something
                with contextlib.suppress(sml.Error):
                    call()
                del call, fails
                self.assertIsNone(there(), index)
        finally:
            gc.enable()

    def test_epochs_are_closed(self):
        dataset = self.open()
        epochs = [dataset.epoch(seed=seed, batch_size=50) for seed in range(16)]
        first = [next(epoch) for epoch in epochs]
        with self.assertRaises(sml.LimitExceeded):
            next(dataset.epoch())
        epochs[3].close()
        next(dataset.epoch())
        rest = [key for batch in epochs[3] for key in batch.keys]
        whole = [key for batch in dataset.epoch(seed=3, batch_size=50) for key in batch.keys]
        self.assertEqual(first[3].keys + rest, whole)

    def test_what_is_no_state_is_refused(self):
        epoch = self.open().epoch()
        for wrong in ({}, None, 5, [], {"seed": 1}):
            with self.assertRaises(ValueError):
                epoch.load_state_dict(wrong)
        with self.assertRaises(ValueError):
            self.open().epoch(prefetch=-1)

    def test_memory_is_used_again_only_when_nobody_looks_at_it(self):
        memory = sml._memory.Memory()
        addresses = set()
        for _ in range(20):  # of the same two at most: one may go before the next one is taken
            view = memory.take(100_000)
            view[:] = bytes(100_000)
            addresses.add(id(view.obj))
            del view
        self.assertEqual(len(addresses), 1)
        kept = [memory.take(100_000 + i) for i in range(10)]
        parts = [view[i : i + 1] for i, view in enumerate(kept)]
        self.assertEqual(len({id(view.obj) for view in kept}), 10)
        del kept
        self.assertEqual(len({id(part.obj) for part in [memory.take(100_000), *parts]}), 11)
        dataset = self.open(map_files=False)
        batches = [dataset.batch(list(self.files)) for _ in range(8)]
        for batch in batches:
            self.assertEqual(list(batch), list(self.files.values()))

    def test_errors_of_a_batch(self):
        self.damage(b"d0/f003")
        dataset = self.open("y.sml")
        wanted = ["empty", "d0/f003", "none", "big"]
        batch = dataset.batch(wanted)
        self.assertEqual((batch[0], batch[3]), (b"", self.files[b"big"]))
        self.assertRaises(sml.Corrupt, lambda: batch[1])
        self.assertRaises(sml.NotFound, lambda: batch[2])
        self.assertEqual(
            [(e.code, e.key) for e in batch.errors], [("corrupt", "d0/f003"), ("not_found", "none")]
        )
        self.assertIsNone(batch.numbers[2])
        skipped = dataset.batch(wanted, on_error="skip")
        self.assertEqual((skipped.keys, list(skipped)), (["empty", "big"], [b"", self.files[b"big"]]))
        self.assertEqual([error.code for error in skipped.errors], ["corrupt", "not_found"])
        self.assertRaises(sml.Corrupt, dataset.batch, wanted, on_error="raise")
        self.assertRaises(ValueError, dataset.batch, wanted, on_error="ignore")
        with self.assertRaises(sml.NotFound) as raised:
            dataset.batch([0, 10**6], on_error="raise")
        self.assertEqual(raised.exception.number, None)

    def test_a_record_as_a_file(self):
        dataset, big = self.open(), self.files[b"big"]
        with dataset.open_record("big") as file:
            self.assertEqual(file.read(), big)
            self.assertEqual((file.read(), file.read(5)), (b"", b""))
            for _ in range(50):
                offset, count = self.rng.randrange(1_000_000), self.rng.randrange(100_000)
                self.assertEqual(file.seek(offset), offset)
                self.assertEqual(file.read(count), big[offset : offset + count])
                self.assertEqual(file.tell(), max(offset, min(offset + count, len(big))))
            self.assertEqual(file.seek(-7, io.SEEK_END), len(big) - 7)
            self.assertEqual(file.read(3), big[-7:-4])
            file.seek(1, io.SEEK_CUR)
            self.assertEqual(file.read(), big[-3:])
            self.assertRaises(ValueError, file.seek, -1)
        self.assertRaises(ValueError, file.read)
        buffered = io.BufferedReader(dataset.open_record(b"big"), 10_000)
        self.assertEqual(b"".join(iter(lambda: buffered.read(777), b"")), big)
        with mock.patch("sml.record_file._READ_BYTES", 100_000):
            self.assertEqual(dataset.open_record("big").read(), big)
        self.assertRaises(sml.NotFound, dataset.open_record, "none")

    # ---- epochs

    def test_epochs_have_the_specified_order(self):
        dataset = self.open()
        for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**64 - 1, 9)):
            for shuffle, mode, lanes in ((True, "block", 64), ("block", "block", 3), ("full", "full", 64)):
                batches = list(
                    dataset.epoch(seed=seed, epoch=epoch, shuffle=shuffle, lanes=lanes, batch_size=16)
                )
                keys = self.keys_of(batches)
                self.assertEqual(keys, self.expected(seed, epoch, mode, lanes))
                records = [record for batch in batches for record in batch]
                self.assertEqual(records, [self.files[key] for key in keys])
        for shuffle in (False, "none"):
            self.assertRaises(ValueError, dataset.epoch, shuffle=shuffle)

    def test_ranks_and_workers_share_an_epoch(self):
        print(f"seed {SEED}")
        dataset = self.open()
        order = self.expected(3, 0)
        n = len(order)
        for _ in range(20):
            world, workers, batch = (
                self.rng.randrange(1, 6),
                self.rng.randrange(1, 4),
                self.rng.randrange(1, 40),
            )
            even = self.rng.choice(["none", "drop", "wrap"])
            step = world * batch
            end = {"none": n, "drop": n // step * step, "wrap": -(-n // step) * step}[even]
            options = {"seed": 3, "world": world, "batch_size": batch, "even": even, "workers": workers}
            for rank in range(world):
                batches = {}
                for worker in range(workers):
                    epoch = dataset.epoch(rank=rank, worker=worker, prefetch=self.rng.randrange(4), **options)
                    found = list(epoch)
                    self.assertEqual(len(epoch), len(found))
                    batches.update({b.number: b for b in found})
                self.assertEqual(sorted(batches), list(range(len(batches))))
                keys = self.keys_of(batches[i] for i in range(len(batches)))
                self.assertEqual(
                    keys, [order[p % n] for p in range(end) if p % world == rank], (rank, options)
                )

    def test_an_epoch_goes_on_in_another_world(self):
        print(f"seed {SEED}")
        dataset = self.open()
        for shuffle in ("block", "full"):
            order = self.expected(5, 2, shuffle)
            got, state = [], None
            while len(got) < len(order):
                world, batch, count = (
                    self.rng.randrange(1, 5),
                    self.rng.randrange(1, 9),
                    self.rng.randrange(1, 6),
                )
                ranks = [
                    dataset.epoch(seed=5, epoch=2, shuffle=shuffle, rank=rank, world=world, batch_size=batch)
                    for rank in range(world)
                ]
                if state is not None:
                    for epoch in ranks:
                        epoch.load_state_dict(json.loads(json.dumps(state)))
                        self.assertEqual(epoch.state_dict(), state)
                for _ in range(count):
                    shares = [
                        self.keys_of([b for b in [next(epoch, None)] if b is not None]) for epoch in ranks
                    ]
                    first = len(got) % world  # the rank that has the next position
                    in_turn = itertools.zip_longest(*shares[first:], *shares[:first])
                    got += [key for keys in in_turn for key in keys if key is not None]
                state = ranks[0].state_dict()
                self.assertEqual([epoch.state_dict() for epoch in ranks], [state] * world)
            self.assertEqual(got, order)
            self.assertEqual(state["position"], len(order))

    def test_ranks_that_end_earlier_end_at_the_same_position(self):
        dataset = self.open()
        n = len(self.files)
        for even, end in (("none", n), ("drop", n // 101 * 101), ("wrap", n)):
            for rank in (0, 1, 100):  # rank 0 has one sample more than the others
                epoch = dataset.epoch(rank=rank, world=101, even=even)
                list(epoch)
                self.assertEqual((epoch.state_dict()["position"], epoch.end), (end, end))
        epoch = dataset.epoch(rank=500, world=501)
        self.assertEqual((list(epoch), epoch.state_dict()["position"]), ([], n))

    def test_a_state_is_that_of_the_command(self):
        dataset = self.open()
        epoch = dataset.epoch(seed=4, epoch=1, lanes=5, even="drop", world=2, batch_size=3)
        self.assertEqual(epoch.state_dict()["position"], 0)
        for _ in range(7):
            next(epoch)
        state = epoch.state_dict()
        order = ("--seed", "4", "--epoch", "1", "--lanes", "5", "--even", "drop")
        line = self.ok("shuffle", "x.sml", *order, "--state", "--count", "42")
        self.assertEqual(json.dumps(state, separators=(",", ":")).encode() + b"\n", line)
        other = dataset.epoch(batch_size=4)
        other.load_state_dict(json.loads(line))
        self.assertEqual(other.epoch, 1)
        self.assertEqual(self.keys_of(other), self.expected(4, 1, "block", 5)[42:302])
        self.write("other/file", b"")
        self.ok("pack", "other", "-o", "other.sml")
        for refuses in (self.open("other.sml").epoch(), dataset.select(match="d0/*").epoch()):
            refuses.load_state_dict(state)
            self.assertRaises(sml.InvalidArgument, next, refuses)

    def test_selections(self):
        dataset = self.open()
        selection = dataset.select(
            match="d0/*", keys=["big", b"no utf-8 \xff"], exclude=["d0/f00?", "d0/f01?"]
        )
        wanted = [key for key in self.files if key.startswith((b"big", b"d0/", b"no"))]
        wanted = [key for key in wanted if not key.startswith((b"d0/f00", b"d0/f01"))]
        self.assertEqual(sorted(self.keys_of(selection.epoch(batch_size=9))), sorted(wanted))
        self.assertEqual(epoch_of(pickle.loads(pickle.dumps(selection)), {}), epoch_of(selection, {}))
        self.assertRaises(sml.NotFound, next, dataset.select(keys="none").epoch())

    def test_samples_of_several_records(self):
        for i in range(40):
            for extension in ("jpg", "seg.png", "")[: 1 + i % 3]:
                name = f"pairs/.s{i:02}" + ("." + extension if extension else "")
                self.write(name, f"{i} {extension}".encode())
        self.ok("pack", "pairs", "-o", "pairs.sml", "--group-by", "stem")
        expected = {stem(key): {} for key in self.tree("pairs")}
        for key, data in self.tree("pairs").items():
            expected[stem(key)][key[len(stem(key)) + 1 :].decode()] = data
        dataset = self.open("pairs.sml")
        self.assertTrue(dataset.info.grouped)
        self.assertEqual((dataset.info.samples, dataset.info.records), (40, len(self.tree("pairs"))))
        batches = list(dataset.epoch(batch_size=7))
        self.assertEqual([len(batch.samples) for batch in batches], [7] * 5 + [5])
        samples = [sample for batch in batches for sample in batch.as_samples()]
        found = {sample.pop("__key__").encode(): sample for sample in samples}
        self.assertEqual(found, expected)

    def test_a_damaged_record_shortens_its_batch_and_not_the_epoch(self):
        self.damage(b"d0/f003")
        dataset = self.open("y.sml")
        batches = list(dataset.epoch(batch_size=16, on_error="skip"))
        self.assertEqual(len(batches), len(dataset.epoch(batch_size=16)))
        self.assertEqual(sorted(self.keys_of(batches)), sorted(set(self.files) - {b"d0/f003"}))
        self.assertEqual([e.key for batch in batches for e in batch.errors], ["d0/f003"])
        records = [record for batch in batches for record in batch]
        self.assertEqual(records, [self.files[key] for key in self.keys_of(batches)])

        epoch, got, errors = dataset.epoch(batch_size=16), [], []
        while True:
            try:
                got.append(next(epoch))
            except sml.Corrupt as error:
                errors.append((error.key, error.number))
            except StopIteration:
                break
        whole = [batch.number for batch in batches if not batch.errors]
        self.assertEqual([batch.number for batch in got], whole)
        self.assertEqual([key for key, _ in errors], ["d0/f003"])

    def test_a_sample_that_lacks_a_record_is_left_out(self):
        for i in range(40):
            self.files[b"p%02d.jpg" % i] = self.rng.randbytes(500)
            self.files[b"p%02d.txt" % i] = b"%d" % i
            for key in (b"p%02d.jpg" % i, b"p%02d.txt" % i):
                self.write(b"pairs/" + key, self.files[key])
        self.ok("pack", "pairs", "-o", "x.sml", "--group-by", "stem", "--overwrite")
        self.damage(b"p07.jpg")
        batches = list(self.open("y.sml").epoch(batch_size=8, on_error="skip"))
        self.assertEqual(sorted(len(batch.samples) for batch in batches), [7, 8, 8, 8, 8])
        keys = sorted(key for batch in batches for key in batch.keys)
        self.assertEqual(keys, sorted(f"p{i:02}.{e}" for i in range(40) if i != 7 for e in ("jpg", "txt")))
        for batch in batches:
            for sample in batch.as_samples():
                self.assertEqual(sample["txt"], b"%d" % int(sample["__key__"][1:]))

    def test_epochs_that_nobody_uses_are_closed(self):
        dataset = self.open()
        for i in range(50):
            next(dataset.epoch(epoch=i))
        used = [dataset.epoch() for _ in range(16)]
        self.assertEqual([len(next(epoch)) for epoch in used], [1] * 16)
        self.assertRaises(sml.LimitExceeded, next, dataset.epoch())
        used.pop()
        next(dataset.epoch())

    # ---- the connection

    def test_what_is_asked_ahead_does_not_hold_up_other_requests(self):
        dataset = self.open()
        connection = dataset._connected()
        epoch = dataset.epoch(batch_size=50, prefetch=5)
        first = next(epoch)
        ahead = [connection.send("get", keys=["big"] * 5) for _ in range(10)]  # more than pipes hold
        keys = self.rng.choices(sorted(self.files.keys() - {b"big"}), k=20_000)  # as well
        self.assertEqual(list(dataset.batch(keys)), [self.files[key] for key in keys])
        self.assertEqual(self.keys_of([first, *epoch]), self.expected(0, 0))
        for answer in ahead:
            self.assertEqual(connection.wait(answer).payload, self.files[b"big"] * 5)

    def test_requests_that_are_too_large(self):
        dataset = self.open()
        with self.assertRaises(sml.LimitExceeded):
            dataset.batch(["x" * 4000] * 5000)
        with self.assertRaises(sml.InvalidArgument):
            dataset.batch([0] * 65537)
        self.assertEqual(len(dataset), len(self.files))
        self.assertEqual(len(children()), 1)

    def test_threads_take_turns(self):
        dataset = self.open()
        keys = sorted(self.files)
        expected = epoch_of(dataset, {"batch_size": 8})

        def work(number):
            rng = random.Random(number)
            if number % 2:
                return epoch_of(dataset, {"batch_size": 8}) == expected
            wanted = [rng.choices(keys, k=rng.randrange(1, 30)) for _ in range(40)]
            return all(list(dataset.batch(some)) == [self.files[key] for key in some] for some in wanted)

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            self.assertEqual(list(pool.map(work, range(12))), [True] * 12)
        self.assertEqual(len(children()), 1)

    def test_a_batch_that_the_storage_keeps_back_comes_later(self):
        def batch(number):
            record = {"keys": ["k"], "numbers": [number], "sizes": [0], "payload": 0}
            return {"batch": number, "position": number + 1, **record}

        late = {"code": "unavailable", "message": "it did not answer in time"}
        opened = {"epoch": 1, "samples": 3, "batches": 3, "dropped": 0, "wrapped": 0, "position": 0}
        answers = [opened, {"state": {"position": 0}}, batch(0), late, late, batch(1), batch(2), {}, {}]
        FakeServer(self.path("fake"), *answers)
        with sml.open("x", sml=self.path("fake")) as dataset:
            epoch = dataset.epoch(prefetch=2)
            self.assertEqual(next(epoch).number, 0)
            for _ in range(2):
                self.assertRaises(sml.Unavailable, next, epoch)
                self.assertEqual(epoch.state_dict(), {"position": 1})
            self.assertEqual([batch.number for batch in epoch], [1, 2])
            self.assertEqual(epoch.state_dict(), {"position": 3})

    def test_an_answer_to_something_else_ends_the_connection(self):
        FakeServer(self.path("fake"), {"statistics": {"records": 0}}, {"statistics": {}})
        with sml.open("x", sml=self.path("fake")) as dataset:
            self.assertEqual(dataset.stats(), {"records": 0})
            connection = dataset._connected()
            connection._last_id += 1
            with self.assertRaises(sml.Error) as raised:
                dataset.stats()
            self.assertEqual(str(raised.exception), "answer 3 came for request 4")
            self.assertTrue(connection.closed)

    def test_a_killed_server(self):
        dataset = self.open()
        epoch = dataset.epoch(batch_size=10, prefetch=0)
        before = self.keys_of([next(epoch), next(epoch)])
        (server,) = children()
        os.kill(server, signal.SIGKILL)
        with self.assertRaises(sml.ServerDied) as raised:
            next(epoch)
        self.assertEqual((raised.exception.exit_code, raised.exception.code), (-9, "server_died"))
        self.assertEqual(children(), [])
        self.assertRaises(sml.ServerDied, next, epoch)
        epoch.load_state_dict(epoch.state_dict())  # a new one
        self.assertEqual(before + self.keys_of(epoch), self.expected(0, 0))
        self.assertEqual(len(children()), 1)

    def test_a_server_that_is_killed_in_the_middle_of_an_answer(self):
        dataset = self.open()
        self.assertEqual(len(dataset), len(self.files))
        (server,) = children()
        connection = dataset._connected()
        answer = connection.send("get", keys=["big"] * 100)
        connection._channel.answers.peek(1)  # it has begun, and cannot go on without us
        os.kill(server, signal.SIGKILL)
        self.assertRaises(sml.ServerDied, connection.wait, answer)
        self.assertEqual(children(), [])

    def test_a_server_that_cannot_begin(self):
        with self.standard_error(), self.assertRaises(sml.ServerDied) as raised:
            len(self.open("none.sml"))
        said = self.read("stderr").decode()
        self.assertIn("none.sml: cannot open", said)
        self.assertEqual((raised.exception.exit_code, raised.exception.stderr), (1, said))
        self.assertIn("none.sml: cannot open", str(raised.exception))
        with self.standard_error(), self.assertRaises(sml.ServerDied) as raised:
            len(self.open(memory="much"))
        self.assertEqual(raised.exception.exit_code, 2)
        with self.assertRaises(sml.Error) as raised:
            len(sml.open(self.path("x.sml"), sml=self.path("no program")))
        self.assertIn("no program", str(raised.exception))

    def test_options(self):
        dataset = self.open(
            memory="64M", threads=1, cache_dir=self.path("cache"), cache_size=0, far=True, partial=True
        )
        self.assertEqual(len(dataset), len(self.files))
        (server,) = children()
        with open(f"/proc/{server}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")[1:-1]
        expected = b"serve-stdio --memory=64M --threads=1 --cache-dir=%s --cache-size=0 --far --partial -- %s"
        self.assertEqual(b" ".join(arguments), expected % (self.path("cache"), self.path("x.sml")))
        self.assertRaises(ValueError, sml.open, None)

    def test_closed(self):
        with self.open() as dataset:
            epoch = dataset.epoch(batch_size=3)
            batch = next(epoch)
            self.assertEqual(len(children()), 1)
        self.assertEqual(children(), [])
        self.assertEqual(batch[0], self.files[sml.keys.to_bytes(batch.keys[0])])
        self.assertRaises(ValueError, len, dataset)
        self.assertRaises(sml.Error, next, epoch)
        self.assertEqual(epoch.state_dict()["position"], 3)
        dataset.close()

    def test_a_data_set_that_nobody_uses_ends_its_server(self):
        dataset = sml.open(self.path("x.sml"), sml=SML)
        epoch = dataset.epoch()
        del dataset
        next(epoch)
        self.assertEqual(len(children()), 1)
        del epoch
        gc.collect()
        self.assertEqual(children(), [])

    def test_the_end_of_the_interpreter_ends_the_server(self):
        program = (
            "import sml, sys, test_client\n"
            "dataset = sml.open(sys.argv[1])\n"
            "epoch = dataset.epoch()\n"
            "next(epoch)\n"
            "print(*test_client.children())\n"
        )
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", program, self.path("x.sml")],
            cwd=os.path.dirname(os.path.abspath(__file__)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=True,
        )
        self.assertEqual(done.stderr, b"")
        self.assertFalse(os.path.exists(f"/proc/{int(done.stdout)}"))

    def test_an_interrupted_answer_ends_the_connection(self):
        dataset = self.open()
        epoch = dataset.epoch(batch_size=10)
        next(epoch)
        with mock.patch("sml._connection.json.loads", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, next, epoch)
        self.assertEqual(children(), [])
        self.assertRaises(sml.Error, next, epoch)
        self.assertEqual(dataset["big"], self.files[b"big"])

    # ---- other processes

    def test_copies_have_servers_of_their_own(self):
        dataset = self.open()
        keys = sorted(self.files)[:50]
        expected = [self.files[key] for key in keys]
        copy = pickle.loads(pickle.dumps(dataset))
        self.assertEqual(contents_of(copy, keys), (expected, 2))
        copy.close()
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                self.assertEqual(pool.submit(contents_of, dataset, keys).result(), (expected, 1))

    def test_a_forked_child(self):
        dataset = self.open()
        fresh = dataset.epoch(seed=1, batch_size=50)  # not used before
        used = dataset.epoch(seed=1, batch_size=50)
        first = next(used)

        def work():
            with self.assertRaises(sml.Error):
                next(used)
            with self.assertRaises(sml.Error):
                next(used)
            return [batch.keys for batch in fresh], contents_of(dataset, ["big"])

        keys, contents = in_child(work)
        self.assertEqual(contents, ([self.files[b"big"]], 1))
        self.assertEqual([first.keys, *(batch.keys for batch in used)], keys)
        self.assertEqual(dataset["big"], self.files[b"big"])

    def test_a_child_does_not_keep_the_servers_of_its_parent(self):
        dataset = self.open()
        len(dataset)
        process = dataset._connected()._channel._process
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent is done
            os._exit(0)
        os.close(reader)
        dataset.close()
        self.assertEqual(process.exit_code, 0)
        os.close(writer)
        os.waitpid(child, 0)

    def test_a_child_is_forked_while_others_use_the_data_set(self):
        dataset = self.open()
        stop = threading.Event()

        def read():
            while not stop.is_set():
                dataset.batch(["big"] * 10)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for _ in range(5):
                self.assertEqual(in_child(lambda: bytes(dataset["big"])), self.files[b"big"])
        finally:
            stop.set()
            thread.join()

    def test_a_copy_refuses_other_containers(self):
        dataset = self.open()
        saved = pickle.dumps(dataset)
        self.ok("pack", "src/d1", "-o", "x.sml", "--overwrite")
        copy = pickle.loads(saved)
        with self.assertRaises(sml.Error) as raised:
            len(copy)
        self.assertIn("is not what it was", str(raised.exception))

    def test_one_server_for_all(self):
        path = self.path("socket")
        dataset = self.open(socket=path)
        self.assertEqual(len(children()), 1)
        options = {"batch_size": 11}
        expected = epoch_of(dataset, options)
        self.assertEqual(in_child(lambda: (epoch_of(dataset, options), len(children()))), (expected, 0))
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            self.assertEqual(pool.submit(contents_of, dataset, ["big"]).result(), ([self.files[b"big"]], 0))
        with sml.open(None, socket=path) as other:
            self.assertEqual(epoch_of(other, options), expected)
            self.assertEqual(len(children()), 1)
            (server,) = children()
            os.kill(server, signal.SIGKILL)
            self.assertRaises(sml.ServerDied, lambda: other["big"])
        self.assertRaises(sml.ServerDied, lambda: dataset["big"])
        dataset.close()
        self.assertRaises(sml.Error, sml.open, None, socket=path + b"2")

    # ---- mixtures

    def mixed(self, dataset, **options):
        sources = [(dataset.select(match=f"d{i}/*"), weight) for i, weight in enumerate((0.6, 0.3, 0.1))]
        return sml.mix(sources, **options)

    def test_choices_are_even_from_the_first_on(self):
        for weights in ([1, 1], [3, 1], [0.7, 0.2, 0.1], [1, 0.001], [1] * 10):
            for seed in range(10):
                choices, counts = Choices(weights, seed), [0] * len(weights)
                for position in range(2000):
                    counts[choices[position]] += 1
                    for count, weight in zip(counts, weights):
                        self.assertLess(abs(count - (position + 1) * weight / sum(weights)), 4)
        sequences = [[Choices([1, 2], seed)[p] for p in range(2000)] for seed in range(20)]
        self.assertEqual(len(set(map(tuple, sequences))), 20)
        for position in range(20):
            self.assertEqual(Choices([3, 1], 0)[position], Choices([6, 2], 0)[position])
        for weights in ([], [1, 0], [-1, 2]):
            self.assertRaises(ValueError, Choices, weights, 0)

    def test_a_mix_has_the_sequence_of_its_sources(self):
        dataset = self.open()
        choices = Choices([0.6, 0.3, 0.1], 4)
        counts = [0, 0, 0]
        batches = {}
        for i in range(3):
            source, options = dataset.select(match=f"d{i}/*"), {"seed": 4, "batch_size": 6, "even": "drop"}
            batches[i] = [batch.keys for e in range(9) for batch in source.epoch(epoch=e, **options)]
        mix = self.mixed(dataset, seed=4, batch_size=6)
        for position, batch in enumerate(itertools.islice(mix, 150)):
            source = choices[position]
            self.assertEqual((mix.source, batch.keys), (source, batches[source][counts[source]]))
            counts[source] += 1

    def test_a_mix_goes_on_where_it_was(self):
        print(f"seed {SEED}")
        dataset = self.open()
        whole = [batch.keys for batch in itertools.islice(self.mixed(dataset, seed=7, batch_size=5), 100)]
        for _ in range(5):
            at = self.rng.randrange(100)
            mix = self.mixed(dataset, seed=7, batch_size=5)
            for _ in range(at):
                next(mix)
            state = json.loads(json.dumps(mix.state_dict()))
            self.assertEqual(state["position"], at)
            rest = self.mixed(dataset, batch_size=5)
            rest.load_state_dict(state)
            self.assertEqual(rest.state_dict(), state)
            self.assertEqual([batch.keys for batch in itertools.islice(rest, 100 - at)], whole[at:])
        self.assertRaises(ValueError, sml.mix([(dataset, 1)]).load_state_dict, state)

    def test_ranks_of_a_mix_take_of_one_source_at_a_time(self):
        dataset = self.open()
        ranks = [self.mixed(dataset, seed=1, batch_size=4, rank=rank, world=3) for rank in range(3)]
        for _ in range(60):
            keys = [key for mix in ranks for key in next(mix).keys]
            self.assertEqual(len(set(keys)), 12)
            self.assertEqual(len({key[:3] for key in keys}), 1)
            self.assertEqual(len({json.dumps(mix.state_dict()) for mix in ranks}), 1)
        other = self.mixed(dataset, batch_size=4, rank=0, world=2)
        other.load_state_dict(ranks[2].state_dict())
        self.assertEqual(Choices([0.6, 0.3, 0.1], 1)[60], (next(other), other.source)[1])
        self.assertRaises(ValueError, self.mixed, dataset, world=2, even="none")
        with self.assertRaises(ValueError):
            next(self.mixed(dataset, batch_size=200))

    # ---- writing

    def test_what_is_written_is_read(self):
        with sml.Writer(self.path("w.sml"), sml=SML, compress="none", block_size="64K") as writer:
            for kind, (key, data) in zip(itertools.cycle((bytes, bytearray, memoryview)), self.files.items()):
                writer.write(sml.keys.from_bytes(key), kind(data))
        writer.close()
        dataset = self.open("w.sml")
        self.assertEqual(list(dataset.batch(self.files)), list(self.files.values()))
        self.assertEqual(dataset.batch(self.files).numbers, list(range(len(self.files))))
        self.ok("verify", "w.sml", "-q")
        self.assertRaises(ValueError, writer.write, "a", b"")

    def test_records_larger_than_a_frame_and_many_containers(self):
        with mock.patch("sml.writer._PAYLOAD_BYTES", 100_000):
            for name in ("a", "b"):
                with sml.Writer(self.path("set/"), sml=SML, name=name, group_by="stem") as writer:
                    writer.write(name + "/big.bin", self.files[b"big"])
                    writer.write(name + "/big.txt", b"")
        dataset = self.open("set/")
        self.assertEqual((dataset.info.samples, dataset.info.revision), (2, 2))
        self.assertEqual(dataset["b/big.bin"], self.files[b"big"])
        self.assertEqual(list(dataset), ["a/big.bin", "a/big.txt", "b/big.bin", "b/big.txt"])

    def test_the_stream_is_as_the_specification_says(self):
        script = b"#!/bin/sh\nexec cat > %s\n" % self.path("stream")
        os.chmod(self.write("program", script), 0o700)
        with mock.patch("sml.writer._PAYLOAD_BYTES", 1000), sml.Writer(
            "x", sml=self.path("program")
        ) as writer:
            for key in sorted(self.files)[:20]:
                writer.write(key, self.files[key])
        found = [(frame.key, frame.content) for frame in read_frames(self.read("stream"))]
        self.assertEqual(found, [(key, self.files[key]) for key in sorted(self.files)[:20]])

    def test_checksums(self):
        print(f"seed {SEED}")
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        sizes = [*range(300), 1000, 4096, 131071, 131072, 131073, 131072 + 63, 131072 + 64, 300_000]
        for size in sizes + [self.rng.randrange(20_000) for _ in range(50)]:
            data = self.rng.randbytes(size)
            self.assertEqual(crc32c(data), slow_crc32c(data), size)
        self.assertEqual(crc32c(bytes(100_000)), slow_crc32c(bytes(100_000)))

    def test_nothing_is_published_but_by_close(self):
        with self.standard_error():
            with self.assertRaises(ZeroDivisionError), sml.Writer(self.path("w.sml"), sml=SML) as writer:
                writer.write("a", b"b" * 1_000_000)
                raise ZeroDivisionError
            self.assertEqual(children(), [])
            writer = sml.Writer(self.path("w.sml"), sml=SML)
            writer.write("a", b"b")
            del writer
            gc.collect()
        self.assertEqual(children(), [])
        self.assertEqual(sorted(os.listdir(self.dir)), ["src", "stderr", "x.sml"])

    def test_packing_that_fails(self):
        with self.standard_error(), self.assertRaises(sml.PackFailed) as raised:
            with sml.Writer(self.path("w.sml"), sml=SML) as writer:
                writer.write("a", b"1")
                writer.write("a", b"2")
        self.assertEqual(raised.exception.exit_code, 1)
        self.assertIn("two records have the key 'a'", str(raised.exception))
        self.assertEqual(raised.exception.stderr, self.read("stderr").decode())
        with self.standard_error(), self.assertRaises(sml.PackFailed):
            with sml.Writer(self.path("w.sml"), sml=SML) as writer:
                for i in itertools.count():  # until it notices
                    writer.write(f"x//{i}", bytes(100_000))
        with self.standard_error(), self.assertRaises(sml.PackFailed) as raised:
            sml.Writer(self.path("w.sml"), sml=SML, compress="strongly").close()
        self.assertEqual(raised.exception.exit_code, 2)
        self.assertEqual(children(), [])
        self.assertEqual(sorted(os.listdir(self.dir)), ["src", "stderr", "x.sml"])
        writer = sml.Writer(self.path("w.sml"), sml=SML)
        for key in ("", b"a\0b", "x" * 4097):
            self.assertRaises(ValueError, writer.write, key, b"")
        self.assertRaises(TypeError, writer.write, "a", "text")
        writer.write("a", b"data")
        writer.close()
        self.assertEqual(self.open("w.sml")["a"], b"data")

    # ---- the package

    def test_it_is_written_for_python_3_9(self):
        paths = glob.glob(os.path.join(PACKAGE, "*.py"))
        self.assertGreater(len(paths), 10)
        for path in paths:
            with open(path, encoding="utf-8") as file:
                ast.parse(file.read(), path, feature_version=(3, 9))

    def test_stems(self):
        keys = b"a a/001.jpg a.b/c .hidden .x.png a.b/..c.d .. a/... a. a..b dir.d/ a/b.seg.png \xff.x"
        for key in keys.split():
            self.assertEqual(sml.keys.to_bytes(sml.stem(key)), stem(key))
            self.assertEqual(sml.extension(key).encode(), key[len(stem(key)) + 1 :])

    def test_errors_go_through_pickle(self):
        error = sml.errors.from_answer({"code": "corrupt", "message": "m", "hint": "h"}, b"k", 7)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), str(copy), copy.key, copy.number), (sml.Corrupt, "m (h)", b"k", 7))
        unknown = sml.errors.from_answer({"code": "new", "message": "m"})
        self.assertEqual((type(unknown), unknown.code), (sml.Error, "new"))


if __name__ == "__main__":
    unittest.main()
