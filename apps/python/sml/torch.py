"""Data sets for PyTorch 1.13 and later.

A sample is {"__key__": stem, extension: bytes, ...}, or what `transform` makes of that, in the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import torch
import torch.distributed
import torch.utils.data

from .dataset import Dataset
from .epoch import Epoch, check_state
from .keys import Key, stem
from .sample import Sample, to_sample
from .source import Source

Transform = Callable[[Sample], Any]

_STATE_BYTES = 1024  # of a state line in JSON, more than enough


def _identity(value: Any) -> Any:
    return value


class MapDataset(torch.utils.data.Dataset[Any]):
    """Map style: index i is the i-th sample in name order. All keys are in memory. A batch is one request."""

    def __init__(self, dataset: Dataset, transform: Optional[Transform] = None) -> None:
        self.dataset = dataset
        self._transform = transform or _identity
        grouped = dataset.info.grouped
        self._keys: list[list[Key]] = []  # of each sample
        last: Optional[Key] = None
        for key in dataset:
            if grouped and self._keys and stem(key) == last:
                self._keys[-1].append(key)
            else:
                self._keys.append([key])
                last = stem(key)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        samples = [self._keys[index] for index in indices]
        records = iter(self.dataset.batch([key for keys in samples for key in keys]))
        return [self._transform(to_sample(keys, records)) for keys in samples]


class _Beginning:
    """Where the next iteration begins, the number of an epoch or a state: the same memory in all processes,
    as persistent workers got their copy of a data set before."""

    def __init__(self) -> None:
        self._memory: Any = torch.zeros(_STATE_BYTES, dtype=torch.uint8)
        self._memory.share_memory_()
        self.write({"epoch": 0})

    def write(self, beginning: Mapping[str, Any]) -> None:
        text = json.dumps(beginning).encode("ascii").ljust(_STATE_BYTES)
        self._memory.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))

    def read(self) -> dict[str, Any]:
        beginning: dict[str, Any] = json.loads(bytes(self._memory.tolist()))
        return beginning


class EpochDataset(torch.utils.data.IterableDataset[Any]):
    """Iterable style: gives batches, lists of samples, to a DataLoader with batch_size=None, as in `Loader`.

    The workers of a DataLoader share the rank's batches, which come in order. Iterating again gives the same
    epoch again; `set_epoch` tells which.
    """

    def __init__(
        self,
        source: Source,
        transform: Optional[Transform] = None,
        *,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        **options: Any,
    ) -> None:
        """Options are those of `Dataset.epoch`, without epoch, worker and workers. Rank and world are by
        default those of torch.distributed, where that is initialised by now, else 0 of 1."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank() if rank is None else rank
            world = torch.distributed.get_world_size() if world is None else world
        self._source = source
        self._transform = transform or _identity
        self._options: dict[str, Any] = {**options, "rank": rank or 0, "world": world or 1}
        self._beginning = _Beginning()

    @property
    def epoch(self) -> int:
        """The number of the epoch that iterations give."""
        number: int = self._beginning.read()["epoch"]
        return number

    def set_epoch(self, epoch: int) -> None:
        """Iterations give this epoch from its front, or from the state that was loaded, if that is of it."""
        if self.epoch != epoch:
            self._beginning.write({"epoch": epoch})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Iterations begin there. Raises ValueError where it is no state."""
        check_state(state)
        self._beginning.write(state)

    def _opened(self, worker: int = 0, workers: int = 1) -> Epoch:
        """What the next iteration gives, to all workers or to one of them."""
        beginning = self._beginning.read()
        epoch = self._source.epoch(epoch=beginning["epoch"], worker=worker, workers=workers, **self._options)
        if "sml_state" in beginning:
            epoch.load_state_dict(beginning)
        return epoch

    def _with_states(self) -> Iterator[tuple[dict[str, Any], int, list[Any]]]:
        """The batches of this worker, each behind its state and the position where the epoch ends."""
        info = torch.utils.data.get_worker_info()
        epoch = self._opened() if info is None else self._opened(info.id, info.num_workers)
        for batch in epoch:
            yield epoch.state_dict(), epoch.end, [self._transform(sample) for sample in batch.as_samples()]

    def __iter__(self) -> Iterator[list[Any]]:
        return (samples for _, _, samples in self._with_states())

    def __len__(self) -> int:
        """Batches of the rank."""
        return len(self._opened())


class _WithStates(torch.utils.data.IterableDataset[Any]):
    def __init__(self, dataset: EpochDataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int, list[Any]]]:
        return self._dataset._with_states()


class _CollateLast:
    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, item: Any) -> tuple[dict[str, Any], int, Any]:
        state, end, samples = item
        return state, end, self._collate(samples)


class Loader:
    """A DataLoader of an EpochDataset. Its state is that behind the batches that came out of it, whatever its
    workers have read ahead, and may be loaded with another number of ranks and of workers.

        loader = Loader(EpochDataset(sml.open("photos.sml"), batch_size=32), num_workers=4)
        if saved:
            loader.load_state_dict(saved)
        for epoch in range(loader.epoch, epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                ...
    """

    def __init__(
        self,
        dataset: EpochDataset,
        collate_fn: Callable[[list[Any]], Any] = torch.utils.data.default_collate,
        **options: Any,
    ) -> None:
        """`collate_fn` is given a list of samples, in the worker. Options are those of DataLoader, without
        those that order or batch samples."""
        self.dataset = dataset
        self._loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            _WithStates(dataset), batch_size=None, collate_fn=_CollateLast(collate_fn), **options
        )
        self._state: Optional[dict[str, Any]] = None

    @property
    def epoch(self) -> int:
        """As of EpochDataset."""
        return self.dataset.epoch

    def set_epoch(self, epoch: int) -> None:
        """As of EpochDataset."""
        self.dataset.set_epoch(epoch)
        self._state = None

    def __iter__(self) -> Iterator[Any]:
        self._state = None
        end = 0
        for self._state, end, batch in self._loader:
            yield batch
        if self._state is not None:
            self._state["position"] = end  # other ranks may have had a batch more

    def __len__(self) -> int:
        """Batches of the next iteration."""
        return len(self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """Behind the last batch of this iteration; before the first one, where it begins."""
        return dict(self._state) if self._state is not None else self.dataset._opened().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.dataset.load_state_dict(state)
        self._state = None
