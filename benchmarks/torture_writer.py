"""A process that indexes small documents into one store without end, and says which pages are stored.

python -m benchmarks.torture_writer STORE DOCUMENTS SEED [BYTES]

`benchmarks.torture` starts it and kills it. A line of JSON per document: the page ids that were acknowledged,
or the reason why the document was refused. With BYTES no file may grow beyond it: a disk that is full, for
machines on which no small file system can be mounted.
"""

import json
import random
import resource
import sys
import time
from pathlib import Path

from PIL import Image, ImageDraw

from ridgerank.backbones.load import load_backbone
from ridgerank.documents.pages import PageRef, list_pages
from ridgerank.errors import RidgeRankError
from ridgerank.indexing.index import index_documents

_PAUSE_SECONDS = 0.5


def write_document(folder: Path, rng: random.Random) -> Path:
    """A PDF of one to three pages with a number nobody has drawn before."""
    pages = []
    for _ in range(rng.randint(1, 3)):
        image = Image.new("RGB", (300, 400), "white")
        ImageDraw.Draw(image).text((20, 40), f"number {rng.getrandbits(64)}", fill="black")
        pages.append(image)
    path = folder / f"document-{rng.getrandbits(48):x}.pdf"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    return path


def main() -> None:
    """Index until killed."""
    store, folder, rng = sys.argv[1], Path(sys.argv[2]), random.Random(sys.argv[3])
    backbone = load_backbone("mini-qwen")
    if len(sys.argv) > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
    while True:
        try:
            path = write_document(folder, rng)
            page_ids = [ref.page_id for ref in list_pages([path]) if isinstance(ref, PageRef)]
            report = index_documents(path, store, backbone, processes=1)
            reasons = "; ".join(str(failure) for failure in report.failures)
            line = {"refused": reasons} if reasons else {"acknowledged": page_ids}
            path.unlink()
        except (RidgeRankError, OSError) as error:
            line = {"refused": str(error)[:300]}
            time.sleep(_PAUSE_SECONDS)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
