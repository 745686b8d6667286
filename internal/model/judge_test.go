package model_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// judged is a frame that leaves, for somebody else to look at.
type judged struct {
	name  string
	frame []byte
	check string
	wrong string
}

// leaving are the frames of all golden rows that leave changed.
func leaving(t *testing.T) []judged {
	t.Helper()
	var all []judged
	for _, f := range files(t) {
		for i := range f.Rows {
			r := &f.Rows[i]
			if r.Want.Out == nil {
				if r.Check != "" {
					t.Errorf("%s: %s: nothing leaves that check could be about", f.Name(), r.Name)
				}
				continue
			}
			all = append(all, judged{f.Name() + ": " + r.Name, r.Want.Out, r.Check, r.Wrong})
		}
	}
	return all
}

// pcap writes frames as a capture of Ethernet.
func pcap(t *testing.T, frames []judged) string {
	t.Helper()
	var b bytes.Buffer
	le := binary.LittleEndian
	header := le.AppendUint32(nil, 0xa1b2c3d4)
	header = le.AppendUint16(le.AppendUint16(header, 2), 4)
	b.Write(append(header, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0))
	for i, f := range frames {
		record := le.AppendUint32(nil, uint32(i)*1000)
		record = le.AppendUint32(record, 0)
		record = le.AppendUint32(le.AppendUint32(record, uint32(len(f.frame))), uint32(len(f.frame)))
		b.Write(append(record, f.frame...))
	}
	path := filepath.Join(t.TempDir(), "frames.pcap")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tshark runs it on a capture with every checksum verified, and nothing
// learned from one frame used for another.
func tshark(t *testing.T, path string, args ...string) string {
	t.Helper()
	options := []string{"-r", path, "-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-o", "tcp.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:FALSE", "-o", "esp.do_esp_sequence_analysis:FALSE",
		"-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"}
	cmd := exec.Command("tshark", append(options, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark (Debian package tshark): %v\n%s", err, problems.String())
	}
	return out.String()
}

// TestTsharkFindsNoFault: what leaves has right lengths and checksums and no
// malformed layer, unless its row says why it cannot.
func TestTsharkFindsNoFault(t *testing.T) {
	frames := leaving(t)
	out := tshark(t, pcap(t, frames), "-T", "fields", "-e", "frame.number",
		"-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed")
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark read %d frames of %d", len(lines), len(frames))
	}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		faulty := fields[3] != "" || slices.ContainsFunc(strings.Split(fields[1], ","), warning)
		if faulty && frames[i].wrong == "" {
			t.Errorf("%s: %s %s\n%x", frames[i].name, fields[2], fields[3], frames[i].frame)
		}
	}
}

// warning says whether an expert severity is a warning or worse.
func warning(severity string) bool {
	const warn = 0x00600000
	n, err := strconv.Atoi(severity)
	return err == nil && n >= warn
}

// TestTsharkSeesWhatTheRowsSay: each row's check, which is written by hand,
// holds for the frame as tshark decodes it.
func TestTsharkSeesWhatTheRowsSay(t *testing.T) {
	frames := leaving(t)
	var terms []string
	for i, f := range frames {
		if f.check != "" {
			terms = append(terms, fmt.Sprintf("(frame.number == %d && (%s))", i+1, f.check))
		} else if f.wrong == "" {
			t.Errorf("%s: a frame leaves: say in check what it must be", f.name)
		}
	}
	out := tshark(t, pcap(t, frames), "-Y", strings.Join(terms, " || "), "-T", "fields", "-e", "frame.number")
	held := strings.Fields(out)
	for i, f := range frames {
		if f.check != "" && !slices.Contains(held, strconv.Itoa(i+1)) {
			t.Errorf("%s: does not hold: %s\n%x", f.name, f.check, f.frame)
		}
	}
}
