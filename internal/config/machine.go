package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/culvert-net/culvert/gtpu"
)

// CheckMachine finds what of c the machine lacks that the process runs on, interfaces, addresses
// and CPUs, and pools that hold its addresses.
func (c *Config) CheckMachine() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	have := make([]string, len(links))
	own := map[netip.Addr]string{}
	for i, l := range links {
		have[i] = l.Name
		addresses, err := l.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				own[p.Addr()] = l.Name
			}
		}
	}
	cpus, err := readCPUs(os.DirFS("/"))
	if err != nil {
		return err
	}
	var p problems
	c.checkInterfaces(&p, have)
	checkAddresses(c, &p, own, canListen)
	if problem, fix := cpus.check(c.Spread.CPUs); problem != "" {
		p.add("spread.cpus", fix, "%s", problem)
	}
	return p.err()
}

// CheckInterfaces finds the interfaces of c that the machine lacks. Validate does not,
// because a file may be checked on another machine.
func (c *Config) CheckInterfaces(have []string) error {
	var p problems
	c.checkInterfaces(&p, have)
	return p.err()
}

func (c *Config) checkInterfaces(p *problems, have []string) {
	check := func(field, name string) {
		if name != "" && !slices.Contains(have, name) {
			p.add(field, suggest(name, have), "interface %q does not exist on this machine", name)
		}
	}
	for i, in := range c.Interfaces {
		check(fmt.Sprintf("interfaces[%d].name", i), in.Name)
	}
	for i, s := range c.SIDs {
		check(fmt.Sprintf("sids[%d].interface", i), s.Interface)
	}
}

// CheckAddresses finds the addresses of upf.n4 that a machine lacks, and pools that hold an address of
// it. own has the interface of each of its addresses.
func CheckAddresses(c *Config, own map[netip.Addr]string) error {
	var p problems
	checkAddresses(c, &p, own, func(netip.Addr) bool { return false })
	return p.err()
}

// checkAddresses does that. listens says whether the kernel lets somebody listen at an address that is
// on no interface.
func checkAddresses(c *Config, p *problems, own map[netip.Addr]string, listens func(netip.Addr) bool) {
	for i, a := range c.UPF.N4 {
		p.refuse(a.IsValid() && own[a] == "" && !listens(a), fmt.Sprintf("upf.n4[%d]", i),
			fmt.Sprintf("ip address add %s dev INTERFACE, or an address that this machine has", a), "no interface of this machine has %s", a)
	}
	// Validate knows what the file names.
	others := slices.DeleteFunc(slices.SortedFunc(maps.Keys(own), netip.Addr.Compare), func(a netip.Addr) bool {
		return slices.Contains(c.UPF.N4, a) || slices.Contains(c.GTPU.Addresses, a)
	})
	claimPools(c, func(_ claimKind, pool netip.Prefix, _ bool, names func() (string, string)) {
		if i := slices.IndexFunc(others, pool.Contains); i >= 0 {
			field, what := names()
			p.add(field, "use a pool without it, or remove the address (Open5GS' own UPF leaves ogstun): the data path would keep packets from it", "%s: %s of interface %s is in it", what, others[i], own[others[i]])
		}
	})
}

// canListen says whether the kernel lets UDP listen at an address: it may without an interface that has
// it (ip_nonlocal_bind, a route of type local).
func canListen(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, syscall.EADDRNOTAVAIL)
}

// InterfaceNames returns the names of the interfaces, in the order of the file.
func (c *Config) InterfaceNames() []string {
	names := make([]string, len(c.Interfaces))
	for i, in := range c.Interfaces {
		names[i] = in.Name
	}
	return names
}

// SendsGTPUOverIPv4 says whether anything sends GTP-U from an IPv4 address of this
// node: sessions and most tunnels use GTPU.Addresses, a tunnel may have a source of
// its own.
func (c *Config) SendsGTPUOverIPv4() bool {
	return slices.ContainsFunc(c.GTPU.Addresses, netip.Addr.Is4) ||
		slices.ContainsFunc(c.Tunnels, func(t gtpu.Tunnel) bool { return t.Source.Is4() })
}
