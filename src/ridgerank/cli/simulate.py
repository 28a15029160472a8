"""`ridgerank simulate`: run files to try the other commands on."""

from typing import Annotated

import typer

from ridgerank.cli.options import CandidateCount, OutFolder
from ridgerank.cli.talk import say


def simulate_command(
    out: OutFolder,
    queries: Annotated[int, typer.Option(min=1, help="How many queries.")] = 200,
    candidates: CandidateCount = 20,
    retriever: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Its correlation with relevance.")
    ] = 0.45,
    reranker: Annotated[float, typer.Option(min=0.0, max=1.0, help="Its correlation with relevance.")] = 0.6,
    teacher: Annotated[float, typer.Option(min=0.0, max=1.0, help="Its correlation with relevance.")] = 0.7,
    seed: Annotated[int, typer.Option(help="The same seed writes the same files.")] = 0,
) -> None:
    """Draw a world in which the truth is known: three runs and their qrels.

    Writes retriever.trec, reranker.trec, teacher.trec and qrels.trec.

    Example: `ridgerank simulate --out try && ridgerank fuse try/retriever.trec try/reranker.trec --third
    try/teacher.trec | ridgerank evaluate /dev/stdin --qrels try/qrels.trec`
    """
    from ridgerank.atomic import replace_text_file
    from ridgerank.evaluation.simulation import World
    from ridgerank.evaluation.simulation import simulate as draw
    from ridgerank.runs.trec import write_qrels, write_run

    sample = draw(World(retriever, reranker, teacher, candidates=candidates), queries=queries, seed=seed)
    columns = {"retriever": sample.retriever, "reranker": sample.reranker, "teacher": sample.teacher}
    for name, scores in columns.items():
        with replace_text_file(out / f"{name}.trec") as file:
            write_run(sample.run(scores), file, tag=name)
    with replace_text_file(out / "qrels.trec") as file:
        write_qrels(sample.qrels(), file)
    say(f"{out}: {queries} queries with {candidates} candidates each")
