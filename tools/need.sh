#!/usr/bin/env bash
# Installs what a target needs and the machine does not have yet: packages of
# Debian 12 and Ubuntu 24.04, by name. Says what, and why; says nothing where
# nothing is missing.
#   tools/need.sh run   what `make demo` and `make bench` use
#   tools/need.sh test  what `make test`, `make generate` and `make fuzz` use as well
#   tools/need.sh e2e   what `make e2e` uses as well
set -euo pipefail

# what is looked for  package  reason
# shellcheck disable=SC2034 # the lists are read by their name
run='
ip             iproute2            builds networks of namespaces and veth pairs
ethtool        ethtool             reads and sets what the ends of a veth pair offload
iperf3         iperf3              sends TCP through the AMBR of a session
certificates   ca-certificates     to fetch Go modules over HTTPS
'
# shellcheck disable=SC2034
test="$run"'
ping           iputils-ping        sends fragments to the slow path
sysctl         procps              mends what doctor finds
tshark         tshark              decodes what culvert sends, as an independent judge
scapy          python3-scapy       builds the same packets, as another
promtool       prometheus          judges names and units of the metrics
browser        chromium            shows the reports, as their readers see them
zebra          frr                 routes in a laboratory, as somebody else does
gobgpd         gobgpd              a BGP peer that is not the one we embed
nft            nftables            translates addresses in a laboratory, as kube-proxy does
iptables       iptables            is the other way of kube-proxy
turnserver     coturn              judges a NAT from both sides
clang-19       clang-19            compiles the data path
llvm-strip-19  llvm-19             strips it
clang-format-19 clang-format-19    checks the format of C files
clang-tidy-19  clang-tidy-19       looks for bugs in C files
shellcheck     shellcheck          looks for bugs in shell scripts
rpm            rpm                 reads packages of other distributions
gcc            gcc                 compiles the checker of prose
sanitizer      libclang-rt-19-dev  runs the data path under sanitizers
bpf_helpers.h  libbpf-dev          headers of the data path
bpf.h          linux-libc-dev      headers of the data path
protoc         protobuf-compiler   compiles the management API
glpsol         glpk-utils          solves the linear programs of traffic engineering exactly
dot            graphviz            draws the figures of the documents
pip3           python3-pip         fetches the library that writes dashboards
curl           curl                asks Prometheus
node           nodejs              checks the types of the web page
npm            npm                 fetches what the web page is made of
timestamp      libprotobuf-dev     types of protobuf itself, which the management API uses
'
# shellcheck disable=SC2034
e2e="$test"'
containerd     containerd          runs the pods of a cluster
runc           runc                starts their containers
busybox        busybox-static      is what runs in them
iptables       iptables            translates addresses in a laboratory, as kube-proxy does
nsenter        util-linux          looks into nodes and pods
dig            bind9-dnsutils      asks their DNS
nc             netcat-openbsd      connects them
bash           bash                runs their scripts
mmdebstrap     mmdebstrap          makes a fresh Debian, in which packages are installed
keyring        debian-archive-keyring shows that it comes from Debian
systemd-nspawn systemd-container   boots it
'

missing() { # what is looked for
	case "$1" in
	certificates) ! test -e /etc/ssl/certs/ca-certificates.crt ;;
	bpf_helpers.h) ! test -e /usr/include/bpf/bpf_helpers.h ;;
	bpf.h) ! test -e /usr/include/linux/bpf.h ;;
	sanitizer) ! compgen -G '/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-*.a' >/dev/null ;;
	# a program that needs no library
	busybox) ! grep -q 'not a dynamic' <(ldd /bin/busybox 2>&1) ;;
	keyring) ! test -e /usr/share/keyrings/debian-archive-keyring.gpg ;;
	timestamp) ! test -e /usr/include/google/protobuf/timestamp.proto ;;
	# by the names that the tests look for
	browser) ! command -v chromium chromium-browser google-chrome google-chrome-stable headless-shell >/dev/null ;;
	zebra) ! test -x /usr/lib/frr/zebra ;;
	# the package's is for /usr/bin/python3 only, which need not be the first
	scapy) ! /usr/bin/python3 -c 'import scapy' 2>/dev/null && ! python3 -c 'import scapy' 2>/dev/null ;;
	*) ! command -v "$1" >/dev/null && ! test -x "/usr/sbin/$1" ;;
	esac
}

fail() {
	echo "culvert: $*" >&2
	exit 1
}

check_machine() {
	local kernel go
	[ "$(id -u)" = 0 ] || fail "run this as root: it makes network namespaces and loads eBPF"
	kernel=$(uname -r)
	printf '6.6\n%s\n' "${kernel%%-*}" | sort -CV ||
		fail "the kernel is Linux $kernel: 6.6 or newer is needed (Debian 12: linux-image-amd64 from bookworm-backports)"
	command -v go >/dev/null || fail "Go is missing: install 1.21 or newer, see https://go.dev/doc/install"
	# outside of the module, so that no toolchain is fetched for the answer
	go=$(cd / && go env GOVERSION)
	printf '1.21\n%s\n' "${go#go}" | sort -CV ||
		fail "Go is $go: install 1.21 or newer, which fetches the version in go.mod by itself, see https://go.dev/doc/install"
}

# What some packages come with is of no use here: FRR, GoBGP, coturn and Prometheus are run, or
# not at all, by the tests. So no service is started now, nor at the next boot.
install_packages() { # packages
	local policy=/usr/sbin/policy-rc.d name services=()
	if ! [ -e "$policy" ]; then
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	apt-get update -qq || echo "culvert: apt-get update failed; going on with the package lists that are there" >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
		fail "apt-get could not install: $* (of chromium Ubuntu has a snap only: install Google Chrome)"
	[ -d /run/systemd/system ] || return 0
	for name in frr gobgpd prometheus containerd coturn; do
		case " $* " in *" $name "*) services+=("$name") ;; esac
	done
	[ ${#services[@]} = 0 ] || systemctl --quiet disable "${services[@]}"
}

check_machine
packages=()
while read -r what package reason; do
	[ -n "$what" ] || continue
	missing "$what" || continue
	echo "culvert: installing $package: $reason"
	packages+=("$package")
done <<<"${!1}"
[ ${#packages[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || fail "no apt-get here: install what these packages of Debian hold: ${packages[*]}"
install_packages "${packages[@]}"
