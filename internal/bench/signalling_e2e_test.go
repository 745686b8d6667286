//go:build e2e

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// signallingSessions is how many sessions the UPF has, for packets and handovers.
const signallingSessions = 512

// signallingNode is a UPF with SMFs.
func signallingNode(t *testing.T, fast bool, cpus proc.Pair) (*device.Node, *signalling.Load) {
	t.Helper()
	n, err := device.NewNode("signalling")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		nothingOf(t, "signalling")
	})
	const smfs = 4
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, signallingSessions, fast)
	if err := signalling.AddPort(n.Net, smfs); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context(), experiment.Setting{Culvert: culvert, BPFFS: "/sys/fs/bpf"}, c, cpus.Device); err != nil {
		t.Fatal(err)
	}
	l, err := signalling.DialNode(t.Context(), n.Net, cpus, smfs, signalling.CountedSpec(signallingSessions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, l
}

// Handovers are accepted beside packets of the same sessions, whoever answers them. Where
// the daemon is stopped, the data path goes on; without it nothing is answered, and the
// load says so.
func TestSignalling(t *testing.T) {
	needTwoCPUs(t)
	cpus, err := proc.PickPair(-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, fast := range []bool{false, true} {
		t.Run(fmt.Sprint("n4_fast ", fast), func(t *testing.T) {
			n, l := signallingNode(t, fast, cpus)
			sent, want := signalling.Uplink(signallingSessions)
			pair, err := traffic.Open(t.Context(), traffic.Options{TX: n.TX, RX: n.RX, CPU: cpus.Generator, Method: traffic.Live, Expect: &want, CheckEvery: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer pair.Close()
			s := signalling.Settings{Window: 64, Rate: 500, Duration: 300 * time.Millisecond, On: -1}
			for _, share := range []float64{0, 0.9} {
				b, err := l.RunBeside(t.Context(), signalling.Packets{Pair: pair, Template: sent, PDR: 5000}, share, s)
				if err := errors.Join(err, b.N4[0].Err(), b.N4[1].Err()); err != nil {
					t.Fatal(err)
				}
				for _, r := range b.Rows(64) {
					t.Logf("%+v", r)
					mayBeNone := r.Measure == signalling.Lost || r.Measure == signalling.Unanswered
					if r.Offered != share || !mayBeNone && r.Value <= 0 {
						t.Errorf("%+v", r)
					}
				}
				for _, o := range b.Packets {
					if (share > 0) != (o.Received > 0) || o.Corrupt+o.Unexpected > 0 {
						t.Errorf("packets: %+v", o)
					}
				}
			}
			whileStopped(t, n, l, fast)
		})
	}
}

// The data path answers a flood of handovers, and nothing else than what it was asked for; the
// daemon has what it did, and handovers at a rate go on.
func TestFlood(t *testing.T) {
	needTwoCPUs(t)
	cpus, err := proc.PickPair(-1)
	if err != nil {
		t.Fatal(err)
	}
	n, l := signallingNode(t, true, cpus)
	before, err := l.Run(t.Context(), signalling.Settings{Window: 64, Duration: 300 * time.Millisecond, On: cpus.Generator})
	if err := errors.Join(err, before.Err()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := l.Flood(t.Context(), n.Net, cpus.Generator, time.Second)
		if err := errors.Join(err, f.Err()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d sessions: %.0f handovers/s, %.0f/s by sockets", f.Sessions, f.PerSecond, before.PerSecond)
		if f.Sessions != signallingSessions || f.PerSecond < before.PerSecond {
			t.Errorf("%+v, by sockets %+v", f, before)
		}
	}
	after, err := l.Run(t.Context(), signalling.Settings{Rate: 500, Duration: 300 * time.Millisecond, On: -1})
	if err := errors.Join(err, after.Err()); err != nil {
		t.Error(err)
	}
}

// whileStopped has handovers go on while the daemon is stopped: only the data path
// answers, and it answers all.
func whileStopped(t *testing.T, n *device.Node, l *signalling.Load, fast bool) {
	t.Helper()
	stop(t, n.Daemon.Cmd.Process.Pid)
	r, err := l.Run(t.Context(), signalling.Settings{Rate: 500, Duration: 300 * time.Millisecond, T1: time.Second, On: -1})
	if err := errors.Join(err, n.Daemon.Cmd.Process.Signal(unix.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	if fast && r.Err() != nil || !fast && (r.Accepted > 0 || r.Lost != r.Sent) {
		out, _ := exec.Command("ip", "-netns", n.Net.Node.Name, "-s", "link", "show", "n4").CombinedOutput()
		t.Errorf("while the daemon is stopped: %+v\n%s", r, out)
	}
}

// stop sends SIGSTOP and waits until no thread of the process runs: the signal returns
// before they have stopped, and one of them may still answer a request.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		running := runningThreads(t, pid)
		if len(running) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after SIGSTOP process %d still has threads that run: %q", pid, running)
		}
	}
}

// runningThreads lists the threads of a process that are not stopped, as proc(5)'s stat does.
func runningThreads(t *testing.T, pid int) (running []string) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(paths) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		// The state is the first field after the name, which is in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); !bytes.HasPrefix(stat[i+1:], []byte(" T")) {
			running = append(running, string(stat))
		}
	}
	return running
}
