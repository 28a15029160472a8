"""Fewer vectors per page: similar vectors are averaged into one."""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage


def pool_vectors(vectors: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """Average (vectors, dim) of unit length into ⌈vectors / factor⌉ or fewer, of unit length again.

    Vectors are grouped by Ward's hierarchical clustering; a group becomes its mean, scaled to length 1.
    Factor 1 leaves them as they are. Queries are never pooled.
    """
    if factor == 1 or len(vectors) < 2:
        return vectors
    max_groups = -(-len(vectors) // factor)
    groups = fcluster(linkage(vectors, method="ward"), t=max_groups, criterion="maxclust") - 1
    sums = np.zeros((int(groups.max()) + 1, vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, groups, vectors)
    # Opposite vectors may cancel out; what is left of them has no direction and scores 0 with any query.
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: NDArray[np.float64] = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return means.astype(np.float32)
