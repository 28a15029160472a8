"""The cut model equals the whole one: prefix and suffix, dropped positions, the band."""

from dataclasses import replace

import pytest
import torch
from PIL.Image import Image

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.prefix import Prefix, PrefixBatch
from tests.backbones.reference import causal_mask, one_shot, whole_prompt
from tests.backbones.small_models import LAYERS, Built

QUERY = "What was the revenue in 2023?"


def drop(prefix: Prefix, dropped: torch.Tensor) -> Prefix:
    kept = ~dropped
    return replace(
        prefix,
        keys=prefix.keys[:, :, kept],
        values=prefix.values[:, :, kept],
        visual=prefix.visual[kept],
        grid=(1, int(prefix.visual[kept].sum())),
    )


def two_of_three(prefix: Prefix) -> torch.Tensor:
    """Which positions to drop: two visual ones of three."""
    order = prefix.visual.cumsum(0)
    return prefix.visual & (order % 3 != 0)


def test_full_depth_margin_is_that_of_the_one_shot_forward(
    built: Built, backbone: Backbone, pages: list[Image]
) -> None:
    margins = full_margins(backbone, QUERY, pages)
    yes, no = backbone.tokens.answers
    for page, margin in zip(pages, margins, strict=True):
        logits = one_shot(built, whole_prompt(built, page, QUERY)).logits[0, -1]
        assert margin.item() == pytest.approx((logits[yes] - logits[no]).item(), abs=1e-4)


@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_state_at_a_layer_is_that_layers_hidden_state(
    built: Built, backbone: Backbone, pages: list[Image], exit_layer: int
) -> None:
    prefixes = PrefixBatch(backbone.encode(pages, exit_layer=exit_layer))
    states = backbone.states([QUERY], prefixes)
    for page, state in zip(pages, states, strict=True):
        whole = one_shot(built, whole_prompt(built, page, QUERY))
        torch.testing.assert_close(state, whole.hidden_states[exit_layer][0, -1], atol=1e-4, rtol=1e-4)


def test_keys_and_positions_are_those_of_the_one_shot_prompt(
    built: Built, backbone: Backbone, pages: list[Image]
) -> None:
    for page, prefix in zip(pages, backbone.encode(pages, exit_layer=1), strict=True):
        whole = whole_prompt(built, page, QUERY)
        assert prefix.keys.shape[2] == whole.page_length
        assert prefix.next_position == int(whole.positions[..., whole.page_length].max())
        page_ids = whole.inputs["input_ids"][0, : whole.page_length]
        assert torch.equal(prefix.visual, page_ids == built.model.config.image_token_id)
        assert prefix.grid[0] * prefix.grid[1] == int(prefix.visual.sum())


@pytest.mark.parametrize("exit_layer", [1, 3, LAYERS])
def test_dropped_positions_equal_a_forward_whose_suffix_may_not_attend_to_them(
    built: Built, backbone: Backbone, pages: list[Image], exit_layer: int
) -> None:
    encoded = backbone.encode(pages, exit_layer=exit_layer)
    drops = [two_of_three(prefix) for prefix in encoded]
    kept = PrefixBatch([drop(prefix, dropped) for prefix, dropped in zip(encoded, drops, strict=True)])
    states = backbone.states([QUERY], kept)
    yes, no = backbone.tokens.answers
    for page, dropped, state in zip(pages, drops, states, strict=True):
        whole = whole_prompt(built, page, QUERY)
        mask = causal_mask(whole, dropped)
        outputs = one_shot(built, whole, attention_mask=mask, position_ids=whole.positions)
        if exit_layer < LAYERS:
            torch.testing.assert_close(state, outputs.hidden_states[exit_layer][0, -1], atol=1e-4, rtol=1e-4)
        else:
            margin = outputs.logits[0, -1, yes] - outputs.logits[0, -1, no]
            torch.testing.assert_close(backbone.logit_lens(state), margin, atol=1e-4, rtol=1e-4)


def test_dropping_positions_changes_the_state(backbone: Backbone, pages: list[Image]) -> None:
    (prefix,) = backbone.encode(pages[:1], exit_layer=3)
    whole = backbone.states([QUERY], PrefixBatch([prefix]))
    thinned = backbone.states([QUERY], PrefixBatch([drop(prefix, two_of_three(prefix))]))
    assert (whole - thinned).abs().max() > 1e-3


def test_margins_of_shallow_states_are_the_logit_lens(
    built: Built, backbone: Backbone, pages: list[Image]
) -> None:
    states = backbone.states([QUERY], PrefixBatch(backbone.encode(pages, exit_layer=2)))
    text = getattr(built.model.model, "language_model", None) or built.model.model.text_model
    yes, no = backbone.tokens.answers
    with torch.no_grad():
        logits = built.model.lm_head(text.norm(states))
    torch.testing.assert_close(backbone.logit_lens(states), logits[:, yes] - logits[:, no])
