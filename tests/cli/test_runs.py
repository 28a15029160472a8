"""`ridgerank fuse` and `ridgerank evaluate`: runs become one, at weights with reasons, and are compared."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.commands import invoke, run_process


def fuse(world: Path, *arguments: object, code: int = 0) -> Result:
    return invoke("fuse", world / "retriever.trec", world / "reranker.trec", *arguments, code=code)


def quality(run: Path, world: Path) -> float:
    answer = json.loads(invoke("evaluate", run, "--qrels", world / "qrels.trec").stdout)
    return float(answer["nDCG@5"])


@pytest.mark.parametrize(
    ("options", "method"),
    [(("--qrels", "qrels.trec"), "closed-form"), (("--third", "teacher.trec"), "label-free")],
)
def test_fusing_ranks_better_than_either_run_and_reports_why(
    world: Path, tmp_path: Path, options: tuple[str, str], method: str
) -> None:
    report, output = tmp_path / "report.json", tmp_path / "fused.trec"
    fuse(world, options[0], world / options[1], "--report", report, "--output", output)
    facts = json.loads(report.read_text())
    fields = ["weight", "weight_interval", "method", "c_b", "c_s", "rho", "interior"]
    assert set(facts) >= {*fields, "queries_used", "queries_skipped"}
    assert facts["method"] == method
    assert facts["weight_interval"][0] <= facts["weight"] <= facts["weight_interval"][1]
    best_alone = max(quality(world / name, world) for name in ("retriever.trec", "reranker.trec"))
    assert quality(output, world) > best_alone


def test_stdout_and_output_hold_the_same_run_and_a_given_weight_leaves_the_estimates_null(
    world: Path, tmp_path: Path
) -> None:
    printed = fuse(world, "--weight", 0.25).stdout
    fuse(world, "--weight", 0.25, "--output", tmp_path / "run", "--report", tmp_path / "r")
    assert (tmp_path / "run").read_text() == printed
    assert printed.count("\n") == 800
    facts = json.loads((tmp_path / "r").read_text())
    assert (facts["weight"], facts["method"], facts["c_b"]) == (0.25, "given", None)


@pytest.mark.parametrize("options", [(), ("--weight", "0.5", "--qrels", "q"), ("--weight", "1.5")])
def test_exactly_one_source_of_the_weight_is_wanted(world: Path, options: tuple[str, ...]) -> None:
    refused = fuse(world, *options, code=2)
    assert refused.stdout == ""
    assert "weight" in refused.stderr


def test_what_one_run_lacks_is_said_and_counted(world: Path, tmp_path: Path) -> None:
    lines = (world / "reranker.trec").read_text().splitlines(keepends=True)
    (tmp_path / "part.trec").write_text("".join(lines[25:]))
    done = invoke(
        "fuse", world / "retriever.trec", tmp_path / "part.trec", "--weight", 0.5, "--report", tmp_path / "r"
    )
    assert "reranker lacks 1 queries and 5 pages of other queries; they are kept" in done.stderr
    facts = json.loads((tmp_path / "r").read_text())
    assert {"run": "reranker", "queries": 1, "pages": 5} in facts["missing"]
    assert done.stdout.count("\n") == 800
    (tmp_path / "part.trec").write_text("".join(lines[20:]))
    whole = invoke("fuse", world / "retriever.trec", tmp_path / "part.trec", "--weight", 0.5)
    assert "reranker lacks 1 queries; they are kept" in whole.stderr


def test_an_unusable_estimate_says_so_and_uses_a_cautious_weight(world: Path, tmp_path: Path) -> None:
    """The retriever upside down as third score: its correlation with the retriever is −1."""
    lines = (line.split() for line in (world / "retriever.trec").read_text().splitlines())
    flipped = "".join(f"{q} Q0 {page} {rank} {-float(score)} x\n" for q, _, page, rank, score, _ in lines)
    (tmp_path / "flipped.trec").write_text(flipped)
    done = fuse(world, "--third", tmp_path / "flipped.trec", "--report", tmp_path / "r")
    assert "a cautious default, not an estimate" in done.stderr
    assert json.loads((tmp_path / "r").read_text())["method"] == "prior"


def test_three_runs_fused_rank_better_than_the_best_of_them(world: Path, tmp_path: Path) -> None:
    report, output = tmp_path / "report.json", tmp_path / "fused.trec"
    names = [f"{name}.trec" for name in ("retriever", "reranker", "teacher")]
    arguments = ("--qrels", world / "qrels.trec", "--report", report, "--output", output)
    done = invoke("fuse", *(world / name for name in names), *arguments)
    facts = json.loads(report.read_text())
    assert (facts["runs"], facts["method"]) == (names, "closed-form")
    assert sum(facts["weights"]) == pytest.approx(1.0)
    assert "teacher.trec: weight" in done.stderr
    assert quality(output, world) > max(quality(world / name, world) for name in names)


def test_given_weights_of_three_runs_are_one_per_run(world: Path) -> None:
    runs = [world / f"{name}.trec" for name in ("retriever", "reranker", "teacher")]
    alone = invoke("fuse", *runs, "--weight", "0,0,2").stdout
    pages = [line.split()[:3] for line in alone.splitlines()]
    assert pages == [line.split()[:3] for line in runs[2].read_text().splitlines()]
    for refused in (
        ("--weight", "0.5"),
        ("--third", str(world / "teacher.trec")),
        ("--weight", "1,2"),
        ("--weight", "1_0,1,٣"),
        (),
    ):
        done = invoke("fuse", *runs, *refused, code=2)
        assert done.stdout == ""
        assert "weight" in done.stderr


def test_evaluate_prints_a_line_a_query_when_asked(world: Path) -> None:
    lines = run_process(
        "evaluate", world / "teacher.trec", "--qrels", world / "qrels.trec", "--per-query"
    ).stdout.splitlines()
    assert len(lines) == 41
    values = [json.loads(line)["nDCG@5"] for line in lines]
    assert sum(values[:-1]) / 40 == pytest.approx(values[-1])


def test_two_runs_are_compared_with_an_interval(world: Path) -> None:
    runs = [world / "retriever.trec", world / "teacher.trec"]
    done = run_process("evaluate", *runs, "--qrels", world / "qrels.trec", "--by-document")
    first, second, comparison = map(json.loads, done.stdout.splitlines())
    assert [first["run"], second["run"]] == list(map(str, runs))
    difference = comparison["differences"]["nDCG@5"]
    assert difference["difference"] == pytest.approx(second["nDCG@5"] - first["nDCG@5"])
    assert difference["interval"][0] < difference["difference"] < difference["interval"][1]
    assert comparison["resampled"] == "40 documents"
    assert "nDCG@5, points (95 %)" in done.stderr


def test_qrels_that_name_pages_otherwise_are_noticed(world: Path, tmp_path: Path) -> None:
    lines = (world / "qrels.trec").read_text().splitlines()
    renamed = [
        " ".join([query, "0", f"digest-{page}", grade]) for query, _, page, grade in map(str.split, lines)
    ]
    (tmp_path / "qrels.trec").write_text("\n".join(renamed) + "\n")
    done = run_process("evaluate", world / "teacher.trec", "--qrels", tmp_path / "qrels.trec")
    assert "none of its pages is judged" in done.stderr
    assert "'digest-" in done.stderr
