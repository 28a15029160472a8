"""The trained models: small, whole, and able to do what they are there for."""

from itertools import islice
from random import Random

import numpy as np
import pytest

from miniature import BACKBONES, FOLDER, RETRIEVERS, weights
from miniature.corpora import find_plan, make_corpus
from miniature.questions import ANSWERS, NOT
from miniature.training.designs import render
from ridgerank.backbones.base import full_margins
from ridgerank.backbones.load import load_backbone
from ridgerank.retrievers.encoders import load_encoder
from ridgerank.retrievers.late_interaction import maxsim

MODELS = (*BACKBONES, *RETRIEVERS)


def test_all_weights_together_are_at_most_25_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 25e6


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_tells_answers_from_pages_with_the_same_words(name: str) -> None:
    """Pages and questions of a corpus that nothing was trained on; chance is a half."""
    corpus = make_corpus(find_plan("alder"))
    pages = corpus.pages()
    backbone = load_backbone(weights(name), device="cpu")
    assert backbone.max_pixels == 336 * 448
    chance = Random(0)
    right = []
    for question in chance.sample(corpus.questions, 12):
        yes = [page for page in pages.values() if question.grade(page) == ANSWERS]
        no = [
            page
            for page in pages.values()
            if question.grade(page) == NOT and all(map(page.has_word, question.text.split()[-1:]))
        ]
        shown = render([chance.choice(yes), *chance.sample(no, min(3, len(no)))])
        margins = full_margins(backbone, question.text, shown)
        right += (margins[0] > margins[1:]).tolist()
    assert np.mean(right) > 0.85


def test_each_retriever_finds_pages_and_the_second_is_the_weaker_one() -> None:
    corpus = make_corpus(find_plan("alder"))
    pages = dict(islice(corpus.pages().items(), 60))
    images = render(list(pages.values()))
    asked = [
        question
        for question in corpus.questions
        if any(question.grade(page) == ANSWERS for page in pages.values())
    ][:25]
    shares = []
    for name in RETRIEVERS:
        encoder = load_encoder(weights(name), device="cpu")
        vectors = encoder.embed_pages(images)
        scores = maxsim(
            encoder.embed_queries([question.text for question in asked]),
            np.concatenate(vectors),
            np.array([len(own) for own in vectors]),
        )
        grades = np.array(
            [[question.grade(page) == ANSWERS for page in pages.values()] for question in asked]
        )
        above = [
            (own[answers][:, None] > own[~answers]).mean()
            for own, answers in zip(scores, grades, strict=True)
        ]
        shares.append(np.mean(above))
    assert shares[0] > shares[1] > 0.8
