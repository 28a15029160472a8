"""`ridgerank fuse`: two or more runs become one."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ridgerank.atomic import replace_text_file
from ridgerank.cli._console import echo
from ridgerank.cli._options import write_run_to
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.runs import JoinedRuns, fuse_runs, join, judged_weights
from ridgerank.fusion.weight import closed_form_estimate, label_free_estimate, user_estimate
from ridgerank.records import to_json
from ridgerank.trec import Run, parse_plain_number, read_qrels, read_run


def fuse_command(
    runs: Annotated[list[Path], typer.Argument(help="TREC runs: the retriever's, then the rerankers'.")],
    qrels: Annotated[
        Path | None, typer.Option(help="Relevance judgements: the weights of highest correlation with them.")
    ] = None,
    third: Annotated[
        Path | None,
        typer.Option(
            help="A run that is not fused (the full model's scores): the weight of two runs is estimated "
            "without labels."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="W[,W…]",
            help="The reranker's weight, from 0 to 1; or the weight of every run: 0.2,0.5,0.3.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the weights and their reasons here, as JSON.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the fused run here (whole or not at all), not to stdout.")
    ] = None,
) -> None:
    """Fuse the runs of a retriever and of one or more rerankers at the best weights.

    Scores are standardized within each query and added; with two runs as (1 − w)·retriever + w·reranker. Say
    where weights come from with exactly one of --qrels, --third and --weight. Three or more runs take --qrels
    or --weight.

    Pages that some run lacks are kept below the fused ones and counted in the report.

    Example: `ridgerank fuse colpali.trec readout.trec --third teacher.trec --report r.json > fused.trec`

    Example: `ridgerank fuse bm25.trec colpali.trec readout.trec --qrels qrels.trec > fused.trec`
    """
    given = _parse_weights(weight, len(runs))
    if len(runs) < 2:
        raise typer.BadParameter(f"{len(runs)} run, expected at least two to fuse")
    if sum(source is not None for source in (qrels, third, given)) != 1:
        raise typer.BadParameter("give exactly one source of weights: --qrels, --third or --weight")
    if len(runs) > 2 and third is not None:
        raise typer.BadParameter(f"--third weighs two runs; give --qrels or --weight for {len(runs)} runs")
    fused_runs = [read_run(path) for path in runs]
    joined = join(*fused_runs)
    facts = _weigh(fused_runs, joined, qrels, third, given)
    names = ["retriever", "reranker"]
    if "weights" in facts:
        names = facts["runs"] = [path.name for path in runs]
    fused = fuse_runs(joined, facts["weights"] if "weights" in facts else facts["weight"])
    facts["queries"] = len(joined.queries)
    lacking = zip(names, joined.missing(), strict=True)
    facts["missing"] = [{"run": name, "queries": lacked, "pages": pages} for name, (lacked, pages) in lacking]
    if report is not None:
        with replace_text_file(report) as file:
            file.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
    write_run_to(output, fused)
    _print_summary(facts)


def _parse_weights(text: str | None, runs: int) -> list[float] | None:
    """`0.2,0.5,0.3` as numbers: one per run, none below 0, not all 0; of two runs also that of the second."""
    if text is None:
        return None
    try:
        values = [parse_plain_number(part, float) for part in text.split(",")]
    except ValueError:
        values = []
    one = runs == 2 and len(values) == 1 and 0 <= values[0] <= 1
    many = len(values) == runs and min(values) >= 0 and 0 < sum(values) < math.inf
    if not (one or many):
        raise typer.BadParameter(
            f"{text!r}, expected the weights of {runs} runs: numbers of at least 0, not all 0, with commas "
            "between them; or of two runs that of the reranker, from 0 to 1",
            param_hint="--weight",
        )
    return values


def _weigh(
    runs: Sequence[Run],
    joined: JoinedRuns,
    qrels: Path | None,
    third: Path | None,
    given: list[float] | None,
) -> dict[str, Any]:
    """The weight of the second of two runs, or one per run, and where it is from, as the report has it."""
    facts: dict[str, Any]
    if given is not None and len(given) > 1:
        return {"weights": [value / sum(given) for value in given], "method": "given", "queries_used": 0}
    if given is not None:
        facts = to_json(user_estimate(given[0]))
        return facts
    complete = (joined if third is None else join(*runs, read_run(third))).complete()
    relevance = complete.scores[2] if qrels is None else complete.relevance(read_qrels(qrels))
    if len(runs) > 2:
        judged, queries = judged_weights(complete.scores, relevance, complete.lists)
        return {"weights": judged.tolist(), "method": "closed-form", "queries_used": queries}
    correlations = correlate(complete.scores[0], complete.scores[1], relevance, complete.lists)
    facts = to_json((label_free_estimate if qrels is None else closed_form_estimate)(correlations))
    return facts


def _print_summary(facts: dict[str, Any]) -> None:
    """The weight of two runs, or a line per run; then what each lacks."""
    if "weights" in facts:
        for name, weight in zip(facts["runs"], facts["weights"], strict=True):
            echo(f"{name}: weight {weight:.3f}, {facts['method']}")
    else:
        low, high = facts["weight_interval"]
        spread = "" if facts["method"] == "given" else f" (95 % interval {low:.2f} to {high:.2f})"
        caution = ": an estimate without judgements" if facts["method"] == "label-free" else ""
        echo(f"weight {facts['weight']:.3f}{spread}, {facts['method']}{caution}")
        if facts["note"]:
            echo(f"note: {facts['note']}")
    for missing in facts["missing"]:
        counts = ((missing["queries"], "queries"), (missing["pages"], "pages of other queries"))
        if lacks := " and ".join(f"{count} {what}" for count, what in counts if count):
            echo(f"note: {missing['run']} lacks {lacks}; they are kept, below the fused pages")
