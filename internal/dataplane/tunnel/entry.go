package tunnel

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Words of an entry of tunnel (bpf/def/tables.h).
const (
	wordVolume = 0
	WordKey    = wordVolume + counter.VolumeWords // key, teid
	WordAction = 6                                // index, action
)

// Entries is the table tunnel. TEIDs lead to a quarter of it, UE pools to another,
// and the rest is handed out: to TEIDs whose entry is taken, and to what sends.
// Callers hold the data path's lock.
type Entries struct {
	*table.Array[abi.Tunnel]
	grace   *table.Grace
	slots   uint32            // TEIDs lead to [1, slots)
	resting map[uint32]uint64 // entries of a fixed place that were cleared, and in which epoch
}

// NewEntries takes the table.
func NewEntries(words *table.Array[abi.Tunnel], grace *table.Grace) *Entries {
	return &Entries{words, grace, words.Len / 4, map[uint32]uint64{}}
}

// IsEmpty says whether packets find nothing at entry i, to which a UE pool leads.
func (x *Entries) IsEmpty(i uint32) bool { return uint8(x.Load(i, WordAction)>>32) == 0 }

// Counter is what entry i counted; of 0 it is zero.
func (x *Entries) Counter(i uint32) counter.Counter {
	if i == 0 {
		return counter.Counter{}
	}
	return counter.ReadVolume(x.Words(i)[wordVolume:])
}

// Wipe empties entries that no packet is led to.
func (x *Entries) Wipe(base, size uint32) {
	for i := base; i < base+size; i++ {
		x.Store(i, WordAction, 0)
		delete(x.resting, i)
	}
}

// Change makes entry i hold e, if at most one word differs: such a
// change no packet sees a half of. Counters stay.
func (x *Entries) Change(i uint32, e abi.Tunnel) bool {
	from, to := table.ToWords(x.Get(i)), table.ToWords(e)
	word, differ := 0, 0
	for w := WordKey; w < len(to); w++ {
		if from[w] != to[w] {
			word = w
			differ++
		}
	}
	if differ == 1 {
		x.Store(i, word, to[word])
	}
	return differ <= 1
}

// Write fills in an entry that no packet reaches yet; `last` is the word
// that lets them.
func (x *Entries) Write(i uint32, e abi.Tunnel, last int) {
	words := table.ToWords(e)
	for w, v := range words {
		if w != last {
			x.Store(i, w, v)
		}
	}
	x.Store(i, last, words[last])
}

// Clear takes an entry of a fixed place away, by the word that packets
// decide by. It rests until they have left.
func (x *Entries) Clear(i uint32, word int) {
	x.Store(i, word, 0)
	x.resting[i] = x.grace.Epoch
	if len(x.resting) >= table.MaxRetired {
		x.grace.Wait()
		clear(x.resting)
	}
}

// Free says whether an entry that was cleared may be written again.
func (x *Entries) Free(i uint32) bool {
	epoch, resting := x.resting[i]
	if !resting {
		return true
	}
	if epoch == x.grace.Epoch && !x.grace.WaitNow() {
		return false
	}
	delete(x.resting, i)
	return true
}
