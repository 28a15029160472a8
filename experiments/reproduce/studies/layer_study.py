"""The readout at every layer, under every λ (§4.3, §4.5): on the calibration sample, each corpus left out."""

from dataclasses import dataclass, replace

import numpy as np

from experiments.protocols import corpus_moments, measure_agreement
from experiments.reproduce.analysis import Analysis
from ridgerank.ragged import Floats
from ridgerank.readout.ridge import PENALTIES, choose_penalty, merge_moments, ridge_path


@dataclass(frozen=True, slots=True, eq=False)
class LayerStudy:
    """One backbone, layer by layer."""

    corpora: tuple[str, ...]
    quality: Floats
    """(layers,): nDCG@5, macro over corpora, λ by the teacher's rule at each layer."""
    penalties: tuple[float, ...]
    """(layers,): that λ."""
    agreement: Floats
    """(corpora, layers, λ): r, mean correlation of readout and margin."""
    relevance: Floats
    """(corpora, layers, λ): c_s, mean correlation of readout and relevance."""

    def alignment(self) -> list[float]:
        """Correlation of r and c_s over all layers and λ, corpus by corpus."""
        return [
            float(np.corrcoef(r.ravel(), c.ravel())[0, 1])
            for r, c in zip(self.agreement, self.relevance, strict=True)
        ]


def study_layers(analysis: Analysis, backbone: str) -> LayerStudy:
    """Fit and score at every layer."""
    return analysis.cached(("layers", backbone), lambda: _study(analysis, backbone))


def _study(analysis: Analysis, backbone: str) -> LayerStudy:
    samples, weight = analysis.samples(backbone), analysis.settings.sample_weight
    states = [
        analysis.experiment.layers(corpus_key, backbone, analysis.sample[corpus_key.number])
        for corpus_key in analysis.experiment.corpus_keys(0)
    ]
    layers = states[0].shape[2]
    quality, penalties, agreement, relevance = [], [], [], []
    for layer in range(layers):
        at_layer = [
            replace(sample, states=values[:, :, layer].reshape(len(sample.pages), -1).astype(np.float64))
            for sample, values in zip(samples, states, strict=True)
        ]
        moments = {sample.corpus: corpus_moments(sample) for sample in at_layer}
        deployed = choose_penalty(moments).deployed
        deployed_row = int(np.flatnonzero(deployed == PENALTIES)[0])
        ndcg, r, c_s = [], [], []
        for sample in at_layer:
            others = [name for name in moments if name != sample.corpus]
            scores_by_penalty = ridge_path(merge_moments(moments, others)) @ sample.states.T
            ndcg.append(float(sample.fused_ndcg(scores_by_penalty[deployed_row], weight).mean()))
            agreed = [
                measure_agreement(scores, sample.margins, sample.relevance, sample.lists)
                for scores in scores_by_penalty
            ]
            r.append([float(each.teacher.mean()) for each in agreed])
            c_s.append([float(each.relevance.mean()) for each in agreed])
        quality.append(float(np.mean(ndcg)))
        penalties.append(deployed)
        agreement.append(r)
        relevance.append(c_s)
    return LayerStudy(
        corpora=tuple(sample.corpus for sample in samples),
        quality=np.array(quality),
        penalties=tuple(penalties),
        agreement=np.array(agreement).transpose(1, 0, 2),
        relevance=np.array(relevance).transpose(1, 0, 2),
    )
