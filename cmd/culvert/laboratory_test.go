package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program links the test binary, which is culvert here, into a directory.
func program(t *testing.T, dir string) func(args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "culvert")
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(path, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(path, args...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		return cmd
	}
}

// script writes a culvert-lab that is a shell script.
func script(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "culvert-lab"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// culvert-lab gets the arguments and standard input as they are, and its output
// and exit code are those of culvert.
func TestLaboratory(t *testing.T) {
	dir := t.TempDir()
	culvert := program(t, dir)
	script(t, dir, `for a in "$@"; do printf '[%s]' "$a"; done; cat; echo why >&2; exit 7`)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"lab", "run", "gateway", "-o", "json"}, "[lab][run][gateway][-o][json]input"},
		{[]string{"bench", "functions", "--quick", "a b"}, "[bench][functions][--quick][a b]input"},
		{[]string{"smf"}, "[smf]input"},
		{[]string{"lab", "--help"}, "[lab][--help]input"},
		{[]string{"help", "lab", "run"}, "[help][lab][run]input"},
		{[]string{"__complete", "lab", "run", "--", "g"}, "[__complete][lab][run][--][g]input"},
		{[]string{"__completeNoDesc", "smf", ""}, "[__completeNoDesc][smf][]input"},
	} {
		var stdout, stderr bytes.Buffer
		cmd := culvert(tt.args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &stdout, &stderr
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != 7 || stdout.String() != tt.want || stderr.String() != "why\n" {
			t.Errorf("%q: %v: %q, %q", tt.args, err, &stdout, &stderr)
		}
	}
}

// A culvert-lab in PATH serves where none is beside culvert.
func TestLaboratoryInPath(t *testing.T) {
	bin := t.TempDir()
	culvert := program(t, t.TempDir())
	script(t, bin, `echo "$0"`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	out, err := culvert("lab", "list").CombinedOutput()
	if want := filepath.Join(bin, "culvert-lab") + "\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

// A signal to culvert is one to culvert-lab, which decides what becomes of it.
func TestLaboratorySignal(t *testing.T) {
	dir := t.TempDir()
	culvert := program(t, dir)
	script(t, dir, `trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	cmd := culvert("lab", "up", "gateway")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer late.Stop()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%v, want exit code 5", err)
	}
}

// Without culvert-lab, culvert says where it looks, and how to get it.
func TestNoLaboratory(t *testing.T) {
	dir := t.TempDir()
	culvert := program(t, dir)
	t.Setenv("PATH", t.TempDir())
	for _, args := range [][]string{{"lab", "list"}, {"bench", "--help"}, {"smf", "run", "x.yaml"}, {"help", "lab"}, {"__complete", "lab", ""}} {
		out, _ := culvert(args...).CombinedOutput()
		for _, want := range []string{"culvert-lab is neither in " + dir + " nor in PATH", "make build"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q: no %q in %s", args, want, out)
			}
		}
	}
	cmd := culvert("lab", "list")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	out, err := culvert("--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "The laboratory (the program culvert-lab):") {
		t.Errorf("%v: %s", err, out)
	}
}
