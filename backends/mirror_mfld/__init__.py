"""Mirror mean-field Langevin dynamics on convex domains, with its exact laws; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "diffusion": ["euler_maruyama", "floored_step", "wright_fisher_step"],
        "domains": ["Ball", "Box", "Domain", "Simplex"],
        "dynamics": ["Settings", "mirror_step", "projected_step", "simulate"],
        "entropy": ["knn_entropy"],
        "exact_law": ["ExactLaw", "ball_linear_mean", "fixed_point", "spectraplex_purity"],
        "functionals": ["Functional", "Linear", "MeanMatching", "MmdToCloud", "SpectraplexMatching"],
        "network": ["XorNetwork", "xor_data"],
        "quadrature": ["Quadrature", "gauss_jacobi", "quadrature"],
        "spectraplex": ["Spectraplex", "log_divided_differences"],
    },
)
