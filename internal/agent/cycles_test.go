package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// more is what each cycle adds to siteConfig: something in every table.
const more = `
sids:
  - {sid: 'fc00:1:0:1::/64', behavior: End.DT6, table: 254}
  - {sid: 'fc00:1:0:2::/64', behavior: End.X, next_hop: 'fc00:20::1', flavors: [PSP, USD]}
  - {sid: 'fc00:8::1/128', behavior: End}
  - {sid: 'fc00:1:0:3::/64', behavior: End.B6.Encaps.Red, policy: south}
policies:
  - name: south
    binding_sid: fc00:9::1
    segment_lists:
      - segments: ['fc00:20::1', 'fc00:2::1']
      - {weight: 3, segments: ['fc00:20::1']}
steering:
  - {prefix: 10.1.0.0/16, policy: south}
  - {prefix: 10.60.0.7/32, tunnel: down}
tunnels:
  - {name: up, local_teid: 1, switch_to: down, remote: 192.0.2.7, remote_teid: 11}
  - {name: down, local_teid: 70000, switch_to: up, remote: 192.0.2.8, remote_teid: 12}
  - {name: out, local_teid: 3, decapsulate: true, table: 100}
`

// few and many are settings around it. Every tenth cycle changes them too, and
// an existing SID, which takes longer: each such change waits for the packets
// that are on their way.
const (
	few = `
interfaces: [{name: d0, roles: [n3, n6, sr], peers: any, host: any}, {name: d1, roles: [n3, n6, sr], peers: any, host: any}]
encapsulation: {source: 'fc00:1::1'}
domain: ['fc00::/16']
locators: [{name: main, prefix: 'fc00:1::/48'}]
gtpu: {addresses: [192.0.2.1]}
` + more
	many = `
interfaces: [{name: d0, roles: [n3, n6, sr], peers: any, host: any}, {name: d1, roles: [edge], host: any}]
encapsulation: {source: 'fc00:1::2', hop_limit: 9}
domain: ['fc00::/16']
locators: [{name: main, prefix: 'fc00:1::/48'}, {name: more, prefix: 'fc00:7::/48'}]
gtpu: {addresses: [192.0.2.1], pools: [10.60.0.0/24]}
` + more
)

// added is what each cycle adds and deletes through the API.
const added = `
sids: [{sid: 'fc00:1:0:9::/64', behavior: End}]
policies: [{name: api, segment_lists: [{segments: ['fc00:20::1']}]}]
steering: [{prefix: 'fc00:99::/32', policy: api}]
`

// usage is what a daemon occupies.
type usage struct {
	Tables   map[string]table.Usage
	Attached int
	Memlock  int // bytes, of the maps
	Files    int
	Routines int
	Heap     int // bytes, after a collection
}

func usageOf(a *Agent) (usage, error) {
	u := usage{Tables: a.core.dp.Counters.Usage(), Attached: len(a.core.dp.Attached()), Routines: runtime.NumGoroutine()}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	u.Files = len(entries)
	for _, e := range entries {
		f, err := os.Open(filepath.Join("/proc/self/fdinfo", e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the one that read the directory
		}
		if err != nil {
			return u, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if n, ok := strings.CutPrefix(lines.Text(), "memlock:"); ok {
				bytes, err := strconv.Atoi(strings.TrimSpace(n))
				if err != nil {
					return u, err
				}
				u.Memlock += bytes
			}
		}
		f.Close()
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	u.Heap = int(m.HeapAlloc)
	return u, nil
}

// cycles applies and reverts, and prints what is occupied before and after; if
// it is not to do so even once, what is occupied now.
// The first ones, which make what is made once, do not count.
func cycles(ctx context.Context, a *Agent, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	base := a.Running()
	var next [10]*config.Config
	for i := range next {
		yaml := few
		if i == 0 {
			yaml = strings.Replace(many, "table: 254", "table: 100", 1)
		}
		if next[i], err = config.Parse([]byte(yaml)); err != nil {
			return err
		}
	}
	fragment, err := config.Decode([]byte(added))
	if err != nil {
		return err
	}
	before, err := settledUsage(a)
	if err != nil {
		return err
	}
	if n == 0 {
		return json.NewEncoder(os.Stdout).Encode([]usage{before})
	}
	const warm = 20
	for i := range n + warm {
		if i == warm {
			if before, err = settledUsage(a); err != nil {
				return err
			}
		}
		if err := cycle(ctx, a, base, next[i%len(next)], fragment); err != nil {
			return fmt.Errorf("cycle %d: %w", i, err)
		}
	}
	after, err := settledUsage(a)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode([]usage{before, after})
}

// settledUsage waits for what the watcher still does about the last change.
func settledUsage(a *Agent) (usage, error) {
	time.Sleep(300 * time.Millisecond)
	return usageOf(a)
}

func cycle(ctx context.Context, a *Agent, base, next, fragment *config.Config) error {
	if changes, err := a.Apply(ctx, next, false); err != nil || len(changes) < 10 {
		return fmt.Errorf("apply: %d changes: %w", len(changes), err)
	}
	if _, err := a.Add(ctx, fragment); err != nil {
		return fmt.Errorf("add: %w", err)
	}
	refs := []desired.Ref{{Kind: desired.KindSID, Key: "fc00:1:0:9::/64"}, {Kind: desired.KindPolicy, Key: "api"}, {Kind: desired.KindSteering, Key: "fc00:99::/32"}}
	if _, err := a.Delete(ctx, refs); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if changes, err := a.Apply(ctx, base, false); err != nil || len(changes) < 10 {
		return fmt.Errorf("revert: %d changes: %w", len(changes), err)
	}
	return nil
}

// What another configuration had put, that a killed daemon had, is swept out by
// the next one: the tables are as if it had never been.
func TestNextDaemonSweeps(t *testing.T) {
	t.Parallel() // it mostly waits: for grace periods, for packets
	s := newSite(t)
	for host, mac := range map[string]string{"fc00:10::1 dev d0": s.in.HardwareAddr.String(), "fc00:20::1 dev d1": s.out.HardwareAddr.String()} {
		s.node.IP(t, "neighbour add "+host+" nud permanent lladdr "+mac)
	}
	tablesOf := func() map[string]table.Usage {
		p := s.daemon(t, os.Args[0], cyclesEnv+"=0")
		var u []usage
		said := <-p.lines
		if err := json.Unmarshal([]byte(said), &u); err != nil {
			t.Fatalf("it said %q\n%s", said, p.log)
		}
		p.end(t, syscall.SIGTERM)
		return u[0].Tables
	}
	write := func(yaml string) {
		if err := os.WriteFile(filepath.Join(s.dir, "culvert.yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := tablesOf()
	write(many)
	p := s.daemon(t, os.Args[0])
	p.end(t, syscall.SIGKILL)
	if full := tablesOf(); full["sr_policy"].Used == 0 || full["tunnel_by_teid"].Used == 0 || full["local_sid"].Used <= want["local_sid"].Used {
		t.Fatalf("the other configuration's tables hold %v", full)
	}
	write(siteConfig)
	if got := tablesOf(); !maps.Equal(got, want) {
		t.Errorf("the tables hold\n%v, want\n%v", got, want)
	}
}

// A thousand times applied and reverted, nothing is left behind: not in a
// table, not in memory, no file, no goroutine.
func TestCyclesLeaveNothing(t *testing.T) {
	t.Parallel() // it mostly waits: for grace periods, for packets
	s := newSite(t)
	s.node.IP(t, "route add fc00:50::/32 via fc00:20::1 table 100")
	// Neighbours that come and go by themselves would look like a leak.
	s.node.IP(t, fmt.Sprintf("neighbour add fc00:10::1 lladdr %s dev d0 nud permanent", s.in.HardwareAddr))
	s.node.IP(t, fmt.Sprintf("neighbour add fc00:20::1 lladdr %s dev d1 nud permanent", s.out.HardwareAddr))
	const times = 1000
	start := time.Now()
	p := s.daemon(t, os.Args[0], cyclesEnv+"="+strconv.Itoa(times))
	var said string
	select {
	case said = <-p.lines:
	case <-time.After(2 * time.Minute):
		t.Fatalf("after 2 minutes not done\n%s", p.log)
	}
	p.end(t, syscall.SIGTERM)
	t.Logf("%d cycles in %s", times, time.Since(start).Round(time.Millisecond))
	var u []usage
	if err := json.Unmarshal([]byte(said), &u); err != nil {
		t.Fatalf("it said %q\n%s", said, p.log)
	}
	before, after := u[0], u[1]
	// A tunnel that is put again while packets may still see its place as it was
	// is found by its TEID instead: it depends on when the last grace period was.
	for _, one := range u {
		if found := one.Tables["tunnel_by_teid"]; found.Used < 1 || found.Used > 2 {
			t.Errorf("%d of the two tunnels are found by TEID", found.Used)
		}
		delete(one.Tables, "tunnel_by_teid")
	}
	if !maps.Equal(before.Tables, after.Tables) {
		t.Errorf("the tables held\n%v\nand hold\n%v", before.Tables, after.Tables)
	}
	if before.Attached != 2 || after.Attached != 2 {
		t.Errorf("attached to %d interfaces, then to %d", before.Attached, after.Attached)
	}
	if after.Memlock != before.Memlock {
		t.Errorf("the maps occupied %d bytes, and %d after", before.Memlock, after.Memlock)
	}
	if after.Files != before.Files {
		t.Errorf("%d files were open, and %d after", before.Files, after.Files)
	}
	if after.Routines > before.Routines+2 {
		t.Errorf("%d goroutines ran, and %d after", before.Routines, after.Routines)
	}
	const slack = 2 << 20
	if after.Heap > before.Heap+slack {
		t.Errorf("the heap was %d bytes, and %d after", before.Heap, after.Heap)
	}
	info, err := os.Stat(filepath.Join(s.dir, "state.db"))
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("the state file: %v, %v", info, err)
	}
}
