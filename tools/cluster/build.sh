#!/usr/bin/env bash
# Builds the programs of others that a cluster is made of, each once, from the
# versions that the go.mod beside it pins, into the user's cache folder:
#   tools/cluster/build.sh api   what `culvert lab run overlay --mode kube` runs
#   tools/cluster/build.sh all   what `make e2e` runs as well
#   tools/cluster/build.sh conformance   what `make e2e-kubernetes` runs as well
# Where a program of the same version is there nothing is done and nothing said.
# kube-apiserver is the large one: minutes, and 2.5 GB of memory, on two cores.
set -euo pipefail
shopt -s nullglob
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/culvert/cluster

# program  module beside this file  package
# shellcheck disable=SC2034 # the lists are read by their name
api='
etcd                     etcd        go.etcd.io/etcd/server/v3
kube-apiserver           kubernetes  k8s.io/kubernetes/cmd/kube-apiserver
kube-proxy               kubernetes  k8s.io/kubernetes/cmd/kube-proxy
portmap                  cni         github.com/containernetworking/plugins/plugins/meta/portmap
bandwidth                cni         github.com/containernetworking/plugins/plugins/meta/bandwidth
'
# shellcheck disable=SC2034
all="$api"'
kube-controller-manager  kubernetes  k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler           kubernetes  k8s.io/kubernetes/cmd/kube-scheduler
kubelet                  kubernetes  k8s.io/kubernetes/cmd/kubelet
kubectl                  kubernetes  k8s.io/kubernetes/cmd/kubectl
loopback                 cni         github.com/containernetworking/plugins/plugins/main/loopback
containerd               containerd  github.com/containerd/containerd/v2/cmd/containerd
containerd-shim-runc-v2  containerd  github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
ctr                      containerd  github.com/containerd/containerd/v2/cmd/ctr
helm                     helm        helm.sh/helm/v4/cmd/helm
'
# shellcheck disable=SC2034
conformance="$all"'
e2e.test                 e2e         k8s.io/kubernetes/test/e2e
agnhost                  e2e         k8s.io/kubernetes/test/images/agnhost
coredns                  coredns     .
'

# flags MODULE: what a module's programs are built with, one a line. Kubernetes
# tells its version to clients, which take 0.0.0 for a very old one.
flags() {
	case "$1" in
	containerd) printf '%s\n' '-ldflags=-s -w' '-tags=no_btrfs,no_devmapper,no_zfs' ;;
	kubernetes | e2e)
		local version minor
		version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$here/$1/go.mod")
		minor=${version#v1.}
		echo "-ldflags=-s -w $(printf -- ' -X k8s.io/component-base/version.%s' \
			"gitVersion=$version" gitMajor=1 "gitMinor=${minor%%.*}")"
		;;
	*) echo '-ldflags=-s -w' ;;
	esac
}

# A program's folder is named after all that it is built from.
build() { # program module package
	local stamp built options make=build
	mapfile -t options < <(flags "$2")
	[ "$1" = "${1%.test}" ] || make='test -c' # tests of a package
	stamp=$({ cat "$here/$2"/go.* "$here/$2"/*.go; printf '%s\n' "${options[@]}"; cd "$here/$2" && go env GOVERSION; } | sha256sum | cut -c-12)
	built=$cache/$2-$stamp/$1
	if ! [ -x "$built" ]; then
		echo "culvert: building $1, once, into $cache"
		mkdir -p "${built%/*}"
		# shellcheck disable=SC2086 # two words
		(cd "$here/$2" && CGO_ENABLED=0 nice go $make -trimpath "${options[@]}" -o "$built.part" "$3")
		mv "$built.part" "$built"
	fi
	mkdir -p "$cache/bin"
	ln -sfn "../$2-$stamp/$1" "$cache/bin/$1"
}

case "${1:-}" in
api | all | conformance) ;;
*)
	echo "culvert: want api, all or conformance, as in: tools/cluster/build.sh api" >&2
	exit 2
	;;
esac
while read -r program module package; do
	[ -z "$program" ] || build "$program" "$module" "$package"
done <<<"${!1}"
