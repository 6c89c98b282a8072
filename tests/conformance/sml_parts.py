"""What the readers of containers and of framed streams share: refusals, keys, varints, zstd frames, and the arrays of
format-spec/index.md. Written from format-spec/ alone."""

import struct
from types import SimpleNamespace

import zstandard


class Refused(Exception):
    def __init__(self, code, message):  # code: "corrupt", "truncated" or "unsupported"
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self):
        return f"{self.code}: {self.message}"


def check(condition, message, code="corrupt"):
    if not condition:
        raise Refused(code, message)


def unpack(layout, names, data, offset=0):
    return SimpleNamespace(**dict(zip(names.split(), struct.unpack_from("<" + layout, data, offset))))


def up(number, multiple):
    return -(-number // multiple) * multiple


# Keys (keys.md)


def check_key(key):
    check(1 <= len(key) <= 4096 and 0 not in key, f"a key of {len(key)} bytes, or with NUL")


def stem(key):
    base = key.rfind(b"/") + 1
    while key[base : base + 1] == b".":
        base += 1
    dot = key.find(b".", base)
    return key if dot < 0 else key[:dot]


def varints(data, at, count):
    values = []
    for _ in range(count):
        size, value = 0, 0
        while True:
            check(at < len(data) and size < 10, "a varint that does not end")
            value |= (data[at] & 127) << 7 * size
            at, size = at + 1, size + 1
            if data[at - 1] < 128:
                break
        check(value < 1 << 64, "a varint of more than 64 bits")
        values.append(value)
    return values, at


def zstd(data, size, dictionary=None):
    """Decodes one frame that gives `size` bytes."""
    check(data[:4] == b"\x28\xb5\x2f\xfd", "not a zstd frame")
    try:
        frame = zstandard.get_frame_parameters(data)
        check(frame.content_size == size, f"a zstd frame of {frame.content_size} bytes where {size} belong")
        check(not frame.has_checksum and frame.dict_id == 0, "a zstd frame with a checksum or a dictionary id")
        decoder = zstandard.ZstdDecompressor(dictionary and zstandard.ZstdCompressionDict(dictionary)).decompressobj()
        decoded = decoder.decompress(data)
    except zstandard.ZstdError as error:
        raise Refused("corrupt", str(error)) from None
    check(decoder.eof and decoder.unused_data == b"" and len(decoded) == size, "not exactly one zstd frame")
    return decoded


# Arrays (index.md)


def packed(data, count, width):
    check(width <= 64 and len(data) == 8 * up(count * width, 64) // 64, "packed integers of another size")
    values, mask = [], (1 << width) - 1
    for bit in range(0, count * width, width) if width else [0] * count:
        values.append(int.from_bytes(data[bit // 8 : (bit + width + 7) // 8], "little") >> bit % 8 & mask)
    return values


def bits(data):
    return [data[i // 8] >> i % 8 & 1 for i in range(8 * len(data))]


def bit_vector(data, count):
    check(len(data) >= 16, "a bit vector without a header")
    number, ones = struct.unpack_from("<QQ", data)
    words = up(number, 64) // 64
    check(number == count and len(data) == 16 + 8 * (words + number // 512 + 1), "a bit vector of another size")
    vector = bits(data[16 : 16 + 8 * words])
    check(sum(vector) == ones and not any(vector[number:]), "a bit vector that counts wrong")
    for i, value in enumerate(struct.unpack_from("<%dQ" % (number // 512 + 1), data, 16 + 8 * words)):
        check(value == sum(vector[: 512 * i]), "a bit vector with a wrong directory")
    return vector[:number]


def elias_fano(data, count):
    check(len(data) >= 32, "an Elias-Fano list without a header")
    number, low_bits, high_words, reserved = struct.unpack_from("<4Q", data)
    check(number == count and reserved == 0 and low_bits <= 63, "an Elias-Fano list of another count")
    check(number <= 64 * high_words, "an Elias-Fano list with more values than bits")
    high = 32 + 8 * up(count * low_bits, 64) // 64
    samples = high + 8 * high_words
    check(len(data) == samples + 8 * (up(count, 256) // 256), "an Elias-Fano list of another size")
    low = packed(data[32:high], count, low_bits)
    ones = [place for place, bit in enumerate(bits(data[high:samples])) if bit]
    check(len(ones) == count, "an Elias-Fano list with other than one bit for each value")
    check(ones[::256] == list(struct.unpack_from("<%dQ" % len(ones[::256]), data, samples)), "Elias-Fano samples")
    values = [(place - i) << low_bits | low[i] for i, place in enumerate(ones)]
    check(values == sorted(values), "an Elias-Fano list that decreases")
    return values
