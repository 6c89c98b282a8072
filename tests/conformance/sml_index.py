"""Header, footer and tail of a container in plain Python, written from format-spec/ alone."""

import struct

import sml_order
from sml_hash import crc32c, xxh3_64, xxh3_128
from sml_parts import bit_vector, check, check_key, elias_fano, packed, stem, unpack, up, varints, zstd


class Index:
    """`data`: a container, as bytes or a mapped file. Everything but the blocks is checked when it is made."""

    def __init__(self, data):
        self.data = data
        self.header = h = self._read_header(data)
        self._read_footer()
        self._read_blocks()
        self._read_names()
        self._read_numbers()
        self._read_samples()
        self._read_places()
        self._read_key_table()

    def section(self, number):
        check(number in self.sections, f"no section {number}")
        return self.sections[number]

    @staticmethod
    def _read_header(data):
        check(data[:8] == b"\x89SML\r\n\x1a\n" and len(data) >= 128, "not a container")
        check(len(data) >= 192, "shorter than header and tail", "truncated")
        names = "magic version header_bytes incompatible compatible seed block_bytes piece_bytes align part parts"
        h = unpack("8sIIQQQIIIIIBB58sII", names + " order grouping reserved tag crc32c", data)
        check(h.version <= 1, f"version {h.version}", "unsupported")
        check(h.crc32c == crc32c(data[:124]), "header: crc32c")
        check(h.version == 1, "version 0")
        check(h.incompatible == 0, f"features {h.incompatible:#x}", "unsupported")
        check(h.align in (1 << i for i in range(13)), f"align {h.align}")
        check(h.header_bytes == up(128, h.align), f"header_bytes {h.header_bytes}")
        check(65536 <= h.block_bytes <= 67108864, f"block_bytes {h.block_bytes}")
        check(1 <= h.piece_bytes <= h.block_bytes - 8192 - 3 * h.align, f"piece_bytes {h.piece_bytes}")
        check(h.part <= h.parts <= 65536 and (h.part == 0) == (h.parts == 0), f"part {h.part} of {h.parts}")
        check(h.order <= 2 and h.grouping <= 1, f"order {h.order}, grouping {h.grouping}")
        check(h.reserved == bytes(58), "header: reserved bytes")
        return h

    def _read_footer(self):
        data, size = self.data, len(self.data)
        check(data[size - 8 :] == b"SMLTAIL\n", "no tail: cut short, or never sealed", "truncated")
        names = "footer_offset footer_bytes container_bytes low high footer_crc32c version reserved crc32c"
        self.tail = t = unpack("QQQQQIIII", names, data, size - 64)
        check(t.version <= 1, f"tail: version {t.version}", "unsupported")
        check(t.crc32c == crc32c(data[size - 64 : size - 12]), "tail: crc32c")
        check(t.version == 1 and t.reserved == 0, "tail: version, reserved")
        check(t.container_bytes == size, f"{size} bytes where {t.container_bytes} belong")
        check(t.footer_offset % 4096 == 0 and t.footer_offset >= self.header.header_bytes, "footer_offset")
        check(t.footer_bytes % 64 == 0 and t.footer_offset + t.footer_bytes == size - 64, "footer_bytes")
        footer = data[t.footer_offset : size - 64]
        check((t.low, t.high) == xxh3_128(footer), "footer: id")
        self.id = f"{t.high:016x}{t.low:016x}"
        check(len(footer) >= 64, "footer: no header")
        names = "sections unused records samples blocks raw_bytes stored_bytes key_bytes unused_too"
        self.footer = f = unpack("IIQQQQQQQ", names, footer)
        check(f.sections <= 1024 and 64 + 32 * f.sections <= len(footer), "footer: section rows")
        check(f.records < 1 << 32 and f.samples <= f.records, "footer: records, samples")
        check((f.samples == 0) == (f.records == 0), "footer: no samples")
        check(self.header.grouping or f.samples == f.records, "footer: samples without grouping")
        self.n, self.sections, end = f.records, {}, 64 + 32 * f.sections
        self.gaps = b""  # what lies between sections
        self.width = (self.n - 1).bit_length() if self.n else 0  # of a number, in bits
        for i in range(f.sections):
            row = unpack("IIQQQ", "id unused offset size unused_too", footer, 64 + 32 * i)
            check(row.id not in self.sections, f"section {row.id}: there twice")
            check(row.offset % 64 == 0 and end <= row.offset, f"section {row.id}: offset")
            check(row.offset + row.size <= len(footer), f"section {row.id}: beyond the footer")
            self.gaps += footer[end : row.offset]
            end = row.offset + row.size
            self.sections[row.id] = footer[row.offset : end]
        self.gaps += footer[end:]
        check(self.section(14) == data[:128], "section 14 and header differ")

    def _read_blocks(self):
        b, first_record, before = self.footer.blocks, 0, None
        check(len(self.section(1)) == 8 * (b + 1) and len(self.section(2)) == 48 * b, "footer: blocks")
        starts = struct.unpack("<%dQ" % (b + 1), self.section(1))
        check(starts[0] == self.header.header_bytes, "block offsets: start")
        check(0 <= self.tail.footer_offset - starts[b] < 4096, "block offsets: end")
        self.rows = []
        for i in range(b):
            names = "first_record slots slots_offset crc32c kind unused low high unused_too"
            row = unpack("QIIIB3sQQQ", names, self.section(2), 48 * i)
            row.start, row.end = starts[i], starts[i + 1]
            check(0 < row.end - row.start <= self.header.block_bytes, f"block {i}: size")
            check(row.kind <= 3 and (row.kind != 3 or i == 0), f"block {i}: kind")
            check(row.kind != 2 or before in (1, 2), f"block {i}: a further piece without a first")
            check(row.first_record == first_record, f"block {i}: first_record")
            first_record, before = first_record + (row.slots if row.kind in (0, 1) else 0), row.kind
            self.rows.append(row)
        check(first_record == self.n, "block rows: records")
        check((15 in self.sections) == (b > 0 and self.rows[0].kind == 3), "section 15 without block, or block without")
        self.dictionary = self.sections.get(15)
        check(self.dictionary is None or 1 <= len(self.dictionary) <= 1048576, "section 15: size")
        self.blocks = [i for i, row in enumerate(self.rows) if row.kind in (0, 1) for _ in range(row.slots)]

    def _read_names(self):
        """self.names: the keys by rank."""
        pages, self.names, start = self.section(5), [], 0
        ends = elias_fano(self.section(6), up(self.n, 32) // 32)
        check((ends or [0])[-1] == len(pages), "name pages: end")
        for end in ends:
            check(start < end <= len(pages), "a name page outside its section")
            codec, page, keys = pages[start], pages[start + 1 : end], [b""]
            check(codec in (0, 1, 2) and (codec == 0 or len(page) >= 2), "a name page's codec")
            if codec:
                page = zstd(page[2:], int.from_bytes(page[:2], "little"), self.section(7) if codec == 2 else None)
            k = min(32, self.n - len(self.names))
            sizes, at = varints(page, 0, 3 * k)
            for prefix, suffix, middle in zip(sizes[:k], sizes[k : 2 * k], sizes[2 * k :]):
                last = keys[-1]
                check(prefix + suffix <= len(last) and at + middle <= len(page), "a name page's sizes")
                keys.append(last[:prefix] + page[at : at + middle] + last[len(last) - suffix :])
                check_key(keys[-1])
                at += middle
            check(at == len(page), "a name page with bytes at its end")
            self.names, start = self.names + keys[1:], end
        order = [(stem(key), key) for key in self.names]
        check(all(a < b for a, b in zip(order, order[1:])), "names out of order")

    def _read_numbers(self):
        """self.ranks: the rank of each number; self.numbers: the number of each rank."""
        n, identity = self.n, list(range(self.n))
        check((10 in self.sections) == (11 in self.sections) == (self.header.order == 0), "sections 10 and 11")
        if self.header.order == 0:
            self.numbers, self.ranks = (packed(self.section(i), n, self.width) for i in (10, 11))
        elif self.header.order == 1:
            self.numbers = self.ranks = identity
        else:
            samples = []
            for rank, starts in enumerate(self._bounds(12)):
                samples += [[rank]] if starts else []
                samples[-1] += [] if starts else [rank]
            p = sml_order.Permutation(len(samples), sml_order.PACK, self.header.seed)
            self.ranks = [rank for i in range(len(samples)) for rank in samples[p.invert(i)]]
            self.numbers = [0] * n
            for number, rank in enumerate(self.ranks):
                self.numbers[rank] = number
        check(all(i < n for i in self.numbers + self.ranks), "a number or rank beyond the records")
        check([self.ranks[number] for number in self.numbers] == identity, "ranks and numbers contradict each other")

    def _bounds(self, section):
        check((section in self.sections) == (self.header.grouping == 1), f"section {section} without grouping, or not")
        return bit_vector(self.section(section), self.n) if self.header.grouping else [1] * self.n

    def _read_samples(self):
        """self.starts: the number of each sample's first record; self.samples: the sample of each number."""
        stems = [stem(key) for key in self.names]
        for section, order in ((12, range(self.n)), (13, self.ranks)):
            starts, here = self._bounds(section), [stems[rank] for rank in order]
            check(sum(starts) == self.footer.samples and starts[:1] in ([], [1]), f"section {section}: samples")
            if self.header.grouping:
                check(starts[1:] == [int(a != b) for a, b in zip(here, here[1:])], f"section {section}: stems")
        self.starts, self.samples = [i for i, bit in enumerate(starts) if bit], []
        for bit in starts:
            self.samples.append((self.samples or [-1])[-1] + bit)

    def _read_places(self):
        """self.slots: where each record's (first) slot starts and ends; self.sizes: the sizes of the records."""
        places, self.slots = elias_fano(self.section(3), self.n), []
        for row in self.rows:
            if row.kind in (0, 1):
                inside = [*places[row.first_record : row.first_record + row.slots], row.end]
                check(inside[0] == row.start + row.slots_offset, "a first slot that is not at slots_offset")
                self.slots += zip(inside, inside[1:])
        check(all(place + 16 <= end for place, end in self.slots), "a slot outside its block")
        self.sizes = [end - place - 16 for place, end in self.slots]
        if 4 in self.sections:
            sums = elias_fano(self.section(4), self.n)
            self.sizes = [after - before for before, after in zip([0, *sums], sums)]
        check(all(size <= self.footer.raw_bytes for size in self.sizes), "a record larger than all records")
        kinds, piece_bytes = [row.kind for row in self.rows] + [0], self.header.piece_bytes
        for size, block in zip(self.sizes, self.blocks):
            pieces = 1
            while kinds[block] == 1 and kinds[block + pieces] == 2:
                pieces += 1
            check((kinds[block] == 1) == (size > piece_bytes), "a large record whole, or a small one in pieces")
            check(kinds[block] == 0 or pieces == up(size, piece_bytes) // piece_bytes, "more or fewer pieces")

    def _read_key_table(self):
        n, self.row_bytes = self.n, (self.width + 14) // 8
        check(len(self.section(8)) == 4 * (n // 16 + 2), "key buckets: size")
        self.buckets = list(struct.unpack("<%dI" % (n // 16 + 2), self.section(8)))
        check(self.buckets == sorted(self.buckets), "key buckets: bounds")
        check(self.buckets[0] == 0 and self.buckets[-1] == n, "key buckets: bounds")
        rows = self.section(9)
        check(len(rows) == n * self.row_bytes + 8, "key table: size")
        rows = [int.from_bytes(rows[i * self.row_bytes : (i + 1) * self.row_bytes], "little") for i in range(n)]
        self.key_rows = [(row & (1 << self.width) - 1, row >> self.width) for row in rows]
        check(sorted(number for number, _ in self.key_rows) == list(range(n)), "key table: not every number once")
        for start, end in zip(self.buckets, self.buckets[1:]):
            check(self.key_rows[start:end] == sorted(self.key_rows[start:end]), "key table: rows out of order")
        check(all(self.find(self.key(i)) == i for i in range(n)), "key table: a record that is not found")

    def key(self, number):
        return self.names[self.ranks[number]]

    def find(self, key):
        """The number of a key, or None; by sections 8 and 9."""
        h = xxh3_64(key)
        bucket = h * (self.n // 16 + 1) >> 64
        for number, low in self.key_rows[self.buckets[bucket] : self.buckets[bucket + 1]]:
            if low == h & (1 << 8 * self.row_bytes - self.width) - 1 and self.key(number) == key:
                return number
        return None
