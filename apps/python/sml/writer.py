"""Packing records that come from Python."""

from __future__ import annotations

import os
import struct
from typing import Optional, Union

from . import _fork, _process
from . import keys as key_module
from ._crc32c import crc32c
from ._process import Path
from .errors import PackFailed
from .keys import Key

Data = Union[bytes, bytearray, memoryview]

# frames.md
_MAGIC = b"\x89SMLF\r\n\x01"
_RECORD, _END = 1, 3
_CONTINUES = 1
_UNKNOWN = (1 << 64) - 1
_PAYLOAD_BYTES = 64 << 20
_KEY_BYTES = 4096
_AFTER_CHECKSUM = struct.Struct("<BBHIIQQ")


class Writer:
    """Makes a container of records, in the order in which they are written. It appears with `close()`; where
    that raises, or an exception leaves the `with` block, nothing appears.

    For one thread at a time, and for the process that made it.
    """

    def __init__(
        self,
        location: Path,
        *,
        sml: Optional[Path] = None,
        name: Optional[str] = None,
        part: Optional[str] = None,
        prefix: Optional[str] = None,
        overwrite: bool = False,
        resume: bool = False,
        on_duplicate: Optional[str] = None,
        group_by: Optional[str] = None,
        compress: Optional[str] = None,
        block_size: Union[int, str, None] = None,
        align: Union[int, str, None] = None,
        threads: Optional[int] = None,
        ceph_conf: Optional[Path] = None,
        ceph_user: Optional[str] = None,
        ceph_timeout: Optional[int] = None,
    ) -> None:
        """A container file, or a data set to which one is added. `sml` as for `open`, others as the options
        of `sml pack`; sizes are bytes, or text such as "4M". With `resume`, one that writes the same records
        again from the first goes on where an interrupted one was."""
        options = _process.options(
            output=location,
            quiet=True,
            name=name,
            part=part,
            prefix=prefix,
            overwrite=overwrite,
            resume=resume,
            on_duplicate=on_duplicate,
            group_by=group_by,
            compress=compress,
            block_size=block_size,
            align=align,
            threads=threads,
            ceph_conf=ceph_conf,
            ceph_user=ceph_user,
            ceph_timeout=ceph_timeout,
        )
        arguments = [_process.program(sml), "pack", "--frames", *options, "--", "-"]
        self._process = _process.Process(arguments, os.getcwd(), output=False)
        self._records = 0
        self._bytes = 0
        self._closed = False
        _fork.forget_in_child(self)
        self._send(_MAGIC)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, key: Key, data: Data) -> None:
        """A record of any size. Raises ValueError for what can be no key, PackFailed where packing has
        failed, perhaps because of an earlier record."""
        if self._closed:
            raise ValueError("the writer is closed")
        name = key_module.to_bytes(key)
        if not 0 < len(name) <= _KEY_BYTES or b"\0" in name:
            raise ValueError(f"a key has 1 to {_KEY_BYTES} bytes, none of them NUL: {key!r}")
        payload = memoryview(data).cast("B")
        for at in range(0, max(1, len(payload)), _PAYLOAD_BYTES):
            piece = payload[at : at + _PAYLOAD_BYTES]
            flags = _CONTINUES if at + len(piece) < len(payload) else 0
            self._frame(_RECORD, flags, name, piece, _UNKNOWN, len(payload))
        self._records += 1
        self._bytes += len(payload)

    def close(self) -> None:
        """Waits until the container is there. Raises PackFailed."""
        if self._closed:
            return
        self._frame(_END, 0, b"", memoryview(b""), self._records, self._bytes)
        self._closed = True
        try:
            self._process.finish()
        except BaseException:
            self.abort()
            raise
        if self._process.exit_code != 0:
            raise self._process.failure(PackFailed, "nothing was packed")

    def abort(self) -> None:
        """Publishes nothing."""
        self._closed = True
        self._process.terminate()

    def _frame(self, kind: int, flags: int, key: bytes, payload: memoryview, number: int, size: int) -> None:
        fields = (kind, flags, len(key), len(payload), crc32c(payload), number, size)
        checked = _AFTER_CHECKSUM.pack(*fields) + key
        self._send(struct.pack("<I", crc32c(checked)) + checked, payload)

    def _send(self, *pieces: Data) -> None:
        left = [memoryview(piece) for piece in pieces]
        try:
            while left:
                count = os.writev(self._process.stdin.fileno(), left)
                while left and count >= len(left[0]):
                    count -= len(left.pop(0))
                if left:
                    left[0] = left[0][count:]
        except BrokenPipeError:
            self._closed = True
            raise self._process.failure(PackFailed, "nothing was packed") from None
        except BaseException:
            self.abort()
            raise

    def _after_fork(self) -> None:
        if not self._closed:
            self._closed = True
            self._process.forget()
