#!/bin/bash
# rank.sh COMMAND...: run one rank of torchrun, and leave its exit code in the file BULKSAMPLE_CODES, because torchrun exits with 1
# whatever happened. SIGUSR1, which agent.sh ignores, is for the rank alone: SLURM sends it to every process. SIGTERM is passed on.
set -euo pipefail
trap '' USR1
child='' stopped='' signalled=1
trap 'signalled=1 stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true' TERM INT
python -c 'import os, signal, sys
signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # a shell cannot undo that a signal is ignored
os.execvp(sys.argv[1], sys.argv[1:])' "$@" &
child=$!
if [ -n "$stopped" ]; then kill -TERM "$child" 2>/dev/null || true; fi  # a signal came before the rank had a number
while [ "$signalled" = 1 ]; do  # a signal ends a wait with a code of its own; that of the rank comes with the next one
  signalled=0 code=0
  wait "$child" || code=$?
done
if [ "$code" != 0 ] && [ -n "${BULKSAMPLE_CODES:-}" ]; then echo "$code" >>"$BULKSAMPLE_CODES"; fi
exit "$code"
