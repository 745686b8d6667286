package dataplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

var pinDirs atomic.Uint32

// pinParent is a directory of this test's own in a bpffs.
func pinParent(t *testing.T) string {
	t.Helper()
	needRoot(t)
	dir := fmt.Sprintf("/sys/fs/bpf/culvert-test-%d-%d", os.Getpid(), pinDirs.Add(1))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatalf("%v: is a bpffs mounted at /sys/fs/bpf?", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// pinPath is where a test pins; what is there goes at its end.
func pinPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(pinParent(t), "culvert")
	t.Cleanup(func() {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

func openPinned(t *testing.T, path string) *DataPlane {
	t.Helper()
	return openWith(t, Options{PinPath: path, Limits: smallLimits})
}

// inOwnNamespace calls f where lo is nobody else's: other tests have servers on this host's.
func inOwnNamespace(t *testing.T, f func()) {
	t.Helper()
	netns.New(t).Do(t, f)
}

// otherBuild adds an instruction that changes nothing but the program's tag.
func otherBuild(spec *ebpf.CollectionSpec) {
	p := spec.Programs[abi.ProgCulvertXdp]
	nop := asm.Mov.Imm(asm.R0, 7)
	p.Instructions = append(asm.Instructions{p.Instructions[0], nop}, p.Instructions[1:]...)
}

func list(t *testing.T, elem ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(elem...))
	must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestRestartKeepsTables(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	putContent(t, d)
	before := dump(t, d)
	usage := fmt.Sprint(d.Usage())
	must(t, d.Close())

	d = openPinned(t, path)
	if after := dump(t, d); after != before {
		t.Errorf("Open changed the tables:\n%s", difference(before, after))
	}
	putContent(t, d)
	if after := dump(t, d); after != before {
		t.Errorf("putting the same again changed the tables:\n%s", difference(before, after))
	}
	must(t, d.Sweep())
	if after := dump(t, d); after != before {
		t.Errorf("Sweep changed the tables:\n%s", difference(before, after))
	}
	if after := fmt.Sprint(d.Usage()); after != usage {
		t.Errorf("in use before %s\nafter %s", usage, after)
	}
	changeContent(t, d)
	deleteContent(t, d)
}

func TestSweepRemovesTheRest(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	empty := d.Usage()
	putContent(t, d)
	must(t, d.Ports.PutDevice(1))
	must(t, d.Close())

	d = openPinned(t, path)
	must(t, d.SetSettings(testSettings()))
	one, _, sids, _ := content()
	must(t, d.Policies.Put(one[0]))
	must(t, d.SIDs.Put(sids[0]))
	must(t, d.Sweep())
	for name, want := range map[string]int{
		abi.MapSrPolicy: 1, abi.MapSegmentList: 1, abi.MapLocalSid: 1, abi.MapAdjacency: 1,
		abi.MapNameByIndex: 2,
		abi.MapSource:      1, // of the one segment
	} {
		if got := d.Usage()[name].Used; got != want {
			t.Errorf("%s: %d in use, want %d", name, got, want)
		}
	}
	for name, got := range d.Usage() {
		switch name {
		case abi.MapSrPolicy, abi.MapSegmentList, abi.MapLocalSid, abi.MapAdjacency, abi.MapNameByIndex, abi.MapSource:
		default:
			if got != empty[name] {
				t.Errorf("%s: %+v in use, want %+v", name, got, empty[name])
			}
		}
	}
	var there uint32
	if err := d.maps[abi.MapDevice].Lookup(uint32(1), &there); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("device 1 is still there: %v", err)
	}
	var port abi.Port
	must(t, d.maps[abi.MapPort].Lookup(uint32(1), &port))
	if port.Flags != 0 {
		t.Errorf("port 1 still has flags %d", port.Flags)
	}
	if d.Tunnels.Find(7) != 0 || d.Tunnels.Find(0x12345678) != 0 {
		t.Error("tunnels are still found by their TEIDs")
	}
}

func TestPinsAppearAtOnceAndGo(t *testing.T) {
	parent := pinParent(t)
	path := filepath.Join(parent, "culvert")
	d := openPinned(t, path)
	if got := list(t, parent); len(got) != 1 || got[0] != "culvert" {
		t.Errorf("beside the pins there is %v", got)
	}
	if n := len(list(t, path, "maps")); n != len(d.maps) {
		t.Errorf("%d maps are pinned, want %d", n, len(d.maps))
	}
	if err := Remove(path); !errors.Is(err, pin.ErrInUse) {
		t.Errorf("Remove under a running daemon: %v, want ErrPinInUse", err)
	}
	if _, err := Open(Options{PinPath: path, Limits: smallLimits}); !errors.Is(err, pin.ErrInUse) {
		t.Errorf("a second Open: %v, want ErrPinInUse", err)
	}
	must(t, d.Close())
	must(t, Remove(path))
	must(t, Remove(path)) // again: nothing to do
	if got := list(t, parent); len(got) != 0 {
		t.Errorf("Remove left %v", got)
	}
}

func TestLeftoverOfACrashGoes(t *testing.T) {
	parent := pinParent(t)
	path := filepath.Join(parent, "culvert")
	d := openPinned(t, path)
	must(t, d.Close())
	// Died before the rename, and halfway through.
	must(t, os.Rename(path, path+"_new"))
	must(t, os.Remove(filepath.Join(path+"_new", "maps", abi.MapTunnel)))
	d = openPinned(t, path)
	must(t, d.Close())
	if got := list(t, parent); len(got) != 1 {
		t.Errorf("there is %v, want the pins alone", got)
	}
	must(t, Remove(path))
}

func TestOtherBuildTakesOver(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	putContent(t, d)
	before := dump(t, d)
	tag := programTag(t, path)
	must(t, d.Close())

	d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: otherBuild})
	if programTag(t, path) == tag {
		t.Error("the pinned program is still the former one")
	}
	if after := dump(t, d); after != before {
		t.Errorf("the upgrade changed the tables:\n%s", difference(before, after))
	}
	if got := list(t, path, "programs"); len(got) != 1 {
		t.Errorf("programs: %v", got)
	}
	must(t, d.Close())

	// A build with one more map, and back again.
	more := func(spec *ebpf.CollectionSpec) {
		m := spec.Maps[abi.MapPort].Copy()
		m.Name = "one_more"
		spec.Maps["one_more"] = m
	}
	d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: more})
	must(t, d.Close())
	if _, err := os.Stat(filepath.Join(path, "maps", "one_more")); err != nil {
		t.Errorf("the new map is not pinned: %v", err)
	}
	d = openPinned(t, path)
	if _, err := os.Stat(filepath.Join(path, "maps", "one_more")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the map that no build has is still pinned: %v", err)
	}
	if after := dump(t, d); after != before {
		t.Errorf("the tables changed:\n%s", difference(before, after))
	}
}

// All starts of one build load the program once. Only a start that cannot tell
// whether the pinned program is its own loads it again.
func TestSameBuildIsNotLoadedAgain(t *testing.T) {
	inOwnNamespace(t, func() {
		path := pinPath(t)
		d := openPinned(t, path)
		_, err := d.XDP.Attach(1, attach.ModeGeneric)
		must(t, err)
		must(t, d.Close())
		id := pinnedID(t, path, abi.ProgCulvertXdp)
		record := filepath.Join(path, "layout", abi.ProgCulvertXdp)

		d = openPinned(t, path)
		if got := pinnedID(t, path, abi.ProgCulvertXdp); got != id {
			t.Errorf("program %d was loaded over %d, which is the same", got, id)
		}
		if got := linkProgram(t, 1); got != id {
			t.Errorf("the interface runs program %d, want %d", got, id)
		}
		if len(d.maps) == 0 || d.Build() != abi.Build() {
			t.Errorf("%d maps, build %q", len(d.maps), d.Build())
		}
		must(t, d.Close())

		recorded, err := os.Readlink(record)
		must(t, err)
		for name, damage := range map[string]func(){
			"no record":          func() { must(t, os.Remove(record)) },
			"of another build":   func() { relink(t, record, "0"+recorded[1:]+"0") },
			"of another program": func() { relink(t, record, recorded+"0") },
			"a map made anew":    func() { repin(t, path, abi.MapErrorsLeft) },
		} {
			before := pinnedID(t, path, abi.ProgCulvertXdp)
			damage()
			d = openPinned(t, path)
			after := pinnedID(t, path, abi.ProgCulvertXdp)
			if after == before {
				t.Errorf("%s: the pinned program was taken", name)
			}
			if got := linkProgram(t, 1); got != after {
				t.Errorf("%s: the interface runs program %d, want %d", name, got, after)
			}
			must(t, d.Close())
		}

		d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: otherBuild})
		other := pinnedID(t, path, abi.ProgCulvertXdp)
		must(t, d.Close())
		openPinned(t, path)
		if got := pinnedID(t, path, abi.ProgCulvertXdp); got == other {
			t.Error("the program of another build was taken")
		}
	})
}

func relink(t *testing.T, path, target string) {
	t.Helper()
	must(t, os.Remove(path))
	must(t, os.Symlink(target, path))
}

// repin puts a map of the same kind in the place of a pinned one.
func repin(t *testing.T, path, name string) {
	t.Helper()
	at := filepath.Join(path, "maps", name)
	spec, err := loadSpec()
	must(t, err)
	must(t, os.Remove(at))
	fresh, err := ebpf.NewMap(spec.Maps[name])
	must(t, err)
	defer fresh.Close()
	must(t, fresh.Pin(at))
}

// pinnedID is a program that is pinned.
func pinnedID(t *testing.T, path, name string) ebpf.ProgramID {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(filepath.Join(path, "programs", name), nil)
	must(t, err)
	defer p.Close()
	info, err := p.Info()
	must(t, err)
	id, _ := info.ID()
	return id
}

// linkProgram is what an interface runs.
func linkProgram(t *testing.T, ifindex int) ebpf.ProgramID {
	t.Helper()
	l, err := netlink.LinkByIndex(ifindex)
	must(t, err)
	if l.Attrs().Xdp == nil {
		t.Fatalf("%s runs no program", l.Attrs().Name)
	}
	return ebpf.ProgramID(l.Attrs().Xdp.ProgId)
}

func programTag(t *testing.T, path string) string {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(filepath.Join(path, "programs", abi.ProgCulvertXdp), nil)
	must(t, err)
	defer p.Close()
	info, err := p.Info()
	must(t, err)
	return info.Tag
}

func TestIncompatiblePinsAreRefused(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path)
	putContent(t, d)
	before := dump(t, d)
	must(t, d.Close())
	few, small := smallLimits, smallLimits
	few.SIDs = 4
	small.Adjacencies = 1
	for _, c := range []struct {
		what   string
		limits Limits
		want   []string
	}{
		{"fewer SIDs than there are", few, []string{"limits.sids is 4", "at least"}},
		{"less room than what is there needs", small, []string{"table adjacency", "too small"}},
	} {
		_, err := Open(Options{PinPath: path, Limits: c.limits})
		if !errors.Is(err, pin.ErrIncompatible) {
			t.Errorf("%s: %v, want ErrIncompatible", c.what, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not name %q", c.what, err, w)
			}
		}
	}
	d = openPinned(t, path)
	if after := dump(t, d); after != before {
		t.Errorf("a refused Open changed the tables:\n%s", difference(before, after))
	}
}

// A node that becomes a user plane function goes on with what is pinned.
func TestSessionsAreAdded(t *testing.T) {
	path := pinPath(t)
	d := openPinned(t, path) // without room for sessions
	putContent(t, d)
	tables := func() string { // all but settings, which say that there is room
		lines := strings.Split(dump(t, d), "\n")
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "settings ") }), "\n")
	}
	before := tables()
	must(t, d.Close())
	limits := smallLimits
	limits.Sessions = sessionLimits.Sessions
	for again := range 2 {
		var err error
		d, err = Open(Options{PinPath: path, Limits: limits})
		must(t, err)
		if after := tables(); again == 0 && after != before {
			t.Errorf("the tables changed:\n%s", difference(before, after))
		}
		prepareSessions(t, d)
		must(t, d.Sessions.Put(plain(5, 7)))
		resolve(t, d)
		if verdict, _, err := d.Frames.Test(downlinkFrame("192.0.2.1", ue4(5).String(), 80), 1); err != nil || verdict != xdp.VerdictRedirect {
			t.Errorf("a packet of the session: %s, %v", xdp.VerdictName(verdict), err)
		}
		must(t, d.Sweep())
		must(t, d.Close())
	}
}

func TestForeignPinsAreRefused(t *testing.T) {
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	must(t, err)
	defer other.Close()
	for what, make := range map[string]func(path string){
		"an empty directory":   func(string) {},
		"other directories":    func(path string) { must(t, os.Mkdir(filepath.Join(path, "tc"), 0o700)) },
		"a program at the top": func(path string) { must(t, other.Pin(filepath.Join(path, "prog"))) },
		"another program of our name": func(path string) {
			must(t, os.Mkdir(filepath.Join(path, "programs"), 0o700))
			must(t, other.Pin(filepath.Join(path, "programs", abi.ProgCulvertXdp)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(pinParent(t), "culvert")
			must(t, os.Mkdir(path, 0o700))
			t.Cleanup(func() { must(t, os.RemoveAll(path)) })
			make(path)
			before := tree(t, path)
			_, err := Open(Options{PinPath: path, Limits: smallLimits})
			if !errors.Is(err, pin.ErrForeign) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open: %v, want ErrForeignPin that names %s", err, path)
			}
			if what != "an empty directory" { // which any tool may remove
				if err := Remove(path); !errors.Is(err, pin.ErrForeign) {
					t.Errorf("Remove: %v, want ErrForeignPin", err)
				}
			}
			if after := tree(t, path); after != before {
				t.Errorf("something changed:\nbefore %s\nafter %s", before, after)
			}
		})
	}
}

func tree(t *testing.T, path string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(path, func(p string, _ os.DirEntry, err error) error {
		out = append(out, p)
		return err
	}))
	return strings.Join(out, " ")
}

func TestPinPathOutsideOfBPFFS(t *testing.T) {
	needRoot(t)
	for _, path := range []string{filepath.Join(t.TempDir(), "culvert"), "/sys/fs/bpf/culvert-test-missing/culvert"} {
		_, err := Open(Options{PinPath: path, Limits: smallLimits})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%s): %v, want an error that names the path", path, err)
		}
	}
}
