package packages_test

import (
	"os"
	"testing"
)

// rpms installs, upgrades and removes a package in a copy of this machine's tree that goes with the
// process: systemctl and the programs only write down how they are called. The arguments are an empty
// folder, a package and a later one.
const rpms = `set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work tree
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work tree
mount --bind /dev tree/dev
cp "$2" tree/first.rpm
cp "$3" tree/next.rpm
mkdir -p tree/run/systemd/system
rm -f tree/usr/bin/systemctl
printf '#!/bin/sh\necho "systemctl $*" >>/calls\n' >tree/usr/bin/systemctl
chmod 755 tree/usr/bin/systemctl
step() {
	echo "== $*"
	: >tree/calls
	chroot tree rpm --nodeps --nosignature "$@" 2>&1 | grep -v '^rpm: ' || true # Debian's advises another tool
	cat tree/calls
}
step -i /first.rpm
echo 'api: {}' >tree/etc/culvert/culvert.yaml
step -U /next.rpm
cat tree/etc/culvert/culvert.yaml
step -e culvert
cd tree
find usr/bin usr/lib/systemd etc/culvert -newer first.rpm -name 'culvert*' -type f
`

// What rpm and its scripts do: an upgrade replaces a running daemon and leaves the configuration as
// it is, a removal detaches the data path.
func runScripts(t *testing.T, first, next string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: rpm runs scripts in a tree of its own")
	}
	const want = `== -i /first.rpm
systemctl daemon-reload
systemctl preset culvert.service
== -U /next.rpm
systemctl daemon-reload
systemctl try-restart culvert.service
systemctl daemon-reload
api: {}
== -e culvert
warning: /etc/culvert/culvert.yaml saved as /etc/culvert/culvert.yaml.rpmsave
systemctl disable --now culvert.service
culvert unpin
systemctl daemon-reload
etc/culvert/culvert.yaml.rpmsave`
	if got := must(t, ".", nil, "unshare", "--mount", "sh", "-c", rpms, "sh", t.TempDir(), first, next); got != want {
		t.Errorf("rpm does\n%s\nwant\n%s", got, want)
	}
}
