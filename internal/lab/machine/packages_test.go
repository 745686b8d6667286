package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// pack makes a package in a folder, with what is in its program.
func pack(t *testing.T, folder, name, depends, program string) {
	t.Helper()
	tree := t.TempDir()
	for file, text := range map[string]string{
		"DEBIAN/control": "Package: " + name + "\nVersion: 1.2.3-1\nArchitecture: " + runtime.GOARCH + "\nMaintainer: nobody <a@example.net>\n" + depends + "Description: a test\n",
		"DEBIAN/md5sums": "0 usr/bin/" + name + "\n", "usr/bin/" + name: program,
	} {
		file = filepath.Join(tree, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := namespace.Output(exec.Command("dpkg-deb", "-b", tree, filepath.Join(folder, name+"_1.2.3-1_"+runtime.GOARCH+".deb"))); err != nil {
		t.Fatal(err)
	}
}

func show(t *testing.T, args ...string) string {
	t.Helper()
	out, err := namespace.Output(exec.Command("dpkg-deb", args...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// flip stands for what changes the build of the data path.
func flip(program []byte) int {
	n := bytes.Count(program, []byte("bpf"))
	copy(program, bytes.ReplaceAll(program, []byte("bpf"), []byte("BPF")))
	return n
}

func TestOlderPackages(t *testing.T) {
	after, to := t.TempDir(), t.TempDir()
	pack(t, after, "culvert", "", "has bpf")
	pack(t, after, "culvert-lab", "Depends: culvert (= 1.2.3-1), iproute2\n", "has none")
	if err := (Packages{After: after, Rebuild: flip}).put(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string][3]string{"before": {"1.2.3-1~before", "culvert (= 1.2.3-1~before), iproute2", "has BPF"}, "after": {"1.2.3-1", "culvert (= 1.2.3-1), iproute2", "has bpf"}} {
		files, _ := filepath.Glob(filepath.Join(to, folder, "culvert_*"))
		lab, _ := filepath.Glob(filepath.Join(to, folder, "culvert-lab_*"))
		if len(files) != 1 || len(lab) != 1 {
			t.Fatalf("%s has %v and %v", folder, files, lab)
		}
		culvert, root := files[0], t.TempDir()
		show(t, "-x", culvert, root)
		program, err := os.ReadFile(filepath.Join(root, "usr/bin/culvert"))
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]string{show(t, "-f", culvert, "Version"), show(t, "-f", lab[0], "Depends"), string(program)}; got != want {
			t.Errorf("%s: %q, want %q", folder, got, want)
		}
	}
	if err := exec.Command("dpkg", "--compare-versions", "1.2.3-1~before", "lt", "1.2.3-1").Run(); err != nil {
		t.Errorf("the older version is not older: %v", err)
	}
}

func TestOlderWantsAProgram(t *testing.T) {
	after := t.TempDir()
	pack(t, after, "culvert", "", "has nothing")
	pack(t, after, "culvert-lab", "", "has nothing")
	err := (Packages{After: after, Rebuild: flip}).put(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no eBPF object") {
		t.Errorf("a program without a data path: %v", err)
	}
}

func TestCheckNamesTheFlag(t *testing.T) {
	some := t.TempDir()
	pack(t, some, "culvert", "", "bpf")
	pack(t, some, "culvert-lab", "", "bpf")
	if err := (Packages{After: some, Before: some}).Check(); err != nil {
		t.Error(err)
	}
	for flag, p := range map[string]Packages{"--packages:": {After: t.TempDir(), Before: some}, "--packages-before:": {After: some, Before: t.TempDir()}} {
		if err := p.Check(); err == nil || !strings.HasPrefix(err.Error(), flag) || !strings.Contains(err.Error(), "make packages") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
