package dataplane

import (
	"errors"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Path is where this node sends packets that it put into an outer header.
type Path struct {
	Source netip.Prefix // of the outer source
	// Ends are the segments in the order of travel, or the remote end of a GTP-U tunnel.
	Ends []netip.Addr
	// To has the destinations that a behaviour of this node takes from each packet, in place of
	// Ends; the zero Prefix: there are Ends.
	To netip.Prefix
	// Then has one more segment behind them, which is the packet's; the zero Prefix: none.
	Then netip.Prefix
	GTPU bool
	// ArgsOffset is where Args.Mob.Session begins in the last segment, or in those of To, in
	// bits; 0: nowhere.
	ArgsOffset uint8
	// MTU is that of the outer packet now (layer 3, octets); 0: nothing says.
	MTU int
}

// FindPaths returns the paths that match, which must not call d.
func FindPaths(d *DataPlane, match func(*Path) bool) []Path {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []Path
	visit := func(p Path) {
		if match(&p) {
			if !p.To.IsValid() {
				p.MTU = d.Adjacencies.MTU(d.Adjacencies.Toward(p.Ends...))
			}
			found = append(found, p)
		}
	}
	users := map[string][]user{}
	d.Sessions.Paths.Each(func(source netip.Addr, to *session.Forwarding) {
		if to.Kind == session.ForwardPolicy {
			users[to.Flow.Policy] = append(users[to.Flow.Policy], user{args: to.ArgsOffset})
			return
		}
		visit(Path{Source: hostPrefix(source), Ends: []netip.Addr{to.Remote}, GTPU: to.Kind == session.ForwardGTPU, ArgsOffset: to.ArgsOffset})
	})
	d.SIDs.Each(func(l srv6.LocalSID) {
		switch l.Behavior {
		case srv6.EndMGTP6D:
			users[l.Policy] = append(users[l.Policy], user{source: hostPrefix(l.Source), args: l.ArgsOffset})
		case srv6.EndMGTP6DDi:
			users[l.Policy] = append(users[l.Policy], user{source: hostPrefix(l.Source), args: l.ArgsOffset, then: l.SID})
		}
	})
	d.Steering.Translators(func(g srpolicy.GTP4D) {
		users[g.Policy] = append(users[g.Policy], user{source: g.SourcePrefix, then: g.SIDPrefix})
	})
	d.Tunnels.Paths(func(source, remote netip.Addr) {
		visit(Path{Source: hostPrefix(source), Ends: []netip.Addr{remote}, GTPU: true})
	})
	d.Policies.Paths(func(policy string, source netip.Addr, segments []netip.Addr) {
		visit(Path{Source: hostPrefix(source), Ends: segments})
		for _, u := range users[policy] {
			p := Path{Source: u.source, Ends: segments, Then: u.then, ArgsOffset: u.args}
			if !p.Source.IsValid() {
				p.Source = hostPrefix(source)
			}
			visit(p)
		}
	})
	visitTaken(d, visit)
	return found
}

// visitTaken visits the paths whose destination a behaviour takes from each packet.
func visitTaken(d *DataPlane, visit func(Path)) {
	d.SIDs.Each(func(l srv6.LocalSID) {
		switch l.Behavior {
		case srv6.EndMGTP4E: // each packet has its source, too
			visit(Path{Source: all4, To: all4, GTPU: true})
		case srv6.EndMGTP6E:
			visit(Path{Source: hostPrefix(l.Source), To: all6, GTPU: true})
		}
	})
	d.Steering.Translators(func(g srpolicy.GTP4D) {
		if g.Policy == "" {
			visit(Path{Source: g.SourcePrefix, To: g.SIDPrefix, ArgsOffset: uint8(g.SIDPrefix.Bits() + 32)})
		}
	})
}

var (
	all4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	all6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

// user is who sends into a policy's lists in a way of its own: from another source, with
// arguments, with a segment behind them.
type user struct {
	source, then netip.Prefix
	args         uint8
}

// hostPrefix is the prefix of one address.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// SetPathMTU limits what is sent along a path, and what is routed to the end of a path that has
// one alone; 0: as the links have it. What goes elsewhere by the same next hop stays as it is.
// The adjacency that packets meet then is a new one.
func SetPathMTU(d *DataPlane, mtu int, ends ...netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	former := d.Adjacencies.Toward(ends...).MTU
	err := setPathMTU(d, mtu, ends)
	if err != nil { // what was written is written back
		err = errors.Join(err, setPathMTU(d, former, ends))
	}
	return err
}

func setPathMTU(d *DataPlane, mtu int, ends []netip.Addr) error {
	done, err := d.Adjacencies.SetPathMTU(mtu, ends...)
	if err != nil {
		return err
	}
	err = d.Policies.PathChanged(adjacency.PathOf(ends...))
	if len(ends) == 1 {
		err = errors.Join(err, d.Tunnels.PathChanged(ends[0]), d.Sessions.Paths.Changed(ends[0]), d.Routes.PathChanged(ends[0]))
	}
	return errors.Join(err, done())
}
