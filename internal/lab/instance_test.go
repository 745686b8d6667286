package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/check"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/testutil/labtest"
)

// open locks an instance of a topology, which is down when the test ends.
func open(t *testing.T, l *topology.Topology, name string) *instance.Instance {
	t.Helper()
	in, err := instance.Open(l, name, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Down(quiet), in.Close()); err != nil {
			t.Error(err)
		}
		labtest.WantNothingOf(t, name)
	})
	return in
}

var quiet = &report.Progress{W: io.Discard}

// TestKernel runs a whole lab through the command line: GTP-U endpoints over
// the kernel's SRv6.
// Commands of a node are found, culvert's own that is beside the laboratory's first.
func TestSearched(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "culvert"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", searched(filepath.Join(folder, "culvert-lab"), "/usr/bin"))
	if got, err := exec.LookPath("culvert"); err != nil || got != filepath.Join(folder, "culvert") {
		t.Errorf("culvert is %q, %v", got, err)
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Error(err)
	}
}

func TestKernel(t *testing.T) {
	name := unique("kernel")
	out, _, err := execute(t, "run", "kernel", "--as", name, "-o", "json")
	if err != nil {
		t.Errorf("%v", err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Lab != "kernel" || !r.Pass || len(r.Checks) != 10 {
		t.Errorf("report %+v", r)
	}
	for _, c := range r.Checks {
		if !c.Pass || c.Sent == 0 {
			t.Errorf("%+v", c)
		}
	}
	labtest.WantNothingOf(t, name)
}

// TestChecksFail sees every kind of check fail where it must.
func TestChecksFail(t *testing.T) {
	l := parse(t, strings.Replace(small, "checks:", `checks:
  - {name: nobody, kind: ping, from: left, to: 10.0.0.9, count: 2}
  - {name: answers, kind: ping, from: left, to: 10.0.0.2, expect: {nothing: true}}
  - {name: no error, kind: ping, from: left, to: 10.0.0.2, expect: {error: hop limit exceeded}}
  - {name: tcp, kind: tcp, from: left, at: left, source: 10.0.0.1, to: 10.0.0.2}
  - {name: echo, kind: echo, from: left, device: gtp}
  - {name: markers, kind: end_marker, from: left, at: right, device: gtp}
`, 1))
	in := open(t, l, unique("fail"))
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{""}, nil, quiet)
	if err != nil || got.Pass || len(got.Checks) != 7 {
		t.Fatalf("error %v, report %+v", err, got)
	}
	for _, c := range got.Checks {
		if c.Pass != (c.Name == "ping") || !c.Pass && c.Detail == "" {
			t.Errorf("%+v", c)
		}
	}
}

// A node's daemon pins in a directory, and in another one beside it while interfaces are closed:
// nothing of either is left.
func TestPinsAreRemoved(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "culvert")
	script := `#!/bin/sh
case $1 in
status) cat "$0.status" ;;
run) mkdir "$5" "$5_closed" && echo '{}' >"$0.status" && exec sleep 60 ;;
esac
`
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	in := open(t, parse(t, "name: pins\nnodes: [{name: upf, kind: culvert, config: {interfaces: []}}]\nlinks: []\n"), unique("pins"))
	in.Culvert = fake
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	if made, err := filepath.Glob(in.Pins() + "/upf/*"); err != nil || len(made) != 2 {
		t.Errorf("the daemon pinned in %q, %v", made, err)
	}
}

// TestUpTwice wants the second up to change nothing, and down to do nothing
// twice.
func TestUpTwice(t *testing.T) {
	name := unique("twice")
	in := open(t, parse(t, small), name)
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	before, mark := namespaceFiles(t, in), in.State.Mark
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	if in.State.Mark != mark || !slices.Equal(namespaceFiles(t, in), before) {
		t.Error("the second up made it anew")
	}
	for range 2 {
		if err := in.Down(quiet); err != nil {
			t.Error(err)
		}
	}
	wantDown(t, in)
}

func wantDown(t *testing.T, in *instance.Instance) {
	t.Helper()
	for _, n := range in.Nodes {
		if _, err := os.Lstat(in.Namespace(n).Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("namespace of %s: %v", n.Name, err)
		}
	}
}

// namespaceFiles identifies the namespaces.
func namespaceFiles(t *testing.T, in *instance.Instance) (inodes []uint64) {
	t.Helper()
	for _, n := range in.Nodes {
		var st unix.Stat_t
		if err := unix.Stat(in.Namespace(n).Path(), &st); err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, st.Ino)
	}
	return inodes
}

// TestForeignNamespace wants a namespace of the lab's name, but not of the
// lab, left alone by up and down.
func TestForeignNamespace(t *testing.T) {
	in := open(t, parse(t, small), unique("foreign"))
	foreign := in.Namespace(in.Node("right"))
	if err := foreign.Create("somebody else's"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := foreign.Delete("somebody else's"); err != nil {
			t.Error(err)
		}
	}()
	err := up(t.Context(), in, "", quiet)
	wantError(t, err, foreign.Name, "was not made by this lab", "--as")
	if _, err := os.Lstat(in.Namespace(in.Node("left")).Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed up left its namespace: %v", err)
	}
	// Even when the state claims it.
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	in.State.Namespaces = []string{foreign.Name}
	var said strings.Builder
	if err := in.Down(&report.Progress{W: &said}); err != nil || !strings.Contains(said.String(), "left alone") {
		t.Errorf("error %v, said %q", err, said.String())
	}
	if mark, ok, err := foreign.Mark(); mark != "somebody else's" || !ok || err != nil {
		t.Errorf("mark %q, %v, %v", mark, ok, err)
	}
}

// TestAfterACrash wants what a killed up left to be found: by down, and by
// the next up.
func TestAfterACrash(t *testing.T) {
	name := unique("crash")
	l, err := topology.Load("kernel")
	if err != nil {
		t.Fatal(err)
	}
	in := open(t, l, name)
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	first, ok := in.Process(in.Node("gnb"), daemon.EndpointProcess)
	if !ok || !first.Alive() {
		t.Fatal("no endpoint")
	}
	if err := first.Stop(unix.SIGKILL, check.AnswerTime); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil { // as the process that died
		t.Fatal(err)
	}
	again, err := instance.Open(l, name, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	*in = *again
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	second, ok := in.Process(in.Node("gnb"), daemon.EndpointProcess)
	if !ok || !second.Alive() || second.PID == first.PID {
		t.Errorf("endpoint %+v after %+v", second, first)
	}
}

func TestLock(t *testing.T) {
	l, name := parse(t, small), unique("lock")
	open(t, l, name)
	_, err := instance.Open(l, name, os.Args[0])
	wantError(t, err, "another command", name)
}

func TestNameOfAnotherLab(t *testing.T) {
	l, name := parse(t, small), unique("other")
	in := open(t, l, name)
	if err := in.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := instance.Open(&topology.Topology{Name: "large"}, name, os.Args[0])
	wantError(t, err, "lab small", "down", "--as")
	again, err := instance.Open(l, name, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	*in = *again
	_, err = instance.Open(l, "No Name", os.Args[0])
	wantError(t, err, "--as", "lower-case")
}

// TestInterrupt wants an up that is interrupted to leave nothing.
func TestInterrupt(t *testing.T) {
	in := open(t, parse(t, small), unique("interrupt"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := up(ctx, in, "", quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	wantDown(t, in)
}

// TestFRR wants routes of OSPFv3 and of IS-IS to carry traffic.
func TestFRR(t *testing.T) {
	for _, name := range []string{"ospf", "isis"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			in := open(t, parse(t, string(text)), unique(name))
			if err := up(t.Context(), in, "", quiet); err != nil {
				t.Fatal(err)
			}
			got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{""}, nil, quiet)
			if err != nil || !got.Pass {
				t.Errorf("error %v, report %+v", err, got)
			}
			if err := in.Down(quiet); err != nil {
				t.Error(err)
			}
			wantDown(t, in)
		})
	}
}

func TestNoSuchCheck(t *testing.T) {
	name := unique("none")
	_, _, err := execute(t, "run", "kernel", "--as", name, "--checks", "^nothing$")
	wantError(t, err, "--checks", "kernel", "nothing")
	_, _, err = execute(t, "run", "kernel", "--as", name, "--checks", "(")
	wantError(t, err, "--checks")
	labtest.WantNothingOf(t, name)
}

func TestBinaryOfNobody(t *testing.T) {
	for _, flag := range []string{"--culvert", "--upgrade-to"} {
		_, _, err := execute(t, "run", "gateway", "--as", unique("binary"), flag, "/nonexistent/culvert")
		wantError(t, err, flag, "/nonexistent/culvert")
	}
}

// Who keeps an instance is told how to take down this one.
func TestDownOf(t *testing.T) {
	in := &instance.Instance{Topology: &topology.Topology{Name: "overlay"}, Name: "overlay"}
	if got := downOf(in); got != "culvert lab down overlay" {
		t.Errorf("%q", got)
	}
	in.Name = "mine"
	if got := downOf(in); got != "culvert lab down overlay --as mine" {
		t.Errorf("%q", got)
	}
}
