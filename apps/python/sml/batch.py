"""Records that came together."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Optional, Union, cast, overload

from ._connection import Answer, Connection
from .errors import Error, from_answer
from .keys import Key
from .sample import Sample, to_sample

SKIP, RAISE = "skip", "raise"


def check_on_error(on_error: Optional[str]) -> None:
    if on_error not in (None, SKIP, RAISE):
        raise ValueError(f"on_error is {on_error!r}, neither 'raise' nor 'skip'")


class Batch(Sequence[memoryview]):
    """A sequence of records, read-only views: into the file where a record lies as it is, which is mapped, or
    into memory of the batch. Either lives as long as one of them.

    keys      of the records; None where they were asked for by number
    numbers   of the records; None for a key that there is not
    samples   how many records each sample has; they follow each other
    errors    of the records that could not be given: to take one raises its error; with on_error "skip" their
              samples are left out
    number    of an epoch's batch: among the rank's batches
    position  of an epoch's batch: in the global order, when all ranks have taken as many batches
    """

    def __init__(
        self, connection: Connection, answer: Answer, keys: Sequence[Optional[Key]], on_error: Optional[str]
    ) -> None:
        self.keys = list(keys)
        self.numbers: list[Optional[int]] = answer["numbers"]
        self.samples: list[int] = answer.get("samples") or [1] * len(self.keys)
        self.errors: list[Error] = []
        self.number: int = answer.get("batch", 0)
        self.position: int = answer.get("position", 0)
        self._records: list[Union[memoryview, Error]] = []
        self._take(connection.records(answer), dict(answer.get("errors", ())))
        if self.errors and on_error == RAISE:
            raise copy.copy(self.errors[0])  # not the one that is kept: it would keep all that the caller has
        if self.errors and on_error == SKIP:
            self._leave_out()

    def _take(self, records: list[Optional[memoryview]], errors: dict[int, Any]) -> None:
        if not errors:
            self._records = cast("list[Union[memoryview, Error]]", records)
            return
        self._records += [
            from_answer(errors[i], self.keys[i], self.numbers[i]) if record is None else record
            for i, record in enumerate(records)
        ]
        self.errors = [record for record in self._records if isinstance(record, Error)]

    def _leave_out(self) -> None:
        """All samples that lack a record."""
        given: list[bool] = []  # of each record
        ends = list(itertools.accumulate(self.samples))
        for size, end in zip(self.samples, ends):
            whole = all(isinstance(record, memoryview) for record in self._records[end - size : end])
            given += [whole] * size
        self.samples = [size for size, end in zip(self.samples, ends) if given[end - 1]]
        self.keys = list(itertools.compress(self.keys, given))
        self.numbers = list(itertools.compress(self.numbers, given))
        self._records = list(itertools.compress(self._records, given))

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> memoryview:
        ...

    @overload
    def __getitem__(self, index: slice) -> list[memoryview]:
        ...

    def __getitem__(self, index: Union[int, slice]) -> Union[memoryview, list[memoryview]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        record = self._records[index]
        if isinstance(record, Error):
            raise copy.copy(record)
        return record

    def __iter__(self) -> Iterator[memoryview]:
        return super().__iter__() if self.errors else iter(cast("list[memoryview]", self._records))

    def as_samples(self) -> list[Sample]:
        """Each sample as a dictionary; not of records that were asked for by number: their keys are not
        known."""
        ends = itertools.accumulate(self.samples)
        spans = [slice(end - size, end) for size, end in zip(self.samples, ends)]
        return [to_sample([key for key in self.keys[span] if key is not None], self[span]) for span in spans]
