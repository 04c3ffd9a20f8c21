# shellcheck shell=bash
# Settings of all jobs of this folder. Every job reads this file first. Set them in the environment of sbatch:
#
#   BULKSAMPLE_GRAPH      graph in the store format, on a file system that all nodes see (required)
#   BULKSAMPLE_RESULTS    folder of results, logs and checkpoints. Default: ./results in the folder of submission
#   BULKSAMPLE_VENV       virtual environment to activate
#   BULKSAMPLE_MODULES    modules to load, separated by blanks
#   BULKSAMPLE_DEVICE     cuda, or cpu
#   BULKSAMPLE_LAUNCHER   torchrun (one a node, started by srun; needs no MPI), srun, or mpirun (of MPICH, inside the job). Default: auto,
#                         the first of these by which two ranks of each node meet
#   BULKSAMPLE_MPI        plug-in of srun for the MPI library: pmi2 for MPICH; srun --mpi=list shows all
#   BULKSAMPLE_START      seconds in which the ranks of auto must meet
#   BULKSAMPLE_OPTIONS    more options of `bulksample train`, separated by blanks. Options of the job override them
#   BULKSAMPLE_RESTARTS   how often a job may requeue itself
#   BULKSAMPLE_VIRTUAL_RANKS   the mini-batches of a training step. A job of any number of ranks up to it then goes on with the same run:
#                         submit it again with another --nodes to shrink or grow it
#   BULKSAMPLE_REPLICATION     values of c; plan: the one that `bulksample plan` chooses for this graph and these ranks
#   BULKSAMPLE_INTERFACE, BULKSAMPLE_HCA   network interface and InfiniBand adapters of NCCL (NCCL_SOCKET_IFNAME, NCCL_IB_HCA), if it
#                         finds others by itself

: "${BULKSAMPLE_GRAPH:?a graph in the store format}"
: "${BULKSAMPLE_RESULTS:=${SLURM_SUBMIT_DIR:-$PWD}/results}"
: "${BULKSAMPLE_DEVICE:=cuda}" "${BULKSAMPLE_LAUNCHER:=auto}" "${BULKSAMPLE_MPI:=pmi2}" "${BULKSAMPLE_OPTIONS:=}" "${BULKSAMPLE_RESTARTS:=20}"
: "${BULKSAMPLE_START:=120}" "${BULKSAMPLE_SLURM:=$SLURM_SUBMIT_DIR}"
export BULKSAMPLE_CODES="" # the file in which ranks of torchrun leave their exit codes

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
if ! getent hosts "$MASTER_ADDR" >/dev/null; then # a name that only SLURM knows
  address=$(scontrol show node "$MASTER_ADDR" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2 || true)
  MASTER_ADDR=${address:-$MASTER_ADDR}
fi
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-error} # hides messages about connections that close at the end

export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
if [ -n "${BULKSAMPLE_INTERFACE:-}" ]; then export NCCL_SOCKET_IFNAME=$BULKSAMPLE_INTERFACE; fi
if [ -n "${BULKSAMPLE_HCA:-}" ]; then export NCCL_IB_HCA=$BULKSAMPLE_HCA; fi

# start_by LAUNCHER RANKS_PER_NODE: set the command that starts {ranks} ranks. srun does not inherit all of these options from the job.
# The end of one rank ends all.
cpus=${SLURM_CPUS_PER_TASK:-1}
start_by() {
  local on_node=$2 bind=(--cpu-bind=cores --distribution=block:block)
  case $1 in
  srun) launcher=(srun --ntasks={ranks} --ntasks-per-node="$on_node" --cpus-per-task="$cpus" "${bind[@]}" --kill-on-bad-exit=1
    --mpi="$BULKSAMPLE_MPI") ;;
  mpirun) launcher=(mpirun -n {ranks} -ppn "$on_node") ;;
  torchrun)
    launcher=(srun --export=ALL,BULKSAMPLE_RANKS={ranks} --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$((per_node * cpus))"
      "${bind[@]}" --kill-on-bad-exit=1 --mpi=none "$BULKSAMPLE_SLURM/agent.sh" python -m torch.distributed.run
      --nnodes="$nodes" --nproc-per-node="$on_node" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID"
      --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --no-python "$BULKSAMPLE_SLURM/rank.sh") ;;
  *) echo "BULKSAMPLE_LAUNCHER must be auto, torchrun, srun or mpirun; got $1" >&2; exit 2 ;;
  esac
}

_MEET='from bulksample.distributed.comm.world import world
with world(60) as comm:
    comm.barrier()'

# preflight LAUNCHER: see whether up to two ranks of each node meet within BULKSAMPLE_START seconds, and say so.
preflight() {
  local few=$((per_node < 2 ? per_node : 2)) began=$SECONDS said
  start_by "$1" "$few"
  if said=$(timeout -k 10 "$BULKSAMPLE_START" "${launcher[@]//\{ranks\}/$((few * nodes))}" python -c "$_MEET" 2>&1); then
    echo "launcher $1: $few ranks on each of $nodes nodes met in $((SECONDS - began)) s"
  else
    echo "launcher $1: ranks did not meet: $(grep -v '^ *$' <<<"$said" | tail -n 1)"
    return 1
  fi
}

# launch: choose the launcher, once in a job.
launch() {
  local one
  if [ "$BULKSAMPLE_LAUNCHER" = auto ]; then
    for one in torchrun srun mpirun; do
      if preflight "$one"; then BULKSAMPLE_LAUNCHER=$one && break; fi
    done
    if [ "$BULKSAMPLE_LAUNCHER" = auto ]; then leave 142; fi
  fi
  start_by "$BULKSAMPLE_LAUNCHER" "$per_node"
}

# on_ranks WORDS...: start `bulksample WORDS` on all ranks.
on_ranks() {
  launch
  "${launcher[@]//\{ranks\}/$ranks}" python -m bulksample "$@"
}

# code_of_ranks: the code that counts of those that ranks left: of a failure, else 75, else the first.
code_of_ranks() {
  grep -m 1 -v -x -e 75 -e 137 -e 138 -e 142 -e 143 "$BULKSAMPLE_CODES" || grep -m 1 -x 75 "$BULKSAMPLE_CODES" || head -n 1 "$BULKSAMPLE_CODES"
}

# started WORDS...: the same, three times if ranks do not start in time (142).
started() {
  local code try
  for try in 1 2 3; do
    code=0
    rm -f "$BULKSAMPLE_CODES"
    on_ranks "$@" || code=$?
    if [ "$code" != 0 ] && [ -s "$BULKSAMPLE_CODES" ]; then code=$(code_of_ranks); fi # torchrun itself always ends with 1
    if [ "$code" != 142 ]; then break; fi
    echo "$(date +%FT%T) ranks did not start in time, attempt $try of 3" >&2
  done
  return "$code"
}

# measure NAME WORDS...: the same, and keep its JSON as the result NAME. Skip a result that exists.
measure() {
  local name=$1 code=0
  shift
  if [ -s "$results/$name.json" ]; then return; fi
  mkdir -p "$(dirname "$work/$name")" "$(dirname "$results/$name")"
  echo "$(date +%FT%T) $nodes nodes, $ranks ranks, restart ${SLURM_RESTART_COUNT:-0}: bulksample $*"
  BULKSAMPLE_CODES=$work/$name.codes
  started "$@" --overwrite --json "$work/$name.json" || code=$? # of a start before the requeue
  if [ "$code" != 0 ]; then leave "$code"; fi
  rm -f "$BULKSAMPLE_CODES"
  mv "$work/$name".*.yaml "$work/$name".json* "$(dirname "$results/$name")"
}

# of_run NAME: the name of a training. It names the ranks, unless a run goes on with others.
virtual=()
if [ -n "${BULKSAMPLE_VIRTUAL_RANKS:-}" ]; then virtual=(--virtual-ranks "$BULKSAMPLE_VIRTUAL_RANKS"); fi
of_run() {
  echo "$1-${BULKSAMPLE_VIRTUAL_RANKS:-$ranks}"
}

# planned_copies: the c that `bulksample plan` chooses for block rows of this graph on these ranks; 1 if every rank has room for all.
planned_copies() {
  python -m bulksample plan --from "$graph" --check none --ranks "$ranks" --json - 2>/dev/null | python -c '
import json, sys
chosen = [row for row in json.load(sys.stdin)["rows"] if row["chosen"]]
print(chosen[0]["replication"] if chosen and chosen[0]["replication"] < chosen[0]["ranks"] else 1)'
}

# copies_of DEFAULT: the values of c to measure.
copies_of() {
  if [ "${BULKSAMPLE_REPLICATION:-}" = plan ]; then planned_copies; else echo "${BULKSAMPLE_REPLICATION:-$1}"; fi
}

# train NAME OPTIONS...: the same for `bulksample train`, with the lines of its epochs, resumed from its newest checkpoint. The last two
# checkpoints, NAME.checkpoint, move to the results as well.
train() {
  local name=$1
  shift
  measure "$name" train "$graph" "${training[@]}" "${options[@]}" "$@" "${virtual[@]}" --metrics "$work/$name.jsonl" \
    --checkpoint "$work/$name.checkpoint" --resume auto
  if [ -d "$work/$name.checkpoint" ]; then # the trained weights, for `bulksample predict --checkpoint`
    rm -rf "$results/$name.checkpoint" # of a result that was removed to be measured again
    mv "$work/$name.checkpoint" "$results/$name.checkpoint"
  fi
}

# leave CODE: end the job. A job whose time is up, that was preempted, or that lost a rank is requeued; a cancelled job is not.
# Code 75: a signal led to a checkpoint, or a rank was lost. 137, 138, 143: a signal ended a command without a checkpoint, or a rank.
# 142: ranks did not start in time.
leave() {
  case $1 in
  75 | 137 | 138 | 142 | 143)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$BULKSAMPLE_RESTARTS" ] && scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
      echo "$(date +%FT%T) exit code $1: back into the queue"
      scontrol requeue "$SLURM_JOB_ID"
    fi ;;
  esac
  exit "$1"
}

# SLURM also signals this script when it preempts the job; the command it waits for ends by itself.
trap : TERM USR1
