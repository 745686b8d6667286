package netdev

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// find looks a destination up as the data path does: longest prefix first.
func find(m map[RouteKey][]Key, dst netip.Addr) []Key {
	for bits := dst.BitLen(); bits >= 0; bits-- {
		p, _ := dst.Prefix(bits)
		if via, ok := m[RouteKey{TableMain, p}]; ok {
			return via
		}
	}
	return nil
}

// randomRoutes are commands that make routes in a small part of the address
// space, so that they nest, and destinations in it.
func randomRoutes(random *rand.Rand, six bool) (commands []string, destinations []netip.Addr) {
	for range 400 {
		a, bits := randomAddr(random, six), 17+random.IntN(16)
		gateway := func() string { return fmt.Sprintf("10.0.0.%d", 2+random.IntN(4)) }
		if six {
			bits = 33 + random.IntN(96)
			gateway = func() string { return fmt.Sprintf("2001:db8::%d", 2+random.IntN(4)) }
		}
		p, _ := a.Prefix(bits)
		destinations = append(destinations, a, p.Addr())
		what := "via " + gateway() + " dev a0"
		switch random.IntN(10) {
		case 0:
			what = "dev a0"
		case 1:
			commands = append(commands, fmt.Sprintf("route replace blackhole %s metric 5", p))
			continue
		case 2:
			what = fmt.Sprintf("nexthop via %s dev a0 nexthop via %s dev a0 weight 3", gateway(), gateway())
		}
		commands = append(commands, fmt.Sprintf("route replace %s metric %d %s", p, 1+random.IntN(9), what))
	}
	return commands, destinations
}

func randomAddr(random *rand.Rand, six bool) netip.Addr {
	if !six {
		return netip.AddrFrom4([4]byte{172, 16, byte(random.IntN(4)), byte(random.IntN(256))})
	}
	b := netip.MustParseAddr("2001:db9::").As16()
	b[4], b[10], b[15] = byte(random.IntN(4)), byte(random.IntN(4)), byte(random.IntN(256))
	return netip.AddrFrom16(b)
}

// batch runs ip(8) commands at once and returns what it prints. Some commands
// may fail: random routes can contradict each other.
func batch(t *testing.T, ns *netns.NS, commands []string) string {
	t.Helper()
	file := t.TempDir() + "/batch"
	if err := os.WriteFile(file, []byte(strings.Join(commands, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := ns.Command("ip", "-force", "-oneline", "-batch", file).CombinedOutput()
	return string(out)
}

// Whatever the mirror answers itself, the kernel answers too.
func TestMirrorAgreesWithKernel(t *testing.T) {
	for name, six := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair(t)
			random := rand.New(rand.NewPCG(7, 7))
			commands, destinations := randomRoutes(random, six)
			for i := range 40 {
				commands = append(commands, fmt.Sprintf("neigh replace %s lladdr 02:00:00:00:01:%02x dev a0 nud permanent", destinations[i], i))
			}
			if out := batch(t, a, commands); strings.Contains(out, "expected") {
				t.Fatalf("ip does not understand: %s", out)
			}
			w := watch(t, a, Options{})
			s := eventually(t, w, "a snapshot", func(*Snapshot) bool { return true })
			m := Mirror(s, []uint32{0})
			var get []string
			for _, d := range destinations {
				get = append(get, "route get "+d.String())
			}
			said := strings.Split(batch(t, a, get), "\n")
			answered := compare(t, m, destinations, said)
			if answered < len(destinations)/2 {
				t.Errorf("the mirror answers %d of %d destinations", answered, len(destinations))
			}
		})
	}
}

// compare returns how many destinations the mirror answers itself.
func compare(t *testing.T, m map[RouteKey][]Key, destinations []netip.Addr, said []string) (answered int) {
	t.Helper()
	kernel := map[netip.Addr]string{}
	for _, line := range said {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if dst, err := netip.ParseAddr(fields[0]); err == nil {
			kernel[dst] = dst.String() // on the link, unless it says via
			if i := slices.Index(fields, "via"); i > 0 {
				kernel[dst] = fields[i+1]
			}
		}
	}
	for _, d := range destinations {
		via := find(m, d)
		if len(via) == 0 {
			continue
		}
		answered++
		if !slices.ContainsFunc(via, func(k Key) bool { return k.NextHop.String() == kernel[d] }) {
			t.Errorf("%s: mirror says %v, kernel %q", d, via, kernel[d])
		}
	}
	return answered
}
