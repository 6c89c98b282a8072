#!/usr/bin/env python3
"""A reader of containers in plain Python, written from format-spec/ alone: slow and obvious, and it checks all that the
documents name. Run as a program it prints a container's header, counts and records as one JSON document."""

import hashlib
import json
import mmap
import sys
from types import SimpleNamespace

import sml_order
from sml_hash import crc32c, xxh3_64, xxh3_128
from sml_index import Index
from sml_parts import Refused, check, check_key, stem, unpack, varints, zstd


class Container(Index):
    def _slot(self, place, end, key, size):
        """Checks a slot and decodes it."""
        slot = self.data[place:end]
        prefix = unpack("IBBHQ", "crc32c codec reserved padding key_hash", slot)
        check(prefix.padding <= len(slot) - 16, "slot: padding")
        stored = slot[16 : len(slot) - prefix.padding]
        check(not any(slot[16 + len(stored) :]), "slot: padding that is not zero")
        check(prefix.crc32c == crc32c(slot[4:16], crc32c(stored)), "slot: crc32c")
        check(prefix.codec <= 2 and prefix.reserved == 0, "slot: codec, reserved")
        check(prefix.key_hash == (xxh3_64(key) if key else 0), "slot: key hash")
        if prefix.codec == 0:
            check(len(stored) == size, "slot: stored size")
            return stored
        check(prefix.codec == 1 or self.dictionary is not None, "slot: no dictionary")
        return zstd(stored, size, self.dictionary if prefix.codec == 2 else None)

    def content(self, number):
        key, left, block = self.key(number), self.sizes[number], self.blocks[number]
        if self.rows[block].kind == 0:
            return self._slot(*self.slots[number], key, left)
        content = b""
        while len(content) < self.sizes[number]:
            row, size = self.rows[block], min(self.header.piece_bytes, self.sizes[number] - len(content))
            content += self._slot(row.start + row.slots_offset, row.end, key, size)
            block += 1
        return content

    def check_block(self, i):
        """All that a block says, against itself and the index. Returns the stored bytes of its records."""
        row = self.rows[i]
        data = self.data[row.start : row.end]
        check(row.crc32c == crc32c(data) and (row.low, row.high) == xxh3_128(data), f"block {i}: hash")
        check(len(data) >= 64, f"block {i}: size")
        names = "magic crc32c number first_record size slots_offset slots stored_bytes raw_bytes codec kind reserved"
        b = unpack("4sIQQIIIIIBBHQII", names + " record_bytes piece tag", data)
        check(b.magic == b"SMLB" and b.number == i and b.size == len(data), f"block {i}: magic, number, size")
        check(64 + b.stored_bytes <= b.slots_offset <= b.size, f"block {i}: slots_offset")
        check(1 <= b.slots <= (b.size - b.slots_offset) // 16, f"block {i}: slots")
        check(b.crc32c == crc32c(data[8 : 64 + b.stored_bytes]), f"block {i}: crc32c")
        check(b.raw_bytes <= 67108864 and b.codec <= 1 and b.kind <= 3, f"block {i}: table, kind")
        check(b.kind == 0 or b.slots == 1, f"block {i}: more than a slot")
        check(b.reserved == 0 and b.tag == self.header.tag, f"block {i}: reserved, tag")
        check((b.record_bytes == 0) == (b.kind in (0, 3)), f"block {i}: record_bytes")
        check((b.piece == 0) == (b.kind != 2), f"block {i}: piece")
        same = "first_record slots slots_offset kind".split()
        check(all(getattr(b, name) == getattr(row, name) for name in same), f"block {i}: its row differs")
        table = data[64 : 64 + b.stored_bytes]
        check(b.codec == 1 or b.stored_bytes == b.raw_bytes, f"block {i}: table's size")
        table = zstd(table, b.raw_bytes) if b.codec else table
        check(not any(data[64 + b.stored_bytes : b.slots_offset]), f"block {i}: padding that is not zero")
        sizes, at = varints(table, 0, 2 * b.slots)
        place, number = row.start + b.slots_offset, b.first_record - (1 if b.kind == 2 else 0)
        check(all(size >= 16 for size in sizes[b.slots :]), f"block {i}: slot sizes")
        check(sum(sizes[b.slots :]) == b.size - b.slots_offset, f"block {i}: slot sizes")
        check(at + sum(sizes[: b.slots]) == len(table), f"block {i}: table")
        if b.kind == 3:
            check(len(table) == at and data[b.slots_offset + 4] == 0, "dictionary: key, codec")
            content = self._slot(place, row.end, b"", len(self.dictionary))
            check(content == self.dictionary, "dictionary: its copy in the footer differs")
            return 0
        stored = sum(sizes[b.slots :]) - 16 * b.slots
        for key_size, size in zip(sizes, sizes[b.slots :]):
            key, at = table[at : at + key_size], at + key_size
            check_key(key)
            check(key == self.key(number), f"block {i}: key of record {number}")
            check(b.kind == 2 or (place, place + size) == self.slots[number], f"block {i}: place of record {number}")
            stored -= int.from_bytes(self.data[place + 6 : place + 8], "little")
            place, number = place + size, number + 1
        if b.kind in (1, 2):
            check(b.record_bytes == self.sizes[number - 1], f"block {i}: record_bytes")
            check(b.piece == i - self.blocks[number - 1], f"block {i}: piece")
        return stored

    def verify(self):
        """What opening and reading do not look at: blocks as a whole, sums, padding."""
        stored = sum(self.check_block(i) for i in range(len(self.rows)))
        f, sums = self.footer, (sum(self.sizes), stored, sum(map(len, self.names)))
        check((f.raw_bytes, f.stored_bytes, f.key_bytes) == sums, f"footer: sums that are not {sums}")
        check(self.tail.footer_crc32c == crc32c(self.data[self.tail.footer_offset : len(self.data) - 64]), "footer_crc32c")
        part, parts = self.header.part, self.header.parts
        check(all(xxh3_64(stem(key)) % parts == part - 1 for key in self.names if parts), "a record of another part")
        end = self.rows[-1].end if self.rows else self.header.header_bytes
        check(not any(self.data[128 : self.header.header_bytes]), "padding behind the header that is not zero")
        check(not any(self.data[end : self.tail.footer_offset]), "padding before the footer that is not zero")
        check(not any(self.gaps), "padding in the footer that is not zero")

    def records(self):
        """Checks everything, then gives every record by number."""
        self.verify()
        for i in range(self.n):
            row = [i, self.key(i), self.sizes[i], self.content(i), self.ranks[i], self.samples[i], self.blocks[i]]
            yield SimpleNamespace(**dict(zip("number key size content rank sample block".split(), row)))


def order(containers, seed, epoch, mode="block", lanes=64):
    """The order of a data set: a list of samples, each a list of (container, number). `containers` by name."""
    samples, blocks, last = [], [], None
    for container in containers:
        for start, end in zip(container.starts, [*container.starts[1:], container.n]):
            if last != (container, container.blocks[start]):
                blocks.append((len(samples), 0))
                last = container, container.blocks[start]
            blocks[-1] = blocks[-1][0], blocks[-1][1] + 1
            samples.append([(container, number) for number in range(start, end)])
    if mode == "full":
        return [samples[i] for i in sml_order.full_order(range(len(samples)), seed, epoch)]
    return [samples[i] for i in sml_order.block_order(blocks, seed, epoch, lanes)]


def shown(record):
    """As the program prints it."""
    shown = {name: getattr(record, name) for name in "number size rank sample block".split()}
    try:
        shown["key"] = record.key.decode()
    except UnicodeDecodeError:
        shown["key_hex"] = record.key.hex()
    return {**shown, "sha256": hashlib.sha256(record.content).hexdigest()}


def main(path):
    try:
        with open(path, "rb") as file:
            c = Container(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else b"")
        header = {name: value for name, value in vars(c.header).items() if isinstance(value, int)}
        records = [shown(record) for record in c.records()]
    except Refused as refused:
        print(refused)
        return 1
    counts = {name: value for name, value in vars(c.footer).items() if not name.startswith("unused")}
    print(json.dumps({"header": header, "id": c.id, "counts": counts, "records": records}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
