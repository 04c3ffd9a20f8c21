#!/bin/bash
# agent.sh COMMAND...: run torchrun on one node. SLURM sends SIGUSR1 to torchrun and to its ranks alike: torchrun ignores it, and the
# ranks, which have a handler of their own, save a checkpoint.
set -euo pipefail
trap '' USR1
exec "$@"
