"""Margins of pairs and queries the model writes: both equal what whole forwards give."""

import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone, full_margins
from ridgerank.backbones.prefix import PrefixBatch
from ridgerank.errors import BackboneError
from tests.backbones.reference import whole_prompt
from tests.backbones.small_models import LAYERS, Built


def test_margins_of_pairs_equal_those_of_separate_full_passes(
    backbone: Backbone, pages: list[Image.Image]
) -> None:
    queries = ["What was the revenue in 2023?", "yes", "no document", "What was the revenue in 2023?"]
    whole = backbone.encode(pages, exit_layer=LAYERS)
    pairs = [(query, number) for number in range(len(pages)) for query in queries[: number + 1]]
    prefixes = PrefixBatch([whole[number] for _, number in pairs])
    found = backbone.targets([query for query, _ in pairs], prefixes, targets=("margin",))["margin"]
    separate = torch.cat([full_margins(backbone, query, [pages[number]]) for query, number in pairs])
    torch.testing.assert_close(found, separate, rtol=1e-4, atol=1e-4)


def test_layers_of_a_full_depth_page_are_those_encoded_to_the_exit(
    backbone: Backbone, pages: list[Image.Image]
) -> None:
    shallow = backbone.encode(pages, exit_layer=3)
    whole = backbone.encode(pages, exit_layer=LAYERS)
    for one, other in zip(shallow, whole, strict=True):
        assert torch.equal(one.keys, other.layers(0, 3).keys)
        assert torch.equal(one.values, other.layers(0, 3).values)


def test_pages_short_of_full_depth_are_refused(backbone: Backbone, pages: list[Image.Image]) -> None:
    shallow = backbone.encode(pages[:1], exit_layer=3)
    with pytest.raises(BackboneError, match=r"pages of 3 layers of 5; encode them to full depth"):
        backbone.targets(["query"], PrefixBatch(shallow))
    with pytest.raises(BackboneError, match="pages of 3 layers"):
        backbone.write_queries(shallow)
    encoded = PrefixBatch(backbone.encode(pages[:2], exit_layer=LAYERS))
    with pytest.raises(BackboneError, match="3 queries over 2 pages"):
        backbone.targets(["one", "two", "three"], encoded, targets=("margin",))


def test_the_model_writes_what_the_librarys_forward_finds_likeliest(
    built: Built, backbone: Backbone, pages: list[Image.Image]
) -> None:
    """Greedy, token by token, with the whole prompt in one forward each time."""
    whole = whole_prompt(built, pages[0], "")
    # The instruction's last token opens the suffix.
    ids = whole.inputs["input_ids"][:, : whole.page_length + 1]
    tokens: list[int] = []
    for _ in range(6):
        inputs = dict(whole.inputs)
        inputs["input_ids"] = torch.cat([ids, torch.tensor([tokens], dtype=ids.dtype)], dim=1)
        if "mm_token_type_ids" in inputs:
            types = (inputs["input_ids"] == built.model.config.image_token_id).int()
            inputs["mm_token_type_ids"] = types
        with torch.inference_mode():
            logits = built.model(**inputs).logits[0, -1]
        likeliest = int(logits.argmax())
        if backbone.tokens.continuation([*tokens, likeliest]) is None:
            break
        tokens.append(likeliest)
    prefixes = backbone.encode(pages, exit_layer=LAYERS)
    written = backbone.write_queries(prefixes, max_tokens=6)
    assert written[0] == (backbone.tokens.continuation(tokens) or "").strip()
    assert len(written) == len(pages)
    assert all("\n" not in text for text in written)


def test_writing_ends_at_a_control_token_and_at_a_new_line(backbone: Backbone) -> None:
    tokens = backbone.tokens
    [opening] = tokens.query("")
    _, *words = tokens.query("What was it")
    assert tokens.continuation(words) == "What was it"
    assert tokens.continuation(tokens.suffix("What was it")[1:]) is None
    assert tokens.continuation([*words, opening]) is None
