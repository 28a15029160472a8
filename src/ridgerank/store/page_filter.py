"""Some pages of a store, by document and by metadata, as one condition that Lance evaluates."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from ridgerank.errors import StoreError
from ridgerank.store import layout


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Pages of documents whose name fits any of `documents`, and which have all of `labels`."""

    documents: tuple[str, ...] = ()
    """Globs such as `2019/*.pdf`; one without a folder fits in every folder."""
    labels: tuple[str, ...] = ()
    """`key=value`."""

    @classmethod
    def of(cls, documents: str | Iterable[str] = (), metadata: Mapping[str, Any] | None = None) -> Self:
        """A filter by globs, and by values of metadata: text, numbers, true or false."""
        globs = (documents,) if isinstance(documents, str) else tuple(documents)
        return cls(
            globs, tuple(label for key, value in (metadata or {}).items() for label in labels_of(key, value))
        )

    @classmethod
    def parse(cls, documents: Iterable[str], conditions: Iterable[str]) -> Self:
        """A filter as it is typed: globs, and `key=value`."""
        labels = tuple(conditions)
        wrong = [label for label in labels if not label.partition("=")[0] or "=" not in label]
        if wrong:
            raise StoreError(f"a condition {wrong[0]!r}, expected KEY=VALUE, as in year=2019")
        return cls(tuple(documents), labels)

    def __bool__(self) -> bool:
        return bool(self.documents or self.labels)

    def __str__(self) -> str:
        parts = [f"documents {', '.join(self.documents)}"] if self.documents else []
        return " and ".join([*parts, *self.labels])

    def condition(self) -> str:
        """The pages as a condition in Lance's SQL."""
        conditions = []
        if self.documents:
            names = "|".join(_glob_regex(glob) for glob in self.documents)
            pattern = _quote(f"(^|\n)({names})#[0-9]+($|\n)")
            conditions.append(f"regexp_like(array_to_string({layout.REFERENCES}, '\n'), {pattern})")
        if self.labels:
            wanted_labels = ", ".join(map(_quote, self.labels))
            conditions.append(f"array_has_all({layout.LABELS}, make_array({wanted_labels}))")
        return " AND ".join(conditions)


@dataclass(frozen=True, slots=True)
class PageSelection:
    """The pages of a store that a filter lets through."""

    page_ids: frozenset[str]
    condition: str


def labels_of(key: str, value: object, *, of: str = "") -> list[str]:
    """`key=value`, one for each item where the value is a list."""
    values = value if isinstance(value, list | tuple) else [value]
    wrong = [item for item in values if not isinstance(item, str | int | float | bool)]
    if wrong:
        found = f"{key}{of} is {wrong[0]!r:.80}"
        raise StoreError(f"{found}, expected text, a number, true, false, or a list of these")
    return [f"{key}={item if isinstance(item, str) else json.dumps(item)}" for item in values]


def _glob_regex(glob: str) -> str:
    """A glob in the regular expressions of Lance: `*` is anything, `?` one character."""
    body = re.escape(glob).replace(r"\*", "[^\n]*").replace(r"\?", "[^\n]")
    return body if "/" in glob else f"([^\n]*/)?{body}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
