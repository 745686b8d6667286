package dataplane

import (
	"bytes"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// TestExplainGolden explains each packet of TestGolden before it arrives: it becomes what was
// said, and counters, records and events are those of the packet alone.
func TestExplainGolden(t *testing.T) {
	files := goldenFiles(t)
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		x, err := loadExplanation(r.d)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		begins := false
		r.run = func(frame []byte, ifindex int) (verdict uint32, out []byte, err error) {
			if begins { // from here on both see the same packets
				must(t, x.copyFrom(r.d))
				begins = false
			}
			said, err := x.run([][]byte{frame}, ifindex)
			if err != nil {
				return 0, nil, err
			}
			verdict, out, err = r.d.Frames.Test(frame, ifindex)
			if got := said[0]; got.Verdict != verdict || verdict != xdp.VerdictDrop && !bytes.HasPrefix(out, got.Out[:got.OutCaptured]) {
				t.Errorf("said %s (%s), was %s, of %x", xdp.VerdictName(got.Verdict), reason.Reason(got.Reason), xdp.VerdictName(verdict), frame)
			}
			return verdict, out, err
		}
		for _, f := range files {
			begins = true
			r.goldenFile(t, f)
		}
	})
}
