"""The program `sml` beside this process."""

from __future__ import annotations

import collections
import io
import multiprocessing.util
import os
import subprocess
import threading
import weakref
from collections.abc import Sequence
from typing import IO, Optional, TypeVar, Union, cast

from .errors import Error, ProcessFailed

_KEPT_LINES = 20
_GRACE_SECONDS = 30.0
_HINT = "hint: "  # so begins the line behind an error's

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Failure = TypeVar("Failure", bound=ProcessFailed)


def program(given: Optional[Path]) -> Path:
    return given if given is not None else os.environ.get("SML", "sml")


def options(**given: Union[Path, int, None]) -> list[str]:
    """Of a command line: `block_size=65536` is `--block-size=65536`, True a flag; None and False are none."""
    arguments = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(option)
        elif value is not None and value is not False:
            text = str(value) if isinstance(value, int) else os.fsdecode(value)
            arguments.append(f"{option}={text}")
    return arguments


def _relay(stderr: IO[bytes], kept: collections.deque[bytes]) -> None:
    with io.BufferedReader(cast(io.RawIOBase, stderr)) as lines:
        for line in lines:
            kept.append(line)
            try:
                os.write(2, line)
            except OSError:
                pass  # closed; the line is kept


def _end(process: subprocess.Popen[bytes], relay: threading.Thread) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    relay.join()


class Process:
    """Ends, and is waited for, with `end()`, with the object or with the interpreter, whichever comes first.

    Its standard error is passed on to ours. For one thread at a time.
    """

    def __init__(self, arguments: Sequence[Path], cwd: str, output: bool) -> None:
        """`output`: whether its standard output is wanted. Raises Error where it cannot be started."""
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=cwd,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if output else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            hint = "the environment variable SML, or the argument sml, tells where it is"
            raise Error(f"cannot start {os.fsdecode(arguments[0])}: {error}", hint) from error
        assert self._process.stdin is not None and self._process.stderr is not None
        self.stdin = self._process.stdin
        self.stdout = self._process.stdout
        self._kept: collections.deque[bytes] = collections.deque(maxlen=_KEPT_LINES)
        relay = threading.Thread(target=_relay, args=(self._process.stderr, self._kept), daemon=True)
        relay.start()
        self._finalizer = weakref.finalize(self, _end, self._process, relay)
        # The children of multiprocessing end without what the interpreter does at its end.
        multiprocessing.util.Finalize(self, self._finalizer, exitpriority=0)

    def end(self) -> None:
        self._finalizer()

    def finish(self) -> None:
        """Ends its input, and waits for its end as long as it takes."""
        self.stdin.close()
        self._process.wait()
        self.end()

    def terminate(self) -> None:
        self._process.terminate()
        self.end()

    @property
    def exit_code(self) -> Optional[int]:
        """Once it has ended."""
        return self._process.returncode

    def failure(self, kind: type[Failure], what: str) -> Failure:
        """Ends it, and tells how it ended."""
        self.end()
        lines = [line.decode("utf-8", "backslashreplace") for line in self._kept]
        hint = lines[-1][len(_HINT) :].strip() if lines and lines[-1].startswith(_HINT) else None
        messages = [line.strip() for line in lines if not line.startswith(_HINT)]
        error = kind(": ".join([f"{what}, exit code {self.exit_code}", *messages[-1:]]), hint)
        error.exit_code = self.exit_code
        error.stderr = "".join(lines)
        return error

    def forget(self) -> None:
        """In a forked child: the process is the parent's."""
        self._finalizer.detach()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.returncode = 0
