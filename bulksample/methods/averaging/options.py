"""Options of model averaging: of all its methods, of SuperTMA and of LLCG."""

from typing import ClassVar, Literal

from pydantic import Field

from ...config.options import Options

AVERAGING = ("random-tma", "super-tma", "psgd-pa", "llcg")  # methods that average the weights of trainers
_ELASTIC = ("trainers", "listen", "grace", "redivide_after", "max_update")  # options of trainers that may fail


class AveragingOptions(Options):
    """Options of trainers on parts, whose weights are averaged."""

    group, title = "averaging", f"Methods {', '.join(AVERAGING)}"
    methods: ClassVar[tuple[str, ...]] = AVERAGING
    free: ClassVar[tuple[str, ...]] = ("listen", "join", "token_file", "grace", "redivide_after", "max_update")
    interval: str = Field(
        "epoch", pattern=r"^(epoch|[1-9][0-9]*|[0-9]+(\.[0-9]+)?s)$",
        description="Interval between averages: epoch, a number of steps, or seconds such as 2s.",
    )  # fmt: skip
    interval_growth: float = Field(1.0, ge=1, description="Length of each interval over the one before.")
    average_by: Literal["responders", "steps", "vertices"] = Field(
        "responders", description="Weight of a trainer in an average: 1 (responders), its steps, or its vertices.",
    )  # fmt: skip
    lost_parts: int = Field(0, ge=0, description="Number of parts without a trainer, to measure what losing them costs.")
    tolerate_failures: bool = Field(False, description="Trainers are separate processes and may die, be late or join.")
    trainers: int = Field(3, ge=1, description="Number of trainers beside the server, with --tolerate-failures.")
    listen: str = Field("127.0.0.1:0", description="HOST:PORT for trainers; port 0 starts trainers on this machine.")
    join: str | None = Field(None, description="Be a trainer of the run that listens at HOST:PORT, with its options.")
    token_file: str | None = Field(
        None, description="File of mode 600 with the token of the run, for --listen and --join; BULKSAMPLE_TOKEN by default.",
    )  # fmt: skip
    max_update: float = Field(
        1000.0, gt=0, description="Norm of a trainer's update, in norms of the weights it was given, above which the server refuses it.",
    )  # fmt: skip
    grace: float | None = Field(None, gt=0, description="Seconds to wait for late trainers; by default 5, or 3 slow steps if longer.")
    redivide_after: float | None = Field(
        None, ge=0, description="Seconds after which the part of a lost trainer is divided among the others; never by default.",
    )  # fmt: skip

    def check_together(self) -> None:
        if self.interval.endswith("s") and not self.tolerate_failures:
            raise ValueError(f"an interval in seconds needs tolerate_failures; got {self.interval!r}: use a number of steps")
        elastic = [name for name in _ELASTIC if getattr(self, name) != type(self).model_fields[name].default]
        if elastic and not self.tolerate_failures:
            raise ValueError(f"{elastic[0]} is for trainers that may fail; use tolerate_failures")
        if self.token_file and not (self.tolerate_failures or self.join):
            raise ValueError(f"token_file is for trainers that may fail; got {self.token_file}: use tolerate_failures, or join='HOST:PORT'")
        if self.tolerate_failures and self.average_by == "steps" and self.interval.endswith("s"):
            raise ValueError(
                f"a server cannot know the steps of an interval in seconds; got average_by steps with interval {self.interval}: "
                "use responders or vertices, or a number of steps"
            )
        if self.tolerate_failures and self.interval_growth != 1:
            raise ValueError(f"intervals grow only if trainers are ranks of a job; got interval_growth {self.interval_growth}: use 1")


class SuperTMAOptions(Options):
    """Options of parts made of random clusters."""

    group, title = "super-tma", "Method super-tma"
    methods: ClassVar[tuple[str, ...]] = ("super-tma",)
    clusters: int | None = Field(None, ge=1, description="Number of clusters of all parts together; by default 16 for each part.")


class LLCGOptions(Options):
    """Options of a server that corrects averages."""

    group, title = "llcg", "Method llcg"
    methods: ClassVar[tuple[str, ...]] = ("llcg",)
    server_steps: int = Field(1, ge=0, description="Steps on the whole graph after every average.")
    server_lr: float | None = Field(None, gt=0, description="Learning rate of these steps; --lr by default.")
