"""What a model's folder may hold: nothing of it runs, and what is damaged is one line that names the file."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.weights import apply_adapter
from ridgerank.errors import BackboneError
from tests.backbones.small_models import build
from tests.backbones.small_text_models import build_text

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_text("qwen2", tmp_path_factory.mktemp("whole")).folder


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("qwen2_5_vl", tmp_path_factory.mktemp("looking")).folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def edit(path: Path, **settings: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def refused(folder: Path) -> str:
    with pytest.raises(BackboneError) as caught:
        load_backbone(folder, device="cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_in_a_folder_neither_runs_nor_is_asked_for(
    folder: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = folder / "ran"
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w')\nclass Theirs: pass\n")
    mapped = {"config.json": "AutoConfig", "tokenizer_config.json": "AutoTokenizer"}[file]
    edit(folder / file, auto_map={mapped: "theirs.Theirs"}, model_type="theirs", tokenizer_class="Theirs")
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    with suppress(BackboneError):  # a tokenizer of transformers takes the place of theirs
        load_backbone(folder, device="cpu")
    assert not ran.exists()


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused_by_name(folder: Path, damage: float) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.layers.3.mlp.up_proj.weight"][7, 5] = damage
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    assert "model.layers.3.mlp.up_proj.weight holds numbers that are NaN or infinite" in refused(folder)


@pytest.mark.parametrize("settings", [{"num_hidden_layers": 10**9}, {"intermediate_size": 10**6}])
def test_a_configuration_of_a_larger_model_is_refused_before_it_is_built(
    folder: Path, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(folder / "config.json", **settings, layer_types=None)
    monkeypatch.setattr(
        "transformers.Qwen2ForCausalLM.from_pretrained", lambda *_, **__: pytest.fail("built")
    )
    assert "the configuration of" in refused(folder)


def test_an_empty_configuration_of_the_decoder_is_refused(looking: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(looking, tmp_path / "copy"))
    edit(folder / "config.json", text_config={})
    assert "describes a model of" in refused(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"garbage", b"[" * 100_000, b"\xff\xfe\0", b"null", b"[1]"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_file_is_one_line_that_names_it(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    assert file in refused(folder)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage", [cut_in_half, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 999)]
)
def test_damaged_weights_are_one_line_that_names_the_file(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    damage(folder / WEIGHTS)
    assert f"{folder / WEIGHTS} cannot be read as safetensors" in refused(folder)


def test_a_missing_shard_and_a_damaged_index_are_named(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-1-of-2.safetensors")
    index = folder / "model.safetensors.index.json"
    shards = ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]
    index.write_text(json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}))
    assert "lacks model-2-of-2.safetensors" in refused(folder)
    index.write_text("{}")
    assert "model.safetensors.index.json" in refused(folder)


def test_a_tokenizer_that_is_missing_or_has_tokens_beyond_the_weights_is_refused(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "has tokens up to 5,000" in refused(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    assert "does not fit the family's prompt" in refused(folder)


def test_weights_are_never_unpickled(folder: Path, whole: Path) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    assert "pytorch_model.bin is not read" in refused(folder)
    peft = pytest.importorskip("peft")
    model = load_backbone(whole, device="cpu")._model
    adapter = folder / "adapter"
    adapter.mkdir()
    peft.LoraConfig(target_modules=["q_proj"]).save_pretrained(adapter)
    torch.save({}, adapter / "adapter_model.bin")
    with pytest.raises(BackboneError, match=r"adapter_model\.bin is not read"):
        apply_adapter(model, str(adapter), None, renamed={})


@pytest.mark.parametrize(
    ("file", "settings", "reason"),
    [
        ("config.json", {"_attn_implementation": "someone/kernel"}, "asks for code"),
        ("config.json", {"text_config": {"attn_implementation": "someone/kernel"}}, "asks for code"),
        ("preprocessor_config.json", {"image_std": [0, 0, 0]}, "refused a page|makes NaN"),
        ("preprocessor_config.json", {"rescale_factor": float("inf")}, "refused a page|makes NaN"),
        ("preprocessor_config.json", {"patch_size": 0}, "refused a page"),
        ("preprocessor_config.json", {"temporal_patch_size": 0}, "patches of 0 numbers"),
        (
            "preprocessor_config.json",
            {"temporal_patch_size": 9},
            "5292 numbers, not 1176",
        ),
    ],
)
def test_settings_that_run_code_or_spoil_pages_are_refused(
    looking: Path, tmp_path: Path, file: str, settings: dict[str, object], reason: str
) -> None:
    folder = Path(shutil.copytree(looking, tmp_path / "copy"))
    edit(folder / file, **settings)
    with pytest.raises(BackboneError, match=reason):
        load_backbone(folder, device="cpu").encode([Image.new("RGB", (90, 120))], exit_layer=2)


def test_weights_of_another_shape_or_quantized_are_refused_by_name(folder: Path) -> None:
    weights, name = load_file(folder / WEIGHTS), "model.layers.0.mlp.up_proj.weight"
    for changed, reason in (
        (weights[name].T.contiguous(), "in the shape"),
        (weights[name].char(), "quantized"),
        (weights[name].to(torch.float8_e4m3fn), "quantized"),
        (weights[name].to(torch.complex64), "quantized"),
    ):
        save_file({**weights, name: changed}, folder / WEIGHTS, metadata={"format": "pt"})
        assert name in (message := refused(folder))
        assert reason in message


def test_an_adapter_whose_settings_would_fill_the_memory_is_refused(folder: Path, whole: Path) -> None:
    peft = pytest.importorskip("peft")
    model = load_backbone(whole, device="cpu")._model
    peft.LoraConfig(target_modules=["q_proj"], r=10**9).save_pretrained(folder)
    save_file({"a": torch.ones(8, 64)}, folder / "adapter_model.safetensors")
    with pytest.raises(BackboneError, match="rank 1,000,000,000"):
        apply_adapter(model, str(folder), None, renamed={})
