package dataplane

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of membarrier(2).
const membarrierGlobal = 1

// periods are RCU grace periods that callers share. XDP programs run inside RCU
// read sections, so what was unlinked before one is seen by no packet after it.
// A period that has begun is of no use to who comes then: everybody waits for
// the next, which one of them asks the kernel for.
type periods struct {
	mu          sync.Mutex
	changed     *sync.Cond
	begun, over uint64 // numbers of the last ones
}

func newPeriods() *periods {
	p := &periods{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// next is the number of the period after which no packet sees any more what is
// unlinked now.
func (p *periods) next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun + 1
}

// ended is the number of the last one that is over.
func (p *periods) ended() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// wait returns when period n is over.
func (p *periods) wait(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.over < n {
		if p.begun > p.over { // somebody's is on
			p.changed.Wait()
			continue
		}
		p.begun++
		p.mu.Unlock()
		gracePeriod()
		p.mu.Lock()
		p.over = p.begun
		p.changed.Broadcast()
	}
}

// gracePeriod returns when every packet that was on its way has left.
func gracePeriod() {
	// With more than one CPU the kernel waits for an RCU grace period
	// (about 10 ms). It refuses on kernels with nohz_full: there, sleep for
	// longer than any packet takes.
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		time.Sleep(50 * time.Millisecond)
	}
}
