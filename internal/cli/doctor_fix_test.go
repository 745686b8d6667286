package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// fakeSystem has values that commands set, and findings about those that are not 1.
type fakeSystem struct {
	values map[string]string
	broken string // the command that does not work
	ran    []string
}

func (s *fakeSystem) examine() ([]api.Finding, error) {
	findings := []api.Finding{{Name: "cable", Level: "warn", Detail: "no carrier", Fix: "plug the cable in"}}
	for _, name := range []string{"a", "b"} {
		f := api.Finding{Name: name, Level: "ok", Detail: "on"}
		if s.values[name] != "1" {
			f = api.Finding{Name: name, Level: "fail", Detail: "off", Fix: "set " + name + "=1", Command: []string{"set", name + "=1"}}
		}
		findings = append(findings, f)
	}
	return findings, nil
}

func (s *fakeSystem) run(_ context.Context, _ io.Writer, command []string) error {
	s.ran = append(s.ran, strings.Join(command, " "))
	name, value, _ := strings.Cut(command[1], "=")
	if name == s.broken {
		return errors.New("exit status 1")
	}
	s.values[name] = value
	return nil
}

func TestFix(t *testing.T) {
	const both = "set a=1|set b=1"
	for name, c := range map[string]struct {
		values  map[string]string
		answer  string
		yes     bool
		broken  string
		ran     string
		asked   bool
		left    int // findings that fail after it; -1: nothing was looked at again
		problem string
	}{
		"yes":                        {map[string]string{}, "y\n", false, "", both, true, 0, ""},
		"Yes, in full":               {map[string]string{}, "Yes\n", false, "", both, true, 0, ""},
		"no":                         {map[string]string{}, "n\n", false, "", "", true, -1, ""},
		"only Enter":                 {map[string]string{}, "\n", false, "", "", true, -1, ""},
		"nobody there":               {map[string]string{}, "", false, "", "", true, -1, ""},
		"--yes":                      {map[string]string{}, "", true, "", both, false, 0, ""},
		"one is right already":       {map[string]string{"a": "1"}, "", true, "", "set b=1", false, 0, ""},
		"nothing to do":              {map[string]string{"a": "1", "b": "1"}, "", false, "", "", false, 0, ""},
		"one fails, the other works": {map[string]string{}, "", true, "a", both, false, -1, "1 of 2 commands failed:\n  set a=1: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			system := &fakeSystem{values: c.values, broken: c.broken}
			var out strings.Builder
			f := &fixer{yes: c.yes, in: strings.NewReader(c.answer), out: &out, examine: system.examine, run: system.run}
			before, _ := system.examine()
			left, err := f.fix(t.Context(), before)
			if got := strings.Join(system.ran, "|"); got != c.ran {
				t.Errorf("ran %q, want %q", got, c.ran)
			}
			if asked := strings.Contains(out.String(), "[y/N]"); asked != c.asked {
				t.Errorf("asked: %v:\n%s", asked, out.String())
			}
			for _, x := range before {
				if line := strings.Join(x.Command, " "); line != "" && !strings.Contains(out.String(), line) {
					t.Errorf("%q is not shown:\n%s", line, out.String())
				}
			}
			if text := errorText(err); text != c.problem {
				t.Errorf("error %q, want %q", text, c.problem)
			}
			failing := slices.DeleteFunc(slices.Clone(left), func(x api.Finding) bool { return x.Level != "fail" })
			if left == nil && c.left >= 0 || left != nil && len(failing) != c.left {
				t.Errorf("left: %+v, want %d", left, c.left)
			}
			// Once more, there is nothing that has not been tried.
			if c.problem == "" && left != nil {
				system.ran = nil
				if _, err := f.fix(t.Context(), left); err != nil || len(system.ran) > 0 {
					t.Errorf("again: %v, %v", system.ran, err)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// In a namespace of its own, --fix --yes fixes what the kernel has, and finds nothing to do the
// second time. With -o json the findings that are left are all that is on standard output.
func TestFixInNamespace(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "v0", ns, "v1")
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	ns.Sysctl(t, "net.ipv4.conf.v0.rp_filter", "1")
	ns.IP(t, "link set v0 down")
	config := file(t, "interfaces: [{name: v0, roles: [any]}]\n")
	doctor := func(args ...string) (r result) {
		ns.Do(t, func() {
			var stdout, stderr bytes.Buffer
			root := newRoot(&app{format: printer.Table, runFix: runInside(t, ns)})
			root.SetIn(strings.NewReader(""))
			root.SetOut(&stdout)
			r.code = cmdline.Execute(t.Context(), root, append([]string{"doctor", "--config", config}, args...), &stderr)
			r.stdout, r.stderr = stdout.String(), stderr.String()
		})
		return r
	}
	if r := doctor("--fix"); !strings.Contains(r.stdout, "nothing was changed") || forwards(t, ns) != "0" {
		t.Fatalf("without an answer: %+v", r)
	}
	r := doctor("--fix", "--yes", "-o", "json")
	var left []api.Finding
	if err := json.Unmarshal([]byte(r.stdout), &left); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, want := range []string{"+ ip link set dev v0 up", "+ sysctl -w net.ipv4.ip_forward=1", "+ sysctl -w net.ipv4.conf.v0.rp_filter=2"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not in\n%s", want, r.stderr)
		}
	}
	for _, f := range left {
		if len(f.Command) > 0 && f.Name != "bpffs" {
			t.Errorf("left: %+v", f)
		}
	}
	if forwards(t, ns) != "1" {
		t.Error("the kernel does not forward")
	}
	if r := doctor("--fix", "--yes"); strings.Contains(r.stdout, "+ ip") || strings.Contains(r.stdout, "+ sysctl") {
		t.Errorf("the second time: %+v", r)
	}
}

// runInside runs what the namespace can have. bpffs is the machine's.
func runInside(t *testing.T, ns *netns.NS) func(context.Context, io.Writer, []string) error {
	return func(_ context.Context, _ io.Writer, command []string) error {
		if command[0] != "mount" {
			ns.Run(t, command[0], command[1:]...)
		}
		return nil
	}
}

func forwards(t *testing.T, ns *netns.NS) string {
	return strings.TrimSpace(ns.Run(t, "sysctl", "-n", "net.ipv4.ip_forward"))
}
