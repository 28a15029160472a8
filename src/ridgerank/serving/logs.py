"""What a server writes down: lines for its operator, and queries for a later calibration if asked to."""

import json
import logging
import os
import sys
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ridgerank.errors import ServingError

request_log = logging.getLogger("ridgerank.requests")
"""A record per request."""
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is worked on, in the task that works on it."""
_FACTS = ("request_id", "method", "path", "status", "milliseconds")
_QUERY_LOG_BYTES = 16 << 20


class JsonFormatter(logging.Formatter):
    """A line of JSON per record: time, level, logger, message, request id and what the record has besides."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {"request_id": request_id.get(), **{name: getattr(record, name, None) for name in _FACTS}}
        line |= {name: value for name, value in facts.items() if value is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_json() -> None:
    """Write every record of this process as a line of JSON, and one record per request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    request_log.setLevel(logging.INFO)


class QueryLog:
    """Appends the texts of queries to a file that `calibrate --queries` reads; nothing else is kept.

    Each process has a file of its own, whose name ends in its process id, and one predecessor of that file.
    """

    def __init__(self, path: Path) -> None:
        own = path.with_name(f"{path.stem}-{os.getpid()}{path.suffix}")
        try:
            self._handler = RotatingFileHandler(
                own, maxBytes=_QUERY_LOG_BYTES, backupCount=1, encoding="utf-8"
            )
        except OSError as error:
            raise ServingError(
                f"the query log {own} cannot be written ({error.strerror or error}); name a file in a folder "
                "that can"
            ) from error

    def record(self, query: str) -> None:
        """Keep one query."""
        line = json.dumps({"query_id": uuid.uuid4().hex, "text": query}, ensure_ascii=False)
        self._handler.handle(logging.LogRecord("queries", logging.INFO, "", 0, "%s", (line,), None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
