package class

import (
	"errors"
	"net/netip"
	"testing"
)

// lookUp finds the classifier of a packet as the data path does.
func lookUp(t *Table, iface string, vlan uint16, from netip.Addr) Classifier {
	of := func(vlan uint16) (out Classifier, found bool) {
		longest := -1
		for _, o := range t.Origins(iface) {
			if o.VLAN == vlan && o.Prefix.Contains(from) && o.Prefix.Bits() > longest {
				out, longest = o.Classifier, o.Prefix.Bits()
			}
		}
		return out, longest >= 0
	}
	if c, found := of(vlan); found {
		return c
	}
	if c, found := of(0); found {
		return c
	}
	return t.Classifier(Source{Kind: SourceInterface, Interface: iface})
}

// What the data path finds is what Apply finds by comparing, at each edge of each prefix.
func TestOriginsAgreeWithApply(t *testing.T) {
	all := append(classes(),
		Class{Name: "inner", Color: 50, Priority: 7, Match: Match{Sources: []netip.Prefix{prefix("10.9.7.128/25")}, Interfaces: []string{"eth1"}}},
		Class{Name: "outer", Color: 60, Priority: -1, Match: Match{Sources: []netip.Prefix{prefix("0.0.0.0/0")}}})
	table, err := Compile(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	policies := map[uint32]string{10: "p10", 20: "p20", 40: "p40", 50: "p50", 60: "p60"}
	for _, iface := range []string{"eth1", "eth2"} {
		if n := len(table.Origins(iface)); n == 0 || n > table.CountOrigins(iface) {
			t.Errorf("%s has %d origins, counted %d", iface, n, table.CountOrigins(iface))
		}
		for _, vlan := range []uint16{0, 100, 101, 200} {
			for _, from := range []string{"10.9.7.0", "10.9.7.127", "10.9.7.128", "10.9.8.0", "10.8.255.255", "2001:db8:9::1", "2001:db8:a::1", "::1"} {
				a := netip.MustParseAddr(from)
				c := lookUp(table, iface, vlan, a)
				for _, to := range []string{"10.1.2.0/24", "10.2.0.0/16", "192.0.2.0/24"} {
					row, _ := table.Row(prefix(to), "best", policies)
					for dscp := range uint16(64) {
						name := ""
						if one := table.Apply(Source{Kind: SourceInterface, Interface: iface, VLAN: vlan, Prefix: netip.PrefixFrom(a, a.BitLen())}, dscp, prefix(to)); one != nil {
							name = one.Name
						}
						if got := row[c[dscp]].Class; got != name {
							t.Fatalf("%s, VLAN %d, from %s to %s, DSCP %d: class %q, want %q", iface, vlan, from, to, dscp, got, name)
						}
					}
				}
			}
		}
	}
	if o := table.Origins("eth3"); len(o) != len(table.Origins("eth2")) {
		t.Errorf("VLANs of eth1 are those of eth3: %v", o)
	}
	none, _ := Compile(classes()[:4], nil)
	if o := none.Origins("eth1"); len(o) != 0 {
		t.Errorf("without vlans and sources: %v", o)
	}
}

// Long lists are compiled in no time, and those that would fill the table are refused: as
// many combine with each other as one interface can have origins.
func TestManySources(t *testing.T) {
	many := func(vlans int) (all []Class) {
		for i := range 14 {
			c := Class{Name: string(rune('a' + i)), Color: 1, Priority: i, Match: Match{Interfaces: []string{"eth1"}}}
			for j := range vlans {
				c.Match.VLANs = append(c.Match.VLANs, uint16(1+vlans*i+j))
			}
			for j := range 20 {
				c.Match.Sources = append(c.Match.Sources, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j), 0}), 24))
			}
			all = append(all, c)
		}
		return all
	}
	table, err := Compile(many(13), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := table.CountOrigins("eth1"); n != 14*13*22 || len(table.Origins("eth1")) > n {
		t.Errorf("counted %d origins, there are %d", n, len(table.Origins("eth1")))
	}
	if n := table.CountOrigins("eth2"); n != 0 {
		t.Errorf("%d origins of an interface that no class names", n)
	}
	if _, err := Compile(many(14), nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("%d origins: %v", 14*14*22, err)
	}
}
