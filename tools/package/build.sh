#!/usr/bin/env bash
# Builds packages: a deb and an rpm of culvert and of culvert-lab for each architecture.
#   tools/package/build.sh FOLDER VERSION [ARCHITECTURE...]    amd64 and arm64 unless given
# VERSION is what git describes. PROGRAMS=bin takes programs that are built already; the word ARCH
# in it stands for the architecture. The same commit makes the same octets: SOURCE_DATE_EPOCH, by
# default the commit's time, is the only time in them.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$1 described=$2
shift 2
[ $# -gt 0 ] || set -- amd64 arm64
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0 TZ=UTC
VERSION=$(tools/package/version.sh "$described")
export VERSION
tags=grpcnotrace
nfpm=$(go tool -modfile=tools/package/go.mod -n nfpm)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Names, versions and licences of the modules that the programs hold.
third_party() {
	local module version dir file
	go list -deps -tags "$tags" -f '{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}' ./cmd/... | sort -u |
		while read -r module version dir; do
			[ -n "$dir" ] || continue # this module
			echo "===== $module $version"
			find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | LC_ALL=C sort |
				while read -r file; do
					echo
					cat "$file"
				done
		done
}

build() { # architecture folder
	if [ -n "${PROGRAMS:-}" ]; then
		cp "${PROGRAMS//ARCH/$1}"/culvert{,-cni,-lab} "$2/"
	else
		GOARCH=$1 go build -buildvcs=false -trimpath -tags "$tags" -ldflags "-s -w -X main.version=$described" -o "$2/" \
			./cmd/culvert ./cmd/culvert-cni ./cmd/culvert-lab
	fi
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
go run -buildvcs=false -trimpath -tags "$tags" ./tools/manual "$work/manual"
third_party | gzip -9n >"$work/third-party.gz"
for ARCH; do
	export ARCH
	stage=$work/$ARCH programs=$work/$ARCH/programs
	mkdir -p "$programs"
	cp -r dist/packages "$stage/"
	build "$ARCH" "$programs"
	ln -s "$work/manual" "$programs/manual"
	for part in culvert culvert-lab; do
		PREFIX=/usr tools/install.sh "$programs" "$part" "$stage/$part"
		install -m 644 "$work/third-party.gz" "$stage/$part/usr/share/doc/$part/"
	done
	mkdir "$stage/zsh" # the distributions have other folders for it
	mv "$stage/culvert/usr/share/zsh/site-functions/_culvert" "$stage/zsh/"
	rm -r "$stage/culvert/usr/share/zsh"
	cat >"$stage/changelog.yaml" <<-END
		- semver: "$VERSION"
		  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
		  packager: The Culvert authors <culvert-net@users.noreply.github.com>
		  deb: {urgency: medium, distributions: [stable]}
		  changes: [{note: "Version $described. The file changelog.gz says what is new."}]
	END
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for package in culvert culvert-lab; do
		for format in deb rpm; do
			(cd "$stage" && "$nfpm" package --config "packages/$package.yaml" --packager "$format" --target "$out/" >/dev/null)
		done
	done
done
