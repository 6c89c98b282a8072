"""Data sets of SML: millions of small files in a few containers, by name or in the random order of an epoch.

    with sml.open("photos.sml") as photos:
        picture = photos["cats/1.jpg"]
        for batch in photos.epoch(seed=1, epoch=0, batch_size=256):
            ...

All work is done by the program `sml`, which is started beside this process.
"""

from .batch import Batch
from .dataset import Dataset, Entry, Info, open
from .epoch import Epoch
from .errors import (
    Ambiguous,
    Corrupt,
    Error,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PackFailed,
    ProcessFailed,
    ServerDied,
    StorageFailed,
    Truncated,
    Unavailable,
    Unsupported,
)
from .keys import Key, extension, stem
from .mix import Mix, mix
from .record_file import RecordFile
from .selection import Selection
from .writer import Writer

__version__ = "0.1.0"

__all__ = [
    "Ambiguous",
    "Batch",
    "Corrupt",
    "Dataset",
    "Entry",
    "Epoch",
    "Error",
    "Info",
    "InvalidArgument",
    "Key",
    "LimitExceeded",
    "Mix",
    "NotFound",
    "PackFailed",
    "ProcessFailed",
    "RecordFile",
    "Selection",
    "ServerDied",
    "StorageFailed",
    "Truncated",
    "Unavailable",
    "Unsupported",
    "Writer",
    "extension",
    "mix",
    "open",
    "stem",
]
