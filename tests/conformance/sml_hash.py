"""CRC32C, XXH3-64 and XXH3-128 (seed 0) in plain Python, written from RFC 3720 and the xxHash specification."""

import struct
from operator import xor

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

BYTE = list(range(256))
for _ in range(8):
    BYTE = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in BYTE]
WORD = [BYTE[(BYTE[w & 255] ^ w >> 8) & 255] ^ (BYTE[w & 255] ^ w >> 8) >> 8 for w in range(65536)]


def crc32c(data, before=0):
    """Of `data`, or of all bytes if `before` is that of those before."""
    crc = before ^ M32
    for word in struct.unpack_from("<%dH" % (len(data) // 2), data):
        crc = WORD[(crc ^ word) & 65535] ^ crc >> 16
    if len(data) % 2:
        crc = BYTE[(crc ^ data[-1]) & 255] ^ crc >> 8
    return crc ^ M32


def words(data, offset, count):
    return struct.unpack_from("<%dQ" % count, data, offset)


def fold(a, b):
    return (a * b & M64) ^ (a * b >> 64)


def swap(x, size):
    return int.from_bytes(x.to_bytes(size, "little"), "big")


def rotate(x, by, bits):
    return (x << by | x >> (bits - by)) & ((1 << bits) - 1)


def avalanche(x):
    x &= M64
    x = (x ^ x >> 37) * MX1 & M64
    return x ^ x >> 32


def avalanche_xxh64(x):
    x &= M64
    x = (x ^ x >> 33) * P2 & M64
    x = (x ^ x >> 29) * P3 & M64
    return x ^ x >> 32


def mix(data, at, secret_at):
    (a, b), (c, d) = words(data, at, 2), words(SECRET, secret_at, 2)
    return fold(a ^ c, b ^ d)


def accumulators(data):
    """Of more than 240 bytes. Sums are reduced modulo 2^64 only where higher bits would matter."""
    sums = [P32_3, P1, P2, P3, P4, P32_2, P5, P32_1]
    secret, last = words(SECRET, 0, 24), words(SECRET, 121, 8)
    for at in range(0, len(data), 1024):
        stripes = min(16, (len(data) - at - 1) // 64)
        block = words(data, at, 8 * stripes)
        for lane in range(8):
            mixed = map(xor, block[lane::8], secret[lane:])
            sums[lane] += sum(block[lane ^ 1 :: 8]) + sum([(v & M32) * (v >> 32) for v in mixed])
        if stripes == 16:
            for lane in range(8):
                s = sums[lane] & M64
                sums[lane] = (s ^ s >> 47 ^ secret[16 + lane]) * P32_1
    end = words(data, len(data) - 64, 8)
    for lane in range(8):
        value = end[lane] ^ last[lane]
        sums[lane] = sums[lane] + end[lane ^ 1] + (value & M32) * (value >> 32) & M64
    return sums


def merge(sums, start, secret_at):
    s = [a ^ b for a, b in zip(sums, words(SECRET, secret_at, 8))]
    return avalanche(start + sum(fold(s[i], s[i + 1]) for i in (0, 2, 4, 6)))


def short(data):
    """Of 1 to 3 bytes: XXH3-64 is the low half of XXH3-128."""
    n = len(data)
    a, b, c, d = struct.unpack_from("<4I", SECRET)
    x = data[-1] | n << 8 | data[0] << 16 | data[n // 2] << 24
    return avalanche_xxh64(a ^ b ^ x), avalanche_xxh64(c ^ d ^ rotate(swap(x, 4), 13, 32))


def xxh3_64(data):
    n, s = len(data), words(SECRET, 0, 24)
    if n == 0:
        return avalanche_xxh64(s[7] ^ s[8])
    if n <= 3:
        return short(data)[0]
    if n <= 8:
        x = s[1] ^ s[2] ^ (int.from_bytes(data[-4:], "little") | int.from_bytes(data[:4], "little") << 32)
        x = (x ^ rotate(x, 49, 64) ^ rotate(x, 24, 64)) * MX2 & M64
        x = (x ^ (x >> 35) + n) * MX2 & M64
        return x ^ x >> 28
    if n <= 16:
        low, high = s[3] ^ s[4] ^ words(data, 0, 1)[0], s[5] ^ s[6] ^ words(data, n - 8, 1)[0]
        return avalanche(n + swap(low, 8) + high + fold(low, high))
    if n <= 128:
        x = n * P1
        for i in range((n - 1) // 32 + 1):
            x += mix(data, 16 * i, 32 * i) + mix(data, n - 16 * i - 16, 32 * i + 16)
        return avalanche(x)
    if n <= 240:
        x = avalanche(n * P1 + sum(mix(data, 16 * i, 16 * i) for i in range(8)))
        return avalanche(x + sum(mix(data, 16 * i, 16 * i - 125) for i in range(8, n // 16)) + mix(data, n - 16, 119))
    return merge(accumulators(data), n * P1, 11)


def xxh3_128(data):
    """The low 64 bits, then the high ones."""
    n, s = len(data), words(SECRET, 0, 24)
    if n == 0:
        return avalanche_xxh64(s[8] ^ s[9]), avalanche_xxh64(s[10] ^ s[11])
    if n <= 3:
        return short(data)
    if n <= 8:
        x = s[2] ^ s[3] ^ (int.from_bytes(data[:4], "little") | int.from_bytes(data[-4:], "little") << 32)
        product = x * (P1 + (n << 2))
        low, high = product & M64, (product >> 64) + (product << 1) & M64
        low ^= high >> 3
        low = (low ^ low >> 35) * MX2 & M64
        return low ^ low >> 28, avalanche(high)
    if n <= 16:
        first, last = words(data, 0, 1)[0], words(data, n - 8, 1)[0]
        product = (s[4] ^ s[5] ^ first ^ last) * P1
        last ^= s[6] ^ s[7]
        low = (product + ((n - 1) << 54)) & M64
        high = ((product >> 64) + last + (last & M32) * (P32_2 - 1)) & M64
        product = (low ^ swap(high, 8)) * P2
        return avalanche(product), avalanche((product >> 64) + high * P2)
    if n > 240:
        sums = accumulators(data)
        return merge(sums, n * P1, 11), merge(sums, ~(n * P2) & M64, 117)
    a, b = n * P1 & M64, 0
    if n <= 128:
        steps = [(16 * i, n - 16 * i - 16, 32 * i) for i in reversed(range((n - 1) // 32 + 1))]
    else:
        steps = [(32 * i, 32 * i + 16, 32 * i if i < 4 else 32 * i - 125) for i in range(n // 32)]
        steps.append((n - 16, n - 32, 103))
    for step, (one, two, secret_at) in enumerate(steps):
        a = (a + mix(data, one, secret_at) & M64) ^ (sum(words(data, two, 2)) & M64)
        b = (b + mix(data, two, secret_at + 16) & M64) ^ (sum(words(data, one, 2)) & M64)
        if n > 128 and step == 3:
            a, b = avalanche(a), avalanche(b)
    return avalanche(a + b), -avalanche(a * P1 + b * P4 + n * P2) & M64
