"""Voronoi probabilistic circuits: certified bounds, exact factorised gates and their training; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "circuit": ["LeafNode", "Product", "Sum", "Voronoi", "mass_interval"],
        "conditions": ["Evidence", "parse"],
        "experts": ["Experts"],
        "hierarchical": ["FactorisedVoronoi", "Gate", "require_closure"],
        "leaves": ["NORMAL", "UNIFORM"],
        "queries": ["conditional_bounds", "mass_bounds"],
        "refinement": ["Bounds", "Refinement", "bisect", "refine"],
        "sampling": ["sample"],
        "slices": ["exact_mass", "slice_mass"],
        "relaxation": ["soft_weights"],
        "voronoi_sum": ["VoronoiSum", "half_spaces", "merged"],
    },
)
