package dataplane

import (
	"math/bits"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// benchSessions is a data path with room for n sessions.
func benchSessions(b *testing.B, n uint32) *DataPlane {
	b.Helper()
	needRoot(b)
	limits := smallLimits
	limits.Sessions, limits.Filters = n, n
	d, err := Open(Options{Limits: limits})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	err = d.SetSettings(Settings{GTPUAddresses: addrs("10.0.0.1"),
		UEPools: benchPools(n)})
	if err == nil {
		err = d.Sweep()
	}
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// benchPools are as large as fits.
func benchPools(n uint32) []netip.Prefix {
	bits := bits.Len32(n+1) - 1
	return []netip.Prefix{netip.PrefixFrom(addr("10.0.0.0"), 32-bits), netip.PrefixFrom(addr("2001:db8:45::"), 64-bits)}
}

// benchSession is that of a UE in 10.0.0.0/12.
func benchSession(n uint32, make func(n, teid uint32) Session) Session {
	s := make(n, n)
	four := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
	for i := range s.Rules {
		r := &s.Rules[i]
		all := r.Sources
		if r.TEID == 0 {
			all = r.Destinations
		}
		if all[0] = four; len(all) > 1 {
			all[1] = netip.PrefixFrom(abi.FromHalves(0x20010db8_00400000+uint64(n), 0), 64)
		}
	}
	return s
}

const million = 1 << 20

// BenchmarkEstablish puts new sessions of a rule each way, up to a million of
// them; B/session is what the daemon itself takes, counted at the end.
func BenchmarkEstablish(b *testing.B) {
	for name, make := range map[string]func(n, teid uint32) Session{"plain": plain, "v4v6": both4and6} {
		b.Run(name, func(b *testing.B) {
			d := benchSessions(b, million)
			b.ResetTimer()
			n := uint32(0)
			for range b.N {
				if n++; n == million {
					b.StopTimer()
					for i := uint32(1); i < n; i++ {
						if err := d.Sessions.Drop(uint64(i)); err != nil {
							b.Fatal(err)
						}
					}
					n = 1
					settled(d)
					b.StartTimer()
				}
				if err := d.Sessions.Put(benchSession(n, make)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestMemoryOfSessions bounds what the data path itself takes for each of
// many sessions, all else that it has included.
func TestMemoryOfSessions(t *testing.T) {
	const sessions, most = 1 << 17, 490 // bytes, with the room that a session's QoS flow has
	limits := smallLimits
	limits.Sessions = sessions
	before := heap()
	d := openWith(t, Options{Limits: limits})
	must(t, d.SetSettings(Settings{GTPUAddresses: addrs("10.0.0.1"), UEPools: benchPools(sessions)}))
	must(t, d.Sweep())
	for n := uint32(1); n < sessions; n++ {
		must(t, d.Sessions.Put(benchSession(n, both4and6)))
	}
	each := (int64(heap()) - int64(before)) / sessions
	if each > most {
		t.Errorf("%d bytes for each session: at most %d", each, most)
	}
	t.Logf("%d bytes for each session", each)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkModify puts a session again: as it is, with another gNB (a handover),
// idle and back, and with a change that moves the rule.
func BenchmarkModify(b *testing.B) {
	const sessions = 10_000
	changes := map[string]func(s *Session, round uint32){
		"same":     func(*Session, uint32) {},
		"handover": func(s *Session, round uint32) { s.Rules[1].Forward.TEID = round },
		"idle": func(s *Session, round uint32) {
			if round%2 == 0 {
				s.Rules[1].Action = ActionBuffer
			}
		},
		"QFI and handover": func(s *Session, round uint32) { s.Rules[1].Forward.TEID, s.Rules[1].QFI = round, uint8(round%60) },
	}
	for name, change := range changes {
		b.Run(name, func(b *testing.B) {
			d := benchSessions(b, 1<<14)
			for n := uint32(1); n <= sessions; n++ {
				if err := d.Sessions.Put(benchSession(n, plain)); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for i := range b.N {
				s := benchSession(1+uint32(i)%sessions, plain)
				change(&s, 1+uint32(i/sessions))
				if err := d.Sessions.Put(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDelete deletes sessions with their exact usage, many at the same
// time, as a pipelined SMF does.
func BenchmarkDelete(b *testing.B) {
	const callers = 1024
	d := benchSessions(b, million)
	for n := uint32(1); n <= min(uint32(b.N), million); n++ {
		if err := d.Sessions.Put(benchSession(n, plain)); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Uint64
	var running sync.WaitGroup
	b.ResetTimer()
	for range callers {
		running.Go(func() {
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				if _, err := deleteSession(d, n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	running.Wait()
}
