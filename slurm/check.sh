#!/bin/bash
# check.sh [accept] [run]: try the jobs of this folder on a SLURM cluster of simulated nodes on this machine (see onebox.sh).
#
#   accept   a controller of 32 nodes with 4 GPUs each accepts every job at its full size, 128 GPUs, and refuses one more node
#   run      every job runs to its end under slurmd, on CPUs, with a small graph, on 1 and 2 nodes of 2 ranks each, submitted by
#            submit.sh; then one job gets the signal that its time is up, is requeued, resumes, and ends with the same result
#
# Default: both. Files of the jobs are kept in BULKSAMPLE_CHECK, by default a new folder. Needs root, slurmctld, slurmd, munged, and a
# python with bulksample on the path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=${BULKSAMPLE_CHECK:-$(mktemp -d)}
mkdir -p "$place"
for name in slurmctld slurmd munged sbatch srun; do
  if ! command -v $name >/dev/null; then
    echo "$name is missing; use $here/onebox.sh install" >&2
    exit 2
  fi
done

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

box() { # box NODES COMMAND...: run something while a cluster of so many nodes is up
  local nodes=$1
  shift
  export ONEBOX=$place/box-$nodes
  rm -rf "$ONEBOX"
  trap '"$here/onebox.sh" down' EXIT
  "$here/onebox.sh" up "$nodes"
  eval "$("$here/onebox.sh" env)"
  "$@"
  "$here/onebox.sh" down
  trap - EXIT
}

accept() {
  local job said
  for job in "$here"/*.sbatch; do
    said=$(sbatch --test-only "$job" 2>&1) || fail "$job: $said"
    echo "accepted: $(basename "$job"): ${said#sbatch: }"
    case $job in
    */gather.sbatch) ;;
    *)
      case $said in *" 2048 processors on nodes sim[001-032] "*) ;; *) fail "$job does not take all 32 nodes: $said" ;; esac
      if sbatch --test-only --nodes=33 "$job" 2>/dev/null; then fail "$job was accepted on 33 nodes of 32"; fi
      ;;
    esac
  done
}

ended() { # wait until no job is left; fail where one of them did not complete
  local state limit=$((SECONDS + ${BULKSAMPLE_CHECK_SECONDS:-1800}))
  while [ -n "$(squeue -h)" ]; do
    if [ "$SECONDS" -gt "$limit" ]; then squeue && fail "jobs did not end in time"; fi
    sleep 1
  done
  for job in "$@"; do
    state=$(scontrol show job "$job" | grep -o 'JobState=[A-Z]*')
    if [ "$state" != JobState=COMPLETED ]; then
      tail -n 30 "$BULKSAMPLE_RESULTS"*/*-"$job".log "$BULKSAMPLE_RESULTS"*-"$job".log >&2 || true
      fail "job $job: $state"
    fi
  done
}

field() { # field NAME FILE: a value of a JSON object
  python -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$@"
}

run() {
  local jobs one two said
  python -m bulksample data make dcsbm --vertices 3000 --degree 12 --features 16 --classes 4 --seed 1 --overwrite -o "$place/graph" >/dev/null
  export BULKSAMPLE_GRAPH=$place/graph BULKSAMPLE_RESULTS=$place/results BULKSAMPLE_DEVICE=cpu BULKSAMPLE_SIZES="1 2"
  export BULKSAMPLE_FANOUTS=5,5 BULKSAMPLE_WIDTHS=64 BULKSAMPLE_BATCH=64 BULKSAMPLE_HIDDEN=16 BULKSAMPLE_EPOCHS=2 BULKSAMPLE_REPLICATION="1 2"
  export BULKSAMPLE_METHODS=sync,full BULKSAMPLE_REPEATS=1 BULKSAMPLE_OPTIONS="--threads 1"
  rm -rf "$BULKSAMPLE_RESULTS"
  said=$("$here/submit.sh" -- --ntasks-per-node=2 --cpus-per-task=1)
  echo "$said"
  mapfile -t jobs < <(cut -d' ' -f1 <<<"$said")
  ended "${jobs[@]}"
  for one in "$BULKSAMPLE_RESULTS"/sampling/*[a-z0-9]-2.json; do # an epoch is the same on two ranks and on four, and in block rows
    two=${one%-2.json}-4.json
    [ "$(field digest "$one")" = "$(field digest "$two")" ] || fail "$one and $two differ"
  done
  for one in "$BULKSAMPLE_RESULTS"/sampling/*-replicated-2.json; do
    two=${one/replicated/partitioned-c2}
    [ "$(field digest "$one")" = "$(field digest "$two")" ] || fail "$one and $two differ"
  done
  for one in "$BULKSAMPLE_RESULTS"/{sampling/{sage,ladies}-{replicated,partitioned-c1,partitioned-c2},train/{replicated,partitioned-c1,partitioned-c2}}-{2,4}.json; do
    [ -s "$one" ] || fail "there is no $one"
  done
  for one in "$BULKSAMPLE_RESULTS"/{compare-{2,4}/table.md,report.html,report.md,report.csv}; do [ -s "$one" ] || fail "there is no $one"; done
  ls "$BULKSAMPLE_RESULTS"/figures/*.png >/dev/null
  echo "ran: ${#jobs[@]} jobs, all completed"
  alone
  resumed
}

resumed() { # a training whose time is up goes on where it was, and ends as if nothing had been
  local job whole=$place/whole resumed=$place/resumed
  export BULKSAMPLE_EPOCHS=12 BULKSAMPLE_OPTIONS="--threads 1 --checkpoint-every 1" BULKSAMPLE_SLURM=$here
  rm -rf "$whole"* "$resumed"*
  BULKSAMPLE_RESULTS=$resumed job=$(one_training "$resumed")
  until ls -d "$resumed"-under-way/train/*.checkpoint/step-* >/dev/null 2>&1; do
    if [ -z "$(squeue -h -j "$job")" ]; then fail "job $job ended before its first checkpoint"; fi
    sleep 0.1
  done
  scancel --signal=USR1 "$job" # what --signal sends when the time is nearly up
  BULKSAMPLE_RESULTS=$resumed ended "$job"
  grep -q "back into the queue" "$resumed"-*.log || fail "job $job was not put back into the queue"
  BULKSAMPLE_RESULTS=$whole job=$(one_training "$whole")
  BULKSAMPLE_RESULTS=$whole ended "$job"
  [ "$(field resumed "$resumed/train/replicated-2.json")" = True ] || fail "the job did not resume"
  [ "$(field train_loss "$resumed/train/replicated-2.json")" = "$(field train_loss "$whole/train/replicated-2.json")" ] ||
    fail "the job that resumed ended with another loss"
  echo "resumed: after its signal a job went on, and ended with the loss of one that was left alone"
}

one_training() { # one_training NAME: submit one on two ranks, and say its number
  sbatch --parsable --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --output="$1-%j.log" "$here/train_replicated.sbatch"
}

alone() { # ranks that do not find each other say so, and do not train alone
  local said
  if said=$(srun --nodes=1 --ntasks=2 --mpi=none python -m bulksample sample "$place/graph" --fanouts 5,5 2>&1); then
    fail "two processes without MPI each sampled alone"
  fi
  case $said in *"2 ranks were started, but MPI sees one"*) echo "refused: srun --mpi=none" ;; *) fail "$said" ;; esac
}

if [ $# = 0 ]; then set -- accept run; fi
for part in "$@"; do
  case $part in
  accept) LIVE=0 box 32 accept ;;
  run) box 2 run ;;
  *) fail "there is no part $part; use accept or run" ;;
  esac
done
echo "what jobs wrote is in $place"
