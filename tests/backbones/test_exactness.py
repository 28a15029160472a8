"""The cut model equals the whole one, for every supported class; what shares a batch does not matter."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from ridgerank.backbones.base import Backbone, Content, full_margins
from ridgerank.backbones.decoder import Prefix, PrefixBatch
from ridgerank.backbones.vision import GridBackbone
from ridgerank.errors import BackboneError
from ridgerank.records import STATES, State, Target
from tests.backbones.reference import hide_from_suffix, one_shot, whole_prompt
from tests.backbones.small_models import LAYERS, Built

QUERIES = [
    "What was the revenue in 2023?",
    "yes",
    "A much longer query about 12345 and 67890, with a comma.",
    "no document",
]
QUERY = QUERIES[0]


def assert_close(one: Tensor, other: Tensor, *, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def encoded(backbone: Backbone, pages: Sequence[Content], layers: int) -> PrefixBatch:
    return PrefixBatch(backbone.encode(pages, exit_layer=layers))


def drop(prefix: Prefix, dropped: Tensor) -> Prefix:
    kept = ~dropped
    return replace(
        prefix,
        keys=prefix.keys[:, :, kept],
        values=prefix.values[:, :, kept],
        visual=prefix.visual[kept],
        grid=(1, int(prefix.visual[kept].sum())),
    )


def two_of_three(prefix: Prefix) -> Tensor:
    """Which positions to drop: two of three that hold the page."""
    return prefix.visual & (prefix.visual.cumsum(0) % 3 != 0)


def test_keys_and_positions_are_those_of_the_one_shot_prompt(
    built: Built, backbone: Backbone, pages: list[Content]
) -> None:
    for page, prefix in zip(pages, backbone.encode(pages, exit_layer=1), strict=True):
        whole = whole_prompt(built, page, QUERY)
        assert prefix.count == whole.page_length
        assert prefix.next_position == int(whole.positions[..., whole.page_length].max())
        assert torch.equal(prefix.visual, whole.visual)
        assert prefix.grid[0] * prefix.grid[1] == int(prefix.visual.sum())


def test_full_depth_margin_is_that_of_the_one_shot_forward(
    built: Built, backbone: Backbone, pages: list[Content]
) -> None:
    yes, no = backbone.tokens.answers
    for page, margin in zip(pages, full_margins(backbone, QUERY, pages), strict=True):
        logits = one_shot(built, whole_prompt(built, page, QUERY)).logits[0, -1]
        assert_close(margin, logits[yes] - logits[no])


@pytest.mark.parametrize("query", QUERIES[:3])
def test_likelihood_is_that_of_the_one_shot_forward(
    built: Built, backbone: Backbone, pages: list[Content], query: str
) -> None:
    prefixes = encoded(backbone, pages, LAYERS)
    found = backbone.targets([query], prefixes, targets=("likelihood",))["likelihood"]
    for page, likelihood in zip(pages, found, strict=True):
        whole = whole_prompt(built, page, query, cue=False)
        logs = one_shot(built, whole).logits[0, whole.page_length : -1].log_softmax(dim=-1)
        asked = whole.ids[whole.page_length + 1 :]
        assert_close(likelihood, logs[torch.arange(len(asked)), asked].mean())


@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_states_at_a_layer_are_that_layers_hidden_states(
    built: Built, backbone: Backbone, pages: list[Content], exit_layer: int
) -> None:
    prefixes = encoded(backbone, pages, exit_layer)
    last, mean = (backbone.states([QUERY], prefixes, state=state) for state in STATES)
    for row, page in enumerate(pages):
        hidden = one_shot(built, whole_prompt(built, page, QUERY)).hidden_states[exit_layer][0]
        assert_close(last[row], hidden[-1])
        whole = whole_prompt(built, page, QUERY, cue=False)
        own = one_shot(built, whole).hidden_states[exit_layer][0, whole.page_length + 1 :]
        assert_close(mean[row], own.mean(dim=0))


@pytest.mark.parametrize("exit_layer", [1, 3, LAYERS])
def test_dropped_positions_equal_a_forward_whose_suffix_may_not_attend_to_them(
    built: Built, backbone: Backbone, pages: list[Content], exit_layer: int
) -> None:
    prefixes = backbone.encode(pages, exit_layer=exit_layer)
    kept = PrefixBatch([drop(prefix, two_of_three(prefix)) for prefix in prefixes])
    states = backbone.states([QUERY], kept)
    assert (states[0] - backbone.states([QUERY], PrefixBatch(prefixes))[0]).abs().max() > 1e-3
    yes, no = backbone.tokens.answers
    for page, prefix, state in zip(pages, prefixes, states, strict=True):
        whole = whole_prompt(built, page, QUERY)
        outputs = one_shot(built, whole, **hide_from_suffix(whole, two_of_three(prefix)))
        if exit_layer < LAYERS:
            assert_close(state, outputs.hidden_states[exit_layer][0, -1])
        else:
            margin = outputs.logits[0, -1, yes] - outputs.logits[0, -1, no]
            assert_close(backbone.logit_lens(state), margin)


@pytest.fixture
def eager(built: Built) -> Iterator[Built]:
    """The reference model with attention that can be looked at."""
    built.model.set_attn_implementation("eager")
    yield built
    built.model.set_attn_implementation("sdpa")


@pytest.mark.parametrize("exit_layer", [1, 3, LAYERS])
@pytest.mark.parametrize("dropping", [False, True])
def test_attention_is_that_of_the_one_shot_forward(
    eager: Built, backbone: Backbone, pages: list[Content], exit_layer: int, dropping: bool
) -> None:
    for page in pages:
        [prefix] = backbone.encode([page], exit_layer=exit_layer)
        dropped = two_of_three(prefix) if dropping else torch.zeros_like(prefix.visual)
        found = backbone.attention(QUERY, PrefixBatch([drop(prefix, dropped)]))
        whole = whole_prompt(eager, page, QUERY)
        more = hide_from_suffix(whole, dropped) if dropping else {}
        outputs = one_shot(eager, whole, output_attentions=True, **more)
        expected = torch.stack([layer[0, :, -1].mean(dim=0) for layer in outputs.attentions])[:exit_layer]
        seen = torch.cat([~dropped, torch.ones(expected.shape[1] - len(dropped), dtype=torch.bool)])
        assert_close(found, expected[:, seen])


def assert_same(one: Prefix, other: Prefix) -> None:
    assert_close(one.keys, other.keys, tolerance=1e-5)
    assert_close(one.values, other.values, tolerance=1e-5)
    assert torch.equal(one.visual, other.visual)
    assert (one.grid, one.next_position) == (other.grid, other.next_position)


def test_pages_of_differing_size_encode_as_one_by_one_and_to_any_depth(
    backbone: Backbone, pages: list[Content]
) -> None:
    together = backbone.encode(pages, exit_layer=LAYERS)
    shallow = backbone.encode(pages, exit_layer=3)
    for page, prefix, cut in zip(pages, together, shallow, strict=True):
        [alone] = backbone.encode([page], exit_layer=LAYERS)
        assert_same(prefix, alone)
        assert torch.equal(cut.keys, prefix.keys[:3])
        assert torch.equal(cut.values, prefix.values[:3])


def test_how_much_is_computed_at_once_does_not_matter(
    backbone: Backbone, pages: list[Content], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions in an MLP, patches in a vision tower, pages unpacked for attention."""
    prefixes = backbone.encode(pages, exit_layer=4)
    batch, single = PrefixBatch(prefixes), PrefixBatch(prefixes[:1])

    def run() -> list[Tensor]:
        return [
            backbone.states(QUERIES[:1], batch),
            backbone.states(QUERIES, single),
            backbone.states(QUERIES[:1], batch, state="mean"),
            backbone.states(QUERIES[:2], batch, owners=[0, *[1] * (len(pages) - 1)]),
            *(backbone.attention(QUERY, single, state=state) for state in STATES),
        ]

    together = run()
    monkeypatch.setattr("ridgerank.backbones.decoder._CACHED_BYTES", 1)
    monkeypatch.setattr("ridgerank.backbones.decoder._MLP_ROWS", 7)
    for one, other in zip(run(), together, strict=True):
        assert_close(one, other, tolerance=1e-5)
    for prefix, again in zip(prefixes, backbone.encode(pages, exit_layer=4), strict=True):
        assert_same(prefix, again)
    if isinstance(backbone, GridBackbone):
        patches = [int(page.visual.sum()) * backbone._image_processor.merge_size**2 for page in prefixes]
        monkeypatch.setattr("ridgerank.backbones.vision._PATCHES_AT_ONCE", max(patches))
        model = backbone._model.model
        with patch.object(model, "get_image_features", wraps=model.get_image_features) as tower:
            for prefix, again in zip(prefixes, backbone.encode(pages, exit_layer=4), strict=True):
                assert_same(prefix, again)
        seen = [len(call.args[0]) for call in tower.call_args_list]
        assert (sum(seen), max(seen)) == (sum(patches), max(patches))


@pytest.mark.parametrize("state", STATES)
def test_many_queries_over_many_pages_are_as_one_at_a_time(
    backbone: Backbone, pages: list[Content], state: State
) -> None:
    prefixes = backbone.encode(pages, exit_layer=4)
    pairs = backbone.states(QUERIES, PrefixBatch(prefixes), state=state)
    over_one = backbone.states(QUERIES, PrefixBatch(prefixes[:1]), state=state)
    for row, query in enumerate(QUERIES):
        apart = backbone.states([query], PrefixBatch(prefixes), state=state)
        alone = backbone.states([query], PrefixBatch([prefixes[row]]), state=state)
        assert_close(pairs[row], alone[0], tolerance=1e-5)
        assert_close(pairs[row], apart[row], tolerance=1e-5)
        assert_close(over_one[row], apart[0], tolerance=1e-5)


def test_one_pass_gives_what_a_pass_each_gives(backbone: Backbone, pages: list[Content]) -> None:
    shallow = encoded(backbone, pages, 3)
    for state, states in backbone.both_states(QUERY, shallow).items():
        assert_close(states, backbone.states([QUERY], shallow, state=state), tolerance=1e-5)
    full = encoded(backbone, pages, LAYERS)
    for queries in ([QUERY], QUERIES):
        both = backbone.targets(queries, full)
        names: tuple[Target, ...] = ("margin", "likelihood")
        for name in names:
            assert_close(both[name], backbone.targets(queries, full, targets=(name,))[name])
    for row, query in enumerate(QUERIES):
        assert_close(both["margin"][row], full_margins(backbone, query, [pages[row]])[0])


def test_call_order_does_not_matter_and_the_model_stays_as_it_was(
    backbone: Backbone, pages: list[Content]
) -> None:
    def names() -> dict[str, object]:
        return {key: value for key, value in vars(backbone._model.model).items() if not key.startswith("_")}

    before = names()
    first = encoded(backbone, pages[:1], 3)
    first_states = backbone.states([QUERY], first)
    for page in reversed(pages):
        full_margins(backbone, QUERIES[2], [page])
    assert torch.equal(first_states, backbone.states([QUERY], encoded(backbone, pages[:1], 3)))
    assert names() == before
    assert getattr(backbone._model.model, "rope_deltas", None) is None
    # What is handed out may be changed in place.
    [prefix] = backbone.encode(pages[:1], exit_layer=2)
    prefix.keys.mul_(2.0)
    first_states.sub_(first_states.mean())
    backbone.logit_lens(first_states).add_(1.0)


def test_layers_queries_and_pages_that_do_not_fit_are_refused(
    backbone: Backbone, pages: list[Content]
) -> None:
    assert backbone.encode([], exit_layer=2) == []
    with pytest.raises(BackboneError, match="at least one page"):
        PrefixBatch([])
    for exit_layer in (0, LAYERS + 1, -1):
        with pytest.raises(BackboneError, match=f"model of {LAYERS} layers"):
            backbone.encode([], exit_layer=exit_layer)
    shallow = backbone.encode(pages[:3], exit_layer=3)
    for queries in (QUERIES[:2], []):
        with pytest.raises(BackboneError, match=f"{len(queries)} queries over 3 pages"):
            backbone.states(queries, PrefixBatch(shallow))
    with pytest.raises(BackboneError, match=r"pages of 3 layers of 5; encode them to full depth"):
        backbone.targets([QUERY], PrefixBatch(shallow))
    with pytest.raises(BackboneError, match="empty query"):
        backbone.targets(["  "], encoded(backbone, pages[:1], LAYERS), targets=("likelihood",))
