"""What shares a batch does not matter, nor in which order calls are made."""

from unittest.mock import patch

import pytest
import torch
from PIL.Image import Image

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.prefix import Prefix, PrefixBatch
from ridgerank.backbones.vision import GridBackbone
from ridgerank.errors import BackboneError
from tests.backbones.small_models import LAYERS, Built

QUERIES = [
    "What was the revenue in 2023?",
    "yes",
    "",
    "A much longer query about 12345 and 67890, with a comma.",
]


def assert_same(one: Prefix, other: Prefix) -> None:
    torch.testing.assert_close(one.keys, other.keys, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.values, other.values, atol=1e-5, rtol=1e-5)
    assert torch.equal(one.visual, other.visual)
    assert (one.grid, one.next_position) == (other.grid, other.next_position)


def test_pages_of_differing_size_encode_as_one_by_one(backbone: Backbone, pages: list[Image]) -> None:
    together = backbone.encode(pages, exit_layer=LAYERS)
    for page, prefix in zip(pages, together, strict=True):
        (alone,) = backbone.encode([page], exit_layer=LAYERS)
        assert_same(prefix, alone)


def test_how_many_positions_share_an_mlp_does_not_matter(
    backbone: Backbone, pages: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = backbone.encode(pages, exit_layer=LAYERS)
    monkeypatch.setattr("ridgerank.backbones.decoder._MLP_ROWS", 7)
    for one, other in zip(backbone.encode(pages, exit_layer=LAYERS), together, strict=True):
        assert_same(one, other)


def test_the_vision_tower_sees_a_bounded_number_of_patches_at_once(
    backbone: Backbone, pages: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(backbone, GridBackbone):
        pytest.skip("tiles, not patches")
    together = backbone.encode(pages, exit_layer=LAYERS)
    patches = [int(page.visual.sum()) * backbone._image_processor.merge_size**2 for page in together]
    monkeypatch.setattr("ridgerank.backbones.vision._PATCHES_AT_ONCE", max(patches))
    model = backbone._model.model
    with patch.object(model, "get_image_features", wraps=model.get_image_features) as tower:
        for one, other in zip(backbone.encode(pages, exit_layer=LAYERS), together, strict=True):
            assert_same(one, other)
    seen = [len(call.args[0]) for call in tower.call_args_list]
    assert sum(seen) == sum(patches)
    assert len(seen) > 1
    assert max(seen) <= max(patches)


def test_states_over_many_pages_are_those_over_one(backbone: Backbone, pages: list[Image]) -> None:
    encoded = backbone.encode(pages, exit_layer=4)
    together = backbone.states([QUERIES[0]], PrefixBatch(encoded))
    for prefix, state in zip(encoded, together, strict=True):
        alone = backbone.states([QUERIES[0]], PrefixBatch([prefix]))
        torch.testing.assert_close(state, alone[0], atol=1e-5, rtol=1e-5)


def test_many_queries_are_as_one_at_a_time(backbone: Backbone, pages: list[Image]) -> None:
    encoded = backbone.encode(pages, exit_layer=4)
    pairs = backbone.states(QUERIES, PrefixBatch(encoded))
    over_one = backbone.states(QUERIES, PrefixBatch(encoded[:1]))
    for row, query in enumerate(QUERIES):
        apart = backbone.states([query], PrefixBatch(encoded))
        torch.testing.assert_close(pairs[row], apart[row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(over_one[row], apart[0], atol=1e-5, rtol=1e-5)


def test_call_order_does_not_matter_and_the_model_stays_as_it_was(
    built: Built, backbone: Backbone, pages: list[Image]
) -> None:
    def names() -> dict[str, object]:
        return {key: value for key, value in vars(backbone._model.model).items() if not key.startswith("_")}

    before, weights = names(), backbone.fingerprints().weights
    first = backbone.encode(pages[:1], exit_layer=3)
    first_states = backbone.states([QUERIES[0]], PrefixBatch(first))
    for page in reversed(pages):
        full_margins(backbone, QUERIES[3], [page])
    again = backbone.encode(pages[:1], exit_layer=3)
    assert torch.equal(first[0].keys, again[0].keys)
    assert torch.equal(first_states, backbone.states([QUERIES[0]], PrefixBatch(again)))
    assert names() == before
    assert backbone.fingerprints().weights == weights
    assert getattr(backbone._model.model, "rope_deltas", None) is None


def test_two_images_never_share_a_key(backbone: Backbone, pages: list[Image]) -> None:
    one, other = backbone.encode([pages[0], pages[3]], exit_layer=2)
    assert one.keys.shape == other.keys.shape
    differ = (one.keys - other.keys).abs().amax(dim=(1, 3)) > 1e-4
    assert differ[:, one.visual].all()
    after = int(one.visual.nonzero().max()) + 1
    assert differ[1, after:].all(), "above the first layer the instruction has seen the page"
    assert not differ[:, : int(one.visual.nonzero().min())].any(), "what comes before the page has not"


def test_what_is_handed_out_may_be_changed_in_place(backbone: Backbone, pages: list[Image]) -> None:
    (prefix,) = backbone.encode(pages[:1], exit_layer=2)
    states = backbone.states([QUERIES[0]], PrefixBatch([prefix]))
    prefix.keys.mul_(2.0)
    states.sub_(states.mean())
    backbone.logit_lens(states).add_(1.0)


def test_no_pages_encode_to_none(backbone: Backbone) -> None:
    assert backbone.encode([], exit_layer=2) == []
    with pytest.raises(BackboneError, match="at least one page"):
        PrefixBatch([])


@pytest.mark.parametrize("exit_layer", [0, LAYERS + 1, -1])
def test_layers_outside_the_model_are_refused(backbone: Backbone, exit_layer: int) -> None:
    with pytest.raises(BackboneError, match=f"model of {LAYERS} layers"):
        backbone.encode([], exit_layer=exit_layer)


def test_queries_and_pages_have_to_match(backbone: Backbone, pages: list[Image]) -> None:
    prefixes = PrefixBatch(backbone.encode(pages[:3], exit_layer=1))
    with pytest.raises(BackboneError, match="2 queries over 3 pages"):
        backbone.states(QUERIES[:2], prefixes)
    with pytest.raises(BackboneError, match="0 queries over 3 pages"):
        backbone.states([], prefixes)


def test_one_text_in_place_of_a_list_of_queries_is_refused(backbone: Backbone, pages: list[Image]) -> None:
    prefixes = PrefixBatch(backbone.encode(pages[:1], exit_layer=backbone.geometry.layers))
    for run in (backbone.states, backbone.targets):
        with pytest.raises(BackboneError, match=r"one text 'revenue' .* write \[query\]"):
            run("revenue", prefixes)


def test_prefixes_of_differing_depth_are_refused(backbone: Backbone, pages: list[Image]) -> None:
    mixed = [*backbone.encode(pages[:1], exit_layer=1), *backbone.encode(pages[:1], exit_layer=2)]
    with pytest.raises(BackboneError, match="differing"):
        PrefixBatch(mixed)
