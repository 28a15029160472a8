"""The twelve corpora: what each is made of, and how it comes out of its name alone.

Two families, of four and of eight. Within a family corpora differ in layouts, words and difficulty; all
combinations of words are of the evaluation split, so that none was ever trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from miniature import MiniatureError
from miniature.layouts import plan_page
from miniature.questions import Question, choose_questions
from miniature.vocabulary import Lexicon, Scale, Split, Theme, draw_theme
from miniature.world import PlannedPage, draw_shift, draw_style


@dataclass(frozen=True, slots=True)
class CorpusPlan:
    """What a corpus is made of."""

    name: str
    family: int
    documents: int
    pages: tuple[int, int]
    """Pages of a document, fewest and most."""
    layouts: Mapping[str, int]
    """Layout → weight."""
    questions: Mapping[str, int]
    """Kind of question → how many."""
    scale: Scale = field(default=Scale())
    lookalikes: int = 2
    """Pages that look like an answer and are none, at least, for each question."""
    scanned: float = 0.2
    """Share of documents with the specks of a scan."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents, the questions asked of them, and how well each page answers."""

    name: str
    documents: Mapping[str, tuple[PlannedPage, ...]]
    """File name → pages."""
    questions: tuple[Question, ...]
    grades: tuple[Mapping[str, int], ...]
    """For each question: page reference → 2 or 1."""

    def pages(self) -> dict[str, PlannedPage]:
        """Page reference (`name.pdf#3`, from 1) → page."""
        return referenced(self.documents)

    def qrels(self) -> dict[str, Mapping[str, int]]:
        """Query id → page reference → grade."""
        return {self.query_id(number): grades for number, grades in enumerate(self.grades)}

    def query_id(self, number: int) -> str:
        """The id of a question, by its number from 0."""
        return f"{self.name}-{number + 1:03d}"


SLIDES = {"slide": 5, "chart": 1, "mixed": 1}
REPORTS = {"report": 5, "chart": 1, "mixed": 1}
CHARTS = {"chart": 5, "report": 1, "slide": 1}
EVERYTHING = {"slide": 1, "report": 1, "chart": 1, "mixed": 1}
EVEN = {"binding": 44, "chart": 20, "topic": 24, "negation": 12}

PLANS = (
    CorpusPlan("alder", 1, 14, (12, 20), SLIDES, {"binding": 50, "chart": 10, "topic": 26, "negation": 14}),
    CorpusPlan("birch", 1, 14, (12, 20), REPORTS, {"binding": 54, "chart": 10, "topic": 24, "negation": 12}),
    CorpusPlan("cedar", 1, 14, (12, 20), CHARTS, {"binding": 32, "chart": 40, "topic": 16, "negation": 12}),
    CorpusPlan("damson", 1, 16, (12, 22), EVERYTHING, EVEN, scanned=0.5),
    CorpusPlan("elder", 2, 12, (10, 20), SLIDES, EVEN, scanned=0.0),
    CorpusPlan("fir", 2, 24, (10, 20), REPORTS, {"binding": 70, "chart": 20, "topic": 32, "negation": 18}),
    CorpusPlan("ginkgo", 2, 12, (14, 24), CHARTS, EVEN, scale=Scale(entities=6)),
    CorpusPlan("hazel", 2, 10, (18, 30), EVERYTHING, EVEN, scale=Scale(entities=6, measures=5)),
    CorpusPlan("ironwood", 2, 20, (8, 14), EVERYTHING, {"binding": 60, "chart": 20, "topic": 10}),
    CorpusPlan("juniper", 2, 14, (10, 18), EVERYTHING, {"topic": 40, "negation": 20}, lookalikes=1),
    CorpusPlan("larch", 2, 14, (12, 20), EVERYTHING, {"binding": 30, "chart": 30, "topic": 10}, scanned=1.0),
    CorpusPlan("maple", 2, 16, (14, 22), SLIDES, {"binding": 100, "negation": 10}, lookalikes=4),
)
NAMES = tuple(plan.name for plan in PLANS)


def find_plan(name: str) -> CorpusPlan:
    """The plan of a corpus, by its name or its number from 1."""
    for number, plan in enumerate(PLANS, start=1):
        if name in (plan.name, str(number)):
            return plan
    known = ", ".join(f"{number} {each}" for number, each in enumerate(NAMES, start=1))
    raise MiniatureError(f"no corpus {name!r}; there are: {known}")


def make_corpus(plan: CorpusPlan) -> Corpus:
    """Write the documents of a corpus and ask about them; the same plan gives the same corpus."""
    generator = Random(f"corpus {plan.name}")
    lexicon = Lexicon().sample(generator, entities=30, measures=10, topic_words=12)
    documents: dict[str, tuple[PlannedPage, ...]] = {}
    for number in range(1, plan.documents + 1):
        theme = draw_theme(generator, lexicon, Split.EVALUATION, plan.scale)
        documents[_file_name(theme, number)] = _write_document(plan, theme, generator)
    chosen = choose_questions(referenced(documents), plan.questions, generator, lookalikes=plan.lookalikes)
    return Corpus(plan.name, documents, tuple(chosen), tuple(chosen.values()))


def referenced(documents: Mapping[str, tuple[PlannedPage, ...]]) -> dict[str, PlannedPage]:
    """Page reference → page."""
    return {
        f"{name}#{number}": page
        for name, pages in documents.items()
        for number, page in enumerate(pages, start=1)
    }


def _write_document(plan: CorpusPlan, theme: Theme, generator: Random) -> tuple[PlannedPage, ...]:
    style = draw_style(generator, scanned=plan.scanned)
    layouts = generator.choices(
        list(plan.layouts), weights=list(plan.layouts.values()), k=generator.randint(*plan.pages)
    )
    return tuple(
        plan_page(
            layout,
            theme,
            replace(style, shift=draw_shift(generator), speckle_seed=generator.randrange(1 << 30)),
            generator,
            number=number,
        )
        for number, layout in enumerate(layouts, start=1)
    )


def _file_name(theme: Theme, number: int) -> str:
    return f"{'-'.join(theme.topics[0])}-{theme.years[-1]}-{number:02d}.pdf"
