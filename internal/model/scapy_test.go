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

// TestScapyBuildsTheSame: scapy reads each frame that leaves, forgets every
// length and checksum, and writes the frame again: to the same octets.
func TestScapyBuildsTheSame(t *testing.T) {
	frames := leaving(t)
	cmd := exec.Command("python3", "-c", scapyProgram, pcap(t, frames))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("scapy 2.5 or newer (pip package scapy): %v\n%s", err, problems.String())
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
