#!/bin/sh
# A Slurm cluster of one node on this machine, for tests: `slurm.sh start FOLDER`, `slurm.sh stop FOLDER`.
# Needs root, and Debian's packages slurm-wlm and munge. Its daemons listen on this machine only.
set -eu
command=$1 folder=$2 host=$(hostname -s)
export SLURM_CONF="$folder/slurm.conf"
started() { for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; return 1; }
case $command in
start)
  mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
  chmod 755 "$folder"
  dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 2>/dev/null
  chmod 400 "$folder/munge/key"
  chmod 755 "$folder/munge"
  cat > "$SLURM_CONF" <<END
ClusterName=loop
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=10
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort=26817
SlurmdPort=26818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
KillWait=5
MinJobAge=10
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
  munged --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --force
  slurmctld
  slurmd
  started sh -c 'sinfo -h -o %T | grep -q idle'
  ;;
stop)
  scancel --user=root >/dev/null 2>&1 || true
  started sh -c 'test -z "$(squeue --noheader)"' || true
  for one in slurmd.pid slurmctld.pid munge/pid; do
    [ ! -s "$folder/$one" ] || kill -9 "$(cat "$folder/$one")" 2>/dev/null || true
  done
  ;;
esac
