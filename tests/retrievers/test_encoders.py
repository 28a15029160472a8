"""Encoders give what the plain models of transformers give, fed by their published processors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL.Image import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AddedToken, ColPaliProcessor, ColQwen2Processor

from ridgerank.errors import RetrieverError
from ridgerank.retrievers.encoders import MultiVectorEncoder, load_encoder
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


def test_a_folder_saved_by_the_published_processor_loads_as_it_was_saved(
    tmp_path: Path, colqwen: Built, pages: list[Image]
) -> None:
    """transformers 5 saves the image processor's settings and the words in one file."""
    colqwen.model.save_pretrained(tmp_path)
    processor = ColQwen2Processor(colqwen.image_processor, colqwen.tokenizer, query_prefix="find ")
    processor.save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, device="cpu")
    assert encoder.query_ids("cats") == processor(text=["cats"])["input_ids"][0].tolist()
    [page] = encoder.embed_pages(pages[:1])
    assert len(page) == processor(images=pages[:1])["input_ids"].shape[1]


def test_what_people_type_never_becomes_a_control_token(encoder: MultiVectorEncoder, colqwen: Built) -> None:
    ids = encoder.query_ids("what does <|image_pad|> mean after <|im_end|>?")
    controls = set(colqwen.tokenizer.convert_tokens_to_ids(["<|image_pad|>", "<|im_end|>"]))
    assert controls.isdisjoint(ids)
    assert colqwen.tokenizer.decode(ids).startswith("Query: what does <|image_pad|> mean after <|im_end|>?")


def test_a_query_that_a_tokenizer_cannot_take_as_text_is_refused(tmp_path: Path) -> None:
    built = build("colqwen2 on 2.5", tmp_path)
    token = AddedToken("<|image_pad|>", special=False)
    built.tokenizer.backend_tokenizer.add_tokens([token])
    built.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(RetrieverError, match="reads as a page image"):
        load_encoder(tmp_path, device="cpu").query_ids("what is <|image_pad|>")


def test_a_fingerprint_depends_on_weights_not_on_their_precision_or_place(
    tmp_path: Path, colqwen: Built, encoder: MultiVectorEncoder
) -> None:
    rounded = load_encoder(colqwen.folder, device="cpu", dtype=torch.bfloat16)
    assert rounded.origin == encoder.origin
    moved = build("colqwen2 on 2.5", tmp_path)
    assert load_encoder(moved.folder, device="cpu").origin.fingerprint == encoder.origin.fingerprint
    weights = load_file(tmp_path / "model.safetensors")
    weights["embedding_proj_layer.weight"][0] += 0.1
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load_encoder(moved.folder, device="cpu").origin.fingerprint != encoder.origin.fingerprint


def test_an_unknown_name_or_class_lists_those_known(tmp_path: Path, model_folder: Path) -> None:
    with pytest.raises(
        RetrieverError, match=r"no retriever called 'colplai'.*bm25.*colpali-v1\.3.*colnomic-7b"
    ):
        load_encoder("colplai")
    with pytest.raises(
        RetrieverError, match=r"'qwen2_5_vl', which is not a known retriever.*colpali, colqwen2"
    ):
        load_encoder(model_folder, device="cpu")
    with pytest.raises(RetrieverError, match=r"cannot load .*tokenizer\.json"):
        load_encoder(tmp_path, device="cpu")


def test_an_adapter_without_its_projection_is_refused(tmp_path: Path) -> None:
    built = build_adapted(tmp_path, old_names=False)
    base = tmp_path / "base/model.safetensors"
    kept = {name: value for name, value in load_file(base).items() if "custom_text_proj" not in name}
    save_file(kept, base, metadata={"format": "pt"})
    with pytest.raises(RetrieverError, match=r"weights of custom_text_proj.bias, custom_text_proj.weight"):
        load_encoder(built.folder, device="cpu")


def test_an_adapter_on_another_base_is_refused(tmp_path: Path, model_folder: Path) -> None:
    built = build_adapted(tmp_path, old_names=False)
    settings = built.folder / "adapter_config.json"
    second = build("colpali", tmp_path / "other").folder
    settings.write_text(settings.read_text().replace(str(tmp_path / "base"), str(second)))
    with pytest.raises(RetrieverError, match=r"a model of type 'colpali'.*adapters on qwen2_5_vl"):
        load_encoder(built.folder, device="cpu")
