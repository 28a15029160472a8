"""Readouts of other scores than the model's own: files, another backbone, a cross encoder."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from ridgerank.backbones.base import Backbone
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.external_teacher import (
    OWN,
    CrossEncoderTeacher,
    load_teacher,
    require_teacher_exists,
)
from ridgerank.calibration.transfer import transfer_weight
from ridgerank.errors import CalibrationError, RunFileError
from ridgerank.ragged import Floats
from ridgerank.records import Query
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import calibrations_folder
from tests.calibrated_store import WordOverlap
from tests.calibration.conftest import RecordingHook

QUERIES = [Query(f"q{number}", f"page {number} of report") for number in range(18)]


def run(uri: str, backbone: Backbone, teacher: str, **options: Any) -> Calibration:  # noqa: ANN401
    with PageStore.open(uri) as store:
        return calibrate(
            store,
            backbone=backbone,
            retriever=WordOverlap(store.texts()),
            queries=QUERIES,
            candidates=8,
            teacher=teacher,
            **options,
        )


def write_scores(path: Path, uri: str, *, judgements: bool = False) -> Path:
    """Scores of every query and page, by a rule one can repeat."""
    with PageStore.open(uri) as store:
        pages = store.page_ids()
    rows = []
    for number, query in enumerate(QUERIES):
        for place, page in enumerate(pages):
            score = (7 * number + 3 * place) % 5
            rows.append(
                f"{query.query_id} 0 {page} {score}"
                if judgements
                else f"{query.query_id} Q0 {page} 1 {score} t"
            )
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_run_is_a_teacher_and_the_report_says_so(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    calibration = run(store, small_backbone, str(write_scores(tmp_path / "scores.trec", store)), name="run")
    assert calibration.target == "teacher"
    assert calibration.diagnostics.teacher == "the run scores.trec"
    loaded = Calibration.load(calibrations_folder(store), "run")
    assert loaded.diagnostics.teacher == "the run scores.trec"
    assert {option.target for option in loaded.diagnostics.options} == {"teacher"}


def test_judgements_give_the_readout_of_the_same_scores_as_a_run(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    one = run(store, small_backbone, str(write_scores(tmp_path / "a.trec", store)), name="a")
    other = run(
        store, small_backbone, str(write_scores(tmp_path / "b.qrels", store, judgements=True)), name="b"
    )
    assert np.array_equal(one.readout.vector, other.readout.vector)
    assert other.diagnostics.teacher == "the judgements b.qrels"


def test_the_backbone_as_its_own_teacher_by_name_gives_its_own_readout(
    store: str, small_backbone: Backbone, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ridgerank.calibration.external_teacher.load_backbone", lambda *_, **__: small_backbone
    )
    taught = run(store, small_backbone, str(model_folder), name="taught", state="last")
    own = run(store, small_backbone, "", name="own", state="last", target="margin")
    assert np.allclose(taught.readout.vector, own.readout.vector)
    assert own.diagnostics.teacher == OWN
    assert taught.diagnostics.teacher.endswith("at full depth")


def test_progress_counts_the_pages_that_the_teacher_reads_and_the_queries(
    store: str, small_backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ridgerank.calibration.external_teacher._load_cross_encoder", lambda *_: LengthEncoder()
    )
    first, second, of_file = RecordingHook(), RecordingHook(), RecordingHook()
    run(store, small_backbone, "cross-encoder:short", name="first", hook=first)
    run(store, small_backbone, "cross-encoder:short", name="second", hook=second)
    run(store, small_backbone, str(write_scores(tmp_path / "s.trec", store)), name="third", hook=of_file)
    assert first.plans[0].pages_to_encode == first.pages_with_targets > 0
    assert first.plans[0].teacher == "the cross encoder short over the text of pages"
    assert second.plans[0].pages_to_encode == second.pages_with_targets == 0
    assert of_file.plans[0].teacher == "the run s.trec"
    assert first.queries_done == second.queries_done == of_file.queries_done == len(QUERIES)


def test_an_onnx_folder_is_a_cross_encoder_and_an_incomplete_one_says_what_lacks(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.InferenceSession", CountingSession)
    folder = write_onnx_encoder(tmp_path / "short-onnx")
    with PageStore.open(store) as pages:
        lists = {query: WordOverlap(pages.texts()).search(query.text, 4) for query in QUERIES[:2]}
        teacher = load_teacher(str(folder), pages, tmp_path)
        scores = teacher.score(lists)
        assert teacher.name == "the cross encoder short-onnx over the text of pages"
        texts = pages.texts()
        for query, candidates in lists.items():
            for candidate in candidates:
                words = len(f"{query.text} {texts[candidate.page_id]}".split())
                assert scores[query.query_id, candidate.page_id] == words
        (folder / "tokenizer.json").unlink()
        with pytest.raises(CalibrationError, match=r"short-onnx has no tokenizer\.json"):
            load_teacher(str(folder), pages, tmp_path)


class CountingSession:
    """An ONNX model whose score is the number of tokens."""

    def __init__(self, path: str, *_: object, **__: object) -> None:
        assert Path(path).name == "model.onnx"

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="attention_mask")]

    def run(self, _: None, feed: dict[str, Floats]) -> list[Floats]:
        return [feed["attention_mask"].sum(axis=1, keepdims=True)]


def write_onnx_encoder(folder: Path) -> Path:
    """A folder as cross encoders are published for ONNX; one token per word."""
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(b"read by the session")
    return folder


class LengthEncoder:
    """Scores a pair by the lengths of its texts, and counts."""

    modalities = ("text",)

    def __init__(self) -> None:
        self.pairs = 0

    def named_parameters(self) -> list[Any]:
        return []

    def predict(self, pairs: list[tuple[str, str]], **_: object) -> Floats:
        self.pairs += len(pairs)
        return np.array([len(query) + len(text) % 7 for query, text in pairs], dtype=np.float64)


def test_a_cross_encoder_reads_stored_text_and_each_pair_once(store: str, tmp_path: Path) -> None:
    model = LengthEncoder()
    with PageStore.open(store) as pages:
        lists = {query: WordOverlap(pages.texts()).search(query.text, 4) for query in QUERIES[:3]}
        for _ in range(2):  # the second time from disk
            teacher = CrossEncoderTeacher("short", model, pages, tmp_path, ())
            scores = teacher.score(lists)
        texts = pages.texts()
    assert model.pairs == len(scores) == 12
    assert teacher.name == "the cross encoder short over the text of pages"
    for query, candidates in lists.items():
        for candidate in candidates:
            expected = len(query.text) + len(texts[candidate.page_id]) % 7
            assert scores[query.query_id, candidate.page_id] == expected


def test_a_file_that_is_neither_run_nor_judgements_is_refused(store: str, tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_text("one two three\n")
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match="3 fields in its first line"):
        load_teacher(str(tmp_path / "odd.txt"), pages, tmp_path)
    (tmp_path / "bad.trec").write_text("q0 Q0 a 1 high t\n")
    with PageStore.open(store) as pages, pytest.raises(RunFileError, match="score 'high'"):
        load_teacher(str(tmp_path / "bad.trec"), pages, tmp_path)


@pytest.mark.parametrize("name", ["gone.trec", "./gone", "cross-encoder:/no/such/folder", "a/b/c"])
def test_a_file_or_folder_that_is_not_there_is_not_looked_for_on_a_hub(name: str) -> None:
    with pytest.raises(CalibrationError, match="no file or folder"):
        require_teacher_exists(name)


def test_names_of_models_are_no_paths() -> None:
    for name in ("", "mini-glm", "owner/name-v2.5", "cross-encoder:owner/name"):
        require_teacher_exists(name)


def test_scores_of_other_queries_are_refused(store: str, small_backbone: Backbone, tmp_path: Path) -> None:
    (tmp_path / "other.trec").write_text("x Q0 y 1 0.5 t\n")
    with pytest.raises(CalibrationError, match="scores no two candidates of any of 18 queries"):
        run(store, small_backbone, str(tmp_path / "other.trec"))


def test_the_weight_of_another_teacher_is_not_transferred(
    store: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    run(store, small_backbone, str(write_scores(tmp_path / "s.trec", store)), name="taught")
    with PageStore.open(store) as pages, pytest.raises(CalibrationError, match=r"reproduces the run s\.trec"):
        transfer_weight(f"{store}#taught", lineage=pages.lineage, retriever="word-overlap")
