#!/bin/bash
# submit.sh [EXPERIMENT...] [-- OPTIONS of sbatch]
#
# Submit experiments (sampling, train_replicated, train_partitioned, compare; all four unless named) for every size, and a last job
# that gathers and plots. The sizes of an experiment wait for each other, so that at most one of them is in the machine; a size that
# failed holds nobody up. BULKSAMPLE_SIZES says how many nodes, "1 2 4 8 16 32" unless given; env.sh, what else can be set.
#
#   BULKSAMPLE_GRAPH=/scratch/products slurm/submit.sh train_replicated train_partitioned -- --account=me --partition=gpu
#
# Prints the numbers of the jobs, that of the last one at the end.
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
    echo "there is no experiment $experiment; sampling, train_replicated, train_partitioned and compare would fit" >&2
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
    job=${job%%;*} # on a federation the cluster's name follows
    echo "$job $experiment on $nodes nodes"
    before=(--dependency="afterany:$job") all+=("$job")
  done
done
last=$(IFS=:; sbatch --parsable --dependency="afterany:${all[*]}" "${logs[@]}" "$@" "$BULKSAMPLE_SLURM/gather.sbatch")
echo "${last%%;*} gather"
