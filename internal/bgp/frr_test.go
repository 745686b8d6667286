package bgp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// wire is a namespace at the other end of a veth pair.
type wire struct {
	ns         *netns.NS
	device     string     // our end
	ours, peer netip.Addr // of the ends of the pair
}

var wires atomic.Uint32

func newWire(t *testing.T) wire {
	t.Helper()
	n := wires.Add(1)
	pid := os.Getpid() & 0xffff // another run of the tests has its own addresses
	network := fmt.Sprintf("fd94:%x:%x::", pid, n)
	w := wire{netns.New(t), fmt.Sprintf("cvbgp%d-%d", pid, n), addr(network + "1"), addr(network + "2")}
	host(t, "ip", "link", "add", w.device, "type", "veth", "peer", "name", "eth0", "netns", w.ns.Name)
	w.address(t, w.ours)
	host(t, "ip", "link", "set", w.device, "up")
	w.ns.Addr(t, "eth0", w.peer.String()+"/64")
	w.ns.Up(t, "eth0")
	return w
}

// address adds one to our end.
func (w wire) address(t *testing.T, a netip.Addr) {
	t.Helper()
	host(t, "ip", "addr", "add", a.String()+"/64", "dev", w.device, "nodad")
}

// host runs a command beside the speaker.
func host(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// frr is a router that runs FRR's zebra and bgpd, at the other end of a wire.
type frr struct {
	wire
	t   *testing.T
	dir string
}

const frrDir = "/usr/lib/frr"

// router makes the namespace and its link, and starts nothing yet.
func router(t *testing.T) *frr {
	t.Helper()
	if _, err := os.Stat(filepath.Join(frrDir, "bgpd")); err != nil {
		t.Skip("needs FRR's bgpd: install the package frr")
	}
	return &frr{newWire(t), t, frrOwned(t)}
}

// frrOwned makes a directory for the user that the daemons become, who could not
// get into the test's own.
func frrOwned(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "culvert-frr-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := exec.Command("chown", "frr:frr", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// start starts a daemon with its configuration, and waits until it listens.
func (f *frr) start(daemon, config string) *exec.Cmd {
	f.t.Helper()
	return f.run(daemon, config, filepath.Join(frrDir, daemon))
}

func (f *frr) run(daemon, config string, command ...string) *exec.Cmd {
	f.t.Helper()
	path := func(suffix string) string { return filepath.Join(f.dir, daemon+suffix) }
	if err := os.WriteFile(path(".conf"), []byte(config), 0o644); err != nil {
		f.t.Fatal(err)
	}
	log, err := os.Create(path(".log"))
	if err != nil {
		f.t.Fatal(err)
	}
	c := f.ns.Command(command[0], append(command[1:], "-f", path(".conf"), "-i", path(".pid"), "-z", filepath.Join(f.dir, "zserv.api"),
		"--vty_socket", f.dir, "-A", "127.0.0.1", "-P", "0", "--log", "stdout", "--log-level", "informational")...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.kill(c)
		log.Close()
		if f.t.Failed() {
			text, _ := os.ReadFile(path(".log"))
			f.t.Logf("%s says:\n%s", daemon, text)
		}
	})
	eventually(f.t, daemon+" listens", func() bool {
		_, err := os.Stat(path(".vty"))
		return err == nil
	})
	return c
}

func (f *frr) kill(c *exec.Cmd) {
	if c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = os.Remove(filepath.Join(f.dir, "bgpd.vty"))
	}
}

// show runs a command of bgpd's that answers in JSON.
func (f *frr) show(command string, into any) error {
	out, err := exec.Command("vtysh", "--vty_socket", f.dir, "-d", "bgpd", "-c", "show "+command+" json").Output()
	if err != nil {
		return fmt.Errorf("show %s: %w: %s", command, err, out)
	}
	return json.Unmarshal(out, into)
}

// has says that FRR's best path of a prefix is by a next hop.
func (f *frr) has(family, prefix, nextHop string) bool {
	var answer struct {
		Paths []struct {
			Valid    bool
			Nexthops []struct{ IP string }
		}
	}
	if f.show("bgp "+family+" unicast "+prefix, &answer) != nil || len(answer.Paths) == 0 || !answer.Paths[0].Valid {
		return false
	}
	for _, n := range answer.Paths[0].Nexthops {
		if n.IP == nextHop {
			return true
		}
	}
	return false
}

// asNeighbor is how each router knows the node, whose address NODE is.
const asNeighbor = `
 bgp router-id 10.0.0.254
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor NODE remote-as 65001
 neighbor NODE timers connect 1
 neighbor NODE capability extended-nexthop
`

// ofUnicast are the families of one that speaks unicast only, and what it advertises.
const ofUnicast = ` bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart restart-time 60
 address-family ipv4 unicast
  network 192.0.2.0/24
  neighbor NODE activate
  REFLECTS
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:99::/48
  neighbor NODE activate
  REFLECTS
 exit-address-family
`

// unicast is a router outside the cluster that speaks unicast only, and reflecting
// an internal one that reflects what it receives.
var (
	unicast    = "frr defaults datacenter\nrouter bgp 65000" + asNeighbor + strings.ReplaceAll(ofUnicast, "REFLECTS", "")
	reflecting = "frr defaults datacenter\nrouter bgp 65001" + asNeighbor + strings.ReplaceAll(ofUnicast, "REFLECTS", "neighbor NODE route-reflector-client")
)

// beside starts a node at our end of the pair, as an external peer of the router.
func beside(t *testing.T, f *frr, c Config, p Peer, others ...Peer) *member {
	t.Helper()
	return f.member(t, "1", f.ours, c, p, others...)
}

// member starts node i at an address of our end.
func (w wire) member(t *testing.T, i string, at netip.Addr, c Config, p Peer, others ...Peer) *member {
	t.Helper()
	m := &member{routes: newRoutes(), observed: newObserved(), node: nodeOf(i)}
	m.node.Address = at
	p.Address, p.Local = w.peer, at
	if p.ASN == 0 {
		p.ASN = 65000
	}
	c.ASN, c.RouterID, c.Peers = 65001, addr("10.0.0."+i), append([]Peer{p}, others...)
	if c.Cluster == nil {
		c.Cluster = &Cluster{}
	}
	c.Cluster.Handler = m.routes
	m.Speaker = standard(t, c, m.observed)
	if err := m.SetNode(m.node); err != nil {
		t.Fatal(err)
	}
	return m
}

// FRR and a node advertise each other prefixes of both families, all with IPv6 next
// hops, through TCP MD5 and TTL security; the end of either side reaches the
// other.
func TestUnicastWithFRR(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	guarded := strings.Replace(unicast, " neighbor NODE timers", " neighbor NODE password secret\n neighbor NODE ttl-security hops 1\n neighbor NODE timers", 1)
	f.start("bgpd", strings.ReplaceAll(guarded, "NODE", f.ours.String()))
	m := beside(t, f, Config{Cluster: &Cluster{Locator: true}}, Peer{Password: "secret", Hops: 1})
	eventually(t, "FRR's prefixes arrive", func() bool {
		return m.routes.by("192.0.2.0/24", f.peer.String()) && m.routes.by("2001:db8:99::/48", f.peer.String())
	})
	if r := m.routes.of("192.0.2.0/24")[0]; r.ASN != 65000 || r.Node != addr("10.0.0.254") || r.Segments != nil {
		t.Errorf("route %+v", r)
	}
	eventually(t, "FRR knows the node's prefixes", func() bool {
		return f.has("ipv4", "10.244.1.0/24", f.ours.String()) && f.has("ipv6", "fd00:10:244:1::/64", f.ours.String())
	})
	eventually(t, "FRR can route the node's locator", func() bool { return f.has("ipv6", "fc00:0:1::/48", f.ours.String()) })
	m.node.Prefixes = m.node.Prefixes[1:]
	if err := m.SetNode(m.node); err != nil {
		t.Fatal(err)
	}
	eventually(t, "FRR receives a withdrawal", func() bool { return !f.has("ipv4", "10.244.1.0/24", f.ours.String()) })
}

// While FRR restarts, what it advertised stays; while the node restarts, FRR keeps what
// the node advertised.
func TestGracefulRestartWithFRR(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	config := strings.ReplaceAll(unicast, "NODE", f.ours.String())
	bgpd := f.start("bgpd", config)
	m := beside(t, f, Config{Restart: 30 * time.Second}, Peer{})
	eventually(t, "FRR's prefixes arrive", func() bool { return m.routes.by("192.0.2.0/24", f.peer.String()) })
	eventually(t, "the peer has sent all", func() bool {
		m.observed.mu.Lock()
		defer m.observed.mu.Unlock()
		return len(m.observed.completed) == 1
	})
	eventually(t, "FRR knows the node's prefixes", func() bool { return f.has("ipv4", "10.244.1.0/24", f.ours.String()) })

	f.kill(bgpd)
	eventually(t, "the session is down", func() bool { return !isEstablished(m.Speaker) })
	f.start("bgpd", config)
	established(t, m.Speaker)
	eventually(t, "the peer has sent all again", func() bool {
		m.observed.mu.Lock()
		defer m.observed.mu.Unlock()
		return len(m.observed.completed) == 2
	})
	if len(m.routes.gone) > 0 || !m.routes.by("192.0.2.0/24", f.peer.String()) {
		t.Errorf("FRR's restart withdrew %v", m.routes.gone)
	}
	eventually(t, "FRR knows the node's prefixes again", func() bool { return f.has("ipv4", "10.244.1.0/24", f.ours.String()) })

	kept := watch(t, func() bool { return f.has("ipv4", "10.244.1.0/24", f.ours.String()) })
	m.Stop()
	time.Sleep(time.Second)
	again := beside(t, f, Config{Restart: 30 * time.Second, Restarting: true}, Peer{})
	established(t, again.Speaker)
	eventually(t, "FRR's prefixes arrive again", func() bool { return again.routes.by("192.0.2.0/24", f.peer.String()) })
	time.Sleep(deferral + 2*time.Second)
	if n := kept(); n > 0 {
		t.Errorf("FRR was without the node's prefix %d times", n)
	}
}

// watch asks again and again, until it is asked how often the answer was no.
func watch(t *testing.T, holds func() bool) (broken func() int) {
	t.Helper()
	stop, done, n := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if !holds() {
					n++
				}
			}
		}
	}()
	return func() int {
		close(stop)
		<-done
		return n
	}
}

// provider is a provider edge with a customer's VRF, whose prefixes it advertises
// by SRv6: it transposes 16 bits of each SID into the label.
const provider = "frr defaults datacenter\nrouter bgp 65000" + asNeighbor + ` no bgp default ipv4-unicast
 segment-routing srv6
  locator default
 exit
 address-family ipv4 vpn
  neighbor NODE activate
 exit-address-family
 address-family ipv6 vpn
  neighbor NODE activate
 exit-address-family
router bgp 65000 vrf red
 bgp router-id 10.0.0.254
 no bgp network import-check
 address-family ipv4 unicast` + ofCustomer + ` address-family ipv6 unicast` + ofCustomer

// ofCustomer is of the customer's prefixes in a family.
const ofCustomer = `
  redistribute connected
  sid vpn export auto
  rd vpn export 65000:1
  rt vpn both 65000:100
  export vpn
  import vpn
 exit-address-family
`

const providerZebra = `
segment-routing
 srv6
  locators
   locator default
    prefix 2001:db8:1:1::/64 func-bits 16
`

// customer makes the VRF, which is a namespace of zebra's own: not every kernel
// has devices for them.
const customer = `
mount -t tmpfs netns /run/netns && ip netns add red &&
ip -n red link add c type veth peer name d && ip -n red link set dev d up && ip -n red addr add 198.51.100.1/24 dev c && ip -n red addr add 2001:db8:55::1/64 dev c nodad && ip -n red link set dev c up`

// vpnRoute is what FRR shows of a route of a VPN.
type vpnRoute struct {
	Paths []struct {
		Valid     bool
		RemoteSid string
	}
}

// Each side reaches the prefixes of the other provider edge by their SIDs, which are
// put together of TLV and label. Routes with another Route Target are refused.
func TestVPNWithFRR(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.run("zebra", providerZebra, "unshare", "--mount", "sh", "-c", customer+` && exec "$@"`, "sh", filepath.Join(frrDir, "zebra"), "--vrfwnetns")
	f.start("bgpd", strings.ReplaceAll(provider, "NODE", f.ours.String()))
	vpn := func(target string) *Cluster {
		return &Cluster{VPN: &VPN{Distinguisher: "65001:7", Import: []string{target}, Export: []string{"65000:100"}},
			Tenants: []VPN{{Tenant: 9, Distinguisher: "10.0.0.1:9", Import: []string{target}, Export: []string{"65000:100"}}}}
	}
	m := beside(t, f, Config{Cluster: vpn("65000:100")}, Peer{Families: []Family{Unicast, L3VPN}})
	for _, prefix := range []string{"198.51.100.0/24", "2001:db8:55::/64"} {
		eventually(t, "the customer's "+prefix+" arrives", func() bool { return len(m.routes.of(prefix)) == 1 })
		r := m.routes.of(prefix)[0]
		if len(r.Segments) != 1 || !netip.MustParsePrefix("2001:db8:1:1::/64").Contains(r.Segments[0]) || r.Segments[0] == addr("2001:db8:1:1::") ||
			r.Distinguisher != "65000:1" || !r.Best {
			t.Errorf("route %+v", r)
		}
		if sid := f.allocatedSID(prefix); sid != r.Segments[0].String() {
			t.Errorf("%s: received %s, FRR allocated %q", prefix, r.Segments[0], sid)
		}
	}
	for family, prefix := range map[string]string{"ipv4": "10.244.1.0/24", "ipv6": "fd00:10:244:1::/64"} {
		want := "fc00:0:1:6::"
		if family == "ipv4" {
			want = "fc00:0:1:4::"
		}
		eventually(t, "FRR knows "+prefix+" by "+want, func() bool {
			routes := map[string]vpnRoute{}
			return f.show("bgp "+family+" vpn "+prefix, &routes) == nil && len(routes["65001:7"].Paths) == 1 && routes["65001:7"].Paths[0].RemoteSid == want
		})
	}
	// A tenant is one more VPN.
	for _, prefix := range []string{"198.51.100.0/24@tenant/9", "2001:db8:55::/64@tenant/9"} {
		eventually(t, "the customer's "+prefix+" arrives", func() bool { return len(m.routes.of(prefix)) == 1 })
	}
	if err := m.SetNode(m.node, partsOf("1", 9)...); err != nil {
		t.Fatal(err)
	}
	for family, prefix := range map[string]string{"ipv4": "10.9.1.0/24", "ipv6": "fd09:1::/64"} {
		eventually(t, "FRR knows "+prefix+" of the tenant", func() bool {
			routes := map[string]vpnRoute{}
			return f.show("bgp "+family+" vpn "+prefix, &routes) == nil && len(routes["10.0.0.1:9"].Paths) == 1 && routes["10.0.0.1:9"].Paths[0].RemoteSid == "fc00:0:1:109::"
		})
	}
	m.Stop()
	other := beside(t, f, Config{Cluster: vpn("65000:200")}, Peer{Families: []Family{Unicast, L3VPN}})
	established(t, other.Speaker)
	eventually(t, "the peer has sent all", func() bool {
		peers, err := other.Peers(t.Context())
		return err == nil && peers[0].Received >= 2
	})
	if n := other.routes.count(); n > 0 {
		t.Errorf("%d prefixes with another Route Target were taken", n)
	}
}

// allocatedSID is the SID that FRR allocated for the customer's prefixes of a
// family.
func (f *frr) allocatedSID(prefix string) string {
	f.t.Helper()
	out, err := exec.Command("vtysh", "--vty_socket", f.dir, "-d", "bgpd", "-c", "show bgp segment-routing srv6").Output()
	if err != nil {
		f.t.Fatal(err)
	}
	family := "AFI_IP6"
	if !strings.Contains(prefix, ":") {
		family = "AFI_IP"
	}
	_, red, _ := strings.Cut(string(out), "- name: red")
	_, sid, _ := strings.Cut(red, "vpn_policy["+family+"].tovpn_sid: ")
	sid, _, _ = strings.Cut(sid, "\n")
	return sid
}

// An internal peer that speaks less than is meant for it is sent the rest. That
// holds when the node restarts and another peer is away, too.
func TestInternalPeerThatSpeaksUnicastOnly(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	f.start("bgpd", strings.ReplaceAll(reflecting, "NODE", f.ours.String()))
	peer := func(spoken []string) Peer { return Peer{ASN: 65001, RouteReflector: true, Spoken: spoken} }
	m := beside(t, f, Config{Restart: 60 * time.Second}, peer(nil), Peer{Address: addr("127.94.15.1"), ASN: 65001})
	known := func() bool { return f.has("ipv4", "10.244.1.0/24", f.ours.String()) }
	eventually(t, "FRR knows the node's prefixes", known)
	eventually(t, "FRR's prefixes arrive", func() bool { return m.routes.by("2001:db8:99::/48", f.peer.String()) })
	m.observed.mu.Lock()
	spoken := m.observed.spoken[f.peer]
	m.observed.mu.Unlock()
	if want := []string{"ipv4-unicast", "ipv6-unicast"}; !slices.Equal(spoken, want) {
		t.Errorf("it speaks %q, want %q", spoken, want)
	}

	kept := watch(t, known)
	m.Stop()
	time.Sleep(time.Second)
	again := beside(t, f, Config{Restart: 60 * time.Second, Restarting: true}, peer(spoken), Peer{Address: addr("127.94.15.1"), ASN: 65001})
	eventually(t, "the session is up", func() bool { return stateOf(again.Speaker, f.peer) == "established" })
	up := watch(t, func() bool { return stateOf(again.Speaker, f.peer) == "established" })
	time.Sleep(deferral + 3*time.Second)
	if n := up(); n > 0 {
		t.Errorf("the session was down %d times", n)
	}
	if n := kept(); n > 0 {
		t.Errorf("FRR was without the node's prefix %d times", n)
	}
}

// FRR reflects between two nodes: prefixes of both families and locators, with their
// next hops. It knows no SR policies, and keeps the SIDs of unicast prefixes to itself.
func TestReflectedByFRR(t *testing.T) {
	t.Parallel()
	f := router(t)
	f.start("zebra", "")
	second := addr(strings.TrimSuffix(f.ours.String(), "1") + "3")
	f.address(t, second)
	var config strings.Builder
	for line := range strings.Lines(reflecting) {
		config.WriteString(strings.ReplaceAll(line, "NODE", f.ours.String()))
		if strings.Contains(line, "NODE") {
			config.WriteString(strings.ReplaceAll(line, "NODE", second.String()))
		}
	}
	f.start("bgpd", config.String())
	join := func(i string, at netip.Addr) *member {
		return f.member(t, i, at, Config{Cluster: &Cluster{SIDs: true, Locator: true}}, Peer{ASN: 65001, RouteReflector: true})
	}
	a, b := join("1", f.ours), join("3", second)
	for _, prefix := range append(slices.Clone(b.node.Prefixes), b.node.Locator) {
		eventually(t, "a knows b's "+prefix.String(), func() bool {
			routes := a.routes.of(prefix.String())
			return len(routes) == 1 && routes[0].Address == second && routes[0].Node == addr("10.0.0.3") && routes[0].Segments == nil
		})
	}
	b.Stop()
	eventually(t, "the end arrives", func() bool { return a.routes.of(b.node.Locator.String()) == nil })
}

func stateOf(s *Speaker, peer netip.Addr) string {
	peers, err := s.Peers(context.Background())
	i := slices.IndexFunc(peers, func(p PeerStatus) bool { return p.Address == peer })
	if err != nil || i < 0 {
		return ""
	}
	return peers[i].State
}
