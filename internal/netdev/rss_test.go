package netdev

import (
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// TestGTPUHash reads what drivers answer: ice with and without the TEID, one that knows
// UDP only, and a veth of this kernel.
func TestGTPUHash(t *testing.T) {
	addresses := HashSource | HashDestination
	ice := func(fields HashFields) hashAsker {
		return func(_ string, r *rxnfc) error {
			if r.command != unix.ETHTOOL_GRXFH || r.flowType < 0x13 || r.flowType > 0x1e {
				t.Errorf("command %#x, flow type %#x", r.command, r.flowType)
			}
			r.data = uint64(fields)
			return nil
		}
	}
	refusing := func(errno error) hashAsker { return func(string, *rxnfc) error { return errno } }
	for name, row := range map[string]struct {
		ask  hashAsker
		want HashFields // of each sort
		none bool
	}{
		"ice":              {ice(addresses), addresses, false},
		"ice, with TEID":   {ice(addresses | HashTEID), addresses | HashTEID, false},
		"without GTP-U":    {refusing(unix.EINVAL), 0, true},
		"without any hash": {refusing(unix.EOPNOTSUPP), 0, true},
	} {
		got, err := gtpuHash("eth0", row.ask)
		if err != nil || (got == nil) != row.none {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for flow, fields := range got {
			if fields != row.want {
				t.Errorf("%s: %s has %#x, want %#x", name, flow, fields, row.want)
			}
		}
		if !row.none && len(got) != len(gtpuFlows) {
			t.Errorf("%s: only %v", name, maps.Keys(got))
		}
	}
	if _, err := gtpuHash("eth0", refusing(unix.EPERM)); err == nil {
		t.Error("no error though the kernel refuses")
	}
	ns := netns.New(t)
	netns.Veth(t, ns, "v0", ns, "v1")
	ns.Do(t, func() {
		i, err := NewInspector()
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		if f, err := i.Facts("v0"); err != nil || f.GTPUHash != nil {
			t.Errorf("a veth: %v, %v", f.GTPUHash, err)
		}
	})
}
