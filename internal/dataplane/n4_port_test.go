package dataplane

import (
	"path/filepath"
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
	must(t, r.d.Steering.PutLocal(addr("10.4.0.1")))
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

// TestN4PortLeaves: the data path judges everything else, and what would not be for this host.
func TestN4PortLeaves(t *testing.T) {
	mac := [6]byte(packet.Hex(hostA))
	for name, c := range map[string]struct {
		change func(*n4Rig)
		ies    string
		want   uint32
	}{
		"another message": {ies: open5gsIdle + "0058000101", want: xdp.VerdictPass},
		"no address of N4": {want: xdp.VerdictPass, change: func(r *n4Rig) {
			s := r.state.Get(0)
			s.Address = [4]abi.In6{}
			r.state.Put(0, &s)
		}},
		"another host's frame": {want: xdp.VerdictPass, change: func(r *n4Rig) {
			must(t, r.d.Ports.Set(1, port.Port{Roles: roleN4, MAC: [6]byte{2, 0, 0, 0, 0, 9}}))
		}},
		"another role": {want: xdp.VerdictDrop, change: func(r *n4Rig) {
			must(t, r.d.Ports.Set(1, port.Port{Roles: roleN3, MAC: mac}))
		}},
		"a trace": {want: xdp.VerdictPass, change: func(r *n4Rig) {
			must(t, r.d.Trace.Set(&event.TraceFilter{Source: prefix("10.4.0.0/24")}))
			r.t.Cleanup(func() { must(t, r.d.Trace.Set(nil)) })
		}},
		"switched off": {want: xdp.VerdictPass, change: func(r *n4Rig) {
			must(t, r.d.maps[abi.MapNextProgram].Delete(uint32(abi.ProgramPROGRAM_N4FIRST)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newN4Port(t)
			must(t, r.d.Ports.Set(1, port.Port{Roles: roleN4, MAC: mac}))
			ies := c.ies
			if c.change != nil {
				ies = update(open5gsForward, 1, 2, "10.200.0.9")
				c.change(r)
			}
			frame, session := n4Frame("10.4.0.2", r.message(300, ies)), r.sessions.Get(n4Place)
			verdict, got, err := r.program.Test(frame, 1)
			must(t, err)
			if verdict != c.want || !slices.Equal(got, frame) {
				t.Errorf("verdict %s, want %s; frame %x", xdp.VerdictName(verdict), xdp.VerdictName(c.want), got)
			}
			if r.sessions.Get(n4Place) != session || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[0] {
				t.Error("the session changed")
			}
		})
	}
}

// TestN4PortIsAttached: an interface runs the program as long as it carries N4 alone, and the data
// path answers N4; a daemon that starts again finds the program pinned.
func TestN4PortIsAttached(t *testing.T) {
	path := pinPath(t)
	pinned := func(name string) ebpf.ProgramID {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(path, "programs", name), nil)
		must(t, err)
		defer p.Close()
		info, err := p.Info()
		must(t, err)
		id, _ := info.ID()
		return id
	}
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
