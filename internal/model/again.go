package model

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
)

// maxTurns is how often a packet may be for this node again.
const maxTurns = 3

// isAgain says whether a finished packet is for this data path: for a local SID or a GTP-U
// address, or, if it was decapsulated, for what the port's roles let in and no longer prefix of
// the main table has.
func (j *journey) isAgain(o outbound) bool {
	m := j.m
	dst := o.routedTo()
	switch new := o.header == pushed || o.header == bySender; {
	case j.session && !new:
		return false // what a UE sends leaves by a route, or not at all
	case m.localSID(dst) != nil, m.isGTPU(dst):
		return true
	case o.header != inner:
		return false
	case within(m.network.UEPools, dst), within(m.network.Config.GTPU.Pools, dst):
		return m.guardOf(j.port).isN6()
	}
	s, steered := m.steered(dst)
	return steered && !s.passes() && m.guardOf(j.port).again().steers(s.to) == "" && !m.routedBeyond(s.prefix.Bits(), o)
}

// routedBeyond says whether the main table has a longer prefix than this one.
func (m *Model) routedBeyond(bits int, o outbound) bool {
	_, dst := addresses(o.packet)
	for _, r := range m.routes {
		if cmp.Or(r.Table, MainTable) == MainTable && r.Prefix.Contains(dst) && r.Prefix.Bits() > bits {
			return true
		}
	}
	return false
}

// again takes a finished packet through section 2 once more, as if the kernel had led it back.
func (j *journey) again(o outbound) Result {
	r := j.passFinished(o)
	if j.turn == maxTurns {
		return Result{Reason: Turns, Counts: r.Counts}
	}
	k := &journey{m: j.m, frame: r.Out, came: j.came, ifindex: j.ifindex, port: j.port, turn: j.turn + 1}
	k.own = o.header == pushed || o.header == received && j.own
	if !k.own {
		k.guard = j.m.guardOf(j.port).again()
	}
	j.after = k
	next := k.run()
	if next.Counts == nil {
		next.Counts = Counts{}
	}
	next.Counts.Add(r.Counts)
	j.refused = append(j.refused, k.refused...)
	j.copies = append(j.copies, k.copies...)
	j.events = append(j.events, k.events...)
	return next
}

// again is the guard of what its port has let in before: who is inside of the domain steers into
// policies.
func (g *guard) again() *guard {
	if g == nil || !g.in.HasRole(config.RoleSR) {
		return g
	}
	in := *g.in
	in.Roles = append(slices.Clone(in.Roles), config.RoleEdge)
	return &guard{g.m, &in}
}

// last is the journey's last turn.
func (j *journey) last() *journey {
	for j.after != nil {
		j = j.after
	}
	return j
}
