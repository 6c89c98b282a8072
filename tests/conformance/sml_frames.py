"""A reader of framed record streams in plain Python, written from format-spec/frames.md alone."""

from types import SimpleNamespace

from sml_hash import crc32c
from sml_parts import check, check_key, unpack

RECORD, FAILED, END = 1, 2, 3
UNKNOWN = (1 << 64) - 1


def frames(data):
    """Each frame of a stream, checked by itself."""
    at = 8
    check(len(data) >= 8 or not b"\x89SMLF\r\n".startswith(data[:7]), "no whole magic", "truncated")
    check(data[:7] == b"\x89SMLF\r\n", "not a framed record stream")
    check(data[7] == 1, f"version {data[7]} of framed record streams", "unsupported")
    while True:
        check(at + 32 <= len(data), "no end frame", "truncated")
        names = "header_crc32c type flags key_bytes payload_bytes payload_crc32c number record_bytes"
        f = unpack("IBBHIIQQ", names, data, at)
        check(f.key_bytes <= 4096, f"key_bytes {f.key_bytes}")
        check(at + 32 + f.key_bytes <= len(data), "a key that is cut short", "truncated")
        check(f.header_crc32c == crc32c(data[at + 4 : at + 32 + f.key_bytes]), "header_crc32c")
        check(f.type in (RECORD, FAILED, END), f"type {f.type}", "unsupported")
        check(f.flags <= 1, f"flags {f.flags:#x}", "unsupported")
        check(f.payload_bytes <= 67108864, f"payload_bytes {f.payload_bytes}")
        at += 32 + f.key_bytes
        f.key, f.payload = data[at - f.key_bytes : at], data[at : at + f.payload_bytes]
        check(len(f.payload) == f.payload_bytes, "a payload that is cut short", "truncated")
        check(f.payload_crc32c == crc32c(f.payload), "payload_crc32c")
        at += f.payload_bytes
        f.end = at
        yield f


def read_frames(data):
    """Every record and failure of a stream that takes all of `data`: key, number, content (None: failed), message."""
    under_way, content, count, total = None, b"", 0, 0
    for f in frames(data):
        same = under_way and (f.key, f.number) == (under_way.key, under_way.number)
        check(f.type == RECORD or f.flags == 0, "a failed or end frame that continues")
        if f.type == END:
            check(not under_way, "an end in a record")
            check(f.key_bytes == 0 and f.payload_bytes == 0, "an end with a key or a payload")
            check((f.number, f.record_bytes) == (count, total), f"an end that counts {f.number}, {f.record_bytes}")
            check(f.end == len(data), "bytes after the end frame")
            return
        if f.type == FAILED:
            check(not under_way or same, "a failed frame in another record")
            if f.key:
                check_key(f.key)
            under_way, content = None, b""
            yield SimpleNamespace(key=f.key, number=f.number, content=None, message=f.payload)
            continue
        check_key(f.key)
        check(not under_way or same and f.record_bytes == under_way.record_bytes, "another record in a record")
        check(f.payload or not (under_way or f.flags), "a piece of no bytes")
        content += f.payload
        check(len(content) <= f.record_bytes, "a record longer than it says")
        check(not f.flags or len(content) < f.record_bytes, "a whole record that continues")
        under_way = f if f.flags else None
        if not under_way:
            check(len(content) == f.record_bytes, "a record shorter than it says")
            yield SimpleNamespace(key=f.key, number=f.number, content=content, message=None)
            count, total, content = count + 1, total + len(content), b""
