package pfcp

import "testing"

// A server that was killed and is back does not number its requests as before:
// a peer would take them for requests that it has answered.
func TestSequenceAfterARestart(t *testing.T) {
	var before, after requests
	before.init(nil)
	after.init(nil)
	first, second := before.number(true), before.number(true)
	if second-first+1 < 3 {
		t.Error("a secret number follows from the one before")
	}
	if before.next == after.next {
		t.Errorf("both begin at %d", before.next)
	}
}
