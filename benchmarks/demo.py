"""`make demo`: the commands a new user would type, on run files made on the spot.

python -m benchmarks.demo [--out demo]
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console()


def ridgerank(command: str) -> str:
    """Show a command, run it, and hand back what it printed."""
    console.print(f"[bold green]$[/] ridgerank {command}", highlight=False)
    words = [sys.executable, "-m", "ridgerank.cli.main", *shlex.split(command)]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def quality(run: Path, world: Path) -> dict[str, float]:
    """All measures of a run."""
    measures: dict[str, float] = json.loads(ridgerank(f"evaluate {run} --qrels {world}/qrels.trec"))
    return measures


def main() -> None:
    """Simulate a retriever, a reranker and its teacher; fuse without and with labels; compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    out: Path = parser.parse_args().out
    console.print(
        "[bold]Three systems that see relevance through their own noise; 200 queries, 20 pages each[/]"
    )
    ridgerank(f"simulate --out {out}")
    runs = f"{out}/retriever.trec {out}/reranker.trec"
    ways = {
        "fused, no labels": f"--third {out}/teacher.trec",
        "fused, closed form with labels": f"--qrels {out}/qrels.trec",
    }
    reports: dict[str, dict[str, Any]] = {}
    rows = {name: quality(out / f"{name}.trec", out) for name in ("retriever", "reranker")}
    for number, (name, option) in enumerate(ways.items()):
        fused, report = out / f"fused-{number}.trec", out / f"report-{number}.json"
        ridgerank(f"fuse {runs} {option} --report {report} --output {fused}")
        reports[name] = json.loads(report.read_text())
        rows[name] = quality(fused, out)
    table = Table(title="Ranking quality, percent")
    for column in ("ranking", "weight", "95 % interval", "nDCG@5", "nDCG@10", "RR@10"):
        table.add_column(column, justify="left" if column == "ranking" else "right")
    for name, measures in rows.items():
        report_of = reports.get(name)
        weight, interval = ("", "")
        if report_of is not None:
            low, high = report_of["weight_interval"]
            weight, interval = f"{report_of['weight']:.2f}", f"{low:.2f} to {high:.2f}"
        values = [f"{measures[measure]:.1f}" for measure in ("nDCG@5", "nDCG@10", "RR@10")]
        table.add_row(name, weight, interval, *values)
    console.print(table)
    console.print(f"Runs and reports lie in [bold]{out}/[/]. Your own: ridgerank fuse --help")


if __name__ == "__main__":
    main()
