"""CRC32C, fast enough in plain Python.

The checksum is the remainder of a polynomial over GF(2) modulo P. A multiple of P with few terms, x^n + x^m +
... + 1, says that x^n is the same as a few lower powers: so the front of a long message can be added to the
rest of it, at these distances, and be left out. As x^2n + x^2m + ... + 1 and so on are multiples as well,
that goes with half of the message at a time, by shifts of Python's long integers. The end goes byte by byte.
"""

from __future__ import annotations

from typing import Union

_POLYNOMIAL = 0x82F63B78  # the bits reversed, as in the messages
_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [c >> 1 ^ (_POLYNOMIAL if c & 1 else 0) for c in _TABLE]

# Exponents of multiples of P, as distances from the first one.
_LONG = tuple(6777 - e for e in (484, 100, 0))
_SHORT = tuple(563 - e for e in (109, 58, 53, 31, 0))
_PIECE_BYTES = 128 << 10  # stays in the processor's cache
_SMALL_BYTES = 64


def _bytewise(state: int, data: Union[bytes, memoryview]) -> int:
    for byte in data:
        state = _TABLE[(state ^ byte) & 255] ^ state >> 8
    return state


def _fold(value: int, bits: int, distances: tuple[int, ...]) -> tuple[int, int]:
    """A shorter message with the same remainder. Bit 0 is the highest power."""
    nearest, farthest = distances[0], distances[-1]
    while bits >= nearest + farthest:
        scale = 1 << (bits // (nearest + farthest)).bit_length() - 1
        cut = nearest * scale
        front = value & (1 << cut) - 1
        moved = front
        for distance in distances[1:]:
            moved ^= front << (distance - nearest) * scale
        value = value >> cut ^ moved
        bits -= cut
    return value, bits


def crc32c(data: Union[bytes, bytearray, memoryview]) -> int:
    """Of contiguous bytes."""
    state = 0xFFFFFFFF
    view = memoryview(data)
    for at in range(0, len(view), _PIECE_BYTES):
        piece = view[at : at + _PIECE_BYTES]
        if len(piece) < _SMALL_BYTES:
            state = _bytewise(state, piece)
            continue
        value, bits = int.from_bytes(piece, "little") ^ state, 8 * len(piece)
        for distances in (_LONG, _SHORT):
            value, bits = _fold(value, bits, distances)
        zeros = -bits % 8  # in front
        state = _bytewise(0, (value << zeros).to_bytes((bits + zeros) // 8, "little"))
    return state ^ 0xFFFFFFFF
