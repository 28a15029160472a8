"""Where the last position looks is what the library's own model says, and asking changes nothing."""

from collections.abc import Iterator

import pytest
import torch
from PIL.Image import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.decoder import weights_of_position
from ridgerank.backbones.prefix import PrefixBatch
from tests.backbones.reference import Whole, causal_mask, whole_prompt
from tests.backbones.small_models import LAYERS, Built
from tests.backbones.test_exactness import drop, two_of_three

QUERY = "What was the revenue in 2023?"


@pytest.fixture
def eager(built: Built) -> Iterator[Built]:
    """The reference model with attention that can be looked at."""
    built.model.set_attn_implementation("eager")
    yield built
    built.model.set_attn_implementation("sdpa")


def library_attention(built: Built, whole: Whole, mask: torch.Tensor | None = None) -> torch.Tensor:
    """(layers, positions): the last position's attention in the one-shot forward, averaged over heads."""
    more = {} if mask is None else {"attention_mask": mask, "position_ids": whole.positions}
    with torch.no_grad():
        outputs = built.model(**whole.inputs, output_attentions=True, use_cache=False, **more)
    return torch.stack([layer[0, :, -1].mean(dim=0) for layer in outputs.attentions])


@pytest.mark.parametrize("exit_layer", [1, 3, LAYERS])
def test_attention_is_that_of_the_one_shot_forward(
    eager: Built, backbone: Backbone, pages: list[Image], exit_layer: int
) -> None:
    for page in pages:
        prefixes = PrefixBatch(backbone.encode([page], exit_layer=exit_layer))
        found = backbone.attention(QUERY, prefixes)
        ours = torch.cat([found.over_prefix, found.over_suffix], dim=-1)[:, 0]
        expected = library_attention(eager, whole_prompt(eager, page, QUERY))[:exit_layer]
        assert ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)


def test_with_positions_dropped_it_is_that_of_a_forward_that_may_not_see_them(
    eager: Built, backbone: Backbone, pages: list[Image]
) -> None:
    for page in pages:
        [prefix] = backbone.encode([page], exit_layer=LAYERS)
        dropped = two_of_three(prefix)
        found = backbone.attention(QUERY, PrefixBatch([drop(prefix, dropped)]))
        whole = whole_prompt(eager, page, QUERY)
        expected = library_attention(eager, whole, causal_mask(whole, dropped))
        kept = expected[:, : whole.page_length][:, ~dropped]
        torch.testing.assert_close(found.over_prefix[:, 0], kept, atol=1e-4, rtol=0)
        torch.testing.assert_close(
            found.over_suffix[:, 0], expected[:, whole.page_length :], atol=1e-4, rtol=0
        )


def test_asking_for_attention_does_not_change_a_bit_of_the_states(
    backbone: Backbone, pages: list[Image]
) -> None:
    prefixes = PrefixBatch(backbone.encode(pages, exit_layer=4))
    found = backbone.attention(QUERY, prefixes)
    assert torch.equal(found.states, backbone.states([QUERY], prefixes))
    assert found.over_prefix.shape == (4, len(pages), int(prefixes.lengths.max()))


def test_pages_of_a_batch_are_looked_at_as_alone_and_padding_not_at_all(
    backbone: Backbone, pages: list[Image]
) -> None:
    encoded = backbone.encode(pages, exit_layer=4)
    together = backbone.attention(QUERY, PrefixBatch(encoded))
    for row, prefix in enumerate(encoded):
        alone = backbone.attention(QUERY, PrefixBatch([prefix]))
        length = len(prefix.visual)
        torch.testing.assert_close(
            together.over_prefix[:, row, :length], alone.over_prefix[:, 0], atol=1e-6, rtol=1e-4
        )
        torch.testing.assert_close(
            together.over_suffix[:, row], alone.over_suffix[:, 0], atol=1e-6, rtol=1e-4
        )
        assert not together.over_prefix[:, row, length:].any()
    total = together.over_prefix.sum(dim=-1) + together.over_suffix.sum(dim=-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_weights_are_the_softmax_head_by_head() -> None:
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(2, 6, 8, generator=generator)
    keys = torch.randn(2, 3, 5, 8, generator=generator)
    mask = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0, 0, -torch.inf]])
    for row in range(2):
        heads = [
            (keys[row, head // 2] @ queries[row, head] / 8**0.5 + mask[row]).softmax(dim=0)
            for head in range(6)
        ]
        torch.testing.assert_close(
            weights_of_position(queries, keys, mask)[row], torch.stack(heads).mean(dim=0)
        )
