package netns

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestVethCarriesPackets(t *testing.T) {
	a, b := New(t), New(t)
	endA, endB := Veth(t, a, "a0", b, "b0")
	if endA.Name != "a0" || endB.Name != "b0" || len(endB.HardwareAddr) != 6 {
		t.Fatalf("ends are %+v and %+v", endA, endB)
	}
	a.Addr(t, "a0", "10.0.0.1/24")
	b.Addr(t, "b0", "10.0.0.2/24")
	a.Addr(t, "a0", "2001:db8::1/64")
	b.Addr(t, "b0", "2001:db8::2/64")
	for _, address := range []string{"10.0.0.2:7", "[2001:db8::2]:7"} {
		var server net.PacketConn
		var client net.Conn
		var err error
		b.Do(t, func() { server, err = net.ListenPacket("udp", address) })
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		a.Do(t, func() { client, err = net.Dial("udp", address) })
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16)
		if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := server.ReadFrom(buf); err != nil || string(buf[:n]) != "hello" {
			t.Errorf("%s received %q: %v", address, buf[:n], err)
		}
	}
}

func TestDoReturns(t *testing.T) {
	ns := New(t)
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	Veth(t, ns, "in0", ns, "in1")
	ns.Do(t, func() {
		if _, err := net.InterfaceByName("in0"); err != nil {
			t.Errorf("inside: %v", err)
		}
	})
	if _, err := net.InterfaceByName("in0"); err == nil {
		t.Error("in0 is seen outside of its namespace")
	}
	after, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != len(after) {
		t.Errorf("the test's own namespace had %d interfaces, has %d", len(before), len(after))
	}
}

func TestNamesAreUniqueAndGo(t *testing.T) {
	var paths []string
	t.Run("make", func(t *testing.T) {
		a, b := New(t), New(t)
		paths = []string{a.Path, b.Path}
		if a.Path == b.Path {
			t.Errorf("two namespaces are both %s", a.Path)
		}
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	})
	for _, path := range paths {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", filepath.Base(path), err)
		}
	}
}
