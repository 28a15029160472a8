"""Work in other processes: results and errors come back, time is limited, a crash costs one call."""

import os
import signal
import threading
import time
from multiprocessing.context import SpawnProcess

import pytest

from ridgerank.errors import DocumentError
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied

SECONDS = 120.0


def double(number: int, *, plus: int = 0) -> int:
    return 2 * number + plus


def refuse() -> None:
    raise DocumentError("no")


def is_spared_interruptions() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def process_id() -> int:
    return os.getpid()


def test_results_and_errors_come_back_and_a_loss_costs_one_call() -> None:
    process = IsolatedProcess()
    assert process.call(double, SECONDS, 4, plus=1) == 9
    assert process.call(is_spared_interruptions, SECONDS), "Ctrl-C would print a traceback of its start"
    first = process.call(process_id, SECONDS)
    assert first != os.getpid()
    with pytest.raises(DocumentError, match="no"):
        process.call(refuse, SECONDS)
    assert process.call(process_id, SECONDS) == first
    with pytest.raises(WorkerDied):
        process.call(os._exit, SECONDS, 3)
    with pytest.raises(TookTooLong):
        process.call(time.sleep, 0.01, SECONDS)
    assert process.call(double, SECONDS, 4) == 8
    process.close()
    with pytest.raises(WorkerDied, match="closed"):
        process.call(double, SECONDS, 4)


def test_closing_ends_a_process_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    process = IsolatedProcess()
    closing = threading.Thread(target=process.close)
    start = SpawnProcess.start

    def start_and_close(started: SpawnProcess) -> None:
        closing.start()
        closing.join(0.2)  # it has found no process to kill and waits for the call
        start(started)

    monkeypatch.setattr(SpawnProcess, "start", start_and_close)
    with pytest.raises(WorkerDied, match="closed"):
        process.call(time.sleep, SECONDS, SECONDS)
    closing.join(SECONDS)
    assert not closing.is_alive()
