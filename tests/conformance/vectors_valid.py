"""The valid vectors of format-spec/vectors/: what is packed, and what a reader must find, worked out from that."""

import base64
import hashlib
import json
import os
import struct
import subprocess
import tempfile

import sml_forge as forge
import sml_order
from sml_forge import RANDOM
from sml_hash import crc32c, xxh3_64

SEED_MAX = 2**64 - 1
ORDER_NAMES = ["input", "name", "random"]
KINDS = ["records", "first piece", "further piece", "dictionary"]


# --- contents: bytes that any language can make again


def noise(label, size):
    """Bytes without structure: SHAKE128 of a label."""
    return hashlib.shake_128(label.encode()).digest(size)


def prose(label, size):
    """Text that a dictionary helps with."""
    words = b"block record stem sample lane order epoch seed key slot piece tail footer header rank number".split()
    picks = noise(label, size)
    text = b'{"label": "' + label.encode() + b'", "words": "'
    text += b" ".join(words[pick % len(words)] for pick in picks)
    return text[: size - 2] + b'"}'


def text(i, size):
    return (b"%d bytes of record %d. " % (size, i) * (size // 20 + 1))[:size]


# --- packing


def pack(records, *options):
    """What sml makes of these records, in this order."""
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "in.frames"), "wb") as out:
            out.write(forge.stream(records))
        subprocess.run([os.environ["SML"], "pack", "--frames", "in.frames", "-q", "-o", "out/", "--name", "v",
                        *options],
                       cwd=directory, check=True, stdout=subprocess.DEVNULL)
        (name,) = (n for n in os.listdir(os.path.join(directory, "out")) if n.endswith(".sml"))
        with open(os.path.join(directory, "out", name), "rb") as packed:
            return packed.read()


class Valid:
    def __init__(self, name, about, records, options=(), orders=(), forged=None, absent=(), same_as_forged=False):
        self.name, self.about, self.records, self.options = name, about, records, list(options)
        self.orders, self.forged, self.absent, self.same_as_forged = orders, forged, list(absent), same_as_forged

    def option(self, name, default):
        return self.options[self.options.index(name) + 1] if name in self.options else default

    def build(self):
        if self.forged:
            return self.forged()
        data = pack(self.records, *self.options)
        if self.same_as_forged:
            head = forge.Header.read(data)
            fields = {name: getattr(head, name) for name in ("order", "grouping", "seed", "block_bytes", "align", "tag")}
            again = forge.Container(self.records, **fields).seal()
            assert again == data, self.name + ": sml and the documents, in Python, make different bytes"
        return data


# --- twins


def shown(data):
    """A string, where these bytes are one line of UTF-8; else an object that tells the encoding."""
    try:
        if data.decode().isprintable():
            return data.decode()
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(data).decode()}


def shown_content(content):
    if len(content) > 64:
        return {"sha256": hashlib.sha256(content).hexdigest(), "xxh3_128": forge.hash_hex(content)}
    return shown(content)


def digest(numbers):
    return forge.hash_hex(struct.pack("<%dQ" % len(numbers), *numbers))


def twin(vector, data):
    layout = forge.Layout(data)
    head = layout.header
    records = vector.records
    if head.parts:
        records = [r for r in records if xxh3_64(forge.stem(r[0])) % head.parts == head.part - 1]
    keys = [key for key, _ in records]
    order, samples = forge.pack_order(keys, head.order, head.grouping, head.seed)
    by_rank = sorted(range(len(keys)), key=lambda i: forge.name_order(keys[i]))
    rank = {i: r for r, i in enumerate(by_rank)}
    n = len(records)
    wanted = {"--order": ORDER_NAMES[head.order], "--seed": str(head.seed), "--align": str(head.align),
              "--group-by": ["none", "stem"][head.grouping]}
    for name, value in wanted.items():  # the header says what was asked for
        assert vector.forged or vector.option(name, value) == value, (vector.name, name)
    counts = dict(records=n, samples=len(set(samples)), blocks=len(layout.blocks),
                  raw_bytes=sum(len(content) for _, content in records), stored_bytes=layout.stored_bytes,
                  key_bytes=sum(map(len, keys)))
    assert counts == layout.counts, (vector.name, counts, layout.counts)
    assert (layout.low, layout.high) == forge.xxh3_128(data[layout.footer_offset : len(data) - 64])
    assert layout.crc == layout.footer_crc32c and layout.container_bytes == len(data)

    rows = []
    for number, i in enumerate(order):
        block = max(b for b, row in enumerate(layout.blocks) if row["first_record"] <= number and row["kind"] in (0,
                                                                                                                  1))
        rows.append([number, rank[i], samples[number], block, shown(keys[i]), len(records[i][1]),
                     shown_content(records[i][1])])

    # The blocks in which samples start, with how many.
    starts = [number for number in range(n) if number == 0 or samples[number] != samples[number - 1]]
    in_block = {}
    for sample, number in enumerate(starts):
        block = rows[number][3]
        first, count = in_block.get(block, (sample, 0))
        in_block[block] = (first, count + 1)
    blocks = [in_block[block] for block in sorted(in_block)]
    orders = []
    for seed, epoch, mode, lanes in vector.orders:
        if mode == "full":
            result = sml_order.full_order(list(range(len(starts))), seed, epoch)
        else:
            result = sml_order.block_order(blocks, seed, epoch, lanes)
        orders.append({"seed": seed, "epoch": epoch, "mode": mode, "lanes": lanes, "first": result[:64],
                       "digest": digest(result)})

    command = "sml pack --frames INPUT -o DIR/ " + " ".join(vector.options)
    document = {
        "about": vector.about,
        "made_by": "scripts/make-vectors" if vector.forged else command,
        "container_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "id": layout.id,
        "header": {"version": head.version, "header_bytes": head.header_bytes,
                   "incompatible_features": head.incompatible,
                   "compatible_features": head.compatible, "seed": head.seed, "block_bytes": head.block_bytes,
                   "piece_bytes": head.piece_bytes, "align": head.align, "part": head.part, "parts": head.parts,
                   "order": ORDER_NAMES[head.order], "grouping": ["none", "stem"][head.grouping],
                   "tag": "%08x" % head.tag},
        "footer": {"offset": layout.footer_offset, "bytes": layout.footer_bytes,
                   "crc32c": "%08x" % layout.footer_crc32c,
                   "sections": sorted(layout.sections)},
        "counts": counts,
        "dictionary": None,
        "blocks": [dict(row, kind=KINDS[row["kind"]]) for row in layout.blocks],
        "columns": ["number", "rank", "sample", "block", "key", "size", "content"],
        "records": rows,
        "absent": [shown(key) for key in absent_keys(vector, keys)],
        "orders": orders,
    }
    if 15 in layout.sections:
        document["dictionary"] = {"size": len(layout.sections[15]), "xxh3_128": forge.hash_hex(layout.sections[15])}
    return document


def absent_keys(vector, keys):
    """Keys that must not be found: near misses, and ones that only the names tell from those that are there."""
    found = [b"missing", *vector.absent]
    if keys:
        some = keys[len(keys) // 2]
        found += [some[:-1], some[: -1 if len(some) > 4095 else None] + b"x", some.swapcase()]
        hashes = {xxh3_64(key) for key in keys[:64]}
        for i in range(1500):
            key = b"absent/%d" % i
            h = xxh3_64(key)
            if any(forge.same_fingerprint(h, other, len(keys)) for other in hashes):
                found.append(key)
                break
    out = []
    for key in found:
        if key and key not in keys and key not in out:
            out.append(key)
    return out


def dump(document):
    """JSON with one row of a list per line."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            body = "[\n" + ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value) + "\n ]"
        else:
            body = json.dumps(value, ensure_ascii=False)
        lines.append(" %s: %s" % (json.dumps(name), body))
    return "{\n" + ",\n".join(lines) + "\n}\n"


# --- the vectors


def few():
    return [(b"readme", b"five records"), (b"b/2.txt", b"two"), (b"b/10.txt", b"ten"), (b"a.bin", bytes(range(40))),
            (b"c", b"")]


NAMES = [b".x.png", b"a", b"a.jpg", b"a.seg.png", b"a-b.jpg", b"a/001.cls", b"a/001.jpg", b"a/001-x.jpg",
         b"a/0010.jpg", b"a0",
         b"b.c/d", b".hidden", b"a.b/..c.d", b"..", b"a/...", b"a.", b"a..b", b"dir.d/x", b"a.b/c", b"a.b/c.d", b"a!",
         b"a.-",
         b"a//b", b"a/./b", b"A.JPG"]


def numbered(n, form=b"k%04d", size=lambda i: i % 5):
    return [(form % i, text(i, size(i))) for i in range(n)]


def pictures(n, at=0):
    """Samples of 1 to 3 records, as of images with labels, in the order of nothing."""
    out = []
    for i in range(n):
        name = b"train/%03d/%05d" % (i * 7 % 10, (i * 37 + at) % (2 * n + 1))
        out.append((name + b".jpg", text(i, i % 6)))
        if i % 2 == 0:
            out.append((name + b".cls", b"%d" % (i % 10)))
        if i % 5 == 0:
            out.append((name + b".seg.png", text(i, i % 3)))
    # Neither by name nor sample by sample.
    return [out[(i * 89 + 5) % len(out)] for i in range(len(out))] if len(out) % 89 else out


def forged(records, change=None, **fields):
    def build():
        container = forge.Container(records, **fields)
        if change:
            change(container)
        return container.seal()

    return build


def mix_codecs(content):
    """Every third content as a zstd frame of stored blocks or of a run; frames need no compressor to be made."""
    if len(content) % 3 == 0 and content:
        return forge.zstd(content), len(content), forge.ZSTD
    return content, len(content), forge.STORED


DICTIONARY = noise("dictionary", 300)


def with_dictionary(content):
    if content[:4] == b"dict":
        return forge.zstd(content), len(content), forge.ZSTD_DICTIONARY
    return mix_codecs(content)


def unknown_section(container):
    container.index()
    container.sections[0] = b"sections may have any number, 0 too"
    container.sections[16] = b"a section of a later version"
    container.sections[4000000000] = b""


def long_varints(container):
    slots = container.blocks[0].slots
    numbers = [len(slot.key) for slot in slots] + [16 + len(slot.stored) for slot in slots]
    table = b"".join(forge.varint(number, 1 + i) for i, number in enumerate(numbers))
    container.blocks[0].table = table + b"".join(slot.key for slot in slots)
    container.index()
    container.sections[5] = b"\0" + forge.page(container.keys, 3)
    container.sections[6] = forge.elias_fano([len(container.sections[5])])


def compressed_names(container):
    container.index()
    names = forge.page(container.keys)
    container.sections[5] = b"\1" + struct.pack("<H", len(names)) + forge.zstd(names)
    container.sections[6] = forge.elias_fano([len(container.sections[5])])


ORDERS = ((0, 0, "full", 1), (0, 0, "block", 64), (1, 2, "block", 1), (1, 2, "block", 3), (SEED_MAX, 7, "block", 64),
          (SEED_MAX, SEED_MAX, "full", 1))
SMALL = ("--block-size", "64K", "--compress", "none")


def vectors():
    yield Valid("empty", "No record: header, footer, tail.", [], ["--order", "name"], ORDERS[:2], same_as_forged=True)
    yield Valid("one-record", "One stored record: a block, a slot, a name, the key table.", [(b"a.txt", b"hello\n")],
                ["--order", "name", "--compress", "none"], ORDERS[:2], same_as_forged=True)
    yield Valid("several-records", "Five stored records in one block, one of them empty.", few(),
                ["--order", "name", *SMALL], ORDERS, same_as_forged=True)
    yield Valid("name-order", "Name order: stems first, then keys; bytes above all.", NAMES_FORGED,
                (), ORDERS[:2], forged=forged(NAMES_FORGED, block_bytes=65536))
    yield Valid("name-pages", "100 keys: four name pages; a compressed record table.",
                numbered(100, b"some/folder/%03d.txt"),
                ["--order", "name", *SMALL], ORDERS[:2],
                absent=[b"some/folder/100.txt", b"some/folder/", b"some/folder/001"])
    yield Valid("several-blocks", "24 stored records in two blocks of 64 KiB.",
                [(b"%02d" % i, noise("block %d" % i, 3000 + 97 * i)) for i in range(24)], ["--order", "name", *SMALL],
                ORDERS)
    yield Valid("blocks-cut-elsewhere",
                "Blocks of at most three records: a reader does not depend on where blocks are cut.",
                numbered(50), (), ORDERS, forged=forged(numbered(50), cut=3))
    yield Valid("zstd", "Compressed records (codec 1) among stored ones; raw sizes (section 4).",
                [(b"z/%02d" % i, prose("zstd %d" % i, 30 + 60 * i) if i % 4 else noise("zstd %d" % i,
                                                                                       50 * i)) for i in range(20)],
                ["--order", "name", "--block-size", "64K", "--compress", "zstd"], ORDERS[:1])
    yield Valid("zstd-by-hand",
                "Frames that no compressor would make: of stored blocks, of runs, of 1 to 70,000 bytes.",
                BY_HAND, (), ORDERS[:1], forged=forged(BY_HAND, encode=mix_codecs, block_bytes=1 << 18))
    yield Valid("dictionary", "A trained dictionary, in block 0 and in section 15; records of codec 2.",
                [(b"d/%03d.json" % i, prose("dictionary %d" % i, 470 + i % 60)) for i in range(280)],
                ["--order", "name", "--block-size", "64K", "--compress", "zstd"], ORDERS[:3])
    yield Valid("dictionary-by-hand", "A dictionary of 300 bytes without zstd's magic; records of codecs 0, 1 and 2.",
                DICTIONARY_RECORDS, (), ORDERS[:1],
                forged=forged(DICTIONARY_RECORDS, dictionary=DICTIONARY, encode=with_dictionary, cut=2))
    yield Valid("spanning", "A stored record of two pieces between small ones.",
                [(b"a", b"before"), (b"big", noise("spanning", 57341 + 1000)), (b"c", b"behind")],
                ["--order", "name", *SMALL],
                ORDERS[:3])
    yield Valid("spanning-zstd",
                "Records of pieces that are compressed, one of exactly two pieces, one of a piece and a byte, and "
                "one of just a piece, which is not cut.",
                [(b"1", text(1, 57341)), (b"2", text(2, 57341 * 2)), (b"3", b"small"), (b"4", text(4, 57341 + 1)),
                 (b"5", text(5, 200000))], ["--order", "name", "--block-size", "64K", "--compress", "zstd"],
                ORDERS[:3])
    yield Valid("small-pieces", "Pieces of 100 bytes, some compressed: piece_bytes is what the header says.", PIECES,
                (), ORDERS,
                forged=forged(PIECES, piece_bytes=100, encode=mix_codecs))
    yield Valid("samples", "Grouping by stem, in name order: sample bounds (sections 12 and 13).", pictures(40),
                ["--order", "name", "--group-by", "stem", *SMALL], ORDERS)
    yield Valid("samples-across-blocks", "Samples that begin in one block and end in another, or fill several.",
                pictures(30), (),
                ORDERS, forged=forged(pictures(30), grouping=1, cut=2))
    yield Valid("input-order", "Records as they came: ranks and numbers (sections 10 and 11).",
                [(b"%c/%d" % (97 + i * 5 % 7, i * 11 % 40), text(i, i)) for i in range(40)],
                ["--order", "input", *SMALL], ORDERS)
    yield Valid("input-order-samples", "Samples in the order of their first records, records within as they came.",
                pictures(33),
                ["--order", "input", "--group-by", "stem", *SMALL], ORDERS)
    yield Valid("random-10", "Random order, ten records: numbers computed from ranks.", numbered(10),
                ["--order", "random", *SMALL], ORDERS)
    yield Valid("random-64", "64 records: the largest table.", numbered(64),
                ["--order", "random", "--seed", "42", *SMALL], ORDERS)
    yield Valid("random-65", "65 records: the first that take rounds.", numbered(65),
                ["--order", "random", "--seed", str(SEED_MAX), *SMALL], ORDERS)
    yield Valid("random-1000", "1000 records, 12 rounds; cycle walking.", numbered(1000, size=lambda i: i % 3),
                ["--order", "random", "--seed", "7", *SMALL], ORDERS[:3])
    yield Valid("random-4097", "4097 records, 8 rounds; name pages with their own dictionary (section 7).",
                numbered(4097, size=lambda i: i % 2), ["--order", "random", "--seed", "1", *SMALL], ORDERS[:3])
    yield Valid("random-samples", "Random order of samples, few.", pictures(12),
                ["--order", "random", "--seed", "3", "--group-by", "stem", *SMALL], ORDERS)
    yield Valid("random-samples-rounds", "Random order of 300 samples: 12 rounds over samples.", pictures(300),
                ["--order", "random", "--seed", "4", "--group-by", "stem", *SMALL], ORDERS[:3])
    yield Valid("random-samples-4200", "Random order of 4200 samples of 4216 records: 8 rounds.",
                [(b"s%04d.%c" % (i, c), b"") for i in range(4200) for c in (b"ab" if i % 263 == 0 else b"a")],
                ["--order", "random", "--seed", "5", "--group-by", "stem", *SMALL], ORDERS[:3])
    yield Valid("align-64", "Stored bytes at multiples of 64.", few(), ["--order", "name", "--align", "64", *SMALL],
                ORDERS[:1],
                same_as_forged=True)
    yield Valid("align-4096", "Stored bytes at multiples of 4096, in three blocks, with a record of two pieces.",
                [(b"a", b"first"), (b"b", text(2, 65536)), (b"c", b""), (b"d", text(4, 4096))],
                ["--order", "input", "--align", "4096", "--block-size", "64K", "--compress", "zstd"], ORDERS[:1])
    yield Valid("part", "Part 2 of 3: the samples whose stems' hashes are 1 modulo 3.", pictures(40),
                ["--order", "random", "--seed", "9", "--group-by", "stem", "--part", "2/3", *SMALL], ORDERS[:3])
    yield Valid("part-without-records", "Part 1 of 65536, which no record belongs to.", [(b"a", b"a")],
                ["--order", "random", "--part", "1/65536", *SMALL], ORDERS[:1])
    yield Valid("odd-keys", "Keys are bytes: line ends, quotes, no UTF-8, dots and slashes anywhere, 1 to 255.", ODD,
                (), ORDERS[:1],
                forged=forged(ODD, order=RANDOM, grouping=1))
    yield Valid("long-keys", "Keys of 4096 bytes, which differ at their ends: two blocks, a name page above 64 KiB.",
                LONG,
                ["--order", "random", *SMALL], ORDERS[:1])
    yield Valid("empty-records", "Records of no bytes only.", numbered(40, b"e%d", lambda i: 0),
                ["--order", "name", *SMALL],
                ORDERS[:1])
    yield Valid("long-varints", "Varints of up to ten bytes, though fewer would do, in record table and name page.",
                few(), (),
                ORDERS[:1], forged=forged(few(), long_varints))
    yield Valid("name-page-zstd", "A name page of codec 1.", few(), (), ORDERS[:1],
                forged=forged(few(), compressed_names))
    yield Valid("compatible-feature", "Unknown compatible features, which a reader ignores.", few(), (), ORDERS[:1],
                forged=forged(few(), compatible=1 << 63 | 1))
    yield Valid("unknown-sections", "Sections 0, 16 and 4000000000, which a reader ignores.", few(), (), ORDERS[:1],
                forged=forged(few(), unknown_section))
    yield Valid("unused-fields", "The fields of the footer that are unused are not zero; a reader ignores them.",
                few(), (),
                ORDERS[:1], forged=forged(few(), lambda c: setattr(c, "unused", 0xA5A5A5A5A5A5A5A5)))


NAMES_FORGED = [(key, key[::-1]) for key in NAMES]
BY_HAND = [(b"%05d" % size, (b"r" * size) if size % 2 else noise("by hand %d" % size, size))
           for size in (0, 1, 2, 3, 6, 9, 63, 255, 256, 258, 300, 3000, 65535, 69999)]
DICTIONARY_RECORDS = [(b"%d" % i, b"dict" + text(i, i) if i % 2 else text(i, i)) for i in range(9)]
PIECES = [(b"%03d" % size, text(size, size)) for size in (0, 1, 99, 100, 101, 150, 199, 200, 201, 297, 300, 777)]
ODD = [(key, b"%d" % i) for i, key in enumerate(
    [b"\n", b"\\", b"'\"`", b" ", b"-rf", b"/", b"//", b"///x", b"./a", b"../a", b"a/", b"a/.b.", b"\xff",
     b"\xff\xfe.x", b"\x01",
     "\u00e9.txt".encode(), "e\u0301.txt".encode(), b"tab\there", b"CON", b"a\r\nb", b"*?[", b"$(x)",
     bytes(range(1, 256)), b".",
     b"...", b"....x", b"\x80", b"a\xc3", b"a\xc3.b", b"k" * 255, b"%s%n"])]
LONG = [(b"x/" + b"long" * 1023 + b"%02d" % i, b"%d" % i) for i in range(18)]


# --- a million names: not checked in, made when needed

MILLION = {
    "about": "A million names. The container is not checked in: it is made from the rule, and must have this identity.",
    "rule": "record i, from 0 to 999999: key train/n%08d/n%08d_%d.JPEG of (i * 7919 mod 1000, the same, i), content i "
            "as 8 bytes little-endian; as a framed stream in this order, numbers i",
}
MILLION_OPTIONS = ["--order", "random", "--seed", "12345", "--compress", "none"]


def million_key(i):
    folder = i * 7919 % 1000
    return b"train/n%08d/n%08d_%d.JPEG" % (folder, folder, i)


def million_stream(out, count=1000000):
    out.write(forge.FRAMES_MAGIC)
    write, pack_head, crc = out.write, struct.Struct("<BBHIIQQ").pack, crc32c
    for i in range(count):
        key, content = million_key(i), i.to_bytes(8, "little")
        head = pack_head(1, 0, len(key), 8, crc(content), i, 8) + key
        write(crc(head).to_bytes(4, "little") + head + content)
    out.write(forge.end_frame(count, 8 * count))
