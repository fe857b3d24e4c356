"""Markov chains that read a minibatch and keep the exact posterior, by auxiliary variables; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "alias": ["AliasTable"],
        "data": ["robust_regression", "tall_logistic", "truncated_gaussian"],
        "diagnostics": ["effective"],
        "driver": ["Chains", "run_chains"],
        "full_data": ["FullSampler", "Hmc"],
        "ising": ["Exchange", "Lattice", "ising_counts", "ising_exchange", "ising_posterior"],
        "models": ["FullData", "Logistic", "RobustRegression", "TruncatedGaussian"],
        "proposals": ["Barker", "Mala", "RandomWalk"],
        "reference": ["gaussian_reference", "integrated_reference"],
        "samplers": ["PoissonSampler", "Sgld", "TunaSampler", "UniformGradient"],
        "theory": ["expected_batch", "poisson_gap_bound", "tuna_gap_bound"],
        "thinning": ["auxiliary_log_ratio", "ratio_moment", "thin"],
        "tuning": ["tune"],
    },
)
