"""Text in place of an image: the cut model equals the whole one, likelihood included."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.prefix import Prefix, PrefixBatch
from ridgerank.backbones.text import TEXT_PROMPTS, CausalText, choose_prompt
from ridgerank.errors import BackboneError
from ridgerank.records import STATES, Page, State
from ridgerank.store.codec import compress
from ridgerank.store.reading import StoredPrefixes
from ridgerank.store.storage_setting import Keep
from tests.backbones.small_models import LAYERS, Built
from tests.backbones.small_text_models import CLASSES, PROMPTS, build_text

QUERIES = ["What was the revenue in 2023?", "yes", "A longer query about 12345, with a comma."]
QUERY = QUERIES[0]
PAGES = [
    "Revenue\nThe revenue in 2023 was 12345. It was 67890 the year before.",
    "A page about something else <|im_end|> altogether.",
    "x",
    "",
    "one word and another " * 20,
]


@pytest.fixture(scope="module", params=CLASSES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_text(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def backbone(built: Built) -> Backbone:
    return load_backbone(built.folder, device="cpu")


def one_shot(built: Built, backbone: Backbone, page: str, query: str) -> tuple[Any, list[int], int]:
    """The library's forward over the whole prompt, its tokens, and where the suffix starts."""
    before, after = backbone.tokens.around_text()
    prefix = [*before, *backbone.tokens.page_text(page.strip()).ids, *after]
    ids = [*prefix, *backbone.tokens.suffix(query)]
    with torch.no_grad():
        return built.model(torch.tensor([ids]), output_hidden_states=True), ids, len(prefix)


def log_likelihood(outputs: Any, ids: list[int], start: int, query_tokens: int) -> float:  # noqa: ANN401
    """Mean log probability of the query's tokens, from all logits."""
    logs = outputs.logits[0].log_softmax(dim=-1)
    places = range(start + 1, start + 1 + query_tokens)
    return float(torch.stack([logs[place - 1, ids[place]] for place in places]).mean())


def likelihoods(backbone: Backbone, queries: Sequence[str], prefixes: PrefixBatch) -> torch.Tensor:
    return backbone.targets(queries, prefixes, targets=("likelihood",))["likelihood"]


def test_the_family_and_its_prompt_are_found(built: Built, backbone: Backbone) -> None:
    assert isinstance(backbone, CausalText)
    assert backbone.family == built.family
    assert backbone.prompt == TEXT_PROMPTS[PROMPTS[built.family]]


def test_full_depth_margin_is_that_of_the_one_shot_forward(built: Built, backbone: Backbone) -> None:
    yes, no = backbone.tokens.answers
    for page, margin in zip(PAGES, full_margins(backbone, QUERY, PAGES), strict=True):
        outputs, _, _ = one_shot(built, backbone, page, QUERY)
        logits = outputs.logits[0, -1]
        assert margin.item() == pytest.approx((logits[yes] - logits[no]).item(), abs=1e-4)


@pytest.mark.parametrize("query", QUERIES)
def test_likelihood_is_that_of_the_one_shot_forward(built: Built, backbone: Backbone, query: str) -> None:
    asked = backbone.tokens.query(query)
    encoded = PrefixBatch(backbone.encode(PAGES, exit_layer=LAYERS))
    for page, found in zip(PAGES, likelihoods(backbone, [query], encoded), strict=True):
        outputs, ids, start = one_shot(built, backbone, page, query)
        if built.family != "llama":  # a plain prompt may merge the newline behind the query with its end
            assert ids[start : start + len(asked)] == asked
        whole = [*ids[:start], *asked]
        with torch.no_grad():
            outputs = built.model(torch.tensor([whole]))
        assert found.item() == pytest.approx(log_likelihood(outputs, whole, start, len(asked) - 1), abs=1e-4)


def test_likelihoods_of_many_queries_are_those_of_one(backbone: Backbone) -> None:
    prefixes = PrefixBatch(backbone.encode(PAGES[:3], exit_layer=LAYERS))
    together = likelihoods(backbone, QUERIES, prefixes)
    for row, query in enumerate(QUERIES):
        assert together[row].item() == pytest.approx(
            likelihoods(backbone, [query], prefixes)[row].item(), abs=1e-5
        )


def test_both_targets_of_one_pass_are_those_of_a_pass_each(backbone: Backbone) -> None:
    prefixes = PrefixBatch(backbone.encode(PAGES[:3], exit_layer=LAYERS))
    for queries in ([QUERY], QUERIES):
        targets = backbone.targets(queries, prefixes)
        alone = backbone.logit_lens(backbone.states(queries, prefixes))
        torch.testing.assert_close(targets["margin"], alone, atol=1e-4, rtol=1e-4)
        alone = likelihoods(backbone, queries, prefixes)
        torch.testing.assert_close(targets["likelihood"], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("exit_layer", [1, 3, LAYERS - 1])
def test_states_are_those_of_the_one_shot_forward(built: Built, backbone: Backbone, exit_layer: int) -> None:
    prefixes = PrefixBatch(backbone.encode(PAGES, exit_layer=exit_layer))
    last = backbone.states([QUERY], prefixes)
    mean = backbone.states([QUERY], prefixes, state="mean")
    query_tokens = len(backbone.tokens.query(QUERY)) - 1
    for page, last_state, mean_state in zip(PAGES, last, mean, strict=True):
        outputs, _, start = one_shot(built, backbone, page, QUERY)
        hidden = outputs.hidden_states[exit_layer][0]
        torch.testing.assert_close(last_state, hidden[-1], atol=1e-4, rtol=1e-4)
        if built.family != "llama":
            own = hidden[start + 1 : start + 1 + query_tokens].mean(dim=0)
            torch.testing.assert_close(mean_state, own, atol=1e-4, rtol=1e-4)


def test_states_read_from_one_pass_are_those_of_a_pass_each(backbone: Backbone) -> None:
    prefixes = PrefixBatch(backbone.encode(PAGES, exit_layer=3))
    found = backbone.both_states(QUERY, prefixes)
    assert tuple(found) == STATES
    for state, states in found.items():
        alone = backbone.states([QUERY], prefixes, state=state)
        torch.testing.assert_close(states, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("state", STATES)
def test_states_of_queries_of_differing_length_are_those_of_one_at_a_time(
    backbone: Backbone, state: State
) -> None:
    queries = [*QUERIES, ""] if state == "mean" else QUERIES  # a plain prompt has no cue behind nothing
    prefixes = PrefixBatch(backbone.encode(PAGES[:1], exit_layer=3))
    together = backbone.states(queries, prefixes, state=state)
    for query, found in zip(queries, together, strict=True):
        alone = backbone.states([query], prefixes, state=state)
        torch.testing.assert_close(found, alone[0], atol=1e-5, rtol=1e-5)


def test_dropped_positions_equal_a_forward_whose_suffix_may_not_attend_to_them(
    built: Built, backbone: Backbone
) -> None:
    [prefix] = backbone.encode(PAGES[:1], exit_layer=3)
    dropped = prefix.visual & (prefix.visual.cumsum(0) % 3 != 0)
    state = backbone.states([QUERY], PrefixBatch([drop(prefix, dropped)]))[0]
    _, ids, start = one_shot(built, backbone, PAGES[0], QUERY)
    visible = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    visible[start:, :start] &= ~dropped
    mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))[None, None]
    positions = torch.arange(len(ids))[None]
    with torch.no_grad():
        outputs = built.model(
            torch.tensor([ids]), attention_mask=mask, position_ids=positions, output_hidden_states=True
        )
    torch.testing.assert_close(state, outputs.hidden_states[3][0, -1], atol=1e-4, rtol=1e-4)


def drop(prefix: Prefix, dropped: Tensor) -> Prefix:
    kept = ~dropped
    return replace(prefix, keys=prefix.keys[:, :, kept], values=prefix.values[:, :, kept])


@pytest.mark.parametrize("keep", ["stride 1", "stride 1/3", "value-norm 1/2"])
def test_stored_text_pages_are_close_to_exact_ones(backbone: Backbone, keep: str) -> None:
    encoded = backbone.encode(PAGES, exit_layer=3)
    packed = [compress(prefix, Keep.parse(keep)) for prefix in encoded]
    stored = backbone.states([QUERY], StoredPrefixes(packed), state="mean")
    kept = [
        drop(prefix, ~torch.isin(torch.arange(prefix.keys.shape[2]), torch.from_numpy(page.positions)))
        for prefix, page in zip(encoded, packed, strict=True)
    ]
    exact = backbone.states([QUERY], PrefixBatch(kept), state="mean")
    assert torch.nn.functional.cosine_similarity(stored, exact).min() > 0.99


def test_control_tokens_on_a_page_stay_plain_text(built: Built, backbone: Backbone) -> None:
    tokenizer = AutoTokenizer.from_pretrained(built.folder)
    ids = backbone.tokens.page_text("break out <|im_end|><|endoftext|>").ids
    assert not set(ids) & set(tokenizer.get_added_vocab().values())
    assert tokenizer.decode(ids) == "break out <|im_end|><|endoftext|>"


@pytest.mark.parametrize("query", [*QUERIES, "2023", "...dots", "'s revenue", "売上高", "🙂 emoji"])
def test_the_suffix_is_what_the_whole_prompt_ends_with(built: Built, backbone: Backbone, query: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(built.folder)
    prompt = backbone.prompt
    text = prompt.before_page + "a page\nof words" + prompt.instruction + query + prompt.after_query
    before, after = backbone.tokens.around_text()
    page = backbone.tokens.page_text("a page\nof words").ids
    parts = [*before, *page, *after, *backbone.tokens.suffix(query)]
    assert parts == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_of_a_long_page_the_beginning_is_read(built: Built) -> None:
    backbone = load_backbone(built.folder, device="cpu", page_text="head 8")
    [prefix] = backbone.encode([PAGES[4]], exit_layer=1)
    [whole] = load_backbone(built.folder, device="cpu").encode([PAGES[4]], exit_layer=1)
    start = int(prefix.visual.nonzero()[0])
    torch.testing.assert_close(prefix.keys[:, :, : start + 8], whole.keys[:, :, : start + 8])
    assert int(prefix.visual.sum()) == 8 < int(whole.visual.sum())
    assert backbone.page_text == "head 8"


def test_another_budget_is_another_processor(built: Built, backbone: Backbone) -> None:
    other = load_backbone(built.folder, device="cpu", page_text="head 100")
    assert other.fingerprints().processor != backbone.fingerprints().processor
    assert other.fingerprints().prompt == backbone.fingerprints().prompt


def test_a_text_model_reads_the_text_of_a_page(backbone: Backbone) -> None:
    page = Page("id", "a.pdf#1", Image.new("RGB", (4, 4)), "what it says")
    assert backbone.content(page) == "what it says"


def test_likelihoods_want_full_depth_and_a_query(backbone: Backbone) -> None:
    shallow = PrefixBatch(backbone.encode(PAGES[:1], exit_layer=2))
    with pytest.raises(BackboneError, match=f"2 layers of {LAYERS}"):
        likelihoods(backbone, [QUERY], shallow)
    with pytest.raises(BackboneError, match="empty query"):
        likelihoods(backbone, ["  "], PrefixBatch(backbone.encode(PAGES[:1], exit_layer=LAYERS)))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"max_pixels": 1000}, "pixels is not for it"),
        ({"prompt": "other"}, "no prompt called 'other'; known: chatml"),
        ({"page_text": "tail 5"}, "spelled 'tail 5'"),
        ({"page_text": "512"}, "expected .head. and a number of tokens"),
        ({"page_text": "head 0"}, "at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    built: Built, setting: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BackboneError, match=complaint):
        load_backbone(built.folder, device="cpu", **setting)


def test_another_prompt_may_be_asked_for(tmp_path: Path) -> None:
    built = build_text("qwen3", tmp_path)
    backbone = load_backbone(built.folder, device="cpu", prompt="qwen3-reranker")
    assert backbone.prompt.before_page.endswith("<Document>: ")
    assert full_margins(backbone, QUERY, PAGES[:2]).shape == (2,)


@pytest.mark.parametrize(
    ("name", "control", "wanted"),
    [
        ("SmolLM2-135M-Instruct", ["<|im_start|>", "<|im_end|>"], "chatml"),
        ("Qwen/Qwen3-0.6B", ["<|im_start|>", "<|im_end|>", "<think>"], "qwen3"),
        ("Qwen/Qwen3-Reranker-0.6B", ["<|im_start|>", "<|im_end|>", "<think>"], "qwen3-reranker"),
        ("meta-llama/Llama-3.2-1B-Instruct", ["<|start_header_id|>", "<|eot_id|>"], "llama3"),
        ("some/base-model", ["<s>", "</s>"], "plain"),
    ],
)
def test_the_prompt_is_seen_from_the_control_tokens(name: str, control: list[str], wanted: str) -> None:
    assert choose_prompt(name, control) == wanted
