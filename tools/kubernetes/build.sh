#!/usr/bin/env bash
# Builds the real Kubernetes parts that the tests run against, once, into a cache folder outside the
# checkout, and prints the folder. `build.sh --where` prints it without building; `build.sh --late` prints
# the markers of the tests that have to wait for a build, if anything is missing and can be built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${WINDLASS_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools}/bin
if [ "${1:-}" = --where ]; then echo "$out"; exit; fi
if [ "${1:-}" = --late ]; then
  command -v go >/dev/null || exit 0
  for name in etcd kube-apiserver kube-controller-manager helm; do
    [ -x "$out/$name" ] || { echo real; break; }
  done
  command -v kubectl >/dev/null || [ -x "$out/kubectl" ] || echo kubectl
  exit
fi
mkdir -p "$out"
export CGO_ENABLED=0
version=v1.36.3
ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36 \
-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36"

build() { # NAME MODULE-FOLDER PACKAGE
  [ -x "$out/$1" ] && return 0
  echo "building $1 (once)" >&2
  (cd "$here/$2" && go build -ldflags "$ldflags" -o "$out/$1.part" "$3") >&2
  mv "$out/$1.part" "$out/$1"
}

command -v go >/dev/null || { echo "go is not installed: the tests against a real Kubernetes skip" >&2; exit 3; }
command -v kubectl >/dev/null || build kubectl server k8s.io/kubernetes/cmd/kubectl
build etcd etcd go.etcd.io/etcd/server/v3
build kube-apiserver server k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager server k8s.io/kubernetes/cmd/kube-controller-manager
build helm helm helm.sh/helm/v3/cmd/helm
echo "$out"
