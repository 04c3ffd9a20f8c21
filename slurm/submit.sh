#!/bin/bash
# submit.sh [EXPERIMENT...] [-- OPTIONS of sbatch]
#
# Submit experiments (sampling, train_replicated, train_partitioned, compare; default: all four) for every number of nodes, and a last
# job that gathers and plots the results. The jobs of an experiment run one after another; a failed job does not stop the next.
# BULKSAMPLE_SIZES sets the numbers of nodes, by default "1 2 4 8 16 32". env.sh lists all other settings.
#
#   BULKSAMPLE_GRAPH=/scratch/products slurm/submit.sh train_replicated train_partitioned -- --account=me --partition=gpu
#
# Prints the ids of the jobs, that of the last one at the end.
set -euo pipefail
BULKSAMPLE_SLURM=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${BULKSAMPLE_GRAPH:?a graph in the store format, on a file system that all nodes see}"
: "${BULKSAMPLE_RESULTS:=$PWD/results}"
export BULKSAMPLE_SLURM BULKSAMPLE_GRAPH BULKSAMPLE_RESULTS
read -r -a sizes <<<"${BULKSAMPLE_SIZES:-1 2 4 8 16 32}"

experiments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  experiments+=("$1")
  shift
done
if [ $# -gt 0 ]; then shift; fi
if [ ${#experiments[@]} = 0 ]; then experiments=(sampling train_replicated train_partitioned compare); fi
for experiment in "${experiments[@]}"; do
  if [ ! -f "$BULKSAMPLE_SLURM/$experiment.sbatch" ]; then
    echo "there is no experiment $experiment; use sampling, train_replicated, train_partitioned or compare" >&2
    exit 2
  fi
done

mkdir -p "$BULKSAMPLE_RESULTS"
logs=(--output="$BULKSAMPLE_RESULTS/%x-%j.log")
all=()
for experiment in "${experiments[@]}"; do
  before=()
  for nodes in "${sizes[@]}"; do
    job=$(sbatch --parsable --nodes="$nodes" "${before[@]}" "${logs[@]}" "$@" "$BULKSAMPLE_SLURM/$experiment.sbatch")
    job=${job%%;*} # in a federation the name of the cluster follows
    echo "$job $experiment on $nodes nodes"
    before=(--dependency="afterany:$job") all+=("$job")
  done
done
last=$(IFS=:; sbatch --parsable --dependency="afterany:${all[*]}" "${logs[@]}" "$@" "$BULKSAMPLE_SLURM/gather.sbatch")
echo "${last%%;*} gather"
