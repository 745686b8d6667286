package dataplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// dump is what a packet could meet: every entry of every table that is not
// empty, counters left out, and nothing of entries that nothing refers to.
func dump(t *testing.T, d *DataPlane) string {
	t.Helper()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.maps)) {
		m := d.maps[name]
		switch m.Type() {
		case ebpf.RingBuf, ebpf.PerCPUArray, ebpf.LRUHash:
			continue
		}
		for _, e := range contents(t, m) {
			switch name {
			case abi.MapTunnel:
				clear(e.value[:unsafe.Sizeof(abi.Volume{})])
			case abi.MapLostByDevice: // names another map after other limits
				at := unsafe.Offsetof(abi.Lost{}.Device)
				clear(e.value[at : at+4])
			case mapSettings: // counts writes
				at := unsafe.Offsetof(abi.Settings{}.Generation)
				clear(e.value[at : at+4])
			}
			if strings.Trim(string(e.value), "\x00") != "" {
				out = append(out, fmt.Sprintf("%s %x: %x", name, e.key, e.value))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// difference lists the lines that only one has.
func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, line := range as {
		if !slices.Contains(bs, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range bs {
		if !slices.Contains(as, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

func TestPutAgainWritesNothing(t *testing.T) {
	d := open(t)
	putContent(t, d)
	before := dump(t, d)
	putContent(t, d)
	if after := dump(t, d); after != before {
		t.Errorf("the tables changed:\n%s", difference(before, after))
	}
}

// TestNoLeak puts and deletes everything a thousand times, changing it in
// between, and finds as much room as before.
func TestNoLeak(t *testing.T) {
	d := open(t)
	must(t, d.SetSettings(testSettings()))
	before := d.Usage()
	entries := d.names.Usage().Used
	cycles := 1000
	if testing.Short() {
		cycles = 50
	}
	for range cycles {
		putContent(t, d)
		changeContent(t, d)
		deleteContent(t, d)
	}
	if after := d.Usage(); !maps.Equal(before, after) {
		t.Errorf("in use before %v\nafter %v", before, after)
	}
	if n := d.names.Usage().Used; n != entries {
		t.Errorf("%d names before, %d after", entries, n)
	}
	if n := len(d.Adjacencies.Keys()) + d.Adjacencies.Usage().Used + d.sources.Usage().Used + d.Tunnels.Waiting(); n != 0 {
		t.Errorf("%d adjacencies, sources and waiting tunnels are left", n)
	}
}

// changeContent changes one of each kind.
func changeContent(t *testing.T, d *DataPlane) {
	t.Helper()
	policies, tunnels, sids, steering := content()
	policies[1].SegmentLists = policies[1].SegmentLists[1:]
	must(t, d.Policies.Put(policies[1]))
	policies[0].SegmentLists[0].Segments = addrs("fc00:77::1")
	must(t, d.Policies.Put(policies[0]))
	tunnels[0].Remote, tunnels[0].RemoteTEID = addr("10.0.0.9"), 99
	must(t, d.Tunnels.Put(tunnels[0]))
	tunnels[2].LocalTEID, tunnels[2].Remote, tunnels[2].RemoteTEID = 0x700000, addr("10.0.0.8"), 98
	must(t, d.Tunnels.Put(tunnels[2]))
	tunnels[3].Remote, tunnels[3].RemoteTEID = addr("2001:db8::33"), 97
	must(t, d.Tunnels.Put(tunnels[3]))
	sids[3].SourcePrefixLength = 48
	must(t, d.SIDs.Put(sids[3]))
	sids[5].Map = addr("fc00:b::8")
	must(t, d.SIDs.Put(sids[5]))
	steering[4].Tunnel = "n3"
	must(t, d.Steering.Put(steering[4]))
	steering[6].GTP4D.SIDPrefix = prefix("fc00:ee::/48")
	must(t, d.Steering.Put(steering[6]))
}

func TestChangesArrive(t *testing.T) {
	// Tables that a change brings to a state equal tables that were put into it
	// at once, apart from the indices of entries.
	d := open(t)
	putContent(t, d)
	changeContent(t, d)
	for _, name := range []string{"n3", "there", "back"} {
		teid, index := d.Tunnels.Get(name).Receive()
		if got := d.entries.Get(index); got.Key != teid {
			t.Errorf("tunnel %s: TEID %#x leads to an entry for %#x", name, teid, got.Key)
		}
	}
	back := d.entries.Get(d.Tunnels.Find(10)) // switches to "there"
	if back.Remote != abi.In6Of(addr("10.0.0.8")) || back.Teid != 98 || back.Ipv4 != 1 {
		t.Errorf("tunnel back switches to %+v", back)
	}
	there := d.entries.Get(d.Tunnels.Find(0x700000))
	if there.Remote != abi.In6Of(addr("2001:db8::33")) || there.Teid != 97 || there.Ipv4 != 0 {
		t.Errorf("tunnel there switches to %+v", there)
	}
	if d.Tunnels.Find(9) != 0 {
		t.Error("the former TEID of tunnel there is still found")
	}
	// 10.46/16 goes to n3's own entry, and so does 10.45.0.7 (its slot could
	// not change in one word).
	for _, p := range []string{"10.46.0.0/16", "10.45.0.7/32"} {
		to := d.targets.At(prefix(p))
		if got := d.entries.Get(to.Index); got.Teid != 99 || got.Remote != abi.In6Of(addr("10.0.0.9")) || got.Qfi != 9 {
			t.Errorf("%s goes to %+v, %+v", p, to, got)
		}
	}
	slot := d.entries.Get(d.settings.PoolSlot(prefix("10.45.0.7/32")))
	if slot.Action != 0 {
		t.Errorf("the slot of 10.45.0.7 still says %+v", slot)
	}
}

// Two tunnels switch to each other, so a daemon that starts again puts one whose target it
// does not know yet. Packets go on by what the earlier daemon put, until Sweep.
func TestSwitchOverRestart(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	putContent(t, d)
	slot := d.Tunnels.Find(9)
	must(t, d.Close())
	d = openPinned(t, path)
	must(t, d.SetSettings(testSettings()))
	_, tunnels, _, _ := content()
	must(t, d.Tunnels.Put(tunnels[2])) // switches to what is not there yet
	if got := d.Tunnels.Find(9); got != slot || slot == 0 {
		t.Errorf("TEID 9 leads to entry %d after a restart, want %d as before", got, slot)
	}
	must(t, d.Sweep())
	if got := d.Tunnels.Find(9); got != 0 {
		t.Errorf("TEID 9 leads to entry %d after Sweep, want 0: the tunnel that it switched to is gone", got)
	}
	must(t, d.Close())
}
