package gtpulink

import (
	"encoding/binary"
	"testing"
	"time"
)

// A line hands packets on in order, none before its time, and refuses what it has no
// room for.
func TestLine(t *testing.T) {
	const delay, count = 20 * time.Millisecond, 100
	arrived := make(chan [2]int64, count)
	begun := time.Now()
	l := newLine(delay, func(p []byte) {
		arrived <- [2]int64{int64(binary.BigEndian.Uint64(p)), int64(time.Since(begun))}
	})
	put := make([]int64, count)
	packet := make([]byte, 8)
	for i := range put {
		binary.BigEndian.PutUint64(packet, uint64(i))
		put[i] = int64(time.Since(begun))
		if !l.put(packet) {
			t.Fatal("there is no room")
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- l.run() }()
	for i := range put {
		if a := <-arrived; a[0] != int64(i) || a[1]-put[i] < int64(delay) {
			t.Errorf("packet %d arrived as number %d after %v", a[0], i, time.Duration(a[1]-put[i]))
		}
	}
	close(l.end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range lineRoom {
		if !l.put(packet) {
			t.Fatal("there is no room")
		}
	}
	if l.put(packet) {
		t.Error("there is room for more than the line holds")
	}
}

// A link's packets go by its line from a Delay on, and at once from a Delay of 0 on.
func TestDelay(t *testing.T) {
	l := &link{Link: Link{Device: "x"}}
	e := &Endpoint{links: []*link{l}, failed: make(chan error, 1)}
	passed := 0
	pass := func() { l.pass([]byte{1}, down, func([]byte) { passed++ }) }
	if pass(); passed != 1 {
		t.Error("a link without delay holds a packet")
	}
	if err := e.Delay(Request{Device: "x", Wait: time.Second}, nil); err != nil {
		t.Fatal(err)
	}
	if pass(); passed != 1 {
		t.Error("a link with a delay holds nothing")
	}
	if err := e.Delay(Request{Device: "x"}, nil); err != nil {
		t.Fatal(err)
	}
	if pass(); passed != 2 {
		t.Error("a link holds a packet after its delay was taken back")
	}
	if err := e.Delay(Request{Device: "y"}, nil); err == nil {
		t.Error("a device that is not there was delayed")
	}
}
