#!/usr/bin/env bash
# Installs what `make build` and tools/manual made, the same for `make install` and packages:
#   tools/install.sh PROGRAMS PART ROOT    PART is culvert or culvert-lab, ROOT what / will be
# PREFIX (/usr/local) and SYSCONFDIR (/etc) say where it will be. PROGRAMS is the folder with the
# programs and with manual, of tools/manual. A configuration that is there already stays.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=$1 part=$2 root=$3
prefix=${PREFIX:-/usr/local} etc=${SYSCONFDIR:-/etc}

program() { install -D -m 755 "$programs/$1" "$root$prefix/bin/$1"; }
file() { install -D -m 644 "$1" "$root$2"; } # from to
packed() { # from to: the same octets each time
	mkdir -p "$(dirname "$root$2")"
	gzip -9n <"$1" >"$root$2"
	chmod 644 "$root$2"
}
pages() {
	local page
	for page in "$programs/manual/$1"/*.1; do
		packed "$page" "$prefix/share/man/man1/$(basename "$page").gz"
	done
}

case "$part" in
culvert)
	program culvert
	program culvert-cni
	pages culvert
	file "$programs/manual/completion/culvert" "$prefix/share/bash-completion/completions/culvert"
	file "$programs/manual/completion/_culvert" "$prefix/share/zsh/site-functions/_culvert"
	file "$programs/manual/completion/culvert.fish" "$prefix/share/fish/vendor_completions.d/culvert.fish"
	mkdir -p "$root$prefix/lib/systemd/system"
	sed "s#=/usr/bin/culvert#=$prefix/bin/culvert#; s#/etc/culvert/#$etc/culvert/#" dist/culvert.service \
		>"$root$prefix/lib/systemd/system/culvert.service"
	chmod 644 "$root$prefix/lib/systemd/system/culvert.service"
	[ -e "$root$etc/culvert/culvert.yaml" ] || file dist/culvert.yaml "$etc/culvert/culvert.yaml"
	for example in examples/*.yaml; do
		file "$example" "$prefix/share/doc/culvert/$example"
	done
	file docs/reference/culvert.schema.json "$prefix/share/doc/culvert/culvert.schema.json"
	packed CHANGELOG.md "$prefix/share/doc/culvert/changelog.gz"
	;;
culvert-lab)
	program culvert-lab
	pages culvert-lab
	packed CHANGELOG.md "$prefix/share/doc/culvert-lab/changelog.gz"
	;;
*)
	echo "culvert: $part: want culvert or culvert-lab" >&2
	exit 1
	;;
esac
file dist/packages/copyright "$prefix/share/doc/$part/copyright"
