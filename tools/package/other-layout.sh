#!/usr/bin/env bash
# Builds packages of this commit whose tables have another layout, and which are older: an upgrade
# from them to this commit copies tables.
#   tools/package/other-layout.sh FOLDER [ARCHITECTURE]    that of this machine unless given
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p "$1"
out=$(cd "$1" && pwd) arch=${2:-$(go env GOARCH)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/tree"
cd "$work/tree"
# Two fields of a local SID change places.
awk '/^struct local_sid/ { inside = 1 }
	inside && /__u32 adjacency;/ { kept = $0; next }
	inside && /__u32 table;/ { print; print kept; inside = 0; next }
	{ print }' bpf/def/tables.h >tables.h
mv tables.h bpf/def/tables.h
! git diff --quiet || { echo "culvert: struct local_sid has no adjacency before its table any more: change this script" >&2; exit 1; }
go generate ./internal/dataplane/abi
SOURCE_DATE_EPOCH=$(($(git log -1 --format=%ct) - 86400)) tools/package/build.sh "$out" "$(git rev-parse --short HEAD)" "$arch"
