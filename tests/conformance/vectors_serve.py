"""Requests of format-spec/serve-stdio.md with their answers, worked out from containers by the reader that was written from the
documents: the server has no part in it."""

import sml_order
import sml_reader
import vectors_valid
from sml_parts import stem

CONTAINERS = ["06-several-blocks", "15-samples", "12-spanning"]
ABSENT = "no such key"


class Served:
    """A container, and the exchanges with a server of it."""

    def __init__(self, data):
        self.container = sml_reader.Container(data)
        self.records = list(self.container.records())
        self.numbers = {record.key: record.number for record in self.records}
        self.exchanges = []

    def add(self, request, payload=None, **answer):
        number = len(self.exchanges)
        exchange = {"request": {"id": number, **request}, "answer": {"id": number, "ok": "error" not in answer, **answer}}
        if payload is not None:
            exchange["answer"]["payload"] = len(payload)
            exchange["bytes"] = vectors_valid.shown_content(payload)
        self.exchanges.append(exchange)

    def refused(self, code, **request):
        self.add(request, error={"code": code})

    def given(self, numbers):
        """What answers say of records, None for one that there is not; and their bytes."""
        found = [None if number is None else self.records[number] for number in numbers]
        answer = {"numbers": numbers, "sizes": [record and record.size for record in found]}
        errors = [[i, {"code": "not_found"}] for i, record in enumerate(found) if record is None]
        if errors:
            answer["errors"] = errors
        return {**answer, "payload": b"".join(record.content for record in found if record)}

    def get(self):
        keys = [record.key for record in self.records[::-3]]
        numbers = [self.numbers[key] for key in keys]
        shown = [vectors_valid.shown(key) for key in keys]
        self.add({"request": "get", "keys": [*shown, ABSENT]}, **self.given([*numbers, None]))
        self.add({"request": "get", "numbers": [0, len(self.records), 0]}, **self.given([0, None, 0]))
        self.add({"request": "lookup", "keys": [shown[0], ABSENT]}, numbers=[numbers[0], None],
                 sizes=[self.records[numbers[0]].size, None])  # fmt: skip

    def list(self):
        ordered = sorted(self.records, key=lambda record: (stem(record.key), record.key))

        def page(request, records, more):
            self.add({"request": "list", **request}, keys=[vectors_valid.shown(record.key) for record in records],
                     numbers=[record.number for record in records], sizes=[record.size for record in records], more=more)  # fmt: skip

        page({}, ordered, False)
        page({"count": 2}, ordered[:2], True)
        page({"after": vectors_valid.shown(ordered[1].key)}, ordered[2:], False)
        prefix = ordered[-1].key[:1]
        page({"prefix": vectors_valid.shown(prefix)}, [r for r in ordered if r.key.startswith(prefix)], False)

    def ranges(self):
        record = max(self.records, key=lambda record: record.size)
        for offset, size in ((0, 10), (record.size - 5, 10), (record.size, 1), (1000, 2**64 - 1)):
            self.add({"request": "range", "key": vectors_valid.shown(record.key), "offset": offset, "bytes": size},
                     number=record.number, size=record.size, payload=record.content[offset : offset + size])  # fmt: skip
        self.refused("not_found", request="range", number=len(self.records), offset=0, bytes=1)

    def epoch(self, name, seed, epoch, mode, lanes, rank, world, batch, even, start):
        order = sml_reader.order([self.container], seed, epoch, mode, lanes)
        n, multiple = len(order), world * batch
        end = sml_order.end_position(n, start, multiple, even)
        positions = sml_order.rank_positions(n, start, world, rank, batch, even)
        batches = [positions[i : i + batch] for i in range(0, len(positions), batch)]
        fields = {"seed": seed, "epoch": epoch, "mode": mode, "lanes": lanes, "rank": rank, "world": world}
        self.add({"request": "epoch", **fields, "batch": batch, "even": even, "position": start}, epoch=name, samples=n,
                 batches=len(batches), dropped=max(0, n - end), wrapped=max(0, end - n), position=start)  # fmt: skip
        for number, batch_positions in enumerate(batches):
            samples = [order[p % n] for p in batch_positions]
            numbers = [number for sample in samples for _, number in sample]
            grouped = {"samples": [len(sample) for sample in samples]} if self.container.header.grouping else {}
            self.add({"request": "next", "epoch": name}, batch=number, position=min(start + (number + 1) * multiple, end, n),
                     **grouped, keys=[vectors_valid.shown(self.records[i].key) for i in numbers], **self.given(numbers))  # fmt: skip
        self.add({"request": "next", "epoch": name}, end=True, position=min(end, n))
        self.add({"request": "close", "epoch": name})
        self.refused("invalid_argument", request="next", epoch=name)

    def all(self):
        self.add({"request": "hello", "protocol": 1}, protocol=1)
        self.add({"request": "info"}, revision=0, records=len(self.records), samples=len(self.container.starts),
                 grouped=bool(self.container.header.grouping))  # fmt: skip
        self.list()
        self.get()
        self.ranges()
        self.epoch(1, 0, 0, "block", 64, 0, 1, 5, "none", 0)
        self.epoch(2, 2**64 - 1, 3, "full", 64, 1, 2, 4, "wrap", 3)
        self.epoch(3, 7, 0, "block", 3, 2, 3, 2, "drop", 1)
        self.refused("invalid_argument", request="epoch", batch=0)
        self.refused("invalid_argument", request="none")
        self.add({"request": "bye"})
        return self.exchanges


def write(to, valid):
    """Transcripts with servers of the valid containers."""
    to.mkdir(parents=True, exist_ok=True)
    for name in CONTAINERS:
        exchanges = Served((valid / f"{name}.sml").read_bytes()).all()
        document = {"container": f"valid/{name}.sml", "exchanges": exchanges}
        (to / f"{name}.json").write_text(vectors_valid.dump(document), encoding="utf-8")
