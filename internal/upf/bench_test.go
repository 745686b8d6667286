package upf

import (
	"log/slog"
	"runtime"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// nullPath costs nothing.
type nullPath struct{ *fakePath }

func (nullPath) PutSession(datapath.Session) error { return nil }
func (nullPath) RemoveSession(_ uint64, done func([]datapath.RuleUsage, error)) error {
	done(nil, nil)
	return nil
}
func (nullPath) SessionUsage(uint64) ([]datapath.RuleUsage, error)       { return nil, nil }
func (nullPath) DropSession(uint64) error                                { return nil }
func (nullPath) Stations() ([]dataplane.Station, error)                  { return nil, nil }
func (nullPath) SetQuotas(uint64, []datapath.Quota) error                { return nil }
func (nullPath) SetRuleLimits(uint64, uint16, datapath.RuleLimits) error { return nil }

// BenchmarkProcedures is what a session costs here, without the data path and
// the N4 server.
func BenchmarkProcedures(b *testing.B) {
	u, err := New(Options{DataPath: nullPath{newFakePath()}, Journal: b.TempDir(), Logger: slog.New(slog.DiscardHandler), Sessions: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("establish", func(b *testing.B) {
		b.ReportAllocs()
		s := sample.Session(1)
		for b.Loop() {
			one := *s
			one.SEID = uint64(u.Len() + 1)
			if err := u.Establish(&one); err != nil {
				b.Fatal(err)
			}
		}
	})
	n := uint64(u.Len())
	b.Run("modify", func(b *testing.B) {
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			from := u.Session(i%n + 1)
			to := *from
			if _, err := u.Modify(from, &to, session.Modification{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("delete", func(b *testing.B) {
		b.ReportAllocs()
		for i := uint64(1); b.Loop(); i++ {
			if i <= n {
				u.Delete(u.Session(i), func(_ []session.UsageReport, err error) {
					if err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	})
}

// BenchmarkMemory is what a session holds here.
func BenchmarkMemory(b *testing.B) {
	u, err := New(Options{DataPath: nullPath{newFakePath()}, Journal: b.TempDir(), Logger: slog.New(slog.DiscardHandler), Sessions: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	const n = 200_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range uint64(n) {
		s := sample.Session(i + 1)
		s.FARs[1].Forwarding.Outer.TEID = uint32(i + 1)
		if err := u.Establish(s); err != nil {
			b.Fatal(err)
		}
	}
	used, packed := heap()-before, 0
	for _, e := range u.store.All() {
		packed += e.Packed()
	}
	for b.Loop() { // there is nothing to repeat
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(used)/n, "heap-octets/session")
	b.ReportMetric(float64(packed)/n, "packed-octets/session")
	runtime.KeepAlive(u)
}
