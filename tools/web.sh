#!/usr/bin/env bash
# Packages of npm are needed to make and to check the page, not to build the programs.
#   tools/web.sh install   installs them in .cache/web, if that is not done
#   tools/web.sh generate  makes internal/ui/web/gen and internal/ui/dist
#   tools/web.sh check     checks the types of the page's sources
set -euo pipefail
cd "$(dirname "$0")/../internal/ui"

install() { # a link, which no linter of the tree follows
	local cache=$PWD/../../.cache/web
	ln -sfn ../../../.cache/web/node_modules web/node_modules
	cmp -s web/package-lock.json "$cache/installed" && return
	command -v npm >/dev/null || { echo "npm is missing: apt-get install npm" >&2; exit 1; }
	mkdir -p "$cache"
	cp web/package.json web/package-lock.json web/.npmrc "$cache"
	(cd "$cache" && npm ci --loglevel=error >/dev/null)
	cp web/package-lock.json "$cache/installed"
}

generate() {
	command -v protoc >/dev/null || { echo "protoc is missing: apt-get install protobuf-compiler" >&2; exit 1; }
	mkdir -p web/gen dist
	PATH="$PWD/web/node_modules/.bin:$PATH" protoc --proto_path=../../proto --es_out=web/gen --es_opt=target=ts culvert/v1/culvert.proto
	go run ./bundle
}

install
case "$1" in
install) ;;
generate) generate ;;
check) (cd web && node_modules/.bin/tsc --noEmit) ;;
*) echo "tools/web.sh: install, generate or check" >&2; exit 2 ;;
esac
