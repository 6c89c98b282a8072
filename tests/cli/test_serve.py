"""sml serve-stdio: the protocol of format-spec/serve-stdio.md, spoken by hand."""

import base64
import json
import os
import random
import select
import signal
import socket
import stat
import struct
import subprocess
import time
import unittest

from smltest import SML, SmlTest

SEED = 20261201


class Client:
    """Lines of JSON out, answers and their bytes in."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.ids = 0

    def send(self, request, **fields):
        self.ids += 1
        self.write(json.dumps({"id": self.ids, "request": request, **fields}).encode() + b"\n")
        return self.ids

    def write(self, data):
        self.writer.write(data)
        self.writer.flush()

    def receive(self):
        answer = json.loads(self.reader.readline())
        payload = self.reader.read(answer.get("payload", 0))
        assert len(payload) == answer.get("payload", 0)
        return answer, payload

    def ask(self, request, **fields):
        """The answer and its bytes."""
        number = self.send(request, **fields)
        answer, payload = self.receive()
        assert answer["id"] == number, answer
        return answer, payload

    def ok(self, request, **fields):
        answer, _ = self.ask(request, **fields)
        assert answer["ok"] is True, answer
        return answer

    def code(self, request, **fields):
        answer, _ = self.ask(request, **fields)
        assert answer["ok"] is False, answer
        return answer["error"]["code"]


def split(answer, payload):
    """The bytes of each record; None where there is an error."""
    records, at = [], 0
    for size in answer["sizes"]:
        records.append(None if size is None else payload[at : at + size])
        at += size or 0
    assert at == len(payload)
    return records


class Serve(SmlTest):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(SEED)
        for i in range(300):
            self.write(f"src/d{i % 3}/f{i:03}", self.rng.randbytes(self.rng.randrange(6000)))
        self.write(b"src/no utf-8 \xff", b"bytes")
        self.write("src/big", self.rng.randbytes(900_000))
        self.files = self.tree("src")
        self.ok("pack", "src", "-o", "x.sml", "--block-size", "256K")
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.stdin.close()
            server.wait(timeout=60)
            server.stdout.close()
        super().tearDown()

    def serve(self, *arguments, greet=True):
        server = subprocess.Popen(
            [SML, "serve-stdio", *arguments], cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.servers.append(server)
        client = Client(server.stdout, server.stdin)
        if greet:
            client.ok("hello", protocol=1)
        return client

    def names(self, answer):
        return [base64.b64decode(key["base64"]) if isinstance(key, dict) else key.encode() for key in answer["keys"]]

    def test_hello_comes_first(self):
        client = self.serve("x.sml", greet=False)
        answer, _ = client.ask("hello", protocol=7, color="blue")
        self.assertEqual((answer["ok"], answer["protocol"]), (True, 1))
        self.assertEqual(answer["limits"], {"request_bytes": 1 << 24, "keys": 65536, "payload": 1 << 30, "epochs": 16})
        for request in ("info", "bye"):
            client = self.serve("x.sml", greet=False)
            self.assertEqual(client.code(request), "invalid_argument")
            self.assertEqual(client.reader.read(), b"")
        client = self.serve("x.sml", greet=False)
        self.assertEqual(client.code("hello", protocol=0), "invalid_argument")

    def test_information(self):
        answer = self.serve("x.sml").ok("info")
        self.assertEqual((answer["location"], answer["records"], answer["samples"]), ("x.sml", 302, 302))
        self.assertEqual((answer["revision"], answer["grouped"]), (0, False))

    def test_lists_are_in_name_order_page_by_page(self):
        client = self.serve("x.sml")
        expected = [line.split(b"\t", 2) for line in self.lines("ls", "-l", "x.sml")]
        for prefix in ("", "d1/", "d1/f0", "no", "nothing", "big", "b"):
            listed, after = [], {}
            while True:
                answer = client.ok("list", prefix=prefix, count=7, **after)
                names = self.names(answer)
                listed += zip(answer["numbers"], answer["sizes"], names)
                self.assertLessEqual(len(names), 7)
                if not answer["more"]:
                    break
                after = {"after": answer["keys"][-1]}
            wanted = [(int(n), int(s), k) for n, s, k in expected if k.startswith(prefix.encode())]
            self.assertEqual(listed, wanted)

    def test_a_prefix_with_a_dot_is_found_on_both_sides_of_other_names(self):
        for name in ("a.b", "a.c", "a-x", "a./x", "a.d/y", "a/z", "ab"):
            self.write(f"dots/{name}", name.encode())
        self.ok("pack", "dots", "-o", "dots.sml")
        answer = self.serve("dots.sml").ok("list", prefix="a.")
        self.assertEqual(answer["keys"], ["a.b", "a.c", "a./x", "a.d/y"])

    def test_records_by_key_and_number(self):
        client = self.serve("x.sml")
        numbers = {line.split(b"\t", 2)[2]: int(line.split(b"\t", 2)[0]) for line in self.lines("ls", "-l", "x.sml")}
        keys = [key for key in self.files if key.isascii()]
        self.rng.shuffle(keys)
        wanted = [key.decode() for key in keys] + [{"base64": base64.b64encode(b"no utf-8 \xff").decode()}]
        contents = [self.files[key] for key in [*keys, b"no utf-8 \xff"]]
        answer, payload = client.ask("get", keys=wanted)
        self.assertEqual(split(answer, payload), contents)
        self.assertNotIn("errors", answer)
        self.assertEqual(answer["numbers"], [numbers[key] for key in [*keys, b"no utf-8 \xff"]])
        answer, payload = client.ask("get", numbers=answer["numbers"][::-1])
        self.assertEqual(split(answer, payload), contents[::-1])
        self.assertEqual(client.ok("lookup", keys=["none", "big"]), {
            "id": client.ids, "ok": True, "numbers": [None, numbers[b"big"]], "sizes": [None, 900_000]
        })  # fmt: skip
        answer, payload = client.ask("get", keys=["none", keys[0].decode(), ""])
        self.assertEqual(split(answer, payload), [None, self.files[keys[0]], None])
        self.assertEqual([(i, e["code"]) for i, e in answer["errors"]], [(0, "not_found"), (2, "not_found")])
        answer, payload = client.ask("get", numbers=[302, 0, 2**64 - 1])
        self.assertEqual([(i, e["code"]) for i, e in answer["errors"]], [(0, "not_found"), (2, "not_found")])
        self.assertEqual(answer["numbers"], [None, 0, None])
        self.assertEqual(client.ask("get", keys=[])[0]["payload"], 0)

    def test_ranges(self):
        client = self.serve("x.sml")
        big = self.files[b"big"]
        for _ in range(100):
            offset, count = self.rng.randrange(1_000_000), self.rng.randrange(300_000)
            answer, payload = client.ask("range", key="big", offset=offset, bytes=count)
            self.assertEqual(payload, big[offset : offset + count])
            self.assertEqual(answer["size"], len(big))
        self.assertEqual(client.ask("range", key="big", offset=2**64 - 1, bytes=2**64 - 1)[1], b"")
        self.assertEqual(client.ask("range", number=answer["number"], offset=0, bytes=2**64 - 1)[1], big)
        self.assertEqual(client.code("range", key="none", offset=0, bytes=1), "not_found")
        self.assertEqual(client.code("range", number=302, offset=0, bytes=1), "not_found")

    def epoch(self, client, **fields):
        """What opening it answers, and its batches."""
        opened = client.ok("epoch", **fields)
        batches = []
        while True:
            answer, payload = client.ask("next", epoch=opened["epoch"])
            self.assertTrue(answer["ok"], answer)
            if "end" in answer:
                break
            batches.append((answer, split(answer, payload)))
        client.ok("close", epoch=opened["epoch"])
        return opened, batches

    def test_epochs_give_what_shuffle_and_cat_give(self):
        client = self.serve("x.sml")
        for mode in ("block", "full"):
            for rank, world, even in ((0, 1, "none"), (2, 3, "drop"), (1, 4, "wrap")):
                opened, batches = self.epoch(client, seed=3, epoch=2, mode=mode, lanes=4, rank=rank, world=world, batch=16, even=even)
                options = ["--seed", "3", "--epoch", "2", "--mode", mode, "--rank", str(rank), "--world", str(world)]
                options += ["--batch", "16", "--even", even, "-q", *(["--lanes", "4"] if mode == "block" else [])]
                keys = self.ok("shuffle", "x.sml", *options, "-0").split(b"\0")[:-1]
                self.assertEqual([key for answer, _ in batches for key in self.names(answer)], keys)
                for answer, records in batches:
                    self.assertEqual(records, [self.files[key] for key in self.names(answer)])
                self.assertEqual(len(batches), opened["batches"])
                self.assertEqual([answer["batch"] for answer, _ in batches], list(range(len(batches))))

    def test_an_epoch_goes_on_with_another_world(self):
        client = self.serve("x.sml")
        whole = [key for answer, _ in self.epoch(client, seed=1, batch=10)[1] for key in self.names(answer)]
        opened = client.ok("epoch", seed=1, batch=10, rank=0, world=2)
        for _ in range(3):
            answer, _ = client.ask("next", epoch=opened["epoch"])
        state = client.ok("state", epoch=opened["epoch"], position=answer["position"])["state"]
        self.assertEqual(state["position"], 60)
        self.assertEqual(json.dumps(state, separators=(",", ":")).encode() + b"\n", self.ok("shuffle", "x.sml", "--seed", "1", "--state", "--count", "60"))
        rest = {}
        for rank in range(3):
            _, batches = self.epoch(client, state=state, batch=5, rank=rank, world=3)
            rest[rank] = [key for answer, _ in batches for key in self.names(answer)]
        together = [rest[i % 3][i // 3] for i in range(302 - 60)]
        self.assertEqual(together, whole[60:])
        self.assertEqual(client.code("epoch", state=state, seed=2), "invalid_argument")
        self.assertEqual(client.code("epoch", state={**state, "containers": "0" * 32}), "invalid_argument")

    def test_selections_and_workers(self):
        client = self.serve("x.sml")
        _, batches = self.epoch(client, batch=8, select={"match": ["d0/*"], "keys": ["big"], "exclude": ["d0/f00?"]})
        got = sorted(key for answer, _ in batches for key in self.names(answer))
        wanted = [key for key in self.files if key == b"big" or key.startswith(b"d0/") and not key.startswith(b"d0/f00")]
        self.assertEqual(got, sorted(wanted))
        self.assertEqual(client.code("epoch", select={"keys": ["none"]}), "not_found")
        self.assertEqual(client.code("epoch", select={"match": ["[a"]}), "invalid_argument")
        _, all_batches = self.epoch(client, batch=8)
        for worker in range(3):
            _, batches = self.epoch(client, batch=8, worker=worker, workers=3)
            self.assertEqual([a["batch"] for a, _ in batches], list(range(worker, len(all_batches), 3)))
            for answer, records in batches:
                self.assertEqual(records, all_batches[answer["batch"]][1])

    def place_records(self, answer, payload, files):
        """The records of an answer with places; how many of them lie in files."""
        for number, path in answer.get("files", []):
            self.assertNotIn(number, files)
            self.assertTrue(os.path.isabs(path))
            with open(path, "rb") as file:
                files[number] = file.read()
        records, at = [], 0
        for place, size in zip(answer["places"], answer["sizes"]):
            if place is None:
                records.append(None if size is None else payload[at : at + size])
                at += size or 0
            else:
                records.append(files[place[0]][place[1] : place[1] + size])
        self.assertEqual(at, len(payload))
        return records, sum(place is not None for place in answer["places"])

    def test_who_maps_files_is_told_where_records_lie(self):
        self.ok("pack", "src", "-o", "stored.sml", "--block-size", "256K", "--compress", "none")
        self.write("empty/none", b"")
        self.write("empty/some", b"x" * 5000)
        self.ok("pack", "empty", "-o", "compressed.sml")
        self.ok("cache", "init", "--size", "8M", "--cache-dir", "cache", "-q")
        for arguments in (("stored.sml",), ("stored.sml", "--far", "--cache-dir", "cache")):
            client = self.serve(*arguments, greet=False)
            self.assertIs(client.ok("hello", protocol=1, places=True)["places"], True)
            files, placed = {}, 0
            for _ in range(2):  # the second time all is cached
                opened = client.ok("epoch", batch=50)
                for _ in range(opened["batches"]):
                    answer, payload = client.ask("next", epoch=opened["epoch"])
                    records, count = self.place_records(answer, payload, files)
                    self.assertEqual(records, [self.files[key] for key in self.names(answer)])
                    placed += count
            self.assertGreater(placed, 300)
            keys = ["d0/f000", "big", "none", "d1/f001"]
            answer, payload = client.ask("get", keys=keys)
            records, _ = self.place_records(answer, payload, files)
            self.assertEqual(records, [self.files.get(key.encode()) for key in keys])
            answer, payload = client.ask("get", keys=keys, places=False)
            self.assertNotIn("places", answer)
            self.assertEqual(split(answer, payload), [self.files.get(key.encode()) for key in keys])
            self.assertEqual(client.code("get", keys=keys, places=1), "invalid_argument")
        client = self.serve("compressed.sml", greet=False)
        client.ok("hello", protocol=1, places=True)
        answer, payload = client.ask("get", keys=["none", "some"])
        self.assertEqual(self.place_records(answer, payload, {}), ([b"", b"x" * 5000], 0))
        self.assertIs(self.serve("x.sml", greet=False).ok("hello", protocol=1)["places"], False)

    def test_samples_of_several_records(self):
        for i in range(20):
            self.write(f"pairs/{i:02}.img", b"image %d" % i)
            self.write(f"pairs/{i:02}.txt", b"text %d" % i)
        self.ok("pack", "pairs", "-o", "pairs.sml", "--group-by", "stem")
        _, batches = self.epoch(self.serve("pairs.sml"), batch=3)
        self.assertEqual([len(answer["samples"]) for answer, _ in batches], [3] * 6 + [2])
        for answer, _ in batches:
            self.assertEqual(set(answer["samples"]), {2})
            keys = self.names(answer)
            self.assertEqual([key[:2] for key in keys[::2]], [key[:2] for key in keys[1::2]])

    def test_damage_shortens_a_batch_but_not_the_epoch(self):
        whole = self.read("x.sml")
        at = whole.index(self.files[b"d0/f003"])
        self.write("y.sml", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        client = self.serve("y.sml")
        opened, batches = self.epoch(client, batch=16)
        self.assertEqual(len(batches), opened["batches"])
        failed = [(answer["keys"][i], error["code"]) for answer, _ in batches for i, error in answer.get("errors", [])]
        self.assertEqual(failed, [("d0/f003", "corrupt")])
        self.assertEqual(sum(record is not None for _, records in batches for record in records), 301)
        answer, payload = client.ask("get", keys=["d0/f003", "big"])
        self.assertEqual(split(answer, payload), [None, self.files[b"big"]])
        self.assertEqual(client.code("range", key="d0/f003", offset=0, bytes=1), "corrupt")
        self.assertEqual(client.ok("statistics")["statistics"]["failed"], 3)

    def test_requests_are_answered_in_order_however_many_are_sent(self):
        client = self.serve("x.sml")
        sent = []
        for i in range(600):  # a pipe holds so many
            sent.append(client.send("get", numbers=[i % 302]) if i % 2 else client.send("info"))
        self.assertEqual([client.receive()[0]["id"] for _ in sent], sent)

    def test_a_client_that_does_not_read_holds_up_the_server_not_its_memory(self):
        client = self.serve("x.sml")
        number = client.ok("lookup", keys=["big"])["numbers"][0]
        request = json.dumps({"id": 1, "request": "get", "numbers": [number]}).encode() + b"\n"
        descriptor = client.writer.fileno()
        os.set_blocking(descriptor, False)
        sent = 0
        while select.select([], [descriptor], [], 0.3)[1]:
            sent += os.write(descriptor, request)
            self.assertLess(sent, 1 << 24)
        with open(f"/proc/{self.servers[-1].pid}/statm", encoding="ascii") as pages:
            resident = int(pages.read().split()[1]) * 4096
        self.assertLess(resident, 400 << 20)
        os.set_blocking(descriptor, True)
        for _ in range(sent // len(request)):
            self.assertEqual(client.receive()[1], self.files[b"big"])

    def test_bad_requests_are_answered_and_survived(self):
        client = self.serve("x.sml")
        bad = [
            b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"id":1}', b'{"request":"info"}', b'{"id":[],"request":"info"}',
            b'{"id":1,"request":7}', b'{"id":1,"request":"fly"}', b'{"id":1,"request":"get"}', b"[" * 100_000,
            b'{"id":1,"request":"get","keys":["a"],"numbers":[1]}', b'{"id":1,"request":"get","keys":"a"}',
            b'{"id":1,"request":"get","keys":[1]}', b'{"id":1,"request":"get","numbers":[-1]}', b'{"id":1,"request":"get","numbers":[1.5]}',
            b'{"id":1,"request":"get","numbers":[18446744073709551616]}', b'{"id":1,"request":"get","numbers":["1"]}',
            b'{"id":1,"request":"get","numbers":[' + b"1," * 65536 + b"1]}", b'{"id":1,"request":"get","keys":[{"base64":"a"}]}',
            b'{"id":1,"request":"get","keys":[{"base64":"ab*="}]}', b'{"id":1,"request":"list","count":0}', b'{"id":1,"request":"list","count":65537}',
            b'{"id":1,"request":"epoch","batch":0}', b'{"id":1,"request":"epoch","batch":65537}', b'{"id":1,"request":"epoch","rank":1}',
            b'{"id":1,"request":"epoch","world":0}', b'{"id":1,"request":"epoch","lanes":0}', b'{"id":1,"request":"epoch","mode":"fast"}',
            b'{"id":1,"request":"epoch","even":1}', b'{"id":1,"request":"epoch","position":303}', b'{"id":1,"request":"epoch","state":{}}',
            b'{"id":1,"request":"epoch","state":5}', b'{"id":1,"request":"epoch","select":[]}', b'{"id":1,"request":"epoch","worker":1}',
            b'{"id":1,"request":"next"}', b'{"id":1,"request":"next","epoch":9}', b'{"id":1,"request":"state","epoch":1}',
            b'{"id":1,"request":"close","epoch":0}', b'{"id":1,"request":"range","key":"big"}', b'{"id":1,"request":"lookup"}',
        ]  # fmt: skip
        for line in bad:
            client.write(line + b"\n")
            answer, _ = client.receive()
            self.assertEqual((answer["ok"], answer["error"]["code"]), (False, "invalid_argument"), line[:80])
        self.assertEqual(client.ok("info")["records"], 302)

    def test_a_thousand_random_requests(self):
        print(f"seed {SEED}")
        client = self.serve("x.sml")
        names = ["info", "list", "lookup", "get", "range", "epoch", "next", "state", "close", "statistics", "hello", "?"]
        fields = ["keys", "numbers", "key", "number", "offset", "bytes", "epoch", "position", "batch", "rank", "world", "mode",
                  "lanes", "even", "select", "state", "worker", "workers", "prefix", "after", "count", "seed", "protocol"]  # fmt: skip
        values = [0, 1, 2, 7, 301, 302, 2**32, 2**64 - 1, 2**64, -1, 0.5, None, True, "", "big", "d1/", "full", "drop", "wrap", [], {},
                  ["big"], [0, 1], [2**64 - 1], [[]], {"base64": "YmlnCg=="}, {"match": ["**"]}, {"keys": ["big"]}, {"exclude": ["*"]}]  # fmt: skip
        for i in range(1000):
            line = json.dumps({"id": i, "request": self.rng.choice(names),
                               **{self.rng.choice(fields): self.rng.choice(values) for _ in range(self.rng.randrange(5))}}).encode()  # fmt: skip
            if self.rng.randrange(4) == 0:
                at = self.rng.randrange(len(line))
                line = line[:at] + bytes([self.rng.randrange(11, 256)]) + line[at + 1 :]
            client.write(line + b"\n")
            answer, payload = client.receive()
            if not answer["ok"]:
                self.assertEqual(payload, b"")
                self.assertNotIn("\n", answer["error"]["message"])
        self.assertEqual(client.ok("info")["records"], 302)

    def test_a_request_that_is_too_long_ends_it(self):
        client = self.serve("x.sml")
        try:
            client.write(b'{"id":1,"request":"get","keys":["' + b"x" * (17 << 20))
        except BrokenPipeError:
            pass
        answer, _ = client.receive()
        self.assertEqual((answer["id"], answer["error"]["code"]), (None, "invalid_argument"))
        self.assertEqual(client.reader.read(), b"")

    def test_at_most_sixteen_epochs(self):
        client = self.serve("x.sml")
        for _ in range(16):
            client.ok("epoch")
        self.assertEqual(client.code("epoch"), "limit")
        client.ok("close", epoch=3)
        self.assertEqual(client.ok("epoch")["epoch"], 17)

    def test_how_it_ends(self):
        client = self.serve("x.sml")
        client.send("epoch")
        client.send("next", epoch=1)
        client.writer.close()
        self.assertEqual(len(client.reader.read().splitlines()[0]) > 0, True)
        self.assertEqual(self.servers[-1].wait(timeout=60), 0)

        client = self.serve("x.sml")
        client.ok("bye")
        self.assertEqual(client.reader.read(), b"")
        self.assertEqual(self.servers[-1].wait(timeout=60), 0)

        client = self.serve("x.sml")  # its reader goes away in the middle of an answer
        client.send("get", keys=["big"] * 100)
        client.reader.read(1000)
        client.reader.close()
        self.assertEqual(self.servers[-1].wait(timeout=60), 0)
        self.fails(1, "no.sml", "serve-stdio", "no.sml")
        self.fails(2, "", "serve-stdio")

    def test_signals_are_the_trainers_affair(self):
        client = self.serve("x.sml")
        for number in (signal.SIGINT, signal.SIGTERM):
            self.servers[-1].send_signal(number)
        self.assertEqual(client.ok("info")["records"], 302)

    def test_a_socket_serves_others(self):
        path = os.fsdecode(self.path("socket"))
        client = self.serve("x.sml", "--socket", "socket")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        others = []
        for _ in range(4):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            stream = connection.makefile("rwb")
            others.append((connection, stream, Client(stream, stream)))
            others[-1][2].ok("hello", protocol=1)
        batches = {}
        for worker, (_, _, other) in enumerate(others):
            for answer, records in self.epoch(other, batch=9, worker=worker, workers=4)[1]:
                batches[answer["batch"]] = records
        _, expected = self.epoch(client, batch=9)
        self.assertEqual([batches[i] for i in sorted(batches)], [records for _, records in expected])
        others[0][2].ok("bye")
        self.assertEqual(others[0][1].read(), b"")
        # A client that dies in the middle of an answer; one that resets.
        others[1][2].send("get", keys=["big"] * 50)
        others[1][0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for connection, stream, _ in others[:2]:
            stream.close()
            connection.close()
        self.assertEqual(client.ok("info")["records"], 302)
        self.assertEqual(others[2][2].ok("info")["records"], 302)
        client.writer.close()
        self.assertEqual(self.servers[-1].wait(timeout=60), 0)
        self.assertFalse(os.path.exists(path))
        for connection, stream, _ in others[2:]:
            self.assertEqual(stream.read(), b"")
            stream.close()
            connection.close()

    def test_sockets_of_the_dead_are_replaced_those_of_the_living_are_not(self):
        self.serve("x.sml", "--socket", "socket")
        self.fails(1, "socket: Address already in use", "serve-stdio", "x.sml", "--socket", "socket")
        self.servers[-1].kill()
        self.servers[-1].wait(timeout=60)
        self.assertTrue(os.path.exists(self.path("socket")))
        self.serve("x.sml", "--socket", "socket").ok("info")
        self.write("file", b"precious")
        self.fails(1, "file: Address already in use", "serve-stdio", "x.sml", "--socket", "file")
        self.assertEqual(self.read("file"), b"precious")
        self.fails(2, "longer than 107 bytes", "serve-stdio", "x.sml", "--socket", "x" * 108)


if __name__ == "__main__":
    unittest.main()
