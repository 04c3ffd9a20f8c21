#!/bin/bash
# check.sh [accept] [run]: try the jobs of this folder on a SLURM cluster of simulated nodes on this machine (see onebox.sh).
#
#   accept   a controller of 32 nodes with 4 GPUs each takes every job at its full size, 128 GPUs, and refuses a node more
#   run      every job runs to its end under slurmd, on the processor, with a small graph, on 1 and 2 nodes of 2 ranks each, chained
#            by submit.sh; then one is told that its time is up, goes back into the queue, resumes, and ends where the others did
#
# Both, unless one is named. What jobs wrote is kept in BULKSAMPLE_CHECK, a new folder unless given. Needs root, slurmctld, slurmd,
# munged, and a python on the path that has bulksample.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=${BULKSAMPLE_CHECK:-$(mktemp -d)}
mkdir -p "$place"
for name in slurmctld slurmd munged sbatch srun; do
  if ! command -v $name >/dev/null; then
    echo "there is no $name here; '$here/onebox.sh install' would fit" >&2
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
  local state limit=$((SECONDS + ${BULKSAMPLE_CHECK_SECONDS:-900}))
  while [ -n "$(squeue -h)" ]; do
    if [ "$SECONDS" -gt "$limit" ]; then squeue && fail "jobs did not end in time"; fi
    sleep 1
  done
  for job in "$@"; do
    state=$(scontrol show job "$job" | grep -o 'JobState=[A-Z]*')
    if [ "$state" != JobState=COMPLETED ]; then
      tail -n 30 "$BULKSAMPLE_RESULTS"/*-"$job".log >&2
      fail "job $job: $state"
    fi
  done
}

field() { # field NAME FILE: a value of a JSON object
  python -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$@"
}

run() {
  local jobs one two
  python -m bulksample data make dcsbm --vertices 3000 --degree 12 --features 16 --classes 4 --seed 1 --overwrite -o "$place/graph" >/dev/null
  export BULKSAMPLE_GRAPH=$place/graph BULKSAMPLE_RESULTS=$place/results BULKSAMPLE_DEVICE=cpu BULKSAMPLE_SIZES="1 2"
  export BULKSAMPLE_FANOUTS=5,5 BULKSAMPLE_WIDTHS=64 BULKSAMPLE_BATCH=64 BULKSAMPLE_HIDDEN=16 BULKSAMPLE_EPOCHS=2 BULKSAMPLE_REPLICATION="1 2"
  export BULKSAMPLE_METHODS=sync,full BULKSAMPLE_REPEATS=1 BULKSAMPLE_OPTIONS="--threads 1"
  rm -rf "$BULKSAMPLE_RESULTS"
  mapfile -t jobs < <("$here/submit.sh" "$@" -- --ntasks-per-node=2 --cpus-per-task=1 | tee /dev/stderr | cut -d' ' -f1)
  ended "${jobs[@]}"
  for one in "$BULKSAMPLE_RESULTS"/sampling/*-2.json; do # an epoch is the same on two ranks and on four, and in block rows
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
  resumed
}

resumed() { # a training whose time is up goes on where it was, and ends as if nothing had been
  local job before
  before=$(field train_loss "$BULKSAMPLE_RESULTS/train/replicated-4.json")
  export BULKSAMPLE_EPOCHS=2 BULKSAMPLE_RESULTS=$place/resumed BULKSAMPLE_SLURM=$here BULKSAMPLE_OPTIONS="--threads 1 --checkpoint-every 1"
  rm -rf "$BULKSAMPLE_RESULTS" && mkdir -p "$BULKSAMPLE_RESULTS"
  job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$BULKSAMPLE_RESULTS/%x-%j.log" "$here/train_replicated.sbatch")
  until ls -d "$BULKSAMPLE_RESULTS"/train/*.checkpoint/step-* >/dev/null 2>&1; do
    [ -n "$(squeue -h -j "$job")" ] || fail "job $job ended before its first checkpoint"
    sleep 0.1
  done
  scancel --signal=USR1 "$job" # what --signal sends when the time is nearly up
  ended "$job"
  grep -q "back into the queue" "$BULKSAMPLE_RESULTS"/*-"$job".log || fail "job $job was not put back into the queue"
  [ "$(field resumed "$BULKSAMPLE_RESULTS/train/replicated-4.json")" = True ] || fail "job $job did not resume"
  [ "$(field train_loss "$BULKSAMPLE_RESULTS/train/replicated-4.json")" = "$before" ] || fail "job $job ended with another loss"
  echo "resumed: job $job after its signal, with the loss of the run that was left alone"
}

if [ $# = 0 ]; then set -- accept run; fi
for part in "$@"; do
  case $part in
  accept) LIVE=0 box 32 accept ;;
  run) box 2 run ;;
  *) fail "there is no part $part; accept and run would fit" ;;
  esac
done
echo "what jobs wrote is in $place"
