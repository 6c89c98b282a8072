"""A data set: records by key, and where its epochs come from."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

from . import _fork, _process
from . import keys as key_module
from ._connection import Answer, Channel, Connection, ProcessChannel, SocketChannel
from ._process import Path
from .batch import RAISE, Batch, check_on_error
from .errors import Error, NotFound
from .keys import Key
from .record_file import RecordFile
from .selection import Keys, Selection
from .source import Source

_LIST_COUNT = 16384  # records of a page


class Info(NamedTuple):
    location: Key
    revision: int  # 0 where there is no catalog
    containers: str  # the digest of their ids
    records: int
    samples: int
    grouped: bool  # whether samples may have several records


class Entry(NamedTuple):
    key: Key
    number: int
    size: int  # bytes


class Dataset(Mapping[Key, memoryview], Source):
    """A mapping of keys to records. What asks the server may raise Unavailable, or ServerDied.

    A server is started when it is needed: one for this process, and one for each other process into which the
    data set gets, forked or pickled; there it refuses (Error) to go on with other containers. With a socket,
    the server of the process that opened it is for all of them.

    Safe for threads, which take turns.
    """

    def __init__(
        self, location: Optional[Path], program: Path, socket: Optional[Path], options: list[str], map_files: bool
    ) -> None:
        """See `open`."""
        self._location = location
        self._program = program
        self._socket = None if socket is None else os.path.abspath(os.fsdecode(socket))
        self._options = options
        self._map_files = map_files
        self._cwd = os.getcwd()
        self._info: Optional[Info] = None
        self._joins = location is None  # a server that another process started
        self._begin()
        if self._socket is not None:
            self._connected()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._connection: Optional[Connection] = None
        self._closed = False
        _fork.forget_in_child(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._joins = self._socket is not None

    def __getstate__(self) -> dict[str, Any]:
        self._connected()  # so that the copy can compare
        state = dict(self.__dict__, _joins=self._socket is not None)
        del state["_lock"], state["_connection"], state["_closed"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server. Batches stay as they are; everything else raises ValueError from now on."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    # ---- what it is

    @property
    def info(self) -> Info:
        self._connected()
        assert self._info is not None
        return self._info

    def stats(self) -> dict[str, int]:
        """Counters since the server began; those of serve-stdio.md's `statistics`, and perhaps more."""
        statistics: dict[str, int] = self._ask("statistics")["statistics"]
        return statistics

    def __repr__(self) -> str:
        return f"<sml.Dataset {self._location!r}>"

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # ---- records

    def __len__(self) -> int:
        """Records."""
        return self.info.records

    def __getitem__(self, key: Key) -> memoryview:
        """Raises NotFound (a KeyError), Corrupt and other errors of the data."""
        return self.batch([key], on_error=RAISE)[0]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, (str, bytes)) and self._lookup(key)[0] is not None

    def __iter__(self) -> Iterator[Key]:
        return (entry.key for entry in self.entries())

    def entries(self, prefix: Key = "") -> Iterator[Entry]:
        """Key, number and size of the records whose key begins with `prefix`, in name order (keys.md)."""
        after: dict[str, Any] = {}
        more = True
        while more:
            page = self._ask("list", prefix=key_module.to_json(prefix), count=_LIST_COUNT, **after)
            for key, number, size in zip(page["keys"], page["numbers"], page["sizes"]):
                yield Entry(key_module.from_json(key), number, size)
            more = page["more"]
            if more:
                after = {"after": page["keys"][-1]}

    def batch(self, wanted: Iterable[Union[Key, int]], on_error: Optional[str] = None) -> Batch:
        """Records, all by key or all by number, in this order, by one request: at most 65,536 records, or
        InvalidArgument is raised, and 1 GiB, or LimitExceeded is.

        A record that cannot be given raises its error when it is taken. With on_error "raise" the batch
        raises it at once, with "skip" it is left out.
        """
        check_on_error(on_error)
        if isinstance(wanted, (str, bytes)):
            raise TypeError("one key, where keys are wanted: ds[key] gives its record")
        items = list(wanted)
        keys = [key_module.to_json(item) for item in items if isinstance(item, (str, bytes))]
        numbers = [operator.index(item) for item in items if not isinstance(item, (str, bytes))]
        if keys and numbers:
            raise TypeError("keys and numbers in one batch")
        connection = self._connected()
        if keys:
            names = key_module.all_from_json(keys)
            return Batch(connection, connection.ask("get", keys=keys), names, on_error)
        return Batch(connection, connection.ask("get", numbers=numbers), [None] * len(numbers), on_error)

    def open_record(self, key: Key) -> RecordFile:
        """A record as a file, of which only the ranges are read that are wanted."""
        number, size = self._lookup(key)
        if number is None or size is None:
            raise NotFound.of(key)
        return RecordFile(self, number, size)

    def select(
        self,
        *,
        keys: Optional[Keys] = None,
        match: Optional[Keys] = None,
        exclude: Optional[Keys] = None,
    ) -> Selection:
        """The samples with one of `keys` or a record that matches a glob of `match` (all samples, where
        neither is given), without those with a record that matches one of `exclude`. Globs as for `sml ls`;
        at most 65,536 keys."""
        return Selection(self, keys, match, exclude)

    # ---- the server

    def _lookup(self, key: Key) -> tuple[Optional[int], Optional[int]]:
        """Number and size."""
        found = self._ask("lookup", keys=[key_module.to_json(key)])
        return found["numbers"][0], found["sizes"][0]

    def _selected(self) -> dict[str, Any]:
        return {}

    def _ask(self, request: str, **fields: Any) -> Answer:
        return self._connected().ask(request, **fields)

    def _connected(self) -> Connection:
        with self._lock:
            if self._closed:
                raise ValueError("the data set is closed")
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> Connection:
        connection = Connection(self._channel(), self._map_files)
        fields = connection.ask("info")
        info = Info(key_module.from_json(fields["location"]), *(fields[name] for name in Info._fields[1:]))
        known = self._info or info
        if (info.revision, info.containers) != (known.revision, known.containers):
            connection.close()
            raise Error(f"{self._location!r} is not what it was when it was opened", "open it again")
        self._info = info
        return connection

    def _channel(self) -> Channel:
        if self._socket is not None and self._joins:
            return SocketChannel(self._socket)
        assert self._location is not None
        arguments = [self._program, "serve-stdio", *self._options]
        if self._socket is not None:
            arguments.append(f"--socket={self._socket}")
        return ProcessChannel(_process.Process([*arguments, "--", self._location], self._cwd, output=True))


def open(
    location: Optional[Path],
    *,
    sml: Optional[Path] = None,
    socket: Optional[Path] = None,
    memory: Union[int, str, None] = None,
    threads: Optional[int] = None,
    cache_dir: Optional[Path] = None,
    cache_size: Union[int, str, None] = None,
    far: bool = False,
    partial: bool = False,
    ceph_conf: Optional[Path] = None,
    ceph_user: Optional[str] = None,
    ceph_timeout: Optional[int] = None,
    map_files: bool = True,
) -> Dataset:
    """A container, or a data set: `FILE.sml`, `DIR/`, `rados://POOL/DATASET`.

    Nothing is started before it is needed: with a location that cannot be opened, the first use raises
    ServerDied.

    sml     the program; default: the environment variable SML, else `sml` of PATH
    socket  path of a Unix socket. The server is started at once and listens there; copies of the data set in
            other processes use it and start none. With location None: the socket of a server that is running
    memory  of a server, for records in flight and batches that are ready: bytes, or text such as "2G"
    map_files
            records that lie in a file of this machine as they are are views into it, mapped. The server has
            verified them; but whoever cuts such a file short, or a disk that fails when they are touched, ends
            this process by SIGBUS. False: their bytes come through the pipe
    others  options of `sml cat`; sizes are bytes or text, the timeout is in seconds
    """
    if location is None and socket is None:
        raise ValueError("neither a location nor a socket")
    options = _process.options(
        memory=memory,
        threads=threads,
        cache_dir=cache_dir,
        cache_size=cache_size,
        far=far,
        partial=partial,
        ceph_conf=ceph_conf,
        ceph_user=ceph_user,
        ceph_timeout=ceph_timeout,
    )
    return Dataset(location, _process.program(sml), socket, options, map_files)
