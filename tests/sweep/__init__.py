"""Reliability sweeps: sections of numbered cases, and the frame that runs, keeps and summarizes them."""

SECTIONS = {
    "files": "sweep.files", "resume": "sweep.resume", "faults": "sweep.rank_faults", "disk": "sweep.disk", "memory": "sweep.memory",
    "allocations": "sweep.allocations", "sanitizers": "sweep.sanitizers",
    "coverage": "sweep.branches", "mutants": "sweep.mutants",
    "fuzz": "sweep.fuzz", "soak": "sweep.soak",
}  # fmt: skip
