"""What can go wrong. Every exception of the package is an `Error`, but for wrong types and closed objects."""

from __future__ import annotations

from typing import Any, Optional, Union


class Error(Exception):
    """`code` as in serve-stdio.md; `hint`, if there is one; `key` and `number` of the record, if they are
    known."""

    code = "error"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.key: Union[str, bytes, None] = None
        self.number: Optional[int] = None

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message} ({self.hint})" if self.hint else message


class InvalidArgument(Error, ValueError):
    code = "invalid_argument"


class NotFound(Error, KeyError):
    code = "not_found"

    @classmethod
    def of(cls, key: Union[str, bytes]) -> NotFound:
        error = cls(f"record {key!r}: there is no such key")
        error.key = key
        return error


class Ambiguous(Error, KeyError):
    """Two containers of the data set have the key."""

    code = "ambiguous"


class Corrupt(Error):
    code = "corrupt"


class Truncated(Error):
    code = "truncated"


class Unsupported(Error):
    code = "unsupported"


class LimitExceeded(Error):
    """Too much for one answer: ask for less."""

    code = "limit"


class StorageFailed(Error):
    code = "io"


class Unavailable(Error):
    """The storage did not answer in time; it may the next time."""

    code = "unavailable"


class ProcessFailed(Error):
    """`sml` ended: `exit_code` (-9: by signal 9; None: not known), `stderr`: the last lines that it wrote."""

    code = "process_failed"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message, hint)
        self.exit_code: Optional[int] = None
        self.stderr = ""


class ServerDied(ProcessFailed):
    """No more answers come. The data set starts another server when it is used again; an epoch goes on there
    after `epoch.load_state_dict(epoch.state_dict())`."""

    code = "server_died"


class PackFailed(ProcessFailed):
    """Nothing was published."""

    code = "pack_failed"


_OF_ANSWERS: tuple[type[Error], ...] = (
    InvalidArgument,
    NotFound,
    Ambiguous,
    Corrupt,
    Truncated,
    Unsupported,
    LimitExceeded,
    StorageFailed,
    Unavailable,
)
_CLASSES = {kind.code: kind for kind in _OF_ANSWERS}


def from_answer(
    error: dict[str, Any], key: Union[str, bytes, None] = None, number: Optional[int] = None
) -> Error:
    """The exception for the `error` of an answer."""
    made = _CLASSES.get(error["code"], Error)(error["message"], error.get("hint"))
    made.code = error["code"]
    made.key, made.number = key, number
    return made
