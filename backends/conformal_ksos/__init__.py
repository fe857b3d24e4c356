"""Asymmetric adaptive conformal bands by penalised kernel sum-of-squares; the public functions load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.conformal_ksos.band import Band, fit_band
    from backends.conformal_ksos.conformal import conformal_quantile
    from backends.conformal_ksos.selection import distance_covariance
    from backends.conformal_ksos.solver import Solution, solve

__all__ = ["Band", "Solution", "conformal_quantile", "distance_covariance", "fit_band", "solve"]

_HOMES = {
    "Band": "band",
    "Solution": "solver",
    "conformal_quantile": "conformal",
    "distance_covariance": "selection",
    "fit_band": "band",
    "solve": "solver",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
