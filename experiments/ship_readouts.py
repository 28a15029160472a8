"""The readouts that come with the package (src/ridgerank/readouts), fitted on documents of several kinds.

    python -m experiments.ship_readouts smollm2-135m qwen2.5-coder-0.5b --work shipping

Each argument is a model, as for `ridgerank index`; its readout is called after it. The documents come out of
Debian packages (`apt-get download`), are in the public domain or under a permissive licence, and stay in
`--work`; the readout's file names them. An interrupted run goes on where it stopped.
"""

import argparse
import gzip
import subprocess
from pathlib import Path
from typing import NamedTuple

import pypdfium2
import typer

from ridgerank.backbones.load import load_backbone, parse_dtype
from ridgerank.calibration.artifact import Calibration
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.readout_file import SUFFIX, ReadoutFile
from ridgerank.cli.calibrate import calibration_progress
from ridgerank.indexing.index import index_documents

SHIPPED = Path(__file__).parents[1] / "src" / "ridgerank" / "readouts"
PAGES = 24
"""Of each document, one after the other: neighbours are hard to tell apart."""
LINES, WIDTH = 50, 90
"""Of a page made of plain text."""


class Source(NamedTuple):
    """A document in a Debian package."""

    package: str
    file: str
    """Its name ends so."""
    kind: str
    licence: str


SOURCES = (
    Source("krb5-doc", "admin.pdf.gz", "administration manual", "MIT"),
    Source("libcfitsio-doc", "cfitsio.pdf.gz", "astronomers' reference manual", "NASA, permissive"),
    Source("clips-doc", "application_abstracts.pdf.gz", "abstracts of projects", "MIT-like"),
    Source("clips-doc", "users_guide.pdf.gz", "tutorial", "MIT-like"),
    Source("libtommath-doc", "bn.pdf.gz", "mathematics", "public domain"),
    Source("rtklib-doc", "manual_2.4.2.pdf.gz", "satellite navigation, forms and charts", "BSD-2-Clause"),
    Source("freedoom", "freedoom-manual.pdf.gz", "manual of a game", "BSD-3-Clause"),
    Source("scons-doc", "scons-user.pdf.gz", "handbook of a tool", "MIT"),
    Source("libtheora-doc", "Theora.pdf.gz", "specification", "BSD-3-Clause"),
    Source("mpich-doc", "user.pdf.gz", "short guide", "MPICH, permissive"),
    Source("dict-jargon", "jargon.dict.dz", "anecdotes", "public domain"),
    Source("dict-devil", "devil.dict.dz", "satire", "public domain"),
)


def main() -> None:
    """Gather the documents; fit and write a readout for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders, hub names or short names")
    parser.add_argument("--work", type=Path, required=True, help="for documents and stores")
    parser.add_argument("--questions", type=int, default=192, help="cut from the pages, a list each")
    parser.add_argument("--pages", type=int, default=len(SOURCES) * PAGES, help="read at full depth")
    parser.add_argument("--dtype", default="bfloat16", help="to fit in; the probe is run in float32")
    options = parser.parse_args()
    documents = options.work / "documents"
    for number, source in enumerate(SOURCES):
        gather(source, documents / f"{number:02}-{source.package}.pdf", options.work / "packages")
    for model in options.models:
        name = Path(model).name.lower()
        store = options.work / f"{name}-store"
        backbone = load_backbone(model, dtype=parse_dtype(options.dtype))
        index_documents(documents, store, backbone)
        with calibration_progress() as progress:
            calibration = calibrate(
                store,
                backbone=backbone,
                query_count=options.questions,
                read_pages=options.pages,
                progress=progress,
            )
        typer.echo(ship(calibration, model, SHIPPED / f"{name}{SUFFIX}"))


def gather(source: Source, target: Path, work: Path) -> None:
    """Write some pages of a document as a PDF, unless it is there."""
    if target.exists():
        return
    folder = work / source.package
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", source.package], cwd=work, check=True)
        [archive] = work.glob(f"{source.package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    [path] = [path for path in folder.rglob("*") if str(path).endswith(f"/{source.file}")]
    content = gzip.decompress(path.read_bytes())
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        document, chosen = pypdfium2.PdfDocument(content), pypdfium2.PdfDocument.new()
        first = min(len(document) // 3, max(len(document) - PAGES, 0))
        chosen.import_pages(document, list(range(first, min(first + PAGES, len(document)))))
        chosen.save(target)
    else:
        write_text(content.decode("utf-8", "replace"), target)


def write_text(text: str, target: Path) -> None:
    """Lay plain text out on pages, beginning a third into it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    lines = [line[:WIDTH].replace("$", r"\$") for line in text.splitlines()]
    start = len(lines) // 3
    with rc_context({"pdf.fonttype": 42}), PdfPages(target) as file:
        for first in range(start, start + PAGES * LINES, LINES):
            figure = Figure(figsize=(8.3, 11.7))
            page = "\n".join(lines[first : first + LINES])
            figure.text(0.08, 0.95, page, family="serif", fontsize=10, va="top", linespacing=1.4)
            file.savefig(figure)


def ship(calibration: Calibration, model: str, path: Path) -> str:
    """Write the file of a readout, with a probe that is run in float32; returns what it is."""
    file = ReadoutFile.of(
        calibration,
        load_backbone(model, dtype=parse_dtype("float32")),
        fitted_on=tuple(f"{each.kind}: {each.package} ({each.licence})" for each in SOURCES),
        licence="CC0-1.0",
    )
    path.parent.mkdir(exist_ok=True)
    file.save(path)
    facts = calibration.diagnostics
    return f"{path}: {facts.lists} lists, {calibration.target}, {calibration.state}, r {facts.agreement:.3f}"


if __name__ == "__main__":
    main()
