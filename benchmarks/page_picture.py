"""The picture of the page in the README: `make demo`'s store, served and looked at.

python -m benchmarks.page_picture [--demo demo] [--out docs/page.png]

Wants what `make demo` leaves, chromium, and the package's [serve,browser,miniature] extras. The page's own
typeface is the reader's; where Inter is installed (Debian: fonts-inter) the picture has that.
"""

import argparse
import io
import json
import tempfile
from pathlib import Path

from PIL import Image

from ridgerank.records import Query
from ridgerank.runs.queries import read_queries
from ridgerank.runs.run import Qrels
from ridgerank.runs.trec import read_qrels
from tests.browser.chromium import chromium
from tests.browser.page import PageUnderTest
from tests.browser.server import ask, serving

WIDTH, HEIGHT = 1360, 940
SCALE = 1.5
MAX_BYTES = 400_000
TOP = 5
LOOKED_AT = 25
PICTURES_IN_SIGHT_STAND = """return [...document.querySelectorAll('#columns img')].every((image) =>
    image.complete || image.getBoundingClientRect().top > innerHeight)"""


def main() -> None:
    """Search, wait until the rows stand, write what is seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, default=Path("demo"))
    parser.add_argument("--out", type=Path, default=Path("docs/page.png"))
    arguments = parser.parse_args()
    queries = read_queries(arguments.demo / "queries.jsonl")[::2]  # the other half has calibrated
    judged = read_qrels(arguments.demo / "qrels.trec")
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(arguments.demo / "pages", log=Path(folder) / "log") as address,
        chromium(width=WIDTH, height=HEIGHT, scale=SCALE) as driver,
    ):
        query = telling(address, queries, judged)
        page = PageUnderTest(driver, address)
        page.open(q=query)
        page.until_answered()
        page.until(lambda: page.run(PICTURES_IN_SIGHT_STAND))
        picture = driver.get_screenshot_as_png()
    size = write(picture, arguments.out)
    print(json.dumps({"picture": str(arguments.out), "query": query, "bytes": size}))


def telling(address: str, queries: list[Query], judged: Qrels) -> str:
    """Of the first queries the one whose top five gains most relevant pages; the earliest of equals."""

    def gained(query: Query) -> int:
        answer = ask(address, "/v1/search", {"query": query.text, "k": 20, "top_n": 20})
        relevant = [page for page in answer["results"] if judged[query.query_id].get(page["reference"], 0)]
        return sum((page["rank"] <= TOP) - (page["retriever_rank"] <= TOP) for page in relevant)

    return max(queries[:LOOKED_AT], key=gained).text


def write(picture: bytes, path: Path) -> int:
    """Save with a palette: flat colours lose nothing one sees, and the file stays small."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path} has {size:,} bytes, wanted at most {MAX_BYTES:,}: show less of the page")
    return size


if __name__ == "__main__":
    main()
