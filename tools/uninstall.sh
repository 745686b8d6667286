#!/usr/bin/env bash
# Removes what tools/install.sh installs, by name, and the folders of it that are empty then. The
# configuration and the state stay:
#   tools/uninstall.sh PROGRAMS ROOT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
for part in culvert culvert-lab; do
	"$here/install.sh" "$1" "$part" "$stage"
done
rm -rf "${stage:?}${SYSCONFDIR:-/etc}"
while read -r file; do
	rm -f "$2/$file"
done < <(cd "$stage" && find . -not -type d)
# What is Culvert's alone: the others are the system's.
for folder in share/doc/culvert/examples share/doc/culvert share/doc/culvert-lab; do
	rmdir "$2${PREFIX:-/usr/local}/$folder" 2>/dev/null || true
done
echo "culvert: ${SYSCONFDIR:-/etc}/culvert and /var/lib/culvert are left; \`culvert unpin\` detaches a data path before you uninstall"
