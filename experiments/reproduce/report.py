"""One HTML page with every table and figure in it; it needs no other file and no network."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from experiments.reproduce.claims import Claim
from experiments.reproduce.figures import PaperFigure
from experiments.reproduce.paper import SOURCE
from experiments.reproduce.tables.table import Table
from ridgerank.atomic import replace_text_file

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --mark: #1f5fa8; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
nav ul { columns: 3 18rem; padding-left: 1.2rem; }
figure { margin: 1rem 0; background: #fff; padding: .5rem; display: inline-block; max-width: 100%; }
figure svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th.words, td.words { text-align: left; }
tr.elsewhere { font-style: italic; opacity: .75; background: var(--soft); }
tr.missing td { white-space: normal; }
.holds { color: #2f8f4e; font-weight: 600; } .fails { color: #b3282d; font-weight: 600; }
caption, .note { text-align: left; color: GrayText; font-size: 13px; }
"""


def write_report(
    path: Path, results: Sequence[Table | PaperFigure], claims: Sequence[Claim], facts: Mapping[str, object]
) -> None:
    """Write the page."""
    contents = [("directions", "The paper's claims")] if claims else []
    contents += [(result.name, result.title) for result in results]
    contents.append(("run", "What was run"))
    links = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in contents)
    sections = [_claims_section(claims)] if claims else []
    sections += [
        _table_section(result) if isinstance(result, Table) else _figure_section(result) for result in results
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>RidgeRank: the experiments</title><style>{_STYLE}</style></head><body>"
        "<h1>RidgeRank: the experiments</h1>"
        f"<p>Rows in italics, marked “{SOURCE}”, are the paper's own figures, for the models it names; "
        "all others were measured in this run.</p>"
        f"<nav><ul>{links}</ul></nav>{''.join(sections)}{_run_section(facts)}</body></html>\n"
    )
    with replace_text_file(path) as file:
        file.write(page)


def _claims_section(claims: Sequence[Claim]) -> str:
    wide = 'class="words" style="white-space:normal"'
    rows = "".join(
        f"<tr><td {wide}>{escape(claim.claim)}</td><td {wide}>{escape(claim.where)}</td>"
        f"<td {wide}>{escape(claim.threshold)}</td><td {wide}>{escape(claim.measured)}</td>"
        f'<td class="words {"holds" if claim.holds else "fails"}">'
        f"{'holds' if claim.holds else 'does not hold here'}</td><td {wide}>{escape(claim.reason)}</td></tr>"
        for claim in claims
    )
    headings = ("claim", "in the paper", "the paper's threshold", "measured", "here", "why not, where known")
    head = "".join(f'<th class="words">{heading}</th>' for heading in headings)
    failed = sum(not claim.holds for claim in claims)
    return (
        '<section id="directions"><h2>The paper\'s claims</h2>'
        f"<p>{len(claims)} claims, each with the threshold that the paper prints; {failed} do not hold "
        f'here.</p><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _table_section(table: Table) -> str:
    classes = [' class="words"' if column.format == "s" else "" for column in table.columns]
    named = zip(classes, table.columns, strict=True)
    head = "".join(f"<th{kind}>{escape(column.name)}</th>" for kind, column in named)
    rows = []
    for row in table.rows:
        cells = zip(classes, table.texts(row), strict=True)
        kind = "elsewhere" if row.source else "missing" if row.note else ""
        filled = "".join(f"<td{words}>{escape(text)}</td>" for words, text in cells)
        rows.append(f'<tr class="{kind}">{filled}</tr>')
    notes = "".join(f'<p class="note">{escape(note)}.</p>' for note in table.notes)
    return (
        f'<section id="{table.name}"><h2>{escape(table.title)}</h2><p>{escape(table.caption)}</p>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f"{notes}</section>"
    )


def _figure_section(figure: PaperFigure) -> str:
    svg = figure.render("svg").decode()
    # Identifiers are unique within a picture only, and all pictures share one page.
    svg = (
        svg[svg.index("<svg") :]
        .replace('id="', f'id="{figure.name}-')
        .replace("url(#", f"url(#{figure.name}-")
    )
    svg = svg.replace('href="#', f'href="#{figure.name}-')
    return (
        f'<section id="{figure.name}"><h2>{escape(figure.title)}</h2><figure>{svg}</figure>'
        f"<p>{escape(figure.caption)}</p></section>"
    )


def _run_section(facts: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><td class="words">{escape(name)}</td>'
        f'<td class="words" style="white-space:normal">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f'<section id="run"><h2>What was run</h2><table><tbody>{rows}</tbody></table></section>'
