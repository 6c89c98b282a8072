"""Keys and their stems (keys.md). A key is a str where it is UTF-8, else bytes."""

from __future__ import annotations

import base64
from typing import Any, Union

Key = Union[str, bytes]


def to_bytes(key: Key) -> bytes:
    """What Python could not decode of a file name (os.listdir) are the bytes that it was."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)


def from_bytes(key: bytes) -> Key:
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        return key


def to_json(key: Key) -> Any:
    text = from_bytes(to_bytes(key))
    return text if isinstance(text, str) else {"base64": base64.b64encode(text).decode("ascii")}


def from_json(key: Any) -> Key:
    return base64.b64decode(key["base64"]) if isinstance(key, dict) else key


def all_from_json(keys: list[Any]) -> list[Key]:
    return [key if isinstance(key, str) else from_json(key) for key in keys]


def _split(key: Key) -> tuple[bytes, bytes]:
    """The stem, and what follows its dot."""
    directory, slash, base = to_bytes(key).rpartition(b"/")
    name = base.lstrip(b".")
    front, _, rest = name.partition(b".")
    return directory + slash + base[: len(base) - len(name)] + front, rest


def stem(key: Key) -> Key:
    """The key up to the first dot of its base name, dots at the front passed over."""
    return from_bytes(_split(key)[0])


def extension(key: Key) -> str:
    """What follows the dot behind the stem: "seg.png" of "a/001.seg.png"; "" where there is no dot."""
    return _split(key)[1].decode("utf-8", "surrogateescape")
