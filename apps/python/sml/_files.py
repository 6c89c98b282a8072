"""Files that hold records as they are, mapped (serve-stdio.md, Places)."""

from __future__ import annotations

import collections
import mmap
import os
from collections.abc import Iterable
from typing import Any, Optional

from .keys import Key, from_json

# At a time: a process has some 65,000 mappings in all.
_MOST = 16384


class MappedFiles:
    """Views stay when a file is let go, or unlinked by others. For one thread."""

    def __init__(self) -> None:
        self._paths: dict[int, Key] = {}
        self._maps: collections.OrderedDict[int, memoryview] = collections.OrderedDict()

    def mention(self, files: Iterable[Any]) -> None:
        """Of an answer: opened at once, before somebody unlinks them."""
        for number, path in files:
            self._paths[number] = from_json(path)
            self._map(number)

    def views(self, places: list[Any], sizes: list[Any]) -> Optional[list[Optional[memoryview]]]:
        """Of records that all lie in files; None where some do not. This is the way of most."""
        maps = self._maps
        try:
            views: list[Optional[memoryview]] = [
                maps[number][offset : offset + size] for (number, offset), size in zip(places, sizes)
            ]
        except (KeyError, TypeError):
            return None
        return views if sum(map(len, views)) == sum(sizes) else None  # type: ignore[arg-type]

    def view(self, number: int, offset: int, size: int) -> Optional[memoryview]:
        """None where the file is not there any more."""
        mapped = self._maps.get(number) or self._map(number)
        if mapped is None or offset + size > len(mapped):
            return None
        return mapped[offset : offset + size]

    def _map(self, number: int) -> Optional[memoryview]:
        try:
            descriptor = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
            try:
                mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None
        if len(self._maps) >= _MOST:
            self._maps.popitem(last=False)
        self._maps[number] = mapped
        return mapped
