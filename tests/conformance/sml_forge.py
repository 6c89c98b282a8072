"""Containers and framed streams put together byte by byte, with any part replaced by what a test wants, and every
checksum around it right: format-spec/container.md, index.md and frames.md in plain Python, for scripts/make-vectors.

A container is made in steps, between which its parts can be changed:

    c = Container(records, order=NAME)     # c.header, c.blocks: fields, slots
    c.lay()                                # c.images: the blocks' bytes
    c.index()                              # c.sections: id -> bytes; c.counts
    data = c.seal()                        # header, blocks, footer, tail
"""

import struct

import sml_order
from sml_hash import crc32c, xxh3_64, xxh3_128

INPUT, NAME, RANDOM = 0, 1, 2
RECORDS, FIRST, FURTHER, DICTIONARY = 0, 1, 2, 3
STORED, ZSTD, ZSTD_DICTIONARY = 0, 1, 2
HEADER_MAGIC = b"\x89SML\r\n\x1a\n"
FRAMES_MAGIC = b"\x89SMLF\r\n\x01"
NO_NUMBER = 2**64 - 1


# --- keys.md


def stem(key):
    base = key.rfind(b"/") + 1
    while base < len(key) and key[base : base + 1] == b".":
        base += 1
    dot = key.find(b".", base)
    return key if dot < 0 else key[:dot]


def name_order(key):
    return stem(key), key


# --- arrays of index.md


def varint(value, size=1):
    """LEB128; of at least `size` bytes, which is more than are needed where a test wants it so."""
    out = bytearray()
    while value > 127 or size > 1:
        out.append(value & 127 | 128)
        value >>= 7
        size -= 1
    return bytes(out) + bytes([value])


def packed(values, width):
    total = 0
    for i, value in enumerate(values):
        total |= value << (i * width)
    return total.to_bytes(8 * -(-len(values) * width // 64), "little")


def bit_vector(bits):
    words = packed(bits, 1)
    sums = [sum(bits[: 512 * d]) for d in range(len(bits) // 512 + 1)]
    return struct.pack("<QQ", len(bits), sum(bits)) + words + struct.pack("<%dQ" % len(sums), *sums)


def elias_fano(values):
    if not values:
        return bytes(32)
    top, count = values[-1], len(values)
    low = (top // count).bit_length() - 1 if top >= count else 0
    places = [(value >> low) + i for i, value in enumerate(values)]
    words = -(-((top >> low) + count) // 64)
    high = 0
    for place in places:
        high |= 1 << place
    samples = places[::256]
    return (
        struct.pack("<QQQQ", count, low, words, 0)
        + packed([value & ((1 << low) - 1) for value in values], low)
        + high.to_bytes(8 * words, "little")
        + struct.pack("<%dQ" % len(samples), *samples)
    )


def read_elias_fano(data):
    count, low, words, _ = struct.unpack_from("<QQQQ", data)
    at = 32 + 8 * -(-count * low // 64)
    lows = int.from_bytes(data[32:at], "little")
    high = bin(int.from_bytes(data[at : at + 8 * words], "little"))[:1:-1]
    values, place = [], -1
    for i in range(count):
        place = high.index("1", place + 1)
        values.append((place - i) << low | (lows >> (i * low)) & ((1 << low) - 1))
    return values


def page(keys, varint_bytes=1):
    """A name page, decoded. Common ends are cut as the writer does."""
    cuts, before = [], b""
    for key in keys:
        short = min(len(before), len(key))
        prefix = next((j for j in range(short) if before[j] != key[j]), short)
        suffix = next((j for j in range(short - prefix) if before[-1 - j] != key[-1 - j]), short - prefix)
        cuts.append((prefix, suffix, key[prefix : len(key) - suffix]))
        before = key
    columns = [[c[0] for c in cuts], [c[1] for c in cuts], [len(c[2]) for c in cuts]]
    numbers = b"".join(varint(v, varint_bytes) for column in columns for v in column)
    return numbers + b"".join(c[2] for c in cuts)


def key_table(hashes):
    """Sections 8 and 9 from the hashes of the keys, by number."""
    n = len(hashes)
    buckets = n // 16 + 1
    width = max(n - 1, 0).bit_length()
    row = (width + 7 + 7) // 8
    rows = [[] for _ in range(buckets)]
    for number, h in enumerate(hashes):
        fingerprint = h & ((1 << (8 * row - width)) - 1)
        rows[h * buckets >> 64].append((number | fingerprint << width).to_bytes(row, "little"))
    starts, table = [0], b""
    for bucket in rows:
        starts.append(starts[-1] + len(bucket))
        table += b"".join(bucket)
    return struct.pack("<%dI" % len(starts), *starts), table + bytes(8)


def same_fingerprint(a, b, n):
    """Whether the key table of n records cannot tell these hashes apart."""
    buckets = n // 16 + 1
    width = max(n - 1, 0).bit_length()
    bits = 8 * ((width + 7 + 7) // 8) - width
    return a * buckets >> 64 == b * buckets >> 64 and (a ^ b) & ((1 << bits) - 1) == 0


# --- zstd frames without a compressor: blocks that are stored, or one byte many times


def zstd(data, content_size=None, with_size=True, flags=0):
    """`data` as a frame of stored blocks (of runs, where it is all one byte)."""
    size = len(data) if content_size is None else content_size
    if not with_size:
        head = bytes([flags, 0x40])  # a window of 256 KiB
    elif size < 256:
        head = bytes([0x20 | flags, size])
    elif size < 65536 + 256:
        head = bytes([0x60 | flags]) + struct.pack("<H", size - 256)
    else:
        head = bytes([0xA0 | flags]) + struct.pack("<I", size)
    out = b"\x28\xb5\x2f\xfd" + head
    run = len(data) > 1 and data == data[:1] * len(data)
    at = 0
    while True:
        part = data[at : at + 65536]
        at += len(part)
        last = at >= len(data)
        out += (last | (run << 1) | len(part) << 3).to_bytes(3, "little") + (part[:1] if run else part)
        if last:
            return out


# --- containers


class Slot:
    def __init__(self, key, stored, raw=None, codec=STORED):
        self.key = key
        self.stored = bytes(stored)
        self.raw = len(stored) if raw is None else raw
        self.codec = codec
        self.hash = xxh3_64(key) if key else 0
        self.reserved = 0
        self.padding = None  # bytes; None: what alignment asks for
        self.padding_field = None  # another number than those
        self.crc = None  # another than the right one
        self.flip = 0  # exclusive or into the crc

    def image(self, padding):
        field = len(padding) if self.padding_field is None else self.padding_field
        rest = struct.pack("<BBHQ", self.codec, self.reserved, field, self.hash)
        crc = crc32c(rest, crc32c(self.stored)) if self.crc is None else self.crc
        return struct.pack("<I", crc ^ self.flip) + rest + self.stored + padding


class Block:
    """`fields` replaces fields of the block header, `table` the record table, `stored_table` its compressed form."""

    def __init__(self, kind, slots, record_bytes=0, piece=0):
        self.kind = kind
        self.slots = slots
        self.record_bytes = record_bytes
        self.piece = piece
        self.fields = {}
        self.table = None
        self.stored_table = None
        self.gap = None  # bytes between the table and the slots
        self.tail = b""  # bytes behind the last slot, which the sizes do not count

    FIELDS = ("number", "first_record", "size", "slots_offset", "slots", "table_stored_bytes", "table_raw_bytes",
              "table_codec",
              "kind", "reserved", "record_bytes", "piece", "tag")

    def image(self, number, first_record, align, tag=0):
        """The block's bytes, and where in it each slot starts."""
        paddings = []
        for i, slot in enumerate(self.slots):
            used = 16 + len(slot.stored)
            missing = -len(slot.stored) % align if i + 1 == len(self.slots) else -used % align
            paddings.append(bytes(missing) if slot.padding is None else slot.padding)
        images = [slot.image(padding) for slot, padding in zip(self.slots, paddings)]
        table = self.table
        if table is None:
            table = b"".join(varint(len(s.key)) for s in self.slots) + b"".join(varint(len(i)) for i in images)
            table += b"".join(s.key for s in self.slots)
        stored = table if self.stored_table is None else self.stored_table
        at = 64 + len(stored)
        gap = bytes(-(at + 16) % align) if self.gap is None else self.gap
        at += len(gap)
        starts = []
        body = b""
        for image in images:
            starts.append(at + len(body))
            body += image
        values = dict(zip(self.FIELDS, (number, first_record, at + len(body), at, len(self.slots), len(stored),
                                        len(table),
                                        STORED if self.stored_table is None else ZSTD, self.kind, 0, self.record_bytes,
                                        self.piece, tag)))
        values.update({name: v for name, v in self.fields.items() if name != "crc_flip" and name != "magic"})
        head = struct.pack("<QQIIIIIBBHQII", *(values[name] for name in self.FIELDS))
        crc = crc32c(stored, crc32c(head)) ^ self.fields.get("crc_flip", 0)
        magic = self.fields.get("magic", b"SMLB")
        return magic + struct.pack("<I", crc) + head + stored + gap + body + self.tail, starts


class Header:
    FIELDS = ("magic", "version", "header_bytes", "incompatible", "compatible", "seed", "block_bytes", "piece_bytes",
              "align",
              "part", "parts", "order", "grouping", "reserved", "tag")
    FORMAT = "<8sIIQQQIIIIIBB58sI"

    def __init__(self, **fields):
        self.magic, self.version = HEADER_MAGIC, 1
        self.incompatible = self.compatible = self.seed = 0
        self.block_bytes, self.align = 65536, 1
        self.part = self.parts = 0
        self.order, self.grouping = NAME, 0
        self.reserved = b""
        self.tag = 0
        self.piece_bytes = self.header_bytes = None
        self.__dict__.update(fields)
        if self.piece_bytes is None:
            self.piece_bytes = self.block_bytes - 8192 - 3 * self.align
        if self.header_bytes is None:
            self.header_bytes = -(-128 // self.align) * self.align

    def image(self):
        body = struct.pack(self.FORMAT, *(getattr(self, name) for name in self.FIELDS))
        return body + struct.pack("<I", crc32c(body))

    @classmethod
    def read(cls, data):
        return cls(**dict(zip(cls.FIELDS, struct.unpack_from(cls.FORMAT, data))))


def pack_order(keys, order, grouping, seed):
    """Indices into `keys` (in the order of the input) by number, and the sample of each number."""
    ranked = sorted(range(len(keys)), key=lambda i: name_order(keys[i]))
    if grouping:
        samples = []
        for i in ranked:
            if not samples or stem(keys[samples[-1][0]]) != stem(keys[i]):
                samples.append([])
            samples[-1].append(i)
    else:
        samples = [[i] for i in ranked]
    if order == INPUT:
        samples = sorted((sorted(sample) for sample in samples), key=lambda sample: sample[0])
    elif order == RANDOM:
        p = sml_order.Permutation(len(samples), sml_order.PACK, seed)
        placed = [None] * len(samples)
        for rank, sample in enumerate(samples):
            placed[p.apply(rank)] = sample
        samples = placed
    return ([i for sample in samples for i in sample], [s for s, sample in enumerate(samples) for _ in sample])


class Container:
    """`records`: (key, content) in the order of the input. `cut`: at most so many records in a block, else as many as
    fit. `encode`: content -> (stored bytes, raw size, codec). Other arguments are fields of the header."""

    def __init__(self, records, cut=None, dictionary=None, encode=None, **header):
        self.head = Header(**header)
        keys = [key for key, _ in records]
        self.order, self.samples = pack_order(keys, self.head.order, self.head.grouping, self.head.seed)
        self.keys = [keys[i] for i in self.order]  # by number
        self.dictionary = dictionary
        encode = encode or (lambda content: (content, len(content), STORED))
        self.blocks = []
        if dictionary is not None:
            self.blocks.append(Block(DICTIONARY, [Slot(b"", dictionary)]))
        open_block, used, sizes = None, 0, []
        capacity = self.head.block_bytes - 64 - 2 * self.head.align
        for i in self.order:
            key, content = records[i]
            sizes.append(len(content))
            if len(content) > self.head.piece_bytes:
                for piece, at in enumerate(range(0, len(content), self.head.piece_bytes)):
                    slot = Slot(key, *encode(content[at : at + self.head.piece_bytes]))
                    self.blocks.append(Block(FURTHER if piece else FIRST, [slot], len(content), piece))
                open_block = None
                continue
            slot = Slot(key, *encode(content))
            cost = -(-(16 + len(slot.stored)) // self.head.align) * self.head.align + len(key) + 8
            if open_block is None or len(open_block.slots) == cut or used + cost > capacity:
                open_block, used = Block(RECORDS, []), 0
                self.blocks.append(open_block)
            open_block.slots.append(slot)
            used += cost
        self.sizes = sizes
        self.images = self.sections = self.counts = None
        self.rows = {}  # block -> fields of its row to replace
        self.section_rows = {}  # section id -> fields of its row to replace
        self.drop, self.doubled = set(), None
        self.tail_fields = {}
        self.footer_slack = 0  # bytes between the padding and the footer that do not belong there
        self.behind = b""  # bytes after the tail
        self.unused = 0  # what stands in the unused fields
        self.header_gap = None

    def lay(self):
        self.images, self.starts, first = [], [], 0
        for number, block in enumerate(self.blocks):
            image, starts = block.image(number, first, self.head.align, self.head.tag)
            self.images.append(bytearray(image))
            self.starts.append(starts)
            if block.kind in (RECORDS, FIRST):
                first += len(block.slots)
        return self

    def offsets(self):
        out = [self.head.header_bytes]
        for image in self.images:
            out.append(out[-1] + len(image))
        return out

    def places(self):
        out = []
        for block, offset, starts in zip(self.blocks, self.offsets(), self.starts):
            if block.kind in (RECORDS, FIRST):
                out += [offset + start for start in starts]
        return out

    def ranks(self):
        """Numbers, by rank."""
        return sorted(range(len(self.keys)), key=lambda number: name_order(self.keys[number]))

    def index(self):
        if self.images is None:
            self.lay()
        n = len(self.keys)
        rows, first = b"", 0
        for b, (block, image) in enumerate(zip(self.blocks, self.images)):
            low, high = xxh3_128(bytes(image))
            row = dict(first_record=first, slots=len(block.slots), slots_offset=self.starts[b][0],
                       crc32c=crc32c(bytes(image)),
                       kind=block.kind, low=low, high=high)
            row.update(self.rows.get(b, {}))
            rows += struct.pack("<QIIIB3sQQQ", row["first_record"], row["slots"], row["slots_offset"], row["crc32c"],
                                row["kind"],
                                bytes([self.unused & 255] * 3), row["low"], row["high"], self.unused)
            if block.kind in (RECORDS, FIRST):
                first += len(block.slots)
        numbers = self.ranks()
        names = [self.keys[number] for number in numbers]
        pages, ends = b"", []
        for at in range(0, n, 32):
            pages += b"\0" + page(names[at : at + 32])
            ends.append(len(pages))
        sums, total = [], 0
        for size in self.sizes:
            total += size
            sums.append(total)
        plain = all(block.kind in (RECORDS,
                                   DICTIONARY) and all(s.codec == STORED for s in block.slots) for block in self.blocks)
        stored_bytes = sum(len(s.stored) for block in self.blocks if block.kind != DICTIONARY for s in block.slots)
        plain = plain and self.head.align == 1
        offsets = self.offsets()
        s = {1: struct.pack("<%dQ" % len(offsets), *offsets), 2: rows, 3: elias_fano(self.places())}
        if not plain:
            s[4] = elias_fano(sums)
        s[5], s[6] = pages, elias_fano(ends)
        s[8], s[9] = key_table([xxh3_64(key) for key in self.keys])
        if self.head.order == INPUT:
            width = max(n - 1, 0).bit_length()
            inverse = [0] * n
            for rank, number in enumerate(numbers):
                inverse[number] = rank
            s[10], s[11] = packed(numbers, width), packed(inverse, width)
        if self.head.grouping:
            s[12] = bit_vector([int(r == 0 or stem(names[r]) != stem(names[r - 1])) for r in range(n)])
            s[13] = bit_vector([int(i == 0 or self.samples[i] != self.samples[i - 1]) for i in range(n)])
        s[14] = self.head.image()
        if self.dictionary is not None:
            s[15] = self.dictionary
        self.sections = s
        self.counts = dict(records=n, samples=len(set(self.samples)), blocks=len(self.blocks), raw_bytes=total,
                           stored_bytes=stored_bytes, key_bytes=sum(map(len, self.keys)))
        return self

    def footer(self):
        ids = sorted(i for i in self.sections if i not in self.drop)
        if self.doubled:
            ids = sorted(ids + [self.doubled])
        end = 64 + 32 * len(ids)
        rows, body = b"", b""
        for i, name in enumerate(ids):
            data = bytes(self.sections[name])
            offset = -(-end // 64) * 64
            body += bytes(offset - end) + data
            end = offset + len(data)
            row = dict(id=name, offset=offset, size=len(data))
            row.update(self.section_rows.get(name, {}))
            rows += struct.pack("<IIQQQ", row["id"], self.unused & 0xFFFFFFFF, row["offset"], row["size"], self.unused)
        c = self.counts
        head = struct.pack("<IIQQQQQQQ", c.get("sections", len(ids)), self.unused & 0xFFFFFFFF, c["records"],
                           c["samples"],
                           c["blocks"], c["raw_bytes"], c["stored_bytes"], c["key_bytes"], self.unused)
        return head + rows + body + bytes(-end % 64)

    def seal(self):
        if self.sections is None:
            self.index()
        gap = bytes(self.head.header_bytes - 128) if self.header_gap is None else self.header_gap
        body = self.head.image() + gap + b"".join(bytes(i) for i in self.images)
        body += bytes(-len(body) % 4096) + bytes(self.footer_slack)
        return body + self.sealed_footer(len(body), self.footer()) + self.behind

    def sealed_footer(self, offset, footer):
        low, high = xxh3_128(footer)
        t = dict(offset=offset, bytes=len(footer), container=offset + len(footer) + 64, low=low, high=high,
                 crc=crc32c(footer),
                 version=1, reserved=0, flip=0, magic=b"SMLTAIL\n")
        t.update(self.tail_fields)
        tail = struct.pack("<QQQQQIII", t["offset"], t["bytes"], t["container"], t["low"], t["high"], t["crc"],
                           t["version"],
                           t["reserved"])
        return footer + tail + struct.pack("<I", crc32c(tail) ^ t["flip"]) + t["magic"]


def hash_hex(data):
    low, high = xxh3_128(data)
    return "%016x%016x" % (high, low)


# --- what is in a container, as far as that needs no decompression


class Layout:
    def __init__(self, data):
        self.header = Header.read(data)
        (self.footer_offset, self.footer_bytes, self.container_bytes, self.low, self.high,
         self.crc) = struct.unpack_from(
            "<QQQQQI", data, len(data) - 64)
        footer = data[self.footer_offset : self.footer_offset + self.footer_bytes]
        self.footer_crc32c = crc32c(footer)
        self.id = hash_hex(footer)
        fields = struct.unpack_from("<IIQQQQQQQ", footer)
        self.counts = dict(zip(("records", "samples", "blocks", "raw_bytes", "stored_bytes", "key_bytes"),
                               fields[2:8]))
        self.sections = {}
        for i in range(fields[0]):
            name, _, offset, size, _ = struct.unpack_from("<IIQQQ", footer, 64 + 32 * i)
            self.sections[name] = footer[offset : offset + size]
        self.blocks = []
        at = self.header.header_bytes
        while data[at : at + 4] == b"SMLB":
            number, first, size, slots_offset, slots = struct.unpack_from("<QQIII", data, at + 8)
            image = data[at : at + size]
            assert number == len(self.blocks)
            self.blocks.append(dict(offset=at, size=size, kind=data[at + 45], first_record=first, slots=slots,
                                    slots_offset=slots_offset, crc32c="%08x" % crc32c(image),
                                    xxh3_128=hash_hex(image)))
            at += size
        places = read_elias_fano(self.sections[3])
        self.stored_bytes = 0
        for block in self.blocks:
            if block["kind"] == DICTIONARY:
                continue
            starts = places[block["first_record"] : block["first_record"] + block["slots"]]
            if block["kind"] == FURTHER:
                starts = [block["offset"] + block["slots_offset"]]
            for begin, end in zip(starts, starts[1:] + [block["offset"] + block["size"]]):
                self.stored_bytes += end - begin - 16 - struct.unpack_from("<H", data, begin + 6)[0]


# --- framed streams


def frame(key, payload, number=NO_NUMBER, record_bytes=None, kind=1, flags=0, key_bytes=None, payload_bytes=None,
          flip=0,
          payload_flip=0):
    head = struct.pack("<BBHIIQQ", kind, flags, len(key) if key_bytes is None else key_bytes,
                       len(payload) if payload_bytes is None else payload_bytes, crc32c(payload) ^ payload_flip,
                       number,
                       len(payload) if record_bytes is None else record_bytes)
    return struct.pack("<I", crc32c(head + key) ^ flip) + head + key + payload


def end_frame(records, size, **fields):
    return frame(b"", b"", records, size, 3, **fields)


def stream(records):
    """A whole stream of (key, content)."""
    frames = [frame(key, content, number) for number, (key, content) in enumerate(records)]
    return FRAMES_MAGIC + b"".join(frames) + end_frame(len(records), sum(len(content) for _, content in records))
