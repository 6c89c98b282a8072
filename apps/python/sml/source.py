"""What has epochs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Union

from ._connection import Connection
from .batch import RAISE, check_on_error
from .epoch import Epoch

_MODES = {True: "block", "block": "block", "full": "full"}


class Source(ABC):
    """A data set or a selection of its samples."""

    @abstractmethod
    def _connected(self) -> Connection:
        ...

    @abstractmethod
    def _selected(self) -> dict[str, Any]:
        """What the request for an epoch has to say of it."""

    def epoch(
        self,
        *,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world: int = 1,
        batch_size: int = 1,
        shuffle: Union[str, bool] = "block",
        even: str = "none",
        lanes: int = 64,
        on_error: str = RAISE,
        worker: int = 0,
        workers: int = 1,
        prefetch: int = 2,
    ) -> Epoch:
        """The batches of an epoch.

        seed, epoch      another order for each pair
        rank, world      which share of the order, of how many
        batch_size       samples
        shuffle          "block" or True: reads stay within `lanes` blocks; "full": any sample may follow any
        even             "none": ranks may differ by a sample; "drop": leave out the rest; "wrap": fill up
                         from the front
        on_error         "raise": a batch raises the error of a record that cannot be given; "skip": samples
                         with such a record are left out of their batch, and there are as many batches
        worker, workers  which of the rank's batches: those whose number is `worker` modulo `workers`
        prefetch         batches that are asked for ahead

        InvalidArgument comes with the first use.
        """
        if shuffle not in _MODES:
            hint = "batch(range(...)) gives records as they are packed"
            raise ValueError(f"shuffle is {shuffle!r}, neither 'block' nor 'full'; {hint}")
        check_on_error(on_error)
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}")
        order = {"seed": seed, "epoch": epoch, "mode": _MODES[shuffle], "lanes": lanes, "even": even}
        share = {"rank": rank, "world": world, "batch": batch_size, "worker": worker, "workers": workers}
        return Epoch(self._connected, order, {**share, **self._selected()}, on_error, prefetch)
