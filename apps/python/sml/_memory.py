"""Memory for payloads, used again: fresh memory costs as much as to read into it."""

from __future__ import annotations

import sys

_KEPT = 4
_LEAST = 64 << 10  # bytes that are worth it
# Of a buffer that nobody has a view of, as take() counts them.
_OWN_REFERENCES = 3


class Memory:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Of so many bytes, whatever they are. It is used again when the last view of it has gone."""
        for buffer in self._buffers:
            if size <= len(buffer) <= 4 * size and sys.getrefcount(buffer) <= _OWN_REFERENCES:
                return memoryview(buffer)[:size]
        buffer = bytearray(size)
        if size >= _LEAST:
            self._buffers = [*self._buffers[1 - _KEPT :], buffer]
        return memoryview(buffer)
