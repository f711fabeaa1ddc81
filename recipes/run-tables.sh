#!/bin/sh
# Fill the paper's tables and figures on a machine with GPUs: one command a table, each can be stopped and started again.
#
#   recipes/run-tables.sh DATA [GPUS [NAME...]]
#   PROTOCOL=clean recipes/run-tables.sh DATA      # ours, instead of the authors' procedure (docs/reproduction.md)
#
# DATA has a folder for each benchmark: msrvtt, msvd, lsmdc, activitynet (docs/data.md). `centerclip report list --gpus N`
# prints the least hours of each table. Tables and figures come to reports/PROTOCOL, runs are kept in runs/reports.
set -eu

data=${1:?usage: run-tables.sh DATA [GPUS [NAME...]]}
gpus=${2:-8}
[ $# -ge 2 ] && shift 2 || shift 1
names=${*:-msrvtt-9k msrvtt-7k msvd lsmdc activitynet selection twice frames norm learning place clusters methods}
protocol=${PROTOCOL:-published}

centerclip doctor --benchmarks "$data" || {
    echo "Something is missing (see above); set ANYWAY=1 to run what is there." >&2
    [ "${ANYWAY:-}" ] || exit 1
}
centerclip report list --gpus "$gpus"
for name in $names; do
    echo "== $name, $protocol protocol"
    torchrun --nproc-per-node "$gpus" -m centerclip report run "$name" --root "$data" --protocol "$protocol" \
        --output "reports/$protocol"
done
