"""Options of BNS."""

from typing import ClassVar

from pydantic import Field

from ...config.options import Options


class BNSOptions(Options):
    """Options of boundary-node sampling."""

    group, title = "bns", "Method bns"
    methods: ClassVar[tuple[str, ...]] = ("bns",)
    boundary_share: float = Field(0.1, gt=0, le=1, description="The probability with which a halo row travels.")
