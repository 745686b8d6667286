package netns

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var created atomic.Uint32

// NS is a network namespace that one test made.
type NS struct {
	// Name is what `ip netns` calls it.
	Name string
	// Path can be given to nsenter --net=.
	Path string

	handle netns.NsHandle
}

// New makes a namespace with lo up and without duplicate address detection, so
// that IPv6 addresses can be used at once. It goes when the test ends. Without
// root the test is skipped.
func New(tb testing.TB) *NS {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root: the test makes network namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN)")
	}
	ns := &NS{Name: fmt.Sprintf("culvert-%d-%d", os.Getpid(), created.Add(1))}
	ns.Path = filepath.Join("/run/netns", ns.Name)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		tb.Fatalf("open this thread's network namespace: %v", err)
	}
	defer home.Close()
	// NewNamed leaves the thread in the new namespace.
	ns.handle, err = netns.NewNamed(ns.Name)
	restore(tb, home)
	if err != nil {
		tb.Fatalf("make network namespace %s: %v", ns.Name, err)
	}
	tb.Cleanup(func() {
		ns.handle.Close()
		if err := netns.DeleteNamed(ns.Name); err != nil {
			tb.Errorf("delete network namespace %s: %v", ns.Name, err)
		}
	})

	ns.Sysctl(tb, "net.ipv6.conf.all.accept_dad", "0")
	ns.Sysctl(tb, "net.ipv6.conf.default.accept_dad", "0")
	ns.Up(tb, "lo")
	return ns
}

// restore puts the thread back. A thread that stayed in the wrong namespace
// would fail other tests in ways that nobody understands: end here.
func restore(tb testing.TB, home netns.NsHandle) {
	tb.Helper()
	if err := netns.Set(home); err != nil {
		panic(fmt.Sprintf("return to the test's network namespace: %v", err))
	}
}

// Do runs f inside the namespace, on the calling goroutine. Goroutines that f
// starts are outside of it.
func (ns *NS) Do(tb testing.TB, f func()) {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		tb.Fatalf("open this thread's network namespace: %v", err)
	}
	defer home.Close()
	if err := netns.Set(ns.handle); err != nil {
		tb.Fatalf("enter network namespace %s: %v", ns.Name, err)
	}
	defer restore(tb, home)
	f()
}

// Command prepares a command that runs inside the namespace. It sees the
// mounts of the caller (`ip netns exec` would hide bpffs).
func (ns *NS) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + ns.Path, name}, args...)...)
}

// Run runs a command inside the namespace and returns what it wrote to
// standard output. The test ends if the command fails.
func (ns *NS) Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	cmd := ns.Command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%s: %s %s: %v\n%s%s", ns.Name, name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// IP runs ip(8) with the words of args: ns.IP(tb, "addr add 10.0.0.1/24 dev a").
func (ns *NS) IP(tb testing.TB, args string) string {
	tb.Helper()
	return ns.Run(tb, "ip", strings.Fields(args)...)
}

// Sysctl sets one value below /proc/sys, named with dots.
func (ns *NS) Sysctl(tb testing.TB, name, value string) {
	tb.Helper()
	ns.Do(tb, func() {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			tb.Fatalf("%s: set %s to %s: %v", ns.Name, name, value, err)
		}
	})
}

// Up sets an interface up.
func (ns *NS) Up(tb testing.TB, name string) {
	tb.Helper()
	h := ns.netlink(tb)
	defer h.Close()
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		tb.Fatalf("%s: set %s up: %v", ns.Name, name, err)
	}
}

// Interface returns an interface's index and address.
func (ns *NS) Interface(tb testing.TB, name string) net.Interface {
	tb.Helper()
	var i *net.Interface
	var err error
	ns.Do(tb, func() { i, err = net.InterfaceByName(name) })
	if err != nil {
		tb.Fatalf("%s: interface %s: %v", ns.Name, name, err)
	}
	return *i
}

// Veth makes a veth pair with one end in each namespace (which may be the
// same), both up.
func Veth(tb testing.TB, a *NS, nameA string, b *NS, nameB string) (endA, endB net.Interface) {
	tb.Helper()
	h := a.netlink(tb)
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.handle)}
	if err := h.LinkAdd(veth); err != nil {
		tb.Fatalf("make veth pair %s in %s, %s in %s: %v", nameA, a.Name, nameB, b.Name, err)
	}
	a.Up(tb, nameA)
	b.Up(tb, nameB)
	return a.Interface(tb, nameA), b.Interface(tb, nameB)
}

// Addr adds an address, such as "2001:db8::1/64", to an interface.
func (ns *NS) Addr(tb testing.TB, name, address string) {
	tb.Helper()
	h := ns.netlink(tb)
	defer h.Close()
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		tb.Fatalf("address %q: %v", address, err)
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD // usable at once: without it a worker has to come by first
	}
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.AddrAdd(link, addr)
	}
	if err != nil {
		tb.Fatalf("%s: add %s to %s: %v", ns.Name, address, name, err)
	}
}

func (ns *NS) netlink(tb testing.TB) *netlink.Handle {
	tb.Helper()
	h, err := netlink.NewHandleAt(ns.handle)
	if err != nil {
		tb.Fatalf("%s: open netlink: %v", ns.Name, err)
	}
	return h
}
