"""Options of AdaQP."""

from typing import ClassVar, Literal

from pydantic import Field

from ...config.options import Options


class AdaQPOptions(Options):
    """Options of messages of few bits."""

    group, title = "adaqp", "Method adaqp"
    methods: ClassVar[tuple[str, ...]] = ("adaqp",)
    bits: Literal["2", "4", "8", "16", "32", "uniform", "random", "adaptive"] = Field(
        "adaptive", description="Bits of a number in a message; uniform, random and adaptive choose among 2, 4 and 8.",
    )  # fmt: skip
    reassign_every: int = Field(20, ge=2, description="Epochs between two choices of bits.")
    variance_weight: float = Field(0.5, ge=0, le=1, description="Weight of noise against time in the choice of bits.")
    noise_weights: Literal["sum_of_squares", "squared_sum"] = Field(
        "sum_of_squares", description="Noise that a message adds: the variance (sum_of_squares), or as published (squared_sum).",
    )  # fmt: skip
    links: str = Field("even", description="Speed of links: even, measured, or a JSON file with theta and gamma of each pair of ranks.")
    message_header: Literal["bf16", "fp32"] = Field("bf16", description="Type of the scale and the offset of a message.")
    message_rounding: Literal["stochastic", "nearest"] = Field("stochastic", description="Rounding of numbers in a message.")
    message_coding: Literal["plain", "difference", "feedback"] = Field(
        "plain", description="What is rounded: rows, their change since the last message, or rows plus the last error.",
    )  # fmt: skip
