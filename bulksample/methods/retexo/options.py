"""Options of RETEXO."""

from typing import ClassVar

from pydantic import Field

from ...config.options import Options


class RETEXOOptions(Options):
    """Options of training layer by layer."""

    group, title = "retexo", "Method retexo"
    methods: ClassVar[tuple[str, ...]] = ("retexo",)
    refine: int = Field(0, ge=0, lt=2**20, description="Rounds of the whole network after the last stage.")


class FederatedRETEXOOptions(Options):
    """Options of training layer by layer with many clients."""

    group, title = "retexo-federated", "Method retexo-federated"
    methods: ClassVar[tuple[str, ...]] = ("retexo-federated",)
    client_vertices: int = Field(1, ge=1, description="Largest number of vertices of a client.")
