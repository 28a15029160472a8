import pytest

from miniature.corpora import PLANS, Corpus, make_corpus


@pytest.fixture(scope="session")
def corpora() -> dict[str, Corpus]:
    return {plan.name: make_corpus(plan) for plan in PLANS}
