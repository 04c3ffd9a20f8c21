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


def make(setting, fanouts=(4, 3, 2), **more):
    name, options = SETTINGS[setting]
    return samplers.make(name, fanouts, **options, **more)


def needs_weights(setting):
    return setting.startswith("sage weighted")
