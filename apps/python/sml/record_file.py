"""One record, read by ranges."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import Dataset

_READ_BYTES = 16 << 20


class RecordFile(io.RawIOBase):
    """A record as a file for reading: `io.BufferedReader(file, 1 << 20)` makes one request of many small
    reads."""

    def __init__(self, dataset: Dataset, number: int, size: int) -> None:
        super().__init__()
        self._dataset = dataset
        self._number = number
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if origin + offset < 0:
            raise ValueError(f"position {origin + offset}")
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Bytes that were read: some, if there are any, but 16 MiB at most."""
        view = memoryview(buffer).cast("B")
        piece = self._next(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self._next(_READ_BYTES), b""))

    def _next(self, most: int) -> bytearray:
        if self.closed:
            raise ValueError("the file is closed")
        count = min(most, _READ_BYTES, max(0, self._size - self._at))
        if count == 0:
            return bytearray()
        piece = self._dataset._ask("range", number=self._number, offset=self._at, bytes=count).payload
        self._at += len(piece)
        return piece
