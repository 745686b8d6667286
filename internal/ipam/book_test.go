package ipam

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

const crashEnv = "CULVERT_TEST_BOOK" // the file that a process to be killed works on

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		if err := comeAndGo(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(tb testing.TB, path string, prefixes ...string) (*Book[string], *bbolt.DB) {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	db.MaxBatchDelay = time.Millisecond
	b, err := Open[string](db)
	if err == nil {
		err = b.SetPrefixes(cluster(parse(prefixes...)))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b, db
}

func parse(prefixes ...string) (out []netip.Prefix) {
	for _, p := range prefixes {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// cluster are the prefixes of whoever has no tenant.
func cluster(prefixes []netip.Prefix) map[uint8][]netip.Prefix {
	return map[uint8][]netip.Prefix{0: prefixes}
}

func temporary(tb testing.TB) string { return filepath.Join(tb.TempDir(), "state.db") }

func key(n int) Key { return Key{fmt.Sprintf("container-%d", n), "eth0"} }

// addresses of a lease that has to be given.
func add(tb testing.TB, b *Book[string], k Key) string {
	tb.Helper()
	l, _, err := b.Add(k, 0, "somebody")
	if err != nil {
		tb.Fatalf("%s: %v", k, err)
	}
	return fmt.Sprint(l.Addresses)
}

func TestOneOfEachFamilyInTurn(t *testing.T) {
	path := temporary(t)
	b, db := open(t, path, "10.244.1.0/29", "fd00:10:244:1::/64")
	for i, want := range []string{"[10.244.1.2 fd00:10:244:1::2]", "[10.244.1.3 fd00:10:244:1::3]"} {
		if got := add(t, b, key(i)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	if got := add(t, b, key(0)); got != "[10.244.1.2 fd00:10:244:1::2]" {
		t.Errorf("asked again: %s", got)
	}
	if err := errors.Join(b.Release(key(0)), b.Release(key(0)), b.Release(key(99))); err != nil {
		t.Errorf("release: %v", err)
	}
	// What was given back comes last, also for a book that is opened again.
	db.Close()
	b, _ = open(t, path, "10.244.1.0/29", "fd00:10:244:1::/64")
	for i, want := range []string{"10.244.1.4", "10.244.1.5", "10.244.1.6", "10.244.1.2"} {
		if got := add(t, b, key(10+i)); !strings.Contains(got, want+" ") {
			t.Errorf("then: %s, want %s", got, want)
		}
	}
	if _, _, err := b.Add(key(20), 0, ""); !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "10.244.1.0/29") {
		t.Errorf("exhausted: %v", err)
	}
	if got, want := fmt.Sprint(b.Pools()), fmt.Sprintf("[{10.244.1.0/29 5 5 0} {fd00:10:244:1::/64 5 %d 0}]", uint64(1)<<62-2); got != want {
		t.Errorf("pools %s, want %s", got, want)
	}
	if l, ok := b.Get(key(1)); !ok || l.Holder != "somebody" || fmt.Sprint(l.Addresses) != "[10.244.1.3 fd00:10:244:1::3]" {
		t.Errorf("after opening again: %+v, %v", l, ok)
	}
}

func TestPrefixes(t *testing.T) {
	b, _ := open(t, temporary(t))
	if _, _, err := b.Add(key(0), 0, ""); !errors.Is(err, ErrNoPrefix) || !errors.Is(b.Room(), ErrNoPrefix) {
		t.Errorf("no prefix: %v, %v", err, b.Room())
	}
	for _, bad := range []string{"10.0.0.0/31", "10.0.0.1/32", "fd00::/127", "fd00::/128"} {
		if err := b.SetPrefixes(cluster(parse(bad))); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	// The second one of a family is for when the first is full; host bits do not matter.
	if err := b.SetPrefixes(cluster(parse("10.0.0.9/30", "10.0.1.0/30", "fd00::/126", "fd00:0:0:1::/48"))); err != nil {
		t.Fatal(err)
	}
	got := []string{add(t, b, key(0))}
	if err := b.Room(); err != nil {
		t.Errorf("room for one more: %v", err)
	}
	got = append(got, add(t, b, key(1)))
	if want := []string{"[10.0.0.10 fd00::2]", "[10.0.1.2 fd00::3]"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, _, err := b.Add(key(2), 0, ""); !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "10.0.0.8/30, 10.0.1.0/30") {
		t.Errorf("exhausted: %v", err)
	}
	if err := b.Room(); !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "all 2 of IPv4") {
		t.Errorf("room: %v", err)
	}
	// A node whose prefixes change keeps its pods' addresses.
	if err := b.SetPrefixes(cluster(parse("fd00:1::/64"))); err != nil {
		t.Fatal(err)
	}
	if got := []string{add(t, b, key(0)), add(t, b, key(3))}; !slices.Equal(got, []string{"[10.0.0.10 fd00::2]", "[fd00:1::2]"}) {
		t.Errorf("with another prefix: %v", got)
	}
}

// model is what has to hold of a book, whatever is done to it.
type model struct {
	held map[Key]string
	size int
	turn []string // the last addresses given
}

func (m *model) check(t *testing.T, b *Book[string]) {
	t.Helper()
	owner := map[netip.Addr]Key{}
	for _, l := range b.Leases() {
		if m.held[l.Key] != fmt.Sprint(l.Addresses) {
			t.Fatalf("%s holds %v, want %s", l.Key, l.Addresses, m.held[l.Key])
		}
		for _, a := range l.Addresses {
			if other, twice := owner[a]; twice {
				t.Fatalf("%s is held by %s and %s", a, other, l.Key)
			}
			owner[a] = l.Key
		}
	}
	if len(b.Leases()) != len(m.held) {
		t.Fatalf("%d leases, want %d", len(b.Leases()), len(m.held))
	}
}

// add says whether it may fail as it did, and whether the address was free for
// as long as others were.
func (m *model) add(t *testing.T, b *Book[string], k Key) {
	t.Helper()
	l, existed, err := b.Add(k, 0, "x")
	before, there := m.held[k]
	switch {
	case there && (err != nil || !existed || fmt.Sprint(l.Addresses) != before):
		t.Fatalf("%s asked again: %v, %v, %v", k, l.Addresses, existed, err)
	case there:
	case len(m.held) == m.size && !errors.Is(err, ErrExhausted), len(m.held) < m.size && err != nil:
		t.Fatalf("%d of %d are held: %v", len(m.held), m.size, err)
	case err == nil:
		got := fmt.Sprint(l.Addresses)
		if free := m.size - len(m.held); slices.Contains(m.turn[max(0, len(m.turn)-free+1):], got) {
			t.Fatalf("%s was given not long ago, and %d are free", got, free)
		}
		m.held[k], m.turn = got, append(m.turn, got)
	}
}

func TestRandomly(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 1))
		path := temporary(t)
		b, db := open(t, path, "10.244.1.0/28", "fd00::/64")
		db.NoSync = true
		m := &model{held: map[Key]string{}, size: 13}
		for range 300 {
			k := key(random.IntN(20))
			switch random.IntN(20) {
			case 0:
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				b, db = open(t, path, "10.244.1.0/28", "fd00::/64")
				db.NoSync = true
			case 1, 2, 3, 4, 5, 6, 7, 8:
				if err := b.Release(k); err != nil {
					t.Fatal(err)
				}
				delete(m.held, k)
			case 9:
				l, there := b.Get(k)
				if l.Key = key(random.IntN(20)); !there || m.held[l.Key] != "" {
					break
				}
				if err := b.Rename(k, l); err != nil {
					t.Fatal(err)
				}
				m.held[l.Key] = m.held[k]
				delete(m.held, k)
			default:
				m.add(t, b, k)
			}
			m.check(t, b)
		}
		db.Close()
	}
}

func TestInParallel(t *testing.T) {
	b, _ := open(t, temporary(t), "10.244.1.0/24", "fd00::/64")
	const pods = 100
	begun := time.Now()
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			if _, _, err := b.Add(key(i), 0, ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%d at the same time: %s", pods, time.Since(begun))
	m := &model{held: map[Key]string{}}
	for _, l := range b.Leases() {
		m.held[l.Key] = fmt.Sprint(l.Addresses)
	}
	if m.check(t, b); len(m.held) != pods {
		t.Errorf("%d leases", len(m.held))
	}
	for i := range pods {
		all.Go(func() {
			if err := b.Release(key(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left := b.Leases(); len(left) > 0 || b.Pools()[0].Used > 0 {
		t.Errorf("left: %v, %v", left, b.Pools())
	}
}

// A disk that fails gives no address, and holds none.
func TestDiskFails(t *testing.T) {
	b, db := open(t, temporary(t), "10.244.1.0/24")
	add(t, b, key(0))
	db.Close()
	if _, _, err := b.Add(key(1), 0, ""); err == nil {
		t.Error("an address was given")
	}
	if _, _, err := b.Add(key(0), 0, "another"); err == nil {
		t.Error("a change was not written, and no error")
	}
	if err := b.Release(key(0)); err == nil {
		t.Error("an address was taken back")
	}
	if l, ok := b.Get(key(0)); !ok || l.Holder != "somebody" || b.Pools()[0].Used != 1 {
		t.Errorf("%+v, %+v", l, b.Pools())
	}
}

// comeAndGo says what it does once that is done, until it is killed.
func comeAndGo(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	db.MaxBatchDelay = time.Millisecond
	b, err := Open[string](db)
	if err != nil {
		return err
	}
	if err := b.SetPrefixes(cluster(parse("10.244.1.0/24", "fd00::/64"))); err != nil {
		return err
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				k := Key{fmt.Sprintf("%d-%d", worker, n/2), "eth0"}
				if n%2 == 1 && n%5 != 0 { // the others stay
					if b.Release(k) == nil {
						fmt.Println("-", k)
					}
					continue
				}
				if l, _, err := b.Add(k, 0, ""); err == nil {
					fmt.Println("+", k, l.Addresses)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// What somebody was told holds after a crash.
func TestCrash(t *testing.T) {
	path := temporary(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		words := strings.SplitN(lines.Text(), " ", 3)
		if words[0] == "+" {
			told[words[1]] = words[2]
		} else {
			delete(told, words[1])
		}
		if n == 200 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Wait()
	b, _ := open(t, path, "10.244.1.0/24", "fd00::/64") // which says if something is held twice
	found := map[string]string{}
	for _, l := range b.Leases() {
		found[l.String()] = fmt.Sprint(l.Addresses)
	}
	missing := 0
	for k, addresses := range told {
		if found[k] == "" {
			missing++ // given back, and killed before that was said
		} else if found[k] != addresses {
			t.Errorf("%s was told %s and holds %s", k, addresses, found[k])
		}
	}
	if len(told) < 10 || missing > 8 || len(found) > len(told)+8 {
		t.Errorf("%d told, %d of them gone, %d found", len(told), missing, len(found))
	}
}

// Each tenant has its own addresses, also after a restart, and goes on where it was.
func TestTenantsHaveTheSameAddresses(t *testing.T) {
	path := temporary(t)
	of := map[uint8][]netip.Prefix{0: parse("10.9.1.0/24"), 7: parse("10.9.1.0/24", "fd09::/64"), 8: parse("10.9.1.0/30")}
	b, db := open(t, path)
	give := func(b *Book[string], n int, tenant uint8) string {
		t.Helper()
		l, _, err := b.Add(key(n), tenant, "")
		if err != nil || l.Tenant != tenant {
			t.Fatalf("%d: %+v, %v", n, l, err)
		}
		return fmt.Sprint(l.Addresses)
	}
	if err := b.SetPrefixes(of); err != nil {
		t.Fatal(err)
	}
	for n, tenant := range []uint8{0, 7, 8} {
		want := "[10.9.1.2]"
		if tenant == 7 {
			want = "[10.9.1.2 fd09::2]"
		}
		if got := give(b, n, tenant); got != want {
			t.Errorf("tenant %d: %s, want %s", tenant, got, want)
		}
	}
	if _, _, err := b.Add(key(9), 8, ""); !errors.Is(err, ErrExhausted) {
		t.Errorf("tenant 8 has another address: %v", err)
	}
	if _, _, err := b.Add(key(9), 9, ""); !errors.Is(err, ErrNoPrefix) {
		t.Errorf("a tenant without prefixes: %v", err)
	}
	if err := b.Room(); err != nil {
		t.Errorf("the cluster's own: %v", err)
	}
	db.Close()
	b, _ = open(t, path)
	if err := b.SetPrefixes(of); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(key(1)); err != nil {
		t.Fatal(err)
	}
	if got := give(b, 3, 7); got != "[10.9.1.3 fd09::3]" {
		t.Errorf("the next of tenant 7: %s", got)
	}
	want := []Pool{{Prefix: parse("10.9.1.0/24")[0], Used: 1, Size: 253}, {Tenant: 7, Prefix: parse("10.9.1.0/24")[0], Used: 1, Size: 253}}
	if got := b.Pools(); len(got) != 4 || got[0] != want[0] || got[1] != want[1] || got[3].Used != 1 {
		t.Errorf("pools: %+v", got)
	}
}
