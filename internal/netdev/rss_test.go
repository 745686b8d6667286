package netdev

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// recorded is a card that answers as testdata/card-ice says, and keeps what is set.
type recorded struct {
	t       *testing.T
	answers [][2][]byte // the beginning of a request, the answer
	set     []string
	refuse  error
}

func iceCard(t *testing.T) (*Card, *recorded) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "card-ice"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorded{t: t}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || strings.HasPrefix(line, "#") {
			continue
		}
		var pair [2][]byte
		for i, f := range fields {
			if pair[i], err = hex.DecodeString(f); err != nil {
				t.Fatal(err)
			}
		}
		r.answers = append(r.answers, pair)
	}
	return &Card{"eth1", "ice", r.call}, r
}

func (r *recorded) call(device string, request []byte) error {
	if device != "eth1" {
		r.t.Errorf("device %q is asked", device)
	}
	if r.refuse != nil {
		return r.refuse
	}
	switch binary.NativeEndian.Uint32(request) {
	case unix.ETHTOOL_SRXFH, unix.ETHTOOL_SRXFHINDIR:
		r.set = append(r.set, strings.TrimRight(hex.EncodeToString(request), "0"))
		return nil
	}
	for _, a := range r.answers {
		if len(request) >= len(a[1]) && slices.Equal(request[:len(a[0])], a[0]) {
			copy(request, a[1])
			return nil
		}
	}
	return unix.EINVAL
}

// TestCardAsIceAnswers reads and sets what ice has, octet by octet.
func TestCardAsIceAnswers(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the answers are those of a little-endian machine")
	}
	c, r := iceCard(t)
	addresses := HashSource | HashDestination
	want := map[FlowType]HashFields{"gtpu4": addresses, "gtpu4e": addresses | HashTEID, "gtpu4u": addresses, "gtpu4d": addresses, "gtpu6e": addresses}
	if got, err := c.GTPUHash(); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	table := []uint32{0, 1, 2, 3, 0, 1, 2, 3}
	if got, err := c.Table(); err != nil || !slices.Equal(got, table) {
		t.Errorf("%v, %v; want %v", got, err, table)
	}
	if err := c.SetGTPUHash("gtpu4u", addresses|HashTEID); err != nil {
		t.Error(err)
	}
	if err := c.SetTable([]uint32{2, 3, 2, 3, 2, 3, 2, 258}); err != nil {
		t.Error(err)
	}
	sent := []string{"2a0000001b0000003001", "39000000080000000200000003000000020000000300000002000000030000000200000002010000"}
	for i := range sent {
		sent[i] = strings.TrimRight(sent[i], "0")
	}
	if !slices.Equal(r.set, sent) {
		t.Errorf("set by\n%s, want\n%s", strings.Join(r.set, "\n"), strings.Join(sent, "\n"))
	}
}

// TestCardThatRefuses: what a driver does not know is named with the driver; other errors
// are not taken for that.
func TestCardThatRefuses(t *testing.T) {
	for _, errno := range []error{unix.EOPNOTSUPP, unix.EINVAL, unix.EPERM, unix.EBUSY} {
		c, r := iceCard(t)
		r.refuse = errno
		hash, hashErr := c.GTPUHash()
		_, tableErr := c.Table()
		lacks := errors.Is(errno, unix.EOPNOTSUPP) || errors.Is(errno, unix.EINVAL)
		if hash != nil || (hashErr == nil) != lacks {
			t.Errorf("%v: %v, %v", errno, hash, hashErr)
		}
		for _, err := range []error{tableErr, c.SetTable([]uint32{0}), c.SetGTPUHash("gtpu4", HashTEID)} {
			var not *NotSupportedError
			if err == nil || errors.As(err, &not) != lacks || lacks && !strings.HasPrefix(err.Error(), "eth1: driver ice does not support") {
				t.Errorf("%v: %v", errno, err)
			}
		}
	}
	empty := &Card{"eth1", "none", func(string, []byte) error { return nil }}
	if table, err := empty.Table(); err == nil {
		t.Errorf("a card without a table: %v", table)
	}
}

// TestCardOfThisKernel: a veth has queues, and neither hash nor table.
func TestCardOfThisKernel(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "v0", ns, "v1")
	ns.Do(t, func() {
		i, err := NewInspector()
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		if f, err := i.Facts("v0"); err != nil || f.GTPUHash != nil || f.RxQueues == 0 {
			t.Errorf("a veth: %v, %v", f, err)
		}
		c, err := i.Card("v0")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Table()
		for _, err := range []error{err, c.SetTable([]uint32{0}), c.SetGTPUHash("gtpu4e", HashTEID)} {
			if not := (*NotSupportedError)(nil); !errors.As(err, &not) || not.Driver != "veth" {
				t.Errorf("a veth: %v", err)
			}
		}
		if _, err := i.Card("none"); err == nil {
			t.Error("no error though there is no such device")
		}
	})
}

func TestFlowsOf5G(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for want, addresses := range map[string][]netip.Addr{
		"gtpu4e gtpu4u gtpu4d": {v4}, "gtpu6e gtpu6u gtpu6d": {v6}, "gtpu4e gtpu4u gtpu4d gtpu6e gtpu6u gtpu6d": {v6, v4},
	} {
		got := FlowsOf5G(addresses)
		for _, flow := range got {
			if gtpuFlows[flow] == 0 {
				t.Errorf("%s has no number", flow)
			}
		}
		if words := strings.Fields(want); len(got) != len(words) || string(got[0]) != words[0] || string(got[len(got)-1]) != words[len(words)-1] {
			t.Errorf("%v: %v", addresses, got)
		}
	}
	if len(FlowsOf5G(nil)) != 3 {
		t.Error("without addresses")
	}
}
