"""Requests to a server and its answers (serve-stdio.md)."""

from __future__ import annotations

import collections
import copy
import io
import itertools
import json
import os
import select
import socket
import threading
from typing import Any, NoReturn, Optional, Protocol, cast

from . import _fork
from ._files import MappedFiles
from ._memory import Memory
from ._process import Process
from .errors import Error, LimitExceeded, ServerDied, from_answer

_PROTOCOL = 1
_REQUEST_BYTES = 16 << 20  # at most, as long as hello has not told
_READ_BYTES = 64 << 10
# As much can be written at once, without waiting, into a pipe or a socket that is ready for writing.
_READY_BYTES = select.PIPE_BUF


class Channel(Protocol):
    requests: int  # a descriptor
    answers: io.BufferedReader

    def died(self) -> ServerDied:
        """Closes it, and tells why there are no more answers."""

    def close(self) -> None:
        ...

    def forget(self) -> None:
        """In a forked child: closes what it has of it, the parent keeps it."""


class ProcessChannel:
    """A server of our own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.requests = process.stdin.fileno()
        self.answers = io.BufferedReader(cast(io.RawIOBase, process.stdout), _READ_BYTES)

    def died(self) -> ServerDied:
        return self._process.failure(ServerDied, "the server ended")

    def close(self) -> None:
        self._process.end()

    def forget(self) -> None:
        self._process.forget()


class SocketChannel:
    """A server that another process started with a socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        with socket.socket(socket.AF_UNIX) as connected:
            try:
                connected.connect(path)
            except OSError as error:
                raise Error(f"{path}: {error}", "is the server still running?") from error
            self._raw = connected.makefile("rb", buffering=0)  # which keeps it open
        self.requests = self._raw.fileno()
        self.answers = io.BufferedReader(cast(io.RawIOBase, self._raw), _READ_BYTES)

    def died(self) -> ServerDied:
        self.close()
        return ServerDied(f"the server at {self._path} ended the connection")

    def close(self) -> None:
        self._raw.close()

    forget = close


class Answer:
    """What came, or will come, for a request: the fields of its line, and its payload."""

    __slots__ = ("error", "fields", "id", "payload")

    def __init__(self, number: int) -> None:
        self.id = number
        self.fields: Optional[dict[str, Any]] = None  # until it has come
        self.payload = memoryview(b"")
        self.error: Optional[Error] = None

    def __getitem__(self, name: str) -> Any:
        assert self.fields is not None
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        assert self.fields is not None
        return self.fields.get(name, default)

    def add_errors(self, errors: list[Any]) -> None:
        """Of records of this answer, by their indices."""
        assert self.fields is not None
        self.fields["errors"] = [*self.fields.get("errors", ()), *errors]


class Connection:
    """Answers come in the order of requests; more may be asked before they come. Safe for threads, which take
    turns. An exception in the middle of an answer, such as KeyboardInterrupt, ends the connection.
    """

    def __init__(self, channel: Channel, map_files: bool) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._asked: collections.deque[Answer] = collections.deque()
        self._abandoned: collections.deque[int] = collections.deque()
        self._last_id = -1
        self._failure: Optional[Error] = None
        self._ready = select.poll()
        self._ready.register(channel.requests, select.POLLOUT)
        self._request_bytes = _REQUEST_BYTES
        self._files = MappedFiles()
        self._memory = Memory()
        _fork.forget_in_child(self)
        self._request_bytes = self.ask("hello", protocol=_PROTOCOL, places=map_files)["limits"]["request_bytes"]

    @property
    def closed(self) -> bool:
        return self._failure is not None

    def send(self, request: str, **fields: Any) -> Answer:
        """Asks, and does not wait."""
        with self._lock:
            while self._abandoned:
                self._send("close", {"epoch": self._abandoned.popleft()})
            return self._send(request, fields)

    def wait(self, answer: Answer) -> Answer:
        """The same, when it has come; raises its error."""
        with self._lock:
            while answer.fields is None:
                self._check_open()
                self._read_answer()
        if answer.error is not None:
            raise copy.copy(answer.error)  # not the one that is kept: it would keep all that the caller has
        return answer

    def ask(self, request: str, **fields: Any) -> Answer:
        return self.wait(self.send(request, **fields))

    def records(self, answer: Answer) -> list[Optional[memoryview]]:
        """The records of an answer to get or next, views into files or into its payload; None for one with an
        error."""
        places, sizes = answer.get("places"), answer["sizes"]
        if places:
            with self._lock:
                views = self._files.views(places, sizes)
            if views is not None:
                return views
        payload, at = answer.payload.toreadonly(), 0
        records: list[Optional[memoryview]] = []
        gone: list[int] = []  # indices of records whose files are not there
        with self._lock:
            for i, (size, place) in enumerate(zip(sizes, places or itertools.repeat(None))):
                if place is None:
                    records.append(None if size is None else payload[at : at + size])
                    at += size or 0
                    continue
                number, offset = place
                records.append(self._files.view(number, offset, size))
                if records[-1] is None:
                    gone.append(i)
        if gone:
            again = self.ask("get", numbers=[answer["numbers"][i] for i in gone], places=False)
            for i, record in zip(gone, self.records(again)):
                records[i] = record
            answer.add_errors([[gone[i], error] for i, error in again.get("errors", ())])
        return records

    def abandon(self, epoch: int) -> None:
        """Has the epoch closed before the next request. Waits for nothing: for finalizers."""
        self._abandoned.append(epoch)

    def close(self) -> None:
        """Once the answer has come that another thread waits for."""
        with self._lock:
            if self._failure is None:
                self._failure = Error("the connection is closed")
                self._channel.close()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._failure is None:
            self._failure = Error("the connection belongs to the process that this one was forked from")
            self._channel.forget()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _fail(self, cause: BaseException) -> NoReturn:
        if isinstance(cause, (EOFError, OSError)):
            self._failure = self._channel.died()
            raise self._failure from cause
        self._failure = Error(f"the connection was broken off by {type(cause).__name__}")
        self._channel.close()
        raise cause

    def _send(self, request: str, fields: dict[str, Any]) -> Answer:
        self._check_open()
        self._last_id += 1
        answer = Answer(self._last_id)
        message = {"id": answer.id, "request": request, **fields}
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        if len(line) > self._request_bytes:
            why = f"a request of {len(line)} bytes: at most {self._request_bytes}"
            raise LimitExceeded(why, "ask for less at a time")
        try:
            self._write(memoryview(line + b"\n"))
        except BaseException as error:
            self._fail(error)
        self._asked.append(answer)
        return answer

    def _write(self, data: memoryview) -> None:
        # A server that waits for us to read its answers reads no requests: we must not wait for it then.
        while data:
            if not self._asked:
                data = data[os.write(self._channel.requests, data) :]
            elif self._ready.poll(0):
                data = data[os.write(self._channel.requests, data[:_READY_BYTES]) :]
            else:
                self._receive()

    def _read_answer(self) -> None:
        try:
            self._receive()
        except BaseException as error:
            self._fail(error)

    def _receive(self) -> None:
        line = self._channel.answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError("no answer")
        fields = json.loads(line)
        payload = rest = self._memory.take(fields.get("payload", 0))
        while rest:
            count = self._channel.answers.readinto(rest)
            if not count:
                raise EOFError("an answer that is cut short")
            rest = rest[count:]
        answer = self._asked.popleft()
        if fields["id"] != answer.id:
            raise Error(f"answer {fields['id']} came for request {answer.id}")
        if not fields["ok"]:
            answer.error = from_answer(fields["error"])
        self._files.mention(fields.get("files", ()))
        answer.fields, answer.payload = fields, payload
