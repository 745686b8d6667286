package dataplane

import (
	"cmp"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
)

const (
	roleN3 = port.Roles(abi.PortFlagsPORT_N3)
	roleN4 = port.Roles(abi.PortFlagsPORT_N4)
)

// newN4Port is an n4Rig whose requests come by an interface with the role n4 alone, where only
// the program before the data path answers.
func newN4Port(t *testing.T) *n4Rig {
	t.Helper()
	r := newN4Rig(t)
	programs, err := r.d.loadLater(abi.ProgCulvertN4First, abi.ProgCulvertN4Port)
	must(t, err)
	for _, p := range programs {
		t.Cleanup(func() { p.Close() })
	}
	next := r.d.maps[abi.MapNextProgram]
	must(t, next.Delete(uint32(abi.ProgramPROGRAM_N4)))
	must(t, next.Put(uint32(abi.ProgramPROGRAM_DATA_PATH), r.d.prog))
	must(t, next.Put(uint32(abi.ProgramPROGRAM_N4FIRST), programs[abi.ProgCulvertN4First]))
	must(t, r.d.Steering.PutLocal(single(addr("10.4.0.1"))))
	r.program = xdp.New(programs[abi.ProgCulvertN4Port])
	return r
}

// TestN4PortAnswers: what comes by such an interface is answered before the data path sees it.
func TestN4PortAnswers(t *testing.T) {
	r := newN4Port(t)
	must(t, r.d.maps[abi.MapNextProgram].Delete(uint32(abi.ProgramPROGRAM_DATA_PATH))) // it would abort
	r.expect("to the second gNB", update(open5gsForward, 1, 2, "10.200.0.9"), r.forward[1], r.act[0])
	r.expect("idle", update(open5gsIdle, 1, 0, ""), r.forward[1], r.act[1])
	r.expect("active", update(open5gsForward, 1, 2, "10.200.0.9"), r.forward[1], r.act[0])
}

// TestN4PortHeartbeats: heartbeats are answered there, too.
func TestN4PortHeartbeats(t *testing.T) { newN4Port(t).heartbeats() }

// TestN4PortLeaves: the data path judges everything else, and what would not be for this host.
func TestN4PortLeaves(t *testing.T) {
	r := newN4Port(t)
	mac := [6]byte(packet.Hex(hostA))
	port4 := func(roles port.Roles, mac [6]byte) { must(t, r.d.Ports.Set(1, port.Port{Roles: roles, MAC: mac})) }
	state, answered := r.state.Get(0), update(open5gsForward, 1, 2, "10.200.0.9")
	for _, c := range []struct {
		what, from   string // from: else the SMF
		change, undo func()
		ies          string
		want         uint32
	}{
		{what: "another message", ies: open5gsIdle + "0058000101", want: xdp.VerdictPass},
		{what: "a stranger", from: "10.4.0.7", want: xdp.VerdictPass},
		{what: "no address of N4", want: xdp.VerdictPass, change: func() {
			none := state
			none.Address = [4]abi.In6{}
			r.state.Put(0, &none)
		}, undo: func() { r.state.Put(0, &state) }},
		{what: "another host's frame", want: xdp.VerdictPass, change: func() { port4(roleN4, [6]byte{2, 0, 0, 0, 0, 9}) }},
		{what: "another role", want: xdp.VerdictDrop, change: func() { port4(roleN3, mac) }},
		{
			what: "a trace", want: xdp.VerdictPass, change: func() { must(t, r.d.Trace.Set(&event.TraceFilter{Source: prefix("10.4.0.0/24")})) },
			undo: func() { must(t, r.d.Trace.Set(nil)) },
		},
		{what: "switched off", want: xdp.VerdictPass, change: func() {
			must(t, r.d.maps[abi.MapNextProgram].Delete(uint32(abi.ProgramPROGRAM_N4FIRST)))
		}},
	} {
		port4(roleN4, mac)
		if c.change != nil {
			c.change()
		}
		frame, session := n4Frame(cmp.Or(c.from, "10.4.0.2"), r.message(300, cmp.Or(c.ies, answered))), r.sessions.Get(n4Place)
		verdict, got, err := r.program.Test(frame, 1)
		must(t, err)
		if verdict != c.want || !slices.Equal(got, frame) {
			t.Errorf("%s: verdict %s, want %s; frame %x", c.what, xdp.VerdictName(verdict), xdp.VerdictName(c.want), got)
		}
		if r.sessions.Get(n4Place) != session || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[0] {
			t.Errorf("%s: the session changed", c.what)
		}
		if c.undo != nil {
			c.undo()
		}
	}
}

// TestN4PortIsAttached: an interface runs the program as long as it carries N4 alone, and the data
// path answers N4; a daemon that starts again finds the program pinned.
func TestN4PortIsAttached(t *testing.T) {
	path := pinPath(t)
	pinned := func(name string) ebpf.ProgramID { return pinnedID(t, path, name) }
	inOwnNamespace(t, func() {
		opts := Options{PinPath: path, Limits: smallLimits, N4Places: 64}
		d := openWith(t, opts)
		_, err := d.XDP.Attach(1, attach.ModeGeneric)
		must(t, err)
		first := pinned(abi.ProgCulvertN4Port)
		runs := func(when string, want ebpf.ProgramID) {
			t.Helper()
			if got := linkProgram(t, 1); got != want {
				t.Errorf("%s: the interface runs program %d, want %d", when, got, want)
			}
		}
		runs("without a role", pinned(abi.ProgCulvertXdp))
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		runs("with n4", first)
		must(t, d.Ports.Set(1, port.Port{Roles: roleN3 | roleN4}))
		runs("with n3, too", pinned(abi.ProgCulvertXdp))
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		must(t, d.Close())
		d = openWith(t, opts)
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		runs("after a start", first)
		must(t, d.Ports.Delete(1))
		runs("without the interface", pinned(abi.ProgCulvertXdp))
		must(t, d.XDP.Detach(1))
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		_, err = d.XDP.Attach(1, attach.ModeGeneric)
		must(t, err)
		runs("attached afterwards", first)
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		must(t, d.Close())
		opts.N4Places = 0
		d = openWith(t, opts)
		must(t, d.Ports.Set(1, port.Port{Roles: roleN4, N4Alone: true}))
		must(t, d.Sweep()) // the tables have another size: until now the former ones are in use
		runs("switched off", pinned(abi.ProgCulvertXdp))
		must(t, d.XDP.Detach(1))
	})
}
