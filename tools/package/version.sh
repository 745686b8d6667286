#!/usr/bin/env bash
# The version of packages, of what `git describe --tags --always --dirty` says: deb and rpm sort
# what it prints as the commits are.
#   v1.2.3               1.2.3
#   v1.3.0-rc.1          1.3.0~rc.1
#   v1.2.3-4-gabcdef1    1.2.3+4.gabcdef1
#   abcdef1, no tag yet  0.0.0~TIME.gabcdef1, of the commit's time (SOURCE_DATE_EPOCH)
# A tree with changes adds .dirty.
set -euo pipefail

described=${1:?tools/package/version.sh DESCRIBED} dirty=
if [[ $described == *-dirty ]]; then
	described=${described%-dirty} dirty=.dirty
fi
if [[ $described =~ ^v([0-9]+\.[0-9]+\.[0-9]+)(-([a-zA-Z0-9.]+))?(-([0-9]+)-(g[0-9a-f]+))?$ ]]; then
	version=${BASH_REMATCH[1]}${BASH_REMATCH[3]:+~${BASH_REMATCH[3]}}
	[ -z "${BASH_REMATCH[5]}" ] || version+=+${BASH_REMATCH[5]}.${BASH_REMATCH[6]}
elif [[ $described =~ ^[0-9a-f]+$ || $described == unknown ]]; then
	version=0.0.0~$(date -u -d "@${SOURCE_DATE_EPOCH:-0}" +%Y%m%d%H%M%S).g${described#g}
else
	echo "culvert: version $described: want a tag such as v1.2.3, or what git describes" >&2
	exit 1
fi
# What is not tagged is newer than the tag: then + is there already.
case "$dirty$version" in .dirty*[+~]*) ;; .dirty*) dirty=+dirty ;; esac
echo "$version$dirty"
