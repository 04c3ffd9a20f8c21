#!/bin/bash
# onebox.sh: a SLURM cluster of simulated nodes on this machine, to try jobs before submission. Needs root, but no systemd, no
# control groups and no database: every node is a slurmd with its own port, and its GPUs are null devices.
#
#   onebox.sh install         install SLURM from the packages of Debian
#   onebox.sh up [NODES]      start NODES nodes (default 4) in the partition 'gpu'; GPUS, CPUS and MEM_MB set the resources of each. With
#                             LIVE=0 no slurmd runs and nodes count as powered off, which is enough for sbatch --test-only
#   eval "$(onebox.sh env)"   point sbatch, srun and sinfo at it
#   onebox.sh down            end the daemons that `up` started, by their process ids
set -euo pipefail
box=${ONEBOX:-${TMPDIR:-/tmp}/onebox}
: "${GPUS:=4}" "${CPUS:=64}" "${MEM_MB:=256000}" "${LIVE:=1}" "${FIRST_PORT:=16817}"

configure() {
  local count=$1 host nodes where
  if [ ${#box} -gt 68 ]; then
    echo "onebox.sh: the path of the sockets, $box, has ${#box} characters; use an ONEBOX of at most 68" >&2
    exit 2
  fi
  host=$(hostname -s)
  nodes="sim[001-$(printf %03d "$count")]"
  where=State=CLOUD
  if [ "$LIVE" = 1 ]; then
    where="NodeHostname=$host NodeAddr=127.0.0.1 Port=$((FIRST_PORT + 1))-$((FIRST_PORT + count)) State=UNKNOWN"
  fi
  mkdir -p "$box"/{state,spool,log,run,dev}
  for ((g = 0; g < GPUS; g++)); do
    if [ ! -e "$box/dev/gpu$g" ]; then mknod "$box/dev/gpu$g" c 1 3; fi
  done
  printf 'AutoDetect=off\nNodeName=%s Name=gpu File=%s/dev/gpu[0-%d]\n' "$nodes" "$box" $((GPUS - 1)) >"$box/gres.conf"
  cat >"$box/slurm.conf" <<END
ClusterName=onebox
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$FIRST_PORT
# seconds before a requeued job may start
AuthInfo=socket=$box/run/munge.sock,cred_expire=5
SlurmUser=root
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/spool/%n
SlurmctldPidFile=$box/run/slurmctld.pid
SlurmdPidFile=$box/run/slurmd.%n.pid
SlurmctldLogFile=$box/log/slurmctld.log
SlurmdLogFile=$box/log/slurmd.%n.log
# settings for a bare machine: no control groups, no raised limits, no accounting
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# schedule often, and remember ended jobs
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
MinJobAge=7200
# without this, jobs with too long a time limit are accepted
EnforcePartLimits=ALL
GresTypes=gpu
# trust this file, not the hardware
SlurmdParameters=config_overrides
# without this, powered-off nodes are not eligible
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
PrivateData=cloud
NodeName=$nodes CPUs=$CPUS RealMemory=$MEM_MB Gres=gpu:$GPUS $where
PartitionName=gpu Nodes=$nodes Default=YES MaxTime=24:00:00 State=UP
END
}

start() {
  local count=$1
  if [ ! -s "$box/munge.key" ]; then (umask 077 && head -c 128 /dev/urandom >"$box/munge.key"); fi
  munged --force --key-file="$box/munge.key" --socket="$box/run/munge.sock" --pid-file="$box/run/munged.pid" \
    --log-file="$box/log/munged.log" --seed-file="$box/run/munge.seed"
  export SLURM_CONF=$box/slurm.conf
  slurmctld -c
  if [ "$LIVE" = 1 ]; then
    for ((i = 1; i <= count; i++)); do slurmd -N "sim$(printf %03d "$i")"; done
  fi
  for _ in $(seq 300); do
    if [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -eq "$count" ]; then return; fi
    sleep 0.1
  done
  sinfo -N || true
  echo "not all nodes came up; $box/log says why" >&2
  return 1
}

case ${1:-} in
install) DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge libpmi2-0 ;;
up)
  configure "${2:-4}"
  start "${2:-4}"
  ;;
env) echo "export SLURM_CONF=$box/slurm.conf" ;;
down)
  for file in "$box"/run/slurmd.*.pid "$box/run/slurmctld.pid" "$box/run/munged.pid"; do
    if [ -s "$file" ]; then kill "$(cat "$file")" 2>/dev/null || true; fi
  done
  ;;
*)
  sed -n '2,11p' "$0"
  exit 2
  ;;
esac
