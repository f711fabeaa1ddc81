#!/usr/bin/env bash
# The small model from beginning to end: bash recipes/small/run.sh WORK
# Each step skips or resumes what is done, so it can be stopped at any moment. About 3 hours of one core: 0.08 s a view, 0.8 s a step.
# WORK has to hold photos/ (with captions.jsonl.gz and sizes.json), dinov2.onnx, teacher.onnx and minilm/: see README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)
python=${PYTHON:-python}
export OMP_NUM_THREADS=1
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

[ -e "$work/init/model.safetensors" ] || "$python" "$here/parts.py" "$work/dinov2.onnx" "$work/minilm" "$work/init"

cache() { "$python" "$here/cache.py" "$work" "$@" >>"$work/cache.log" 2>&1; }
cache --sets val-whole train-0 --worker 0 --workers 2 & first=$!
cache --sets val-whole train-0 --worker 1 --workers 2 & second=$!
wait $first; wait $second

once() { # NAME COMMAND...: a step that is done when its file is there
  [ -e "$work/$1.done" ] || { "${@:2}" 2>&1 | tee -a "$work/$1.log"; touch "$work/$1.done"; }
}
once text-1 "$python" "$here/text.py" "$work" --out text-1 --rate 5
once vision "$python" "$here/vision.py" "$work" --text text-1 --keep 0.5 --cluster 0.3 --steps 4300 --cooldown 900
once text "$python" "$here/text.py" "$work" --start text-1 --frozen 3 --pairs 512 --steps 300
once features "$python" "$here/vision.py" "$work" --text text-1 --write features
once text-2 "$python" "$here/text.py" "$work" --images features --start text --out text-2 --frozen 3 --pairs 512 --steps 300
once assemble "$python" "$here/assemble.py" "$work" "$work/small" --text text-2 --squeeze
for split in val test flickr; do
  once "evaluate-$split" "$python" "$here/evaluate.py" "$work/photos" "$work/small" --split $split
done
