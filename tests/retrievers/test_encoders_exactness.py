"""Encoders give what the plain models of transformers give, fed by their published processors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL.Image import Image
from torch import Tensor
from transformers import ColPaliProcessor, ColQwen2Processor

from ridgerank.retrievers.encoders import load_encoder
from tests.retrievers.small_encoders import Built, build, build_adapted

QUERIES = ["what was the revenue in 2023?", "who", "page 7 of the report, and a longer query than the others"]


@pytest.fixture(scope="module", params=["colpali", "colqwen2", "colqwen2 on 2.5"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(request.param, tmp_path_factory.mktemp("encoder"))


def published(built: Built) -> ColPaliProcessor | ColQwen2Processor:
    kind = ColPaliProcessor if built.model.config.model_type == "colpali" else ColQwen2Processor
    return kind(built.image_processor, built.tokenizer)


def rope(built: Built, ids: Tensor, mask: Tensor, grid: Tensor | None) -> dict[str, Tensor]:
    """Positions on three axes, which `ColQwen2ForRetrieval` takes but does not work out."""
    if built.model.config.model_type == "colpali" or grid is None:
        return {}
    visual = (ids == built.model.config.vlm_config.image_token_id).int()
    page_vectors, _ = built.model.vlm.get_rope_index(
        ids, mm_token_type_ids=visual, image_grid_thw=grid, attention_mask=mask
    )
    return {"position_ids": page_vectors}


def test_a_page_has_the_vectors_of_the_plain_model(built: Built, pages: list[Image]) -> None:
    page_vectors = load_encoder(built.folder, device="cpu").embed_pages(pages)
    for page, vectors in zip(pages, page_vectors, strict=True):
        batch = published(built)(images=[page], return_tensors="pt")
        batch.pop("labels", None)
        positions = rope(built, batch["input_ids"], batch["attention_mask"], batch.get("image_grid_thw"))
        with torch.inference_mode():
            plain = built.model(**batch, **positions).embeddings[0]
        assert vectors.dtype == np.float16
        np.testing.assert_allclose(vectors, plain.numpy(), atol=2e-3)


def test_a_page_and_a_query_have_the_tokens_of_the_published_processor(
    built: Built, pages: list[Image]
) -> None:
    encoder = load_encoder(built.folder, device="cpu")
    batch = published(built)(images=[pages[0]], return_tensors="pt")
    ids = batch["input_ids"][0]
    image_token = encoder._prompt.image_token_id
    assert encoder.page_ids(int((ids == image_token).sum())) == ids.tolist()
    for query in QUERIES:
        assert encoder.query_ids(query) == published(built)(text=[query])["input_ids"][0].tolist()


def test_queries_in_a_batch_have_the_vectors_of_the_plain_model_alone(built: Built) -> None:
    page_vectors = load_encoder(built.folder, device="cpu").embed_queries(QUERIES)
    for query, vectors in zip(QUERIES, page_vectors, strict=True):
        with torch.inference_mode():
            plain = built.model(**published(built)(text=[query])).embeddings[0]
        torch.testing.assert_close(vectors, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("old_names", [False, True], ids=["present names", "old names"])
@pytest.mark.parametrize("replaces_projection", [False, True], ids=["tuned projection", "new projection"])
def test_an_adapter_gives_what_its_merged_model_gives(
    tmp_path: Path, pages: list[Image], old_names: bool, replaces_projection: bool
) -> None:
    built = build_adapted(tmp_path, old_names=old_names, replaces_projection=replaces_projection)
    encoder = load_encoder(built.folder, device="cpu")
    assert encoder.dim == 128
    project: Callable[[Tensor], Tensor] = built.model.custom_text_proj

    def plain(**batch: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.nn.functional.normalize(project(built.model(**batch).last_hidden_state), dim=-1)[0]

    batch = ColQwen2Processor(built.image_processor, built.tokenizer)(images=[pages[0]])
    pixels = {"pixel_values": batch["pixel_values"][0], "image_grid_thw": batch["image_grid_thw"]}
    visual = (batch["input_ids"] == built.model.config.image_token_id).int()
    expected = plain(input_ids=batch["input_ids"], mm_token_type_ids=visual, **pixels)
    np.testing.assert_allclose(encoder.embed_pages(pages[:1])[0], expected.numpy(), atol=2e-3)
    built.model.rope_deltas = None
    text = built.tokenizer("Query: who" + 10 * "<|endoftext|>", return_tensors="pt")
    torch.testing.assert_close(
        encoder.embed_queries(["who"])[0], plain(input_ids=text["input_ids"]), rtol=1e-4, atol=1e-5
    )
