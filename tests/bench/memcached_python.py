"""A Python client of memcached, as fast as it can be made: one line asks for a batch, its answer is received into one buffer, and values are
views of it. Batches may be asked for ahead."""

import socket


class Memcached:
    def __init__(self, address):
        """`address`: a path, or (host, port)."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.connect(address)
        self.buffer = bytearray(1 << 20)
        self.view = memoryview(self.buffer)
        self.begin = self.end = 0

    def close(self):
        self.socket.close()

    def ask(self, keys):
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")

    def _fill(self):
        if self.end == len(self.buffer):
            self._grow()
        got = self.socket.recv_into(self.view[self.end :])
        if not got:
            raise ConnectionError("memcached has gone")
        self.end += got

    def _grow(self):
        """Room behind what is there: views that were given keep the old buffer."""
        held = self.end - self.begin
        fresh = bytearray(max(len(self.buffer), 2 * held))
        fresh[:held] = self.view[self.begin : self.end]
        self.buffer, self.view = fresh, memoryview(fresh)
        self.begin, self.end = 0, held

    def receive(self, count):
        """The values of a batch, in the order asked for; each must be there."""
        values = []
        if self.begin == self.end:
            self.begin = self.end = 0
        for _ in range(count):
            while (line_end := self.buffer.find(b"\r\n", self.begin, self.end)) < 0:
                self._fill()
            _, _, _, size = self.buffer[self.begin : line_end].split()
            offset = line_end + 2 - self.begin
            size = int(size)
            while self.end - self.begin < offset + size + 2:
                self._fill()
            at = self.begin + offset
            values.append(self.view[at : at + size])
            self.begin = at + size + 2
        while self.end - self.begin < 5:
            self._fill()
        if self.buffer[self.begin : self.begin + 5] != b"END\r\n":
            raise ValueError("memcached: no END")
        self.begin += 5
        return values
