package gtpu

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/srv6"
)

func both() Tunnel {
	return Tunnel{
		Name: "ue1", LocalTEID: 0x100, Decapsulate: true, Table: 100,
		Remote: netip.MustParseAddr("192.0.2.1"), RemoteTEID: 0x200, Source: netip.MustParseAddr("192.0.2.9"),
		QFI: 9, PDUSessionContainer: srv6.ContainerDownlink,
	}
}

func TestValidTunnels(t *testing.T) {
	for name, tunnel := range map[string]Tunnel{
		"both directions": both(),
		"receives only":   {Name: "a", LocalTEID: 1, Decapsulate: true},
		"switches":        {Name: "a", LocalTEID: 1, SwitchTo: "b"},
		"into a policy":   {Name: "a", LocalTEID: 1, Policy: "p"},
		"sends only":      {Name: "a", Remote: netip.MustParseAddr("2001:db8::1"), RemoteTEID: 1},
		"QFI 0":           {Name: "a", Remote: netip.MustParseAddr("2001:db8::1"), RemoteTEID: 1, PDUSessionContainer: srv6.ContainerUplink},
	} {
		if errs := tunnel.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// Each row is one mutation of a valid tunnel, and the one error it gets.
func TestInvalidTunnels(t *testing.T) {
	for _, tt := range []struct {
		change func(*Tunnel)
		want   string
	}{
		{func(u *Tunnel) { u.Name = "" }, "name: is missing"},
		{func(u *Tunnel) { *u = Tunnel{Name: "a"} }, "local_teid: neither local_teid nor remote"},
		{func(u *Tunnel) { u.LocalTEID = 0 }, "local_teid: is missing"},
		{func(u *Tunnel) { u.Table = 1<<30 | 100 }, "table: 1073741924 is too large"},
		{func(u *Tunnel) { u.Decapsulate, u.Table = false, 0 }, "decapsulate: nothing says"},
		{func(u *Tunnel) { u.SwitchTo = "b" }, "switch_to: is more than one"},
		{func(u *Tunnel) { u.Policy = "p" }, "policy: is more than one"},
		{func(u *Tunnel) { u.SwitchTo, u.Policy = "b", "p" }, "policy: is more than one"},
		{func(u *Tunnel) { u.Decapsulate, u.Policy = false, "p" }, "table: is looked up only"},
		{func(u *Tunnel) { u.Remote = netip.Addr{} }, "remote: is missing"},
		{func(u *Tunnel) { u.Remote = netip.MustParseAddr("0.0.0.0") }, "remote: 0.0.0.0 is the unspecified"},
		{func(u *Tunnel) { u.Remote = netip.MustParseAddr("239.1.1.1") }, "remote: 239.1.1.1 is a multicast"},
		{func(u *Tunnel) { u.RemoteTEID = 0 }, "remote_teid: is missing"},
		{func(u *Tunnel) { u.Source = netip.MustParseAddr("2001:db8::1") }, "source: 2001:db8::1 is of another family"},
		{func(u *Tunnel) { u.Source = netip.MustParseAddr("127.0.0.1") }, "source: 127.0.0.1 is a loopback"},
		{func(u *Tunnel) { u.QFI = 64 }, "qfi: 64 has more than 6 bits"},
		{func(u *Tunnel) { u.PDUSessionContainer = srv6.ContainerNone }, "qfi: is not sent without"},
		{func(u *Tunnel) { u.PDUSessionContainer = 7 }, "pdu_session_container: ContainerType(7) is unknown"},
	} {
		tunnel := both()
		tt.change(&tunnel)
		errs := tunnel.Validate()
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tt.want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", tt.want, errs)
		}
	}
}
