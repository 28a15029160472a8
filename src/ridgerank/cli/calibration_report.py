"""A calibration on the screen: what was fitted, how far it can be trusted, and when it is stale."""

import json
from typing import TYPE_CHECKING

import typer

from ridgerank.cli.talk import say, warn

if TYPE_CHECKING:
    from ridgerank.calibration.artifact import Calibration


def print_report(calibration: "Calibration", store: str, name: str, *, as_json: bool) -> None:
    """Print a calibration, warnings last and loud."""
    from ridgerank.store.sidecar import locate_calibrations

    if as_json:
        typer.echo(json.dumps({"name": name, **calibration.facts()}, ensure_ascii=False))
    else:
        _print_tables(calibration)
    if calibration.weight.note and not calibration.diagnostics.warnings:
        say(f"note: {calibration.weight.note}")
    for warning in calibration.diagnostics.warnings:
        warn(f"{warning}")
    say(f"{locate_calibrations(store)}/{name}.json: the whole report")


def warn_of_stale_calibrations(store: str, removed: int) -> None:
    """Say which calibrations were fitted with pages that the store no longer has, and what to type."""
    from ridgerank.calibration.artifact import list_calibrations
    from ridgerank.store.sidecar import open_calibrations

    with open_calibrations(store) as folder:
        names = list_calibrations(folder)
    if names:
        warn(
            f"{removed} pages were removed, and the calibration {', '.join(names)} was fitted with them; it "
            f"still ranks, at a weight for other pages: run `ridgerank calibrate --store {store}`"
        )


def _print_tables(calibration: "Calibration") -> None:
    from rich.console import Console
    from rich.table import Table

    facts, weight = calibration.diagnostics, calibration.weight
    low, high = weight.weight_interval
    table = Table(show_header=False)
    table.add_row("retriever", calibration.retriever)
    table.add_row("queries", f"{facts.queries}, {facts.queries_from}; {facts.lists} lists fitted")
    table.add_row("target, state", f"{calibration.target}, {calibration.state}")
    table.add_row("reproduces", f"the scores of {facts.teacher}")
    table.add_row(
        "penalty λ", f"{calibration.readout.penalty:g}{' (at the edge)' if facts.penalty_at_edge else ''}"
    )
    r_low, r_high = facts.agreement_interval
    table.add_row("agreement r", f"{facts.agreement:.3f} ({r_low:.3f} to {r_high:.3f}), held-out lists")
    table.add_row("c_b, c_s, ρ", f"{_format(weight.c_b)}, {_format(weight.c_s)}, {_format(weight.rho)}")
    table.add_row("least c_s (proposition 2)", _format(facts.relevance_floor))
    table.add_row("weight", f"{weight.weight:.3f} ({low:.2f} to {high:.2f}), {weight.method}")
    if weight.method == "label-free":
        table.add_row("", "an estimate without judgements")
    table.add_row("interior", "yes" if weight.interior else "no")
    if facts.paper_label_free is not None:
        table.add_row("weight by §B.6", f"{facts.paper_label_free.weight:.3f}, this reading alone")
    for title, estimate in (("label-free", facts.label_free), ("with judgements", facts.closed_form)):
        if facts.closed_form is not None and estimate is not None:
            table.add_row(f"weight {title}", f"{estimate.weight:.3f}")
    table.add_row("expected gain", _format(facts.expected_gain, sign="+"))
    table.add_row("chance of a gain", _format(weight.chance_of_gain))
    Console().print(table)
    if len(facts.options) > 1:
        _print_options(calibration)


def _print_options(calibration: "Calibration") -> None:
    """Every target and state that was measured, and why one was selected."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("target, state", no_wrap=True)
    for title in ("spread", "ρ_bt", "ρ_bs", "held-out r", "c_s", "supported"):
        table.add_column(title)
    for option in calibration.diagnostics.options:
        selected = (option.target, option.state) == (calibration.target, calibration.state)
        correlations = (option.retriever_target, option.retriever_readout)
        figures = (option.spread, *correlations, option.agreement, option.relevance)
        verdict = f"{'yes' if option.supported else 'no'}{', taken' if selected else ''}"
        table.add_row(option.name, *(_format(value) for value in figures), verdict)
    Console().print(table)
    Console().print(calibration.diagnostics.reason, markup=False, highlight=False, soft_wrap=True)


def _format(value: float, *, sign: str = "") -> str:
    return "unknown" if value != value else f"{value:{sign}.3f}"
