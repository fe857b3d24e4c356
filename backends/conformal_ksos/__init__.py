"""Asymmetric adaptive conformal bands by penalised kernel sum-of-squares; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "band": ["Band", "fit_band"],
        "conformal": ["conformal_quantile"],
        "selection": ["distance_covariance"],
        "solver": ["Solution", "solve"],
    },
)
