"""ViDoRe 2 and ViDoRe 3: queries in several languages, graded judgements, pages as images.

Pages are written once as image files into the work folder, under the id the corpus gives them; judgements
name them `<id>.png#1`. What is measured is said against what the paper counts.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, UnidentifiedImageError

from experiments.datasets.base import Benchmark, BenchmarkCorpus, keep_judged
from ridgerank.atomic import replace_file, replace_text_file
from ridgerank.errors import DatasetError, ExtraMissing
from ridgerank.records import Query
from ridgerank.trec import Qrels, require_distinct_ids

SPLIT = "test"
_ROWS_AT_ONCE = 16
"""Rows of a local table in memory; a page image is some megabytes."""


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Where a data set is, and which state of it."""

    repository: str
    revision: str
    """Commit of the data set on the hub: what it held then is what is measured."""

    @property
    def name(self) -> str:
        """The last part of the repository, which is also its folder in a local copy."""
        return self.repository.rpartition("/")[2]


class DatasetTables:
    """The tables of one data set."""

    def __init__(self, hub_dataset: HubDataset, local: Path | None) -> None:
        """Read from the hub, or from the folder of this data set's name under `local`."""
        self.hub_dataset = hub_dataset
        self._folder = None if local is None else local / hub_dataset.name
        if self._folder is not None and not self._folder.is_dir():
            raise DatasetError(
                f"{self._folder}: no such folder; wanted a copy of {hub_dataset.repository} in the hub's "
                "layout (corpus/, queries/ and qrels/ with parquet files)"
            )

    def names(self) -> list[str]:
        """List the tables there are."""
        if self._folder is not None:
            return sorted({path.parent.name for path in self._folder.glob("*/*.parquet")})
        datasets = _datasets()
        with _explain_errors(self.hub_dataset):
            names: list[str] = datasets.get_dataset_config_names(
                self.hub_dataset.repository, revision=self.hub_dataset.revision
            )
        return sorted(names)

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        """Read a table row by row; an image comes as the bytes of its file."""
        with _explain_errors(self.hub_dataset):
            yield from self._local(self._folder / table) if self._folder is not None else self._online(table)

    def _local(self, folder: Path) -> Iterator[Mapping[str, Any]]:
        from pyarrow.parquet import ParquetFile

        files = sorted(folder.glob(f"{SPLIT}*.parquet"))
        if not files:
            raise DatasetError(f"{folder}: no {SPLIT}*.parquet; wanted the table's files")
        for path in files:
            with ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    yield from batch.to_pylist()

    def _online(self, table: str) -> Iterator[Mapping[str, Any]]:
        datasets = _datasets()
        # The download is kept by the library, so that an interrupted run goes on; rows stay on disk.
        table_rows = datasets.load_dataset(
            self.hub_dataset.repository, table, split=SPLIT, revision=self.hub_dataset.revision
        )
        if "image" in table_rows.features:
            table_rows = table_rows.cast_column("image", datasets.Image(decode=False))
        yield from table_rows


@contextmanager
def _explain_errors(hub_dataset: HubDataset) -> Iterator[None]:
    """Turn an error of the library into one that says which data set, and what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise DatasetError(
            f"cannot read {hub_dataset.repository} at {hub_dataset.revision}: {first_line}. Check the "
            "connection, or download it once and say where it is"
        ) from error


def _datasets() -> Any:  # noqa: ANN401 (untyped)
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ExtraMissing("ViDoRe needs the package datasets: `pip install 'ridgerank[vidore]'`") from error
    return datasets


_LIST = "pages.json"
_SUFFIXES = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "TIFF": ".tif"}


class PageFiles:
    """The pages of one corpus on disk: `folder` holds nothing but their files."""

    def __init__(self, folder: Path, *, source: str) -> None:
        """Open what is there; files of another state of the data set are refused."""
        self.folder = folder / "documents"
        self._list = folder / _LIST
        self._source = source
        self._file_of: dict[str, str] = {}
        self._first: dict[str, str] = {}
        """Digest of a page's bytes → the file that has them."""
        self.is_complete = self._list.exists()
        if self.is_complete:
            self._read()
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, page: str, content: bytes) -> None:
        """Write one page, unless it is there."""
        if page in self._file_of:
            raise DatasetError(f"{self._source}: two pages have the id {page!r}")
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        name = self._first.get(digest)
        if name is None:
            name = self._first[digest] = f"{_file_stem(page)}{self._suffix(page, content)}"
            path = self.folder / name
            if not path.exists() or path.stat().st_size != len(content):
                with replace_file(path) as scratch:
                    scratch.write_bytes(content)
        self._file_of[page] = name

    def finish(self) -> None:
        """Say that every page is there."""
        if not self._file_of:
            raise DatasetError(f"{self._source}: its corpus has no pages")
        with replace_text_file(self._list) as file:
            json.dump({"source": self._source, "pages": self._file_of}, file)
        self.is_complete = True

    def rename_pages(self, qrels: Qrels) -> dict[str, dict[str, int]]:
        """The judgements with pages by reference; of pages that are one, the best grade counts."""
        renamed: dict[str, dict[str, int]] = {}
        for query, grades in qrels.items():
            by_reference = renamed.setdefault(query, {})
            for page, grade in grades.items():
                if page not in self._file_of:
                    raise DatasetError(
                        f"{self._source}: query {query!r} is judged on page {page!r}, which the corpus lacks"
                    )
                reference = f"{self._file_of[page]}#1"
                by_reference[reference] = max(grade, by_reference.get(reference, grade))
        return renamed

    def _read(self) -> None:
        content: Mapping[str, Any] = json.loads(self._list.read_text(encoding="utf-8"))
        if content["source"] != self._source:
            raise DatasetError(
                f"{self._list.parent} holds pages of {content['source']}, not of {self._source}; use another "
                "work folder, or remove it"
            )
        self._file_of = dict(content["pages"])
        missing = sorted(name for name in set(self._file_of.values()) if not (self.folder / name).exists())
        if missing:
            # Files were removed: the corpus is written again, which costs only what is missing.
            self.is_complete, self._file_of = False, {}

    def _suffix(self, page: str, content: bytes) -> str:
        try:
            with Image.open(io.BytesIO(content)) as image:
                kind = image.format or ""
        except UnidentifiedImageError as error:
            raise DatasetError(f"{self._source}: page {page!r} is no image ({error})") from error
        if kind not in _SUFFIXES:
            raise DatasetError(f"{self._source}: page {page!r} is a {kind}; wanted {', '.join(_SUFFIXES)}")
        return _SUFFIXES[kind]


def _file_stem(page: str) -> str:
    """A file name of a page's id: what is no letter, digit, dot, dash or underscore becomes its code."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else f"%{ord(c):02x}" for c in page)


_PAGE_ID = ("corpus-id", "corpus_id", "id", "_id")
_QUERY_ID = ("query-id", "query_id", "id", "_id")
_TEXT = ("query", "text")
"""Names a column goes by, in the order they are looked for."""


class PublishedCorpus(NamedTuple):
    """One corpus as published."""

    label: str
    """As the paper's tables call it."""
    hub_dataset: HubDataset


@dataclass(frozen=True, slots=True)
class PublishedFamily:
    """A benchmark as published; corpora in the order of the paper's tables, which is their cyclic order."""

    name: str
    corpora: tuple[PublishedCorpus, ...]
    paper_queries: int


def _published(label: str, name: str, revision: str) -> PublishedCorpus:
    return PublishedCorpus(label, HubDataset(f"vidore/{name}", revision))


VIDORE2 = PublishedFamily(
    "vidore2",
    (
        _published("Biomed", "biomedical_lectures_v2", "a29202f0da409034d651614d87cd8938d254e2ea"),
        _published("Econ", "economics_reports_v2", "b3e3a04b07fbbaffe79be49dabf92f691fbca252"),
        _published("ESG-H", "esg_reports_human_labeled_v2", "6d467dedb09a75144ede1421747e47cf036857dd"),
        _published("ESG-F", "esg_reports_v2", "0542c0d03da0ec1c8cbc517c8d78e7e95c75d3d3"),
    ),
    1038,
)
VIDORE3 = PublishedFamily(
    "vidore3",
    tuple(
        _published(label, f"vidore_v3_{name}_mteb_format", revision)
        for label, name, revision in (
            ("cs", "computer_science", "fb7fb69f81f7db62790f40494124b8ad22b424ab"),
            ("energy", "energy", "84fca99e5978604bae30f2436eacb6dbaa0532e9"),
            ("fin en", "finance_en", "fa78cb14152b3dde8c5defdc4e3ddf50de69dfeb"),
            ("fin fr", "finance_fr", "8a2adfda85a7967c7252129703d9b3c7c9f038a9"),
            ("hr", "hr", "bc7d43d64815ed30f664168c8052106484aba7fd"),
            ("indus", "industrial", "f732b725cf4a70803210edfe265a04f8bd5328f6"),
            ("pharma", "pharmaceuticals", "237ed4f43c7fb3c4df07ec4e9dd0a4366be555b0"),
            ("physics", "physics", "2c18ef90ab3ef93a9d86ecc6521cdae2a29f8300"),
        )
    ),
    4730,
)
FAMILIES = {family.name: family for family in (VIDORE2, VIDORE3)}


@dataclass(frozen=True, slots=True, eq=False)
class JudgedQueries:
    """The queries of one corpus with the judgements on them; pages by the ids of the corpus."""

    queries: tuple[Query, ...]
    qrels: Qrels
    left_out: int
    """Queries of the wanted languages that no page answers."""


def load_vidore(
    name: str,
    work: Path,
    *,
    languages: Sequence[str] | None = None,
    corpora: frozenset[str] | None = None,
    local: Path | None = None,
) -> Benchmark:
    """One family; queries of all `languages` where none are named, corpora by the paper's labels."""
    family = FAMILIES[name]
    labels = [published.label for published in family.corpora]
    unknown = sorted((corpora or frozenset()) - set(labels))
    if unknown:
        raise DatasetError(f"no corpus {unknown[0]!r} in {name}; there are: {', '.join(labels)}")
    read: list[BenchmarkCorpus] = []
    notes: list[str] = []
    total = 0
    for published in family.corpora:
        if corpora is not None and published.label not in corpora:
            continue
        tables = DatasetTables(published.hub_dataset, local)
        judged_queries = read_judged_queries(tables, languages)
        files = write_pages(tables, work / published.hub_dataset.name)
        corpus = BenchmarkCorpus(
            published.label, (files.folder,), judged_queries.queries, files.rename_pages(judged_queries.qrels)
        )
        read.append(corpus)
        total += len(judged_queries.queries)
        kept, left_out = len(judged_queries.queries), judged_queries.left_out
        notes += [f"{published.label}: {kept:,} queries, {left_out} more that no page answers left out"]
    notes.append(f"{total:,} queries in all, the paper counts {family.paper_queries:,}")
    return Benchmark(name, tuple(read), "; ".join(notes))


def read_judged_queries(tables: DatasetTables, languages: Sequence[str] | None = None) -> JudgedQueries:
    """Queries of the languages wanted, and the judgements on them."""
    table_names = tables.names()
    if "queries" in table_names:
        queries, languages_by_query = _queries(tables, "queries", prefix="")
        qrels = _qrels(tables, "qrels", prefix="")
    else:
        # One set of tables a language: the same ids may stand in several, so the language goes before them.
        queries, languages_by_query, qrels = [], {}, {}
        for table in table_names:
            language = table.removesuffix("-queries")
            if language == table or (languages is not None and language not in languages):
                continue
            of_language, _ = _queries(tables, table, prefix=f"{language}-")
            queries += of_language
            languages_by_query |= {query.query_id: language for query in of_language}
            qrels |= _qrels(tables, f"{language}-qrels", prefix=f"{language}-")
    if not queries and languages is None:
        raise DatasetError(
            f"{tables.hub_dataset.repository} has the tables {', '.join(table_names)}, and no queries"
        )
    known = sorted(set(languages_by_query.values()))
    if languages is not None:
        queries = [query for query in queries if languages_by_query[query.query_id] in languages]
        if not queries:
            of = ", ".join(known) or ", ".join(
                t.removesuffix("-queries") for t in table_names if "-queries" in t
            )
            raise DatasetError(
                f"{tables.hub_dataset.name} has no query in {', '.join(languages)}; its languages are: {of}"
            )
    kept, judgements, left_out = keep_judged(
        require_distinct_ids(queries, source=tables.hub_dataset.repository), qrels
    )
    return JudgedQueries(kept, judgements, left_out)


def write_pages(tables: DatasetTables, folder: Path) -> PageFiles:
    """Write the page images of a corpus, those that are missing."""
    table_names = tables.names()
    # Where every language has a table of pages, they are the same pages.
    table = (
        "corpus" if "corpus" in table_names else next((t for t in table_names if t.endswith("-corpus")), None)
    )
    if table is None:
        raise DatasetError(
            f"{tables.hub_dataset.repository} has the tables {', '.join(table_names)}, and no corpus"
        )
    files = PageFiles(folder, source=f"{tables.hub_dataset.repository}@{tables.hub_dataset.revision}")
    if not files.is_complete:
        for row in tables.rows(table):
            image: Any = _column(row, ("image",), table)
            files.add(str(_column(row, _PAGE_ID, table)), image["bytes"])
        files.finish()
    return files


def _queries(tables: DatasetTables, table: str, *, prefix: str) -> tuple[list[Query], dict[str, str]]:
    queries: list[Query] = []
    languages_by_query: dict[str, str] = {}
    for row in tables.rows(table):
        query = Query(
            f"{prefix}{_column(row, _QUERY_ID, table)}",
            str(_column(row, _TEXT, table)),
            tables.hub_dataset.name,
        )
        queries.append(query)
        languages_by_query[query.query_id] = str(row.get("language") or "unsaid")
    return queries, languages_by_query


def _qrels(tables: DatasetTables, table: str, *, prefix: str) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for row in tables.rows(table):
        query, page = _column(row, _QUERY_ID[:2], table), _column(row, _PAGE_ID[:2], table)
        grade: Any = _column(row, ("score",), table)
        qrels.setdefault(f"{prefix}{query}", {})[str(page)] = int(grade)
    return qrels


def _column(row: Mapping[str, Any], names: Sequence[str], table: str) -> object:
    for name in names:
        if name in row:
            return row[name]
    raise DatasetError(
        f"the table {table} has the columns {', '.join(row)}; wanted one of {', '.join(names)}"
    )
