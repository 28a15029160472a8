"""What a run of `benchmarks.torture` counts: operations, faults, and what must stay zero."""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

_SHOWN = 30
"""Notes kept; the counts are complete."""


@dataclass
class Ledger:
    """Counts of one run, for any number of threads."""

    operations: Counter[str] = field(default_factory=Counter)
    """What was done: requests by outcome, pages indexed, stores checked."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to the processes, files and disks."""
    lost: int = 0
    """Pages that a writer had acknowledged and the store no longer has."""
    wrong: int = 0
    """Answers that differ from those of one process, faults of the server's own, damage nobody names."""
    notes: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def count(self, operation: str, number: int = 1) -> None:
        """Count something that was done."""
        with self._lock:
            self.operations[operation] += number

    def count_fault(self, fault: str) -> None:
        """Count a fault that was made."""
        with self._lock:
            self.faults[fault] += 1

    def record_wrong(self, note: str) -> None:
        """Count something that must not be."""
        with self._lock:
            self.wrong += 1
            self.notes = [*self.notes, note][:_SHOWN]

    def record_lost(self, pages: int, note: str) -> None:
        """Count acknowledged pages that are gone."""
        with self._lock:
            self.lost += pages
            self.notes = [*self.notes, note][:_SHOWN]

    def report(self) -> dict[str, Any]:
        """The counts, as JSON has them."""
        return {
            "operations": sum(self.operations.values()),
            "kills": sum(number for fault, number in self.faults.items() if fault.startswith("kill")),
            "faults": sum(self.faults.values()),
            "lost": self.lost,
            "wrong": self.wrong,
            "operations_by_kind": dict(sorted(self.operations.items())),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "notes": self.notes,
        }
