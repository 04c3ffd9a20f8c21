"""Every sampler, in the settings that change what it draws. A new sampler joins here and inherits all the tests."""

from bulksample import samplers

SETTINGS = {
    "sage": ("sage", {}),
    "sage replace": ("sage", {"replace": True}),
    "sage weighted": ("sage", {"weighted": True}),
    "sage weighted replace": ("sage", {"weighted": True, "replace": True}),
    "labor": ("labor", {}),
    "labor layer-dependent": ("labor", {"layer_dependent": True}),
    "ladies": ("ladies", {}),
    "ladies squared_sum": ("ladies", {"importance": "squared_sum"}),
    "ladies raw": ("ladies", {"debias": False}),
    "ladies unbiased": ("ladies", {"renormalise": False}),
    "fastgcn": ("fastgcn", {}),
    "full": ("full", {}),
    "shadow": ("shadow", {"layers": 4}),
    "saint": ("saint", {"walk_length": 3}),
}


def make(setting, fanouts=(4, 3, 2), frontier="all", **more):
    """Return a sampler; those of subgraphs have one rule for the frontier, whichever is asked for."""
    name, options = SETTINGS[setting]
    return samplers.make(name, fanouts, frontier=frontier if frontier in frontiers(setting) else "all", **options, **more)


def frontiers(setting):
    return ("all", "new") if samplers.SAMPLERS[SETTINGS[setting][0]].reads_frontier else ("all",)


def needs_weights(setting):
    return setting.startswith("sage weighted")
