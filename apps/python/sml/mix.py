"""Batches of several data sets, mixed by weights."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from .batch import Batch
from .source import Source

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / 1.618..., as in order.md


class Choices:
    """Which source a position of the sequence has: a pure function of seed and weights.

    Multiples of the golden ratio modulo 1 fill the interval evenly from the first on, and each source has a
    part of it as long as its weight: of any run of positions it gets its share, to within a few.
    """

    def __init__(self, weights: Iterable[float], seed: int) -> None:
        exact = [Fraction(weight) for weight in weights]
        if not exact or min(exact) <= 0:
            raise ValueError("no sources, or weights that are not above 0")
        self._ends = [int(end * 2**64 / sum(exact)) for end in itertools.accumulate(exact)]
        self._offset = _scramble(seed & _MASK64)

    def __getitem__(self, position: int) -> int:
        return bisect.bisect_right(self._ends, (self._offset + position * _GOLDEN) & _MASK64)


def _scramble(x: int) -> int:
    """Of order.md: seeds that are neighbours begin far apart."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    return ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64


class Mix(Iterator[Batch]):
    """Batches without end, each of one source: see `mix`. `source`: the index of the one that gave the last
    batch.

    For one thread at a time.
    """

    def __init__(
        self, sources: Iterable[tuple[Source, float]], seed: int, options: Mapping[str, Any]
    ) -> None:
        """See `mix`."""
        pairs = list(sources)
        self._sources = [source for source, _ in pairs]
        self._weights = [weight for _, weight in pairs]
        self._seed = seed
        self._options = options
        self._choices = Choices(self._weights, seed)
        self._epochs = [source.epoch(seed=seed, **options) for source in self._sources]
        self._position = 0
        self.source = -1

    def __iter__(self) -> Mix:
        return self

    def __next__(self) -> Batch:
        """Raises as the epochs do; after Unavailable the next call tries the same batch again."""
        source = self._choices[self._position]
        batch = next(self._epochs[source], None)
        if batch is None:
            batch = self._begin_next_epoch(source)
        self._position += 1
        self.source = source
        return batch

    def _begin_next_epoch(self, source: int) -> Batch:
        number = self._epochs[source].epoch + 1
        self._epochs[source] = self._sources[source].epoch(seed=self._seed, epoch=number, **self._options)
        if len(self._epochs[source]) == 0:
            raise ValueError(f"an epoch of source {source} has no batch")
        return next(self._epochs[source])

    def state_dict(self) -> dict[str, Any]:
        """Behind the batches that were given: a position, and the state of each source's epoch."""
        return {
            "sml_mix": 1,
            "seed": self._seed,
            "position": self._position,
            "sources": [epoch.state_dict() for epoch in self._epochs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there, with the seed of the state. The sources have to be the same, in the same order;
        rank, world, batch size and weights may be others."""
        if state.get("sml_mix") != 1 or len(state["sources"]) != len(self._epochs):
            raise ValueError(f"not the state of a mix of {len(self._epochs)} sources")
        self._seed = state["seed"]
        self._choices = Choices(self._weights, self._seed)
        self._position = state["position"]
        for epoch, epoch_state in zip(self._epochs, state["sources"]):
            epoch.load_state_dict(epoch_state)


def mix(sources: Iterable[tuple[Source, float]], *, seed: int = 0, **options: Any) -> Mix:
    """Batches of data sets or selections by their weights: `mix([(a, 3), (b, 1)], seed=1, batch_size=32)`.

    Seed, weights and k alone decide of which source batch k is, so that all ranks have the same one at a
    time; of any run of batches each source has its share, to within a few. A source whose epoch ends begins
    its next one: a mix has no end. Options are those of `Dataset.epoch`, without epoch and workers; even is
    "drop" by default, with which all ranks have equally many batches in an epoch, as with "wrap". At most
    16 sources may be of one data set.
    """
    options.setdefault("even", "drop")
    if options["even"] == "none" and options.get("world", 1) != 1:
        raise ValueError("even is 'none': ranks would come apart")
    return Mix(sources, seed, options)
