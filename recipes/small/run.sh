#!/usr/bin/env bash
# The small model from beginning to end: bash recipes/small/run.sh WORK [--continue]
# Each step skips or resumes what is done, so it can be stopped at any moment. Hours of one core: 0.1 s a view, 0.9 s a step.
# WORK has to hold photos/ (with captions.jsonl.gz), dinov2.onnx, teacher.onnx and minilm/: see README.md.
# With --continue the towers start as those of the bundled model, and train on other sets of views (ORDER in photos.py).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)
python=${PYTHON:-python}
export OMP_NUM_THREADS=1
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

once() { # NAME COMMAND...: a step that is done when its file is there
  [ -e "$work/$1.done" ] || { "${@:2}" 2>&1 | tee -a "$work/$1.log"; touch "$work/$1.done"; }
}
cache() { # SETS...: two processes, a core each
  for worker in 0 1; do
    "$python" "$here/cache.py" "$work" --worker $worker --workers 2 --sets "$@" >>"$work/cache.log" 2>&1 & last[worker]=$!
  done
  wait "${last[0]}"; wait "${last[1]}"
}

[ -e "$work/init/model.safetensors" ] || "$python" "$here/parts.py" "$work/dinov2.onnx" "$work/minilm" "$work/init"
if [ "${2:-}" = --continue ]; then
  cache val-whole flickr-val-whole bare-0 train-1
  once restored "$python" "$here/restore.py" "$work"
  cache train-0 --tokens-only # the text tower needs no teacher
  init=init-restored text=text-0 steps=3500 cooldown=1900
else
  cache val-whole flickr-val-whole train-0 bare-0
  once text-1 "$python" "$here/text.py" "$work" --out text-1 --rate 5
  init=init text=text-1 steps=8000 cooldown=1000
fi
once vision "$python" "$here/vision.py" "$work" --init $init --text $text --keep 0.5 --cluster 0.3 --steps $steps --cooldown $cooldown
if [ $text = text-0 ]; then
  once blended "$python" "$here/blend.py" "$work"
  tower=vision-blended
else
  tower=vision
  once text "$python" "$here/text.py" "$work" --start $text --frozen 3 --pairs 512 --steps 350
  text=text
fi
once features "$python" "$here/vision.py" "$work" --init $init --text $text --start $tower --out written --write features
once text-2 "$python" "$here/text.py" "$work" --init $init --images features --start $text --out text-2 --frozen 3 --pairs 512 --steps 350
once assemble "$python" "$here/assemble.py" "$work" "$work/small" --init $init --vision $tower --text text-2 --squeeze
for split in val test flickr; do
  once "evaluate-$split" "$python" "$here/evaluate.py" "$work/photos" "$work/small" --split $split
done
