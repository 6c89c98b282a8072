"""What a training program sees of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from .keys import Key, extension, stem

Sample = dict[str, Union[Key, bytes]]


def to_sample(keys: Sequence[Key], records: Iterable[memoryview]) -> Sample:
    """{"__key__": the stem, extension: a copy of the record, ...} of the records of one stem."""
    sample: Sample = {"__key__": stem(keys[0])}
    for key, record in zip(keys, records):
        sample[extension(key)] = record.tobytes()
    return sample
