#!/bin/bash
# Several nodes under SLURM: one torchrun a node, one process a GPU, the same recipes and flags as on one machine.
#
#   sbatch --nodes=4 recipes/cluster/slurm.sh \
#       --config recipes/base.yaml --config recipes/algorithm/gapo.yaml --config recipes/cluster/fsdp2.yaml
#
# Submit it from the repository's folder, which all nodes must see under the same path, .venv included.
# On GPUs this has not been run yet: check the first lines of the log for the number of processes before leaving it alone.
#SBATCH --job-name=gapo-lit
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=slurm-%j.out
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?run this with sbatch}"
venv=${VENV:-$PWD/.venv}
processes=${PROCESSES_PER_NODE:-${SLURM_GPUS_ON_NODE:-8}}
# The first line, without a pipe: `head` would close it, and pipefail then ends the job whenever scontrol is the slower.
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_node=${nodes%%$'\n'*}
# Two jobs that share a node must not meet on one port.
port=$((20000 + SLURM_JOB_ID % 20000))

# Each node fills in its own rank, hence the inner shell; its "$@" are the recipe and flags given to sbatch.
# shellcheck disable=SC2016
exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c '
    venv=$1 nnodes=$2 processes=$3 head_node=$4 port=$5
    shift 5
    exec "$venv/bin/python" -m torch.distributed.run \
        --nnodes="$nnodes" --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
        --master-addr="$head_node" --master-port="$port" \
        --no-python "$venv/bin/gapo-lit" fit "$@" --trainer.num_nodes="$nnodes" --trainer.devices="$processes"
' node "$venv" "$SLURM_JOB_NUM_NODES" "$processes" "$head_node" "$port" "$@"
