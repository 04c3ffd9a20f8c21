# shellcheck shell=bash
# Settings of all jobs of this folder. Every job reads this file first. Set them in the environment of sbatch:
#
#   BULKSAMPLE_GRAPH      graph in the store format, on a file system that all nodes see (required)
#   BULKSAMPLE_RESULTS    folder of results, logs and checkpoints. Default: ./results in the folder of submission
#   BULKSAMPLE_VENV       virtual environment to activate
#   BULKSAMPLE_MODULES    modules to load, separated by blanks
#   BULKSAMPLE_DEVICE     cuda, or cpu
#   BULKSAMPLE_LAUNCHER   srun, mpirun (of MPICH, inside the job) or torchrun (one a node, started by srun; needs no MPI)
#   BULKSAMPLE_MPI        plug-in of srun for the MPI library: pmi2 for MPICH; srun --mpi=list shows all
#   BULKSAMPLE_OPTIONS    more options of `bulksample train`, separated by blanks. Options of the job override them
#   BULKSAMPLE_RESTARTS   how often a job may requeue itself

: "${BULKSAMPLE_GRAPH:?a graph in the store format}"
: "${BULKSAMPLE_RESULTS:=${SLURM_SUBMIT_DIR:-$PWD}/results}"
: "${BULKSAMPLE_DEVICE:=cuda}" "${BULKSAMPLE_LAUNCHER:=srun}" "${BULKSAMPLE_MPI:=pmi2}" "${BULKSAMPLE_OPTIONS:=}" "${BULKSAMPLE_RESTARTS:=20}"

if [ -n "${BULKSAMPLE_MODULES:-}" ]; then
  # shellcheck disable=SC2086  # a list of words
  module load $BULKSAMPLE_MODULES
fi
if [ -n "${BULKSAMPLE_VENV:-}" ]; then . "$BULKSAMPLE_VENV/bin/activate"; fi

graph=$BULKSAMPLE_GRAPH results=$BULKSAMPLE_RESULTS
work=$results-under-way # unfinished files; a finished result moves to $results
mkdir -p "$results" "$work"
read -r -a options <<<"$BULKSAMPLE_OPTIONS"
nodes=$SLURM_JOB_NUM_NODES ranks=$SLURM_NTASKS
per_node=$((ranks / nodes))

# Every rank sees all GPUs of its node and uses the one with the number SLURM_LOCALID.
if [ "$BULKSAMPLE_DEVICE" = cpu ]; then sampling=(--backend auto) training=(--backend auto --device cpu)
else sampling=(--backend cuda) training=(--backend cuda --device cuda); fi
sampling+=(--check full) training+=(--check full) # the ranks hash every file of the graph once for each command

# The address at which ranks without MPI meet: the first node, at a port of its own for each job.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error} # hides messages about connections that close at the end

# The command that starts {ranks} ranks. srun does not inherit all of these options from the job. The end of one rank ends all.
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

# measure NAME WORDS...: the same, and keep its JSON as the result NAME. Skip a result that exists.
measure() {
  local name=$1 code=0
  shift
  if [ -s "$results/$name.json" ]; then return; fi
  mkdir -p "$(dirname "$work/$name")" "$(dirname "$results/$name")"
  echo "$(date +%FT%T) $nodes nodes, $ranks ranks, restart ${SLURM_RESTART_COUNT:-0}: bulksample $*"
  on_ranks "$@" --overwrite --json "$work/$name.json" || code=$? # of a start before the requeue
  if [ "$code" != 0 ]; then leave "$code"; fi
  mv "$work/$name".*.yaml "$work/$name".json* "$(dirname "$results/$name")"
}

# train NAME OPTIONS...: the same for `bulksample train`, with the lines of its epochs, resumed from its newest checkpoint.
train() {
  local name=$1
  shift
  measure "$name" train "$graph" "${training[@]}" "${options[@]}" "$@" --quiet --metrics "$work/$name.jsonl" \
    --checkpoint "$work/$name.checkpoint" --resume auto
  rm -rf "$work/$name.checkpoint"
}

# leave CODE: end the job. A job whose time is up, that was preempted, or that lost a rank is requeued; a cancelled job is not.
# Code 75: a signal led to a checkpoint, or a rank was lost. 137, 138, 143: a signal ended a command without a checkpoint, or a rank.
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

# SLURM also signals this script when it preempts the job; the command it waits for ends by itself.
trap : TERM USR1
