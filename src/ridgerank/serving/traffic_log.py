"""What callers search for, kept only where a server is started with --traffic-log: to calibrate on it.

A line has the query, its candidates and their scores; no text of any page, and nothing of the caller. Two
files of bounded size: the newest lines, and those before them.
"""

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ridgerank.errors import ServingError
from ridgerank.records import Ranking

DEFAULT_MEGABYTES = 32


class TrafficLog:
    """Appends rankings to a file; safe for any number of threads of one process."""

    def __init__(self, path: Path, *, retriever: str, max_bytes: int) -> None:
        """Half of `max_bytes` for the newest lines, half for those before."""
        self._retriever = retriever
        try:
            self._handler = RotatingFileHandler(
                path, maxBytes=max(max_bytes // 2, 1), backupCount=1, encoding="utf-8"
            )
        except OSError as error:
            raise ServingError(
                f"--traffic-log {path}: {error.strerror or error}; wanted a file that can be written"
            ) from error

    def record(self, ranking: Ranking) -> None:
        """Keep one ranking whose candidates have retriever scores."""
        pages = sorted(ranking.pages, key=lambda page: page.retriever_rank)
        row = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "query": ranking.query,
            "retriever": self._retriever,
            "weight": ranking.weight,
            "pages": [page.page_id for page in pages],
            "retriever_scores": [page.retriever_score for page in pages],
            "readout_scores": [page.readout_score for page in pages],
        }
        line = json.dumps(row, ensure_ascii=False)
        self._handler.handle(logging.LogRecord("traffic", logging.INFO, "", 0, "%s", (line,), None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
