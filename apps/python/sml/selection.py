"""Some of the samples of a data set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional, Union

from . import keys as key_module
from ._connection import Connection
from .keys import Key
from .source import Source

if TYPE_CHECKING:
    from .dataset import Dataset

Keys = Union[Key, Iterable[Key]]


class Selection(Source):
    """Its epochs are of these samples only. Goes where its data set goes, into other processes as well."""

    def __init__(
        self, dataset: Dataset, keys: Optional[Keys], match: Optional[Keys], exclude: Optional[Keys]
    ) -> None:
        """See `Dataset.select`."""
        self.dataset = dataset
        self._select = {
            name: [key_module.to_json(key) for key in ([given] if isinstance(given, (str, bytes)) else given)]
            for name, given in (("keys", keys), ("match", match), ("exclude", exclude))
            if given is not None
        }

    def _connected(self) -> Connection:
        return self.dataset._connected()

    def _selected(self) -> dict[str, Any]:
        return {"select": self._select}
