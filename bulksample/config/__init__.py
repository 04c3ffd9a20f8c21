"""Options: each is declared once, and read from keyword arguments, flags and files.

options.py   how an option is declared, and the messages about values that do not fit
groups.py    the groups that every method shares: model, sampling, optimizer, ...
train.py     these groups together, for `train` and `sample`; `methods/config.py` adds the options of every method
file.py      YAML
"""

from typing import Literal

DEFAULT_FANOUTS = (15, 10, 5)
MODELS = ("sage", "sage-pool", "gcn", "gat")
UNION = ("ladies", "fastgcn")  # samplers that draw from all relations at once
FeaturePlacement = Literal["replicated", "partitioned", "machine", "host"]  # see `distributed.matrix.placement.Placement`
RELATIONAL_MODELS = ("hetero-sage", "hetero-gat")  # of heterogeneous graphs
