"""The batches of an epoch, one rank's (order.md)."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

from . import keys as key_module
from ._connection import Answer, Connection
from .batch import Batch

_STATE_FIELDS = {"sml_state", "seed", "epoch", "mode", "lanes", "even", "position"}


def check_state(state: Any) -> None:
    """Raises ValueError for what is no state of an epoch."""
    if not isinstance(state, Mapping) or not _STATE_FIELDS <= state.keys():
        raise ValueError("that is no state of an epoch, which state_dict() gives")


class _Stream:
    """An epoch that is open at the server: its answers, asked for ahead."""

    def __init__(self, connection: Connection, request: Mapping[str, Any], prefetch: int) -> None:
        opened = connection.ask("epoch", **request)
        self.number: int = opened["epoch"]
        self.batches: int = opened["batches"]
        self.position: int = opened["position"]  # behind the batches that were given
        self.end: int = opened["samples"] - opened["dropped"]  # of the positions, for all ranks
        self.connection = connection
        self._prefetch = prefetch
        self._left = self.batches
        self._asked: collections.deque[Answer] = collections.deque()
        self._close = weakref.finalize(self, connection.abandon, self.number)
        self._close.atexit = False

    def close(self) -> None:
        self._close()

    def state(self) -> dict[str, Any]:
        """Where it began."""
        state: dict[str, Any] = self.connection.ask("state", epoch=self.number)["state"]
        return state

    def next(self) -> Optional[Answer]:
        """None behind the last. After an error the next call goes on."""
        while len(self._asked) < min(self._prefetch + 1, self._left):
            self._asked.append(self.connection.send("next", epoch=self.number))
        if not self._asked:
            self._close()
            return None
        answer = self.connection.wait(self._asked.popleft())
        if answer.get("end"):
            self._left = 0
            self._asked.clear()
            return None
        self._left -= 1
        return answer


class Epoch(Iterator[Batch]):
    """Batches, once: an iterator. `len()` is their number from where it begins; it does not become less.

    The order depends on seed, epoch, shuffle and lanes alone. Of a `world` of ranks, all with the same
    options, each gets its share; `state_dict()` is the same for all that have taken as many batches, and may
    be loaded where the world is another. With `workers`, several processes that serve one rank, a state means
    that the others have given their batches up to there as well.

    For one thread at a time, and for the process in which it was used first.
    """

    def __init__(
        self,
        connected: Callable[[], Connection],
        order: dict[str, Any],
        share: dict[str, Any],
        on_error: str,
        prefetch: int,
    ) -> None:
        """See `Source.epoch`. `order` and `share`: fields of the request."""
        self._connected = connected
        self._order = order
        self._share = share
        self._on_error = on_error
        self._prefetch = prefetch
        self._state: Optional[dict[str, Any]] = None  # where it begins
        self._stream: Optional[_Stream] = None

    @property
    def epoch(self) -> int:
        """Its number."""
        number: int = self._order["epoch"]
        return number

    @property
    def end(self) -> int:
        """The position that its state has when it has ended."""
        return self._opened().end

    def __len__(self) -> int:
        return self._opened().batches

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Batch:
        """Raises Unavailable where the storage did not answer in time: the next call tries the same batch
        again. After the error of a record, such as Corrupt, the next call gives the next batch."""
        stream = self._opened()
        answer = stream.next()
        if answer is None:
            stream.position = stream.end  # other ranks may have had a batch more
            raise StopIteration
        batch = Batch(stream.connection, answer, key_module.all_from_json(answer["keys"]), self._on_error)
        stream.position = batch.position
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where it is, behind the batches that were given: the object of a state line, which `sml shuffle
        --state` prints and `--from-state` reads."""
        if self._stream is None and self._state is not None:
            return dict(self._state)
        position = self._opened().position
        assert self._state is not None
        return dict(self._state, position=position)

    def close(self) -> None:
        """Lets the server forget it: a data set has 16 epochs open at most, in each process. An epoch that has
        ended is closed already. To go on after that begins where it was."""
        if self._stream is not None:
            self._state = self.state_dict()
            self._stream.close()
            self._stream = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there. Seed, epoch, shuffle, lanes and even are those of the state; data set and selection
        have to be the same, or the next use raises InvalidArgument."""
        check_state(state)
        self._order = {name: state[name] for name in self._order}
        self._state = dict(state)
        self._stream = None

    def _opened(self) -> _Stream:
        if self._stream is None:
            begin = self._order if self._state is None else {"state": self._state}
            stream = _Stream(self._connected(), {**begin, **self._share}, self._prefetch)
            if self._state is None:
                self._state = stream.state()
            self._stream = stream
        return self._stream
