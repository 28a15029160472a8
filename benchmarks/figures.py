"""Draw the pictures of README and docs/.

    python -m benchmarks.figures                        # docs/overview.png, docs/compression.png
    python -m benchmarks.figures --page [--demo demo]   # docs/page.png, the server's page in a browser

The picture of the page needs what `make demo` leaves, chromium, and the extras [serve,browser,miniature].
"""

import argparse
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image

from ridgerank.queries import read_queries
from ridgerank.records import Query
from ridgerank.trec import Qrels, read_qrels

LANES = [
    (2.0, "once a page", "#e8f0fb"),
    (1.0, "once a corpus", "#eef7ea"),
    (0.0, "every request", "#fdf1e3"),
]
BOXES = {
    "page": (0.75, 2.0, "page image\n+ instruction"),
    "encode": (2.65, 2.0, "first ℓ layers\nof the model"),
    "compress": (4.55, 2.0, "a third of the\npositions, int8"),
    "store": (6.45, 2.0, "page store\n(prefixes)"),
    "teacher": (0.75, 1.0, "full depth,\nwhole page: margin t"),
    "states": (2.65, 1.0, "states h of\nsome queries"),
    "ridge": (4.55, 1.0, "centered ridge\na = (H'H + λI)⁻¹H't"),
    "weight": (6.45, 1.0, "fusion weight w*\nin closed form"),
    "query": (0.75, 0.0, "query"),
    "shallow": (2.65, 0.0, "only the query,\nto layer ℓ"),
    "score": (4.55, 0.0, "s = a'h"),
    "fuse": (6.45, 0.0, "(1−w) z(b) + w z(s)\nwith the retriever's b"),
}
ARROWS = [
    ("page", "encode"),
    ("encode", "compress"),
    ("compress", "store"),
    ("teacher", "states"),
    ("states", "ridge"),
    ("ridge", "weight"),
    ("query", "shallow"),
    ("shallow", "score"),
    ("score", "fuse"),
]
MARKERS = {"stride": "o", "value-norm": "s"}
WIDTH, HEIGHT = 1360, 940
SCALE = 1.5
MAX_BYTES = 400_000
TOP = 5
LOOKED_AT = 25
PICTURES_IN_SIGHT_STAND = """return [...document.querySelectorAll('#columns img')].every((image) =>
    image.complete || image.getBoundingClientRect().top > innerHeight)"""


def box(axis: Axes, x: float, y: float, text: str) -> None:
    """A rounded box with text."""
    axis.add_patch(
        FancyBboxPatch(
            (x - 0.72, y - 0.25),
            1.44,
            0.5,
            boxstyle="round,pad=0.02",
            facecolor="white",
            edgecolor="#33415c",
            zorder=2,
        )
    )
    axis.text(x, y, text, ha="center", va="center", fontsize=9.5, color="#1b2538", zorder=3)


def arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], *, bend: float = 0.0) -> None:
    """An arrow between two points."""
    axis.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=13,
            color="#33415c",
            connectionstyle=f"arc3,rad={bend}",
            zorder=1.5,
        )
    )


def draw_overview() -> None:
    """What happens once a page, once a corpus, and at every request."""
    figure, axis = plt.subplots(figsize=(10, 3.9), layout="constrained")
    for y, name, colour in LANES:
        axis.add_patch(
            FancyBboxPatch(
                (-0.25, y - 0.38), 7.75, 0.76, boxstyle="round,pad=0.03", facecolor=colour, linewidth=0
            )
        )
        axis.text(-0.4, y, name, ha="right", va="center", fontsize=10.5, weight="bold", color="#33415c")
    for x, y, text in BOXES.values():
        box(axis, x, y, text)
    for start, end in ARROWS:
        arrow(axis, (BOXES[start][0] + 0.76, BOXES[start][1]), (BOXES[end][0] - 0.76, BOXES[end][1]))
    arrow(axis, (5.85, 1.73), (2.75, 0.3), bend=0.0)  # the store serves every request, behind the ridge
    arrow(axis, (4.55, 0.72), (4.55, 0.3))  # the readout scores
    arrow(axis, (6.45, 0.72), (6.45, 0.3))  # the weight fuses
    axis.set_xlim(-1.75, 7.55)
    axis.set_ylim(-0.45, 2.45)
    axis.axis("off")
    figure.savefig(Path("docs/overview.png"), dpi=130)


def draw_compression() -> None:
    """One panel for each backbone: agreement with the full model over bytes, the paper's setting marked."""
    rows = json.loads(Path("results/compression.json").read_text())["rows"]
    backbones = list(dict.fromkeys(row["backbone"] for row in rows))
    figure, panels = plt.subplots(
        1, len(backbones), figsize=(3.6 * len(backbones), 3.6), layout="constrained", squeeze=False
    )
    for axes, backbone in zip(panels[0], backbones, strict=True):
        draw_settings(axes, [row for row in rows if row["backbone"] == backbone])
        axes.set_title(backbone)
    panels[0][0].set_ylabel("held-out agreement r with the full model")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.savefig("docs/compression.png", dpi=120)


def draw_settings(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Settings of one backbone by rule, those that nothing smaller beats joined by a line."""
    paper = rows[0]
    for rule, marker in MARKERS.items():
        chosen = [row for row in rows if row["keep"].split()[0] == rule]
        sizes = [row["bytes_per_page"] / paper["bytes_per_page"] for row in chosen]
        axes.scatter(sizes, [row["agreement"] for row in chosen], marker=marker, s=22, label=rule)
    frontier = find_frontier(rows)
    axes.plot(
        [row["bytes_per_page"] / paper["bytes_per_page"] for row in frontier],
        [row["agreement"] for row in frontier],
        color="0.6",
        linewidth=1,
        zorder=0,
    )
    axes.scatter([1.0], [paper["agreement"]], s=140, facecolors="none", edgecolors="C3", label="the paper's")
    axes.axhline(paper["agreement"], color="C3", linewidth=0.6, linestyle=":")
    axes.set(xlabel="bytes of a page, the paper's = 1")


def find_frontier(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that agree more than every smaller one, by size."""
    frontier: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["bytes_per_page"], -row["agreement"])):
        if not frontier or row["agreement"] > frontier[-1]["agreement"]:
            frontier.append(row)
    return frontier


def take_page_picture(demo: Path, out: Path) -> None:
    """Search, wait until the rows are shown, write what is seen."""
    from tests.browser.chromium import chromium
    from tests.browser.page import PageUnderTest
    from tests.browser.server import serving

    queries = read_queries(demo / "queries.jsonl")[::2]  # the other half has calibrated
    judged = read_qrels(demo / "qrels.trec")
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(demo / "pages", log=Path(folder) / "log") as address,
        chromium(width=WIDTH, height=HEIGHT, scale=SCALE) as driver,
    ):
        query = find_telling_query(address, queries, judged)
        page = PageUnderTest(driver, address)
        page.open(q=query)
        page.until_answered()
        page.until(lambda: page.run(PICTURES_IN_SIGHT_STAND))
        picture = driver.get_screenshot_as_png()
    size = save_with_palette(picture, out)
    print(json.dumps({"picture": str(out), "query": query, "bytes": size}))


def find_telling_query(address: str, queries: list[Query], judged: Qrels) -> str:
    """Of the first queries the one whose top five gains most relevant pages; the earliest of equals."""
    from tests.browser.server import ask

    def gained(query: Query) -> int:
        answer = ask(address, "/v1/search", {"query": query.text, "k": 20, "top_n": 20})
        relevant = [page for page in answer["results"] if judged[query.query_id].get(page["reference"], 0)]
        return sum((page["rank"] <= TOP) - (page["retriever_rank"] <= TOP) for page in relevant)

    return max(queries[:LOOKED_AT], key=gained).text


def save_with_palette(picture: bytes, path: Path) -> int:
    """Save with a palette: flat colours lose nothing one sees, and the file stays small."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path} has {size:,} bytes, expected at most {MAX_BYTES:,}: show less of the page")
    return size


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--page", action="store_true", help="take the picture of the server's page")
    parser.add_argument("--demo", type=Path, default=Path("demo"))
    arguments = parser.parse_args()
    if arguments.page:
        take_page_picture(arguments.demo, Path("docs/page.png"))
        return
    mpl.use("Agg")
    draw_overview()
    draw_compression()


if __name__ == "__main__":
    main()
