package pool

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

func TestPools(t *testing.T) {
	a := New([]Pool{
		{NetworkInstance: "internet", Prefixes: sample.Prefixes("10.0.0.0/29", "2001:db8::/62")},
		{Prefixes: sample.Prefixes("10.1.0.0/30")},
	})
	var got []string
	for {
		list, err := a.Allocate("Internet", true, false)
		if err != nil {
			if !errors.Is(err, pfcp.ErrNoResources) || !strings.Contains(err.Error(), "IPv4") {
				t.Error(err)
			}
			break
		}
		got = append(got, list[0].String())
	}
	want := []string{"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", "10.0.0.5/32", "10.0.0.6/32", "10.1.0.1/32", "10.1.0.2/32"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	// Both or none.
	if _, err := a.Allocate("internet", true, true); !errors.Is(err, pfcp.ErrNoResources) {
		t.Error(err)
	}
	for range 4 {
		if _, err := a.Allocate("internet", false, true); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Allocate("internet", false, true); err == nil {
		t.Error("a fifth /64 of a /62")
	}
	a.Free(sample.Prefixes("2001:db8:0:2::/64", "10.0.0.2/32"))
	if list, err := a.Allocate("internet", true, true); err != nil || list[1] != netip.MustParsePrefix("2001:db8:0:2::/64") {
		t.Errorf("%v, %v", list, err)
	}
	if err := a.Take(sample.Prefixes("192.0.2.1/32", "10.0.0.1/32")); !errors.Is(err, pfcp.ErrTaken) {
		t.Error(err)
	}
	if err := a.Take(sample.Prefixes("192.0.2.1/32")); err != nil {
		t.Errorf("after one that was refused: %v", err)
	}
	if err := a.Take([]netip.Prefix{netip.MustParsePrefix("2001:db8:0:1::5/128")}); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("an address of a /64 that is taken: %v", err)
	}
	a.Replace([]Pool{{Prefixes: sample.Prefixes("192.0.2.0/30")}})
	if list, err := a.Allocate("", true, false); err != nil || list[0].String() != "192.0.2.2/32" {
		t.Errorf("in other pools: %v, %v", list, err)
	}
	if err := a.Take(sample.Prefixes("10.0.0.1/32")); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("of a pool that is gone: %v", err)
	}
}
