"""The parameters of a degree-corrected stochastic block model with features: a stand-in for data sets that cannot be downloaded.

Each vertex has a class c ~ p with p_k ∝ k^-z, a community inside the class, and a weight θ ~ lognormal(0, σ), cut
at 350 times its mean. An edge joins two vertices, each drawn ∝ θ: the second inside the community of the first with
probability h, anywhere otherwise. Features are x = a u_class + b v_community + N(0, I) with random unit vectors u and v.
Finally each label is replaced by a draw from p with probability ρ, so no model can be right about all of them.

Such a graph imitates the difficulty of a data set. It is no evidence about the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..errors import UsageError


@dataclass(frozen=True)
class BlockModel:
    """All parameters of a block model except its size.

    Parameters
    ----------
    classes : int
    class_skew : float
        z; 0 makes classes of equal size.
    degree_spread : float
        σ, at most 3.
    homophily : float
        h, the share of pairs drawn inside a community.
    communities : int, optional
        K per class; the default keeps a community about four times the mean degree.
    features : int
        Number f of features; 0 makes a graph without them.
    class_signal, community_signal : float
        a and b.
    label_noise : float
        ρ.
    train, val : float
        Shares of the vertices; the rest is the test split.
    popularity : float, optional
        α: the training split takes the vertices of highest log θ + log pop + Gumbel / 2, with pop ~ lognormal(0, α) per
        community, so it holds few vertices of some communities. ``None`` splits uniformly.
    """

    classes: int = 47
    class_skew: float = 0.9
    degree_spread: float = 1.2
    homophily: float = 0.9
    communities: int | None = None
    features: int = 100
    class_signal: float = 3.2
    community_signal: float = 3.2
    label_noise: float = 0.03
    train: float = 0.08
    val: float = 0.02
    popularity: float | None = 2.2

    def __post_init__(self) -> None:
        for name in ("homophily", "label_noise", "train", "val"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is a share: got {getattr(self, name)}; use 0 to 1")
        if self.train + self.val > 1:
            raise UsageError(
                f"train and val leave nothing for the test split: got {self.train} + {self.val}; use shares of at most 1 together"
            )
        for name, low, high in (("degree_spread", 0, 3), ("class_skew", 0, 10), ("classes", 1, 2**16), ("features", 0, 2**20)):
            if not low <= getattr(self, name) <= high:
                raise UsageError(f"{name} is out of range: got {getattr(self, name)}; use {low} to {high}")
        if self.communities is not None and not 1 <= self.communities <= 2**15:
            raise UsageError(f"communities is out of range: got {self.communities}; use 1 to {2**15}")
        if not 0 <= (self.popularity or 0) <= 10:
            raise UsageError(f"popularity is out of range: got {self.popularity}; use 0 to 10")

    def communities_for(self, n: int, degree: int) -> int:
        """Return K: `communities` if it is set, else the K for which n / (classes K) is about four times the degree."""
        quarter = 4 * self.classes * max(degree, 1)
        return self.communities or max(1, (n + quarter // 2) // quarter)


PRESETS: Mapping[str, BlockModel] = MappingProxyType({
    "products": BlockModel(),
    "reddit": BlockModel(
        classes=41, class_skew=0.55, degree_spread=1.3, homophily=0.88, communities=1, features=602, class_signal=3.3,
        community_signal=0.0, label_noise=0.045, train=0.66, val=0.10, popularity=None,
    ),
})  # fmt: skip
