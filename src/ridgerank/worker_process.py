"""A process at the other end of a pipe: started, asked, ended. Knows nothing of what it does there.

Processes are spawned, not forked: a fork would copy locks that threads of this process hold.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

_END_SECONDS = 5.0
"""How long a process may take to end by itself once its pipe is closed."""
_BEAT_SECONDS = 0.5
"""A process shows this often that it runs; one that was stopped (SIGSTOP) does not."""


class WorkerDied(RuntimeError):  # noqa: N818 (reads as the fact it states)
    """A process ended, or was ended, while it worked."""


class WorkerProcess:
    """A process that runs `target(pipe, *arguments)`, and this side of the pipe to it.

    When the process ends, reading the pipe raises EOFError. For one thread at a time.
    """

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        """Start the process and return at once; target and arguments are pickled."""
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self._beats = context.RawValue("Q", 0)
        self._process = context.Process(
            target=_run, args=(target, child_pipe, self._beats, arguments), daemon=True
        )
        self._process.start()
        child_pipe.close()  # so that the end of the process is the end of the pipe

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    @property
    def beats(self) -> int:
        """How often the process has shown that it runs: 0 until it has started."""
        return int(self._beats.value)

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    def exit_code(self) -> int | None:
        """The exit code of a process whose pipe has ended: negative for a signal, None while it runs."""
        self._process.join(_END_SECONDS)  # the pipe ends a moment before the process does
        return self._process.exitcode

    def describe_end(self) -> str:
        """How the process ended, in words: an exit status or the name of a signal."""
        code = self.exit_code()
        if code is None:
            return "no answer"
        return f"exit status {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"

    def stop(self) -> None:
        """Close the pipe and wait for the process to end; kill it where it does not."""
        self.pipe.close()
        self._process.join(_END_SECONDS)
        self.kill()

    def send_kill(self) -> None:
        """End the process at once and leave the rest to the thread that reads the pipe; for any thread."""
        with suppress(ValueError, ProcessLookupError):  # it is closed, or gone, already
            self._process.kill()

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        self._process.close()


def answer_messages(pipe: Connection, answer: Callable[[Any], Any], *, ready: object = None) -> None:
    """Send `ready`, then `answer(message)` for each message; return when the other side is gone."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(ready)
        while True:
            pipe.send(answer(pipe.recv()))


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def _run(target: Callable[..., None], pipe: Connection, beats: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this one
    Thread(target=_beat, args=(beats,), daemon=True).start()
    target(pipe, *arguments)


def _beat(beats: Any) -> None:  # noqa: ANN401 (a shared number)
    while True:
        beats.value += 1
        time.sleep(_BEAT_SECONDS)
