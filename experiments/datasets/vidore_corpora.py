"""ViDoRe 2 and ViDoRe 3: queries in several languages, graded judgements, pages as images.

Pages are written once as image files into the work folder, under the id the corpus gives them; judgements
name them `<id>.png#1`. What is measured is said against what the paper counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.datasets.base import Benchmark, BenchmarkCorpus, keep_judged
from experiments.datasets.hub import DatasetTables, HubDataset, PageFiles
from ridgerank.errors import DatasetError
from ridgerank.records import Query
from ridgerank.trec import Qrels, require_distinct_ids

_PAGE_ID = ("corpus-id", "corpus_id", "id", "_id")
_QUERY_ID = ("query-id", "query_id", "id", "_id")
_TEXT = ("query", "text")
"""Names a column goes by, in the order they are looked for."""


@dataclass(frozen=True, slots=True)
class PublishedCorpus:
    """One corpus as published, and what the paper says about it."""

    label: str
    """As the paper's tables call it."""
    hub_dataset: HubDataset
    paper_queries: int | None = None
    """How many queries the paper counts, where it or its sum says so."""


@dataclass(frozen=True, slots=True)
class PublishedFamily:
    """A benchmark as published; corpora in the order of the paper's tables, which is their cyclic order."""

    name: str
    corpora: tuple[PublishedCorpus, ...]
    paper_queries: int


def _published_corpus(
    label: str, name: str, revision: str, paper_queries: int | None = None
) -> PublishedCorpus:
    return PublishedCorpus(label, HubDataset(f"vidore/{name}", revision), paper_queries)


VIDORE2 = PublishedFamily(
    "vidore2",
    (
        _published_corpus(
            "Biomed", "biomedical_lectures_v2", "a29202f0da409034d651614d87cd8938d254e2ea", 640
        ),
        _published_corpus("Econ", "economics_reports_v2", "b3e3a04b07fbbaffe79be49dabf92f691fbca252", 232),
        _published_corpus(
            "ESG-H", "esg_reports_human_labeled_v2", "6d467dedb09a75144ede1421747e47cf036857dd", 52
        ),
        _published_corpus("ESG-F", "esg_reports_v2", "0542c0d03da0ec1c8cbc517c8d78e7e95c75d3d3", 114),
    ),
    1038,
)
VIDORE3 = PublishedFamily(
    "vidore3",
    tuple(
        _published_corpus(label, f"vidore_v3_{name}_mteb_format", revision)
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
    languages: Mapping[str, int]
    """Language → queries kept in it."""
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
        notes += [
            note for note in (count_note(published, judged_queries), files.note(published.label)) if note
        ]
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
    return JudgedQueries(
        kept, judgements, Counter(languages_by_query[query.query_id] for query in kept), left_out
    )


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


def count_note(published: PublishedCorpus, judged_queries: JudgedQueries) -> str:
    """Say how many queries there are beside how many the paper counts, and what would explain it."""
    count = len(judged_queries.queries)
    each = sorted(set(judged_queries.languages.values()))
    languages_by_query = ", ".join(sorted(judged_queries.languages))
    counted = f"{count:,} queries"
    if len(each) == 1 and len(judged_queries.languages) > 1:
        counted += f" ({each[0]} in each of {languages_by_query})"
    elif len(judged_queries.languages) > 1:
        counted += (
            " ("
            + ", ".join(f"{n} {language}" for language, n in sorted(judged_queries.languages.items()))
            + ")"
        )
    if judged_queries.left_out:
        counted += f", {judged_queries.left_out} more that no page answers left out"
    note = f"{published.label}: {counted}"
    if published.paper_queries is None or published.paper_queries == count:
        return note
    note += f"; the paper counts {published.paper_queries}"
    if len(each) == 1 and published.paper_queries % each[0] == 0:
        share = published.paper_queries // each[0]
        note += f", as many as {share} of its languages hold; it does not say which"
    return note


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
