"""Reads and writes catalogs of data sets, from format-spec/catalog.md alone."""

import json

from sml_hash import xxh3_128

NUMBER_BITS = 64


class BadCatalog(Exception):
    """Its first argument is the error that a reader gives: corrupt or unsupported."""


def seal(body):
    low, high = xxh3_128(body)
    return b"SML catalog 1 %016x%016x\n" % (high, low) + body


def encode(document):
    return seal(json.dumps(document, ensure_ascii=False).encode() + b"\n")


def _number(value, most=2**NUMBER_BITS - 1, least=0):
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadCatalog("corrupt")
    return value


def _digits(value, count):
    if not isinstance(value, str) or len(value) != count or value.strip("0123456789abcdef"):
        raise BadCatalog("corrupt")


def _name(value):
    if not isinstance(value, str):
        raise BadCatalog("corrupt")
    data = value.encode()
    if not 1 <= len(data) <= 200 or data[:1] == b"." or b"/" in data or any(c < 32 or c == 127 for c in data):
        raise BadCatalog("corrupt")


def _membership(one):
    if one["grouping"] not in ("none", "stem"):
        raise BadCatalog("unsupported" if isinstance(one["grouping"], str) else "corrupt")
    parts = _number(one["parts"], 65536)
    part = _number(one["part"], parts)
    if (part == 0) != (parts == 0):
        raise BadCatalog("corrupt")


def _ascending(ones):
    names = [one["name"].encode() for one in ones]
    if any(a >= b for a, b in zip(names, names[1:])):
        raise BadCatalog("corrupt")


def decode(data):
    line, _, body = data.partition(b"\n")
    words = line.split(b" ")
    if words[:2] != [b"SML", b"catalog"]:
        raise BadCatalog("corrupt")
    if words[2:3] != [b"1"]:
        raise BadCatalog("unsupported")
    if seal(body) != data:
        raise BadCatalog("corrupt")
    try:
        document = json.loads(body)
        if not all(isinstance(document[name], list) for name in ("needs", "containers", "announced", "removed")):
            raise BadCatalog("corrupt")
        if document["needs"]:
            raise BadCatalog("unsupported")
        revision = _number(document["revision"])
        _number(document["oldest"], revision)
        for one in document["containers"]:
            _name(one["name"])
            _digits(one["id"], 32)
            _digits(one["incarnation"], 16)
            _number(one["since"], revision)
            _membership(one)
            _number(one["records"], 2**32 - 1)
            size = _number(one["bytes"])
            end = _number(one["blocks_end"], size - 64)
            _number(one["header_bytes"], min(4096, end), 128)
            _number(one["blocks"], end // 64)
        for one in document["announced"]:
            _name(one["name"])
            _digits(one["incarnation"], 16)
            _digits(one["owner"], 16)
            _number(one["recipe"], 2**32 - 1)
            _membership(one)
            if not isinstance(one["since"], str):
                raise BadCatalog("corrupt")
        for one in document["removed"]:
            _name(one["name"])
            _digits(one["incarnation"], 16)
            _number(one["objects"])
        _ascending(document["containers"])
        _ascending(document["announced"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadCatalog("corrupt") from error
    return document
