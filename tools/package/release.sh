#!/usr/bin/env bash
# Makes all files of a release, of a commit that has a tag:
#   tools/package/release.sh FOLDER VERSION    VERSION is what git describes
# packages, programs in archives, container images for amd64 and arm64, charts, an SBOM
# (CycloneDX) of each program, the release notes, SHA256SUMS. A tree that is dirty or has no tag is
# refused, unless FORCE=1. The same commit makes the same octets.
# SIGN_WITH=KEY signs SHA256SUMS by gpg with a key of your keyring; SIGN_KEY is a private key in
# ASCII armour for machines that have no keyring. Without either nothing is signed.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$1 described=$2
architectures=(amd64 arm64)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0 TZ=UTC
if [ -z "${FORCE:-}" ]; then
	[[ $described != *-dirty ]] || { echo "culvert: the tree has changes: commit them, or FORCE=1 for a release to try" >&2; exit 1; }
	[[ $described =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[a-zA-Z0-9.]+)?$ ]] ||
		{ echo "culvert: $described is no tag: git tag v1.2.3, or FORCE=1 for a release to try" >&2; exit 1; }
	if grep -q "^## ${described#v} (unreleased)" CHANGELOG.md; then
		echo "culvert: CHANGELOG.md says that ${described#v} is unreleased: give its date" >&2
		exit 1
	fi
fi
case "$described" in v*) version=${described#v} ;; *) version=$(awk '/^## /{ print $2; exit }' CHANGELOG.md) ;; esac
tags=grpcnotrace

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)

tools/package/notes.sh "${version%%-*}" >"$out/notes.md"

echo "culvert: programs"
for arch in "${architectures[@]}"; do
	GOARCH=$arch go build -buildvcs=false -trimpath -tags "$tags" -ldflags "-s -w -X main.version=$described" -o "$work/$arch/bin/" \
		./cmd/culvert ./cmd/culvert-cni ./cmd/culvert-lab
done

echo "culvert: packages"
PROGRAMS=$work/ARCH/bin tools/package/build.sh "$out" "$described" "${architectures[@]}"

echo "culvert: images"
folders=()
for arch in "${architectures[@]}"; do
	folders+=("$arch=$work/$arch")
done
while read -r name folder; do
	go run -buildvcs=false -trimpath ./tools/image "$folder/Containerfile" "ghcr.io/culvert-net/$name:$described" "$out/$name-image.tar" "${folders[@]}"
done <<-END
	culvert dist/kubernetes
	culvert-upf dist/upf
END

archive() { # file, folder, what of it
	local file=$1 folder=$2
	shift 2
	tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w -C "$folder" -cf - "$@" | gzip -9n >"$file"
}

echo "culvert: archives, charts, SBOM"
sbom=$(go tool -modfile=tools/package/go.mod -n cyclonedx-gomod)
for arch in "${architectures[@]}"; do
	archive "$out/culvert-$described-linux-$arch.tar.gz" "$work/$arch" bin
	for program in culvert culvert-cni culvert-lab; do
		# Licences are looked for in the module cache, where this module and Go are not: it warns.
		GOPROXY=off "$sbom" bin -json -noserial -notimestamp -std -licenses -version "$described" -output "$out/$program-$arch.cdx.json" "$work/$arch/bin/$program" 2>/dev/null
	done
done
archive "$out/culvert-chart.tar.gz" dist/kubernetes/chart .
archive "$out/culvert-upf-chart.tar.gz" dist/upf/chart .

cp dist/upf/compose.yaml "$out/"

cd "$out"
sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
if [ -n "${SIGN_KEY:-}" ]; then
	GNUPGHOME=$work/gnupg
	export GNUPGHOME
	mkdir -m 700 "$GNUPGHOME"
	gpg --batch --quiet --import <<<"$SIGN_KEY"
	SIGN_WITH=$(gpg --list-secret-keys --with-colons | awk -F: '$1 == "fpr" { print $10; exit }')
fi
if [ -n "${SIGN_WITH:-}" ]; then
	gpg --batch --yes --armor --local-user "$SIGN_WITH" --output SHA256SUMS.asc --detach-sign SHA256SUMS
	gpg --batch --quiet --verify SHA256SUMS.asc SHA256SUMS
	[ -z "${SIGN_KEY:-}" ] || gpgconf --kill all
else
	echo "culvert: not signed: neither SIGN_WITH nor SIGN_KEY is set"
fi
