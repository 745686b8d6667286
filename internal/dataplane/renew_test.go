package dataplane

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// otherLayout is a build with other fields in the tables of SIDs and rules. In pdr only a name
// differs, so that the program is right about both.
func otherLayout(spec *ebpf.CollectionSpec) {
	edit := func(name string, change func([]btf.Member)) {
		s := btf.Copy(spec.Maps[name].Value).(*btf.Struct)
		change(s.Members)
		spec.Maps[name].Value = s
	}
	edit(abi.MapLocalSid, func(m []btf.Member) { m[5].Name, m[6].Name = m[6].Name, m[5].Name })
	edit(abi.MapPdr, func(m []btf.Member) { m[8].Name = "another" })
}

// withoutPieces is a build that takes no frames in several pieces. The kernel lets it use no table
// of devices or programs of one that does.
func withoutPieces(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		p.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	}
}

func TestOtherLayoutIsCopied(t *testing.T) {
	inOwnNamespace(t, func() {
		parent := pinParent(t)
		path := filepath.Join(parent, "culvert")
		t.Cleanup(func() { must(t, Remove(path)) })
		limits := smallLimits
		limits.PodFlows = 64
		d := openWith(t, Options{PinPath: path, Limits: limits})
		putContent(t, d)
		// Flows of pods are beside a lock, which is not copied.
		flows := d.maps[abi.MapNetpolFlow]
		bucket := bytes.Repeat([]byte{0xa5}, int(flows.ValueSize()))
		must(t, flows.Put(uint32(1), bucket))
		_, err := d.XDP.Attach(1, attach.ModeGeneric)
		must(t, err)
		before := dump(t, d)
		must(t, d.Close())
		more := limits
		more.Adjacencies, more.Routes = 2*more.Adjacencies, 2*more.Routes
		for what, opts := range map[string]Options{
			"other fields": {Limits: limits, edit: otherLayout},
			"more entries": {Limits: more},
			"no pieces":    {Limits: limits, edit: withoutPieces},
		} {
			opts.PinPath = path
			id := linkProgram(t, 1)
			// A daemon that dies meanwhile changes nothing.
			must(t, openWith(t, opts).Close())
			if got := linkProgram(t, 1); got != id {
				t.Errorf("%s: the interface runs program %d before the tables are filled, want %d", what, got, id)
			}
			d = openWith(t, opts)
			putContent(t, d)
			_, err := d.XDP.Attach(1, attach.ModeGeneric)
			must(t, err)
			if got := linkProgram(t, 1); got != id {
				t.Errorf("%s: the interface runs program %d before Sweep, want %d", what, got, id)
			}
			must(t, d.Sweep())
			if got := linkProgram(t, 1); got == id || got != pinnedID(t, path, abi.ProgCulvertXdp) {
				t.Errorf("%s: the interface runs program %d, formerly %d, pinned is %d", what, got, id, pinnedID(t, path, abi.ProgCulvertXdp))
			}
			if after := dump(t, d); after != before {
				t.Errorf("%s: the tables changed:\n%s", what, difference(before, after))
			}
			must(t, d.Close())
			if got := list(t, parent); len(got) != 1 {
				t.Errorf("%s: there is %v, want the pins alone", what, got)
			}
			d = openWith(t, opts) // the same build: nothing is copied
			if d.renewal != nil {
				t.Errorf("%s: tables are copied that fit", what)
			}
			must(t, d.Close())
			d = openWith(t, Options{PinPath: path, Limits: limits}) // and back again
			putContent(t, d)
			must(t, d.Sweep())
			if after := dump(t, d); after != before {
				t.Errorf("%s, and back: the tables changed:\n%s", what, difference(before, after))
			}
			must(t, d.Close())
		}
	})
}

// A daemon died after its directory took the place of the former one, and before the links were
// moved.
func TestExchangeIsFinished(t *testing.T) {
	inOwnNamespace(t, func() {
		parent := pinParent(t)
		path, other := filepath.Join(parent, "culvert"), filepath.Join(parent, "other")
		d := openPinned(t, path)
		_, err := d.XDP.Attach(1, attach.ModeGeneric)
		must(t, err)
		must(t, d.Close())
		d = openPinned(t, other)
		must(t, d.Close())
		must(t, os.Rename(path, path+"_new"))
		must(t, os.Rename(other, path))
		d = openPinned(t, path)
		if got := d.XDP.Attached(); len(got) != 1 || got[1] != attach.ModeGeneric {
			t.Errorf("Attached() = %v, want lo", got)
		}
		if got := linkProgram(t, 1); got != pinnedID(t, path, abi.ProgCulvertXdp) {
			t.Errorf("lo runs program %d, want %d", got, pinnedID(t, path, abi.ProgCulvertXdp))
		}
		must(t, d.Close())
		if got := list(t, parent); len(got) != 1 {
			t.Errorf("there is %v, want the pins alone", got)
		}
		must(t, Remove(path))
	})
}

// withoutSysAdmin runs f with the rights of the systemd unit, in which CAP_SYS_ADMIN is missing:
// the kernel shows the types of maps to nobody else.
func withoutSysAdmin(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	must(t, unix.Capget(&header, &all[0]))
	few := all
	few[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	must(t, unix.Capset(&header, &few[0]))
	defer func() { must(t, unix.Capset(&header, &all[0])) }()
	f()
}

// What is recorded says as much of each map's types as the kernel would.
func TestLayoutsAreRecorded(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	putContent(t, d)
	before := dump(t, d)
	must(t, d.Close())
	withoutSysAdmin(t, func() {
		d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: otherLayout})
		putContent(t, d)
		must(t, d.Sweep())
		if after := dump(t, d); after != before {
			t.Errorf("the tables changed:\n%s", difference(before, after))
		}
		must(t, d.Close())
	})
	// What an earlier build recorded is completed.
	for _, name := range list(t, path, "layout") {
		at := filepath.Join(path, "layout", name)
		record, err := os.Readlink(at)
		must(t, err)
		if hash, _, typed := strings.Cut(record, ":"); typed {
			relink(t, at, hash)
		}
	}
	d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: otherLayout})
	must(t, d.Close())
	for _, name := range list(t, path, "maps") {
		record, err := os.Readlink(filepath.Join(path, "layout", name))
		must(t, err)
		if !strings.Contains(record, ":") {
			t.Errorf("layout of %s: %q has no types", name, record)
		}
	}
}

// With the rights of the systemd unit a daemon takes over all that a user plane function has
// pinned: it goes on with its own, and replaces those of another build and of another layout.
func TestUnitTakesItsPins(t *testing.T) {
	path := pinPath(t)
	opts := Options{PinPath: path, Limits: smallLimits, N4Places: 64}
	opts.Limits.Sessions, opts.Limits.Filters = sessionLimits.Sessions, sessionLimits.Filters
	withoutSysAdmin(t, func() {
		start := func(edit func(*ebpf.CollectionSpec)) ebpf.ProgramID {
			t.Helper()
			opts.edit = edit
			d, err := Open(opts)
			must(t, err)
			must(t, d.Sweep())
			must(t, d.Close())
			return pinnedID(t, path, abi.ProgCulvertN4First)
		}
		first := start(nil)
		if got := start(nil); got != first {
			t.Errorf("program %d was loaded over %d, which is the same", got, first)
		}
		before := first
		for what, edit := range map[string]func(*ebpf.CollectionSpec){"another build": otherBuild, "another layout": otherLayout} {
			got := start(edit)
			if got == before {
				t.Errorf("%s goes on with program %d of the former one", what, got)
			}
			before = got
		}
		must(t, Remove(path))
	})
}

// TestUpgradeOfLayout sends packets of a session while tables with one layout take the place
// of tables with another: every packet is forwarded, and counted once.
func TestUpgradeOfLayout(t *testing.T) {
	w, path := newWire(t), pinPath(t)
	limits := smallLimits
	limits.Sessions, limits.Filters = sessionLimits.Sessions, sessionLimits.Filters
	w.ns.Run(t, "ethtool", "-K", "far", "gro", "on") // veth takes frames of XDP only then
	start := func(edit func(*ebpf.CollectionSpec)) *DataPlane {
		d := openWith(t, Options{PinPath: path, Limits: limits, edit: edit})
		w.do(t, func() {
			must(t, d.SetSettings(Settings{Source: addr("fc00:a::1"), GTPUAddresses: addrs("10.0.0.1"), UEPools: []netip.Prefix{prefix("10.45.0.0/26")}}))
			must(t, d.Routes.Put(0, prefix("0.0.0.0/0"), []AdjacencyKey{{Interface: "near"}}))
			must(t, d.Ports.PutDevice(w.near.Index))
			must(t, d.Ports.Set(w.near.Index, port.Port{}))
			must(t, d.Sessions.Put(plain(5, 7)))
			for _, k := range d.Adjacencies.Keys() {
				must(t, d.Adjacencies.SetNextHop(k, ready(w.near.Index)))
			}
			_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
			must(t, err)
		})
		must(t, d.Sweep())
		return d
	}
	d := start(nil)
	must(t, d.Close())
	var tx, rx int
	w.do(t, func() { tx, rx = packetSocket(t, w.far.Index), packetSocket(t, w.far.Index) })
	frame := downlinkFrame("192.0.2.1", ue4(5).String(), 80)
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
			if unix.Sendto(tx, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.far.Index}) == nil {
				n++
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	for _, edit := range []func(*ebpf.CollectionSpec){otherLayout, nil, otherBuild, otherLayout} {
		d = start(edit)
		must(t, d.Close())
	}
	close(stop)
	n := <-sent
	if got := receiveLongerThan(rx, len(frame), n); n < 100 || got != n {
		t.Errorf("%d packets sent, %d arrived in G-PDUs", n, got)
	}
	d = start(nil)
	usage, err := d.Sessions.Usage(5)
	must(t, err)
	want := counter.Counter{Packets: uint64(n), Bytes: uint64(n * (len(frame) - 14))}
	for _, u := range usage {
		if u.Rule == 2 && u.Volume != want {
			t.Errorf("the rule counted %+v, want %+v", u.Volume, want)
		}
	}
}

// receiveLongerThan counts arrivals of frames of more than some octets, up to want.
func receiveLongerThan(fd, octets, want int) int {
	buf, got := make([]byte, 2048), 0
	for got < want {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return got
		}
		if n > octets {
			got++
		}
	}
	return got
}
