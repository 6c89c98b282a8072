"""The invalid vectors of format-spec/vectors/: one thing is wrong in each, and all checksums around it are right. And
the framed streams, valid and not."""

import struct

import sml_forge as forge
from sml_forge import DICTIONARY, FIRST, FURTHER, INPUT, NAME, RANDOM, ZSTD, ZSTD_DICTIONARY
from sml_forge import Block, Container, Slot, end_frame, frame
from sml_hash import crc32c, xxh3_64
from vectors_valid import few, noise, numbered, shown, shown_content

HUGE = 2**64 - 1


class Vector:
    def __init__(self, name, about, data, expected):
        self.name, self.about, self.data, self.expected = name, about, bytes(data), expected


def patched(data, offset, new):
    """Bytes replaced; no checksum is repaired."""
    data = bytearray(data)
    data[offset : offset + len(new)] = new
    return bytes(data)


def flipped(data, offset):
    return patched(data, offset, bytes([data[offset] ^ 0x10]))


def put(section, offset, form, *values):
    """The section with fields replaced."""
    return patched(section, offset, struct.pack("<" + form, *values))


# --- containers to damage


def base(**fields):
    """Five stored records in one block, in name order: a.bin, b/10.txt, b/2.txt, c, readme."""
    return Container(few(), **fields)


def cut(**fields):
    """Six records in three blocks."""
    return Container(numbered(6, size=lambda i: 10 + i), cut=2, **fields)


def pieces(**fields):
    """a, then "big" in three pieces of 100, 100 and 50 bytes, then c."""
    return Container([(b"a", b"before"), (b"big", noise("pieces", 250)), (b"c", b"behind")], piece_bytes=100, **fields)


def compressed(content=b"0123456789", **zstd_fields):
    """One record "z" of codec 1."""
    return Container([(b"z", content)], encode=lambda raw: (forge.zstd(raw, **zstd_fields), len(raw), ZSTD))


def with_dictionary(stored=None):
    """One record "z" of codec 2, and a dictionary of 300 bytes."""
    return Container([(b"z", b"0123456789")], dictionary=noise("dictionary", 300),
                     encode=lambda raw: (stored or forge.zstd(raw), len(raw), ZSTD_DICTIONARY))


def ordered():
    """Five records in input order: sections 10 and 11 are of three bits each."""
    return Container(few(), order=INPUT)


def grouped(**fields):
    """Six records in four samples: 0, 1 to 2, 3, 4 to 5."""
    names = [b"a.x", b"b.x", b"b.y", b"c", b"d.1", b"d.2"]
    return Container([(name, name) for name in names], grouping=1, **fields)


def paged():
    """40 keys in two name pages."""
    return Container(numbered(40, b"key%02d", lambda i: 0))


def page_of(keys, columns, middles):
    """A stored name page of `keys` keys from its numbers."""
    return b"\0" + b"".join(forge.varint(v) for v in columns) + middles


def vectors():
    out = []

    def add(name, about, data, step, code, message, **more):
        if isinstance(data, Container):
            data = data.seal()
        out.append(Vector(name, about, data, {"step": step, "code": code, "message": message, **more}))

    def at_open(name, about, data, message, code="corrupt"):
        add(name, about, data, "open", code, message)

    def on_read(name, about, data, key, message, code="corrupt"):
        add(name, about, data, "read", code, message, key=key)

    def on_verify(name, about, data, message, code="corrupt"):
        add(name, about, data, "verify", code, message)

    def change(container, **attributes):
        for attribute, value in attributes.items():
            setattr(container, attribute, value)
        return container

    def counted(**counts):
        c = base().index()
        c.counts.update(counts)
        return c

    def sectioned(make, section, edit):
        c = make().index()
        c.sections[section] = edit(c.sections[section])
        return c

    def rowed(block, **fields):
        return change(cut(), rows={block: fields})

    def section_row(section, **fields):
        return change(base(), section_rows={section: fields})

    def tailed(**fields):
        return change(base(), tail_fields=fields)

    def slotted(edit, make=base, block=0, slot=0):
        c = make()
        edit(c.blocks[block].slots[slot])
        return c

    def headed(block, make=cut, **fields):
        c = make()
        c.blocks[block].fields = fields
        return c

    def tabled(table, make=cut, block=0):
        c = make()
        c.blocks[block].table = table
        return c

    good = base().seal()
    footer_at = struct.unpack_from("<Q", good, len(good) - 64)[0]
    footer_end = len(good) - 64

    # --- no container
    at_open("no-bytes", "A file of no bytes.", b"", "not a container: only 0 bytes")
    at_open("short-text", "A short text.", b"no container\n", "not a container: only 13 bytes")
    at_open("text", "A text as long as a container.",
            b"This is no container, though it is long enough to be one.\n" * 20,
            "not an SML container")
    at_open("zeros", "Zeros.", bytes(8192), "not an SML container")
    at_open("png", "PNG's first bytes.", b"\x89PNG" + good[4:], "not an SML container")
    at_open("magic-line-feeds", "A transfer turned carriage returns with line feeds into line feeds.",
            good.replace(b"\r\n", b"\n"), "text-mode transfer")
    at_open("magic-carriage-returns", "A transfer turned line feeds into carriage returns with line feeds.",
            good.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), "text-mode transfer")
    at_open("magic-seven-bits", "A transfer stripped the high bit.", patched(good, 0, b"\x09"), "text-mode transfer")
    at_open("magic-bit", "A flipped bit in the magic.", flipped(good, 6), "first bytes")
    at_open("framed-stream", "A framed record stream.", forge.stream([(b"a", bytes(200))]),
            "but a framed record stream")

    # --- cut short, or with more behind
    at_open("cut-in-magic", "Cut in the magic.", good[:5], "only 5 bytes")
    at_open("cut-in-header", "Cut in the header.", good[:100], "only 100 bytes")
    at_open("cut-behind-header", "Cut behind the header.", good[:128], "cut short", "truncated")
    at_open("cut-at-191", "A byte less than header and tail.", good[:191], "cut short", "truncated")
    at_open("cut-in-block", "Cut in a block.", good[:230], "no tail", "truncated")
    at_open("cut-in-padding", "Cut in the padding before the footer.", good[:2000], "no tail", "truncated")
    at_open("cut-before-footer", "Cut before the footer.", good[:footer_at], "no tail", "truncated")
    rows = struct.unpack_from("<I", good, footer_at)[0]
    ends = [("footer-header", 64), ("section-rows", 64 + 32 * rows)]
    for i in range(rows):
        section, _, offset, size, _ = struct.unpack_from("<IIQQQ", good, footer_at + 64 + 32 * i)
        ends.append(("section-%d" % section, offset + size))
    for name, end in ends:
        at_open("cut-behind-" + name, "Cut at the end of that part of the footer.", good[: footer_at + end], "no tail",
                "truncated")
    at_open("cut-in-footer", "Cut in the middle of the footer.", good[: footer_at + 500], "no tail", "truncated")
    at_open("cut-before-tail", "The tail is missing.", good[:footer_end], "no tail", "truncated")
    at_open("cut-in-tail", "Half of the tail.", good[: footer_end + 32], "no tail", "truncated")
    at_open("cut-last-byte", "The last byte is missing.", good[:-1], "no tail", "truncated")
    at_open("byte-behind", "A byte behind the tail.", good + b"\n", "no tail", "truncated")
    at_open("zeros-behind", "64 zeros behind the tail.", good + bytes(64), "no tail", "truncated")
    at_open("two-containers", "Two containers end to end.", good + good,
            f"has {2 * len(good)} bytes, its tail says {len(good)}")
    at_open("hole", "64 bytes of the padding are missing.", good[:1000] + good[1064:], "its tail says")

    # --- header
    at_open("version-2", "A newer version, before any other check: the checksum is wrong too.",
            patched(good, 8, b"\2"),
            "version 2", "unsupported")
    at_open("version-2-sealed", "A newer version, all checksums right.",
            change(base(version=2), tail_fields={"version": 2}),
            "version 2", "unsupported")
    at_open("version-0", "Version 0.", change(base(version=0), tail_fields={"version": 0}), "version 0")
    at_open("header-crc32c", "The header's checksum is wrong.", flipped(good, 124), "header: checksum mismatch")
    at_open("header-bit", "A bit of the header is wrong.", flipped(good, 33), "header: checksum mismatch")
    at_open("feature-0", "Incompatible feature 0.", base(incompatible=1), "feature 0", "unsupported")
    at_open("feature-63", "Incompatible feature 63.", base(incompatible=1 << 63), "feature 63", "unsupported")
    for offset in (62, 93, 119):
        reserved = bytearray(58)
        reserved[offset - 62] = 1
        at_open("header-reserved-%d" % offset, "A reserved byte of the header is not zero.",
                base(reserved=bytes(reserved)),
                "header: reserved bytes are not zero")
    at_open("order-3", "Unknown pack order.", base(order=3), "unknown order 3")
    at_open("grouping-2", "Unknown grouping.", change(base(), head=forge.Header(grouping=2)), "unknown grouping 2")
    for name, fields, message in (
        ("header-bytes", {"header_bytes": 129}, "header size 129"),
        ("block-bytes-small", {"block_bytes": 65535}, "block size 65535"),
        ("block-bytes-large", {"block_bytes": 67108865}, "block size 67108865"),
        ("piece-bytes-0", {"piece_bytes": 0}, "piece size 0"),
        ("piece-bytes-large", {"piece_bytes": 65536 - 8192 - 2}, "piece size 57342"),
        ("align-0", {"align": 0, "header_bytes": 128}, "alignment 0"),
        ("align-3", {"align": 3}, "alignment 3"),
        ("align-8192", {"align": 8192, "piece_bytes": 1000}, "alignment 8192"),
        ("parts-65537", {"part": 1, "parts": 65537}, "65537 parts"),
        ("part-3-of-2", {"part": 3, "parts": 2}, "part 3 of 2"),
        ("part-0-of-2", {"part": 0, "parts": 2}, "part 0 of 2"),
        ("part-1-of-0", {"part": 1, "parts": 0}, "part 1 of 0"),
    ):
        c = base()
        c.lay().head = forge.Header(**fields)
        at_open("header-" + name, "A field of the header is out of range.", c, message)

    # --- tail
    at_open("tail-crc32c", "The tail's checksum is wrong.", tailed(flip=1), "tail: checksum mismatch")
    at_open("tail-magic", "The tail's magic is wrong.", tailed(magic=b"SMLTAIL\r"), "no tail", "truncated")
    at_open("tail-version-2", "The tail has a newer version.", tailed(version=2), "version 2", "unsupported")
    at_open("tail-version-0", "The tail has version 0.", tailed(version=0), "version 0")
    at_open("tail-reserved", "Reserved bytes of the tail are not zero.", tailed(reserved=1),
            "tail: reserved bytes are not zero")
    at_open("tail-id", "The id is not the footer's hash.", tailed(high=1), "footer: checksum mismatch")
    at_open("footer-bit", "A bit of the footer is wrong.", flipped(good, footer_at + 700), "footer: checksum mismatch")
    on_verify("footer-crc32c", "The id is right, footer_crc32c is not.", tailed(crc=1),
              "footer at offset 4096: checksum mismatch")
    for name, fields in (
        ("container-bytes-0", {"container": 0}),
        ("container-bytes-huge", {"container": HUGE}),
    ):
        at_open(name, "container_bytes is not the size.", tailed(**fields), "its tail says")
    for name, fields in (
        ("footer-offset-huge", {"offset": HUGE - 4095}),
        ("footer-offset-beyond", {"offset": 8192}),
        ("footer-offset-0", {"offset": 0, "bytes": footer_end}),
        ("footer-offset-small", {"offset": 0}),
        ("footer-bytes-0", {"bytes": 0}),
        ("footer-bytes-more", {"bytes": footer_end - footer_at + 64}),
        ("footer-bytes-less", {"bytes": footer_end - footer_at - 64}),
        ("footer-bytes-huge", {"bytes": HUGE - 63}),
    ):
        at_open(name, "A footer out of bounds.", tailed(**fields), "footer out of bounds")
    at_open("footer-unaligned", "The footer starts at 4160.", change(base(), footer_slack=64), "footer out of bounds")
    c = base().index()
    prefix = good[:footer_at]
    at_open("footer-bytes-odd", "The footer's size is no multiple of 64.",
            prefix + c.sealed_footer(4096, c.footer() + b"\0"),
            "footer out of bounds")
    at_open("footer-empty", "A footer of no bytes.", prefix + c.sealed_footer(4096, b""), "footer is too short")
    at_open("footer-late", "4096 zeros too many before the footer.", change(base(), footer_slack=4096),
            "blocks end in a wrong place")

    # --- footer header
    at_open("sections-1025", "More section rows than 1024.", counted(sections=1025), "1025 sections do not fit")
    at_open("sections-beyond", "Section rows beyond the footer.", counted(sections=1000), "1000 sections do not fit")
    at_open("sections-huge", "2^32 - 1 sections.", counted(sections=2**32 - 1), "sections do not fit")
    at_open("records-4294967296", "2^32 records.", counted(records=2**32, samples=2**32), "4294967296 records")
    at_open("records-huge", "2^64 - 1 records.", counted(records=HUGE, samples=HUGE), "records are more than")
    at_open("records-most", "2^32 - 1 records, which are not there.", counted(records=2**32 - 1, samples=2**32 - 1),
            "the blocks hold another number of records")
    at_open("records-more", "A record more than the blocks hold.", counted(records=6, samples=6),
            "the blocks hold another number of records")
    at_open("samples-more", "More samples than records.", counted(samples=6), "the number of samples is wrong")
    at_open("samples-huge", "2^64 - 1 samples.", counted(samples=HUGE), "the number of samples is wrong")
    at_open("samples-0", "Records, but no samples.", counted(samples=0), "the number of samples is wrong")
    at_open("samples-fewer", "Fewer samples than records, without grouping.", counted(samples=4),
            "the number of samples is wrong")
    at_open("blocks-more", "A block more than there are rows.", counted(blocks=2), "the block table has a wrong size")
    at_open("blocks-fewer", "No blocks, but rows.", counted(blocks=0), "the block table has a wrong size")
    at_open("blocks-wrapped", "2^61 + 1 blocks: 8 times that is 8, in 64 bits.", counted(blocks=2**61 + 1),
            "the block table has a wrong size")
    at_open("blocks-huge", "2^64 - 1 blocks.", counted(blocks=HUGE), "the block table has a wrong size")
    on_verify("raw-bytes-more", "raw_bytes is not the sum of the sizes.", counted(raw_bytes=1000), "1000 raw bytes")
    on_verify("stored-bytes", "stored_bytes is not the sum of the stored sizes.", counted(stored_bytes=1),
              "1 stored bytes")
    on_verify("key-bytes", "key_bytes is not the sum of the keys' sizes.", counted(key_bytes=1), "1 bytes of keys")
    c = pieces().index()
    c.counts["raw_bytes"] = 100
    on_read("raw-bytes-fewer", "A size exceeds raw_bytes.", c, "big", "the size of record 1 is out of range")

    # --- section rows
    for name, fields in (
        ("unaligned", {"offset": 392}),
        ("in-rows", {"offset": 64}),
        ("backward", {"offset": 320}),
        ("beyond", {"offset": 1 << 20}),
        ("offset-huge", {"offset": HUGE - 63}),
        ("size-beyond", {"size": 1 << 20}),
        ("size-huge", {"size": HUGE}),
        ("size-wrapped", {"size": HUGE - 127}),
    ):
        at_open("section-" + name, "Section 2 lies where it must not.", section_row(2, **fields),
                "section 2 lies out of bounds")
    at_open("sections-overlap", "Section 5 reaches into section 6.", section_row(5, size=128),
            "section 6 lies out of bounds")
    at_open("section-double", "Section 5 is there twice.", change(base(), doubled=5), "section 5 is double")
    for section in (1, 2, 3, 5, 6, 8, 9, 14):
        at_open("section-%d-missing" % section, "A section is missing.", change(base(), drop={section}),
                "section %d is missing" % section)
    on_verify("section-4-missing", "Raw sizes are missing, though a record is compressed.",
              change(compressed(), drop={4}), "z")
    for section in (10, 11):
        at_open("section-%d-missing" % section, "A section of input order is missing.",
                change(ordered(), drop={section}),
                "sections 10 and 11 are missing")
    for section in (12, 13):
        at_open("section-%d-missing" % section, "A section of grouping is missing.", change(grouped(), drop={section}),
                "sections 12 and 13 are missing")
    for section, make in ((10, grouped), (11, grouped), (12, ordered), (13, ordered)):
        c, other = make().index(), (ordered if section < 12 else grouped)().index()
        c.sections[section] = other.sections[section]
        at_open("section-%d-needless" % section, "A section that this order or grouping does not have.", c,
                "are needless")

    # --- header, again
    at_open("header-copy-differs", "Section 14 has another seed than the header.",
            sectioned(base, 14, lambda s: forge.Header(seed=1).image()), "another header")
    at_open("header-copy-checksum", "The checksum in section 14 is not the header's.",
            sectioned(base, 14, lambda s: flipped(s, 124)),
            "another header")
    at_open("header-copy-short", "Section 14 is cut short.", sectioned(base, 14, lambda s: s[:127]), "another header")

    # --- blocks in the index
    for name, edit in (
        ("start", lambda s: put(s, 0, "Q", 127)),
        ("order", lambda s: put(s, 8, "Q", 128)),
        ("backward", lambda s: put(s, 8, "Q", 64)),
        ("huge", lambda s: put(s, 8, "Q", HUGE)),
        ("too-large", lambda s: put(s, 8, "Q", 128 + 65537)),
    ):
        at_open("block-offsets-" + name, "Blocks out of bounds.", sectioned(cut, 1, edit), "lies out of bounds")
    at_open("block-offsets-end", "The blocks end behind the footer's start.",
            sectioned(base, 1, lambda s: put(s, 8, "Q", 4097)),
            "blocks end in a wrong place")
    at_open("block-offsets-empty-start", "Without blocks the offset is not header_bytes.",
            sectioned(lambda: Container([]), 1, lambda s: put(s, 0, "Q", 129)), "blocks end in a wrong place")
    at_open("block-offsets-short", "A block offset is missing.", sectioned(cut, 1, lambda s: s[:-8]),
            "the block table has a wrong size")
    at_open("block-rows-short", "A block row is cut short.", sectioned(cut, 2, lambda s: s[:-1]),
            "the block table has a wrong size")
    for name, fields in (
        ("slots-0", {"slots": 0}),
        ("slots-huge", {"slots": 2**32 - 1}),
        ("slots-offset-small", {"slots_offset": 63}),
        ("slots-offset-large", {"slots_offset": 60000}),
        ("kind-4", {"kind": 4}),
    ):
        at_open("row-" + name, "A field of a block row is out of range.", rowed(1, **fields),
                "the row of block 1 is damaged")
    at_open("row-first-record", "first_record is not the sum of the slots before.", rowed(1, first_record=3),
            "block 1 starts with a wrong record")
    at_open("row-slots", "A block row gives a slot less.", rowed(1, slots=1), "block 2 starts with a wrong record")
    at_open("row-slots-last", "The last block row gives a slot less.", rowed(2, slots=1),
            "the blocks hold another number of records")
    at_open("row-dictionary-late", "A dictionary that is not block 0.", rowed(1, kind=DICTIONARY, slots=1),
            "a dictionary that is not the first block")
    at_open("row-further-first", "A further piece without a first one.", rowed(0, kind=FURTHER, slots=1),
            "continues no record")
    at_open("row-further-behind-records", "A further piece behind records.", rowed(1, kind=FURTHER, slots=1),
            "continues no record")
    at_open("row-piece-slots", "A piece with two slots.", rowed(1, kind=FIRST), "block 1 has too many slots")
    on_verify("row-crc32c", "A block row's CRC32C is wrong.", rowed(1, crc32c=1), "checksum mismatch (stored 00000001")
    on_verify("row-xxh3", "A block row's XXH3 is wrong.", rowed(1, high=1), "XXH3 stored 0000000000000001")
    on_verify("row-kind", "The block row calls a block of one record a first piece.",
              change(Container([(b"a", b"a")]), rows={0: {"kind": FIRST}}), "kind")
    on_verify("row-slots-offset", "The block row gives another start of the slots.", rowed(1, slots_offset=64),
              "start of the slots")

    # --- dictionary
    at_open("dictionary-missing", "Block 0 is a dictionary, section 15 is missing.",
            change(with_dictionary(), drop={15}),
            "the dictionary is missing")
    c = base().index()
    c.sections[15] = noise("dictionary", 300)
    at_open("dictionary-needless", "Section 15 without a block of kind 3.", c, "the dictionary is missing, needless")
    at_open("dictionary-empty", "A dictionary of no bytes.", sectioned(with_dictionary, 15, lambda s: b""),
            "the dictionary is missing")
    on_verify("dictionary-differs", "Section 15 is not what block 0 holds.",
              sectioned(with_dictionary, 15, lambda s: flipped(s, 9)),
              "it is not the dictionary of the footer")
    c = with_dictionary()
    c.blocks[0].slots[0].hash = 1
    on_verify("dictionary-hash", "The dictionary's slot has a key hash.", c, "key hash")
    c = with_dictionary()
    c.blocks[0].slots[0].codec = ZSTD
    on_verify("dictionary-codec", "The dictionary's slot has codec 1.", c, "dictionary: it is not stored as it is")
    on_verify("dictionary-key", "The dictionary's slot has a key.", tabled(b"\1\xbc\2x", with_dictionary), "bad key")
    on_read("dictionary-bad", "A dictionary with zstd's magic that zstd does not accept.",
            Container([(b"z", b"0123456789")], dictionary=b"\x37\xa4\x30\xec" + bytes(50),
                      encode=lambda raw: (forge.zstd(raw), len(raw), ZSTD_DICTIONARY)), "z", "dictionary")
    c = base()
    c.blocks[0].slots[3].codec = ZSTD_DICTIONARY
    c.blocks[0].slots[3].stored = forge.zstd(b"")
    c.index()
    c.sections[4] = forge.elias_fano([40, 43, 46, 46, 58])
    on_read("dictionary-none", "A record of codec 2 without a dictionary.", c, "c", "needs a dictionary")

    # --- Elias-Fano: places, raw sizes, ends
    for name, edit in (
        ("count-huge", lambda s: put(s, 0, "Q", HUGE)),
        ("count-wrapped", lambda s: put(s, 0, "Q", 2**60)),
        ("high-words-huge", lambda s: put(s, 16, "Q", HUGE)),
        ("high-words-wrapped", lambda s: put(s, 16, "Q", 2**61 + 1)),
        ("high-words-0", lambda s: put(s, 16, "Q", 0)),
        ("count-1000", lambda s: put(s, 0, "Q", 1000)),
        ("short", lambda s: s[:-8]),
        ("long", lambda s: s + bytes(8)),
    ):
        at_open("elias-fano-" + name, "The size of a list contradicts its header.", sectioned(base, 3, edit),
                "its size contradicts its number of values")
    at_open("elias-fano-tiny", "A list shorter than its header.", sectioned(base, 3, lambda s: s[:24]),
            "shorter than its header")
    at_open("elias-fano-low-bits-64", "64 low bits.", sectioned(base, 3, lambda s: put(s, 8, "Q", 64)),
            "fields out of range")
    at_open("elias-fano-low-bits-huge", "2^64 - 1 low bits.", sectioned(base, 3, lambda s: put(s, 8, "Q", HUGE)),
            "fields out of range")
    at_open("elias-fano-reserved", "The reserved field of a list is not zero.",
            sectioned(base, 3, lambda s: put(s, 24, "Q", 1)),
            "fields out of range")
    at_open("elias-fano-sample", "A sample beyond the high words.",
            sectioned(base, 3, lambda s: put(s, len(s) - 8, "Q", 64)),
            "a sample is out of range")
    many = Container(numbered(300, size=lambda i: 0))
    c = many.index()
    c.sections[3] = put(c.sections[3], len(c.sections[3]) - 8, "Q", 0)
    at_open("elias-fano-samples-backward", "The second sample is before the first.", c, "a sample is out of range")
    at_open("places-fewer", "A place is missing.",
            sectioned(base, 3, lambda s: forge.elias_fano(forge.read_elias_fano(s)[:-1])),
            "the number of places is wrong")
    at_open("raw-sizes-fewer", "A raw size is missing.",
            sectioned(pieces, 4, lambda s: forge.elias_fano(forge.read_elias_fano(s)[:-1])),
            "the number of raw sizes is wrong")
    at_open("name-page-ends-fewer", "The end of a page is missing.",
            sectioned(paged, 6, lambda s: forge.elias_fano(forge.read_elias_fano(s)[:-1])),
            "the number of name pages is wrong")

    def placed(edit, make=base):
        c = make().index()
        places = forge.read_elias_fano(c.sections[3])
        edit(places)
        c.sections[3] = forge.elias_fano(places)
        return c

    def set_place(i, value):
        return lambda places: places.__setitem__(i, value)

    places = forge.read_elias_fano(base().index().sections[3])
    on_read("place-before-block", "A record's place is before its block.", placed(set_place(0, 0)), "a.bin",
            "the place of record 0 is out of range")
    on_read("place-in-table", "A record's place is in the record table.", placed(set_place(0, 128 + 70)), "a.bin",
            "the place of record 0 is out of range")
    on_read("place-beyond-block", "A record's place is in the footer.", placed(set_place(4, 4096)), "readme",
            "the place of record 4 is out of range")
    on_read("place-huge", "A record's place is beyond everything.", placed(set_place(4, 2**62)), "readme",
            "the place of record 4 is out of range")
    on_read("places-equal", "Two records have one place: a slot of no bytes.", placed(set_place(1, places[2])),
            "b/10.txt",
            "the place of record 1 is out of range")
    on_read("slots-overlap", "A record's place is 8 bytes early: slots overlap.", placed(set_place(2, places[2] - 8)),
            "b/2.txt",
            "checksum mismatch")
    on_read("place-late", "A record's slot is 3 bytes late.", placed(set_place(2, places[2] + 3)), "b/2.txt",
            "checksum mismatch")
    on_read("place-of-next-block", "A record's place is in the next block.",
            placed(lambda p: p.__setitem__(1, p[2]), cut), "k0001", "the place of record 1 is out of range")
    on_read("places-without-ones", "A list of places whose ones are missing.",
            sectioned(base, 3, lambda s: patched(s, len(s) - 16, bytes(8))), "a.bin",
            "the place of record 0 is out of range")

    def sized(sums, make=pieces):
        c = make().index()
        c.sections[4] = forge.elias_fano(sums)
        return c

    on_read("raw-size-beyond", "A record's size exceeds the sum.", sized([6, 256, 1000]), "c",
            "the size of record 2 is out of range")
    on_read("raw-size-stored", "The raw size of a stored record is not its stored size.", sized([5, 256, 262]), "a",
            "the stored size is 6, the index says 5")
    on_read("raw-size-piece-bytes", "A record of one slot is larger than a piece.", sized([106, 206, 262]), "a",
            "size")
    on_read("raw-size-pieces", "A record of three pieces whose size makes two.", sized([6, 200, 262]), "big", "pieces")
    on_read("raw-size-last-piece", "The last piece holds another size than the record leaves it.",
            sized([6, 250, 262]), "big",
            "piece")
    on_read("raw-size-zstd", "A compressed record decodes to another size.", sized([9], compressed), "z",
            "size that the index gives")

    # --- names
    def page_ends(values, make=base):
        c = make().index()
        c.sections[6] = forge.elias_fano(values)
        return c

    names_end = len(base().index().sections[5])
    last_end = "the last name page does not end with its section"
    at_open("name-page-beyond", "The last name page ends behind its section.", page_ends([names_end + 1]), last_end)
    at_open("name-page-huge", "The last name page ends beyond everything.", page_ends([2**62]), last_end)
    at_open("name-pages-slack", "Bytes behind the last name page.", sectioned(base, 5, lambda s: s + b"\0"), last_end)
    second_end = len(paged().index().sections[5])
    on_read("name-page-no-bytes", "A name page of no bytes.", page_ends([0, second_end], paged), "key05",
            "a name page lies out of bounds")
    on_read("name-page-empty", "The second name page starts where it ends.",
            page_ends([second_end, second_end], paged), "key35",
            "a name page lies out of bounds")
    on_read("name-page-backward", "The first name page ends behind the second.",
            page_ends([second_end + 1, second_end], paged),
            "key05", "a name page lies out of bounds")

    def paginated(page):
        """The name page replaced."""
        c = base().index()
        c.sections[5], c.sections[6] = page, forge.elias_fano([len(page)])
        return c

    keys = [b"a.bin", b"b/10.txt", b"b/2.txt", b"c", b"readme"]
    damaged = "name page of the index is damaged"
    plain = forge.page(keys)
    on_read("name-page-codec-3", "A name page of an unknown codec.",
            paginated(b"\3" + struct.pack("<H", len(plain)) + plain),
            "readme", "unknown codec 3")
    on_read("name-page-codec-2", "A name page of codec 2 without a name dictionary.",
            paginated(b"\2" + struct.pack("<H", len(plain)) + forge.zstd(plain)), "readme", "dictionary")
    c = paginated(b"\2" + struct.pack("<H", len(plain) - 1) + forge.zstd(plain))
    c.sections[7] = noise("names", 300)
    on_read("name-page-size", "A compressed name page decodes to another size.", c, "readme",
            "size that the index gives")
    c = paginated(b"\2\5")
    c.sections[7] = noise("names", 300)
    on_read("name-page-short", "A compressed name page of a byte.", c, "readme", "a name page is too short")
    c = paginated(b"\2" + struct.pack("<H", len(plain)) + forge.zstd(plain))
    c.sections[7] = b"\x37\xa4\x30\xec" + bytes(50)
    at_open("name-dictionary-bad", "A name dictionary with zstd's magic that zstd does not accept.", c,
            "index: name dictionary: zstd")
    for name, columns, middles in (
        ("varint-cut", [0, 0, 0, 0, 0], b"\x80"),
        ("varints-missing", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], b""),
        ("first-prefix", [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 1, 6], b"a.binb/10.txtb/2.txtcreadme"),
        ("prefix", [0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 1, 6], b"a.binb/10.txtb/2.txtcreadme"),
        ("suffix", [0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 5, 8, 7, 1, 6], b"a.binb/10.txtb/2.txtcreadme"),
        ("prefix-and-suffix", [0, 3, 0, 0, 0, 0, 3, 0, 0, 0, 5, 8, 7, 1, 6], b"a.binb/10.txtb/2.txtcreadme"),
        ("key-of-no-bytes", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 0, 7], b"a.binb/10.txtb/2.txtcreadme"),
        ("key-of-4097-bytes", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 4097, 6],
         b"a.binb/10.txtb/2.txt" + b"c" * 4097 + b"readme"),
        ("key-grown", [0, 0, 0, 4096, 0, 0, 0, 0, 0, 0, 5, 8, 4096, 1, 6],
         b"a.binb/10.txt" + b"c" * 4096 + b"xreadme"),
        ("middles-longer", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 1, 7], b"a.binb/10.txtb/2.txtcreadme"),
        ("middles-shorter", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 1, 5], b"a.binb/10.txtb/2.txtcreadme"),
        ("key-with-nul", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 7, 1, 6], b"a.binb/10.txtb/2.txtcre\0dme"),
    ):
        on_read("name-page-" + name, "A name page that cannot be.", paginated(page_of(5, columns, middles)), "readme",
                damaged)
    long_varint = b"\0" + b"\x80" * 10 + b"\0" + plain[1:]
    on_read("name-page-varint-long", "A varint of 11 bytes.", paginated(long_varint), "readme", damaged)
    on_read("name-page-varint-huge", "A varint of more than 64 bits.",
            paginated(b"\0" + b"\xff" * 9 + b"\x02" + plain[1:]), "readme",
            damaged)

    def renamed(names):
        """The names replaced; key table and blocks follow the old ones."""
        return paginated(b"\0" + forge.page(names))

    on_verify("names-unsorted", "Two keys are out of order.", renamed([keys[0], keys[2], keys[1], *keys[3:]]),
              "does not come after")
    on_verify("names-by-bytes", "Names sorted as bytes, not by stems.", Unsorted([b"a-b.jpg", b"a.jpg"]),
              "does not come after")
    on_verify("names-double", "A key twice.", Unsorted([b"a", b"a"]), "does not come after")
    on_verify("name-lies", "A name page says c where the block says d.", renamed([*keys[:3], b"d", keys[4]]), "'c'")

    # --- key table
    on_read("key-buckets-backward", "A bucket ends before it starts.", sectioned(base, 8, lambda s: put(s, 0, "I", 6)),
            "a.bin",
            "the key table is damaged")
    on_read("key-buckets-beyond", "A bucket ends behind the table.", sectioned(base, 8, lambda s: put(s, 4, "I", 6)),
            "a.bin",
            "the key table is damaged")
    on_read("key-buckets-huge", "A bucket of 2^32 - 1 rows.", sectioned(base, 8, lambda s: put(s, 4, "I", 2**32 - 1)),
            "a.bin",
            "the key table is damaged")
    at_open("key-buckets-short", "A bucket is missing.", sectioned(base, 8, lambda s: s[:-4]),
            "the key table has a wrong size")
    at_open("key-table-short", "A row of the key table is cut short.", sectioned(base, 9, lambda s: s[:-1]),
            "the key table has a wrong size")
    at_open("key-table-long", "A byte behind the key table.", sectioned(base, 9, lambda s: s + b"\0"),
            "the key table has a wrong size")
    on_verify("key-table-fingerprint", "A row of the key table has other bits of the hash.",
              sectioned(base, 9, lambda s: flipped(s, 3)), "the index does not find its key")
    on_verify("key-table-number", "A row of the key table leads to no record.",
              sectioned(base, 9, lambda s: put(s, 8, "B", s[8] | 7)),
              "the index does not find its key")
    on_verify("key-buckets-empty", "A bucket that ends too early.", sectioned(base, 8, lambda s: put(s, 4, "I", 4)),
              "the index does not find its key")

    # --- ranks
    ranks = [0, 1, 2, 3, 4]
    at_open("ranks-short", "Section 10 is too short.", sectioned(ordered, 10, lambda s: b""), "packed integers")
    at_open("ranks-long", "Section 11 is too long.", sectioned(ordered, 11, lambda s: s + bytes(8)), "packed integers")
    on_verify("rank-beyond", "A rank beyond the records.", sectioned(ordered, 11, lambda s: forge.packed([7] * 5, 3)),
              "the rank of record 0 is out of range")
    on_verify("number-beyond", "A number beyond the records.",
              sectioned(ordered, 10, lambda s: forge.packed([7] * 5, 3)),
              "the number of rank 0 is out of range")
    on_verify("ranks-double", "Two numbers of one rank.",
              sectioned(ordered, 11, lambda s: forge.packed([4, 2, 2, 0, 3], 3)), "which leads to rank")
    on_verify("numbers-double", "Two ranks of one number.",
              sectioned(ordered, 10, lambda s: forge.packed([3, 1, 1, 4, 0], 3)), "which leads to rank")
    on_verify("numbers-other", "Sections 10 and 11 are permutations, but not each other's inverse.",
              sectioned(ordered, 10, lambda s: forge.packed(ranks, 3)), "which leads to rank")
    on_verify("random-order-other", "Records in name order where the header says random.", Claimed(few(), RANDOM, 0),
              "the index does not find its key")
    on_verify("random-seed-other", "The order of another seed.", Claimed(few(), RANDOM, 1, RANDOM),
              "the index does not find its key")

    # --- samples
    for section in (12, 13):
        name = "sample-bounds-%d-" % section
        for what, bits, message in (
            ("fewer-bits", [1, 1, 0, 1, 1], "the sample bounds are wrong"),
            ("fewer-ones", [1, 0, 0, 1, 1, 0], "the sample bounds are wrong"),
            ("first", [0, 1, 1, 1, 1, 0], "the sample bounds are wrong"),
        ):
            at_open(name + what, "Sample bounds that contradict the counts.",
                    sectioned(grouped, section, lambda s, bits=bits: forge.bit_vector(bits)), message)
        on_verify(name + "stem", "A sample ends within a stem.",
                  sectioned(grouped, section, lambda s: forge.bit_vector([1, 1, 1, 0, 1, 0])), "sample")
    for what, edit, message in (
        ("bits-huge", lambda s: put(s, 0, "Q", HUGE), "its size contradicts its number of bits"),
        ("bits-wrapped", lambda s: put(s, 0, "Q", HUGE - 62), "its size contradicts its number of bits"),
        ("bits-more", lambda s: put(s, 0, "Q", 65), "its size contradicts its number of bits"),
        ("short", lambda s: s[:-8], "its size contradicts its number of bits"),
        ("tiny", lambda s: s[:8], "shorter than its header"),
        ("ones", lambda s: put(s, 8, "Q", 5), "the number of ones contradicts the bits"),
        ("ones-behind", lambda s: put(s, 8, "QQ", 5, 0b10011011 | 1 << 6), "ones behind the last bit"),
        ("directory", lambda s: put(s, 24, "Q", 1), "the directory contradicts the bits"),
    ):
        at_open("bit-vector-" + what, "A bit vector that contradicts itself.", sectioned(grouped, 12, edit), message)
    wrong_part = next(p for p in (1, 2) if xxh3_64(b"a") % 2 != p - 1)
    on_verify("part-of-another", "A record whose stem belongs to the other part.",
              Container([(b"a.bin", b"a")], part=wrong_part, parts=2), "its stem belongs to part")

    # --- blocks
    for name, fields, message in (
        ("magic", {"magic": b"SMLC"}, "no block starts here"),
        ("crc32c", {"crc_flip": 1}, "block header: checksum mismatch"),
        ("number", {"number": 2}, "block number"),
        ("first-record", {"first_record": 3}, "first record"),
        ("size-small", {"size": 63}, "size out of range"),
        ("size-more", {"size": 5000}, "larger than its place"),
        ("size-huge", {"size": 2**32 - 1}, "size out of range"),
        ("slots-offset-small", {"slots_offset": 64}, "slots start out of range"),
        ("slots-offset-large", {"slots_offset": 2**32 - 1}, "slots start out of range"),
        ("slots-0", {"slots": 0}, "more slots than the block can hold"),
        ("slots-huge", {"slots": 2**32 - 1}, "more slots than the block can hold"),
        ("slots-fewer", {"slots": 1}, "block 1"),
        ("table-stored-bytes-huge", {"table_stored_bytes": 2**32 - 1}, "record table of the block is cut short"),
        ("table-raw-bytes-huge", {"table_raw_bytes": 67108865, "table_codec": 1}, "record table too large"),
        ("table-sizes-differ", {"table_raw_bytes": 15}, "sizes of the record table differ"),
        ("table-codec-2", {"table_codec": 2}, "unknown codec of the record table"),
        ("kind-4", {"kind": 4}, "unknown kind 4"),
        ("kind-slots", {"kind": FIRST, "record_bytes": 1}, "a block of this kind has one slot"),
        ("reserved", {"reserved": 1}, "block header: reserved bytes are not zero"),
        ("reserved-high", {"reserved": 0x8000}, "block header: reserved bytes are not zero"),
        ("tag", {"tag": 1}, "its header gives tag 1, the index 0"),
        ("tag-high", {"tag": 1 << 31}, "its header gives tag 2147483648, the index 0"),
        ("record-bytes", {"record_bytes": 1}, "record size contradicts the kind"),
        ("piece", {"piece": 1}, "piece number contradicts the kind"),
    ):
        on_verify("block-" + name, "The header of a block is wrong.", headed(1, **fields), message)
    # Two keys of 5 bytes, slots of 26 and 27.
    for name, table, message in (
        ("table-empty", b"", "bad key length"),
        ("table-varint-cut", b"\5\5\x1a\x80", "bad slot size"),
        ("table-varint-long", b"\x85" + b"\x80" * 9 + b"\0\5\x1a\x1bk0000k0001", "bad key length"),
        ("table-key-4097", b"\x81\x20\5\x1a\x1b" + b"k" * 4097 + b"k0001", "bad key length"),
        ("table-key-empty", b"\0\5\x1a\x1bk0001", "bad key"),
        ("table-key-nul", b"\5\5\x1a\x1bk\x00000k0001", "bad key"),
        ("table-keys-longer", b"\5\6\x1a\x1bk0000k0001", "wrong size"),
        ("table-keys-shorter", b"\5\5\x1a\x1bk0000k0001+", "wrong size"),
        ("table-slot-small", b"\5\5\x0f\x26k0000k0001", "bad slot size"),
        ("table-slots-fewer", b"\5\5\x1a\x1ak0000k0001", "do not fill the block"),
        ("table-slots-more", b"\5\5\x1a\x1ck0000k0001", "bad slot size"),
        ("table-slots-huge", b"\5\5\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1k0000k0001", "bad slot size"),
        ("table-slots-shifted", b"\5\5\x1b\x1ak0000k0001", "the index places it"),
        ("table-key-other", b"\5\5\x1a\x1bk0000x0001", "the index does not find its key"),
        ("table-keys-swapped", b"\5\5\x1a\x1bk0001k0000", "the index finds its key at number"),
        ("table-key-of-another-block", b"\5\5\x1a\x1bk0000k0005", "the index finds its key at number"),
    ):
        on_verify(name, "The record table of block 0 is wrong.", tabled(table), message)
    table = b"\5\5\x1a\x1bk0000k0001"

    def table_frame(stored, raw=len(table)):
        c = tabled(table)
        c.blocks[0].stored_table = stored
        c.blocks[0].fields = {"table_raw_bytes": raw}
        return c

    broken = "record table: the compressed record"
    on_verify("table-zstd-garbage", "A compressed record table that is no frame.", table_frame(b"no frame"), broken)
    on_verify("table-zstd-size", "A record table that decodes to another size.", table_frame(forge.zstd(table), 15),
              broken)
    on_verify("table-zstd-no-size", "A record table in a frame without its content size.",
              table_frame(forge.zstd(table, with_size=False)), broken)
    on_verify("table-zstd-two-frames", "A record table of two frames.",
              table_frame(forge.zstd(table[:5]) + forge.zstd(table[5:])),
              broken)
    c = cut()
    c.blocks[1].gap = b"\0\1\0"
    on_verify("block-gap", "The bytes between record table and slots are not zero.", c,
              "padding before the slots is not zero")

    # --- slots
    on_read("slot-crc32c", "A slot's checksum is wrong.", slotted(lambda s: setattr(s, "flip", 1)), "a.bin",
            "checksum mismatch")
    at = places[4]
    on_read("slot-bit", "A bit of a stored record is wrong, behind the block's back.", flipped(good, at + 20),
            "readme",
            "checksum mismatch")
    on_read("slot-prefix-bit", "A bit of a key hash is wrong, behind the block's back.", flipped(good, at + 9),
            "readme",
            "checksum mismatch")
    on_read("slot-reserved", "The reserved byte of a slot is not zero.", slotted(lambda s: setattr(s, "reserved", 1)),
            "a.bin",
            "reserved byte of the record prefix is not zero")
    on_read("slot-key-hash", "A slot holds another key's record.",
            slotted(lambda s: setattr(s, "hash", xxh3_64(b"c"))), "a.bin",
            "another record is stored here")
    on_read("slot-codec-3", "A record of an unknown codec.", slotted(lambda s: setattr(s, "codec", 3)), "a.bin",
            "unknown codec 3")
    on_read("slot-codec-255", "A record of an unknown codec.", slotted(lambda s: setattr(s, "codec", 255)), "a.bin",
            "unknown codec 255")

    def cover_all(slot):
        """As if the padding were longer than the slot: a checksum over no stored bytes is right too."""
        slot.padding_field = 65535
        rest = struct.pack("<BBHQ", 0, 0, 65535, slot.hash)
        slot.crc = crc32c(rest)

    on_read("slot-padding-longer", "The padding is longer than the slot.", slotted(cover_all), "a.bin",
            "the padding is longer than the slot")
    c = slotted(lambda s: setattr(s, "padding", b"\0\0\1\0")).index()
    c.sections[4] = forge.elias_fano([40, 43, 46, 46, 58])
    on_verify("slot-padding-not-zero", "The padding of a slot is not zero.", c, "padding is not zero")

    # --- zstd
    def zstd_record(stored, raw=10):
        return Container([(b"z", bytes(raw))], encode=lambda _: (stored, raw, ZSTD))

    digits = b"0123456789"
    whole = forge.zstd(digits)
    for name, stored, message in (
        ("garbage", b"no frame at all", "no zstd frame"),
        ("no-bytes", b"", "no zstd frame"),
        ("magic-only", whole[:4], "size that the index gives"),
        ("old-frame", b"\x27" + whole[1:], "no zstd frame"),
        # As zstd --check writes it: four bytes of a checksum at its end.
        ("checksum", b"\x28\xb5\x2f\xfd\x24" + whole[5:] + b"\xe7\x67\x18\xa8", "a checksum or a dictionary id"),
        ("dictionary-id", b"\x28\xb5\x2f\xfd\x21\x07" + whole[5:], "a checksum or a dictionary id"),
        ("skippable-frame-first", struct.pack("<II", 0x184D2A50, 0) + whole, "no zstd frame"),
        ("no-size", forge.zstd(digits, with_size=False), "size that the index gives"),
        ("larger", forge.zstd(digits + b"0"), "size that the index gives"),
        ("smaller", forge.zstd(digits[:9]), "size that the index gives"),
        ("huge", forge.zstd(digits, content_size=2**32 - 1), "size that the index gives"),
        ("lies", forge.zstd(digits[:9], content_size=10), "the compressed record"),
        ("cut", whole[:-1], "the compressed record"),
        ("byte-behind", whole + b"\0", "does not fill its place"),
        ("two-frames", forge.zstd(digits[:5], content_size=10) + forge.zstd(digits[5:]), "the compressed record"),
        ("skippable-frame", whole + struct.pack("<II", 0x184D2A50, 0), "does not fill its place"),
        ("block-type", whole[:6] + bytes([whole[6] | 6]) + whole[7:], "the compressed record"),
    ):
        on_read("zstd-" + name, "A compressed record whose frame is wrong.", zstd_record(stored), "z", message)
    on_read("zstd-dictionary-cut", "A record of codec 2 whose frame is cut.", with_dictionary(whole[:-1]), "z",
            "the compressed record")

    # --- pieces
    def rearranged(edit):
        c = pieces()
        edit(c.blocks)
        return c

    def swap_pieces(blocks):
        blocks[2], blocks[3] = blocks[3], blocks[2]

    on_read("pieces-swapped", "The second and the third piece are swapped.", rearranged(swap_pieces), "big",
            "is not piece 1 of the record")
    on_read("pieces-missing", "The last piece is missing.", rearranged(lambda b: b.pop(3)), "big", "pieces")
    on_read("pieces-more", "A piece too many.", rearranged(lambda b: b.insert(3, Block(FURTHER, b[2].slots, 250, 2))),
            "big", "pieces")
    for name, block, fields in (
        ("number", 2, {"piece": 2}),
        ("record-bytes", 2, {"record_bytes": 251}),
        ("first-record-bytes", 1, {"record_bytes": 251}),
        ("block-number", 3, {"number": 2}),
    ):
        piece = block - 1
        on_read("piece-" + name, "The header of a piece's block is wrong.", headed(block, pieces, **fields), "big",
                "is not piece %d of the record" % piece)
    on_read("piece-kind", "The block of a further piece says that it is a first one.",
            headed(2, pieces, kind=FIRST, piece=0), "big",
            "is not piece 1 of the record")
    on_read("piece-size", "A piece that is not the last is shorter.",
            slotted(lambda s: setattr(s, "stored", s.stored[:-1]), pieces, 2), "big",
            "the stored size is 99, the index says 100")
    on_read("piece-key-hash", "A piece's slot has another key's hash.",
            slotted(lambda s: setattr(s, "hash", 1), pieces, 2), "big",
            "another record is stored here")
    on_read("piece-crc32c", "A piece's checksum is wrong.", slotted(lambda s: setattr(s, "flip", 1), pieces, 3), "big",
            "checksum mismatch")

    def other_key(blocks):
        blocks[2].slots[0].key = b"bag"
        blocks[2].slots[0].hash = xxh3_64(b"bag")

    on_read("piece-key", "A piece of another record.", rearranged(other_key), "big", "another record")

    # --- padding
    on_verify("padding-header", "Padding behind the header is not zero.",
              change(base(align=4096), header_gap=bytes(3967) + b"\1"), "padding behind the header is not zero")
    on_verify("padding-footer", "Padding before the footer is not zero.", flipped(good, footer_at - 1),
              "padding before the footer is not zero")
    c = base().index()
    footer = bytearray(c.footer())
    section_5 = next(struct.unpack_from("<QQ", footer, 64 + 32 * i + 8) for i in range(rows)
                     if struct.unpack_from("<I", footer, 64 + 32 * i)[0] == 5)
    footer[sum(section_5)] = 1
    on_verify("padding-sections", "Padding between sections is not zero.",
              prefix + c.sealed_footer(4096, bytes(footer)),
              "is not zero")
    return out


class Unsorted(Container):
    """Records whose ranks are the order given."""

    def __init__(self, names):
        super().__init__([(name, name) for name in names])
        self.names = names
        self.keys, self.blocks[0].slots = list(names), [Slot(name, name) for name in names]

    def ranks(self):
        return list(range(len(self.keys)))


class Claimed(Container):
    """Records packed in one order (and seed 0) under a header that claims another."""

    def __init__(self, records, order, seed, packed=NAME):
        super().__init__(records, order=packed)
        self.head = forge.Header(order=order, seed=seed)


# --- framed streams


def described(key, content, number):
    return {"number": number, "key": shown(key), "size": len(content), "content": shown_content(content)}


def valid_streams():
    magic = forge.FRAMES_MAGIC
    yield "empty", "No record: 40 bytes.", forge.stream([]), []
    yield "one-record", "One record.", forge.stream([(b"a", b"hello")]), [described(b"a", b"hello", 0)]
    yield ("example", "The example of frames.md.",
           magic + frame(b"a", b"hello", 0) + frame(b"b/c.x", b"ab", 7, 5, flags=1)
           + frame(b"b/c.x", b"cde", 7, 5) + frame(b"gone", b"not found", record_bytes=0, kind=2) + frame(b"e", b"")
           + end_frame(3, 10),
           [described(b"a", b"hello", 0), described(b"b/c.x", b"abcde", 7),
            {"number": None, "key": "gone", "failed": "not found"}, described(b"e", b"", None)])
    keys = [b"k" * 4096, b"\n", b"\xff\xfe", b"../x", b"a", b"a"]
    yield ("keys", "Keys of 4096 bytes, of odd bytes, and one twice.", forge.stream([(key, b"x") for key in keys]),
           [described(key, b"x", i) for i, key in enumerate(keys)])
    yield ("pieces", "A record of 300 one-byte frames.",
           magic + b"".join(frame(b"p", bytes([i % 256]), 2**64 - 2, 300,
                                  flags=int(i < 299)) for i in range(300)) + end_frame(1, 300),
           [described(b"p", bytes(i % 256 for i in range(300)), 2**64 - 2)])
    yield ("failed",
           "Failed frames: of a record under way, which they take back; without a key; of another size; of no message.",
           magic + frame(b"a", b"begun", 3, 9, flags=1) + frame(b"a", b"lost", 3, 9, kind=2)
           + frame(b"", b"gone", 4, 0, kind=2) + frame(b"b", b"", 5, 2**40, kind=2) + frame(b"a", b"again",
                                                                                            3) + end_frame(1, 5),
           [{"number": 3, "key": "a", "failed": "lost"}, {"number": 4, "key": "", "failed": "gone"},
            {"number": 5, "key": "b", "failed": ""}, described(b"a", b"again", 3)])


def invalid_streams():
    magic = forge.FRAMES_MAGIC
    good = forge.stream([(b"a", b"hello"), (b"b", b"world")])
    end = end_frame(1, 5)
    one = magic + frame(b"a", b"hello", 0)
    begun = magic + frame(b"a", b"he", 0, 5, flags=1)

    def bad(name, about, data, message, code="corrupt", records=0):
        return name, about, data, {"code": code, "message": message, "records": records}

    yield bad("no-bytes", "Nothing.", b"", "before its magic", "truncated")
    yield bad("cut-in-magic", "Cut in the magic.", good[:7], "before its magic", "truncated")
    yield bad("text", "A text.", b"no framed stream, but long enough to hold one\n", "not a framed record stream")
    yield bad("line-feeds", "Line ends were converted.", good.replace(b"\r\n", b"\n"), "not a framed record stream")
    yield bad("container", "The first bytes of a container.", forge.HEADER_MAGIC + bytes(120),
              "not a framed record stream")
    yield bad("version-2", "A newer version.", patched(good, 7, b"\2"), "version 2", "unsupported")
    yield bad("version-0", "Version 0.", patched(good, 7, b"\0"), "version 0", "unsupported")
    yield bad("magic-only", "The magic, and nothing else.", magic, "without an end frame", "truncated")
    yield bad("no-end", "The end frame is missing.", one, "without an end frame", "truncated", 1)
    yield bad("cut-in-header", "Cut in a frame's header.", good[:30], "without an end frame", "truncated")
    yield bad("cut-in-key", "Cut in a key.", magic + frame(b"abcdef", b"", 0)[:35], "inside a frame's key",
              "truncated")
    yield bad("cut-in-payload", "Cut in a payload.", good[:43], "inside a frame's payload", "truncated")
    yield bad("cut-in-end", "Cut in the end frame.", good[:-1], "without an end frame", "truncated", 2)
    yield bad("cut-between-pieces", "Cut between two pieces.", begun, "without an end frame", "truncated")
    yield bad("header-bit", "A bit of a header is wrong.", flipped(good, 8 + 17), "header checksum mismatch")
    yield bad("key-bit", "A bit of a key is wrong.", flipped(good, 8 + 32), "header checksum mismatch")
    yield bad("payload-bit", "A bit of a payload is wrong.", flipped(good, 8 + 35), "payload checksum mismatch")
    yield bad("payload-crc32c", "A payload's checksum is wrong, the header's is right.",
              magic + frame(b"a", b"hello", 0, payload_flip=1) + end, "payload checksum mismatch")
    yield bad("type-0", "Type 0.", magic + frame(b"a", b"hello", 0, kind=0) + end, "unknown type 0", "unsupported")
    yield bad("type-4", "Type 4.", magic + frame(b"a", b"hello", 0, kind=4) + end, "unknown type 4", "unsupported")
    for flag in (2, 128):
        yield bad("flag-%d" % flag, "A reserved flag.", magic + frame(b"a", b"hello", 0, flags=flag) + end,
                  "unknown flags %d" % flag,
                  "unsupported")
    yield bad("key-4097", "A key of 4097 bytes, before any checksum.",
              magic + frame(b"a", b"", 0, key_bytes=4097, flip=1),
              "a key of 4097 bytes")
    yield bad("key-65535", "A key of 65535 bytes, which nobody sends.", magic + frame(b"", b"", 0, key_bytes=65535),
              "a key of 65535 bytes")
    yield bad("payload-huge", "A payload of 64 MiB and a byte.", magic + frame(b"a", b"", 0, payload_bytes=67108865),
              "a payload of 67108865 bytes")
    yield bad("key-empty", "A record without a key.", magic + frame(b"", b"hello", 0) + end, "an empty key")
    yield bad("key-nul", "A key with a NUL.", magic + frame(b"a\0b", b"hello", 0) + end, "NUL")
    yield bad("failed-key-nul", "A failed record's key with a NUL.", magic + frame(b"a\0b", b"", 0, kind=2) + end,
              "NUL")
    yield bad("record-shorter", "A record of less than it says.", magic + frame(b"a", b"hello", 0, 6) + end,
              "does not fit")
    yield bad("record-longer", "A record of more than it says.", magic + frame(b"a", b"hello", 0, 4) + end,
              "does not fit")
    yield bad("pieces-shorter", "Pieces of less than the record.", begun + frame(b"a", b"ll", 0, 5) + end,
              "does not fit")
    yield bad("pieces-longer", "Pieces of more than the record.", begun + frame(b"a", b"llo!", 0, 5) + end,
              "does not fit")
    yield bad("pieces-full", "A piece that fills the record and continues.",
              begun + frame(b"a", b"llo", 0, 5, flags=1) + end,
              "does not fit")
    yield bad("piece-empty", "A piece of no bytes.", begun + frame(b"a", b"", 0, 5, flags=1) + end, "an empty piece")
    yield bad("piece-empty-first", "A record that begins with a piece of no bytes.",
              magic + frame(b"a", b"", 0, 5, flags=1) + end,
              "an empty piece")
    yield bad("piece-key", "A piece of another key.", begun + frame(b"b", b"llo", 0, 5) + end,
              "does not continue the record")
    yield bad("piece-number", "A piece of another number.", begun + frame(b"a", b"llo", 1, 5) + end,
              "does not continue the record")
    yield bad("piece-record-bytes", "A piece of another record size.", begun + frame(b"a", b"llo", 0, 6) + end,
              "size changes")
    yield bad("piece-failed-key", "A failed frame of another record between pieces.",
              begun + frame(b"b", b"", 0, kind=2) + end,
              "does not continue the record")
    yield bad("failed-continues", "A failed frame that continues.", magic + frame(b"a", b"", 0, kind=2, flags=1) + end,
              "continued")
    yield bad("end-continues", "An end frame that continues.", magic + end_frame(0, 0, flags=1), "continued")
    yield bad("end-in-record", "An end frame within a record.", begun + end_frame(0, 0),
              "follows an unfinished record")
    yield bad("end-with-key", "An end frame with a key.", magic + frame(b"a", b"", 0, 0, kind=3),
              "with a key or a payload")
    yield bad("end-with-payload", "An end frame with a payload.", magic + frame(b"", b"a", 0, 0, kind=3),
              "with a key or a payload")
    yield bad("end-records", "The end frame counts a record more.", one + end_frame(2, 5), "counts 2 records",
              records=1)
    yield bad("end-bytes", "The end frame counts a byte more.", one + end_frame(1, 6), "6 bytes", records=1)
    yield bad("end-counts-failed", "The end frame counts a failed record.",
              magic + frame(b"a", b"", 0, kind=2) + end_frame(1, 0),
              "counts 1 records")
