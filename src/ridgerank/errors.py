"""The errors of the library; a message says what was found, what was expected and what to do about it."""


class RidgeRankError(Exception):
    """Anything RidgeRank refuses to do, with the reason as its message."""


class RunFileError(RidgeRankError):
    """A run or qrels file that cannot be read as one."""


class QueryError(RidgeRankError):
    """A query that cannot be asked, or a file of queries that cannot be read as one."""


class ScoreError(RidgeRankError):
    """Scores no ranking can be made of."""


class CalibrationError(RidgeRankError):
    """Too little, or nothing informative, to estimate from."""


class ArtifactError(RidgeRankError):
    """A stored artifact that is damaged or of another format."""


class LineageMismatch(ArtifactError):  # noqa: N818 (reads as the fact it states)
    """An artifact made with another model, prompt or setting than the one at hand."""


class DocumentError(RidgeRankError):
    """A file that yields no pages, or a page that cannot be read."""


class BackboneError(RidgeRankError):
    """A model that is unknown, incomplete or unfit for the request."""


class StoreError(RidgeRankError):
    """A page store that is missing, damaged or lacks a page."""


class UnreadablePages(StoreError):  # noqa: N818 (reads as the fact it states)
    """Pages whose stored bytes are damaged, or that are not encoded yet."""


class RetrieverError(RidgeRankError):
    """A retriever that is unknown, or has nothing to search in."""


class ClusterError(RidgeRankError):
    """A Ray cluster that cannot be reached, or work that was lost on it."""


class DatasetError(RidgeRankError):
    """A benchmark that is unknown, incomplete or not as it was published; raised by the experiments only."""


class WriteError(RidgeRankError, OSError):
    """A file that cannot be written."""


class ServingError(RidgeRankError):
    """A server that cannot be started as configured."""


class ExtraMissing(RidgeRankError, ImportError):  # noqa: N818 (reads as the fact it states)
    """An optional package that is needed and not installed: for an adapter, a cluster or a download."""
