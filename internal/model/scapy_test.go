package model_test

import (
	"bytes"
	_ "embed"
	"os/exec"
	"strings"
	"testing"
)

//go:embed testdata/scapy.py
var scapyProgram string

// pythonWithScapy: the package python3-scapy is for /usr/bin/python3, which
// need not be the first in PATH; pip's is for any.
func pythonWithScapy(t *testing.T) string {
	t.Helper()
	var problems []string
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(python, "-c", "import scapy").CombinedOutput()
		if err == nil {
			return python
		}
		problems = append(problems, python+": "+err.Error()+" "+string(out))
	}
	t.Fatalf("no Python with scapy 2.5 or newer (Debian package python3-scapy):\n%s", strings.Join(problems, "\n"))
	return ""
}

// TestScapyBuildsTheSame: scapy reads each frame that leaves, forgets every
// length and checksum, and writes the frame again: to the same octets.
func TestScapyBuildsTheSame(t *testing.T) {
	frames := leaving(t)
	cmd := exec.Command(pythonWithScapy(t), "-c", scapyProgram, captured(t, frames))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("scapy: %v\n%s", err, problems.String())
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("scapy read %d frames of %d\n%s", len(lines), len(frames), problems.String())
	}
	for i, line := range lines {
		same, rest, _ := strings.Cut(line, " ")
		if same != "same" && frames[i].wrong == "" {
			t.Errorf("%s:\nours  %x\nscapy %s", frames[i].name, frames[i].frame, rest)
		}
	}
}
