"""Documentation is tested: links lead somewhere, commands exist, snippets run, figures have their file."""

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ridgerank.miniature.vocabulary import ENTITIES, FIELDS, MEASURES, SUBJECTS, Split, split_of

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()


def ridgerank(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ridgerank.cli.main", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first command of docs/commands.md was typed."""
    folder = tmp_path_factory.mktemp("readme")
    ridgerank("simulate", "--out", "demo", cwd=folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_fits_on_a_page_or_two() -> None:
    assert len(README.splitlines()) <= 120


def test_every_command_is_documented() -> None:
    from ridgerank.cli.main import app

    commands = [command.name for command in app.registered_commands]
    groups = [
        f"{group.name} {command.name or command.callback.__name__}"
        for group in app.registered_groups
        if group.typer_instance
        for command in group.typer_instance.registered_commands
        if command.callback
    ]
    for name in [*commands, *groups]:
        assert f"`ridgerank {name}`" in COMMANDS, f"`ridgerank {name}` is not in docs/commands.md"


def test_the_commands_shown_print_what_is_shown(tried: Path) -> None:
    words = re.search(r"\$ ridgerank (fuse .*) > fused\.trec\n(weight .*)\n", COMMANDS)
    assert words is not None
    fused = ridgerank(*words[1].split(), cwd=tried)
    assert fused.stderr.strip() == words[2]
    (tried / "fused.trec").write_text(fused.stdout)
    measures = json.loads(ridgerank("evaluate", "fused.trec", "--qrels", "demo/qrels.trec", cwd=tried).stdout)
    shown = re.search(r'\{"nDCG@5": ([\d.]+), …\}', COMMANDS)
    assert shown is not None
    assert round(measures["nDCG@5"], 1) == float(shown[1])


@pytest.mark.parametrize("page", ["fusion.md"])
def test_python_in_the_docs_runs(tried: Path, page: str) -> None:
    for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.S):
        subprocess.run([sys.executable, "-c", snippet], cwd=tried, check=True)


def test_the_speed_table_says_what_the_results_say() -> None:
    def result(name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((ROOT / "results" / f"{name}.json").read_text())
        return found

    shallow = result("shallow_speed")["ratio"]
    ratios = result("store_read")["ratio_to_mmap_copy"]
    assert isinstance(shallow, dict)
    assert isinstance(ratios, dict)
    for wanted in (
        f"| {shallow['0']}x faster |",
        f"| {shallow['14']}x faster |",
        f"| {round(ratios['ours'], 2)} of its speed |",
        f"| {result('index_memory')['peak_above_model_mib']} MiB |",
        f"| {100 * float(str(result('rank_overhead')['share_of_request'])):.2f} % of its time |",
        f"| {result('fusion_speed')['time_over_ranx_compiled']}x its time |",
        f"| {round(float(str(result('one_pass')['time_over_index_alone'])), 2)}x its time |",
        f"| {result('serving_load')['throughput_eight_over_one']}x |",
        f"| {result('serving_load')['p99_ten_times_over_capacity']}x it |",
    ):
        assert wanted in (ROOT / "docs" / "benchmarks.md").read_text()


def test_the_safety_figures_in_the_docs_are_those_of_the_results() -> None:
    text = (ROOT / "docs" / "fusion.md").read_text()
    safety = json.loads((ROOT / "results" / "weight_safety.json").read_text())
    four = safety["queries"].index(4)
    for kind in ("plain", "shrunk"):
        share = 100 * safety["share_below_retriever"][kind][four]
        assert f"{share:.1f} %" in text
        assert f"{-safety['worst_loss_points'][kind][four]:.1f}" in text


def test_the_effect_of_the_split_on_reading_is_what_was_measured() -> None:
    folder = ROOT / "results" / "miniature" / "training"
    measured, text = json.loads((folder / "split.json").read_text()), (folder / "README.md").read_text()
    for model, figures in measured["models"].items():
        words, ndcg = figures["words read, percent"], figures["nDCG@5 of the cross encoder"]
        shown = (
            f"{words['before']:.1f} %",
            f"{words['now']:.1f} %",
            f"{ndcg['before']:.1f}",
            f"{ndcg['now']:.1f}",
        )
        assert f"| `{model}` | {' | '.join(shown)} |" in text
    assert f"{measured['models']['mini-qwen']['words read, percent']['now, after 400 steps']:.1f} %" in text
    combinations = (*product(ENTITIES, MEASURES), *product(FIELDS, SUBJECTS))
    evaluated = [pair for pair in combinations if split_of(*pair) is Split.EVALUATION]
    assert len(evaluated) == measured["combinations of evaluation"]
    assert f"each of the {len(evaluated)}\npairs and topics" in text


@pytest.mark.parametrize("name", ["models", "keep-ink", "keep-spread"])
def test_recovery_on_the_miniature_is_of_the_cross_encoder_fused_at_its_own_weight(name: str) -> None:
    """The paper's table 4; the cross encoder alone would flatter."""
    for pair in json.loads((ROOT / "results" / "miniature" / f"{name}.json").read_text())["pairs"]:
        ndcg = pair["ndcg_at_5"]
        gain = ndcg["cross encoder, fused"] - ndcg["retriever"]
        for arm, kept in (("ridgerank", ""), ("ridgerank, label free", "_label_free")):
            expected = 100 * (ndcg[arm] - ndcg["retriever"]) / gain
            assert pair[f"recovery{kept}_percent"] == pytest.approx(expected, abs=0.15)


def test_the_readme_s_quality_table_says_what_the_results_say() -> None:
    def rows(name: str) -> list[list[Any]]:
        table = json.loads((ROOT / "results/miniature/reproduce" / f"{name}.json").read_text())
        return [row["cells"] for row in table["rows"] if row["source"] == "this run"]

    costs = {row[1]: row[2:6] for row in rows("table4") if row[0] == "mini-colqwen"}
    label_free = {row[2]: row[5] for row in rows("table9") if row[:2] == ["miniature-1", "mini-colqwen"]}
    retriever, reference = costs["No reranking"][0], costs["Full cross encoder"][0]
    for backbone in ("mini-qwen", "mini-glm"):
        quality, recovery, _, speedup = costs[f"RidgeRank ({backbone})"]
        scores = (retriever, quality, label_free[backbone], reference)
        shown = " | ".join(f"{score:.1f}" for score in scores)
        assert f"| `{backbone}` | {shown} | {recovery:.1f} % | {speedup:.1f}x |" in README


REAL_DOCUMENTS = {
    "SmolLM2-135M": ROOT / "results" / "real_documents_smollm2.json",
    "Qwen2.5-Coder-0.5B": ROOT / "results" / "real_documents_qwen2.5_coder.json",
}
CHOSEN = "stride 1/3, likelihood, mean, closed form"
ALONE = "stride 1/3, taken by measure, label-free"


def real_documents_page() -> str:
    return (ROOT / "docs" / "real-documents.md").read_text()


def require_rows(shown: list[tuple[str, str, str]], table: dict[str, dict[str, Any]]) -> None:
    """Name, quality and gain of every row shown are those measured."""
    for name, quality, gain in shown:
        row = table[name]
        low, high = row["gain_interval"]
        assert quality == f"{row['nDCG@5']:.1f}", name
        assert gain == f"{row['gain']:+.1f} [{low:+.1f}, {high:+.1f}]", name


@pytest.mark.parametrize("model", ["SmolLM2-135M", "Qwen2.5-Coder-0.5B"])
def test_the_table_of_real_documents_says_what_the_results_say(model: str) -> None:
    measured = json.loads(REAL_DOCUMENTS[model].read_text())
    part = real_documents_page().split(f"\n## {model}\n")[1].split("\n## ")[0]
    assert f"**{measured['questions']} of 176 questions**" in part
    shown = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| (.+?) \|$", part, flags=re.M)
    assert len(shown) >= 20
    require_rows(shown, measured["table"])


def test_the_summary_of_real_documents_says_what_the_results_say() -> None:
    for model, path in REAL_DOCUMENTS.items():
        measured = json.loads(path.read_text())
        rows = ("bm25", "teacher: likelihood, closed form", "cross encoder, closed form", CHOSEN, ALONE)
        plain = [f"{measured['table'][name]['nDCG@5']:.1f}" for name in rows]
        cells = " | ".join([*plain[:3], *(f"**{one}**" for one in plain[3:])])
        faster = measured["latency"]["times_faster"]["stride 1/3, mean"]
        assert f"| {model} | {cells} | {faster:.0f}x faster |" in real_documents_page()


def test_the_table_by_kind_says_what_the_results_say() -> None:
    models = [json.loads(path.read_text())["by_kind"] for path in REAL_DOCUMENTS.values()]
    for kind, first in models[0].items():
        wanted = f"| {kind} | {first['questions']} | {first['bm25']['nDCG@5']:.1f} |"
        for rows in (model[kind] for model in models):
            low, high = rows[CHOSEN]["gain_interval"]
            wanted += (
                f" {rows['teacher: likelihood, closed form']['nDCG@5']:.1f} | {rows[CHOSEN]['nDCG@5']:.1f} | "
                f"{rows[CHOSEN]['gain']:+.1f} [{low:+.1f}, {high:+.1f}] |"
            )
        assert wanted in real_documents_page()


def test_the_table_of_page_text_says_what_the_results_say() -> None:
    files = {"head 512": "smollm2", "ends 512": "smollm2_ends"}
    for policy, name in files.items():
        measured = json.loads((ROOT / "results" / f"real_documents_{name}.json").read_text())
        rows = ("teacher: likelihood", "teacher: likelihood, closed form", CHOSEN, ALONE)
        cells = " | ".join(f"{measured['table'][row]['nDCG@5']:.1f}" for row in rows)
        assert f"| {policy} | {cells} |" in real_documents_page()
        assert measured["page_text"] == policy


def test_the_share_of_evidence_without_text_says_what_the_results_say() -> None:
    shares = json.loads(REAL_DOCUMENTS["SmolLM2-135M"].read_text())["evidence_without_text"]
    assert f"{100 * shares['text layer']:.1f} %" in real_documents_page()
    assert f"{100 * shares['in use']:.1f} %" in real_documents_page()


def test_the_speed_on_real_documents_says_what_the_results_say() -> None:
    for path in REAL_DOCUMENTS.values():
        measured = json.loads(path.read_text())
        latency = measured["latency"]
        assert f"{latency['questions']} " in real_documents_page().split("## Speed")[1]
        for name, times in latency["times_faster"].items():
            seconds = latency["processor_seconds"][name]
            assert (
                f"| {measured['backbone']} | {name} | {seconds:.2f} | {times:.1f}x |" in real_documents_page()
            )


def test_the_label_free_weight_of_all_readings_is_as_near_as_the_docs_say() -> None:
    measured = json.loads((ROOT / "results" / "label_free_readings.json").read_text())
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "fusion.md").read_text())
    one, every = (measured["summary"][arm] for arm in ("one reading", "all readings"))
    assert f"On {len(measured['rows'])} calibrations" in text
    assert f"from {one['distance_to_judged']:.3f} to {every['distance_to_judged']:.3f}" in text
    assert f"from {one['loss_percent']:.2f} % to {every['loss_percent']:.2f} %" in text
