"""Decentralised online learning over compressed messages; the public functions load on first use."""

from lazy_loader import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "compressors": ["Compressor", "Identity", "Quantiser", "RandK", "RandomGossip", "TopK", "levels_for"],
        "dogd": ["Course", "Settings", "d_ogd", "dc_dogd"],
        "feedback": ["Feedback", "one_point", "two_point"],
        "gossip": ["Replicas", "compensate", "decay", "disagreement", "factor_per_round", "gossip_round"],
        "graphs": ["Spectrum", "build_graph", "check_weights", "mixing_weights", "spectrum", "weights_of"],
        "streams": ["Best", "LogisticStream", "QuadraticStream", "max_regret", "project_ball"],
        "theory": ["compensation_rounds", "contraction", "convex_step", "dcdogd_step", "gossip_rounds", "gossip_step", "strongly_convex_step"],
        "topdogd": ["Block", "Plan", "top_dogd"],
    },
)
