"""A model packed as one GGUF file reads pages and queries as the same model in a folder does."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ridgerank.backbones import load
from ridgerank.backbones.decoder import PrefixBatch
from ridgerank.backbones.load import load_backbone
from tests.backbones.small_models import LAYERS
from tests.backbones.small_text_models import build_text

gguf = pytest.importorskip("gguf")

QUERY = "What was the revenue in 2023?"
PAGES = ["Revenue\nThe revenue in 2023 was 12345.", "A page about <|im_end|> something else."]
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""What transformers calls a module, and what GGUF calls it."""


def packed_name(name: str) -> str:
    """`model.layers.2.mlp.up_proj.weight` → `blk.2.ffn_up.weight`."""
    module, _, kind = name.rpartition(".")
    block = ""
    if module.startswith("model.layers."):
        _, _, number, module = module.split(".", 3)
        block = f"blk.{number}."
    return f"{block}{_NAMES[module]}.{kind}"


def packed_model(tmp_path: Path) -> tuple[Path, Path]:
    """A Qwen2 in a folder, and with its tokenizer as one file of float32 tensors."""
    built = build_text("qwen2", tmp_path / "folder")
    folder, model, path = built.folder, built.model, tmp_path / "packed" / "small.gguf"
    path.parent.mkdir()
    config = model.config
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    vocabulary = {number: token for token, number in tokenizer["model"]["vocab"].items()} | added
    tokens = [vocabulary.get(number, f"<unused{number}>") for number in range(config.vocab_size)]
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([control if number in added else normal for number in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(tokens.index("<|endoftext|>"))
    for name, tensor in model.state_dict().items():
        writer.add_tensor(packed_name(name), tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder, path


def test_a_packed_model_gives_the_targets_and_states_of_the_folder_it_was_made_of(tmp_path: Path) -> None:
    folder, path = packed_model(tmp_path)
    whole = load_backbone(folder, device="cpu")
    wanted = whole.targets([QUERY], PrefixBatch(whole.encode(PAGES, exit_layer=LAYERS)))
    shallow = whole.states([QUERY], PrefixBatch(whole.encode(PAGES, exit_layer=3)), state="mean")
    for name in (path, path.parent):
        packed = load_backbone(name, device="cpu", dtype=torch.float32)
        assert packed.prompt == whole.prompt
        assert packed.tokens.answers == whole.tokens.answers
        found = packed.targets([QUERY], PrefixBatch(packed.encode(PAGES, exit_layer=LAYERS)))
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        states = packed.states([QUERY], PrefixBatch(packed.encode(PAGES, exit_layer=3)), state="mean")
        torch.testing.assert_close(states, shallow, atol=1e-4, rtol=1e-4)


def test_a_packed_model_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGERANK_CACHE", str(tmp_path / "cache"))
    _, path = packed_model(tmp_path)
    with monkeypatch.context() as without_cache:
        without_cache.setattr(load, "convert_once", lambda *_: None)
        direct = load_backbone(path, device="cpu")
    first = load_backbone(path, device="cpu")
    monkeypatch.setattr(load, "_convert", lambda *_: pytest.fail("unpacked again"))
    assert direct.fingerprints == first.fingerprints == load_backbone(path, device="cpu").fingerprints


def test_a_packed_model_loads_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RIDGERANK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert load_backbone(packed_model(tmp_path)[1], device="cpu").reads_text
    assert "is not kept converted" in caplog.text


def test_the_cache_of_unpacked_models_is_bounded_and_the_last_used_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIDGERANK_CACHE", str(tmp_path / "cache"))
    converted: list[str] = []

    def convert(file: Path, folder: Path) -> None:
        converted.append(file.stem)
        (folder / "config.json").write_bytes(bytes(400))

    for age, name in enumerate(["one", "two", "one", "three", "one", "two"]):
        file = tmp_path / f"{name}.gguf"
        if not file.exists():
            file.touch()
        if (kept := load.convert_once(file, convert, max_bytes=1000)) is not None:
            os.utime(kept, ns=(age, age))
    assert converted == ["one", "two", "three", "two"]
