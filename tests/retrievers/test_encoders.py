from pathlib import Path

import pytest
import torch
from PIL.Image import Image
from safetensors.torch import load_file, save_file
from transformers import AddedToken, ColQwen2Processor

from ridgerank.errors import RetrieverError
from ridgerank.retrievers.encoders import MultiVectorEncoder, load_encoder
from tests.retrievers.small_encoders import Built, build, build_adapted


def test_a_folder_brings_words_of_its_own(tmp_path: Path, colqwen: Built) -> None:
    words = {"visual_prompt_prefix": "<|vision_start|><|image_pad|>page", "query_prefix": "find "}
    encoder = load_encoder(build("colqwen2 on 2.5", tmp_path, **words).folder, device="cpu")
    decode = colqwen.tokenizer.decode
    assert decode(encoder.page_ids(3)) == "<|vision_start|><|image_pad|><|image_pad|><|image_pad|>page"
    assert decode(encoder.query_ids("cats")) == "find cats" + 10 * "<|endoftext|>" + "\n"
    assert encoder.origin.fingerprint != load_encoder(colqwen.folder, device="cpu").origin.fingerprint


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
