package model_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/testutil/tshark"
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

// captured writes them as a capture of Ethernet.
func captured(t *testing.T, frames []judged) string {
	t.Helper()
	list := make([][]byte, len(frames))
	for i, f := range frames {
		list[i] = f.frame
	}
	return tshark.Frames(t, list)
}

// read has tshark learn nothing of one frame that it uses for another.
func read(t *testing.T, path string, args ...string) string {
	t.Helper()
	return tshark.Read(t, path, append([]string{"-o", "tcp.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:FALSE",
		"-o", "esp.do_esp_sequence_analysis:FALSE", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"}, args...)...)
}

// TestTsharkFindsNoFault: what leaves has right lengths and checksums and no
// malformed layer, unless its row says why it cannot.
func TestTsharkFindsNoFault(t *testing.T) {
	frames := leaving(t)
	out := read(t, captured(t, frames), "-T", "fields", "-e", "frame.number",
		"-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed")
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) != len(frames) {
		t.Fatalf("tshark read %d frames of %d", len(lines), len(frames))
	}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		faulty := fields[3] != "" || slices.ContainsFunc(strings.Split(fields[1], ","), tshark.IsWarning)
		if faulty && frames[i].wrong == "" {
			t.Errorf("%s: %s %s\n%x", frames[i].name, fields[2], fields[3], frames[i].frame)
		}
	}
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
	out := read(t, captured(t, frames), "-Y", strings.Join(terms, " || "), "-T", "fields", "-e", "frame.number")
	held := strings.Fields(out)
	for i, f := range frames {
		if f.check != "" && !slices.Contains(held, strconv.Itoa(i+1)) {
			t.Errorf("%s: does not hold: %s\n%x", f.name, f.check, f.frame)
		}
	}
}
