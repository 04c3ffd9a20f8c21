# shellcheck shell=bash
# What all jobs of this folder share; they read it first. All of it can be set in the environment of sbatch:
#
#   BULKSAMPLE_GRAPH      a graph in the store format, on a file system that all nodes see (required)
#   BULKSAMPLE_RESULTS    where results, logs and checkpoints go; ./results of the folder of submission unless given
#   BULKSAMPLE_VENV       a virtual environment to activate
#   BULKSAMPLE_MODULES    modules to load, joined by blanks
#   BULKSAMPLE_DEVICE     cuda, or cpu
#   BULKSAMPLE_LAUNCHER   srun, mpirun (MPICH's, inside the job) or torchrun (once a node, by srun; needs no MPI)
#   BULKSAMPLE_MPI        the plug-in of srun that the MPI library speaks: pmi2 for MPICH, see srun --mpi=list
#   BULKSAMPLE_OPTIONS    more options of `bulksample train`, joined by blanks; they go before those of the job
#   BULKSAMPLE_RESTARTS   how often a job may put itself back into the queue

: "${BULKSAMPLE_GRAPH:?a graph in the store format}"
: "${BULKSAMPLE_RESULTS:=${SLURM_SUBMIT_DIR:-$PWD}/results}"
: "${BULKSAMPLE_DEVICE:=cuda}" "${BULKSAMPLE_LAUNCHER:=srun}" "${BULKSAMPLE_MPI:=pmi2}" "${BULKSAMPLE_OPTIONS:=}" "${BULKSAMPLE_RESTARTS:=20}"

if [ -n "${BULKSAMPLE_MODULES:-}" ]; then
  # shellcheck disable=SC2086  # a list of words
  module load $BULKSAMPLE_MODULES
fi
if [ -n "${BULKSAMPLE_VENV:-}" ]; then . "$BULKSAMPLE_VENV/bin/activate"; fi

graph=$BULKSAMPLE_GRAPH results=$BULKSAMPLE_RESULTS
work=$results-under-way # what is not finished: a result is there when it is whole
mkdir -p "$results" "$work"
read -r -a options <<<"$BULKSAMPLE_OPTIONS"
nodes=$SLURM_JOB_NUM_NODES ranks=$SLURM_NTASKS
per_node=$((ranks / nodes))

# Every rank sees the four GPUs of its node and takes the one of its SLURM_LOCALID.
if [ "$BULKSAMPLE_DEVICE" = cpu ]; then sampling=(--backend auto) training=(--backend auto --device cpu)
else sampling=(--backend cuda) training=(--backend cuda --device cuda); fi

# Where ranks meet that MPI does not bring together: the first node, at a port of this job's own.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error} # farewells that nobody waited for are no news

# The words that start {ranks} ranks. srun does not take all of this from the job by itself; the end of one rank ends all.
cpus=${SLURM_CPUS_PER_TASK:-1}
case $BULKSAMPLE_LAUNCHER in
srun) launcher=(srun --ntasks={ranks} --ntasks-per-node="$per_node" --cpus-per-task="$cpus" --kill-on-bad-exit=1 --mpi="$BULKSAMPLE_MPI") ;;
mpirun) launcher=(mpirun -n {ranks} -ppn "$per_node") ;;
torchrun)
  launcher=(srun --export=ALL,BULKSAMPLE_RANKS={ranks} --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$((per_node * cpus))"
    --kill-on-bad-exit=1 python -m torch.distributed.run --nnodes="$nodes" --nproc-per-node="$per_node" --rdzv-backend=c10d
    --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --no-python) ;;
*) echo "BULKSAMPLE_LAUNCHER must be srun, mpirun or torchrun; got $BULKSAMPLE_LAUNCHER" >&2; exit 2 ;;
esac

# on_ranks WORDS...: start `bulksample WORDS` on all ranks.
on_ranks() {
  "${launcher[@]//\{ranks\}/$ranks}" python -m bulksample "$@"
}

# measure NAME WORDS...: the same, and keep its JSON as the result NAME; what is there already is not measured again.
measure() {
  local name=$1 code=0
  shift
  if [ -s "$results/$name.json" ]; then return; fi
  mkdir -p "$(dirname "$work/$name")" "$(dirname "$results/$name")"
  echo "$(date +%FT%T) $nodes nodes, $ranks ranks, restart ${SLURM_RESTART_COUNT:-0}: bulksample $*"
  on_ranks "$@" --json "$work/$name.json" || code=$?
  if [ "$code" != 0 ]; then leave "$code"; fi
  mv "$work/$name".*.yaml "$work/$name".json* "$(dirname "$results/$name")"
}

# train NAME OPTIONS...: the same for `bulksample train`, with the lines of its epochs, and from its newest checkpoint on.
train() {
  local name=$1
  shift
  measure "$name" train "$graph" "${training[@]}" "${options[@]}" "$@" --quiet --metrics "$work/$name.jsonl" \
    --checkpoint "$work/$name.checkpoint" --resume auto
  rm -rf "$work/$name.checkpoint"
}

# leave CODE: end the job. Where its time was up, it was preempted, or a rank was lost, it goes back into the queue, and on from there;
# not where somebody cancelled it. 75: a checkpoint was written for a signal, or a rank was lost; else a signal ended what has no checkpoint, or a rank of it.
leave() {
  case $1 in
  75 | 137 | 138 | 143)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$BULKSAMPLE_RESTARTS" ] && scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
      echo "$(date +%FT%T) exit code $1: back into the queue"
      scontrol requeue "$SLURM_JOB_ID"
    fi ;;
  esac
  exit "$1"
}

# SLURM also signals this script when a job is preempted; what it waits for then ends by itself.
trap : TERM USR1
