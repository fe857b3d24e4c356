"""STLA: rounding that looks ahead. Post-training quantisation of linear layers; the public functions load on first use.

W: weights (R, C), rows are outputs. H = (2/n) X X^T: second moments of the inputs (C, C). Losses: L(Q) = tr[(Q - W) H (Q - W)^T].
"""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "curvature": ["damped", "layer_loss", "lookahead", "upper_factor"],
        "grids": ["Grid", "search_grid"],
        "ordering": ["column_order"],
        "peers": ["adaround", "decoupled", "gptq", "rtn"],
        "rounding": ["Learning", "Problem", "learn", "objective", "rectified_sigmoid"],
        "sweep": ["Cluster", "Quantised", "stla", "telescope"],
    },
)
