#!/bin/sh
# Stand-in for a job of two steps: "prepare" needs only CPUs, "train" needs a GPU.
# work.sh prepare train    both steps, one after the other
for step in "$@"; do
    case $step in
        prepare) seconds=${PREPARE_SECONDS:-4} ;;
        train) seconds=${TRAIN_SECONDS:-2} ;;
        *) echo "work.sh: unknown step $step (prepare, train)" >&2; exit 2 ;;
    esac
    echo "$step begins"
    sleep "$seconds"
    echo "$step ends"
done
