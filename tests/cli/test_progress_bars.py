from ridgerank.cli.progress_bars import FAILURES_SHOWN, Bar, IndexProgress

from ridgerank.documents.sources import Failure


class Lines(Bar):
    """A bar that only keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, *, style: str | None = None) -> None:
        self.said.append(text)


def test_a_file_that_loses_many_pages_gets_few_lines() -> None:
    bar = Lines()
    progress = IndexProgress(bar)
    for number in range(1, 300):
        progress.failed(Failure(f"report.pdf#{number}", "the page is damaged; repair it"))
    progress.failed(Failure("other.pdf", "no PDF; leave it out"))
    assert len(bar.said) == FAILURES_SHOWN + 2
    assert bar.said[-2] == "not read: more pages of report.pdf, for the same reason"
    assert bar.said[-1] == "not read: other.pdf: no PDF; leave it out"
