from tests.miniature.conftest import corpora

__all__ = ["corpora"]
