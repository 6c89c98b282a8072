"""Catalogs of data sets in plain Python, from format-spec/catalog.md alone, and their test vectors.

    python3 tests/conformance/sml_catalog.py    # writes format-spec/vectors/catalog/ again
"""

import copy
import itertools
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import sml_forge as forge  # noqa: E402
import vectors_valid  # noqa: E402
from sml_hash import xxh3_128  # noqa: E402

MAGIC = b"SML catalog "
MOST_BYTES = 64 << 20
MOST_DEPTH = 16
MOST_VALUES = 5000000
MOST = 2**64 - 1
REST_OBJECT_BYTES = 16 << 20
GROUPINGS = ["none", "stem"]
VECTORS = pathlib.Path(__file__).resolve().parents[2] / "format-spec" / "vectors"


class BadCatalog(Exception):
    def __init__(self, code, message):  # code: "corrupt" or "unsupported"
        super().__init__(f"{code}: {message}")
        self.code = code


def check(condition, message, code="corrupt"):
    if not condition:
        raise BadCatalog(code, message)


# --- the document


def seal(body):
    low, high = xxh3_128(body)
    return MAGIC + b"1 %016x%016x\n" % (high, low) + body


def encode(document):
    return seal(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


class Digits(int):
    """An integer that was written without a sign."""


def parse_integer(text):
    parse_float(text)
    return Digits(text) if text.isdigit() else int(text)


def parse_float(text):
    value = float(text)
    check(abs(value) != float("inf"), f"{text[:20]} is beyond a double")
    return value


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def values(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values, inner))


def parse(body):
    def refuse(constant):
        raise ValueError(constant)  # NaN and Infinity are no JSON

    def unlike(fields):
        check(len(dict(fields)) == len(fields), "a field twice")
        return dict(fields)

    try:
        document = json.loads(body.decode(), parse_int=parse_integer, parse_float=parse_float, parse_constant=refuse,
                              object_pairs_hook=unlike)
        json.dumps(document, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadCatalog("corrupt", f"no JSON: {error}") from error
    check(depth(document) <= MOST_DEPTH, "nested too deep")
    check(values(document) <= MOST_VALUES, "too many values")
    return document


class Fields:
    """The fields of a JSON object, each taken with its check; `out` has those that were taken."""

    def __init__(self, value):
        check(isinstance(value, dict), "no object")
        self.value, self.out = value, {}

    def take(self, name, kind):
        check(name in self.value, f"{name} is missing")
        value = self.value[name]
        check(isinstance(value, kind), f"{name} has another type")
        self.out[name] = value
        return value

    def integer(self, name, most=MOST, least=0):
        value = int(self.take(name, Digits))
        check(least <= value <= most, f"{name} is {value}, not {least} to {most}")
        self.out[name] = value
        return value

    def digits(self, name, count):
        value = self.take(name, str)
        check(re.fullmatch("[0-9a-f]{%d}" % count, value), f"{name} is not {count} hex digits")
        return int(value, 16)

    def digits_but_0(self, name):
        check(self.digits(name, 16) != 0, f"{name} is 0")

    def name(self):
        name = self.take("name", str).encode()
        check(1 <= len(name) <= 200, f"a name of {len(name)} bytes")
        check(not re.search(rb"\A\.|[\0-\x1f\x7f/]", name), f"the name {name}")

    def membership(self):
        check(self.take("grouping", str) in GROUPINGS, "unknown grouping", "unsupported")
        part, parts = self.integer("part"), self.integer("parts", 65536)
        check(part <= parts and (part == 0) == (parts == 0), f"part {part} of {parts}")


def container(value, revision):
    fields = Fields(value)
    fields.name()
    fields.digits("id", 32)
    fields.integer("since", revision)
    fields.membership()
    fields.integer("records", 2**32 - 1)
    size = fields.integer("bytes", 2**63 - 1)
    header = fields.integer("header_bytes", 4096, 128)
    blocks = fields.integer("blocks")
    end = fields.integer("blocks_end")
    check(header <= end and blocks <= end // 64, "sizes that do not fit")
    check((end + 4095) // 4096 * 4096 + 64 <= size, "no room for a tail")
    fields.digits("incarnation", 16)
    return fields.out


def announcement(value):
    fields = Fields(value)
    fields.name()
    fields.digits_but_0("incarnation")
    fields.digits_but_0("owner")
    fields.integer("recipe", 2**32 - 1)
    fields.membership()
    check(re.fullmatch("[ -~]{0,64}", fields.take("since", str)), "since is no time")
    return fields.out


def removal(value):
    fields = Fields(value)
    fields.name()
    fields.digits_but_0("incarnation")
    fields.integer("objects")
    return fields.out


def decode(data):
    """The fields that are known. Throws BadCatalog."""
    check(len(data) <= MOST_BYTES, "too large")
    check(data.startswith(MAGIC), "no catalog")
    version = re.match(rb"([^ \n]*)[ \n]", data[len(MAGIC):])
    check(version, "cut short")
    check(version[1] == b"1", "another version", "unsupported")
    line, end, body = data.partition(b"\n")
    check(end and len(line) == len(MAGIC) + 2 + 32, "cut short")
    check(seal(body) == data, "checksum mismatch")
    fields = Fields(parse(body))
    check(not fields.take("needs", list), "an unknown need", "unsupported")
    revision = fields.integer("revision")
    fields.integer("oldest", revision)
    out = fields.out
    out["containers"] = [container(one, revision) for one in fields.take("containers", list)]
    out["announced"] = [announcement(one) for one in fields.take("announced", list)]
    out["removed"] = [removal(one) for one in fields.take("removed", list)]
    for ones in (out["containers"], out["announced"]):
        names = [one["name"].encode() for one in ones]
        check(all(a < b for a, b in zip(names, names[1:])), "names that do not ascend")
    ones = [*out["containers"], *out["announced"], *out["removed"]]
    incarnations = [one["incarnation"] for one in ones if one["incarnation"] != "0" * 16]
    check(len(set(incarnations)) == len(incarnations), "an incarnation twice")
    return out


def at(catalog, revision):
    """The containers of a revision, None where it cannot be opened."""
    if not catalog["oldest"] <= revision <= catalog["revision"]:
        return None
    return [one for one in catalog["containers"] if one["since"] <= revision]


# --- where a container is cut into objects


def object_name(incarnation, number):
    return f"{incarnation}.{number:08x}"


def objects(one):
    """Those whose place the catalog alone gives: all but the blocks. (number, offset, size)"""
    found = [(0, 0, one["header_bytes"])]
    for offset in range(one["blocks_end"], one["bytes"], REST_OBJECT_BYTES):
        number = 1 + one["blocks"] + (offset - one["blocks_end"]) // REST_OBJECT_BYTES
        found.append((number, offset, min(REST_OBJECT_BYTES, one["bytes"] - offset)))
    return found


# --- what stands in catalogs


def entry(name, data, since, incarnation="0" * 16):
    """That of a container, given its bytes."""
    layout = forge.Layout(data)
    header = layout.header
    return {"name": name, "id": layout.id, "since": since, "grouping": GROUPINGS[header.grouping], "part": header.part,
            "parts": header.parts, "records": layout.counts["records"], "bytes": len(data),
            "header_bytes": header.header_bytes, "blocks": len(layout.blocks),
            "blocks_end": sum(block["size"] for block in layout.blocks) + header.header_bytes,
            "incarnation": incarnation}


def vector_entry(file, name, since, **fields):
    return entry(name, (VECTORS / "valid" / (file + ".sml")).read_bytes(), since, **fields)


def made_up(name, since, **fields):
    """Of a container that is not there: 1000 blocks of 4 MiB, and an index of 40 MB."""
    end = 128 + 1000 * (4 << 20)
    return {"name": name, "id": forge.hash_hex(name.encode()), "since": since, "grouping": "none", "part": 0,
            "parts": 0, "records": 4000000, "bytes": end + 3968 + 40000000 + 64, "header_bytes": 128, "blocks": 1000,
            "blocks_end": end, "incarnation": forge.hash_hex(b"incarnation" + name.encode())[:16], **fields}


def announced(name, **fields):
    return {"name": name, "incarnation": "00c0ffee00c0ffee", "owner": "0123456789abcdef", "recipe": 305419896,
            "grouping": "none", "part": 0, "parts": 0, "since": "2026-11-30T22:00:00Z", **fields}


def removed(name, objects_, incarnation="feedfacecafebeef"):
    return {"name": name, "incarnation": incarnation, "objects": objects_}


def document(revision=0, oldest=0, containers=(), announced_=(), removed_=()):
    return {"needs": [], "revision": revision, "oldest": oldest, "containers": list(containers),
            "announced": list(announced_), "removed": list(removed_)}


# --- vectors


def valid_vectors():
    """name, about, bytes, files: the containers that it lists and that are vectors themselves"""
    out = []

    def add(name, about, data, **files):
        out.append((name, about, data if isinstance(data, bytes) else encode(data), files))

    add("empty", "A data set without containers.", document())
    add("one-container", "A container in a directory.", document(1, 0, [vector_entry("02-one-record", "one", 1)]),
        one="02-one-record")
    files = {"A": "01-empty", "a": "02-one-record", "a-b": "03-several-records", "a.b": "04-name-order"}
    containers = [vector_entry(file, name, since) for (name, file), since in zip(files.items(), (6, 0, 3, 5))]
    add("revisions", "Six changes. In the fourth a container was removed. Names ascend as bytes.",
        document(6, 4, containers), **files)
    add("part-of-three", "One part of three: opened as partial only.",
        document(1, 0, [vector_entry("29-part", "part-2-of-3", 1)]), **{"part-2-of-3": "29-part"})
    parts = [made_up(f"part-{i}-of-3", 4 - i, grouping="stem", part=i, parts=3) for i in (1, 2, 3)]
    add("parts", "Three parts in Ceph. What follows their blocks is cut into three objects.", document(3, 0, parts))
    add("announced-and-removed", "In Ceph: two sealed, two announced, three removed, one of them of an unknown size.",
        document(9, 8, [vector_entry("02-one-record", "one", 2, incarnation="0123456789abcdef"),
                        vector_entry("03-several-records", "two", 9, incarnation="f" * 16)],
                 [announced("three"), announced("two-2-of-4", incarnation="0" * 15 + "1", part=2, parts=4)],
                 [removed("two", 3), removed("never", 0, "1" * 16), removed("never", 40, "2" * 16)]),
        one="02-one-record", two="03-several-records")
    names = [" ", "#@3", "-", "a b", "a.sml", "a?b", "n" * 200, "~", "\x80", "\u00e9" * 100, "\u65e5\u672c", "\ufffd",
             "\U0001f600"]
    add("names", "Names: spaces, signs, 200 bytes, UTF-8 of two to four bytes; in the order of bytes, not of UTF-16.",
        document(len(names), 0, [made_up(name, i + 1) for i, name in enumerate(names)]))
    most = made_up("most", MOST, part=65536, parts=65536, records=2**32 - 1, bytes=2**63 - 1, header_bytes=4096,
                   blocks=2**57 - 128, blocks_end=2**63 - 8192, incarnation="f" * 16, id="f" * 32)
    least = made_up("least", 0, part=1, parts=65536, records=0, bytes=4096 + 64, header_bytes=128, blocks=0,
                    blocks_end=128, incarnation="0" * 16, id="0" * 32)
    add("largest-numbers", "The largest and the smallest numbers.",
        document(MOST, MOST, [least, most],
                 [announced("next", since="~" * 64, recipe=2**32 - 1, incarnation="f" * 15 + "e", owner="f" * 16)],
                 [removed("most", MOST, "f" * 15 + "d")]))
    text = json.dumps(extended(document(1, 0, [vector_entry("02-one-record", "one", 1)], [announced("two")],
                                        [removed("three", 3)])), indent=1)
    text = text.replace('"one"', '"\\u006fne"')
    add("other-text", "Unknown fields, another order of fields, white space, escapes: what counts is the JSON.",
        seal(text.encode() + b"\n"), one="02-one-record")
    deep = document(1, 0, [vector_entry("02-one-record", "one", 1)])
    deep["containers"][0]["x"] = nested(MOST_DEPTH - 3)
    deep["x"] = nested(MOST_DEPTH - 1)
    add("deep", "Unknown fields that nest as deep as may be.", deep, one="02-one-record")
    return out


def nested(levels):
    """Arrays and objects in each other."""
    value = 0
    for level in range(levels):
        value = {"x": value} if level % 2 else [value]
    return value


def extended(value):
    """With unknown fields in every object, and the known ones in reverse."""
    if isinstance(value, list):
        return [extended(one) for one in value]
    if not isinstance(value, dict):
        return value
    unknown = {"colour": {"red": [1, -2.5, None, True]}, "Name": "another"}
    return {**unknown, **{name: extended(value[name]) for name in reversed(value)}}


def base():
    return document(7, 5, [made_up("a", 5), made_up("b", 7)], [announced("c"), announced("d", incarnation="d" * 16)],
                    [removed("e", 3)])


ABSENT = object()


def changed(*path_and_value):
    """base() with another value at a path; ABSENT: without the field."""
    *path, value = path_and_value
    out = base()
    place = out
    for step in path[:-1]:
        place = place[step]
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return encode(out)


def invalid_vectors():
    """name, about, bytes, code, part of the message of sml"""
    out = []

    def add(name, about, data, message, code="corrupt"):
        out.append((name, about, data, code, message))

    whole = encode(base())
    line, body = whole[:47], whole[47:]
    begin, cut, json_, sense = "does not begin as a catalog", "cut short", "it is no JSON", "makes no sense"
    add("no-bytes", "Nothing.", b"", begin)
    add("text", "A text.", b"Once upon a time\n" * 20, begin)
    add("container", "The first bytes of a container.", forge.Header().image() + bytes(384), begin)
    add("document-only", "The JSON without the first line.", body, begin)
    add("cut-in-magic", "Cut in the magic.", whole[:7], begin)
    add("version-2", "A newer version.", whole.replace(b"catalog 1", b"catalog 2", 1), "version '2'", "unsupported")
    add("version-10", "A newer version of two digits.", whole.replace(b"catalog 1", b"catalog 10", 1), "version '10'",
        "unsupported")
    add("version-long", "A newer version, and no end of it.", whole.replace(b"catalog 1", b"catalog " + b"2" * 2000, 1),
        "version '" + "2" * 20 + "'... is newer", "unsupported")
    add("version-line", "A newer version whose first line is another one.", b"SML catalog 2\n" + body,
        "version '2' is newer", "unsupported")
    add("cut-in-version", "Cut in the version.", whole[:13], cut)
    add("line-behind-version", "A first line without a checksum.", whole[:13] + b"\n" + body, cut)
    add("cut-in-checksum", "Cut in the checksum.", whole[:30], cut)
    add("cut-before-line-end", "Cut before the end of the first line.", whole[:46], cut)
    add("line-ends", "Line ends were converted.", whole.replace(b"\n", b"\r\n"), cut)
    add("cut-behind-first-line", "Cut behind the first line.", line, "checksum mismatch")
    add("cut-in-document", "Cut in the JSON.", whole[:-300], "checksum mismatch")
    add("cut-last-byte", "Cut before the last line end.", whole[:-1], "checksum mismatch")
    add("bytes-behind", "A line behind the end.", whole + b"\n", "checksum mismatch")
    add("two-catalogs", "Two catalogs.", whole + whole, "checksum mismatch")
    add("bit", "A bit is wrong.", whole.replace(b'"revision":7', b'"revision":6'), "checksum mismatch")
    add("checksum-upper-case", "A checksum in capital letters.",
        whole[:14] + whole[14:46].upper() + whole[46:], "checksum mismatch")
    add("no-document", "The checksum of nothing.", seal(b""), json_)
    add("no-json", "JSON that ends too early.", seal(body[:-3] + b"\n"), json_)
    add("json-and-more", "JSON, and something behind it.", seal(body + b"{}\n"), json_)
    add("no-utf-8", "A byte that is no UTF-8.", seal(body.replace(b'"name":"a"', b'"name":"\xe9"')), json_)
    add("half-a-pair", "Half of a surrogate pair.", seal(body.replace(b'"name":"a"', b'"name":"\\ud83d"')), json_)
    add("nan", "NaN, which is no JSON, in an unknown field.", seal(body.replace(b"{", b'{"x":NaN,', 1)), json_)
    add("byte-order-mark", "A byte order mark.", seal(b"\xef\xbb\xbf" + body), json_)
    add("nul", "JSON, and a NUL byte behind it.", seal(body + b"\0"), json_)
    add("nul-and-more", "JSON, a NUL byte and something else.", seal(body + b"\0{}"), json_)
    add("comment", "A comment.", seal(b"/* */" + body), json_)
    for name, value in (("1e400", b"1e400"), ("digits", b"1" * 400)):
        add("number-" + name, "A number in an unknown field that is beyond a double.",
            seal(body.replace(b"{", b'{"x":' + value + b",", 1)), json_)
    deep = "nests more than 16"
    add("deep", "An unknown field that makes it nest 17 deep.", changed("x", nested(MOST_DEPTH)), deep)
    add("deep-in-container", "The same in a container.", changed("containers", 0, "x", nested(MOST_DEPTH - 2)), deep)
    add("deep-in-needs", "A need that nests too deep.", changed("needs", [nested(MOST_DEPTH - 1)]), deep)
    add("deep-array", "An array 100000 deep.", seal(b"[" * 100000 + b"]" * 100000), deep)
    add("deep-unclosed", "Objects 20000 deep that do not end.", seal(b'{"x":' * 20000), deep)
    twice = "is there twice"
    for name, field, other in (("field", b'"revision":7', b'"revision":7'), ("container", b'"since":5', b'"since":0'),
                               ("escaped", b'"oldest":5', b'"oldes\\u0074":4')):
        add(name + "-twice", f"A field twice: {field.decode()} and {other.decode()}.",
            seal(body.replace(field, field + b"," + other, 1)), twice)
    add("unknown-twice", "An unknown field twice.", seal(body.replace(b"{", b'{"x":{"y":0,"z":1,"y":0},', 1)), twice)
    add("array", "An array instead of an object.", encode([base()]), "not an object")
    add("needs", "A need that nobody knows.", changed("needs", ["hidden records"]), "needs 'hidden records'",
        "unsupported")
    late = base()
    late["needs"] = ["another world"]
    late["containers"] = {"a": "in another form"}
    del late["oldest"]
    add("needs-first", "A need that changes all the rest: it is looked at first.", encode(late),
        "needs 'another world'", "unsupported")
    add("needs-long", "A need of 10000 bytes.", changed("needs", ["x" + "\u00e9" * 5000]),
        "needs 'x" + "\u00e9" * 31 + "'...,", "unsupported")
    add("needs-object", "A need that is no text.", changed("needs", [{"a": 1}]), "needs '{\"a\":1}',", "unsupported")
    add("needs-text", "Needs that are no array.", changed("needs", "none"), "'needs' " + sense)
    for name in base():
        add("no-" + name, f"Without {name}.", changed(name, ABSENT), f"'{name}' is missing")
    for name, value in (("negative", -1), ("fraction", 7.5), ("text", "7"), ("null", None), ("true", True),
                        ("2-64", 2**64)):
        add("revision-" + name, f"A revision that is {json.dumps(value)}.", changed("revision", value),
            "'revision' " + sense)
    add("revision-7.0", "A revision with a fraction of 0.", seal(body.replace(b'"revision":7', b'"revision":7.0')),
        "'revision' " + sense)
    add("revision-minus-0", "A revision with a sign.",
        seal(body.replace(b'"revision":7', b'"revision":-0').replace(b'"oldest":5', b'"oldest":0')),
        "'revision' " + sense)
    for text in ("1e3", "7E0", "0.7e1"):
        add("revision-" + text, f"A revision that is written {text}.",
            seal(body.replace(b'"revision":7', b'"revision":' + text.encode())), "'revision' " + sense)
    add("revision-07", "A revision with a zero in front.", seal(body.replace(b'"revision":7', b'"revision":07')), json_)
    add("oldest", "The oldest revision is yet to come.", changed("oldest", 8), "'oldest' " + sense)
    for name in ("containers", "announced", "removed"):
        add(name + "-object", f"An object instead of the array {name}.", changed(name, {}), f"'{name}' {sense}")
        add(name + "-number", f"A number among {name}.", changed(name, 0, 3), "not an object")
        for field in base()[name][0]:
            add(f"{name}-no-{field}", f"Without {field}.", changed(name, 0, field, ABSENT), f"'{field}' is missing")
    for name in ("containers", "announced"):
        ones = base()[name]
        add(name + "-order", f"Names that descend in {name}.", changed(name, ones[::-1]), "not in order")
        add(name + "-twice", f"One name twice in {name}.", changed(name, [ones[0], ones[0]]), "not in order")
    bad_names = (("empty", ""), ("slash", "a/b"), ("dot", ".a"), ("nul", "a\0"), ("line", "a\nb"), ("del", "\x7f"),
                 ("201", "\u00e9" * 100 + "e"))
    for name, value in bad_names:
        add("name-" + name, f"A name that is none: {json.dumps(value)[:10]}.", changed("containers", 0, "name", value),
            "is no name of a container")
    add("announced-name", "An announced name that is none.", changed("announced", 0, "name", "."), "is no name")
    add("removed-name", "A removed name that is none.", changed("removed", 0, "name", "a/b"), "is no name")
    for name, value in (("number", 7), ("31", "0" * 31), ("33", "0" * 33), ("no-hex", "0" * 31 + "g"),
                        ("upper-case", "0" * 31 + "A")):
        add("id-" + name, f"An id that is {json.dumps(value)}.", changed("containers", 0, "id", value), "'id' " + sense)
    for name, value in (("15", "0" * 15), ("17", "0" * 17), ("sign", "-" + "0" * 15), ("0x", "0x" + "0" * 14),
                        ("space", " " + "0" * 15), ("upper-case", "0" * 15 + "A")):
        add("incarnation-" + name, f"An incarnation that is {json.dumps(value)}.",
            changed("containers", 0, "incarnation", value), "'incarnation' " + sense)
    for kind, field in (("announced", "incarnation"), ("announced", "owner"), ("removed", "incarnation")):
        add(f"{kind}-{field}", f"No hex digits in {field}.", changed(kind, 0, field, "0" * 15 + "g"),
            f"'{field}' {sense}")
        add(f"{kind}-{field}-upper-case", f"Capital letters in {field}.", changed(kind, 0, field, "0" * 15 + "A"),
            f"'{field}' {sense}")
        add(f"{kind}-{field}-0", f"0 as {field}.", changed(kind, 0, field, "0" * 16), f"'{field}' {sense}")
    kinds = ("containers", "announced", "removed")
    for one, other in itertools.combinations_with_replacement(kinds, 2):
        ones = base()
        ones["removed"].append(removed("f", 0, "f" * 16))
        ones[one][0]["incarnation"] = ones[other][1]["incarnation"]
        name = "same-incarnation-" + (one if one == other else f"{one}-{other}")
        add(name, f"One incarnation twice: {one} and {other}.", encode(ones),
            "incarnation " + ones[other][1]["incarnation"] + " is there twice")
    add("since", "A container of a revision yet to come.", changed("containers", 0, "since", 8), "'since' " + sense)
    add("announced-since", "A time that is a number.", changed("announced", 0, "since", 1796083200), "'since' " + sense)
    for name, value in (("line", "2026-11-30\n"), ("65", "x" * 65), ("no-ascii", "gestern fr\u00fch")):
        add("announced-since-" + name, f"A time that is {json.dumps(value)[:20]}.",
            changed("announced", 0, "since", value), "'since' " + sense)
    for kind in ("containers", "announced"):
        add(kind + "-grouping", "A grouping that nobody knows.", changed(kind, 0, "grouping", "size"),
            "unknown grouping 'size'", "unsupported")
        for name, part, parts, message in (("0-of-2", 0, 2, "a part that is none"), ("3-of-2", 3, 2, "'part' " + sense),
                                           ("1-of-0", 1, 0, "'part' " + sense),
                                           ("1-of-65537", 1, 65537, "'parts' " + sense)):
            other = copy.deepcopy(base()[kind])
            other[0].update(part=part, parts=parts)
            add(f"{kind}-part-{name}", f"Part {part} of {parts}.", changed(kind, other), message)
    end = base()["containers"][0]["blocks_end"]
    size = "sizes that make no sense"
    for field, name, value, message in (
        ("records", "2-32", 2**32, "'records' " + sense),
        ("header_bytes", "127", 127, size),
        ("header_bytes", "4097", 4097, "'header_bytes' " + sense),
        ("blocks", "large", end // 64 + 1, "'blocks' " + sense),
        ("bytes", "64", end + 64, size),
        ("bytes", "padding-63", (end + 4095) // 4096 * 4096 + 63, size),
        ("bytes", "2-63", 2**63, "'bytes' " + sense),
        ("bytes", "0", 0, "'blocks_end' " + sense),
        ("blocks_end", "large", base()["containers"][0]["bytes"] + 1, "'blocks_end' " + sense),
        ("blocks_end", "127", 127, "'header_bytes' " + sense),
    ):
        add(f"{field}-{name}", f"{field} is {value}.", changed("containers", 0, field, value), message)
    add("recipe", "A recipe of 33 bits.", changed("announced", 0, "recipe", 2**32), "'recipe' " + sense)
    add("objects", "A negative number of objects.", changed("removed", 0, "objects", -1), "'objects' " + sense)
    return out


def twin(about, data, files):
    catalog = decode(data)
    del catalog["needs"]
    span = range(catalog["oldest"], catalog["revision"] + 1)
    rows = [{"revision": r, "containers": [one["name"] for one in at(catalog, r)]} for r in span[:20]]
    cut = []
    for one in catalog["containers"]:
        for number, offset, size in objects(one):
            name = object_name(one["incarnation"], number)
            cut.append({"container": one["name"], "object": name, "offset": offset, "bytes": size})
    files = {name: f"valid/{file}.sml" for name, file in files.items()}
    return {"about": about, "bytes": len(data), "files": files, **catalog, "revisions": rows, "objects": cut}


def write(to):
    """All vectors, below the directory `to`."""

    def put(name, content):
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    for number, (name, about, data, files) in enumerate(valid_vectors(), 1):
        put("valid/%02d-%s.catalog" % (number, name), data)
        put("valid/%02d-%s.json" % (number, name), vectors_valid.dump(twin(about, data, files)))
    rows = []
    for number, (name, about, data, code, message) in enumerate(invalid_vectors(), 1):
        file = "%03d-%s.catalog" % (number, name)
        put("invalid/" + file, data)
        rows.append({"file": file, "about": about, "code": code, "message": message})
    put("invalid/expected.json", vectors_valid.dump({"vectors": rows}))


if __name__ == "__main__":
    for old in (VECTORS / "catalog").glob("*/*"):
        old.unlink()
    write(VECTORS / "catalog")
