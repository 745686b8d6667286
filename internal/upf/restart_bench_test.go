package upf

import (
	"log/slog"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// BenchmarkRestart is what a session costs when the process starts again, without
// the data path and the N4 server.
func BenchmarkRestart(b *testing.B) {
	const n = 100_000
	o := Options{DataPath: nullPath{newFakePath()}, Journal: b.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	u, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	for i := range uint64(n) {
		s := sample.Session(i + 1)
		if err := u.Establish(s); err != nil {
			b.Fatal(err)
		}
	}
	var read, restore, list time.Duration
	for b.Loop() {
		o.DataPath = nullPath{newFakePath()}
		at := time.Now()
		w, err := New(o)
		if err != nil {
			b.Fatal(err)
		}
		read += time.Since(at)
		at = time.Now()
		w.Restore()
		restore += time.Since(at)
		at = time.Now()
		left := n
		for range w.Sessions() {
			left--
		}
		if list += time.Since(at); left != 0 {
			b.Fatalf("%d sessions are lost", left)
		}
		_ = w.Close()
	}
	for name, d := range map[string]time.Duration{"read": read, "restore": restore, "list": list} {
		b.ReportMetric(float64(d.Nanoseconds())/float64(b.N)/n, name+"-ns/session")
	}
}
