#!/usr/bin/env bash
# Builds the real Kubernetes parts that the tests run against, once, into a cache folder outside the
# checkout, and prints the folder. `build.sh --volcano` also builds Volcano's scheduler, which some tests use where it
# is there; `build.sh --peers` that, KAI's scheduler and binder, Kueue and kube-scheduler with the coscheduling plug-in:
# the schedulers that `benchmarks/live_peers.py` compares with Windlass. `build.sh --where` prints the folder without building;
# `build.sh --late` prints the markers of the tests that have to wait for a build, if anything is missing and can be
# built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export HOME=${HOME:-~}
out=${WINDLASS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools}/bin
if [ "${1:-}" = --where ]; then echo "$out"; exit; fi
if [ "${1:-}" = --late ]; then
  command -v go >/dev/null || exit 0
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler helm kwok; do
    [ -x "$out/$name" ] || { echo real; break; }
  done
  command -v kubectl >/dev/null || [ -x "$out/kubectl" ] || echo kubectl
  exit
fi
mkdir -p "$out"
trap 'rm -f "$out"/*.$$' EXIT
export CGO_ENABLED=0
version=v1.36.3
ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36 \
-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36"

build() { # NAME MODULE-FOLDER PACKAGE
  [ -x "$out/$1" ] && return 0
  echo "building $1 (once)" >&2
  go_build "$here/$2" -ldflags "$ldflags" -o "$out/$1.$$" "$3"
  mv "$out/$1.$$" "$out/$1"
}

go_build() { # FOLDER ARGUMENTS; a proxy of modules that fails once is asked again
  local pause
  for pause in 10 30 0; do
    (cd "$1" && go build "${@:2}") >&2 && return
    sleep $pause
  done
  return 1
}

build_volcano() {
  # The newest volcano.sh/apis that every module proxy has is 1.14.0; it lacks one constant of 1.15.
  [ -x "$out/volcano-scheduler" ] && return 0
  echo "building volcano-scheduler (once)" >&2
  local work apis
  work=$(mktemp -d)
  apis=$(cd "$here/volcano" && go mod download volcano.sh/apis@v1.14.0 >&2 && go list -m -f '{{.Dir}}' volcano.sh/apis)
  cp -r "$apis" "$work/apis" && chmod -R u+w "$work/apis"
  printf 'package v1beta1\n\nconst QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"\n' \
    >"$work/apis/pkg/apis/scheduling/v1beta1/gate.go"
  cp "$here/volcano/go.mod" "$here/volcano/go.sum" "$work"
  (cd "$work" && go mod edit -replace "volcano.sh/apis=$work/apis") >&2
  go_build "$work" -ldflags "-s -w" -o "$out/volcano-scheduler.$$" volcano.sh/volcano/cmd/scheduler
  mv "$out/volcano-scheduler.$$" "$out/volcano-scheduler"
  rm -rf "$work"
}

definitions() { # NAME MODULE-FOLDER MODULE PATH-IN-IT: the CustomResourceDefinitions that a peer brings
  local to=$out/../crds/$1
  [ -d "$to" ] && return 0
  local from
  from=$(cd "$here/$2" && go mod download "$3" >&2 && go list -m -f '{{.Dir}}' "$3")
  mkdir -p "$to.$$" && cp "$from"/$4 "$to.$$" && chmod -R u+w "$to.$$" && mv "$to.$$" "$to"
}

build_peers() {
  local ldflags="-s -w" # the version above is not theirs
  build coscheduling-scheduler coscheduling sigs.k8s.io/scheduler-plugins/cmd/scheduler
  build kai-scheduler kai github.com/NVIDIA/KAI-scheduler/cmd/scheduler
  build kai-binder kai github.com/NVIDIA/KAI-scheduler/cmd/binder
  build kueue kueue sigs.k8s.io/kueue/cmd/kueue
  definitions coscheduling coscheduling sigs.k8s.io/scheduler-plugins "manifests/coscheduling/crd.yaml"
  definitions kai kai github.com/NVIDIA/KAI-scheduler "deployments/kai-scheduler/crds/*.yaml"
  definitions kueue kueue sigs.k8s.io/kueue "config/components/crd/bases/*.yaml"
}

command -v go >/dev/null || { echo "go is not installed: the tests against a real Kubernetes skip" >&2; exit 3; }
command -v kubectl >/dev/null || build kubectl server k8s.io/kubernetes/cmd/kubectl
build etcd etcd go.etcd.io/etcd/server/v3
build kube-apiserver server k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager server k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler server k8s.io/kubernetes/cmd/kube-scheduler
build helm helm helm.sh/helm/v3/cmd/helm
build kwok kwok sigs.k8s.io/kwok/cmd/kwok
case "${1:-}" in
  --volcano | --peers)
    build_volcano
    definitions volcano volcano volcano.sh/volcano "config/crd/volcano/bases/*.yaml"
    ;;&
  --peers) build_peers ;;
esac
echo "$out"
