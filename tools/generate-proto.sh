#!/bin/sh
# Generates internal/api/culvertv1 from proto/. Needs protoc (Debian:
# protobuf-compiler); the plugins are tools of this module.
set -eu
cd "$(dirname "$0")/.."
command -v protoc >/dev/null || { echo "protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
go build -o "$plugins" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	connectrpc.com/connect/cmd/protoc-gen-connect-go

PATH="$plugins:$PATH" protoc --proto_path=proto \
	--go_out=. --go_opt=module=github.com/culvert-net/culvert \
	--connect-go_out=. --connect-go_opt=module=github.com/culvert-net/culvert \
	--connect-go_opt=simple \
	culvert/v1/culvert.proto
