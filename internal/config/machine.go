package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
)

// CheckMachine finds what of c the machine lacks that the process runs on: interfaces
// and CPUs.
func (c *Config) CheckMachine() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	have := make([]string, len(links))
	for i, l := range links {
		have[i] = l.Name
	}
	cpus, err := readCPUs(os.DirFS("/"))
	if err != nil {
		return err
	}
	var p problems
	c.checkInterfaces(&p, have)
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
